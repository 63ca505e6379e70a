/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_sample, to the bit of kernels/sample.h, without sorting the vocabulary.
 * A truncation keeps a prefix of the order (z descending, id ascending), so it
 * is a single element, the last one kept. top_k finds it by counts of buckets
 * of z, top_p by the weight above a few values of z at a time, then above a few
 * between two of these, and so on: weights are integers and can be added in any
 * order. Only the few among which it is at last are sorted. The noise of an id
 * is only needed where it could win. A row is an item. Once per path.
 *
 * On paths with a fused multiply-add, weights and noise are taken a vector at a
 * time by the same operations as in sample.h; portable calls sample.h.
 *
 * Limit: a row of 128,896 z is 0.5 MB and stays in L2, so a pass costs by its
 * arithmetic: an exponential and eight masked sums a vector. top-p in a flat
 * tail is one such pass, a selection, short passes over what it found, and a
 * draw: the noise of all ids that could win, Philox most of it.
 *
 * Tried (one thread, 128,896 logits, one row; bench_sample; Zen 3 with avx2,
 * the last three Zen 5 with avx512):
 *   temperature 1: noise of each id through sample.h      24 ms
 *   the same a vector at a time                           0.6 ms  kept
 *   top-p in a flat tail: weights through sample.h        6.3 ms
 *   the same, exponentials a vector at a time             2.3 ms
 *   the same, a histogram of weights over z               0.74 ms
 *   the same, weights above eight values at a time        0.38 ms kept
 *   the draw without top-p, of the 0.38                   0.20 ms
 */
#include "kernels/sample.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/cpu/ops.h"

/* Buckets of equal width below the largest z; the last takes the rest. */
#define N_BUCKET 1024
#define BUCKET_SCALE 32.0f
/* No noise is above this, so an id further behind the best cannot win. */
#define MAX_NOISE 23.0f
/* sample_weight(x) is 0 below it. */
#define NO_WEIGHT -29.0f

#if ISA_LEVEL > 0

/* sample_exp, sample_log_parts, sample_log, sample_exponential of sample.h. */
static vf vf_sample_exp(vf x)
{
    vf low = vf_set(-87.0f);
    vf y = vf_where_lt(x, low, low, x);
    vf t = vf_fma(y, vf_set(1.44269504f), vf_set(12582912.0f));
    vf n = vf_sub(t, vf_set(12582912.0f));
    vf r = vf_fma(n, vf_set(-0.693359375f), y);
    vf q = vf_set(0.0013950337f);

    r = vf_fma(n, vf_set(2.1219444e-4f), r);
    q = vf_fma(q, r, vf_set(0.0083688219f));
    q = vf_fma(q, r, vf_set(0.041666209f));
    q = vf_fma(q, r, vf_set(0.16666520f));
    q = vf_fma(q, r, vf_set(0.5f));
    q = vf_fma(q, r, vf_set(1.0f));
    q = vf_fma(q, r, vf_set(1.0f));
    return vf_of_bits(vi_add(vf_bits(q), vi_shl(vf_bits(t), 23)));
}

static vf vf_log_parts(vf e, vf f)
{
    vf q = vf_set(-0.07865443f);

    q = vf_fma(q, f, vf_set(0.12879188f));
    q = vf_fma(q, f, vf_set(-0.13125293f));
    q = vf_fma(q, f, vf_set(0.14181422f));
    q = vf_fma(q, f, vf_set(-0.16624970f));
    q = vf_fma(q, f, vf_set(0.20002282f));
    q = vf_fma(q, f, vf_set(-0.25000797f));
    q = vf_fma(q, f, vf_set(0.33333317f));
    q = vf_fma(q, f, vf_set(-0.5f));
    q = vf_fma(q, vf_mul(f, f), f);
    q = vf_fma(e, vf_set(-2.1219444e-4f), q);
    return vf_fma(e, vf_set(0.693359375f), q);
}

static vf vf_split(vf x, vf *ret_f)
{
    vi root = vi_set(0x3f3504f3u);
    vi u = vi_sub(vf_bits(x), root);

    *ret_f = vf_sub(vf_of_bits(vi_add(vi_and(u, vi_set(0x7fffffu)), root)),
                    vf_set(1.0f));
    return vf_of_vi(vi_sar(u, 23));
}

