/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * How often the CUDA kernels read each byte of a weight, by the loads that they
 * make and not by what they report (stats.weight_bytes, which is held against
 * it): decode once, and of experts that no row chose nothing; prefill once for
 * every 32 rows, for each warp along the rows reads the weights for itself
 * (tile.cuh). Shapes are whole tiles, so that no byte is padding. Runs over the
 * race build of the emulator (tests/cuemu/test_ops.sh), else skips.
 */

#include <dlfcn.h>

#include "kernels/cuda/gpu.h"
#include "tests/cuemu/cuemu_reads.h"
#include "tests/kernels/kt.h"

enum {
    TILE_WARP_ROWS = 32, /* rows of a warp in prefill */
    QUAD = 4,            /* lanes that share a row of weights, and its scales */
    MAX_ROWS = 65,
    COLS = 9 * GPU_GROUP, /* slices of two groups, the last one of one */
    OUTS = 3 * GPU_TILE,
    EXPERTS = 12,
    TOP_K = 4,
    WIDTH = 3 * GPU_GROUP,
    SHARED = 2 * GPU_GROUP
};

static const int n_rows[] = {1, 5, 9, 17, 33, MAX_ROWS};
#define N_ROWS (sizeof(n_rows) / sizeof(n_rows[0]))

static cuemu_reads_fn *take;

static struct kt *open_one(void)
{
    struct cuemu_reads r;
    struct kern_ptr p;
    struct kt *t;
    char so[4096];
    void *lib;

    if (kt_n_backends() == 0 ||
        strcmp(kt_backend(0)->name, "cuda-emulated") != 0) {
        test_skip(NULL, "KT_BACKEND is not the CUDA emulator");
    }
    t = kt_open(kt_backend(0));
    snprintf(so, sizeof(so), "%s/stepd-cuda-emulated.so",
             getenv("STEPD_PLUGIN_DIR"));
    lib = dlopen(so, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    take = (cuemu_reads_fn *)dlsym(lib, "cuemu_reads_take");
    assert_non_null(take);
    p = kt_put(t, NULL, 16);
    if (!take(gpu_at(p), 16, &r)) {
        kt_close(t);
        test_skip(NULL, "this build of the emulator sees no accesses");
    }
    return t;
}

/* A weight of whose loading, which may read what lies there, nothing is
 * counted.
 */
static struct kern_weight *weight(struct kt *t, enum kern_dtype dtype,
                                  int experts, int rows, int cols,
                                  uint64_t seed)
{
    struct kern_weight *w = kt_weight(t, dtype, experts, rows, cols, seed);
    struct cuemu_reads r;

    kt_ok(t, kern_begin(t->k, 0)); /* it is loaded when a step begins */
    kt_ok(t, kern_end(t->k));
    assert_true(
        take(gpu_mat_of(w)->q, ((struct gpu_weight *)w)->mem_bytes, &r));
    return w;
}

/* Each of the n bytes was read just that often; gives their sum. */
static uint64_t each(const void *p, size_t n, unsigned times)
{
    struct cuemu_reads r;

    assert_true(take(p, n, &r));
    assert_int_equal(r.least, times);
    assert_int_equal(r.most, times);
    return r.bytes;
}

/* Of expert e: the values, and the scales of a block, which a quad's lanes read
 * together. Bytes as the checkpoint counts them, of one reading. */
static uint64_t expert(const struct kern_weight *w, int e, unsigned times)
{
    const struct gpu_mat *m = gpu_mat_of(w);
    uint64_t bytes = each(m->q + (size_t)e * m->q_step, m->q_step, times);

    assert_int_equal(m->q_step, kern_weight_plane_bytes(&w->desc, 0));
    if (m->format == GPU_MXFP4 || m->format == GPU_NVFP4) {
        assert_int_equal(m->s_step, kern_weight_plane_bytes(&w->desc, 1));
        bytes +=
            each(m->s + (size_t)e * m->s_step, m->s_step, QUAD * times) / QUAD;
    }
    return bytes;
}

/* What is not read by the group: F32 factors and, of packed rows, their words.
 */
static uint64_t beside(const struct kern_weight *w)
{
    const struct gpu_mat *m = gpu_mat_of(w);

    switch (m->format) {
    case GPU_NVFP4:
    case GPU_FP8:
        return kern_weight_plane_bytes(&w->desc,
                                       kern_weight_n_planes(w->desc.dtype) - 1);
    case GPU_COMPACT:
        return (uint64_t)m->rows * sizeof(uint32_t);
    default:
        return 0;
    }
}

static unsigned times_of(int n, int max)
{
    return max <= 16 ? 1u : (unsigned)gpu_ceil(n, TILE_WARP_ROWS);
}

static uint64_t reported(struct kt *t)
{
    uint64_t n;

    kt_ok(t, kern_end(t->k));
    n = t->k->stats.weight_bytes;
    kern_stats_reset(t->k);
    return n;
}

static struct kern_ptr bf16_rows(struct kt *t, int n, int cols)
{
    size_t all = (size_t)n * (size_t)cols;
    uint16_t *x = malloc(all * sizeof(*x));
    struct kern_ptr at;

