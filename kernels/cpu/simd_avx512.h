/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * 16 lanes: AVX-512 (F, BW, VL, DQ), and with ISA_LEVEL 3 the BF16 dot product.
 * Included by simd.h only.
 */
#ifndef STEPD_KERNELS_CPU_SIMD_AVX512_H
#define STEPD_KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>

#define VF_N 16
typedef __m512 vf;
typedef __m512i vi;

INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

INLINE __mmask16 vf_mask_(int n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

/* The first n lanes, 0 <= n <= VF_N; the rest is 0. */
INLINE vf vf_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vf_mask_(n), p);
}

INLINE void vf_store_n(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, vf_mask_(n), x);
}

INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

INLINE vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT);
}

/* a < b ? x : y, lane by lane; a NaN is not less. */
INLINE vf vf_where_lt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

INLINE vf vf_where_nan(vf a, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), y, x);
}

/* Lanes lo .. hi - 1 of x, y in the others. */
INLINE vf vf_where_lanes(int lo, int hi, vf x, vf y)
{
    __mmask16 m = (__mmask16)(vf_mask_(hi < 0 ? 0 : hi) &
                              ~(unsigned)vf_mask_(lo < 0 ? 0 : lo));

    return _mm512_mask_blend_ps(m, y, x);
}

/* A bit for each lane with a >= b; a NaN is not. */
INLINE unsigned vf_ge_bits(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

/* A bit for each lane that is NaN or infinite. */
INLINE unsigned vf_nonfinite_bits(vf a)
{
    __m512i e =
        _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7f800000));

    return _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(0x7f800000));
}

INLINE float vf_first(vf a)
{
    return _mm512_cvtss_f32(a);
}

INLINE vi vf_to_vi(vf a)
{
    return _mm512_cvtps_epi32(a);
}

INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

/* 2^n, -126 <= n <= 127. */
INLINE vf vf_exp2i(vi n)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}

/* ---- bits ---- */

INLINE vi vi_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

/* x, x + 1, .. */
INLINE vi vi_count(uint32_t x)
{
    return _mm512_add_epi32(
        vi_set(x),
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}

INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

#define vi_shl(a, n) _mm512_slli_epi32(a, n)
#define vi_sar(a, n) _mm512_srai_epi32(a, n)

/* The low half of each product with c; *hi: the high half. */
INLINE vi vi_mul(vi a, uint32_t c, vi *hi)
{
    __m512i m = vi_set(c);
    __m512i even = _mm512_mul_epu32(a, m);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), m);

    *hi = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    return _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

INLINE vf vf_of_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}

INLINE vi vf_bits(vf a)
{
    return _mm512_castps_si512(a);
}

INLINE vf vf_of_vi(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

/* Word i of lane j to to[4 * j + i]. */
INLINE void vi_store4(uint32_t *to, vi a, vi b, vi c, vi d)
{
    __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    __m512i ef = _mm512_unpackhi_epi32(a, b), gh = _mm512_unpackhi_epi32(c, d);
    __m512i r[4];

    r[0] = _mm512_unpacklo_epi64(ab, cd);
    r[1] = _mm512_unpackhi_epi64(ab, cd);
    r[2] = _mm512_unpacklo_epi64(ef, gh);
    r[3] = _mm512_unpackhi_epi64(ef, gh);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m128i *at = (__m128i *)(to + 4 * i);

        _mm_storeu_si128(at, _mm512_castsi512_si128(r[i]));
        _mm_storeu_si128(at + 4, _mm512_extracti32x4_epi32(r[i], 1));
        _mm_storeu_si128(at + 8, _mm512_extracti32x4_epi32(r[i], 2));
        _mm_storeu_si128(at + 12, _mm512_extracti32x4_epi32(r[i], 3));
    }
}

/* A 64-bit integer a lane. */
typedef struct {
    __m512i lo, hi;
} vq;

INLINE vq vq_zero(void)
{
    vq q = {_mm512_setzero_si512(), _mm512_setzero_si512()};

    return q;
}

