/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The engine with its threads, over the fake model: this program is the I/O
 * thread. It waits for wakes, never for time; what must not happen yet is held
 * by a step or a load that waits for us.
 */

#include "tests/test.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>

#include "daemon/sched/engine.h"
#include "tests/daemon/answers.h"
#include "tests/daemon/fake_model.h"

#define MAX_ANSWERS 200

struct rig {
    struct engine *engine;
    struct model_conf model;
    struct engine_conf conf;
    sem_t wake;
    struct answer answer[MAX_ANSWERS];
    int n_answers;
    uint64_t next_id;
    /* the load waits here, when held */
    bool hold_load;
    sem_t load_waits, load_go;
    sem_t layers; /* one post a layer boundary */
    /* the cancelling test */
    uint64_t strike_at, victim;
};

static void on_wake(void *ctx)
{
    struct rig *r = ctx;

    (void)sem_post(&r->wake);
}

static void on_load(void *ctx)
{
    struct rig *r = ctx;

    if (r->hold_load) {
        (void)sem_post(&r->load_waits);
        while (sem_wait(&r->load_go) < 0) {
        }
    }
}

static void on_layer(void *ctx, uint64_t n)
{
    struct rig *r = ctx;

    (void)n;
    (void)sem_post(&r->layers);
}

static void rig_init(struct rig *r)
{
    memset(r, 0, sizeof(*r));
    fake_reset();
    fake.on_load = on_load;
    fake.on_layer = on_layer;
    fake.ctx = r;
    (void)sem_init(&r->wake, 0, 0);
    (void)sem_init(&r->layers, 0, 0);
    (void)sem_init(&r->load_waits, 0, 0);
    (void)sem_init(&r->load_go, 0, 0);
    r->next_id = 1;
    r->model = (struct model_conf){
        .path = test_data("step-tiny"),
        .backend = "cpu",
        .max_seqs = 4,
        .max_rows = 512,
        .drafts = -1,
    };
    r->conf = (struct engine_conf){
        .model = &r->model,
        .max_queue = 64,
        .max_batched_tokens = 512,
        .step_target_ms = 150,
        .drafts = -1,
        .scrub_freed = true,
        .wake = on_wake,
        .ctx = r,
    };
}

static void rig_start(struct rig *r)
{
    assert_int_equal(engine_create(&r->engine, &r->conf), 0);
}

static struct answer *answer_of(struct rig *r, uint64_t job)
{
    for (int i = 0; i < r->n_answers; i++) {
        if (r->answer[i].job == job) {
            return &r->answer[i];
        }
    }
    fail_msg("an event of an unknown job");
    return NULL;
}

static void drain(struct rig *r)
{
    struct event *e;

    while ((e = engine_poll(r->engine)) != NULL) {
        assert_int_equal(e->conn, 7);
        assert_int_equal(e->request, e->job + 100);
        answer_take(answer_of(r, e->job), e);
    }
}

/* The next wake; a minute without one is a hang. */
static void next_wake(struct rig *r)
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

static struct engine_status status(struct rig *r)
{
    struct engine_status st;

    engine_status(r->engine, &st);
    return st;
}

static void wait_state(struct rig *r, enum engine_state s)
{
    while (status(r).state != s) {
        next_wake(r);
    }
}

static struct answer *wait_over(struct rig *r, uint64_t job)
{
    struct answer *a = answer_of(r, job);

    drain(r);
    while (!answer_over(a)) {
        next_wake(r);
    }
    return a;
}

static void wait_accepted(struct rig *r, uint64_t job)
{
    drain(r);
    while (!answer_of(r, job)->accepted) {
        next_wake(r);
    }
}

/* Until the engine is inside a step. */
static void wait_layer(struct rig *r)
{
    while (sem_wait(&r->layers) < 0) {
    }
}

static void rig_finish(struct rig *r)
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
    (void)sem_destroy(&r->layers);
    (void)sem_destroy(&r->load_waits);
    (void)sem_destroy(&r->load_go);
}

/* ---- jobs ---------------------------------------------------------------- */

