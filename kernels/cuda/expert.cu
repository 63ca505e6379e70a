/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * expert_up, expert_down: the routed experts, grouped. The host does not know
 * which experts were hit: it launches as many blocks as there can be pieces of
 * work, and each finds its own in off (frag.cuh, find_work). Decode and prefill
 * add in the same order (frag.cuh); a row's experts are added in ascending id.
 *
 *   up    decode (1 to 16 rows): a block is 16 features of one expert, gate and
 *         up together, a warp a slice of K; each hit expert is read once.
 *         Prefill: 64 features by 64 pairs (tile.cuh).
 *   down  decode: a block is 16 outputs of all experts, a warp an expert at a
 *         time; pairs meet in shared memory and are added there. Prefill: 128
 *         outputs by 64 pairs into scratch, then a second launch adds.
 *
 * Decode takes the shared expert along where its weights are BF16, which saves
 * two launches a layer: up as one piece of work more, down as one more expert,
 * added last. Sums and their order are those of linear.cu, to the bit.
 */

#include <errno.h>

#include "kernels/cuda/tile.cuh"

struct expert_params {
    const int *n, *off, *pair;
    const unsigned short *x; /* up: rows; down: pairs */
    unsigned short *h;
    float *out, *by_pair;
    const float *wt;
    unsigned long long *counts;
    gpu_mat gate, up; /* down: gate is the matrix */
    float limit;
    int max, n_expert, top_k, cols, vec;
    /* The shared expert, where `with` is 1. up: its rows are x; down: s_x. */
    int with, s_stride, s_vec;
    gpu_mat s_gate, s_up;
    const unsigned short *s_x;
    unsigned short *s_h;
    float s_limit;
};

static __device__ __forceinline__ void count_work(const expert_params &p, bool two)
{
    if (threadIdx.x == 0) {
        count_add(p.counts, GPU_COUNT_LOADS, 1);
        count_add(p.counts, GPU_COUNT_WEIGHT, p.gate.bytes + (two ? p.up.bytes : 0));
    }
}

/* ---- up, decode ---- */

/* The shared expert's tile blockIdx.x, for every row. */
template <int NT>
static __device__ __forceinline__ void shared_up(const expert_params &p, float *part_sum)
{
    int n = live_rows(p.n, p.max), lane = (int)threadIdx.x & 31;
    const unsigned short *row[NT];

    if (n == 0 || (int)blockIdx.x * GPU_TILE >= p.s_gate.rows) {
        return;
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        count_add(p.counts, GPU_COUNT_WEIGHT, p.s_gate.bytes + p.s_up.bytes);
    }
#pragma unroll
    for (int t = 0; t < NT; t++) {
        int r = t * 8 + lane / 4;

        row[t] = r < n ? p.x + (size_t)r * (size_t)p.cols : nullptr;
    }
    skinny_pair<GPU_BF16, NT>(part_sum, p.s_gate, p.s_up, 0, (int)blockIdx.x, row, p.cols,
                              p.vec != 0, [&](int r, int o, float g, float u) {
                                  if (r < n) {
                                      p.s_h[(size_t)r * (size_t)p.s_gate.rows + o] =
                                          quant_f32_to_bf16(dev_swiglu(g, u, p.s_limit));
                                  }
                              });
}

template <int F, int NT>
static __global__ void __launch_bounds__(256, 2) expert_up_skinny(const expert_params p)
{
    STEP_SHARED(float, part_sum, GPU_SLICES *NT * 256);
    int lane = (int)threadIdx.x & 31;
    const unsigned short *row[NT];

    if ((int)blockIdx.y < p.with) { /* the longest piece comes first */
        shared_up<NT>(p, part_sum);
        return;
    }
    expert_work work = find_work(p.off, p.n_expert, NT * 8, (int)blockIdx.y - p.with);
    if (work.expert < 0 || (int)blockIdx.x * GPU_TILE >= p.gate.rows) {
        return;
    }
    if (blockIdx.x == 0) {
        count_work(p, true);
    }
#pragma unroll
    for (int t = 0; t < NT; t++) {
        int i = t * 8 + lane / 4;

        row[t] = i < work.n ? p.x + (size_t)(p.pair[work.first + i] / p.top_k) * (size_t)p.cols
                            : nullptr;
    }
    skinny_pair<F, NT>(part_sum, p.gate, p.up, work.expert, (int)blockIdx.x, row, p.cols,
                       p.vec != 0, [&](int i, int o, float g, float u) {
                           if (i < work.n) {
                               p.h[(size_t)p.pair[work.first + i] * (size_t)p.gate.rows + o] =
                                   quant_f32_to_bf16(dev_swiglu(g, u, p.limit));
                           }
                       });
}

