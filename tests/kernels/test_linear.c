/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * linear, cpu against ref. Pass rule: relative error of the whole result at
 * most 2e-6 in norm and 4e-6 of the largest value (F32 sums against double).
 */
#include "kernels/quant.h"
#include "tests/kernels/kx.h"

#define TOL_FRO 2e-6
#define TOL_MAX 4e-6

struct shape {
    enum kern_dtype dtype;
    int rows, cols;
};

/* n activation rows through one weight; out [n][rows]. */
static void run_one(struct kt *t, const struct shape *s, uint64_t seed, int n,
                    float *out)
{
    size_t x_n = (size_t)n * (size_t)s->cols;
    uint16_t *x = malloc(x_n * sizeof(*x));
    struct kern_linear_args a = {
        .cols = s->cols, .x_stride = s->cols, .n_parts = 1};

    assert_non_null(x);
    kt_fill_bf16(x, x_n, seed + 17);
    a.rows = kt_rows(t, n, n + 3);
    a.x = kt_put(t, NULL, (x_n + 3 * (size_t)s->cols) * sizeof(*x));
    kt_ok(t, kern_upload(t->k, a.x, x, x_n * sizeof(*x)));
    a.part[0].w = kt_weight(t, s->dtype, 0, s->rows, s->cols, seed);
    a.part[0].out =
        kt_put(t, NULL, sizeof(*out) * (size_t)(n + 3) * (size_t)s->rows);
    a.part[0].out_stride = s->rows;
    kt_ok(t, kern_linear(t->k, &a));
    kt_get(t, out, a.part[0].out, sizeof(*out) * (size_t)n * (size_t)s->rows);
    free(x);
}

static void check_shape(const struct kt_backend *b, const struct shape *s,
                        uint64_t seed, int n)
{
    size_t n_out = (size_t)n * (size_t)s->rows;
    float *want = malloc(sizeof(*want) * n_out);
    float *got = malloc(sizeof(*got) * n_out);
    struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);
    char what[96];

    assert_non_null(want);
    assert_non_null(got);
    run_one(ref, s, seed, n, want);
    run_one(t, s, seed, n, got);
    snprintf(what, sizeof(what), "%s type %d [%d][%d], %d rows", t->name,
             (int)s->dtype, s->rows, s->cols, n);
    assert_tensor_near(what, got, want, n_out, TOL_FRO, TOL_MAX);
    kt_close(t);
    kt_close(ref);
    free(want);
    free(got);
}

static void ragged(const struct kt_backend *b)
{
    static const int cols[] = {1,  2,   7,   31,  32,  33,  48,
                               96, 159, 160, 256, 511, 1057};
    static const int rows[] = {1, 3, 4, 33, 70};
    static const int n_rows[] = {1, 2, 3, 5, 7, 8, 9, 16, 17, 40};
    int i = 0;

    for (size_t c = 0; c < sizeof(cols) / sizeof(cols[0]); c++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++, i++) {
            struct shape s = {KERN_BF16, rows[r], cols[c]};

            check_shape(b, &s, (uint64_t)i + 1, n_rows[i % 10]);
            s.dtype = KERN_FP8_B128;
            check_shape(b, &s, (uint64_t)i + 1, n_rows[(i + 5) % 10]);
            s.dtype = KERN_COMPACT;
            check_shape(b, &s, (uint64_t)i + 1, n_rows[(i + 1) % 10]);
            if (cols[c] % 16 == 0) {
                s.dtype = i % 2 ? KERN_NVFP4 : KERN_NVFP4_DIV;
                check_shape(b, &s, (uint64_t)i + 1, n_rows[(i + 7) % 10]);
            }
            if (cols[c] % 32 == 0) {
                s.dtype = KERN_MXFP4;
                check_shape(b, &s, (uint64_t)i + 1, n_rows[(i + 3) % 10]);
            }
        }
    }
}

static void test_ragged_shapes(void **state)
{
    (void)state;
    kx_each_path(ragged);
}

static void every_row_count(const struct kt_backend *b)
{
    for (int n = 1; n <= 26; n++) {
        check_shape(b, &(struct shape){KERN_BF16, 37, 97}, 5, n);
        check_shape(b, &(struct shape){KERN_MXFP4, 37, 96}, 6, n);
        check_shape(b, &(struct shape){KERN_FP8_B128, 37, 150}, 6, n);
        check_shape(b, &(struct shape){KERN_NVFP4, 37, 80}, 6, n);
    }
    /* blocks of 128 rows */
    check_shape(b, &(struct shape){KERN_FP8_B128, 300, 300}, 9, 3);
    /* past a cut of k in the blocked form, and ragged after it */
    check_shape(b, &(struct shape){KERN_BF16, 35, 4231}, 7, 19);
    check_shape(b, &(struct shape){KERN_MXFP4, 35, 4128}, 8, 19);
    /* wide items; panels of fewer rows than an item */
    check_shape(b, &(struct shape){KERN_BF16, 1100, 160}, 7, 19);
    check_shape(b, &(struct shape){KERN_BF16, 70, 12320}, 7, 19);
    check_shape(b, &(struct shape){KERN_COMPACT, 70, 12320}, 7, 19);
}

