/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * linear: BF16 rows times weights of any format, up to four weights that share
 * the rows in one launch. Two schedules of the order in frag.cuh, equal to the
 * bit:
 *
 *   skinny  1 to 16 rows: a block is a tile of 16 outputs, a warp is a slice of
 *           K; weights go from memory straight into fragments, 16 bytes a lane,
 *           each read once; slices are folded through shared memory.
 *   tile    more rows: a block is 128 outputs by 64 rows (tile.cuh).
 *
 * Gate and up of an MLP, decode: a block has a tile of both and makes swiglu of
 * them, which saves a launch a layer (gpu_mlp_up).
 *
 * F32 weights (none of the published checkpoints) take plain fused
 * multiply-adds, a warp an output.
 *
 * Tried: nothing was measured yet; ROOFLINE.md says what is expected and why.
 */

#include "kernels/cuda/tile.cuh"

struct linear_params {
    const int *n;
    const unsigned short *x;
    unsigned long long *counts;
    struct {
        gpu_mat w;
        float *out;
        int out_stride;
        int tile0; /* the first block of this part */
    } part[KERN_MAX_PARTS];
    int max, x_stride, cols, n_parts, add, vec;
    unsigned short *act; /* mlp_up: swiglu of parts 0 and 1 */
    float limit;
};

/* The part of a block, by its number. */
static __device__ __forceinline__ int part_of(const linear_params &p, int block)
{
    int i = 0;

    while (i + 1 < p.n_parts && block >= p.part[i + 1].tile0) {
        i++;
    }
    return i;
}

static __device__ __forceinline__ void put(float *at, float v, int add)
{
    *at = add ? *at + v : v;
}

static __device__ __forceinline__ void count_weight(const linear_params &p, int i, int n, int tile)
{
    if (threadIdx.x == 0 && blockIdx.y == 0 && (int)blockIdx.x == p.part[i].tile0) {
        count_add(p.counts, GPU_COUNT_WEIGHT,
                  (unsigned long long)p.part[i].w.bytes * (unsigned)((n + tile - 1) / tile));
    }
}

template <int F, int NT>
static __global__ void __launch_bounds__(256, 2) linear_skinny(const linear_params p)
{
    STEP_SHARED(float, part_sum, GPU_SLICES *NT * 128);
    int n = live_rows(p.n, p.max), i = part_of(p, (int)blockIdx.x);
    const gpu_mat &w = p.part[i].w;
    int lane = (int)threadIdx.x & 31, slice = (int)threadIdx.x >> 5;
    int tile = (int)blockIdx.x - p.part[i].tile0, per = slice_groups(w.groups);
    int end = (slice + 1) * per < w.groups ? (slice + 1) * per : w.groups;
    const unsigned short *row[NT];
    float c[NT][4];

    if (n == 0) {
        return;
    }
    count_weight(p, i, n, NT * 8);
#pragma unroll
    for (int t = 0; t < NT; t++) {
        int r = t * 8 + lane / 4;

        row[t] = r < n ? p.x + (size_t)r * (size_t)p.x_stride : nullptr;
        c[t][0] = c[t][1] = c[t][2] = c[t][3] = 0;
    }
#pragma unroll 2
    for (int g = slice * per; g < end; g++) {
        wgroup<F> v;
        int at = g * GPU_GROUP + lane % 4 * 8;

        v.load(w, 0, tile, g, lane);
        group_add<F, NT>(v, c, NT, [&](int j, int t) {
            return x_eight(row[t], at + 32 * j, p.cols, p.vec != 0);
        });
    }
#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int r = 2 * (lane & 3) + (e & 1), o = lane / 4 + 8 * (e >> 1);

            part_sum[(slice * NT + t) * 128 + r * 16 + o] = c[t][e];
        }
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < NT * 128; at += (int)blockDim.x) {
        int r = at / 16, o = tile * GPU_TILE + at % 16;
        float sum = part_sum[at];

        for (int s = 1; s < (int)blockDim.x / 32; s++) {
            sum += part_sum[s * NT * 128 + at];
        }
        if (r < n && o < w.rows) {
            put(p.part[i].out + (size_t)r * (size_t)p.part[i].out_stride + o,
                finish_sum<F>(w, 0, sum), p.add);
        }
    }
}

