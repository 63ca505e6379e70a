/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CUDA_DEV_CUH
#define STEPD_KERNELS_CUDA_DEV_CUH

/*
 * THE DIALECT in which kernels are written: CUDA C++ plus the names below, and
 * nothing else. No asm, no <<< >>>, no __shared__ outside of this file
 * (tests/cuemu/check_dialect.sh). The same text is compiled by g++ over the
 * emulator, which is then forced in front (-include tests/cuemu/cuemu.h) and
 * brings its own version of everything between #ifdef __CUDACC__ and #else.
 *
 * The asm here is never run by the emulator: tests/cuemu/probe.cu compiles one
 * probe a wrapper, and check_probe.py resolves every operand of the PTX back to
 * the argument it came from.
 *
 * A kernel takes one struct by value; its host function fills that struct and
 * calls STEP_LAUNCH. No contraction of a * b + c is left to the compiler
 * (-fmad=false): what is fused is written fmaf.
 */

/* T without const and &. */
template <class T> struct step_value {
    typedef T type;
};
template <class T> struct step_value<const T> {
    typedef T type;
};
template <class T> struct step_value<T &> {
    typedef typename step_value<T>::type type;
};

#define QUANT_FN static __host__ __device__ inline
#define SAMPLE_FN static __host__ __device__ inline

#ifdef __CUDACC__

#define STEP_SHARED(T, name, n) __shared__ __align__(16) T name[n]
#define STEP_DYN_SHARED(T, name)                               \
    extern __shared__ __align__(16) unsigned char step_dyn_[]; \
    T *name = reinterpret_cast<T *>(step_dyn_)
#define STEP_FN(kernel, P) (reinterpret_cast<const void *>(static_cast<void (*)(const P)>(kernel)))

/* Cached where it pays (activations), streamed past L1 where it does not (weights). */
static __device__ __forceinline__ uint4 ld128(const void *p)
{
    return *static_cast<const uint4 *>(p);
}
static __device__ __forceinline__ uint4 ldg128(const void *p)
{
    return __ldg(static_cast<const uint4 *>(p));
}
static __device__ __forceinline__ uint4 ldw128(const void *p)
{
    return __ldcs(static_cast<const uint4 *>(p));
}
static __device__ __forceinline__ uint2 ld64(const void *p)
{
    return *static_cast<const uint2 *>(p);
}
static __device__ __forceinline__ void st128(void *p, uint4 v)
{
    *static_cast<uint4 *>(p) = v;
}
static __device__ __forceinline__ float ld_volatile(const float *p)
{
    return *static_cast<const volatile float *>(p);
}

