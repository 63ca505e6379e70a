/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Command lines by table: a command lists its options, here they are parsed,
 * put where they belong, and printed by --help. What only the daemon can judge
 * (ranges, combinations) is not judged here.
 */

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

#define MAX_OPTIONS 64
#define MAX_SECONDS 1e12 /* in milliseconds it is an int64 still */

/* Options that every command has. Values above any character's. */
enum { OPT_HELP = 256, OPT_TABLE };

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    cli_error("%s", text);
    fprintf(stderr, "Try: stepctl %s%s--help\n",
            cli->command != NULL ? cli->command : "",
            cli->command != NULL ? " " : "");
    return EX_USAGE;
}

static void print_help(const struct cli *cli, const struct cli_option *options)
{
    const struct cli_command *c = cli_commands;

    while (strcmp(c->name, cli->command) != 0) {
        c++;
    }
    printf("Usage: stepctl %s [OPTION]...%s%s\n\n%s.\n", c->name,
           c->args[0] != '\0' ? " " : "", c->args, c->brief);
    if (c->more != NULL) {
        printf("%s\n", c->more);
    }
    printf("\n");
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        char left[48];
        snprintf(left, sizeof(left), "--%s%s%s", o->name,
                 o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
        printf("  %-26s %s\n", left, o->help);
    }
    printf("  %-26s %s\n", "-s SOCKET", "path or instance of the daemon");
}

/* A whole argument as a number. */
static bool parse_int(const char *s, int64_t *ret)
{
    char *end;

    errno = 0;
    long long v = strtoll(s, &end, 10);
    *ret = v;
    return errno == 0 && end != s && *end == '\0';
}

static bool parse_uint(const char *s, uint64_t *ret)
{
    char *end;

    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    *ret = v;
    return errno == 0 && end != s && *end == '\0' && strchr(s, '-') == NULL;
}

static bool parse_real(const char *s, double *ret)
{
    char *end;

    *ret = strtod(s, &end);
    return end != s && *end == '\0' && isfinite(*ret);
}

static void append(struct cli_list *list, const char *item)
{
    const char **grown =
        realloc(list->item, (list->n + 1) * sizeof(list->item[0]));

    if (grown == NULL) {
        cli_error("out of memory");
        exit(EX_OSERR);
    }
    list->item = grown;
    list->item[list->n++] = item;
}

static bool set_number(struct step_request *r, const struct cli_option *o,
                       const char *arg)
{
    int64_t i;
    uint64_t u;
    double d;

    if (o->kind == CLI_KEY_INT) {
        return parse_int(arg, &i) && step_request_set_int(r, o->key, i) == 0;
    }
    if (o->kind == CLI_KEY_UINT) {
        return parse_uint(arg, &u) && step_request_set_uint(r, o->key, u) == 0;
    }
    if (!parse_real(arg, &d)) {
        return false;
    }
    if (o->kind == CLI_KEY_MS) {
        if (d < 0 || d > MAX_SECONDS) {
            return false;
        }
        return step_request_set_int(r, o->key, (int64_t)(d * 1000 + 0.999)) ==
               0;
    }
    return step_request_set_real(r, o->key, d) == 0;
}

/* False: the argument is not what the option takes. What a setter refuses
 * sticks to the request and is told when that is run. */
static bool set_option(struct step_request *r, const struct cli_option *o,
                       const char *arg)
{
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->to = true;
        return true;
    case CLI_TEXT:
        *(const char **)o->to = arg;
        return true;
    case CLI_LIST:
        append(o->to, arg);
        return true;
    case CLI_SECONDS:
        return parse_real(arg, o->to) && *(double *)o->to >= 0 &&
               *(double *)o->to <= MAX_SECONDS;
    case CLI_KEY_STR:
        step_request_set_str(r, o->key, arg, strlen(arg));
        return true;
    case CLI_KEY_LIST:
        step_request_add_str(r, o->key, arg, strlen(arg));
        return true;
    case CLI_KEY_TRUE:
    case CLI_KEY_FALSE:
        step_request_set_bool(r, o->key, o->kind == CLI_KEY_TRUE);
        return true;
    case CLI_KEY_INT:
    case CLI_KEY_UINT:
    case CLI_KEY_REAL:
    case CLI_KEY_MS:
        break;
    }
    return set_number(r, o, arg);
}

/* getopt_long takes any beginning of a name that fits only one; which those are
 * changes with every option that is added, so scripts must not rest on them.
 * True where argv does not spell the option that was just parsed. */
static bool is_abbreviation(char **argv, const char *name)
{
    bool apart = optarg != NULL && optarg == argv[optind - 1];
    const char *given = argv[optind - 1 - apart] + 2;
    size_t n = strlen(name);

    return strncmp(given, name, n) != 0 ||
           (given[n] != '\0' && given[n] != '=');
}

int cli_parse(struct cli *cli, const struct cli_option *options,
              struct step_request *r, int argc, char **argv, int *ret_argc)
{
    struct option table[MAX_OPTIONS] = {{"help", no_argument, NULL, OPT_HELP}};
    int n = 1, c, i_table;

    for (const struct cli_option *o = options; o->name != NULL; o++, n++) {
        table[n] = (struct option){
            o->name, o->arg != NULL ? required_argument : no_argument, NULL,
            OPT_TABLE + (int)(o - options)};
    }
    /* Messages are made here: getopt's begin with argv[0]. */
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":hs:", table, &i_table)) != -1) {
        if (c >= OPT_HELP && is_abbreviation(argv, table[i_table].name)) {
            return cli_usage(cli, "unknown option %s: spell it out: --%s",
                             argv[optind - 1 - (optarg == argv[optind - 1])],
                             table[i_table].name);
        }
        if (c == OPT_HELP || c == 'h') {
            print_help(cli, options);
            return EX_OK;
        }
        if (c == 's') {
            cli->socket = optarg;
        } else if (c == ':') {
            return cli_usage(cli, "%s needs an argument", argv[optind - 1]);
        } else if (c == '?' && optopt > ' ' && optopt < 0x7f) {
            /* A letter, maybe one of several: optind may stand there still. */
            return cli_usage(cli, "unknown option -%c", optopt);
        } else if (c == '?') {
            return cli_usage(cli, "unknown option %s", argv[optind - 1]);
        } else if (!set_option(r, &options[c - OPT_TABLE], optarg)) {
            const struct cli_option *o = &options[c - OPT_TABLE];
            return cli_usage(cli, "--%s takes %s, not '%s'", o->name, o->arg,
                             optarg);
        }
    }
    /* getopt has moved the arguments to the end; to the front with them. */
    *ret_argc = argc - optind;
    memmove(argv, argv + optind, (size_t)*ret_argc * sizeof(*argv));
    return -1;
}
