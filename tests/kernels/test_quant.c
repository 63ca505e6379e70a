/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Block formats: every code of kernels/quant.h, and what every backend makes of
 * packed planes, read back through linear with one-hot rows.
 */

#include "kernels/quant.h"

#include <errno.h>

#include "tests/kernels/kt.h"

static void test_e2m1_codes(void **state)
{
    static const float mag[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

    (void)state;
    for (unsigned c = 0; c < 16; c++) {
        float want = c < 8 ? mag[c] : -mag[c - 8];

        assert_memory_equal(&(float){quant_e2m1(c)}, &want, sizeof(want));
    }
}

static void test_e8m0_codes(void **state)
{
    (void)state;
    for (unsigned s = 0; s < 255; s++) {
        assert_true(quant_e8m0(s) == (float)ldexp(1, (int)s - 127));
    }
    assert_true(isnan(quant_e8m0(255)));
}

static void test_e4m3_codes(void **state)
{
    (void)state;
    for (unsigned b = 0; b < 256; b++) {
        unsigned e = b >> 3 & 15, m = b & 7;
        double mag = e == 0 ? ldexp(m, -9) : ldexp(8 + m, (int)e - 10);

        if (e == 15 && m == 7) {
            assert_true(isnan(quant_e4m3(b)));
        } else {
            assert_true(quant_e4m3(b) == (float)(b < 128 ? mag : -mag));
        }
    }
    assert_true(quant_e4m3(0x7e) == 448.0f);
}

static void test_bf16_rounds_to_even(void **state)
{
    static const struct {
        uint32_t in;
        uint16_t out;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, /* tie, to even */
        {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x7f7fffff, 0x7f80},
        {0x80000000, 0x8000}, {0x00018000, 0x0002}, {0xff800000, 0xff80},
        {0x7f800001, 0x7fc0}, {0xffc12345, 0xffc1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(quant_f32_to_bf16(quant_from_bits(cases[i].in)),
                         cases[i].out);
    }
}

/* w[o][c] for all of a small weight: linear of the unit rows. */
static void read_back(struct kt *t, const struct kern_weight *w, float *ret)
{
    int rows = w->desc.rows, cols = w->desc.cols;
    uint16_t *unit = calloc((size_t)cols * (size_t)cols, sizeof(*unit));
    float *out = malloc((size_t)cols * (size_t)rows * sizeof(*out));
    struct kern_linear_args a = {.cols = cols, .x_stride = cols, .n_parts = 1};

    assert_non_null(unit);
    assert_non_null(out);
    for (int c = 0; c < cols; c++) {
        unit[c * cols + c] = 0x3f80;
    }
    a.rows = kt_rows(t, cols, cols);
    a.x = kt_put(t, unit, (size_t)cols * (size_t)cols * sizeof(*unit));
    a.part[0].w = w;
    a.part[0].out_stride = rows;
    a.part[0].out = kt_put(t, NULL, (size_t)cols * (size_t)rows * sizeof(*out));
    kt_ok(t, kern_linear(t->k, &a));
    kt_get(t, out, a.part[0].out, (size_t)cols * (size_t)rows * sizeof(*out));
    for (int o = 0; o < rows; o++) {
        for (int c = 0; c < cols; c++) {
            ret[o * cols + c] = out[c * rows + o];
        }
    }
    free(unit);
    free(out);
}

/* The running backend: ref first, then all others. */
static struct kt *open_nth(int i)
{
    return kt_open(i == 0 ? &kt_ref : kt_backend(i - 1));
}

static void test_fr_31_nibbles_and_scales(void **state)
{
    static const unsigned scales[] = {127, 128, 2, 252, 120, 130};
    enum { ROWS = sizeof(scales) / sizeof(scales[0]) };

    (void)state;
    for (int i = 0; i <= kt_n_backends(); i++) {
        struct kt *t = open_nth(i);
        uint8_t packed[ROWS][16], scale[ROWS];
        const void *plane[] = {packed, scale};
        float got[ROWS * 32];

        for (int o = 0; o < ROWS; o++) {
            scale[o] = (uint8_t)scales[o];
            /* codes 0..15 twice: low nibble first; row 1 begins 1, 2 */
            for (int b = 0; b < 16; b++) {
                packed[o][b] = (uint8_t)(2 * b % 16 | (2 * b + 1) % 16 << 4);
            }
        }
        packed[1][0] = 0x42; /* codes 2, 4 under 2^1: 2, 4 */
        read_back(t, kt_weight_of(t, KERN_MXFP4, ROWS, 32, plane), got);
        for (int o = 0; o < ROWS; o++) {
            for (int c = 0; c < 32; c++) {
                unsigned code = packed[o][c / 2] >> c % 2 * 4 & 15u;
                float want = quant_e2m1(code) * quant_e8m0(scales[o]);

                assert_true(got[o * 32 + c] == want);
            }
        }
        assert_true(got[32] == 2.0f && got[33] == 4.0f);
        kt_close(t);
    }
}

static void test_mxfp4_scale_255_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i <= kt_n_backends(); i++) {
        struct kt *t = open_nth(i);
        struct kern_weight_desc d = {KERN_MXFP4, 3, 64, 2, KERN_SHARD_NONE, 0};
        uint8_t packed[3 * 32] = {0}, scale[6];
        struct kern_weight *w;

        memset(scale, 127, sizeof(scale));
        kt_ok(t, kern_weight_new(t->k, &d, &w));
        for (int e = 0; e < 2; e++) {
            kt_ok(t, kern_weight_fill(t->k, w, e, 0, 0, packed, 96));
            scale[5] = e == 1 ? 255 : 127;
            kt_ok(t, kern_weight_fill(t->k, w, e, 1, 0, scale, 6));
        }
        assert_int_equal(kern_weight_ready(t->k, w), -ERANGE);
        assert_non_null(strstr(kern_error(t->k), "255"));
        kern_weight_free(t->k, w);
        kt_close(t);
    }
}

