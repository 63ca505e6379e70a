/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * norm, cpu against ref. Pass rules: F32 results 1e-6 and 2e-6, BF16 ones 4e-3
 * and one rounding step (8e-3); the residual sum bit for bit.
 */
#include "kernels/quant.h"
#include "tests/kernels/kx.h"

struct input {
    enum kern_dtype dtype;
    int width;
    bool delta;
    float *x, *d; /* [n][width] */
};

struct result {
    float *x, *f32;
    uint16_t *bf16;
};

static void run(struct kt *t, const struct input *in, const int *row, int n,
                struct result *ret)
{
    size_t bytes = sizeof(float) * (size_t)in->width;
    int stride = in->width + 3;
    struct kern_norm_args a = {
        .width = in->width, .eps = 1e-5f, .out_stride = stride};
    uint16_t *out = malloc((size_t)n * (size_t)stride * sizeof(*out));

    assert_non_null(out);
    a.rows = kt_rows(t, n, n);
    a.x = kx_put_rows(t, in->x, bytes, row, n);
    if (in->delta) {
        a.delta = kx_put_rows(t, in->d, bytes, row, n);
    }
    a.w = kt_weight(t, in->dtype, 0, 1, in->width, 21);
    a.out = kt_put(t, NULL, (size_t)n * (size_t)stride * sizeof(*out));
    a.out_f32 = kt_put(t, NULL, bytes * (size_t)n);
    kt_ok(t, kern_norm(t->k, &a));
    kt_get(t, ret->x, a.x, bytes * (size_t)n);
    kt_get(t, ret->f32, a.out_f32, bytes * (size_t)n);
    kt_get(t, out, a.out, (size_t)n * (size_t)stride * sizeof(*out));
    for (int r = 0; r < n; r++) {
        memcpy(ret->bf16 + r * in->width, out + r * stride,
               (size_t)in->width * sizeof(*out));
    }
    free(out);
}

static struct result result_make(int n, int width)
{
    size_t all = (size_t)n * (size_t)width;
    struct result r = {malloc(all * 4), malloc(all * 4), malloc(all * 2)};

    assert_true(r.x && r.f32 && r.bf16);
    return r;
}

static void result_finish(struct result *r)
{
    free(r->x);
    free(r->f32);
    free(r->bf16);
}

static struct input input_make(enum kern_dtype dtype, int n, int width,
                               bool delta)
{
    size_t all = (size_t)n * (size_t)width;
    struct input in = {dtype, width, delta, malloc(all * 4), malloc(all * 4)};

    assert_true(in.x && in.d);
    kt_fill_f32(in.x, all, 1 + (uint64_t)width);
    kt_fill_f32(in.d, all, 2 + (uint64_t)width);
    return in;
}

static void ragged(const struct kt_backend *b)
{
    static const int widths[] = {1, 3, 4, 7, 8, 15, 16, 17, 96, 100, 1025};
    enum { N = 5 };
    static const int row[N] = {0, 1, 2, 3, 4};

    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        int w = widths[i];
        size_t all = (size_t)N * (size_t)w;
        struct input in =
            input_make(i % 2 ? KERN_BF16 : KERN_F32, N, w, i % 3 != 0);
        struct result want = result_make(N, w), got = result_make(N, w);
        struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

        run(ref, &in, row, N, &want);
        run(t, &in, row, N, &got);
        assert_tensor_same("sum", got.x, want.x, all);
        assert_tensor_near(t->name, got.f32, want.f32, all, 1e-6, 2e-6);
        for (size_t k = 0; k < all; k++) {
            /* BF16 is the F32 result rounded, on each backend */
            assert_int_equal(got.bf16[k], quant_f32_to_bf16(got.f32[k]));
        }
        kt_close(t);
        kt_close(ref);
        result_finish(&want);
        result_finish(&got);
        free(in.x);
        free(in.d);
    }
}

static void test_ragged_widths(void **state)
{
    (void)state;
    kx_each_path(ragged);
}

static void run_rows(struct kt *t, const void *input, const int *row, int n,
                     uint8_t *out)
{
    const struct input *in = input;
    struct result r = result_make(n, in->width);
    size_t bytes = sizeof(float) * (size_t)in->width;

    run(t, in, row, n, &r);
    for (int i = 0; i < n; i++) {
        memcpy(out + 2 * bytes * (size_t)i, r.x + i * in->width, bytes);
        memcpy(out + 2 * bytes * (size_t)i + bytes, r.f32 + i * in->width,
               bytes);
    }
    result_finish(&r);
}

static void promises(const struct kt_backend *b)
{
    struct input in = input_make(KERN_BF16, KX_BATCH, 201, true);

    kx_promises(b, run_rows, &in, 2 * sizeof(float) * 201);
    free(in.x);
    free(in.d);
}

static void test_a_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

/* Without outputs only the sum is made. */
static void sum_only(const struct kt_backend *b)
{
    static const float x[3] = {1, 2, 3}, d[3] = {10, 20, 30};
    static const float want[3] = {11, 22, 33};
    float got[3];
    struct kt *t = kt_open(b);
    struct kern_norm_args a = {.width = 3, .eps = 1e-5f};

    a.rows = kt_rows(t, 1, 1);
    a.x = kt_put(t, x, sizeof(x));
    a.delta = kt_put(t, d, sizeof(d));
    kt_ok(t, kern_norm(t->k, &a));
    kt_get(t, got, a.x, sizeof(got));
    assert_tensor_same(t->name, got, want, 3);
    kt_close(t);
}

static void test_without_outputs_the_sum_is_made(void **state)
{
    (void)state;
    kx_each_path(sum_only);
}

/* bad: as finite marks the sum, though its squares may overflow. */
static void marks(const struct kt_backend *b)
{
    enum { N = 6, W = 70 };
    static const int32_t want[N] = {0, 4, 4, 9, 0, 4}, before[N] = {[3] = 9};
    float x[N * W], d[N * W];
    int32_t got[N];

    kt_fill_f32(x, N * W, 1);
    kt_fill_f32(d, N * W, 2);
    d[1 * W + 69] = NAN;
    x[2 * W + 1] = INFINITY;
    x[3 * W + 5] = -INFINITY; /* an earlier mark stays */
    x[4 * W + 7] = 3e38f;     /* finite, unlike its square */
    x[5 * W + 8] = d[5 * W + 8] = -3e38f;
    for (int outs = 0; outs < 2; outs++) {
        struct kt *t = kt_open(b);
        struct kern_norm_args a = {
            .width = W, .eps = 1e-5f, .out_stride = W, .mark = 4};

        a.rows = kt_rows(t, N, N);
        a.x = kt_put(t, x, sizeof(x));
        a.delta = kt_put(t, d, sizeof(d));
        a.bad = kt_put(t, before, sizeof(before));
        a.w = kt_weight(t, KERN_F32, 0, 1, W, 21);
        if (outs == 1) {
            a.out = kt_put(t, NULL, N * W * 2);
        }
        kt_ok(t, kern_norm(t->k, &a));
        kt_get(t, got, a.bad, sizeof(got));
        assert_memory_equal(got, want, sizeof(want));
        kt_close(t);
    }
}

static void test_what_is_not_finite_is_marked(void **state)
{
    (void)state;
    kx_each_path(marks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged_widths),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
        cmocka_unit_test(test_without_outputs_the_sum_is_made),
        cmocka_unit_test(test_what_is_not_finite_is_marked),
    };

    return test_main(tests, NULL, NULL);
}
