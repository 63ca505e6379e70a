/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * qkv: per-head RMSNorm and RoPE of q and k, and the writing of k and v into
 * the paged cache (model-spec 2.2, 2.3). A slot whose page is not in the table
 * is not written: its row computes on, and nobody else sees it.
 */

#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

#define D KERN_HEAD_DIM

/* y = rope(norm(x)): one head. The angle is a float product, as everywhere. */
static void head(const struct kern_qkv_args *a, const float *x, const double *w,
                 int pos, uint16_t *ret)
{
    const float *freq = ref_at(a->freq);
    double y[D], sum = 0, scale;

    for (int i = 0; i < D; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    scale = 1 / sqrt(sum / D + (double)a->eps);
    for (int i = 0; i < D; i++) {
        y[i] = (double)x[i] * scale * (1 + w[i]);
    }
    for (int j = 0; j < a->n_freq; j++) {
        float angle = (float)pos * freq[j];
        double c = cos((double)angle), s = sin((double)angle);
        double p = y[j], q = y[j + a->n_freq];

        y[j] = p * c - q * s;
        y[j + a->n_freq] = q * c + p * s;
    }
    for (int i = 0; i < D; i++) {
        ret[i] = quant_f32_to_bf16((float)y[i]);
    }
}

int ref_qkv(struct kern *k, const struct kern_qkv_args *a)
{
    const struct kern_slots *at = &a->at;
    const int32_t *slot = ref_at(at->slot), *seq = ref_at(at->seq);
    const int32_t *table = ref_at(at->table);
    const int32_t *first_page = ref_at(at->first_page);
    const float *q = ref_at(a->q), *kk = ref_at(a->k), *v = ref_at(a->v);
    uint16_t *q_out = ref_at(a->q_out);
    int n = ref_rows(&a->rows), h = a->n_head, g = a->kv.n_kv_head;
    double qw[D], kw[D];

    (void)k;
    ref_weight_row(a->q_norm, 0, 0, qw);
    ref_weight_row(a->k_norm, 0, 0, kw);
    for (int r = 0; r < n; r++) {
        int pos = slot[r] + a->pos_shift;
        int column = slot[r] / KERN_PAGE_TOK - first_page[seq[r]];
        int in_page = slot[r] % KERN_PAGE_TOK;
        int page = column >= 0 && column < at->max_pages
                       ? table[seq[r] * at->max_pages + column]
                       : -1;

        for (int i = 0; i < h; i++) {
            size_t o = ((size_t)r * (size_t)h + (size_t)i) * D;

            head(a, q + o, qw, pos, q_out + o);
        }
        for (int i = 0; page >= 0 && page < a->kv.n_pages && i < g; i++) {
            size_t o = ((size_t)r * (size_t)g + (size_t)i) * D;
            uint16_t *kv = (uint16_t *)((char *)ref_at(a->kv.pages) +
                                        (size_t)page * a->kv.page_bytes);
            uint16_t *to_k = kv + (i * KERN_PAGE_TOK + in_page) * D;
            uint16_t *to_v = to_k + g * KERN_PAGE_TOK * D;

            head(a, kk + o, kw, pos, to_k);
            for (int j = 0; j < D; j++) {
                to_v[j] = quant_f32_to_bf16(v[o + (size_t)j]);
            }
        }
    }
    return 0;
}
