/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The published grammar is a few lazy patterns and, where these make no sense
 * of the parameters, a scanner that does without end tags. Both are written out
 * here as searches that only go forwards, each position found once, so that the
 * cost is that of the block's length whatever it holds.
 *
 * The invariant: arguments are a valid JSON object, whatever the model wrote.
 */
#include "daemon/text/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/coerce.h"
#include "daemon/text/pyjson.h"
#include "daemon/text/pyvalue.h"

#define PARAMETER "<parameter="
#define PARAMETER_END "</parameter>"
#define FUNCTION "<function"
#define FUNCTION_END "</function>"

struct span {
    const char *p, *end;
};

static const char *find(const char *p, const char *end, const char *what)
{
    return p < end ? memmem(p, (size_t)(end - p), what, strlen(what)) : NULL;
}

/* Where the next `what` stands, asked for places that only go up: one that is
 * found stays good until it is passed, and none is none for ever. */
struct seeker {
    const char *what, *found;
    bool asked;
};

static const char *seek(struct seeker *s, const char *from, const char *end)
{
    if (!s->asked || (s->found != NULL && s->found < from)) {
        s->found = find(from, end, s->what);
        s->asked = true;
    }
    return s->found;
}

/* ---- names and values -------------------------------------------------- */

bool call_clean_name(const char **name, size_t *n)
{
    char quote;

    pyvalue_strip(name, n);
    while (*n > 0 && **name == '=') {
        ++*name;
        --*n;
    }
    pyvalue_strip(name, n);
    if (*n > 0 && (**name == '"' || **name == '\'')) {
        quote = **name;
        if (*n > 1 && (*name)[*n - 1] == quote) {
            ++*name;
            *n -= 2;
            pyvalue_strip(name, n);
        }
    }
    for (size_t i = 0; i < *n; i++) {
        if ((*name)[i] != '"' && (*name)[i] != '\'') {
            return true;
        }
    }
    return false;
}

void call_trim_value(const char **value, size_t *n)
{
    if (*n > 0 && **value == '\n') {
        ++*value;
        --*n;
    }
    if (*n > 0 && (*value)[*n - 1] == '\n') {
        --*n;
    }
}

/* ---- parameters -------------------------------------------------------- */

struct arguments {
    const json_t *schema;
    struct str text; /* keys and values as JSON, one after another */
    struct pyvalue_pair *pair;
    size_t n, cap;
};

static int add_argument(struct arguments *a, struct span name,
                        struct span value)
{
    struct pyvalue_pair *x;
    const char *v = value.p;
    size_t n = (size_t)(value.end - value.p);
    size_t n_name = (size_t)(name.end - name.p);
    int r;

    if (a->n == a->cap) {
        size_t cap = a->cap != 0 ? 2 * a->cap : 8;

        x = realloc(a->pair, cap * sizeof(*x));
        if (x == NULL) {
            return -ENOMEM;
        }
        a->pair = x;
        a->cap = cap;
    }
    x = &a->pair[a->n++];
    *x = (struct pyvalue_pair){.key = a->text.n};
    pyjson_string(name.p, n_name, &a->text);
    x->n_key = a->text.n - x->key;
    call_trim_value(&v, &n);
    x->value = a->text.n;
    r = coerce_value(coerce_type_of(a->schema, name.p, n_name), v, n, &a->text);
    x->n_value = a->text.n - x->value;
    return r < 0 ? r : a->text.err;
}

/* True where the lazy pattern makes sense of all parameters. */
static bool is_regular(struct span s)
{
    const char *p = s.p, *start, *end;
    bool any = false;

    while ((start = find(p, s.end, PARAMETER)) != NULL) {
        start += strlen(PARAMETER);
        end = find(start, s.end, PARAMETER_END);
        if (end == NULL) {
            return any;
        }
        if (memchr(start, '>', (size_t)(end - start)) == NULL ||
            find(start, end, PARAMETER) != NULL) {
            return false;
        }
        any = true;
        p = end + strlen(PARAMETER_END);
    }
    return true;
}

static int add_regular(struct arguments *a, struct span s)
{
    const char *p = s.p, *start, *end, *gt;
    int r = 0;

    while (r == 0 && (start = find(p, s.end, PARAMETER)) != NULL) {
        start += strlen(PARAMETER);
        end = find(start, s.end, PARAMETER_END);
        if (end == NULL) {
            break;
        }
        gt = memchr(start, '>', (size_t)(end - start));
        r = add_argument(a, (struct span){start, gt},
                         (struct span){gt + 1, end});
        p = end + strlen(PARAMETER_END);
    }
    return r;
}

static const char *least(const char *a, const char *b)
{
    return a == NULL || (b != NULL && b < a) ? b : a;
}

