/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * A token timeline and its pages of both groups. Engine thread only; owns page
 * references and token ids, never bytes of KV.
 *
 * The invariant: group g holds the absolute pages first .. first + n - 1
 * without a hole. Outside a step that is exactly what the committed rows and
 * the window need; during a step it also covers the rows in flight. So the
 * planner can work out from `committed` alone how many pages a sequence has
 * and how many more it will want.
 */

#include "daemon/sched/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static int pages_of(int slots)
{
    return (slots + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK;
}

int session_create(struct session **ret, struct kvpool *pool,
                   const struct session_geometry *geo, const int32_t *ids,
                   int n_ids)
{
    struct session *s = xcalloc(1, sizeof(*s));
    int r;

    s->pool = pool;
    s->geo = *geo;
    r = session_append(s, ids, n_ids);
    if (r < 0) {
        session_destroy(s);
        return r;
    }
    *ret = s;
    return 0;
}

void session_destroy(struct session *s)
{
    if (s == NULL) {
        return;
    }
    session_release(s);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        free(s->group[g].page);
    }
    free(s->ids);
    free(s);
}

int session_append(struct session *s, const int32_t *ids, int n)
{
    if (n > s->cap_ids - MODEL_MAX_DRAFTS - s->n_ids) {
        int cap = s->n_ids + n + s->n_ids / 2 + 64;
        int32_t *p = realloc(s->ids, (size_t)cap * sizeof(*p));

        if (p == NULL) {
            return -ENOMEM;
        }
        s->ids = p;
        s->cap_ids = cap;
    }
    memcpy(s->ids + s->n_ids, ids, (size_t)n * sizeof(*ids));
    s->n_ids += n;
    return 0;
}

void session_span(const struct session_geometry *geo, enum model_group g,
                  int committed, int upto, int *ret_first, int *ret_end)
{
    int first = 0;
    int end = pages_of(upto);

    if (g == MODEL_SLIDING && geo->window <= 0) {
        end = 0; /* a model without sliding layers */
    } else if (g == MODEL_SLIDING) {
        first = max_int(0, committed - geo->window + 1) / MODEL_PAGE_TOK;
        /* No draft lies past max_len, so no MTP slot does either. */
        end = max_int(end,
                      pages_of(min_int(upto + geo->lookahead, geo->max_len)));
    }
    *ret_first = first;
    *ret_end = end;
}

int session_most(const struct session_geometry *geo, enum model_group g,
                 int upto)
{
    int all, first;

    session_span(geo, g, 0, upto, &first, &all);
    if (g == MODEL_FULL) {
        return all;
    }
    /* The pages behind the one where the rows begin, that one, and the next:
     * MTP slots reach into it, and so do the rows of drafts. */
    return min_int(all, pages_of(geo->window - 1) + 2);
}

static int room(struct session_pages *p, int n)
{
    if (n > p->cap) {
        int cap = max_int(n, p->cap * 2);
        int32_t *page = realloc(p->page, (size_t)cap * sizeof(*page));

        if (page == NULL) {
            return -ENOMEM;
        }
        p->page = page;
        p->cap = cap;
    }
    return 0;
}

static void drop_front(struct session *s, enum model_group g, int n)
{
    struct session_pages *p = &s->group[g];

    for (int i = 0; i < n; i++) {
        kvpool_drop(s->pool, g, p->page[i]);
    }
    memmove(p->page, p->page + n, (size_t)(p->n - n) * sizeof(*p->page));
    p->n -= n;
    p->first += n;
}

static void drop_back(struct session *s, enum model_group g, int n)
{
    struct session_pages *p = &s->group[g];

    while (p->n > n) {
        kvpool_drop(s->pool, g, p->page[--p->n]);
    }
}

/* The page that holds slot `committed` is written by the next row. Later ones
 * are always our own: only committed tokens are ever shared. */
static int unshare(struct session *s, enum model_group g, session_copy copy,
                   void *ctx)
{
    struct session_pages *p = &s->group[g];
    int i = s->committed / MODEL_PAGE_TOK - p->first;
    int32_t fresh;
    int r;

    if (i < 0 || i >= p->n || kvpool_refs(s->pool, g, p->page[i]) == 1) {
        return 0;
    }
    BUG_ON(copy == NULL);
    r = kvpool_alloc(s->pool, g, 1, &fresh);
    if (r < 0) {
        return r;
    }
    r = copy(ctx, g, fresh, p->page[i]);
    if (r < 0) {
        kvpool_drop(s->pool, g, fresh);
        return r;
    }
    kvpool_drop(s->pool, g, p->page[i]);
    p->page[i] = fresh;
    return 0;
}

int session_reserve(struct session *s, int upto, session_copy copy, void *ctx)
{
    int had[MODEL_N_GROUPS];
    int g, r = 0;

    BUG_ON(upto <= s->committed);
    for (g = 0; g < MODEL_N_GROUPS; g++) {
        struct session_pages *p = &s->group[g];
        int first, end, more;

        session_span(&s->geo, g, s->committed, upto, &first, &end);
        had[g] = p->n;
        if (p->n == 0) {
            p->first = first;
        }
        more = max_int(0, end - p->first - p->n);
        r = room(p, p->n + more);
        if (r == 0) {
            r = kvpool_alloc(s->pool, g, more, p->page + p->n);
        }
        if (r < 0) {
            break;
        }
        p->n += more;
        r = unshare(s, g, copy, ctx);
        if (r < 0) {
            g++;
            break;
        }
    }
    if (r < 0) {
        while (g-- > 0) {
            drop_back(s, g, had[g]);
        }
    }
    return r;
}

/* What the next row needs is kept, nothing else. */
static void trim(struct session *s)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        struct session_pages *p = &s->group[g];
        int first, end;

        if (p->n == 0) {
            continue;
        }
        /* The MTP slots past the committed rows stay: those of drafts that
         * will be accepted are not made again. */
        session_span(&s->geo, g, s->committed, s->committed, &first, &end);
        drop_back(s, g, max_int(0, end - p->first));
        drop_front(s, g, min_int(p->n, max_int(0, first - p->first)));
    }
}

void session_commit(struct session *s, int committed)
{
    BUG_ON(committed < s->committed || committed > s->n_ids);
    s->committed = committed;
    trim(s);
}

int session_rewind(struct session *s, int n)
{
    int committed = min_int(s->committed, n);
    const struct session_pages *p = &s->group[MODEL_SLIDING];
    int first, end;

    BUG_ON(n < 0 || n > s->n_ids);
    session_span(&s->geo, MODEL_SLIDING, committed, committed, &first, &end);
    if (committed > 0 && p->first > first) {
        return -ERANGE;
    }
    s->n_ids = n;
    s->committed = committed;
    if (committed == 0) {
        session_release(s);
    } else {
        trim(s);
    }
    return 0;
}

void session_release(struct session *s)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        drop_back(s, g, 0);
        s->group[g].first = 0;
    }
    s->committed = 0;
}
