/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * 8 lanes: AVX2 with FMA. BF16 weights are widened to F32, even elements by a
 * shift and odd ones by a mask, and meet activations that x_prepare has parted
 * the same way. Included by simd.h only.
 */
#ifndef STEPD_KERNELS_CPU_SIMD_AVX2_H
#define STEPD_KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>

#define VF_N 8
typedef __m256 vf;
typedef __m256i vi;

INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

INLINE __m256i vf_mask_(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n lanes, 0 <= n <= VF_N; the rest is 0. */
INLINE vf vf_load_n(const float *p, int n)
{
    return _mm256_maskload_ps(p, vf_mask_(n));
}

INLINE void vf_store_n(float *p, vf x, int n)
{
    _mm256_maskstore_ps(p, vf_mask_(n), x);
}

INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

INLINE vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a < b ? x : y, lane by lane; a NaN is not less. */
INLINE vf vf_where_lt(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

INLINE vf vf_where_nan(vf a, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

/* Lanes lo .. hi - 1 of x, y in the others. */
INLINE vf vf_where_lanes(int lo, int hi, vf x, vf y)
{
    __m256i m = _mm256_andnot_si256(vf_mask_(lo), vf_mask_(hi));

    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(m));
}

/* A bit for each lane with a >= b; a NaN is not. */
INLINE unsigned vf_ge_bits(vf a, vf b)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}

/* A bit for each lane that is NaN or infinite. */
INLINE unsigned vf_nonfinite_bits(vf a)
{
    __m256i m = _mm256_set1_epi32(0x7f800000);
    __m256i e = _mm256_and_si256(_mm256_castps_si256(a), m);

    return (unsigned)_mm256_movemask_ps(
        _mm256_castsi256_ps(_mm256_cmpeq_epi32(e, m)));
}

INLINE float vf_first(vf a)
{
    return _mm256_cvtss_f32(a);
}

INLINE vi vf_to_vi(vf a)
{
    return _mm256_cvtps_epi32(a);
}

INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

/* 2^n, -126 <= n <= 127. */
INLINE vf vf_exp2i(vi n)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* ---- bits ---- */

INLINE vi vi_set(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

/* x, x + 1, .. */
INLINE vi vi_count(uint32_t x)
{
    return _mm256_add_epi32(vi_set(x),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}

INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

#define vi_shl(a, n) _mm256_slli_epi32(a, n)
#define vi_sar(a, n) _mm256_srai_epi32(a, n)

/* The low half of each product with c; *hi: the high half. */
INLINE vi vi_mul(vi a, uint32_t c, vi *hi)
{
    __m256i m = vi_set(c);
    __m256i even = _mm256_mul_epu32(a, m);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);

    *hi = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

INLINE vf vf_of_bits(vi a)
{
    return _mm256_castsi256_ps(a);
}

INLINE vi vf_bits(vf a)
{
    return _mm256_castps_si256(a);
}

INLINE vf vf_of_vi(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

/* Word i of lane j to to[4 * j + i]. */
INLINE void vi_store4(uint32_t *to, vi a, vi b, vi c, vi d)
{
    __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    __m256i ef = _mm256_unpackhi_epi32(a, b), gh = _mm256_unpackhi_epi32(c, d);
    __m256i r[4];

    r[0] = _mm256_unpacklo_epi64(ab, cd);
    r[1] = _mm256_unpackhi_epi64(ab, cd);
    r[2] = _mm256_unpacklo_epi64(ef, gh);
    r[3] = _mm256_unpackhi_epi64(ef, gh);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m128i *at = (__m128i *)(to + 4 * i);

        _mm_storeu_si128(at, _mm256_castsi256_si128(r[i]));
        _mm_storeu_si128(at + 4, _mm256_extracti128_si256(r[i], 1));
    }
}

/* A 64-bit integer a lane. */
typedef struct {
    __m256i lo, hi;
} vq;

INLINE vq vq_zero(void)
{
    vq q = {_mm256_setzero_si256(), _mm256_setzero_si256()};

    return q;
}

/* x * 2^40 as integers, to nearest even; 0 <= x <= 1. */
INLINE vq vq_of_2_40(vf x)
{
    const __m256d one = _mm256_set1_pd(0x1p40),
                  magic = _mm256_set1_pd(0x1.8p52);
    __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    vq q;

    lo = _mm256_add_pd(_mm256_mul_pd(lo, one), magic);
    hi = _mm256_add_pd(_mm256_mul_pd(hi, one), magic);
    q.lo =
        _mm256_sub_epi64(_mm256_castpd_si256(lo), _mm256_castpd_si256(magic));
    q.hi =
        _mm256_sub_epi64(_mm256_castpd_si256(hi), _mm256_castpd_si256(magic));
    return q;
}

/* to + x in the lanes where a >= b. */
INLINE vq vq_add_ge(vq to, vq x, vf a, vf b)
{
    __m256i m = _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
    __m256i lo = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(m));
    __m256i hi = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(m, 1));

    to.lo = _mm256_add_epi64(to.lo, _mm256_and_si256(x.lo, lo));
    to.hi = _mm256_add_epi64(to.hi, _mm256_and_si256(x.hi, hi));
    return to;
}

INLINE uint64_t vq_sum(vq x)
{
    int64_t out[4];

    _mm256_storeu_si256((void *)out, _mm256_add_epi64(x.lo, x.hi));
    return (uint64_t)(out[0] + out[1] + out[2] + out[3]);
}

/* The lanes of x whose bits are set, in their order, to to[0..]; to has room
 * for a whole vector. */
INLINE void vf_pack(float *to, vf x, unsigned bits)
{
    float lane[8];

    _mm256_storeu_ps(lane, x);
    for (; bits != 0; bits &= bits - 1) {
        *to++ = lane[__builtin_ctz(bits)];
    }
}

INLINE void vi_pack(int32_t *to, vi x, unsigned bits)
{
    int32_t lane[8];

    _mm256_storeu_si256((void *)lane, x);
    for (; bits != 0; bits &= bits - 1) {
        *to++ = lane[__builtin_ctz(bits)];
    }
}

/* ---- folds: lane i with i + 4, i + 2, i + 1 ---- */

INLINE float vf_sum(vf a)
{
    __m128 t =
        _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(t) + _mm_cvtss_f32(_mm_shuffle_ps(t, t, 1));
}

/* Four such folds at once, to out[0..3]: the same additions. */
INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    __m256 ac = _mm256_add_ps(_mm256_permute2f128_ps(a, c, 0x20),
                              _mm256_permute2f128_ps(a, c, 0x31));
    __m256 bd = _mm256_add_ps(_mm256_permute2f128_ps(b, d, 0x20),
                              _mm256_permute2f128_ps(b, d, 0x31));
    /* a0+a2 b0+b2 a1+a3 b1+b3 | the same of c and d */
    __m256 t =
        _mm256_add_ps(_mm256_unpacklo_ps(ac, bd), _mm256_unpackhi_ps(ac, bd));
    __m128 lo, hi;

    t = _mm256_add_ps(t, _mm256_permute_ps(t, 0x4e));
    lo = _mm256_castps256_ps128(t);
    hi = _mm256_extractf128_ps(t, 1);
    _mm_storeu_ps(out, _mm_movelh_ps(lo, hi));
}

