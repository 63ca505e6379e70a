/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * router, cpu against ref. Pass rule: the same experts and groups (inputs are
 * such that no two keys lie within 1e-5 at the edge of the choice), weights
 * within 1e-5 of the norm and 2e-5 of the largest.
 */
#include "kernels/quant.h"
#include "tests/kernels/kx.h"

struct shape {
    enum kern_dtype dtype;
    int experts, top_k, hidden;
    bool renorm, bias;
};

struct result {
    int32_t *sel, *off, *pair;
    float *wt;
};

static struct result result_make(const struct shape *s, int n)
{
    size_t pairs = (size_t)n * (size_t)s->top_k;
    struct result r = {
        .sel = malloc(sizeof(*r.sel) * pairs),
        .off = malloc(sizeof(*r.off) * ((size_t)s->experts + 1)),
        .pair = malloc(sizeof(*r.pair) * pairs),
        .wt = malloc(sizeof(*r.wt) * pairs),
    };

    assert_true(r.sel && r.off && r.pair && r.wt);
    return r;
}

static void result_finish(struct result *r)
{
    free(r->sel);
    free(r->off);
    free(r->pair);
    free(r->wt);
}

static void run(struct kt *t, const struct shape *s, const float *x, int n,
                const float *bias, struct result *ret)
{
    size_t pairs = (size_t)n * (size_t)s->top_k;
    const void *plane[] = {bias};
    struct kern_router_args a = {.n_expert = s->experts,
                                 .top_k = s->top_k,
                                 .scale = 3.0f,
                                 .renorm = s->renorm};

    a.rows = kt_rows(t, n, n);
    a.x = kt_put(t, x, sizeof(*x) * (size_t)n * (size_t)s->hidden);
    a.w = kt_weight(t, s->dtype, 0, s->experts, s->hidden, 15);
    a.bias = s->bias ? kt_weight_of(t, KERN_F32, 1, s->experts, plane) : NULL;
    a.sel = kt_put(t, NULL, pairs * 4);
    a.wt = kt_put(t, NULL, pairs * 4);
    a.groups.off = kt_put(t, NULL, ((size_t)s->experts + 1) * 4);
    a.groups.pair = kt_put(t, NULL, pairs * 4);
    kt_ok(t, kern_router(t->k, &a));
    kt_get(t, ret->sel, a.sel, pairs * 4);
    kt_get(t, ret->wt, a.wt, pairs * 4);
    kt_get(t, ret->off, a.groups.off, ((size_t)s->experts + 1) * 4);
    kt_get(t, ret->pair, a.groups.pair, pairs * 4);
}

/* Small rows: the sigmoids spread and stay apart. */
static float *make_x(const struct shape *s, int n, uint64_t seed)
{
    size_t all = (size_t)n * (size_t)s->hidden;
    float *x = malloc(sizeof(*x) * all);

    assert_non_null(x);
    kt_fill_f32(x, all, seed);
    for (size_t i = 0; i < all; i++) {
        x[i] *= 2.0f / sqrtf((float)s->hidden);
    }
    return x;
}

static void check(const struct kt_backend *b, const struct shape *s, int n)
{
    size_t pairs = (size_t)n * (size_t)s->top_k;
    float *x = make_x(s, n, 33 + (uint64_t)n);
    float bias[512];
    struct result want = result_make(s, n), got = result_make(s, n);
    struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

    kt_fill_f32(bias, 512, 34);
    run(ref, s, x, n, bias, &want);
    run(t, s, x, n, bias, &got);
    assert_memory_equal(got.sel, want.sel, pairs * 4);
    assert_memory_equal(got.off, want.off, ((size_t)s->experts + 1) * 4);
    assert_memory_equal(got.pair, want.pair, pairs * 4);
    assert_tensor_near(t->name, got.wt, want.wt, pairs, 1e-5, 2e-5);
    assert_int_equal(
        t->k->stats.weight_bytes,
        ref->k->stats.weight_bytes *
            (uint64_t)(kt_is_gpu(b)
                           ? (n + KT_GPU_ROUTER_ROWS - 1) / KT_GPU_ROUTER_ROWS
                           : 1));
    kt_close(t);
    kt_close(ref);
    result_finish(&want);
    result_finish(&got);
    free(x);
}

static void ragged(const struct kt_backend *b)
{
    static const int n_rows[] = {1, 2, 3, 4, 5, 9, 64};
    static const struct shape shapes[] = {
        {KERN_BF16, 16, 4, 192, true, true}, {KERN_F32, 8, 3, 97, true, true},
        {KERN_BF16, 288, 8, 70, true, true}, {KERN_BF16, 5, 1, 3, false, true},
        {KERN_F32, 33, 16, 64, true, false}, {KERN_BF16, 7, 7, 31, false, true},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (size_t j = 0; j < sizeof(n_rows) / sizeof(n_rows[0]); j++) {
            check(b, &shapes[i], n_rows[j]);
        }
    }
}

