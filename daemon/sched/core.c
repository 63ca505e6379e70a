/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Tasks: admission, the end in every way there is, the accounts. Engine thread
 * only: no locks, and no thread is started here. Owns the tasks, the page pool
 * and the shares; the model and the tokenizer are lent. The step itself is in
 * core_step.c.
 *
 * A cancel ends a request at once for its client, also in the middle of a step:
 * the final event goes out, the model is told to leave the rows, and only the
 * memory stays until the step is over.
 *
 * The invariant: a task is in the list from admission until its final event is
 * out and no step holds it; pages, sequence and ticket go together then.
 */

#include "daemon/sched/core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/base/die.h"
#include "daemon/sched/core_priv.h"

/* ---- creation ------------------------------------------------------------ */

static void on_freed(void *ctx, enum model_group g, int32_t page)
{
    struct core *c = ctx;

    (void)model_scrub_page(c->conf.model, g, page);
}

static void add_stop_id(struct core *c, int32_t id)
{
    for (int i = 0; i < c->n_stop_ids; i++) {
        if (c->stop_ids[i] == id) {
            return;
        }
    }
    if (c->n_stop_ids < CORE_MAX_STOP_IDS) {
        c->stop_ids[c->n_stop_ids++] = id;
    }
}

static void collect_stop_ids(struct core *c)
{
    int32_t eos[CORE_MAX_STOP_IDS];
    int n = tokenizer_eos(c->conf.tokenizer, eos, CORE_MAX_STOP_IDS);

    for (int i = 0; i < c->info->n_eos; i++) {
        add_stop_id(c, c->info->eos[i]);
    }
    for (int i = 0; i < n; i++) {
        add_stop_id(c, eos[i]);
    }
}

static int create_pool(struct core *c)
{
    const int *n = c->info->memory.kv_pages;
    int r;

    c->geo = (struct session_geometry){
        .window = c->info->window,
        .lookahead = c->info->n_mtp,
        .max_len = c->info->max_model_len,
    };
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        if (session_most(&c->geo, g, c->geo.max_len) > n[g]) {
            return -ENOSPC;
        }
    }
    r = kvpool_create(&c->pool, n);
    if (r == 0 && c->conf.scrub_freed) {
        kvpool_on_free(c->pool, on_freed, c);
    }
    return r;
}

static int create_prefix(struct core *c)
{
    const struct prefix_conf pc = {
        .pool = c->pool,
        .geo = c->geo,
        .aux_bytes = model_aux_bytes(c->conf.model),
        .max_checkpoints = c->conf.max_checkpoints > 0 ? c->conf.max_checkpoints
                                                       : MODEL_CHECKPOINTS,
    };

    c->aux = malloc(pc.aux_bytes);
    BUG_ON(getrandom(&c->salt_seed, sizeof(c->salt_seed), 0) !=
           sizeof(c->salt_seed));
    return c->aux == NULL ? -ENOMEM : prefix_create(&c->prefix, &pc);
}

int core_create(struct core **ret, const struct core_conf *conf)
{
    struct core *c = xcalloc(1, sizeof(*c));
    size_t n = (size_t)conf->max_live;
    int n_owners, r;

    c->conf = *conf;
    c->named.limits = conf->named;
    c->info = model_info(conf->model);
    collect_stop_ids(c);
    c->think_end = tokenizer_id(conf->tokenizer, "</think>");
    c->tool_call = tokenizer_id(conf->tokenizer, "<tool_call>");
    r = create_pool(c);
    r = r < 0 ? r : create_prefix(c);
    if (r < 0) {
        goto fail;
    }
    r = masks_create(&c->masks);
    if (r < 0) {
        goto fail;
    }
    r = shares_create(&c->shares, conf->max_live);
    if (r < 0) {
        goto fail;
    }
    (void)shares_table(c->shares, &n_owners);
    r = batch_plan_create(&c->plan, conf->max_live, n_owners);
    r = r < 0 ? r : core_owner_create(c, n_owners);
    if (r < 0) {
        goto fail;
    }
    c->task = calloc(n, sizeof(*c->task));
    c->req = calloc(n, sizeof(*c->req));
    c->span = calloc(n, sizeof(*c->span));
    c->out = calloc(n, sizeof(*c->out));
    c->stepping = calloc(n, sizeof(*c->stepping));
    c->mask_item = calloc(n, sizeof(*c->mask_item));
    if (c->task == NULL || c->req == NULL || c->span == NULL ||
        c->out == NULL || c->stepping == NULL || c->mask_item == NULL) {
        r = -ENOMEM;
        goto fail;
    }
    core_open_store(c);
    *ret = c;
    return 0;
fail:
    core_destroy(c);
    return r;
}

