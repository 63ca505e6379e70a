/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_TILE_REG_H
#define STEPD_KERNELS_CPU_TILE_REG_H

/*
 * The register tiles of tile.c, which says what they are for: M weight rows
 * times N activation rows of accumulators over a stretch of k, for weights as
 * BF16, compact and MXFP4, and tables of them by N. Included there only.
 */

#include "kernels/cpu/decode.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/tile_fold.h"

/* TILE_M: weight rows of a tile for N activation rows, by what the registers
 * hold. FEW_M: the same where few rows stream from memory, by how many streams
 * it serves best and how many chains of additions hide their latency. GEMM_K:
 * the cut of k for the blocked form, by what L1 holds. */
#if ISA_LEVEL >= 2
#define TILE_M(n) ((n) <= 6 ? 4 : 3)
#define FEW_M (ISA_LEVEL == 3 ? 2 : 4)
#define CUT_N 8
#define GEMM_N 6
#define GEMM_K (ISA_LEVEL == 3 ? 2048 : 768)
#elif ISA_LEVEL == 1
#define TILE_M(n) ((n) <= 3 ? 4 : (n) == 4 ? 3 : 2)
#define FEW_M 4
#define CUT_N 6
#define GEMM_N 6
#define GEMM_K 512
#else
#define TILE_M(n) ((n) <= 2 ? 4 : 2)
#define FEW_M 4
#define CUT_N 4
#define GEMM_N 4
#define GEMM_K 512
#endif

#define FEW_N (ISA_LEVEL == 3 ? 4 : 3) /* most rows that are streamed for */
/* Bytes of x that a tile of few rows leaves in L1. */
#define FEW_BYTES 49152
#define MX_M 4               /* FEW_M of packed weights */
#define AHEAD (8192 / FEW_M) /* bytes from what is read to the prefetch */
#define MX_AHEAD 12288
#define TILE_M_MAX 4
/* Weight rows of a panel of the blocked form, and bytes of them: most of L2. */
#define PANEL_W (ISA_LEVEL == 3 ? 64 : 32)
#define PANEL_BYTES (ISA_LEVEL == 3 ? 786432 : 393216)
#define COMPACT_M 3 /* TILE_M of rows that are decoded in registers */
#define CUT_W 32    /* most weight rows of a job of the form between */
#define ACC_BYTES (sizeof(float) * VF_N * PANEL_W * GEMM_N)
/* Most columns of a cut of the form between, whole compact blocks: with two
 * shares of x it leaves L1 some room. */
#define CUT_K (ISA_LEVEL == 3 ? 1280 : 512)
#define CUT_ACC_BYTES                                      \
    (sizeof(float) * VF_N * TILE_ACC * ((CUT_W + 1) / 2) * \
     ((TILE_GEMM_X + CUT_N - 1) / CUT_N))
#define CUT_DECODED (sizeof(uint16_t) * CUT_K * TILE_M_MAX)
#define CUT_BYTES \
    (CUT_ACC_BYTES + CUT_DECODED + sizeof(xt) * CUT_K * TILE_GEMM_X)
/* Most rows packed for one job alone: above, weights are decoded to memory. */
#define SHARE_X 64
#define SHARE_K 2048
#define SHARE_ACC_BYTES (sizeof(float) * VF_N * TILE_ACC * ((TILE_W + 2) / 3))

struct tile {
    const uint8_t *w[TILE_M_MAX]; /* BF16 rows, or packed ones */
    const uint8_t *s[TILE_M_MAX]; /* their scales */
    /* compact rows: their escapes, and what their codes stand for */
    const uint32_t *e[TILE_M_MAX], *e_end[TILE_M_MAX];
    const uint8_t *lut[TILE_M_MAX];
    int k0;              /* the row's column that is the tile's first */
    const xt *x[TILE_X]; /* rows, or in the first alone what pack_x made */
    const struct mx_table *mx;
    int k;             /* columns */
    ptrdiff_t ahead;   /* bytes from what is read to what is prefetched */
    ptrdiff_t ahead_s; /* the same for scales */
    /* Or what is read after this tile, packed as it lies in memory: */
    const uint8_t *next;
    ptrdiff_t next_row, next_k; /* bytes from row to row, of DOT_K columns */
    bool first;                 /* start from zero */
    float *acc;                 /* [N][M] vectors */
};

