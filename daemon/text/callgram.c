/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Tool calls as grammar. A value of type string is text as it is, in which no
 * tag of the format may occur: the tags are looked for as reason.c looks for
 * its own, and the one at which the text ends is led out. Every other value is
 * JSON with "<" escaped, so that no tag can occur in it either. Pure.
 */
#include "daemon/text/callgram.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/format.h"
#include "daemon/text/jsongram.h"
#include "daemon/text/pattern.h"
#include "daemon/text/pyjson.h"
#include "daemon/text/schema.h"

static const char value_end[] = "</parameter>\n";

/* ---- text as it is ------------------------------------------------------- */

static const char *const tags[] = {
    "</parameter>", "<parameter=",  "</function>",
    "<function",    "</tool_call>", "<tool_call>"};
#define N_TAGS (sizeof(tags) / sizeof(tags[0]))

struct raw {
    struct gram *g;
    struct charset plain; /* no "<", no newline, no other control */
    uint32_t text, first, end;
};

/* A newline is part of the text, or the one before the end. */
static void newline(struct raw *r, uint32_t from)
{
    gram_bytes(r->g, from, '\n', '\n', r->text);
    gram_bytes(r->g, from, '\n', '\n', r->end);
}

/* At a node where the first `at` bytes of tags lo..hi-1 (sorted) have been
 * read: what goes on with none of them is text again. */
static void put_tags(struct raw *r, const struct jsongram_texts *t, uint32_t lo,
                     uint32_t hi, size_t at, uint32_t node)
{
    struct charset other = {0};

    charset_add(&other, '<', '<');
    while (lo < hi) {
        const struct jsongram_text *x = &t->text[lo];
        uint8_t b = (uint8_t)x->p[at];
        uint32_t end = lo, next = gram_node(r->g);

        while (end < hi && (uint8_t)t->text[end].p[at] == b) {
            end++;
        }
        charset_add(&other, b, b);
        /* A whole tag leads nowhere. */
        if (at + 1 < x->n) {
            gram_bytes(r->g, node, b, b, next);
            put_tags(r, t, lo, end, at + 1, next);
        }
        lo = end;
    }
    charset_invert(&other);
    charset_keep(&other, &r->plain);
    charset_edges(&other, r->g, CHARSET_UTF8, node, r->text);
    charset_finish(&other);
    gram_bytes(r->g, node, '<', '<', r->first);
    newline(r, node);
}

/* Any text, up to and with its end tag. */
static void put_text(struct gram *g, uint32_t from, uint32_t to)
{
    struct raw r = {
        .g = g, .text = from, .first = gram_node(g), .end = gram_node(g)};
    struct jsongram_texts t = {0};

    charset_add(&r.plain, '\t', '\t');
    charset_add(&r.plain, '\r', '\r');
    charset_add(&r.plain, ' ', '<' - 1);
    charset_add(&r.plain, '<' + 1, CHARSET_LAST);
    charset_normalise(&r.plain);
    for (size_t i = 0; i < N_TAGS; i++) {
        jsongram_texts_add(&t, tags[i], strlen(tags[i]));
    }
    jsongram_texts_sort(&t);
    pattern_chars(g, &r.plain, CHARSET_UTF8, from, 1, GRAM_NO_MAX, from);
    gram_bytes(g, from, '<', '<', r.first);
    newline(&r, from);
    if (t.err == 0) {
        put_tags(&r, &t, 0, t.n, 1, r.first);
    } else {
        g->err = g->err != 0 ? g->err : t.err;
    }
    gram_eps(g, gram_puts(g, r.end, value_end), to);
    jsongram_texts_finish(&t);
    charset_finish(&r.plain);
}

/* ---- values -------------------------------------------------------------- */

struct calls {
    struct gram *g;
    struct jsongram j;
    const struct why *why;
    const char *tool; /* for refusals */
};

