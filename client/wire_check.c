/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The walk over a frame's body before msgpack-c sees it. msgpack-c allocates
 * arrays from the count that a header claims, before any element has come: 150
 * bytes of nested headers reserve a gigabyte. Here every count is held against
 * the bytes that are left, all counts together against max_values, and depth
 * against max_depth, without allocating anything; what passes is well-formed,
 * and what msgpack-c allocates for it is bounded by what really arrived.
 *
 * Two classes of breach: a body that is not msgpack ends the walk at once
 * (bad_frame). Everything else (bad_request) is remembered, the first one wins,
 * and the walk goes on so that the request's id is found wherever it stands.
 */

#include <stdlib.h>
#include <string.h>

#include "client/wire_priv.h"

struct level {
    uint64_t left; /* values to come; of a map keys and values */
    bool map, want_key;
};

struct walk {
    const uint8_t *body, *p, *end;
    uint64_t pending; /* values claimed by headers and not yet seen */
    uint64_t n_values;
    struct level level[WIRE_MAX_DEPTH];
    int depth;
    const char *top_key; /* the key of the frame's map that we are inside */
    size_t n_top_key;
    bool at_id;
    struct wire_error *err;
};

enum value_class { V_PLAIN, V_UINT, V_STR, V_BIN, V_EXT, V_LIST, V_MAP };

struct value {
    enum value_class class;
    uint64_t n; /* the number, the bytes, or the count */
    bool nonfinite;
};

