/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_TESTS_DAEMON_BATCH_SCENE_H
#define STEPD_TESTS_DAEMON_BATCH_SCENE_H

/*
 * A scene for the policy: requests written down by hand, for plans of
 * test_batch.c and lives of test_batch_sim.c.
 */

#include "tests/test.h"

#include <stdbool.h>

#include "daemon/sched/batch.h"

#define MAX_REQ 80
#define MAX_OWNERS 8

static const struct session_geometry geo = {
    .window = 64, .lookahead = 3, .max_len = 1024};

struct scene {
    struct batch_req req[MAX_REQ];
    struct batch_owner owner[MAX_OWNERS];
    struct batch_args a;
    struct batch_plan *plan;
};

static inline void scene_init(struct scene *s)
{
    memset(s, 0, sizeof(*s));
    assert_int_equal(batch_plan_create(&s->plan, MAX_REQ, MAX_OWNERS), 0);
    s->a = (struct batch_args){
        .req = s->req,
        .owner = s->owner,
        .n_owners = MAX_OWNERS,
        .geo = &geo,
        .free_pages = {1000, 1000},
        .max_seats = 16,
        .max_rows = 2048,
        .soft_rows = 256,
        .hard_rows = 512,
    };
}

static inline struct batch_req *add(struct scene *s, int n_tokens)
{
    struct batch_req *q = &s->req[s->a.n_req];

    *q = (struct batch_req){
        .arrival = (uint64_t)s->a.n_req,
        .n_tokens = n_tokens,
    };
    s->a.n_req++;
    return q;
}

static inline void hold(struct batch_req *q)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int first, end;

        session_span(&geo, g, q->committed, q->committed, &first, &end);
        q->held[g] = q->committed == 0 ? 0 : end - first;
    }
}

static inline struct batch_req *add_running(struct scene *s, int n_tokens,
                                            int committed)
{
    struct batch_req *q = add(s, n_tokens);

    q->running = true;
    q->committed = committed;
    hold(q);
    return q;
}

/* One that decodes. */
static inline struct batch_req *add_decoding(struct scene *s, int n_tokens)
{
    return add_running(s, n_tokens, n_tokens - 1);
}

static inline bool evicted(const struct scene *s, int req)
{
    for (int i = 0; i < s->plan->n_evicts; i++) {
        if (s->plan->evict[i] == req) {
            return true;
        }
    }
    return false;
}

#endif
