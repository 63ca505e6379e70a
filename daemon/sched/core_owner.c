/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * What one (uid, tenant) may hold of the KV cache: kv_share_per_owner of the
 * pages of each group. Engine thread only; owns nothing but scratch.
 *
 * An owner's pages are those of his running requests, of his pinned sessions,
 * of saves and restores of his that run, each counted once, and what the prefix
 * index has of his besides. The last give way first (prefix_trim), then his own
 * requests do, by the planner's rules (struct batch_own). With
 * share_prefix_cache what is cached is everybody's, and counts for nobody.
 *
 * The invariant: what is admitted fits under the cap beside the owner's pins,
 * whatever else he asks for, and pins that would change this are refused. So
 * his first request always advances.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/sched/core_priv.h"

int core_owner_create(struct core *c, int n_owners)
{
    double share = c->conf.kv_share_per_owner;
    size_t most = 0;

    if (share <= 0 || share >= 1) {
        return 0;
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        size_t n = (size_t)kvpool_pages(c->pool, (enum model_group)g);
        int one = session_most(&c->geo, (enum model_group)g, c->geo.max_len);

        c->cap[g] = (int)(share * (double)n);
        /* The sliding pages of one request: none could run with less. */
        if (g == MODEL_SLIDING && c->cap[g] < one) {
            c->cap[g] = one;
        }
        most = n > most ? n : most;
        c->seen[g] = calloc(n + 1, sizeof(*c->seen[g]));
        if (c->seen[g] == NULL) {
            return -ENOMEM;
        }
    }
    c->list = calloc(most + 1, sizeof(*c->list));
    c->own = calloc((size_t)n_owners, sizeof(*c->own));
    return c->own == NULL || c->list == NULL ? -ENOMEM : 0;
}

void core_owner_destroy(struct core *c)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        free(c->seen[g]);
    }
    free(c->list);
    free(c->own);
}

/* ---- counting ------------------------------------------------------------ */

bool core_is_of(const struct core_owner *o, uint32_t uid, const char *tenant)
{
    return o->uid == uid && strcmp(o->tenant, tenant) == 0;
}

void core_see(struct core *c, enum model_group g, const int32_t *page, int n,
              int *sum)
{
    for (int i = 0; i < n; i++) {
        if (page[i] >= 0 && c->seen[g][page[i]] != c->look) {
            c->seen[g][page[i]] = c->look;
            (*sum)++;
        }
    }
}

void core_see_pin(struct core *c, const struct prefix_pin *pin,
                  int sum[MODEL_N_GROUPS])
{
    for (int i = 0; pin != NULL && i < MODEL_N_GROUPS; i++) {
        enum model_group g = (enum model_group)i;

        prefix_pin_list(pin, g, c->list);
        core_see(c, g, c->list, prefix_pin_pages(pin, g), &sum[g]);
    }
}

/* The pages that his sessions pin. A new count begins. */
static void see_pins(struct core *c, const struct core_owner *o,
                     int sum[MODEL_N_GROUPS])
{
    c->look++;
    memset(sum, 0, MODEL_N_GROUPS * sizeof(*sum));
    for (const struct named *n = c->named.first; n != NULL; n = n->next) {
        if (core_is_of(o, n->uid, n->tenant)) {
            core_see_pin(c, n->pin, sum);
            core_see_pin(c, n->open_pin, sum);
        }
    }
}

void core_owner_holds(struct core *c, const struct core_owner *o,
                      int ret_fixed[MODEL_N_GROUPS], int ret[MODEL_N_GROUPS])
{
    see_pins(c, o, ret);
    core_see_saves(c, o, ret);
    memcpy(ret_fixed, ret, MODEL_N_GROUPS * sizeof(*ret));
    for (int i = 0; i < c->n_tasks; i++) {
        const struct task *t = c->task[i];

        for (int g = 0; g < MODEL_N_GROUPS; g++) {
            const struct session_pages *p = &t->session->group[g];

            if (core_is_of(o, t->job->uid, t->job->tenant)) {
                core_see(c, (enum model_group)g, p->page, p->n, &ret[g]);
            }
        }
    }
}

/* ---- the step ------------------------------------------------------------ */

/* Whether no task before it is of the same owner. */
static bool is_first(const struct core *c, int i)
{
    for (int k = 0; k < i; k++) {
        if (c->task[k]->owner == c->task[i]->owner) {
            return false;
        }
    }
    return true;
}

void core_count_owners(struct core *c)
{
    int fixed[MODEL_N_GROUPS], holds[MODEL_N_GROUPS];

    for (int i = 0; c->own != NULL && i < c->n_tasks; i++) {
        const struct job *j = c->task[i]->job;
        const struct core_owner o = {j->uid, j->tenant};
        struct batch_own *own = &c->own[c->task[i]->owner];

        if (!is_first(c, i)) {
            continue;
        }
        core_owner_holds(c, &o, fixed, holds);
        for (int g = 0; g < MODEL_N_GROUPS; g++) {
            /* Less than nothing while a save holds what had left. */
            own->free[g] = holds[g] < c->cap[g] ? c->cap[g] - holds[g] : 0;
            own->all[g] = c->cap[g] - fixed[g];
        }
    }
}