void core_destroy(struct core *c)
{
    if (c == NULL) {
        return;
    }
    BUG_ON(c->n_tasks > 0);
    core_close_store(c);
    core_named_finish(c);
    free(c->task);
    free(c->req);
    free(c->span);
    free(c->out);
    free(c->stepping);
    free(c->mask_item);
    masks_destroy(c->masks);
    batch_plan_destroy(c->plan);
    shares_destroy(c->shares);
    core_owner_destroy(c);
    prefix_destroy(c->prefix);
    kvpool_destroy(c->pool);
    free(c->aux);
    free(c);
}

uint64_t core_now_us(const struct core *c)
{
    return c->conf.now_us(c->conf.ctx);
}

void core_send(void *ctx, struct event *e)
{
    struct core *c = ctx;

    c->conf.emit(c->conf.ctx, e);
}

/* What an answer says is noted where a session will remember it. */
void core_tell(void *ctx, struct event *e)
{
    struct task *t = ctx;

    if (t->job->session[0] != '\0') {
        said_take(&t->said, e);
    }
    core_send(t->core, e);
}

void core_say(struct core *c, int level, const char *fmt, ...)
{
    char line[256];
    va_list ap;

    if (c->conf.log == NULL) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    c->conf.log(c->conf.ctx, level, line);
}

/* ---- tasks --------------------------------------------------------------- */

/* Out of the running ones. The tokens stay, and the pages for as long as nobody
 * needs them more. */
void core_unseat(struct core *c, struct task *t)
{
    if (t->seq >= 0) {
        core_keep_all(c, t);
        model_seq_close(c->conf.model, t->seq);
        t->seq = -1;
    }
    session_release(t->session);
    t->n_draft = 0;
    t->n_kept = t->n_sparse = 0;
}

static void drop_task(struct core *c, int i)
{
    struct task *t = c->task[i];
    uint64_t id = t->job->id;
    int committed = t->session->committed;

    memmove(c->task + i, c->task + i + 1,
            (size_t)(c->n_tasks - i - 1) * sizeof(*c->task));
    c->n_tasks--;
    share_leave(c->shares, t->owner);
    core_unseat(c, t);
    core_named_end(c, t, committed);
    task_destroy(t);
    ticket_close(c->conf.tickets, id);
}

/* Within a step only what has no sequence: the model is busy. */
void core_sweep(struct core *c)
{
    for (int i = c->n_tasks - 1; i >= 0; i--) {
        if (c->task[i]->ended && !c->task[i]->in_step &&
            (!c->in_step || c->task[i]->seq < 0)) {
            drop_task(c, i);
        }
    }
}

static void leave(struct core *c, struct task *t)
{
    t->ended = true;
    if (t->in_step) {
        model_cancel(c->conf.model, t->seq);
    }
}

void core_fail(struct core *c, struct task *t, const char *code,
               const char *why)
{
    if (t->ended) {
        return;
    }
    t->failed = true;
    c->counts.failed++;
    if (ticket_take(c->conf.tickets, t->job->id)) {
        core_send(c, event_error(t->job, code, "%s", why));
    }
    leave(c, t);
}

double core_ms(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) / 1000 : 0;
}

void core_time(struct hist *h, uint64_t from_us, uint64_t to_us)
{
    hist_add(h, core_ms(from_us, to_us) / 1000, 1);
}

