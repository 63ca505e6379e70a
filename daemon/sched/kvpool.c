/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Page ids of both KV groups: a stack of free ids and a reference count a
 * page. Engine thread only. No device memory, no policy: who gets pages when
 * they are short is decided in batch.c before anybody asks here.
 *
 * The invariant: a page is on the free stack exactly when it has no
 * reference, so free pages + pages with references = all pages, always.
 */

#include "daemon/sched/kvpool.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/base/die.h"

struct group {
    int n_pages, n_free;
    int32_t *free; /* [n_pages], the first n_free in use; last out first */
    int32_t *refs; /* [n_pages] */
};

struct kvpool {
    struct group group[MODEL_N_GROUPS];
    kvpool_freed freed;
    void *ctx;
};

int kvpool_create(struct kvpool **ret, const int n_pages[MODEL_N_GROUPS])
{
    struct kvpool *p = xcalloc(1, sizeof(*p));

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        struct group *gr = &p->group[g];
        int n = n_pages[g];

        BUG_ON(n < 0);
        gr->free = calloc((size_t)n + 1, sizeof(*gr->free));
        gr->refs = calloc((size_t)n + 1, sizeof(*gr->refs));
        if (gr->free == NULL || gr->refs == NULL) {
            kvpool_destroy(p);
            return -ENOMEM;
        }
        gr->n_pages = gr->n_free = n;
        for (int i = 0; i < n; i++) {
            gr->free[i] = n - 1 - i;
        }
    }
    *ret = p;
    return 0;
}

void kvpool_destroy(struct kvpool *p)
{
    if (p == NULL) {
        return;
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        BUG_ON(p->group[g].n_free != p->group[g].n_pages);
        free(p->group[g].free);
        free(p->group[g].refs);
    }
    free(p);
}

void kvpool_on_free(struct kvpool *p, kvpool_freed fn, void *ctx)
{
    p->freed = fn;
    p->ctx = ctx;
}

int kvpool_alloc(struct kvpool *p, enum model_group g, int n, int32_t *ret)
{
    struct group *gr = &p->group[g];

    if (n > gr->n_free) {
        return -ENOSPC;
    }
    for (int i = 0; i < n; i++) {
        ret[i] = gr->free[--gr->n_free];
        gr->refs[ret[i]] = 1;
    }
    return 0;
}

void kvpool_share(struct kvpool *p, enum model_group g, int32_t page)
{
    BUG_ON(kvpool_refs(p, g, page) == 0);
    p->group[g].refs[page]++;
}

void kvpool_drop(struct kvpool *p, enum model_group g, int32_t page)
{
    struct group *gr = &p->group[g];

    BUG_ON(kvpool_refs(p, g, page) == 0);
    if (--gr->refs[page] > 0) {
        return;
    }
    if (p->freed != NULL) {
        p->freed(p->ctx, g, page);
    }
    gr->free[gr->n_free++] = page;
}

int kvpool_refs(const struct kvpool *p, enum model_group g, int32_t page)
{
    BUG_ON(page < 0 || page >= p->group[g].n_pages);
    return p->group[g].refs[page];
}

int kvpool_free_pages(const struct kvpool *p, enum model_group g)
{
    return p->group[g].n_free;
}

int kvpool_pages(const struct kvpool *p, enum model_group g)
{
    return p->group[g].n_pages;
}