/* What the plan's rows take of one group for an owner: *ret_copies of it only
 * where there is room, for pages that the index has as well. */
static int takes(const struct core *c, int owner, enum model_group g,
                 int *ret_copies)
{
    int sum = 0;

    *ret_copies = 0;
    for (int i = 0; i < c->plan->n_picks; i++) {
        const struct batch_pick *k = &c->plan->pick[i];
        bool copy;

        if (c->task[k->req]->owner == owner) {
            sum += core_pick_takes(c, k, g, &copy);
            *ret_copies += copy;
        }
    }
    return sum;
}

void core_trim_owners(struct core *c)
{
    for (int i = 0; c->own != NULL && i < c->n_tasks; i++) {
        const struct task *t = c->task[i];

        for (int g = 0; g < MODEL_N_GROUPS && is_first(c, i); g++) {
            int copies, *left = &c->own[t->owner].free[g];

            *left -= takes(c, t->owner, (enum model_group)g, &copies);
            *left = *left < 0 ? 0 : *left;
            if (!c->conf.share_prefix_cache) {
                prefix_trim(c->prefix, t->salt, (enum model_group)g,
                            *left > copies ? *left - copies : 0);
            }
        }
    }
}

bool core_owner_may_copy(struct core *c, const struct task *t,
                         enum model_group g)
{
    int *left = c->own != NULL ? &c->own[t->owner].free[g] : NULL;

    if (left == NULL || *left == 0) {
        return left == NULL;
    }
    (*left)--;
    return true;
}

/* ---- admission, pins, restores ------------------------------------------- */

static bool fits(const struct core *c, int len, const int pinned[])
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        if (session_most(&c->geo, (enum model_group)g, len) + pinned[g] >
            c->cap[g]) {
            return false;
        }
    }
    return true;
}

int core_owner_longest(struct core *c, const struct job *j)
{
    const struct core_owner o = {j->uid, j->tenant};
    int lo = 0, hi = c->geo.max_len, pinned[MODEL_N_GROUPS];

    if (c->own == NULL) {
        return c->geo.max_len;
    }
    see_pins(c, &o, pinned);
    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;

        if (fits(c, mid, pinned)) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    return lo;
}

struct event *core_owner_refusal(struct core *c, const struct job *j)
{
    const struct core_owner o = {j->uid, j->tenant};
    static const int none[MODEL_N_GROUPS];
    int pinned[MODEL_N_GROUPS], len = j->n_ids + 1;
    bool never = !fits(c, len, none);
    struct event *e;

    see_pins(c, &o, pinned);
    e = event_error(j, never ? "too_long" : "busy",
                    "the prompt has %d tokens, that is %d pages of the KV "
                    "cache, and one %s may hold %d of %d (kv_share_per_owner), "
                    "%d of them pinned by sessions: %s",
                    j->n_ids, session_most(&c->geo, MODEL_FULL, len),
                    j->tenant[0] != '\0' ? "tenant" : "user",
                    c->cap[MODEL_FULL], kvpool_pages(c->pool, MODEL_FULL),
                    pinned[MODEL_FULL], never ? "shorten it" : "unpin some");
    e->retry_ms = never ? 0 : CORE_RETRY_MS;
    return e;
}

int core_owner_pin(struct core *c, const struct named *n, char *why,
                   size_t n_why)
{
    const struct core_owner o = {n->uid, n->tenant};
    int pinned[MODEL_N_GROUPS];

    if (c->own == NULL) {
        return 0;
    }
    see_pins(c, &o, pinned);
    for (int i = 0; i < c->n_tasks; i++) {
        const struct task *t = c->task[i];

        if (core_is_of(&o, t->job->uid, t->job->tenant) &&
            !fits(c, t->most, pinned)) {
            (void)snprintf(why, n_why,
                           "%d pages would be pinned, one user may hold %d "
                           "(kv_share_per_owner), and a request of his may "
                           "take %d",
                           pinned[MODEL_FULL], c->cap[MODEL_FULL],
                           session_most(&c->geo, MODEL_FULL, t->most));
            return -ENOSPC;
        }
    }
    return 0;
}

bool core_owner_room(struct core *c, const struct core_owner *o,
                     const uint32_t want[MODEL_N_GROUPS], bool *ret_never,
                     char *why, size_t n_why)
{
    int fixed[MODEL_N_GROUPS], holds[MODEL_N_GROUPS];

    if (c->own == NULL) {
        return true;
    }
    core_owner_holds(c, o, fixed, holds);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int left = c->cap[g] - holds[g];

        if ((int64_t)want[g] > left) {
            *ret_never = (int64_t)want[g] > c->cap[g] - fixed[g];
            (void)snprintf(why, n_why,
                           "%u pages are needed beside %d of this user's, who "
                           "may hold %d (kv_share_per_owner)",
                           want[g], holds[g], c->cap[g]);
            return false;
        }
    }
    for (int g = 0; g < MODEL_N_GROUPS && !c->conf.share_prefix_cache; g++) {
        prefix_trim(c->prefix, core_salt(c, o->uid, o->tenant),
                    (enum model_group)g, c->cap[g] - holds[g] - (int)want[g]);
    }
    return true;
}