/* fr_48: one row or many, the same sums, to the bit: what verification of
 * drafts rests on. */
static void test_every_row_count(void **state)
{
    (void)state;
    kx_each_path(every_row_count);
}

/* ---- bit for bit ---- */

struct input {
    struct shape s;
    uint16_t *x; /* [KX_BATCH][cols] */
};

static void run_rows(struct kt *t, const void *input, const int *row, int n,
                     uint8_t *out)
{
    const struct input *in = input;
    struct kern_linear_args a = {
        .cols = in->s.cols, .x_stride = in->s.cols, .n_parts = 1};
    size_t bytes = sizeof(float) * (size_t)in->s.rows * (size_t)n;

    a.rows = kt_rows(t, n, n);
    a.x = kx_put_rows(t, in->x, sizeof(*in->x) * (size_t)in->s.cols, row, n);
    a.part[0].w = kt_weight(t, in->s.dtype, 0, in->s.rows, in->s.cols, 11);
    a.part[0].out = kt_put(t, NULL, bytes);
    a.part[0].out_stride = in->s.rows;
    kt_ok(t, kern_linear(t->k, &a));
    kt_get(t, out, a.part[0].out, bytes);
}

static void promises(const struct kt_backend *b)
{
    static const struct shape shapes[] = {
        {KERN_BF16, 41, 131},      {KERN_BF16, 64, 2208},
        {KERN_BF16, 1100, 160},    {KERN_COMPACT, 70, 2208},
        {KERN_MXFP4, 41, 160},     {KERN_MXFP4, 36, 2208},
        {KERN_FP8_B128, 140, 200}, {KERN_NVFP4, 41, 176},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        size_t n = (size_t)KX_BATCH * (size_t)shapes[i].cols;
        struct input in = {shapes[i], malloc(n * sizeof(*in.x))};

        assert_non_null(in.x);
        kt_fill_bf16(in.x, n, 23);
        kx_promises(b, run_rows, &in, sizeof(float) * (size_t)shapes[i].rows);
        free(in.x);
    }
}

static void test_a_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

/* Packed weights give what the same values in BF16 give. */
static void packed_as_bf16(const struct kt_backend *b)
{
    enum { ROWS = 39, COLS = 416 };
    uint8_t q[ROWS * COLS / 2], s[ROWS * COLS / 32];
    uint16_t w[ROWS * COLS], x[20 * COLS];
    const void *packed[] = {q, s}, *plain[] = {w};
    uint64_t seed = 3;

    if (kt_is_gpu(b)) {
        return; /* scales each block's sum instead: exact too, another order */
    }
    kt_fill_bf16(x, 20 * COLS, 4);
    for (size_t i = 0; i < sizeof(q); i++) {
        q[i] = (uint8_t)kt_random(&seed);
    }
    for (size_t i = 0; i < sizeof(s); i++) {
        s[i] = (uint8_t)(110 + kt_random(&seed) % 20);
    }
    for (int i = 0; i < ROWS * COLS; i++) {
        w[i] = quant_f32_to_bf16(quant_e2m1(q[i / 2] >> (i % 2 * 4)) *
                                 quant_e8m0(s[i / 32]));
    }
    for (int n = 1; n <= 20; n++) {
        struct kt *t = kt_open(b);
        struct kern_linear_args a = {
            .cols = COLS, .x_stride = COLS, .n_parts = 2};
        float y[2][20 * ROWS];

        a.rows = kt_rows(t, n, n);
        a.x = kt_put(t, x, sizeof(x));
        for (int p = 0; p < 2; p++) {
            a.part[p].w = p == 0
                              ? kt_weight_of(t, KERN_MXFP4, ROWS, COLS, packed)
                              : kt_weight_of(t, KERN_BF16, ROWS, COLS, plain);
            a.part[p].out = kt_put(t, NULL, sizeof(y[p]));
            a.part[p].out_stride = ROWS;
        }
        kt_ok(t, kern_linear(t->k, &a));
        for (int p = 0; p < 2; p++) {
            kt_get(t, y[p], a.part[p].out, sizeof(y[p]));
        }
        assert_tensor_same(t->name, y[0], y[1], (size_t)(n * ROWS));
        kt_close(t);
    }
}