static void test_ragged_shapes(void **state)
{
    (void)state;
    kx_each_path(ragged);
}

/* ---- bit for bit: the experts and the bits of their weights ---- */

static const struct shape promised = {KERN_BF16, 24, 4, 131, true, true};

static void run_rows(struct kt *t, const void *input, const int *row, int n,
                     uint8_t *out)
{
    const struct shape *s = &promised;
    float *x = kx_pick(input, sizeof(float) * (size_t)s->hidden, row, n);
    struct result r = result_make(s, n);
    size_t half = sizeof(int32_t) * (size_t)s->top_k;
    float bias[24];

    kt_fill_f32(bias, 24, 3);
    run(t, s, x, n, bias, &r);
    for (int i = 0; i < n; i++) {
        memcpy(out + 2 * half * (size_t)i, r.sel + i * s->top_k, half);
        memcpy(out + 2 * half * (size_t)i + half, r.wt + i * s->top_k, half);
    }
    result_finish(&r);
    free(x);
}

static void promises(const struct kt_backend *b)
{
    float *x = make_x(&promised, KX_BATCH, 8);

    kx_promises(b, run_rows, x, 2 * sizeof(int32_t) * (size_t)promised.top_k);
    free(x);
}

static void test_a_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

/* ---- the choice itself ---- */

/* Equal keys: the lowest ids. A NaN row still takes top_k different ones. */
static void ties_and_nans(const struct kt_backend *b)
{
    const struct shape s = {KERN_BF16, 12, 4, 8, true, true};
    float x[2 * 8] = {0}, bias[12] = {0};
    struct result r = result_make(&s, 2);
    struct kt *t = kt_open(b);

    bias[9] = 1; /* row 0: 9, then the ties 0, 1, 2 */
    for (int i = 0; i < 8; i++) {
        x[8 + i] = NAN;
    }
    run(t, &s, x, 2, bias, &r);
    assert_int_equal(r.sel[0], 0);
    assert_int_equal(r.sel[1], 1);
    assert_int_equal(r.sel[2], 2);
    assert_int_equal(r.sel[3], 9);
    for (int i = 0; i < 4; i++) {
        /* the bias chooses and does not weigh */
        assert_true(fabsf(r.wt[i] - 0.75f) < 1e-6f);
        assert_int_equal(r.sel[4 + i], i);
        assert_true(isnan(r.wt[4 + i]));
    }
    kt_close(t);
    result_finish(&r);
}

static void test_ties_take_the_lowest_id(void **state)
{
    (void)state;
    kx_each_path(ties_and_nans);
}

/* model-spec 2.6, through one-hot rows and weights. */
static void known(const struct kt_backend *b)
{
    static const float logit[6] = {.2f, -1, .5f, .1f, -.3f, .8f};
    static const float bias[6] = {0, 2, 0, 0, 0, -1};
    float w[6], x[1] = {1};
    const void *wp[] = {w}, *bp[] = {bias};
    int32_t sel[2];
    float wt[2];
    struct kt *t = kt_open(b);
    struct kern_router_args a = {
        .n_expert = 6, .top_k = 2, .scale = 3, .renorm = true};

    memcpy(w, logit, sizeof(w));
    a.rows = kt_rows(t, 1, 1);
    a.x = kt_put(t, x, sizeof(x));
    a.w = kt_weight_of(t, KERN_F32, 6, 1, wp);
    a.bias = kt_weight_of(t, KERN_F32, 1, 6, bp);
    a.sel = kt_put(t, NULL, 8);
    a.wt = kt_put(t, NULL, 8);
    a.groups.off = kt_put(t, NULL, 28);
    a.groups.pair = kt_put(t, NULL, 8);
    kt_ok(t, kern_router(t->k, &a));
    kt_get(t, sel, a.sel, 8);
    kt_get(t, wt, a.wt, 8);
    assert_int_equal(sel[0], 1);
    assert_int_equal(sel[1], 2);
    assert_true(fabsf(wt[0] - 0.905119568f) < 2e-6f);
    assert_true(fabsf(wt[1] - 2.09488043f) < 2e-6f);
    kt_close(t);
}

static void test_known_vector(void **state)
{
    (void)state;
    kx_each_path(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged_shapes),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
        cmocka_unit_test(test_ties_take_the_lowest_id),
        cmocka_unit_test(test_known_vector),
    };

    return test_main(tests, NULL, NULL);
}
