/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl sessions: the ops on named sessions, a request for each name.
 */

#include <stdio.h>
#include <string.h>

#include "client/cli.h"

static int64_t number(const struct step_event *e, const char *path)
{
    int64_t v = 0;

    (void)step_event_get_int(e, path, &v);
    return v;
}

static bool flag(const struct step_event *e, const char *path)
{
    bool v = false;

    (void)step_event_get_bool(e, path, &v);
    return v;
}

/* One line a session: for people and for awk. */
static void on_list(void *ctx, const struct step_event *e)
{
    size_t n = 0;
    char path[64];

    (void)ctx;
    if (step_event_type(e) != STEP_EVENT_PART ||
        step_event_get_count(e, "sessions", &n) < 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        static const char *const flags[] = {"pinned", "saved", "busy"};
        const char *name = "";
        size_t n_name = 0;

        (void)snprintf(path, sizeof(path), "sessions.%zu.name", i);
        (void)step_event_get_str(e, path, &name, &n_name);
        (void)snprintf(path, sizeof(path), "sessions.%zu.tokens", i);
        printf("%-24.*s %8lld tokens", (int)n_name, name,
               (long long)number(e, path));
        (void)snprintf(path, sizeof(path), "sessions.%zu.cached_tokens", i);
        printf(" %8lld cached", (long long)number(e, path));
        for (size_t k = 0; k < sizeof(flags) / sizeof(flags[0]); k++) {
            (void)snprintf(path, sizeof(path), "sessions.%zu.%s", i, flags[k]);
            if (flag(e, path)) {
                printf(" %s", flags[k]);
            }
        }
        printf("\n");
    }
}

/* A pin that came when the pages had gone is done, too, but holds nothing yet
 * (wire.h, 6a). */
static void on_pin(void *ctx, const struct step_event *e)
{
    const char **name = ctx;
    bool pinned;

    if (step_event_type(e) == STEP_EVENT_DONE &&
        step_event_get_bool(e, "pinned", &pinned) == 0 && !pinned) {
        cli_error("%s: not pinned yet: the cache does not hold its pages; its "
                  "next turn tries again",
                  *name);
    }
}

/* fn's ctx: the name's address. */
static int one(struct cli *cli, const char *op, const char *name,
               const char *to, step_event_fn fn)
{
    struct step_request *r;
    int code;

    if (step_request_create(&r, op) < 0) {
        cli_error("out of memory");
        return EX_OSERR;
    }
    if (name != NULL) {
        step_request_set_str(r, "session", name, strlen(name));
    }
    if (to != NULL) {
        step_request_set_str(r, "to", to, strlen(to));
    }
    code = cli_run(cli, r, fn, &name);
    step_request_destroy(r);
    return code;
}

int cli_sessions(struct cli *cli, int argc, char **argv)
{
    static const char *const verbs[] = {"pin",     "unpin", "save",
                                        "restore", "drop",  NULL};
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    char op[32];
    int n, i = 0, code = cli_parse(cli, options, NULL, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n < 1) {
        return cli_usage(cli, "list, pin, unpin, save, restore, drop or fork?");
    }
    while (verbs[i] != NULL && strcmp(verbs[i], argv[0]) != 0) {
        i++;
    }
    if (strcmp(argv[0], "list") == 0   ? n != 1
        : strcmp(argv[0], "fork") == 0 ? n != 3
                                       : verbs[i] == NULL || n < 2) {
        return cli_usage(cli, "list; pin, unpin, save, restore, drop NAME...; "
                              "fork NAME NEW");
    }
    code = cli_connect(cli);
    if (code != 0) {
        return code;
    }
    (void)snprintf(op, sizeof(op), "session_%s", argv[0]);
    if (n == 1) {
        return one(cli, op, NULL, NULL, on_list);
    }
    if (verbs[i] == NULL) {
        return one(cli, op, argv[1], argv[2], NULL);
    }
    for (int k = 1; k < n && code == 0; k++) {
        code = one(cli, op, argv[k], NULL,
                   strcmp(argv[0], "pin") == 0 ? on_pin : NULL);
    }
    return code;
}
