/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_DAEMON_ENGINE_RIG_H
#define TESTS_DAEMON_ENGINE_RIG_H

/*
 * An engine, with this thread in the part of the I/O thread: jobs go in, events
 * are put together to answers. It waits for wakes, never for time.
 */

#include "tests/test.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>

#include "daemon/model/model.h"
#include "daemon/sched/engine.h"
#include "tests/daemon/answers.h"

#define MAX_ANSWERS 400

struct rig {
    struct engine *engine;
    struct model_conf model;
    struct engine_conf conf;
    sem_t wake;
    struct answer answer[MAX_ANSWERS];
    int n_answers;
    uint64_t next_id;
};

static inline void rig_on_wake(void *ctx)
{
    struct rig *r = ctx;

    (void)sem_post(&r->wake);
}

/* Everything may be changed until rig_start. */
static inline void rig_init(struct rig *r)
{
    memset(r, 0, sizeof(*r));
    (void)sem_init(&r->wake, 0, 0);
    r->next_id = 1;
    r->model = (struct model_conf){
        .path = test_data("step-tiny"),
        .backend = "cpu",
        .max_seqs = 4,
        .max_rows = 512,
        .kv_bytes = 256 << 20, /* all of them are written, MALLOC_PERTURB_ */
        .drafts = -1,
    };
    r->conf = (struct engine_conf){
        .model = &r->model,
        .max_queue = 64,
        .max_queued_tokens = 1 << 20,
        .max_batched_tokens = 512,
        .step_target_ms = 150,
        .drafts = -1,
        .scrub_freed = true,
        .wake = rig_on_wake,
        .ctx = r,
    };
}

static inline void rig_start(struct rig *r)
{
    assert_int_equal(engine_create(&r->engine, &r->conf), 0);
}

static inline struct answer *answer_of(struct rig *r, uint64_t job)
{
    for (int i = 0; i < r->n_answers; i++) {
        if (r->answer[i].job == job) {
            return &r->answer[i];
        }
    }
    fail_msg("an event of an unknown job");
    return NULL;
}

static inline void drain(struct rig *r)
{
    struct event *e;

    while ((e = engine_poll(r->engine)) != NULL) {
        assert_int_equal(e->conn, 7);
        assert_int_equal(e->request, e->job + 100);
        answer_take(answer_of(r, e->job), e);
    }
}

/* The next wake; a minute without one is a hang. */
static inline void next_wake(struct rig *r)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 60;
    while (sem_timedwait(&r->wake, &t) < 0) {
        if (errno == ETIMEDOUT) {
            fail_msg("the engine is silent");
        }
    }
    drain(r);
}

static inline struct engine_status status(struct rig *r)
{
    struct engine_status st;

    engine_status(r->engine, &st);
    return st;
}

static inline void wait_state(struct rig *r, enum engine_state s)
{
    while (status(r).state != s) {
        next_wake(r);
    }
}

static inline struct answer *wait_over(struct rig *r, uint64_t job)
{
    struct answer *a = answer_of(r, job);

    drain(r);
    while (!answer_over(a)) {
        next_wake(r);
    }
    return a;
}

static inline void wait_accepted(struct rig *r, uint64_t job)
{
    drain(r);
    while (!answer_of(r, job)->accepted) {
        next_wake(r);
    }
}

static inline void rig_finish(struct rig *r)
{
    engine_stop(r->engine);
    drain(r);
    for (int i = 0; i < r->n_answers; i++) {
        assert_true(answer_over(&r->answer[i]));
        answer_finish(&r->answer[i]);
    }
    assert_int_equal(status(r).queued, 0);
    assert_int_equal(status(r).running, 0);
    for (int g = 0; g < 2; g++) {
        assert_int_equal(status(r).pages[g], status(r).pages_free[g]);
    }
    assert_null(engine_poll(r->engine));
    engine_destroy(r->engine);
    (void)sem_destroy(&r->wake);
}

/* ---- jobs ---------------------------------------------------------------- */

static inline void set(struct job_text *t, const char *s)
{
    t->n = strlen(s);
    t->p = strdup(s);
}

static inline struct job *new_job(struct rig *r, const char *prompt,
                                  int max_tokens)
{
    struct job *j = job_create(JOB_GENERATE);
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    j->born_us = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    j->id = r->next_id++;
    j->conn = 7;
    j->request = j->id + 100;
    j->seed = j->id * 31;
    j->seed_given = true;
    j->want_ids = true;
    j->max_tokens = max_tokens;
    set(&j->prompt, prompt);
    return j;
}

static inline int try_submit(struct rig *r, struct job *j)
{
    uint64_t id = j->id;
    int code;

    answer_init(&r->answer[r->n_answers++], id);
    code = engine_submit(r->engine, j);
    if (code < 0) {
        answer_finish(&r->answer[--r->n_answers]);
        job_destroy(j);
    }
    return code;
}

static inline uint64_t submit(struct rig *r, struct job *j)
{
    uint64_t id = j->id;

    assert_int_equal(try_submit(r, j), 0);
    return id;
}

#endif
