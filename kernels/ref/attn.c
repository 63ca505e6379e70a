/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * attn: causal attention over the paged cache (model-spec 2.2, 5 to 6). Slots
 * in ascending order, which is pages in ascending order; a slot outside the
 * mask, or whose page is not in the table, is not looked at.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

#define D KERN_HEAD_DIM

/* The K vector of a slot for KV head g, or NULL; V lies G * 64 * D further. */
static const uint16_t *key(const struct kern_attn_args *a, int seq, int slot,
                           int g)
{
    const struct kern_slots *at = &a->at;
    const int32_t *table = ref_at(at->table);
    int column =
        slot / KERN_PAGE_TOK - ((const int32_t *)ref_at(at->first_page))[seq];
    int page = column >= 0 && column < at->max_pages
                   ? table[seq * at->max_pages + column]
                   : -1;

    if (page < 0 || page >= a->kv.n_pages) {
        return NULL;
    }
    return (const uint16_t *)((const char *)ref_at(a->kv.pages) +
                              (size_t)page * a->kv.page_bytes) +
           (g * KERN_PAGE_TOK + slot % KERN_PAGE_TOK) * D;
}

static double dot(const uint16_t *x, const uint16_t *y)
{
    double sum = 0;

    for (int i = 0; i < D; i++) {
        sum +=
            (double)quant_bf16_to_f32(x[i]) * (double)quant_bf16_to_f32(y[i]);
    }
    return sum;
}

/* One query head over slots lo..hi; score has room for all of them. */
static void head(const struct kern_attn_args *a, const uint16_t *q, int seq,
                 int g, int lo, int hi, double *score, double *ret)
{
    size_t to_v = (size_t)a->kv.n_kv_head * KERN_PAGE_TOK * D;
    double max = -INFINITY, sum = 0;

    for (int u = lo; u <= hi; u++) {
        const uint16_t *at = key(a, seq, u, g);

        score[u - lo] = at == NULL ? -INFINITY : dot(q, at) / sqrt(D);
        max = fmax(max, score[u - lo]);
    }
    for (int i = 0; i < D; i++) {
        ret[i] = 0;
    }
    for (int u = lo; u <= hi; u++) {
        const uint16_t *at = key(a, seq, u, g);
        double p = exp(score[u - lo] - max);

        if (at == NULL) {
            continue;
        }
        sum += p;
        for (int i = 0; i < D; i++) {
            ret[i] += p * (double)quant_bf16_to_f32(at[to_v + (size_t)i]);
        }
    }
    for (int i = 0; i < D; i++) {
        ret[i] /= sum;
    }
}

int ref_attn(struct kern *k, const struct kern_attn_args *a)
{
    const int32_t *slot = ref_at(a->at.slot), *seq = ref_at(a->at.seq);
    const int32_t *low = ref_at(a->at.low);
    const uint16_t *q = ref_at(a->q);
    const float *gate = ref_at(a->gate);
    uint16_t *out = ref_at(a->out);
    int n = ref_rows(&a->rows), h = a->n_head;

    for (int r = 0; r < n; r++) {
        int hi = slot[r], lo = low[seq[r]];
        double *score;

        if (a->window > 0 && hi - a->window + 1 > lo) {
            lo = hi - a->window + 1;
        }
        score = malloc((size_t)(hi - lo + 1) * sizeof(*score));
        if (score == NULL) {
            return -ENOMEM;
        }
        for (int i = 0; i < h; i++) {
            size_t o = ((size_t)r * (size_t)h + (size_t)i) * D;
            double y[D], f = 1;

            head(a, q + o, seq[r], i / (h / a->kv.n_kv_head), lo, hi, score, y);
            if (gate != NULL) {
                f = 1 / (1 + exp(-(double)gate[r * h + i]));
            }
            for (int j = 0; j < D; j++) {
                out[o + (size_t)j] = quant_f32_to_bf16((float)(y[j] * f));
            }
        }
        free(score);
        k->stats.kv_bytes += (uint64_t)(hi - lo + 1) * a->kv.bytes_per_token;
    }
    return 0;
}
