/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * embed, gather, finite: ops that move or look at rows and compute nothing.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref.h"

int ref_embed(struct kern *k, const struct kern_embed_args *a)
{
    const struct kern_weight_desc *d = &a->table->desc;
    const int32_t *ids = ref_at(a->ids);
    float *out = ref_at(a->out);
    size_t width = (size_t)d->cols;
    double *row = malloc(width * sizeof(*row));
    int n = ref_rows(&a->rows);

    (void)k;
    if (row == NULL) {
        return -ENOMEM;
    }
    for (int r = 0; r < n; r++) {
        bool known = ids[r] >= 0 && ids[r] < d->rows;

        if (known) {
            ref_weight_row(a->table, 0, ids[r], row);
        }
        for (size_t i = 0; i < width; i++) {
            out[(size_t)r * width + i] = known ? (float)row[i] : 0.0f;
        }
    }
    free(row);
    return 0;
}

int ref_gather(struct kern *k, const struct kern_gather_args *a)
{
    const int32_t *src = ref_at(a->src), *dst = ref_at(a->dst);
    const float *x = ref_at(a->x);
    float *out = ref_at(a->out);
    size_t width = (size_t)a->width;
    int n = ref_rows(&a->rows);

    (void)k;
    for (int r = 0; r < n; r++) {
        size_t to = (size_t)(dst != NULL ? dst[r] : r);

        if (src[r] >= 0) {
            memmove(out + to * width, x + (size_t)src[r] * width,
                    width * sizeof(*x));
        }
    }
    return 0;
}

int ref_finite(struct kern *k, const struct kern_finite_args *a)
{
    const float *x = ref_at(a->x);
    int32_t *bad = ref_at(a->bad);
    int n = ref_rows(&a->rows);

    (void)k;
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < a->width && bad[r] == 0; i++) {
            if (!isfinite(x[(size_t)r * (size_t)a->width + (size_t)i])) {
                bad[r] = a->mark;
            }
        }
    }
    return 0;
}
