/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_router, in F32 throughout: the scores of all rows (an item is ITEM_E
 * experts, whose weights are read once for all rows), then the choice row by
 * row, then the grouping by expert, which is serial and short. Once per path.
 */
#include <math.h>

#include "kernels/cpu/ops.h"

#define ITEM_E 16
#define ROUTER_M 4 /* experts of a register tile */
#define ROUTER_N 4 /* rows of one */

struct router {
    struct cpu *c;
    const struct kern_router_args *a;
    int n;    /* live rows */
    float *p; /* [n][E] scores, in shared memory */
};

INLINE vf load_w(const uint8_t *w, int k, int left, bool bf16)
{
    if (bf16) {
        w += (size_t)k * 2;
        return left < VF_N ? vf_load_bf16_n(w, left) : vf_load_bf16(w);
    }
    w += (size_t)k * 4;
    return vf_load_n((const float *)w, imin(left, VF_N));
}

/* Scores of M experts for N rows; both constants. */
INLINE void score_tile(const uint8_t *const *w, const float *x, int cols,
                       bool bf16, int N, float *sum)
{
    vf acc[ROUTER_M * ROUTER_N];

#pragma GCC unroll 16
    for (int i = 0; i < ROUTER_M * N; i++) {
        acc[i] = vf_set(0.0f);
    }
    for (int k = 0; k < cols; k += VF_N) {
        int left = cols - k;

#pragma GCC unroll 4
        for (int m = 0; m < ROUTER_M; m++) {
            vf v = load_w(w[m], k, left, bf16);

#pragma GCC unroll 4
            for (int n = 0; n < N; n++) {
                const float *at = x + (size_t)n * (size_t)cols + k;

                acc[n * ROUTER_M + m] =
                    vf_fma(v, left < VF_N ? vf_load_n(at, left) : vf_load(at),
                           acc[n * ROUTER_M + m]);
            }
        }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
        vf *a = acc + n * ROUTER_M;

        vf_sum4(a[0], a[1], a[2], a[3], sum + n * ROUTER_M);
    }
}

static void score(const uint8_t *const *w, const float *x, int cols, bool bf16,
                  int n, float *sum)
{
    switch (n) {
    case 1:
        score_tile(w, x, cols, bf16, 1, sum);
        break;
    case 2:
        score_tile(w, x, cols, bf16, 2, sum);
        break;
    case 3:
        score_tile(w, x, cols, bf16, 3, sum);
        break;
    default:
        score_tile(w, x, cols, bf16, 4, sum);
        break;
    }
}

static void score_item(void *arg, int i_item, int i_thread)
{
    const struct router *j = arg;
    const struct kern_weight *w = j->a->w;
    bool bf16 = w->desc.dtype == KERN_BF16;
    int cols = w->desc.cols, n_expert = j->a->n_expert;
    size_t row_bytes = (size_t)cols * (bf16 ? 2 : 4);
    const float *x = cpu_at(j->a->x);
    int e1 = imin(n_expert, (i_item + 1) * ITEM_E);

    for (int e = i_item * ITEM_E; e < e1; e += ROUTER_M) {
        const uint8_t *row[ROUTER_M];
        int m_live = imin(ROUTER_M, e1 - e);

        for (int m = 0; m < ROUTER_M; m++) {
            row[m] = cpu_plane(w, 0, 0) +
                     (size_t)(e + imin(m, m_live - 1)) * row_bytes;
        }
        for (int r = 0; r < j->n; r += ROUTER_N) {
            float sum[ROUTER_M * ROUTER_N];
            int rows = imin(ROUTER_N, j->n - r);

            score(row, x + (size_t)r * (size_t)cols, cols, bf16, rows, sum);
            for (int i = 0; i < rows * m_live; i++) {
                int n = i / m_live, m = i % m_live;

                j->p[(size_t)(r + n) * (size_t)n_expert + e + m] =
                    sum[n * ROUTER_M + m];
            }
        }
        j->c->thread[i_thread].weight_bytes += (size_t)m_live * row_bytes;
    }
}

