/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The forms of response_format. Reasoning is a part of the grammar: the tags
 * that end it are looked for byte by byte, as reason.c does, so that it makes
 * no difference which tokens spell them, and a token that ends reasoning and
 * goes on has to go on as the format wants (fr_50). Pure.
 */
#include "daemon/text/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/jsongram.h"
#include "daemon/text/pattern.h"
#include "daemon/text/pyjson.h"
#include "daemon/text/schema.h"

/* ---- reasoning ----------------------------------------------------------- */

static const char end_tag[] = "</think>";
static const char call_tag[] = "<tool_call>";

/* Both tags begin with '<', which is nowhere else in them: what does not go on
 * with a tag is back at the start, or at the '<' that it is. */
static void put_tag(struct gram *g, uint32_t plain, uint32_t first,
                    const char *tag, uint32_t to)
{
    uint32_t at = first;
    size_t n = strlen(tag);

    for (size_t i = 1; i < n; i++) {
        uint8_t b = (uint8_t)tag[i];
        uint32_t next = i + 1 < n ? gram_node(g) : to;

        gram_bytes(g, at, b, b, next);
        if (i > 1) {
            gram_bytes(g, at, '<', '<', first);
            gram_bytes(g, at, 0, (b < '<' ? b : '<') - 1, plain);
            gram_bytes(g, at, (b < '<' ? b : '<') + 1, (b < '<' ? '<' : b) - 1,
                       plain);
            gram_bytes(g, at, (b < '<' ? '<' : b) + 1, 255, plain);
        }
        at = next;
    }
}

void format_reasoning(struct gram *g, uint32_t from, uint32_t content,
                      uint32_t call)
{
    uint32_t plain = gram_rule(g), first = gram_node(g), end = gram_node(g);
    uint32_t ended = gram_node(g), dead = gram_node(g);

    gram_final(g, end);
    if (g->err != 0) {
        return;
    }
    gram_bytes(g, g->rule[plain].start, 0, '<' - 1, end);
    gram_bytes(g, g->rule[plain].start, '<' + 1, 255, end);
    g->rule[plain].is_chars = true;
    gram_repeat(g, from, plain, 1, GRAM_NO_MAX, from);
    gram_bytes(g, from, '<', '<', first);
    gram_bytes(g, first, '<', '<', first);
    gram_bytes(g, first, 0, '/' - 1, from);
    gram_bytes(g, first, '/' + 1, '<' - 1, from);
    gram_bytes(g, first, '<' + 1, 't' - 1, from);
    gram_bytes(g, first, 't' + 1, 255, from);
    put_tag(g, from, first, end_tag, ended);
    put_tag(g, from, first, call_tag, call != 0 ? call : dead);
    gram_eps(g, ended, content);
    gram_bytes(g, ended, '\n', '\n', content);
}

/* ---- forms --------------------------------------------------------------- */

static int put_regex(struct gram *g, const json_t *v, uint32_t from,
                     uint32_t to, const struct why *why)
{
    const struct pattern_args a = {
        .text = json_string_value(v),
        .n = json_string_length(v),
        .whole = true,
        .max_chars = GRAM_NO_MAX,
    };

    if (!json_is_string(v)) {
        return why_set(why, -EINVAL, "response_format: regex must be a string");
    }
    return pattern_build(&a, g, from, to, why);
}

static int put_choice(struct gram *g, const json_t *v, uint32_t from,
                      uint32_t to, const struct why *why)
{
    struct jsongram_texts t = {0};
    const json_t *x;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) == 0 ||
        json_array_size(v) > FORMAT_MAX_CHOICES) {
        return why_set(why, -EINVAL,
                       "response_format: choice must be a list of 1 to %d "
                       "strings",
                       FORMAT_MAX_CHOICES);
    }
    json_array_foreach(v, i, x)
    {
        if (!json_is_string(x) || json_string_length(x) == 0) {
            jsongram_texts_finish(&t);
            return why_set(why, -EINVAL,
                           "response_format: choice[%zu] must be a string "
                           "that is not empty",
                           i);
        }
        jsongram_texts_add(&t, json_string_value(x), json_string_length(x));
    }
    jsongram_texts_put(&t, g, from, to);
    jsongram_texts_finish(&t);
    return g->err;
}

static int put_schema(struct gram *g, const json_t *v, uint32_t from,
                      uint32_t to, const struct why *why)
{
    struct jsongram j;
    struct schema *s;
    uint32_t rule;
    int r;

    jsongram_init(&j, g, CHARSET_JSON);
    r = schema_create(&s, v, &j, why);
    if (r < 0) {
        return r;
    }
    rule = schema_rule(s, v, "");
    r = schema_run(s);
    gram_call(g, from, rule, to);
    schema_destroy(s);
    return r;
}

