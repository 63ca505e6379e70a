/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One recursive descent for two grammars, JSON and Python literals: what they
 * share (lists, maps, decimal numbers, most of strings) is read by the same
 * code. Output goes straight to the caller's str; a map's members are gathered
 * in a str of its own first, because a later member may replace an earlier one.
 *
 * The invariant: every byte is looked at a bounded number of times, whatever
 * the model wrote, and a refusal leaves nothing behind. Pure.
 */
#include "daemon/text/pyvalue.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/pyjson.h"
#include "daemon/text/utf8.h"

struct reader {
    const char *p, *end;
    bool literal; /* Python's grammar, else JSON's */
    int depth;
    struct str *out;
};

struct value {
    enum pyvalue_type type;
    bool set; /* allowed outermost only */
    double number;
};

static int read_value(struct reader *r, struct value *ret);

/* ---- whitespace -------------------------------------------------------- */

size_t pyvalue_space(const char *p, size_t n)
{
    /* Beyond ASCII: in UTF-8, NUL-terminated. */
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    unsigned char c = n != 0 ? (unsigned char)p[0] : 0;

    if (c < 0x80) {
        return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
    }
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        size_t len = strlen(wide[i]);

        if (n >= len && memcmp(p, wide[i], len) == 0) {
            return len;
        }
    }
    if (n >= 3 && memcmp(p, "\xe2\x80", 2) == 0 && (uint8_t)p[2] <= 0x8a) {
        return 3; /* U+2000 to U+200A */
    }
    return 0;
}

void pyvalue_strip(const char **p, size_t *n)
{
    size_t end = 0, len;

    while ((len = pyvalue_space(*p, *n)) != 0) {
        *p += len;
        *n -= len;
    }
    for (size_t i = 0; i < *n;) {
        len = pyvalue_space(*p + i, *n - i);
        i += len != 0 ? len : 1;
        end = len != 0 ? end : i;
    }
    *n = end;
}

static bool is_blank(const struct reader *r, char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' ||
           (r->literal && c == '\f');
}

static void skip_blanks(struct reader *r)
{
    while (r->p < r->end && is_blank(r, *r->p)) {
        r->p++;
    }
}

static bool at(const struct reader *r, char c)
{
    return r->p < r->end && *r->p == c;
}

static bool take(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) {
        return false;
    }
    r->p += n;
    return true;
}

/* ---- numbers ----------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits, with single underscores between them where allowed; appended to d
 * without these. False: there is none, or an underscore stands wrong. */
static bool take_digits(const char **p, const char *end, bool underscores,
                        struct str *d)
{
    const char *start = *p;

    for (; *p < end; ++*p) {
        if (is_digit(**p)) {
            str_putc(d, **p);
        } else if (!underscores || **p != '_' || *p == start ||
                   (*p)[-1] == '_') {
            break;
        }
    }
    return *p > start && (*p)[-1] != '_';
}

/* Decimal digits without what leads them: the integer that they are. */
static void put_int(bool negative, const char *d, size_t n, struct str *out)
{
    while (n > 1 && *d == '0') {
        d++;
        n--;
    }
    if (negative && (n != 1 || *d != '0')) {
        str_putc(out, '-');
    }
    str_add(out, d, n);
}

/* The unsigned decimal number at *p into d, ready for strtod. *ret_whole: no
 * point and no exponent. */
static bool take_decimal(const char **p, const char *end, bool python,
                         struct str *d, bool *ret_whole)
{
    bool before = take_digits(p, end, python, d);
    bool after = false;

    *ret_whole = true;
    if (!before && *p < end && (*p)[0] != '.') {
        return false;
    }
    if (*p < end && **p == '.') {
        *ret_whole = false;
        str_putc(d, *(*p)++);
        after = take_digits(p, end, python, d);
        if (!python && !after) {
            return false;
        }
    }
    if (!before && (!python || !after)) {
        return false;
    }
    if (*p < end && (**p == 'e' || **p == 'E')) {
        *ret_whole = false;
        str_putc(d, *(*p)++);
        if (*p < end && (**p == '+' || **p == '-')) {
            str_putc(d, *(*p)++);
        }
        return take_digits(p, end, python, d);
    }
    return true;
}

