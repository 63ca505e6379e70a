/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The engine's threads and boxes. The engine thread loads the model and proves
 * it (engine_load.c), then: drain the inbox, hear cancels and time limits, one
 * step (core.c), repeat; with nothing to do it sleeps in its mailbox. The
 * functions of engine.h run on the I/O thread and only push, mark or copy.
 *
 *   I/O --job--> prep (box) --job--> inbox --> engine thread --event--> out
 *   I/O --mark on the job's ticket + a nudge into the inbox--> engine thread
 *
 * The same look at inbox and tickets happens between the layers of a step (the
 * model's tick) and between the bytes of a load (its progress), so a cancel, a
 * time limit or the end of the daemon is heard there too.
 *
 * The invariants: a job has one owner (prep's box, prep, the inbox, the core)
 * and an open ticket until it is freed; whoever ends it takes the ticket, so
 * there is one final event; the out box is always drained by the I/O thread,
 * so the engine may wait for room in it, and the I/O thread never waits for
 * the engine except in engine_stop, which drains it meanwhile.
 */

#include "daemon/sched/engine_priv.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/base/die.h"
#include "daemon/base/mbox.h"
#include "daemon/model/model.h"
#include "daemon/sched/core.h"
#include "daemon/sched/faults.h"
#include "daemon/sched/prep.h"
#include "daemon/sched/spec.h"
#include "daemon/sched/ticket.h"

#define OUT_EVENTS 4096

/* In the inbox: look at the tickets and flags. */
static char nudge;
/* In the out box: a thread has ended and will send nothing more. */
static char over;

uint64_t engine_clock_us(void *ctx)
{
    struct timespec t;

    (void)ctx;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- out ----------------------------------------------------------------- */

static void push_out(struct engine *e, void *item)
{
    if (mbox_push_wait(e->out, item) == 1) {
        e->conf.wake(e->conf.ctx);
    }
}

static void on_event(void *ctx, struct event *ev)
{
    push_out(ctx, ev);
}

void engine_on_log(void *ctx, int level, const char *line)
{
    struct engine *e = ctx;

    if (e->conf.log != NULL) {
        e->conf.log(e->conf.ctx, level, line);
    }
}

void engine_say(struct engine *e, int level, const char *fmt, ...)
{
    char line[768];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    engine_on_log(e, level, line);
}

/* ---- status -------------------------------------------------------------- */

void engine_set_state(struct engine *e, enum engine_state s)
{
    (void)pthread_mutex_lock(&e->lock);
    e->status.state = s;
    (void)pthread_mutex_unlock(&e->lock);
    e->conf.wake(e->conf.ctx);
}

static void publish(struct engine *e)
{
    struct engine_status *s = &e->status;
    struct core_counts c;
    struct model_stats m;

    core_counts(e->core, &c);
    model_stats(e->model, &m);
    (void)pthread_mutex_lock(&e->lock);
    s->requests = c.requests;
    s->finished = c.finished;
    s->failed = c.failed;
    s->cancelled = c.cancelled;
    s->preempted = c.preempted;
    s->times = c.times;
    s->forward_s = m.forward_s;
    s->sample_s = m.sample_s;
    s->mtp_s = m.mtp_s;
    s->major_faults = e->faults.total;
    s->prompt_tokens = c.prompt_tokens;
    s->cached_tokens = c.cached_tokens;
    s->completion_tokens = c.completion_tokens;
    s->step_ms = c.step_ms;
    s->steps = m.steps;
    s->rows = m.rows;
    s->layers = m.layers;
    s->row_layers = m.row_layers;
    s->drafts = m.drafts;
    s->drafted = m.drafted;
    s->accepted = m.accepted;
    memcpy(s->accepted_at, m.accepted_at, sizeof(s->accepted_at));
    memcpy(s->proposed_by, m.proposed_by, sizeof(s->proposed_by));
    s->draft_depth = m.depth;
    s->drafter_is_off = m.drafter_is_off;
    s->weight_bytes = m.weight_bytes;
    s->kv_bytes = m.kv_bytes;
    s->expert_loads = m.expert_loads;
    s->checkpoints = c.checkpoints;
    s->sessions = c.sessions;
    s->unsaved = c.unsaved;
    s->checkpoints_evicted = c.checkpoints_evicted;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        s->pages[g] = c.pages[g];
        s->pages_free[g] = c.pages_free[g];
        s->pages_cached[g] = c.pages_cached[g];
        s->pages_pinned[g] = c.pages_pinned[g];
        s->pages_evicted[g] = c.pages_evicted[g];
    }
    (void)pthread_mutex_unlock(&e->lock);
}

/* The counters first: whoever has seen the end of a request finds it counted
 * in the next status. */
void engine_on_core_event(void *ctx, struct event *ev)
{
    if (ev->type == EVENT_DONE || ev->type == EVENT_ERROR) {
        publish(ctx);
    }
    push_out(ctx, ev);
}

static void log_drafting(struct engine *e)
{
    struct model_stats m;
    char line[384];
    int level;

    model_stats(e->model, &m);
    level = spec_log_line(&e->spec_log, engine_clock_us(NULL), &m, line,
                          sizeof(line));
    if (level > 0) {
        engine_say(e, level, "%s", line);
    }
}

/* ---- what comes in ------------------------------------------------------- */

/* A final event for a job that somebody else holds. */
static void answer(struct engine *e, const struct ticket_call *call,
                   struct event *ev)
{
    ev->job = call->job;
    ev->conn = call->conn;
    ev->request = call->request;
    if (ticket_take(e->tickets, call->job)) {
        push_out(e, ev);
    } else {
        event_destroy(ev);
    }
}

static void attend(struct engine *e)
{
    struct ticket_call call;
    uint64_t now = engine_clock_us(NULL);

    while (ticket_pending(e->tickets, now) &&
           ticket_next(e->tickets, now, &call)) {
        struct event *ev;

        if ((e->core != NULL && core_call(e->core, &call)) || !call.end) {
            continue;
        }
        ev = event_create(EVENT_DONE, NULL);
        ev->finish = call.finish;
        answer(e, &call, ev);
    }
}

/* Every job that has not been answered yet, wherever it is. */
void engine_answer_all(struct engine *e, const char *code, const char *why)
{
    struct ticket_call call;

    if (e->core != NULL) {
        core_end_all(e->core, true, code, why);
    }
    while (ticket_any(e->tickets, &call)) {
        answer(e, &call, event_error(NULL, code, "%s", why));
    }
}

void engine_keep_early(struct engine *e, struct job *j)
{
    j->next = NULL;
    *e->early_end = j;
    e->early_end = &j->next;
}

static void take_in(struct engine *e, void *item)
{
    if (item == &nudge) {
        atomic_store(&e->nudged, false);
    } else if (e->core != NULL) {
        core_add(e->core, item);
    } else {
        engine_keep_early(e, item);
    }
}

static void drain_inbox(struct engine *e)
{
    void *item;

    while ((item = mbox_pop(e->inbox)) != NULL) {
        take_in(e, item);
    }
}

/* Jobs first, then the tickets, in this order: a nudge is gone when it has been
 * taken out, and what it stood for must be looked at after that. */
void engine_hear(struct engine *e)
{
    drain_inbox(e);
    attend(e);
}

/* Until something comes in or a time limit runs out, then hears it. */
void engine_doze(struct engine *e)
{
    uint64_t now = engine_clock_us(NULL),
             deadline = ticket_deadline(e->tickets);
    int ms = -1;
    void *item;

    if (deadline != UINT64_MAX) {
        uint64_t left = deadline > now ? (deadline - now + 999) / 1000 : 0;

        ms = left < INT_MAX ? (int)left : INT_MAX;
    }
    item = mbox_pop_wait(e->inbox, ms);
    if (item != NULL) {
        take_in(e, item);
    }
    engine_hear(e);
}

/* ---- from within the model ----------------------------------------------- */

bool engine_take_release(struct engine *e)
{
    int n = atomic_load(&e->released);

    while (n > 0) {
        if (atomic_compare_exchange_weak(&e->released, &n, n - 1)) {
            return true;
        }
    }
    return false;
}

/* Between layers of a step. */
static void on_tick(void *ctx)
{
    struct engine *e = ctx;

    atomic_fetch_add(&e->ticks, 1);
    engine_hear(e);
    if (e->core == NULL || core_step_live(e->core) == 0) {
        return;
    }
    if (e->conf.hold_steps && !e->step_released) {
        while (!atomic_load(&e->stop) && core_step_live(e->core) > 0 &&
               !engine_take_release(e)) {
            engine_doze(e);
        }
        e->step_released = true;
    }
    if (atomic_load(&e->stop)) {
        core_end_all(e->core, false, "draining", "the daemon stops");
    }
}

/* ---- the engine thread --------------------------------------------------- */

/* Jobs that nobody will serve; they have been answered. */
void engine_drop_jobs(struct engine *e)
{
    struct job *j;

    while ((j = e->early) != NULL) {
        uint64_t id = j->id;

        e->early = j->next;
        job_destroy(j);
        ticket_close(e->tickets, id);
    }
    e->early_end = &e->early;
}

/* False: the shards were changed under us, and everything has been ended. An
 * fstat a shard, so it is done once a turn: behind the step before, for what
 * that computed, and behind the hearing of requests, so that none of them makes
 * a step touch pages that were gone when it came. */
static bool shards_same(struct engine *e)
{
    char why[256] = "";

    if (model_verify_files(e->model, why, sizeof(why)) != -ESTALE) {
        return true;
    }
    engine_fail(e, EXIT_FAULT, "corrupt", why);
    return false;
}

static void add_early(struct engine *e)
{
    struct job *j = e->early;

    e->early = NULL;
    e->early_end = &e->early;
    while (j != NULL) {
        struct job *next = j->next;

        core_add(e->core, j);
        j = next;
    }
}

static uint64_t major_faults(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (uint64_t)u.ru_majflt;
}

/* One step, and what the disk had to do with it. */
static int step(struct engine *e)
{
    uint64_t before = major_faults();
    int r = core_step(e->core);
    char line[256];

    if (r > 0 && faults_add(&e->faults, engine_clock_us(NULL),
                            major_faults() - before, line, sizeof(line))) {
        engine_say(e, 4, "%s", line);
    }
    return r;
}

static void serve(struct engine *e)
{
    struct model_stats m;
    char cause[128];

    model_stats(e->model, &m);
    spec_log_init(&e->spec_log, engine_clock_us(NULL), &m);
    add_early(e);
    while (!atomic_load(&e->stop)) {
        bool moved;
        int r;

        engine_hear(e);
        if (!atomic_load(&e->stop) && !shards_same(e)) {
            return;
        }
        e->step_released = false;
        if (atomic_exchange(&e->save_pinned, false)) {
            core_save_pinned(e->core);
        }
        moved = core_tend(e->core);
        r = step(e);
        publish(e);
        log_drafting(e);
        if (r < 0) {
            snprintf(cause, sizeof(cause), "the step failed: %s", strerror(-r));
            engine_fail(e, EXIT_FAULT, r == -ENOMEM ? "no_memory" : "internal",
                        cause);
            return;
        }
        /* A stop's nudge may have been heard above: it is not sent again. */
        if (r == 0 && !moved && !atomic_load(&e->stop) &&
            !core_touch(e->core)) {
            atomic_store(&e->idle, true);
            engine_doze(e);
            atomic_store(&e->idle, false);
        }
    }
    core_end_all(e->core, false, "draining", "the daemon stops");
    core_save_last(e->core);
}

static void *engine_main(void *arg)
{
    struct engine *e = arg;

    if (engine_load(e)) {
        engine_say(e, 6, "%s: ready on %s", e->path,
                   model_info(e->model)->device);
        publish(e);
        engine_set_state(e, ENGINE_READY);
        serve(e);
    }
    engine_answer_all(e, "draining", "the daemon stops");
    if (e->core != NULL) {
        publish(e);
    }
    engine_set_state(e, ENGINE_STOPPED);
    push_out(e, &over);
    return NULL;
}

/* ---- callbacks of the preparation thread --------------------------------- */

static void on_prepared(void *ctx, struct job *j)
{
    struct engine *e = ctx;

    /* As many places as tickets: there is always one. */
    BUG_ON(mbox_push(e->inbox, j) < 0);
}

/* One nudge in the box is enough: after it the engine looks at everything. */
void engine_poke(struct engine *e)
{
    if (!atomic_exchange(&e->nudged, true)) {
        BUG_ON(mbox_push(e->inbox, &nudge) < 0);
    }
}

static void on_tokenizer(void *ctx)
{
    engine_poke(ctx);
}

static void on_prep_over(void *ctx)
{
    push_out(ctx, &over);
}

/* ---- the I/O thread's side ----------------------------------------------- */

static char *copy_or_null(const char *s)
{
    return s == NULL ? NULL : xstrdup(s);
}

static void copy_model_conf(struct engine *e, const struct model_conf *m)
{
    e->model_conf = *m;
    e->model_conf.path = e->path = xstrdup(m->path);
    e->model_conf.backend = e->backend = copy_or_null(m->backend);
    e->model_conf.isa = e->isa = copy_or_null(m->isa);
    e->model_conf.planned = engine_on_plan;
    e->model_conf.progress = engine_on_progress;
    e->model_conf.tick = on_tick;
    e->model_conf.ctx = e;
}

static int start_prep(struct engine *e)
{
    const struct prep_conf c = {
        .dir = e->path,
        .max_queue = e->max_live,
        .tickets = e->tickets,
        .turns = e->turns,
        .forward = on_prepared,
        .emit = on_event,
        .loaded = on_tokenizer,
        .ended = on_prep_over,
        .ctx = e,
    };

    return prep_create(&e->prep, &c);
}

int engine_create(struct engine **ret, const struct engine_conf *c)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    int r;

    BUG_ON(c->max_queue < 1 || c->max_queued_tokens < 1 ||
           c->model->max_seqs < 1 || c->max_batched_tokens < 1 ||
           c->step_target_ms < 1);
    e->conf = *c;
    e->session_dir = copy_or_null(c->session_dir);
    e->conf.session_dir = e->session_dir;
    copy_model_conf(e, c->model);
    e->conf.model = NULL;
    e->max_live = c->max_queue + c->model->max_seqs;
    e->stash_end = &e->stash;
    e->early_end = &e->early;
    atomic_init(&e->stop, false);
    atomic_init(&e->draining, false);
    atomic_init(&e->nudged, false);
    atomic_init(&e->save_pinned, false);
    atomic_init(&e->released, 0);
    atomic_init(&e->idle, false);
    atomic_init(&e->ticks, 0);
    (void)pthread_mutex_init(&e->lock, NULL);
    r = tickets_create(&e->tickets, e->max_live, c->max_queue);
    if (r == 0) {
        r = turns_create(&e->turns);
    }
    if (r < 0) {
        goto fail;
    }
    r = mbox_create(&e->inbox, (size_t)e->max_live + 2);
    if (r < 0) {
        goto fail;
    }
    r = mbox_create(&e->out, OUT_EVENTS);
    if (r < 0) {
        goto fail;
    }
    r = start_prep(e);
    if (r < 0) {
        goto fail;
    }
    r = -pthread_create(&e->thread, NULL, engine_main, e);
    if (r < 0) {
        goto fail;
    }
    e->started = true;
    *ret = e;
    return 0;
fail:
    engine_destroy(e);
    return r;
}

int engine_submit(struct engine *e, struct job *j)
{
    enum engine_state s;
    int r;

    (void)pthread_mutex_lock(&e->lock);
    s = e->status.state;
    (void)pthread_mutex_unlock(&e->lock);
    if (atomic_load(&e->draining) ||
        (s != ENGINE_LOADING && s != ENGINE_READY)) {
        return -ESHUTDOWN;
    }
    r = ticket_open(e->tickets, j);
    if (r < 0) {
        return r;
    }
    if (j->paused) {
        (void)ticket_pause(e->tickets, j->id, true);
    }
    /* The box has a place for every ticket and closes in engine_stop only,
     * which is this thread's too. */
    BUG_ON(prep_submit(e->prep, j) < 0);
    /* A time limit may be the first to run out; a load may have failed between
     * the look at the state and now. */
    engine_poke(e);
    return 0;
}

void engine_cancel(struct engine *e, uint64_t job)
{
    if (ticket_cancel(e->tickets, job)) {
        engine_poke(e);
    }
}

void engine_pause(struct engine *e, uint64_t job, bool paused)
{
    if (ticket_pause(e->tickets, job, paused)) {
        engine_poke(e);
    }
}

void engine_save_pinned(struct engine *e)
{
    atomic_store(&e->save_pinned, true);
    engine_poke(e);
}

struct event *engine_poll(struct engine *e)
{
    struct event *ev = e->stash;
    void *item;

    if (ev != NULL) {
        e->stash = ev->next;
        if (e->stash == NULL) {
            e->stash_end = &e->stash;
        }
        ev->next = NULL;
        return ev;
    }
    do {
        item = mbox_pop(e->out);
    } while (item == &over);
    return item;
}

void engine_status(struct engine *e, struct engine_status *ret)
{
    int live = tickets_live(e->tickets);

    (void)pthread_mutex_lock(&e->lock);
    *ret = e->status;
    (void)pthread_mutex_unlock(&e->lock);
    if (ret->state == ENGINE_READY && atomic_load(&e->draining)) {
        ret->state = ENGINE_DRAINING;
    }
    ret->ticks = atomic_load(&e->ticks);
    ret->idle = atomic_load(&e->idle);
    ret->queued = tickets_waiting(e->tickets);
    ret->running = live > ret->queued ? live - ret->queued : 0;
}

int engine_jobs(struct engine *e, struct job_view *ret, int n)
{
    return tickets_view(e->tickets, ret, n);
}

void engine_drain(struct engine *e, bool on)
{
    atomic_store(&e->draining, on);
    e->conf.wake(e->conf.ctx);
}

void engine_release(struct engine *e, int n)
{
    atomic_fetch_add(&e->released, n);
    engine_poke(e);
}

/* The threads may be waiting for room in the out box: it is emptied until both
 * have said their last. */
void engine_stop(struct engine *e)
{
    int n_over = 2;
    void *item;

    if (!e->started) {
        return;
    }
    atomic_store(&e->stop, true);
    engine_poke(e);
    prep_stop(e->prep);
    while (n_over > 0) {
        item = mbox_pop_wait(e->out, -1);
        if (item == &over) {
            n_over--;
        } else {
            *e->stash_end = item;
            e->stash_end = &((struct event *)item)->next;
        }
    }
    (void)pthread_join(e->thread, NULL);
    e->started = false;
    prep_join(e->prep);
    /* What prep handed on when nobody took it any more. */
    while ((item = mbox_pop(e->inbox)) != NULL) {
        if (item != &nudge) {
            engine_keep_early(e, item);
        }
    }
    engine_drop_jobs(e);
}

void engine_destroy(struct engine *e)
{
    struct event *ev;

    if (e == NULL) {
        return;
    }
    engine_stop(e);
    if (e->prep != NULL) {
        prep_stop(e->prep);
        prep_join(e->prep);
    }
    core_destroy(e->core);
    model_close(e->model);
    prep_destroy(e->prep);
    while (e->out != NULL && (ev = engine_poll(e)) != NULL) {
        event_destroy(ev);
    }
    mbox_destroy(e->inbox);
    mbox_destroy(e->out);
    turns_destroy(e->turns);
    tickets_destroy(e->tickets);
    (void)pthread_mutex_destroy(&e->lock);
    free(e->path);
    free(e->backend);
    free(e->isa);
    free(e->session_dir);
    free(e);
}
