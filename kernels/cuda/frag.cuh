/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CUDA_FRAG_CUH
#define STEPD_KERNELS_CUDA_FRAG_CUH

/*
 * THE ORDER OF ADDITION of every product of activations and weights, and the
 * fragments that make it. Decode and prefill kernels are two schedules of it.
 *
 * Weights are the 16-side of mma.m16n8k16, rows of x the 8-side, so a result
 * does not know its neighbours. Within a block of 32 columns lane t of a quad
 * holds columns 8 t .. 8 t + 7, on both sides: 16 consecutive bytes. mma 0 takes
 * the first four of them, mma 1 the last four; that is a permutation of K, the
 * same for weights and x. Blocks ascend in a group of 128 columns. Then
 *
 *     BF16, COMPACT, NVFP4   the accumulator runs on through the slice
 *     MXFP4         a block's sum is scaled by its power of two and added
 *     FP8           a group's sum is scaled and added
 *
 * K is cut into slices of whole groups, at most GPU_SLICES, by the number of
 * columns alone; slices are added in ascending order, from the first one on.
 */

#include "kernels/cuda/dev.cuh"

/* Groups a slice, and slices. */
static __host__ __device__ inline int slice_groups(int groups)
{
    return (groups + GPU_SLICES - 1) / GPU_SLICES;
}
static __host__ __device__ inline int n_slices(int groups)
{
    return (groups + slice_groups(groups) - 1) / slice_groups(groups);
}

/* ---- weights: one group of 128 columns of one tile of 16 rows ---- */

template <int F> struct wgroup;

