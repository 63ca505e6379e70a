/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The sampler of kernels/sample.h: its noise against known answers and at the
 * extreme counters, the distribution of 100,000 draws against exact
 * probabilities for each truncation, the order of processing, and every backend
 * against ref to the bit.
 */

#include "kernels/sample.h"

#include "tests/kernels/kt.h"

#define ROWS 500 /* draws a call */

static const struct kern_sample_row plain = {
    .temperature = 1,
    .top_p = 1,
    .beta = 1,
    .n_top = -1,
    .seed = 42,
    .repetition = 1,
    .mask = -1,
    .given = -1,
};

/* A call of kern_sample in the making. */
struct job {
    int n, vocab;
    const float *logits;                  /* one row, used for all */
    const struct kern_sample_row *params; /* one, used for all */
    int pos;                              /* of the first row, ascending */
    const struct kern_penalty *pen;
    int n_pen;
    const uint32_t *mask;
    int n_mask_words;
};

static void run(struct kt *t, const struct job *j, struct kern_sample_out *ret)
{
    size_t n = (size_t)j->n, v = (size_t)j->vocab;
    float *logits = malloc(n * v * sizeof(*logits));
    struct kern_sample_row *params = malloc(n * sizeof(*params));
    int32_t *pos = malloc(n * sizeof(*pos));
    struct kern_sample_args a = {.vocab = j->vocab, .stride = j->vocab};

    assert_true(logits != NULL && params != NULL && pos != NULL);
    for (size_t r = 0; r < n; r++) {
        memcpy(logits + r * v, j->logits, v * sizeof(*logits));
        params[r] = *j->params;
        pos[r] = j->pos + (int)r;
    }
    a.rows = kt_rows(t, j->n, j->n);
    a.logits = kt_put(t, logits, n * v * sizeof(*logits));
    a.params = kt_put(t, params, n * sizeof(*params));
    a.pos = kt_put(t, pos, n * sizeof(*pos));
    a.out = kt_put(t, NULL, n * sizeof(*ret));
    if (j->pen != NULL) {
        a.pen = kt_put(t, j->pen, (size_t)j->n_pen * sizeof(*j->pen));
    }
    if (j->mask != NULL) {
        a.masks = kt_put(t, j->mask, (size_t)j->n_mask_words * 4);
    }
    kt_ok(t, kern_sample(t->k, &a));
    kt_get(t, ret, a.out, n * sizeof(*ret));
    free(logits);
    free(params);
    free(pos);
}

static struct kern_sample_out run_one(struct kt *t, const float *logits,
                                      int vocab,
                                      const struct kern_sample_row *p, int pos)
{
    struct kern_sample_out out;
    struct job j = {
        .n = 1, .vocab = vocab, .logits = logits, .params = p, .pos = pos};

    run(t, &j, &out);
    return out;
}

/* ---- the noise ---- */

static void test_philox_known_answers(void **state)
{
    /* Random123's kat_vectors, philox4x32 10 */
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
         0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
         0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t c[4];

        memcpy(c, kat[i], sizeof(c));
        sample_philox(c, kat[i][4], kat[i][5]);
        assert_memory_equal(c, kat[i] + 6, sizeof(c));
    }
}

static void test_noise_is_keyed_by_seed_position_id(void **state)
{
    float n = sample_noise(7, 3, 5);

    (void)state;
    assert_true(n == sample_noise(7, 3, 5));
    assert_true(n != sample_noise(8, 3, 5));
    assert_true(n != sample_noise(7u + (1ull << 32), 3, 5));
    assert_true(n != sample_noise(7, 4, 5));
    assert_true(n != sample_noise(7, 3, 6));
    assert_true(n != sample_noise(7, 3, 9)); /* another counter, same word */
}

static void test_extreme_counters_stay_inside(void **state)
{
    static const uint32_t words[] = {
        0,          1,          2,          0x7ffffffe, 0x7fffffff,
        0x80000000, 0x80000001, 0xfffffffd, 0xfffffffe, 0xffffffff};

    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        double u = ((double)words[i] + 0.5) * 0x1p-32;
        double want = words[i] >> 31
                          ? -log1p(-((double)~words[i] + 0.5) * 0x1p-32)
                          : -log(u);
        double e = (double)sample_exponential(words[i]);
        double g = -(double)sample_log((float)e);

        assert_true(e > 0 && isfinite(e) && isfinite(g));
        assert_true(fabs(e - want) <= 4e-7 * want);
        assert_true(fabs(g + log(want)) <= 1e-6);
        assert_true(g > -3.2 && g < 22.9);
    }
    /* all 32 bits count at the end that makes large noise */
    assert_true(sample_exponential(0xffffffff) <
                sample_exponential(0xfffffffe));
    assert_true(sample_exponential(0xfffffffe) <
                sample_exponential(0xfffffffd));
}