/* 0x, 0o, 0b: as far as 64 bits go. */
static int read_based(struct reader *r, bool negative, struct value *ret)
{
    static const char letter[] = "xXoObB";
    static const unsigned char base[] = {16, 16, 8, 8, 2, 2};
    unsigned b = base[strchr(letter, r->p[1]) - letter];
    uint64_t v = 0;
    char buf[32];
    bool any = false;

    for (r->p += 2; r->p < r->end; r->p++) {
        char c = *r->p | 0x20;
        unsigned digit = is_digit(c)            ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 99;

        if (*r->p == '_' && r->p + 1 < r->end && r->p[1] != '_') {
            continue;
        }
        if (digit >= b) {
            break;
        }
        if (v > (UINT64_MAX - digit) / b) {
            return -EINVAL;
        }
        v = v * b + digit;
        any = true;
    }
    if (!any || r->p[-1] == '_') {
        return -EINVAL;
    }
    snprintf(buf, sizeof(buf), "%llu", (unsigned long long)v);
    put_int(negative, buf, strlen(buf), r->out);
    ret->type = PYVALUE_INT;
    ret->number = negative ? -(double)v : (double)v;
    return 0;
}

/* A number of which the sign has been read. */
static int read_number(struct reader *r, bool negative, struct value *ret)
{
    struct str d = {0};
    const char *from = r->p;
    char buf[PYJSON_FLOAT];
    bool whole;
    int e = -EINVAL;

    if (r->literal && r->end - r->p > 2 && *r->p == '0' &&
        strchr("xXoObB", r->p[1]) != NULL && r->p[1] != '\0') {
        return read_based(r, negative, ret);
    }
    if (!take_decimal(&r->p, r->end, r->literal, &d, &whole)) {
        goto out;
    }
    if (whole && *from == '0' && r->p - from > 1 &&
        (!r->literal || strspn(from, "0_") < (size_t)(r->p - from))) {
        goto out; /* 012 is no number, 00 is one in Python */
    }
    if (!whole && !r->literal && *from == '0' && is_digit(from[1])) {
        goto out;
    }
    str_putc(&d, '\0');
    if (d.err != 0 || (whole && d.n - 1 > PYVALUE_MAX_DIGITS)) {
        r->out->err = d.err != 0 ? d.err : r->out->err;
        goto out;
    }
    ret->type = whole ? PYVALUE_INT : PYVALUE_FLOAT;
    ret->number = strtod(d.p, NULL);
    ret->number = negative ? -ret->number : ret->number;
    if (whole) {
        put_int(negative, d.p, d.n - 1, r->out);
    } else if (!isfinite(ret->number)) {
        goto out;
    } else {
        pyjson_float(ret->number, buf);
        str_puts(r->out, buf);
    }
    e = 0;
out:
    str_finish(&d);
    return e;
}

static int read_signed(struct reader *r, struct value *ret)
{
    bool negative = at(r, '-');

    if (negative || (r->literal && at(r, '+'))) {
        r->p++;
        if (r->literal) {
            skip_blanks(r);
        }
    }
    if (r->p == r->end || !(is_digit(*r->p) || (r->literal && *r->p == '.'))) {
        return -EINVAL;
    }
    return read_number(r, negative, ret);
}

int pyvalue_int(const char *text, size_t n, struct str *out)
{
    struct str d = {0};
    bool negative, ok;
    const char *end;

    pyvalue_strip(&text, &n);
    end = text + n;
    negative = n != 0 && *text == '-';
    if (n != 0 && (*text == '-' || *text == '+')) {
        text++;
    }
    ok = take_digits(&text, end, true, &d) && text == end &&
         d.n <= PYVALUE_MAX_DIGITS;
    if (ok && d.err == 0) {
        put_int(negative, d.p, d.n, out);
    }
    out->err = d.err != 0 ? d.err : out->err;
    str_finish(&d);
    return ok ? 0 : -EINVAL;
}

static bool is_word(const char *p, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(p, word, n) == 0;
}

int pyvalue_float(const char *text, size_t n, double *ret)
{
    struct str d = {0};
    bool negative, whole, ok;
    const char *end;
    double x = 0;
    int e;

    pyvalue_strip(&text, &n);
    negative = n != 0 && *text == '-';
    if (n != 0 && (*text == '-' || *text == '+')) {
        text++;
        n--;
    }
    end = text + n;
    if (is_word(text, n, "inf") || is_word(text, n, "infinity")) {
        x = (double)INFINITY;
        ok = true;
    } else if (is_word(text, n, "nan")) {
        x = (double)NAN;
        ok = true;
    } else {
        ok = take_decimal(&text, end, true, &d, &whole) && text == end;
        str_putc(&d, '\0');
        x = ok && d.err == 0 ? strtod(d.p, NULL) : 0;
    }
    e = d.err != 0 ? d.err : ok ? 0 : -EINVAL;
    str_finish(&d);
    if (e == 0) {
        *ret = negative ? -x : x;
    }
    return e;
}