static void test_packed_weights_equal_their_bf16_values(void **state)
{
    (void)state;
    kx_each_path(packed_as_bf16);
}

/* ---- parts, strides, sums ---- */

static void run_parts(struct kt *t, int n, bool add, float *out, size_t n_out)
{
    enum { COLS = 96, STRIDE = 128 };
    static const int rows[3] = {33, 5, 64};
    uint16_t *x = malloc(sizeof(*x) * (size_t)n * STRIDE);
    struct kern_linear_args a = {
        .cols = COLS, .x_stride = STRIDE, .n_parts = 3, .add = add};
    float *before = malloc(sizeof(*before) * n_out);

    assert_non_null(x);
    assert_non_null(before);
    kt_fill_bf16(x, (size_t)n * STRIDE, 31);
    kt_fill_f32(before, n_out, 32);
    a.rows = kt_rows(t, n, n);
    a.x = kt_put(t, x, sizeof(*x) * (size_t)n * STRIDE);
    a.part[0].out = kt_put(t, before, sizeof(*before) * n_out);
    for (int p = 0; p < 3; p++) {
        a.part[p].w = kt_weight(t, p == 1 ? KERN_MXFP4 : KERN_BF16, 0, rows[p],
                                COLS, 40 + (uint64_t)p);
        a.part[p].out_stride = rows[0] + rows[1] + rows[2] + 3;
        a.part[p].out = a.part[0].out;
        a.part[p].out.off = sizeof(float) * (p == 0 ? 0 : p == 1 ? 33 : 33 + 5);
    }
    kt_ok(t, kern_linear(t->k, &a));
    kt_get(t, out, a.part[0].out, sizeof(*out) * n_out);
    free(x);
    free(before);
}

static void parts(const struct kt_backend *b)
{
    for (int n = 1; n <= 21; n += 5) {
        for (int add = 0; add < 2; add++) {
            size_t n_out = (size_t)n * (33 + 5 + 64 + 3);
            float *want = malloc(sizeof(*want) * n_out);
            float *got = malloc(sizeof(*got) * n_out);
            struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

            run_parts(ref, n, add != 0, want, n_out);
            run_parts(t, n, add != 0, got, n_out);
            assert_tensor_near(t->name, got, want, n_out, TOL_FRO, TOL_MAX);
            kt_close(t);
            kt_close(ref);
            free(want);
            free(got);
        }
    }
}

static void test_parts_strides_and_sums(void **state)
{
    (void)state;
    kx_each_path(parts);
}

/* ---- what is read ---- */

static void bytes_read(const struct kt_backend *b)
{
    static const int n_rows[] = {1, 8, 40, 300};

    for (size_t i = 0; i < sizeof(n_rows) / sizeof(n_rows[0]); i++) {
        struct shape s = {KERN_BF16, 70, 160};
        float *out = malloc(sizeof(*out) * 300 * 70);
        struct kt *t = kt_open(b);
        int rows = kt_is_gpu(b) ? KT_GPU_LINEAR_ROWS : 300;
        int passes = (n_rows[i] + rows - 1) / rows;

        assert_non_null(out);
        run_one(t, &s, 2, n_rows[i], out);
        assert_int_equal(t->k->stats.weight_bytes, passes * 70 * 160 * 2);
        kern_stats_reset(t->k);
        s.dtype = KERN_MXFP4;
        run_one(t, &s, 2, n_rows[i], out);
        assert_int_equal(t->k->stats.weight_bytes, passes * 70 * (80 + 5));
        kern_stats_reset(t->k);
        s.dtype = KERN_NVFP4;
        run_one(t, &s, 2, n_rows[i], out);
        assert_int_equal(t->k->stats.weight_bytes,
                         passes * (70 * (80 + 10) + 4));
        kern_stats_reset(t->k);
        s.dtype = KERN_FP8_B128;
        run_one(t, &s, 2, n_rows[i], out);
        assert_int_equal(t->k->stats.weight_bytes,
                         passes * (70 * 160 + 1 * 2 * 4));
        kt_close(t);
        free(out);
    }
}

static void test_weights_are_read_once_for_all_rows(void **state)
{
    (void)state;
    kx_each_path(bytes_read);
}

/* ---- extreme scales ---- */

enum { X_ROWS = 9, X_COLS = 96 };

/* Rows with blocks of scale 0, 1, 2, 252, 253, 254 and tame ones, and a block
 * of zeros under each. x is small where scales are large. */
