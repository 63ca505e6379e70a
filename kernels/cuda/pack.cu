/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Puts a piece of a plane, in checkpoint order, where the layouts of gpu.h want
 * it. A thread owns one word of the target and changes in it only what the piece
 * covers, so pieces may begin and end anywhere.
 */

#include "kernels/cuda/dev.cuh"

/* Place of lane 4 g + t's 16 bytes of row half h: row r and columns 8 t of a group. */
static __device__ __forceinline__ size_t tile_at(const gpu_piece &p, size_t r, size_t c,
                                                 size_t step)
{
    return (r / GPU_TILE * (size_t)p.groups + c / GPU_GROUP) * step;
}

/* Four checkpoint bytes, columns c .. c + 7 of row r: one word of NIBBLE. */
static __device__ void pack_nibble(const gpu_piece &p, size_t word)
{
    size_t row_words = (size_t)p.cols / 8, r = word / row_words, c = word % row_words * 8;
    size_t lane = r % 8 * 4 + c % 32 / 8, half = r % GPU_TILE / 8, block = c % GPU_GROUP / 32;
    unsigned *at = reinterpret_cast<unsigned *>(p.to + tile_at(p, r, c, 1024) + half * 512 +
                                                lane * 16 + block * 4);
    unsigned v = *at;

    for (size_t b = 0; b < 4; b++) {
        size_t i = word * 4 + b;

        if (i >= p.off && i < p.off + p.n) {
            unsigned byte = p.from[i - p.off], lo = byte & 15u, hi = byte >> 4;

            v &= ~((7u << (3 * b) | 1u << (12 + b)) * 0x10001u);
            v |= (lo & 7u) << (3 * b) | (lo >> 3) << (12 + b);
            v |= ((hi & 7u) << (3 * b) | (hi >> 3) << (12 + b)) << 16;
        }
    }
    *at = v;
}

/* Any single byte. */
static __device__ __forceinline__ size_t byte_at(const gpu_piece &p, size_t i)
{
    size_t cols = (size_t)p.cols, r, c, lane;

    switch (p.what) {
    case GPU_PACK_PITCH:
        r = i / (cols * 2);
        return r * (size_t)p.pitch * 2 + i % (cols * 2);
    case GPU_PACK_SCALE4:
        r = i / (cols / 32);
        c = i % (cols / 32) * 32;
        return tile_at(p, r, c, 64) + r % GPU_TILE * 4 + c % GPU_GROUP / 32;
    case GPU_PACK_SCALE8:
        r = i / (cols / 16);
        c = i % (cols / 16) * 16;
        return tile_at(p, r, c, 128) + r % GPU_TILE * 8 + c % GPU_GROUP / 16;
    default: /* GPU_PACK_BYTE */
        r = i / cols;
        c = i % cols;
        lane = r % 8 * 4 + c % 32 / 8;
        return tile_at(p, r, c, 2048) + r % GPU_TILE / 8 * 1024 + c % GPU_GROUP / 64 * 512 +
               lane * 16 + c % 64 / 32 * 8 + c % 8;
    }
}

static __global__ void __launch_bounds__(256) pack(const gpu_piece p)
{
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;

    if (p.what == GPU_PACK_NIBBLE) {
        size_t first = p.off / 4, last = (p.off + p.n - 1) / 4;

        if (first + i <= last) {
            pack_nibble(p, first + i);
        }
    } else if (i < p.n) {
        p.to[byte_at(p, p.off + i)] = p.from[i];
    }
}

extern "C" int gpu_pack(struct gpu *g, const struct gpu_piece *p)
{
    size_t threads = p->what == GPU_PACK_NIBBLE ? p->n / 4 + 2 : p->n;
    rt_grid grid = {(unsigned)((threads + 255) / 256), 1, 1};

    return rt_launch(g->rt, RT_LOAD, STEP_FN(pack, gpu_piece), grid, 256, 0, p, sizeof(*p));
}
