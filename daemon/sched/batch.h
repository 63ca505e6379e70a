/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_BATCH_H
#define STEPD_DAEMON_SCHED_BATCH_H

/*
 * THE POLICY: who gets rows in the next step, who gets pages, who must give
 * them back. Pure functions of numbers: no clock, no model, no memory but the
 * plan's own arrays.
 *
 * Words. A request is waiting or running; a running one has a seat (a model
 * sequence) and pages. It is in prefill while more than one of its known
 * tokens is not in the cache, and decodes when exactly one is.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sched/session.h"

/* ---- time to rows ---- */

/* A step of n rows takes about base + n * row; learnt from the steps that
 * ran, older ones counting less and less. Zeroed: nothing known. */
struct batch_rate {
    double n, rows, ms, rows2, rows_ms; /* decayed sums */
};
void batch_rate_add(struct batch_rate *r, int rows, double ms);
void batch_rate_get(const struct batch_rate *r, double *ret_base_ms,
                    double *ret_row_ms);
/* Rows that fit into ms: at least 1, at most max. */
int batch_rows(const struct batch_rate *r, double ms, int max);

/* ---- shares ---- */

/* A (uid, tenant) and the rows it has been given, as a virtual time: the one
 * who is furthest behind goes first. */
struct batch_owner {
    int64_t served;
};
/* Where one owner may not have the whole pool: pages that he may take more, and
 * what one request of his could have alone. Pages that two requests of his
 * share count once. */
struct batch_own {
    int free[MODEL_N_GROUPS];
    int all[MODEL_N_GROUPS];
};
/* What `served` of an owner becomes when it gets its first live request: time
 * in which it asked for nothing earns it no more than one step's rows. least:
 * the smallest `served` of the other live owners. */
int64_t batch_owner_wakes(int64_t served, int64_t least, int soft_rows);

/* ---- the plan ---- */

struct batch_req {
    int owner;        /* index into batch_args.owner */
    int priority;     /* higher first */
    uint64_t arrival; /* lower is earlier; kept through pre-emption */
    bool running;
    bool paused;              /* takes no rows; may lose its pages to others */
    int n_tokens;             /* tokens known */
    int committed;            /* of them in the cache; 0 when waiting */
    int n_draft;              /* drafts that may be verified in this step */
    uint64_t last_step;       /* when it last had rows */
    int held[MODEL_N_GROUPS]; /* pages that it can go on with */
    int shared[MODEL_N_GROUPS]; /* of them not free when it gives them up */
};

/* Prompts that keep nobody waiting are read in larger steps, in which more rows
 * share the weights of an expert: 512 rows in steps of 64 take 1.22 times as
 * long as in one, of 192 1.06 (model B of bench-model). A newcomer meets one
 * such step at most. */
#define BATCH_LONE 4

struct batch_args {
    const struct batch_req *req;
    int n_req;
    const struct batch_owner *owner;
    const struct batch_own *own; /* [n_owners]; NULL: no limit but the pool */
    int n_owners;
    const struct session_geometry *geo;
    int free_pages[MODEL_N_GROUPS];
    int all_pages[MODEL_N_GROUPS]; /* that one alone could have */
    int max_seats;
    int max_rows;  /* rows a step can have at all */
    int soft_rows; /* by the target time of a step */
    int hard_rows; /* by twice that */
    int lone_rows; /* by BATCH_LONE times that: where nobody decodes */
    int chunk;     /* tests: prefill in pieces of just this size; 0 = by time */
    uint64_t step;
};

struct batch_pick {
    int req;
    int n_rows;  /* sure rows from `committed` on */
    int n_draft; /* and drafts after them */
};

/* Result and scratch. Do the evictions first, then start and reserve the
 * picks in any order: the pages are there. */
struct batch_plan {
    struct batch_pick *pick;
    int n_picks;
    int *evict; /* running requests that give up seat and pages */
    int n_evicts;
    int n_rows; /* in all, drafts included */
    int max_req, max_owners;
    struct batch_work *work;
};
int batch_plan_create(struct batch_plan **ret, int max_req, int max_owners);
void batch_plan_destroy(struct batch_plan *p);

void batch_plan(const struct batch_args *a, struct batch_plan *ret);

#endif
