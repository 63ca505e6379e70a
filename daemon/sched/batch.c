/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The scheduling policy (design.md 4.2), as pure functions. Engine thread in
 * the daemon, but nothing here knows of threads, clocks, models or bytes.
 *
 * A plan is made in three passes over the rows of a step: decoding requests
 * first (their row is what somebody waits for), then prefill with what is left
 * of the target time, then the decoding ones that were held back for prefill
 * which did not come. Two row budgets: soft is the target, hard is twice that
 * and never passed while anyone decodes; where nobody does, they are larger
 * (BATCH_LONE). Prefill always gets a little, so that a host full of decoding
 * requests still lets the next one in.
 *
 * The invariants: nothing is picked whose pages are not there; the oldest
 * running request is never evicted and may evict all others, so it always
 * advances (no livelock); a request that cannot get pages keeps what it has
 * and waits: pages are taken from somebody only for somebody who comes before
 * him, and only if that is enough. Where an owner has all that one may have,
 * only his own give way, by the same rules: among them the first one always
 * advances, and nobody else waits for that.
 */

#include "daemon/sched/batch.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

/* The share of the target that prefill gets though decoding fills it. */
#define PREFILL_SHARE 4
/* Pages, more than there are; half of them may come back. */
#define NO_LIMIT (INT_MAX / 2)
/* How much an older measurement counts when a new one comes. */
#define RATE_KEEP 0.9
/* And how much where a step took far longer than was expected of it: what was
 * measured before, in larger steps above all, would be believed for too long.
 */
#define RATE_KEEP_SLOWER 0.5
#define RATE_SLOWER 1.5

struct state {
    bool seated;  /* running and not evicted, or admitted by this plan */
    bool evicted; /* by this plan */
    bool doomed;  /* would be evicted by the room that is being made */
    bool blocked; /* got nothing; not asked again in this plan */
    int rows, drafts;
    int got[MODEL_N_GROUPS]; /* pages beyond held */
};

struct batch_work {
    const struct batch_args *a;
    struct state *st; /* [max_req] */
    int *order;       /* [max_req] decoding requests, who goes first */
    int *doom;        /* [max_req] */
    int64_t *served;  /* [max_owners] this plan's rows included */
    int *seats_of;    /* [max_owners] */
    bool *no_seat;    /* [max_owners] nothing of it can be admitted */
    int n_order;
    int free[MODEL_N_GROUPS];
    int (
        *own)[MODEL_N_GROUPS]; /* [max_owners] as free, under the owner's cap */
    int seats;
    int oldest; /* running, not paused; -1 none */
    int soft, hard, rows;
    int page_priority; /* up to this one nothing more is admitted */
};

/* ---- time to rows -------------------------------------------------------- */

void batch_rate_add(struct batch_rate *r, int rows, double ms)
{
    double x = rows, base, row, keep = RATE_KEEP;

    batch_rate_get(r, &base, &row);
    if (r->n > 0 && ms > RATE_SLOWER * (base + row * x)) {
        keep = RATE_KEEP_SLOWER;
    }
    r->n = r->n * keep + 1;
    r->rows = r->rows * keep + x;
    r->ms = r->ms * keep + ms;
    r->rows2 = r->rows2 * keep + x * x;
    r->rows_ms = r->rows_ms * keep + x * ms;
}

/* A straight line through the steps. Where they were all of one size, or the
 * line makes no sense, all of the time is charged to the rows: that errs to
 * smaller steps, whose times then tell the two apart. */
void batch_rate_get(const struct batch_rate *r, double *ret_base_ms,
                    double *ret_row_ms)
{
    double base = 0, row = 0;

    if (r->n > 0 && r->rows > 0) {
        double mean = r->ms / r->rows;
        double spread = r->n * r->rows2 - r->rows * r->rows;

        row = mean;
        if (spread > 1e-6 * r->n * r->rows2) {
            row = (r->n * r->rows_ms - r->rows * r->ms) / spread;
            row = row < 0.01 * mean ? 0.01 * mean : row;
            row = row > mean ? mean : row;
            base = (r->ms - row * r->rows) / r->n;
        }
    }
    *ret_base_ms = base;
    *ret_row_ms = row;
}

