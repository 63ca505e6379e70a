/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The choice of a draft depth, driven by made-up machines: what a step costs by
 * depth and sequences, and how often each position is accepted.
 */

#include "tests/test.h"

#include "daemon/model/depth.h"

struct machine {
    double base_ms, row_ms; /* of a step; a row */
    double rate[3];         /* of position i where those before were taken */
    uint64_t seed;
    int picked[4]; /* steps at each depth */
    int switches;
    int flips; /* about one step in so many, memory becomes 1.5 times as fast,
                * or as slow; 0: never */
    bool fast;
};

static double chance(struct machine *m)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(m->seed >> 11) * 0x1p-53;
}

/* Steps of n sequences; a step is measured where it verifies as many drafts as
 * it makes, as in step.c. noise: the greatest relative error of a time. */
static void run(struct depth *d, struct machine *m, int n, int steps,
                double noise)
{
    int before = -1;

    memset(m->picked, 0, sizeof(m->picked));
    m->switches = 0;
    for (int i = 0; i < steps; i++) {
        int k = depth_pick(d, n);
        double ms = m->base_ms + m->row_ms * n * (1 + k);

        m->fast ^= m->flips > 0 && chance(m) * m->flips < 1;
        ms *= m->fast ? 1 : 1.5;
        assert_in_range(k, 0, d->max);
        m->picked[k]++;
        m->switches += k != before;
        for (int j = 0; before > 0 && j < n; j++) {
            int taken = 0;

            while (taken < before && chance(m) < m->rate[taken]) {
                taken++;
            }
            depth_add_drafts(d, before, taken);
        }
        if (k == before) {
            depth_add_step(d, n, k, ms * (1 + noise * (2 * chance(m) - 1)));
        }
        before = k;
    }
}

/* Nearly all steps, for now and then another depth is probed. */
static void assert_mostly(const struct machine *m, int depth)
{
    int all = m->picked[0] + m->picked[1] + m->picked[2] + m->picked[3];

    if (m->picked[depth] < all * 95 / 100) {
        fail_msg("depth %d expected, got %d %d %d %d", depth, m->picked[0],
                 m->picked[1], m->picked[2], m->picked[3]);
    }
}

static void test_cheap_rows_take_the_greatest_depth(void **state)
{
    struct machine m = {100, 1, {0.9, 0.85, 0.8}, 1, {0}, 0, 0, true};
    struct depth d;

    (void)state;
    depth_init(&d, 3);
    run(&d, &m, 1, 400, 0.02);
    run(&d, &m, 1, 2000, 0.02);
    assert_mostly(&m, 3);
}

static void test_dear_rows_take_none(void **state)
{
    struct machine m = {1, 100, {0.6, 0.5, 0.4}, 2, {0}, 0, 0, true};
    struct depth d;

    (void)state;
    depth_init(&d, 3);
    assert_int_equal(depth_pick(&d, 1), 3); /* where it begins */
    run(&d, &m, 1, 400, 0.02);
    run(&d, &m, 1, 2000, 0.02);
    assert_mostly(&m, 0);
}

/* 1.9 tokens for 1.2, 2.0 for 1.4, 2.01 for 1.6. */
static void test_a_poor_second_position_stops_at_the_first(void **state)
{
    struct machine m = {8, 2, {0.9, 0.1, 0.1}, 3, {0}, 0, 0, true};
    struct depth d;

    (void)state;
    depth_init(&d, 3);
    run(&d, &m, 1, 400, 0.02);
    run(&d, &m, 1, 2000, 0.02);
    assert_mostly(&m, 1);
}

/* Tokens a millisecond at each depth; the best one. */
static int by_the_numbers(const struct machine *m, double at[4])
{
    double tokens = 1, all = 1;
    int best = 0;

    for (int k = 0; k <= 3; k++) {
        at[k] = tokens / (m->base_ms + m->row_ms * (1 + k));
        best = at[k] > at[best] ? k : best;
        all *= k < 3 ? m->rate[k] : 1;
        tokens += all;
    }
    return best;
}

/* Over machines and drafters of all kinds: what was picked yields as much as
 * the best depth, but for what estimates and probes cost, and where a depth
 * leads clearly it is picked. */
static void assert_best_of_all(int flips, double noise)
{
    int clear = 0, right = 0;

    for (int i = 0; i < 100; i++) {
        struct machine m = {.seed = (uint64_t)i + 5, .flips = flips};
        double most = 0, at[4], second = 0;
        struct depth d;
        int best;

        m.base_ms = 1;
        m.row_ms = chance(&m);
        for (int k = 0; k < 3; k++) {
            m.rate[k] = 0.3 + 0.7 * chance(&m);
        }
        best = by_the_numbers(&m, at);
        depth_init(&d, 3);
        run(&d, &m, 1, 1000, noise);
        run(&d, &m, 1, 2000, noise);
        for (int k = 0; k <= 3; k++) {
            most += at[k] * m.picked[k] / 2000;
            second = k != best && at[k] > second ? at[k] : second;
        }
        if (most < at[best] * 0.95) {
            fail_msg("%d: %.3f of the best", i, most / at[best]);
        }
        if (at[best] > 1.06 * second) {
            clear++;
            right += m.picked[best] > 2000 * 9 / 10;
        }
    }
    assert_true(clear > 20);
    assert_int_equal(right, clear);
}

