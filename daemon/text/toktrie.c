/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Tokens are sorted by their bytes; the trie in walking order is then written
 * from left to right, with the sizes of subtrees filled in on the way back.
 * Pure.
 */
#include "daemon/text/toktrie.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct word {
    const uint8_t *p;
    uint32_t n;
    int32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    uint32_t n = x->n < y->n ? x->n : y->n;
    int r = memcmp(x->p, y->p, n);

    if (r != 0) {
        return r;
    }
    if (x->n != y->n) {
        return x->n < y->n ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct word *collect(const struct tokenizer *t, int n_ids,
                            const uint8_t *keep, int *ret_n)
{
    struct word *w = malloc(((size_t)n_ids + 1) * sizeof(*w));
    int n = 0;

    for (int32_t id = 0; w != NULL && id < n_ids; id++) {
        size_t len;
        const char *p = tokenizer_bytes(t, id, &len);

        if (p != NULL && len > 0 && len <= TOKTRIE_MAX_DEPTH &&
            !tokenizer_is_special(t, id) && (keep == NULL || keep[id])) {
            w[n++] = (struct word){(const uint8_t *)p, (uint32_t)len, id};
        }
    }
    if (n > 0) {
        qsort(w, (size_t)n, sizeof(*w), by_bytes);
    }
    *ret_n = n;
    return w;
}

static uint32_t common(const struct word *a, const struct word *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n, i = 0;

    while (i < n && a->p[i] == b->p[i]) {
        i++;
    }
    return i;
}

static void write_nodes(struct toktrie *t, const struct word *w, int n)
{
    uint32_t path[TOKTRIE_MAX_DEPTH];
    uint32_t depth = 0, n_nodes = 0;

    for (int i = 0; i < n; i++) {
        uint32_t shared = i > 0 ? common(&w[i - 1], &w[i]) : 0;

        if (i > 0 && shared == w[i].n && w[i - 1].n == w[i].n) {
            t->twin[w[i - 1].id] = w[i].id;
            continue;
        }
        while (depth > shared) {
            uint32_t v = path[--depth];

            t->node[v].size = (n_nodes - v) & 0xffffff;
        }
        while (depth < w[i].n) {
            if (depth == 0) {
                t->root[w[i].p[0]] = n_nodes;
            }
            path[depth] = n_nodes;
            t->node[n_nodes++] =
                (struct toktrie_node){.byte = w[i].p[depth], .token = -1};
            depth++;
        }
        t->node[path[depth - 1]].token = w[i].id;
        t->depth = (int)depth > t->depth ? (int)depth : t->depth;
    }
    while (depth > 0) {
        uint32_t v = path[--depth];

        t->node[v].size = (n_nodes - v) & 0xffffff;
    }
}

int toktrie_create(struct toktrie **ret, const struct tokenizer *tok, int n_ids,
                   const uint8_t *keep)
{
    struct toktrie *t = calloc(1, sizeof(*t));
    struct word *w = NULL;
    size_t n_nodes = 0;
    int n, vocab = tokenizer_vocab(tok);

    if (t == NULL) {
        return -ENOMEM;
    }
    n_ids = n_ids < vocab ? n_ids : vocab;
    w = collect(tok, n_ids, keep, &n);
    t->twin = malloc(((size_t)n_ids + 1) * sizeof(*t->twin));
    if (w == NULL || t->twin == NULL) {
        goto fail;
    }
    memset(t->twin, 0xff, ((size_t)n_ids + 1) * sizeof(*t->twin));
    for (int i = 0; i < n; i++) {
        n_nodes += w[i].n - (i > 0 ? common(&w[i - 1], &w[i]) : 0);
    }
    t->node = malloc((n_nodes + 1) * sizeof(*t->node));
    if (t->node == NULL || n_nodes >= 1 << 24) {
        goto fail;
    }
    t->n = (uint32_t)n_nodes;
    t->n_ids = n_ids;
    t->n_tokens = n;
    for (int b = 0; b < 256; b++) {
        t->root[b] = t->n;
    }
    write_nodes(t, w, n);
    free(w);
    *ret = t;
    return 0;
fail:
    free(w);
    toktrie_destroy(t);
    return -ENOMEM;
}

void toktrie_destroy(struct toktrie *t)
{
    if (t != NULL) {
        free(t->node);
        free(t->twin);
        free(t);
    }
}
