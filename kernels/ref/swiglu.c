/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * swiglu: model-spec 2.5. The clamp comes after silu on the gate, upper side
 * only, and two-sided on up.
 */

#include <math.h>

#include "kernels/ref/ref.h"

/* A NaN passes through: comparisons with it are false. */
double ref_swiglu(double gate, double up, double limit)
{
    double s = gate / (1 + exp(-gate));

    if (limit != 0) {
        s = s > limit ? limit : s;
        up = up > limit ? limit : up < -limit ? -limit : up;
    }
    return s * up;
}

int ref_swiglu_op(struct kern *k, const struct kern_swiglu_args *a)
{
    const float *gate = ref_at(a->gate), *up = ref_at(a->up);
    uint16_t *out = ref_at(a->out);
    size_t n = (size_t)ref_rows(&a->rows) * (size_t)a->width;

    (void)k;
    for (size_t i = 0; i < n; i++) {
        out[i] = quant_f32_to_bf16((float)ref_swiglu(
            (double)gate[i], (double)up[i], (double)a->limit));
    }
    return 0;
}