/* Tile blockIdx.x of gate and of up, the sums as linear_skinny's. */
template <int F, int NT>
static __global__ void __launch_bounds__(256, 1) linear_swiglu(const linear_params p)
{
    STEP_SHARED(float, part_sum, GPU_SLICES *NT * 256);
    int n = live_rows(p.n, p.max), lane = (int)threadIdx.x & 31, rows = p.part[0].w.rows;
    const unsigned short *row[NT];

    if (n == 0) {
        return;
    }
    count_weight(p, 0, n, NT * 8);
    count_weight(p, 1, n, NT * 8);
#pragma unroll
    for (int t = 0; t < NT; t++) {
        int r = t * 8 + lane / 4;

        row[t] = r < n ? p.x + (size_t)r * (size_t)p.x_stride : nullptr;
    }
    skinny_pair<F, NT>(part_sum, p.part[0].w, p.part[1].w, 0, (int)blockIdx.x, row, p.cols,
                       p.vec != 0, [&](int r, int o, float g, float u) {
                           if (r < n) {
                               p.act[(size_t)r * (size_t)rows + o] =
                                   quant_f32_to_bf16(dev_swiglu(g, u, p.limit));
                           }
                       });
}

/* ---- many rows ---- */

template <int F> static __global__ void __launch_bounds__(256, 1) linear_tile(const linear_params p)
{
    STEP_SHARED(unsigned short, xs, TILE_SMEM);
    int n = live_rows(p.n, p.max), i = part_of(p, (int)blockIdx.x);
    const gpu_mat &w = p.part[i].w;
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    int row0 = (int)blockIdx.y * TILE_ROWS;
    int tile = ((int)blockIdx.x - p.part[i].tile0) * (TILE_OUT / GPU_TILE) + warp / 2 * 2;
    tile_weights m[2] = {{&w, 0, tile}, {&w, 0, tile + 1}};
    float total[2][4][4];

    if (row0 >= n) {
        return;
    }
    count_weight(p, i, n, TILE_ROWS);
    tile_products<F>(m, p.cols, p.vec != 0, n - row0, xs, total, [&](int r) {
        return r < n - row0 ? p.x + (size_t)(row0 + r) * (size_t)p.x_stride : nullptr;
    });
#pragma unroll
    for (int a = 0; a < 32; a++) {
        int r = row0 + tile_row(a), o = (tile + a / 16) * GPU_TILE + lane / 4 + 8 * (a % 4 >> 1);

        if (r < n && o < w.rows) {
            put(p.part[i].out + (size_t)r * (size_t)p.part[i].out_stride + o,
                finish_sum<F>(w, 0, total[a / 16][a / 4 % 4][a % 4]), p.add);
        }
    }
}

/* ---- F32 weights: a warp an output, lanes take every 32nd column ---- */

