/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * expert_up and expert_down, cpu against ref. Pass rules: h is BF16, so 4e-3 of
 * its norm and one rounding step (8e-3) of the largest; out 2e-6 and 4e-6.
 */
#include "kernels/quant.h"
#include "tests/kernels/kx.h"

struct shape {
    enum kern_dtype dtype;
    int experts, top_k, hidden, width;
    float limit;
};

/* What a call works on, chosen on the host: which experts each row takes. */
struct input {
    struct shape s;
    int n;        /* rows made */
    int32_t *sel; /* [n][top_k], ascending */
    float *wt;    /* [n][top_k] */
    uint16_t *x;  /* [n][hidden] */
    uint16_t *h;  /* [n][top_k][width] */
};

/* Few of many experts, so that some get no row and some get many. */
static struct input input_make(const struct shape *s, int n, uint64_t seed)
{
    struct input in = {.s = *s, .n = n};
    size_t pairs = (size_t)n * (size_t)s->top_k;

    in.sel = malloc(sizeof(*in.sel) * pairs);
    in.wt = malloc(sizeof(*in.wt) * pairs);
    in.x = malloc(sizeof(*in.x) * (size_t)n * (size_t)s->hidden);
    in.h = malloc(sizeof(*in.h) * pairs * (size_t)s->width);
    assert_non_null(in.sel);
    assert_non_null(in.wt);
    assert_non_null(in.x);
    assert_non_null(in.h);
    kt_fill_f32(in.wt, pairs, seed);
    kt_fill_bf16(in.x, (size_t)n * (size_t)s->hidden, seed + 1);
    kt_fill_bf16(in.h, pairs * (size_t)s->width, seed + 2);
    for (int r = 0; r < n; r++) {
        int32_t *sel = in.sel + r * s->top_k;

        for (int j = 0, e = -1; j < s->top_k; j++) {
            int left = s->experts - (s->top_k - j) - e;
            uint64_t draw = kt_random(&seed) % (uint64_t)left;

            /* the low ids are hit most */
            e += 1 + (int)(draw * (kt_random(&seed) % 4) / 4);
            sel[j] = e;
        }
    }
    return in;
}

static void input_finish(struct input *in)
{
    free(in->sel);
    free(in->wt);
    free(in->x);
    free(in->h);
}

/* The groups of the chosen rows, as router writes them. */
static struct kern_groups put_groups(struct kt *t, const struct input *in,
                                     const int *row, int n)
{
    int top = in->s.top_k, at = 0;
    int32_t *off = malloc(sizeof(*off) * (size_t)(in->s.experts + 1));
    int32_t *pair = malloc(sizeof(*pair) * (size_t)(n * top));
    struct kern_groups g;

    assert_non_null(off);
    assert_non_null(pair);
    for (int e = 0; e < in->s.experts; e++) {
        off[e] = at;
        for (int i = 0; i < n * top; i++) {
            if (in->sel[row[i / top] * top + i % top] == e) {
                pair[at++] = i;
            }
        }
    }
    off[in->s.experts] = at;
    g.off = kt_put(t, off, sizeof(*off) * (size_t)(in->s.experts + 1));
    g.pair = kt_put(t, pair, sizeof(*pair) * (size_t)(n * top));
    free(off);
    free(pair);
    return g;
}

static void run_up(struct kt *t, const void *input, const int *row, int n,
                   uint8_t *out)
{
    const struct input *in = input;
    const struct shape *s = &in->s;
    struct kern_expert_up_args a = {.top_k = s->top_k, .limit = s->limit};
    size_t bytes = sizeof(uint16_t) * (size_t)(n * s->top_k) * (size_t)s->width;

    a.rows = kt_rows(t, n, n);
    a.x = kx_put_rows(t, in->x, sizeof(*in->x) * (size_t)s->hidden, row, n);
    a.gate = kt_weight(t, s->dtype, s->experts, s->width, s->hidden, 51);
    a.up = kt_weight(t, s->dtype, s->experts, s->width, s->hidden, 52);
    a.groups = put_groups(t, in, row, n);
    a.h = kt_put(t, NULL, bytes);
    kt_ok(t, kern_expert_up(t->k, &a));
    kt_get(t, out, a.h, bytes);
}

