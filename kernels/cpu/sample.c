/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_sample, to the bit of kernels/sample.h, without sorting the vocabulary.
 * A truncation keeps a prefix of the order (z descending, id ascending), so it
 * is a single element, the last one kept: found by a histogram over z, whose
 * weights are integers and can be added in any order, and a sort of the one
 * bucket in which it lies. A row is an item. Once per path.
 */
#include "kernels/sample.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/cpu/ops.h"

/* Buckets of equal width below the largest z; the last takes the rest. 32 a
 * unit: one holds about 3 % of the weight at most. */
#define N_BUCKET 1024
#define BUCKET_SCALE 32.0f
/* No noise is above this, so an id further behind the best cannot win. */
#define MAX_NOISE 23.0f
/* sample_weight(x) is 0 below it. */
#define NO_WEIGHT -29.0f

struct cand {
    float z;
    int32_t id;
};

struct bucket {
    uint64_t weight;
    uint64_t n;
};

/* One row at work; the arrays are the thread's scratch. */
struct row {
    const struct kern_sample_row *p;
    const float *l; /* raw logits */
    int vocab;
    int32_t pos;
    float *z;            /* [vocab]; -infinity where masked */
    struct cand *list;   /* [vocab] */
    struct bucket *hist; /* [N_BUCKET] */
    float z_max;
    int32_t id_max;  /* the first in the order */
    struct cand cut; /* the last one kept */
};

static size_t row_bytes(int vocab)
{
    return (sizeof(float) + sizeof(struct cand)) * (size_t)vocab +
           sizeof(struct bucket) * N_BUCKET + 64;
}

/* ---- vector passes over a row ---- */

static float row_max(const float *x, int n, bool *ret_finite)
{
    vf m = vf_set(-INFINITY);
    unsigned bad = 0;
    int i = 0;
    float max;

    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i);

        bad |= vf_nonfinite_bits(v);
        m = vf_max(m, v);
    }
    max = vf_hmax(m);
    for (; i < n; i++) {
        if (!isfinite(x[i])) {
            bad = 1;
        } else if (x[i] > max) {
            max = x[i];
        }
    }
    *ret_finite = bad == 0;
    return max;
}

/* The first element of x that equals v; there is one. */
static int32_t first_equal(const float *x, int n, float v)
{
    int i = 0;

    for (; i + VF_N <= n && vf_ge_bits(vf_load(x + i), vf_set(v)) == 0;
         i += VF_N) {
    }
    while (i < n - 1 && !(x[i] >= v)) {
        i++;
    }
    return i;
}

static uint64_t total_weight(const float *x, int n, float max)
{
    uint64_t total = 0;

    for (int i = 0; i < n; i++) {
        float d = x[i] - max;

        if (d > NO_WEIGHT) {
            total += sample_weight(d);
        }
    }
    return total;
}

/* ---- steps 1 to 3 ---- */

/* False where the mask leaves nothing. */
static bool make_z(struct row *r, const struct kern_penalty *pen,
                   const uint32_t *mask, bool greedy)
{
    const struct kern_sample_row *p = r->p;
    bool finite;

    memcpy(r->z, r->l, sizeof(*r->z) * (size_t)r->vocab);
    for (int i = 0; i < p->pen_n; i++) {
        const struct kern_penalty *e = &pen[p->pen_off + i];

        r->z[e->id] = sample_penalise(r->z[e->id], e->count, p->repetition,
                                      p->presence, p->frequency);
    }
    for (int i = 0; i < r->vocab; i++) {
        r->z[i] = sample_clamp(greedy ? r->z[i] : r->z[i] / p->temperature);
    }
    for (int i = 0; mask != NULL && i < r->vocab; i++) {
        if ((mask[i / 32] >> (i % 32) & 1u) == 0) {
            r->z[i] = -INFINITY;
        }
    }
    r->z_max = row_max(r->z, r->vocab, &finite);
    if (r->z_max == -INFINITY) {
        return false;
    }
    r->id_max = first_equal(r->z, r->vocab, r->z_max);
    r->cut.z = -SAMPLE_MAX_Z;
    r->cut.id = INT32_MAX;
    return true;
}

