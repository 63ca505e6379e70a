/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * JSON text to msgpack and back, order of keys and values of numbers kept: the
 * library takes tools and schemas as JSON text, the daemon hands messages to
 * the chat template as JSON text. Own code rather than jansson's because the
 * library shall need nothing but msgpack-c, because jansson has no unsigned 64
 * bit, and because both directions are one walk without a tree between.
 *
 * Pure, any thread, any locale. The invariant: text that came from msgpack goes
 * back to the same msgpack values (tests/client/test_wire_json.c).
 */

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/wire_priv.h"

/* ---- msgpack to text ---------------------------------------------------- */

struct writer {
    struct wire_buf *b;
    bool bin_as_list;
    unsigned long_floats; /* that may still come */
};

static void put_text(struct wire_buf *b, const char *s)
{
    wire_buf_put(b, s, strlen(s));
}

static void put_string(struct wire_buf *b, const char *s, size_t n)
{
    static const char short_form[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    static const char hex[] = "0123456789abcdef";
    size_t done = 0;

    put_text(b, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        char escape[6] = {'\\', (char)c, '0', '0'};
        size_t len = 2;
        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }
        if (c < 0x20 && short_form[c] != 0) {
            escape[1] = short_form[c];
        } else if (c < 0x20) {
            escape[1] = 'u';
            escape[4] = hex[c >> 4];
            escape[5] = hex[c & 15];
            len = 6;
        }
        wire_buf_put(b, s + done, i - done);
        wire_buf_put(b, escape, len);
        done = i + 1;
    }
    wire_buf_put(b, s + done, n - done);
    put_text(b, "\"");
}

/* The shortest decimal digits that read back as one double: d.ddd * 10^exponent
 * without trailing zeros. */
struct decimal {
    char digit[24];
    int n, exponent;
};

static void strip_zeros(struct decimal *d)
{
    while (d->n > 1 && d->digit[d->n - 1] == '0') {
        d->n--;
    }
}

/* Numbers as people write them: at most 15 digits, at most 22 of them behind
 * the point. r and the power of ten are exact, so their quotient is what the
 * decimal r * 10^-k reads as; and no two decimals of 15 digits read as the same
 * double, so the first that does is the shortest. False: not one of these. */
static bool short_decimal(double a, struct decimal *d)
{
    double power = 1;

    for (int k = 0; k <= 22; k++, power *= 10) {
        double r = a * power + 0.5;
        if (r >= 1e15) {
            return false;
        }
        r = (double)(uint64_t)r;
        if (r / power == a) {
            d->n =
                snprintf(d->digit, sizeof(d->digit), "%" PRIu64, (uint64_t)r);
            d->exponent = d->n - 1 - k;
            strip_zeros(d);
            return true;
        }
    }
    return false;
}

/* Any other: by trying. The text is made and read under one locale, and the
 * digits are picked out of it. */
static void long_decimal(double a, struct decimal *d)
{
    char text[40];
    /* 15 digits are the shortest of what is short at all; of subnormal numbers
     * fewer may be. */
    int precision = a < 2.3e-308 ? 0 : 14;

    for (; precision <= 16; precision++) {
        snprintf(text, sizeof(text), "%.*e", precision, a);
        if (precision == 16 || strtod(text, NULL) == a) {
            break;
        }
    }
    d->n = 0;
    const char *p = text;
    for (; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') {
            d->digit[d->n++] = *p;
        }
    }
    d->exponent = atoi(p + 1);
    strip_zeros(d);
}

/* As Python's repr, so that a prompt is the same whichever end rendered it:
 * 1.0, 0.1, 1e-05, 1e+16. */