/* ---- up, prefill ---- */

template <int F>
static __global__ void __launch_bounds__(256, 1) expert_up_tile(const expert_params p)
{
    STEP_SHARED(unsigned short, xs, TILE_SMEM);
    expert_work work = find_work(p.off, p.n_expert, TILE_ROWS, (int)blockIdx.y);
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    int tile = (int)blockIdx.x * 4 + warp / 2;
    tile_weights m[2] = {{&p.gate, work.expert, tile}, {&p.up, work.expert, tile}};
    const int *pair = p.pair + work.first;
    float total[2][4][4];

    if (work.expert < 0) {
        return;
    }
    if (blockIdx.x == 0) {
        count_work(p, true);
    }
    tile_products<F>(m, p.cols, p.vec != 0, work.n, xs, total, [&](int r) {
        return r < work.n ? p.x + (size_t)(pair[r] / p.top_k) * (size_t)p.cols : nullptr;
    });
#pragma unroll
    for (int a = 0; a < 16; a++) {
        int r = tile_row(a), o = tile * GPU_TILE + lane / 4 + 8 * (a % 4 >> 1);

        if (r < work.n && o < p.gate.rows) {
            float g = finish_sum<F>(p.gate, work.expert, total[0][a / 4][a % 4]);
            float u = finish_sum<F>(p.up, work.expert, total[1][a / 4][a % 4]);

            p.h[(size_t)pair[r] * (size_t)p.gate.rows + o] =
                quant_f32_to_bf16(dev_swiglu(g, u, p.limit));
        }
    }
}

/* ---- down, decode ---- */

/* A warp's tile of w times up to 8 NT rows: emit(r, o, sum), slices in ascending order. */
template <int F, int NT, class Emit>
static __device__ __forceinline__ void down_tile(const gpu_mat &w, int expert, int tile,
                                                 const unsigned short *const (&row)[NT], int cols,
                                                 bool vec, const Emit &emit)
{
    int lane = (int)threadIdx.x & 31, per = slice_groups(w.groups);
    float c[NT][4], total[NT][4];

#pragma unroll
    for (int t = 0; t < NT; t++) {
        c[t][0] = c[t][1] = c[t][2] = c[t][3] = 0;
        total[t][0] = total[t][1] = total[t][2] = total[t][3] = 0;
    }
    for (int g = 0; g < w.groups; g++) {
        wgroup<F> v;
        int at = g * GPU_GROUP + lane % 4 * 8;

        v.load(w, expert, tile, g, lane);
        group_add<F, NT>(v, c, NT,
                         [&](int j, int t) { return x_eight(row[t], at + 32 * j, cols, vec); });
        if ((g + 1) % per == 0 || g + 1 == w.groups) {
#pragma unroll
            for (int a = 0; a < NT * 4; a++) {
                float &sum = total[a / 4][a % 4];

                sum = g < per ? c[a / 4][a % 4] : sum + c[a / 4][a % 4];
                c[a / 4][a % 4] = 0;
            }
        }
    }
#pragma unroll
    for (int a = 0; a < NT * 4; a++) {
        int r = a / 4 * 8 + 2 * (lane & 3) + (a & 1), o = lane / 4 + 8 * (a % 4 >> 1);

        emit(r, o, finish_sum<F>(w, expert, total[a / 4][a % 4]));
    }
}

