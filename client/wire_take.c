/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One value of a request into its field, as its row in wire_table.c says: type,
 * range, length, and the copy that the request owns. What a whole request must
 * be is wire_decode.c's.
 *
 * Daemon side, I/O thread. The invariant: a field that was filled here is
 * within the range that its row states, and text has a NUL behind it.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/wire_priv.h"

/* JSON text is longer than its msgpack: control characters take six bytes. A
 * conversation twice the size of the largest frame is not one. */
#define JSON_MAX ((size_t)2 * WIRE_MAX_FRAME)

int wire_refuse(struct wire_decode *d, const char *fmt, ...)
{
    char text[sizeof(d->err->message)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return wire_fail(d->err, WIRE_E_BAD_REQUEST, d->row->name,
                     strlen(d->row->name), "%s %s", d->row->name, text);
}

static int no_memory(struct wire_decode *d)
{
    return wire_fail(d->err, WIRE_E_NO_MEMORY, d->row->name,
                     strlen(d->row->name), "no memory for %s", d->row->name);
}

static void *field(struct wire_decode *d)
{
    return (char *)d->r + d->row->offset;
}

static void *count_field(struct wire_decode *d)
{
    return (char *)d->r + d->row->count;
}

static bool stored(const struct wire_key_row *row)
{
    return (row->flags & WIRE_KEY_UNSTORED) == 0;
}

static int copy_str(struct wire_decode *d, struct wire_str *to, const char *p,
                    size_t n)
{
    char *copy = malloc(n + 1);

    if (copy == NULL) {
        return no_memory(d);
    }
    if (n > 0) {
        memcpy(copy, p, n);
    }
    copy[n] = '\0';
    *to = (struct wire_str){.p = copy, .n = n};
    return 0;
}

/* ---- numbers ------------------------------------------------------------ */

int wire_wrong_type(struct wire_decode *d)
{
    return wire_refuse(d, "must be of type %s", wire_type_name[d->row->type]);
}

int wire_take_integer(struct wire_decode *d, const msgpack_object *o,
                      int64_t *i, uint64_t *u)
{
    bool negative = o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER;

    if (!negative && o->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
        return wire_wrong_type(d);
    }
    bool fits = negative ? o->via.i64 >= d->row->imin
                         : o->via.u64 <= d->row->imax &&
                               (d->row->imin <= 0 ||
                                o->via.u64 >= (uint64_t)d->row->imin);
    if (!fits) {
        return wire_refuse(d, "must be from %lld to %llu",
                           (long long)d->row->imin,
                           (unsigned long long)d->row->imax);
    }
    *u = o->via.u64;
    *i = o->via.i64;
    return 0;
}

static int take_int(struct wire_decode *d, const msgpack_object *o)
{
    int64_t i = 0;
    uint64_t u = 0;
    int code = wire_take_integer(d, o, &i, &u);

    if (code == 0 && stored(d->row)) {
        if (d->row->type == WIRE_T_UINT) {
            *(uint64_t *)field(d) = u;
        } else {
            *(int64_t *)field(d) = i;
        }
    }
    return code;
}

static bool number(const msgpack_object *o, double *ret)
{
    switch (o->type) {
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        *ret = (double)o->via.u64;
        return true;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        *ret = (double)o->via.i64;
        return true;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        *ret = o->via.f64;
        return true;
    default:
        return false;
    }
}

static int take_real(struct wire_decode *d, const msgpack_object *o)
{
    double v;

    if (!number(o, &v)) {
        return wire_wrong_type(d);
    }
    bool above = (d->row->flags & WIRE_KEY_ABOVE) != 0;
    if (v < d->row->rmin || v > d->row->rmax || (above && v == d->row->rmin)) {
        return wire_refuse(d, "must be %s %g to %g", above ? "above" : "from",
                           d->row->rmin, d->row->rmax);
    }
    *(double *)field(d) = v;
    return 0;
}

static int take_bool(struct wire_decode *d, const msgpack_object *o)
{
    if (o->type != MSGPACK_OBJECT_BOOLEAN) {
        return wire_wrong_type(d);
    }
    if (stored(d->row)) {
        *(bool *)field(d) = o->via.boolean;
    }
    return 0;
}

/* ---- strings ------------------------------------------------------------ */

static bool is_one_of(const char *values, const char *s, size_t n)
{
    while (*values != '\0') {
        size_t len = strcspn(values, " ");
        if (len == n && memcmp(values, s, n) == 0) {
            return true;
        }
        values += len + (values[len] == ' ');
    }
    return false;
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool letter = (s[i] >= 'a' && s[i] <= 'z') ||
                      (s[i] >= 'A' && s[i] <= 'Z') ||
                      (s[i] >= '0' && s[i] <= '9');
        if (!letter && s[i] != '_' && s[i] != '-' && (s[i] != '.' || i == 0)) {
            return false;
        }
    }
    return n > 0;
}

