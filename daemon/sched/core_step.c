/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The step: what the planner chose is seated, its pages are reserved, the model
 * computes, the tokens are delivered. Engine thread only.
 *
 * While the model computes it calls back between layers (engine.c's tick), and
 * tasks may end then: from begin() to apply() a task is held by its span
 * (in_step) and may be `ended` at any time. Task indices are good until the
 * model is called, task pointers until the sweep.
 *
 * The invariant: what the planner counted is what the sessions take. A page
 * that is not there is a fault of ours, not a state to handle.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/sched/core_priv.h"
#include "daemon/sched/score.h"

/* What counts in the moving average of step_ms. */
#define STEP_MS_KEEP 0.95

int core_draft_depth(const struct core *c, const struct job *j)
{
    if (j->drafts < 0 || (c->conf.drafts >= 0 && c->conf.drafts < j->drafts)) {
        return c->conf.drafts;
    }
    return j->drafts;
}

/* Drafts that the answer has no room for, or that may not be drawn, are not
 * verified. */
static void look_at_drafts(struct core *c, struct task *t)
{
    uint8_t limits[MODEL_MAX_DRAFTS + 1];
    int room = deliver_left(t->deliver) - 1;
    int n = 0;

    if (t->seq >= 0 && t->session->n_ids - t->session->committed == 1) {
        n = model_drafts(c->conf.model, t->seq, t->draft);
    }
    n = n < room ? n : room;
    t->n_draft = n;
    if (n > 0 && deliver_limits(t->deliver, t->draft, n, limits)) {
        for (int i = n - 1; i >= 0; i--) {
            if (!deliver_allows(t->deliver, limits[i], t->draft[i])) {
                t->n_draft = i;
            }
        }
    }
    if (t->masker != NULL) {
        t->n_draft = masker_look(t->masker, t->draft, t->n_draft);
    }
}

/* The masks of the rows that draw; *ret NULL: none is needed. What the request
 * forbids is there at once; the worker adds what the grammar does. */
static int make_masks(struct core *c, struct task *t, int n_draft,
                      const uint32_t **ret)
{
    size_t n_words = ((size_t)c->info->vocab + 31) / 32;
    uint8_t limits[MODEL_MAX_DRAFTS + 1];

    *ret = NULL;
    if (!deliver_limits(t->deliver, t->draft, n_draft, limits) &&
        t->masker == NULL) {
        return 0;
    }
    if (t->mask == NULL) {
        t->mask = malloc((MODEL_MAX_DRAFTS + 1) * n_words * sizeof(*t->mask));
    }
    if (t->mask == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i <= n_draft; i++) {
        deliver_mask(t->deliver, limits[i], t->mask + (size_t)i * n_words,
                     (int)n_words);
    }
    if (t->masker != NULL) {
        c->mask_item[c->n_mask_items++] = (struct masks_item){
            .masker = t->masker,
            .n = n_draft + 1,
            .words = t->mask,
            .n_words = n_words,
            .status = &t->mask_status,
        };
    }
    *ret = t->mask;
    return 0;
}

static void describe(struct core *c, struct task *t, struct batch_req *q)
{
    const struct session *s = t->session;

    look_at_drafts(c, t);
    *q = (struct batch_req){
        .owner = t->owner,
        .priority = t->job->priority,
        .arrival = t->arrival,
        .running = t->seq >= 0,
        /* Who had to leave in this step does not come back in it: what two
         * take up in turn would be no end. */
        .paused = t->paused || t->left == c->calls,
        .n_tokens = s->n_ids,
        .committed = s->committed,
        .n_draft = t->n_draft,
        .last_step = t->last_step,
    };
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        q->held[g] = core_pages_held(c, s, (enum model_group)g, &q->shared[g]);
    }
}

static void make_plan(struct core *c)
{
    struct batch_args a = {
        .req = c->req,
        .n_req = c->n_tasks,
        .geo = &c->geo,
        .max_seats = c->conf.max_seqs,
        .max_rows = c->conf.max_batched_tokens,
        .soft_rows = core_soft_rows(c),
        .hard_rows = batch_rows(&c->rate, 2.0 * c->conf.step_target_ms,
                                c->conf.max_batched_tokens),
        .lone_rows =
            batch_rows(&c->rate, BATCH_LONE * (double)c->conf.step_target_ms,
                       c->conf.max_batched_tokens),
        .chunk = c->conf.prefill_chunk,
        .step = c->counts.steps,
    };

    a.owner = shares_table(c->shares, &a.n_owners);
    core_count_room(c);
    core_count_owners(c);
    a.own = c->own;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        a.free_pages[g] = c->room[g];
        a.all_pages[g] = kvpool_pages(c->pool, g) - c->pinned[g];
    }
    for (int i = 0; i < c->n_tasks; i++) {
        describe(c, c->task[i], &c->req[i]);
    }
    batch_plan(&a, c->plan);
}