/* x * 2^40 as integers, to nearest even; 0 <= x <= 1. */
INLINE vq vq_of_2_40(vf x)
{
    const __m512d one = _mm512_set1_pd(0x1p40),
                  magic = _mm512_set1_pd(0x1.8p52);
    __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    vq q;

    lo = _mm512_add_pd(_mm512_mul_pd(lo, one), magic);
    hi = _mm512_add_pd(_mm512_mul_pd(hi, one), magic);
    q.lo =
        _mm512_sub_epi64(_mm512_castpd_si512(lo), _mm512_castpd_si512(magic));
    q.hi =
        _mm512_sub_epi64(_mm512_castpd_si512(hi), _mm512_castpd_si512(magic));
    return q;
}

/* to + x in the lanes where a >= b. */
INLINE vq vq_add_ge(vq to, vq x, vf a, vf b)
{
    __mmask16 m = _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);

    to.lo = _mm512_mask_add_epi64(to.lo, (__mmask8)m, to.lo, x.lo);
    to.hi = _mm512_mask_add_epi64(to.hi, (__mmask8)(m >> 8), to.hi, x.hi);
    return to;
}

INLINE uint64_t vq_sum(vq x)
{
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(x.lo, x.hi));
}

/* The lanes of x whose bits are set, in their order, to to[0..]; to has room
 * for a whole vector. */
INLINE void vf_pack(float *to, vf x, unsigned bits)
{
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps((__mmask16)bits, x));
}

INLINE void vi_pack(int32_t *to, vi x, unsigned bits)
{
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, x));
}

/* ---- folds: lane i with i + 8, i + 4, i + 2, i + 1 ---- */

INLINE float vf_sum(vf a)
{
    __m512 t = _mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));

    t = _mm512_add_ps(t, _mm512_shuffle_f32x4(t, t, 0xb1));
    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0x4e));
    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0xb1));
    return _mm512_cvtss_f32(t);
}

/* Four such folds at once, to out[0..3]: the same additions. */
INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44),
                              _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44),
                              _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 t = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                             _mm512_shuffle_f32x4(ab, cd, 0xdd));

    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0x4e));
    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0xb1));
    t = _mm512_permutexvar_ps(
        _mm512_set_epi32(12, 8, 4, 0, 12, 8, 4, 0, 12, 8, 4, 0, 12, 8, 4, 0),
        t);
    _mm_storeu_ps(out, _mm512_castps512_ps128(t));
}

INLINE float vf_hmax(vf a)
{
    __m512 t = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));

    t = _mm512_max_ps(t, _mm512_shuffle_f32x4(t, t, 0xb1));
    t = _mm512_max_ps(t, _mm512_permute_ps(t, 0x4e));
    t = _mm512_max_ps(t, _mm512_permute_ps(t, 0xb1));
    return _mm512_cvtss_f32(t);
}

/* ---- BF16 in memory; addresses need no alignment ---- */

INLINE vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

INLINE vf vf_load_bf16_n(const void *p, int n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vf_mask_(n), p)), 16));
}

/* The BF16 in the low or the high half of each element, as F32 bits. */
INLINE vi vi_low_bf16(vi u)
{
    return _mm512_slli_epi32(u, 16);
}

INLINE vi vi_high_bf16(vi u)
{
    return _mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000u));
}

INLINE __m256i vf_to_bf16_(vf x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i r = _mm512_add_epi32(
        _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)),
        _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1)));

    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u,
                             _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}

INLINE void vf_store_bf16(void *p, vf x)
{
    _mm256_storeu_si256(p, vf_to_bf16_(x));
}

INLINE void vf_store_bf16_n(void *p, vf x, int n)
{
    _mm256_mask_storeu_epi16(p, vf_mask_(n), vf_to_bf16_(x));
}

/* ---- dot products ---- */

#define DOT_K 32

INLINE __m512i mx_codes_(const uint8_t *q)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)q));
}

/* One block of 32 packed weights, times its scale, as BF16: the low nibble of
 * a byte is the even element. vpermw looks all of them up at once by the low
 * five bits of each word, of which the table ignores the fifth. (A
 * multiplication by 4097 gives the same in one instruction less, but takes the
 * dot product's units: 0.54 for 0.57 of the peak with ten rows an expert.) */
INLINE __m512i mx_bf16_(const uint8_t *q, const struct mx_table *t,
                        uint8_t scale)
{
    __m512i b = mx_codes_(q);

    return _mm512_permutexvar_epi16(
        _mm512_or_si512(b, _mm512_slli_epi32(b, 12)),
        _mm512_load_si512(t->bf16[scale]));
}