static int put_object(struct gram *g, uint32_t from, uint32_t to)
{
    struct jsongram j;

    jsongram_init(&j, g, CHARSET_JSON);
    jsongram_object(&j, from, to);
    return g->err;
}

/* A key that nobody reads would quietly change what the answer must fit. keys
 * are separated by a blank. */
static int only_keys(const json_t *v, const char *keys, const char *path,
                     const struct why *why)
{
    const char *key;
    json_t *x;

    json_object_foreach((json_t *)v, key, x)
    {
        const size_t n = strlen(key);
        const char *p = keys;

        while (strncmp(p, key, n) != 0 || (p[n] != ' ' && p[n] != '\0')) {
            p = strchr(p, ' ');
            if (p == NULL) {
                return why_set(why, -EINVAL,
                               "response_format%s: \"%.60s\" is no key of it "
                               "(%s)",
                               path, key, keys);
            }
            p++;
        }
    }
    return 0;
}

/* {schema}, or {json_schema: {schema}} with what others send beside it. */
static int put_json_schema(struct gram *g, const json_t *v, uint32_t from,
                           uint32_t to, const struct why *why)
{
    const json_t *in = json_object_get(v, "json_schema");
    const json_t *x = json_object_get(in != NULL ? in : v, "schema");
    int r = in != NULL ? only_keys(v, "type json_schema", "", why)
                       : only_keys(v, "type schema", "", why);

    if (r == 0 && in != NULL) {
        r = only_keys(in, "name description strict schema", ".json_schema",
                      why);
    }
    if (r == 0 && x == NULL) {
        r = why_set(why, -EINVAL,
                    "response_format: json_schema needs a schema");
    }
    return r == 0 ? put_schema(g, x, from, to, why) : r;
}

static int put_form(struct gram *g, const json_t *v, uint32_t from, uint32_t to,
                    const struct why *why)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    int r;

    if (type != NULL && strcmp(type, "json_schema") == 0) {
        return put_json_schema(g, v, from, to, why);
    }
    if (type != NULL && strcmp(type, "json_object") == 0) {
        r = only_keys(v, "type", "", why);
        return r == 0 ? put_object(g, from, to) : r;
    }
    if (type != NULL && strcmp(type, "regex") == 0) {
        r = only_keys(v, "type regex", "", why);
        return r == 0 ? put_regex(g, json_object_get(v, type), from, to, why)
                      : r;
    }
    if (type != NULL && strcmp(type, "choice") == 0) {
        r = only_keys(v, "type choice", "", why);
        return r == 0 ? put_choice(g, json_object_get(v, type), from, to, why)
                      : r;
    }
    return why_set(why, -EINVAL,
                   "response_format: type must be text, json_object, "
                   "json_schema, regex or choice");
}

int format_finish(struct gram *g, uint32_t root, const struct why *why)
{
    int r = gram_finish(g, root);

    switch (r) {
    case -ENOENT:
        return why_set(why, -EINVAL,
                       "no answer can fit (or only one nested too deep)");
    case -ELOOP:
        return why_set(why, -EINVAL,
                       "the schema refers to itself without a value between");
    case -E2BIG:
        return why_set(why, -E2BIG, "the grammar is too large");
    default:
        return r;
    }
}

int format_compile(struct gram **ret, const struct format_args *a,
                   const struct why *why)
{
    struct gram *g = NULL;
    uint32_t root, from, to, content;
    const char *type;
    json_t *v = NULL;
    unsigned refused = pyjson_refused();
    int r = pyjson_parse("response_format", a->text, a->n, 0, &v, why);

    if (r < 0) {
        return r;
    }
    type = json_string_value(json_object_get(v, "type"));
    if (type != NULL && strcmp(type, "text") == 0) {
        r = only_keys(v, "type", "", why);
        json_decref(v);
        *ret = NULL;
        return r;
    }
    g = gram_create();
    if (g == NULL) {
        json_decref(v);
        return -ENOMEM;
    }
    root = gram_rule(g);
    content = gram_node(g);
    to = gram_node(g);
    gram_final(g, to);
    from = g->err == 0 ? g->rule[root].start : 0;
    if (a->reasoning) {
        format_reasoning(g, from, content, 0);
    } else {
        gram_eps(g, from, content);
    }
    r = g->err != 0 ? g->err : put_form(g, v, content, to, why);
    r = r < 0 ? r : format_finish(g, root, why);
    r = pyjson_refused() != refused ? -ENOMEM : r;
    json_decref(v);
    if (r < 0) {
        gram_destroy(g);
        return r;
    }
    *ret = g;
    return 0;
}
