/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * tool_choice as the OpenAI chat API has it: a word, or a map that names a
 * function. A name that no tool has is refused here, and so is a demand for a
 * call where there is no tool: neither could be met.
 */
#include "daemon/text/choice.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/pyjson.h"
#include "daemon/text/why.h"

static bool has_tool(const json_t *tools, const json_t *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");

        if (json_equal(json_object_get(f, "name"), name)) {
            return true;
        }
    }
    return false;
}

static int read_word(const char *word, struct choice *ret,
                     const struct why *why)
{
    static const char *const words[] = {"auto", "none", "required"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(word, words[i]) == 0) {
            ret->kind = (enum choice_kind)i;
            return 0;
        }
    }
    return why_set(why, -EINVAL,
                   "tool_choice: expected auto, none, required or a function");
}

static int read_named(const json_t *v, const json_t *tools, struct choice *ret,
                      const struct why *why)
{
    const json_t *type = json_object_get(v, "type");
    const json_t *name =
        json_object_get(json_object_get(v, "function"), "name");

    if (!json_is_string(type) ||
        strcmp(json_string_value(type), "function") != 0) {
        return why_set(why, -EINVAL, "tool_choice.type: expected function");
    }
    if (!json_is_string(name)) {
        return why_set(why, -EINVAL,
                       "tool_choice.function.name: expected a string");
    }
    if (!has_tool(tools, name)) {
        return why_set(why, -EINVAL,
                       "tool_choice.function.name: no tool has this name");
    }
    ret->kind = CHOICE_NAMED;
    ret->n_name = json_string_length(name);
    ret->name = malloc(ret->n_name + 1);
    if (ret->name == NULL) {
        return why_set(why, -ENOMEM, "out of memory");
    }
    memcpy(ret->name, json_string_value(name), ret->n_name + 1);
    return 0;
}

int choice_read(const char *choice, size_t n_choice, const char *tools,
                size_t n_tools, struct choice *ret, char *why, size_t n_why)
{
    const struct why w = {.p = why, .n = n_why};
    json_t *list = NULL, *v = NULL;
    struct choice c = {.kind = CHOICE_AUTO};
    int r = 0;

    if (tools != NULL) {
        r = pyjson_parse("tools", tools, n_tools, 0, &list, &w);
    }
    c.has_tools = json_array_size(list) != 0;
    if (r == 0 && choice != NULL) {
        r = pyjson_parse("tool_choice", choice, n_choice, JSON_DECODE_ANY, &v,
                         &w);
    }
    if (r == 0 && v != NULL) {
        r = json_is_string(v) ? read_word(json_string_value(v), &c, &w)
                              : read_named(v, list, &c, &w);
    }
    if (r == 0 && c.kind == CHOICE_REQUIRED && !c.has_tools) {
        r = why_set(&w, -EINVAL, "tool_choice: required, and there is no tool");
    }
    json_decref(list);
    json_decref(v);
    if (r == 0) {
        *ret = c;
    } else {
        free(c.name);
    }
    return r;
}