static void put_decimal(struct wire_buf *b, const struct decimal *d)
{
    char out[48];
    size_t o = 0;

    if (d->exponent < -4 || d->exponent >= 16) {
        out[o++] = d->digit[0];
        if (d->n > 1) {
            out[o++] = '.';
            memcpy(out + o, d->digit + 1, (size_t)d->n - 1);
            o += (size_t)d->n - 1;
        }
        o += (size_t)snprintf(out + o, sizeof(out) - o, "e%c%02d",
                              d->exponent < 0 ? '-' : '+', abs(d->exponent));
    } else {
        int point = d->exponent + 1; /* digits before the point */
        int i = point <= 0 ? point - 1 : 0;
        for (; i < d->n || i <= point; i++) {
            if (i == point) {
                out[o++] = '.';
            }
            out[o++] = i >= 0 && i < d->n ? d->digit[i] : '0';
        }
    }
    wire_buf_put(b, out, o);
}

static int put_real(struct writer *w, double v)
{
    struct decimal d;

    if (!short_decimal(fabs(v), &d)) {
        if (w->long_floats == 0) {
            return -EOVERFLOW;
        }
        w->long_floats--;
        long_decimal(fabs(v), &d);
    }
    if (signbit(v)) {
        put_text(w->b, "-");
    }
    put_decimal(w->b, &d);
    return w->b->err;
}

static int put_value(struct writer *w, const msgpack_object *o);

static int put_list(struct writer *w, const msgpack_object_array *list)
{
    int r = 0;

    put_text(w->b, "[");
    for (uint32_t i = 0; i < list->size && r == 0; i++) {
        put_text(w->b, i > 0 ? ", " : "");
        r = put_value(w, &list->ptr[i]);
    }
    put_text(w->b, "]");
    return r;
}

static int put_map(struct writer *w, const msgpack_object_map *map)
{
    int r = 0;

    put_text(w->b, "{");
    for (uint32_t i = 0; i < map->size && r == 0; i++) {
        const msgpack_object_str *key = &map->ptr[i].key.via.str;
        put_text(w->b, i > 0 ? ", " : "");
        put_string(w->b, key->ptr, key->size);
        put_text(w->b, ": ");
        r = put_value(w, &map->ptr[i].val);
    }
    put_text(w->b, "}");
    return r;
}

static int put_bytes(struct writer *w, const msgpack_object_bin *bin)
{
    if (!w->bin_as_list) {
        return -EINVAL;
    }
    put_text(w->b, "[");
    for (uint32_t i = 0; i < bin->size; i++) {
        char number[8];
        snprintf(number, sizeof(number), "%s%u", i > 0 ? ", " : "",
                 (unsigned char)bin->ptr[i]);
        put_text(w->b, number);
    }
    put_text(w->b, "]");
    return w->b->err;
}

static int put_value(struct writer *w, const msgpack_object *o)
{
    char number[24];

    switch (o->type) {
    case MSGPACK_OBJECT_NIL:
        put_text(w->b, "null");
        break;
    case MSGPACK_OBJECT_BOOLEAN:
        put_text(w->b, o->via.boolean ? "true" : "false");
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        snprintf(number, sizeof(number), "%" PRIu64, o->via.u64);
        put_text(w->b, number);
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        snprintf(number, sizeof(number), "%" PRId64, o->via.i64);
        put_text(w->b, number);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        return put_real(w, o->via.f64);
    case MSGPACK_OBJECT_STR:
        put_string(w->b, o->via.str.ptr, o->via.str.size);
        break;
    case MSGPACK_OBJECT_ARRAY:
        return put_list(w, &o->via.array);
    case MSGPACK_OBJECT_MAP:
        return put_map(w, &o->via.map);
    case MSGPACK_OBJECT_BIN:
        return put_bytes(w, &o->via.bin);
    default:
        return -EINVAL;
    }
    return w->b->err;
}

int wire_json_text(struct wire_buf *b, const msgpack_object *o,
                   bool bin_as_list, unsigned max_long_floats)
{
    struct writer w = {
        .b = b, .bin_as_list = bin_as_list, .long_floats = max_long_floats};

    return put_value(&w, o);
}

/* ---- text to msgpack ---------------------------------------------------- */