static void run_down(struct kt *t, const void *input, const int *row, int n,
                     uint8_t *out)
{
    const struct input *in = input;
    const struct shape *s = &in->s;
    struct kern_expert_down_args a = {.top_k = s->top_k};
    size_t pair_bytes = sizeof(*in->h) * (size_t)s->width;
    size_t bytes = sizeof(float) * (size_t)n * (size_t)s->hidden;

    a.rows = kt_rows(t, n, n);
    a.h = kx_put_rows(t, in->h, pair_bytes * (size_t)s->top_k, row, n);
    a.down = kt_weight(t, s->dtype, s->experts, s->hidden, s->width, 53);
    a.groups = put_groups(t, in, row, n);
    a.wt = kx_put_rows(t, in->wt, sizeof(float) * (size_t)s->top_k, row, n);
    a.out = kt_put(t, NULL, bytes);
    kt_ok(t, kern_expert_down(t->k, &a));
    kt_get(t, out, a.out, bytes);
}

static void check_shape(const struct kt_backend *b, const struct shape *s,
                        int n)
{
    struct input in = input_make(s, n, 61 + (uint64_t)n);
    size_t n_h = (size_t)(n * s->top_k) * (size_t)s->width;
    size_t n_out = (size_t)n * (size_t)s->hidden;
    size_t most = n_h > n_out ? n_h : n_out;
    float *want = malloc(sizeof(*want) * most);
    float *got = malloc(sizeof(*got) * most);
    uint16_t *h = malloc(sizeof(*h) * n_h);
    int *row = malloc(sizeof(*row) * (size_t)n);
    struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

    for (int i = 0; i < n; i++) {
        row[i] = i;
    }
    for (int side = 0; side < 2; side++) {
        run_up(side == 0 ? ref : t, &in, row, n, (uint8_t *)h);
        for (size_t i = 0; i < n_h; i++) {
            (side == 0 ? want : got)[i] = quant_bf16_to_f32(h[i]);
        }
    }
    assert_tensor_near(t->name, got, want, n_h, 4e-3, 8e-3);
    run_down(ref, &in, row, n, (uint8_t *)want);
    run_down(t, &in, row, n, (uint8_t *)got);
    assert_tensor_near(t->name, got, want, n_out, 2e-6, 4e-6);
    if (!kt_is_gpu(b) || n <= KT_GPU_LINEAR_ROWS) {
        assert_int_equal(t->k->stats.weight_bytes, ref->k->stats.weight_bytes);
        assert_int_equal(t->k->stats.expert_loads, ref->k->stats.expert_loads);
    }
    kt_close(t);
    kt_close(ref);
    input_finish(&in);
    free(want);
    free(got);
    free(h);
    free(row);
}

static void ragged(const struct kt_backend *b)
{
    static const int n_rows[] = {1, 2, 3, 8, 9, 33, 70};
    static const struct shape shapes[] = {
        {KERN_MXFP4, 16, 4, 192, 96, 0},  {KERN_MXFP4, 8, 3, 96, 160, 7},
        {KERN_BF16, 8, 3, 97, 33, 0.5f},  {KERN_MXFP4, 40, 8, 32, 64, 0},
        {KERN_MXFP4, 3, 1, 1280, 32, 7},  {KERN_BF16, 2, 2, 40, 8, 0},
        {KERN_MXFP4, 20, 16, 64, 32, 16}, {KERN_FP8_B128, 6, 3, 96, 160, 7},
        {KERN_NVFP4, 6, 3, 96, 160, 7},   {KERN_NVFP4_DIV, 6, 3, 96, 160, 0},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (size_t j = 0; j < sizeof(n_rows) / sizeof(n_rows[0]); j++) {
            check_shape(b, &shapes[i], n_rows[j]);
        }
    }
    /* wide items and two cuts of k */
    check_shape(b, &(struct shape){KERN_MXFP4, 12, 4, 2080, 160, 7}, 40);
    /* more rows of an expert than are packed */
    check_shape(b, &(struct shape){KERN_MXFP4, 2, 1, 64, 32, 7}, 600);
}

static void test_ragged_shapes(void **state)
{
    (void)state;
    kx_each_path(ragged);
}

static void promises(const struct kt_backend *b)
{
    static const struct shape shapes[] = {
        {KERN_MXFP4, 12, 4, 192, 96, 7},
        {KERN_MXFP4, 12, 4, 2080, 160, 7},
        {KERN_BF16, 5, 2, 65, 40, 0},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape *s = &shapes[i];
        struct input in = input_make(s, KX_BATCH, 71);

        kx_promises(b, run_up, &in,
                    sizeof(uint16_t) * (size_t)s->top_k * (size_t)s->width);
        kx_promises(b, run_down, &in, sizeof(float) * (size_t)s->hidden);
        input_finish(&in);
    }
}

