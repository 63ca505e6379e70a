/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl status: what the daemon says of itself, one value a line under its
 * path, so that it reads well and greps well. --json has it whole.
 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

static void print_value(const char *path, const json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    char inner[256];

    if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, item)
        {
            snprintf(inner, sizeof(inner), "%s%s%s", path,
                     path[0] != '\0' ? "." : "", key);
            print_value(inner, item);
        }
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, item)
        {
            snprintf(inner, sizeof(inner), "%s.%zu", path, i);
            print_value(inner, item);
        }
    } else if (strcmp(path, "id") != 0 && strcmp(path, "event") != 0) {
        cli_print("%-28s ", path);
        if (json_is_string(v)) {
            cli_write_text(json_string_value(v), json_string_length(v));
        } else {
            char *text =
                json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
            cli_print("%s", text != NULL ? text : "");
            free(text);
        }
        cli_write("\n", 1);
    }
}

static void on_event(void *ctx, const struct step_event *e)
{
    char *text;

    (void)ctx;
    if (step_event_type(e) != STEP_EVENT_DONE ||
        step_event_get_json(e, "", &text) != 0) {
        return;
    }
    json_t *o = json_loads(text, 0, NULL);
    if (o != NULL) {
        print_value("", o);
    } else {
        /* A number beyond jansson's. */
        cli_write(text, strlen(text));
        cli_write("\n", 1);
    }
    json_decref(o);
    free(text);
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "one JSON object"},
        {0},
    };
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "status takes no argument");
    }
    code = cli_connect(cli);
    return code == 0 ? cli_run(cli, r, on_event, NULL) : code;
}

int cli_status(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "status", run, argc, argv);
}