struct reader {
    const char *begin, *p, *end;
    msgpack_packer out;
    struct wire_buf *b;
    locale_t c_locale;
    const char *wrong; /* the first thing that is wrong */
};

static int wrong(struct reader *r, const char *what)
{
    if (r->wrong == NULL) {
        r->wrong = what;
    }
    return -EINVAL;
}

static void skip_space(struct reader *r)
{
    while (r->p < r->end &&
           (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r')) {
        r->p++;
    }
}

static bool take_char(struct reader *r, char c)
{
    skip_space(r);
    if (r->p == r->end || *r->p != c) {
        return false;
    }
    r->p++;
    return true;
}

static bool take_digits(struct reader *r)
{
    const char *from = r->p;

    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
        r->p++;
    }
    return r->p > from;
}

static int pack_integer(struct reader *r, const char *s, const char *end)
{
    bool negative = *s == '-';
    uint64_t v = 0;

    for (s += negative; s < end; s++) {
        uint64_t digit = (uint64_t)(*s - '0');
        if (v > (UINT64_MAX - digit) / 10) {
            return wrong(r, "an integer beyond 64 bits");
        }
        v = v * 10 + digit;
    }
    if (!negative) {
        msgpack_pack_uint64(&r->out, v);
    } else if (v <= (uint64_t)INT64_MAX + 1) {
        msgpack_pack_int64(&r->out, (int64_t)(0 - v));
    } else {
        return wrong(r, "an integer beyond 64 bits");
    }
    return 0;
}

static int read_number(struct reader *r)
{
    const char *from = r->p;
    char buf[512];
    bool real = false;

    if (*r->p == '-') {
        r->p++;
    }
    const char *digits = r->p;
    if (!take_digits(r) || (*digits == '0' && r->p - digits > 1)) {
        return wrong(r, "a malformed number");
    }
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        real = true;
        if (!take_digits(r)) {
            return wrong(r, "a malformed number");
        }
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        real = true;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) {
            r->p++;
        }
        if (!take_digits(r)) {
            return wrong(r, "a malformed number");
        }
    }
    if (!real) {
        return pack_integer(r, from, r->p);
    }
    size_t n = (size_t)(r->p - from);
    if (n >= sizeof(buf)) {
        return wrong(r, "a number of more than 500 characters");
    }
    memcpy(buf, from, n);
    buf[n] = '\0';
    double v = strtod_l(buf, NULL, r->c_locale);
    if (!isfinite(v)) {
        return wrong(r, "a number that is too large");
    }
    msgpack_pack_double(&r->out, v);
    return 0;
}

/* Four hex digits at p, or -1. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t v = 0;

    if (end - p < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return -1;
        }
        v = v << 4 | digit;
    }
    return v;
}

/* The character of \uXXXX (r->p behind the u), pairs joined; bytes put, or 0
 * for half a pair. */
static size_t read_escape(struct reader *r, char out[4])
{
    int32_t c = hex4(r->p, r->end);

    if (c < 0) {
        return 0;
    }
    r->p += 4;
    if (c >= 0xd800 && c < 0xe000) {
        int32_t low = -1;
        if (c < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' &&
            r->p[1] == 'u') {
            low = hex4(r->p + 2, r->end);
        }
        if (low < 0xdc00 || low >= 0xe000) {
            return 0;
        }
        r->p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    static const int lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[n] | c);
    return n;
}

