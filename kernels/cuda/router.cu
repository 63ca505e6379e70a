/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * router: which experts a row takes, and the rows of each expert. FP32
 * throughout.
 *
 *   logits  a warp an expert and 8 (decode: up to 16) rows: lanes take four
 *           columns of every 128, one accumulator a row, one butterfly.
 *   select  a warp a row: sigmoid, then the best of p + bias, T times.
 *   group   a warp an expert: counts its pairs, sums, places them, rows
 *           ascending.
 *
 * Prefill takes a launch for each. Decode takes one: the block that is the last
 * to have its logits selects and groups.
 */

#include <errno.h>

#include "kernels/cuda/dev.cuh"

struct router_params {
    const int *n;
    const float *x;
    gpu_mat w;
    const void *bias;
    float *logits, *wt;
    int *sel, *off, *pair;
    unsigned *turn; /* decode: blocks that are done; zero between launches */
    unsigned long long *counts;
    float scale;
    int max, n_expert, top_k, renorm, bias_f32, vec, bias_stride;
};

template <bool F32>
static __device__ __forceinline__ void four_weights(const router_params &p, int e, int c,
                                                    float (&w)[4])
{
    if (F32) {
        const float *at = reinterpret_cast<const float *>(p.w.q) + (size_t)e * (size_t)p.w.pitch;

#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[i] = c + i < p.w.cols ? at[c + i] : 0.0f;
        }
    } else { /* rows of BF16 are padded to 32 columns */
        uint2 v = ld64(p.w.q + ((size_t)e * (size_t)p.w.pitch + (size_t)c) * 2);

        w[0] = quant_from_bits(v.x << 16);
        w[1] = quant_from_bits(v.x & 0xffff0000u);
        w[2] = quant_from_bits(v.y << 16);
        w[3] = quant_from_bits(v.y & 0xffff0000u);
    }
}

