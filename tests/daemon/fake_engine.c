/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See fake_engine.h. Everything happens on the calling thread.
 */

#include "tests/daemon/fake_engine.h"

#include <errno.h>
#include <string.h>

#include "tests/test.h"

int engine_create(struct engine **ret, const struct engine_conf *c)
{
    struct engine *e = calloc(1, sizeof(*e));

    if (e == NULL) {
        return -ENOMEM;
    }
    e->conf = *c;
    e->status.state = ENGINE_READY;
    *ret = e;
    return 0;
}

void engine_destroy(struct engine *e)
{
    struct event *ev;

    if (e == NULL) {
        return;
    }
    while ((ev = engine_poll(e)) != NULL) {
        event_destroy(ev);
    }
    for (int i = 0; i < e->n_jobs; i++) {
        job_destroy(e->jobs[i].job);
    }
    free(e);
}

int engine_submit(struct engine *e, struct job *j)
{
    if (e->submit_error < 0) {
        return e->submit_error;
    }
    assert_true(e->n_jobs < FAKE_MAX_JOBS);
    e->jobs[e->n_jobs++] = (struct fake_job){.job = j, .paused = j->paused};
    e->status.requests++;
    return 0;
}

static int find(const struct engine *e, uint64_t job)
{
    for (int i = 0; i < e->n_jobs; i++) {
        if (e->jobs[i].job->id == job) {
            return i;
        }
    }
    return -1;
}

void engine_cancel(struct engine *e, uint64_t job)
{
    int i = find(e, job);

    if (i < 0 || e->jobs[i].ended) {
        return; /* unknown ids are ignored */
    }
    e->jobs[i].n_cancels++;
    if (e->end_cancelled) {
        fake_done(e, i, FINISH_CANCELLED);
    }
}

void engine_pause(struct engine *e, uint64_t job, bool paused)
{
    int i = find(e, job);

    if (i >= 0 && e->jobs[i].paused != paused) {
        e->jobs[i].paused = paused;
        e->jobs[i].n_pauses++;
    }
}

struct event *engine_poll(struct engine *e)
{
    struct event *ev = e->first;

    if (ev != NULL) {
        e->first = ev->next;
        ev->next = NULL;
    }
    return ev;
}

void engine_status(struct engine *e, struct engine_status *ret)
{
    *ret = e->status;
}

int engine_jobs(struct engine *e, struct job_view *ret, int n)
{
    int at = 0;

    for (int i = 0; i < e->n_jobs && at < n; i++) {
        const struct fake_job *f = &e->jobs[i];

        if (!f->ended) {
            ret[at++] = (struct job_view){
                .job = f->job->id,
                .uid = f->job->uid,
                .started = f->started,
                .paused = f->paused,
            };
        }
    }
    return at;
}

void engine_drain(struct engine *e, bool on)
{
    e->drained = on;
    e->status.state = on ? ENGINE_DRAINING : ENGINE_READY;
}

void engine_stop(struct engine *e)
{
    e->status.state = ENGINE_STOPPED;
}

void engine_release(struct engine *e, int n)
{
    (void)e;
    (void)n;
}

/* ---- the test's side ---------------------------------------------------- */

int fake_running(const struct engine *e)
{
    int n = 0;

    for (int i = 0; i < e->n_jobs; i++) {
        n += !e->jobs[i].ended;
    }
    return n;
}

struct fake_job *fake_job(struct engine *e, int i)
{
    assert_in_range(i, 0, e->n_jobs - 1);
    return &e->jobs[i];
}

void fake_event(struct engine *e, struct event *ev)
{
    ev->next = NULL;
    if (e->first == NULL) {
        e->first = ev;
    } else {
        e->last->next = ev;
    }
    e->last = ev;
    if (e->conf.wake != NULL) {
        e->conf.wake(e->conf.ctx);
    }
}

static struct event *about(struct engine *e, int i, enum event_type type)
{
    assert_false(fake_job(e, i)->ended);
    return event_create(type, fake_job(e, i)->job);
}

void fake_accepted(struct engine *e, int i, int position, int prompt_tokens)
{
    struct event *ev = about(e, i, EVENT_ACCEPTED);

    ev->queue_position = position;
    ev->prompt_tokens = prompt_tokens;
    fake_event(e, ev);
}

void fake_delta(struct engine *e, int i, const char *text)
{
    struct event *ev = about(e, i, EVENT_DELTA);

    ev->text.n = strlen(text);
    ev->text.p = strdup(text);
    assert_non_null(ev->text.p);
    fake_event(e, ev);
}

void fake_ids(struct engine *e, int i, int n)
{
    struct event *ev = about(e, i, EVENT_PART);

    ev->ids = calloc((size_t)n, sizeof(ev->ids[0]));
    assert_non_null(ev->ids);
    for (int k = 0; k < n; k++) {
        ev->ids[k] = k;
    }
    ev->n_ids = n;
    fake_event(e, ev);
}

void fake_done(struct engine *e, int i, enum event_finish finish)
{
    struct event *ev = about(e, i, EVENT_DONE);

    ev->finish = finish;
    ev->usage.prompt_tokens = 7;
    ev->usage.completion_tokens = 3;
    ev->seed = 42;
    fake_job(e, i)->ended = true;
    e->status.finished += finish != FINISH_CANCELLED;
    e->status.cancelled += finish == FINISH_CANCELLED;
    fake_event(e, ev);
}

void fake_plain_done(struct engine *e, int i)
{
    struct event *ev = about(e, i, EVENT_DONE);

    ev->plain = true;
    fake_job(e, i)->ended = true;
    fake_event(e, ev);
}

void fake_error(struct engine *e, int i, const char *code, const char *text)
{
    struct event *ev = event_error(fake_job(e, i)->job, code, "%s", text);

    fake_job(e, i)->ended = true;
    e->status.failed++;
    fake_event(e, ev);
}

void fake_state(struct engine *e, enum engine_state state)
{
    e->status.state = state;
    if (e->conf.wake != NULL) {
        e->conf.wake(e->conf.ctx);
    }
}