static __device__ __forceinline__ unsigned smem_addr(const void *p)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
/* 16 bytes into shared memory, behind the back of the thread; zeros where not live. */
static __device__ __forceinline__ void cp_async16(void *dst, const void *src, bool live)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(dst)), "l"(src),
                 "r"(live ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> static __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
static __device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_addr(row))
                 : "memory");
}
/* c += a b: 16 x 8 x 16, BF16 in, FP32 sums. */
static __device__ __forceinline__ void mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Two BF16 products, each rounded once; subnormals are kept (PTX: no .ftz for bf16). */
static __device__ __forceinline__ unsigned mul_bf16x2(unsigned a, unsigned b)
{
    unsigned r;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
    return r;
}
static __device__ __forceinline__ float dev_exp2(float x)
{
    float r;

    asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

#else /* the emulator */

#ifndef CUEMU
#error "neither nvcc nor the emulator (-include tests/cuemu/cuemu.h)"
#endif
#define STEP_SHARED(T, name, n) \
    static char name##_key_;    \
    T(&name)[n] = *(T(*)[n])cuemu_shared(&name##_key_, sizeof(T) * (n))
#define STEP_DYN_SHARED(T, name) T *name = (T *)cuemu_dyn_shared()
template <auto kernel, class P> static void cuemu_run(const void *p)
{
    kernel(*static_cast<const P *>(p));
}
#define STEP_FN(kernel, P) (reinterpret_cast<const void *>(&cuemu_run<kernel, P>))

/* In integers: as the device, whatever MXCSR says of subnormals. A BF16 is
 * m 2^(e - 134), with m below 128 where e is 1 alone. */
static inline unsigned cuemu_mul(unsigned a, unsigned b)
{
    int ea = (int)(a >> 7 & 255u), eb = (int)(b >> 7 & 255u), e, cut;
    unsigned p = ((a & 127u) | (ea != 0 ? 128u : 0u)) * ((b & 127u) | (eb != 0 ? 128u : 0u));
    unsigned sign = (a ^ b) & 0x8000u, m, rest, half;

    if (p == 0) {
        return sign;
    }
    cut = 24 - __builtin_clz(p); /* bits past the 8 that are kept */
    e = (ea != 0 ? ea : 1) + (eb != 0 ? eb : 1) - 134 + cut;
    if (e < 1) {
        cut += 1 - e;
        e = 1;
    }
    if (cut > 16) {
        return sign; /* less than half of the least */
    }
    m = cut > 0 ? p >> cut : p << -cut;
    half = cut > 0 ? 1u << (cut - 1) : 0u;
    rest = cut > 0 ? p & (2 * half - 1) : 0u;
    m += rest > half || (rest == half && half != 0 && (m & 1u) != 0);
    if (m == 256) {
        m = 128;
        e++;
    }
    if (e >= 255) {
        return sign | 0x7f80u;
    }
    return sign | (m < 128 ? m : (unsigned)e << 7 | (m & 127u));
}
static inline unsigned mul_bf16x2(unsigned a, unsigned b)
{
    return cuemu_mul(a & 0xffffu, b & 0xffffu) | cuemu_mul(a >> 16, b >> 16) << 16;
}

#endif

/* p is the struct of the kernel's parameters, made by GPU_PARAMS. */
#define STEP_LAUNCH(k, kernel, gx, gy, gz, threads, smem, p)                                     \
    gpu_launch(k, STEP_FN(kernel, typename step_value<decltype(p)>::type),                       \
               rt_grid{unsigned(gx), unsigned(gy), unsigned(gz)}, unsigned(threads), smem, &(p), \
               sizeof(p))

#include "kernels/compact.h"
#include "kernels/cuda/gpu.h"
#include "kernels/quant.h"

#define ALL_LANES 0xffffffffu

/* The live rows: *n, never more than max. */
static __device__ __forceinline__ int live_rows(const int *n, int max)
{
    int v = *n;

    return v < 0 ? 0 : v > max ? max : v;
}

static __device__ __forceinline__ unsigned pack_bf16(float lo, float hi)
{
    return (unsigned)quant_f32_to_bf16(lo) | (unsigned)quant_f32_to_bf16(hi) << 16;
}

/* Butterfly: every lane ends with the same sum, added in the same order. */
static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        v += __shfl_xor_sync(ALL_LANES, v, d);
    }
    return v;
}

/* The sum over a block of whole warps; red holds 33 floats. */
static __device__ __forceinline__ float block_sum(float v, float *red)
{
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;

    v = warp_sum(v);
    if (lane == 0) {
        red[warp] = v;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;

        for (int i = 0; i < (int)blockDim.x / 32; i++) {
            sum += red[i];
        }
        red[32] = sum;
    }
    __syncthreads();
    return red[32];
}

static __device__ __forceinline__ float dev_silu(float x)
{
    return x / (1.0f + expf(-x));
}
/* model-spec 2.5: the clamp comes after silu; a NaN passes through. */
static __device__ __forceinline__ float dev_swiglu(float gate, float up, float limit)
{
    float s = dev_silu(gate);

    if (limit != 0.0f) {
        s = s > limit ? limit : s;
        up = up > limit ? limit : up < -limit ? -limit : up;
    }
    return s * up;
}

/* Keeps the first fault. */
static __device__ __forceinline__ void fault_set(unsigned long long *counts, enum gpu_fault code,
                                                 int a, int b)
{
    atomicCAS(&counts[GPU_FAULT], 0ull,
              (unsigned long long)code << 56 | (unsigned long long)(a & 0xfffffff) << 28 |
                  (unsigned)(b & 0xfffffff));
}

static __device__ __forceinline__ void count_add(unsigned long long *counts, int which,
                                                 unsigned long long n)
{
    atomicAdd(&counts[which], n);
}

#endif