template <bool F32, int NR>
static __device__ __forceinline__ void logits_of(const router_params &p, int n)
{
    int lane = (int)threadIdx.x & 31;
    int e = (int)blockIdx.x * 8 + ((int)threadIdx.x >> 5), r0 = (int)blockIdx.y * NR;
    float sum[NR];

    if (r0 >= n || e >= p.n_expert) {
        return;
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
        count_add(p.counts, GPU_COUNT_WEIGHT,
                  (unsigned long long)p.w.bytes * (unsigned)((n + NR - 1) / NR));
    }
#pragma unroll
    for (int i = 0; i < NR; i++) {
        sum[i] = 0;
    }
    for (int c = lane * 4; c < p.w.cols; c += 128) {
        float w[4];

        four_weights<F32>(p, e, c, w);
#pragma unroll
        for (int i = 0; i < NR; i++) {
            if (r0 + i >= n) {
                break;
            }
            const float *x = p.x + (size_t)(r0 + i) * (size_t)p.w.cols + c;

            if (p.vec) {
                uint4 v = ldg128(x);

                sum[i] = fmaf(quant_from_bits(v.x), w[0], sum[i]);
                sum[i] = fmaf(quant_from_bits(v.y), w[1], sum[i]);
                sum[i] = fmaf(quant_from_bits(v.z), w[2], sum[i]);
                sum[i] = fmaf(quant_from_bits(v.w), w[3], sum[i]);
            } else {
                for (int j = 0; j < 4 && c + j < p.w.cols; j++) {
                    sum[i] = fmaf(x[j], w[j], sum[i]);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < NR; i++) {
        float s = warp_sum(sum[i]);

        if (lane == 0 && r0 + i < n) {
            p.logits[(size_t)(r0 + i) * (size_t)p.n_expert + e] = s;
        }
    }
}

template <bool F32>
static __global__ void __launch_bounds__(256, 2) router_logits(const router_params p)
{
    logits_of<F32, 16>(p, live_rows(p.n, p.max));
}

/* Ordered as the choice wants: greater score first; a NaN is the smallest. */
static __device__ __forceinline__ unsigned score_key(float v)
{
    unsigned u = quant_to_bits(v);

    if (v != v) {
        return 0;
    }
    u = u == 0x80000000u ? 0 : u;
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

static __device__ __forceinline__ float bias_at(const router_params &p, int e)
{
    return p.bias == nullptr ? 0.0f
           : p.bias_f32      ? static_cast<const float *>(p.bias)[e]
                             : quant_bf16_to_f32(static_cast<const unsigned short *>(p.bias)[e]);
}

/* A warp chooses for row r; mine: KERN_MAX_TOPK ints of its own. An expert once taken leaves by its
 * bit in `taken`, expert lane + 32 i being bit i of the lane: up to 1,024 experts. */
static __device__ __forceinline__ void select_row(const router_params &p, int r, int *mine)
{
    int lane = (int)threadIdx.x & 31;
    const float *logit = p.logits + (size_t)r * (size_t)p.n_expert;
    unsigned taken = 0;
    float sum = 0;

    for (int j = 0; j < p.top_k; j++) {
        unsigned long long best = 0; /* key, then ~id: the lowest id wins */

        for (int i = 0; lane + 32 * i < p.n_expert; i++) {
            int e = lane + 32 * i;
            float s = 1.0f / (1.0f + expf(-logit[e])) + bias_at(p, e);
            unsigned long long v = (unsigned long long)score_key(s) << 32 | (unsigned)~e;

            if (!(taken >> i & 1u) && v > best) {
                best = v;
            }
        }
#pragma unroll
        for (int d = 16; d > 0; d >>= 1) {
            unsigned long long o = __shfl_xor_sync(ALL_LANES, best, d);

            best = o > best ? o : best;
        }
        int e = (int)~(unsigned)best;

        if (lane == e % 32) {
            taken |= 1u << (e / 32);
        }
        if (lane == 0) {
            int at = j;

            for (; at > 0 && mine[at - 1] > e; at--) {
                mine[at] = mine[at - 1];
            }
            mine[at] = e;
        }
    }
    __syncwarp();
    for (int j = 0; j < p.top_k; j++) {
        sum += 1.0f / (1.0f + expf(-logit[mine[j]]));
    }
    if (lane < p.top_k) {
        float w = 1.0f / (1.0f + expf(-logit[mine[lane]]));

        w = p.renorm ? w / (sum + 1e-20f) : w;
        p.sel[r * p.top_k + lane] = mine[lane];
        p.wt[r * p.top_k + lane] = w * p.scale;
    }
}

static __global__ void __launch_bounds__(256) router_select(const router_params p)
{
    STEP_SHARED(int, sel, 8 * KERN_MAX_TOPK);
    int warp = (int)threadIdx.x >> 5, r = (int)blockIdx.x * 8 + warp;

    if (r < live_rows(p.n, p.max)) {
        select_row(p, r, sel + warp * KERN_MAX_TOPK);
    }
}

/* By one whole block. First off[e + 1] = pairs of e, then their sums, then the pairs, rows
 * ascending: a warp an expert goes through all choices in order, 32 at a time. first: 1,025 ints.
 */
static __device__ __forceinline__ void group_pairs(const router_params &p, int n_rows, int *first)
{
    int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
    int warps = (int)blockDim.x >> 5, pairs = n_rows * p.top_k;

    for (int e = warp; e < p.n_expert; e += warps) {
        int n = 0;

        for (int i = lane; i < pairs; i += 32) {
            n += p.sel[i] == e;
        }
#pragma unroll
        for (int d = 16; d > 0; d >>= 1) {
            n += __shfl_xor_sync(ALL_LANES, n, d);
        }
        if (lane == 0) {
            first[e + 1] = n;
        }
    }
    __syncthreads();
    if (warp == 0) {
        int before = 0;

        for (int e0 = 0; e0 < p.n_expert; e0 += 32) {
            int e = e0 + lane, n = e < p.n_expert ? first[e + 1] : 0, sum = n;

#pragma unroll
            for (int d = 1; d < 32; d <<= 1) {
                int up = __shfl_up_sync(ALL_LANES, sum, d);

                sum += lane >= d ? up : 0;
            }
            __syncwarp();
            if (e < p.n_expert) {
                first[e + 1] = before + sum;
                p.off[e + 1] = before + sum;
            }
            before += __shfl_sync(ALL_LANES, sum, 31);
        }
        if (lane == 0) {
            first[0] = 0;
            p.off[0] = 0;
        }
    }
    __syncthreads();
    for (int e = warp; e < p.n_expert; e += warps) {
        int at = first[e];

        if (at == first[e + 1]) {
            continue;
        }
        for (int i0 = 0; i0 < pairs; i0 += 32) {
            int i = i0 + lane;
            unsigned hit = __ballot_sync(ALL_LANES, i < pairs && p.sel[i] == e);

            if (hit >> lane & 1u) {
                p.pair[at + __popc(hit & ((1u << lane) - 1u))] = i;
            }
            at += __popc(hit);
        }
    }
}

static __global__ void __launch_bounds__(1024) router_group(const router_params p)
{
    STEP_SHARED(int, first, 1025);

    group_pairs(p, live_rows(p.n, p.max), first);
}

/* All of it for at most NR rows. */
template <bool F32, int NR>
static __global__ void __launch_bounds__(256, 2) router_once(const router_params p)
{
    STEP_SHARED(int, sel, 8 * KERN_MAX_TOPK);
    STEP_SHARED(int, first, 1025);
    STEP_SHARED(int, last, 1);
    int n = live_rows(p.n, p.max), warp = (int)threadIdx.x >> 5;

    logits_of<F32, NR>(p, n);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last[0] = atomicAdd(p.turn, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last[0]) {
        return;
    }
    __threadfence();
    for (int r = warp; r < n; r += 8) {
        select_row(p, r, sel + warp * KERN_MAX_TOPK);
        __syncwarp();
    }
    __syncthreads();
    group_pairs(p, n, first);
    if (threadIdx.x == 0) {
        *p.turn = 0;
    }
}

template <bool F32> static int launch(struct kern *k, const router_params &p)
{
    int blocks = gpu_ceil(p.n_expert, 8), r;

    if (p.max <= 8) {
        return STEP_LAUNCH(k, (router_once<F32, 8>), blocks, 1, 1, 256, 0, p);
    }
    if (p.max <= 16) {
        return STEP_LAUNCH(k, (router_once<F32, 16>), blocks, 1, 1, 256, 0, p);
    }
    r = STEP_LAUNCH(k, router_logits<F32>, blocks, gpu_ceil(p.max, 16), 1, 256, 0, p);
    if (r == 0) {
        r = STEP_LAUNCH(k, router_select, gpu_ceil(p.max, 8), 1, 1, 256, 0, p);
    }
    return r < 0 ? r : STEP_LAUNCH(k, router_group, 1, 1, 1, 1024, 0, p);
}

extern "C" int gpu_router(struct kern *k, const struct kern_router_args *a)
{
    GPU_PARAMS(router_params, p);

    if (a->n_expert > 1024) {
        return -E2BIG;
    }
    p.n = reinterpret_cast<const int *>(gpu_at(a->rows.n));
    p.x = reinterpret_cast<const float *>(gpu_at(a->x));
    p.w = *gpu_mat_of(a->w);
    if (a->bias != nullptr) {
        p.bias = gpu_mat_of(a->bias)->q;
        p.bias_f32 = gpu_mat_of(a->bias)->format == GPU_F32;
    }
    p.logits = static_cast<float *>(gpu_scratch_get(
        k, GPU_SCRATCH_LOGITS, (size_t)a->rows.max * (size_t)a->n_expert * sizeof(float)));
    p.turn = static_cast<unsigned *>(gpu_scratch_get(k, GPU_SCRATCH_TURNS, sizeof(unsigned)));
    if (p.logits == nullptr || p.turn == nullptr) {
        return -ENOMEM;
    }
    p.sel = reinterpret_cast<int *>(gpu_at(a->sel));
    p.wt = reinterpret_cast<float *>(gpu_at(a->wt));
    p.off = reinterpret_cast<int *>(gpu_at(a->groups.off));
    p.pair = reinterpret_cast<int *>(gpu_at(a->groups.pair));
    p.counts = gpu_of(k)->counts;
    p.scale = a->scale;
    p.renorm = a->renorm;
    p.max = a->rows.max;
    p.n_expert = a->n_expert;
    p.top_k = a->top_k;
    p.vec = reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.w.cols % 4 == 0;
    return p.w.format == GPU_F32 ? launch<true>(k, p) : launch<false>(k, p);
}