/* The shared expert's part of y: [row][16] behind the pairs. */
template <int NT>
static __device__ __forceinline__ void shared_down(const expert_params &p, int n, float *y)
{
    int lane = (int)threadIdx.x & 31, tile = (int)blockIdx.x;
    const unsigned short *row[NT];

    if (tile == 0 && lane == 0) {
        count_add(p.counts, GPU_COUNT_WEIGHT, p.s_gate.bytes);
    }
#pragma unroll
    for (int t = 0; t < NT; t++) {
        int r = t * 8 + lane / 4;

        row[t] = r < n ? p.s_x + (size_t)r * (size_t)p.s_stride : nullptr;
    }
    down_tile<GPU_BF16, NT>(p.s_gate, 0, tile, row, p.s_gate.cols, p.s_vec != 0,
                            [&](int r, int o, float sum) {
                                if (r < n) {
                                    y[(p.max * p.top_k + r) * 16 + o] = sum;
                                }
                            });
}

template <int F, int NT>
static __global__ void __launch_bounds__(256, 2) expert_down_skinny(const expert_params p)
{
    STEP_DYN_SHARED(float, y); /* [pair][16] */
    int n = live_rows(p.n, p.max);
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, tile = (int)blockIdx.x;

    if (n == 0) {
        return;
    }
    for (int i = warp;; i += (int)blockDim.x / 32) {
        const unsigned short *row[NT];

        if (i < p.with) {
            shared_down<NT>(p, n, y);
            continue;
        }
        expert_work work = find_work(p.off, p.n_expert, NT * 8, i - p.with);

        if (work.expert < 0) {
            break;
        }
        if (tile == 0 && lane == 0) {
            count_add(p.counts, GPU_COUNT_LOADS, 1);
            count_add(p.counts, GPU_COUNT_WEIGHT, p.gate.bytes);
        }
#pragma unroll
        for (int t = 0; t < NT; t++) {
            int at = t * 8 + lane / 4;

            row[t] = at < work.n ? p.x + (size_t)p.pair[work.first + at] * (size_t)p.cols : nullptr;
        }
        down_tile<F, NT>(p.gate, work.expert, tile, row, p.cols, p.vec != 0,
                         [&](int r, int o, float sum) {
                             if (r < work.n) {
                                 y[p.pair[work.first + r] * 16 + o] = sum;
                             }
                         });
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < n * 16; at += (int)blockDim.x) {
        int r = at / 16, o = tile * GPU_TILE + at % 16;
        float sum = 0;

        for (int j = 0; j < p.top_k; j++) {
            sum = fmaf(p.wt[r * p.top_k + j], y[(r * p.top_k + j) * 16 + at % 16], sum);
        }
        sum = p.with ? sum + y[(p.max * p.top_k + r) * 16 + at % 16] : sum;
        if (o < p.gate.rows) {
            p.out[(size_t)r * (size_t)p.gate.rows + o] = sum;
        }
    }
}

/* ---- down, prefill ---- */

template <int F>
static __global__ void __launch_bounds__(256, 1) expert_down_tile(const expert_params p)
{
    STEP_SHARED(unsigned short, xs, TILE_SMEM);
    expert_work work = find_work(p.off, p.n_expert, TILE_ROWS, (int)blockIdx.y);
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    int tile = (int)blockIdx.x * (TILE_OUT / GPU_TILE) + warp / 2 * 2;
    tile_weights m[2] = {{&p.gate, work.expert, tile}, {&p.gate, work.expert, tile + 1}};
    const int *pair = p.pair + work.first;
    float total[2][4][4];

    if (work.expert < 0) {
        return;
    }
    if (blockIdx.x == 0) {
        count_work(p, false);
    }
    tile_products<F>(m, p.cols, p.vec != 0, work.n, xs, total, [&](int r) {
        return r < work.n ? p.x + (size_t)pair[r] * (size_t)p.cols : nullptr;
    });
#pragma unroll
    for (int a = 0; a < 32; a++) {
        int r = tile_row(a), o = (tile + a / 16) * GPU_TILE + lane / 4 + 8 * (a % 4 >> 1);

        if (r < work.n && o < p.gate.rows) {
            p.by_pair[(size_t)pair[r] * (size_t)p.gate.rows + o] =
                finish_sum<F>(p.gate, work.expert, total[a / 16][a / 4 % 4][a % 4]);
        }
    }
}