static void test_fp8_blocks_and_their_edges(void **state)
{
    enum { R = 130, C = 132 };
    struct kt *t = kt_open(&kt_ref);
    static uint8_t code[R * C];
    static float got[R * C];
    const float scale[4] = {1, 2, 4, 0.5f};
    const void *plane[] = {code, scale};

    (void)state;
    for (int i = 0; i < R * C; i++) {
        code[i] = (uint8_t)(i % 127);
    }
    read_back(t, kt_weight_of(t, KERN_FP8_B128, R, C, plane), got);
    for (int i = 0; i < R * C; i++) {
        float s = scale[i / C / 128 * 2 + i % C / 128];

        assert_true(got[i] == quant_e4m3(code[i]) * s);
    }
    kt_close(t);
}

static void test_nvfp4_factor_multiplies_or_divides(void **state)
{
    struct kt *t = kt_open(&kt_ref);
    uint8_t code[16], scale[2] = {0x38, 0x40}; /* 1, 2 */
    float factor = 0.25f, got[32];
    const void *plane[] = {code, scale, &factor};

    (void)state;
    memset(code, 0x62, sizeof(code)); /* 1 then 4 */
    read_back(t, kt_weight_of(t, KERN_NVFP4, 1, 32, plane), got);
    assert_true(got[0] == 0.25f && got[1] == 1.0f);
    assert_true(got[16] == 0.5f && got[31] == 2.0f);
    read_back(t, kt_weight_of(t, KERN_NVFP4_DIV, 1, 32, plane), got);
    assert_true(got[0] == 4.0f && got[31] == 32.0f);
    kt_close(t);
}

static void test_plane_sizes(void **state)
{
    static const struct {
        struct kern_weight_desc d;
        size_t bytes[3];
    } cases[] = {
        {{KERN_BF16, 3, 5, 0, 0, 0}, {30, 0, 0}},
        {{KERN_F32, 3, 5, 0, 0, 0}, {60, 0, 0}},
        /* model-spec section 10: one expert's projection, 2,785,280 bytes */
        {{KERN_MXFP4, 1280, 4096, 288, 0, 0}, {2621440, 163840, 0}},
        {{KERN_FP8_B128, 1280, 4096, 288, 0, 0}, {5242880, 1280, 0}},
        {{KERN_FP8_B128, 160, 96, 8, 0, 0}, {15360, 8, 0}},
        {{KERN_NVFP4, 1280, 4096, 288, 0, 0}, {2621440, 327680, 4}},
        {{KERN_COMPACT, 3, 130, 0, 0, 7}, {1152, 16, 28}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int p = 0; p < 3; p++) {
            assert_int_equal(kern_weight_plane_bytes(&cases[i].d, p),
                             cases[i].bytes[p]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e2m1_codes),
        cmocka_unit_test(test_e8m0_codes),
        cmocka_unit_test(test_e4m3_codes),
        cmocka_unit_test(test_bf16_rounds_to_even),
        cmocka_unit_test(test_fr_31_nibbles_and_scales),
        cmocka_unit_test(test_mxfp4_scale_255_is_refused),
        cmocka_unit_test(test_fp8_blocks_and_their_edges),
        cmocka_unit_test(test_nvfp4_factor_multiplies_or_divides),
        cmocka_unit_test(test_plane_sizes),
    };

    return test_main(tests, NULL, NULL);
}
