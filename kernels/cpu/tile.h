/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_TILE_H
#define STEPD_KERNELS_CPU_TILE_H

/*
 * The product of weight rows and activation rows that linear and the experts
 * share: tile.c, once per path.
 *
 * y[r][n] = sum over k of w[n][k] x[r][k], for n_w weight rows and n_x
 * activation rows, each sum in the order that simd.h fixes: whatever the shape
 * of the tiles, whichever rows are neighbours, packed or not.
 */

#include "kernels/cpu/simd.h"

#define TILE_X 8            /* most activation rows of one register tile */
#define TILE_DECODED 393216 /* bytes of a panel of BF16 rows: most of L2 */
#define TILE_GEMM_X 16      /* more rows than this: blocked over k */

struct tile_job {
    const struct cpu *cpu;
    const struct kern_weight *w;
    int expert;
    int n0, n_w;        /* weight rows n0 .. n0 + n_w - 1 */
    const xt *const *x; /* [n_x] prepared rows (x_prepare) */
    int n_x;
    float *y; /* [n_x][y_stride]: column 0 is weight row n0 */
    size_t y_stride;
    bool add; /* y += */
    /* MXFP4: what the caller reads next, to be prefetched, or NULL. */
    const uint8_t *next, *next_s;
    uint8_t *scratch; /* tile_scratch() bytes */
};

/* Bytes of scratch that a job over rows of so many columns may use. */
#define tile_scratch ISA(tile_scratch)
size_t tile_scratch(int cols);
#define tile_run ISA(tile_run)
/* Returns the weight bytes it streamed. */
uint64_t tile_run(const struct tile_job *j);

/* Says that after the job the caller reads row n of expert e of w; e < 0: not
 * known. */
INLINE void tile_next(struct tile_job *j, const struct kern_weight *w, int e,
                      int n)
{
    size_t cols = (size_t)w->desc.cols;
    bool known = e >= 0 && w->desc.dtype == KERN_MXFP4;

    j->next = known ? cpu_plane(w, e, 0) + (size_t)n * cols / 2 : NULL;
    j->next_s = known ? cpu_plane(w, e, 1) + (size_t)n * cols / 32 : NULL;
}

/* Types that tile_run multiplies. */
INLINE bool tile_takes(enum kern_dtype t)
{
    return t != KERN_F32;
}

/* ---- activation rows in the form that dot() takes ---- */

/* Row pointers, for tile_job.x, of n BF16 rows: of the rows themselves where
 * dot() takes them as they are, else of prepared copies in c's shared memory,
 * which holds extra bytes more for the caller (64-byte aligned). */
#define x_rows ISA(x_rows)
int x_rows(struct cpu *c, const uint16_t *x, int stride, int n, int cols,
           size_t extra, const xt ***ret_rows, void **ret_extra);

#endif