INLINE void acc_in(vf *acc, const struct tile *t, int n)
{
#pragma GCC unroll 24
    for (int i = 0; i < n; i++) {
        acc[i] = t->first ? vf_set(0.0f) : vf_load(t->acc + i * VF_N);
    }
}

INLINE void acc_out(const vf *acc, const struct tile *t, int n)
{
#pragma GCC unroll 24
    for (int i = 0; i < n; i++) {
        vf_store(t->acc + i * VF_N, acc[i]);
    }
}

INLINE wv tile_w(const struct tile *t, int m, int k, int left)
{
    const uint8_t *p = t->w[m] + (size_t)k * 2;

    return left < DOT_K ? wv_load_n(p, left) : wv_load(p);
}

INLINE const xt *tile_x(const struct tile *t, int N, int n, int k, bool packed)
{
    return packed ? t->x[0] + (size_t)k * N + n * DOT_K : t->x[n] + k;
}

/* M and N are constants wherever this is inlined. With 32 registers the
 * weights of a chunk stay in some of them while x passes; with 16 there is room
 * for one row's, and x comes from L1 with each multiplication. */
INLINE void tile_chunk(vf *acc, const struct tile *t, int M, int N, int k,
                       int left, bool packed)
{
#if ISA_LEVEL >= 2
    wv w[TILE_M_MAX];

#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
        w[m] = tile_w(t, m, k, left);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            acc[n * M + m] =
                dot(acc[n * M + m], w[m], tile_x(t, N, n, k, packed));
        }
    }
#else
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
        wv w = tile_w(t, m, k, left);

#pragma GCC unroll 8
        for (int n = 0; n < N; n++) {
            acc[n * M + m] = dot(acc[n * M + m], w, tile_x(t, N, n, k, packed));
        }
    }
#endif
}

/* What a tile prefetches: nothing, its own rows further on, the next tile's,
 * the activation rows that come next. */
enum fetch { FETCH_NONE, FETCH_AHEAD, FETCH_NEXT, FETCH_X };

INLINE void tile_fetch(struct tile *t, int M, int k, enum fetch fetch)
{
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
        if (fetch == FETCH_AHEAD) {
            __builtin_prefetch(t->w[m] + (ptrdiff_t)k * 2 + t->ahead, 0, 3);
        } else if (fetch == FETCH_NEXT) {
            __builtin_prefetch(t->next + m * t->next_row, 0, 3);
        }
    }
    if (fetch == FETCH_NEXT) {
        t->next += t->next_k;
    } else if (fetch == FETCH_X) {
        __builtin_prefetch(t->next, 0, 2);
        t->next += 64;
    }
}

INLINE void tile_bf16(const struct tile *t, int M, int N, enum fetch fetch,
                      bool packed)
{
    struct tile l = *t; /* its pointers in registers */
    vf acc[TILE_ACC];
    int k = 0;

    acc_in(acc, &l, M * N);
    for (; k + DOT_K <= l.k; k += DOT_K) {
        tile_fetch(&l, M, k, fetch);
        tile_chunk(acc, &l, M, N, k, DOT_K, packed);
    }
    if (k < l.k) {
        tile_chunk(acc, &l, M, N, k, l.k - k, packed);
    }
    acc_out(acc, &l, M * N);
}

#define MX_CHUNKS (32 / DOT_K)

/* Rows that are decoded before they meet x. As in tile_chunk: with 32 registers
 * a load of x meets those of all rows, with 16 of one. */
enum { TOGETHER = ISA_LEVEL >= 2 ? TILE_M_MAX : 1 };

