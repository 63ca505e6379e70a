/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CUDA_TILE_CUH
#define STEPD_KERNELS_CUDA_TILE_CUH

/*
 * Products for many rows: a block of 8 warps, 4 along the outputs and 2 along
 * the rows; a warp makes two weight tiles (32 outputs) times 32 rows. Weights go
 * from memory straight into fragments, decoded in registers; rows of x come
 * through shared memory by cp.async, a group of 128 columns a stage, three
 * stages. The order of addition is frag.cuh's, slices folded in registers.
 */

#include "kernels/cuda/frag.cuh"

#define TILE_OUT 128
#define TILE_ROWS 64
#define TILE_STAGES 3
#define TILE_STAGE (4 * TILE_ROWS * 32) /* BF16 values */
#define TILE_SMEM (TILE_STAGES * TILE_STAGE)

struct tile_weights {
    const gpu_mat *w;
    int expert, tile;
};

/* The row, of the block's 64, of result a = 16 m + 4 t + e of this thread. */
static __device__ __forceinline__ int tile_row(int a)
{
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;

    return warp % 2 * 32 + a / 4 % 4 * 8 + 2 * (lane & 3) + (a & 1);
}

/* One group of columns into a stage: four blocks of [row][32], unpadded: a warp's 16-byte reads
 * cover whole rows and meet no bank conflict. A thread brings 16 bytes of each block. */
template <class Row>
static __device__ __forceinline__ void tile_stage(unsigned short *to, const Row &row, int cols,
                                                  bool vec, int group)
{
    int r = (int)threadIdx.x / 4, c0 = (int)threadIdx.x % 4 * 8;
    const unsigned short *from = row(r);

#pragma unroll
    for (int j = 0; j < 4; j++) {
        int c = group * GPU_GROUP + j * 32 + c0;
        unsigned short *at = to + (j * TILE_ROWS + r) * 32 + c0;
        bool live = from != nullptr && c < cols;

        if (vec) { /* an address is needed even where nothing is read */
            cp_async16(at, live ? from + c : row(0), live);
        } else {
            st128(at, x_eight(from, c, cols, false));
        }
    }
}

/* total = the products of m[0] and m[1] with the n rows that row(0 .. 63) gives (nullptr: none;
 * row 0 is always there). All 256 threads call it; xs has TILE_SMEM values. */
template <int F, class Row>
static __device__ __forceinline__ void tile_products(const tile_weights (&m)[2], int cols, bool vec,
                                                     int n, unsigned short *xs,
                                                     float (&total)[2][4][4], const Row &row)
{
    int lane = (int)threadIdx.x & 31, col0 = ((int)threadIdx.x >> 5) % 2 * 32;
    int groups = m[0].w->groups, per = slice_groups(groups);
    int live = n - col0 <= 0 ? 0 : n - col0 >= 32 ? 4 : (n - col0 + 7) / 8;
    float c[2][4][4];

#pragma unroll
    for (int a = 0; a < 32; a++) {
        c[a / 16][a / 4 % 4][a % 4] = 0;
        total[a / 16][a / 4 % 4][a % 4] = 0;
    }
    for (int g = 0; g < TILE_STAGES - 1; g++) {
        if (g < groups) {
            tile_stage(xs + g * TILE_STAGE, row, cols, vec, g);
        }
        cp_async_commit();
    }
    for (int g = 0; g < groups; g++) {
        int next = g + TILE_STAGES - 1;
        const unsigned short *stage = xs + g % TILE_STAGES * TILE_STAGE;

        cp_async_wait<TILE_STAGES - 2>();
        __syncthreads();
        if (next < groups) {
            tile_stage(xs + next % TILE_STAGES * TILE_STAGE, row, cols, vec, next);
        }
        cp_async_commit();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            wgroup<F> v;

            if (live == 0 || m[i].tile * GPU_TILE >= m[i].w->rows) {
                continue;
            }
            v.load(*m[i].w, m[i].expert, m[i].tile, g, lane);
            group_add<F, 4>(v, c[i], live, [&](int j, int t) {
                return ld128(stage + (j * TILE_ROWS + col0 + t * 8 + lane / 4) * 32 + lane % 4 * 8);
            });
        }
        if ((g + 1) % per == 0 || g + 1 == groups) {
#pragma unroll
            for (int a = 0; a < 32; a++) {
                float v = c[a / 16][a / 4 % 4][a % 4];
                float &sum = total[a / 16][a / 4 % 4][a % 4];

                sum = g < per ? v : sum + v;
                c[a / 16][a / 4 % 4][a % 4] = 0;
            }
        }
    }
}

#endif
