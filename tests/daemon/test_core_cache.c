/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Prefix reuse in the engine, over the fake model, which aborts when a slot is
 * read that does not hold what it should. Each answer is held against
 * arithmetic that knows nothing of pages.
 */

#include "tests/test.h"

#include "tests/daemon/core_rig.h"

static struct job *job_of(uint64_t id, const int32_t *ids, int n,
                          int max_tokens)
{
    struct job *j = new_job(id, n);

    memcpy(j->ids, ids, (size_t)n * sizeof(*ids));
    j->max_tokens = max_tokens;
    return j;
}

static void fill(int32_t *ids, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        ids[i] = i == 0 ? 0 : 100 + (i * 37 + kind * 131 + i * kind) % 800;
    }
}

/* Runs it to its end and holds it against the arithmetic. */
static struct answer *run_job(struct rig *r, struct job *j)
{
    int limit = j->max_tokens, i = r->n_answers;
    int32_t *want = malloc((size_t)limit * sizeof(*want));
    struct answer *a;

    continuation(j, limit, want);
    rig_add(r, j);
    rig_run(r);
    a = &r->answer[i];
    assert_true(a->done);
    assert_memory_equal(a->ids, want, (size_t)a->n_ids * sizeof(*want));
    assert_true(a->n_ids == limit || want[a->n_ids - 1] == fake.eos);
    free(want);
    return a;
}

static void test_the_same_prompt_again(void **state)
{
    int32_t ids[300];
    struct rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    fill(ids, 300, 1);
    assert_int_equal(run_job(&r, job_of(1, ids, 300, 20))->usage.cached_tokens,
                     0);
    for (int drafts = -1; drafts <= 3; drafts++) {
        struct job *j = job_of((uint64_t)drafts + 3, ids, 300, 30);

        j->drafts = drafts;
        assert_int_equal(run_job(&r, j)->usage.cached_tokens, 299);
    }
    rig_finish(&r);
}

/* A short, B that begins like it and is long, A again. */
static void test_fr_54_short_long_short_with_drafts(void **state)
{
    int32_t ids[700];
    struct answer *first, *again;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    rig_start(&r);
    fill(ids, 700, 1);
    for (int n = 60; n <= 68; n++) {
        uint64_t id = (uint64_t)n * 10;
        struct job *a = job_of(id, ids, n, 40),
                   *b = job_of(id + 1, ids, 700, 9),
                   *c = job_of(id + 2, ids, n, 40);

        a->drafts = b->drafts = c->drafts = 3;
        a->seed = c->seed = id;
        first = run_job(&r, a);
        (void)run_job(&r, b);
        again = run_job(&r, c);
        assert_int_equal(again->usage.cached_tokens, n - 1);
        assert_memory_equal(first->ids, again->ids, 40 * sizeof(int32_t));
        assert_int_equal(first->usage.accepted, again->usage.accepted);
    }
    rig_finish(&r);
}

/* An edit in the middle: what is behind the window is not all computed again.
 */
static void test_fr_56_an_edit_in_the_middle(void **state)
{
    int32_t ids[900];
    struct rig r;
    int cached;

    (void)state;
    rig_init(&r);
    r.conf.prefill_chunk = 64;
    rig_start(&r);
    fill(ids, 900, 1);
    (void)run_job(&r, job_of(1, ids, 900, 20));
    ids[700] = ids[700] == 200 ? 201 : 200;
    cached = run_job(&r, job_of(2, ids, 900, 20))->usage.cached_tokens;
    assert_in_range(cached, 640, 700);
    rig_finish(&r);

    /* With sliding pages for two windows only: from a checkpoint. */
    fake.pages[MODEL_SLIDING] = 14;
    rig_init(&r);
    r.conf.prefill_chunk = 64;
    rig_start(&r);
    fill(ids, 900, 1);
    (void)run_job(&r, job_of(1, ids, 900, 20));
    ids[700] = ids[700] == 200 ? 201 : 200;
    cached = run_job(&r, job_of(2, ids, 900, 20))->usage.cached_tokens;
    assert_in_range(cached, 128, 700);
    rig_finish(&r);
}

