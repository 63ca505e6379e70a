/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The vocabulary: one blob with the bytes of all tokens, a table of offsets by
 * id, and an open-addressing table of ids by the hash of their bytes. For the
 * real tokenizer that is 1.2 MB of bytes, 1.5 MB of entries and 1 MB of slots,
 * in five allocations. Built once at load, then only read, by any thread.
 *
 * The invariant: the hash table holds exactly the findable tokens, and at most
 * half of its slots are taken, so that a probe ends.
 */
#include "daemon/text/vocab.h"

#include <errno.h>
#include <stdlib.h>

/* FNV-1a with a final mix: keys are a few bytes long, and come from a file
 * that the operator installed, not from a client. */
static uint32_t hash_bytes(const uint8_t *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return (uint32_t)((h * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

static int slots_create(int32_t **ret, uint32_t n)
{
    int32_t *slot = malloc(n * sizeof(*slot));

    if (slot == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        slot[i] = -1;
    }
    *ret = slot;
    return 0;
}

int vocab_init(struct vocab *v, int n)
{
    uint32_t n_slots = 1024;
    int cap = n > 256 ? n : 256;

    memset(v, 0, sizeof(*v));
    if (cap > VOCAB_MAX_IDS) {
        cap = VOCAB_MAX_IDS;
    }
    while (n_slots < 2 * (uint32_t)cap) {
        n_slots *= 2;
    }
    v->entry = calloc((size_t)cap, sizeof(*v->entry));
    if (v->entry == NULL || slots_create(&v->slot, n_slots) < 0) {
        vocab_finish(v);
        return -ENOMEM;
    }
    v->cap_ids = cap;
    v->mask = n_slots - 1;
    return 0;
}

void vocab_finish(struct vocab *v)
{
    str_finish(&v->blob);
    free(v->entry);
    free(v->slot);
    memset(v, 0, sizeof(*v));
}

/* The slot of these bytes: their id, or -1 where they would go. */
static int32_t *find_slot(const struct vocab *v, const void *bytes, size_t n)
{
    uint32_t i = hash_bytes(bytes, n) & v->mask;

    for (;; i = (i + 1) & v->mask) {
        const struct vocab_entry *e;

        if (v->slot[i] < 0) {
            return &v->slot[i];
        }
        e = &v->entry[v->slot[i]];
        if (e->n == n && memcmp(v->blob.p + e->off, bytes, n) == 0) {
            return &v->slot[i];
        }
    }
}

static int slots_grow(struct vocab *v)
{
    struct vocab old = *v;
    int r = slots_create(&v->slot, 2 * (old.mask + 1));

    if (r < 0) {
        v->slot = old.slot;
        return r;
    }
    v->mask = 2 * old.mask + 1;
    for (uint32_t i = 0; i <= old.mask; i++) {
        if (old.slot[i] >= 0) {
            const struct vocab_entry *e = &v->entry[old.slot[i]];

            *find_slot(v, v->blob.p + e->off, e->n) = old.slot[i];
        }
    }
    free(old.slot);
    return 0;
}

static int entries_grow(struct vocab *v, int32_t id)
{
    struct vocab_entry *entry;
    int cap = v->cap_ids;

    while (cap <= id) {
        cap *= 2;
    }
    entry = realloc(v->entry, (size_t)cap * sizeof(*entry));
    if (entry == NULL) {
        return -ENOMEM;
    }
    memset(entry + v->cap_ids, 0, (size_t)(cap - v->cap_ids) * sizeof(*entry));
    v->entry = entry;
    v->cap_ids = cap;
    return 0;
}

/* Puts bytes behind the others; 0 or -ENOMEM. */
static int store(struct vocab *v, struct vocab_entry *e, const void *bytes,
                 size_t n)
{
    size_t off = v->blob.n;

    if (off > UINT32_MAX - n - 1) {
        return -ENOMEM;
    }
    str_add(&v->blob, bytes, n);
    str_putc(&v->blob, '\0');
    if (v->blob.err != 0) {
        return v->blob.err;
    }
    e->off = (uint32_t)off;
    e->n = (uint32_t)n;
    e->used = true;
    return 0;
}

int vocab_add(struct vocab *v, int32_t id, const void *bytes, size_t n,
              bool findable)
{
    int32_t *slot = NULL;
    int r;

    if (id >= v->cap_ids) {
        r = entries_grow(v, id);
        if (r < 0) {
            return r;
        }
    }
    if (v->entry[id].used) {
        return -EEXIST;
    }
    if (findable) {
        if (2 * (uint32_t)(v->n_findable + 1) > v->mask) {
            r = slots_grow(v);
            if (r < 0) {
                return r;
            }
        }
        slot = find_slot(v, bytes, n);
        if (*slot >= 0) {
            return -EEXIST;
        }
    }
    r = store(v, &v->entry[id], bytes, n);
    if (r < 0) {
        return r;
    }
    if (slot != NULL) {
        *slot = id;
        v->n_findable++;
    }
    if (id >= v->n_ids) {
        v->n_ids = id + 1;
    }
    return 0;
}

int32_t vocab_find(const struct vocab *v, const void *bytes, size_t n)
{
    return *find_slot(v, bytes, n);
}

const char *vocab_bytes(const struct vocab *v, int32_t id, size_t *ret_n)
{
    const struct vocab_entry *e;

    if (id < 0 || id >= v->n_ids || !v->entry[id].used) {
        return NULL;
    }
    e = &v->entry[id];
    *ret_n = e->n;
    return v->blob.p + e->off;
}
