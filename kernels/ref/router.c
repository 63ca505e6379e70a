/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * router: which experts a row takes, with which weights (model-spec 2.5), and
 * the rows of each expert. The bias steers the choice and nothing else.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* Whether score a beats score b, b's id being the lower one. */
static bool better(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Picks and weighs for one row; p are the sigmoids. */
static void pick(const struct kern_router_args *a, const float *p,
                 const double *bias, int32_t *sel, float *wt)
{
    int n = 0;
    double sum = 0;

    for (int j = 0; j < a->top_k; j++) {
        int best = -1, at;

        for (int e = 0; e < a->n_expert; e++) {
            bool taken = false;

            for (int i = 0; i < n; i++) {
                taken = taken || sel[i] == e;
            }
            if (!taken && (best < 0 || better(p[e] + (float)bias[e],
                                              p[best] + (float)bias[best]))) {
                best = e;
            }
        }
        for (at = n; at > 0 && sel[at - 1] > best; at--) {
            sel[at] = sel[at - 1];
        }
        sel[at] = best;
        n++;
    }
    for (int j = 0; j < n; j++) {
        sum += (double)p[sel[j]];
    }
    for (int j = 0; j < n; j++) {
        double w = (double)p[sel[j]];

        w = a->renorm ? w / (sum + 1e-20) : w;
        wt[j] = (float)(w * (double)a->scale);
    }
}

/* Pairs by expert, rows ascending within one. */
static void group(const struct kern_router_args *a, int n_rows,
                  const int32_t *sel)
{
    int32_t *off = ref_at(a->groups.off), *pair = ref_at(a->groups.pair);
    int n = 0;

    for (int e = 0; e < a->n_expert; e++) {
        off[e] = n;
        for (int i = 0; i < n_rows * a->top_k; i++) {
            if (sel[i] == e) {
                pair[n++] = i;
            }
        }
    }
    off[a->n_expert] = n;
}

int ref_router(struct kern *k, const struct kern_router_args *a)
{
    const float *x = ref_at(a->x);
    int32_t *sel = ref_at(a->sel);
    float *wt = ref_at(a->wt);
    int n = ref_rows(&a->rows), d = a->w->desc.cols, n_e = a->n_expert;
    double *w = malloc((size_t)d * sizeof(*w));
    double *bias = calloc((size_t)n_e, sizeof(*bias));
    float *p = malloc(((size_t)n * (size_t)n_e + 1) * sizeof(*p));
    int ret = -ENOMEM;

    if (w == NULL || bias == NULL || p == NULL) {
        goto out;
    }
    if (a->bias != NULL) {
        ref_weight_row(a->bias, 0, 0, bias);
    }
    for (int e = 0; e < n_e; e++) {
        ref_weight_row(a->w, 0, e, w);
        for (int r = 0; r < n; r++) {
            double sum = 0;

            for (int c = 0; c < d; c++) {
                sum += (double)x[(size_t)r * (size_t)d + (size_t)c] * w[c];
            }
            p[r * n_e + e] = (float)(1 / (1 + exp(-sum)));
        }
    }
    for (int r = 0; r < n; r++) {
        pick(a, p + r * n_e, bias, sel + r * a->top_k, wt + r * a->top_k);
    }
    group(a, n, sel);
    k->stats.weight_bytes += n > 0 ? ref_weight_bytes(a->w) : 0;
    ret = 0;
out:
    free(w);
    free(bias);
    free(p);
    return ret;
}
