/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Oniguruma (Ruby syntax, UTF-8) to PCRE2 (UTF, UCP). The two agree on
 * literals, classes of characters and properties, alternation, groups,
 * look-around and the usual quantifiers. They differ on:
 *
 *   \s \S          Oniguruma: White_Space. PCRE2 adds U+180E. Spelt out here.
 *   \w \b \h \R..  other sets or other meanings: refused.
 *   ^ $            always at line ends in Ruby syntax: refused.
 *   [a[b]] &&      nested classes and intersection, unknown to PCRE2: refused.
 *   {,n} {n,m}+    a quantifier to one and text to the other; greedy group to
 *                  one and possessive to the other: refused.
 *   (?i) (?<n>..)  options and names: refused, nobody needs them.
 *
 * So a pattern that gets through means the same in both; one that would quietly
 * mean something else does not get through. Pure.
 */
#include "daemon/text/regex.h"

#include <stdbool.h>

/* White_Space of Unicode, as the inside of a class. */
#define WHITE_SPACE                                           \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-" \
    "\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct reader {
    const char *p, *end;
    bool in_class;
    bool class_start; /* just behind [ or [^: a ] here is itself */
    struct str *out;
    const struct why *why;
};

static int refuse(const struct reader *r, const char *what, size_t n)
{
    return why_set(r->why, -EBADMSG, "pattern: %.*s is not supported", (int)n,
                   what);
}

static bool starts(const struct reader *r, const char *text)
{
    size_t n = strlen(text);

    return (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

/* \p{Name} and \x{hex}: copied whole. */
static int braced(struct reader *r)
{
    const char *close = r->end - r->p > 2 && r->p[2] == '{'
                            ? memchr(r->p + 3, '}', (size_t)(r->end - r->p) - 3)
                            : NULL;

    if (close == NULL) {
        return refuse(r, r->p, 2);
    }
    str_add(r->out, r->p, (size_t)(close + 1 - r->p));
    r->p = close + 1;
    return 0;
}

static int escape(struct reader *r)
{
    char c;

    if (r->end - r->p < 2) {
        return refuse(r, r->p, 1);
    }
    c = r->p[1];
    switch (c) {
    case 'p':
    case 'P':
    case 'x':
        return braced(r);
    case 's':
        str_puts(r->out, r->in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
        break;
    case 'S':
        if (r->in_class) {
            return refuse(r, "\\S in a class", 13);
        }
        str_puts(r->out, "[^" WHITE_SPACE "]");
        break;
    case 'd':
    case 'D':
    case 'r':
    case 'n':
    case 't':
    case 'f':
        str_add(r->out, r->p, 2);
        break;
    default:
        /* Punctuation stands for itself; letters and digits have meanings. */
        if ((unsigned char)c >= 0x80 || c <= ' ' || (c >= '0' && c <= '9') ||
            (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == 0x7f) {
            return refuse(r, r->p, 2);
        }
        str_add(r->out, r->p, 2);
        break;
    }
    r->p += 2;
    return 0;
}

static int in_class(struct reader *r)
{
    bool first = r->class_start;

    r->class_start = false;
    if (*r->p == '\\') {
        return escape(r);
    }
    if (*r->p == '[') {
        return refuse(r, "[ in a class", 12);
    }
    if (starts(r, "&&")) {
        return refuse(r, "&& in a class", 13);
    }
    if (*r->p == ']') {
        if (first) {
            return refuse(r, "[]", 2);
        }
        r->in_class = false;
    }
    str_putc(r->out, *r->p++);
    return 0;
}

static int group(struct reader *r)
{
    static const char *const known[] = {"(?:", "(?=",  "(?!",
                                        "(?>", "(?<=", "(?<!"};

    if (starts(r, "(*")) {
        return refuse(r, r->p, 2);
    }
    if (!starts(r, "(?")) {
        str_putc(r->out, *r->p++);
        return 0;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (starts(r, known[i])) {
            str_puts(r->out, known[i]);
            r->p += strlen(known[i]);
            return 0;
        }
    }
    return refuse(r, r->p, r->end - r->p < 3 ? 2 : 3);
}

/* {n}, {n,} and {n,m}, the forms on which both agree. */
static int count(struct reader *r)
{
    const char *p = r->p + 1;
    const char *digits = p;

    while (p < r->end && *p >= '0' && *p <= '9') {
        p++;
    }
    if (p == digits) {
        return refuse(r, "{ without a number", 18);
    }
    if (p < r->end && *p == ',') {
        p++;
        while (p < r->end && *p >= '0' && *p <= '9') {
            p++;
        }
    }
    if (p == r->end || *p != '}') {
        return refuse(r, "{ without }", 11);
    }
    p++;
    if (p < r->end && *p == '+') {
        return refuse(r, "}+", 2);
    }
    str_add(r->out, r->p, (size_t)(p - r->p));
    r->p = p;
    return 0;
}

static int outside_class(struct reader *r)
{
    switch (*r->p) {
    case '\\':
        return escape(r);
    case '^':
    case '$':
        return refuse(r, r->p, 1);
    case '(':
        return group(r);
    case '{':
        return count(r);
    case '[':
        r->in_class = true;
        r->class_start = true;
        str_putc(r->out, *r->p++);
        if (r->p < r->end && *r->p == '^') {
            str_putc(r->out, *r->p++);
        }
        return 0;
    default:
        str_putc(r->out, *r->p++);
        return 0;
    }
}

int regex_translate(const char *pattern, size_t n, struct str *out,
                    const struct why *why)
{
    struct reader r = {
        .p = pattern, .end = pattern + n, .out = out, .why = why};
    int e;

    while (r.p < r.end) {
        e = r.in_class ? in_class(&r) : outside_class(&r);
        if (e < 0) {
            return e;
        }
    }
    if (out->err != 0) {
        return why_set(why, out->err, "out of memory");
    }
    return 0;
}
