/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Python's json.dumps, str and repr for what JSON can say. Differences from
 * jansson's own writer: separators, floats, and that every character of a
 * string that needs no escape stays as it is. Recursion is bounded by
 * PYJSON_MAX_DEPTH. Pure, but for jansson's allocator, which is set at the
 * start of the program to one that counts refusals.
 */
#include "daemon/text/pyjson.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/base/jmem.h"

__attribute__((constructor)) static void watch_jansson(void)
{
    json_set_alloc_funcs(jmem_alloc, free);
}

unsigned pyjson_refused(void)
{
    return jmem_refused();
}

int pyjson_parse(const char *what, const char *text, size_t n, size_t flags,
                 json_t **ret, const struct why *why)
{
    json_error_t error;
    const char *reason = "not valid JSON";
    unsigned refused = jmem_refused();
    json_t *v = json_loadb(text, n, flags | JSON_ALLOW_NUL, &error);

    if (jmem_refused() != refused) {
        json_decref(v);
        return why_set(why, -ENOMEM, "out of memory");
    }
    if (v != NULL) {
        *ret = v;
        return 0;
    }
    switch (json_error_code(&error)) {
    case json_error_unknown: /* nothing is said against the text */
    case json_error_out_of_memory:
        return why_set(why, -ENOMEM, "out of memory");
    case json_error_duplicate_key:
        reason = "a key stands twice in one object";
        break;
    case json_error_numeric_overflow:
        reason = "a number is too large";
        break;
    case json_error_null_byte_in_key:
        reason = "a key holds a NUL";
        break;
    case json_error_stack_overflow:
        reason = "nested too deeply";
        break;
    default:
        break;
    }
    return why_set(why, -EINVAL, "%s: %s (line %d, column %d)", what, reason,
                   error.line, error.column);
}

/* Adds one to the last digit of d.ddde+xx; false where all are nines. */
static bool increment(char *e)
{
    for (char *p = strchr(e, 'e'); p-- > e;) {
        if (*p >= '0' && *p < '9') {
            (*p)++;
            return true;
        }
        if (*p == '9') {
            *p = '0';
        }
    }
    return false;
}

/* Writes x with the fewest digits that read back as x; how many they are. Below
 * a power of two numbers lie closer than above it: the nearest number of so
 * many digits can be one below that does not read back, while its neighbour
 * above does. */
static int shortest(double x, char *buf, size_t cap)
{
    for (int digits = 1; digits < 17; digits++) {
        snprintf(buf, cap, "%.*e", digits - 1, x);
        if (strtod(buf, NULL) == x ||
            (increment(buf) && strtod(buf, NULL) == x)) {
            return digits;
        }
    }
    snprintf(buf, cap, "%.16e", x);
    return 17;
}

/* repr(): as many digits as needed, an exponent when the number is under 1e-4
 * or at least 1e16, and always a point or an exponent. */
void pyjson_float(double x, char *buf)
{
    char e[PYJSON_FLOAT]; /* -d.ddde-xxx */
    int digits = shortest(x, e, sizeof(e));
    const char *mantissa = e[0] == '-' ? e + 1 : e;
    int exponent = atoi(strchr(e, 'e') + 1);
    char *p = buf;

    if (e[0] == '-') {
        *p++ = '-';
    }
    if (exponent < -4 || exponent >= 16) {
        *p++ = mantissa[0];
        if (digits > 1) {
            memcpy(p, mantissa + 1, (size_t)digits);
            p += digits;
        }
        sprintf(p, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        p += sprintf(p, "0.");
        for (int i = -1; i > exponent; i--) {
            *p++ = '0';
        }
    }
    for (int i = 0; i < digits || i <= exponent; i++) {
        *p++ = i == 0 ? mantissa[0] : i < digits ? mantissa[i + 1] : '0';
        if (i == exponent) {
            *p++ = '.';
        }
    }
    if (digits <= exponent + 1) {
        *p++ = '0';
    }
    *p = '\0';
}

void pyjson_string(const char *text, size_t n, struct str *out)
{
    size_t from = 0;
    char escape[8];

    str_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
        unsigned char c = (unsigned char)text[i];
        const char *at;

        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }
        at = c != 0 ? strchr(plain, c) : NULL;
        if (at != NULL) {
            snprintf(escape, sizeof(escape), "\\%c", letter[at - plain]);
        } else {
            snprintf(escape, sizeof(escape), "\\u%04x", c);
        }
        str_add(out, text + from, i - from);
        str_puts(out, escape);
        from = i + 1;
    }
    str_add(out, text + from, n - from);
    str_putc(out, '"');
}

static void dump_number(const json_t *v, struct str *out)
{
    char buf[PYJSON_FLOAT];

    if (json_is_integer(v)) {
        snprintf(buf, sizeof(buf), "%" JSON_INTEGER_FORMAT,
                 json_integer_value(v));
    } else {
        pyjson_float(json_real_value(v), buf);
    }
    str_puts(out, buf);
}

static int dump(const json_t *v, int depth, struct str *out)
{
    const char *between = "";
    const char *key;
    json_t *item;
    size_t i;
    int r = 0;

    if (depth > PYJSON_MAX_DEPTH) {
        return -EINVAL;
    }
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        str_putc(out, '{');
        json_object_foreach((json_t *)v, key, item)
        {
            str_puts(out, between);
            pyjson_string(key, strlen(key), out);
            str_puts(out, ": ");
            r = dump(item, depth + 1, out);
            if (r < 0) {
                return r;
            }
            between = ", ";
        }
        str_putc(out, '}');
        break;
    case JSON_ARRAY:
        str_putc(out, '[');
        json_array_foreach(v, i, item)
        {
            str_puts(out, between);
            r = dump(item, depth + 1, out);
            if (r < 0) {
                return r;
            }
            between = ", ";
        }
        str_putc(out, ']');
        break;
    case JSON_STRING:
        pyjson_string(json_string_value(v), json_string_length(v), out);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        dump_number(v, out);
        break;
    default:
        str_puts(out, json_is_true(v)    ? "true"
                      : json_is_false(v) ? "false"
                                         : "null");
        break;
    }
    return 0;
}

int pyjson_dump(const json_t *v, struct str *out)
{
    return dump(v, 1, out);
}

int pyjson_str(const json_t *v, struct str *out)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        return pyjson_dump(v, out);
    case JSON_STRING:
        str_add(out, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        dump_number(v, out);
        break;
    default:
        str_puts(out, json_is_true(v)    ? "True"
                      : json_is_false(v) ? "False"
                                         : "None");
        break;
    }
    return 0;
}
