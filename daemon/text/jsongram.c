/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * JSON's own grammar, in pieces. White space is bounded, for a model that is
 * offered endless white space will sometimes take it. A string's body takes
 * every escape that JSON knows; escaped surrogates only in pairs. Pure.
 */
#include "daemon/text/jsongram.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/pyjson.h"
#include "daemon/text/utf8.h"

void jsongram_init(struct jsongram *j, struct gram *g, enum charset_form form)
{
    memset(j, 0, sizeof(*j));
    j->g = g;
    j->form = form;
}

/* A rule, which the caller fills from its start to *ret_end. */
static uint32_t open_rule(struct gram *g, uint32_t *ret_start,
                          uint32_t *ret_end)
{
    uint32_t rule = gram_rule(g);

    *ret_end = gram_node(g);
    gram_final(g, *ret_end);
    *ret_start = g->err == 0 ? g->rule[rule].start : 0;
    return rule;
}

static void byte(struct gram *g, uint32_t from, char c, uint32_t to)
{
    gram_bytes(g, from, (uint8_t)c, (uint8_t)c, to);
}

static void hex(struct gram *g, uint32_t from, uint32_t to)
{
    gram_bytes(g, from, '0', '9', to);
    gram_bytes(g, from, 'A', 'F', to);
    gram_bytes(g, from, 'a', 'f', to);
}

static uint32_t hexes(struct gram *g, uint32_t from, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t to = gram_node(g);

        hex(g, from, to);
        from = to;
    }
    return from;
}

/* Behind "\u". */
static void unicode_escape(struct gram *g, uint32_t from, uint32_t to)
{
    uint32_t three = gram_node(g), two = gram_node(g), d = gram_node(g);
    uint32_t high = gram_node(g), low, last;

    gram_bytes(g, from, '0', '9', three);
    gram_bytes(g, from, 'A', 'C', three);
    gram_bytes(g, from, 'a', 'c', three);
    gram_bytes(g, from, 'E', 'F', three);
    gram_bytes(g, from, 'e', 'f', three);
    hex(g, three, two);
    low = hexes(g, two, 1);
    hex(g, low, to);
    byte(g, from, 'D', d);
    byte(g, from, 'd', d);
    gram_bytes(g, d, '0', '7', two);
    gram_bytes(g, d, '8', '9', high);
    gram_bytes(g, d, 'A', 'B', high);
    gram_bytes(g, d, 'a', 'b', high);
    low = gram_puts(g, hexes(g, high, 2), "\\u");
    last = gram_node(g);
    byte(g, low, 'D', last);
    byte(g, low, 'd', last);
    high = gram_node(g);
    gram_bytes(g, last, 'C', 'F', high);
    gram_bytes(g, last, 'c', 'f', high);
    hex(g, hexes(g, high, 1), to);
}

uint32_t jsongram_body(struct gram *g, enum charset_form form)
{
    uint32_t start, end, escape, rule = open_rule(g, &start, &end);
    struct charset c = {0};

    charset_add(&c, ' ', '!');
    charset_add(&c, '#', '[');
    charset_add(&c, ']', CHARSET_LAST);
    if (form == CHARSET_JSON_XML) {
        charset_finish(&c);
        charset_add(&c, ' ', '!');
        charset_add(&c, '#', ';');
        charset_add(&c, '=', '[');
        charset_add(&c, ']', CHARSET_LAST);
    }
    charset_normalise(&c);
    charset_edges(&c, g, CHARSET_UTF8, start, end);
    charset_finish(&c);
    escape = gram_node(g);
    byte(g, start, '\\', escape);
    for (const char *p = "\"\\/bfnrt"; *p != '\0'; p++) {
        byte(g, escape, *p, end);
    }
    unicode_escape(g, gram_text(g, escape, "u", 1), end);
    if (g->err == 0) {
        g->rule[rule].is_chars = true;
        g->rule[rule].is_json_body = form == CHARSET_JSON;
    }
    return rule;
}

static uint32_t indent_rule(struct jsongram *j)
{
    uint32_t start, end;

    if (!j->has_indent) {
        j->has_indent = true;
        j->indent = open_rule(j->g, &start, &end);
        byte(j->g, start, ' ', end);
        byte(j->g, start, '\t', end);
    }
    return j->indent;
}