int batch_rows(const struct batch_rate *r, double ms, int max)
{
    double base, row, n;

    batch_rate_get(r, &base, &row);
    if (row <= 0) {
        /* Nothing known yet: one page. */
        n = MODEL_PAGE_TOK;
    } else {
        n = (ms - base) / row;
    }
    if (n >= max) {
        return max;
    }
    return n < 1 ? 1 : (int)n;
}

int64_t batch_owner_wakes(int64_t served, int64_t least, int soft_rows)
{
    return served > least - soft_rows ? served : least - soft_rows;
}

/* ---- memory -------------------------------------------------------------- */

int batch_plan_create(struct batch_plan **ret, int max_req, int max_owners)
{
    struct batch_plan *p = xcalloc(1, sizeof(*p));
    struct batch_work *w = xcalloc(1, sizeof(*w));
    size_t n = (size_t)max_req + 1, m = (size_t)max_owners + 1;

    p->work = w;
    p->max_req = max_req;
    p->max_owners = max_owners;
    p->pick = calloc(n, sizeof(*p->pick));
    p->evict = calloc(n, sizeof(*p->evict));
    w->st = calloc(n, sizeof(*w->st));
    w->order = calloc(n, sizeof(*w->order));
    w->doom = calloc(n, sizeof(*w->doom));
    w->served = calloc(m, sizeof(*w->served));
    w->seats_of = calloc(m, sizeof(*w->seats_of));
    w->no_seat = calloc(m, sizeof(*w->no_seat));
    w->own = calloc(m, sizeof(*w->own));
    if (p->pick == NULL || p->evict == NULL || w->st == NULL ||
        w->order == NULL || w->doom == NULL || w->served == NULL ||
        w->seats_of == NULL || w->no_seat == NULL || w->own == NULL) {
        batch_plan_destroy(p);
        return -ENOMEM;
    }
    *ret = p;
    return 0;
}

void batch_plan_destroy(struct batch_plan *p)
{
    if (p == NULL) {
        return;
    }
    free(p->work->st);
    free(p->work->order);
    free(p->work->doom);
    free(p->work->served);
    free(p->work->seats_of);
    free(p->work->no_seat);
    free(p->work->own);
    free(p->work);
    free(p->pick);
    free(p->evict);
    free(p);
}

/* ---- pages and seats ----------------------------------------------------- */

static int left_of(const struct batch_req *q)
{
    return q->n_tokens - q->committed;
}

static bool decodes(const struct batch_req *q)
{
    return q->running && left_of(q) == 1;
}

/* Pages that request i lacks for rows up to upto-1. */
static int lacks(const struct batch_work *w, int i, enum model_group g,
                 int upto)
{
    const struct batch_req *q = &w->a->req[i];
    int first, end, n;

    session_span(w->a->geo, g, q->committed, upto, &first, &end);
    n = end - first - q->held[g] - w->st[i].got[g];
    return n > 0 ? n : 0;
}

/* Pages that a request in prefill has yet to ask for: newcomers may not take
 * them, or two half-computed prompts would throw each other out in turn. */
static int promised(const struct batch_work *w, int i, enum model_group g)
{
    const struct batch_req *q = &w->a->req[i];
    int n;

    if (!w->st[i].seated || w->st[i].doomed || q->paused || decodes(q)) {
        return 0;
    }
    n = session_most(w->a->geo, g, q->n_tokens) - q->held[g] - w->st[i].got[g];
    return n > 0 ? n : 0;
}

/* May i take the seat and pages of j? */
static bool may_evict(const struct batch_work *w, int i, int j)
{
    const struct batch_req *a = &w->a->req[i], *b = &w->a->req[j];

    if (i == j || j == w->oldest || !w->st[j].seated || w->st[j].doomed) {
        return false;
    }
    if (b->paused || i == w->oldest) {
        return true;
    }
    if (a->priority != b->priority) {
        return a->priority > b->priority;
    }
    if (w->st[i].seated) {
        return a->arrival < b->arrival;
    }
    /* A newcomer, of an owner who has at least two seats less. */
    return w->seats_of[b->owner] > w->seats_of[a->owner] + 1;
}

/* Whose pages go first: who reads too slowly, then the lowest priority, then
 * the latest. */