static int copy_page(void *ctx, enum model_group g, int32_t dst, int32_t src)
{
    struct core *c = ctx;

    return model_copy_page(c->conf.model, g, dst, src);
}

/* A seat. After a pre-emption the whole of what is known is its history. */
static int seat(struct core *c, struct task *t)
{
    const struct job *j = t->job;
    const struct model_sampling s = {
        .temperature = j->temperature,
        .top_p = j->top_p,
        .min_p = j->min_p,
        .top_k = j->top_k,
        .repetition = j->repetition,
        .presence = j->presence,
        .frequency = j->frequency,
        .seed = j->seed,
        .bias = j->bias,
        .n_bias = j->n_bias,
        .of_drawn = j->logprobs_sampled,
        .n_top = score_n_top(j),
        .max_drafts = core_draft_depth(c, j),
    };
    int r =
        model_seq_open(c->conf.model, &s, t->session->ids, t->session->n_ids,
                       deliver_drawn(t->deliver), &t->seq);

    BUG_ON(r == -EMFILE);
    if (r < 0) {
        return r;
    }
    if (t->started_us == 0) {
        t->started_us = core_now_us(c);
        core_time(&c->counts.times.queue, j->born_us, t->started_us);
        ticket_start(c->conf.tickets, j->id);
    }
    return core_take_up(c, t);
}

/* Seats those whom the plan admits. True: one of them took something up, so
 * that rows and pages must be counted again. */
static bool seat_new(struct core *c)
{
    bool taken = false;

    for (int i = 0; i < c->plan->n_picks; i++) {
        struct task *t = c->task[c->plan->pick[i].req];
        int r = t->seq < 0 && !t->ended ? seat(c, t) : 0;

        if (r < 0) {
            core_fail(c, t, "no_memory", "not enough memory for this request");
        }
        taken = taken || r > 0;
    }
    return taken;
}

static void fill_span(struct core *c, struct task *t,
                      const struct batch_pick *p, struct model_span *ret)
{
    struct session *s = t->session;
    int end = s->committed + p->n_rows;
    int left = deliver_left(t->deliver);

    /* The list of ids has room for drafts past its end. */
    memcpy(s->ids + s->n_ids, t->draft, (size_t)p->n_draft * sizeof(*s->ids));
    *ret = (struct model_span){
        .seq = t->seq,
        .pos = s->committed,
        .ids = s->ids + s->committed,
        .n_rows = p->n_rows + p->n_draft,
        .n_draft = p->n_draft,
        .want = end == s->n_ids && t->job->kind != JOB_SCORE ? MODEL_WANT_DRAW
                                                             : MODEL_WANT_NONE,
        /* With one token to go there is nothing to guess ahead. */
        .draft_next = left <= 2 ? 0 : core_draft_depth(c, t->job),
    };
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        ret->pages[g] = s->group[g].page;
        ret->n_pages[g] = s->group[g].n;
        ret->first_page[g] = s->group[g].first;
    }
}

static void masks_ready(void *ctx)
{
    struct core *c = ctx;

    masks_wait(c->masks);
}

static void begin(struct core *c, const struct batch_pick *p)
{
    struct task *t = c->task[p->req];
    struct session *s = t->session;
    int upto = s->committed + p->n_rows + p->n_draft, r;
    const uint32_t *mask = NULL;

    if (t->ended) {
        return;
    }
    core_make_room(c, t, upto);
    r = session_reserve(s, upto, copy_page, c);
    BUG_ON(r == -ENOSPC);
    if (r == 0 && s->committed + p->n_rows == s->n_ids) {
        r = make_masks(c, t, p->n_draft, &mask);
    }
    if (r < 0) {
        core_fail(c, t, "no_memory", "not enough memory for this request");
        return;
    }
    fill_span(c, t, p, &c->span[c->n_spans]);
    c->span[c->n_spans].mask = mask;
    score_span(t, &c->span[c->n_spans]);
    share_charge(c->shares, t->owner, p->n_rows + p->n_draft);
    t->last_step = c->counts.steps;
    t->in_step = true;
    c->stepping[c->n_spans++] = t;
}

/* Told when there is something new; never backwards, though a pre-emption may
 * have thrown rows away. */