void jsongram_ws(struct jsongram *j, uint32_t from, uint32_t to)
{
    uint32_t start, end, line;

    if (!j->has_ws) {
        j->has_ws = true;
        j->ws = open_rule(j->g, &start, &end);
        line = gram_node(j->g);
        byte(j->g, start, ' ', end);
        byte(j->g, start, '\n', line);
        gram_repeat(j->g, line, indent_rule(j), 0, JSONGRAM_MAX_INDENT, end);
    }
    gram_eps(j->g, from, to);
    gram_call(j->g, from, j->ws, to);
}

void jsongram_string(struct jsongram *j, uint32_t from, uint32_t min,
                     uint32_t max, uint32_t to)
{
    uint32_t open = gram_node(j->g), close = gram_node(j->g);

    if (!j->has_body) {
        j->has_body = true;
        j->body = jsongram_body(j->g, j->form);
    }
    byte(j->g, from, '"', open);
    gram_repeat(j->g, open, j->body, min, max, close);
    byte(j->g, close, '"', to);
}

/* ---- numbers ------------------------------------------------------------- */

/* min to max digits, leading zeros and all. */
static void digits(struct gram *g, uint32_t from, int min, int max, uint32_t to)
{
    for (int i = 0; i < max; i++) {
        uint32_t next = gram_node(g);

        if (i >= min) {
            gram_eps(g, from, to);
        }
        gram_bytes(g, from, '0', '9', next);
        from = next;
    }
    gram_eps(g, from, to);
}

static void natural(struct gram *g, uint32_t from, uint32_t to)
{
    uint32_t more = gram_node(g);

    byte(g, from, '0', to);
    gram_bytes(g, from, '1', '9', more);
    digits(g, more, 0, JSONGRAM_MAX_DIGITS - 1, to);
}

void jsongram_integer(struct jsongram *j, uint32_t from, uint32_t to)
{
    struct gram *g = j->g;
    uint32_t minus = gram_node(g), more = gram_node(g);

    natural(g, from, to);
    byte(g, from, '-', minus);
    gram_bytes(g, minus, '1', '9', more);
    digits(g, more, 0, JSONGRAM_MAX_DIGITS - 1, to);
}

void jsongram_number(struct jsongram *j, uint32_t from, uint32_t to)
{
    struct gram *g = j->g;
    uint32_t minus = gram_node(g), whole = gram_node(g), dot = gram_node(g);
    uint32_t part = gram_node(g), e = gram_node(g), sign = gram_node(g);

    byte(g, from, '-', minus);
    gram_eps(g, from, minus);
    natural(g, minus, whole);
    gram_eps(g, whole, to);
    byte(g, whole, '.', dot);
    digits(g, dot, 1, JSONGRAM_MAX_DIGITS, part);
    gram_eps(g, part, to);
    byte(g, whole, 'e', e);
    byte(g, whole, 'E', e);
    byte(g, part, 'e', e);
    byte(g, part, 'E', e);
    byte(g, e, '+', sign);
    byte(g, e, '-', sign);
    gram_eps(g, e, sign);
    digits(g, sign, 1, 2, to);
}

/* ---- containers ---------------------------------------------------------- */

void jsongram_list(struct jsongram *j, uint32_t from, uint32_t item,
                   uint32_t min, uint32_t max, uint32_t to)
{
    struct gram *g = j->g;
    uint32_t start, end, mid = gram_node(g), next = gram_node(g);
    uint32_t more = open_rule(g, &start, &end);

    byte(g, start, ',', next);
    jsongram_ws(j, next, mid);
    gram_call(g, mid, item, end);
    mid = gram_node(g);
    gram_call(g, from, item, mid);
    gram_repeat(g, mid, more, min - 1,
                max == GRAM_NO_MAX ? GRAM_NO_MAX : max - 1, to);
}

void jsongram_array(struct jsongram *j, uint32_t from, uint32_t item,
                    uint32_t min, uint32_t max, uint32_t to)
{
    struct gram *g = j->g;
    uint32_t open = gram_node(g), first = gram_node(g), last = gram_node(g);
    uint32_t close = gram_node(g);

    byte(g, from, '[', open);
    if (min == 0) {
        gram_eps(g, open, close);
    }
    if (max > 0) {
        jsongram_ws(j, open, first);
        jsongram_list(j, first, item, min > 0 ? min : 1, max, last);
        jsongram_ws(j, last, close);
    }
    byte(g, close, ']', to);
}