INLINE float vf_hmax(vf a)
{
    __m128 t =
        _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}

/* ---- BF16 in memory; addresses need no alignment ---- */

INLINE vf vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

INLINE vf vf_load_bf16_n(const void *p, int n)
{
    uint16_t t[8] = {0};

    memcpy(t, p, (size_t)n * 2);
    return vf_load_bf16(t);
}

/* The BF16 in the low or the high half of each element, as F32 bits. */
INLINE vi vi_low_bf16(vi u)
{
    return _mm256_slli_epi32(u, 16);
}

INLINE vi vi_high_bf16(vi u)
{
    return _mm256_and_si256(u, _mm256_set1_epi32((int)0xffff0000u));
}

INLINE __m128i vf_to_bf16_(vf x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i r = _mm256_add_epi32(
        _mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)),
        _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1)));
    __m256i q = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));

    r = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(r), _mm256_castsi256_ps(q),
                         _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    r = _mm256_srli_epi32(r, 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    return _mm256_castsi256_si128(r);
}

INLINE void vf_store_bf16(void *p, vf x)
{
    _mm_storeu_si128(p, vf_to_bf16_(x));
}

INLINE void vf_store_bf16_n(void *p, vf x, int n)
{
    uint16_t t[8];

    vf_store_bf16(t, x);
    memcpy(p, t, (size_t)n * 2);
}

/* ---- dot products ---- */

#define DOT_K 16

typedef float xt;
typedef struct {
    vf even, odd;
} wv;

INLINE wv wv_of(__m256i u)
{
    wv w;

    w.even = _mm256_castsi256_ps(vi_low_bf16(u));
    w.odd = _mm256_castsi256_ps(vi_high_bf16(u));
    return w;
}

INLINE wv wv_load(const uint8_t *w)
{
    return wv_of(_mm256_loadu_si256((const void *)w));
}

INLINE wv wv_load_n(const uint8_t *w, int n)
{
    uint16_t t[16] = {0};

    memcpy(t, w, (size_t)n * 2);
    return wv_of(_mm256_loadu_si256((const void *)t));
}