static void progress(struct core *c)
{
    uint64_t now = core_now_us(c);

    for (int i = 0; i < c->n_tasks; i++) {
        struct task *t = c->task[i];
        struct event *e;

        if (t->ended || t->first_us != 0 ||
            now - t->progress_us < CORE_PROGRESS_US ||
            t->session->committed <= t->progress_done) {
            continue;
        }
        t->progress_us = now;
        t->progress_done = t->session->committed;
        e = event_create(EVENT_PROGRESS, t->job);
        e->done = t->session->committed;
        e->total = t->n_prompt;
        e->cached = t->n_cached > 0 ? t->n_cached : 0;
        core_send(c, e);
    }
}

/* Of the accepted drafts only those that were used, for the answer may end
 * before the last one. */
static void count_drafts(struct task *t, const struct model_out *o, int used)
{
    int n = used < o->n_accepted ? used : o->n_accepted;

    t->drafts += o->n_drafted > 0;
    t->drafted += o->n_drafted;
    t->accepted += n;
    for (int i = 0; i < n; i++) {
        t->accepted_at[i]++;
    }
}

/* What the reader waited for these tokens. */
static void count_wait(struct core *c, struct task *t, int n)
{
    struct times *times = &c->counts.times;
    uint64_t now = core_now_us(c);

    if (t->first_us == 0) {
        t->first_us = now;
        core_time(&times->first_token, t->job->born_us, now);
    } else if (n > 0) {
        hist_add(&times->between_tokens, core_ms(t->last_us, now) / 1000 / n,
                 (uint64_t)n);
    }
    t->last_us = now;
}

/* The rows up to committed are good; of a cancelled answer only those whose
 * tokens were told. */
static void keep_known(struct core *c, struct task *t, int committed)
{
    if (committed > t->session->n_ids) {
        committed = t->session->n_ids;
    }
    core_keep(c, t, committed);
    session_commit(t->session, committed);
}

