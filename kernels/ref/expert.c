/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * expert_up, expert_down: the routed experts (model-spec 2.5). Each row of a
 * hit expert's weights is read once, for all of its pairs; experts come in
 * ascending order, so a row's results are added in ascending expert id.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref.h"

static double dot(const uint16_t *x, const double *w, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        sum += (double)quant_bf16_to_f32(x[i]) * w[i];
    }
    return sum;
}

int ref_expert_up(struct kern *k, const struct kern_expert_up_args *a)
{
    const struct kern_weight_desc *d = &a->gate->desc;
    const int32_t *off = ref_at(a->groups.off), *pair = ref_at(a->groups.pair);
    const uint16_t *x = ref_at(a->x);
    uint16_t *h = ref_at(a->h);
    double *g = malloc((size_t)d->cols * 2 * sizeof(*g));
    double *u = g != NULL ? g + d->cols : NULL;

    if (g == NULL) {
        return -ENOMEM;
    }
    for (int e = 0; e < d->experts; e++) {
        if (off[e] == off[e + 1]) {
            continue;
        }
        for (int f = 0; f < d->rows; f++) {
            ref_weight_row(a->gate, e, f, g);
            ref_weight_row(a->up, e, f, u);
            for (int i = off[e]; i < off[e + 1]; i++) {
                const uint16_t *row =
                    x + (size_t)(pair[i] / a->top_k) * (size_t)d->cols;

                h[(size_t)pair[i] * (size_t)d->rows + (size_t)f] =
                    quant_f32_to_bf16((float)ref_swiglu(
                        (double)(float)dot(row, g, d->cols),
                        (double)(float)dot(row, u, d->cols), (double)a->limit));
            }
        }
        k->stats.expert_loads++;
        k->stats.weight_bytes +=
            ref_weight_bytes(a->gate) + ref_weight_bytes(a->up);
    }
    free(g);
    return 0;
}

int ref_expert_down(struct kern *k, const struct kern_expert_down_args *a)
{
    const struct kern_weight_desc *d = &a->down->desc;
    const int32_t *off = ref_at(a->groups.off), *pair = ref_at(a->groups.pair);
    const uint16_t *h = ref_at(a->h);
    const float *wt = ref_at(a->wt);
    float *out = ref_at(a->out);
    int n = ref_rows(&a->rows);
    size_t n_out = (size_t)n * (size_t)d->rows;
    double *w = malloc((size_t)d->cols * sizeof(*w));
    double *sum = calloc(n_out + 1, sizeof(*sum));
    int ret = -ENOMEM;

    if (w == NULL || sum == NULL) {
        goto out;
    }
    for (int e = 0; e < d->experts; e++) {
        if (off[e] == off[e + 1]) {
            continue;
        }
        for (int o = 0; o < d->rows; o++) {
            ref_weight_row(a->down, e, o, w);
            for (int i = off[e]; i < off[e + 1]; i++) {
                size_t row = (size_t)(pair[i] / a->top_k);

                sum[row * (size_t)d->rows + (size_t)o] +=
                    (double)wt[pair[i]] *
                    dot(h + (size_t)pair[i] * (size_t)d->cols, w, d->cols);
            }
        }
        k->stats.expert_loads++;
        k->stats.weight_bytes += ref_weight_bytes(a->down);
    }
    for (size_t i = 0; i < n_out; i++) {
        out[i] = (float)sum[i];
    }
    ret = 0;
out:
    free(w);
    free(sum);
    return ret;
}