static void set(struct job_text *t, const char *s)
{
    t->n = strlen(s);
    t->p = strdup(s);
}

static struct job *new_job(struct rig *r, const char *prompt, int max_tokens)
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

static int try_submit(struct rig *r, struct job *j)
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

static uint64_t submit(struct rig *r, struct job *j)
{
    uint64_t id = j->id;

    assert_int_equal(try_submit(r, j), 0);
    return id;
}

/* ---- tests --------------------------------------------------------------- */

static void test_answers_a_prompt(void **state)
{
    struct engine_status st;
    struct answer *a;
    struct rig r;
    uint64_t id;

    (void)state;
    rig_init(&r);
    fake.eos_one_in = 0;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    id = submit(&r, new_job(&r, "What is the capital?", 12));
    a = wait_over(&r, id);
    assert_true(a->accepted && a->done);
    assert_int_equal(a->finish, FINISH_LENGTH);
    assert_int_equal(a->n_ids, 12);
    assert_int_equal(a->usage.prompt_tokens, a->prompt_tokens);
    assert_int_equal(a->seed, 31);
    assert_true(a->timings.queue_ms >= 0 && a->timings.prefill_ms >= 0);
    engine_stop(r.engine);
    st = status(&r);
    assert_int_equal(st.state, ENGINE_STOPPED);
    assert_int_equal(st.requests, 1);
    assert_int_equal(st.finished, 1);
    assert_int_equal(st.completion_tokens, 12);
    assert_string_equal(st.family, "fake");
    assert_int_equal(st.max_model_len, 1024);
    assert_int_equal(st.load_done, 1000);
    rig_finish(&r);
}

static void test_prompt_gets_bos_once(void **state)
{
    struct rig r;
    uint64_t a, b;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    a = submit(&r, new_job(&r, "hello", 1));
    b = submit(&r, new_job(&r, "<｜begin▁of▁sentence｜>hello", 1));
    assert_int_equal(wait_over(&r, a)->usage.prompt_tokens,
                     wait_over(&r, b)->usage.prompt_tokens);
    rig_finish(&r);
}

static void test_jobs_wait_for_the_load_and_cancel_is_heard(void **state)
{
    struct rig r;
    uint64_t a, b;

    (void)state;
    rig_init(&r);
    r.hold_load = true;
    rig_start(&r);
    while (sem_wait(&r.load_waits) < 0) {
    }
    assert_int_equal(status(&r).state, ENGINE_LOADING);
    a = submit(&r, new_job(&r, "one", 5));
    b = submit(&r, new_job(&r, "two", 5));
    assert_int_equal(status(&r).queued, 2);
    engine_cancel(r.engine, a);
    r.hold_load = false;
    (void)sem_post(&r.load_go);
    assert_int_equal(wait_over(&r, a)->finish, FINISH_CANCELLED);
    assert_true(wait_over(&r, b)->done);
    rig_finish(&r);
}

static void test_stop_while_loading(void **state)
{
    struct rig r;
    uint64_t a;

    (void)state;
    rig_init(&r);
    r.hold_load = true;
    rig_start(&r);
    while (sem_wait(&r.load_waits) < 0) {
    }
    a = submit(&r, new_job(&r, "one", 5));
    /* The stop is seen at the next byte of the load. */
    for (int i = 0; i < 20; i++) {
        (void)sem_post(&r.load_go);
    }
    engine_stop(r.engine);
    drain(&r);
    assert_true(answer_over(answer_of(&r, a)));
    rig_finish(&r);
}

static void load_fails(int open_error, int self_test_error, int exit_code,
                       const char *path)
{
    struct rig r;
    uint64_t a = 0;

    rig_init(&r);
    fake.open_error = open_error;
    fake.self_test_error = self_test_error;
    r.hold_load = true;
    if (path != NULL) {
        r.model.path = path;
    }
    rig_start(&r);
    while (sem_wait(&r.load_waits) < 0) {
    }
    a = submit(&r, new_job(&r, "one", 5));
    r.hold_load = false;
    (void)sem_post(&r.load_go);
    wait_state(&r, ENGINE_FAILED);
    assert_int_equal(status(&r).exit_code, exit_code);
    assert_true(strlen(status(&r).cause) > 10);
    assert_string_equal(wait_over(&r, a)->code, "unavailable");
    assert_int_equal(try_submit(&r, new_job(&r, "late", 5)), -ESHUTDOWN);
    rig_finish(&r);
}