static bool goes_before(const struct batch_req *a, const struct batch_req *b)
{
    if (a->paused != b->paused) {
        return a->paused;
    }
    if (a->priority != b->priority) {
        return a->priority < b->priority;
    }
    return a->arrival > b->arrival;
}

static bool same_owner(const struct batch_work *w, int i, int j)
{
    return w->a->req[i].owner == w->a->req[j].owner;
}

/* own: of i's owner. */
static int victim(const struct batch_work *w, int i, bool own)
{
    int v = -1;

    for (int j = 0; j < w->a->n_req; j++) {
        if (may_evict(w, i, j) && (!own || same_owner(w, i, j)) &&
            (v < 0 || goes_before(&w->a->req[j], &w->a->req[v]))) {
            v = j;
        }
    }
    return v;
}

static void evict(struct batch_work *w, struct batch_plan *p, int j)
{
    const struct batch_req *q = &w->a->req[j];
    struct state *s = &w->st[j];

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        w->free[g] += q->held[g] - q->shared[g] + s->got[g];
        w->own[q->owner][g] += q->held[g] - q->shared[g] + s->got[g];
        s->got[g] = 0;
    }
    w->seats++;
    w->rows -= s->rows + s->drafts;
    w->served[q->owner] -= s->rows + s->drafts;
    s->rows = s->drafts = 0;
    s->seated = s->doomed = false;
    s->evicted = s->blocked = true;
    if (q->running) {
        p->evict[p->n_evicts++] = j;
    }
}

static bool enough(const int have[MODEL_N_GROUPS],
                   const int need[MODEL_N_GROUPS])
{
    return have[MODEL_FULL] >= need[MODEL_FULL] &&
           have[MODEL_SLIDING] >= need[MODEL_SLIDING];
}

/* Pages that others share are nobody's when all of them are gone: whether all
 * that there are will do for i, which has them for itself then. */
static bool all_is_enough(const struct batch_work *w, int i,
                          const int all[MODEL_N_GROUPS],
                          const int need[MODEL_N_GROUPS],
                          int have[MODEL_N_GROUPS])
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int n = all[g] - w->a->req[i].held[g] - w->st[i].got[g];

        have[g] = n > have[g] ? n : have[g];
    }
    return enough(have, need);
}

/* Nobody else of its owner has a seat. */
static bool is_alone(const struct batch_work *w, int i)
{
    for (int j = 0; j < w->a->n_req; j++) {
        if (j != i && same_owner(w, i, j) && w->st[j].seated &&
            !w->st[j].doomed) {
            return false;
        }
    }
    return true;
}

/* What it takes to let i go on, and what there would be. */
struct claim {
    int i;
    bool seat;                /* wanted, too */
    int need[MODEL_N_GROUPS]; /* pages of the pool */
    int need_own[MODEL_N_GROUPS];
    int have[MODEL_N_GROUPS], have_own[MODEL_N_GROUPS];
    int seats;
    int n_doomed; /* the first of w->doom */
};

static void doom(struct batch_work *w, struct claim *c, int j)
{
    const struct batch_req *q = &w->a->req[j];

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int n = q->held[g] - q->shared[g] + w->st[j].got[g];

        n += c->seat ? promised(w, j, g) : 0;
        c->have[g] += n;
        c->have_own[g] += same_owner(w, c->i, j) ? n : 0;
    }
    c->seats++;
    w->st[j].doomed = true;
    w->seats_of[q->owner]--;
    w->doom[c->n_doomed++] = j;
}

static bool claim_own(struct batch_work *w, struct claim *c)
{
    const struct batch_own *own = w->a->own;
    int j;

    while (!enough(c->have_own, c->need_own)) {
        j = victim(w, c->i, true);
        if (j < 0) {
            return own != NULL && is_alone(w, c->i) &&
                   all_is_enough(w, c->i, own[w->a->req[c->i].owner].all,
                                 c->need_own, c->have_own);
        }
        doom(w, c, j);
    }
    return true;
}

static bool claim_pool(struct batch_work *w, struct claim *c)
{
    int j;

    while (!enough(c->have, c->need) || (c->seat && c->seats == 0)) {
        j = victim(w, c->i, false);
        if (j < 0) {
            return c->i == w->oldest &&
                   all_is_enough(w, c->i, w->a->all_pages, c->need, c->have);
        }
        doom(w, c, j);
    }
    return true;
}

