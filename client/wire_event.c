/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A frame's body to an event, for the library: decoded whole, asked by path. As
 * new keys and events must not trouble an old client, nothing is looked up in a
 * table here; what a frame must be at all (wire.h section 1) is checked as
 * strictly as the daemon checks requests.
 *
 * The event owns a copy of the body, which its strings point into.
 */

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/wire_priv.h"

struct wire_event {
    msgpack_unpacked u;
    uint64_t id;
    char name[32];
    char body[];
};

static const msgpack_object *map_find(const msgpack_object_map *map,
                                      const char *key, size_t n)
{
    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object_str *k = &map->ptr[i].key.via.str;
        if (k->size == n && (n == 0 || memcmp(k->ptr, key, n) == 0)) {
            return &map->ptr[i].val;
        }
    }
    return NULL;
}

static const msgpack_object *list_find(const msgpack_object_array *list,
                                       const char *s, size_t n)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9' || at > UINT32_MAX) {
            return NULL;
        }
        at = at * 10 + (uint64_t)(s[i] - '0');
    }
    return n > 0 && at < list->size ? &list->ptr[at] : NULL;
}

static const msgpack_object *follow(const struct wire_event *e,
                                    const char *path)
{
    const msgpack_object *o = &e->u.data;

    while (*path != '\0' && o != NULL) {
        size_t n = strcspn(path, ".");
        if (o->type == MSGPACK_OBJECT_MAP) {
            o = map_find(&o->via.map, path, n);
        } else if (o->type == MSGPACK_OBJECT_ARRAY) {
            o = list_find(&o->via.array, path, n);
        } else {
            o = NULL;
        }
        path += n + (path[n] == '.');
    }
    return o;
}

static int take_head(struct wire_event *e, struct wire_error *err)
{
    const msgpack_object *id = follow(e, "id");
    const msgpack_object *name = follow(e, "event");

    if (id == NULL || id->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
        return wire_fail(err, WIRE_E_BAD_FRAME, "id", 2, "an event without id");
    }
    if (name == NULL || name->type != MSGPACK_OBJECT_STR) {
        return wire_fail(err, WIRE_E_BAD_FRAME, "event", 5,
                         "an event without a name");
    }
    /* A name that does not fit is one that nobody knows yet. */
    size_t n = name->via.str.size;
    if (n >= sizeof(e->name)) {
        n = sizeof(e->name) - 1;
    }
    memcpy(e->name, name->via.str.ptr, n);
    e->name[n] = '\0';
    e->id = id->via.u64;
    return 0;
}

int wire_decode_event(const uint8_t *body, size_t n, struct wire_event **ret,
                      struct wire_error *err)
{
    int code = wire_check(body, n, err);
    size_t off = 0;

    if (code != 0) {
        return code;
    }
    struct wire_event *e = calloc(1, sizeof(*e) + n);
    if (e == NULL) {
        return wire_fail(err, WIRE_E_NO_MEMORY, NULL, 0,
                         "no memory for an event of %zu bytes", n);
    }
    memcpy(e->body, body, n);
    msgpack_unpacked_init(&e->u);
    if (msgpack_unpack_next(&e->u, e->body, n, &off) !=
        MSGPACK_UNPACK_SUCCESS) {
        code = wire_fail(err, WIRE_E_NO_MEMORY, NULL, 0,
                         "no memory for an event of %zu bytes", n);
    }
    if (code == 0) {
        code = wire_check_duplicates(&e->u.data, err);
    }
    if (code == 0) {
        code = take_head(e, err);
    }
    if (code != 0) {
        wire_event_destroy(e);
        return code;
    }
    *ret = e;
    return 0;
}

void wire_event_destroy(struct wire_event *e)
{
    if (e != NULL) {
        msgpack_unpacked_destroy(&e->u);
        free(e);
    }
}

uint64_t wire_event_id(const struct wire_event *e)
{
    return e->id;
}

const char *wire_event_name(const struct wire_event *e)
{
    return e->name;
}

static void fill(struct wire_value *v, const msgpack_object *o)
{
    *v = (struct wire_value){.type = WIRE_V_NIL};
    switch (o->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        v->type = WIRE_V_BOOL;
        v->b = o->via.boolean;
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        v->type = WIRE_V_UINT;
        v->u = o->via.u64;
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        v->type = WIRE_V_INT;
        v->i = o->via.i64;
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        v->type = WIRE_V_REAL;
        v->r = o->via.f64;
        break;
    case MSGPACK_OBJECT_STR:
        v->type = WIRE_V_STR;
        v->s = (struct wire_str){o->via.str.ptr, o->via.str.size};
        break;
    case MSGPACK_OBJECT_BIN:
        v->type = WIRE_V_BIN;
        v->s = (struct wire_str){o->via.bin.ptr, o->via.bin.size};
        break;
    case MSGPACK_OBJECT_ARRAY:
        v->type = WIRE_V_LIST;
        v->n = o->via.array.size;
        break;
    case MSGPACK_OBJECT_MAP:
        v->type = WIRE_V_MAP;
        v->n = o->via.map.size;
        break;
    default:
        break;
    }
}

bool wire_event_get(const struct wire_event *e, const char *path,
                    struct wire_value *ret)
{
    const msgpack_object *o = follow(e, path);

    if (o == NULL) {
        return false;
    }
    fill(ret, o);
    return true;
}

int wire_event_json(const struct wire_event *e, const char *path,
                    struct wire_buf *b)
{
    const msgpack_object *o = follow(e, path);

    return o == NULL ? -ENOENT : wire_json_text(b, o, true, UINT_MAX);
}