/* Checkpoints within a long prompt, when others have taken the sliding pages
 * that none needs: few, and the closer to its end the denser. What an edit
 * costs is in proportion to what follows it. */
static void test_fr_56_sparse_checkpoints(void **state)
{
    enum { LEN = 4000, OTHERS = 12, MOST = 8, W = 64 };
    int32_t ids[LEN];

    (void)state;
    fake.max_model_len = LEN + 96;
    fake.pages[MODEL_FULL] = LEN / MODEL_PAGE_TOK + 50;
    fake.pages[MODEL_SLIDING] = 40;
    for (int edit = 200; edit < LEN; edit += 200) {
        struct core_counts n;
        struct rig r;
        int cached;

        rig_init(&r);
        r.conf.prefill_chunk = 64;
        rig_start(&r);
        fill(ids, LEN, 1);
        (void)run_job(&r, job_of(1, ids, LEN, 1));
        core_counts(r.core, &n);
        assert_in_range(n.checkpoints, MOST, MOST + 2); /* prompt, answer */
        for (int k = 0; k < OTHERS; k++) {
            int32_t other[100];

            fill(other, 100, 2 + k);
            (void)run_job(&r, job_of(2 + (uint64_t)k, other, 100, 1));
        }
        ids[edit] = ids[edit] == 200 ? 201 : 200;
        cached = run_job(&r, job_of(100, ids, LEN, 1))->usage.cached_tokens;
        assert_in_range(cached, 0, edit);
        assert_true(LEN - cached <= 3 * (LEN - edit + 2 * W));
        rig_finish(&r);
    }
}

static void test_tails_that_diverge_within_a_page(void **state)
{
    int32_t ids[200];
    struct rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    for (int at = 64; at < 130; at += 3) {
        fill(ids, 200, at);
        (void)run_job(&r, job_of((uint64_t)at * 2, ids, 200, 8));
        ids[at] = ids[at] == 200 ? 201 : 200;
        /* A few tokens of a page are not worth a copy of it. */
        assert_int_equal(run_job(&r, job_of((uint64_t)at * 2 + 1, ids, 200, 8))
                             ->usage.cached_tokens,
                         at % 64 < 16 ? at - at % 64 : at);
    }
    rig_finish(&r);
}

/* Two that run at the same time share what they compute as they go. */
static void test_pages_are_shared_while_both_run(void **state)
{
    int32_t ids[640];
    struct core_counts n;
    struct rig r;
    int least = 64;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    rig_start(&r);
    fill(ids, 640, 1);
    (void)run_job(&r, job_of(1, ids, 640, 1));
    for (uint64_t i = 2; i < 8; i++) {
        rig_add(&r, job_of(i, ids, 640, 30));
    }
    for (int s; (s = core_step(r.core)) > 0;) {
        core_counts(r.core, &n);
        least =
            n.pages_free[MODEL_FULL] < least ? n.pages_free[MODEL_FULL] : least;
    }
    /* 10 pages for all, and a page or two for each of the six. */
    assert_in_range(least, 64 - 10 - 12, 64 - 10);
    rig_finish(&r);
}