static void test_failed_load_ends_what_waits(void **state)
{
    (void)state;
    load_fails(-EBADMSG, 0, 65, NULL);
    load_fails(-ENODEV, 0, 69, NULL);
    load_fails(-ENOMEM, 0, 70, NULL);
    load_fails(0, -EIO, 70, NULL);
    load_fails(0, 0, 65, "/nonexistent");
}

static void test_full_queue_is_busy(void **state)
{
    uint64_t id[7];
    struct rig r;

    (void)state;
    rig_init(&r);
    r.conf.max_queue = 3;
    r.conf.hold_steps = true;
    r.model.max_seqs = 2;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    /* The first is in a held step; the next three wait. */
    id[0] = submit(&r, new_job(&r, "run", 3));
    wait_layer(&r);
    for (int i = 1; i < 4; i++) {
        id[i] = submit(&r, new_job(&r, "wait", 3));
        wait_accepted(&r, id[i]);
    }
    assert_int_equal(try_submit(&r, new_job(&r, "too many", 3)), -EBUSY);
    /* A cancelled one makes room, held step or not. */
    engine_cancel(r.engine, id[3]);
    assert_int_equal(wait_over(&r, id[3])->finish, FINISH_CANCELLED);
    id[4] = submit(&r, new_job(&r, "room", 3));
    engine_release(r.engine, 1000);
    for (int i = 0; i < 5; i++) {
        assert_true(wait_over(&r, id[i])->done);
    }
    rig_finish(&r);
}

static void test_everything_is_heard_inside_a_held_step(void **state)
{
    struct rig r;
    uint64_t a, b;

    (void)state;
    rig_init(&r);
    r.conf.hold_steps = true;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    a = submit(&r, new_job(&r, "held", 50));
    wait_accepted(&r, a);
    for (int i = 0; i < 50; i++) {
        struct job *t = new_job(&r, "a b c", 0);
        uint64_t id = t->id;

        t->kind = JOB_TOKENIZE;
        submit(&r, t);
        assert_true(wait_over(&r, id)->plain);
    }
    b = submit(&r, new_job(&r, "held", 50));
    wait_accepted(&r, b);
    assert_int_equal(answer_of(&r, a)->n_deltas, 0);
    engine_cancel(r.engine, a);
    assert_int_equal(wait_over(&r, a)->finish, FINISH_CANCELLED);
    engine_cancel(r.engine, b);
    assert_int_equal(wait_over(&r, b)->finish, FINISH_CANCELLED);
    rig_finish(&r);
}

static void test_held_steps_pass_one_by_one(void **state)
{
    struct answer *a;
    struct rig r;
    uint64_t id;

    (void)state;
    rig_init(&r);
    fake.eos_one_in = 0;
    fake.n_mtp = 0;
    r.conf.hold_steps = true;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    id = submit(&r, new_job(&r, "x", 6));
    a = answer_of(&r, id);
    for (int i = 1; i <= 6; i++) {
        engine_release(r.engine, 1);
        while (a->n_deltas < i) {
            next_wake(&r);
        }
        assert_int_equal(a->n_deltas, i);
    }
    assert_true(wait_over(&r, id)->done);
    rig_finish(&r);
}

static void test_time_limit_covers_queue_and_steps(void **state)
{
    struct rig r;
    struct job *j;
    uint64_t a, b;

    (void)state;
    rig_init(&r);
    r.conf.hold_steps = true;
    r.model.max_seqs = 1;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    j = new_job(&r, "held in its step", 50);
    j->timeout_ms = 20;
    a = submit(&r, j);
    j = new_job(&r, "never starts", 50);
    j->timeout_ms = 10;
    b = submit(&r, j);
    assert_int_equal(wait_over(&r, a)->finish, FINISH_TIMEOUT);
    assert_int_equal(wait_over(&r, b)->finish, FINISH_TIMEOUT);
    assert_int_equal(answer_of(&r, b)->usage.completion_tokens, 0);
    rig_finish(&r);
}