/* The end of a name without a >. */
static const char *name_without_end(struct span s, struct seeker *next,
                                    struct seeker *close, struct seeker *line)
{
    return least(least(seek(line, s.p, s.end), seek(close, s.p, s.end)),
                 seek(next, s.p, s.end));
}

/* The scanner for what lacks an end tag or a >. */
static int add_irregular(struct arguments *a, struct span s)
{
    struct seeker next = {.what = PARAMETER}, close = {.what = PARAMETER_END};
    struct seeker gt = {.what = ">"}, line = {.what = "\n"};
    const char *p = s.p;
    int r = 0;

    while (r == 0 && (p = seek(&next, p, s.end)) != NULL) {
        const char *name = p + strlen(PARAMETER), *end, *stop, *value;
        size_t n;

        end = seek(&gt, name, s.end);
        value = end != NULL ? end + 1 : NULL;
        if (end == NULL) {
            end = value = name_without_end((struct span){name, s.end}, &next,
                                           &close, &line);
        }
        if (end == NULL) {
            break;
        }
        stop = least(seek(&next, value, s.end), seek(&close, value, s.end));
        p = stop = stop != NULL ? stop : s.end;
        if (stop != s.end && stop == seek(&close, value, s.end)) {
            p = stop + strlen(PARAMETER_END);
        }
        n = (size_t)(end - name);
        pyvalue_strip(&name, &n);
        if (coerce_knows(a->schema, name, n)) {
            r = add_argument(a, (struct span){name, name + n},
                             (struct span){value, stop});
        }
    }
    return r;
}

/* ---- functions --------------------------------------------------------- */

static void write_arguments(struct arguments *a, struct str *out)
{
    const char *between = "";

    str_putc(out, '{');
    for (size_t i = 0; i < a->n; i++) {
        const struct pyvalue_pair *x = &a->pair[i];

        if (!x->gone) {
            str_puts(out, between);
            str_add(out, a->text.p + x->key, x->n_key);
            str_puts(out, ": ");
            str_add(out, a->text.p + x->value, x->n_value);
            between = ", ";
        }
    }
    str_putc(out, '}');
}

static int add_call(struct calls *c, const char *name, size_t n,
                    struct str *arguments)
{
    struct call *call;

    if (c->n == CALL_MAX) {
        return -EDOM;
    }
    call = realloc(c->call, ((size_t)c->n + 1) * sizeof(*call));
    if (call == NULL) {
        return -ENOMEM;
    }
    c->call = call;
    call += c->n;
    call->name = malloc(n);
    if (call->name == NULL) {
        return -ENOMEM;
    }
    memcpy(call->name, name, n);
    call->n_name = n;
    call->arguments = arguments->p;
    call->n_arguments = arguments->n;
    *arguments = (struct str){0};
    c->n++;
    return 0;
}

/* One function's text, between <function and </function>. -EDOM: the block is
 * content. A function without a name is left out. */
static int parse_function(const json_t *tools, struct span s, struct calls *ret)
{
    const char *gt = memchr(s.p, '>', (size_t)(s.end - s.p));
    struct arguments a = {0};
    struct str out = {0};
    const char *name = s.p;
    struct span rest;
    size_t n;
    int r;

    if (gt == NULL) {
        return -EDOM;
    }
    n = (size_t)(gt - name);
    if (!call_clean_name(&name, &n)) {
        return 0;
    }
    rest = (struct span){gt + 1, s.end};
    a.schema = coerce_schema(tools, name, n);
    r = is_regular(rest) ? add_regular(&a, rest) : add_irregular(&a, rest);
    if (r == 0) {
        r = pyvalue_unite(a.pair, a.n, a.text.p);
    }
    if (r == 0) {
        write_arguments(&a, &out);
        r = out.err;
    }
    if (r == 0) {
        r = add_call(ret, name, n, &out);
    }
    free(a.pair);
    str_finish(&a.text);
    str_finish(&out);
    return r;
}

int call_parse_block(const json_t *tools, const char *text, size_t n,
                     struct calls *ret)
{
    const char *p = text, *end = text + n, *start, *stop;
    struct calls c = {0};
    int r = 0;

    while (r == 0 && (start = find(p, end, FUNCTION)) != NULL) {
        start += strlen(FUNCTION);
        stop = find(start, end, FUNCTION_END);
        if (stop == NULL) {
            break;
        }
        r = parse_function(tools, (struct span){start, stop}, &c);
        p = stop + strlen(FUNCTION_END);
    }
    if (r < 0) {
        calls_finish(&c);
    }
    if (r == -ENOMEM) {
        return r;
    }
    *ret = c;
    return c.n;
}

void calls_finish(struct calls *c)
{
    for (int i = 0; i < c->n; i++) {
        free(c->call[i].name);
        free(c->call[i].arguments);
    }
    free(c->call);
    memset(c, 0, sizeof(*c));
}