/* A reply is interrupted; the conversation goes on with more. */
static void test_fr_61_what_a_cancelled_request_computed_is_used(void **state)
{
    int32_t ids[800];
    struct rig r;
    int n;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    r.conf.prefill_chunk = 100;
    rig_start(&r);
    fill(ids, 800, 1);
    rig_add(&r, job_of(1, ids, 500, 400));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(core_step(r.core), 1);
    }
    cancel(&r, 1);
    rig_run(&r);
    n = r.answer[0].n_ids;
    assert_in_range(n, 15, 60);
    memcpy(ids + 500, r.answer[0].ids, (size_t)n * sizeof(*ids));
    /* All but the last token that was drawn, whose row never ran. */
    assert_int_equal(run_job(&r, job_of(2, ids, 600, 20))->usage.cached_tokens,
                     500 + n - 1);
    /* In the middle of a prompt: the chunks that were done. */
    fill(ids, 800, 2);
    rig_add(&r, job_of(3, ids, 800, 400));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(core_step(r.core), 1);
    }
    cancel(&r, 3);
    rig_run(&r);
    assert_int_equal(run_job(&r, job_of(4, ids, 800, 20))->usage.cached_tokens,
                     500);
    rig_finish(&r);
}

static void cancel_victim(struct rig *r, uint64_t n)
{
    if (n == r->strike_at) {
        cancel(r, r->victim);
    }
}

/* Also when the cancel comes within a step. */
static void test_fr_61_a_cancel_between_layers(void **state)
{
    int32_t ids[800];
    struct rig r;

    (void)state;
    rig_init(&r);
    r.conf.prefill_chunk = 100;
    r.on_layer = cancel_victim;
    rig_start(&r);
    fill(ids, 800, 1);
    rig_add(&r, job_of(1, ids, 800, 20));
    r.strike_at = 3 * (uint64_t)fake.n_layers + 2;
    r.victim = 1;
    rig_run(&r);
    assert_int_equal(r.answer[0].finish, FINISH_CANCELLED);
    assert_int_equal(run_job(&r, job_of(2, ids, 800, 20))->usage.cached_tokens,
                     300);
    rig_finish(&r);
}

static void test_domains(void **state)
{
    int32_t ids[300];
    struct rig r;

    (void)state;
    for (int share = 0; share < 2; share++) {
        rig_init(&r);
        r.conf.share_prefix_cache = share;
        rig_start(&r);
        fill(ids, 300, 1);
        for (uint64_t i = 1; i <= 3; i++) {
            struct job *j = job_of(i, ids, 300, 5);

            j->uid = i == 2 ? 7 : 8;
            strcpy(j->tenant, i == 3 ? "t" : "");
            assert_int_equal(run_job(&r, j)->usage.cached_tokens,
                             share && i > 1 ? 299 : 0);
        }
        rig_finish(&r);
    }
}

static void test_without_the_cache_nothing_is_reused(void **state)
{
    int32_t ids[300];
    struct core_counts n;
    struct rig r;

    (void)state;
    rig_init(&r);
    r.conf.no_prefix_cache = true;
    rig_start(&r);
    fill(ids, 300, 1);
    for (uint64_t i = 1; i <= 2; i++) {
        assert_int_equal(
            run_job(&r, job_of(i, ids, 300, 5))->usage.cached_tokens, 0);
    }
    core_counts(r.core, &n);
    assert_int_equal(n.pages_cached[MODEL_FULL], 0);
    rig_finish(&r);
}

/* Numbers that were not finite are kept by nobody. */
static void test_nothing_of_a_failed_request_is_kept(void **state)
{
    int32_t ids[300];
    struct rig r;

    (void)state;
    fake.nan_token = 99;
    rig_init(&r);
    r.conf.prefill_chunk = 300;
    rig_start(&r);
    fill(ids, 300, 1);
    ids[200] = 99;
    rig_add(&r, job_of(1, ids, 300, 5));
    rig_run(&r);
    assert_true(r.answer[0].failed);
    ids[200] = 100;
    assert_int_equal(run_job(&r, job_of(2, ids, 300, 5))->usage.cached_tokens,
                     0);
    rig_finish(&r);
}

/* Sixteen conversations take turns over a pool for a quarter of them: each turn
 * is the conversation so far and a question. Some find theirs again, and what
 * cached_tokens says is what was not computed: it shows in the steps. */