enum lack { LACKS_NOTHING, LACKS_POOL, LACKS_OWN };

/* Evicts as many as it takes until the pages, and a seat if wanted, are free
 * for i; nobody where even all whom it may evict are not enough. */
static enum lack make_room(struct batch_work *w, struct batch_plan *p,
                           struct claim *c)
{
    int owner = w->a->req[c->i].owner;
    enum lack lack = LACKS_NOTHING;

    memcpy(c->have, w->free, sizeof(c->have));
    memcpy(c->have_own, w->own[owner], sizeof(c->have_own));
    c->seats = w->seats;
    c->n_doomed = 0;
    if (!claim_own(w, c)) {
        lack = LACKS_OWN;
    } else if (!claim_pool(w, c)) {
        lack = LACKS_POOL;
    }
    for (int k = 0; k < c->n_doomed; k++) {
        if (lack == LACKS_NOTHING) {
            evict(w, p, w->doom[k]);
        } else {
            w->st[w->doom[k]].doomed = false;
            w->seats_of[w->a->req[w->doom[k]].owner]++;
        }
    }
    for (int g = 0; lack == LACKS_NOTHING && g < MODEL_N_GROUPS; g++) {
        /* Pages of several that went, counted for none of them. */
        if (c->i == w->oldest && c->have[g] > w->free[g]) {
            w->free[g] = c->have[g];
        }
        if (!c->seat && c->have_own[g] > w->own[owner][g]) {
            w->own[owner][g] = c->have_own[g];
        }
    }
    return lack;
}

static bool fits(const struct batch_work *w, int i, int upto)
{
    const int need[MODEL_N_GROUPS] = {
        [MODEL_FULL] = lacks(w, i, MODEL_FULL, upto),
        [MODEL_SLIDING] = lacks(w, i, MODEL_SLIDING, upto),
    };

    return enough(w->free, need) && enough(w->own[w->a->req[i].owner], need);
}

/* Pages for i up to upto-1, from others if need be. */
static bool take(struct batch_work *w, struct batch_plan *p, int i, int upto)
{
    struct claim c = {.i = i};

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        c.need[g] = c.need_own[g] = lacks(w, i, g, upto);
    }
    if (make_room(w, p, &c) != LACKS_NOTHING) {
        return false;
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        w->free[g] -= c.need[g];
        w->own[w->a->req[i].owner][g] -= c.need[g];
        w->st[i].got[g] += c.need[g];
    }
    return true;
}

/* A seat for a waiting request, and the certainty that its known tokens have
 * room beside what is promised to others. */
static bool admit(struct batch_work *w, struct batch_plan *p, int i)
{
    const struct batch_req *q = &w->a->req[i];
    struct claim c = {.i = i, .seat = true};
    enum lack lack;

    if (q->priority <= w->page_priority || w->no_seat[q->owner]) {
        return false;
    }
    if (w->seats == 0 && victim(w, i, false) < 0) {
        w->no_seat[q->owner] = true;
        return false;
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        c.need[g] = c.need_own[g] = session_most(w->a->geo, g, q->n_tokens);
        for (int j = 0; j < w->a->n_req; j++) {
            int n = promised(w, j, g);

            c.need[g] += n;
            c.need_own[g] += same_owner(w, i, j) ? n : 0;
        }
    }
    lack = make_room(w, p, &c);
    if (lack == LACKS_OWN) {
        w->no_seat[q->owner] = true;
        return false;
    }
    if (lack == LACKS_POOL) {
        /* Smaller ones behind it must not keep it out for ever. */
        w->page_priority = q->priority;
        return false;
    }
    w->seats--;
    w->seats_of[q->owner]++;
    w->st[i].seated = true;
    if (w->oldest < 0) {
        w->oldest = i;
    }
    return true;
}

/* ---- rows ---------------------------------------------------------------- */

static void give(struct batch_work *w, int i, int rows, int drafts)
{
    w->st[i].rows += rows;
    w->st[i].drafts += drafts;
    w->rows += rows + drafts;
    w->served[w->a->req[i].owner] += rows + drafts;
}

/* Higher priority, then who has had less, then who has waited longer for a
 * row, then who came first. */
