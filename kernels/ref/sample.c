/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * sample: kernels/sample.h, step by step, with a full sort where it speaks of
 * an order. Slow and plain; every other backend must give the same bits.
 */

#include "kernels/sample.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

/* A candidate: what is left of an id after the mask. */
struct cand {
    float z;
    int32_t id;
    uint64_t w;
};

/* z descending, id ascending: a total order, since ids differ. */
static int order(const void *pa, const void *pb)
{
    const struct cand *a = pa, *b = pb;

    if (a->z != b->z) {
        return a->z > b->z ? -1 : 1;
    }
    return a->id < b->id ? -1 : 1;
}

/* Steps 1 to 3: candidates in c, in the order of ids; returns their number. */
static int candidates(const struct kern_sample_args *a,
                      const struct kern_sample_row *p, const float *l,
                      bool greedy, struct cand *c)
{
    const struct kern_penalty *pen = ref_at(a->pen);
    const uint32_t *mask = ref_at(a->masks);
    int n = 0;

    for (int i = 0; i < a->vocab; i++) {
        c[i].z = l[i];
    }
    for (int i = 0; i < p->pen_n; i++) {
        const struct kern_penalty *e = &pen[p->pen_off + i];

        c[e->id].z = sample_penalise(c[e->id].z, e->count, e->bias,
                                     p->repetition, p->presence, p->frequency);
    }
    if (mask != NULL && p->mask >= 0) {
        mask += (size_t)p->mask * (((size_t)a->vocab + 31) / 32);
    } else {
        mask = NULL;
    }
    for (int i = 0; i < a->vocab; i++) {
        float z = greedy ? c[i].z : c[i].z / p->temperature;

        if (mask == NULL || (mask[i / 32] >> (i % 32) & 1u) != 0) {
            c[n].z = sample_clamp(z);
            c[n++].id = i;
        }
    }
    return n;
}

/* Steps 4 to 6, on candidates in their order; returns how many stay. */
static int truncate(const struct kern_sample_row *p, int vocab, struct cand *c,
                    int n)
{
    uint64_t total = 0, before = 0;
    int kept = 0;

    if (p->top_k > 0 && p->top_k < vocab && p->top_k < n) {
        n = p->top_k;
    }
    for (int i = 0; i < n; i++) {
        c[i].w = sample_weight(c[i].z - c[0].z);
        total += c[i].w;
    }
    for (int i = 0; i < n; i++) {
        bool stays = true;

        if (p->top_p < 1.0f) {
            stays = (double)before < (double)p->top_p * (double)total;
        }
        if (p->min_p > 0.0f) {
            stays = stays && (double)c[i].w >= (double)p->min_p * SAMPLE_ONE;
        }
        before += c[i].w;
        if (i > 0 && !stays) {
            continue;
        }
        c[kept++] = c[i];
    }
    return kept;
}

/* Leaves in c, in order, what it was drawn from, and how many in *ret_n. */
static int32_t draw(const struct kern_sample_args *a,
                    const struct kern_sample_row *p, int32_t pos,
                    const float *l, struct cand *c, int *ret_n)
{
    bool greedy = p->temperature < SAMPLE_MIN_TEMPERATURE || p->beta == 0.0f;
    int n = candidates(a, p, l, greedy, c);
    int32_t best = KERN_DRAW_MASKED;
    float best_score = 0;

    *ret_n = n;
    if (n == 0) {
        return KERN_DRAW_MASKED;
    }
    qsort(c, (size_t)n, sizeof(*c), order);
    if (greedy) {
        return c[0].id;
    }
    n = truncate(p, a->vocab, c, n);
    *ret_n = n;
    for (int i = 0; i < n; i++) {
        float score =
            fmaf(c[i].z, p->beta, sample_noise(p->seed, pos, c[i].id));

        if (best < 0 || score > best_score ||
            (score == best_score && c[i].id < best)) {
            best = c[i].id;
            best_score = score;
        }
    }
    return best;
}

/* All raw logits in their order; returns their number. */
static int all_logits(const float *l, int vocab, struct cand *c)
{
    for (int i = 0; i < vocab; i++) {
        c[i].z = l[i];
        c[i].id = i;
    }
    qsort(c, (size_t)vocab, sizeof(*c), order);
    return vocab;
}

/* Of the n in c, which are in order. */
static void logprobs(int n_top, const struct cand *c, int n,
                     struct kern_sample_out *ret)
{
    uint64_t total = 0;
    float log_total;

    for (int i = 0; i < n; i++) {
        total += sample_weight(c[i].z - c[0].z);
    }
    log_total = sample_log_total(total);
    for (int i = 0; i < n; i++) {
        if (c[i].id == ret->id) {
            ret->logprob = sample_logprob(c[i].z, c[0].z, log_total);
        }
    }
    ret->n_top = n_top < n ? n_top : n;
    for (int i = 0; i < ret->n_top; i++) {
        ret->top_id[i] = c[i].id;
        ret->top_logprob[i] = sample_logprob(c[i].z, c[0].z, log_total);
    }
}

int ref_sample(struct kern *k, const struct kern_sample_args *a)
{
    const struct kern_sample_row *params = ref_at(a->params);
    const int32_t *pos = ref_at(a->pos);
    struct kern_sample_out *out = ref_at(a->out);
    int n = ref_rows(&a->rows);
    struct cand *c = malloc((size_t)a->vocab * sizeof(*c));

    (void)k;
    if (c == NULL) {
        return -ENOMEM;
    }
    for (int r = 0; r < n; r++) {
        const float *l =
            (const float *)ref_at(a->logits) + (size_t)r * (size_t)a->stride;
        const struct kern_sample_row *p = &params[r];
        bool finite = true;
        int n_kept = 0;

        out[r].logprob = NAN;
        out[r].n_top = 0;
        out[r].pad = 0;
        for (int i = 0; i < a->vocab; i++) {
            finite = finite && isfinite(l[i]);
        }
        if (!finite) {
            out[r].id = KERN_DRAW_NONFINITE;
            continue;
        }
        out[r].id =
            p->given >= 0 ? p->given : draw(a, p, pos[r], l, c, &n_kept);
        if (p->n_top >= 0 && out[r].id >= 0) {
            if (p->of_drawn == 0 || p->given >= 0) {
                n_kept = all_logits(l, a->vocab, c);
            }
            logprobs(p->n_top, c, n_kept, &out[r]);
        }
    }
    free(c);
    return 0;
}
