/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The executable specification against vectors computed by hand (model-spec
 * 2.6) and small cases whose answer is plain, on ref and on every other
 * backend; and the front's refusals.
 */

#include <errno.h>

#include "kernels/quant.h"
#include "tests/kernels/kt.h"

static struct kt *open_nth(int i)
{
    return kt_open(i == 0 ? &kt_ref : kt_backend(i - 1));
}

static bool near(float x, double want, double tol)
{
    return fabs((double)x - want) <= tol * fmax(1, fabs(want));
}

static void bf16_of(const float *x, int n, uint16_t *ret)
{
    for (int i = 0; i < n; i++) {
        ret[i] = quant_f32_to_bf16(x[i]);
    }
}

static void test_swiglu_clamps_after_silu(void **state)
{
    static const float gate[] = {0.5f, 9, -2, 8.5f};
    static const float up[] = {3, 10, -9, 1};
    static const double clamped[] = {0.933689, 49, 1.668841, 7};
    static const double plain[] = {0.933689, 89.98889, 2.145654, 8.498271};

    (void)state;
    for (int i = 0; i <= kt_n_backends(); i++) {
        for (int pass = 0; pass < 2; pass++) {
            struct kt *t = open_nth(i);
            struct kern_swiglu_args a = {.width = 4,
                                         .limit = pass == 0 ? 7 : 0};
            uint16_t out[4];

            a.rows = kt_rows(t, 1, 1);
            a.gate = kt_put(t, gate, sizeof(gate));
            a.up = kt_put(t, up, sizeof(up));
            a.out = kt_put(t, NULL, sizeof(out));
            kt_ok(t, kern_swiglu(t->k, &a));
            kt_get(t, out, a.out, sizeof(out));
            for (int j = 0; j < 4; j++) {
                assert_true(near(quant_bf16_to_f32(out[j]),
                                 pass == 0 ? clamped[j] : plain[j], 4e-3));
            }
            kt_close(t);
        }
    }
}

static void test_router_bias_only_selects(void **state)
{
    /* an identity as the router's weight: the logits are x */
    static const float x[] = {.2f, -1, .5f, .1f, -.3f, .8f};
    static const float bias[] = {0, 2, 0, 0, 0, -1};
    float w[36] = {0};
    const void *w_plane[] = {w}, *bias_plane[] = {bias};

    (void)state;
    for (int i = 0; i < 6; i++) {
        w[i * 7] = 1;
    }
    for (int i = 0; i <= kt_n_backends(); i++) {
        struct kt *t = open_nth(i);
        struct kern_router_args a = {
            .n_expert = 6, .top_k = 2, .scale = 3, .renorm = true};
        int32_t sel[2], off[7], pair[2];
        float wt[2];

        a.rows = kt_rows(t, 1, 1);
        a.x = kt_put(t, x, sizeof(x));
        a.w = kt_weight_of(t, KERN_F32, 6, 6, w_plane);
        a.bias = kt_weight_of(t, KERN_F32, 1, 6, bias_plane);
        a.sel = kt_put(t, NULL, sizeof(sel));
        a.wt = kt_put(t, NULL, sizeof(wt));
        a.groups.off = kt_put(t, NULL, sizeof(off));
        a.groups.pair = kt_put(t, NULL, sizeof(pair));
        kt_ok(t, kern_router(t->k, &a));
        kt_get(t, sel, a.sel, sizeof(sel));
        kt_get(t, wt, a.wt, sizeof(wt));
        kt_get(t, off, a.groups.off, sizeof(off));
        kt_get(t, pair, a.groups.pair, sizeof(pair));
        assert_int_equal(sel[0], 1);
        assert_int_equal(sel[1], 2);
        assert_true(near(wt[0], 0.905119568, 2e-6));
        assert_true(near(wt[1], 2.09488043, 2e-6));
        for (int e = 0; e <= 6; e++) {
            assert_int_equal(off[e], (e > 1) + (e > 2));
        }
        assert_int_equal(pair[0], 0);
        assert_int_equal(pair[1], 1);
        kt_close(t);
    }
}

/* Rotary over 4 of 8 channels at position 3, the rest of the head zero; the
 * norm is made an identity by its weight: rms(x) - 1. */
