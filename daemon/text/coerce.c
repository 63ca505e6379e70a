/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Types are matched as the published parser does: by name or by how the name
 * begins, so that "integer", "int32" and "uint" are one. Every branch ends in
 * the raw string: the caller of a tool sees what the model wrote rather than
 * nothing.
 */
#include "daemon/text/coerce.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/text/pyjson.h"
#include "daemon/text/pyvalue.h"

/* ---- schemas ----------------------------------------------------------- */

static bool is_string(const json_t *v, const char *s, size_t n)
{
    return json_is_string(v) && json_string_length(v) == n &&
           memcmp(json_string_value(v), s, n) == 0;
}

/* jansson's own look-up of a key with a length came late. */
static const json_t *member(const json_t *o, const char *name, size_t n)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)o, key, v)
    {
        if (strlen(key) == n && memcmp(key, name, n) == 0) {
            return v;
        }
    }
    return NULL;
}

const json_t *coerce_schema(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *function = json_object_get(tool, "function");
        const json_t *parameters, *properties;

        if (!is_string(json_object_get(tool, "type"), "function", 8) ||
            !is_string(json_object_get(function, "name"), name, n)) {
            continue;
        }
        parameters = json_object_get(function, "parameters");
        properties = json_object_get(parameters, "properties");
        return properties != NULL ? properties : parameters;
    }
    return NULL;
}

bool coerce_knows(const json_t *schema, const char *name, size_t n)
{
    return json_object_size(schema) == 0 || member(schema, name, n) != NULL;
}

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool is_one_of(const char *s, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strcmp(s, *list) == 0) {
            return true;
        }
    }
    return false;
}

static enum coerce_type named_type(const char *s)
{
    static const char *const strings[] = {"string", "str",  "text", "varchar",
                                          "char",   "enum", NULL};
    static const char *const booleans[] = {"boolean", "bool", "binary", NULL};
    static const char *const values[] = {"object", "array", "arr", NULL};

    if (is_one_of(s, strings)) {
        return COERCE_STRING;
    }
    if (begins(s, "int") || begins(s, "uint") || begins(s, "long") ||
        begins(s, "short") || begins(s, "unsigned")) {
        return COERCE_INTEGER;
    }
    if (begins(s, "num") || begins(s, "float")) {
        return COERCE_NUMBER;
    }
    if (is_one_of(s, booleans)) {
        return COERCE_BOOLEAN;
    }
    if (is_one_of(s, values) || begins(s, "dict") || begins(s, "list")) {
        return COERCE_JSON;
    }
    return COERCE_LITERAL;
}

enum coerce_type coerce_type_of(const json_t *schema, const char *name,
                                size_t n)
{
    const json_t *type = json_object_get(member(schema, name, n), "type");
    char lower[32] = "";
    const char *s;
    size_t len;

    if (type == NULL) {
        return COERCE_STRING;
    }
    if (!json_is_string(type)) {
        return COERCE_LITERAL;
    }
    s = json_string_value(type);
    len = json_string_length(type);
    pyvalue_strip(&s, &len);
    /* The names that count are short; of others the beginning decides. */
    len = len < sizeof(lower) ? len : sizeof(lower) - 1;
    for (size_t i = 0; i < len; i++) {
        lower[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] | 0x20) : s[i];
    }
    return named_type(lower);
}

/* ---- values ------------------------------------------------------------ */

static void put_float(double x, struct str *out)
{
    char buf[PYJSON_FLOAT];

    if (x == floor(x)) {
        pyvalue_put_whole(x, out);
    } else {
        pyjson_float(x, buf);
        str_puts(out, buf);
    }
}

/* The number that a Python literal is, True and False among them. */
static bool literal_number(const char *text, size_t n, struct str *ret,
                           enum pyvalue_type *type, double *number)
{
    return pyvalue_literal(text, n, ret, type, number) == 0 &&
           (*type == PYVALUE_INT || *type == PYVALUE_FLOAT ||
            *type == PYVALUE_BOOL);
}

static bool put_integer(const char *text, size_t n, struct str *out)
{
    struct str literal = {0};
    enum pyvalue_type type;
    double x;
    bool ok = true;
    int e;

    if (pyvalue_int(text, n, out) == 0) {
        return true;
    }
    e = pyvalue_float(text, n, &x);
    out->err = e == -ENOMEM ? e : out->err;
    if (e == 0 && isfinite(x) && x == floor(x)) {
        pyvalue_put_whole(x, out);
        return true;
    }
    if (!literal_number(text, n, &literal, &type, &x)) {
        ok = false;
    } else if (type == PYVALUE_INT) {
        str_add(out, literal.p, literal.n);
    } else {
        put_float(x, out);
    }
    out->err = literal.err != 0 ? literal.err : out->err;
    str_finish(&literal);
    return ok;
}

/* 1, 0, or -EDOM. */
static int put_number(const char *text, size_t n, struct str *out)
{
    struct str literal = {0};
    enum pyvalue_type type;
    double x;
    int e = pyvalue_float(text, n, &x);
    bool ok = e == 0 && !isnan(x);

    out->err = e == -ENOMEM ? e : out->err;
    if (!ok) {
        ok = literal_number(text, n, &literal, &type, &x);
        out->err = literal.err != 0 ? literal.err : out->err;
        str_finish(&literal);
    }
    if (ok && isinf(x)) {
        return -EDOM;
    }
    if (ok) {
        put_float(x, out);
    }
    return ok;
}

static bool put_boolean(const char *text, size_t n, struct str *out)
{
    pyvalue_strip(&text, &n);
    if ((n == 4 && strncasecmp(text, "true", 4) == 0) ||
        (n == 1 && *text == '1')) {
        str_puts(out, "true");
        return true;
    }
    if ((n == 5 && strncasecmp(text, "false", 5) == 0) ||
        (n == 1 && *text == '0')) {
        str_puts(out, "false");
        return true;
    }
    return false;
}

static bool put_json(const char *text, size_t n, struct str *out)
{
    size_t from = out->n;
    enum pyvalue_type type;
    double x;

    if (pyvalue_json(text, n, out) == 0) {
        return true;
    }
    if (pyvalue_literal(text, n, out, &type, &x) == 0 &&
        (type == PYVALUE_LIST || type == PYVALUE_MAP)) {
        return true;
    }
    out->n = from;
    return false;
}

int coerce_value(enum coerce_type type, const char *text, size_t n,
                 struct str *out)
{
    enum pyvalue_type literal;
    double x;
    int done = 0;

    if (n == 4 && strncasecmp(text, "null", 4) == 0) {
        str_puts(out, "null");
        return 0;
    }
    switch (type) {
    case COERCE_STRING:
        break;
    case COERCE_INTEGER:
        done = put_integer(text, n, out);
        break;
    case COERCE_NUMBER:
        done = put_number(text, n, out);
        break;
    case COERCE_BOOLEAN:
        done = put_boolean(text, n, out);
        break;
    case COERCE_JSON:
        done = put_json(text, n, out);
        break;
    case COERCE_LITERAL:
        done = pyvalue_literal(text, n, out, &literal, &x) == 0;
        break;
    }
    if (done == 0) {
        pyjson_string(text, n, out);
    }
    return done < 0 ? done : 0;
}