void pyvalue_put_whole(double x, struct str *out)
{
    char buf[340]; /* 309 digits at most */

    snprintf(buf, sizeof(buf), "%.0f", x);
    str_puts(out, strcmp(buf, "-0") == 0 ? "0" : buf);
}

/* ---- strings ----------------------------------------------------------- */

static int put_code_point(struct str *s, uint32_t c)
{
    char b[4];

    if (c < 0x80) {
        str_putc(s, (char)c);
        return 0;
    }
    if (c < 0x800) {
        b[0] = (char)(0xc0 | c >> 6);
        b[1] = (char)(0x80 | (c & 0x3f));
        str_add(s, b, 2);
        return 0;
    }
    if ((c >= 0xd800 && c < 0xe000) || c > 0x10ffff) {
        return -EINVAL;
    }
    if (c < 0x10000) {
        b[0] = (char)(0xe0 | c >> 12);
        b[1] = (char)(0x80 | (c >> 6 & 0x3f));
        b[2] = (char)(0x80 | (c & 0x3f));
        str_add(s, b, 3);
        return 0;
    }
    b[0] = (char)(0xf0 | c >> 18);
    b[1] = (char)(0x80 | (c >> 12 & 0x3f));
    b[2] = (char)(0x80 | (c >> 6 & 0x3f));
    b[3] = (char)(0x80 | (c & 0x3f));
    str_add(s, b, 4);
    return 0;
}

static bool take_hex(struct reader *r, int digits, uint32_t *ret)
{
    uint32_t v = 0;

    for (int i = 0; i < digits; i++) {
        static const char hex[] = "0123456789abcdef";
        const char *x;

        if (r->p == r->end || *r->p == '\0') {
            return false;
        }
        x = strchr(hex, *r->p | (is_digit(*r->p) ? 0 : 0x20));
        if (x == NULL) {
            return false;
        }
        v = v << 4 | (uint32_t)(x - hex);
        r->p++;
    }
    *ret = v;
    return true;
}

/* Behind \u: two halves are one character in JSON. */
static int read_u(struct reader *r, struct str *s)
{
    uint32_t c, low;

    if (!take_hex(r, 4, &c)) {
        return -EINVAL;
    }
    if (!r->literal && c >= 0xd800 && c < 0xdc00) {
        if (!take(r, "\\u") || !take_hex(r, 4, &low) || low < 0xdc00 ||
            low > 0xdfff) {
            return -EINVAL;
        }
        c = 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
    }
    return put_code_point(s, c);
}

static int read_octal(struct reader *r, struct str *s)
{
    uint32_t v = 0;

    for (int i = 0; i < 3 && r->p < r->end && *r->p >= '0' && *r->p < '8';
         i++) {
        v = v << 3 | (uint32_t)(*r->p++ - '0');
    }
    return put_code_point(s, v);
}

/* Behind a backslash that Python has and JSON has not. */
static int read_python_escape(struct reader *r, struct str *s)
{
    uint32_t v;

    switch (*r->p) {
    case '\'':
        str_putc(s, *r->p++);
        return 0;
    case '\n':
        r->p++;
        return 0;
    case 'a':
        r->p++;
        str_putc(s, '\a');
        return 0;
    case 'v':
        r->p++;
        str_putc(s, '\v');
        return 0;
    case 'x':
        r->p++;
        return take_hex(r, 2, &v) ? put_code_point(s, v) : -EINVAL;
    case 'U':
        r->p++;
        return take_hex(r, 8, &v) ? put_code_point(s, v) : -EINVAL;
    case 'N':
        return -EINVAL;
    default:
        break;
    }
    if (*r->p >= '0' && *r->p < '8') {
        return read_octal(r, s);
    }
    str_putc(s, '\\');
    return 0;
}

static int read_escape(struct reader *r, struct str *s)
{
    static const char name[] = "\"\\/bfnrt", byte[] = "\"\\/\b\f\n\r\t";
    const char *x;

    if (r->p == r->end) {
        return -EINVAL;
    }
    x = *r->p != '\0' ? strchr(name, *r->p) : NULL;
    if (x != NULL && !(r->literal && *x == '/')) {
        r->p++;
        str_putc(s, byte[x - name]);
        return 0;
    }
    if (*r->p == 'u') {
        r->p++;
        return read_u(r, s);
    }
    return r->literal ? read_python_escape(r, s) : -EINVAL;
}

