/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_DECODE_H
#define STEPD_KERNELS_CPU_DECODE_H

/*
 * Packed weight rows as BF16, always without rounding:
 *
 *   MXFP4   code times scale (rows where that is not exact: tile_fold.h)
 *   NVFP4   code times the block's E4M3, which takes 6 bits; the expert's
 *           factor multiplies the finished sum
 *   FP8     the E4M3 alone, which takes 4 bits; its F32 scale multiplies the
 *           sum over its block of 128 columns
 *   COMPACT BF16 itself; escapes are put in afterwards
 */

#include "kernels/cpu/simd.h"

INLINE void decode_mx(uint16_t *to, const struct cpu *c, const uint8_t *q,
                      const uint8_t *s, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        mx_decode(to + b * 32, q + b * 16, &c->mx, s[b]);
    }
}

/* Two blocks of 16 columns at a time, each under its own scale. */
INLINE void decode_nv(uint16_t *to, const struct cpu *c, const uint8_t *q,
                      const uint8_t *s, int blocks)
{
    int b = 0;

    for (; b + 2 <= blocks; b += 2) {
        uint16_t first[32];

        mx_decode(first, q + b * 8, &c->nv, s[b]);
        mx_decode(to + b * 16, q + b * 8, &c->nv, s[b + 1]);
        memcpy(to + b * 16, first, 32);
    }
    for (int i = 0; b < blocks && i < 16; i++) {
        to[b * 16 + i] = c->nv.bf16[s[b]][q[b * 8 + i / 2] >> (i % 2 * 4) & 15];
    }
}

/* 128 columns of a compact row, escapes still 0. */
INLINE void compact_decode(uint16_t *to, const uint8_t *block,
                           const uint8_t *lut)
{
#if ISA_LEVEL > 0
    enum { N = 128 / (int)sizeof(vi) };
    vi v[2 * N];

    compact_bf16(v, block, 0, lut);
    compact_bf16(v + N, block, 1, lut);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * N; i++) {
        vi_store(to + i * (int)sizeof(vi) / 2, v[i]);
    }
#else
    compact_unpack(to, block, (unsigned)(lut[1] >> 7 | lut[17] << 1) - 1);
#endif
}

/* Columns k .. k + n_k - 1 of row r, k whole blocks. */
INLINE void decode_compact(uint16_t *to, const struct cpu *c,
                           const struct kern_weight *w, int r, int k, int n_k)
{
    const uint32_t *row = (const uint32_t *)(const void *)cpu_plane(w, 0, 1);
    const uint32_t *e = (const uint32_t *)(const void *)cpu_plane(w, 0, 2);
    const uint32_t *end = e + compact_first(row[r + 1]);
    const uint8_t *lut = c->compact.bytes[compact_base(row[r])];
    const uint8_t *block = cpu_plane(w, 0, 0) +
                           (size_t)r * compact_row_bytes(w->desc.cols) +
                           (size_t)(k / COMPACT_COLS) * COMPACT_BLOCK;
    int i = 0;

    for (; i + COMPACT_COLS <= n_k; i += COMPACT_COLS, block += COMPACT_BLOCK) {
        compact_decode(to + i, block, lut);
    }
    if (i < n_k) {
        uint16_t last[COMPACT_COLS];

        compact_decode(last, block, lut);
        memcpy(to + i, last, (size_t)(n_k - i) * sizeof(*to));
    }
    for (e += compact_first(row[r]); e < end; e++) {
        int col = compact_col(*e) - k;

        if (col >= 0 && col < n_k) {
            to[col] = (uint16_t)*e;
        }
    }
}

/* Rows n .. n + n_w - 1 of a packed weight, one after the other. */
INLINE void decode_rows(uint16_t *to, const struct cpu *c,
                        const struct kern_weight *w, int expert, int n, int n_w)
{
    size_t cols = (size_t)w->desc.cols, at = (size_t)n * cols;
    const uint8_t *q = cpu_plane(w, expert, 0), *s = cpu_plane(w, expert, 1);

    switch (w->desc.dtype) {
    case KERN_MXFP4:
        decode_mx(to, c, q + at / 2, s + at / 32, n_w * (int)(cols / 32));
        break;
    case KERN_NVFP4:
    case KERN_NVFP4_DIV:
        for (int i = 0; i < n_w; i++, to += cols, at += cols) {
            decode_nv(to, c, q + at / 2, s + at / 16, (int)(cols / 16));
        }
        break;
    case KERN_COMPACT:
        for (int i = 0; i < n_w; i++, to += cols) {
            decode_compact(to, c, w, n + i, 0, (int)cols);
        }
        break;
    default:
        for (size_t i = 0; i < (size_t)n_w * cols; i++) {
            to[i] = c->fp8[q[at + i]];
        }
        break;
    }
}

/* The scale of an FP8 row's block of columns. */
INLINE float fp8_scale(const struct kern_weight *w, int expert, int row,
                       int block)
{
    size_t a_row =
        ((size_t)w->desc.cols + QUANT_FP8_BLOCK - 1) / QUANT_FP8_BLOCK;
    float s;

    memcpy(&s,
           cpu_plane(w, expert, 1) +
               ((size_t)(row / QUANT_FP8_BLOCK) * a_row + (size_t)block) * 4,
           sizeof(s));
    return s;
}

/* What multiplies the sums of an expert; 1 but for NVFP4. */
INLINE float nv_factor(const struct kern_weight *w, int expert)
{
    float f = 1.0f;

    if (w->desc.dtype == KERN_NVFP4 || w->desc.dtype == KERN_NVFP4_DIV) {
        memcpy(&f, cpu_plane(w, expert, 2), sizeof(f));
    }
    return w->desc.dtype == KERN_NVFP4_DIV ? 1.0f / f : f;
}

/* Bytes of rows n .. n + n_w - 1, all planes; what several rows share counts
 * with the first of them. */
INLINE uint64_t rows_bytes(const struct kern_weight_desc *d, int n, int n_w)
{
    uint64_t cols = (uint64_t)d->cols, rows = (uint64_t)n_w;
    uint64_t b = QUANT_FP8_BLOCK;

    switch (d->dtype) {
    case KERN_MXFP4:
        return rows * (cols / 2 + cols / 32);
    case KERN_NVFP4:
    case KERN_NVFP4_DIV:
        return rows * (cols / 2 + cols / 16) + (n == 0 ? 4 : 0);
    case KERN_FP8_B128:
        return rows * cols +
               (((uint64_t)n + rows + b - 1) / b - ((uint64_t)n + b - 1) / b) *
                   ((cols + b - 1) / b) * 4;
    case KERN_COMPACT:
        return rows * (compact_row_bytes(d->cols) + 4);
    default:
        return rows * cols * 2;
    }
}

#endif
