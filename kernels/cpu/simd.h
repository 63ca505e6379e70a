/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_SIMD_H
#define STEPD_KERNELS_CPU_SIMD_H

/*
 * Vectors of the natural width of one instruction set. A file that includes
 * this is compiled once per path with -DKERN_ISA=portable|neonbf16|avx2|avx512|
 * avx512bf16, and everything it exports is named through ISA(), so that all
 * paths live in one program. The path is taken from KERN_ISA and not from the
 * compiler's macros: -march=native in CFLAGS must not merge two paths.
 *
 *   vf, vi      VF_N floats, VF_N int32
 *   wv          DOT_K consecutive BF16 weights in the form that dot() takes
 *   xt          one element of a prepared activation row (x_prepare): BF16 as
 *               it lies where ISA_BF16, else float
 *
 * What fixes the order of a sum lives here and nowhere else: dot() adds DOT_K
 * products, lane j taking the products 2j and then 2j + 1 of the chunk, and
 * vf_sum folds lane i with lane i + half, halving down to one.
 *
 * Portable has no fused multiply-add (libm's is a call a lane): vf_fma is a
 * product and a sum there. In a dot of BF16 values that is the same thing where
 * F32 holds the product, which is always short of overflow and underflow.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/quant.h"

#define ISA_CAT2(a, b) a##_##b
#define ISA_CAT(a, b) ISA_CAT2(a, b)
#define ISA(name) ISA_CAT(name, KERN_ISA)

#define ISA_LEVEL_portable 0
#define ISA_LEVEL_neonbf16 0 /* but for ISA_BF16 */
#define ISA_LEVEL_avx2 1
#define ISA_LEVEL_avx512 2
#define ISA_LEVEL_avx512bf16 3
#define ISA_LEVEL ISA_CAT(ISA_LEVEL, KERN_ISA)

/* Whether dot() multiplies BF16: activation rows are then used where they lie.
 */
#define ISA_BF16_portable 0
#define ISA_BF16_neonbf16 1
#define ISA_BF16_avx2 0
#define ISA_BF16_avx512 0
#define ISA_BF16_avx512bf16 1
#define ISA_BF16 ISA_CAT(ISA_BF16, KERN_ISA)

#define INLINE static inline __attribute__((always_inline, unused))

#if ISA_LEVEL >= 2
#include "kernels/cpu/simd_avx512.h"
#elif ISA_LEVEL == 1
#include "kernels/cpu/simd_avx2.h"
#else
#include "kernels/cpu/simd_portable.h"
#endif

/* ---- what follows from the primitives, the same text on every path ---- */

/* e^x, relative error below 2e-7; 0 below -87.33, infinity above 88.72, NaN
 * for NaN. Degree 6 on [-ln2/2, ln2/2] after a two-step reduction; 2^n goes in
 * as two factors, so that n = 128 does not overflow early. */
INLINE vf vf_exp(vf x)
{
    const vf lo = vf_set(-87.33654f), hi = vf_set(88.72283f);
    vf c = vf_min(vf_max(x, lo), hi);
    vf n = vf_round(vf_mul(c, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693359375f), c);
    vf p;

    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p, vf_mul(r, r), vf_add(r, vf_set(1.0f)));
    p = vf_mul(p, vf_exp2i(vf_to_vi(vf_mul(n, vf_set(0.5f)))));
    p = vf_mul(
        p, vf_exp2i(vi_sub(vf_to_vi(n), vf_to_vi(vf_mul(n, vf_set(0.5f))))));
    p = vf_where_lt(x, lo, vf_set(0.0f), p);
    p = vf_where_lt(hi, x, vf_set(__builtin_inff()), p);
    return vf_where_nan(x, x, p);
}

INLINE vf vf_sigmoid(vf x)
{
    vf one = vf_set(1.0f);

    return vf_div(one, vf_add(one, vf_exp(vf_sub(vf_set(0.0f), x))));
}

INLINE float sigmoid1(float x)
{
    return vf_first(vf_sigmoid(vf_set(x)));
}

#endif
