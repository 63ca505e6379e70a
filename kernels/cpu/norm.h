/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_NORM_H
#define STEPD_KERNELS_CPU_NORM_H

/* RMSNorm's parts, for norm and qkv: x * norm_scale * norm_gain. */

#include <math.h>

#include "kernels/cpu/simd.h"

INLINE float norm_scale(float sum_of_squares, int n, float eps)
{
    return 1.0f / sqrtf(sum_of_squares / (float)n + eps);
}

/* 1 + w[i ..], BF16 or F32; n <= VF_N of them, the rest is 1. */
INLINE vf norm_gain(const struct kern_weight *w, int i, int n)
{
    const uint8_t *p = cpu_plane(w, 0, 0);

    if (w->desc.dtype == KERN_BF16) {
        p += (size_t)i * 2;
        return vf_add(vf_set(1.0f),
                      n < VF_N ? vf_load_bf16_n(p, n) : vf_load_bf16(p));
    }
    return vf_add(vf_set(1.0f), vf_load_n((const float *)p + i, n));
}

#endif
