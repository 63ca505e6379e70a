/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The engine without its threads: a cancel at any layer boundary, faults that
 * hit one request only, what cannot be served, and waiting.
 */

#include "tests/test.h"

#include <math.h>

#include "tests/daemon/core_rig.h"

/* ---- cancel -------------------------------------------------------------- */

static void strike(struct rig *r, uint64_t n)
{
    if (n == r->strike_at) {
        cancel(r, r->victim);
        assert_true(answer_of(r, r->victim)->done);
        assert_int_equal(answer_of(r, r->victim)->finish, FINISH_CANCELLED);
    }
}

/* 50 random layer boundaries, three others in the batch: after the cancel no
 * row of the request is computed, its final event is out at once, its pages are
 * free after the step, and the others never notice. */
static void test_cancel_stops_at_the_layer_boundary(void **state)
{
    struct answer other;
    int struck = 0;

    (void)state;
    fake.eos_one_in = 0;
    other = alone_with_drafts(({
        struct job *j = new_job(2, 90);

        j->max_tokens = 40;
        j->drafts = 0;
        j;
    }));
    for (unsigned k = 0; k < 50; k++) {
        struct core_counts n;
        struct job *j;
        struct rig r;

        fake_reset();
        fake.eos_one_in = 0;
        rig_init(&r);
        rig_start(&r);
        r.rng = k + 1;
        r.strike_at = 1 + rnd(&r, 80);
        r.victim = 1;
        r.on_layer = strike;
        for (uint64_t id = 1; id <= 4; id++) {
            j = new_job(id, id == 1 ? 200 : 90);
            j->max_tokens = id == 1 ? 200 : 40;
            j->drafts = id == 1 ? -1 : 0;
            rig_add(&r, j);
        }
        while (fake_boundaries() < r.strike_at) {
            assert_int_equal(core_step(r.core), 1);
        }
        core_counts(r.core, &n);
        assert_int_equal(n.cancelled, 1);
        assert_true(fake_last_row(1 * 1000 + 17) < r.strike_at);
        struck += fake_last_row(1 * 1000 + 17) > 0;
        rig_run(&r);
        assert_same_answer(answer_of(&r, 2), &other);
        rig_finish(&r);
    }
    assert_true(struck > 40);
    answer_finish(&other);
}

static void test_cancel_between_steps_and_while_queued(void **state)
{
    struct core_counts n;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    r.conf.max_seqs = 1;
    rig_start(&r);
    for (uint64_t id = 1; id <= 3; id++) {
        rig_add(&r, new_job(id, 50));
    }
    assert_int_equal(r.answer[0].queue_position, 0);
    assert_int_equal(r.answer[2].queue_position, 2);
    for (int i = 0; i < 5; i++) {
        core_step(r.core);
    }
    cancel(&r, 2); /* queued */
    assert_int_equal(r.answer[1].finish, FINISH_CANCELLED);
    assert_int_equal(r.answer[1].usage.completion_tokens, 0);
    cancel(&r, 1); /* running */
    assert_true(r.answer[0].usage.completion_tokens > 0);
    assert_int_equal(r.answer[0].n_ids, r.answer[0].usage.completion_tokens);
    cancel(&r, 3);
    cancel(&r, 3);
    cancel(&r, 99);
    core_counts(r.core, &n);
    assert_int_equal(n.cancelled, 3);
    assert_int_equal(core_step(r.core), 0);
    rig_finish(&r);
}

static void end_all(struct rig *r, uint64_t n)
{
    if (n == r->strike_at) {
        core_end_all(r->core, false, "draining", "the daemon stops");
    }
}

static void test_end_of_everything_within_a_step(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r);
    r.conf.max_seqs = 2;
    rig_start(&r);
    r.on_layer = end_all;
    r.strike_at = 3;
    for (uint64_t id = 1; id <= 4; id++) {
        rig_add(&r, new_job(id, 50));
    }
    rig_run(&r);
    assert_int_equal(fake_boundaries(), 4);
    for (int i = 0; i < 4; i++) {
        assert_true(answer_over(&r.answer[i]));
        assert_int_equal(r.answer[i].done, i < 2);
        if (i >= 2) {
            assert_string_equal(r.answer[i].code, "draining");
        }
    }
    rig_finish(&r);
}

/* ---- faults -------------------------------------------------------------- */