static void test_it_is_the_best_of_all_by_the_numbers(void **state)
{
    (void)state;
    assert_best_of_all(0, 0.01);
    assert_best_of_all(0, 0.05);
}

/* Memory of a shared host gives half as much again for some seconds, then not:
 * what was measured in one state must not be held against the other. */
static void test_it_is_the_best_where_memory_changes_its_pace(void **state)
{
    (void)state;
    assert_best_of_all(40, 0.01);
}

/* A model in the proportions of the real one, rows of experts dear: the best of
 * all after so few steps. At 0.8 a position: 1, 1.8, 2.44, 2.95 tokens. */
static void test_it_is_the_best_soon(void **state)
{
    static const double row_ms[] = {5, 20, 45, 80};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct machine m = {100, row_ms[i], {0.8, 0.8, 0.8}, 9, {0}, 0, 0, 1};
        double at[4];
        int best = by_the_numbers(&m, at);
        struct depth d;

        depth_init(&d, 3);
        run(&d, &m, 1, 64, 0.03);
        run(&d, &m, 1, 200, 0.03);
        assert_true(at[d.size[0].now] > 0.95 * at[best]);
        assert_true(m.picked[d.size[0].now] > 100);
    }
}

static void test_it_follows_when_prompts_change(void **state)
{
    struct machine m = {10, 4, {0.95, 0.95, 0.95}, 4, {0}, 0, 0, true};
    struct depth d;

    (void)state;
    depth_init(&d, 3);
    run(&d, &m, 1, 1000, 0.02);
    run(&d, &m, 1, 1000, 0.02);
    assert_mostly(&m, 3);
    m.rate[0] = m.rate[1] = m.rate[2] = 0.15;
    run(&d, &m, 1, 1500, 0.02);
    run(&d, &m, 1, 1000, 0.02);
    assert_mostly(&m, 0);
    assert_false(d.off);
    m.rate[0] = m.rate[1] = m.rate[2] = 0.95;
    run(&d, &m, 1, 4000, 0.02);
    run(&d, &m, 1, 1000, 0.02);
    assert_mostly(&m, 3);
}

/* Two depths that are equally good, and noisy clocks. */
static void test_noise_does_not_make_it_swing(void **state)
{
    struct machine m = {10, 5, {0.37, 0, 0}, 5, {0}, 0, 0, true};
    struct depth d;

    (void)state;
    depth_init(&d, 1);
    run(&d, &m, 1, 500, 0.03);
    run(&d, &m, 1, 2600, 0.03);
    /* ten probes, there and back; and it may have changed its mind once */
    assert_true(m.switches <= 2 * 11 + 2);
}

static void test_many_sequences_have_a_depth_of_their_own(void **state)
{
    struct machine alone = {100, 1, {0.8, 0.8, 0.8}, 6, {0}, 0, 0, true};
    struct machine crowd = {1, 50, {0.6, 0.6, 0.6}, 7, {0}, 0, 0, true};
    struct depth d;

    (void)state;
    depth_init(&d, 3);
    for (int i = 0; i < 10; i++) {
        run(&d, &alone, 1, 100, 0.02);
        run(&d, &crowd, 32, 100, 0.02);
    }
    run(&d, &alone, 1, 600, 0.02);
    assert_mostly(&alone, 3);
    run(&d, &crowd, 32, 600, 0.02);
    assert_mostly(&crowd, 0);
}

static void test_fr_44_noise_is_given_up(void **state)
{
    struct machine m = {100, 1, {0.024, 0.02, 0.02}, 8, {0}, 0, 0, true};
    struct depth d;

    (void)state;
    depth_init(&d, 3);
    run(&d, &m, 1, 200, 0);
    assert_false(d.off); /* not by the first few */
    run(&d, &m, 1, 4000, 0);
    assert_true(d.off);
    run(&d, &m, 1, 600, 0);
    assert_int_equal(m.picked[0], 600); /* and not even probed */
    /* a poor one that is above the floor stays */
    m.rate[0] = 0.2;
    depth_init(&d, 3);
    run(&d, &m, 1, 6000, 0);
    assert_false(d.off);
}

static void test_no_modules_no_drafts(void **state)
{
    struct depth d;

    (void)state;
    depth_init(&d, 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(depth_pick(&d, 1 + i % 70), 0);
        depth_add_step(&d, 1 + i % 70, 0, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cheap_rows_take_the_greatest_depth),
        cmocka_unit_test(test_dear_rows_take_none),
        cmocka_unit_test(test_a_poor_second_position_stops_at_the_first),
        cmocka_unit_test(test_it_is_the_best_of_all_by_the_numbers),
        cmocka_unit_test(test_it_is_the_best_where_memory_changes_its_pace),
        cmocka_unit_test(test_it_is_the_best_soon),
        cmocka_unit_test(test_it_follows_when_prompts_change),
        cmocka_unit_test(test_noise_does_not_make_it_swing),
        cmocka_unit_test(test_many_sequences_have_a_depth_of_their_own),
        cmocka_unit_test(test_fr_44_noise_is_given_up),
        cmocka_unit_test(test_no_modules_no_drafts),
    };

    return test_main(tests, NULL, NULL);
}