static void test_logarithm_and_exponential_are_close(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint32_t x = (uint32_t)kt_random(&seed);
        float y = -87.0f * (float)(x >> 8) * 0x1p-24f;
        double u = ((double)x + 0.5) * 0x1p-32;
        double e = (double)sample_exponential(x);

        assert_true(fabs(e + log(u)) <= 4e-7 * -log(u) + 1e-16);
        assert_true(fabs((double)sample_exp(y) - exp((double)y)) <=
                    2e-7 * exp((double)y));
    }
    assert_true(sample_exp(0) == 1.0f && sample_weight(0) == 1ull << 40);
    assert_int_equal(sample_weight(-1000), 0);
}

/* ---- the distribution ---- */

enum { V = 24 };

static void test_logits(float *l)
{
    for (int i = 0; i < V; i++) {
        /* spread over 4.5, no two equal, not sorted by id */
        l[i] = 0.2f * (float)(i * 7 % V) - 2.0f;
    }
}

/* What p says about l, written independently: doubles and plain selection. */
static void exact(const float *l, const struct kern_sample_row *p, double *ret)
{
    double e[V], total = 0, cum = 0, kept = 0;
    int order[V], n = V;

    for (int i = 0; i < V; i++) {
        order[i] = i;
        for (int j = i; j > 0 && l[order[j]] > l[order[j - 1]]; j--) {
            int swap = order[j];

            order[j] = order[j - 1];
            order[j - 1] = swap;
        }
    }
    if (p->top_k > 0 && p->top_k < n) {
        n = p->top_k;
    }
    for (int i = 0; i < V; i++) {
        ret[i] = 0;
        e[i] = exp((double)l[i] / (double)p->temperature);
    }
    for (int i = 0; i < n; i++) {
        total += e[order[i]];
    }
    for (int i = 0; i < n; i++) {
        double q = e[order[i]] / total;

        if (cum < (double)p->top_p &&
            e[order[i]] >= (double)p->min_p * e[order[0]]) {
            ret[order[i]] = q;
            kept += q;
        }
        cum += q;
    }
    for (int i = 0; i < V; i++) {
        ret[i] /= kept;
    }
}

/* Pearson's statistic of n draws, as a standard normal deviate (Wilson and
 * Hilferty); infinite where an impossible id was drawn. */
static double deviate(const int *count, int n, const double *prob)
{
    double chi2 = 0, df = -1, k;

    for (int i = 0; i < V; i++) {
        double want = prob[i] * n;

        if (want == 0) {
            if (count[i] > 0) {
                return INFINITY;
            }
            continue;
        }
        chi2 += (count[i] - want) * (count[i] - want) / want;
        df++;
    }
    k = 2 / (9 * df);
    return (cbrt(chi2 / df) - (1 - k)) / sqrt(k);
}

static void draw_many(struct kt *t, const float *l,
                      const struct kern_sample_row *p, int n, int *ret_count)
{
    static struct kern_sample_out out[ROWS];
    struct job j = {.n = ROWS, .vocab = V, .logits = l, .params = p};

    memset(ret_count, 0, V * sizeof(*ret_count));
    for (j.pos = 0; j.pos < n; j.pos += ROWS) {
        run(t, &j, out);
        for (int r = 0; r < ROWS; r++) {
            assert_in_range(out[r].id, 0, V - 1);
            ret_count[out[r].id]++;
        }
    }
}

