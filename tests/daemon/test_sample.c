/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A sequence's sampling parameters and its history, as the sampler's rows get
 * them. The sampler itself: tests/kernels/test_sample.c.
 */

#include "daemon/model/sample.h"

#include "tests/test.h"

enum { VOCAB = 300 };

static const struct model_sampling penalised = {.temperature = 0.8f,
                                                .top_p = 0.9f,
                                                .min_p = 0.05f,
                                                .top_k = 7,
                                                .repetition = 1.1f,
                                                .presence = 0.2f,
                                                .frequency = 0.3f,
                                                .seed = 1ull << 40,
                                                .n_top = 5};

static int count_of(const struct kern_penalty *p, int n, int32_t id)
{
    int found = -1;

    for (int i = 0; i < n; i++) {
        if (p[i].id == id) {
            assert_int_equal(found, -1); /* ids are all different */
            found = p[i].count;
        }
    }
    return found;
}

static void test_rows_carry_the_parameters(void **state)
{
    struct sampling s;
    struct kern_sample_row r;

    (void)state;
    assert_int_equal(sampling_init(&s, &penalised, VOCAB, NULL, 0, 0), 0);
    r = sampling_row(&s);
    assert_true(r.temperature == 0.8f && r.top_p == 0.9f && r.min_p == 0.05f);
    assert_true(r.repetition == 1.1f && r.presence == 0.2f &&
                r.frequency == 0.3f && r.beta == 1);
    assert_int_equal(r.top_k, 7);
    assert_int_equal(r.n_top, 5);
    assert_true(r.seed == 1ull << 40);
    assert_int_equal(r.mask, -1);
    assert_int_equal(r.given, -1);
    assert_int_equal(r.pen_n, 0);
    r = sampling_draft_row(&s);
    assert_true(r.temperature == 0.8f);
    assert_int_equal(r.n_top, -1);
    sampling_finish(&s);
}

static void test_prompt_and_drawn_tokens_are_told_apart(void **state)
{
    static const int32_t history[] = {5, 9, 5, 7, 9, 9, -1, VOCAB};
    struct sampling s;
    struct kern_penalty p[16];
    int n;

    (void)state;
    /* the last 5 were drawn: 7, 9, 9 and two that are no ids */
    assert_int_equal(sampling_init(&s, &penalised, VOCAB, history, 8, 5), 0);
    n = sampling_penalties(&s, NULL, 0, p);
    assert_int_equal(n, 3);
    assert_int_equal(count_of(p, n, 5), 0);
    assert_int_equal(count_of(p, n, 7), 1);
    assert_int_equal(count_of(p, n, 9), 2);
    assert_int_equal(sampling_add(&s, 5), 0);
    assert_int_equal(sampling_add(&s, 250), 0);
    n = sampling_penalties(&s, NULL, 0, p);
    assert_int_equal(count_of(p, n, 5), 1);
    assert_int_equal(count_of(p, n, 250), 1);
    sampling_finish(&s);
}

/* The row after two drafts sees them as drawn; the history does not change. */
static void test_earlier_drafts_count(void **state)
{
    static const int32_t history[] = {1, 2, 3};
    static const int32_t drafts[] = {2, 8, 8};
    struct sampling s;
    struct kern_penalty p[8];
    int n;

    (void)state;
    assert_int_equal(sampling_init(&s, &penalised, VOCAB, history, 3, 1), 0);
    assert_true(sampling_max_penalties(&s, 3) >= 6);
    n = sampling_penalties(&s, drafts, 3, p);
    assert_int_equal(n, 4);
    assert_int_equal(count_of(p, n, 1), 0);
    assert_int_equal(count_of(p, n, 2), 1);
    assert_int_equal(count_of(p, n, 3), 1);
    assert_int_equal(count_of(p, n, 8), 2);
    n = sampling_penalties(&s, drafts, 1, p);
    assert_int_equal(count_of(p, n, 8), -1);
    n = sampling_penalties(&s, NULL, 0, p);
    assert_int_equal(count_of(p, n, 2), 0);
    sampling_finish(&s);
}

