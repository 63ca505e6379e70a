/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_PREFIX_H
#define STEPD_DAEMON_SCHED_PREFIX_H

/*
 * The prefix index: which KV pages hold which tokens, so that a request whose
 * prompt begins like an earlier one need not compute that again.
 *
 * A page is found by its token ids and those before it, compared one by one,
 * within a cache domain (salt). A prefix can be taken up at L tokens where both
 * groups can: every full page below L, and the sliding pages of the window
 * before L. At a checkpoint the vectors of the drafting run are there too, so
 * drafting goes on as if it had never stopped; elsewhere it starts anew at L.
 *
 * Pages stay here without anybody using them until they are needed: eviction
 * takes whole tails of the prefixes that nobody asked for longest.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/sched/session.h"

struct prefix;
struct prefix_pin;

struct prefix_conf {
    struct kvpool *pool;
    struct session_geometry geo;
    size_t aux_bytes;    /* of the vectors of one checkpoint */
    int max_checkpoints; /* at once; the oldest goes */
};

struct prefix_counts {
    int nodes, checkpoints;
    int pages[MODEL_N_GROUPS];     /* indexed */
    int evictable[MODEL_N_GROUPS]; /* of them nobody's but the index's */
    int pinned[MODEL_N_GROUPS];    /* never evicted */
    uint64_t evicted[MODEL_N_GROUPS], evicted_checkpoints;
};

/* -ENOMEM. */
int prefix_create(struct prefix **ret, const struct prefix_conf *c);
void prefix_destroy(struct prefix *p); /* its pages are dropped; NULL is fine */

/* Fills a session that has no page yet with the longest prefix of its first
 * limit tokens that can be taken up; its committed tokens are the result, 0:
 * nothing. vectors: drafting is wanted, so that a checkpoint is preferred to up
 * to a page of tokens more; then *ret_aux is what was put there, NULL: none. It
 * is good until the next call. -ENOMEM. */
int prefix_take(struct prefix *p, uint64_t salt, struct session *s, int limit,
                bool vectors, const void **ret_aux);
/* The length that prefix_take would give; nothing is touched. */
int prefix_look(const struct prefix *p, uint64_t salt, const int32_t *ids,
                int n, bool vectors);

/* Indexes the session's pages of its first n tokens, all of them computed. r0:
 * where its run of drafting began, -1 none (model_seq_r0). Whole pages that the
 * index has already replace the session's own. -ENOMEM: what was done stays. */
int prefix_put(struct prefix *p, uint64_t salt, struct session *s, int n,
               int r0);
/* A checkpoint at n tokens that are indexed, with the vectors (may be NULL).
 * False: it cannot be taken up there, a page is missing. */
bool prefix_mark(struct prefix *p, uint64_t salt, const int32_t *ids, int n,
                 const void *aux);
/* Forgets the checkpoint at n tokens; the pages stay as long as they may. */
void prefix_unmark(struct prefix *p, uint64_t salt, const int32_t *ids, int n);
/* Whether there is one. */
bool prefix_marked(const struct prefix *p, uint64_t salt, const int32_t *ids,
                   int n);

/* Holds what is needed to take up at n tokens; 0, -ENOENT: it cannot be, or
 * -ENOMEM. */
int prefix_pin(struct prefix *p, uint64_t salt, const int32_t *ids, int n,
               struct prefix_pin **ret);
void prefix_unpin(struct prefix *p, struct prefix_pin *pin); /* NULL is fine */
/* Pages that the pin alone would hold, if there were no other. */
int prefix_pin_pages(const struct prefix_pin *pin, enum model_group g);
/* Which absolute page the first of them is; the pages, in order. */
int prefix_pin_first(const struct prefix_pin *pin, enum model_group g);
void prefix_pin_list(const struct prefix_pin *pin, enum model_group g,
                     int32_t *ret);
/* The vectors there, NULL: none. Until the index is next changed. */
const void *prefix_pin_aux(const struct prefix_pin *pin);

/* Frees pages of the group until want are free in the pool; false: it could
 * not. */
bool prefix_evict(struct prefix *p, enum model_group g, int want);
/* Of the domain's pages that are nobody's but the index's at most so many stay,
 * those used last. */
void prefix_trim(struct prefix *p, uint64_t salt, enum model_group g, int keep);
/* Whether the page has no owner but the index and one other, and may be left to
 * that one. */
bool prefix_may_leave(const struct prefix *p, enum model_group g, int32_t page);
void prefix_leave(struct prefix *p, enum model_group g, int32_t page);
bool prefix_holds(const struct prefix *p, enum model_group g, int32_t page);

void prefix_counts(const struct prefix *p, struct prefix_counts *ret);

#endif