/* The text between quotes, the opening one having been read. */
static int read_quoted(struct reader *r, const char *quote, bool raw,
                       struct str *s)
{
    while (!take(r, quote)) {
        unsigned char c = r->p < r->end ? (unsigned char)*r->p : 0;
        int e = 0;

        if (r->p == r->end || (!r->literal && c < 0x20) ||
            (r->literal && (c == '\0' || (c == '\n' && quote[1] == '\0')))) {
            return -EINVAL;
        }
        r->p++;
        if (c != '\\') {
            str_putc(s, (char)c);
        } else if (raw && r->p < r->end) {
            str_putc(s, '\\');
            str_putc(s, *r->p++);
        } else {
            e = read_escape(r, s);
        }
        if (e < 0) {
            return e;
        }
    }
    return 0;
}

/* One string literal; *ret_any false where there is none here. */
static int read_string_once(struct reader *r, struct str *s, bool *ret_any)
{
    const char *p = r->p;
    bool raw = false;
    char quote[4] = "";

    if (r->literal && p < r->end && strchr("uUrR", *p) != NULL && *p != '\0') {
        raw = *p == 'r' || *p == 'R';
        p++;
    }
    *ret_any = p < r->end && (*p == '"' || (r->literal && *p == '\''));
    if (!*ret_any) {
        return 0;
    }
    quote[0] = *p;
    if (r->literal && r->end - p >= 3 && p[1] == *p && p[2] == *p) {
        quote[1] = quote[2] = *p;
    }
    r->p = p + strlen(quote);
    return read_quoted(r, quote, raw, s);
}

/* A string, in Python of several in a row. -ENOENT: there is none here. */
static int read_string(struct reader *r)
{
    struct str s = {0};
    bool any;
    int n = 0;
    int e = read_string_once(r, &s, &any);

    while (e == 0 && any) {
        n++;
        if (!r->literal) {
            break;
        }
        skip_blanks(r);
        e = read_string_once(r, &s, &any);
    }
    if (e == 0 && n == 0) {
        e = -ENOENT;
    }
    if (e == 0 && s.n == 0) {
        str_puts(r->out, "\"\"");
    } else if (e == 0 && s.n != utf8_valid((const uint8_t *)s.p, s.n)) {
        e = -EINVAL;
    } else if (e == 0) {
        pyjson_string(s.p, s.n, r->out);
    }
    if (s.err != 0) {
        r->out->err = s.err;
    }
    str_finish(&s);
    return e;
}

/* ---- lists and maps ---------------------------------------------------- */

/* Items up to the closing bracket, which is taken. *ret_n of them, the last
 * one's kind; *ret_comma: a comma stood behind it. */
static int read_items(struct reader *r, char close, size_t *ret_n,
                      struct value *ret_last, bool *ret_comma)
{
    *ret_comma = false;
    for (;;) {
        skip_blanks(r);
        if (at(r, close) && (*ret_n == 0 || r->literal)) {
            *ret_comma = *ret_n != 0;
            break;
        }
        str_puts(r->out, *ret_n > 0 ? ", " : "");
        if (read_value(r, ret_last) < 0 || ret_last->set) {
            return -EINVAL;
        }
        ++*ret_n;
        skip_blanks(r);
        if (at(r, close)) {
            break;
        }
        if (!at(r, ',')) {
            return -EINVAL;
        }
        r->p++;
    }
    r->p++;
    return 0;
}

static int read_list(struct reader *r, struct value *ret)
{
    struct value last;
    size_t n = 0;
    bool comma;
    int e;

    r->p++;
    str_putc(r->out, '[');
    e = read_items(r, ']', &n, &last, &comma);
    str_putc(r->out, ']');
    ret->type = PYVALUE_LIST;
    return e;
}

/* A tuple, or a value in parentheses. */
static int read_parens(struct reader *r, struct value *ret)
{
    struct str *out = r->out, inside = {0};
    struct value last;
    size_t n = 0;
    bool comma, tuple;
    int e;

    r->p++;
    r->out = &inside;
    e = read_items(r, ')', &n, &last, &comma);
    r->out = out;
    tuple = n != 1 || comma;
    str_puts(out, tuple ? "[" : "");
    str_add(out, inside.p, inside.n);
    str_puts(out, tuple ? "]" : "");
    if (tuple) {
        ret->type = PYVALUE_LIST;
    } else if (e == 0) {
        *ret = last;
    }
    out->err = inside.err != 0 ? inside.err : out->err;
    str_finish(&inside);
    return e;
}