static void run_extreme(struct kt *t, int n, float *out)
{
    static const uint8_t scales[X_ROWS][3] = {
        {127, 127, 127}, {0, 0, 0},       {1, 0, 2},
        {254, 127, 127}, {253, 252, 254}, {127, 254, 1},
        {0, 127, 120},   {254, 254, 254}, {2, 252, 127},
    };
    uint8_t q[X_ROWS * X_COLS / 2];
    uint16_t x[20 * X_COLS];
    const void *plane[] = {q, scales};
    struct kern_linear_args a = {
        .cols = X_COLS, .x_stride = X_COLS, .n_parts = 1};
    uint64_t seed = 9;

    for (size_t i = 0; i < sizeof(q); i++) {
        q[i] = (uint8_t)kt_random(&seed);
    }
    memset(q + 7 * X_COLS / 2, 0x80,
           X_COLS / 2); /* row 7: zeros of both signs */
    for (int i = 0; i < 20 * X_COLS; i++) {
        /* products reach both ends of F32 and must not overflow */
        x[i] = quant_f32_to_bf16(kt_uniform(&seed) * 0x1p-8f);
    }
    a.rows = kt_rows(t, n, n);
    a.x = kt_put(t, x, sizeof(x));
    a.part[0].w = kt_weight_of(t, KERN_MXFP4, X_ROWS, X_COLS, plane);
    a.part[0].out = kt_put(t, NULL, sizeof(*out) * X_ROWS * 20);
    a.part[0].out_stride = X_ROWS;
    kt_ok(t, kern_linear(t->k, &a));
    kt_get(t, out, a.part[0].out, sizeof(*out) * (size_t)n * X_ROWS);
}

static void extreme(const struct kt_backend *b)
{
    float alone[X_ROWS];

    for (int n = 1; n <= 20; n++) {
        float want[X_ROWS * 20], got[X_ROWS * 20];
        struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

        run_extreme(ref, n, want);
        run_extreme(t, n, got);
        for (int i = 0; i < n * X_ROWS; i++) {
            /* each feature by itself: their magnitudes lie far apart. A
             * subnormal sum is right to an ulp or two of its own. */
            double allowed = fabs((double)want[i]) * 4e-6 + 0x1p-140;

            if (!(fabs((double)got[i] - (double)want[i]) <= allowed)) {
                fail_msg("%s: %d rows, [%d] is %a, expected %a", t->name, n, i,
                         (double)got[i], (double)want[i]);
            }
        }
        if (n == 1) {
            memcpy(alone, got, sizeof(alone));
        }
        assert_tensor_same(t->name, got, alone, X_ROWS);
        kt_close(t);
        kt_close(ref);
    }
}

static void test_extreme_scales_are_exact(void **state)
{
    (void)state;
    if (getenv("STEPD_CUEMU_FTZ") != NULL) {
        test_skip(NULL, "the results are subnormal, and subnormals flushed");
    }
    kx_each_path(extreme);
}

#ifdef __aarch64__
/* The two paths of aarch64 add the same products in the same order: equal bits
 * where F32 holds every product. */
static void test_paths_of_aarch64_agree(void **state)
{
    static const struct shape shapes[] = {{KERN_BF16, 37, 517},
                                          {KERN_COMPACT, 37, 517},
                                          {KERN_FP8_B128, 37, 150},
                                          {KERN_MXFP4, 37, 544},
                                          {KERN_NVFP4, 37, 80}};
    static const struct kt_backend one = {"cpu", "portable", 1},
                                   other = {"cpu", "neonbf16", 1};
    float want[40 * 37], got[40 * 37];

    bool there = false;

    (void)state;
    for (int i = 0; i < kt_n_backends(); i++) {
        there |= strcmp(kt_backend(i)->isa, other.isa) == 0;
    }
    if (!there) {
        test_skip(NULL, "this CPU has no BF16 instructions");
        return; /* cross/cmocka.h comes back */
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (int n = 1; n <= 40; n += n < 9 ? 1 : 31) {
            struct kt *a = kt_open(&one), *b = kt_open(&other);

            run_one(a, &shapes[i], 3 + i, n, want);
            run_one(b, &shapes[i], 3 + i, n, got);
            assert_memory_equal(
                got, want, sizeof(float) * (size_t)n * (size_t)shapes[i].rows);
            kt_close(b);
            kt_close(a);
        }
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged_shapes),
        cmocka_unit_test(test_every_row_count),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
        cmocka_unit_test(test_packed_weights_equal_their_bf16_values),
        cmocka_unit_test(test_parts_strides_and_sums),
        cmocka_unit_test(test_weights_are_read_once_for_all_rows),
        cmocka_unit_test(test_extreme_scales_are_exact),
#ifdef __aarch64__
        cmocka_unit_test(test_paths_of_aarch64_agree),
#endif
    };

    return test_main(tests, NULL, NULL);
}
