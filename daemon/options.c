/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The command line and stepd.conf, as one struct conf.
 *
 * Owns the texts of --set; struct conf owns its own. Runs first, on the only
 * thread, and is the one place that ends the program by itself: for --version,
 * --help and a command line that is wrong. --model and its like are --set
 * model=...: there is one way in, and what comes later on the line wins.
 */

#include "daemon/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "config.h"
#include "daemon/base/conf.h"
#include "daemon/base/die.h"
#include "daemon/base/log.h"

/* ---- command line -------------------------------------------------------- */

static void usage(FILE *f)
{
    (void)fputs(
        "usage: stepd [--config FILE] [--model DIR] [--backend auto|cpu|cuda]\n"
        "             [--socket PATH] [--set KEY=VALUE]... [--check]\n"
        "             [--version]\n",
        f);
}

static void add_set(struct options *a, const char *key, const char *value)
{
    char *text;

    if (a->source.n_set == OPTIONS_MAX_SETS) {
        (void)fprintf(stderr, "stepd: more than %d settings\n",
                      OPTIONS_MAX_SETS);
        exit(EX_USAGE);
    }
    if (key == NULL) {
        text = xstrdup(value);
    } else {
        text = xmalloc(strlen(key) + strlen(value) + 2);
        (void)sprintf(text, "%s=%s", key, value);
    }
    a->set[a->source.n_set++] = text;
}

static void parse_args(struct options *a, int argc, char **argv)
{
    enum {
        ARG_CONFIG,
        ARG_MODEL,
        ARG_BACKEND,
        ARG_SOCKET,
        ARG_SET,
        ARG_CHECK,
        ARG_VERSION,
        ARG_HELP
    };
    static const struct option options[] = {
        {"config", required_argument, NULL, ARG_CONFIG},
        {"model", required_argument, NULL, ARG_MODEL},
        {"backend", required_argument, NULL, ARG_BACKEND},
        {"socket", required_argument, NULL, ARG_SOCKET},
        {"set", required_argument, NULL, ARG_SET},
        {"check", no_argument, NULL, ARG_CHECK},
        {"version", no_argument, NULL, ARG_VERSION},
        {"help", no_argument, NULL, ARG_HELP},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case ARG_CONFIG:
            a->source.file = optarg;
            break;
        case ARG_MODEL:
        case ARG_BACKEND:
        case ARG_SOCKET:
            add_set(a, options[c].name, optarg);
            break;
        case ARG_SET:
            add_set(a, NULL, optarg);
            break;
        case ARG_CHECK:
            a->check = true;
            break;
        case ARG_VERSION:
            (void)printf("stepd %s\n%s\n", PACKAGE_VERSION, CONFIGURE_SUMMARY);
            exit(EX_OK);
        case ARG_HELP:
            usage(stdout);
            exit(EX_OK);
        default:
            usage(stderr);
            exit(EX_USAGE);
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "stepd: unknown argument '%s'\n", argv[optind]);
        usage(stderr);
        exit(EX_USAGE);
    }
}

/* ---- configuration ------------------------------------------------------- */

int options_read(int argc, char **argv, struct options *ret, char *cause,
                 size_t n_cause)
{
    static const char no_model[] =
        "no model: give --model DIR, or model = DIR in stepd.conf";
    struct conf_report rep;

    memset(ret, 0, sizeof(*ret));
    ret->source.set = ret->set;
    parse_args(ret, argc, argv);
    if (conf_load(&ret->source, &rep, &ret->conf) < 0) {
        for (int i = 0; i < rep.n; i++) {
            log_error("%s", rep.line[i]);
        }
        (void)snprintf(cause, n_cause, "%s", rep.line[0]);
        conf_report_finish(&rep);
        return EX_CONFIG;
    }
    if (ret->conf.model[0] == '\0') {
        log_error("%s", no_model);
        (void)snprintf(cause, n_cause, "%s", no_model);
        conf_finish(&ret->conf);
        return EX_CONFIG;
    }
    return EX_OK;
}

void options_finish(struct options *o)
{
    for (int i = 0; i < o->source.n_set; i++) {
        free((char *)o->set[i]);
    }
    o->source.n_set = 0;
}

struct model_conf options_model(const struct conf *c)
{
    static const enum model_weights weights[] = {
        [CONF_WEIGHTS_AUTO] = MODEL_AUTO,
        [CONF_WEIGHTS_MAP] = MODEL_MAP,
        [CONF_WEIGHTS_LOCK] = MODEL_LOCK,
        [CONF_WEIGHTS_COPY] = MODEL_COPY,
        [CONF_WEIGHTS_COMPACT] = MODEL_COMPACT,
    };
    struct model_conf m = {
        .path = c->model,
        .backend = c->backend,
        .isa = strcmp(c->isa, "auto") == 0 ? NULL : c->isa,
        .n_threads = c->threads,
        .weights = weights[c->weights],
        .state_dir =
            c->state_dir[0] != '\0' ? c->state_dir : getenv("STATE_DIRECTORY"),
        .max_model_len = c->max_model_len,
        .max_seqs = c->max_seqs,
        .max_rows = c->max_batched_tokens,
        .drafts = c->drafts >= 0 ? c->drafts : -1,
        .drafts_required = c->drafts == CONF_DRAFTS_REQUIRE,
        .kv_bytes = c->kv_memory,
        .checkpoint_bytes = c->checkpoint_memory,
        .memory_utilization = c->memory_utilization,
        .no_graphs = !c->cuda_graphs,
        .inexact = !c->exact,
    };

    return m;
}