static void test_conversations_in_turn_over_a_quarter_of_the_pool(void **state)
{
    enum { TALKS = 16, TURNS = 6, CHUNK = 64, BEGIN = 600, MORE = 24 };
    static int32_t talk[TALKS][BEGIN + TURNS * MORE];
    int cached = 0;
    struct core_counts counts;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = TALKS * BEGIN / MODEL_PAGE_TOK / 4;
    fake.pages[MODEL_SLIDING] = fake.pages[MODEL_FULL];
    rig_init(&r);
    r.conf.prefill_chunk = CHUNK;
    rig_start(&r);
    for (int k = 0; k < TALKS; k++) {
        fill(talk[k], BEGIN + TURNS * MORE, k);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int k = 0; k < TALKS; k++) {
            int n = BEGIN + turn * MORE, steps;
            struct core_counts before, after;
            struct answer *a;

            core_counts(r.core, &before);
            a = run_job(
                &r, job_of((uint64_t)(turn * TALKS + k + 1), talk[k], n, 1));
            core_counts(r.core, &after);
            steps = (int)(after.steps - before.steps);
            n -= a->usage.cached_tokens;
            assert_int_equal(steps, (n + CHUNK - 1) / CHUNK);
            assert_in_range(n, 1, BEGIN + turn * MORE);
            cached += a->usage.cached_tokens;
        }
    }
    /* One of the four that fit is the one that runs, and one is on its way out:
     * two is the best there is for a cycle. */
    assert_in_range(cached, 3 * BEGIN / 2 * (TURNS - 1),
                    3 * (BEGIN + TURNS * MORE) * (TURNS - 1));
    core_counts(r.core, &counts);
    assert_int_equal(counts.cached_tokens, cached);
    rig_finish(&r);
}

/* A pool for one request of max_model_len and no page more: it gets there
 * although the index would like to keep its pages. */
static void test_the_longest_request_fits_alone(void **state)
{
    int32_t ids[1024];
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = 16;
    fake.pages[MODEL_SLIDING] = 3;
    rig_init(&r);
    r.conf.prefill_chunk = 64;
    rig_start(&r);
    fill(ids, 1024, 1);
    for (uint64_t i = 1; i < 6; i++) {
        ids[3] = 100 + (int32_t)i / 2;
        (void)run_job(&r, job_of(i, ids, i % 2 ? 1000 : 500, i % 2 ? 24 : 524));
    }
    /* And several at once, which take its pages in turn. */
    for (uint64_t i = 6; i < 12; i++) {
        ids[3] = 100 + (int32_t)i / 2;
        rig_add(&r, job_of(i, ids, 500 + (int)i * 10, 300));
    }
    rig_run(&r);
    for (int i = 5; i < 11; i++) {
        assert_int_equal(r.answer[i].n_ids, 300);
    }
    rig_finish(&r);
}

/* Pages that somebody has are left alone when the pool's memory is asked for in
 * the middle of things: those of a request that runs, and cached ones. */
static void test_memory_is_asked_for_beside_pages_in_use(void **state)
{
    int32_t ids[300];
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    r.conf.kv_ready = 1024;
    r.conf.scrub_freed = false;
    rig_start(&r);
    fill(ids, 300, 1);
    (void)run_job(&r, job_of(1, ids, 300, 5));
    rig_add(&r, job_of(2, ids, 290, 60));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(core_step(r.core), 1);
    }
    while (core_touch(r.core)) {
    }
    rig_run(&r);
    assert_int_equal(r.answer[1].n_ids, 60);
    assert_int_equal(run_job(&r, job_of(3, ids, 300, 60))->usage.cached_tokens,
                     299);
    assert_false(core_touch(r.core));
    rig_finish(&r);
}

/* Conversations that grow, are edited, cancelled and pre-empted, over pools of
 * every size: every answer is what arithmetic says. */