static __global__ void __launch_bounds__(256) expert_add(const expert_params p)
{
    int r = (int)blockIdx.y, width = p.gate.rows;

    if (r >= live_rows(p.n, p.max)) {
        return;
    }
#pragma unroll
    for (int i = 0; i < 1024; i += 256) {
        int c = (int)blockIdx.x * 1024 + (int)threadIdx.x + i;
        float sum = 0;

        if (c < width) {
            for (int j = 0; j < p.top_k; j++) {
                size_t pair = (size_t)r * (size_t)p.top_k + (size_t)j;

                sum = fmaf(p.wt[pair], p.by_pair[pair * (size_t)width + c], sum);
            }
            p.out[(size_t)r * (size_t)width + c] = sum;
        }
    }
}

/* ---- launches ---- */

#define DECODE_ROWS 16

/* Pieces of work that there can be at most. */
static int max_work(const expert_params &p, int tile)
{
    int pairs = p.max * p.top_k, hit = gpu_min(p.n_expert, pairs);

    return tile >= p.max ? hit : hit + pairs / tile;
}

template <int F> static int launch_up(struct kern *k, const expert_params &p)
{
    int tiles = gpu_ceil(p.gate.rows, GPU_TILE), threads = 32 * n_slices(p.gate.groups);
    int wide = gpu_max(tiles, p.with * gpu_ceil(p.s_gate.rows, GPU_TILE));

    if (p.max <= 8) {
        return STEP_LAUNCH(k, (expert_up_skinny<F, 1>), wide, p.with + max_work(p, 8), 1, threads,
                           0, p);
    }
    if (p.max <= DECODE_ROWS) {
        return STEP_LAUNCH(k, (expert_up_skinny<F, 2>), wide, p.with + max_work(p, 16), 1, threads,
                           0, p);
    }
    return STEP_LAUNCH(k, (expert_up_tile<F>), gpu_ceil(tiles, 4), max_work(p, TILE_ROWS), 1, 256,
                       0, p);
}

template <int F> static int launch_down(struct kern *k, const expert_params &p)
{
    int tiles = gpu_ceil(p.gate.rows, GPU_TILE), r;
    size_t smem = (size_t)p.max * (size_t)(p.top_k + p.with) * 16 * sizeof(float);
    int threads = 32 * gpu_min(8, p.with + gpu_min(p.n_expert, p.max * p.top_k));

    if (p.max <= 8) {
        return STEP_LAUNCH(k, (expert_down_skinny<F, 1>), tiles, 1, 1, threads, smem, p);
    }
    if (p.max <= DECODE_ROWS) {
        return STEP_LAUNCH(k, (expert_down_skinny<F, 2>), tiles, 1, 1, threads, smem, p);
    }
    r = STEP_LAUNCH(k, (expert_down_tile<F>), gpu_ceil(p.gate.rows, TILE_OUT),
                    max_work(p, TILE_ROWS), 1, 256, 0, p);
    return r < 0 ? r : STEP_LAUNCH(k, expert_add, gpu_ceil(p.gate.rows, 1024), p.max, 1, 256, 0, p);
}

static expert_params params(struct kern *k, const struct kern_rows *rows,
                            const struct kern_groups *g, struct kern_ptr x,
                            const struct kern_weight *w, int top_k)
{
    GPU_PARAMS(expert_params, p);
    p.n = reinterpret_cast<const int *>(gpu_at(rows->n));
    p.max = rows->max;
    p.off = reinterpret_cast<const int *>(gpu_at(g->off));
    p.pair = reinterpret_cast<const int *>(gpu_at(g->pair));
    p.x = reinterpret_cast<const unsigned short *>(gpu_at(x));
    p.gate = *gpu_mat_of(w);
    p.counts = gpu_of(k)->counts;
    p.n_expert = w->desc.experts;
    p.top_k = top_k;
    p.cols = p.gate.cols;
    p.vec = reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.cols % 8 == 0;
    return p;
}