static float bias_of(const struct kern_weight *bias, int e)
{
    uint16_t b;
    float f;

    if (bias == NULL) {
        return 0.0f;
    }
    if (bias->desc.dtype == KERN_BF16) {
        memcpy(&b, cpu_plane(bias, 0, 0) + (size_t)e * 2, sizeof(b));
        return quant_bf16_to_f32(b);
    }
    memcpy(&f, cpu_plane(bias, 0, 0) + (size_t)e * 4, sizeof(f));
    return f;
}

/* The largest keys come first; a NaN is smaller than anything, and equal keys
 * keep the order in which they came. */
static bool goes_before(float a, float b)
{
    return !isnan(a) && (isnan(b) || a > b);
}

static int choose(const struct router *j, const float *p, int32_t *sel)
{
    float key[KERN_MAX_TOPK];
    int top = j->a->top_k, n = 0;

    for (int e = 0; e < j->a->n_expert; e++) {
        float v = p[e] + bias_of(j->a->bias, e);
        int at;

        if (n == top && !goes_before(v, key[n - 1])) {
            continue;
        }
        n = imin(n + 1, top);
        for (at = n - 1; at > 0 && goes_before(v, key[at - 1]); at--) {
            key[at] = key[at - 1];
            sel[at] = sel[at - 1];
        }
        key[at] = v;
        sel[at] = e;
    }
    return n;
}

static void choose_item(void *arg, int i_item, int i_thread)
{
    const struct router *j = arg;
    int n_expert = j->a->n_expert, top = j->a->top_k;
    float *p = j->p + (size_t)i_item * (size_t)n_expert;
    int32_t *sel = (int32_t *)cpu_at(j->a->sel) + (size_t)i_item * top;
    float *wt = (float *)cpu_at(j->a->wt) + (size_t)i_item * top;
    float sum = 0.0f;

    (void)i_thread;
    for (int e = 0; e < n_expert; e += VF_N) {
        int left = imin(VF_N, n_expert - e);

        vf_store_n(p + e, vf_sigmoid(vf_load_n(p + e, left)), left);
    }
    choose(j, p, sel);
    for (int i = 1; i < top; i++) { /* ascending ids */
        int32_t id = sel[i];
        int at = i;

        for (; at > 0 && sel[at - 1] > id; at--) {
            sel[at] = sel[at - 1];
        }
        sel[at] = id;
    }
    for (int i = 0; i < top; i++) {
        sum += p[sel[i]];
    }
    for (int i = 0; i < top; i++) {
        float w = p[sel[i]];

        wt[i] = (j->a->renorm ? w / (sum + 1e-20f) : w) * j->a->scale;
    }
}

/* A counting sort; off serves as the cursors and is shifted back. */
static void group(const struct kern_router_args *a, int n)
{
    const int32_t *sel = cpu_at(a->sel);
    int32_t *off = cpu_at(a->groups.off), *pair = cpu_at(a->groups.pair);
    int n_pairs = n * a->top_k;

    memset(off, 0, sizeof(*off) * ((size_t)a->n_expert + 1));
    for (int i = 0; i < n_pairs; i++) {
        off[sel[i] + 1]++;
    }
    for (int e = 0; e < a->n_expert; e++) {
        off[e + 1] += off[e];
    }
    for (int i = 0; i < n_pairs; i++) {
        pair[off[sel[i]]++] = i;
    }
    for (int e = a->n_expert; e > 0; e--) {
        off[e] = off[e - 1];
    }
    off[0] = 0;
}

int ISA(cpu_router)(struct cpu *c, const struct kern_router_args *a)
{
    struct router j = {.c = c, .a = a, .n = cpu_rows(&a->rows)};
    int r = cpu_shared(c, sizeof(float) * (size_t)j.n * (size_t)a->n_expert);

    if (r < 0) {
        return r;
    }
    j.p = (float *)c->shared;
    if (j.n > 0) {
        pool_run(c->pool, score_item, &j, ceil_div(a->n_expert, ITEM_E));
        pool_run(c->pool, choose_item, &j, j.n);
    }
    group(a, j.n);
    return 0;
}
