/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CUEMU_CUEMU_H
#define TESTS_CUEMU_CUEMU_H

/*
 * cuemu: the text of the CUDA kernels, compiled by g++ and run on the host, one
 * block after another, one fiber a thread.
 *
 * The kernels see the names of CUDA C++ that the dialect (kernels/cuda/dev.cuh)
 * uses, and nothing else; this header is forced in front of them (-include), so
 * that nothing under kernels/ names a test. What the emulator sees: wrong
 * numbers, races inside and between blocks, accesses outside of any buffer,
 * reads of shared memory never written, barriers and warp operations that not
 * everybody reaches, cp.async read before it has landed, traffic by buffer,
 * 32-byte sectors a request, and bank conflicts. What it cannot see: the
 * meaning of PTX, real asynchrony, caches, forward progress between blocks,
 * speed.
 *
 * The same objects serve three builds: plain, ASan + UBSan, and race. In the
 * race build the kernels are compiled with -fsanitize=thread and libtsan is not
 * linked: check.cc defines the access hooks itself (cuemu_race is set there).
 *
 * Single-threaded: everything here runs on the thread that launches.
 */

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define CUEMU 1

#define __global__
#define __device__
#define __host__
#define __constant__ static
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

/* Known to the caller by its line: g++ may clone a call, so that its return
 * address is no identity. */
#define CUEMU_LINE int line = __builtin_LINE()
#define CUEMU_PC __builtin_extract_return_addr(__builtin_return_address(0))
/* The emulator's own functions are no accesses of a kernel. */
#define CUEMU_FN static inline __attribute__((noinline, no_sanitize("thread")))

struct cuemu_idx {
    unsigned x, y, z;
};
/* By value: through a pointer the access hooks would see them. */
cuemu_idx cuemu_tid(void);
cuemu_idx cuemu_bid(void);
cuemu_idx cuemu_bdim(void);
cuemu_idx cuemu_gdim(void);
#define threadIdx (cuemu_tid())
#define blockIdx (cuemu_bid())
#define blockDim (cuemu_bdim())
#define gridDim (cuemu_gdim())

struct uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static __forceinline__ uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z,
                                        uint32_t w)
{
    return {x, y, z, w};
}

/* ---- what a kernel calls ---- */

enum cuemu_op {
    CUEMU_SYNCWARP = 1,
    CUEMU_SHFL,
    CUEMU_VOTE,
    CUEMU_MMA,
    CUEMU_LDSM
};
struct cuemu_slot {
    uint32_t w[16];
};
/* Where mma's C lies in a slot: behind 4 registers of A and 2 of B. The last
 * lane to come leaves everybody's sums there. */
enum { CUEMU_MMA_C = 6 };

int cuemu_lane(void);
void cuemu_syncthreads(int line, const void *pc);
/* All lanes of mask meet here, each with n bytes; returns everybody's. */
const cuemu_slot *cuemu_collect(cuemu_op op, uint32_t mask, const void *in,
                                size_t n, int line, const void *pc);
void *cuemu_shared(const void *key, size_t bytes);
void *cuemu_dyn_shared(void);
void cuemu_access(const void *p, size_t n, bool write, bool atomic,
                  const void *pc);
void cuemu_threadfence(void);
void cuemu_atomic_sync(const void *p);
void cuemu_cp_async(void *dst, const void *src, size_t n, bool pred,
                    const void *pc);
void cuemu_cp_commit(void);
void cuemu_cp_wait(int n);
void cuemu_misuse(const char *what, const void *pc);
void cuemu_ldsm_banks(const void *const *rows, const void *pc);

CUEMU_FN void __syncthreads(CUEMU_LINE)
{
    cuemu_syncthreads(line, CUEMU_PC);
}

CUEMU_FN void __syncwarp(uint32_t mask = ~0u, CUEMU_LINE)
{
    uint32_t nothing = 0;

    cuemu_collect(CUEMU_SYNCWARP, mask, &nothing, 4, line, CUEMU_PC);
}

static inline void __threadfence(void)
{
    cuemu_threadfence();
}