static void test_drain_lets_accepted_work_end(void **state)
{
    struct rig r;
    uint64_t a, b;

    (void)state;
    rig_init(&r);
    r.conf.hold_steps = true;
    r.model.max_seqs = 1;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    a = submit(&r, new_job(&r, "one", 5));
    b = submit(&r, new_job(&r, "two", 5));
    wait_accepted(&r, b);
    engine_drain(r.engine, true);
    assert_int_equal(status(&r).state, ENGINE_DRAINING);
    assert_int_equal(try_submit(&r, new_job(&r, "three", 5)), -ESHUTDOWN);
    engine_release(r.engine, 1000);
    assert_int_equal(wait_over(&r, a)->failed, false);
    assert_int_equal(wait_over(&r, b)->failed, false);
    engine_drain(r.engine, false);
    assert_int_equal(status(&r).state, ENGINE_READY);
    assert_true(wait_over(&r, submit(&r, new_job(&r, "four", 5)))->done);
    rig_finish(&r);
}

static void test_stop_ends_running_and_waiting(void **state)
{
    struct rig r;
    uint64_t a, b;

    (void)state;
    rig_init(&r);
    r.conf.hold_steps = true;
    r.model.max_seqs = 1;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    a = submit(&r, new_job(&r, "one", 50));
    wait_layer(&r);
    b = submit(&r, new_job(&r, "two", 50));
    wait_accepted(&r, b);
    engine_stop(r.engine);
    engine_stop(r.engine);
    drain(&r);
    assert_true(answer_of(&r, a)->done);
    assert_int_equal(answer_of(&r, a)->finish, FINISH_CANCELLED);
    assert_string_equal(answer_of(&r, b)->code, "draining");
    assert_int_equal(try_submit(&r, new_job(&r, "late", 5)), -ESHUTDOWN);
    rig_finish(&r);
}

static void test_pause_holds_one_job(void **state)
{
    struct rig r;
    uint64_t a, b;
    int n;

    (void)state;
    rig_init(&r);
    fake.eos_one_in = 0;
    r.conf.hold_steps = true;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    a = submit(&r, new_job(&r, "paused", 40));
    b = submit(&r, new_job(&r, "goes on", 40));
    wait_accepted(&r, b);
    engine_release(r.engine, 1);
    engine_pause(r.engine, a, true);
    engine_release(r.engine, 1000);
    assert_true(wait_over(&r, b)->done);
    n = answer_of(&r, a)->n_ids;
    assert_true(n < 40);
    engine_cancel(r.engine, a); /* heard while paused */
    assert_int_equal(wait_over(&r, a)->finish, FINISH_CANCELLED);
    assert_int_equal(answer_of(&r, a)->n_ids, n);
    rig_finish(&r);
}

static void test_fault_of_the_device_ends_all(void **state)
{
    struct rig r;
    uint64_t a, b;

    (void)state;
    rig_init(&r);
    fake.fail_step = 3;
    r.conf.hold_steps = true;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    a = submit(&r, new_job(&r, "one", 50));
    b = submit(&r, new_job(&r, "two", 50));
    wait_accepted(&r, b);
    engine_release(r.engine, 1000);
    assert_string_equal(wait_over(&r, a)->code, "internal");
    assert_string_equal(wait_over(&r, b)->code, "internal");
    wait_state(&r, ENGINE_FAILED);
    assert_int_equal(status(&r).exit_code, 70);
    rig_finish(&r);
}

static void test_changed_shards_end_all_as_corrupt(void **state)
{
    struct rig r;
    uint64_t a;

    (void)state;
    rig_init(&r);
    fake.eos_one_in = 0;
    fake.stale_after = 4;
    rig_start(&r);
    a = submit(&r, new_job(&r, "one", 500));
    assert_string_equal(wait_over(&r, a)->code, "corrupt");
    wait_state(&r, ENGINE_FAILED);
    assert_int_equal(status(&r).exit_code, 70);
    assert_non_null(strstr(status(&r).cause, "model-00001"));
    rig_finish(&r);
}

