/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The ops that work on rows element by element, cpu against ref: embed, gather
 * and finite bit for bit; swiglu to BF16 rounding (4e-3 of the norm, 8e-3 of
 * the largest).
 */
#include "kernels/quant.h"
#include "tests/kernels/kx.h"

/* ---- embed ---- */

static void run_embed(struct kt *t, int width, float *out)
{
    static const int32_t ids[6] = {0, 12, -1, 5, 13, 12};
    struct kern_embed_args a = {.rows = kt_rows(t, 6, 8)};

    a.table = kt_weight(t, KERN_BF16, 0, 13, width, 9);
    a.ids = kt_put(t, NULL, 8 * 4);
    kt_ok(t, kern_upload(t->k, a.ids, ids, sizeof(ids)));
    a.out = kt_put(t, NULL, sizeof(float) * 8 * (size_t)width);
    kt_ok(t, kern_embed(t->k, &a));
    kt_get(t, out, a.out, sizeof(float) * 8 * (size_t)width);
}

static void embed(const struct kt_backend *b)
{
    for (int width = 1; width <= 67; width += width < 20 ? 1 : 47) {
        float want[8 * 67], got[8 * 67];
        struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

        run_embed(ref, width, want);
        run_embed(t, width,
                  got); /* rows past the live ones stay as they were */
        assert_tensor_same(t->name, got, want, (size_t)(8 * width));
        for (int i = 0; i < width; i++) {
            assert_true(got[2 * width + i] == 0 && got[4 * width + i] == 0);
        }
        kt_close(t);
        kt_close(ref);
    }
}

static void test_embed_widens_rows(void **state)
{
    (void)state;
    kx_each_path(embed);
}

/* ---- gather ---- */

static void gather(const struct kt_backend *b)
{
    enum { W = 5 };
    static const int32_t src[5] = {3, -1, 0, 3, 1}, dst[5] = {4, 0, 2, 1, 3};
    float x[4 * W], want[5 * W], got[5 * W];
    struct kt *t = kt_open(b);
    struct kern_gather_args a = {.width = W};

    kt_fill_f32(x, 4 * W, 1);
    a.rows = kt_rows(t, 5, 5);
    a.x = kt_put(t, x, sizeof(x));
    a.src = kt_put(t, src, sizeof(src));
    for (int with_dst = 0; with_dst < 2; with_dst++) {
        memset(want, 0xff, sizeof(want));
        for (int i = 0; i < 5; i++) {
            if (src[i] >= 0) {
                memcpy(want + W * (with_dst ? dst[i] : i), x + W * src[i],
                       W * sizeof(float));
            }
        }
        if (with_dst) {
            a.dst = kt_put(t, dst, sizeof(dst));
        }
        a.out = kt_put(t, NULL, sizeof(got));
        kt_ok(t, kern_gather(t->k, &a));
        kt_get(t, got, a.out, sizeof(got));
        assert_tensor_same(t->name, got, want, 5 * W);
    }
    kt_close(t);
}

static void test_gather_moves_and_skips(void **state)
{
    (void)state;
    kx_each_path(gather);
}

/* ---- finite ---- */

static void marks(const struct kt_backend *b)
{
    static const float odd[4] = {NAN, INFINITY, -INFINITY, 3.4e38f};

    for (int width = 1; width <= 40; width += 3) {
        for (int at = 0; at < width; at += 2) {
            float x[6 * 40];
            int32_t bad[6] = {0, 0, 0, 0, 0, 9}, got[6];
            struct kt *t = kt_open(b);
            struct kern_finite_args a = {.width = width, .mark = 7};

            kt_fill_f32(x, (size_t)(6 * width), 4);
            for (int r = 0; r < 4; r++) {
                x[(r + 1) * width + at] = odd[r];
            }
            x[5 * width] = NAN;
            a.rows = kt_rows(t, 6, 6);
            a.x = kt_put(t, x, sizeof(float) * 6 * (size_t)width);
            a.bad = kt_put(t, bad, sizeof(bad));
            kt_ok(t, kern_finite(t->k, &a));
            kt_get(t, got, a.bad, sizeof(got));
            assert_int_equal(got[0], 0);
            assert_int_equal(got[1], 7);
            assert_int_equal(got[2], 7);
            assert_int_equal(got[3], 7);
            assert_int_equal(got[4], 0);
            assert_int_equal(got[5], 9); /* the first mark stays */
            kt_close(t);
        }
    }
}

