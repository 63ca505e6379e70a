/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * norm: the residual addition and RMSNorm with a zero-centred weight
 * (model-spec 2.0): one rounding at the end.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

static void norm_row(const struct kern_norm_args *a, int r, const double *w)
{
    size_t width = (size_t)a->width;
    float *x = (float *)ref_at(a->x) + (size_t)r * width;
    uint16_t *out = ref_at(a->out);
    float *out_f32 = ref_at(a->out_f32);
    double sum = 0, scale;

    if (a->delta.buf != NULL) {
        const float *delta = (float *)ref_at(a->delta) + (size_t)r * width;

        for (size_t i = 0; i < width; i++) {
            x[i] = x[i] + delta[i];
        }
    }
    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < width; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    scale = 1 / sqrt(sum / a->width + (double)a->eps);
    for (size_t i = 0; i < width; i++) {
        double y = (double)x[i] * scale * (1 + w[i]);

        if (out != NULL) {
            out[(size_t)r * (size_t)a->out_stride + i] =
                quant_f32_to_bf16((float)y);
        }
        if (out_f32 != NULL) {
            out_f32[(size_t)r * width + i] = (float)y;
        }
    }
}

int ref_norm(struct kern *k, const struct kern_norm_args *a)
{
    int n = ref_rows(&a->rows);
    double *w = NULL;

    (void)k;
    if (a->out.buf != NULL || a->out_f32.buf != NULL) {
        w = malloc((size_t)a->width * sizeof(*w));
        if (w == NULL) {
            return -ENOMEM;
        }
        ref_weight_row(a->w, 0, 0, w);
    }
    for (int r = 0; r < n; r++) {
        norm_row(a, r, w);
    }
    free(w);
    return 0;
}