void jsongram_object(struct jsongram *j, uint32_t from, uint32_t to)
{
    struct gram *g = j->g;
    uint32_t start, end, colon = gram_node(g), value = gram_node(g);
    uint32_t open = gram_node(g), first = gram_node(g), last = gram_node(g);
    uint32_t close = gram_node(g), ready = gram_node(g);
    uint32_t pair = open_rule(g, &start, &end);

    jsongram_string(j, start, 0, GRAM_NO_MAX, colon);
    byte(g, colon, ':', value);
    jsongram_ws(j, value, ready);
    gram_call(g, ready, jsongram_any(j), end);
    byte(g, from, '{', open);
    gram_eps(g, open, close);
    jsongram_ws(j, open, first);
    jsongram_list(j, first, pair, 1, GRAM_NO_MAX, last);
    jsongram_ws(j, last, close);
    byte(g, close, '}', to);
}

uint32_t jsongram_any(struct jsongram *j)
{
    struct gram *g = j->g;
    static const char *const word[] = {"true", "false", "null"};
    uint32_t start, end;

    if (j->has_any) {
        return j->any;
    }
    j->has_any = true;
    j->any = open_rule(g, &start, &end);
    for (int i = 0; i < 3; i++) {
        gram_eps(g, gram_puts(g, start, word[i]), end);
    }
    jsongram_number(j, start, end);
    jsongram_string(j, start, 0, GRAM_NO_MAX, end);
    jsongram_object(j, start, end);
    jsongram_array(j, start, j->any, 0, GRAM_NO_MAX, end);
    return j->any;
}

/* ---- texts --------------------------------------------------------------- */

void jsongram_texts_finish(struct jsongram_texts *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        free(t->text[i].p);
    }
    free(t->text);
    memset(t, 0, sizeof(*t));
}

void jsongram_texts_add(struct jsongram_texts *t, const char *p, size_t n)
{
    char *copy = malloc(n + 1);

    if (t->n == t->cap && t->err == 0) {
        uint32_t cap = t->cap > 0 ? 2 * t->cap : 16;
        struct jsongram_text *q = realloc(t->text, cap * sizeof(*q));

        if (q == NULL) {
            t->err = -ENOMEM;
        } else {
            t->text = q;
            t->cap = cap;
        }
    }
    if (copy == NULL || t->err != 0) {
        free(copy);
        t->err = -ENOMEM;
        return;
    }
    memcpy(copy, p, n);
    t->text[t->n].p = copy;
    t->text[t->n++].n = n;
}

static int by_text(const void *a, const void *b)
{
    const struct jsongram_text *x = a, *y = b;
    int r = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return r != 0 ? r : x->n < y->n ? -1 : x->n > y->n;
}

void jsongram_texts_sort(struct jsongram_texts *t)
{
    if (t->n > 0) {
        qsort(t->text, t->n, sizeof(*t->text), by_text);
    }
}

/* Texts lo..hi-1 are alike in their first `at` bytes. */
static void put_texts(const struct jsongram_texts *t, struct gram *g,
                      uint32_t lo, uint32_t hi, size_t at, uint32_t from,
                      uint32_t to)
{
    while (lo < hi && g->err == 0) {
        const struct jsongram_text *x = &t->text[lo];
        uint32_t end = lo + 1, next;
        size_t n = at + 1;

        if (x->n == at) {
            gram_eps(g, from, to);
            lo++;
            continue;
        }
        while (end < hi && t->text[end].p[at] == x->p[at]) {
            end++;
        }
        /* What they all share is written at once: the recursion is as deep as
         * there are forks. */
        while (n < x->n && t->text[end - 1].n > n &&
               x->p[n] == t->text[end - 1].p[n]) {
            n++;
        }
        next = gram_text(g, from, x->p + at, n - at);
        put_texts(t, g, lo, end, n, next, to);
        lo = end;
    }
}

void jsongram_texts_put(struct jsongram_texts *t, struct gram *g, uint32_t from,
                        uint32_t to)
{
    if (t->err != 0) {
        g->err = g->err != 0 ? g->err : t->err;
        return;
    }
    jsongram_texts_sort(t);
    put_texts(t, g, 0, t->n, 0, from, to);
}

static void write_string(const json_t *v, enum charset_form form,
                         struct str *out)
{
    const uint8_t *p = (const uint8_t *)json_string_value(v);
    size_t n = json_string_length(v), i = 0;
    char one[6];

    str_putc(out, '"');
    while (i < n) {
        int len = utf8_char(p + i, n - i);

        if (len == 1) {
            str_add(out, one, (size_t)charset_write(p[i], form, one));
        } else {
            str_add(out, p + i, (size_t)len);
        }
        i += (size_t)(len > 0 ? len : 1);
    }
    str_putc(out, '"');
}