static void test_non_finite_hits_one_request(void **state)
{
    struct answer other;
    struct rig r;

    (void)state;
    other = alone_with_drafts(new_job(2, 90));
    fake.nan_token = 55;
    rig_init(&r);
    rig_start(&r);
    for (uint64_t id = 1; id <= 2; id++) {
        struct job *j = new_job(id, 90);

        if (id == 1) {
            j->ids[70] = 55;
        }
        rig_add(&r, j);
    }
    rig_run(&r);
    assert_true(r.answer[0].failed);
    assert_string_equal(r.answer[0].code, "internal");
    assert_non_null(strstr(r.answer[0].message, "layer 2"));
    assert_int_equal(r.log_lines, 1);
    assert_same_answer(&r.answer[1], &other);
    rig_finish(&r);
    answer_finish(&other);
}

static int n_scrubs[MODEL_N_GROUPS];

static void on_scrub(void *ctx, enum model_group g, int page)
{
    (void)ctx;
    (void)page;
    n_scrubs[g]++;
}

/* Each page that was written is overwritten once, when a request fails so;
 * where freed pages are (in debug builds), then also when it ends well. */
static void test_what_is_scrubbed(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        for (int freed = 0; freed < 2; freed++) {
            int times = bad ? 1 : 0;
            struct job *j = new_job(1, 3 * MODEL_PAGE_TOK);
            struct rig r;

            fake_reset();
            fake.nan_token = 55;
            fake.on_scrub = on_scrub;
            memset(n_scrubs, 0, sizeof(n_scrubs));
            rig_init(&r);
            r.conf.scrub_freed = freed;
            r.conf.no_prefix_cache = true;
            r.conf.prefill_chunk = j->n_ids;
            rig_start(&r);
            j->ids[50] = bad ? 55 : j->ids[50];
            j->max_tokens = 1;
            rig_add(&r, j);
            rig_run(&r);
            assert_int_equal(r.answer[0].failed, bad);
            assert_int_equal(r.answer[0].done, !bad);
            assert_int_equal(n_scrubs[MODEL_FULL], 3 * (times + freed));
            assert_in_range(n_scrubs[MODEL_SLIDING], 3 * (times + freed),
                            4 * (times + freed)); /* one for the drafts */
            rig_finish(&r);
        }
    }
}

static void test_device_fault_is_told_and_everything_can_be_ended(void **state)
{
    struct rig r;

    (void)state;
    fake.fail_step = 3;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 50));
    rig_add(&r, new_job(2, 50));
    assert_int_equal(core_step(r.core), 1);
    assert_int_equal(core_step(r.core), 1);
    assert_int_equal(core_step(r.core), -EIO);
    core_end_all(r.core, true, "internal", "the step failed");
    assert_true(r.answer[0].failed && r.answer[1].failed);
    rig_finish(&r);
}

static void test_too_long_names_both_numbers(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 1024)); /* no room for an answer */
    assert_string_equal(r.answer[0].code, "too_long");
    assert_non_null(strstr(r.answer[0].message, "1024"));
    assert_non_null(strstr(r.answer[0].message, "1023"));
    j = new_job(2, 10);
    j->ids[4] = 1024;
    rig_add(&r, j);
    assert_string_equal(r.answer[1].code, "bad_request");
    rig_add(&r, new_job(3, 1023)); /* just fits: one token */
    rig_run(&r);
    assert_int_equal(r.answer[2].n_ids, 1);
    rig_finish(&r);

    rig_init(&r);
    r.conf.max_prompt_tokens = 100;
    rig_start(&r);
    rig_add(&r, new_job(1, 101));
    assert_non_null(strstr(r.answer[0].message, "at most 100"));
    rig_finish(&r);
}

static void test_pools_too_small_are_refused_at_the_start(void **state)
{
    const struct model_conf mc = {.max_seqs = 1, .max_rows = 64};
    struct model_report rep = {0};
    struct core *c;
    struct rig r;

    (void)state;
    fake.pages[MODEL_FULL] = 15;
    rig_init(&r);
    assert_int_equal(model_open(&r.model, &mc, &rep), 0);
    r.conf.model = r.model;
    r.conf.tokenizer = tokenizer;
    assert_int_equal(core_create(&c, &r.conf), -ENOSPC);
    model_close(r.model);
}

static void test_answer_fills_the_context(void **state)
{
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.max_model_len = 200;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 60));
    rig_run(&r);
    assert_int_equal(r.answer[0].finish, FINISH_LENGTH);
    assert_int_equal(r.answer[0].n_ids, 140);
    rig_finish(&r);
}

