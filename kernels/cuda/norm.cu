/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * norm: the residual addition, RMSNorm with a zero-centred weight, and whether the
 * sum is finite, a block a row, in two passes: a thread meets in the second one the elements that
 * it wrote in the first. Four elements a thread where rows allow 16-byte accesses. Both ways add in
 * the same order: element i belongs to thread i / 4 % 256.
 */

#include "kernels/cuda/dev.cuh"

struct norm_params {
    const int *n;
    float *x;
    const float *delta;
    const void *w;
    unsigned short *out;
    float *out_f32;
    int *bad;
    float eps;
    int max, width, out_stride, w_f32, vec, mark;
};

static __device__ __forceinline__ float weight_at(const norm_params &p, int i)
{
    return p.w_f32 ? static_cast<const float *>(p.w)[i]
                   : quant_bf16_to_f32(static_cast<const unsigned short *>(p.w)[i]);
}

/* Four elements at i; fewer at the end of a row. */
static __device__ __forceinline__ int take(const norm_params &p, const float *from, int i,
                                           float (&v)[4])
{
    int n = p.width - i < 4 ? p.width - i : 4;

    if (p.vec) {
        uint4 q = ld128(from + i);

        v[0] = quant_from_bits(q.x);
        v[1] = quant_from_bits(q.y);
        v[2] = quant_from_bits(q.z);
        v[3] = quant_from_bits(q.w);
        return 4;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[j] = j < n ? from[i + j] : 0.0f;
    }
    return n;
}

static __device__ __forceinline__ void give(const norm_params &p, float *to, int i, int n,
                                            const float (&v)[4])
{
    if (p.vec) {
        st128(to + i, make_uint4(quant_to_bits(v[0]), quant_to_bits(v[1]), quant_to_bits(v[2]),
                                 quant_to_bits(v[3])));
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (j < n) {
            to[i + j] = v[j];
        }
    }
}

/* A sum of squares that is no number may have overflowed: only then each element is looked at. */
static __device__ __forceinline__ void mark_row(const norm_params &p, int r, const float *x,
                                                float *red)
{
    float n = 0;

    for (int i = (int)threadIdx.x * 4; i < p.width; i += 1024) {
        float v[4];

        take(p, x, i, v);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            n += (quant_to_bits(v[j]) & 0x7f800000u) == 0x7f800000u;
        }
    }
    n = block_sum(n, red);
    if (threadIdx.x == 0 && n > 0.0f && p.bad[r] == 0) {
        p.bad[r] = p.mark;
    }
}

static __global__ void __launch_bounds__(256) norm(const norm_params p)
{
    STEP_SHARED(float, red, 2 * 33);
    int r = (int)blockIdx.x;
    float *x = p.x + (size_t)r * (size_t)p.width;
    float sum = 0, scale;

    if (r >= live_rows(p.n, p.max)) {
        return;
    }
    for (int i = (int)threadIdx.x * 4; i < p.width; i += 1024) {
        float v[4], d[4];
        int n = take(p, x, i, v);

        if (p.delta != nullptr) {
            take(p, p.delta + (size_t)r * (size_t)p.width, i, d);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[j] = v[j] + d[j];
            }
            give(p, x, i, n, v);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum = fmaf(v[j], v[j], sum);
        }
    }
    if (p.out == nullptr && p.out_f32 == nullptr && p.bad == nullptr) {
        return;
    }
    sum = block_sum(sum, red);
    if (p.bad != nullptr && (quant_to_bits(sum) & 0x7f800000u) == 0x7f800000u) {
        mark_row(p, r, x, red + 33);
    }
    if (p.out == nullptr && p.out_f32 == nullptr) {
        return;
    }
    scale = 1.0f / sqrtf(sum / (float)p.width + p.eps);
    for (int i = (int)threadIdx.x * 4; i < p.width; i += 1024) {
        float v[4];
        int n = take(p, x, i, v);

#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (j < n) {
                v[j] = v[j] * scale * (1.0f + weight_at(p, i + j));
            }
        }
        if (p.out_f32 != nullptr) {
            give(p, p.out_f32 + (size_t)r * (size_t)p.width, i, n, v);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (p.out != nullptr && j < n) {
                p.out[(size_t)r * (size_t)p.out_stride + i + j] = quant_f32_to_bf16(v[j]);
            }
        }
    }
}

extern "C" int gpu_norm(struct kern *k, const struct kern_norm_args *a)
{
    GPU_PARAMS(norm_params, p);
    uintptr_t all;
    int r = a->delta.buf != nullptr ? gpu_join(k, GPU_JOIN_SUM, a->delta, &a->rows, a->width) : 0;

    p.n = reinterpret_cast<const int *>(gpu_at(a->rows.n));
    p.x = reinterpret_cast<float *>(gpu_at(a->x));
    p.delta = reinterpret_cast<const float *>(gpu_at(a->delta));
    p.out = reinterpret_cast<unsigned short *>(gpu_at(a->out));
    p.out_f32 = reinterpret_cast<float *>(gpu_at(a->out_f32));
    if (p.out != nullptr || p.out_f32 != nullptr) {
        p.w = gpu_mat_of(a->w)->q;
        p.w_f32 = gpu_mat_of(a->w)->format == GPU_F32;
    }
    p.bad = reinterpret_cast<int *>(gpu_at(a->bad));
    p.mark = a->mark;
    p.eps = a->eps;
    p.max = a->rows.max;
    p.width = a->width;
    p.out_stride = a->out_stride;
    all = reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.delta) |
          reinterpret_cast<uintptr_t>(p.out_f32);
    p.vec = all % 16 == 0 && a->width % 4 == 0;
    return r < 0 ? r : STEP_LAUNCH(k, norm, p.max, 1, 1, 256, 0, p);
}