static vf vf_negative(vf x)
{
    return vf_of_bits(vi_xor(vf_bits(x), vi_set(0x80000000u)));
}

/* sample_noise of words x. */
static vf vf_noise(vi x)
{
    vi upper = vi_sar(x, 31); /* all ones where u is in the upper half */
    vf near = vf_mul(vf_add(vf_of_vi(vi_xor(x, upper)), vf_set(0.5f)),
                     vf_set(2.3283064365386963e-10f));
    vf half = vf_of_vi(upper); /* -1 or 0 */
    vf zero = vf_set(0.0f), e, f, use_near;

    e = vf_split(vf_where_lt(half, zero, vf_sub(vf_set(1.0f), near), near), &f);
    /* e is 0 or -1 in the upper half: -0.5 < e there where it is 0 */
    use_near = vf_where_lt(vf_set(-0.5f), e, half, zero);
    f = vf_where_lt(use_near, zero, vf_negative(near), f);
    e = vf_split(vf_negative(vf_log_parts(e, f)), &f);
    return vf_negative(vf_log_parts(e, f));
}

#define NOISE_IDS (4 * VF_N) /* that one vector of counters serves */

/* sample_word of ids id .. id + NOISE_IDS - 1; id is a multiple of 4. */
static void words(uint32_t *to, uint64_t seed, int32_t pos, int32_t id)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    vi c0 = vi_count((uint32_t)id >> 2), c1 = vi_set((uint32_t)pos);
    vi c2 = vi_set(0), c3 = vi_set(SAMPLE_DOMAIN);

    for (int round = 0; round < 10; round++) {
        vi a_hi, b_hi;
        vi a = vi_mul(c0, 0xD2511F53u, &a_hi);
        vi b = vi_mul(c2, 0xCD9E8D57u, &b_hi);

        c0 = vi_xor(vi_xor(b_hi, c1), vi_set(k0));
        c1 = b;
        c2 = vi_xor(vi_xor(a_hi, c3), vi_set(k1));
        c3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vi_store4(to, c0, c1, c2, c3);
}

#endif

struct cand {
    float z;
    int32_t id;
};

/* One row at work; the arrays are the thread's scratch. */
struct row {
    const struct kern_sample_row *p;
    const float *l; /* raw logits */
    int vocab;
    int32_t pos;
    float *z;            /* [vocab]; -infinity where masked */
    float *list_z;       /* [vocab + VF_N] what is looked at */
    int32_t *list_id;    /* [vocab + VF_N] */
    struct cand *sorted; /* [vocab] one bucket of it */
    int32_t *hist;       /* [N_BUCKET] */
    float z_max;
    int32_t id_max;  /* the first in the order */
    struct cand cut; /* the last one kept */
};

static size_t row_bytes(int vocab)
{
    return (2 * sizeof(float) + sizeof(int32_t) + sizeof(struct cand)) *
               ((size_t)vocab + VF_N) +
           sizeof(int32_t) * N_BUCKET;
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

/* Values of z above which a pass weighs. */
#define N_CUTS 8

/* For each of the cuts, which descend: the sum of sample_weight(x[i] - max)
 * over x[i] >= cut. */
static void weigh(const float *x, int n, float max, const float cut[N_CUTS],
                  uint64_t sum[N_CUTS])
{
    int i = 0;

    memset(sum, 0, N_CUTS * sizeof(*sum));
#if ISA_LEVEL > 0
    vq part[N_CUTS];

    for (int k = 0; k < N_CUTS; k++) {
        part[k] = vq_zero();
    }
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i);

        if (vf_ge_bits(v, vf_set(cut[N_CUTS - 1])) != 0) {
            vq w = vq_of_2_40(vf_sample_exp(vf_sub(v, vf_set(max))));

#pragma GCC unroll 8
            for (int k = 0; k < N_CUTS; k++) {
                part[k] = vq_add_ge(part[k], w, v, vf_set(cut[k]));
            }
        }
    }
    for (int k = 0; k < N_CUTS; k++) {
        sum[k] = vq_sum(part[k]);
    }
