/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Regular expressions to trees, by recursive descent:
 *
 *     alternation  = sequence { "|" sequence }
 *     sequence     = { atom [ quantifier ] }
 *     atom         = char | "." | class | escape | "(" alternation ")"
 *
 * ^ and $ mean something only at the two ends of the whole, or of the branches
 * of one alternation that is the whole; anywhere else they are refused. Pure;
 * depth and length are limited.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/pattern_priv.h"
#include "daemon/text/utf8.h"

struct parser {
    struct tree *t;
    const uint8_t *p;
    size_t n, at;
    bool whole;
    int depth;
    const struct why *why;
    int err;
};

static int bad(struct parser *p, const char *what)
{
    if (p->err == 0) {
        p->err = why_set(p->why, -EINVAL, "pattern, byte %zu: %s", p->at, what);
    }
    return 0;
}

void pattern_tree_finish(struct tree *t)
{
    for (int i = 0; i < t->n_sets; i++) {
        charset_finish(&t->set[i]);
    }
    free(t->set);
    free(t->branch);
    memset(t, 0, sizeof(*t));
}

static uint32_t add_len(uint32_t a, uint32_t b)
{
    return a > GRAM_NO_MAX - 1 - b || b > GRAM_NO_MAX - 1 ? GRAM_NO_MAX : a + b;
}

static uint32_t times_len(uint32_t a, uint32_t n)
{
    if (a == 0 || n == 0) {
        return 0;
    }
    return a == GRAM_NO_MAX || n == GRAM_NO_MAX || a > GRAM_NO_MAX / n - 1
               ? GRAM_NO_MAX
               : a * n;
}

static int add_branch(struct parser *p, struct branch b)
{
    struct tree *t = p->t;
    const struct branch *l, *r;

    if (p->err != 0) {
        return 0;
    }
    if (t->n == t->cap) {
        int cap = t->cap > 0 ? 2 * t->cap : 64;
        struct branch *q = realloc(t->branch, (size_t)cap * sizeof(*q));

        if (q == NULL) {
            p->err = -ENOMEM;
            return 0;
        }
        t->branch = q;
        t->cap = cap;
    }
    l = &t->branch[b.left];
    r = &t->branch[b.right];
    switch (b.kind) {
    case BRANCH_EMPTY:
        break;
    case BRANCH_SET:
        b.shortest = b.longest = 1;
        break;
    case BRANCH_CAT:
        b.shortest = add_len(l->shortest, r->shortest);
        b.longest = add_len(l->longest, r->longest);
        break;
    case BRANCH_ALT:
        b.shortest = l->shortest < r->shortest ? l->shortest : r->shortest;
        b.longest = l->longest > r->longest ? l->longest : r->longest;
        break;
    case BRANCH_REPEAT:
        b.shortest = times_len(l->shortest, b.min);
        b.longest = times_len(l->longest, b.max);
        break;
    }
    t->branch[t->n] = b;
    return t->n++;
}

/* The set is taken over. */
static int add_set(struct parser *p, struct charset *c)
{
    struct tree *t = p->t;

    charset_normalise(c);
    if (c->err != 0) {
        p->err = p->err != 0 ? p->err : c->err;
    }
    if (p->err == 0 && c->n == 0) {
        bad(p, "a class that no character is in");
    }
    if (p->err == 0 && t->n_sets == t->cap_sets) {
        int cap = t->cap_sets > 0 ? 2 * t->cap_sets : 32;
        struct charset *q = realloc(t->set, (size_t)cap * sizeof(*q));

        if (q == NULL) {
            p->err = -ENOMEM;
        } else {
            t->set = q;
            t->cap_sets = cap;
        }
    }
    if (p->err != 0) {
        charset_finish(c);
        return 0;
    }
    t->set[t->n_sets] = *c;
    return add_branch(p,
                      (struct branch){.kind = BRANCH_SET, .left = t->n_sets++});
}

static int add_empty(struct parser *p)
{
    return add_branch(p, (struct branch){.kind = BRANCH_EMPTY});
}

static int add_pair(struct parser *p, enum branch_kind k, int left, int right)
{
    return add_branch(p,
                      (struct branch){.kind = k, .left = left, .right = right});
}

