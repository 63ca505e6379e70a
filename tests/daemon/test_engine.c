/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The engine with its threads, over the fake model: this program is the I/O
 * thread. What must not happen yet is held by a step or a load that waits for
 * us.
 */

#include "tests/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/daemon/engine_rig.h"
#include "tests/daemon/fake_model.h"

/* The load waits here, when held. */
static bool hold_load;
static sem_t load_waits, load_go;
static sem_t layers; /* one post a layer boundary */
/* The cancelling test. */
static uint64_t strike_at, victim;

static void on_load(void *ctx)
{
    (void)ctx;
    if (hold_load) {
        (void)sem_post(&load_waits);
        while (sem_wait(&load_go) < 0) {
        }
    }
}

static void on_layer(void *ctx, uint64_t n)
{
    (void)ctx;
    (void)n;
    (void)sem_post(&layers);
}

static void fake_rig_init(struct rig *r)
{
    rig_init(r);
    fake_reset();
    fake.on_load = on_load;
    fake.on_layer = on_layer;
    fake.ctx = r;
    hold_load = false;
    (void)sem_init(&layers, 0, 0);
    (void)sem_init(&load_waits, 0, 0);
    (void)sem_init(&load_go, 0, 0);
}

/* Until the engine is inside a step. */
static void wait_layer(void)
{
    while (sem_wait(&layers) < 0) {
    }
}

/* ---- memory before it is asked for --------------------------------------- */

static sem_t scrubs;
static int n_scrubs[MODEL_N_GROUPS];

static void on_scrub(void *ctx, enum model_group g, int page)
{
    (void)ctx;
    assert_int_equal(page, n_scrubs[g]); /* each once, in the pool's order */
    n_scrubs[g]++;
    (void)sem_post(&scrubs);
}

/* While nobody asks, the pages of kv_ready tokens are written once, so that the
 * host gives their memory before somebody waits for it. */
static void test_the_pools_memory_is_asked_for_when_idle(void **state)
{
    struct timespec t;
    struct rig r;

    (void)state;
    fake_rig_init(&r);
    fake.eos_one_in = 0;
    fake.on_scrub = on_scrub;
    memset(n_scrubs, 0, sizeof(n_scrubs));
    (void)sem_init(&scrubs, 0, 0);
    r.conf.kv_ready = 300;
    r.conf.scrub_freed = false;
    rig_start(&r);
    (void)clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 60;
    for (int n = 5 + 6; n > 0; n--) { /* 300 tokens, two windows of 3 pages */
        while (sem_timedwait(&scrubs, &t) < 0) {
            assert_int_equal(errno, EINTR);
        }
    }
    assert_true(wait_over(&r, submit(&r, new_job(&r, "Hello", 12)))->done);
    rig_finish(&r);
    assert_int_equal(n_scrubs[MODEL_FULL], 5);
    assert_int_equal(n_scrubs[MODEL_SLIDING], 6);
    (void)sem_destroy(&scrubs);
}

/* ---- tests --------------------------------------------------------------- */

static void test_answers_a_prompt(void **state)
{
    struct engine_status st;
    struct answer *a;
    struct rig r;
    uint64_t id;

    (void)state;
    fake_rig_init(&r);
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
    fake_rig_init(&r);
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
    fake_rig_init(&r);
    hold_load = true;
    rig_start(&r);
    while (sem_wait(&load_waits) < 0) {
    }
    assert_int_equal(status(&r).state, ENGINE_LOADING);
    a = submit(&r, new_job(&r, "one", 5));
    b = submit(&r, new_job(&r, "two", 5));
    assert_int_equal(status(&r).queued, 2);
    engine_cancel(r.engine, a);
    hold_load = false;
    (void)sem_post(&load_go);
    assert_int_equal(wait_over(&r, a)->finish, FINISH_CANCELLED);
    assert_true(wait_over(&r, b)->done);
    rig_finish(&r);
}