struct members {
    struct pyvalue_pair *pair;
    size_t n, cap;
};

static int add_member(struct members *m, const struct pyvalue_pair *x)
{
    if (m->n == m->cap) {
        size_t cap = m->cap != 0 ? 2 * m->cap : 8;
        struct pyvalue_pair *p = realloc(m->pair, cap * sizeof(*p));

        if (p == NULL) {
            return -ENOMEM;
        }
        m->pair = p;
        m->cap = cap;
    }
    m->pair[m->n++] = *x;
    return 0;
}

/* A key as json.dumps writes it: always a string. */
static int read_key(struct reader *r)
{
    struct str *out = r->out, key = {0};
    struct value v;
    int e;

    if (!r->literal) {
        return read_string(r);
    }
    r->out = &key;
    e = read_value(r, &v);
    r->out = out;
    if (e == 0 && (v.type == PYVALUE_LIST || v.type == PYVALUE_MAP || v.set)) {
        e = -EINVAL;
    }
    if (e == 0 && v.type == PYVALUE_STR) {
        str_add(out, key.p, key.n);
    } else if (e == 0) {
        pyjson_string(key.p, key.n, out);
    }
    out->err = key.err != 0 ? key.err : out->err;
    str_finish(&key);
    return e;
}

static void write_members(const struct members *m, const char *text,
                          struct str *out)
{
    const char *between = "";

    str_putc(out, '{');
    for (size_t i = 0; i < m->n; i++) {
        const struct pyvalue_pair *x = &m->pair[i];

        if (!x->gone) {
            str_puts(out, between);
            str_add(out, text + x->key, x->n_key);
            str_puts(out, ": ");
            str_add(out, text + x->value, x->n_value);
            between = ", ";
        }
    }
    str_putc(out, '}');
}

/* A member behind its key; the value is left out where it is a set's item. */
static int read_member(struct reader *r, struct members *m, bool *ret_set)
{
    struct pyvalue_pair x = {.key = r->out->n};
    struct value v;
    int e = read_key(r);

    x.n_key = r->out->n - x.key;
    skip_blanks(r);
    if (e == 0 && at(r, ':')) {
        r->p++;
        skip_blanks(r);
        x.value = r->out->n;
        e = read_value(r, &v);
        e = e == 0 && v.set ? -EINVAL : e;
        x.n_value = r->out->n - x.value;
        return e < 0 ? e : add_member(m, &x);
    }
    *ret_set = e == 0 && r->literal && m->n == 0;
    return -EINVAL;
}

static int read_members(struct reader *r, struct members *m, bool *ret_set)
{
    int e;

    for (;;) {
        skip_blanks(r);
        if (at(r, '}') && (m->n == 0 || r->literal)) {
            break;
        }
        e = read_member(r, m, ret_set);
        if (e < 0) {
            return e;
        }
        skip_blanks(r);
        if (at(r, '}')) {
            break;
        }
        if (!at(r, ',')) {
            return -EINVAL;
        }
        r->p++;
    }
    r->p++;
    return 0;
}

/* An object or dict; of literals also a set, which is a list then. */
static int read_braces(struct reader *r, struct value *ret)
{
    struct str *out = r->out, text = {0};
    const char *from = ++r->p;
    struct members m = {0};
    struct value last;
    bool set = false, comma;
    size_t n = 0;
    int e;

    r->out = &text;
    e = read_members(r, &m, &set);
    r->out = out;
    if (e == 0) {
        e = text.err != 0 ? text.err : pyvalue_unite(m.pair, m.n, text.p);
    }
    if (e == 0) {
        write_members(&m, text.p, out);
        ret->type = PYVALUE_MAP;
    } else if (set && r->depth == 1) {
        r->p = from;
        str_putc(out, '[');
        e = read_items(r, '}', &n, &last, &comma);
        str_putc(out, ']');
        ret->type = PYVALUE_LIST;
        ret->set = true;
    }
    if (text.err != 0 || e == -ENOMEM) {
        out->err = -ENOMEM;
    }
    free(m.pair);
    str_finish(&text);
    return e;
}

struct sorted {
    const char *key;
    size_t n, i;
};

static int by_key(const void *va, const void *vb)
{
    const struct sorted *a = va, *b = vb;
    int c =
        a->n != b->n ? (a->n < b->n ? -1 : 1) : memcmp(a->key, b->key, a->n);

    return c != 0 ? c : (a->i > b->i) - (a->i < b->i);
}