static void write_value(const json_t *v, enum charset_form form, int depth,
                        struct str *out)
{
    const char *key;
    json_t *x;
    size_t i;

    if (depth > PYJSON_MAX_DEPTH) {
        out->err = -ENOMEM;
    } else if (json_is_object(v)) {
        const char *sep = "";

        str_putc(out, '{');
        json_object_foreach((json_t *)v, key, x)
        {
            json_t *k = json_string_nocheck(key);

            str_puts(out, sep);
            write_string(k, form, out);
            str_puts(out, ": ");
            write_value(x, form, depth + 1, out);
            json_decref(k);
            sep = ", ";
        }
        str_putc(out, '}');
    } else if (json_is_array(v)) {
        str_putc(out, '[');
        json_array_foreach(v, i, x)
        {
            str_puts(out, i > 0 ? ", " : "");
            write_value(x, form, depth + 1, out);
        }
        str_putc(out, ']');
    } else if (json_is_string(v)) {
        write_string(v, form, out);
    } else if (pyjson_dump(v, out) < 0) {
        out->err = -ENOMEM;
    }
}

int jsongram_write(const json_t *v, enum charset_form form, char **ret,
                   size_t *ret_n)
{
    struct str out = {0};

    write_value(v, form, 0, &out);
    if (out.err != 0) {
        str_finish(&out);
        return out.err < 0 ? out.err : -ENOMEM;
    }
    *ret = out.p;
    *ret_n = out.n;
    return 0;
}

/* ---- ranges of integers -------------------------------------------------- */

static bool only(const char *p, char c)
{
    return strspn(p, (const char[]){c, '\0'}) == strlen(p);
}

/* Digit strings of the length of both, from lo to hi. */
static void between(struct gram *g, uint32_t from, const char *lo,
                    const char *hi, uint32_t to)
{
    static const char zeros[] = "00000000000000000000";
    static const char nines[] = "99999999999999999999";
    char first = lo[0], last = hi[0];
    size_t n = strlen(lo), less = sizeof(zeros) - n;
    uint32_t mid;

    if (n == 0) {
        gram_eps(g, from, to);
        return;
    }
    if (first == last) {
        mid = gram_node(g);
        byte(g, from, first, mid);
        between(g, mid, lo + 1, hi + 1, to);
        return;
    }
    if (!only(lo + 1, '0')) {
        mid = gram_node(g);
        byte(g, from, first++, mid);
        between(g, mid, lo + 1, nines + less, to);
    }
    if (!only(hi + 1, '9')) {
        mid = gram_node(g);
        byte(g, from, last--, mid);
        between(g, mid, zeros + less, hi + 1, to);
    }
    if (first <= last) {
        mid = gram_node(g);
        gram_bytes(g, from, (uint8_t)first, (uint8_t)last, mid);
        digits(g, mid, (int)n - 1, (int)n - 1, to);
    }
}

/* Magnitudes lo..hi without a sign. */
static void magnitudes(struct gram *g, uint32_t from, uint64_t lo, uint64_t hi,
                       uint32_t to)
{
    char a[24], b[24];

    while (lo <= hi) {
        uint64_t end = 9;

        while (end < lo) {
            end = end * 10 + 9;
        }
        end = end < hi ? end : hi;
        (void)snprintf(a, sizeof(a), "%" PRIu64, lo);
        (void)snprintf(b, sizeof(b), "%" PRIu64, end);
        between(g, from, a, b, to);
        lo = end + 1;
    }
}

void jsongram_range(struct gram *g, uint32_t from, const int64_t *lo,
                    const int64_t *hi, uint32_t to)
{
    /* No bound: as many digits as an integer without limits has. */
    const int64_t most = 999999999999999999;
    int64_t a = lo != NULL                  ? *lo
                : hi != NULL && *hi < -most ? INT64_MIN
                                            : -most;
    int64_t b = hi != NULL ? *hi : lo != NULL && *lo > most ? INT64_MAX : most;

    if (b >= 0 && a <= b) {
        magnitudes(g, from, a > 0 ? (uint64_t)a : 0, (uint64_t)b, to);
    }
    if (a < 0 && a <= b) {
        uint32_t minus = gram_node(g);
        uint64_t least = b < 0 ? UINT64_C(0) - (uint64_t)b : 1;

        byte(g, from, '-', minus);
        magnitudes(g, minus, least, UINT64_C(0) - (uint64_t)a, to);
    }
}