static void test_chi_square_of_each_truncation(void **state)
{
    static const struct {
        float temperature, top_p, min_p;
        int top_k;
    } cases[] = {
        {1, 1, 0, 0},        {0.7f, 1, 0, 0},     {1.5f, 1, 0, 0},
        {1, 1, 0, 5},        {1, 0.8f, 0, 0},     {1, 1, 0.1f, 0},
        {1, 0.6f, 0.05f, 9}, {0.5f, 0.95f, 0, 3}, {2, 0.3f, 0.5f, 23},
    };
    struct kt *t = kt_open(&kt_ref);
    float l[V];

    (void)state;
    test_logits(l);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kern_sample_row p = plain;
        double prob[V], z;
        int count[V];

        p.temperature = cases[i].temperature;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        p.top_k = cases[i].top_k;
        p.seed = 1000 + i;
        exact(l, &p, prob);
        draw_many(t, l, &p, 100000, count);
        z = deviate(count, 100000, prob);
        if (!(fabs(z) < 4)) {
            fail_msg("case %zu: %g standard deviations off", i, z);
        }
    }
    kt_close(t);
}

/* The test above can fail: draws at T = 1.05 are told from T = 1. */
static void test_chi_square_sees_a_small_error(void **state)
{
    struct kt *t = kt_open(&kt_ref);
    struct kern_sample_row p = plain;
    float l[V];
    double prob[V];
    int count[V];

    (void)state;
    test_logits(l);
    exact(l, &p, prob);
    p.temperature = 1.05f;
    draw_many(t, l, &p, 100000, count);
    assert_true(deviate(count, 100000, prob) > 4);
    kt_close(t);
}

/* ---- the order of processing ---- */

static void test_greedy_and_ties_take_the_lowest_id(void **state)
{
    const float l[6] = {0, 3, -1, 3, 3, 2};
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);

    (void)state;
    p.temperature = 0;
    assert_int_equal(run_one(t, l, 6, &p, 0).id, 1);
    p.temperature = SAMPLE_MIN_TEMPERATURE / 2;
    assert_int_equal(run_one(t, l, 6, &p, 0).id, 1);
    p.temperature = 1;
    p.beta = 0;
    assert_int_equal(run_one(t, l, 6, &p, 0).id, 1);
    /* top_k = 2 of three equal ones keeps ids 1 and 3 */
    p = plain;
    p.top_k = 2;
    for (int pos = 0; pos < 200; pos++) {
        int id = run_one(t, l, 6, &p, pos).id;

        assert_true(id == 1 || id == 3);
    }
    kt_close(t);
}

static void test_penalties(void **state)
{
    const float l[4] = {2, -2, 1.9f, 0};
    const struct kern_penalty pen[] = {{3, 0, 0}, {0, 2, 0}, {1, 1, 0}};
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);
    struct kern_sample_out out;
    struct job j = {
        .n = 1, .vocab = 4, .logits = l, .params = &p, .pen = pen, .n_pen = 3};

    (void)state;
    assert_true(sample_penalise(2, 2, 0, 2, 0.5f, 0.25f) == 0);
    assert_true(sample_penalise(-2, 0, 0, 2, 0.5f, 0.25f) == -4);
    assert_true(sample_penalise(2, 2, 3, 2, 0.5f, 0.25f) == 3);
    assert_true(sample_penalise(-2, 0, -1, 2, 0.5f, 0.25f) == -5);
    assert_true(sample_penalise(2, -1, 3, 2, 0.5f, 0.25f) == 5);
    p.temperature = 0;
    p.pen_off = 1; /* the list of this row: ids 0 and 1 */
    p.pen_n = 2;
    run(t, &j, &out);
    assert_int_equal(out.id, 0); /* all penalties off */
    p.presence = 0.09f;
    run(t, &j, &out);
    assert_int_equal(out.id, 0); /* 1.91 */
    p.frequency = 0.01f;
    run(t, &j, &out);
    assert_int_equal(out.id, 2); /* 2 - 2 * 0.01 - 0.09 = 1.89 */
    p.presence = p.frequency = 0;
    p.repetition = 1.1f;
    run(t, &j, &out);
    assert_int_equal(out.id, 2); /* 1.82 */
    /* the logprob stays raw */
    p.n_top = 1;
    run(t, &j, &out);
    assert_int_equal(out.top_id[0], 0);
    kt_close(t);
}

/* Added after the penalties; ids outside of the history get no penalty with
 * it; before mask and temperature. */