static uint64_t be(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

static bool nonfinite(const uint8_t *p, unsigned n)
{
    if (n == 4) {
        uint32_t bits = (uint32_t)be(p, 4);
        return (bits & 0x7f800000u) == 0x7f800000u;
    }
    uint64_t bits = be(p, 8);
    uint64_t exponent = UINT64_C(0x7ff0000000000000);
    return (bits & exponent) == exponent;
}

/* Header forms 0xc0..0xdf: class, and bytes of number or length after the
 * first. For ext the type byte is not among them. */
static const struct form {
    uint8_t class, size;
    bool sign;
} forms[32] = {
    [0x00] = {V_PLAIN, 0, false}, /* nil */
    [0x01] = {V_PLAIN, 0, true},  /* 0xc1, never valid: see read_value */
    [0x02] = {V_PLAIN, 0, false}, /* false */
    [0x03] = {V_PLAIN, 0, false}, /* true */
    [0x04] = {V_BIN, 1, false},   [0x05] = {V_BIN, 2, false},
    [0x06] = {V_BIN, 4, false},   [0x07] = {V_EXT, 1, false},
    [0x08] = {V_EXT, 2, false},   [0x09] = {V_EXT, 4, false},
    [0x0a] = {V_PLAIN, 4, false}, /* float 32 */
    [0x0b] = {V_PLAIN, 8, false}, /* float 64 */
    [0x0c] = {V_UINT, 1, false},  [0x0d] = {V_UINT, 2, false},
    [0x0e] = {V_UINT, 4, false},  [0x0f] = {V_UINT, 8, false},
    [0x10] = {V_UINT, 1, true},   [0x11] = {V_UINT, 2, true},
    [0x12] = {V_UINT, 4, true},   [0x13] = {V_UINT, 8, true},
    [0x14] = {V_EXT, 0, false}, /* fixext 1, 2, 4, 8, 16 */
    [0x15] = {V_EXT, 0, false},   [0x16] = {V_EXT, 0, false},
    [0x17] = {V_EXT, 0, false},   [0x18] = {V_EXT, 0, false},
    [0x19] = {V_STR, 1, false},   [0x1a] = {V_STR, 2, false},
    [0x1b] = {V_STR, 4, false},   [0x1c] = {V_LIST, 2, false},
    [0x1d] = {V_LIST, 4, false},  [0x1e] = {V_MAP, 2, false},
    [0x1f] = {V_MAP, 4, false},
};

/* The next header, number included; payload of strings is left to the caller.
 * False where the bytes are not msgpack. */
static bool read_value(struct walk *w, struct value *v)
{
    if (w->p == w->end) {
        return false;
    }
    uint8_t c = *w->p++;
    *v = (struct value){.class = V_PLAIN};
    if (c < 0x80) {
        *v = (struct value){.class = V_UINT, .n = c};
        return true;
    }
    if (c < 0xc0) {
        v->class = c < 0x90 ? V_MAP : c < 0xa0 ? V_LIST : V_STR;
        v->n = c < 0xa0 ? (c & 0x0f) : (c & 0x1f);
        return true;
    }
    if (c >= 0xe0) {
        return true; /* a small negative number */
    }
    if (c == 0xc1) {
        return false;
    }
    const struct form *f = &forms[c - 0xc0];
    if ((size_t)(w->end - w->p) < f->size) {
        return false;
    }
    v->class = f->class;
    v->n = be(w->p, f->size);
    if (f->class == V_UINT && f->sign && (w->p[0] & 0x80) != 0) {
        v->class = V_PLAIN;
    } else if (f->class == V_PLAIN && f->size > 0) {
        v->nonfinite = nonfinite(w->p, f->size);
    } else if (f->class == V_EXT) {
        v->n = (f->size > 0 ? v->n : (uint64_t)1 << (c - 0xd4)) + 1;
    }
    w->p += f->size;
    return true;
}

/* Remembers the first breach that leaves the frame readable. */
static void note(struct walk *w, const char *what)
{
    if (w->err->code == WIRE_OK) {
        wire_fail(w->err, WIRE_E_BAD_REQUEST, w->top_key, w->n_top_key, "%s",
                  what);
    }
}

static int broken(struct walk *w, const char *what)
{
    return wire_fail(w->err, WIRE_E_BAD_FRAME, NULL, 0,
                     "not a msgpack map: %s, at byte %zu of %zu", what,
                     (size_t)(w->p - w->body), (size_t)(w->end - w->body));
}

/* A list or map begins. 0, or the code that ends the walk. */
static int open_level(struct walk *w, const struct value *v)
{
    uint64_t count = v->class == V_MAP ? v->n * 2 : v->n;

    w->pending += count;
    if (w->pending > (uint64_t)(w->end - w->p)) {
        return broken(w, "a count beyond the bytes that are left");
    }
    w->n_values += count;
    if (w->n_values > WIRE_MAX_VALUES) {
        return wire_fail(w->err, WIRE_E_BAD_REQUEST, w->top_key, w->n_top_key,
                         "more than %u values in a frame", WIRE_MAX_VALUES);
    }
    if (w->depth == WIRE_MAX_DEPTH) {
        return wire_fail(w->err, WIRE_E_BAD_REQUEST, w->top_key, w->n_top_key,
                         "lists and maps more than %d deep", WIRE_MAX_DEPTH);
    }
    w->level[w->depth++] = (struct level){
        .left = count, .map = v->class == V_MAP, .want_key = true};
    return 0;
}

/* A key of the innermost map. */
static void see_key(struct walk *w, const struct value *v, const char *s)
{
    if (v->class != V_STR) {
        note(w, "a map's key is not a str");
    }
    if (w->depth == 1) {
        bool str = v->class == V_STR;
        w->top_key = str ? s : NULL;
        w->n_top_key = str ? (size_t)v->n : 0;
        w->at_id = str && v->n == 2 && memcmp(s, "id", 2) == 0;
    }
}

/* One value that is not the frame's map. */
static int see_value(struct walk *w)
{
    struct level *in = &w->level[w->depth - 1];
    struct value v;

    if (!read_value(w, &v)) {
        return broken(w, "it is cut short or has a byte 0xc1");
    }
    const char *payload = (const char *)w->p;
    if (v.class == V_STR || v.class == V_BIN || v.class == V_EXT) {
        if (v.n > (uint64_t)(w->end - w->p)) {
            return broken(w, "a string longer than the bytes that are left");
        }
        w->p += v.n;
    }
    w->pending--;
    in->left--;
    if (in->map && in->want_key) {
        see_key(w, &v, payload);
    } else if (w->depth == 1 && w->at_id && v.class == V_UINT) {
        w->err->id = v.n;
    }
    in->want_key = !in->want_key;

    if (v.class == V_STR && !wire_utf8_ok(payload, (size_t)v.n)) {
        note(w, "a str is not UTF-8");
    } else if (v.class == V_EXT) {
        note(w, "ext types are not used here");
    } else if (v.nonfinite) {
        note(w, "a number is not finite");
    } else if (v.class == V_LIST || v.class == V_MAP) {
        return open_level(w, &v);
    }
    return 0;
}

int wire_check(const uint8_t *body, size_t n, struct wire_error *err)
{
    struct walk w = {.body = body, .p = body, .end = body + n, .err = err};
    struct value v;

    *err = (struct wire_error){.code = WIRE_OK};
    if (!read_value(&w, &v) || v.class != V_MAP) {
        return broken(&w, "it begins with something else");
    }
    int code = open_level(&w, &v);
    while (code == 0 && w.depth > 0) {
        if (w.level[w.depth - 1].left == 0) {
            w.depth--;
        } else {
            code = see_value(&w);
        }
    }
    if (code == 0 && w.p != w.end) {
        w.top_key = NULL;
        note(&w, "bytes follow the map");
    }
    return code != 0 ? code : err->code;
}

static int by_name(const void *va, const void *vb)
{
    const struct wire_str *a = va, *b = vb;

    if (a->n != b->n) {
        return a->n < b->n ? -1 : 1;
    }
    return a->n > 0 ? memcmp(a->p, b->p, a->n) : 0; /* p may be NULL */
}

/* One map's keys, sorted in scratch memory so that the cost stays n log n
 * whatever a client sends. */
static int check_keys(const msgpack_object_map *map, struct wire_error *err)
{
    struct wire_str few[16], *key = few;
    int code = 0;

    if (map->size > sizeof(few) / sizeof(few[0])) {
        key = malloc(map->size * sizeof(*key));
        if (key == NULL) {
            return wire_fail(err, WIRE_E_NO_MEMORY, NULL, 0,
                             "no memory to look at %u keys", map->size);
        }
    }
    for (uint32_t i = 0; i < map->size; i++) {
        key[i].p = map->ptr[i].key.via.str.ptr;
        key[i].n = map->ptr[i].key.via.str.size;
    }
    qsort(key, map->size, sizeof(*key), by_name);
    for (uint32_t i = 1; i < map->size && code == 0; i++) {
        if (by_name(&key[i - 1], &key[i]) == 0) {
            code = wire_fail(err, WIRE_E_BAD_REQUEST, key[i].p, key[i].n,
                             "a key stands twice in one map");
        }
    }
    if (key != few) {
        free(key);
    }
    return code;
}

int wire_check_duplicates(const msgpack_object *o, struct wire_error *err)
{
    int code = 0;

    if (o->type == MSGPACK_OBJECT_ARRAY) {
        for (uint32_t i = 0; i < o->via.array.size && code == 0; i++) {
            code = wire_check_duplicates(&o->via.array.ptr[i], err);
        }
    } else if (o->type == MSGPACK_OBJECT_MAP) {
        code = check_keys(&o->via.map, err);
        for (uint32_t i = 0; i < o->via.map.size && code == 0; i++) {
            code = wire_check_duplicates(&o->via.map.ptr[i].val, err);
        }
    }
    return code;
}