/* ---- steps 4 and 5: the last element kept ---- */

static bool is_kept(const struct row *r, int32_t id)
{
    return r->z[id] > r->cut.z || (r->z[id] == r->cut.z && id <= r->cut.id);
}

static int bucket_of(const struct row *r, float z)
{
    float x = (r->z_max - z) * BUCKET_SCALE; /* monotone in z */

    return x < (float)(N_BUCKET - 1) ? (int)x : N_BUCKET - 1;
}

/* Counts and weighs what is kept so far; returns the sums of both. */
static struct bucket fill_hist(struct row *r, bool weigh)
{
    struct bucket sum = {0, 0};

    memset(r->hist, 0, sizeof(*r->hist) * N_BUCKET);
    for (int32_t i = 0; i < r->vocab; i++) {
        float d = r->z[i] - r->z_max;

        if (is_kept(r, i)) {
            struct bucket *b = &r->hist[bucket_of(r, r->z[i])];
            uint64_t w = weigh && d > NO_WEIGHT ? sample_weight(d) : 0;

            b->n++;
            b->weight += w;
            sum.n++;
            sum.weight += w;
        }
    }
    return sum;
}

static int by_order(const void *pa, const void *pb)
{
    const struct cand *a = pa, *b = pb;

    if (a->z != b->z) {
        return a->z > b->z ? -1 : 1;
    }
    return a->id < b->id ? -1 : 1;
}

/* What is kept of one bucket, in order, to r->list. */
static int sort_bucket(struct row *r, int bucket)
{
    int n = 0;

    for (int32_t i = 0; i < r->vocab; i++) {
        if (is_kept(r, i) && bucket_of(r, r->z[i]) == bucket) {
            r->list[n].z = r->z[i];
            r->list[n++].id = i;
        }
    }
    qsort(r->list, (size_t)n, sizeof(*r->list), by_order);
    return n;
}

static void keep_top_k(struct row *r)
{
    uint64_t before = 0, k = (uint64_t)r->p->top_k;
    int b = 0;

    if (r->p->top_k <= 0 || r->p->top_k >= r->vocab ||
        fill_hist(r, false).n <= k) {
        return;
    }
    while (before + r->hist[b].n < k) {
        before += r->hist[b++].n;
    }
    sort_bucket(r, b);
    r->cut = r->list[k - before - 1];
}

static void keep_top_p(struct row *r)
{
    uint64_t before = 0;
    int b = 0, n, last = 0;
    double limit;

    if (!(r->p->top_p < 1.0f)) {
        return;
    }
    limit = (double)r->p->top_p * (double)fill_hist(r, true).weight;
    while (b < N_BUCKET - 1 && (double)(before + r->hist[b].weight) < limit) {
        before += r->hist[b++].weight;
    }
    n = sort_bucket(r, b);
    for (int i = 0; i < n; i++) {
        if ((double)before < limit) {
            last = i;
        }
        before += sample_weight(r->list[i].z - r->z_max);
    }
    r->cut = n > 0 ? r->list[last] : (struct cand){r->z_max, r->id_max};
}

/* ---- steps 6 and 7 ---- */

struct best {
    float score;
    int32_t id;
};

static void try_id(const struct row *r, int32_t id, struct best *best)
{
    const struct kern_sample_row *p = r->p;
    float score;

    if (!is_kept(r, id)) {
        return;
    }
    if (p->min_p > 0.0f && id != r->id_max &&
        (double)sample_weight(r->z[id] - r->z_max) <
            (double)p->min_p * SAMPLE_ONE) {
        return;
    }
    score = fmaf(r->z[id], p->beta, sample_noise(p->seed, r->pos, id));
    if (score > best->score || (score == best->score && id < best->id)) {
        best->score = score;
        best->id = id;
    }
}