void core_done(struct core *c, struct task *t, enum event_finish why)
{
    uint64_t now = core_now_us(c);
    uint64_t started = t->started_us != 0 ? t->started_us : now;
    uint64_t first = t->first_us != 0 ? t->first_us : now;
    struct event *e;

    if (t->ended) {
        return;
    }
    if (!ticket_take(c->conf.tickets, t->job->id)) {
        leave(c, t);
        return;
    }
    (void)deliver_cut(t->deliver, core_tell, t);
    if (core_make_turn(t) < 0) {
        t->failed = true;
        c->counts.failed++;
        core_send(c, event_error(t->job, "no_memory",
                                 "no memory to keep the turn: session %s is as "
                                 "it was before",
                                 t->job->session));
        leave(c, t);
        return;
    }
    if (c->conf.turns != NULL && deliver_turn(t->deliver) != NULL) {
        turns_add(c->conf.turns, t->job, c->conf.tokenizer,
                  deliver_turn(t->deliver));
    }
    e = event_create(EVENT_DONE, t->job);
    e->finish = why;
    e->plain = t->job->kind == JOB_SCORE && why == FINISH_STOP;
    e->seed = t->job->seed;
    e->usage.prompt_tokens = t->n_prompt;
    e->usage.cached_tokens = t->n_cached > 0 ? t->n_cached : 0;
    e->usage.drafts = t->drafts;
    e->usage.drafted = t->drafted;
    e->usage.accepted = t->accepted;
    memcpy(e->usage.accepted_at, t->accepted_at, sizeof(t->accepted_at));
    deliver_usage(t->deliver, &e->usage);
    e->timings.queue_ms = core_ms(t->job->born_us, started);
    e->timings.prefill_ms = core_ms(started, first);
    e->timings.decode_ms = core_ms(first, now);
    core_time(&c->counts.times.request, t->job->born_us, now);
    if (why == FINISH_CANCELLED || why == FINISH_TIMEOUT) {
        c->counts.cancelled++;
    } else {
        c->counts.finished++;
    }
    core_send(c, e);
    leave(c, t);
}

static void draw_seed(struct job *j)
{
    if (j->seed_given) {
        return;
    }
    /* 8 bytes never come short once the pool is up, and it is by now. */
    BUG_ON(getrandom(&j->seed, sizeof(j->seed), 0) != sizeof(j->seed));
}

static int waiting_before(const struct core *c)
{
    int n = 0;

    for (int i = 0; i < c->n_tasks; i++) {
        n += c->task[i]->seq < 0 && !c->task[i]->ended;
    }
    return n;
}

/* More prompt tokens of this (uid, tenant) wait than may. A first one is always
 * taken: how long a prompt may be is another limit. */
static bool owner_waits_enough(const struct core *c, const struct job *j)
{
    int64_t n = 0;

    for (int i = 0; i < c->n_tasks; i++) {
        const struct task *t = c->task[i];

        if (t->started_us == 0 && !t->ended && t->job->uid == j->uid &&
            strcmp(t->job->tenant, j->tenant) == 0) {
            n += t->n_prompt;
        }
    }
    return n > 0 && n + j->n_ids > c->conf.max_queued_tokens;
}

static void refuse(struct core *c, uint64_t job, struct event *e)
{
    c->counts.failed++;
    if (ticket_take(c->conf.tickets, job)) {
        core_send(c, e);
    } else {
        event_destroy(e);
    }
    ticket_close(c->conf.tickets, job);
}