int pyvalue_unite(struct pyvalue_pair *pair, size_t n, const char *text)
{
    struct sorted *s;

    if (n < 2) {
        return 0;
    }
    s = malloc(n * sizeof(*s));
    if (s == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        s[i] = (struct sorted){text + pair[i].key, pair[i].n_key, i};
    }
    qsort(s, n, sizeof(*s), by_key);
    for (size_t i = 0, first = 0; i < n; i++) {
        struct pyvalue_pair *x = &pair[s[i].i];

        if (i == 0 || s[i].n != s[first].n ||
            memcmp(s[i].key, s[first].key, s[i].n) != 0) {
            first = i;
            continue;
        }
        pair[s[first].i].value = x->value;
        pair[s[first].i].n_value = x->n_value;
        x->gone = true;
    }
    free(s);
    return 0;
}

/* ---- values ------------------------------------------------------------ */

static bool read_name(struct reader *r, struct value *ret)
{
    static const struct {
        const char *name[2], *json; /* JSON's, Python's */
        enum pyvalue_type type;
        double number;
    } names[] = {{{"null", "None"}, "null", PYVALUE_NULL, 0},
                 {{"true", "True"}, "true", PYVALUE_BOOL, 1},
                 {{"false", "False"}, "false", PYVALUE_BOOL, 0}};

    for (int i = 0; i < 3; i++) {
        if (take(r, names[i].name[r->literal])) {
            str_puts(r->out, names[i].json);
            ret->type = names[i].type;
            ret->number = names[i].number;
            return true;
        }
    }
    return false;
}

static int read_scalar(struct reader *r, struct value *ret)
{
    int e = read_string(r);

    if (e != -ENOENT) {
        ret->type = PYVALUE_STR;
        return e;
    }
    return read_name(r, ret) ? 0 : read_signed(r, ret);
}

static int read_value(struct reader *r, struct value *ret)
{
    int e;

    *ret = (struct value){.type = PYVALUE_NULL};
    if (r->p == r->end || r->depth == PYJSON_MAX_DEPTH) {
        return -EINVAL;
    }
    r->depth++;
    if (*r->p == '[') {
        e = read_list(r, ret);
    } else if (*r->p == '{') {
        e = read_braces(r, ret);
    } else if (*r->p == '(' && r->literal) {
        e = read_parens(r, ret);
    } else {
        e = read_scalar(r, ret);
    }
    r->depth--;
    return e;
}

/* The rest of a tuple without parentheses, whose first item stands in out from
 * `from` on. */
static int read_bare_tuple(struct reader *r, struct value *ret, size_t from)
{
    struct str first = {0};
    int e = 0;

    str_add(&first, r->out->p + from, r->out->n - from);
    r->out->n = from;
    str_putc(r->out, '[');
    str_add(r->out, first.p, first.n);
    r->out->err = first.err != 0 ? first.err : r->out->err;
    str_finish(&first);
    while (e == 0 && at(r, ',')) {
        r->p++;
        skip_blanks(r);
        if (r->p == r->end) {
            break;
        }
        str_puts(r->out, ", ");
        e = read_value(r, ret);
        e = ret->set ? -EINVAL : e;
        skip_blanks(r);
    }
    str_putc(r->out, ']');
    *ret = (struct value){.type = PYVALUE_LIST};
    return e;
}

static int read_whole(const char *text, size_t n, bool literal, struct str *out,
                      struct value *ret)
{
    struct reader r = {
        .p = text, .end = text + n, .literal = literal, .out = out};
    size_t from = out->n;
    int e;

    skip_blanks(&r);
    e = read_value(&r, ret);
    skip_blanks(&r);
    if (e == 0 && literal && at(&r, ',') && !ret->set) {
        e = read_bare_tuple(&r, ret, from);
    }
    if (e == 0 && r.p != r.end) {
        e = -EINVAL;
    }
    if (e < 0) {
        out->n = from;
        return -EINVAL;
    }
    return 0;
}

int pyvalue_json(const char *text, size_t n, struct str *out)
{
    struct value v;

    return read_whole(text, n, false, out, &v);
}

int pyvalue_literal(const char *text, size_t n, struct str *out,
                    enum pyvalue_type *ret_type, double *ret_number)
{
    struct value v;
    int e = read_whole(text, n, true, out, &v);

    if (e == 0) {
        *ret_type = v.type;
        *ret_number = v.number;
    }
    return e;
}