INLINE void mx_decode(uint16_t *to, const uint8_t *q, const struct mx_table *t,
                      uint8_t scale)
{
    _mm512_storeu_si512(to, mx_bf16_(q, t, scale));
}

/* 64 columns of a compact block as BF16, escapes still 0: the halves of the
 * values are made as bytes and then interleaved. */
INLINE void compact_bf16(__m512i out[2], const uint8_t *block, int half,
                         const uint8_t *lut)
{
    const __m512i mantissa = _mm512_set1_epi8(0x7f);
    __m512i c = _mm512_loadu_si512(block);
    __m512i s = _mm512_loadu_si512(block + COMPACT_CODES + half * 64);
    __m512i lo = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)lut));
    __m512i hi =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(lut + 16)));

    c = _mm512_and_si512(half ? _mm512_srli_epi16(c, 4) : c,
                         _mm512_set1_epi8(15));
    /* (s & mantissa) | lo; (s & ~mantissa) | hi */
    lo = _mm512_ternarylogic_epi32(s, mantissa, _mm512_shuffle_epi8(lo, c),
                                   0xea);
    hi = _mm512_ternarylogic_epi32(s, mantissa, _mm512_shuffle_epi8(hi, c),
                                   0xba);
    out[0] = _mm512_unpacklo_epi8(lo, hi);
    out[1] = _mm512_unpackhi_epi8(lo, hi);
}

#if ISA_LEVEL == 3

typedef uint16_t xt;
typedef __m512bh wv;

INLINE wv wv_of(__m512i bf16)
{
    return (__m512bh)bf16;
}

INLINE wv wv_load(const uint8_t *w)
{
    return (__m512bh)_mm512_loadu_si512(w);
}

INLINE wv wv_load_n(const uint8_t *w, int n)
{
    return (__m512bh)_mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1u), w);
}

INLINE vf dot(vf acc, wv w, const xt *x)
{
    return _mm512_dpbf16_ps(acc, w, (__m512bh)_mm512_loadu_si512(x));
}

/* Pairs of BF16, a lane each, times the pair q. */
INLINE vf dot_pairs(vf acc, const uint32_t *pairs, uint32_t q)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_loadu_si512(pairs),
                            (__m512bh)_mm512_set1_epi32((int)q));
}

INLINE void wv_mx(wv out[1], const uint8_t *q, const struct mx_table *t,
                  uint8_t scale)
{
    out[0] = (__m512bh)mx_bf16_(q, t, scale);
}

INLINE float xt_get(const xt *x, int k)
{
    return quant_bf16_to_f32(x[k]);
}

#else

typedef float xt;
typedef struct {
    vf even, odd;
} wv;

INLINE wv wv_of(__m512i u)
{
    wv w;

    w.even = _mm512_castsi512_ps(vi_low_bf16(u));
    w.odd = _mm512_castsi512_ps(vi_high_bf16(u));
    return w;
}

INLINE wv wv_load(const uint8_t *w)
{
    return wv_of(_mm512_loadu_si512(w));
}

INLINE wv wv_load_n(const uint8_t *w, int n)
{
    return wv_of(_mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1u), w));
}

INLINE vf dot(vf acc, wv w, const xt *x)
{
    return vf_fma(w.odd, vf_load(x + 16), vf_fma(w.even, vf_load(x), acc));
}

/* Sixteen floats at a time: vpermps takes the low four bits of each index. */
INLINE void wv_mx(wv out[1], const uint8_t *q, const struct mx_table *t,
                  uint8_t scale)
{
    __m512i b = mx_codes_(q);
    vf lut = vf_load_bf16(t->bf16[scale]);

    out[0].even = _mm512_permutexvar_ps(b, lut);
    out[0].odd = _mm512_permutexvar_ps(_mm512_srli_epi32(b, 4), lut);
}

INLINE float xt_get(const xt *x, int k)
{
    return x[(k & ~31) + (k & 1) * 16 + (k % 32) / 2];
}

#endif

/* ---- a 16 x 16 block of 32-bit elements, transposed ---- */

INLINE void vi_transpose(vi r[16])
{
    vi t[16];

#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

INLINE vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE void vi_store(void *p, vi x)
{
    _mm512_storeu_si512(p, x);
}

#endif