static void test_seed_is_drawn_and_told(void **state)
{
    uint64_t seed[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job *j = new_job(1, 5);
        struct rig r;

        j->seed_given = false;
        j->max_tokens = 3;
        rig_init(&r);
        rig_start(&r);
        rig_add(&r, j);
        rig_run(&r);
        seed[i] = r.answer[0].seed;
        rig_finish(&r);
    }
    assert_true(seed[0] != seed[1]);
}

/* ---- waiting ------------------------------------------------------------- */

static void test_progress_comes_four_times_a_second_at_most(void **state)
{
    struct core_counts n;
    struct rig r;
    uint64_t t0;

    (void)state;
    fake.step_us = 100000; /* ten steps a second */
    rig_init(&r);
    fake.step_us = 100000;
    r.conf.prefill_chunk = 7;
    rig_start(&r);
    t0 = r.clock_us;
    rig_add(&r, new_job(1, 700));
    while (!r.answer[0].done && r.answer[0].n_deltas == 0) {
        core_step(r.core);
        assert_true((uint64_t)r.answer[0].n_progress <=
                    1 + (r.clock_us - t0) / 250000);
    }
    core_counts(r.core, &n);
    assert_true(r.answer[0].n_progress > (int)n.steps / 4);
    assert_true(r.answer[0].n_progress < (int)n.steps / 2);
    rig_run(&r);
    rig_finish(&r);
}

static void test_paused_request_makes_no_rows(void **state)
{
    struct model_stats a, b;
    const struct ticket_call on = {.job = 1, .paused = true};
    const struct ticket_call off = {.job = 1};
    struct rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 10));
    core_step(r.core);
    assert_true(core_call(r.core, &on));
    model_stats(r.model, &a);
    assert_int_equal(core_step(r.core), 0);
    model_stats(r.model, &b);
    assert_int_equal(a.rows, b.rows);
    assert_true(core_call(r.core, &off));
    rig_run(&r);
    assert_true(r.answer[0].done);
    rig_finish(&r);
}

/* uid A holds 64 queued requests; B's first token comes after at most two more
 * steps than alone. */
static void test_crowd_does_not_delay_a_newcomer(void **state)
{
    int steps[2];

    (void)state;
    fake.eos_one_in = 0;
    for (int crowd = 0; crowd < 2; crowd++) {
        struct job *j;
        struct rig r;

        rig_init(&r);
        rig_start(&r);
        for (uint64_t id = 1; crowd && id <= 64; id++) {
            j = new_job(id, 200);
            j->max_tokens = 100;
            rig_add(&r, j);
        }
        for (int i = 0; crowd && i < 40; i++) {
            core_step(r.core);
        }
        j = new_job(100, 60);
        j->uid = 7;
        j->max_tokens = 4;
        rig_add(&r, j);
        for (steps[crowd] = 0; answer_of(&r, 100)->n_deltas == 0;) {
            core_step(r.core);
            steps[crowd]++;
        }
        core_end_all(r.core, false, "draining", "enough");
        rig_finish(&r);
    }
    assert_true(steps[1] <= steps[0] + 2);
}

/* Fair shares by deficit: whoever came with one long prompt has half of the
 * rows until it is read, though another user has ten of them, and came before.
 */
static void test_owners_get_the_same_rows(void **state)
{
    enum { LEN = 900 };
    struct model_stats n;
    struct rig r;
    struct job *j;

    (void)state;
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = fake.pages[MODEL_SLIDING] = 400;
    rig_init(&r);
    r.conf.max_batched_tokens = MODEL_PAGE_TOK; /* one turn a step */
    r.conf.max_seqs = 20;
    rig_start(&r);
    for (uint64_t id = 1; id <= 11; id++) {
        j = new_job(id, LEN);
        j->uid = id == 11;
        j->max_tokens = 1;
        rig_add(&r, j);
    }
    while (answer_of(&r, 11)->n_deltas == 0) {
        assert_int_equal(core_step(r.core), 1);
    }
    model_stats(r.model, &n);
    assert_in_range(n.row_layers / (uint64_t)fake.n_layers, LEN,
                    2 * LEN + 2 * r.conf.max_batched_tokens);
    rig_run(&r);
    rig_finish(&r);
}

