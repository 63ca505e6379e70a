/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The command line and stepd.conf, as one struct conf.
 *
 * Owns nothing; struct conf owns its texts. Runs first, on the only thread, and
 * is the one place that ends the program by itself: for --version, --help and a
 * command line that is wrong. --model and its like are --set model=...: there
 * is one way in, and what comes later on the line wins.
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

#define MAX_SETS 64

struct args {
    const char *config;
    const char *set[MAX_SETS];
    int n_sets;
    bool check;
};

/* ---- command line -------------------------------------------------------- */

static void usage(FILE *f)
{
    (void)fputs(
        "usage: stepd [--config FILE] [--model DIR] [--backend auto|cpu|cuda]\n"
        "             [--socket PATH] [--set KEY=VALUE]... [--check]\n"
        "             [--version]\n",
        f);
}

static void add_set(struct args *a, const char *key, const char *value)
{
    char *text;

    if (a->n_sets == MAX_SETS) {
        (void)fprintf(stderr, "stepd: more than %d settings\n", MAX_SETS);
        exit(EX_USAGE);
    }
    if (key == NULL) {
        text = xstrdup(value);
    } else {
        text = xmalloc(strlen(key) + strlen(value) + 2);
        (void)sprintf(text, "%s=%s", key, value);
    }
    a->set[a->n_sets++] = text;
}

static void free_sets(struct args *a)
{
    for (int i = 0; i < a->n_sets; i++) {
        free((char *)a->set[i]);
    }
    a->n_sets = 0;
}

static void parse_args(struct args *a, int argc, char **argv)
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
            a->config = optarg;
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

int options_read(int argc, char **argv, struct conf *ret, bool *ret_check)
{
    struct args a = {0};
    struct conf_source src;
    struct conf_report rep;
    struct conf conf;
    int r;

    parse_args(&a, argc, argv);
    src = (struct conf_source){a.config, a.set, a.n_sets};
    r = conf_load(&src, &rep, &conf);
    free_sets(&a);
    if (r < 0) {
        for (int i = 0; i < rep.n; i++) {
            log_error("%s", rep.line[i]);
        }
        conf_report_finish(&rep);
        return EX_CONFIG;
    }
    if (conf.model[0] == '\0') {
        log_error("no model: give --model DIR, or model = DIR in stepd.conf");
        conf_finish(&conf);
        return EX_CONFIG;
    }
    *ret = conf;
    *ret_check = a.check;
    return EX_OK;
}

struct model_conf options_model(const struct conf *c)
{
    static const enum model_weights weights[] = {
        [CONF_WEIGHTS_MAP] = MODEL_MAP,
        [CONF_WEIGHTS_LOCK] = MODEL_LOCK,
        [CONF_WEIGHTS_COPY] = MODEL_COPY,
    };
    struct model_conf m = {
        .path = c->model,
        .backend = c->backend,
        .isa = strcmp(c->isa, "auto") == 0 ? NULL : c->isa,
        .n_threads = c->threads,
        .weights = weights[c->weights],
        .max_model_len = c->max_model_len,
        .max_seqs = c->max_seqs,
        .max_rows = c->max_batched_tokens,
        .drafts = c->drafts >= 0 ? c->drafts : -1,
        .drafts_required = c->drafts == CONF_DRAFTS_REQUIRE,
        .kv_bytes = c->kv_memory,
        .memory_utilization = c->memory_utilization,
    };

    return m;
}
