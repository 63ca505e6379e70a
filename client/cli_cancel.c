/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl cancel: ends a job by its number.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    char *end;
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n != 1) {
        return cli_usage(cli, "one job, please");
    }
    errno = 0;
    unsigned long long job = strtoull(argv[0], &end, 10);
    if (errno != 0 || *end != '\0' || job == 0 || strchr(argv[0], '-')) {
        return cli_usage(cli, "'%.40s' is not a job's number", argv[0]);
    }
    step_request_set_uint(r, "job", job);
    code = cli_connect(cli);
    return code == 0 ? cli_run(cli, r, NULL, NULL) : code;
}

int cli_cancel(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "cancel", run, argc, argv);
}
