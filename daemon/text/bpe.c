/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The merge loop. A word is a doubly linked list of symbols that lies in one
 * array (a symbol stays where its first byte is), and a binary heap of
 * candidate pairs ordered by (rank, place). A candidate is one integer; it is
 * stale when the symbol at its place no longer opens a pair of that rank, which
 * the symbol itself records, so popping needs no look-up. A word of n bytes
 * costs O(n log n), whatever it is made of: a million equal letters are one
 * word. Nothing recurses.
 *
 * Pure; the table is shared by all threads, the scratch is the caller's.
 */
#include "daemon/text/bpe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BPE_MIN_SCRATCH 64

struct bpe_symbol {
    int32_t id;
    int32_t prev, next; /* places, -1 at the ends */
    uint32_t rank;      /* of the pair (this, next), BPE_NO_RANK: none, or
                         * this symbol was merged into another */
};

/* ---- the table of merges ---------------------------------------------- */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint32_t pair_hash(uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    key ^= key >> 29;
    key *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(key >> 32);
}

int bpe_init(struct bpe *b, uint32_t n_merges)
{
    uint32_t n_slots = 16;

    memset(b, 0, sizeof(*b));
    while (n_slots < 2 * n_merges) {
        n_slots *= 2;
    }
    b->key = calloc(n_slots, sizeof(*b->key));
    b->rank = malloc(n_slots * sizeof(*b->rank));
    b->merged = calloc(n_merges != 0 ? n_merges : 1, sizeof(*b->merged));
    if (b->key == NULL || b->rank == NULL || b->merged == NULL) {
        bpe_finish(b);
        return -ENOMEM;
    }
    memset(b->rank, 0xff, n_slots * sizeof(*b->rank));
    b->mask = n_slots - 1;
    return 0;
}

void bpe_finish(struct bpe *b)
{
    free(b->key);
    free(b->rank);
    free(b->merged);
    memset(b, 0, sizeof(*b));
}

/* The pair's slot, or the free one where it would go. */
static uint32_t pair_slot(const struct bpe *b, uint64_t key)
{
    uint32_t i = pair_hash(key) & b->mask;

    while (b->rank[i] != BPE_NO_RANK && b->key[i] != key) {
        i = (i + 1) & b->mask;
    }
    return i;
}

void bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t merged)
{
    uint64_t key = pair_key(left, right);
    uint32_t i = pair_slot(b, key);

    b->key[i] = key;
    b->rank[i] = b->n_merges;
    b->merged[b->n_merges++] = merged;
}

static uint32_t pair_rank(const struct bpe *b, int32_t left, int32_t right)
{
    return b->rank[pair_slot(b, pair_key(left, right))];
}

/* ---- the heap: smallest key first ------------------------------------- */

static void heap_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t key = h[i];

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= n) {
            break;
        }
        if (child + 1 < n && h[child + 1] < h[child]) {
            child++;
        }
        if (h[child] >= key) {
            break;
        }
        h[i] = h[child];
        i = child;
    }
    h[i] = key;
}