static void test_partial_rope(void **state)
{
    static const float in[] = {.3f, -.7f, 1.1f, .2f, .9f, -.4f, .6f, -1.3f};
    static const double want[] = {
        -.452229758, -.700169958, -1.04665574, .199404186, .9, -.4, .6, -1.3};
    /* theta 5e6, R 4, llama3(2, 1, 32, 131072): 1, and 5e6^-1/2 whose wave of
     * 14050 lies between 4096 and 131072 */
    float freq[2] = {1, 0}, x[256] = {0}, w[128], v[128] = {0};
    double sum = 0, f = 1 / sqrt(5e6), s;
    const void *plane[] = {w};
    int32_t slot = 3, seq = 0, page = 0, zero = 0;

    (void)state;
    s = (131072 / (2 * 3.14159265358979324 / f) - 1) / 31;
    freq[1] = (float)((1 - s) * f / 2 + s * f);
    for (int i = 0; i < 8; i++) {
        x[i] = in[i];
        sum += (double)in[i] * (double)in[i];
    }
    for (int i = 0; i < 128; i++) {
        w[i] = (float)(sqrt(sum / 128 + 1e-5) - 1);
    }
    for (int i = 0; i <= kt_n_backends(); i++) {
        struct kt *t = open_nth(i);
        struct kern_qkv_args a = {.n_head = 1, .eps = 1e-5f, .n_freq = 2};
        uint16_t q[128], kv[128];

        a.rows = kt_rows(t, 1, 1);
        a.at.slot = kt_put(t, &slot, 4);
        a.at.seq = kt_put(t, &seq, 4);
        a.at.table = kt_put(t, &page, 4);
        a.at.first_page = kt_put(t, &zero, 4);
        a.at.low = kt_put(t, &zero, 4);
        a.at.n_seq = a.at.max_pages = 1;
        a.kv.dtype = KERN_BF16;
        a.kv.n_pages = a.kv.n_kv_head = 1;
        a.kv.bytes_per_token = 512;
        a.kv.page_bytes = 512 * 64;
        a.kv.pages = kt_put(t, NULL, a.kv.page_bytes);
        a.freq = kt_put(t, freq, sizeof(freq));
        a.q_norm = a.k_norm = kt_weight_of(t, KERN_F32, 1, 128, plane);
        a.q = a.k = kt_put(t, x, 512);
        a.v = kt_put(t, v, sizeof(v));
        a.q_out = kt_put(t, NULL, sizeof(q));
        kt_ok(t, kern_qkv(t->k, &a));
        kt_get(t, q, a.q_out, sizeof(q));
        a.kv.pages.off = 3 * 256;
        kt_get(t, kv, a.kv.pages, sizeof(kv));
        assert_memory_equal(q, kv, sizeof(q));
        for (int j = 0; j < 128; j++) {
            assert_true(
                near(quant_bf16_to_f32(q[j]), j < 8 ? want[j] : 0, 4e-3));
        }
        kt_close(t);
    }
}

static void test_norm_is_zero_centred_and_adds_first(void **state)
{
    static const float x[] = {1, -2, 3, 0}, delta[] = {1, 1, -1, 0};
    static const float w[] = {0, 0.5f, -1, 3};
    const void *plane[] = {w};
    double rms = sqrt((4 + 1 + 4) / 4.0 + 1e-5);

    (void)state;
    for (int i = 0; i <= kt_n_backends(); i++) {
        struct kt *t = open_nth(i);
        struct kern_norm_args a = {.width = 4, .eps = 1e-5f, .out_stride = 4};
        float sum[4], y[4];

        a.rows = kt_rows(t, 1, 1);
        a.x = kt_put(t, x, sizeof(x));
        a.delta = kt_put(t, delta, sizeof(delta));
        a.w = kt_weight_of(t, KERN_F32, 1, 4, plane);
        a.out_f32 = kt_put(t, NULL, sizeof(y));
        kt_ok(t, kern_norm(t->k, &a));
        kt_get(t, sum, a.x, sizeof(sum));
        kt_get(t, y, a.out_f32, sizeof(y));
        for (int j = 0; j < 4; j++) {
            assert_true(sum[j] == x[j] + delta[j]);
            assert_true(
                near(y[j], (double)sum[j] / rms * (1 + (double)w[j]), 1e-6));
        }
        kt_close(t);
    }
}