/* On the engine thread, at a layer boundary, before the engine's own look. */
static void strike(void *ctx, uint64_t n)
{
    struct rig *r = ctx;

    if (n == r->strike_at) {
        engine_cancel(r->engine, r->victim);
    }
}

static void test_cancel_at_any_layer_boundary(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 50; k++) {
        struct rig r;
        uint64_t a, b;

        rig_init(&r);
        fake.eos_one_in = 0;
        fake.on_layer = strike;
        r.strike_at = 1 + k * 7 % 60;
        r.victim = 1;
        rig_start(&r);
        a = submit(&r, new_job(&r, "to be cancelled", 400));
        b = submit(&r, new_job(&r, "stays", 60));
        assert_int_equal(wait_over(&r, a)->finish, FINISH_CANCELLED);
        assert_int_equal(wait_over(&r, b)->n_ids, 60);
        assert_true(fake_last_row(31) < r.strike_at);
        rig_finish(&r);
    }
}

/* From this thread, at whatever moment it comes: the layer that runs is the
 * last. */
static void test_cancel_at_any_moment(void **state)
{
    struct rig r;
    unsigned late = 0;

    (void)state;
    rig_init(&r);
    fake.eos_one_in = 0;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    for (int k = 0; k < 50; k++) {
        struct job *j = new_job(&r, "to be cancelled", 900);
        uint64_t seed = j->seed, id = j->id, at;

        submit(&r, j);
        wait_accepted(&r, id);
        while (answer_of(&r, id)->n_deltas < k) {
            next_wake(&r);
        }
        engine_cancel(r.engine, id);
        at = fake_boundaries();
        assert_int_equal(wait_over(&r, id)->finish, FINISH_CANCELLED);
        assert_true(fake_last_row(seed) <= at + 1);
        late += fake_last_row(seed) > at;
    }
    (void)late;
    rig_finish(&r);
}

static void test_many_at_once_equal_their_solo_runs(void **state)
{
    static struct rig r, solo;

    (void)state;
    rig_init(&solo);
    rig_start(&solo);
    for (int i = 0; i < 32; i++) {
        wait_over(&solo, submit(&solo, new_job(&solo, "the same words", 60)));
    }
    engine_stop(solo.engine);
    rig_init(&r);
    rig_start(&r);
    for (int i = 0; i < 32; i++) {
        submit(&r, new_job(&r, "the same words", 60));
    }
    for (int i = 0; i < 32; i++) {
        wait_over(&r, (uint64_t)i + 1);
        assert_same_answer(&r.answer[i], &solo.answer[i]);
    }
    assert_true(fake_shared_steps() > 0);
    rig_finish(&r);
    rig_finish(&solo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_a_prompt),
        cmocka_unit_test(test_prompt_gets_bos_once),
        cmocka_unit_test(test_jobs_wait_for_the_load_and_cancel_is_heard),
        cmocka_unit_test(test_stop_while_loading),
        cmocka_unit_test(test_failed_load_ends_what_waits),
        cmocka_unit_test(test_full_queue_is_busy),
        cmocka_unit_test(test_everything_is_heard_inside_a_held_step),
        cmocka_unit_test(test_held_steps_pass_one_by_one),
        cmocka_unit_test(test_time_limit_covers_queue_and_steps),
        cmocka_unit_test(test_drain_lets_accepted_work_end),
        cmocka_unit_test(test_stop_ends_running_and_waiting),
        cmocka_unit_test(test_pause_holds_one_job),
        cmocka_unit_test(test_fault_of_the_device_ends_all),
        cmocka_unit_test(test_changed_shards_end_all_as_corrupt),
        cmocka_unit_test(test_cancel_at_any_layer_boundary),
        cmocka_unit_test(test_cancel_at_any_moment),
        cmocka_unit_test(test_many_at_once_equal_their_solo_runs),
    };

    return test_main(tests, NULL, NULL);
}