static __global__ void __launch_bounds__(256) linear_f32(const linear_params p)
{
    int n = live_rows(p.n, p.max), i = part_of(p, (int)blockIdx.x), r = (int)blockIdx.y;
    const gpu_mat &w = p.part[i].w;
    int lane = (int)threadIdx.x & 31;
    int o = ((int)blockIdx.x - p.part[i].tile0) * 8 + ((int)threadIdx.x >> 5);
    const float *at = reinterpret_cast<const float *>(w.q) + (size_t)o * (size_t)w.pitch;
    float sum = 0;

    if (r >= n || o >= w.rows) {
        return;
    }
    count_weight(p, i, n, 1);
    for (int c = lane; c < p.cols; c += 32) {
        sum = fmaf(quant_bf16_to_f32(p.x[(size_t)r * (size_t)p.x_stride + c]), at[c], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        put(p.part[i].out + (size_t)r * (size_t)p.part[i].out_stride + o, sum, p.add);
    }
}

/* ---- launches ---- */

template <int F> static int launch(struct kern *k, const linear_params &p, int tiles, int groups)
{
    unsigned threads = 32u * (unsigned)n_slices(groups);

    if (F == GPU_F32) {
        return STEP_LAUNCH(k, linear_f32, tiles, p.max, 1, 256, 0, p);
    }
    if constexpr (F != GPU_F32) {
        if (p.max <= 8) {
            return STEP_LAUNCH(k, (linear_skinny<F, 1>), tiles, 1, 1, threads, 0, p);
        }
        if (p.max <= 16) {
            return STEP_LAUNCH(k, (linear_skinny<F, 2>), tiles, 1, 1, threads, 0, p);
        }
        return STEP_LAUNCH(k, (linear_tile<F>), tiles, gpu_ceil(p.max, TILE_ROWS), 1, 256, 0, p);
    }
    return 0;
}

static void set_input(linear_params *p, struct kern *k, const struct kern_rows *rows,
                      struct kern_ptr x, int stride, int cols)
{
    p->n = reinterpret_cast<const int *>(gpu_at(rows->n));
    p->x = reinterpret_cast<const unsigned short *>(gpu_at(x));
    p->counts = gpu_of(k)->counts;
    p->max = rows->max;
    p->x_stride = stride;
    p->cols = cols;
    p->vec = reinterpret_cast<uintptr_t>(p->x) % 16 == 0 && stride % 8 == 0 && cols % 8 == 0;
}

/* Parts of one format share a launch. */
static int linear_parts(struct kern *k, const struct kern_linear_args *a, int format,
                        unsigned taken)
{
    GPU_PARAMS(linear_params, p);
    int tiles = 0, groups = gpu_ceil(a->cols, GPU_GROUP);
    int outs = format == GPU_F32 ? 8 : a->rows.max <= 16 ? GPU_TILE : TILE_OUT;

    set_input(&p, k, &a->rows, a->x, a->x_stride, a->cols);
    p.add = a->add;
    for (int i = 0; i < a->n_parts; i++) {
        const gpu_mat *w = gpu_mat_of(a->part[i].w);

        if (w->format != format || (taken >> i & 1u) != 0) {
            continue;
        }
        p.part[p.n_parts].w = *w;
        p.part[p.n_parts].out = reinterpret_cast<float *>(gpu_at(a->part[i].out));
        p.part[p.n_parts].out_stride = a->part[i].out_stride;
        p.part[p.n_parts].tile0 = tiles;
        tiles += gpu_ceil(w->rows, outs);
        p.n_parts++;
    }
    if (p.n_parts == 0) {
        return 0;
    }
    switch (format) {
    case GPU_BF16:
        return launch<GPU_BF16>(k, p, tiles, groups);
    case GPU_MXFP4:
        return launch<GPU_MXFP4>(k, p, tiles, groups);
    case GPU_NVFP4:
        return launch<GPU_NVFP4>(k, p, tiles, groups);
    case GPU_FP8:
        return launch<GPU_FP8>(k, p, tiles, groups);
    case GPU_COMPACT:
        return launch<GPU_COMPACT>(k, p, tiles, groups);
    default:
        return launch<GPU_F32>(k, p, tiles, groups);
    }
}

extern "C" int gpu_linear(struct kern *k, const struct kern_linear_args *a)
{
    unsigned taken;
    int r = gpu_lt_linear(k, a, &taken);

    for (int f = GPU_BF16; r == 0 && f <= GPU_F32; f++) {
        r = linear_parts(k, a, f, taken);
    }
    return r;
}

template <int F> static int launch_swiglu(struct kern *k, const linear_params &p)
{
    int tiles = gpu_ceil(p.part[0].w.rows, GPU_TILE);
    unsigned threads = 32u * (unsigned)n_slices(p.part[0].w.groups);

    return p.max <= 8 ? STEP_LAUNCH(k, (linear_swiglu<F, 1>), tiles, 1, 1, threads, 0, p)
                      : STEP_LAUNCH(k, (linear_swiglu<F, 2>), tiles, 1, 1, threads, 0, p);
}

/* Prefill and F32 weights: one op after the other. */
static int mlp_up_in_two(struct kern *k, const struct kern_mlp_up_args *a)
{
    GPU_PARAMS(kern_linear_args, in);
    GPU_PARAMS(kern_swiglu_args, act);
    int r;

    in.rows = act.rows = a->rows;
    in.cols = in.x_stride = a->cols;
    in.x = a->x;
    in.n_parts = 2;
    in.part[0].w = a->gate;
    in.part[0].out = act.gate = a->gate_out;
    in.part[1].w = a->up;
    in.part[1].out = act.up = a->up_out;
    in.part[0].out_stride = in.part[1].out_stride = act.width = a->gate->desc.rows;
    act.limit = a->limit;
    act.out = a->out;
    r = gpu_linear(k, &in);
    return r < 0 ? r : gpu_swiglu(k, &act);
}

extern "C" int gpu_mlp_up(struct kern *k, const struct kern_mlp_up_args *a)
{
    GPU_PARAMS(linear_params, p);
    int format = gpu_mat_of(a->gate)->format;

    if (a->rows.max > 16 || format == GPU_F32 || format != gpu_mat_of(a->up)->format) {
        return mlp_up_in_two(k, a);
    }
    set_input(&p, k, &a->rows, a->x, a->cols, a->cols);
    p.n_parts = 2;
    p.part[0].w = *gpu_mat_of(a->gate);
    p.part[1].w = *gpu_mat_of(a->up);
    p.act = reinterpret_cast<unsigned short *>(gpu_at(a->out));
    p.limit = a->limit;
    switch (format) {
    case GPU_BF16:
        return launch_swiglu<GPU_BF16>(k, p);
    case GPU_MXFP4:
        return launch_swiglu<GPU_MXFP4>(k, p);
    case GPU_NVFP4:
        return launch_swiglu<GPU_NVFP4>(k, p);
    case GPU_COMPACT:
        return launch_swiglu<GPU_COMPACT>(k, p);
    default:
        return launch_swiglu<GPU_FP8>(k, p);
    }
}
