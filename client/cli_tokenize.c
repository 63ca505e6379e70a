/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl tokenize: a text's token ids on one line.
 */

#include <stdlib.h>

#include "client/cli.h"

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    struct cli_text t = {0};
    size_t n_printed = 0;
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 1) {
        return cli_usage(cli, "the text must be one argument: quote it");
    }
    code = cli_read_prompt(&t, n, argv);
    if (code < 0) {
        code = cli_usage(cli, "a text is missing");
    }
    if (code == 0) {
        code = cli_set_prompt(r, &t);
    }
    if (code == 0) {
        code = cli_connect(cli);
    }
    if (code == 0) {
        code = cli_run(cli, r, cli_print_ids, &n_printed);
    }
    free(t.p);
    return code;
}

int cli_tokenize(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "tokenize", run, argc, argv);
}