static bool is_stop_id(const struct core *c, int32_t id)
{
    for (int i = 0; i < c->n_stop_ids; i++) {
        if (c->stop_ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* The grammar goes along with the tokens of a step, one by one: where nothing
 * can follow it is over, whatever was drawn behind that. */
static int follow(struct core *c, struct task *t, const struct model_out *o,
                  int *n, bool *over)
{
    for (int i = 0; t->masker != NULL && i < o->n_tokens; i++) {
        int r;

        *n = i + 1;
        if (is_stop_id(c, o->token[i].id)) {
            *over = true;
            break;
        }
        r = masker_advance(t->masker, &o->token[i].id, 1);
        if (r < 0) {
            return r;
        }
        if (masker_is_over(t->masker)) {
            *over = true;
            break;
        }
    }
    return 0;
}

/* Text, usage and the end of one span's tokens. */
static int take_tokens(struct core *c, struct task *t,
                       const struct model_out *o)
{
    int32_t ids[MODEL_MAX_DRAFTS + 1];
    enum event_finish why;
    bool over = false;
    int used, r, n = o->n_tokens;

    r = follow(c, t, o, &n, &over);
    if (r < 0) {
        return r;
    }
    used = deliver_tokens(t->deliver, o->token, n, core_tell, t);
    if (used < 0) {
        return used;
    }
    count_wait(c, t, used);
    count_drafts(t, o, used);
    c->counts.completion_tokens += (uint64_t)used;
    for (int i = 0; i < used; i++) {
        ids[i] = o->token[i].id;
    }
    core_keep_prompt(c, t);
    r = session_append(t->session, ids, used);
    if (r < 0) {
        return r;
    }
    /* Where the answer ended inside the block, the rest never was. */
    keep_known(c, t,
               o->committed < t->session->n_ids ? o->committed
                                                : t->session->n_ids - 1);
    if (over && !deliver_ended(t->deliver, &why)) {
        r = deliver_over(t->deliver, core_tell, t);
    }
    if (r == 0 && deliver_ended(t->deliver, &why)) {
        core_done(c, t, why);
    }
    return r;
}

/* The logprobs that a span was to tell, before its tokens. */
static int take_scores(struct core *c, struct task *t,
                       const struct model_out *o)
{
    int r = o->n_scored > 0 ? score_take(t, t->session->committed, o,
                                         c->conf.tokenizer, core_send, c)
                            : 0;

    if (r < 0 || o->n_tokens > 0) {
        return r < 0 ? r : take_tokens(c, t, o);
    }
    keep_known(c, t, o->committed);
    if (t->job->kind == JOB_SCORE &&
        t->session->committed == t->session->n_ids) {
        core_done(c, t, FINISH_STOP);
    }
    return 0;
}

static void scrub(struct core *c, const struct session *s)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        for (int i = 0; i < s->group[g].n; i++) {
            if (kvpool_refs(c->pool, g, s->group[g].page[i]) == 1) {
                (void)model_scrub_page(c->conf.model, g, s->group[g].page[i]);
            }
        }
    }
}

static void apply(struct core *c, struct task *t, const struct model_out *o)
{
    char why[128];
    int r = 0;

    if (o->status == -EIO) {
        t->spoilt = true;
        core_say(c, 3, "job %llu: non-finite values at layer %d",
                 (unsigned long long)t->job->id, o->layer);
        scrub(c, t->session);
        snprintf(why, sizeof(why), "non-finite values at layer %d", o->layer);
        core_fail(c, t, "internal", why);
    } else if (t->ended) {
        /* What was computed is kept for whoever asks again. */
        if (o->status == 0) {
            keep_known(c, t, o->committed);
        }
    } else if (t->mask_status < 0) {
        r = t->mask_status;
    } else if (o->status == -ENODATA) {
        core_fail(c, t, "internal", "no token of the vocabulary fits here");
    } else if (o->status < 0) {
        core_fail(c, t, "internal", "the step was lost");
    } else {
        r = take_scores(c, t, o);
    }
    if (r == -E2BIG) {
        snprintf(why, sizeof(why), "%s: too large to be followed here",
                 job_grammar_key(t->job));
        core_fail(c, t, "too_long", why);
    } else if (r == -EBADMSG) {
        core_fail(c, t, "internal", "a token that its mask forbids");
    } else if (r < 0) {
        core_fail(c, t, "no_memory", "not enough memory for the answer");
    }
}

static int run_step(struct core *c)
{
    const struct model_plan plan = {
        .span = c->span,
        .n_spans = c->n_spans,
        .masks_ready = masks_ready,
        .ctx = c,
    };
    struct times *times = &c->counts.times;
    uint64_t t0 = core_now_us(c), t1, t2;
    bool whole = true;
    double ms;
    int r;

    c->in_step = true;
    masks_begin(c->masks, c->mask_item, c->n_mask_items);
    r = model_submit(c->conf.model, &plan);
    if (r == 0) {
        progress(c);
        r = model_collect(c->conf.model, c->out, c->n_spans);
    }
    c->in_step = false;
    masks_wait(c->masks);
    t1 = core_now_us(c);
    for (int i = 0; i < c->n_spans; i++) {
        struct task *t = c->stepping[i];

        t->in_step = false;
        whole = whole && !t->ended;
        if (r == 0) {
            apply(c, t, &c->out[i]);
        }
    }
    if (r < 0) {
        core_say(c, 3, "the step failed: %s", model_error(c->conf.model));
        return r;
    }
    t2 = core_now_us(c);
    ms = core_ms(t0, t2);
    core_time(&times->step, t0, t2);
    times->model_s += core_ms(t0, t1) / 1000;
    times->deliver_s += core_ms(t1, t2) / 1000;
    c->counts.steps++;
    c->counts.step_ms =
        c->counts.steps == 1
            ? ms
            : c->counts.step_ms * STEP_MS_KEEP + ms * (1 - STEP_MS_KEEP);
    if (whole) {
        batch_rate_add(&c->rate, c->plan->n_rows, ms);
    }
    return 1;
}

static void evict_tasks(struct core *c)
{
    for (int i = 0; i < c->plan->n_evicts; i++) {
        struct task *t = c->task[c->plan->evict[i]];

        core_say(c, 7, "job %llu: pre-empted at %d tokens",
                 (unsigned long long)t->job->id, t->session->committed);
        core_unseat(c, t);
        t->left = c->calls;
        c->counts.preempted++;
    }
}

int core_step(struct core *c)
{
    uint64_t t0;
    int r;

    if (c->n_tasks == 0) {
        return 0;
    }
    t0 = core_now_us(c);
    c->calls++;
    do {
        make_plan(c);
        evict_tasks(c);
    } while (seat_new(c));
    core_count_owners(c);
    core_trim_owners(c);
    core_count_room(c);
    core_count_spare(c);
    c->n_spans = c->n_mask_items = 0;
    for (int i = 0; i < c->plan->n_picks; i++) {
        begin(c, &c->plan->pick[i]);
    }
    c->counts.times.plan_s += core_ms(t0, core_now_us(c)) / 1000;
    r = c->n_spans > 0 ? run_step(c) : 0;
    c->n_spans = 0;
    core_sweep(c);
    return r;
}