template <class T> CUEMU_FN T cuemu_shfl(uint32_t mask, T v, int src, int line)
{
    static_assert(sizeof(T) <= 8, "operand of a shuffle");
    const cuemu_slot *s =
        cuemu_collect(CUEMU_SHFL, mask, &v, sizeof(v), line, CUEMU_PC);
    T r;

    if (!((mask >> src) & 1)) {
        cuemu_misuse("shuffle from a lane outside of its mask", CUEMU_PC);
    }
    memcpy(&r, s[src].w, sizeof(r));
    return r;
}

template <class T>
static __forceinline__ T __shfl_sync(uint32_t m, T v, int s, CUEMU_LINE)
{
    return cuemu_shfl(m, v, s & 31, line);
}

template <class T>
static __forceinline__ T __shfl_xor_sync(uint32_t m, T v, int x, CUEMU_LINE)
{
    return cuemu_shfl(m, v, (cuemu_lane() ^ x) & 31, line);
}

template <class T>
static __forceinline__ T __shfl_up_sync(uint32_t m, T v, int d, CUEMU_LINE)
{
    int l = cuemu_lane();

    return cuemu_shfl(m, v, l >= d ? l - d : l, line);
}

CUEMU_FN uint32_t __ballot_sync(uint32_t m, int p, CUEMU_LINE)
{
    uint32_t v = p != 0, r = 0;
    const cuemu_slot *s = cuemu_collect(CUEMU_VOTE, m, &v, 4, line, CUEMU_PC);

    for (int i = 0; i < 32; i++) {
        if ((m >> i) & 1) {
            r |= (s[i].w[0] & 1u) << i;
        }
    }
    return r;
}

template <class T> CUEMU_FN T cuemu_atomic_add(T *p, T v)
{
    T before = *p;

    cuemu_access(p, sizeof(*p), true, true, CUEMU_PC);
    cuemu_atomic_sync(p);
    *p = (T)(before + v);
    return before;
}
static inline int atomicAdd(int *p, int v)
{
    return cuemu_atomic_add(p, v);
}
static inline unsigned atomicAdd(unsigned *p, unsigned v)
{
    return cuemu_atomic_add(p, v);
}
static inline unsigned long long atomicAdd(unsigned long long *p,
                                           unsigned long long v)
{
    return cuemu_atomic_add(p, v);
}

CUEMU_FN unsigned long long atomicCAS(unsigned long long *p,
                                      unsigned long long was,
                                      unsigned long long v)
{
    unsigned long long before = *p;

    cuemu_access(p, sizeof(*p), true, true, CUEMU_PC);
    cuemu_atomic_sync(p);
    *p = before == was ? v : before;
    return before;
}

static __forceinline__ int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}
static __forceinline__ int __ffs(uint32_t x)
{
    return __builtin_ffs((int)x);
}
/* Byte i of the result is byte s >> 4 i of x (0 .. 3) and y (4 .. 7). */
static __forceinline__ uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t s)
{
    uint64_t v = (uint64_t)y << 32 | x;
    uint32_t r = 0;

    for (int i = 0; i < 4; i++) {
        r |= (uint32_t)(v >> (8 * (s >> (4 * i) & 7u)) & 255u) << (8 * i);
    }
    return r;
}

/* ---- the dialect's asm wrappers, as dev.cuh declares them ---- */

/* A 16-byte access is one access: g++ would split the copy of a struct. */
CUEMU_FN uint4 ld128(const void *p)
{
    uint4 v;

    if (((uintptr_t)p & 15) != 0) {
        cuemu_misuse("a 16-byte load is not aligned", CUEMU_PC);
    }
    cuemu_access(p, 16, false, false, CUEMU_PC);
    memcpy(&v, p, 16);
    return v;
}
#define ldg128 ld128
#define ldw128 ld128

CUEMU_FN uint2 ld64(const void *p)
{
    uint2 v;

    if (((uintptr_t)p & 7) != 0) {
        cuemu_misuse("an 8-byte load is not aligned", CUEMU_PC);
    }
    cuemu_access(p, 8, false, false, CUEMU_PC);
    memcpy(&v, p, 8);
    return v;
}

CUEMU_FN void st128(void *p, uint4 v)
{
    if (((uintptr_t)p & 15) != 0) {
        cuemu_misuse("a 16-byte store is not aligned", CUEMU_PC);
    }
    cuemu_access(p, 16, true, false, CUEMU_PC);
    memcpy(p, &v, 16);
}