INLINE vf dot(vf acc, wv w, const xt *x)
{
    return vf_fma(w.odd, vf_load(x + 8), vf_fma(w.even, vf_load(x), acc));
}

/* One block of 32 packed weights, times its scale; the low nibble of a byte is
 * the even element. One byte shuffle a half of the BF16 value looks up all 32
 * codes. The 32-bit words of the block are taken in the order 0 2 1 3, so that
 * the in-lane unpacks end in ascending order. */
INLINE void mx_bf16_(__m256i out[2], const uint8_t *q, const struct mx_table *t,
                     uint8_t scale)
{
    const __m128i *lut = (const void *)t->bytes[scale];
    __m128i raw = _mm_shuffle_epi32(_mm_loadu_si128((const void *)q), 0xd8);
    __m256i b = _mm256_cvtepu8_epi16(raw);
    __m256i c = _mm256_and_si256(_mm256_or_si256(b, _mm256_slli_epi16(b, 4)),
                                 _mm256_set1_epi8(15));
    __m256i lo = _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(lut)), c);
    __m256i hi = _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(lut + 1)), c);

    out[0] = _mm256_unpacklo_epi8(lo, hi);
    out[1] = _mm256_unpackhi_epi8(lo, hi);
}

/* 64 columns of a compact block as BF16, escapes still 0: the halves of the
 * values are made as bytes and then interleaved. */
INLINE void compact_bf16(__m256i out[4], const uint8_t *block, int half,
                         const uint8_t *lut)
{
    const __m256i mantissa = _mm256_set1_epi8(0x7f);
    const __m256i low =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)lut));
    const __m256i high =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(lut + 16)));

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const uint8_t *from = block + i * 32;
        __m256i c = _mm256_loadu_si256((const void *)from);
        __m256i s = _mm256_loadu_si256(
            (const void *)(from + COMPACT_CODES + half * 64));
        __m256i lo, hi;

        c = _mm256_and_si256(half ? _mm256_srli_epi16(c, 4) : c,
                             _mm256_set1_epi8(15));
        lo = _mm256_or_si256(_mm256_and_si256(s, mantissa),
                             _mm256_shuffle_epi8(low, c));
        hi = _mm256_or_si256(_mm256_andnot_si256(mantissa, s),
                             _mm256_shuffle_epi8(high, c));
        out[i] = _mm256_unpacklo_epi8(lo, hi);
        out[2 + i] = _mm256_unpackhi_epi8(lo, hi);
    }
}

INLINE void mx_decode(uint16_t *to, const uint8_t *q, const struct mx_table *t,
                      uint8_t scale)
{
    __m256i w[2];

    mx_bf16_(w, q, t, scale);
    _mm256_storeu_si256((void *)to, w[0]);
    _mm256_storeu_si256((void *)(to + 16), w[1]);
}

/* The block as two chunks of even and odd elements. Byte i of the first chunk
 * lies beside byte i of the second, its low nibbles in one half of a lane and
 * its high ones in the other: so a look-up ends in 32-bit words of which each
 * half is an element of its chunk, and nothing need be interleaved. 15 vector
 * operations with the products, for 17 bytes. */
INLINE void wv_mx(wv out[2], const uint8_t *q, const struct mx_table *t,
                  uint8_t scale)
{
    const __m256i spread =
        _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11, 4,
                         12, 5, 13, 6, 14, 7, 15, 4, 12, 5, 13, 6, 14, 7, 15);
    const __m128i *lut = (const void *)t->bytes[scale];
    __m256i c = _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)q)), spread);
    __m256i lo, hi;
    wv even, odd;

    c = _mm256_and_si256(_mm256_srlv_epi64(c, _mm256_setr_epi64x(0, 4, 0, 4)),
                         _mm256_set1_epi8(15));
    lo = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(lut)),
                             c);
    hi = _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(lut + 1)), c);
    even = wv_of(_mm256_unpacklo_epi8(lo, hi));
    odd = wv_of(_mm256_unpackhi_epi8(lo, hi));
    out[0] = (wv){even.even, odd.even};
    out[1] = (wv){even.odd, odd.odd};
}

INLINE float xt_get(const xt *x, int k)
{
    return x[(k & ~15) + (k & 1) * 8 + (k % 16) / 2];
}

/* ---- an 8 x 8 block of 32-bit elements, transposed ---- */

INLINE void vi_transpose(vi r[8])
{
    vi t[8];

#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = t[i];
    }
}

INLINE vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE void vi_store(void *p, vi x)
{
    _mm256_storeu_si256(p, x);
}

#endif