static void test_finite_marks_rows(void **state)
{
    (void)state;
    kx_each_path(marks);
}

/* ---- swiglu ---- */

struct input {
    int width;
    float limit;
    float *gate, *up; /* [KX_BATCH][width] */
};

static struct input input_make(int width, float limit)
{
    size_t n = (size_t)KX_BATCH * (size_t)width;
    struct input in = {width, limit, malloc(n * 4), malloc(n * 4)};

    assert_true(in.gate && in.up);
    kt_fill_f32(in.gate, n, 5);
    kt_fill_f32(in.up, n, 6);
    for (size_t i = 0; i < n; i++) {
        in.gate[i] *= 20;
        in.up[i] *= 10;
    }
    return in;
}

static void run_swiglu(struct kt *t, const void *input, const int *row, int n,
                       uint8_t *out)
{
    const struct input *in = input;
    size_t bytes = sizeof(float) * (size_t)in->width;
    struct kern_swiglu_args a = {.width = in->width, .limit = in->limit};

    a.rows = kt_rows(t, n, n);
    a.gate = kx_put_rows(t, in->gate, bytes, row, n);
    a.up = kx_put_rows(t, in->up, bytes, row, n);
    a.out = kt_put(t, NULL, bytes / 2 * (size_t)n);
    kt_ok(t, kern_swiglu(t->k, &a));
    kt_get(t, out, a.out, bytes / 2 * (size_t)n);
}

static void swiglu(const struct kt_backend *b)
{
    static const float limits[] = {0, 7, 0.25f};
    int row[KX_BATCH];

    for (int i = 0; i < KX_BATCH; i++) {
        row[i] = i;
    }
    for (int width = 1; width <= 300; width = width * 3 + 1) {
        for (int l = 0; l < 3; l++) {
            size_t n = (size_t)KX_BATCH * (size_t)width;
            struct input in = input_make(width, limits[l]);
            uint16_t *bits = malloc(n * 2);
            float *want = malloc(n * 4), *got = malloc(n * 4);
            struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

            assert_true(bits && want && got);
            for (int side = 0; side < 2; side++) {
                run_swiglu(side == 0 ? ref : t, &in, row, KX_BATCH,
                           (uint8_t *)bits);
                for (size_t i = 0; i < n; i++) {
                    (side == 0 ? want : got)[i] = quant_bf16_to_f32(bits[i]);
                }
            }
            assert_tensor_near(t->name, got, want, n, 4e-3, 8e-3);
            kt_close(t);
            kt_close(ref);
            free(in.gate);
            free(in.up);
            free(bits);
            free(want);
            free(got);
        }
    }
}

static void test_swiglu_clamps_after_silu(void **state)
{
    (void)state;
    kx_each_path(swiglu);
}

/* model-spec 2.6; a NaN is not clamped away, a huge gate is harmless. */
static void known(const struct kt_backend *b)
{
    static const float gate[8] = {0.5f, 9, -2, 8.5f, NAN, 1, -200, 200};
    static const float up[8] = {3, 10, -9, 1, 1, NAN, 3, 1};
    static const float want[4] = {0.933689f, 49, 1.668841f, 7};
    uint16_t got[8];
    struct kt *t = kt_open(b);
    struct kern_swiglu_args a = {.width = 8, .limit = 7};

    a.rows = kt_rows(t, 1, 1);
    a.gate = kt_put(t, gate, sizeof(gate));
    a.up = kt_put(t, up, sizeof(up));
    a.out = kt_put(t, NULL, sizeof(got));
    kt_ok(t, kern_swiglu(t->k, &a));
    kt_get(t, got, a.out, sizeof(got));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(got[i], quant_f32_to_bf16(want[i]));
    }
    assert_true(isnan(quant_bf16_to_f32(got[4])));
    assert_true(isnan(quant_bf16_to_f32(got[5])));
    assert_true(quant_bf16_to_f32(got[6]) == 0);
    assert_true(quant_bf16_to_f32(got[7]) == 7);
    kt_close(t);
}