/* Prompts that wait are work that was promised: a (uid, tenant) may not pile up
 * any amount of it. What runs does not count, and a first one always may. */
static void test_waiting_prompt_tokens_of_an_owner_are_capped(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    r.conf.max_seqs = 1;
    r.conf.max_queued_tokens = 100;
    rig_start(&r);
    rig_add(&r, new_job(1, 500));
    core_step(r.core); /* it runs */
    rig_add(&r, new_job(2, 60));
    rig_add(&r, new_job(3, 40));
    rig_add(&r, new_job(4, 1));
    assert_true(r.answer[1].accepted && r.answer[2].accepted);
    assert_string_equal(r.answer[3].code, "busy");
    assert_int_equal(r.answer[3].retry_ms, CORE_RETRY_MS);
    assert_non_null(strstr(r.answer[3].message, "100 tokens"));
    for (uint64_t id = 5; id <= 6; id++) {
        j = new_job(id, 90); /* another user, and a tenant of the first */
        j->uid = id == 5 ? 8 : 0;
        strcpy(j->tenant, id == 5 ? "" : "ann");
        rig_add(&r, j);
        assert_true(answer_of(&r, id)->accepted);
    }
    core_end_all(r.core, false, "draining", "enough");
    rig_finish(&r);
}

static void test_times_are_counted_once_a_token(void **state)
{
    struct core_counts n;
    struct rig r;
    struct job *j;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r); /* a step takes 20 ms and half a one for each row */
    r.conf.max_seqs = 1;
    rig_start(&r);
    for (uint64_t id = 1; id <= 2; id++) {
        j = new_job(id, 10);
        j->max_tokens = 5;
        j->drafts = 0;
        rig_add(&r, j);
    }
    rig_run(&r);
    core_counts(r.core, &n);
    assert_int_equal(n.times.queue.count, 2);
    assert_int_equal(n.times.first_token.count, 2);
    assert_int_equal(n.times.request.count, 2);
    assert_int_equal(n.times.between_tokens.count, 2 * 4);
    assert_int_equal(n.times.step.count, n.steps);
    /* 20.5 ms a token; 25 ms for the prompt, which is its first token too. */
    assert_true(fabs(n.times.between_tokens.sum - 8 * 0.0205) < 1e-9);
    assert_true(fabs(n.times.first_token.sum - (0.025 + 0.025 + 0.107)) < 1e-9);
    assert_true(fabs(n.times.queue.sum - 0.107) < 1e-9);
    assert_true(fabs(n.times.request.sum - 3 * 0.107) < 1e-9);
    assert_true(fabs(n.times.step.sum - 2 * 0.107) < 1e-9);
    assert_true(fabs(n.times.model_s - 2 * 0.107) < 1e-9);
    rig_finish(&r);
}

/* More owners come and go than the table of shares has places. */
static void test_any_number_of_owners(void **state)
{
    struct core_counts n;
    struct rig r;

    (void)state;
    rig_init(&r);
    r.conf.max_live = 4;
    rig_start(&r);
    for (uint64_t id = 1; id <= 100; id++) {
        struct job *j = new_job(id, 3);

        j->uid = (uint32_t)id;
        j->max_tokens = 1;
        rig_add(&r, j);
        rig_run(&r);
    }
    core_counts(r.core, &n);
    assert_int_equal(n.finished, 100);
    rig_finish(&r);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        TEST(test_cancel_stops_at_the_layer_boundary),
        TEST(test_cancel_between_steps_and_while_queued),
        TEST(test_end_of_everything_within_a_step),
        TEST(test_non_finite_hits_one_request),
        TEST(test_what_is_scrubbed),
        TEST(test_device_fault_is_told_and_everything_can_be_ended),
        TEST(test_too_long_names_both_numbers),
        TEST(test_pools_too_small_are_refused_at_the_start),
        TEST(test_answer_fills_the_context),
        TEST(test_seed_is_drawn_and_told),
        TEST(test_progress_comes_four_times_a_second_at_most),
        TEST(test_paused_request_makes_no_rows),
        TEST(test_any_number_of_owners),
        TEST(test_waiting_prompt_tokens_of_an_owner_are_capped),
        TEST(test_times_are_counted_once_a_token),
        TEST(test_crowd_does_not_delay_a_newcomer),
        TEST(test_owners_get_the_same_rows),
    };

    return test_main(tests, NULL, teardown_group);
}
