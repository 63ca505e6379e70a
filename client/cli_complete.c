/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl complete: the model goes on with a text. Bytes in are bytes of the
 * prompt and text out is the answer's alone: no newline is taken or added in a
 * pipe.
 */

#include <stdlib.h>

#include "client/cli.h"

static int set_prompt(struct cli *cli, struct cli_generate *g, int argc,
                      char **argv)
{
    struct cli_text t = {0};
    int code = cli_read_prompt(&t, argc, argv);

    if (code < 0 && g->files.n == 0) {
        return cli_usage(cli, "a prompt is missing");
    }
    if (code <= 0) {
        code = cli_generate_inputs(g, &t);
    }
    if (code == 0) {
        code = cli_set_prompt(g->r, &t);
    }
    free(t.p);
    return code;
}

static int run(struct cli *cli, struct cli_generate *g, int argc, char **argv)
{
    struct cli_option options[2 + CLI_N_GENERATE] = {
        {"choice", CLI_LIST, "TEXT", NULL, &g->choices,
         "the answer is one of these; repeatable"},
    };
    int code, n;

    cli_generate_options(cli, g, options, 1);
    code = cli_parse(cli, options, g->r, argc, argv, &n);
    if (code >= 0) {
        return code;
    }
    if (n > 1) {
        return cli_usage(cli, "the prompt must be one argument: quote it");
    }
    code = set_prompt(cli, g, n, argv);
    if (code == 0) {
        code = cli_request_error(g->r);
    }
    if (code == 0) {
        code = cli_connect(cli);
    }
    return code == 0 ? cli_generate_run(cli, g) : code;
}

int cli_complete(struct cli *cli, int argc, char **argv)
{
    struct cli_generate g = {0};

    if (step_request_create(&g.r, "generate") != 0) {
        cli_error("out of memory");
        return EX_OSERR;
    }
    int code = run(cli, &g, argc, argv);
    step_request_destroy(g.r);
    free(g.files.item);
    free(g.choices.item);
    free(g.biases.item);
    return code;
}