void core_add(struct core *c, struct job *j)
{
    struct admit_conf ac = {
        .pool = c->pool,
        .geo = &c->geo,
        .tokenizer = c->conf.tokenizer,
        .stop_ids = c->stop_ids,
        .n_stop_ids = c->n_stop_ids,
        .think_end = c->think_end,
        .tool_call = c->tool_call,
        .max_prompt_tokens = c->conf.max_prompt_tokens,
        .vocab = c->info->vocab,
        .max_drafts = c->info->n_mtp,
    };
    uint64_t id = j->id;
    struct event *e;
    struct task *t;

    if (j->kind == JOB_SESSION) {
        core_session_op(c, j);
        return;
    }
    if (j->session[0] != '\0' && !j->granted) {
        core_named_add(c, j);
        return;
    }
    c->counts.requests++;
    if (ticket_answered(c->conf.tickets, id)) {
        job_destroy(j);
        ticket_close(c->conf.tickets, id);
        core_named_free(c, id);
        return;
    }
    if (owner_waits_enough(c, j)) {
        e = event_error(j, "busy",
                        "prompts of this user wait already, and with this one "
                        "they have more than %d tokens",
                        c->conf.max_queued_tokens);
        e->retry_ms = CORE_RETRY_MS;
        job_destroy(j);
        refuse(c, id, e);
        core_named_free(c, id);
        return;
    }
    ac.max_len = core_owner_longest(c, j);
    if (j->n_ids >= ac.max_len && j->n_ids < c->geo.max_len) {
        e = core_owner_refusal(c, j);
        job_destroy(j);
        refuse(c, id, e);
        core_named_free(c, id);
        return;
    }
    draw_seed(j);
    if (admit_job(&t, j, &ac, &e) > 0) {
        refuse(c, id, e);
        core_named_free(c, id);
        return;
    }
    t->core = c;
    BUG_ON(c->n_tasks == c->conf.max_live);
    t->arrival = c->arrivals++;
    t->owner = share_join(c->shares, j, core_soft_rows(c));
    t->paused = ticket_paused(c->conf.tickets, id);
    t->progress_us = core_now_us(c);
    e = event_create(EVENT_ACCEPTED, j);
    e->queue_position = waiting_before(c);
    e->prompt_tokens = t->n_prompt;
    c->counts.prompt_tokens += (uint64_t)t->n_prompt;
    t->salt = core_salt(c, j->uid, j->tenant);
    c->task[c->n_tasks++] = t;
    core_send(c, e);
}

bool core_call(struct core *c, const struct ticket_call *call)
{
    for (int i = 0; i < c->n_tasks; i++) {
        struct task *t = c->task[i];

        if (t->job->id != call->job) {
            continue;
        }
        if (call->end) {
            core_done(c, t, call->finish);
            core_sweep(c);
        } else {
            t->paused = call->paused;
        }
        return true;
    }
    return call->end && core_named_cancel(c, call);
}

void core_end_all(struct core *c, bool all, const char *code, const char *why)
{
    for (int i = 0; i < c->n_tasks; i++) {
        struct task *t = c->task[i];

        if (all || t->started_us == 0) {
            core_fail(c, t, code, why);
        } else {
            core_done(c, t, FINISH_CANCELLED);
        }
    }
    core_sweep(c);
}

int core_soft_rows(const struct core *c)
{
    return batch_rows(&c->rate, c->conf.step_target_ms,
                      c->conf.max_batched_tokens);
}

/* ---- questions ----------------------------------------------------------- */

int core_step_live(const struct core *c)
{
    int n = 0;

    for (int i = 0; c->in_step && i < c->n_spans; i++) {
        n += !c->stepping[i]->ended;
    }
    return n;
}

void core_measured(struct core *c, int rows, double ms)
{
    if (rows > 0) {
        batch_rate_add(&c->rate, rows, ms);
    }
}

void core_counts(const struct core *c, struct core_counts *ret)
{
    struct prefix_counts n;

    prefix_counts(c->prefix, &n);
    *ret = c->counts;
    ret->checkpoints = n.checkpoints;
    ret->sessions = c->named.n;
    ret->unsaved = core_unsaved(c);
    ret->checkpoints_evicted = n.evicted_checkpoints;
    ret->waiting = ret->running = 0;
    for (int i = 0; i < c->n_tasks; i++) {
        if (c->task[i]->seq >= 0) {
            ret->running++;
        } else {
            ret->waiting++;
        }
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        ret->pages[g] = kvpool_pages(c->pool, g);
        ret->pages_free[g] = kvpool_free_pages(c->pool, g) + n.evictable[g];
        ret->pages_cached[g] = n.pages[g];
        ret->pages_pinned[g] = n.pinned[g];
        ret->pages_evicted[g] = n.evicted[g];
    }
}
