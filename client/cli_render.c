/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl render: what messages look like to the model. The file's keys become
 * the request's, so the daemon judges them.
 */

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

static int set_keys(struct step_request *r, json_t *file)
{
    const char *key;
    json_t *value;

    json_object_foreach(file, key, value)
    {
        char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        if (text == NULL) {
            cli_error("out of memory");
            return EX_OSERR;
        }
        step_request_set_json(r, key, text, strlen(text));
        free(text);
    }
    return cli_request_error(r);
}

static int read_keys(struct step_request *r, const char *path)
{
    struct cli_text t = {0};
    json_error_t error;
    int code = cli_read_file(&t, path);

    if (code == 0) {
        json_t *file = json_loadb(
            t.p, t.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        if (file == NULL) {
            cli_error("%s: line %d: %s", path, error.line, error.text);
            code = EX_DATAERR;
        } else if (!json_is_object(file)) {
            cli_error("%s: not a JSON object", path);
            code = EX_DATAERR;
        } else {
            code = set_keys(r, file);
        }
        json_decref(file);
    }
    free(t.p);
    return code;
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    bool ids = false;
    const struct cli_option options[] = {
        {"ids", CLI_FLAG, NULL, NULL, &ids,
         "token ids instead of text, BOS first"},
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    size_t n_printed = 0;
    char last = '\n';
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n != 1) {
        return cli_usage(cli, "one file, please");
    }
    code = read_keys(r, argv[0]);
    if (code != 0) {
        return code;
    }
    if (ids) {
        step_request_set_bool(r, "want_ids", true);
    }
    code = cli_connect(cli);
    if (code != 0) {
        return code;
    }
    return ids ? cli_run(cli, r, cli_print_ids, &n_printed)
               : cli_run(cli, r, cli_print_text, &last);
}

int cli_render(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "render", run, argc, argv);
}