static int by_turn(const void *pa, const void *pb, void *ctx)
{
    const struct batch_work *w = ctx;
    const struct batch_req *a = &w->a->req[*(const int *)pa];
    const struct batch_req *b = &w->a->req[*(const int *)pb];
    int64_t sa = w->a->owner[a->owner].served;
    int64_t sb = w->a->owner[b->owner].served;

    if (a->priority != b->priority) {
        return a->priority > b->priority ? -1 : 1;
    }
    if (sa != sb) {
        return sa < sb ? -1 : 1;
    }
    if (a->last_step != b->last_step) {
        return a->last_step < b->last_step ? -1 : 1;
    }
    return a->arrival < b->arrival ? -1 : a->arrival > b->arrival;
}

static void decode_pass(struct batch_work *w, struct batch_plan *p, int limit)
{
    for (int k = 0; k < w->n_order; k++) {
        int i = w->order[k];
        const struct batch_req *q = &w->a->req[i];
        int n = 1 + q->n_draft;

        if (w->st[i].rows > 0 || w->st[i].evicted || w->rows >= limit) {
            continue;
        }
        if (n > limit - w->rows) {
            n = limit - w->rows;
        }
        /* Nobody is evicted for the sake of a guess. */
        while (n > 1 && !fits(w, i, q->committed + n)) {
            n--;
        }
        if (take(w, p, i, q->committed + n)) {
            give(w, i, 1, n - 1);
        }
    }
}

/* Who is next in prefill, -1 nobody. */
static int next_prefill(const struct batch_work *w)
{
    int best = -1;

    for (int i = 0; i < w->a->n_req; i++) {
        const struct batch_req *q = &w->a->req[i], *b;
        const struct state *s = &w->st[i];

        if (q->paused || s->blocked || decodes(q) || s->rows >= left_of(q) ||
            (w->a->chunk > 0 && s->rows >= w->a->chunk)) {
            continue;
        }
        if (best < 0) {
            best = i;
            continue;
        }
        b = &w->a->req[best];
        if (q->priority != b->priority) {
            best = q->priority > b->priority ? i : best;
        } else if (w->served[q->owner] != w->served[b->owner]) {
            best = w->served[q->owner] < w->served[b->owner] ? i : best;
        } else {
            best = q->arrival < b->arrival ? i : best;
        }
    }
    return best;
}

/* The next piece of i's prompt: to the end of a page or of the prompt where
 * that fits under the hard limit, else what is left of the soft one. Owners
 * take turns by such pieces. */
static int piece(const struct batch_work *w, int i, int soft_left)
{
    const struct batch_req *q = &w->a->req[i];
    int at = q->committed + w->st[i].rows;
    int n = q->n_tokens - at;
    int page = MODEL_PAGE_TOK - at % MODEL_PAGE_TOK;

    if (w->a->chunk > 0) {
        int chunk = w->a->chunk - w->st[i].rows;

        n = n < chunk ? n : chunk;
        return n < w->hard - w->rows ? n : w->hard - w->rows;
    }
    n = n < page ? n : page;
    return n <= w->hard - w->rows ? n : soft_left;
}

static void prefill_pass(struct batch_work *w, struct batch_plan *p, int soft)
{
    int end = w->rows + soft;
    int i;

    end = end < w->hard ? end : w->hard;
    while (w->rows < end && (i = next_prefill(w)) >= 0) {
        int at = w->a->req[i].committed + w->st[i].rows;
        int n;

        if (!w->st[i].seated && !admit(w, p, i)) {
            w->st[i].blocked = true;
            continue;
        }
        n = piece(w, i, end - w->rows);
        if (w->st[i].rows > 0 && !fits(w, i, at + n)) {
            w->st[i].blocked = true; /* nobody is evicted for a longer chunk */
            continue;
        }
        if (!take(w, p, i, at + n)) {
            while (n > 0 && !fits(w, i, at + n)) {
                n--;
            }
            n = n > 1 ? n : 1;
            if (!take(w, p, i, at + n)) {
                w->st[i].blocked = true;
                continue;
            }
        }
        give(w, i, n, 0);
    }
}

/* ---- the plan ------------------------------------------------------------ */

/* The row budgets. Where nobody decodes the soft one is that of lone prompts,
 * and the hard one leaves room for the end of a page. */
