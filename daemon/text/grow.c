/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A reader that follows the open block as it grows and tells names at once,
 * string arguments as they come, others when they are whole. It knows the good
 * form only; where the text departs from it, it falls silent and leaves the
 * word to the parse of the whole block. What was looked at is not looked at
 * again.
 */
#include "daemon/text/grow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/text/call.h"
#include "daemon/text/coerce.h"
#include "daemon/text/pyjson.h"

#define FUNCTION "<function"
#define FUNCTION_END "</function>"
#define PARAMETER "<parameter="
#define PARAMETER_END "</parameter>"

void grow_id(const struct tools *t, int index, char ret[PARSE_ID + 1])
{
    uint64_t z[2];

    for (int i = 0; i < 2; i++) { /* splitmix64 */
        z[i] =
            t->salt[i] + UINT64_C(0x9e3779b97f4a7c15) * (unsigned)(index + 1);
        z[i] = (z[i] ^ z[i] >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z[i] = (z[i] ^ z[i] >> 27) * UINT64_C(0x94d049bb133111eb);
        z[i] ^= z[i] >> 31;
    }
    snprintf(ret, PARSE_ID + 1, "call_%016llx%08llx", (unsigned long long)z[0],
             (unsigned long long)(z[1] >> 32));
}

void grow_begin(struct tools *t)
{
    t->grow = (struct tools_grow){.at = t->n_blank};
}

/* ---- telling ----------------------------------------------------------- */

static int tell(struct tools *t, const char *text, size_t n)
{
    const struct parse_piece p = {.kind = PARSE_CALL_GROW,
                                  .text = text,
                                  .n = n,
                                  .index = t->n_calls + t->grow.n - 1};

    return n != 0 ? t->emit(t->ctx, &p) : 0;
}

/* Tells a str's bytes [from, n - less), and frees it. */
static int tell_str(struct tools *t, struct str *s, size_t from, size_t less)
{
    int r = s->err;

    if (r == 0) {
        r = tell(t, s->p + from, s->n - from - less);
    }
    str_finish(s);
    return r;
}

/* A piece of an open string. */
static int tell_chars(struct tools *t, const char *text, size_t n)
{
    struct str s = {0};

    pyjson_string(text, n, &s);
    return tell_str(t, &s, 1, 1);
}

/* ---- the text ---------------------------------------------------------- */

/* The first `what` not before g->at, or NULL; what is certain not to begin one
 * has been looked at then. */
static const char *seek(struct tools *t, const char *what)
{
    size_t n = strlen(what), left = t->held.n - t->grow.at;
    const char *p = memmem(t->held.p + t->grow.at, left, what, n);

    if (p == NULL && left >= n) {
        t->grow.at = t->held.n - n + 1;
    }
    return p;
}

static void go(struct tools *t, enum tools_grow_state state, const char *at)
{
    t->grow.state = state;
    t->grow.at = (size_t)(at - t->held.p);
}

/* The next steps return 1 where one was made, 0 where more text is needed. */

static int seek_function(struct tools *t)
{
    const char *p = seek(t, FUNCTION);

    if (p == NULL) {
        return 0;
    }
    go(t, GROW_NAME, p + strlen(FUNCTION));
    t->grow.name = t->grow.at;
    return 1;
}

static int read_name(struct tools *t)
{
    char id[PARSE_ID + 1];
    struct parse_piece p = {.kind = PARSE_CALL_BEGIN, .id = id};
    const char *gt = seek(t, ">");
    int r;

    if (gt == NULL) {
        return 0;
    }
    p.name = t->held.p + t->grow.name;
    p.n_name = (size_t)(gt - p.name);
    if (memchr(p.name, '<', p.n_name) != NULL) {
        t->grow.dead = true;
        return 0;
    }
    if (!call_clean_name(&p.name, &p.n_name)) {
        go(t, GROW_SKIP, gt + 1);
        return 1;
    }
    t->grow.name = (size_t)(p.name - t->held.p);
    t->grow.n_name = p.n_name;
    t->grow.any = false;
    go(t, GROW_BODY, gt + 1);
    p.index = t->n_calls + t->grow.n++;
    grow_id(t, p.index, id);
    r = t->emit(t->ctx, &p);
    return r != 0 ? r : 1;
}

static int read_body(struct tools *t)
{
    size_t from = t->grow.at;
    const char *end = seek(t, FUNCTION_END), *parameter;
    int r;

    t->grow.at = from;
    parameter = seek(t, PARAMETER);
    if (parameter != NULL && (end == NULL || parameter < end)) {
        go(t, GROW_KEY, parameter + strlen(PARAMETER));
        t->grow.value = t->grow.at;
        return 1;
    }
    if (end == NULL) {
        return 0; /* both are of one length: looked at alike */
    }
    go(t, GROW_SEEK, end + strlen(FUNCTION_END));
    r = t->grow.any ? tell(t, "}", 1) : tell(t, "{}", 2);
    return r != 0 ? r : 1;
}

_Static_assert(sizeof(FUNCTION_END) == sizeof(PARAMETER), "see read_body");

static int read_key(struct tools *t)
{
    const char *gt = seek(t, ">");
    const char *key = t->held.p + t->grow.value;
    struct str s = {0};
    size_t n;
    int r;

    if (gt == NULL) {
        return 0;
    }
    n = (size_t)(gt - key);
    if (memchr(key, '<', n) != NULL) {
        t->grow.dead = true;
        return 0;
    }
    t->grow.type = (int)coerce_type_of(
        coerce_schema(t->defs, t->held.p + t->grow.name, t->grow.n_name), key,
        n);
    str_puts(&s, t->grow.any ? ", " : "{");
    pyjson_string(key, n, &s);
    str_puts(&s, ": ");
    t->grow.any = true;
    t->grow.told = 0;
    go(t, GROW_VALUE, gt + 1);
    t->grow.value = t->grow.at;
    r = tell_str(t, &s, 0, 0);
    return r != 0 ? r : 1;
}

/* How many of the last bytes may belong to the value's end. */
static size_t tail(const char *p, size_t n)
{
    static const char end[] = "\n" PARAMETER_END;
    size_t most = n < sizeof(end) - 2 ? n : sizeof(end) - 2;

    for (size_t k = most; k > 0; k--) {
        if (memcmp(p + n - k, end, k) == 0 ||
            memcmp(p + n - k, end + 1, k) == 0) {
            return k;
        }
    }
    return 0;
}

/* What is certain of a string that has not ended. */
static int tell_string(struct tools *t)
{
    const char *p = t->held.p + t->grow.value;
    size_t n = t->held.n - t->grow.value;
    size_t first = n != 0 && *p == '\n';
    int r = 0;

    n -= tail(p + first, n - first);
    if (n <= first) {
        return 0;
    }
    if (t->grow.told == 0) {
        /* "null" alone is no string. */
        if (n - first <= 4 && strncasecmp(p + first, "null", n - first) == 0) {
            return 0;
        }
        t->grow.told = t->grow.value + first;
        r = tell(t, "\"", 1);
    }
    if (r == 0 && t->grow.value + n > t->grow.told) {
        p = t->held.p + t->grow.told;
        n = t->grow.value + n - t->grow.told;
        t->grow.told += n;
        r = tell_chars(t, p, n);
    }
    return r;
}

static int end_value(struct tools *t, const char *end)
{
    const char *v = t->held.p + t->grow.value;
    size_t n = (size_t)(end - v);
    struct str s = {0};
    int r;

    call_trim_value(&v, &n);
    if (t->grow.told != 0) {
        const char *from = t->held.p + t->grow.told;

        r = tell_chars(t, from, (size_t)(v + n - from));
        return r != 0 ? r : tell(t, "\"", 1);
    }
    if (coerce_value((enum coerce_type)t->grow.type, v, n, &s) < 0) {
        t->grow.dead = true;
        return 0;
    }
    return tell_str(t, &s, 0, 0);
}

static int read_value(struct tools *t)
{
    const char *end = seek(t, PARAMETER_END);
    int r;

    if (end == NULL) {
        return t->grow.type == COERCE_STRING ? tell_string(t) : 0;
    }
    r = end_value(t, end);
    go(t, GROW_BODY, end + strlen(PARAMETER_END));
    return r != 0 ? r : 1;
}

static int skip_function(struct tools *t)
{
    const char *end = seek(t, FUNCTION_END);

    if (end != NULL) {
        go(t, GROW_SEEK, end + strlen(FUNCTION_END));
    }
    return end != NULL;
}

static int step(struct tools *t)
{
    switch (t->grow.state) {
    case GROW_SEEK:
        return seek_function(t);
    case GROW_NAME:
        return read_name(t);
    case GROW_BODY:
        return read_body(t);
    case GROW_KEY:
        return read_key(t);
    case GROW_VALUE:
        return read_value(t);
    case GROW_SKIP:
        return skip_function(t);
    }
    return 0;
}

int grow_run(struct tools *t)
{
    int r = 1;

    while (r == 1 && !t->grow.dead) {
        r = step(t);
    }
    return r == 1 ? 0 : r;
}
