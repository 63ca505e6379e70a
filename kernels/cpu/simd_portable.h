/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * 4 lanes of the compilers' own vector type, which they lower to SSE2, NEON or
 * plain scalars. Included by simd.h only.
 */
#ifndef STEPD_KERNELS_CPU_SIMD_PORTABLE_H
#define STEPD_KERNELS_CPU_SIMD_PORTABLE_H

#define VF_N 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

INLINE vf vf_set(float x)
{
    return (vf){x, x, x, x};
}

INLINE vf vf_load(const float *p)
{
    vf x;

    memcpy(&x, p, sizeof(x));
    return x;
}

INLINE void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof(x));
}

/* The first n lanes, 0 <= n <= VF_N; the rest is 0. */
INLINE vf vf_load_n(const float *p, int n)
{
    float t[VF_N] = {0};

    memcpy(t, p, (size_t)n * sizeof(*p));
    return vf_load(t);
}

INLINE void vf_store_n(float *p, vf x, int n)
{
    float t[VF_N];

    vf_store(t, x);
    memcpy(p, t, (size_t)n * sizeof(*p));
}

INLINE vf vf_add(vf a, vf b)
{
    return a + b;
}

INLINE vf vf_sub(vf a, vf b)
{
    return a - b;
}

INLINE vf vf_mul(vf a, vf b)
{
    return a * b;
}

INLINE vf vf_div(vf a, vf b)
{
    return a / b;
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

/* m (all ones or all zeros a lane) ? x : y */
INLINE vf vf_pick_(vi m, vf x, vf y)
{
    return (vf)((m & (vi)x) | (~m & (vi)y));
}

INLINE vf vf_min(vf a, vf b)
{
    return vf_pick_(a < b, a, b);
}

INLINE vf vf_max(vf a, vf b)
{
    return vf_pick_(a > b, a, b);
}

/* To the nearest integer, |a| < 2^22. */
INLINE vf vf_round(vf a)
{
    vf big = vf_set(12582912.0f);

    return (a + big) - big;
}

/* a < b ? x : y, lane by lane; a NaN is not less. */
INLINE vf vf_where_lt(vf a, vf b, vf x, vf y)
{
    return vf_pick_(a < b, x, y);
}

INLINE vf vf_where_nan(vf a, vf x, vf y)
{
    return vf_pick_(a != a, x, y);
}

/* Lanes lo .. hi - 1 of x, y in the others. */
INLINE vf vf_where_lanes(int lo, int hi, vf x, vf y)
{
    const vi lane = {0, 1, 2, 3};
    const vi vlo = {lo, lo, lo, lo}, vhi = {hi, hi, hi, hi};

    return vf_pick_((lane >= vlo) & (lane < vhi), x, y);
}

/* A bit for each lane with a >= b; a NaN is not. */
INLINE unsigned vf_ge_bits(vf a, vf b)
{
    vi m = a >= b;

    return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u);
}

/* A bit for each lane that is NaN or infinite. */
INLINE unsigned vf_nonfinite_bits(vf a)
{
    const vi e = {0x7f800000, 0x7f800000, 0x7f800000, 0x7f800000};
    vi m = ((vi)a & e) == e;

    return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u);
}

INLINE float vf_first(vf a)
{
    return a[0];
}

INLINE vi vf_to_vi(vf a)
{
    return __builtin_convertvector(vf_round(a), vi);
}

INLINE vi vi_sub(vi a, vi b)
{
    return a - b;
}

/* 2^n, -126 <= n <= 127. */
INLINE vf vf_exp2i(vi n)
{
    return (vf)((n + 127) << 23);
}

/* ---- folds: lane i with i + 2, i + 1 ---- */

INLINE float vf_sum(vf a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}

INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    out[0] = vf_sum(a);
    out[1] = vf_sum(b);
    out[2] = vf_sum(c);
    out[3] = vf_sum(d);
}