#endif
    for (; i < n; i++) {
        if (x[i] >= cut[N_CUTS - 1]) {
            uint64_t w = sample_weight(x[i] - max);

            for (int k = 0; k < N_CUTS; k++) {
                sum[k] += x[i] >= cut[k] ? w : 0;
            }
        }
    }
}

/* The sum of sample_weight(x[i] - max). */
static uint64_t total_weight(const float *x, int n, float max)
{
    uint64_t total = 0;
    int i = 0;

#if ISA_LEVEL > 0
    vq part = vq_zero();

    for (; i + VF_N <= n; i += VF_N) {
        vf d = vf_sub(vf_load(x + i), vf_set(max)), low = vf_set(NO_WEIGHT);

        if (vf_ge_bits(d, low) != 0) {
            part = vq_add_ge(part, vq_of_2_40(vf_sample_exp(d)), d, low);
        }
    }
    total = vq_sum(part);
#endif
    for (; i < n; i++) {
        float d = x[i] - max;

        if (d >= NO_WEIGHT) {
            total += sample_weight(d);
        }
    }
    return total;
}

/* ---- steps 1 to 3 ---- */

/* sample_clamp(z / temperature); a division by 1 changes nothing. */
static void scale_z(float *z, int n, float temperature)
{
    vf t = vf_set(temperature), hi = vf_set(SAMPLE_MAX_Z);
    vf lo = vf_set(-SAMPLE_MAX_Z);
    int i = 0;

    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_div(vf_load(z + i), t);

        vf_store(z + i, vf_max(vf_min(v, hi), lo));
    }
    for (; i < n; i++) {
        z[i] = sample_clamp(z[i] / temperature);
    }
}