static void test_bias(void **state)
{
    const float l[4] = {2, 1, 0, -1};
    struct kern_penalty pen[] = {{3, -1, 3.5f}, {0, 1, 0.25f}, {1, -1, 0}};
    const uint32_t not_3 = 0x7;
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);
    struct kern_sample_out out;
    struct job j = {
        .n = 1, .vocab = 4, .logits = l, .params = &p, .pen = pen, .n_pen = 3};

    (void)state;
    p.temperature = 0;
    p.pen_n = 3;
    p.repetition = 100;
    p.presence = p.frequency = 2;
    run(t, &j, &out);
    assert_int_equal(out.id, 3); /* 2.5 */
    j.mask = &not_3;
    j.n_mask_words = 1;
    p.mask = 0;
    run(t, &j, &out);
    assert_int_equal(out.id, 1); /* 1, untouched; 0 has 0.02 - 4 + 0.25 */
    pen[1].bias = 5.5f;
    run(t, &j, &out);
    assert_int_equal(out.id, 0); /* 1.52 */
    kt_close(t);
}

static void test_mask(void **state)
{
    float l[70];
    uint32_t mask[6] = {0}; /* two lines of three words */
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);
    struct kern_sample_out out[ROWS];
    struct job j = {.n = ROWS,
                    .vocab = 70,
                    .logits = l,
                    .params = &p,
                    .mask = mask,
                    .n_mask_words = 6};

    (void)state;
    kt_fill_f32(l, 70, 1);
    mask[3] = 1u << 31;
    mask[5] = 1u << 5; /* line 1: ids 31 and 69 */
    p.mask = 1;
    run(t, &j, out);
    for (int r = 0; r < ROWS; r++) {
        assert_true(out[r].id == 31 || out[r].id == 69);
    }
    p.mask = 0; /* nothing allowed */
    run(t, &j, out);
    assert_int_equal(out[0].id, KERN_DRAW_MASKED);
    kt_close(t);
}

static void test_nonfinite_rows_are_named(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);

    (void)state;
    for (int i = 0; i < 3; i++) {
        float l[5] = {1, 2, 3, 4, 5};

        l[i + 1] = bad[i];
        assert_int_equal(run_one(t, l, 5, &p, 0).id, KERN_DRAW_NONFINITE);
        assert_true(isnan(run_one(t, l, 5, &p, 0).logprob));
    }
    kt_close(t);
}

static void test_logprobs_are_raw_and_sum_to_one(void **state)
{
    float l[KERN_MAX_TOP];
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);
    struct kern_sample_out out;
    double sum = 0;

    (void)state;
    kt_fill_f32(l, KERN_MAX_TOP, 3);
    p.n_top = KERN_MAX_TOP;
    p.temperature = 0.3f;
    out = run_one(t, l, KERN_MAX_TOP, &p, 9);
    assert_int_equal(out.n_top, KERN_MAX_TOP);
    for (int i = 0; i < KERN_MAX_TOP; i++) {
        sum += exp((double)out.top_logprob[i]);
        assert_true(i == 0 || l[out.top_id[i]] < l[out.top_id[i - 1]]);
        if (out.top_id[i] == out.id) {
            assert_true(out.top_logprob[i] == out.logprob);
        }
    }
    assert_true(fabs(sum - 1) < 1e-6);
    p.given = 4;
    out = run_one(t, l, KERN_MAX_TOP, &p, 9);
    assert_int_equal(out.id, 4);
    sum = 0;
    for (int i = 0; i < KERN_MAX_TOP; i++) {
        sum += exp((double)l[i]);
    }
    assert_true(fabs((double)out.logprob - ((double)l[4] - log(sum))) < 1e-6);
    kt_close(t);
}

/* With of_drawn: of the kept ids alone, as exact() has them. */
static void test_logprobs_of_what_was_drawn_from(void **state)
{
    static const struct {
        float temperature, top_p, min_p;
        int top_k;
    } cases[] = {{1, 1, 0, 0},         {0.7f, 1, 0, 0}, {1, 1, 0, 5},
                 {1, 0.6f, 0, 0},      {1, 1, 0.2f, 0}, {1, 1, 1, 0},
                 {0.5f, 0.8f, 0.1f, 9}};
    struct kt *t = kt_open(&kt_ref);
    float l[V];

    (void)state;
    test_logits(l);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kern_sample_row p = plain;
        struct kern_sample_out out;
        double prob[V];
        int n_kept = 0;

        p.temperature = cases[i].temperature;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        p.top_k = cases[i].top_k;
        p.n_top = KERN_MAX_TOP;
        p.of_drawn = 1;
        exact(l, &p, prob);
        for (int id = 0; id < V; id++) {
            n_kept += prob[id] > 0;
        }
        out = run_one(t, l, V, &p, 3);
        assert_int_equal(out.n_top,
                         n_kept < KERN_MAX_TOP ? n_kept : KERN_MAX_TOP);
        assert_true(fabs(exp((double)out.logprob) - prob[out.id]) < 1e-6);
        for (int k = 0; k < out.n_top; k++) {
            assert_true(fabs(exp((double)out.top_logprob[k]) -
                             prob[out.top_id[k]]) < 1e-6);
            assert_true(k == 0 || l[out.top_id[k]] < l[out.top_id[k - 1]]);
        }
        /* a given id is scored raw */
        p.given = 2;
        out = run_one(t, l, V, &p, 3);
        p.of_drawn = 0;
        assert_true(out.logprob == run_one(t, l, V, &p, 3).logprob);
    }
    kt_close(t);
}