static void test_random_conversations(void **state)
{
    enum { TALKS = 12, ROUNDS = 90 };
    static int32_t talk[TALKS][900];
    int n_talk[TALKS], cached = 0;
    struct rig r;

    (void)state;
    for (unsigned seed = 1; seed <= 24; seed++) {
        fake_reset();
        fake.pages[MODEL_FULL] = 16 + (int)seed * 2;
        fake.pages[MODEL_SLIDING] = 3 + (int)seed;
        rig_init(&r);
        r.conf.prefill_chunk = seed % 3 == 0 ? 64 : seed % 3 == 1 ? 100 : 7;
        r.conf.max_checkpoints = seed % 4 == 0 ? 3 : 64;
        rig_start(&r);
        r.rng = seed;
        for (int k = 0; k < TALKS; k++) {
            fill(talk[k], 900, k / 2);
            n_talk[k] = 20 + (int)rnd(&r, 200);
        }
        for (int round = 0; round < ROUNDS; round += 3) {
            struct job *j[3];
            int32_t *want[3];
            int first = r.n_answers, k[3];

            for (int i = 0; i < 3; i++) {
                k[i] = (int)rnd(&r, TALKS);
                if (rnd(&r, 5) == 0) {
                    talk[k[i]][rnd(&r, (unsigned)n_talk[k[i]])] =
                        100 + (int32_t)rnd(&r, 800);
                }
                j[i] = job_of((uint64_t)(round + i + 1), talk[k[i]],
                              n_talk[k[i]], 1 + (int)rnd(&r, 60));
                j[i]->drafts = (int)rnd(&r, 5) - 1;
                want[i] = malloc(60 * sizeof(int32_t));
                continuation(j[i], j[i]->max_tokens, want[i]);
                rig_add(&r, j[i]);
            }
            for (int s = 0; core_step(r.core) > 0; s++) {
                assert_true(s < 5000);
                if (rnd(&r, 40) == 0) {
                    cancel(&r, (uint64_t)(round + 1 + (int)rnd(&r, 3)));
                }
            }
            for (int i = 0; i < 3; i++) {
                struct answer *a = &r.answer[first + i];
                int n = n_talk[k[i]];

                assert_true(a->done);
                for (int m = 0; m < a->n_ids; m++) {
                    assert_int_equal(a->ids[m], want[i][m]);
                }
                free(want[i]);
                cached += a->usage.cached_tokens > 0;
                if (a->n_ids > 0 && n + a->n_ids + 30 < 800) {
                    memcpy(talk[k[i]] + n, a->ids,
                           (size_t)a->n_ids * sizeof(int32_t));
                    n_talk[k[i]] = n + a->n_ids + (int)rnd(&r, 30);
                }
            }
        }
        rig_finish(&r);
    }
    assert_true(cached > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_same_prompt_again, setup),
        cmocka_unit_test_setup(test_fr_54_short_long_short_with_drafts, setup),
        cmocka_unit_test_setup(test_fr_56_an_edit_in_the_middle, setup),
        cmocka_unit_test_setup(test_fr_56_sparse_checkpoints, setup),
        cmocka_unit_test_setup(test_tails_that_diverge_within_a_page, setup),
        cmocka_unit_test_setup(test_pages_are_shared_while_both_run, setup),
        cmocka_unit_test_setup(
            test_fr_61_what_a_cancelled_request_computed_is_used, setup),
        cmocka_unit_test_setup(test_fr_61_a_cancel_between_layers, setup),
        cmocka_unit_test_setup(test_domains, setup),
        cmocka_unit_test_setup(test_without_the_cache_nothing_is_reused, setup),
        cmocka_unit_test_setup(test_nothing_of_a_failed_request_is_kept, setup),
        cmocka_unit_test_setup(
            test_conversations_in_turn_over_a_quarter_of_the_pool, setup),
        cmocka_unit_test_setup(test_the_longest_request_fits_alone, setup),
        cmocka_unit_test_setup(test_memory_is_asked_for_beside_pages_in_use,
                               setup),
        cmocka_unit_test_setup(test_random_conversations, setup),
    };

    return test_main(tests, NULL, teardown_group);
}