/* False where the mask leaves nothing. */
static bool make_z(struct row *r, const struct kern_penalty *pen,
                   const uint32_t *mask, bool greedy)
{
    const struct kern_sample_row *p = r->p;
    bool finite;

    memcpy(r->z, r->l, sizeof(*r->z) * (size_t)r->vocab);
    for (int i = 0; i < p->pen_n; i++) {
        const struct kern_penalty *e = &pen[p->pen_off + i];

        r->z[e->id] = sample_penalise(r->z[e->id], e->count, e->bias,
                                      p->repetition, p->presence, p->frequency);
    }
    scale_z(r->z, r->vocab, greedy ? 1.0f : p->temperature);
    for (int i = 0; mask != NULL && i < r->vocab; i++) {
        if (i % 32 == 0 && mask[i / 32] == UINT32_MAX) {
            i += 31;
        } else if ((mask[i / 32] >> (i % 32) & 1u) == 0) {
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

/* Of the n numbers at z those within [low, high), with their ids, to the lists,
 * in their order; ids NULL: they are 0 .. n - 1. The lists may be where they
 * come from. Returns how many they are. */
static int select_range(struct row *r, const float *z, const int32_t *ids,
                        int n, float low, float high)
{
    int found = 0, i = 0;

#if ISA_LEVEL > 0
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(z + i);
        unsigned bits =
            vf_ge_bits(v, vf_set(low)) & ~vf_ge_bits(v, vf_set(high));

        if (bits != 0) {
            vi id = ids == NULL ? vi_count((uint32_t)i) : vi_load(ids + i);

            vf_pack(r->list_z + found, v, bits);
            vi_pack(r->list_id + found, id, bits);
            found += __builtin_popcount(bits);
        }
    }
#endif
    for (; i < n; i++) {
        if (z[i] >= low && !(z[i] >= high)) {
            r->list_z[found] = z[i];
            r->list_id[found++] = ids == NULL ? i : ids[i];
        }
    }
    return found;
}

/* Those within depth of the largest z, to the lists. */
static int collect(struct row *r, float depth)
{
    return select_range(r, r->z, NULL, r->vocab, r->z_max - depth, INFINITY);
}

/* What top_k kept, to the lists. */
static int collect_kept(struct row *r)
{
    int n = select_range(r, r->z, NULL, r->vocab, r->cut.z, INFINITY), kept = 0;

    for (int i = 0; i < n; i++) {
        if (is_kept(r, r->list_id[i])) {
            r->list_z[kept] = r->list_z[i];
            r->list_id[kept++] = r->list_id[i];
        }
    }
    return kept;
}

static int bucket_of(const struct row *r, float z)
{
    float x = (r->z_max - z) * BUCKET_SCALE; /* monotone in z */

    return x < (float)(N_BUCKET - 1) ? (int)x : N_BUCKET - 1;
}

static void fill_hist(struct row *r, int n)
{
    memset(r->hist, 0, sizeof(*r->hist) * N_BUCKET);
    for (int i = 0; i < n; i++) {
        r->hist[bucket_of(r, r->list_z[i])]++;
    }
}

static int by_order(const void *pa, const void *pb)
{
    const struct cand *a = pa, *b = pb;

    if (a->z != b->z) {
        return a->z > b->z ? -1 : 1;
    }
    return a->id < b->id ? -1 : 1;
}

/* One bucket of the n collected ones, in order, to r->sorted; returns how many
 * they are. */
static int sort_bucket(struct row *r, int n, int bucket)
{
    int n_in = 0;

    for (int i = 0; i < n; i++) {
        if (bucket_of(r, r->list_z[i]) == bucket) {
            r->sorted[n_in].z = r->list_z[i];
            r->sorted[n_in++].id = r->list_id[i];
        }
    }
    qsort(r->sorted, (size_t)n_in, sizeof(*r->sorted), by_order);
    return n_in;
}

/* The depths at which the few or many that top_k needs are looked for. */
static const float depths[] = {3.0f, 9.0f, 29.0f, 2 * SAMPLE_MAX_Z};
#define N_DEPTHS 4

static void keep_top_k(struct row *r)
{
    int before = 0, k = r->p->top_k, b = 0, n = 0;

    if (k <= 0 || k >= r->vocab) {
        return;
    }
    for (int i = 0; i < N_DEPTHS && n < k; i++) {
        n = collect(r, depths[i]);
    }
    if (n < k) {
        return; /* the mask leaves fewer */
    }
    fill_hist(r, n);
    while (before + r->hist[b] < k) {
        before += r->hist[b++];
    }
    sort_bucket(r, n, b);
    r->cut = r->sorted[k - before - 1];
}

/* Where the last one kept lies: low <= z < high; the weight at high and above.
 */
struct range {
    float low, high;
    uint64_t above;
};

/* To the first cut above which there is enough, and the one before it. */
static void narrow(struct range *g, double limit, const float cut[N_CUTS],
                   const uint64_t sum[N_CUTS])
{
    uint64_t above = g->above;
    int k = 0;

    while (k < N_CUTS - 1 && (double)(above + sum[k]) < limit) {
        g->high = cut[k];
        g->above = above + sum[k++];
    }
    g->low = cut[k];
}

/* Below low, nothing weighs. */
static const float first_depths[N_CUTS] = {0.5f, 1.5f,  3.0f,  5.0f,
                                           8.0f, 12.0f, 18.0f, -NO_WEIGHT};
/* So few are sorted. */
#define FEW 64

/* No float lies between the ends: all z of the range are equal. */
static bool is_point(const struct range *g)
{
    float middle = g->low + (g->high - g->low) * 0.5f;

    return middle == g->low || middle == g->high;
}

/* The last one of the n in the lists, all that the range holds, before which
 * there is less than limit. */
static struct cand last_below(struct row *r, const struct range *g, int n,
                              double limit)
{
    uint64_t before = g->above;
    struct cand last = {r->list_z[0], r->list_id[0]};

    if (!is_point(g)) {
        for (int i = 0; i < n; i++) {
            r->sorted[i] = (struct cand){r->list_z[i], r->list_id[i]};
        }
        qsort(r->sorted, (size_t)n, sizeof(*r->sorted), by_order);
        last = r->sorted[0];
    }
    for (int i = 1; i < n; i++) {
        before += sample_weight(last.z - r->z_max);
        if ((double)before >= limit) {
            break;
        }
        last.z = is_point(g) ? r->list_z[i] : r->sorted[i].z;
        last.id = is_point(g) ? r->list_id[i] : r->sorted[i].id;
    }
    return last;
}

static void keep_top_p(struct row *r)
{
    const int32_t *ids = r->cut.id == INT32_MAX ? NULL : r->list_id;
    const float *z = ids == NULL ? r->z : r->list_z;
    struct range g = {0, nextafterf(r->z_max, INFINITY), 0};
    float cut[N_CUTS];
    uint64_t sum[N_CUTS];
    int n = r->vocab;
    double limit;

    if (!(r->p->top_p < 1.0f)) {
        return;
    }
    if (ids != NULL) {
        n = collect_kept(r);
    }
    for (int k = 0; k < N_CUTS; k++) {
        cut[k] = r->z_max - first_depths[k];
    }
    weigh(z, n, r->z_max, cut, sum);
    limit = (double)r->p->top_p * (double)sum[N_CUTS - 1];
    if (!(limit > 0)) {
        r->cut = (struct cand){r->z_max, r->id_max};
        return;
    }
    narrow(&g, limit, cut, sum);
    n = select_range(r, z, ids, n, g.low, g.high);
    while (n > FEW && !is_point(&g)) {
        for (int k = 0; k < N_CUTS; k++) {
            cut[k] = k == N_CUTS - 1
                         ? g.low
                         : fmaxf(g.low, g.high - (g.high - g.low) *
                                                     (float)(k + 1) / N_CUTS);
        }
        weigh(r->list_z, n, r->z_max, cut, sum);
        narrow(&g, limit, cut, sum);
        n = select_range(r, r->list_z, r->list_id, n, g.low, g.high);
    }
    r->cut = last_below(r, &g, n, limit);
}

/* ---- steps 6 and 7 ---- */

struct best {
    float score;
    int32_t id;
};

/* Whether steps 4 to 6 keep it. */
static bool stays(const struct row *r, int32_t id)
{
    if (!is_kept(r, id)) {
        return false;
    }
    return !(r->p->min_p > 0.0f) || id == r->id_max ||
           (double)sample_weight(r->z[id] - r->z_max) >=
               (double)r->p->min_p * SAMPLE_ONE;
}

static void try_id(const struct row *r, int32_t id, struct best *best)
{
    const struct kern_sample_row *p = r->p;
    float score;

    if (!stays(r, id)) {
        return;
    }
    score = fmaf(r->z[id], p->beta, sample_noise(p->seed, r->pos, id));
    if (score > best->score || (score == best->score && id < best->id)) {
        best->score = score;
        best->id = id;
    }
}

/* Ids of a vector at id that may be kept and reach the best score, given what
 * their noise is or, at most, could be. */
static unsigned promising(const struct row *r, int32_t id, vf noise, float best)
{
    vf z = vf_load(r->z + id);
    vf score = vf_fma(z, vf_set(r->p->beta), noise);

    return vf_ge_bits(z, vf_set(r->cut.z)) & vf_ge_bits(score, vf_set(best));
}

static void try_bits(const struct row *r, int32_t id, unsigned bits,
                     struct best *best)
{
    for (; bits != 0; bits &= bits - 1) {
        try_id(r, id + __builtin_ctz(bits), best);
    }
}

static int32_t draw(const struct row *r)
{
    const vf most = vf_set(MAX_NOISE);
    struct best best = {-INFINITY, INT32_MAX};
    int32_t i = 0;

    try_id(r, r->id_max, &best);
#if ISA_LEVEL > 0
    for (; i + NOISE_IDS <= r->vocab; i += NOISE_IDS) {
        uint32_t w[NOISE_IDS];
        unsigned any = 0;

        for (int k = 0; k < NOISE_IDS; k += VF_N) {
            any |= promising(r, i + k, most, best.score);
        }
        if (any == 0) {
            continue;
        }
        words(w, r->p->seed, r->pos, i);
        for (int k = 0; k < NOISE_IDS; k += VF_N) {
            vf noise = vf_noise(vi_load(w + k));

            try_bits(r, i + k, promising(r, i + k, noise, best.score), &best);
        }
    }
#endif
    for (; i + VF_N <= r->vocab; i += VF_N) {
        try_bits(r, i, promising(r, i, most, best.score), &best);
    }
    for (; i < r->vocab; i++) {
        try_id(r, i, &best);
    }
    return best.id;
}

/* ---- logprobs ---- */

static void add_top(struct kern_sample_out *ret, int n, float l, int32_t id)
{
    int at;

    if (ret->n_top == n && !(l > ret->top_logprob[n - 1])) {
        return;
    }
    ret->n_top = imin(ret->n_top + 1, n);
    for (at = ret->n_top - 1; at > 0 && l > ret->top_logprob[at - 1]; at--) {
        ret->top_logprob[at] = ret->top_logprob[at - 1];
        ret->top_id[at] = ret->top_id[at - 1];
    }
    ret->top_logprob[at] = l;
    ret->top_id[at] = id;
}

/* The n first of x in their order, to ret's lists; -INFINITY is none. */
static void top_logits(const float *x, int vocab, int n,
                       struct kern_sample_out *ret)
{
    int32_t i = 0;

    for (; i < vocab && ret->n_top < n; i++) {
        add_top(ret, n, x[i], i);
    }
    for (; n > 0 && i + VF_N <= vocab; i += VF_N) {
        unsigned bits =
            vf_ge_bits(vf_load(x + i), vf_set(ret->top_logprob[n - 1]));

        for (; bits != 0; bits &= bits - 1) {
            int32_t id = i + __builtin_ctz(bits);

            add_top(ret, n, x[id], id);
        }
    }
    for (; n > 0 && i < vocab; i++) {
        add_top(ret, n, x[i], i);
    }
    while (ret->n_top > 0 && ret->top_logprob[ret->n_top - 1] == -INFINITY) {
        ret->n_top--;
    }
}

/* Of the logits x, whose largest is max. */
static void logprobs(const struct row *r, const float *x, float max,
                     struct kern_sample_out *ret)
{
    float log_total = sample_log_total(total_weight(x, r->vocab, max));

    ret->logprob = sample_logprob(x[ret->id], max, log_total);
    top_logits(x, r->vocab, r->p->n_top, ret);
    for (int i = 0; i < ret->n_top; i++) {
        ret->top_logprob[i] =
            sample_logprob(ret->top_logprob[i], max, log_total);
    }
}

/* Takes what steps 4 to 6 drop out of z, as the mask has done with its own. */
static void drop_rest(struct row *r)
{
    for (int32_t i = 0; i < r->vocab; i++) {
        if (!stays(r, i)) {
            r->z[i] = -INFINITY;
        }
    }
}

/* ---- the op ---- */

struct sample {
    struct cpu *c;
    const struct kern_sample_args *a;
};

static bool is_greedy(const struct kern_sample_row *p)
{
    return p->temperature < SAMPLE_MIN_TEMPERATURE || p->beta == 0.0f;
}

static int32_t draw_row(const struct sample *s, struct row *r)
{
    const struct kern_sample_row *p = r->p;
    const uint32_t *mask = cpu_at(s->a->masks);
    bool greedy = is_greedy(p);

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
                    .hist = (int32_t *)scratch};
    bool finite;
    float max = row_max(r.l, r.vocab, &finite);

    r.sorted = (struct cand *)(r.hist + N_BUCKET);
    r.z = (float *)(r.sorted + r.vocab);
    r.list_z = r.z + r.vocab;
    r.list_id = (int32_t *)(r.list_z + r.vocab + VF_N);
    out->logprob = NAN;
    out->n_top = 0;
    out->pad = 0;
    out->id = finite ? draw_row(s, &r) : KERN_DRAW_NONFINITE;
    if (r.p->n_top < 0 || out->id < 0) {
        return;
    }
    if (r.p->of_drawn != 0 && r.p->given < 0) {
        if (!is_greedy(r.p)) {
            drop_rest(&r);
        }
        logprobs(&r, r.z, r.z_max, out);
    } else {
        logprobs(&r, r.l, max, out);
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
