/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * qkv: per-head RMSNorm and RoPE of q and k, and k and v into the paged cache.
 * A warp a head; a block is 8 of a row's H + 2 G heads. A lane holds four
 * elements, 32 apart; partners of a rotation meet in shared memory.
 *
 * Angles reach 10^5 and more: they are reduced by pi/2 in three parts, exactly
 * in the first (sincosf would take a slow path through local memory).
 */

#include "kernels/cuda/dev.cuh"

#define D KERN_HEAD_DIM

struct qkv_params {
    const int *n, *slot, *seq, *table, *first_page;
    char *pages;
    const float *freq, *q, *k, *v;
    const void *q_norm, *k_norm;
    unsigned short *q_out;
    unsigned long long *counts;
    size_t page_bytes;
    float eps;
    int max, n_head, n_kv, n_seq, n_pages, max_pages, n_freq, pos_shift, q_f32, k_f32;
};

/* sin and cos of an angle up to 2^22 or so, to about an ulp of 1. */
static __device__ void sin_cos(float x, float *ret_s, float *ret_c)
{
    float k = rintf(x * 0.636619772f);
    int quadrant = (int)k;
    float r = fmaf(-k, 1.57079637f, x), r2, s, c, t;

    r = fmaf(-k, -4.37113883e-8f, r);
    r = fmaf(-k, -1.71512489e-15f, r);
    r2 = r * r;
    s = fmaf(r2, 2.75573192e-6f, -1.98412698e-4f);
    s = fmaf(s, r2, 8.33333333e-3f);
    s = fmaf(s, r2, -1.66666667e-1f);
    s = fmaf(s * r2, r, r);
    c = fmaf(r2, 2.48015873e-5f, -1.38888889e-3f);
    c = fmaf(c, r2, 4.16666667e-2f);
    c = fmaf(c, r2, -0.5f);
    c = fmaf(c, r2, 1.0f);
    t = (quadrant & 1) != 0 ? c : s;
    c = (quadrant & 1) != 0 ? s : c;
    *ret_s = (quadrant & 2) != 0 ? -t : t;
    *ret_c = ((quadrant + 1) & 2) != 0 ? -c : c;
}

/* Norm and rotation of one head by one warp; y is the warp's 128 floats of shared memory. */
static __device__ void head(const qkv_params &p, const float *x, const void *w, int w_f32, int pos,
                            float *y, unsigned short *to)
{
    int lane = (int)threadIdx.x & 31;
    float v[4], sum = 0, scale;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = x[lane + 32 * i];
        sum = fmaf(v[i], v[i], sum);
    }
    scale = 1.0f / sqrtf(warp_sum(sum) / (float)D + p.eps);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int c = lane + 32 * i;
        float g = w_f32 ? static_cast<const float *>(w)[c]
                        : quant_bf16_to_f32(static_cast<const unsigned short *>(w)[c]);

        y[c] = v[i] * scale * (1.0f + g);
    }
    __syncwarp();
    for (int j = lane; j < p.n_freq; j += 32) {
        float a = y[j], b = y[j + p.n_freq], s, c;

        sin_cos((float)pos * p.freq[j], &s, &c);
        y[j] = fmaf(a, c, -(b * s));
        y[j + p.n_freq] = fmaf(b, c, a * s);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[lane + 32 * i] = quant_f32_to_bf16(y[lane + 32 * i]);
    }
}

static __global__ void __launch_bounds__(256) qkv(const qkv_params p)
{
    STEP_SHARED(float, y, 8 * D);
    int r = (int)blockIdx.y, warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
    int h = (int)blockIdx.x * 8 + warp, g = h - p.n_head;

    if (r >= live_rows(p.n, p.max) || h >= p.n_head + 2 * p.n_kv) {
        return;
    }
    int slot = p.slot[r], seq = p.seq[r], column, page;

    if (h < p.n_head) {
        size_t at = ((size_t)r * (size_t)p.n_head + (size_t)h) * D;

        head(p, p.q + at, p.q_norm, p.q_f32, slot + p.pos_shift, y + warp * D, p.q_out + at);
        return;
    }
    if (seq < 0 || seq >= p.n_seq) {
        fault_set(p.counts, GPU_FAULT_QKV_PAGE, r, slot);
        return;
    }
    column = slot / KERN_PAGE_TOK - p.first_page[seq];
    page = column >= 0 && column < p.max_pages ? p.table[seq * p.max_pages + column] : -1;
    if (page < 0 || page >= p.n_pages) {
        fault_set(p.counts, GPU_FAULT_QKV_PAGE, r, slot);
        return;
    }
    unsigned short *to = reinterpret_cast<unsigned short *>(p.pages + (size_t)page * p.page_bytes) +
                         ((size_t)g * KERN_PAGE_TOK + slot % KERN_PAGE_TOK) * D;

    if (g < p.n_kv) {
        head(p, p.k + ((size_t)r * (size_t)p.n_kv + (size_t)g) * D, p.k_norm, p.k_f32,
             slot + p.pos_shift, y + warp * D, to);
        return;
    }
    /* V follows the K of all heads: g counts on through both. */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[lane + 32 * i] = quant_f32_to_bf16(
            p.v[((size_t)r * (size_t)p.n_kv + (size_t)(g - p.n_kv)) * D + lane + 32 * i]);
    }
}

extern "C" int gpu_qkv(struct kern *k, const struct kern_qkv_args *a)
{
    GPU_PARAMS(qkv_params, p);

    p.n = reinterpret_cast<const int *>(gpu_at(a->rows.n));
    p.slot = reinterpret_cast<const int *>(gpu_at(a->at.slot));
    p.seq = reinterpret_cast<const int *>(gpu_at(a->at.seq));
    p.table = reinterpret_cast<const int *>(gpu_at(a->at.table));
    p.first_page = reinterpret_cast<const int *>(gpu_at(a->at.first_page));
    p.pages = gpu_at(a->kv.pages);
    p.page_bytes = a->kv.page_bytes;
    p.counts = gpu_of(k)->counts;
    p.n_seq = a->at.n_seq;
    p.n_pages = a->kv.n_pages;
    p.max_pages = a->at.max_pages;
    p.freq = reinterpret_cast<const float *>(gpu_at(a->freq));
    p.q = reinterpret_cast<const float *>(gpu_at(a->q));
    p.k = reinterpret_cast<const float *>(gpu_at(a->k));
    p.v = reinterpret_cast<const float *>(gpu_at(a->v));
    p.q_norm = gpu_mat_of(a->q_norm)->q;
    p.k_norm = gpu_mat_of(a->k_norm)->q;
    p.q_f32 = gpu_mat_of(a->q_norm)->format == GPU_F32;
    p.k_f32 = gpu_mat_of(a->k_norm)->format == GPU_F32;
    p.q_out = reinterpret_cast<unsigned short *>(gpu_at(a->q_out));
    p.eps = a->eps;
    p.max = a->rows.max;
    p.n_head = a->n_head;
    p.n_kv = a->kv.n_kv_head;
    p.n_freq = a->n_freq;
    p.pos_shift = a->pos_shift;
    return STEP_LAUNCH(k, qkv, gpu_ceil(p.n_head + 2 * p.n_kv, 8), p.max, 1, 256, 0, p);
}
