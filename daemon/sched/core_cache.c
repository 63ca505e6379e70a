/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * What tasks take from the prefix index and leave in it. Engine thread only;
 * the index is core's, the pages are the pool's, the vectors come from the
 * model.
 *
 * A task puts whole pages in as it computes them, before they leave the window;
 * its last, half-filled page only where it stops: at the end of the prompt, at
 * the end of the answer, when it is cancelled or pre-empted. A page in the
 * index is read-only, so the next row after such a put copies that one page.
 *
 * The invariant: only committed tokens enter the index, and never those of a
 * task whose numbers were not finite.
 */

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/base/die.h"
#include "daemon/sched/core_priv.h"
#include "daemon/sched/score.h"

/* Written at once by core_touch: some milliseconds. */
#define TOUCH_BYTES ((size_t)4 << 20)

/* ---- domains ------------------------------------------------------------- */

uint64_t core_salt(const struct core *c, uint32_t uid, const char *tenant)
{
    char key[sizeof(uid) + JOB_MAX_TENANT];
    size_t n = strlen(tenant);

    if (c->conf.share_prefix_cache) {
        return 0;
    }
    BUG_ON(n > JOB_MAX_TENANT);
    memcpy(key, &uid, sizeof(uid));
    memcpy(key + sizeof(uid), tenant, n);
    return XXH3_64bits_withSeed(key, sizeof(uid) + n, c->salt_seed);
}

/* ---- taking -------------------------------------------------------------- */

/* The vectors of a run that began at r0 are those of a cold run. */
static bool is_pure(const struct core *c, int r0, int n)
{
    return r0 == 0 || (r0 > 0 && n - r0 > 3 * (c->geo.window - 1));
}

int core_take_up(struct core *c, struct task *t)
{
    struct session *s = t->session;
    const void *aux;
    int n;

    /* Rows that are asked about cannot be taken from anywhere. */
    if (c->conf.no_prefix_cache || score_wants(t->job)) {
        return 0;
    }
    n = prefix_take(c->prefix, t->salt, s, s->n_ids - 1,
                    core_draft_depth(c, t->job) != 0, &aux);
    if (n > 0 && model_seq_at(c->conf.model, t->seq, n, aux) < 0) {
        session_release(s);
        n = 0;
    }
    if (n >= 0) {
        t->n_kept = n - n % MODEL_PAGE_TOK;
    }
    /* What it finds of its own after a pre-emption was computed. */
    if (n >= 0 && t->n_cached < 0) {
        t->n_cached = n;
        c->counts.cached_tokens += (uint64_t)n;
    }
    return n;
}

/* ---- leaving ------------------------------------------------------------- */

static void put(struct core *c, struct task *t, int n)
{
    (void)prefix_put(c->prefix, t->salt, t->session, n,
                     model_seq_r0(c->conf.model, t->seq));
}

/* A checkpoint at n tokens, which are in the index; with the vectors where the
 * model can still tell them. */
static bool mark(struct core *c, struct task *t, int n)
{
    int r0 = model_seq_r0(c->conf.model, t->seq);
    bool have = is_pure(c, r0, n) &&
                model_seq_aux(c->conf.model, t->seq, n, c->aux) == 0;

    /* n of 1 would save nothing but BOS. */
    return n > 1 && prefix_mark(c->prefix, t->salt, t->session->ids, n,
                                have ? c->aux : NULL);
}

/* One too many when there will be one at n, too. An edit between two costs what
 * follows the first of them, and at the least what follows the second: the one
 * goes without which the quotient of both stays smallest. So the gaps grow from
 * the newest back, by about two, over a prompt of any length. */
static void thin_out(struct core *c, struct task *t, int n)
{
    int64_t end = (int64_t)n + c->geo.window, first = 0, second = 1;
    int out = -1;

    for (int i = 0; i < t->n_sparse; i++) {
        int64_t a = end - (i > 0 ? t->sparse[i - 1] : 0);
        int64_t b = end - (i + 1 < t->n_sparse ? t->sparse[i + 1] : n);

        if (out < 0 || a * second < first * b) {
            out = i;
            first = a;
            second = b;
        }
    }
    prefix_unmark(c->prefix, t->salt, t->session->ids, t->sparse[out]);
    t->n_sparse--;
    memmove(t->sparse + out, t->sparse + out + 1,
            (size_t)(t->n_sparse - out) * sizeof(t->sparse[0]));
}

static void mark_sparse(struct core *c, struct task *t, int n)
{
    int last = t->n_sparse > 0 ? t->sparse[t->n_sparse - 1] : 0;

    if (c->geo.window <= 0 || n % MODEL_PAGE_TOK != 0 ||
        n - last < c->geo.window || n < 2 * c->geo.window || !mark(c, t, n)) {
        return;
    }
    if (t->n_sparse == TASK_MAX_SPARSE) {
        thin_out(c, t, n);
    }
    t->sparse[t->n_sparse++] = n;
}

/* Where another request may begin like this one: with the same prompt, of
 * which at least one row must be left to compute; and where the next turn will
 * differ from this one, after `assistant\n`. */
