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

#define TILE_X 8       /* most activation rows of one register tile */
#define TILE_W 128     /* most weight rows of a job that meets packed rows */
#define TILE_GEMM_X 16 /* more rows than this: blocked over k */

struct tile_job {
    const struct cpu *cpu;
    const struct kern_weight *w;
    int expert;
    int n0, n_w;        /* weight rows n0 .. n0 + n_w - 1 */
    const xt *const *x; /* [n_x] prepared rows (x_prepare) */
    int n_x;
    const xt *packed; /* the same as tile_pack made them; or NULL */
    float *y;         /* [n_x][y_stride]: column 0 is weight row n0 */
    size_t y_stride;
    bool add; /* y += */
    /* What the caller reads next, to be prefetched, or NULL: rows of as many
     * columns and of the same type; next_s: the scales of MXFP4. */
    const uint8_t *next, *next_s;
    uint8_t *scratch; /* tile_scratch() bytes */
};

/* Bytes of scratch that a job over rows of so many columns may use. */
#define tile_scratch ISA(tile_scratch)
size_t tile_scratch(int cols);
#define tile_run ISA(tile_run)
/* Returns the weight bytes it streamed. */
uint64_t tile_run(const struct tile_job *j);

/* How many activation rows are to lie side by side, chunk by chunk, for jobs
 * over w that take n_x of them packed, so that jobs of the same rows and
 * columns share the packing; 0 where it does not pay. */
#define tile_packs ISA(tile_packs)
int tile_packs(const struct kern_weight *w, int n_x);
/* to: n rows of cols elements. */
#define tile_pack ISA(tile_pack)
void tile_pack(xt *to, const xt *const *x, int n, int side, int cols);

/* Says that after the job the caller reads row n of expert e of w; e < 0: not
 * known. */
INLINE void tile_next(struct tile_job *j, const struct kern_weight *w, int e,
                      int n)
{
    size_t cols = (size_t)w->desc.cols, row = 0;

    if (w->desc.dtype == KERN_MXFP4) {
        row = cols / 2;
    } else if (w->desc.dtype == KERN_COMPACT) {
        row = compact_row_bytes((int)cols);
    } else if (w->desc.dtype == KERN_BF16) {
        row = cols * 2;
    }
    j->next = j->next_s = NULL;
    if (e >= 0 && row > 0) {
        j->next = cpu_plane(w, e, 0) + (size_t)n * row;
    }
    if (e >= 0 && w->desc.dtype == KERN_MXFP4) {
        j->next_s = cpu_plane(w, e, 1) + (size_t)n * cols / 32;
    }
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