static int check_length(struct wire_decode *d, size_t n)
{
    if (n < d->row->min_bytes ||
        (d->row->max_bytes > 0 && n > d->row->max_bytes)) {
        return wire_refuse(d, "must have from %zu to %zu bytes",
                           d->row->min_bytes, d->row->max_bytes);
    }
    return 0;
}

static int take_str(struct wire_decode *d, const msgpack_object *o)
{
    const struct wire_key_row *row = d->row;

    if (o->type != MSGPACK_OBJECT_STR) {
        return wire_wrong_type(d);
    }
    const char *s = o->via.str.ptr;
    size_t n = o->via.str.size;
    int code = check_length(d, n);
    if (code != 0) {
        return code;
    }
    if (row->values != NULL && !is_one_of(row->values, s, n)) {
        return wire_refuse(d, "must be one of: %s", row->values);
    }
    if (row->type == WIRE_T_NAME && !is_name(s, n)) {
        return wire_refuse(d, "must be made of A-Z a-z 0-9 . _ - and not begin "
                              "with a dot");
    }
    return stored(row) ? copy_str(d, field(d), s, n) : 0;
}

static int take_bytes(struct wire_decode *d, const msgpack_object *o)
{
    if (o->type == MSGPACK_OBJECT_BIN) {
        *(bool *)count_field(d) = true;
        return copy_str(d, field(d), o->via.bin.ptr, o->via.bin.size);
    }
    if (o->type == MSGPACK_OBJECT_STR) {
        return copy_str(d, field(d), o->via.str.ptr, o->via.str.size);
    }
    return wire_wrong_type(d);
}

/* ---- lists and maps ----------------------------------------------------- */

static int take_str_list(struct wire_decode *d, const msgpack_object *o)
{
    const struct wire_key_row *row = d->row;
    int code = 0;

    if (o->type != MSGPACK_OBJECT_ARRAY) {
        return wire_wrong_type(d);
    }
    if (row->max_items > 0 && o->via.array.size > row->max_items) {
        return wire_refuse(d, "must have at most %zu items", row->max_items);
    }
    for (uint32_t i = 0; i < o->via.array.size && code == 0; i++) {
        const msgpack_object *item = &o->via.array.ptr[i];
        if (item->type != MSGPACK_OBJECT_STR) {
            return wire_wrong_type(d);
        }
        code = check_length(d, item->via.str.size);
        if (code == 0 && stored(row)) {
            code = copy_str(d, (struct wire_str *)field(d) + i,
                            item->via.str.ptr, item->via.str.size);
        }
        if (code == 0 && stored(row)) {
            *(size_t *)count_field(d) = i + 1;
        }
    }
    return code;
}

static int take_int_list(struct wire_decode *d, const msgpack_object *o)
{
    if (o->type != MSGPACK_OBJECT_ARRAY) {
        return wire_wrong_type(d);
    }
    uint32_t n = o->via.array.size;
    if (d->row->max_items > 0 && n > d->row->max_items) {
        return wire_refuse(d, "must have at most %zu items", d->row->max_items);
    }
    int32_t *list = malloc((n > 0 ? n : 1) * sizeof(*list));
    if (list == NULL) {
        return no_memory(d);
    }
    int code = 0;
    for (uint32_t i = 0; i < n && code == 0; i++) {
        int64_t v = 0;
        uint64_t u;
        code = wire_take_integer(d, &o->via.array.ptr[i], &v, &u);
        list[i] = (int32_t)v;
    }
    if (code == 0 && stored(d->row)) {
        *(int32_t **)field(d) = list;
        *(size_t *)count_field(d) = n;
        return 0;
    }
    free(list);
    return code;
}

/* A token id as decimal text, written in one way only: so that different keys
 * are different ids. */
static bool is_id(const msgpack_object_str *s, int32_t *ret)
{
    int64_t v = 0;

    if (s->size == 0 || s->size > 10 || (s->size > 1 && s->ptr[0] == '0')) {
        return false;
    }
    for (uint32_t i = 0; i < s->size; i++) {
        if (s->ptr[i] < '0' || s->ptr[i] > '9') {
            return false;
        }
        v = 10 * v + (s->ptr[i] - '0');
    }
    *ret = (int32_t)v;
    return v <= INT32_MAX;
}

static int take_one_bias(struct wire_decode *d, const msgpack_object_kv *kv,
                         struct wire_bias *ret)
{
    double v;

    if (!is_id(&kv->key.via.str, &ret->id)) {
        int shown = kv->key.via.str.size < 40 ? (int)kv->key.via.str.size : 40;

        return wire_refuse(d, "has the key \"%.*s\", which is no token id",
                           shown, kv->key.via.str.ptr);
    }
    if (!number(&kv->val, &v)) {
        return wire_wrong_type(d);
    }
    if (v < d->row->rmin || v > d->row->rmax) {
        return wire_refuse(d, "of token %d must be from %g to %g", (int)ret->id,
                           d->row->rmin, d->row->rmax);
    }
    ret->bias = (float)v;
    return 0;
}

