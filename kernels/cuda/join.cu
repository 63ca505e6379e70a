/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The two sides of a gathering (nccl.c), a thread an element: this rank's columns
 * cut out of rows, and what came from all ranks [rank][row][part] added in
 * ascending rank order, or laid side by side. The last rank's part may be padded.
 */

#include "kernels/cuda/dev.cuh"

#define THREADS 256

struct join_params {
    const int *n;
    float *x;         /* [row][width] */
    float *own;       /* [row][part] */
    const float *all; /* [rank][row][part] */
    int max, width, part, rank, ranks;
};

static __global__ void __launch_bounds__(THREADS) join_cut(const join_params p)
{
    int r = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int col = p.rank * p.part + i;

    if (r < live_rows(p.n, p.max) && i < p.part) {
        p.own[(size_t)r * (size_t)p.part + (size_t)i] =
            col < p.width ? p.x[(size_t)r * (size_t)p.width + (size_t)col] : 0.0f;
    }
}

static __global__ void __launch_bounds__(THREADS) join_lay(const join_params p)
{
    int r = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    size_t from = (size_t)(i / p.part) * (size_t)p.max + (size_t)r;

    if (r < live_rows(p.n, p.max) && i < p.width) {
        p.x[(size_t)r * (size_t)p.width + (size_t)i] =
            p.all[from * (size_t)p.part + (size_t)(i % p.part)];
    }
}

static __global__ void __launch_bounds__(THREADS) join_add(const join_params p)
{
    int r = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    size_t at = (size_t)r * (size_t)p.width + (size_t)i;
    float sum;

    if (r >= live_rows(p.n, p.max) || i >= p.width) {
        return;
    }
    sum = p.all[at];
#pragma unroll 1
    for (int rank = 1; rank < p.ranks; rank++) {
        sum += p.all[(size_t)rank * (size_t)p.max * (size_t)p.width + at];
    }
    p.x[at] = sum;
}

static void fill_in(struct kern *k, struct kern_ptr x, const struct kern_rows *rows, int width,
                    join_params *ret)
{
    const struct rt_info *info = &gpu_of(k)->info;

    ret->n = reinterpret_cast<const int *>(gpu_at(rows->n));
    ret->x = reinterpret_cast<float *>(gpu_at(x));
    ret->max = rows->max;
    ret->width = width;
    ret->rank = info->rank;
    ret->ranks = info->n_ranks;
}

extern "C" int gpu_join_cut(struct kern *k, struct kern_ptr x, const struct kern_rows *rows,
                            int width, int part, float *own)
{
    GPU_PARAMS(join_params, p);
    fill_in(k, x, rows, width, &p);
    p.part = part;
    p.own = own;
    return STEP_LAUNCH(k, join_cut, gpu_ceil(part, THREADS), p.max, 1, THREADS, 0, p);
}

extern "C" int gpu_join_lay(struct kern *k, struct kern_ptr x, const struct kern_rows *rows,
                            int width, int part, const float *all)
{
    GPU_PARAMS(join_params, p);
    fill_in(k, x, rows, width, &p);
    p.part = part;
    p.all = all;
    return STEP_LAUNCH(k, join_lay, gpu_ceil(width, THREADS), p.max, 1, THREADS, 0, p);
}

extern "C" int gpu_join_add(struct kern *k, struct kern_ptr x, const struct kern_rows *rows,
                            int width, const float *all)
{
    GPU_PARAMS(join_params, p);
    fill_in(k, x, rows, width, &p);
    p.all = all;
    return STEP_LAUNCH(k, join_add, gpu_ceil(width, THREADS), p.max, 1, THREADS, 0, p);
}