/* Types whose values are text as it is: model-spec 7.2, coercion, 2 and 3. */
static bool is_text(const json_t *schema)
{
    static const char *const names[] = {"string",  "str",  "text",
                                        "varchar", "char", "enum"};
    const json_t *type = json_object_get(schema, "type");
    const char *name = json_string_value(type);

    if (!json_is_object(schema) || type == NULL) {
        return true;
    }
    for (size_t i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]);
         i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_tag(const char *p)
{
    for (size_t i = 0; i < N_TAGS; i++) {
        if (strstr(p, tags[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* One of a list of strings. False: it is none, or a tag is in one. */
static bool put_names(struct calls *c, const json_t *list, uint32_t from,
                      uint32_t to)
{
    struct jsongram_texts t = {0};
    const json_t *x;
    size_t i;
    bool ok = json_array_size(list) > 0;

    json_array_foreach(list, i, x)
    {
        ok = ok && json_is_string(x) && !has_tag(json_string_value(x));
        if (ok) {
            jsongram_texts_add(&t, json_string_value(x), json_string_length(x));
        }
    }
    if (ok) {
        uint32_t end = gram_node(c->g);

        jsongram_texts_put(&t, c->g, from, end);
        gram_eps(c->g,
                 gram_puts(c->g, gram_text(c->g, end, "\n", 1), value_end), to);
    }
    jsongram_texts_finish(&t);
    return ok;
}

static void put_value(struct calls *c, struct schema *s, const json_t *schema,
                      const char *name, uint32_t from, uint32_t to)
{
    char path[SCHEMA_MAX_PATH];
    uint32_t end;

    if (is_text(schema)) {
        if (!put_names(c, json_object_get(schema, "enum"), from, to)) {
            put_text(c->g, from, to);
        }
        return;
    }
    (void)snprintf(path, sizeof(path), "%.60s/%.60s", c->tool, name);
    end = gram_node(c->g);
    gram_call(c->g, from, schema_rule(s, schema, path), end);
    gram_eps(c->g, gram_puts(c->g, gram_text(c->g, end, "\n", 1), value_end),
             to);
}

/* ---- calls --------------------------------------------------------------- */

static bool is_name(const char *p)
{
    return *p != '\0' && strpbrk(p, "<>\n\"'= \t") == NULL;
}

static bool is_required(const json_t *parameters, const char *name)
{
    const json_t *x;
    size_t i;

    json_array_foreach(json_object_get(parameters, "required"), i, x)
    {
        if (json_is_string(x) && strcmp(json_string_value(x), name) == 0) {
            return true;
        }
    }
    return false;
}

static int put_parameters(struct calls *c, const json_t *parameters,
                          uint32_t from, uint32_t to)
{
    struct schema *s;
    const char *name;
    json_t *x;
    int r = schema_create(&s, parameters, &c->j, c->why);

    if (r < 0) {
        return r;
    }
    json_object_foreach(json_object_get(parameters, "properties"), name, x)
    {
        uint32_t next = gram_node(c->g), text = gram_node(c->g), value;

        if (!is_name(name)) {
            r = why_set(c->why, -EINVAL,
                        "tools: a parameter of %.60s has a name that the "
                        "format of calls cannot write",
                        c->tool);
            break;
        }
        value = gram_puts(c->g, from, "<parameter=");
        value = gram_puts(c->g, gram_puts(c->g, value, name), ">\n");
        /* Text loops over its first node, which must be its own. */
        gram_eps(c->g, value, text);
        put_value(c, s, x, name, text, next);
        if (!is_required(parameters, name)) {
            gram_eps(c->g, from, next);
        }
        from = next;
    }
    r = r < 0 ? r : schema_run(s);
    gram_eps(c->g, from, to);
    schema_destroy(s);
    return r;
}

/* Behind <tool_call>, to behind </tool_call>. */
static int put_tool(struct calls *c, const json_t *tool, uint32_t from,
                    uint32_t to)
{
    const json_t *f = json_object_get(tool, "function");
    const json_t *parameters;
    uint32_t at, end = gram_node(c->g);
    int r;

    f = f != NULL ? f : tool;
    parameters = json_object_get(f, "parameters");
    c->tool = json_string_value(json_object_get(f, "name"));
    if (c->tool == NULL || !is_name(c->tool)) {
        return why_set(c->why, -EINVAL,
                       "tools: a name that the format of calls cannot write");
    }
    at = gram_puts(c->g, gram_puts(c->g, from, "\n<function="), c->tool);
    at = gram_puts(c->g, at, ">\n");
    if (json_is_object(parameters)) {
        r = put_parameters(c, parameters, at, end);
        if (r < 0) {
            return r;
        }
    } else {
        gram_eps(c->g, at, end);
    }
    gram_eps(c->g, gram_puts(c->g, end, "</function>\n</tool_call>"), to);
    return c->g->err;
}

static bool is_wanted(const struct callgram_args *a, const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function");
    const json_t *name = json_object_get(f != NULL ? f : tool, "name");

    return a->name == NULL ||
           (json_is_string(name) && json_string_length(name) == a->n_name &&
            memcmp(json_string_value(name), a->name, a->n_name) == 0);
}

static int put_calls(struct calls *c, const struct callgram_args *a,
                     const json_t *tools, uint32_t root)
{
    struct gram *g = c->g;
    uint32_t content = gram_node(g), called = gram_node(g);
    uint32_t after = gram_node(g), end = gram_node(g);
    uint32_t one = gram_rule(g), one_end = gram_node(g);
    uint32_t more = gram_rule(g), more_end = gram_node(g);
    const json_t *x;
    size_t i, n = 0;
    int r = g->err;

    if (r < 0) {
        return r;
    }
    gram_final(g, end);
    gram_final(g, one_end);
    gram_final(g, more_end);
    json_array_foreach(tools, i, x)
    {
        if (r == 0 && is_wanted(a, x)) {
            r = put_tool(c, x, g->rule[one].start, one_end);
            n++;
        }
    }
    if (r == 0 && n == 0) {
        r = why_set(c->why, -EINVAL, "tool_choice: there is no such tool");
    }
    if (a->reasoning) {
        format_reasoning(g, g->rule[root].start, content, called);
    } else {
        gram_eps(g, g->rule[root].start, content);
    }
    gram_eps(g, gram_puts(g, content, "<tool_call>"), called);
    gram_call(g, called, one, after);
    if (g->err == 0 && a->name == NULL) {
        gram_call(g, gram_puts(g, g->rule[more].start, "<tool_call>"), one,
                  more_end);
        gram_repeat(g, after, more, 0, CALLGRAM_MAX_CALLS - 1, end);
    } else {
        gram_eps(g, after, end);
    }
    return r < 0 ? r : g->err;
}

int callgram_compile(struct gram **ret, const struct callgram_args *a,
                     const struct why *why)
{
    struct calls c = {.g = gram_create(), .why = why};
    json_t *tools = NULL;
    uint32_t root;
    unsigned refused = pyjson_refused();
    int r = c.g == NULL
                ? -ENOMEM
                : pyjson_parse("tools", a->tools, a->n_tools, 0, &tools, why);

    if (r == 0) {
        jsongram_init(&c.j, c.g, CHARSET_JSON_XML);
        root = gram_rule(c.g);
        r = put_calls(&c, a, tools, root);
        r = r < 0 ? r : format_finish(c.g, root, why);
    }
    r = pyjson_refused() != refused ? -ENOMEM : r;
    json_decref(tools);
    if (r < 0) {
        gram_destroy(c.g);
        return r;
    }
    *ret = c.g;
    return 0;
}
