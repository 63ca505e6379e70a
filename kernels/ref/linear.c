/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * linear: BF16 rows times weights of any format. Each row of a weight is read
 * once, for all rows of x: that is what weight_bytes counts.
 */

#include <errno.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

int ref_linear(struct kern *k, const struct kern_linear_args *a)
{
    const uint16_t *x = ref_at(a->x);
    int n = ref_rows(&a->rows);
    double *w = malloc((size_t)a->cols * sizeof(*w));

    if (w == NULL) {
        return -ENOMEM;
    }
    for (int p = 0; p < a->n_parts; p++) {
        const struct kern_weight *part = a->part[p].w;
        float *out = ref_at(a->part[p].out);

        for (int o = 0; o < part->desc.rows; o++) {
            ref_weight_row(part, 0, o, w);
            for (int r = 0; r < n; r++) {
                const uint16_t *row = x + (size_t)r * (size_t)a->x_stride;
                float *to = out + (size_t)r * (size_t)a->part[p].out_stride + o;
                double sum = 0;

                for (int c = 0; c < a->cols; c++) {
                    sum += (double)quant_bf16_to_f32(row[c]) * w[c];
                }
                *to = a->add ? *to + (float)sum : (float)sum;
            }
        }
        k->stats.weight_bytes += n > 0 ? ref_weight_bytes(part) : 0;
    }
    free(w);
    return 0;
}