static int add_repeat(struct parser *p, int body, uint32_t min, uint32_t max)
{
    if (max == 0) {
        return add_empty(p);
    }
    if (min == 1 && max == 1) {
        return body;
    }
    return add_branch(
        p, (struct branch){
               .kind = BRANCH_REPEAT, .left = body, .min = min, .max = max});
}

/* ---- characters ---------------------------------------------------------- */

static bool more(const struct parser *p)
{
    return p->at < p->n && p->err == 0;
}

static bool next_is(const struct parser *p, char c)
{
    return more(p) && p->p[p->at] == (uint8_t)c;
}

static bool take(struct parser *p, char c)
{
    if (!next_is(p, c)) {
        return false;
    }
    p->at++;
    return true;
}

static uint32_t take_char(struct parser *p)
{
    int n = utf8_char(p->p + p->at, p->n - p->at);
    static const uint8_t keep[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c;

    if (n == 0) {
        bad(p, "not UTF-8");
        return 0;
    }
    c = p->p[p->at] & keep[n];
    for (int i = 1; i < n; i++) {
        c = c << 6 | (p->p[p->at + (size_t)i] & 0x3f);
    }
    p->at += (size_t)n;
    return c;
}

static uint32_t take_hex(struct parser *p, int n)
{
    uint32_t c = 0;

    for (int i = 0; i < n; i++) {
        int d = more(p) ? p->p[p->at] : 0;

        if (d >= '0' && d <= '9') {
            d -= '0';
        } else if ((d | 32) >= 'a' && (d | 32) <= 'f') {
            d = (d | 32) - 'a' + 10;
        } else {
            bad(p, "hexadecimal digits are missing");
            return 0;
        }
        c = c << 4 | (uint32_t)d;
        p->at++;
    }
    return c;
}

/* \u{...} and \uHHHH, surrogate pairs joined. */
static uint32_t take_unicode(struct parser *p)
{
    uint32_t c = 0;

    if (!take(p, '{')) {
        c = take_hex(p, 4);
        if (c >= 0xd800 && c < 0xdc00 && p->at + 6 <= p->n &&
            p->p[p->at] == '\\' && p->p[p->at + 1] == 'u') {
            p->at += 2;
            c = 0x10000 + ((c & 0x3ff) << 10) + (take_hex(p, 4) & 0x3ff);
        }
        return c;
    }
    while (more(p) && !next_is(p, '}')) {
        c = c << 4 | take_hex(p, 1);
        if (c > CHARSET_LAST) {
            bad(p, "there is no such character");
        }
    }
    if (!take(p, '}')) {
        bad(p, "\\u{ without }");
    }
    return c;
}

static void add_spaces(struct charset *c)
{
    charset_add(c, 9, 13);
    charset_add(c, ' ', ' ');
}

static void add_words(struct charset *c)
{
    charset_add(c, '0', '9');
    charset_add(c, 'A', 'Z');
    charset_add(c, '_', '_');
    charset_add(c, 'a', 'z');
}

/* The class of a letter behind a backslash; false: it is none. Beyond ASCII,
 * dialects disagree on \d, \w and \s, and so on their opposites. */
static bool add_class(struct charset *c, char letter)
{
    struct charset not = {0};

    switch (letter) {
    case 'd':
        charset_add(c, '0', '9');
        return true;
    case 'w':
        add_words(c);
        return true;
    case 's':
        add_spaces(c);
        return true;
    case 'D':
        charset_add(&not, '0', '9');
        charset_add(&not, 0x80, CHARSET_LAST);
        break;
    case 'W':
        add_words(&not );
        charset_add(&not, 0x80, CHARSET_LAST);
        break;
    case 'S':
        add_spaces(&not );
        charset_add(&not, 0x1c, 0x1f);
        charset_add(&not, 0x85, 0x85);
        charset_add(&not, 0xa0, 0xa0);
        charset_add(&not, 0x1680, 0x1680);
        charset_add(&not, 0x2000, 0x200f);
        charset_add(&not, 0x2028, 0x202f);
        charset_add(&not, 0x205f, 0x205f);
        charset_add(&not, 0x3000, 0x3000);
        charset_add(&not, 0xfeff, 0xfeff);
        break;
    default:
        return false;
    }
    charset_invert(&not );
    charset_add_set(c, &not );
    charset_finish(&not );
    return true;
}

/* Behind a backslash, what stands for one character. */
static uint32_t take_escape(struct parser *p)
{
    static const char control[] = "t\tn\nr\rf\fv\v";
    uint32_t c = take_char(p);

    for (const char *q = control; *q != '\0'; q += 2) {
        if (c == (uint32_t)*q) {
            return (uint32_t)q[1];
        }
    }
    switch (c) {
    case 'x':
        return take_hex(p, 2);
    case 'u':
        return take_unicode(p);
    case '0':
        return 0;
    case 'p':
    case 'P':
        bad(p, "\\p is not supported");
        break;
    case 'b':
    case 'B':
        bad(p, "\\b is not supported");
        break;
    case 'k':
        bad(p, "back references are not supported");
        break;
    default:
        if (c >= '1' && c <= '9') {
            bad(p, "back references are not supported");
        } else if ((c | 32) >= 'a' && (c | 32) <= 'z') {
            bad(p, "an escape that has no meaning here");
        }
    }
    return c;
}

/* ---- atoms --------------------------------------------------------------- */

/* One end of a range, or a class (false). */
static bool class_char(struct parser *p, struct charset *c, uint32_t *ret)
{
    if (!take(p, '\\')) {
        *ret = take_char(p);
        return true;
    }
    if (more(p) && add_class(c, (char)p->p[p->at])) {
        p->at++;
        return false;
    }
    if (take(p, 'b')) {
        *ret = 8;
        return true;
    }
    if (take(p, '-')) {
        *ret = '-';
        return true;
    }
    *ret = take_escape(p);
    return true;
}

static int class(struct parser *p)
{
    struct charset c = {0};
    bool not = take(p, '^');

    while (more(p) && !next_is(p, ']')) {
        uint32_t lo, hi;

        if (!class_char(p, &c, &lo)) {
            continue;
        }
        hi = lo;
        if (next_is(p, '-') && p->at + 1 < p->n && p->p[p->at + 1] != ']') {
            p->at++;
            if (!class_char(p, &c, &hi)) {
                charset_add(&c, '-', '-');
                hi = lo;
            } else if (hi < lo) {
                bad(p, "a range that ends before it begins");
            }
        }
        charset_add(&c, lo, hi);
    }
    if (!take(p, ']')) {
        bad(p, "[ without ]");
    }
    if (not ) {
        charset_invert(&c);
    }
    return add_set(p, &c);
}

static int alternation(struct parser *p);

static int group(struct parser *p)
{
    int r;

    if (take(p, '?') && !take(p, ':')) {
        return bad(p, next_is(p, '<') ? "named groups and look-behind are not "
                                        "supported"
                      : next_is(p, '=') || next_is(p, '!')
                          ? "look-ahead is not supported"
                          : "of the groups that begin with ? only (?: is "
                            "supported");
    }
    if (++p->depth > PATTERN_MAX_DEPTH) {
        return bad(p, "groups too deep inside each other");
    }
    r = alternation(p);
    p->depth--;
    if (!take(p, ')')) {
        return bad(p, "( without )");
    }
    return r;
}

static int one_char(struct parser *p, uint32_t ch)
{
    struct charset c = {0};

    charset_add(&c, ch, ch);
    return add_set(p, &c);
}

static int dot(struct parser *p)
{
    struct charset c = {0};

    charset_add(&c, '\n', '\n');
    charset_add(&c, '\r', '\r');
    charset_add(&c, 0x2028, 0x2029);
    charset_invert(&c);
    return add_set(p, &c);
}

static int atom(struct parser *p)
{
    uint8_t b = p->p[p->at];

    switch (b) {
    case '(':
        p->at++;
        return group(p);
    case '[':
        p->at++;
        return class(p);
    case '.':
        p->at++;
        return dot(p);
    case '\\': {
        struct charset c = {0};

        p->at++;
        if (!more(p)) {
            return bad(p, "a backslash at the end");
        }
        if (add_class(&c, (char)p->p[p->at])) {
            p->at++;
            return add_set(p, &c);
        }
        return one_char(p, take_escape(p));
    }
    case '*':
    case '+':
    case '?':
        return bad(p, "a quantifier without anything before it");
    case '^':
    case '$':
        return bad(p, "^ and $ are supported at the ends only");
    default:
        return one_char(p, take_char(p));
    }
}

/* ---- quantifiers --------------------------------------------------------- */

static bool take_number(struct parser *p, uint32_t *ret)
{
    size_t from = p->at;
    uint32_t n = 0;

    while (more(p) && p->p[p->at] >= '0' && p->p[p->at] <= '9') {
        n = 10 * n + (uint32_t)(p->p[p->at++] - '0');
        if (n > PATTERN_MAX_REPEAT) {
            bad(p, "a repetition of more than 100000");
            return false;
        }
    }
    *ret = n;
    return p->at > from;
}

/* {n}, {n,} or {n,m}; false: the brace is a plain character. */
static bool take_counts(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t from = p->at;

    p->at++;
    if (take_number(p, min)) {
        *max = *min;
        if (take(p, ',') && !take_number(p, max)) {
            *max = GRAM_NO_MAX;
        }
        if (take(p, '}')) {
            if (*max < *min) {
                bad(p, "a repetition that ends before it begins");
            }
            return true;
        }
    }
    p->at = from;
    return false;
}

static int quantified(struct parser *p)
{
    int r = atom(p);

    while (more(p)) {
        uint32_t min = 0, max = GRAM_NO_MAX;

        if (take(p, '*')) {
        } else if (take(p, '+')) {
            min = 1;
        } else if (take(p, '?')) {
            max = 1;
        } else if (!next_is(p, '{') || !take_counts(p, &min, &max)) {
            break;
        }
        (void)take(p, '?'); /* lazy: the same strings */
        if (next_is(p, '+')) {
            return bad(p, "possessive quantifiers are not supported");
        }
        r = add_repeat(p, r, min, max);
        if (next_is(p, '*') || next_is(p, '?')) {
            return bad(p, "a quantifier without anything before it");
        }
        break;
    }
    return r;
}

/* At depth 0 a sequence is a branch of the whole, and has ends. */
static int sequence(struct parser *p)
{
    bool outer = p->depth == 0;
    bool from_start = outer && take(p, '^');
    bool to_end = false;
    int r = add_empty(p);

    while (more(p) && !next_is(p, '|') && !next_is(p, ')')) {
        if (outer && next_is(p, '$') &&
            (p->at + 1 == p->n || p->p[p->at + 1] == '|')) {
            p->at++;
            to_end = true;
            break;
        }
        r = add_pair(p, BRANCH_CAT, r, quantified(p));
    }
    if (outer && !p->whole) {
        struct charset any = {0};
        int set, loop;

        charset_add(&any, 0, CHARSET_LAST);
        set = add_set(p, &any);
        loop = add_repeat(p, set, 0, GRAM_NO_MAX);
        r = from_start ? r : add_pair(p, BRANCH_CAT, loop, r);
        r = to_end ? r : add_pair(p, BRANCH_CAT, r, loop);
    }
    return r;
}

static int alternation(struct parser *p)
{
    int r = sequence(p);

    while (take(p, '|')) {
        r = add_pair(p, BRANCH_ALT, r, sequence(p));
    }
    return r;
}

int pattern_parse(struct tree *t, const struct pattern_args *a,
                  const struct why *why)
{
    struct parser p = {
        .t = t,
        .p = (const uint8_t *)a->text,
        .n = a->n,
        .whole = a->whole,
        .why = why,
    };

    if (a->n > PATTERN_MAX_BYTES) {
        return why_set(why, -EINVAL, "a pattern of more than %d bytes",
                       PATTERN_MAX_BYTES);
    }
    t->root = alternation(&p);
    if (p.err == 0 && p.at < p.n) {
        bad(&p, ") without (");
    }
    return p.err;
}