/* Block b of each row, decoded, against every activation row. */
INLINE void mx_block(vf *acc, const struct tile *t, int M, int N, int b,
                     bool packed)
{
#pragma GCC unroll 4
    for (int m0 = 0; m0 < M; m0 += TOGETHER) {
        wv w[TOGETHER][MX_CHUNKS];
        int m1 = imin(M, m0 + TOGETHER);

#pragma GCC unroll 4
        for (int m = m0; m < m1; m++) {
            wv_mx(w[m - m0], t->w[m] + (size_t)b * 16, t->mx, t->s[m][b]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < MX_CHUNKS; c++) {
#pragma GCC unroll 8
            for (int n = 0; n < N; n++) {
                const xt *x = tile_x(t, N, n, b * 32 + c * DOT_K, packed);

#pragma GCC unroll 4
                for (int m = m0; m < m1; m++) {
                    acc[n * M + m] = dot(acc[n * M + m], w[m - m0][c], x);
                }
            }
        }
    }
}

/* Neighbouring rows prefetch as one stream, a part of them each its own. */
INLINE void tile_mx(const struct tile *t, int M, int N, enum fetch fetch,
                    bool packed)
{
    struct tile l = *t;
    vf acc[TILE_ACC];
    int b = 0, blocks = l.k / 32;

    acc_in(acc, &l, M * N);
    for (int i = 0; i < blocks && fetch != FETCH_NONE; i += 64) {
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) { /* scales: a line a row */
            __builtin_prefetch(l.s[m] + i + l.ahead_s, 0, 3);
        }
    }
    for (; b + 4 <= blocks; b += 4) { /* codes: the same */
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            if (fetch == FETCH_AHEAD) {
                __builtin_prefetch(
                    l.w[0] + (ptrdiff_t)(b * M * 16 + m * 64) + l.ahead, 0, 3);
            } else if (fetch == FETCH_NEXT) {
                __builtin_prefetch(l.w[m] + (ptrdiff_t)b * 16 + l.ahead, 0, 2);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            mx_block(acc, &l, M, N, b + i, packed);
        }
    }
    for (; b < blocks; b++) {
        mx_block(acc, &l, M, N, b, packed);
    }
    acc_out(acc, &l, M * N);
}

#if ISA_LEVEL > 0
#define COMPACT_CHUNKS (64 / DOT_K)

/* Blocks from b on that no row has an escape in, among the first n. */
INLINE int plain_blocks(const struct tile *t, int M, int n)
{
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
        if (t->e[m] < t->e_end[m]) {
            n = imin(n, (compact_col(*t->e[m]) - t->k0) / COMPACT_COLS);
        }
    }
    return n;
}

/* A block with escapes, or not a whole one, by way of memory. */
INLINE void compact_slowly(vf *acc, struct tile *t, int M, int N, int b,
                           bool packed)
{
    int end = t->k0 + (b + 1) * COMPACT_COLS;

#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
        uint16_t w[COMPACT_COLS];

        compact_decode(w, t->w[m] + (size_t)b * COMPACT_BLOCK, t->lut[m]);
        for (; t->e[m] < t->e_end[m] && compact_col(*t->e[m]) < end;
             t->e[m]++) {
            w[compact_col(*t->e[m]) % COMPACT_COLS] = (uint16_t)*t->e[m];
        }
        for (int k = b * COMPACT_COLS; k < imin(t->k, (b + 1) * COMPACT_COLS);
             k += DOT_K) {
            wv v = wv_load((const uint8_t *)(w + k % COMPACT_COLS));

#pragma GCC unroll 8
            for (int n = 0; n < N; n++) {
                acc[n * M + m] =
                    dot(acc[n * M + m], v, tile_x(t, N, n, k, packed));
            }
        }
    }
}

/* 64 columns of each row, decoded, against every activation row; shared as in
 * mx_block. */
INLINE void compact_half(vf *acc, const struct tile *t, int M, int N, int b,
                         int half, bool packed)
{
#pragma GCC unroll 4
    for (int m0 = 0; m0 < M; m0 += TOGETHER) {
        vi w[TOGETHER][COMPACT_CHUNKS];
        int m1 = imin(M, m0 + TOGETHER);

#pragma GCC unroll 4
        for (int m = m0; m < m1; m++) {
            compact_bf16(w[m - m0], t->w[m] + (size_t)b * COMPACT_BLOCK, half,
                         t->lut[m]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < COMPACT_CHUNKS; c++) {
            int k = b * COMPACT_COLS + half * 64 + c * DOT_K;

#pragma GCC unroll 8
            for (int n = 0; n < N; n++) {
                const xt *x = tile_x(t, N, n, k, packed);

#pragma GCC unroll 4
                for (int m = m0; m < m1; m++) {
                    acc[n * M + m] =
                        dot(acc[n * M + m], wv_of(w[m - m0][c]), x);
                }
            }
        }
    }
}

INLINE void tile_compact(const struct tile *t, int M, int N, enum fetch fetch,
                         bool packed)
{
    struct tile l = *t;
    vf acc[TILE_ACC];
    int b = 0;

    acc_in(acc, &l, M * N);
    for (;;) {
        int stop = plain_blocks(&l, M, l.k / COMPACT_COLS);

        for (; b < stop; b++) {
            ptrdiff_t at = (ptrdiff_t)b * COMPACT_BLOCK + l.ahead;

#pragma GCC unroll 4
            for (int m = 0; m < M && fetch != FETCH_NONE; m++) {
                __builtin_prefetch(l.w[m] + at, 0, 3);
                __builtin_prefetch(l.w[m] + at + 64, 0, 3);
                __builtin_prefetch(l.w[m] + at + 128, 0, 3);
            }
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                compact_half(acc, &l, M, N, b, half, packed);
            }
        }
        if (b * COMPACT_COLS >= l.k) {
            break;
        }
        compact_slowly(acc, &l, M, N, b++, packed);
    }
    acc_out(acc, &l, M * N);
}
#else
INLINE void tile_compact(const struct tile *t, int M, int N, enum fetch fetch,
                         bool packed)
{
    (void)t;
    (void)M;
    (void)N;
    (void)fetch;
    (void)packed;
}
#endif