static void test_stop_while_loading(void **state)
{
    struct rig r;
    uint64_t a;

    (void)state;
    fake_rig_init(&r);
    hold_load = true;
    rig_start(&r);
    while (sem_wait(&load_waits) < 0) {
    }
    a = submit(&r, new_job(&r, "one", 5));
    /* The stop is seen at the next byte of the load. */
    for (int i = 0; i < 20; i++) {
        (void)sem_post(&load_go);
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

    fake_rig_init(&r);
    fake.open_error = open_error;
    fake.self_test_error = self_test_error;
    hold_load = true;
    if (path != NULL) {
        r.model.path = path;
    }
    rig_start(&r);
    while (sem_wait(&load_waits) < 0) {
    }
    a = submit(&r, new_job(&r, "one", 5));
    hold_load = false;
    (void)sem_post(&load_go);
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
    fake_rig_init(&r);
    r.conf.max_queue = 3;
    r.conf.hold_steps = true;
    r.model.max_seqs = 2;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    /* The first is in a held step; the next three wait. */
    id[0] = submit(&r, new_job(&r, "run", 3));
    wait_layer();
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
    fake_rig_init(&r);
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
    fake_rig_init(&r);
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
    fake_rig_init(&r);
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
    fake_rig_init(&r);
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
    fake_rig_init(&r);
    r.conf.hold_steps = true;
    r.model.max_seqs = 1;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    a = submit(&r, new_job(&r, "one", 50));
    wait_layer();
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

/* The engine thread between a sleep and its look at what came in: it waits for
 * verify_go, once. */
static atomic_bool hold_verify;
static sem_t verify_waits, verify_go;
static pthread_t engine_thread;

static void on_verify(void *ctx)
{
    (void)ctx;
    if (atomic_exchange(&hold_verify, false)) {
        engine_thread = pthread_self();
        (void)sem_post(&verify_waits);
        while (sem_wait(&verify_go) < 0) {
        }
    }
}

/* The refusal's wake, on the engine thread in the middle of its look, ends with
 * that of a preparation thread that was stopped. */
static atomic_bool hold_wake, stopping;
static sem_t stopped;

static void on_wake(void *ctx)
{
    bool engine = pthread_equal(pthread_self(), engine_thread);

    rig_on_wake(ctx);
    if (engine && atomic_exchange(&hold_wake, false)) {
        while (sem_wait(&stopped) < 0) {
        }
    } else if (!engine && atomic_load(&stopping)) {
        (void)sem_post(&stopped);
    }
}

/* A stop that comes while the engine looks at its box, after it has looked at
 * the flag: the nudge that it took out there was the stop's only one. */
static void test_stop_in_the_middle_of_a_look(void **state)
{
    struct rig r;
    struct job *bad, *text;
    uint64_t id;

    (void)state;
    fake_rig_init(&r);
    fake.on_verify = on_verify;
    (void)sem_init(&verify_waits, 0, 0);
    (void)sem_init(&verify_go, 0, 0);
    (void)sem_init(&stopped, 0, 0);
    r.conf.wake = on_wake;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    atomic_store(&hold_verify, true);
    /* Wakes it; but the look before its first sleep may take a nudge too. */
    while (sem_trywait(&verify_waits) < 0) {
        engine_release(r.engine, 0);
        (void)sched_yield();
    }
    bad = new_job(&r, "one", 5);
    bad->drafts = 100;
    id = submit(&r, bad);
    text = new_job(&r, "two", 5);
    text->kind = JOB_TOKENIZE;
    /* It is answered by the thread that has handed on the other. */
    assert_true(wait_over(&r, submit(&r, text))->done);
    atomic_store(&hold_wake, true);
    (void)sem_post(&verify_go);
    assert_true(wait_over(&r, id)->failed);
    atomic_store(&stopping, true);
    rig_finish(&r);
}

static void test_pause_holds_one_job(void **state)
{
    struct rig r;
    uint64_t a, b;
    int n;

    (void)state;
    fake_rig_init(&r);
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
    fake_rig_init(&r);
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
    fake_rig_init(&r);
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

    if (n == strike_at) {
        engine_cancel(r->engine, victim);
    }
}

static void test_cancel_at_any_layer_boundary(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 50; k++) {
        struct rig r;
        uint64_t a, b;

        fake_rig_init(&r);
        fake.eos_one_in = 0;
        fake.on_layer = strike;
        strike_at = 1 + k * 7 % 60;
        victim = 1;
        rig_start(&r);
        a = submit(&r, new_job(&r, "to be cancelled", 400));
        b = submit(&r, new_job(&r, "stays", 60));
        assert_int_equal(wait_over(&r, a)->finish, FINISH_CANCELLED);
        assert_int_equal(wait_over(&r, b)->n_ids, 60);
        assert_true(fake_last_row(31) < strike_at);
        rig_finish(&r);
    }
}

/* From this thread, at whatever moment of a step it comes: the layer that runs
 * is the last. The steps are counted out, so that the job cannot end before. */
static void test_cancel_at_any_moment(void **state)
{
    struct rig r;

    (void)state;
    fake_rig_init(&r);
    fake.eos_one_in = 0;
    r.conf.hold_steps = true;
    rig_start(&r);
    wait_state(&r, ENGINE_READY);
    for (int k = 0; k < 50; k++) {
        struct job *j = new_job(&r, "to be cancelled", 900);
        uint64_t seed = j->seed, id = j->id, at;

        submit(&r, j);
        wait_accepted(&r, id);
        engine_release(r.engine, k + 2);
        while (answer_of(&r, id)->n_deltas < k) {
            next_wake(&r);
        }
        engine_cancel(r.engine, id);
        at = fake_boundaries();
        assert_int_equal(wait_over(&r, id)->finish, FINISH_CANCELLED);
        assert_true(fake_last_row(seed) <= at + 1);
    }
    rig_finish(&r);
}

static void test_many_at_once_equal_their_solo_runs(void **state)
{
    static struct rig r, solo;

    (void)state;
    fake_rig_init(&solo);
    rig_start(&solo);
    for (int i = 0; i < 32; i++) {
        wait_over(&solo, submit(&solo, new_job(&solo, "the same words", 60)));
    }
    engine_stop(solo.engine);
    fake_rig_init(&r);
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
        cmocka_unit_test(test_the_pools_memory_is_asked_for_when_idle),
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
        cmocka_unit_test(test_stop_in_the_middle_of_a_look),
        cmocka_unit_test(test_pause_holds_one_job),
        cmocka_unit_test(test_fault_of_the_device_ends_all),
        cmocka_unit_test(test_changed_shards_end_all_as_corrupt),
        cmocka_unit_test(test_cancel_at_any_layer_boundary),
        cmocka_unit_test(test_cancel_at_any_moment),
        cmocka_unit_test(test_many_at_once_equal_their_solo_runs),
    };

    return test_main(tests, NULL, NULL);
}
