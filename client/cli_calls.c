/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Tool calls of an answer: collected from its events, printed the way one would
 * write them, and answered by whoever sits at the terminal. Only whole calls
 * count; what the daemon tells while they grow is for programs.
 */

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

static json_t *get_string(const struct step_event *e, const char *path)
{
    const char *s = "";
    size_t n = 0;

    (void)step_event_get_str(e, path, &s, &n);
    return json_stringn(s, n);
}

void cli_calls_take(struct json_t **calls, const struct step_event *e)
{
    int64_t index;

    if (step_event_get_int(e, "call.index", &index) != 0) {
        return;
    }
    if (*calls == NULL) {
        *calls = json_array();
    }
    json_array_append_new(
        *calls, json_pack("{s:o?, s:s, s:{s:o?, s:o?}}", "id",
                          get_string(e, "call.id"), "type", "function",
                          "function", "name", get_string(e, "call.name"),
                          "arguments", get_string(e, "call.arguments")));
}

/* name(key=value, ...): values as JSON. */
static void put_call(struct cli_text *t, const json_t *call)
{
    const json_t *f = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    const json_t *text = json_object_get(f, "arguments");
    json_t *arguments =
        json_loadb(json_string_value(text), json_string_length(text), 0, NULL);
    const char *key;
    json_t *value;
    size_t n = 0;

    cli_append(t, name, strlen(name));
    cli_append(t, STEP_STR("("));
    if (arguments == NULL) {
        /* Numbers beyond 64 bits, say: as it came. */
        cli_append(t, json_string_value(text), json_string_length(text));
    }
    json_object_foreach(arguments, key, value)
    {
        char *v = json_dumps(value, JSON_ENCODE_ANY);

        cli_append(t, ", ", n++ > 0 ? 2 : 0);
        cli_append(t, key, strlen(key));
        cli_append(t, STEP_STR("="));
        cli_append(t, v != NULL ? v : "?", v != NULL ? strlen(v) : 1);
        free(v);
    }
    cli_append(t, STEP_STR(")"));
    json_decref(arguments);
}

void cli_calls_print(const struct json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        struct cli_text t = {0};

        put_call(&t, json_array_get(calls, i));
        cli_append(&t, STEP_STR("\n"));
        cli_write_text(t.p, t.n);
        free(t.p);
    }
}

bool cli_calls_ask(const struct json_t *calls, struct json_t *messages,
                   cli_ask_fn ask, void *ctx)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        struct cli_text question = {0}, result = {0};
        json_t *content = NULL;

        put_call(&question, call);
        cli_append(&question, STEP_STR(" = \0"));
        if (ask(ctx, question.p, &result)) {
            content = json_stringn(result.n > 0 ? result.p : "", result.n);
        }
        free(question.p);
        free(result.p);
        if (content == NULL) {
            return false;
        }
        json_array_append_new(messages, json_pack("{s:s, s:O?, s:o}", "role",
                                                  "tool", "tool_call_id",
                                                  json_object_get(call, "id"),
                                                  "content", content));
    }
    return true;
}