static void test_bf16_rows_times_bf16_weights(void **state)
{
    static const float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, -1, 0.5f, 2, 0, -3};
    uint16_t xb[6], wb[6];
    const void *plane[] = {wb};

    (void)state;
    bf16_of(x, 6, xb);
    bf16_of(w, 6, wb);
    for (int i = 0; i <= kt_n_backends(); i++) {
        struct kt *t = open_nth(i);
        struct kern_linear_args a = {.cols = 3, .x_stride = 3, .n_parts = 1};
        float out[4] = {10, 20, 30, 40};

        a.rows = kt_rows(t, 2, 2);
        a.x = kt_put(t, xb, sizeof(xb));
        a.part[0].w = kt_weight_of(t, KERN_BF16, 2, 3, plane);
        a.part[0].out = kt_put(t, out, sizeof(out));
        a.part[0].out_stride = 2;
        a.add = true;
        kt_ok(t, kern_linear(t->k, &a));
        kt_get(t, out, a.part[0].out, sizeof(out));
        assert_true(out[0] == 10 + 0.5f && out[1] == 20 - 7);
        assert_true(out[2] == 30 + 2 && out[3] == 40 - 10);
        kt_close(t);
    }
}

/* ---- the front ---- */

static void test_the_front_refuses_what_does_not_fit(void **state)
{
    struct kt *t = kt_open(&kt_ref);
    struct kern_linear_args good = {.cols = 8, .x_stride = 8, .n_parts = 1}, a;
    struct kern_buf *buf;
    struct kern_weight *w;

    (void)state;
    good.rows = kt_rows(t, 3, 3);
    good.x = kt_put(t, NULL, 3 * 8 * 2);
    good.part[0].w = kt_weight(t, KERN_BF16, 0, 5, 8, 1);
    good.part[0].out = kt_put(t, NULL, 3 * 5 * 4);
    good.part[0].out_stride = 5;
    kt_ok(t, kern_linear(t->k, &good));
#define REFUSED(change)                                   \
    do {                                                  \
        a = good;                                         \
        change;                                           \
        assert_int_equal(kern_linear(t->k, &a), -EINVAL); \
        assert_true(kern_error(t->k)[0] != '\0');         \
    } while (0)
    REFUSED(a.cols = 9);
    REFUSED(a.x_stride = 7);
    REFUSED(a.x.off = 2);
    REFUSED(a.x.off = 1);
    REFUSED(a.x.buf = NULL);
    REFUSED(a.rows.max = 4);
    REFUSED(a.rows.max = 0);
    REFUSED(a.n_parts = 0);
    REFUSED(a.n_parts = KERN_MAX_PARTS + 1);
    REFUSED(a.part[0].out_stride = 4);
    REFUSED(a.part[0].w = NULL);
    REFUSED(a.part[0].out.off = SIZE_MAX - 3);
    kt_ok(t, kern_linear(t->k, &good)); /* which clears the text */
    assert_string_equal(kern_error(t->k), "");
    assert_int_equal(kern_buf_new(t->k, 0, &buf), -EINVAL);
    {
        struct kern_weight_desc d = {KERN_MXFP4, 4, 48, 0, KERN_SHARD_NONE, 0};

        assert_int_equal(kern_weight_new(t->k, &d, &w), -EINVAL);
        d.cols = 64;
        kt_ok(t, kern_weight_new(t->k, &d, &w));
        assert_int_equal(kern_weight_fill(t->k, w, 1, 0, 0, &d, 1), -EINVAL);
        assert_int_equal(kern_weight_fill(t->k, w, 0, 2, 0, &d, 1), -EINVAL);
        assert_int_equal(kern_weight_fill(t->k, w, 0, 1, 8, &d, 1), -EINVAL);
        assert_int_equal(kern_weight_map(t->k, w, 0, 1, &d, 7), -EINVAL);
        kern_weight_free(t->k, w);
    }
    assert_null(kern_find("no such backend"));
    assert_ptr_equal(kern_find("ref"), &kern_ref_ops);
    kt_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swiglu_clamps_after_silu),
        cmocka_unit_test(test_router_bias_only_selects),
        cmocka_unit_test(test_partial_rope),
        cmocka_unit_test(test_norm_is_zero_centred_and_adds_first),
        cmocka_unit_test(test_bf16_rows_times_bf16_weights),
        cmocka_unit_test(test_the_front_refuses_what_does_not_fit),
    };

    return test_main(tests, NULL, NULL);
}