INLINE float vf_hmax(vf a)
{
    float x = a[0] > a[2] ? a[0] : a[2], y = a[1] > a[3] ? a[1] : a[3];

    return x > y ? x : y;
}

/* ---- BF16 in memory; addresses need no alignment ---- */

INLINE vf vf_load_bf16(const void *p)
{
    uint16_t t[4];
    vi u;

    memcpy(t, p, sizeof(t));
    u = (vi){t[0], t[1], t[2], t[3]};
    return (vf)(u << 16);
}

INLINE vf vf_load_bf16_n(const void *p, int n)
{
    uint16_t t[4] = {0};

    memcpy(t, p, (size_t)n * 2);
    return vf_load_bf16(t);
}

INLINE void vf_store_bf16_n(void *p, vf x, int n)
{
    uint16_t t[4];

    for (int i = 0; i < 4; i++) {
        t[i] = quant_f32_to_bf16(x[i]);
    }
    memcpy(p, t, (size_t)n * 2);
}

INLINE void vf_store_bf16(void *p, vf x)
{
    vf_store_bf16_n(p, x, 4);
}

/* The BF16 in the low or the high half of each element, as F32 bits. */
INLINE vi vi_low_bf16(vi u)
{
    return u << 16;
}

INLINE vi vi_high_bf16(vi u)
{
    const vi mask = {(int)0xffff0000u, (int)0xffff0000u, (int)0xffff0000u,
                     (int)0xffff0000u};

    return u & mask;
}

/* ---- dot products ---- */

#if ISA_BF16
#include "kernels/cpu/simd_neonbf16.h"
#else

#define DOT_K 8

typedef float xt;
typedef struct {
    vf even, odd;
} wv;

INLINE wv wv_load(const uint8_t *w)
{
    vi u;
    wv r;

    memcpy(&u, w, sizeof(u));
    r.even = (vf)vi_low_bf16(u);
    r.odd = (vf)vi_high_bf16(u);
    return r;
}

INLINE wv wv_load_n(const uint8_t *w, int n)
{
    uint16_t t[DOT_K] = {0};

    memcpy(t, w, (size_t)n * 2);
    return wv_load((const uint8_t *)t);
}

INLINE vf dot(vf acc, wv w, const xt *x)
{
    return vf_fma(w.odd, vf_load(x + 4), vf_fma(w.even, vf_load(x), acc));
}

/* One block of 32 packed weights, times its scale, as BF16; the low nibble of a
 * byte is the even element. */
INLINE void mx_decode(uint16_t *to, const uint8_t *q, const struct mx_table *t,
                      uint8_t scale)
{
    const uint16_t *v = t->bf16[scale];

    for (int i = 0; i < 16; i++) {
        to[2 * i] = v[q[i] & 15];
        to[2 * i + 1] = v[q[i] >> 4];
    }
}

INLINE void wv_mx(wv out[4], const uint8_t *q, const struct mx_table *t,
                  uint8_t scale)
{
    uint16_t b[32];

    mx_decode(b, q, t, scale);
    for (int i = 0; i < 4; i++) {
        out[i] = wv_load((const uint8_t *)(b + 8 * i));
    }
}

INLINE float xt_get(const xt *x, int k)
{
    return x[(k & ~7) + (k & 1) * 4 + (k % 8) / 2];
}

#endif

/* ---- a 4 x 4 block of 32-bit elements, transposed ---- */

INLINE void vi_transpose(vi r[4])
{
    vi t[4];

    for (int i = 0; i < 4; i++) {
        t[i] = (vi){r[0][i], r[1][i], r[2][i], r[3][i]};
    }
    for (int i = 0; i < 4; i++) {
        r[i] = t[i];
    }
}

INLINE vi vi_load(const void *p)
{
    vi x;

    memcpy(&x, p, sizeof(x));
    return x;
}

INLINE void vi_store(void *p, vi x)
{
    memcpy(p, &x, sizeof(x));
}

#endif