static void test_swiglu_known_vector(void **state)
{
    (void)state;
    kx_each_path(known);
}

static void promises(const struct kt_backend *b)
{
    struct input in = input_make(173, 7);

    kx_promises(b, run_swiglu, &in, sizeof(uint16_t) * 173);
    free(in.gate);
    free(in.up);
}

static void test_swiglu_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

/* ---- mlp_up ---- */

/* What linear and swiglu make one after the other, bit for bit. */
static void mlp_up(const struct kt_backend *b, enum kern_dtype dtype, int n,
                   int width, int cols)
{
    struct kt *t = kt_open(b);
    size_t all = (size_t)n * (size_t)width;
    uint16_t *x = malloc((size_t)n * (size_t)cols * 2);
    uint16_t *got = malloc(all * 2), *want = malloc(all * 2);
    struct kern_mlp_up_args a = {.cols = cols, .limit = 0.75f};
    struct kern_linear_args in = {.cols = cols, .x_stride = cols, .n_parts = 2};
    struct kern_swiglu_args act = {.width = width, .limit = 0.75f};

    assert_true(x != NULL && got != NULL && want != NULL);
    kt_fill_bf16(x, (size_t)n * (size_t)cols, 3);
    a.rows = in.rows = act.rows = kt_rows(t, n, n);
    a.x = in.x = kt_put(t, x, (size_t)n * (size_t)cols * 2);
    a.gate = in.part[0].w = kt_weight(t, dtype, 0, width, cols, 4);
    a.up = in.part[1].w = kt_weight(t, dtype, 0, width, cols, 5);
    a.gate_out = in.part[0].out = act.gate = kt_put(t, NULL, all * 4);
    a.up_out = in.part[1].out = act.up = kt_put(t, NULL, all * 4);
    in.part[0].out_stride = in.part[1].out_stride = width;
    a.out = kt_put(t, NULL, all * 2);
    act.out = kt_put(t, NULL, all * 2);
    kern_stats_reset(t->k);
    kt_ok(t, kern_mlp_up(t->k, &a));
    kt_get(t, got, a.out, all * 2);
    if (kt_is_gpu(b) && n <= 16 && dtype != KERN_F32) { /* read once */
        assert_int_equal(
            t->k->stats.weight_bytes,
            2 * kern_weight_plane_bytes(&a.gate->desc, 0) +
                (kern_weight_n_planes(dtype) > 1 && dtype != KERN_COMPACT
                     ? 2 * kern_weight_plane_bytes(&a.gate->desc, 1)
                     : 0) +
                (dtype == KERN_COMPACT ? 2 * (size_t)width * 4 : 0));
    }
    kt_ok(t, kern_linear(t->k, &in));
    kt_ok(t, kern_swiglu(t->k, &act));
    kt_get(t, want, act.out, all * 2);
    assert_memory_equal(got, want, all * 2);
    free(x);
    free(got);
    free(want);
    kt_close(t);
}

static void mlp_ups(const struct kt_backend *b)
{
    static const int n[] = {1, 8, 9, 16, 17};

    for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
        mlp_up(b, KERN_BF16, n[i], 40, 1184);
        mlp_up(b, KERN_MXFP4, n[i], 37, 288);
        mlp_up(b, KERN_COMPACT, n[i], 37, 1184);
    }
    if (kt_is_gpu(b)) { /* the CPU has no use for these as a dense weight */
        mlp_up(b, KERN_FP8_B128, 3, 130, 256);
        mlp_up(b, KERN_F32, 3, 20, 100);
    }
}

static void test_mlp_up_is_linear_and_swiglu(void **state)
{
    (void)state;
    kx_each_path(mlp_ups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed_widens_rows),
        cmocka_unit_test(test_gather_moves_and_skips),
        cmocka_unit_test(test_finite_marks_rows),
        cmocka_unit_test(test_swiglu_clamps_after_silu),
        cmocka_unit_test(test_swiglu_known_vector),
        cmocka_unit_test(test_mlp_up_is_linear_and_swiglu),
        cmocka_unit_test(test_swiglu_row_does_not_see_its_neighbours),
    };

    return test_main(tests, NULL, NULL);
}