/* What another block published: read past the caches that may not know. */
CUEMU_FN float ld_volatile(const float *p)
{
    cuemu_access(p, 4, false, false, CUEMU_PC);
    return *p;
}

CUEMU_FN void cp_async16(void *dst, const void *src, bool live)
{
    cuemu_cp_async(dst, src, 16, live, CUEMU_PC);
}
static inline void cp_async_commit(void)
{
    cuemu_cp_commit();
}
template <int N> static inline void cp_async_wait(void)
{
    cuemu_cp_wait(N);
}

/* Lane i brings the address of row i % 8 of matrix i / 8; with trans, lane l
 * receives from each matrix elements (2 (l % 4), l / 4) and the one below. */
CUEMU_FN void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row, CUEMU_LINE)
{
    int l = cuemu_lane();
    const cuemu_slot *s;
    const void *rows[32];

    if (((uintptr_t)row & 15) != 0) {
        cuemu_misuse("a row of ldmatrix is not aligned", CUEMU_PC);
    }
    s = cuemu_collect(CUEMU_LDSM, ~0u, &row, sizeof(row), line, CUEMU_PC);
    for (int i = 0; i < 32; i++) {
        memcpy(&rows[i], s[i].w, sizeof(rows[i]));
    }
    for (int m = 0; m < 4; m++) {
        uint16_t half[2];

        for (int h = 0; h < 2; h++) {
            const char *p =
                (const char *)rows[m * 8 + l % 4 * 2 + h] + l / 4 * 2;

            cuemu_access(p, 2, false, false, CUEMU_PC);
            memcpy(&half[h], p, 2);
        }
        r[m] = half[0] | (uint32_t)half[1] << 16;
    }
    if (l == 0) {
        cuemu_ldsm_banks(rows, CUEMU_PC);
    }
}

/* m16n8k16, row.col: sched.cc has the layout of the fragments. */
CUEMU_FN void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                       uint32_t b1, CUEMU_LINE)
{
    cuemu_slot in = {{a[0], a[1], a[2], a[3], b0, b1}};
    const cuemu_slot *s;

    memcpy(&in.w[CUEMU_MMA_C], c, sizeof(c));
    s = cuemu_collect(CUEMU_MMA, ~0u, &in, sizeof(in), line, CUEMU_PC);
    memcpy(c, &s[cuemu_lane()].w[CUEMU_MMA_C], sizeof(c));
}

/* 2^x: ex2.approx on the device (2 ulp), this here. */
static inline float dev_exp2(float x)
{
    return exp2f(x);
}

/* ---- the host's side ---- */

enum { CUEMU_CP_AT_ISSUE, CUEMU_CP_AT_WAIT, CUEMU_CP_RANDOM };
struct cuemu_opts {
    int policy; /* 0 lanes in order, 1 reversed, 2 random at each pass, 3 one
                 * warp as far as it can go, in random order */
    int cp;     /* when a cp.async lands: CUEMU_CP_* */
    uint64_t seed;
    bool ftz;          /* run kernels with subnormals flushed */
    bool silent;       /* count reports, print none */
    size_t smem_limit; /* bytes of shared memory a block may have */
};
struct cuemu_stats {
    uint64_t launches, blocks, threads, switches, barriers, collectives;
    uint64_t mma, ldsm, cp_async;
    uint64_t errors; /* reports, printed or not */
};
/* What the requests of warps to one buffer, or to shared memory, came to. */
struct cuemu_traffic {
    uint64_t read, written; /* bytes */
    /* of a sample of requests (two blocks a launch): */
    uint64_t requests;
    uint64_t sectors, ideal; /* 32-byte ones touched, and needed by the data */
    uint64_t waves, best;    /* of shared memory: wavefronts, and the fewest */
};

extern cuemu_opts cuemu_opt;
extern cuemu_stats cuemu_stat;
extern bool cuemu_race;

void *cuemu_malloc(size_t n);
void cuemu_free(void *p);
void cuemu_writable(const void *p, bool yes);
cuemu_traffic cuemu_traffic_of(const void *p); /* NULL: shared memory */
void cuemu_traffic_reset(void);
void cuemu_report_access(void); /* per source line, to stdout */
void cuemu_launch(cuemu_idx grid, cuemu_idx block, size_t smem,
                  void (*fn)(const void *), const void *arg, size_t n);

#endif