static void heap_up(uint64_t *h, size_t i)
{
    uint64_t key = h[i];

    while (i > 0 && h[(i - 1) / 2] > key) {
        h[i] = h[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h[i] = key;
}

/* ---- one word --------------------------------------------------------- */

void bpe_scratch_finish(struct bpe_scratch *s)
{
    free(s->sym);
    free(s->heap);
    memset(s, 0, sizeof(*s));
}

static int scratch_fit(struct bpe_scratch *s, size_t n)
{
    size_t cap = s->cap > BPE_MIN_SCRATCH ? s->cap : BPE_MIN_SCRATCH;

    if (n <= s->cap) {
        return 0;
    }
    if (n > INT32_MAX) {
        return -E2BIG;
    }
    while (cap < n) {
        cap *= 2;
    }
    free(s->sym);
    free(s->heap);
    s->cap = 0;
    s->sym = malloc(cap * sizeof(*s->sym));
    /* Each merge takes one candidate out and puts at most two in. */
    s->heap = malloc(2 * cap * sizeof(*s->heap));
    if (s->sym == NULL || s->heap == NULL) {
        free(s->sym);
        free(s->heap);
        s->sym = NULL;
        s->heap = NULL;
        return -ENOMEM;
    }
    s->cap = cap;
    return 0;
}

int bpe_push(struct bpe_ids *ids, int32_t id)
{
    if (ids->n >= ids->max) {
        return -E2BIG;
    }
    if (ids->n == ids->cap) {
        int cap = ids->cap < 64 ? 64 : ids->cap;
        int32_t *v;

        cap = cap > ids->max / 2 ? ids->max : 2 * cap;
        if (cap <= ids->n) {
            cap = ids->n + 1;
        }
        v = realloc(ids->v, (size_t)cap * sizeof(*v));
        if (v == NULL) {
            return -ENOMEM;
        }
        ids->v = v;
        ids->cap = cap;
    }
    ids->v[ids->n++] = id;
    return 0;
}

static uint64_t candidate(uint32_t rank, int32_t place)
{
    return (uint64_t)rank << 32 | (uint32_t)place;
}

/* Sets up the symbols and the heap of all pairs that have a rank. */
static size_t open_word(const struct bpe *b, struct bpe_scratch *s,
                        const uint8_t *word, int32_t n)
{
    struct bpe_symbol *sym = s->sym;
    size_t n_heap = 0;

    for (int32_t i = 0; i < n; i++) {
        sym[i].id = b->byte_id[word[i]];
        sym[i].prev = i - 1;
        sym[i].next = i + 1 < n ? i + 1 : -1;
        sym[i].rank = BPE_NO_RANK;
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        sym[i].rank = pair_rank(b, sym[i].id, sym[i + 1].id);
        if (sym[i].rank != BPE_NO_RANK) {
            s->heap[n_heap++] = candidate(sym[i].rank, i);
        }
    }
    for (size_t i = n_heap / 2; i-- > 0;) {
        heap_down(s->heap, n_heap, i);
    }
    return n_heap;
}

/* Looks the pair at i up again after one of its sides changed. */
static size_t renew(const struct bpe *b, struct bpe_scratch *s, int32_t i,
                    size_t n_heap)
{
    struct bpe_symbol *sym = &s->sym[i];

    sym->rank = sym->next < 0 ? BPE_NO_RANK
                              : pair_rank(b, sym->id, s->sym[sym->next].id);
    if (sym->rank != BPE_NO_RANK) {
        s->heap[n_heap] = candidate(sym->rank, i);
        heap_up(s->heap, n_heap);
        n_heap++;
    }
    return n_heap;
}

static void merge_word(const struct bpe *b, struct bpe_scratch *s,
                       size_t n_heap)
{
    struct bpe_symbol *sym = s->sym;

    while (n_heap > 0) {
        uint32_t rank = (uint32_t)(s->heap[0] >> 32);
        int32_t i = (int32_t)(uint32_t)s->heap[0];
        int32_t gone;

        s->heap[0] = s->heap[--n_heap];
        if (n_heap > 0) {
            heap_down(s->heap, n_heap, 0);
        }
        s->pops++;
        if (sym[i].rank != rank) {
            continue;
        }
        gone = sym[i].next;
        sym[i].id = b->merged[rank];
        sym[i].next = sym[gone].next;
        sym[gone].rank = BPE_NO_RANK;
        if (sym[i].next >= 0) {
            sym[sym[i].next].prev = i;
        }
        n_heap = renew(b, s, i, n_heap);
        if (sym[i].prev >= 0) {
            n_heap = renew(b, s, sym[i].prev, n_heap);
        }
    }
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const uint8_t *word,
               size_t n, struct bpe_ids *ids)
{
    int r;

    if (n == 0) {
        return 0;
    }
    if (n == 1) {
        return bpe_push(ids, b->byte_id[word[0]]);
    }
    if (b->whole != NULL) {
        int32_t id = vocab_find(b->whole, word, n);

        if (id >= 0) {
            return bpe_push(ids, id);
        }
    }
    r = scratch_fit(s, n);
    if (r < 0) {
        return r;
    }
    merge_word(b, s, open_word(b, s, word, (int32_t)n));
    for (int32_t i = 0; i >= 0; i = s->sym[i].next) {
        r = bpe_push(ids, s->sym[i].id);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}