/* Greedy: penalties, bias and mask count, truncation does not. */
static void test_logprobs_of_a_greedy_draw(void **state)
{
    const float l[4] = {2, 1, 0, 3};
    const struct kern_penalty pen[] = {{1, -1, 4}};
    const uint32_t mask = 0x7;
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);
    struct kern_sample_out out;
    struct job j = {.n = 1,
                    .vocab = 4,
                    .logits = l,
                    .params = &p,
                    .pen = pen,
                    .n_pen = 1,
                    .mask = &mask,
                    .n_mask_words = 1};

    (void)state;
    p.temperature = 0;
    p.top_k = 1;
    p.min_p = 1;
    p.pen_n = 1;
    p.mask = 0;
    p.n_top = 4;
    p.of_drawn = 1;
    run(t, &j, &out); /* of 2, 5, 0 */
    assert_int_equal(out.id, 1);
    assert_int_equal(out.n_top, 3);
    assert_int_equal(out.top_id[1], 0);
    assert_int_equal(out.top_id[2], 2);
    assert_true(fabs((double)out.logprob + log(1 + exp(-3) + exp(-5))) < 1e-6);
    kt_close(t);
}

static void test_temperature_near_zero_and_huge_logits(void **state)
{
    float l[4] = {3e38f, -3e38f, 1, 2e38f};
    struct kern_sample_row p = plain;
    struct kt *t = kt_open(&kt_ref);

    (void)state;
    p.temperature = 2 * SAMPLE_MIN_TEMPERATURE;
    p.n_top = 0;
    /* both clamp to SAMPLE_MAX_Z: either may be drawn, nothing is NaN */
    for (int pos = 0; pos < 50; pos++) {
        struct kern_sample_out out = run_one(t, l, 4, &p, pos);

        assert_true(out.id == 0 || out.id == 3);
        assert_false(isnan(out.logprob));
    }
    kt_close(t);
}

/* ---- every backend, to the bit ---- */

static void random_row(struct kern_sample_row *p, uint64_t *seed, int vocab)
{
    static const float temperature[] = {0, 0.3f, 1, 1.7f};
    static const float top_p[] = {1, 0.9f, 0.5f, 0.05f, 0.9999999f, 1e-30f, 0};
    static const float min_p[] = {0, 0.02f, 0.3f};

    *p = plain;
    p->seed = kt_random(seed);
    p->temperature = temperature[kt_random(seed) % 4];
    p->top_p = top_p[kt_random(seed) % 7];
    p->min_p = min_p[kt_random(seed) % 3];
    p->beta = kt_random(seed) % 4 == 0 ? 0.8f : 1;
    p->top_k = kt_random(seed) % 2 ? (int)(kt_random(seed) % 50) : 0;
    p->n_top = (int)(kt_random(seed) % (KERN_MAX_TOP + 2)) - 1;
    if (kt_random(seed) % 3 == 0) {
        p->repetition = 1.2f;
        p->presence = 0.3f;
        p->frequency = 0.1f;
    }
    p->pen_n = kt_random(seed) % 2 ? vocab / 3 : 0;
    p->of_drawn = (int)(kt_random(seed) % 2);
    p->mask = (int)(kt_random(seed) % 3) - 1;
    p->given = kt_random(seed) % 8 == 0
                   ? (int)(kt_random(seed) % (uint64_t)vocab)
                   : -1;
}

/* Logits whose cuts lie in different ways: among many that are equal, in a flat
 * tail, between two neighbours, where a float has no fraction. */
