/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A frame's body to a struct wire_request, by the rows of wire_table.c: look it
 * over (wire_check.c), let msgpack-c parse it, find op and id, then take key by
 * key. Every refusal names the key.
 *
 * Daemon side, I/O thread. The request owns copies of all its text, each with a
 * NUL behind it, so that the caller's buffer may go. The invariant: a request
 * that comes out has every field within the range that its row states.
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

struct decode {
    struct wire_request *r;
    const struct wire_key_row *row;
    struct wire_error *err;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct decode *d,
                                                        const char *fmt, ...);

static int refuse(struct decode *d, const char *fmt, ...)
{
    char text[sizeof(d->err->message)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return wire_fail(d->err, WIRE_E_BAD_REQUEST, d->row->name,
                     strlen(d->row->name), "%s %s", d->row->name, text);
}

static int no_memory(struct decode *d)
{
    return wire_fail(d->err, WIRE_E_NO_MEMORY, d->row->name,
                     strlen(d->row->name), "no memory for %s", d->row->name);
}

static void *field(struct decode *d)
{
    return (char *)d->r + d->row->offset;
}

static void *count_field(struct decode *d)
{
    return (char *)d->r + d->row->count;
}

static bool stored(const struct wire_key_row *row)
{
    return (row->flags & WIRE_KEY_UNSTORED) == 0;
}

static int copy_str(struct decode *d, struct wire_str *to, const char *p,
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

static int wrong_type(struct decode *d)
{
    return refuse(d, "must be of type %s", wire_type_name[d->row->type]);
}

/* An integer within the row's range; the value is returned in both forms. */
static int take_integer(struct decode *d, const msgpack_object *o, int64_t *i,
                        uint64_t *u)
{
    bool negative = o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER;

    if (!negative && o->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
        return wrong_type(d);
    }
    bool fits = negative ? o->via.i64 >= d->row->imin
                         : o->via.u64 <= d->row->imax &&
                               (d->row->imin <= 0 ||
                                o->via.u64 >= (uint64_t)d->row->imin);
    if (!fits) {
        return refuse(d, "must be from %lld to %llu", (long long)d->row->imin,
                      (unsigned long long)d->row->imax);
    }
    *u = o->via.u64;
    *i = o->via.i64;
    return 0;
}

static int take_int(struct decode *d, const msgpack_object *o)
{
    int64_t i = 0;
    uint64_t u = 0;
    int code = take_integer(d, o, &i, &u);

    if (code == 0 && stored(d->row)) {
        if (d->row->type == WIRE_T_UINT) {
            *(uint64_t *)field(d) = u;
        } else {
            *(int64_t *)field(d) = i;
        }
    }
    return code;
}

static int take_real(struct decode *d, const msgpack_object *o)
{
    double v;

    switch (o->type) {
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        v = (double)o->via.u64;
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        v = (double)o->via.i64;
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        v = o->via.f64;
        break;
    default:
        return wrong_type(d);
    }
    bool above = (d->row->flags & WIRE_KEY_ABOVE) != 0;
    if (v < d->row->rmin || v > d->row->rmax || (above && v == d->row->rmin)) {
        return refuse(d, "must be %s %g to %g", above ? "above" : "from",
                      d->row->rmin, d->row->rmax);
    }
    *(double *)field(d) = v;
    return 0;
}

static int take_bool(struct decode *d, const msgpack_object *o)
{
    if (o->type != MSGPACK_OBJECT_BOOLEAN) {
        return wrong_type(d);
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

static int check_length(struct decode *d, size_t n)
{
    if (n < d->row->min_bytes ||
        (d->row->max_bytes > 0 && n > d->row->max_bytes)) {
        return refuse(d, "must have from %zu to %zu bytes", d->row->min_bytes,
                      d->row->max_bytes);
    }
    return 0;
}

static int take_str(struct decode *d, const msgpack_object *o)
{
    const struct wire_key_row *row = d->row;

    if (o->type != MSGPACK_OBJECT_STR) {
        return wrong_type(d);
    }
    const char *s = o->via.str.ptr;
    size_t n = o->via.str.size;
    int code = check_length(d, n);
    if (code != 0) {
        return code;
    }
    if (row->values != NULL && !is_one_of(row->values, s, n)) {
        return refuse(d, "must be one of: %s", row->values);
    }
    if (row->type == WIRE_T_NAME && !is_name(s, n)) {
        return refuse(d, "must be made of A-Z a-z 0-9 . _ - and not begin "
                         "with a dot");
    }
    return stored(row) ? copy_str(d, field(d), s, n) : 0;
}

static int take_bytes(struct decode *d, const msgpack_object *o)
{
    if (o->type == MSGPACK_OBJECT_BIN) {
        *(bool *)count_field(d) = true;
        return copy_str(d, field(d), o->via.bin.ptr, o->via.bin.size);
    }
    if (o->type == MSGPACK_OBJECT_STR) {
        return copy_str(d, field(d), o->via.str.ptr, o->via.str.size);
    }
    return wrong_type(d);
}

/* ---- lists and maps ----------------------------------------------------- */

static int take_str_list(struct decode *d, const msgpack_object *o)
{
    const struct wire_key_row *row = d->row;
    int code = 0;

    if (o->type != MSGPACK_OBJECT_ARRAY) {
        return wrong_type(d);
    }
    if (row->max_items > 0 && o->via.array.size > row->max_items) {
        return refuse(d, "must have at most %zu items", row->max_items);
    }
    for (uint32_t i = 0; i < o->via.array.size && code == 0; i++) {
        const msgpack_object *item = &o->via.array.ptr[i];
        if (item->type != MSGPACK_OBJECT_STR) {
            return wrong_type(d);
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

static int take_int_list(struct decode *d, const msgpack_object *o)
{
    if (o->type != MSGPACK_OBJECT_ARRAY) {
        return wrong_type(d);
    }
    uint32_t n = o->via.array.size;
    int32_t *list = malloc((n > 0 ? n : 1) * sizeof(*list));
    if (list == NULL) {
        return no_memory(d);
    }
    int code = 0;
    for (uint32_t i = 0; i < n && code == 0; i++) {
        int64_t v = 0;
        uint64_t u;
        code = take_integer(d, &o->via.array.ptr[i], &v, &u);
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

static int take_json(struct decode *d, const msgpack_object *o)
{
    struct wire_buf b;
    int code = 0;

    if (!json_type_ok(d->row->type, o)) {
        return wrong_type(d);
    }
    wire_buf_init(&b, JSON_MAX);
    int r = wire_json_text(&b, o, false);
    wire_buf_put(&b, "", 1);
    if (r == -EINVAL) {
        code = refuse(d, "must not hold bin values");
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

static int take_value(struct decode *d, const msgpack_object *o)
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
    case WIRE_T_MAPS:
    case WIRE_T_CHOICE:
    case WIRE_T_MAP:
    case WIRE_N_TYPES:
        break;
    }
    return take_json(d, o);
}

/* ---- the request -------------------------------------------------------- */

static void set_defaults(struct wire_request *r)
{
    for (size_t i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *row = &wire_keys[i];
        struct decode d = {.r = r, .row = row};
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

/* Value of a key of the frame's map; nil counts as absent. */
static const msgpack_object *find(const msgpack_object_map *map,
                                  enum wire_key key)
{
    const char *name = wire_key_name(key);

    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object_kv *kv = &map->ptr[i];
        if (kv->key.via.str.size == strlen(name) &&
            memcmp(kv->key.via.str.ptr, name, strlen(name)) == 0 &&
            kv->val.type != MSGPACK_OBJECT_NIL) {
            return &kv->val;
        }
    }
    return NULL;
}

static int take_op(struct decode *d, const msgpack_object_map *map)
{
    const msgpack_object *id = find(map, WIRE_K_ID);
    const msgpack_object *op = find(map, WIRE_K_OP);

    d->row = &wire_keys[WIRE_K_ID];
    if (id == NULL) {
        return refuse(d, "is missing");
    }
    int code = take_int(d, id);
    if (code != 0) {
        return code;
    }
    d->row = &wire_keys[WIRE_K_OP];
    if (op == NULL) {
        return refuse(d, "is missing");
    }
    if (op->type != MSGPACK_OBJECT_STR) {
        return wrong_type(d);
    }
    const char *name = op->via.str.ptr;
    size_t n = op->via.str.size;
    int found = wire_op_find(name, n);
    if (found < 0) {
        return wire_fail(d->err, WIRE_E_UNKNOWN_OP, name, n, "no such op");
    }
    if (wire_ops[found].later) {
        return wire_fail(d->err, WIRE_E_UNSUPPORTED, name, n,
                         "%s is not served by this version",
                         wire_ops[found].name);
    }
    d->r->op = (enum wire_op)found;
    d->r->has |= UINT64_C(1) << WIRE_K_ID | UINT64_C(1) << WIRE_K_OP;
    return 0;
}

/* Before any other key of hello, so that an old daemon can answer a new client
 * in words that it understands. */
static int check_version(struct decode *d, const msgpack_object_map *map)
{
    const msgpack_object *min = find(map, WIRE_K_VERSION_MIN);
    const msgpack_object *max = find(map, WIRE_K_VERSION_MAX);
    int64_t i;
    uint64_t lo, hi;

    d->row = &wire_keys[WIRE_K_VERSION_MIN];
    if (min == NULL) {
        return refuse(d, "is missing");
    }
    int code = take_integer(d, min, &i, &lo);
    if (code != 0) {
        return code;
    }
    d->row = &wire_keys[WIRE_K_VERSION_MAX];
    if (max == NULL) {
        return refuse(d, "is missing");
    }
    code = take_integer(d, max, &i, &hi);
    if (code != 0) {
        return code;
    }
    if (hi < lo) {
        return refuse(d, "is below version_min");
    }
    if (lo > WIRE_VERSION_MAX || hi < WIRE_VERSION_MIN) {
        return wire_fail(d->err, WIRE_E_VERSION, NULL, 0,
                         "this daemon speaks versions %d to %d of the protocol",
                         WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    }
    d->r->version = hi < WIRE_VERSION_MAX ? hi : WIRE_VERSION_MAX;
    return 0;
}

static int take_keys(struct decode *d, const msgpack_object_map *map)
{
    uint32_t op = UINT32_C(1) << d->r->op;
    int code = 0;

    for (uint32_t i = 0; i < map->size && code == 0; i++) {
        const char *name = map->ptr[i].key.via.str.ptr;
        size_t n = map->ptr[i].key.via.str.size;
        if (n >= 2 && memcmp(name, "x_", 2) == 0) {
            continue;
        }
        int key = wire_key_find(name, n);
        if (key < 0) {
            return wire_fail(d->err, WIRE_E_BAD_REQUEST, name, n,
                             "no such key");
        }
        d->row = &wire_keys[key];
        if ((d->row->ops & op) == 0) {
            return refuse(d, "is not a key of %s", wire_op_name(d->r->op));
        }
        if (key == WIRE_K_OP || key == WIRE_K_ID ||
            map->ptr[i].val.type == MSGPACK_OBJECT_NIL) {
            continue;
        }
        code = take_value(d, &map->ptr[i].val);
        d->r->has |= UINT64_C(1) << key;
    }
    return code;
}

/* Exactly one of the two. */
static int check_one_of(struct decode *d, enum wire_key a, enum wire_key b)
{
    d->row = &wire_keys[a];
    if (wire_has(d->r, a) == wire_has(d->r, b)) {
        return refuse(d, "or %s: %s needs exactly one of them",
                      wire_key_name(b), wire_op_name(d->r->op));
    }
    return 0;
}

/* What one key cannot tell: needed ones, pairs, and those of later versions. */
static int check_set(struct decode *d)
{
    const struct wire_request *r = d->r;
    bool chat = r->op != WIRE_GENERATE || wire_has(r, WIRE_K_MESSAGES);
    int code = 0;

    for (int i = 0; i < WIRE_N_KEYS; i++) {
        bool has = wire_has(r, (enum wire_key)i);
        d->row = &wire_keys[i];
        if (!has && (d->row->needs >> r->op & 1) != 0) {
            return refuse(d, "is missing");
        }
        if (has && !chat && (d->row->flags & WIRE_KEY_CHAT) != 0) {
            return refuse(d, "goes with messages only");
        }
    }
    if (r->op == WIRE_GENERATE) {
        code = check_one_of(d, WIRE_K_MESSAGES, WIRE_K_PROMPT);
    } else if (r->op == WIRE_CANCEL) {
        code = check_one_of(d, WIRE_K_TARGET, WIRE_K_JOB);
    }
    for (int i = 0; i < WIRE_N_KEYS && code == 0; i++) {
        d->row = &wire_keys[i];
        if (wire_has(r, (enum wire_key)i) &&
            (d->row->flags & WIRE_KEY_LATER) != 0) {
            code = wire_fail(d->err, WIRE_E_UNSUPPORTED, d->row->name,
                             strlen(d->row->name),
                             "%s is not served by this version", d->row->name);
        }
    }
    return code;
}

static int decode_map(struct decode *d, const msgpack_object_map *map)
{
    int code = take_op(d, map);

    if (code == 0 && d->r->op == WIRE_HELLO) {
        code = check_version(d, map);
    }
    if (code == 0) {
        code = take_keys(d, map);
    }
    if (code == 0) {
        code = check_set(d);
    }
    return code;
}

int wire_decode_request(const uint8_t *body, size_t n,
                        struct wire_request **ret, struct wire_error *err)
{
    struct wire_request *r = NULL;
    msgpack_unpacked u;
    int code = wire_check(body, n, err);

    if (code != 0) {
        return code;
    }
    msgpack_unpacked_init(&u);
    r = calloc(1, sizeof(*r));
    size_t off = 0;
    if (r == NULL || msgpack_unpack_next(&u, (const char *)body, n, &off) !=
                         MSGPACK_UNPACK_SUCCESS) {
        /* It is well-formed: only memory can be the cause. */
        code = wire_fail(err, WIRE_E_NO_MEMORY, NULL, 0,
                         "no memory for a request of %zu bytes", n);
        goto out;
    }
    code = wire_check_duplicates(&u.data, err);
    if (code != 0) {
        goto out;
    }
    struct decode d = {.r = r, .err = err};
    set_defaults(r);
    code = decode_map(&d, &u.data.via.map);
    if (code == 0) {
        *ret = r;
        r = NULL;
    }
out:
    wire_request_destroy(r);
    msgpack_unpacked_destroy(&u);
    return code;
}

void wire_request_destroy(struct wire_request *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *row = &wire_keys[i];
        struct decode d = {.r = r, .row = row};
        if (!stored(row) || row->type < WIRE_T_STR) {
            continue;
        }
        if (row->type == WIRE_T_INT_LIST) {
            free(*(int32_t **)field(&d));
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
