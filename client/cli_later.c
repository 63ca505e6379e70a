/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Commands that stepctl knows by name and this version does not have: any
 * command line of theirs is answered `unsupported`, so that a script can tell
 * them from a typing mistake.
 */

#include <stdio.h>
#include <string.h>

#include "client/cli.h"

int cli_later(struct cli *cli, int argc, char **argv)
{
    static const struct cli_option none[] = {{0}};
    char *help[] = {argv[0], (char *)"--help", NULL};
    int n;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            printf("Not in this version.\n");
            return cli_parse(cli, none, NULL, 2, help, &n);
        }
    }
    cli_error("unsupported: %s is not in this version", cli->command);
    return EX_UNAVAILABLE;
}
