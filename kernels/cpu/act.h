/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_ACT_H
#define STEPD_KERNELS_CPU_ACT_H

/* SwiGLU as model-spec has it, for swiglu and the experts alike. Written with
 * comparisons that are false for a NaN, so that clamping cannot hide one. */

#include "kernels/cpu/simd.h"

INLINE vf swiglu(vf gate, vf up, float limit)
{
    vf hi = vf_set(limit), lo = vf_set(-limit);
    vf s = vf_mul(gate, vf_sigmoid(gate));

    if (limit != 0.0f) {
        s = vf_where_lt(hi, s, hi, s);
        up = vf_where_lt(hi, up, hi, up);
        up = vf_where_lt(up, lo, lo, up);
    }
    return vf_mul(s, up);
}

/* out[i] = bf16(swiglu(gate[i], up[i])), i < n */
INLINE void swiglu_row(uint16_t *out, const float *gate, const float *up, int n,
                       float limit)
{
    int i = 0;

    for (; i + VF_N <= n; i += VF_N) {
        vf_store_bf16(out + i,
                      swiglu(vf_load(gate + i), vf_load(up + i), limit));
    }
    if (i < n) {
        vf_store_bf16_n(
            out + i,
            swiglu(vf_load_n(gate + i, n - i), vf_load_n(up + i, n - i), limit),
            n - i);
    }
}

#endif