static void test_a_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

/* However many rows an expert has, its weights are read once an op; an expert
 * that no row takes is not read. */
static void bytes_read(const struct kt_backend *b)
{
    static const int n_rows[] = {1, 8, 200};
    const struct shape s = {KERN_MXFP4, 32, 4, 64, 96, 0};
    size_t one = 96 * (64 / 2 + 64 / 32);

    for (size_t i = 0; i < sizeof(n_rows) / sizeof(n_rows[0]); i++) {
        struct input in = input_make(&s, n_rows[i], 5);
        uint8_t *out = malloc((size_t)n_rows[i] * 4 * 96 * sizeof(float));
        unsigned hit[32] = {0}, n_hit = 0;
        int row[200];
        struct kt *t = kt_open(b);

        assert_non_null(out);
        for (int r = 0; r < n_rows[i]; r++) {
            row[r] = r;
        }
        for (int r = 0; r < n_rows[i] * s.top_k; r++) {
            unsigned *h = &hit[in.sel[r]];

            /* once; on a GPU once for each tile of its rows */
            n_hit += kt_is_gpu(b) ? *h % KT_GPU_LINEAR_ROWS == 0 : *h == 0;
            ++*h;
        }
        assert_in_range(n_hit, 1, kt_is_gpu(b) ? 63 : 31);
        run_up(t, &in, row, n_rows[i], out);
        assert_int_equal(t->k->stats.expert_loads, n_hit);
        assert_int_equal(t->k->stats.weight_bytes, n_hit * 2 * one);
        kern_stats_reset(t->k);
        run_down(t, &in, row, n_rows[i], out);
        assert_int_equal(t->k->stats.expert_loads, n_hit);
        assert_int_equal(t->k->stats.weight_bytes,
                         n_hit * 64 * (96 / 2 + 96 / 32));
        kt_close(t);
        free(out);
        input_finish(&in);
    }
}

static void test_hit_experts_are_read_once(void **state)
{
    (void)state;
    kx_each_path(bytes_read);
}

/* A NaN in one row's input stays in that row, clamp or not. */
static void nan_stays(const struct kt_backend *b)
{
    const struct shape s = {KERN_MXFP4, 6, 2, 64, 96, 7};
    struct input in = input_make(&s, 20, 91);
    uint16_t h[20 * 2 * 96], clean[20 * 2 * 96];
    int row[20];
    struct kt *t = kt_open(b);

    for (int r = 0; r < 20; r++) {
        row[r] = r;
    }
    run_up(t, &in, row, 20, (uint8_t *)clean);
    in.x[7 * 64 + 3] = 0x7fc0;
    run_up(t, &in, row, 20, (uint8_t *)h);
    for (int i = 0; i < 20 * 2 * 96; i++) {
        if (i / (2 * 96) == 7) {
            assert_true(isnan(quant_bf16_to_f32(h[i])));
        } else {
            assert_int_equal(h[i], clean[i]);
        }
    }
    kt_close(t);
    input_finish(&in);
}

static void test_a_nan_stays_in_its_row(void **state)
{
    (void)state;
    kx_each_path(nan_stays);
}

/* The shared expert in the same calls, or in calls of its own. */
struct both {
    uint16_t *h, *act;
    float *out;
    struct kern_stats stats;
};

static struct both run_both(const struct kt_backend *b, const struct input *in,
                            enum kern_dtype dtype, int width, bool one)
{
    const struct shape *s = &in->s;
    struct kt *t = kt_open(b);
    size_t n_h = (size_t)(in->n * s->top_k) * (size_t)s->width;
    size_t n_act = (size_t)(in->n * width), n_out = (size_t)(in->n * s->hidden);
    struct both r = {
        malloc(n_h * 2), malloc(n_act * 2), malloc(n_out * 4), {0}};
    struct kern_rows rows = kt_rows(t, in->n, in->n);
    struct kern_mlp_up_args mlp = {.rows = rows, .cols = s->hidden, .limit = 2};
    struct kern_linear_args lin = {.rows = rows,
                                   .cols = width,
                                   .n_parts = 1,
                                   .x_stride = width,
                                   .add = true};
    struct kern_expert_up_args up = {
        .rows = rows, .top_k = s->top_k, .limit = s->limit};
    struct kern_expert_down_args down = {.rows = rows, .top_k = s->top_k};
    int row[64];

