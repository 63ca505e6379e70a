/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Character sets. A range of code points is cut where the length or a lead of
 * its UTF-8 changes, so that the edges out of one node may share a lead byte
 * but never mean two things. Pure.
 */
#include "daemon/text/charset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void charset_finish(struct charset *c)
{
    free(c->range);
    memset(c, 0, sizeof(*c));
}

void charset_add(struct charset *c, uint32_t lo, uint32_t hi)
{
    if (c->err != 0) {
        return;
    }
    if (c->n == c->cap) {
        uint32_t cap = c->cap > 0 ? 2 * c->cap : 8;
        struct charset_range *p = realloc(c->range, cap * sizeof(*p));

        if (p == NULL) {
            c->err = -ENOMEM;
            return;
        }
        c->range = p;
        c->cap = cap;
    }
    c->range[c->n++] = (struct charset_range){lo, hi};
}

void charset_add_set(struct charset *c, const struct charset *from)
{
    if (from->err != 0) {
        c->err = from->err;
    }
    for (uint32_t i = 0; i < from->n; i++) {
        charset_add(c, from->range[i].lo, from->range[i].hi);
    }
}

static int by_lo(const void *a, const void *b)
{
    const struct charset_range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void cut_surrogates(struct charset *c)
{
    uint32_t n = c->n;

    for (uint32_t i = 0; i < n; i++) {
        struct charset_range *r = &c->range[i];
        uint32_t hi = r->hi;

        if (hi < 0xd800 || r->lo > 0xdfff) {
            continue;
        }
        if (r->lo >= 0xd800) {
            r->lo = 0xe000; /* empty where hi is below */
            continue;
        }
        r->hi = 0xd7ff;
        if (hi > 0xdfff) {
            charset_add(c, 0xe000, hi);
        }
    }
}

void charset_normalise(struct charset *c)
{
    uint32_t n = 0;

    cut_surrogates(c);
    if (c->n == 0 || c->err != 0) {
        return;
    }
    qsort(c->range, c->n, sizeof(*c->range), by_lo);
    for (uint32_t i = 0; i < c->n; i++) {
        struct charset_range r = c->range[i];

        if (r.lo > r.hi) {
            continue;
        }
        if (n > 0 && r.lo <= c->range[n - 1].hi + 1) {
            if (r.hi > c->range[n - 1].hi) {
                c->range[n - 1].hi = r.hi;
            }
        } else {
            c->range[n++] = r;
        }
    }
    c->n = n;
}

void charset_invert(struct charset *c)
{
    struct charset out = {0};
    uint32_t at = 0;

    charset_normalise(c);
    out.err = c->err;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->range[i].lo > at) {
            charset_add(&out, at, c->range[i].lo - 1);
        }
        at = c->range[i].hi + 1;
    }
    if (at <= CHARSET_LAST) {
        charset_add(&out, at, CHARSET_LAST);
    }
    charset_normalise(&out);
    free(c->range);
    *c = out;
}

void charset_keep(struct charset *c, const struct charset *also)
{
    struct charset not = {0};

    charset_add_set(&not, also);
    charset_invert(&not );
    charset_invert(c);
    charset_add_set(c, &not );
    charset_invert(c);
    charset_finish(&not );
}

uint32_t charset_count(const struct charset *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        n += c->range[i].hi - c->range[i].lo + 1;
    }
    return n;
}

/* ---- UTF-8 --------------------------------------------------------------- */

static int encode(uint32_t ch, uint8_t *p)
{
    if (ch < 0x80) {
        p[0] = (uint8_t)ch;
        return 1;
    }
    if (ch < 0x800) {
        p[0] = (uint8_t)(0xc0 | ch >> 6);
        p[1] = (uint8_t)(0x80 | (ch & 0x3f));
        return 2;
    }
    if (ch < 0x10000) {
        p[0] = (uint8_t)(0xe0 | ch >> 12);
        p[1] = (uint8_t)(0x80 | (ch >> 6 & 0x3f));
        p[2] = (uint8_t)(0x80 | (ch & 0x3f));
        return 3;
    }
    p[0] = (uint8_t)(0xf0 | ch >> 18);
    p[1] = (uint8_t)(0x80 | (ch >> 12 & 0x3f));
    p[2] = (uint8_t)(0x80 | (ch >> 6 & 0x3f));
    p[3] = (uint8_t)(0x80 | (ch & 0x3f));
    return 4;
}

/* The continuation bytes that follow a whole lead, shared by all of a set. */
struct tails {
    struct gram *g;
    uint32_t to;
    uint32_t node[4]; /* [i]: i bytes to go; 0 not made yet */
};