void core_keep_prompt(struct core *c, struct task *t)
{
    int open = t->job->n_open;

    if (c->conf.no_prefix_cache || t->session->n_ids > t->n_prompt) {
        return;
    }
    put(c, t, t->n_prompt);
    t->n_kept = t->n_prompt;
    if (open > 0) {
        (void)mark(c, t, open);
    }
    if (open == 0 || open == t->n_prompt) {
        (void)mark(c, t, t->n_prompt - 1);
    }
}

void core_keep(struct core *c, struct task *t, int committed)
{
    int whole = committed - committed % MODEL_PAGE_TOK;

    if (c->conf.no_prefix_cache) {
        return;
    }
    if (whole > t->n_kept) {
        put(c, t, whole);
        t->n_kept = whole;
    }
    if (committed < t->n_prompt) {
        mark_sparse(c, t, committed);
    }
}

void core_keep_all(struct core *c, struct task *t)
{
    int n = t->session->committed;

    if (n > 0 && !t->spoilt && !c->conf.no_prefix_cache) {
        put(c, t, n);
        (void)mark(c, t, n);
    }
}

/* ---- memory -------------------------------------------------------------- */

/* Pages that one sequence of so many tokens and its open turn take. */
static int wanted_ready(const struct core *c, enum model_group g)
{
    int len = c->conf.kv_ready, n = kvpool_pages(c->pool, g), most;

    if (len <= 0) {
        return 0;
    }
    if (g == MODEL_FULL) {
        most = (len - 1) / MODEL_PAGE_TOK + 1;
    } else {
        most = 2 * session_most(&c->geo, g, len);
    }
    return most < n ? most : n;
}

bool core_touch(struct core *c)
{
    size_t bytes = 0;

    for (int i = 0; i < MODEL_N_GROUPS; i++) {
        enum model_group g = (enum model_group)i;
        int end = wanted_ready(c, g);

        /* The pool gives out the lowest ids first. What somebody has is there;
         * what nobody has may be overwritten. */
        while (c->touched[g] < end && bytes < TOUCH_BYTES) {
            int page = c->touched[g]++;

            if (kvpool_refs(c->pool, g, page) == 0) {
                (void)model_scrub_page(c->conf.model, g, page);
                bytes += model_page_bytes(c->conf.model, g);
            }
        }
    }
    return bytes >= TOUCH_BYTES;
}

/* ---- room ---------------------------------------------------------------- */

static int lacks(const struct session *s, enum model_group g, int upto)
{
    const struct session_pages *p = &s->group[g];
    int first, end;

    session_span(&s->geo, g, s->committed, upto, &first, &end);
    return end - (p->n > 0 ? p->first + p->n : first);
}

/* The page that the next row writes, where somebody else has it too; else -1.
 */
static int32_t shared_page(const struct core *c, const struct session *s,
                           enum model_group g)
{
    const struct session_pages *p = &s->group[g];
    int i = s->committed / MODEL_PAGE_TOK - p->first;

    return i >= 0 && i < p->n && kvpool_refs(c->pool, g, p->page[i]) > 1
               ? p->page[i]
               : -1;
}

int core_pages_held(const struct core *c, const struct session *s,
                    enum model_group g, int *ret_shared)
{
    const struct session_pages *p = &s->group[g];
    int32_t written = shared_page(c, s, g);
    int held = p->n;

    *ret_shared = 0;
    for (int i = 0; i < p->n; i++) {
        *ret_shared += kvpool_refs(c->pool, g, p->page[i]) > 1 &&
                       !prefix_may_leave(c->prefix, g, p->page[i]);
    }
    /* A shared page that will be written costs a fresh one, unless only the
     * index has it too: that lets go of it where pages are short. */
    if (written >= 0 && !prefix_may_leave(c->prefix, g, written)) {
        held--;
        (*ret_shared)--;
    }
    return held;
}

void core_count_room(struct core *c)
{
    struct prefix_counts n;

    prefix_counts(c->prefix, &n);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        c->room[g] = kvpool_free_pages(c->pool, g) + n.evictable[g];
        c->pinned[g] = n.pinned[g];
    }
}

int core_pick_takes(const struct core *c, const struct batch_pick *k,
                    enum model_group g, bool *ret_copy)
{
    const struct session *s = c->task[k->req]->session;
    int32_t page = shared_page(c, s, g);

    *ret_copy = page >= 0 && prefix_may_leave(c->prefix, g, page);
    return lacks(s, g, s->committed + k->n_rows + k->n_draft) +
           (page >= 0 && !*ret_copy);
}

void core_count_spare(struct core *c)
{
    bool copy;

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        c->spare[g] = c->room[g];
        for (int i = 0; i < c->plan->n_picks; i++) {
            c->spare[g] -= core_pick_takes(c, &c->plan->pick[i],
                                           (enum model_group)g, &copy);
        }
    }
}

void core_make_room(struct core *c, const struct task *t, int upto)
{
    const struct session *s = t->session;

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int32_t page = shared_page(c, s, g);
        int want = lacks(s, g, upto);

        if (page >= 0 && prefix_may_leave(c->prefix, g, page)) {
            if (c->spare[g] > 0 && core_owner_may_copy(c, t, g)) {
                c->spare[g]--;
                want++;
            } else {
                prefix_leave(c->prefix, g, page);
            }
        } else if (page >= 0) {
            want++;
        }
        BUG_ON(!prefix_evict(c->prefix, g, want));
    }
}