static void test_no_penalty_keeps_no_history(void **state)
{
    static const int32_t history[] = {1, 2, 3};
    struct model_sampling plain = {.repetition = 1};
    struct sampling s;

    (void)state;
    assert_int_equal(sampling_init(&s, &plain, VOCAB, history, 3, 0), 0);
    assert_int_equal(sampling_add(&s, 4), 0);
    assert_int_equal(sampling_max_penalties(&s, 3), 0);
    assert_int_equal(sampling_penalties(&s, history, 3, NULL), 0);
    assert_null(s.where);
    sampling_finish(&s);
}

static float bias_of(const struct kern_penalty *p, int n, int32_t id)
{
    for (int i = 0; i < n; i++) {
        if (p[i].id == id) {
            return p[i].bias;
        }
    }
    return 0;
}

/* Without a penalty a bias alone is listed, and nothing counts. */
static void test_biases_without_penalties(void **state)
{
    static const int32_t drafts[] = {7, 9};
    static const struct model_bias bias[] = {{7, 2.5f}, {VOCAB - 1, -100}};
    struct model_sampling m = {.repetition = 1, .bias = bias, .n_bias = 2};
    struct sampling s;
    struct kern_penalty p[4];

    (void)state;
    assert_int_equal(sampling_init(&s, &m, VOCAB, drafts, 2, 1), 0);
    assert_int_equal(sampling_add(&s, 7), 0);
    assert_int_equal(sampling_max_penalties(&s, 2), 2);
    assert_int_equal(sampling_penalties(&s, drafts, 2, p), 2);
    assert_int_equal(count_of(p, 2, 7), -1);
    assert_int_equal(p[0].id, 7);
    assert_int_equal(p[0].count, -1);
    assert_true(bias_of(p, 2, 7) == 2.5f);
    assert_true(bias_of(p, 2, VOCAB - 1) == -100);
    sampling_finish(&s);
}

/* One entry an id, whether it comes by its bias, the history or a draft. */
static void test_biases_and_history_share_entries(void **state)
{
    static const int32_t history[] = {5, 6};
    static const int32_t drafts[] = {8, 9};
    static const struct model_bias bias[] = {{5, 1}, {7, 2}, {8, 3}};
    struct model_sampling m = penalised;
    struct sampling s;
    struct kern_penalty p[8];
    int n;

    (void)state;
    m.bias = bias;
    m.n_bias = 3;
    assert_int_equal(sampling_init(&s, &m, VOCAB, history, 2, 0), 0);
    n = sampling_penalties(&s, drafts, 2, p);
    assert_int_equal(n, 5);
    assert_int_equal(count_of(p, n, 5), 0);
    assert_int_equal(count_of(p, n, 6), 0);
    assert_int_equal(count_of(p, n, 7), -1);
    assert_int_equal(count_of(p, n, 8), 1);
    assert_int_equal(count_of(p, n, 9), 1);
    assert_true(bias_of(p, n, 5) == 1 && bias_of(p, n, 6) == 0);
    assert_true(bias_of(p, n, 7) == 2 && bias_of(p, n, 8) == 3);
    assert_true(bias_of(p, n, 9) == 0);
    n = sampling_penalties(&s, NULL, 0, p);
    assert_int_equal(n, 4);
    assert_int_equal(count_of(p, n, 8), -1);
    sampling_finish(&s);
}

static void test_long_histories_grow(void **state)
{
    struct sampling s;
    static struct kern_penalty p[VOCAB];

    (void)state;
    assert_int_equal(sampling_init(&s, &penalised, VOCAB, NULL, 0, 0), 0);
    for (int i = 0; i < 5 * VOCAB; i++) {
        assert_int_equal(sampling_add(&s, i * 7 % VOCAB), 0);
    }
    assert_int_equal(sampling_penalties(&s, NULL, 0, p), VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        assert_int_equal(count_of(p, VOCAB, i), 5);
    }
    sampling_finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_carry_the_parameters),
        cmocka_unit_test(test_prompt_and_drawn_tokens_are_told_apart),
        cmocka_unit_test(test_earlier_drafts_count),
        cmocka_unit_test(test_no_penalty_keeps_no_history),
        cmocka_unit_test(test_biases_without_penalties),
        cmocka_unit_test(test_biases_and_history_share_entries),
        cmocka_unit_test(test_long_histories_grow),
    };

    return test_main(tests, NULL, NULL);
}
