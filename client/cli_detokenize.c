/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl detokenize: the text of token ids, byte for byte.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

/* Ids between spaces, commas or brackets, so that JSON lists do too. */
static int parse_ids(struct cli *cli, char *text, int32_t **ret, size_t *ret_n)
{
    size_t n = 0, cap = 0;
    char *save = NULL;

    for (char *word = strtok_r(text, " \t\r\n,[]", &save); word != NULL;
         word = strtok_r(NULL, " \t\r\n,[]", &save)) {
        char *end;
        errno = 0;
        long v = strtol(word, &end, 10);
        if (errno != 0 || *end != '\0' || v < 0 || v > INT32_MAX) {
            return cli_usage(cli, "'%.40s' is not a token id", word);
        }
        if (n == cap) {
            cap = cap > 0 ? 2 * cap : 64;
            int32_t *grown = realloc(*ret, cap * sizeof(**ret));
            if (grown == NULL) {
                cli_error("out of memory");
                return EX_OSERR;
            }
            *ret = grown;
        }
        (*ret)[n++] = (int32_t)v;
    }
    *ret_n = n;
    return 0;
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    struct cli_text t = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    char last = '\n';
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n <= 1) {
        code = cli_read_prompt(&t, n, argv);
    } else {
        code = 0;
        for (int i = 0; i < n; i++) {
            cli_append(&t, argv[i], strlen(argv[i]));
            cli_append(&t, " ", 1);
        }
    }
    if (code < 0) {
        code = cli_usage(cli, "token ids are missing");
    }
    if (code == 0) {
        code = parse_ids(cli, t.p, &ids, &n_ids);
    }
    if (code == 0) {
        step_request_set_ids(r, "ids", ids, n_ids);
        code = cli_connect(cli);
    }
    if (code == 0) {
        code = cli_run(cli, r, cli_print_text, &last);
    }
    free(ids);
    free(t.p);
    return code;
}

int cli_detokenize(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "detokenize", run, argc, argv);
}