static int up_of_format(struct kern *k, const expert_params &p)
{
    switch (p.gate.format) {
    case GPU_BF16:
        return launch_up<GPU_BF16>(k, p);
    case GPU_MXFP4:
        return launch_up<GPU_MXFP4>(k, p);
    case GPU_NVFP4:
        return launch_up<GPU_NVFP4>(k, p);
    case GPU_FP8:
        return launch_up<GPU_FP8>(k, p);
    default:
        return -EOPNOTSUPP;
    }
}

extern "C" int gpu_expert_up(struct kern *k, const struct kern_expert_up_args *a)
{
    expert_params p = params(k, &a->rows, &a->groups, a->x, a->gate, a->top_k);
    const struct kern_mlp_up_args *s = a->shared;
    int r;

    p.up = *gpu_mat_of(a->up);
    p.h = reinterpret_cast<unsigned short *>(gpu_at(a->h));
    p.limit = a->limit;
    if (p.up.format != p.gate.format) {
        return -EOPNOTSUPP;
    }
    if (s != nullptr && p.max <= DECODE_ROWS && gpu_mat_of(s->gate)->format == GPU_BF16 &&
        gpu_mat_of(s->up)->format == GPU_BF16 && gpu_at(s->x) == gpu_at(a->x)) {
        p.with = 1;
        p.s_gate = *gpu_mat_of(s->gate);
        p.s_up = *gpu_mat_of(s->up);
        p.s_h = reinterpret_cast<unsigned short *>(gpu_at(s->out));
        p.s_limit = s->limit;
    }
    r = up_of_format(k, p);
    return r < 0 || s == nullptr || p.with ? r : gpu_mlp_up(k, s);
}

static int down_of_format(struct kern *k, const expert_params &p)
{
    switch (p.gate.format) {
    case GPU_BF16:
        return launch_down<GPU_BF16>(k, p);
    case GPU_MXFP4:
        return launch_down<GPU_MXFP4>(k, p);
    case GPU_NVFP4:
        return launch_down<GPU_NVFP4>(k, p);
    case GPU_FP8:
        return launch_down<GPU_FP8>(k, p);
    default:
        return -EOPNOTSUPP;
    }
}

extern "C" int gpu_expert_down(struct kern *k, const struct kern_expert_down_args *a)
{
    expert_params p = params(k, &a->rows, &a->groups, a->h, a->down, a->top_k);
    const struct kern_linear_args *s = a->shared;
    int r;

    p.wt = reinterpret_cast<const float *>(gpu_at(a->wt));
    p.out = reinterpret_cast<float *>(gpu_at(a->out));
    if (s != nullptr && p.max <= DECODE_ROWS && gpu_mat_of(s->part[0].w)->format == GPU_BF16) {
        p.with = 1;
        p.s_gate = *gpu_mat_of(s->part[0].w);
        p.s_x = reinterpret_cast<const unsigned short *>(gpu_at(s->x));
        p.s_stride = s->x_stride;
        p.s_vec = reinterpret_cast<uintptr_t>(p.s_x) % 16 == 0 && s->x_stride % 8 == 0 &&
                  s->cols % 8 == 0;
    }
    if (p.max > DECODE_ROWS) {
        p.by_pair = static_cast<float *>(
            gpu_scratch_get(k, GPU_SCRATCH_PAIRS,
                            (size_t)p.max * (size_t)p.top_k * (size_t)p.gate.rows * sizeof(float)));
        if (p.by_pair == nullptr) {
            return -ENOMEM;
        }
    }
    r = down_of_format(k, p);
    return r < 0 || s == nullptr || p.with ? r : gpu_linear(k, s);
}