    assert_non_null(x);
    kt_fill_bf16(x, all, 7);
    at = kt_put(t, x, all * sizeof(*x));
    free(x);
    return at;
}

/* ---- linear, mlp_up ---- */

/* Two parts in one launch; then gate and up. */
static void dense(enum kern_dtype dtype, int n, int max)
{
    struct kt *t = open_one();
    struct kern_linear_args a = {.cols = COLS, .x_stride = COLS, .n_parts = 2};
    struct kern_mlp_up_args m = {.cols = COLS, .limit = 7};
    struct kern_weight *w[2] = {weight(t, dtype, 0, OUTS, COLS, 1),
                                weight(t, dtype, 0, OUTS, COLS, 2)};
    size_t out = (size_t)max * OUTS * sizeof(float);
    unsigned times = times_of(n, max);

    a.rows = m.rows = kt_rows(t, n, max);
    a.x = m.x = bf16_rows(t, max, COLS);
    for (int i = 0; i < 2; i++) {
        a.part[i].w = w[i];
        a.part[i].out = kt_put(t, NULL, out);
        a.part[i].out_stride = OUTS;
    }
    m.gate = w[0];
    m.up = w[1];
    m.gate_out = a.part[0].out;
    m.up_out = a.part[1].out;
    m.out = kt_put(t, NULL, (size_t)max * OUTS * 2);
    kern_stats_reset(t->k);
    for (int op = 0; op < 2; op++) {
        uint64_t bytes = 0, said;

        kt_ok(t, kern_begin(t->k, 0));
        kt_ok(t, op == 0 ? kern_linear(t->k, &a) : kern_mlp_up(t->k, &m));
        said = reported(t);
        for (int i = 0; i < 2; i++) {
            bytes += expert(w[i], 0, times) + beside(w[i]);
        }
        if (times == 1) {
            assert_int_equal(said, bytes);
        }
    }
    kt_close(t);
}

static void test_each_byte_of_dense_weights_is_read_once(void **state)
{
    static const enum kern_dtype dtypes[] = {
        KERN_BF16, KERN_COMPACT, KERN_MXFP4, KERN_NVFP4, KERN_FP8_B128};

    (void)state;
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        for (size_t i = 0; i < N_ROWS; i++) {
            dense(dtypes[d], n_rows[i], n_rows[i]);
        }
        dense(dtypes[d], 5, 16); /* fewer than there is room for */
        dense(dtypes[d], 5, 40);
    }
}

/* ---- experts ---- */

/* Row r chooses every third expert from r % 3 on; expert e has hit[e] rows. */
static struct kern_groups put_groups(struct kt *t, int n, int *hit)
{
    int32_t off[EXPERTS + 1], pair[MAX_ROWS * TOP_K];
    struct kern_groups g;
    int at = 0;

    for (int e = 0; e < EXPERTS; e++) {
        off[e] = at;
        for (int r = e % 3; r < n; r += 3) {
            pair[at++] = r * TOP_K + e / 3;
        }
        hit[e] = at - off[e];
    }
    off[EXPERTS] = at;
    g.off = kt_put(t, off, sizeof(off));
    g.pair = kt_put(t, pair, sizeof(pair));
    return g;
}