/* One escape, r->p behind the backslash. */
static size_t unescape(struct reader *r, char out[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";

    if (r->p == r->end) {
        return 0;
    }
    char c = *r->p++;
    if (c == 'u') {
        return read_escape(r, out);
    }
    const char *at = memchr(from, c, sizeof(from) - 1);
    if (at == NULL) {
        return 0;
    }
    out[0] = to[at - from];
    return 1;
}

/* r->p at the opening quote. The str header has its widest form and is patched,
 * as the length is known at the end. */
static int read_string(struct reader *r)
{
    size_t header_at = r->b->n;
    uint8_t header[5] = {0xdb};

    r->p++;
    wire_buf_put(r->b, header, sizeof(header));
    for (;;) {
        const char *run = r->p;
        while (r->p < r->end && *r->p != '"' && *r->p != '\\' &&
               (unsigned char)*r->p >= 0x20) {
            r->p++;
        }
        wire_buf_put(r->b, run, (size_t)(r->p - run));
        if (r->p == r->end || (unsigned char)*r->p < 0x20) {
            return wrong(r, "a string without an end");
        }
        if (*r->p++ == '"') {
            break;
        }
        char bytes[4];
        size_t n = unescape(r, bytes);
        if (n == 0) {
            return wrong(r, "a malformed escape in a string");
        }
        wire_buf_put(r->b, bytes, n);
    }
    wire_patch_count(r->b, header_at + 1,
                     (uint32_t)(r->b->n - header_at - sizeof(header)));
    return r->b->err;
}

static int read_value(struct reader *r, int depth);

static int read_container(struct reader *r, int depth, bool map)
{
    char close = map ? '}' : ']';
    uint8_t header[5] = {map ? 0xdf : 0xdd};
    size_t header_at = r->b->n;
    uint32_t count = 0;
    int ret = 0;

    if (depth == 0) {
        return wrong(r, "lists and objects too deep inside each other");
    }
    r->p++;
    wire_buf_put(r->b, header, sizeof(header));
    if (take_char(r, close)) {
        return r->b->err;
    }
    do {
        if (map) {
            skip_space(r);
            if (r->p == r->end || *r->p != '"') {
                return wrong(r, "an object's key is not a string");
            }
            ret = read_string(r);
            if (ret == 0 && !take_char(r, ':')) {
                ret = wrong(r, "a key without a colon");
            }
        }
        if (ret == 0) {
            ret = read_value(r, depth - 1);
        }
        count++;
    } while (ret == 0 && take_char(r, ','));
    if (ret == 0 && !take_char(r, close)) {
        ret = wrong(r, "a list or object without an end");
    }
    wire_patch_count(r->b, header_at + 1, count);
    return ret;
}

static int read_word(struct reader *r)
{
    static const char *const words[] = {"null", "false", "true"};

    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->p) >= n && memcmp(r->p, words[i], n) == 0) {
            uint8_t byte = i == 0 ? 0xc0 : (uint8_t)(0xc1 + i);
            wire_buf_put(r->b, &byte, 1);
            r->p += n;
            return r->b->err;
        }
    }
    return wrong(r, "something that is not JSON");
}

static int read_value(struct reader *r, int depth)
{
    skip_space(r);
    if (r->p == r->end) {
        return wrong(r, "an end where a value should be");
    }
    switch (*r->p) {
    case '{':
        return read_container(r, depth, true);
    case '[':
        return read_container(r, depth, false);
    case '"':
        return read_string(r);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return read_number(r);
    default:
        return read_word(r);
    }
}

int wire_value_json(struct wire_buf *b, const char *text, size_t n, char *why,
                    size_t n_why)
{
    struct reader r = {.begin = text, .p = text, .end = text + n, .b = b};
    size_t start = b->n;
    int ret;

    why[0] = '\0';
    if (!wire_utf8_ok(text, n)) {
        snprintf(why, n_why, "the text is not UTF-8");
        return -EINVAL;
    }
    r.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (r.c_locale == (locale_t)0) {
        return -ENOMEM;
    }
    wire_packer_init(&r.out, b);
    ret = read_value(&r, WIRE_MAX_DEPTH - 1);
    skip_space(&r);
    if (ret == 0 && r.p != r.end) {
        ret = wrong(&r, "something behind the value");
    }
    if (ret == -EINVAL) {
        snprintf(why, n_why, "%s, at byte %zu", r.wrong,
                 (size_t)(r.p - r.begin));
    }
    freelocale(r.c_locale);
    if (ret == 0) {
        ret = b->err;
    }
    if (ret != 0) {
        b->n = start;
    }
    return ret;
}