static uint32_t tail(struct tails *t, int n)
{
    if (n == 0) {
        return t->to;
    }
    if (t->node[n] == 0) {
        uint32_t to = tail(t, n - 1);

        t->node[n] = gram_node(t->g);
        gram_bytes(t->g, t->node[n], 0x80, 0xbf, to);
    }
    return t->node[n];
}

static bool all(const uint8_t *p, int n, uint8_t b)
{
    for (int i = 0; i < n; i++) {
        if (p[i] != b) {
            return false;
        }
    }
    return true;
}

/* lo and hi are of one length; every string between them is a character. */
static void put_range(struct tails *t, uint32_t from, const uint8_t *lo,
                      const uint8_t *hi, int n)
{
    static const uint8_t low[3] = {0x80, 0x80, 0x80};
    static const uint8_t high[3] = {0xbf, 0xbf, 0xbf};
    uint8_t first = lo[0], last = hi[0];

    if (n == 1) {
        gram_bytes(t->g, from, first, last, t->to);
        return;
    }
    if (first == last &&
        !(all(lo + 1, n - 1, 0x80) && all(hi + 1, n - 1, 0xbf))) {
        uint32_t m = gram_node(t->g);

        gram_bytes(t->g, from, first, first, m);
        put_range(t, m, lo + 1, hi + 1, n - 1);
        return;
    }
    if (!all(lo + 1, n - 1, 0x80)) {
        uint32_t m = gram_node(t->g);

        gram_bytes(t->g, from, first, first, m);
        put_range(t, m, lo + 1, high, n - 1);
        first++;
    }
    if (!all(hi + 1, n - 1, 0xbf)) {
        uint32_t m = gram_node(t->g);

        gram_bytes(t->g, from, last, last, m);
        put_range(t, m, low, hi + 1, n - 1);
        last--;
    }
    if (first <= last) {
        gram_bytes(t->g, from, first, last, tail(t, n - 1));
    }
}

static void put_utf8(struct tails *t, uint32_t from, uint32_t lo, uint32_t hi)
{
    static const uint32_t last[4] = {0x7f, 0x7ff, 0xffff, CHARSET_LAST};

    for (int i = 0; i < 4 && lo <= hi; i++) {
        uint32_t end = hi < last[i] ? hi : last[i];
        uint8_t a[4], b[4];

        if (lo > last[i]) {
            continue;
        }
        (void)encode(lo, a);
        put_range(t, from, a, b, encode(end, b));
        lo = end + 1;
    }
}

/* ---- JSON ---------------------------------------------------------------- */

static bool escaped(uint32_t ch, enum charset_form form)
{
    return form != CHARSET_UTF8 && (ch < 0x20 || ch == '"' || ch == '\\' ||
                                    (ch == '<' && form == CHARSET_JSON_XML));
}

int charset_write(uint32_t ch, enum charset_form form, char ret[6])
{
    static const char short_for[] = "\bb\ff\nn\rr\tt\"\"\\\\";

    if (!escaped(ch, form)) {
        return encode(ch, (uint8_t *)ret);
    }
    ret[0] = '\\';
    for (const char *p = short_for; *p != '\0'; p += 2) {
        if ((uint32_t)*p == ch) {
            ret[1] = p[1];
            return 2;
        }
    }
    ret[1] = 'u';
    for (int i = 0; i < 4; i++) {
        ret[2 + i] = "0123456789abcdef"[ch >> (12 - 4 * i) & 15];
    }
    return 6;
}

/* The first of them at or after lo that is written as an escape, or past. */
static uint32_t next_escaped(uint32_t lo, uint32_t hi, enum charset_form form)
{
    while (lo <= hi && lo <= '\\' && !escaped(lo, form)) {
        lo++;
    }
    return lo <= hi && escaped(lo, form) ? lo : hi + 1;
}

void charset_edges(const struct charset *c, struct gram *g,
                   enum charset_form form, uint32_t from, uint32_t to)
{
    struct tails t = {.g = g, .to = to};

    if (c->err != 0 && g->err == 0) {
        g->err = c->err;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t lo = c->range[i].lo, hi = c->range[i].hi;

        while (lo <= hi) {
            uint32_t e = next_escaped(lo, hi, form);

            if (e > lo) {
                put_utf8(&t, from, lo, e - 1);
            }
            if (e <= hi) {
                char text[6];
                int n = charset_write(e, form, text);
                uint32_t m = gram_text(g, from, text, (size_t)n - 1);

                gram_bytes(g, m, (uint8_t)text[n - 1], (uint8_t)text[n - 1],
                           to);
            }
            lo = e + 1;
        }
    }
}
