/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl reload: the daemon reads its configuration again; what has changed is
 * printed, one key a line. Nothing is changed where a file is wrong, or where a
 * key is that only a restart can change.
 */

#include <stdio.h>

#include "client/cli.h"

static void on_event(void *ctx, const struct step_event *e)
{
    const char *key;
    char path[32];
    size_t n = 0, len;

    (void)ctx;
    (void)step_event_get_count(e, "changed", &n);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "changed.%zu", i);
        if (step_event_get_str(e, path, &key, &len) == 0) {
            cli_write_text(key, len);
            cli_write("\n", 1);
        }
    }
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "reload takes no argument");
    }
    code = cli_connect(cli);
    return code == 0 ? cli_run(cli, r, on_event, NULL) : code;
}

int cli_reload(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "reload", run, argc, argv);
}
