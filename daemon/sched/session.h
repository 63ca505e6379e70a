/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_SESSION_H
#define STEPD_DAEMON_SCHED_SESSION_H

/*
 * One token timeline and the KV pages that back it.
 *
 * ids[0 .. n_ids) are the tokens known so far. The first `committed` of them
 * have their KV in the pages; the newest drawn token never has. Pages lie at
 * absolute positions (slot s is in absolute page s / 64) in two groups:
 *
 *   full     every page from 0 on;
 *   sliding  from the page of slot committed - window + 1 on: nothing that the
 *            next row may look at is further back. The MTP layers live here
 *            too and run up to `lookahead` slots ahead of the last row.
 *
 * A request has a session of its own; a named session (prefix reuse, save and
 * restore, fork) is the same object kept longer, with pages shared by count.
 */

#include <stdint.h>

#include "daemon/sched/kvpool.h"

/* What the model's shape says about pages. */
struct session_geometry {
    int window;    /* tokens that a sliding row sees, itself included */
    int lookahead; /* MTP slots past the last row */
    int max_len;   /* tokens a sequence can have */
};

struct session_pages {
    int32_t *page; /* page[i] backs absolute page first + i */
    int n, cap, first;
};

struct session {
    struct kvpool *pool;
    struct session_geometry geo;
    int32_t *ids;
    int n_ids, cap_ids; /* cap leaves MODEL_MAX_DRAFTS of room past n_ids */
    int committed;
    struct session_pages group[MODEL_N_GROUPS];
};

/* Copies a page's bytes before it is written: copy-on-write. */
typedef int (*session_copy)(void *ctx, enum model_group g, int32_t dst,
                            int32_t src);

/* Starts with these tokens and no page. -ENOMEM. */
int session_create(struct session **ret, struct kvpool *pool,
                   const struct session_geometry *geo, const int32_t *ids,
                   int n_ids);
void session_destroy(struct session *s); /* drops its pages; NULL is fine */

int session_append(struct session *s, const int32_t *ids, int n);

/* Which absolute pages [*ret_first, *ret_end) must be there to compute the
 * rows committed .. upto-1. Pure. */
void session_span(const struct session_geometry *geo, enum model_group g,
                  int committed, int upto, int *ret_first, int *ret_end);
/* The most pages that a sequence may hold at any one time while it computes
 * rows up to upto-1 in chunks that end at page borders. Pure. */
int session_most(const struct session_geometry *geo, enum model_group g,
                 int upto);

/* Takes what is missing of that span, all of it or none: -ENOSPC, -ENOMEM. A
 * shared page that would be written is replaced by a copy (copy may be NULL
 * where nothing is ever shared). */
int session_reserve(struct session *s, int upto, session_copy copy, void *ctx);

/* The rows up to committed-1 are valid; sliding pages that fell out of the
 * window are dropped, and so are pages past what is committed. */
void session_commit(struct session *s, int committed);

/* Back to the first n tokens. -ERANGE where the sliding pages that this needs
 * are gone (nothing changes then): recompute from a checkpoint or from 0. */
int session_rewind(struct session *s, int n);

/* Gives up every page; the tokens stay, to be computed again. */
void session_release(struct session *s);

#endif