/* Gives the bytes of one reading of all that were hit. */
static uint64_t experts(const struct kern_weight *w, const int *hit, int n)
{
    uint64_t bytes = 0;

    for (int e = 0; e < EXPERTS; e++) {
        unsigned times = hit[e] > 0 ? times_of(hit[e], n) : 0;

        bytes += expert(w, e, times) + (times > 0 ? beside(w) : 0);
    }
    return bytes;
}

static void routed(enum kern_dtype dtype, enum kern_dtype of_shared, int n)
{
    struct kt *t = open_one();
    struct kern_rows rows = kt_rows(t, n, n);
    struct kern_mlp_up_args mlp = {.rows = rows, .cols = COLS, .limit = 7};
    struct kern_linear_args lin = {.rows = rows,
                                   .cols = SHARED,
                                   .n_parts = 1,
                                   .x_stride = SHARED,
                                   .add = true};
    struct kern_expert_up_args up = {
        .rows = rows, .top_k = TOP_K, .limit = 7, .shared = &mlp};
    struct kern_expert_down_args down = {
        .rows = rows, .top_k = TOP_K, .shared = &lin};
    float wt[MAX_ROWS * TOP_K];
    uint64_t said, bytes;
    int hit[EXPERTS];

    kt_fill_f32(wt, MAX_ROWS * TOP_K, 3);
    up.x = mlp.x = bf16_rows(t, n, COLS);
    up.gate = weight(t, dtype, EXPERTS, WIDTH, COLS, 1);
    up.up = weight(t, dtype, EXPERTS, WIDTH, COLS, 2);
    up.groups = down.groups = put_groups(t, n, hit);
    up.h = down.h = kt_put(t, NULL, (size_t)n * TOP_K * WIDTH * 2);
    mlp.gate = weight(t, of_shared, 0, SHARED, COLS, 4);
    mlp.up = weight(t, of_shared, 0, SHARED, COLS, 5);
    mlp.gate_out = kt_put(t, NULL, (size_t)n * SHARED * 4);
    mlp.up_out = kt_put(t, NULL, (size_t)n * SHARED * 4);
    mlp.out = lin.x = kt_put(t, NULL, (size_t)n * SHARED * 2);
    down.down = weight(t, dtype, EXPERTS, OUTS, WIDTH, 3);
    down.wt = kt_put(t, wt, sizeof(wt));
    down.out = lin.part[0].out = kt_put(t, NULL, (size_t)n * OUTS * 4);
    lin.part[0].w = weight(t, of_shared, 0, OUTS, SHARED, 6);
    lin.part[0].out_stride = OUTS;
    kern_stats_reset(t->k);
    kt_ok(t, kern_begin(t->k, 0));
    kt_ok(t, kern_expert_up(t->k, &up));
    said = reported(t);
    bytes = experts(up.gate, hit, n) + experts(up.up, hit, n) +
            expert(mlp.gate, 0, times_of(n, n)) + beside(mlp.gate) +
            expert(mlp.up, 0, times_of(n, n)) + beside(mlp.up);
    if (n <= TILE_WARP_ROWS) {
        assert_int_equal(said, bytes);
    }
    kt_ok(t, kern_begin(t->k, 0));
    kt_ok(t, kern_expert_down(t->k, &down));
    said = reported(t);
    bytes = experts(down.down, hit, n) +
            expert(lin.part[0].w, 0, times_of(n, n)) + beside(lin.part[0].w);
    if (n <= TILE_WARP_ROWS) {
        assert_int_equal(said, bytes);
    }
    kt_close(t);
}

static void test_each_byte_of_experts_is_read_once(void **state)
{
    static const int few[] = {1, 5, 16, 33, MAX_ROWS};

    (void)state;
    for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
        routed(KERN_MXFP4, KERN_BF16, few[i]);
    }
    routed(KERN_MXFP4, KERN_COMPACT, 1); /* packed: calls of their own */
    routed(KERN_MXFP4, KERN_COMPACT, 5);
    routed(KERN_BF16, KERN_BF16, 5);
    routed(KERN_NVFP4, KERN_BF16, 5);
    routed(KERN_FP8_B128, KERN_BF16, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_byte_of_dense_weights_is_read_once),
        cmocka_unit_test(test_each_byte_of_experts_is_read_once),
    };

    return test_main(tests, NULL, NULL);
}
