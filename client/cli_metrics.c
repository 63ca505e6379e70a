/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl metrics: Prometheus text as the daemon says it. (Over HTTP comes
 * later.)
 */

#include "client/cli.h"

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    bool http = false;
    const struct cli_option options[] = {
        {"http", CLI_FLAG, NULL, NULL, &http, "serve them over HTTP"},
        {0},
    };
    char last = '\n';
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "metrics takes no argument");
    }
    if (http) {
        cli_error("unsupported: --http is not in this version");
        return EX_UNAVAILABLE;
    }
    code = cli_connect(cli);
    return code == 0 ? cli_run(cli, r, cli_print_text, &last) : code;
}

int cli_metrics(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "metrics", run, argc, argv);
}