/* Row-major; rows past the last and blocks past the last are zero. */
template <> struct wgroup<GPU_BF16> {
    uint4 lo[4], hi[4]; /* block j of rows g and g + 8 */

    __device__ __forceinline__ void load(const gpu_mat &w, int expert, int tile, int group,
                                         int lane)
    {
        int r = tile * GPU_TILE + lane / 4, c = group * GPU_GROUP + lane % 4 * 8;
        const unsigned char *at =
            w.q + expert * w.q_step + ((size_t)r * (size_t)w.pitch + (size_t)c) * 2;

#pragma unroll
        for (int j = 0; j < 4; j++) {
            bool in = c + 32 * j < w.pitch;

            lo[j] = in && r < w.rows ? ldw128(at + 64 * j) : make_uint4(0, 0, 0, 0);
            hi[j] = in && r + 8 < w.rows ? ldw128(at + 64 * j + (size_t)w.pitch * 16)
                                         : make_uint4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void operand(int j, int m, unsigned (&a)[4]) const
    {
        a[0] = m == 0 ? lo[j].x : lo[j].z;
        a[1] = m == 0 ? hi[j].x : hi[j].z;
        a[2] = m == 0 ? lo[j].y : lo[j].w;
        a[3] = m == 0 ? hi[j].y : hi[j].w;
    }
};

static __device__ __forceinline__ unsigned word_of(const uint4 &v, int j)
{
    return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

/* Pair p of a word of the NIBBLE layout, as BF16 times 2^-126. */
static __device__ __forceinline__ unsigned nibble_pair(unsigned w, int p)
{
    unsigned mag = p < 2 ? w << (6 - 3 * p) : w >> (3 * p - 6);

    return (mag & 0x01c001c0u) | (w << (3 - p) & 0x80008000u);
}

#define BF16_2_126 0x7e807e80u /* a pair of 2^126 */

template <> struct wgroup<GPU_MXFP4> {
    uint4 lo, hi;
    unsigned scale_lo, scale_hi; /* four E8M0 each */

    __device__ __forceinline__ void load(const gpu_mat &w, int expert, int tile, int group,
                                         int lane)
    {
        size_t i = (size_t)tile * (size_t)w.groups + (size_t)group;
        const unsigned char *q = w.q + expert * w.q_step + i * 1024 + lane * 16;
        const unsigned char *s = w.s + expert * w.s_step + i * 64 + lane / 4 * 4;

        lo = ldw128(q);
        hi = ldw128(q + 512);
        scale_lo = *reinterpret_cast<const unsigned *>(s);
        scale_hi = *reinterpret_cast<const unsigned *>(s + 32);
    }
    __device__ __forceinline__ void operand(int j, int m, unsigned (&a)[4]) const
    {
        unsigned l = word_of(lo, j), h = word_of(hi, j);

        a[0] = mul_bf16x2(nibble_pair(l, 2 * m), BF16_2_126);
        a[1] = mul_bf16x2(nibble_pair(h, 2 * m), BF16_2_126);
        a[2] = mul_bf16x2(nibble_pair(l, 2 * m + 1), BF16_2_126);
        a[3] = mul_bf16x2(nibble_pair(h, 2 * m + 1), BF16_2_126);
    }
    __device__ __forceinline__ float scale(int j, int upper) const
    {
        return quant_e8m0((upper ? scale_hi : scale_lo) >> (8 * j) & 255u);
    }
};

template <> struct wgroup<GPU_NVFP4> {
    uint4 lo, hi;
    unsigned scale_lo[4], scale_hi[4]; /* of block j: a pair of BF16 */

    __device__ __forceinline__ void load(const gpu_mat &w, int expert, int tile, int group,
                                         int lane)
    {
        size_t i = (size_t)tile * (size_t)w.groups + (size_t)group;
        const unsigned char *q = w.q + expert * w.q_step + i * 1024 + lane * 16;
        const unsigned char *s = w.s + expert * w.s_step + i * 128 + lane / 4 * 8;
        uint2 l = ld64(s), h = ld64(s + 64);
        int upper = lane % 4 / 2; /* columns 16 .. 31 of a block */

        lo = ldw128(q);
        hi = ldw128(q + 512);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            unsigned a = (j < 2 ? l.x : l.y) >> (16 * (j & 1) + 8 * upper) & 255u;
            unsigned b = (j < 2 ? h.x : h.y) >> (16 * (j & 1) + 8 * upper) & 255u;

            scale_lo[j] = quant_f32_to_bf16(quant_e4m3(a)) * 0x10001u;
            scale_hi[j] = quant_f32_to_bf16(quant_e4m3(b)) * 0x10001u;
        }
    }
    __device__ __forceinline__ unsigned pair(unsigned w, int p, unsigned scale) const
    {
        return mul_bf16x2(mul_bf16x2(nibble_pair(w, p), BF16_2_126), scale);
    }
    __device__ __forceinline__ void operand(int j, int m, unsigned (&a)[4]) const
    {
        unsigned l = word_of(lo, j), h = word_of(hi, j);

        a[0] = pair(l, 2 * m, scale_lo[j]);
        a[1] = pair(h, 2 * m, scale_hi[j]);
        a[2] = pair(l, 2 * m + 1, scale_lo[j]);
        a[3] = pair(h, 2 * m + 1, scale_hi[j]);
    }
};

/* Bytes 2 i and 2 i + 1 of two, as BF16 times 2^-120, then times that. */
static __device__ __forceinline__ unsigned e4m3_pair(unsigned w, int upper)
{
    unsigned v = upper ? (w >> 16 & 0xffu) | (w >> 24) << 16 : (w & 0xffu) | (w & 0xff00u) << 8;

    return mul_bf16x2((v << 4 & 0x07f007f0u) | (v << 8 & 0x80008000u), 0x7b807b80u);
}

template <> struct wgroup<GPU_FP8> {
    uint4 lo[2], hi[2]; /* blocks 2 i and 2 i + 1 */
    float f;

    __device__ __forceinline__ void load(const gpu_mat &w, int expert, int tile, int group,
                                         int lane)
    {
        size_t i = (size_t)tile * (size_t)w.groups + (size_t)group;
        const unsigned char *q = w.q + expert * w.q_step + i * 2048 + lane * 16;

        lo[0] = ldw128(q);
        lo[1] = ldw128(q + 512);
        hi[0] = ldw128(q + 1024);
        hi[1] = ldw128(q + 1536);
        f = w.f[(size_t)expert * w.f_step +
                (size_t)(tile * GPU_TILE / QUANT_FP8_BLOCK) * (size_t)w.groups + (size_t)group];
    }
    __device__ __forceinline__ void operand(int j, int m, unsigned (&a)[4]) const
    {
        const uint4 &l = lo[j / 2], &h = hi[j / 2];
        unsigned x = word_of(l, 2 * (j & 1) + m), y = word_of(h, 2 * (j & 1) + m);

        a[0] = e4m3_pair(x, 0);
        a[1] = e4m3_pair(y, 0);
        a[2] = e4m3_pair(x, 1);
        a[3] = e4m3_pair(y, 1);
    }
};

/* Four BF16 of four bytes of sign and mantissa and four codes of 4 bits, a byte each: the exponent
 * is base + code, 0 where the code is 0. 11 operations, none of which carries past its byte. */
static __device__ __forceinline__ void compact_four(unsigned bytes, unsigned codes, unsigned base,
                                                    unsigned &lower, unsigned &upper)
{
    unsigned some = (codes + 0x7f7f7f7fu) >> 7 & 0x01010101u;
    unsigned exponent = codes + some * base;
    unsigned high = (bytes & 0x80808080u) | (exponent >> 1 & 0x7f7f7f7fu);
    unsigned low = (bytes & 0x7f7f7f7fu) | (exponent << 7 & 0x80808080u);

    lower = __byte_perm(low, high, 0x5140);
    upper = __byte_perm(low, high, 0x7362);
}

/* BF16 in 12 bits: what BF16 gives, to the bit. */
template <> struct wgroup<GPU_COMPACT> {
    uint4 lo[3], hi[3]; /* codes, then columns 0 .. 63 and 64 .. 127 of rows g and g + 8 */
    unsigned base_lo, base_hi;
    const unsigned *escape; /* those of the group, in the whole tile */
    int n_escapes;

    __device__ __forceinline__ void load(const gpu_mat &w, int, int tile, int group, int lane)
    {
        int r = tile * GPU_TILE + lane / 4;
        size_t row = (size_t)w.groups * COMPACT_BLOCK;
        const unsigned char *at =
            w.q + (size_t)r * row + (size_t)group * COMPACT_BLOCK + lane % 4 * 16;
        const unsigned *word = reinterpret_cast<const unsigned *>(w.f);
        const unsigned *first = word + (size_t)tile * (size_t)w.groups + (size_t)group;

#pragma unroll
        for (int p = 0; p < 3; p++) {
            lo[p] = r < w.rows ? ldw128(at + 64 * p) : make_uint4(0, 0, 0, 0);
            hi[p] = r + 8 < w.rows ? ldw128(at + 64 * p + row * 8) : make_uint4(0, 0, 0, 0);
        }
        base_lo = w.s[r];
        base_hi = w.s[r + 8];
        escape = word + first[0];
        n_escapes = (int)(first[1] - first[0]);
    }
    /* Puts in the escapes that this lane's operand holds; few groups have any. */
    __device__ __forceinline__ void patch(int j, int m, unsigned (&a)[4]) const
    {
        int lane = (int)threadIdx.x & 31;

        for (int i = 0; i < n_escapes; i++) {
            unsigned e = escape[i], row = e >> 23, col = e >> 16 & 127u;
            bool mine = (int)(col / 32) == j && (int)(col % 8 / 4) == m &&
                        (unsigned)lane == row % 8 * 4 + col % 32 / 8;
            unsigned half = mine ? 0xffffu << (16 * (col & 1)) : 0, bits = (e & 0xffffu) * 0x10001u;

#pragma unroll
            for (unsigned q = 0; q < 4; q++) {
                unsigned at = q == (col & 2u) + row / 8 ? half : 0;

                a[q] = (a[q] & ~at) | (bits & at);
            }
        }
    }
    __device__ __forceinline__ void operand(int j, int m, unsigned (&a)[4]) const
    {
        int i = 2 * (j & 1) + m, half = j / 2;
        unsigned l = word_of(lo[0], i) >> (4 * half) & 0x0f0f0f0fu;
        unsigned h = word_of(hi[0], i) >> (4 * half) & 0x0f0f0f0fu;

        compact_four(word_of(lo[1 + half], i), l, base_lo, a[0], a[2]);
        compact_four(word_of(hi[1 + half], i), h, base_hi, a[1], a[3]);
        if (n_escapes > 0) { /* the same for the whole warp */
            patch(j, m, a);
        }
    }
};

/* ---- sums ---- */

/* c += the group's products with NT tiles of 8 rows of x, of which the first `live` count; b(j, i)
 * gives the 16 bytes of block j for tile i that lane 4 n + t needs: row n, columns 8 t .. */
template <int F, int NT, class B>
static __device__ __forceinline__ void group_add(const wgroup<F> &w, float (&c)[NT][4], int live,
                                                 const B &b)
{
    float sum[F == GPU_FP8 ? NT : 1][4];

    if (F == GPU_FP8) {
#pragma unroll
        for (int i = 0; i < NT; i++) {
            sum[F == GPU_FP8 ? i : 0][0] = sum[F == GPU_FP8 ? i : 0][1] = 0;
            sum[F == GPU_FP8 ? i : 0][2] = sum[F == GPU_FP8 ? i : 0][3] = 0;
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned a0[4], a1[4];

        w.operand(j, 0, a0);
        w.operand(j, 1, a1);
#pragma unroll
        for (int i = 0; i < NT; i++) {
            uint4 x;

            if (i >= live) { /* the same for the whole warp */
                break;
            }
            x = b(j, i);
            if constexpr (F == GPU_MXFP4) {
                float part[4] = {0, 0, 0, 0};

                mma_bf16(part, a0, x.x, x.y);
                mma_bf16(part, a1, x.z, x.w);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    c[i][e] = fmaf(part[e], w.scale(j, e / 2), c[i][e]);
                }
            } else if constexpr (F == GPU_FP8) {
                mma_bf16(sum[i], a0, x.x, x.y);
                mma_bf16(sum[i], a1, x.z, x.w);
            } else {
                mma_bf16(c[i], a0, x.x, x.y);
                mma_bf16(c[i], a1, x.z, x.w);
            }
        }
    }
    if constexpr (F == GPU_FP8) {
#pragma unroll
        for (int i = 0; i < NT; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                c[i][e] = fmaf(sum[i][e], w.f, c[i][e]);
            }
        }
    }
}

/* What is left to do to a finished sum. */
template <int F>
static __device__ __forceinline__ float finish_sum(const gpu_mat &w, int expert, float v)
{
    if constexpr (F == GPU_NVFP4) {
        float f = w.f[(size_t)expert * w.f_step];

        return w.divide ? v / f : v * f;
    }
    return v;
}

/* ---- x: rows of BF16 ---- */

/* 16 bytes at columns c .. c + 7 of a row; past the last column, or of no row: zeros. vec: rows
 * begin at 16-byte boundaries and columns come in eights. */
static __device__ __forceinline__ uint4 x_eight(const unsigned short *row, int c, int cols,
                                                bool vec)
{
    unsigned v[4] = {0, 0, 0, 0};

    if (row == nullptr || c >= cols) {
        return make_uint4(0, 0, 0, 0);
    }
    if (vec) {
        return ldg128(row + c);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (c + i < cols) {
            v[i / 2] |= (unsigned)row[c + i] << (16 * (i & 1));
        }
    }
    return make_uint4(v[0], v[1], v[2], v[3]);
}

/* ---- few rows: gate and up together ---- */

/* A tile of 16 outputs of gate and of up over NT * 8 rows of x (row[t]: this lane's of eight,
 * nullptr: none): emit(r, o, g, u) is called with the sums of row r and output o, o < rows of gate.
 * A warp a slice; slices are added in ascending order. All threads call it; sum has
 * GPU_SLICES * NT * 256 values. */
template <int F, int NT, class Emit>
static __device__ __forceinline__ void skinny_pair(float *sum, const gpu_mat &gate,
                                                   const gpu_mat &up, int expert, int tile,
                                                   const unsigned short *const (&row)[NT], int cols,
                                                   bool vec, const Emit &emit)
{
    /* both at once would cost the second block of an SM its registers */
    constexpr bool tight = F == GPU_BF16 && NT == 2;
    int lane = (int)threadIdx.x & 31, slice = (int)threadIdx.x >> 5;
    int per = slice_groups(gate.groups);
    int end = (slice + 1) * per < gate.groups ? (slice + 1) * per : gate.groups;
    float c[2][NT][4];

#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            c[0][t][e] = c[1][t][e] = 0;
        }
    }
    for (int g = slice * per; g < end; g++) {
        wgroup<F> a, b;
        int at = g * GPU_GROUP + lane % 4 * 8;
        auto x = [&](int j, int t) { return x_eight(row[t], at + 32 * j, cols, vec); };

        a.load(gate, expert, tile, g, lane);
        if (!tight) {
            b.load(up, expert, tile, g, lane);
        }
        group_add<F, NT>(a, c[0], NT, x);
        if (tight) {
            b.load(up, expert, tile, g, lane);
        }
        group_add<F, NT>(b, c[1], NT, x);
    }