static int32_t draw(const struct row *r)
{
    struct best best = {-INFINITY, INT32_MAX};
    vf beta = vf_set(r->p->beta), most = vf_set(MAX_NOISE);
    vf cut = vf_set(r->cut.z);
    int32_t i = 0;

    try_id(r, r->id_max, &best);
    for (; i + VF_N <= r->vocab; i += VF_N) {
        vf z = vf_load(r->z + i);
        unsigned bits = vf_ge_bits(z, cut) &
                        vf_ge_bits(vf_fma(z, beta, most), vf_set(best.score));

        for (; bits != 0; bits &= bits - 1) {
            try_id(r, i + __builtin_ctz(bits), &best);
        }
    }
    for (; i < r->vocab; i++) {
        try_id(r, i, &best);
    }
    return best.id;
}

/* ---- logprobs ---- */

/* The n first of the raw logits in their order, to ret's lists. */
static void top_logits(const struct row *r, int n, struct kern_sample_out *ret)
{
    float least = -INFINITY; /* of a full list */
    int have = 0;

    for (int32_t i = 0; i < r->vocab && n > 0; i++) {
        int at;

        if (have == n && !(r->l[i] > least)) {
            continue;
        }
        have = imin(have + 1, n);
        for (at = have - 1; at > 0 && r->l[i] > ret->top_logprob[at - 1];
             at--) {
            ret->top_logprob[at] = ret->top_logprob[at - 1];
            ret->top_id[at] = ret->top_id[at - 1];
        }
        ret->top_logprob[at] = r->l[i];
        ret->top_id[at] = i;
        least = ret->top_logprob[have - 1];
    }
    ret->n_top = have;
}

static void logprobs(const struct row *r, float max,
                     struct kern_sample_out *ret)
{
    float log_total = sample_log_total(total_weight(r->l, r->vocab, max));

    ret->logprob = (r->l[ret->id] - max) - log_total;
    top_logits(r, r->p->n_top, ret);
    for (int i = 0; i < ret->n_top; i++) {
        ret->top_logprob[i] = (ret->top_logprob[i] - max) - log_total;
    }
}

/* ---- the op ---- */

struct sample {
    struct cpu *c;
    const struct kern_sample_args *a;
};

static int32_t draw_row(const struct sample *s, struct row *r)
{
    const struct kern_sample_row *p = r->p;
    const uint32_t *mask = cpu_at(s->a->masks);
    bool greedy = p->temperature < SAMPLE_MIN_TEMPERATURE || p->beta == 0.0f;

    if (p->given >= 0) {
        return p->given;
    }
    mask = mask == NULL || p->mask < 0
               ? NULL
               : mask + (size_t)p->mask * (((size_t)r->vocab + 31) / 32);
    if (!make_z(r, cpu_at(s->a->pen), mask, greedy)) {
        return KERN_DRAW_MASKED;
    }
    if (greedy) {
        return r->id_max;
    }
    keep_top_k(r);
    keep_top_p(r);
    return draw(r);
}

static void sample_item(void *arg, int i_item, int i_thread)
{
    const struct sample *s = arg;
    uint8_t *scratch = s->c->thread[i_thread].scratch;
    struct kern_sample_out *out =
        (struct kern_sample_out *)cpu_at(s->a->out) + i_item;
    struct row r = {.p = (const struct kern_sample_row *)cpu_at(s->a->params) +
                         i_item,
                    .l = (const float *)cpu_at(s->a->logits) +
                         (size_t)i_item * (size_t)s->a->stride,
                    .vocab = s->a->vocab,
                    .pos = ((const int32_t *)cpu_at(s->a->pos))[i_item],
                    .hist = (struct bucket *)scratch};
    bool finite;
    float max = row_max(r.l, r.vocab, &finite);

    r.list = (struct cand *)(r.hist + N_BUCKET);
    r.z = (float *)(r.list + r.vocab);
    out->logprob = NAN;
    out->n_top = 0;
    out->pad = 0;
    out->id = finite ? draw_row(s, &r) : KERN_DRAW_NONFINITE;
    if (r.p->n_top >= 0 && out->id >= 0) {
        logprobs(&r, max, out);
    }
}

int ISA(cpu_sample)(struct cpu *c, const struct kern_sample_args *a)
{
    struct sample s = {.c = c, .a = a};
    int r = cpu_scratch(c, row_bytes(a->vocab));

    if (r < 0) {
        return r;
    }
    pool_run(c->pool, sample_item, &s, cpu_rows(&a->rows));
    return 0;
}
