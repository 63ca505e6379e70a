/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The parts of a message: content as a string, a mapping or a list of parts,
 * and tool calls. All of it came from outside, so it is added as from_user, but
 * for the words of the call format and for image placeholders, which are
 * control tokens. A value of the wrong type is refused by its path; a part of a
 * type that the template does not know is passed over, as there. Pure.
 */
#include "daemon/text/content.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/text/pyjson.h"

/* ---- R: the text of a content ----------------------------------------- */

static void add_string(struct prose *out, const json_t *s)
{
    prose_add(out, json_string_value(s), json_string_length(s), true);
}

/* The text of a mapping or a text part: its value, else its text. */
static int add_text_of(const json_t *o, const char *path, struct prose *out,
                       const struct why *why)
{
    const char *key = json_object_get(o, "value") != NULL ? "value" : "text";
    const json_t *s = json_object_get(o, key);

    if (!json_is_string(s)) {
        return why_set(why, -EINVAL, "%s.%s: %s", path, key,
                       s == NULL ? "missing" : "expected a string");
    }
    add_string(out, s);
    return 0;
}

static int add_parts(const json_t *list, const char *path, struct prose *out,
                     const struct why *why)
{
    bool after_text = false;

    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *part = json_array_get(list, k);
        const json_t *type = json_object_get(part, "type");
        char part_path[96];
        int r;

        snprintf(part_path, sizeof(part_path), "%s[%zu]", path, k);
        if (!json_is_string(type)) {
            return why_set(why, -EINVAL,
                           json_is_object(part) ? "%s.type: expected a string"
                                                : "%s: expected an object",
                           part_path);
        }
        if (strcmp(json_string_value(type), "text") == 0) {
            if (after_text) {
                prose_puts(out, " ");
            }
            r = add_text_of(part, part_path, out, why);
            if (r < 0) {
                return r;
            }
            after_text = true;
        } else if (strcmp(json_string_value(type), "image") == 0) {
            prose_puts(out, "<im_patch>");
            after_text = false;
        }
    }
    return 0;
}

int content_render(const json_t *content, const char *path, struct prose *out,
                   const struct why *why)
{
    if (content == NULL || json_is_null(content)) {
        return 0;
    }
    if (json_is_string(content)) {
        add_string(out, content);
        return 0;
    }
    if (json_is_object(content)) {
        return add_text_of(content, path, out, why);
    }
    if (json_is_array(content)) {
        return add_parts(content, path, out, why);
    }
    return why_set(why, -EINVAL, "%s: expected a string, an object or a list",
                   path);
}

/* ---- reasoning and answer --------------------------------------------- */

#define THINK_OPEN "<think>"
#define THINK_CLOSE "</think>"

/* Where `what` starts in text[from, to): the first place, or the last; to when
 * there is none. */
static size_t find(const struct str *s, size_t from, size_t to,
                   const char *what, bool last)
{
    size_t n = strlen(what);
    size_t at = to;

    while (to - from >= n) {
        const char *p = memmem(s->p + from, to - from, what, n);

        if (p == NULL) {
            break;
        }
        at = (size_t)(p - s->p);
        if (!last) {
            break;
        }
        from = at + n;
    }
    return at;
}

/* Splits content that shows its reasoning. Newlines are stripped as the
 * template does it: all of them, but only behind the reasoning, before what
 * follows its last <think>, and before the answer. */
struct content_parts content_split(const struct str *s)
{
    size_t first = s->n != 0 ? find(s, 0, s->n, THINK_CLOSE, false) : 0;
    struct content_parts p = {0};
    size_t think;

    if (first == s->n) {
        return p;
    }
    p.reason_end = first;
    while (p.reason_end > 0 && s->p[p.reason_end - 1] == '\n') {
        p.reason_end--;
    }
    think = find(s, 0, p.reason_end, THINK_OPEN, true);
    if (think < p.reason_end) {
        p.reason = think + strlen(THINK_OPEN);
    }
    while (p.reason < p.reason_end && s->p[p.reason] == '\n') {
        p.reason++;
    }
    p.answer = find(s, first, s->n, THINK_CLOSE, true) + strlen(THINK_CLOSE);
    while (p.answer < s->n && s->p[p.answer] == '\n') {
        p.answer++;
    }
    return p;
}

/* ---- tool calls ------------------------------------------------------- */

int content_value(const json_t *v, const char *path,
                  int (*write)(const json_t *, struct str *), struct prose *out,
                  const struct why *why)
{
    struct str text = {0};
    int r = write(v, &text);

    if (r < 0) {
        why_set(why, r, "%s: nested too deeply", path);
    }
    prose_add(out, text.p, text.n, true);
    if (text.err != 0) {
        out->text.err = text.err;
    }
    str_finish(&text);
    return r;
}

static int add_argument(const char *path, const char *key, const json_t *value,
                        struct prose *out, const struct why *why)
{
    int r;

    prose_puts(out, "<parameter=");
    prose_add(out, key, strlen(key), true);
    prose_puts(out, ">\n");
    r = content_value(value, path, pyjson_str, out, why);
    prose_puts(out, "\n</parameter>\n");
    return r;
}

/* arguments: an object, or one as JSON text, or none. */
static int add_arguments(const json_t *arguments, const char *path,
                         struct prose *out, const struct why *why)
{
    json_t *parsed = NULL;
    const char *key;
    json_t *value;
    int r = 0;

    if (arguments == NULL || json_is_null(arguments)) {
        return 0;
    }
    if (json_is_string(arguments)) {
        r = pyjson_parse(path, json_string_value(arguments),
                         json_string_length(arguments), JSON_DECODE_ANY,
                         &parsed, why);
        if (r < 0) {
            return r;
        }
        arguments = parsed;
    }
    if (!json_is_object(arguments)) {
        r = why_set(why, -EINVAL, "%s: expected an object", path);
        goto out;
    }
    json_object_foreach((json_t *)arguments, key, value)
    {
        r = add_argument(path, key, value, out, why);
        if (r < 0) {
            goto out;
        }
    }
out:
    json_decref(parsed);
    return r;
}

static int add_call(const json_t *call, const char *path, struct prose *out,
                    const struct why *why)
{
    const json_t *name = json_object_get(call, "name");
    char arguments_path[160];
    int r;

    if (!json_is_object(call)) {
        return why_set(why, -EINVAL, "%s: expected an object", path);
    }
    if (!json_is_string(name)) {
        return why_set(why, -EINVAL, "%s.name: %s", path,
                       name == NULL ? "missing" : "expected a string");
    }
    prose_puts(out, "<tool_call>\n<function=");
    add_string(out, name);
    prose_puts(out, ">\n");
    snprintf(arguments_path, sizeof(arguments_path), "%s.arguments", path);
    r = add_arguments(json_object_get(call, "arguments"), arguments_path, out,
                      why);
    prose_puts(out, "</function>\n</tool_call>");
    return r;
}

int content_calls(const json_t *calls, const char *path, struct prose *out,
                  const struct why *why)
{
    int r = 0;

    if (calls == NULL || json_is_null(calls)) {
        return 0;
    }
    if (!json_is_array(calls)) {
        return why_set(why, -EINVAL, "%s: expected a list", path);
    }
    for (size_t k = 0; r == 0 && k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k);
        const json_t *function = json_object_get(call, "function");
        char call_path[128];

        snprintf(call_path, sizeof(call_path), "%s[%zu]%s", path, k,
                 function != NULL ? ".function" : "");
        r = add_call(function != NULL ? function : call, call_path, out, why);
    }
    return r;
}
