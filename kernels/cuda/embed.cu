/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * embed, gather, finite, swiglu: ops that move or look at rows, element by
 * element. Grid: (columns / 1024, rows); a thread takes four columns.
 */

#include "kernels/cuda/dev.cuh"

#define COLS 1024 /* a block */

struct row_params {
    const int *n, *src, *dst;
    const unsigned short *table;
    gpu_mat packed; /* embed: a table of COMPACT */
    const float *x, *up;
    float *out;
    unsigned short *out16;
    int *bad;
    float limit;
    int max, width, pitch, vocab, mark;
};

static __device__ __forceinline__ int first_col()
{
    return (int)blockIdx.x * COLS + (int)threadIdx.x;
}

static __global__ void __launch_bounds__(256) embed(const row_params p)
{
    int r = (int)blockIdx.y;

    if (r >= live_rows(p.n, p.max)) {
        return;
    }
    int id = p.src[r];
    bool known = id >= 0 && id < p.vocab;
    const unsigned short *from = p.table + (size_t)(known ? id : 0) * (size_t)p.pitch;

#pragma unroll
    for (int i = 0; i < COLS; i += 256) {
        int c = first_col() + i;

        if (c < p.width) {
            p.out[(size_t)r * (size_t)p.width + c] = known ? quant_bf16_to_f32(from[c]) : 0.0f;
        }
    }
}

/* Column c of row r, bits of BF16. */
static __device__ __forceinline__ unsigned compact_value(const gpu_mat &w, int r, int c)
{
    const unsigned *word = reinterpret_cast<const unsigned *>(w.f);
    const unsigned *first =
        word + (size_t)(r / GPU_TILE) * (size_t)w.groups + (size_t)(c / GPU_GROUP);
    const unsigned char *block =
        w.q + ((size_t)r * (size_t)w.groups + (size_t)(c / GPU_GROUP)) * COMPACT_BLOCK;
    int half = c % COMPACT_COLS / 64, at = compact_at(c % 64);
    unsigned b = block[COMPACT_CODES + 64 * half + at], code = block[at] >> (4 * half) & 15u;

    for (unsigned i = first[0]; i < first[1]; i++) {
        if (word[i] >> 16 == GPU_ESCAPE(r % GPU_TILE, c % GPU_GROUP, 0) >> 16) {
            return word[i] & 0xffffu;
        }
    }
    return (b & 0x80u) << 8 | (code != 0 ? code + w.s[r] : 0u) << 7 | (b & 0x7fu);
}

static __global__ void __launch_bounds__(256) embed_compact(const row_params p)
{
    int r = (int)blockIdx.y;

    if (r >= live_rows(p.n, p.max)) {
        return;
    }
    int id = p.src[r];
    bool known = id >= 0 && id < p.vocab;

    for (int i = 0; i < COLS; i += 256) {
        int c = first_col() + i;

        if (c < p.width) {
            p.out[(size_t)r * (size_t)p.width + c] =
                known ? quant_bf16_to_f32((uint16_t)compact_value(p.packed, id, c)) : 0.0f;
        }
    }
}

static __global__ void __launch_bounds__(256) gather(const row_params p)
{
    int r = (int)blockIdx.y;

    if (r >= live_rows(p.n, p.max) || p.src[r] < 0) {
        return;
    }
    const float *from = p.x + (size_t)p.src[r] * (size_t)p.width;
    float *to = p.out + (size_t)(p.dst != nullptr ? p.dst[r] : r) * (size_t)p.width;

#pragma unroll
    for (int i = 0; i < COLS; i += 256) {
        int c = first_col() + i;

        if (c < p.width) {
            to[c] = from[c];
        }
    }
}

/* A block a row: one thread decides, so that nobody writes over a mark. */
static __global__ void __launch_bounds__(256) nonfinite(const row_params p)
{
    STEP_SHARED(int, found, 8);
    int r = (int)blockIdx.x, any = 0;

    if (r >= live_rows(p.n, p.max)) {
        return;
    }
    for (int c = (int)threadIdx.x; c < p.width; c += 256) {
        any |= !(fabsf(p.x[(size_t)r * (size_t)p.width + c]) < INFINITY);
    }
    any = __ballot_sync(ALL_LANES, any) != 0;
    if (threadIdx.x % 32 == 0) {
        found[threadIdx.x / 32] = any;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; i++) {
            any |= found[i];
        }
        if (any && p.bad[r] == 0) {
            p.bad[r] = p.mark;
        }
    }
}

static __global__ void __launch_bounds__(256) swiglu(const row_params p)
{
    int r = (int)blockIdx.y;

    if (r >= live_rows(p.n, p.max)) {
        return;
    }
#pragma unroll
    for (int i = 0; i < COLS; i += 256) {
        int c = first_col() + i;
        size_t at = (size_t)r * (size_t)p.width + (size_t)c;

        if (c < p.width) {
            p.out16[at] = quant_f32_to_bf16(dev_swiglu(p.x[at], p.up[at], p.limit));
        }
    }
}

/* ---- launches ---- */

static row_params params(const struct kern_rows *rows, int width)
{
    GPU_PARAMS(row_params, p);
    p.n = reinterpret_cast<const int *>(gpu_at(rows->n));
    p.max = rows->max;
    p.width = width;
    return p;
}

extern "C" int gpu_embed(struct kern *k, const struct kern_embed_args *a)
{
    const gpu_mat *w = gpu_mat_of(a->table);
    row_params p = params(&a->rows, w->cols);

    p.src = reinterpret_cast<const int *>(gpu_at(a->ids));
    p.table = reinterpret_cast<const unsigned short *>(w->q);
    p.pitch = w->pitch;
    p.vocab = w->rows;
    p.out = reinterpret_cast<float *>(gpu_at(a->out));
    if (w->format == GPU_COMPACT) {
        p.packed = *w;
        return STEP_LAUNCH(k, embed_compact, gpu_ceil(p.width, COLS), p.max, 1, 256, 0, p);
    }
    return STEP_LAUNCH(k, embed, gpu_ceil(p.width, COLS), p.max, 1, 256, 0, p);
}

extern "C" int gpu_gather(struct kern *k, const struct kern_gather_args *a)
{
    row_params p = params(&a->rows, a->width);

    p.src = reinterpret_cast<const int *>(gpu_at(a->src));
    p.dst = reinterpret_cast<const int *>(gpu_at(a->dst));
    p.x = reinterpret_cast<const float *>(gpu_at(a->x));
    p.out = reinterpret_cast<float *>(gpu_at(a->out));
    return STEP_LAUNCH(k, gather, gpu_ceil(p.width, COLS), p.max, 1, 256, 0, p);
}

extern "C" int gpu_finite(struct kern *k, const struct kern_finite_args *a)
{
    row_params p = params(&a->rows, a->width);

    p.x = reinterpret_cast<const float *>(gpu_at(a->x));
    p.bad = reinterpret_cast<int *>(gpu_at(a->bad));
    p.mark = a->mark;
    return STEP_LAUNCH(k, nonfinite, p.max, 1, 1, 256, 0, p);
}

extern "C" int gpu_swiglu(struct kern *k, const struct kern_swiglu_args *a)
{
    row_params p = params(&a->rows, a->width);

    p.x = reinterpret_cast<const float *>(gpu_at(a->gate));
    p.up = reinterpret_cast<const float *>(gpu_at(a->up));
    p.out16 = reinterpret_cast<unsigned short *>(gpu_at(a->out));
    p.limit = a->limit;
    return STEP_LAUNCH(k, swiglu, gpu_ceil(p.width, COLS), p.max, 1, 256, 0, p);
}
