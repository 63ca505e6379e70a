/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A frame's body to a struct wire_request: look it over (wire_check.c), let
 * msgpack-c parse it, find op and id, then take key by key (wire_take.c) by the
 * rows of wire_table.c, then see whether the keys go together. Every refusal
 * names the key.
 *
 * Daemon side, I/O thread. The request owns copies of all its text, so that the
 * caller's buffer may go.
 */

#include <stdlib.h>
#include <string.h>

#include "client/wire_priv.h"

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

static int take_op(struct wire_decode *d, const msgpack_object_map *map)
{
    const msgpack_object *id = find(map, WIRE_K_ID);
    const msgpack_object *op = find(map, WIRE_K_OP);

    d->row = &wire_keys[WIRE_K_ID];
    if (id == NULL) {
        return wire_refuse(d, "is missing");
    }
    int code = wire_take_value(d, id);
    if (code != 0) {
        return code;
    }
    d->row = &wire_keys[WIRE_K_OP];
    if (op == NULL) {
        return wire_refuse(d, "is missing");
    }
    if (op->type != MSGPACK_OBJECT_STR) {
        return wire_wrong_type(d);
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
static int check_version(struct wire_decode *d, const msgpack_object_map *map)
{
    const msgpack_object *min = find(map, WIRE_K_VERSION_MIN);
    const msgpack_object *max = find(map, WIRE_K_VERSION_MAX);
    int64_t i;
    uint64_t lo, hi;

    d->row = &wire_keys[WIRE_K_VERSION_MIN];
    if (min == NULL) {
        return wire_refuse(d, "is missing");
    }
    int code = wire_take_integer(d, min, &i, &lo);
    if (code != 0) {
        return code;
    }
    d->row = &wire_keys[WIRE_K_VERSION_MAX];
    if (max == NULL) {
        return wire_refuse(d, "is missing");
    }
    code = wire_take_integer(d, max, &i, &hi);
    if (code != 0) {
        return code;
    }
    if (hi < lo) {
        return wire_refuse(d, "is below version_min");
    }
    if (lo > WIRE_VERSION_MAX || hi < WIRE_VERSION_MIN) {
        return wire_fail(d->err, WIRE_E_VERSION, NULL, 0,
                         "this daemon speaks versions %d to %d of the protocol",
                         WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    }
    d->r->version = hi < WIRE_VERSION_MAX ? hi : WIRE_VERSION_MAX;
    return 0;
}

static int take_keys(struct wire_decode *d, const msgpack_object_map *map)
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
        if (key == WIRE_K_OP || key == WIRE_K_ID ||
            map->ptr[i].val.type == MSGPACK_OBJECT_NIL) {
            continue;
        }
        d->row = &wire_keys[key];
        if ((d->row->ops & op) == 0) {
            return wire_refuse(d, "is not a key of %s", wire_op_name(d->r->op));
        }
        code = wire_take_value(d, &map->ptr[i].val);
        d->r->has |= UINT64_C(1) << key;
    }
    return code;
}

/* Exactly one of the two. */
static int check_one_of(struct wire_decode *d, enum wire_key a, enum wire_key b)
{
    d->row = &wire_keys[a];
    if (wire_has(d->r, a) == wire_has(d->r, b)) {
        return wire_refuse(d, "or %s: %s needs exactly one of them",
                           wire_key_name(b), wire_op_name(d->r->op));
    }
    return 0;
}

/* What one key cannot tell: needed ones, pairs, and those of later versions. */
static int check_set(struct wire_decode *d)
{
    const struct wire_request *r = d->r;
    bool chat = r->op != WIRE_GENERATE || wire_has(r, WIRE_K_MESSAGES);
    int code = 0;

    for (int i = 0; i < WIRE_N_KEYS; i++) {
        bool has = wire_has(r, (enum wire_key)i);
        d->row = &wire_keys[i];
        if (!has && (d->row->needs >> r->op & 1) != 0) {
            return wire_refuse(d, "is missing");
        }
        if (has && !chat && (d->row->flags & WIRE_KEY_CHAT) != 0) {
            return wire_refuse(d, "goes with messages only");
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

static int decode_map(struct wire_decode *d, const msgpack_object_map *map)
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
    struct wire_decode d = {.r = r, .err = err};
    wire_set_defaults(r);
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
