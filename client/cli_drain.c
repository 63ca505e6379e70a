/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl drain: the daemon finishes what runs and takes no new work, until
 * drain --off or its end.
 */

#include "client/cli.h"

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    const struct cli_option options[] = {
        {"off", CLI_KEY_TRUE, NULL, "off", NULL, "take work again"},
        {0},
    };
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "drain takes no argument");
    }
    code = cli_connect(cli);
    return code == 0 ? cli_run(cli, r, NULL, NULL) : code;
}

int cli_drain(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "drain", run, argc, argv);
}