typedef void tile_fn(const struct tile *t);

#define TILE_FN(name, n, ...)                    \
    static void name##_##n(const struct tile *t) \
    {                                            \
        __VA_ARGS__;                             \
    }

#define FEW(n)                                                             \
    TILE_FN(few_bf16, n, tile_bf16(t, FEW_M, n, FETCH_AHEAD, false))       \
    TILE_FN(few_compact, n, tile_compact(t, FEW_M, n, FETCH_AHEAD, false)) \
    TILE_FN(few_mx, n, tile_mx(t, MX_M, n, FETCH_AHEAD, false))
FEW(1)
FEW(2)
FEW(3)
FEW(4)

#define TILE(n)                                                               \
    TILE_FN(tile_ahead, n, tile_bf16(t, TILE_M(n), n, FETCH_AHEAD, true))     \
    TILE_FN(tile_next, n, tile_bf16(t, TILE_M(n), n, FETCH_NEXT, true))       \
    TILE_FN(tile_plain, n, tile_bf16(t, TILE_M(n), n, FETCH_NONE, true))      \
    TILE_FN(tile_gemm, n, tile_bf16(t, TILE_M(n), n, FETCH_NONE, false))      \
    TILE_FN(tile_x, n, tile_bf16(t, TILE_M(n), n, FETCH_X, true))             \
    TILE_FN(tile_compact, n, tile_compact(t, COMPACT_M, n, FETCH_NEXT, true)) \
    TILE_FN(tile_compact_plain, n,                                            \
            tile_compact(t, COMPACT_M, n, FETCH_NONE, true))                  \
    TILE_FN(tile_mx, n, tile_mx(t, TILE_M(n), n, FETCH_NEXT, true))           \
    TILE_FN(tile_mx_plain, n, tile_mx(t, TILE_M(n), n, FETCH_NONE, true))
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)

#define FEWS(kind)                                                           \
    {                                                                        \
        NULL, few_##kind##_1, few_##kind##_2, few_##kind##_3, few_##kind##_4 \
    }
static tile_fn *const few_bf16[] = FEWS(bf16);
static tile_fn *const few_compact[] = FEWS(compact);
static tile_fn *const few_mx[] = FEWS(mx);

#define TILES(kind)                                              \
    {                                                            \
        NULL, tile_##kind##_1, tile_##kind##_2, tile_##kind##_3, \
            tile_##kind##_4, tile_##kind##_5, tile_##kind##_6,   \
            tile_##kind##_7, tile_##kind##_8                     \
    }
static tile_fn *const tiles_ahead[TILE_X + 1] = TILES(ahead);
static tile_fn *const tiles_next[TILE_X + 1] = TILES(next);
static tile_fn *const tiles_plain[TILE_X + 1] = TILES(plain);
static tile_fn *const tiles_compact[TILE_X + 1] = TILES(compact);
static tile_fn *const tiles_compact_plain[TILE_X + 1] = TILES(compact_plain);
static tile_fn *const tiles_mx[TILE_X + 1] = TILES(mx);
static tile_fn *const tiles_mx_plain[TILE_X + 1] = TILES(mx_plain);
static tile_fn *const tiles_gemm[TILE_X + 1] = TILES(gemm);
static tile_fn *const tiles_x[TILE_X + 1] = TILES(x);

#endif
