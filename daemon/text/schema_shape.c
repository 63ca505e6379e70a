/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What plain schemas say together about one value: its types, values, lengths
 * and limits. Every keyword passes through here, so here is where one that is
 * not known is refused. Pure.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/pyjson.h"
#include "daemon/text/schema_priv.h"
#include "daemon/text/utf8.h"

void schema_shape_finish(struct shape *x)
{
    json_decref(x->values);
    x->values = NULL;
}

static unsigned type_bits(const char *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } type[] = {
        {"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN},
        {"integer", TYPE_INTEGER}, {"number", TYPE_INTEGER | TYPE_FRACTION},
        {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
        {"object", TYPE_OBJECT},
    };

    for (size_t i = 0; i < sizeof(type) / sizeof(type[0]); i++) {
        if (strcmp(name, type[i].name) == 0) {
            return type[i].bits;
        }
    }
    return 0;
}

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL:
        /* 1.0 is an integer for JSON Schema. */
        return json_real_value(v) == floor(json_real_value(v)) ? TYPE_INTEGER
                                                               : TYPE_FRACTION;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

/* 0: it is no type, or a list with something else in it. */
static unsigned types_of(const json_t *v)
{
    unsigned bits = 0;
    const json_t *x;
    size_t i;

    if (json_is_string(v)) {
        return type_bits(json_string_value(v));
    }
    json_array_foreach(v, i, x)
    {
        unsigned one = json_is_string(x) ? type_bits(json_string_value(x)) : 0;

        if (one == 0) {
            return 0;
        }
        bits |= one;
    }
    return bits;
}

static void keep_type(struct schema *s, struct shape *x, const json_t *v)
{
    unsigned bits = types_of(v);

    if (bits == 0) {
        (void)schema_refuse(s, "type must be one of null, boolean, integer, "
                               "number, string, array, object, or a list");
    }
    x->types &= bits;
}

static bool is_in(const json_t *list, const json_t *v)
{
    const json_t *x;
    size_t i;

    json_array_foreach(list, i, x)
    {
        if (json_equal(x, v)) {
            return true;
        }
    }
    return false;
}

/* Values that both name. */
static void keep_values(struct schema *s, struct shape *x, const json_t *list)
{
    json_t *both = json_array();
    json_t *v;
    size_t i;
    int bad = both == NULL;

    json_array_foreach(list, i, v)
    {
        if (x->values == NULL || is_in(x->values, v)) {
            bad |= json_array_append(both, v) < 0;
        }
    }
    json_decref(x->values);
    x->values = both;
    if (bad) {
        s->err = -ENOMEM;
    }
}

static void keep_count(struct schema *s, const char *key, const json_t *v,
                       uint32_t *ret, bool max)
{
    double d = json_is_number(v) ? json_number_value(v) : -1;
    uint32_t n;

    if (d < 0 || d != floor(d)) {
        (void)schema_refuse(s, "%s must be a whole number from 0", key);
        return;
    }
    if (d > 1e9 && !max) {
        (void)schema_refuse(s, "%s is too large", key);
        return;
    }
    n = d > 1e9 ? GRAM_NO_MAX : (uint32_t)d;
    *ret = max == (n < *ret) ? n : *ret;
}

static void keep_limit(struct schema *s, struct shape *x, const char *key,
                       const json_t *v)
{
    bool max = strstr(key, "aximum") != NULL, open = key[0] == 'e';
    double d;
    int64_t n;

    if (!json_is_number(v)) {
        (void)schema_refuse(s, "%s must be a number", key);
        return;
    }
    d = json_number_value(v);
    if (!(d >= -9e18 && d <= 9e18)) {
        (void)schema_refuse(s, "%s must be within +-9e18", key);
        return;
    }
    if (json_is_integer(v)) {
        n = json_integer_value(v) + (open ? (max ? -1 : 1) : 0);
        x->fraction_limits |= open;
    } else {
        n = (int64_t)(max ? floor(d) : ceil(d));
        if (open && (double)n == d) {
            n += max ? -1 : 1;
        }
        x->fraction_limits |= open || d != floor(d);
    }
    if (max) {
        x->hi = x->has_hi && x->hi < n ? x->hi : n;
        x->has_hi = true;
    } else {
        x->lo = x->has_lo && x->lo > n ? x->lo : n;
        x->has_lo = true;
    }
}

static void keep_pattern(struct schema *s, struct shape *x, const json_t *v)
{
    if (!json_is_string(v)) {
        (void)schema_refuse(s, "pattern must be a string");
    } else if (x->pattern != NULL && !json_equal(x->pattern, v)) {
        (void)schema_refuse(s, "two patterns for one value are not supported");
    } else {
        x->pattern = v;
    }
}

static void keep_format(struct schema *s, struct shape *x, const json_t *v)
{
    static const char *const known[] = {"date", "time", "date-time", "uuid"};
    const char *name = json_string_value(v);

    for (size_t i = 0; name != NULL && i < sizeof(known) / sizeof(known[0]);
         i++) {
        if (strcmp(name, known[i]) == 0) {
            if (x->format != NULL && strcmp(x->format, name) != 0) {
                (void)schema_refuse(s, "two formats for one value");
            }
            x->format = known[i];
            return;
        }
    }
    (void)schema_refuse(s,
                        "format \"%.40s\" is not supported (date, time, "
                        "date-time, uuid are): use pattern",
                        name != NULL ? name : "?");
}

/* ---- keywords ------------------------------------------------------------ */

enum keyword {
    KEY_IGNORED, /* annotations, and what other files read */
    KEY_TYPE,
    KEY_ENUM,
    KEY_CONST,
    KEY_COUNT,
    KEY_LIMIT,
    KEY_PATTERN,
    KEY_FORMAT,
    KEY_OBJECT, /* read by schema_inside.c */
    KEY_ARRAY
};

static const struct {
    const char *name;
    enum keyword what;
    unsigned type; /* that it is about; 0: any */
} keywords[] = {
    {"$comment", KEY_IGNORED, 0},
    {"$defs", KEY_IGNORED, 0},
    {"$id", KEY_IGNORED, 0},
    {"$ref", KEY_IGNORED, 0},
    {"$schema", KEY_IGNORED, 0},
    {"additionalProperties", KEY_OBJECT, TYPE_OBJECT},
    {"allOf", KEY_IGNORED, 0},
    {"anyOf", KEY_IGNORED, 0},
    {"const", KEY_CONST, 0},
    {"default", KEY_IGNORED, 0},
    {"definitions", KEY_IGNORED, 0},
    {"deprecated", KEY_IGNORED, 0},
    {"description", KEY_IGNORED, 0},
    {"enum", KEY_ENUM, 0},
    {"example", KEY_IGNORED, 0},
    {"examples", KEY_IGNORED, 0},
    {"exclusiveMaximum", KEY_LIMIT, TYPE_INTEGER | TYPE_FRACTION},
    {"exclusiveMinimum", KEY_LIMIT, TYPE_INTEGER | TYPE_FRACTION},
    {"format", KEY_FORMAT, TYPE_STRING},
    {"items", KEY_ARRAY, TYPE_ARRAY},
    {"maxItems", KEY_COUNT, TYPE_ARRAY},
    {"maxLength", KEY_COUNT, TYPE_STRING},
    {"maximum", KEY_LIMIT, TYPE_INTEGER | TYPE_FRACTION},
    {"minItems", KEY_COUNT, TYPE_ARRAY},
    {"minLength", KEY_COUNT, TYPE_STRING},
    {"minimum", KEY_LIMIT, TYPE_INTEGER | TYPE_FRACTION},
    {"oneOf", KEY_IGNORED, 0},
    {"pattern", KEY_PATTERN, TYPE_STRING},
    {"prefixItems", KEY_ARRAY, TYPE_ARRAY},
    {"properties", KEY_OBJECT, TYPE_OBJECT},
    {"readOnly", KEY_IGNORED, 0},
    {"required", KEY_OBJECT, TYPE_OBJECT},
    {"strict", KEY_IGNORED, 0},
    {"title", KEY_IGNORED, 0},
    {"type", KEY_TYPE, 0},
    {"writeOnly", KEY_IGNORED, 0},
};

static int find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++) {
        if (strcmp(name, keywords[i].name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static void keep(struct schema *s, struct shape *x, int k, const json_t *v)
{
    const char *name = keywords[k].name;
    json_t *one;

    switch (keywords[k].what) {
    case KEY_TYPE:
        keep_type(s, x, v);
        break;
    case KEY_ENUM:
        if (!json_is_array(v)) {
            (void)schema_refuse(s, "enum must be a list");
            break;
        }
        keep_values(s, x, v);
        break;
    case KEY_CONST:
        one = json_array();
        if (one == NULL || json_array_append(one, (json_t *)v) < 0) {
            s->err = -ENOMEM;
        } else {
            keep_values(s, x, one);
        }
        json_decref(one);
        break;
    case KEY_COUNT:
        keep_count(s, name, v,
                   strcmp(name, "minLength") == 0   ? &x->min_length
                   : strcmp(name, "maxLength") == 0 ? &x->max_length
                   : strcmp(name, "minItems") == 0  ? &x->min_items
                                                    : &x->max_items,
                   name[1] == 'a');
        break;
    case KEY_LIMIT:
        keep_limit(s, x, name, v);
        break;
    case KEY_PATTERN:
        keep_pattern(s, x, v);
        break;
    case KEY_FORMAT:
        keep_format(s, x, v);
        break;
    case KEY_IGNORED:
    case KEY_OBJECT:
    case KEY_ARRAY:
        break;
    }
}

/* ---- values against the rest --------------------------------------------- */

static uint32_t characters(const json_t *v)
{
    const uint8_t *p = (const uint8_t *)json_string_value(v);
    uint32_t n = 0;

    for (size_t i = 0; i < json_string_length(v); i++) {
        n += (p[i] & 0xc0) != 0x80;
    }
    return n;
}

static bool value_fits(struct schema *s, const struct shape *x, const json_t *v)
{
    unsigned type = type_of(v);

    if ((type & x->types) == 0) {
        return false;
    }
    if (type == TYPE_STRING) {
        if (x->pattern != NULL || x->format != NULL) {
            (void)schema_refuse(s, "enum and const together with pattern or "
                                   "format are not supported");
        }
        return characters(v) >= x->min_length && characters(v) <= x->max_length;
    }
    if (type == TYPE_ARRAY) {
        return json_array_size(v) >= x->min_items &&
               json_array_size(v) <= x->max_items;
    }
    if (json_is_integer(v)) {
        return !(x->has_lo && json_integer_value(v) < x->lo) &&
               !(x->has_hi && json_integer_value(v) > x->hi);
    }
    if (json_is_real(v) && (x->has_lo || x->has_hi)) {
        (void)schema_refuse(s, "enum and const of fractions together with "
                               "limits are not supported");
    }
    return true;
}

static void drop_values(struct schema *s, struct shape *x, bool inside)
{
    size_t i = 0;

    while (x->values != NULL && i < json_array_size(x->values)) {
        const json_t *v = json_array_get(x->values, i);

        if (inside && (json_is_object(v) || json_is_array(v)) &&
            (type_of(v) & x->types) != 0) {
            (void)schema_refuse(s, "enum and const of objects and lists "
                                   "together with their keywords are not "
                                   "supported");
        }
        if (value_fits(s, x, v)) {
            i++;
        } else {
            (void)json_array_remove(x->values, i);
        }
    }
}

int schema_shape(struct schema *s, const struct all *a, struct shape *ret)
{
    unsigned implied = 0;
    bool inside = false, has_type = false;
    const char *name;
    json_t *v;

    *ret = (struct shape){
        .types = TYPE_ALL, .max_length = GRAM_NO_MAX, .max_items = GRAM_NO_MAX};
    for (int i = 0; i < a->n; i++) {
        json_object_foreach((json_t *)a->part[i].schema, name, v)
        {
            int k = find_keyword(name);

            if (k < 0 && strncmp(name, "x-", 2) == 0) {
                continue;
            }
            if (k < 0) {
                return schema_refuse(s, "keyword \"%.60s\" is not supported",
                                     name);
            }
            implied |= keywords[k].type;
            has_type |= keywords[k].what == KEY_TYPE;
            inside |=
                keywords[k].what == KEY_OBJECT || keywords[k].what == KEY_ARRAY;
            keep(s, ret, k, v);
        }
    }
    if (!has_type && implied != 0 && ret->values == NULL) {
        ret->types &= implied;
    }
    drop_values(s, ret, inside);
    return s->err;
}

/* ---- oneOf --------------------------------------------------------------- */

/* What a choice surely is: refs followed, nothing joined. */
static const json_t *plain(struct schema *s, const json_t *v)
{
    for (int i = 0; i < 16 && json_is_object(v); i++) {
        const json_t *ref = json_object_get(v, "$ref");

        if (!json_is_string(ref)) {
            return v;
        }
        v = schema_find(s, json_string_value(ref));
    }
    return v;
}

/* Its values as a list that the caller frees; NULL: any. */
static json_t *values_of(const json_t *v)
{
    json_t *list = json_object_get(v, "enum"), *one;

    if (json_is_array(list)) {
        return json_incref(list);
    }
    one = json_object_get(v, "const");
    if (one == NULL) {
        return NULL;
    }
    list = json_array();
    (void)json_array_append(list, one);
    return list;
}

static bool apart(json_t *a, json_t *b)
{
    const json_t *v;
    bool r = a != NULL && b != NULL;
    size_t i;

    if (r) {
        json_array_foreach(a, i, v)
        {
            r = r && !is_in(b, v);
        }
    }
    json_decref(a);
    json_decref(b);
    return r;
}

static unsigned surely(const json_t *v)
{
    const json_t *type = json_object_get(v, "type"), *x;
    unsigned bits = type != NULL ? types_of(type) : TYPE_ALL, of_values = 0;
    json_t *list = values_of(v);
    size_t i;

    if (list != NULL) {
        json_array_foreach(list, i, x)
        {
            of_values |= type_of(x);
        }
        bits &= of_values;
        json_decref(list);
    }
    return bits;
}

/* A property that both need and that tells them apart. */
static bool told_apart(struct schema *s, const json_t *a, const json_t *b)
{
    const json_t *in_a = json_object_get(a, "properties");
    const json_t *in_b = json_object_get(b, "properties");
    const json_t *name;
    size_t i;

    json_array_foreach(json_object_get(a, "required"), i, name)
    {
        const char *key = json_string_value(name);
        const json_t *x, *y;

        if (key == NULL || !is_in(json_object_get(b, "required"), name)) {
            continue;
        }
        x = json_object_get(in_a, key);
        y = json_object_get(in_b, key);
        if (x != NULL && y != NULL &&
            apart(values_of(plain(s, x)), values_of(plain(s, y)))) {
            return true;
        }
    }
    return false;
}

int schema_one_of(struct schema *s, const json_t *choices)
{
    size_t n = json_array_size(choices);

    if (n > SCHEMA_MAX_CHOICES) {
        return schema_refuse(s, "more than %d choices", SCHEMA_MAX_CHOICES);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n && s->err == 0; k++) {
            const json_t *a = plain(s, json_array_get(choices, i));
            const json_t *b = plain(s, json_array_get(choices, k));
            unsigned both = surely(a) & surely(b);

            if (both == 0 || apart(values_of(a), values_of(b)) ||
                (both == TYPE_OBJECT && told_apart(s, a, b))) {
                continue;
            }
            return schema_refuse(s,
                                 "choices %zu and %zu of oneOf might both "
                                 "fit: tell them apart by type or by a "
                                 "required const, or use anyOf",
                                 i, k);
        }
    }
    return s->err;
}