#pragma unroll
    for (int a = 0; a < 2 * NT * 4; a++) {
        int m = a / (NT * 4), t = a / 4 % NT, e = a % 4;
        int r = 2 * (lane & 3) + (e & 1), o = lane / 4 + 8 * (e >> 1);

        sum[((slice * 2 + m) * NT + t) * 128 + r * 16 + o] = c[m][t][e];
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < NT * 128; at += (int)blockDim.x) {
        int o = tile * GPU_TILE + at % 16;
        float g = sum[at], u = sum[NT * 128 + at];

        for (int s = 1; s < (int)blockDim.x / 32; s++) {
            g += sum[s * NT * 256 + at];
            u += sum[s * NT * 256 + NT * 128 + at];
        }
        if (o < gate.rows) {
            emit(at / 16, o, finish_sum<F>(gate, expert, g), finish_sum<F>(up, expert, u));
        }
    }
}

/* ---- experts ---- */

/* A piece of work of an expert op: pairs first .. first + n - 1 of expert. */
struct expert_work {
    int expert, first, n;
};

/* Work number i where each expert's pairs are cut into tiles; expert -1 past the last. Called by
 * whole warps; off has n_expert + 1 entries. */
static __device__ __forceinline__ expert_work find_work(const int *off, int n_expert, int tile,
                                                        int i)
{
    int lane = (int)threadIdx.x & 31, before = 0;
    expert_work w = {-1, 0, 0};

    for (int e0 = 0; e0 < n_expert; e0 += 32) {
        int e = e0 + lane, a = 0, b = 0, tiles, sum;
        unsigned hit;

        if (e < n_expert) {
            a = off[e];
            b = off[e + 1];
        }
        tiles = (b - a + tile - 1) / tile;
        sum = tiles;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            int up = __shfl_up_sync(ALL_LANES, sum, d);

            sum += lane >= d ? up : 0;
        }
        hit = __ballot_sync(ALL_LANES, i < before + sum);
        if (hit != 0) {
            int l = __ffs(hit) - 1;
            int skip =
                i - before - (__shfl_sync(ALL_LANES, sum, l) - __shfl_sync(ALL_LANES, tiles, l));

            w.expert = e0 + l;
            w.first = __shfl_sync(ALL_LANES, a, l) + skip * tile;
            w.n = __shfl_sync(ALL_LANES, b, l) - w.first;
            w.n = w.n < tile ? w.n : tile;
            return w;
        }
        before += __shfl_sync(ALL_LANES, sum, 31);
    }
    return w;
}

#endif