    for (int i = 0; i < in->n; i++) {
        row[i] = i;
    }
    up.x = mlp.x = kt_put(t, in->x, sizeof(*in->x) * n_out);
    up.gate = kt_weight(t, s->dtype, s->experts, s->width, s->hidden, 51);
    up.up = kt_weight(t, s->dtype, s->experts, s->width, s->hidden, 52);
    up.groups = down.groups = put_groups(t, in, row, in->n);
    up.h = down.h = kt_put(t, NULL, n_h * 2);
    mlp.gate = kt_weight(t, dtype, 0, width, s->hidden, 54);
    mlp.up = kt_weight(t, dtype, 0, width, s->hidden, 55);
    mlp.gate_out = kt_put(t, NULL, n_act * 4);
    mlp.up_out = kt_put(t, NULL, n_act * 4);
    mlp.out = lin.x = kt_put(t, NULL, n_act * 2);
    down.down = kt_weight(t, s->dtype, s->experts, s->hidden, s->width, 53);
    down.wt = kt_put(t, in->wt, sizeof(float) * (size_t)(in->n * s->top_k));
    down.out = lin.part[0].out = kt_put(t, NULL, n_out * 4);
    lin.part[0].w = kt_weight(t, dtype, 0, s->hidden, width, 56);
    lin.part[0].out_stride = s->hidden;
    up.shared = one ? &mlp : NULL;
    down.shared = one ? &lin : NULL;
    kt_ok(t, kern_begin(t->k, 0));
    kt_ok(t, kern_expert_up(t->k, &up));
    kt_ok(t, one ? 0 : kern_mlp_up(t->k, &mlp));
    kt_ok(t, kern_expert_down(t->k, &down));
    kt_ok(t, one ? 0 : kern_linear(t->k, &lin));
    kt_ok(t, kern_end(t->k));
    kt_get(t, r.h, up.h, n_h * 2);
    kt_get(t, r.act, mlp.out, n_act * 2);
    kt_get(t, r.out, down.out, n_out * 4);
    r.stats = t->k->stats;
    kt_close(t);
    return r;
}

static void shared(const struct kt_backend *b)
{
    static const int n_rows[] = {1, 7, 8, 9, 16, 17};
    static const struct {
        struct shape s;
        enum kern_dtype dtype;
        int width;
    } cases[] = {
        {{KERN_MXFP4, 12, 4, 192, 96, 7}, KERN_BF16, 136},
        {{KERN_MXFP4, 3, 1, 1280, 32, 0}, KERN_BF16, 20},
        {{KERN_BF16, 5, 2, 97, 40, 0}, KERN_BF16, 33},
        {{KERN_MXFP4, 8, 3, 96, 64, 0}, KERN_MXFP4, 64},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t j = 0; j < sizeof(n_rows) / sizeof(n_rows[0]); j++) {
            const struct shape *s = &cases[i].s;
            int n = n_rows[j], w = cases[i].width;
            bool with = kt_is_gpu(b) && n <= 16 && cases[i].dtype == KERN_BF16;
            struct input in = input_make(s, n, 81);
            struct both a = run_both(b, &in, cases[i].dtype, w, false);
            struct both c = run_both(b, &in, cases[i].dtype, w, true);

            kx_same("h", (uint8_t *)c.h, (uint8_t *)a.h,
                    (size_t)(n * s->top_k * s->width) * 2);
            kx_same("act", (uint8_t *)c.act, (uint8_t *)a.act,
                    (size_t)(n * w) * 2);
            kx_same("out", (uint8_t *)c.out, (uint8_t *)a.out,
                    (size_t)(n * s->hidden) * 4);
            assert_int_equal(c.stats.weight_bytes, a.stats.weight_bytes);
            assert_int_equal(c.stats.expert_loads, a.stats.expert_loads);
            assert_int_equal(c.stats.launches + (with ? 2 : 0),
                             a.stats.launches);
            for (int k = 0; k < 2; k++) {
                free((k == 0 ? a : c).h);
                free((k == 0 ? a : c).act);
                free((k == 0 ? a : c).out);
            }
            input_finish(&in);
        }
    }
}

/* To the bit as in calls of its own; on a GPU two launches fewer. */
static void test_the_shared_expert_comes_along(void **state)
{
    (void)state;
    kx_each_path(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged_shapes),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
        cmocka_unit_test(test_hit_experts_are_read_once),
        cmocka_unit_test(test_a_nan_stays_in_its_row),
        cmocka_unit_test(test_the_shared_expert_comes_along),
    };

    return test_main(tests, NULL, NULL);
}
