/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_TILE_FOLD_H
#define STEPD_KERNELS_CPU_TILE_FOLD_H

/*
 * From the accumulators of a register tile to the results of its job. Included
 * by tile.c only. A sum is the same whatever tile it was in: vf_sum's tree, or
 * for rows that BF16 cannot hold exactly extreme_dot's.
 */

#include "kernels/cpu/decode.h"
#include "kernels/cpu/tile.h"

#define TILE_ACC 24 /* most accumulators of a tile */

/* ---- rows of packed weights that BF16 cannot hold exactly ---- */

INLINE bool row_is_extreme(const struct tile_job *j, int n)
{
    const struct cpu_weight *w = cpu_w(j->w);
    const uint64_t *bits = w->extreme + (size_t)j->expert * w->extreme_words;

    return bits[n / 64] >> (n % 64) & 1u;
}

/* Weight row n times x: the same lanes, chunks and tree as dot(), each product
 * exact in a double. A zero weight adds nothing under any scale. */
static float extreme_dot(const struct tile_job *j, int n, const xt *x)
{
    size_t cols = (size_t)j->w->desc.cols;
    const uint8_t *q = cpu_plane(j->w, j->expert, 0) + (size_t)n * cols / 2;
    const uint8_t *s = cpu_plane(j->w, j->expert, 1) + (size_t)n * cols / 32;
    float acc[VF_N] = {0};

    for (int i = 0; i < (int)cols; i++) {
        unsigned code = q[i / 2] >> (i % 2 * 4) & 15u;
        double w = (double)quant_e2m1(code) * (double)quant_e8m0(s[i / 32]);
        float *a = &acc[i % DOT_K / 2];

        if (w != 0) {
            *a = (float)((double)*a + w * (double)xt_get(x, i));
        }
    }
    return vf_sum(vf_load(acc));
}

/* ---- from accumulators to results ---- */

/* A tile's place in its job: weight rows n, n + gap, .. of which m_live count,
 * activation rows from r on. */
struct place {
    int n, gap, m_live, r;
};

/* One activation row's sums of a whole tile; M is a constant. */
INLINE void fold_row(float *y, const float *sum, int M, bool add)
{
    float v[4];

    memcpy(v, sum, sizeof(*v) * (size_t)M);
#pragma GCC unroll 4
    for (int m = 0; m < M && add; m++) {
        v[m] = y[m] + v[m];
    }
    memcpy(y, v, sizeof(*v) * (size_t)M);
}

INLINE void fold_rows(const struct tile_job *j, float *y, const float *sum,
                      int M, int N)
{
    for (int i = 0; i < N; i++, y += j->y_stride, sum += M) {
        if (j->add) {
            fold_row(y, sum, M, true);
        } else {
            fold_row(y, sum, M, false);
        }
    }
}

/* Folds a tile of M weight rows and N activation rows into y. */
static void tile_fold(const struct tile_job *j, const float *acc, int M, int N,
                      struct place at)
{
    float sum[TILE_ACC + 3], factor = nv_factor(j->w, j->expert);
    float *y = j->y + (size_t)at.r * j->y_stride + at.n;
    bool extreme = cpu_w(j->w)->extreme != NULL;
    int n_acc = M * N, i = 0;

    for (; i + 4 <= n_acc; i += 4) {
        const float *a = acc + i * VF_N;

        vf_sum4(vf_load(a), vf_load(a + VF_N), vf_load(a + 2 * VF_N),
                vf_load(a + 3 * VF_N), sum + i);
    }
    if (i < n_acc) {
        const float *a = acc + i * VF_N, *last = acc + (n_acc - 1) * VF_N;
        const float *b = n_acc - i > 2 ? a + VF_N : last;

        vf_sum4(vf_load(a), vf_load(b), vf_load(last), vf_load(last), sum + i);
    }
    for (int m = 0; m < at.m_live && extreme; m++) {
        int n = j->n0 + at.n + m * at.gap;

        for (i = 0; i < N && row_is_extreme(j, n); i++) {
            sum[i * M + m] = extreme_dot(j, n, j->x[at.r + i]);
        }
    }
    if (at.gap == 1 && at.m_live == M && factor == 1.0f && M >= 3) {
        if (M == 4) {
            fold_rows(j, y, sum, 4, N);
        } else {
            fold_rows(j, y, sum, 3, N);
        }
        return;
    }
    for (i = 0; i < N; i++, y += j->y_stride) {
        for (int m = 0; m < at.m_live; m++) {
            float v = sum[i * M + m] * factor;

            y[m * at.gap] = j->add ? y[m * at.gap] + v : v;
        }
    }
}

#endif