static float shaped(int shape, uint64_t *seed)
{
    double u = kt_uniform(seed);

    switch (shape) {
    case 0:
        return rintf(40 * (float)u) / 4;
    case 1:
        return rintf(40 * (float)u) / 64;
    case 2:
        return (float)(u * 3 - 12 + (kt_random(seed) % 512 == 0 ? 9 : 0));
    case 3:
        return 7.25f;
    case 4:
        return kt_random(seed) % 2 == 0 ? 1.0f : nextafterf(1.0f, 2.0f);
    case 5:
        return (float)(u * 1e-30);
    default:
        return (float)((u - 0.5) * 4e9);
    }
}

static void compare(const struct kt_backend *b, int vocab, uint64_t seed)
{
    struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);
    float *l = malloc((size_t)vocab * sizeof(*l));
    struct kern_penalty *pen = malloc((size_t)vocab * sizeof(*pen));
    int words = (vocab + 31) / 32;
    uint32_t *mask = malloc((size_t)words * 2 * sizeof(*mask));

    assert_true(l != NULL && pen != NULL && mask != NULL);
    for (int round = 0; round < 140; round++) {
        struct kern_sample_row p;
        struct kern_sample_out want[2], got[2];
        struct job j = {.n = 2,
                        .vocab = vocab,
                        .logits = l,
                        .params = &p,
                        .pos = (int)(kt_random(&seed) % 300000),
                        .pen = pen,
                        .n_pen = vocab,
                        .mask = mask,
                        .n_mask_words = 2 * words};

        for (int i = 0; i < vocab; i++) {
            l[i] = shaped(round % 7, &seed);
            pen[i].id = (int32_t)((i * 5 + 3) % vocab);
            pen[i].count = (int32_t)(kt_random(&seed) % 5) - 1;
            pen[i].bias = kt_random(&seed) % 3 == 0
                              ? rintf(8 * kt_uniform(&seed)) / 4
                              : 0;
        }
        for (int i = 0; i < 2 * words; i++) {
            mask[i] = (uint32_t)kt_random(&seed);
        }
        random_row(&p, &seed, vocab);
        if (vocab % 5 == 0) {
            p.pen_n = 0; /* the ids above would repeat */
        }
        run(ref, &j, want);
        run(t, &j, got);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(got[r].id, want[r].id);
            assert_memory_equal(&got[r].logprob, &want[r].logprob, 4);
            assert_int_equal(got[r].n_top, want[r].n_top);
            for (int i = 0; i < want[r].n_top; i++) {
                assert_int_equal(got[r].top_id[i], want[r].top_id[i]);
                assert_true(got[r].top_logprob[i] == want[r].top_logprob[i]);
            }
        }
    }
    kt_close(ref);
    kt_close(t);
    free(l);
    free(pen);
    free(mask);
}

static void test_backends_agree_to_the_bit(void **state)
{
    static const int vocab[] = {1, 2, 31, 33, 512, 1000, 1024, 4099};

    (void)state;
    if (getenv("STEPD_CUEMU_FTZ") != NULL) {
        test_skip(NULL, "logprobs within a subnormal of 0 lose their sign");
    }
    if (kt_n_backends() == 0) {
        test_skip(NULL, "no backend but ref is built");
    }
    for (int b = 0; b < kt_n_backends(); b++) {
        for (size_t i = 0; i < sizeof(vocab) / sizeof(vocab[0]); i++) {
            compare(kt_backend(b), vocab[i], 77 + i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_noise_is_keyed_by_seed_position_id),
        cmocka_unit_test(test_extreme_counters_stay_inside),
        cmocka_unit_test(test_logarithm_and_exponential_are_close),
        cmocka_unit_test(test_chi_square_of_each_truncation),
        cmocka_unit_test(test_chi_square_sees_a_small_error),
        cmocka_unit_test(test_greedy_and_ties_take_the_lowest_id),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_nonfinite_rows_are_named),
        cmocka_unit_test(test_logprobs_are_raw_and_sum_to_one),
        cmocka_unit_test(test_logprobs_of_what_was_drawn_from),
        cmocka_unit_test(test_logprobs_of_a_greedy_draw),
        cmocka_unit_test(test_temperature_near_zero_and_huge_logits),
        cmocka_unit_test(test_backends_agree_to_the_bit),
    };

    return test_main(tests, NULL, NULL);
}
