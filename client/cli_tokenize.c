/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl tokenize: a text's token ids on one line.
 */

#include "client/cli.h"

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    size_t n_printed = 0;
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    code = cli_take_text(cli, r, n, argv);
    if (code == 0) {
        code = cli_connect(cli);
    }
    if (code == 0) {
        code = cli_run(cli, r, cli_print_ids, &n_printed);
    }
    return code;
}

int cli_tokenize(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "tokenize", run, argc, argv);
}