static void budget(struct batch_work *w)
{
    const struct batch_args *a = w->a;

    w->soft = a->soft_rows;
    w->hard = a->hard_rows;
    if (w->n_order == 0 && a->lone_rows > w->soft) {
        w->soft = a->lone_rows;
        w->hard =
            w->soft + (w->soft < MODEL_PAGE_TOK ? w->soft : MODEL_PAGE_TOK);
    }
    if (a->chunk > 0) {
        w->soft = w->hard = a->max_rows;
    }
    w->hard = w->hard < a->max_rows ? w->hard : a->max_rows;
    w->soft = w->soft < w->hard ? w->soft : w->hard;
    BUG_ON(w->soft < 1);
}

static void start(struct batch_work *w, const struct batch_args *a)
{
    w->a = a;
    memset(w->st, 0, (size_t)a->n_req * sizeof(*w->st));
    memset(w->seats_of, 0, (size_t)a->n_owners * sizeof(*w->seats_of));
    memset(w->no_seat, 0, (size_t)a->n_owners * sizeof(*w->no_seat));
    memcpy(w->free, a->free_pages, sizeof(w->free));
    for (int o = 0; o < a->n_owners; o++) {
        w->served[o] = a->owner[o].served;
        for (int g = 0; g < MODEL_N_GROUPS; g++) {
            w->own[o][g] = a->own != NULL ? a->own[o].free[g] : NO_LIMIT;
        }
    }
    w->seats = a->max_seats;
    w->rows = w->n_order = 0;
    w->oldest = -1;
    w->page_priority = INT_MIN;
    for (int i = 0; i < a->n_req; i++) {
        const struct batch_req *q = &a->req[i];

        if (!q->running) {
            continue;
        }
        w->seats--;
        w->seats_of[q->owner]++;
        w->st[i].seated = true;
        if (q->paused) {
            continue;
        }
        if (w->oldest < 0 || q->arrival < a->req[w->oldest].arrival) {
            w->oldest = i;
        }
        if (decodes(q)) {
            w->order[w->n_order++] = i;
        }
    }
    qsort_r(w->order, (size_t)w->n_order, sizeof(*w->order), by_turn, w);
    budget(w);
}

/* Rows kept free of decoding for prefill. An owner who is behind all those
 * that decode, or a higher priority, gets what it would get alone. */
static int prefill_least(const struct batch_work *w)
{
    int i = next_prefill(w);
    const struct batch_req *q = i < 0 ? NULL : &w->a->req[i];
    int left = q == NULL ? 0 : left_of(q);
    bool owed = true;

    if (q == NULL || w->n_order == 0) {
        return left < w->soft ? left : w->soft;
    }
    for (int k = 0; k < w->n_order && owed; k++) {
        const struct batch_req *d = &w->a->req[w->order[k]];

        owed = q->priority > d->priority ||
               (q->priority == d->priority &&
                w->served[q->owner] < w->served[d->owner]);
    }
    if (!owed && left > (w->soft + PREFILL_SHARE - 1) / PREFILL_SHARE) {
        left = (w->soft + PREFILL_SHARE - 1) / PREFILL_SHARE;
    }
    return left < w->soft ? left : w->soft;
}

void batch_plan(const struct batch_args *a, struct batch_plan *ret)
{
    struct batch_work *w = ret->work;
    int least, limit, soft;

    BUG_ON(a->n_req > ret->max_req || a->n_owners > ret->max_owners);
    ret->n_picks = ret->n_evicts = 0;
    start(w, a);
    least = prefill_least(w);
    limit = w->hard - least;
    if (limit < 1) {
        /* One row is all there is time for: turn and turn about. */
        limit = (int)(a->step & 1);
    }
    decode_pass(w, ret, limit);
    soft = w->soft - w->rows;
    prefill_pass(w, ret, soft > least ? soft : least);
    decode_pass(w, ret, w->hard);

    for (int i = 0; i < a->n_req; i++) {
        if (w->st[i].rows > 0) {
            ret->pick[ret->n_picks++] = (struct batch_pick){
                .req = i,
                .n_rows = w->st[i].rows,
                .n_draft = w->st[i].drafts,
            };
        }
    }
    ret->n_rows = w->rows;
    w->a = NULL;
}