static int take_bias(struct wire_decode *d, const msgpack_object *o)
{
    struct wire_bias *list;
    uint32_t n;
    int code = 0;

    if (o->type != MSGPACK_OBJECT_MAP) {
        return wire_wrong_type(d);
    }
    n = o->via.map.size;
    if (n > d->row->max_items) {
        return wire_refuse(d, "must have at most %zu items", d->row->max_items);
    }
    list = malloc((n > 0 ? n : 1) * sizeof(*list));
    if (list == NULL) {
        return no_memory(d);
    }
    for (uint32_t i = 0; i < n && code == 0; i++) {
        code = take_one_bias(d, &o->via.map.ptr[i], &list[i]);
    }
    if (code != 0) {
        free(list);
        return code;
    }
    *(struct wire_bias **)field(d) = list;
    *(size_t *)count_field(d) = n;
    return 0;
}

static bool json_type_ok(enum wire_type type, const msgpack_object *o)
{
    if (type == WIRE_T_MAP) {
        return o->type == MSGPACK_OBJECT_MAP;
    }
    if (type == WIRE_T_CHOICE) {
        return o->type == MSGPACK_OBJECT_MAP || o->type == MSGPACK_OBJECT_STR;
    }
    if (o->type != MSGPACK_OBJECT_ARRAY) {
        return false;
    }
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        if (o->via.array.ptr[i].type != MSGPACK_OBJECT_MAP) {
            return false;
        }
    }
    return true;
}

static int take_json(struct wire_decode *d, const msgpack_object *o)
{
    struct wire_buf b;
    int code = 0;

    if (!json_type_ok(d->row->type, o)) {
        return wire_wrong_type(d);
    }
    wire_buf_init(&b, JSON_MAX);
    int r = wire_json_text(&b, o, false, WIRE_MAX_LONG_FLOATS);
    wire_buf_put(&b, "", 1);
    if (r == -EINVAL) {
        code = wire_refuse(d, "must not hold bin values");
    } else if (r == -EOVERFLOW) {
        code =
            wire_fail(d->err, WIRE_E_TOO_LONG, d->row->name,
                      strlen(d->row->name), "%s has more than %u long floats",
                      d->row->name, WIRE_MAX_LONG_FLOATS);
    } else if (b.err == -E2BIG) {
        code = wire_fail(
            d->err, WIRE_E_TOO_LONG, d->row->name, strlen(d->row->name),
            "%s takes more than %zu bytes as JSON", d->row->name, JSON_MAX);
    } else if (b.err != 0) {
        code = no_memory(d);
    } else if (stored(d->row)) {
        *(struct wire_str *)field(d) =
            (struct wire_str){.p = (const char *)b.p, .n = b.n - 1};
        return 0;
    }
    wire_buf_finish(&b);
    return code;
}

int wire_take_value(struct wire_decode *d, const msgpack_object *o)
{
    switch (d->row->type) {
    case WIRE_T_INT:
    case WIRE_T_UINT:
        return take_int(d, o);
    case WIRE_T_REAL:
        return take_real(d, o);
    case WIRE_T_BOOL:
        return take_bool(d, o);
    case WIRE_T_STR:
    case WIRE_T_NAME:
        return take_str(d, o);
    case WIRE_T_BYTES:
        return take_bytes(d, o);
    case WIRE_T_STR_LIST:
        return take_str_list(d, o);
    case WIRE_T_INT_LIST:
        return take_int_list(d, o);
    case WIRE_T_BIAS:
        return take_bias(d, o);
    case WIRE_T_MAPS:
    case WIRE_T_CHOICE:
    case WIRE_T_MAP:
    case WIRE_N_TYPES:
        break;
    }
    return take_json(d, o);
}

/* ---- all fields --------------------------------------------------------- */

void wire_set_defaults(struct wire_request *r)
{
    for (size_t i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *row = &wire_keys[i];
        struct wire_decode d = {.r = r, .row = row};
        if (!stored(row)) {
            continue;
        }
        if (row->type == WIRE_T_INT) {
            *(int64_t *)field(&d) = row->def_int;
        } else if (row->type == WIRE_T_REAL) {
            *(double *)field(&d) = row->def_real;
        } else if (row->type == WIRE_T_BOOL) {
            *(bool *)field(&d) = row->def_int != 0;
        }
    }
}

void wire_request_destroy(struct wire_request *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *row = &wire_keys[i];
        struct wire_decode d = {.r = r, .row = row};
        if (!stored(row) || row->type < WIRE_T_STR) {
            continue;
        }
        if (row->type == WIRE_T_INT_LIST) {
            free(*(int32_t **)field(&d));
        } else if (row->type == WIRE_T_BIAS) {
            free(*(struct wire_bias **)field(&d));
        } else if (row->type == WIRE_T_STR_LIST) {
            for (size_t k = 0; k < *(size_t *)count_field(&d); k++) {
                free((void *)((struct wire_str *)field(&d))[k].p);
            }
        } else {
            free((void *)((struct wire_str *)field(&d))->p);
        }
    }
    free(r);
}
