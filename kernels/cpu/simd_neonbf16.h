/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The dot products of aarch64 with the BF16 instructions of Armv8.6; all else
 * of that path is the portable one's. BFMLALB adds the products of the even
 * elements, BFMLALT those of the odd ones, each rounded once, which is dot()'s
 * order. BFDOT and BFMMLA, which do more at once, round to odd and flush
 * subnormals. Included by simd_portable.h only.
 */
#ifndef STEPD_KERNELS_CPU_SIMD_NEONBF16_H
#define STEPD_KERNELS_CPU_SIMD_NEONBF16_H

#include <arm_neon.h>

#define DOT_K 8

typedef uint16_t xt;
typedef bfloat16x8_t wv;

INLINE wv wv_load(const uint8_t *w)
{
    return vreinterpretq_bf16_u8(vld1q_u8(w));
}

INLINE wv wv_load_n(const uint8_t *w, int n)
{
    uint16_t t[DOT_K] = {0};

    memcpy(t, w, (size_t)n * 2);
    return wv_load((const uint8_t *)t);
}

INLINE vf dot_(vf acc, wv a, wv b)
{
    return (vf)vbfmlaltq_f32(vbfmlalbq_f32((float32x4_t)acc, a, b), a, b);
}

INLINE vf dot(vf acc, wv w, const xt *x)
{
    return dot_(acc, w, wv_load((const uint8_t *)x));
}

/* Pairs of BF16, a lane each, times the pair q. */
INLINE vf dot_pairs(vf acc, const uint32_t *pairs, uint32_t q)
{
    return dot_(acc, wv_load((const uint8_t *)pairs),
                vreinterpretq_bf16_u32(vdupq_n_u32(q)));
}

/* One block of 32 packed weights, times its scale; the low nibble of a byte is
 * the even element. One look-up a half of the BF16 value. */
INLINE void wv_mx(wv out[4], const uint8_t *q, const struct mx_table *t,
                  uint8_t scale)
{
    uint8x16_t low = vld1q_u8(t->bytes[scale]),
               high = vld1q_u8(t->bytes[scale] + 16);
    uint8x16_t b = vld1q_u8(q);
    uint8x16_t even = vandq_u8(b, vdupq_n_u8(15)), odd = vshrq_n_u8(b, 4);
    uint8x16_t code[2] = {vzip1q_u8(even, odd), vzip2q_u8(even, odd)};

    for (int i = 0; i < 2; i++) {
        uint8x16_t lo = vqtbl1q_u8(low, code[i]),
                   hi = vqtbl1q_u8(high, code[i]);

        out[2 * i] = vreinterpretq_bf16_u8(vzip1q_u8(lo, hi));
        out[2 * i + 1] = vreinterpretq_bf16_u8(vzip2q_u8(lo, hi));
    }
}

INLINE void mx_decode(uint16_t *to, const uint8_t *q, const struct mx_table *t,
                      uint8_t scale)
{
    wv v[4];

    wv_mx(v, q, t, scale);
    for (int i = 0; i < 4; i++) {
        vst1q_u8((uint8_t *)(to + 8 * i), vreinterpretq_u8_bf16(v[i]));
    }
}

INLINE float xt_get(const xt *x, int k)
{
    return quant_bf16_to_f32(x[k]);
}

#endif
