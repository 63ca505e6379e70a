/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * sample: kernels/sample.h to the bit, a block a row. Where that text speaks of
 * an order, this selects: by radix over the bits of z, eight at a time, on counts
 * (top-k) or on integer weights (top-p); ties fall by id. All sums are integers
 * and all choices total orders, so threads cannot matter.
 *
 * z, after penalties, mask and temperature, is kept in scratch; -inf marks what
 * the mask took. The raw logits stay as they are: logprobs are of them.
 */

#include <errno.h>

#include "kernels/cuda/dev.cuh"
#include "kernels/sample.h"

#define THREADS 1024

struct sample_params {
    const int *n, *pos;
    const float *logits;
    const struct kern_sample_row *row;
    const struct kern_penalty *pen;
    const unsigned *masks;
    struct kern_sample_out *out;
    float *z;
    int max, vocab, stride;
};

/* What the threads of a block share. */
struct sample_shared {
    unsigned long long word[32]; /* one a warp, for reductions */
    unsigned long long weight[256];
    unsigned count[256];
    unsigned long long before, total; /* of a selection */
    unsigned prefix, ties, cut_id, kept_ties;
};

/* Orders as floats do, -0 and 0 alike; finite numbers and -inf. */
static __device__ __forceinline__ unsigned order_key(float v)
{
    unsigned u = quant_to_bits(v);

    u = u == 0x80000000u ? 0 : u;
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
static __device__ __forceinline__ float order_value(unsigned key)
{
    return quant_from_bits((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
/* Greater value first, then the lower id: the greatest of these is the first in the order. */
static __device__ __forceinline__ unsigned long long rank_of(float v, int id)
{
    return (unsigned long long)order_key(v) << 32 | (unsigned)~id;
}

static __device__ unsigned long long block_max(sample_shared &s, unsigned long long v)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        unsigned long long o = __shfl_xor_sync(ALL_LANES, v, d);

        v = o > v ? o : v;
    }
    if (threadIdx.x % 32 == 0) {
        s.word[threadIdx.x / 32] = v;
    }
    __syncthreads();
    v = 0;
    for (int i = 0; i < THREADS / 32; i++) {
        v = s.word[i] > v ? s.word[i] : v;
    }
    __syncthreads();
    return v;
}

static __device__ unsigned long long block_total(sample_shared &s, unsigned long long v)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        v += __shfl_xor_sync(ALL_LANES, v, d);
    }
    if (threadIdx.x % 32 == 0) {
        s.word[threadIdx.x / 32] = v;
    }
    __syncthreads();
    v = 0;
    for (int i = 0; i < THREADS / 32; i++) {
        v += s.word[i];
    }
    __syncthreads();
    return v;
}

static __device__ __forceinline__ bool masked_out(const sample_params &p,
                                                  const struct kern_sample_row &row, int id)
{
    return p.masks != nullptr && row.mask >= 0 &&
           (p.masks[(size_t)row.mask * (size_t)((p.vocab + 31) / 32) + (size_t)(id / 32)] >>
                (id % 32) &
            1u) == 0;
}

/* Steps 1 to 3: z in scratch; returns the first of the order, 0 where nothing is allowed. */
static __device__ unsigned long long make_z(const sample_params &p, sample_shared &s,
                                            const struct kern_sample_row &row, const float *l,
                                            float *z, bool greedy)
{
    unsigned long long best = 0;

    for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
        z[i] = masked_out(p, row, i) ? -INFINITY
                                     : sample_clamp(greedy ? l[i] : l[i] / row.temperature);
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < row.pen_n; j += THREADS) {
        struct kern_penalty e = p.pen[row.pen_off + j];

        if (!masked_out(p, row, e.id)) {
            float v = sample_penalise(l[e.id], e.count, e.bias, row.repetition, row.presence,
                                      row.frequency);

            z[e.id] = sample_clamp(greedy ? v : v / row.temperature);
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
        if (z[i] > -INFINITY) {
            unsigned long long v = rank_of(z[i], i);

            best = v > best ? v : best;
        }
    }
    return block_max(s, best);
}

/* The key at which a selection ends: the last kept element has it. By count (k > 0): the k-th in
 * the order; else by weight: the last one before which less than `limit` lies. Leaves in s the
 * weight or count before the first element with that key, and how many have it. Only keys >= least
 * take part. */
static __device__ unsigned select_key(const sample_params &p, sample_shared &s, const float *z,
                                      float max_z, unsigned least, unsigned k, double limit)
{
    if (threadIdx.x == 0) {
        s.before = 0;
        s.prefix = 0;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < 256) {
            s.count[threadIdx.x] = 0;
            s.weight[threadIdx.x] = 0;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
            unsigned key = order_key(z[i]);

            if (z[i] > -INFINITY && key >= least &&
                (shift == 24 || key >> (shift + 8) == s.prefix)) {
                atomicAdd(&s.count[key >> shift & 255u], 1u);
                if (k == 0) {
                    atomicAdd(&s.weight[key >> shift & 255u],
                              (unsigned long long)sample_weight(z[i] - max_z));
                }
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned long long before = s.before;
            unsigned digit = 0;

            for (int d = 255; d >= 0; d--) {
                if (s.count[d] == 0) {
                    continue;
                }
                if (k > 0 ? before >= k : !((double)before < limit) && digit != 0) {
                    break;
                }
                /* the first element of this bucket is kept */
                digit = (unsigned)d + 1;
                s.before = before;
                s.ties = s.count[d];
                before += k > 0 ? s.count[d] : s.weight[d];
            }
            s.prefix = s.prefix << 8 | (digit - 1);
        }
    }
    __syncthreads();
    return s.prefix;
}

/* The id of the n-th, in ascending id, of those with this key (n from 1). */
static __device__ void find_cut(const sample_params &p, sample_shared &s, const float *z,
                                unsigned key, unsigned n)
{
    unsigned before = 0;

    for (int i0 = 0; i0 < p.vocab; i0 += THREADS) {
        int i = i0 + (int)threadIdx.x, warp = (int)threadIdx.x / 32;
        bool hit = i < p.vocab && order_key(z[i]) == key;
        unsigned hits = __ballot_sync(ALL_LANES, hit), sum = before;

        if (threadIdx.x % 32 == 0) {
            s.word[warp] = (unsigned)__popc(hits);
        }
        __syncthreads();
        for (int w = 0; w < warp; w++) {
            sum += (unsigned)s.word[w];
        }
        sum += (unsigned)__popc(hits & ((1u << threadIdx.x % 32) - 1u));
        if (hit && sum + 1 == n) {
            s.cut_id = (unsigned)i;
        }
        for (int w = 0; w < THREADS / 32; w++) {
            before += (unsigned)s.word[w];
        }
        __syncthreads();
        if (before >= n) {
            return;
        }
    }
}

/* Steps 4 to 6. What is kept: keys above *ret_key; at it, ids up to *ret_id; weight at least
 * *ret_least. */
static __device__ void truncate(const sample_params &p, sample_shared &s,
                                const struct kern_sample_row &row, const float *z, float max_z,
                                unsigned *ret_key, unsigned *ret_id)
{
    unsigned key = 0, ties = 0, all_ties = 0;
    unsigned long long n = 0, total = 0;

    for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
        n += z[i] > -INFINITY;
    }
    n = block_total(s, n);
    if (row.top_k > 0 && row.top_k < p.vocab && (unsigned long long)row.top_k < n) {
        key = select_key(p, s, z, max_z, 0, (unsigned)row.top_k, 0);
        all_ties = s.ties;
        ties = (unsigned)row.top_k - (unsigned)s.before;
    }
    if (row.top_p < 1.0f) {
        double limit;
        unsigned long long w;
        unsigned cut;

        for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
            if (z[i] > -INFINITY && order_key(z[i]) > key) {
                total += sample_weight(z[i] - max_z);
            }
        }
        total = block_total(s, total);
        total += ties == 0 ? 0 : ties * sample_weight(order_value(key) - max_z);
        limit = (double)row.top_p * (double)total;
        cut = select_key(p, s, z, max_z, key, 0, limit);
        /* of those with this key, in ascending id: kept while the sum before is below the limit;
         * the first one always is */
        if (cut != key) {
            all_ties = s.ties;
            ties = all_ties;
        }
        w = sample_weight(order_value(cut) - max_z);
        key = cut;
        if (threadIdx.x == 0) {
            unsigned lo = 1, hi = ties;

            while (lo < hi) {
                unsigned mid = lo + (hi - lo + 1) / 2;

                if ((double)(s.before + (mid - 1) * w) < limit) {
                    lo = mid;
                } else {
                    hi = mid - 1;
                }
            }
            s.kept_ties = lo;
        }
        __syncthreads();
        ties = s.kept_ties;
    }
    if (threadIdx.x == 0) {
        s.cut_id = 0x7fffffffu;
    }
    __syncthreads();
    if (ties < all_ties) {
        find_cut(p, s, z, key, ties);
        __syncthreads();
    }
    *ret_key = key;
    *ret_id = s.cut_id;
}

/* Step 7. With of_drawn, z of what was not kept becomes -INFINITY: each thread's own ids. */
static __device__ int draw(const sample_params &p, sample_shared &s,
                           const struct kern_sample_row &row, int pos, float *z,
                           unsigned long long first)
{
    float max_z = order_value((unsigned)(first >> 32));
    int first_id = (int)~(unsigned)first;
    unsigned cut_key = 0, cut_id = 0x7fffffffu;
    double least = row.min_p > 0.0f ? (double)row.min_p * SAMPLE_ONE : -1.0;
    unsigned long long best = 0;

    if (row.top_k > 0 || row.top_p < 1.0f) {
        truncate(p, s, row, z, max_z, &cut_key, &cut_id);
    }
    for (int i4 = (int)threadIdx.x; i4 * 4 < p.vocab; i4 += THREADS) {
        unsigned keep = 0;
        uint32_t c[4] = {(uint32_t)i4, (uint32_t)pos, 0, SAMPLE_DOMAIN};

#pragma unroll
        for (int j = 0; j < 4; j++) {
            int i = i4 * 4 + j;

            if (i < p.vocab && z[i] > -INFINITY) {
                unsigned key = order_key(z[i]);
                bool in = key > cut_key || (key == cut_key && (unsigned)i <= cut_id);

                if (in && least >= 0.0) {
                    in = (double)sample_weight(z[i] - max_z) >= least;
                }
                in = in || i == first_id;
                keep |= (unsigned)in << j;
                if (!in && row.of_drawn != 0) {
                    z[i] = -INFINITY;
                }
            }
        }
        if (keep == 0) {
            continue;
        }
        sample_philox(c, (uint32_t)row.seed, (uint32_t)(row.seed >> 32));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (keep >> j & 1u) {
                int i = i4 * 4 + j;
                unsigned long long v =
                    rank_of(fmaf(z[i], row.beta, -sample_log(sample_exponential(c[j]))), i);

                best = v > best ? v : best;
            }
        }
    }
    return (int)~(unsigned)block_max(s, best);
}

/* Of the logits l; -INFINITY is none. first: the first of them in their order. */
static __device__ void logprobs(const sample_params &p, sample_shared &s, int n_top, const float *l,
                                unsigned long long first, struct kern_sample_out *out)
{
    float max_l = order_value((unsigned)(first >> 32)), log_total;
    unsigned long long total = 0, after = ~0ull;

    for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
        total += sample_weight(l[i] - max_l);
    }
    log_total = sample_log_total(block_total(s, total));
    n_top = n_top < p.vocab ? n_top : p.vocab;
    if (threadIdx.x == 0) {
        out->logprob = sample_logprob(l[out->id], max_l, log_total);
        out->n_top = n_top;
    }
    for (int j = 0; j < n_top; j++) {
        unsigned long long best = 0;

        for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
            unsigned long long v = rank_of(l[i], i);

            best = v < after && v > best ? v : best;
        }
        after = block_max(s, best);
        if (!(order_value((unsigned)(after >> 32)) > -INFINITY)) {
            if (threadIdx.x == 0) {
                out->n_top = j;
            }
            return;
        }
        if (threadIdx.x == 0) {
            int id = (int)~(unsigned)after;

            out->top_id[j] = id;
            out->top_logprob[j] = sample_logprob(l[id], max_l, log_total);
        }
    }
}

static __global__ void __launch_bounds__(THREADS) sample(const sample_params p)
{
    STEP_SHARED(sample_shared, s, 1);
    int r = (int)blockIdx.x, id;
    const float *l = p.logits + (size_t)r * (size_t)p.stride;
    const float *of = l; /* what logprobs are of */
    float *z = p.z + (size_t)r * (size_t)p.vocab;
    unsigned long long first = 0, bad = 0;

    if (r >= live_rows(p.n, p.max)) {
        return;
    }
    struct kern_sample_row row = p.row[r];

    for (int i = (int)threadIdx.x; i < p.vocab; i += THREADS) {
        unsigned long long v = rank_of(l[i], i);

        bad |= !(fabsf(l[i]) < INFINITY);
        first = v > first ? v : first;
    }
    bad = block_max(s[0], bad);
    first = block_max(s[0], first);
    id = bad != 0 ? KERN_DRAW_NONFINITE : row.given;
    if (bad == 0 && row.given < 0) {
        bool greedy = row.temperature < SAMPLE_MIN_TEMPERATURE || row.beta == 0.0f;
        unsigned long long best = make_z(p, s[0], row, l, z, greedy);

        if (row.of_drawn != 0) {
            of = z;
            first = best;
        }
        id = best == 0 ? KERN_DRAW_MASKED
             : greedy  ? (int)~(unsigned)best
                       : draw(p, s[0], row, p.pos[r], z, best);
    }
    if (threadIdx.x == 0) {
        p.out[r].id = id;
        p.out[r].logprob = quant_from_bits(0x7fc00000u);
        p.out[r].n_top = 0;
        p.out[r].pad = 0;
    }
    if (row.n_top >= 0 && id >= 0) {
        logprobs(p, s[0], row.n_top, of, first, &p.out[r]);
    }
}

extern "C" int gpu_sample(struct kern *k, const struct kern_sample_args *a)
{
    GPU_PARAMS(sample_params, p);
    int r;

    p.n = reinterpret_cast<const int *>(gpu_at(a->rows.n));
    p.pos = reinterpret_cast<const int *>(gpu_at(a->pos));
    p.logits = reinterpret_cast<const float *>(gpu_at(a->logits));
    p.row = reinterpret_cast<const struct kern_sample_row *>(gpu_at(a->params));
    p.pen = reinterpret_cast<const struct kern_penalty *>(gpu_at(a->pen));
    p.masks = reinterpret_cast<const unsigned *>(gpu_at(a->masks));
    p.out = reinterpret_cast<struct kern_sample_out *>(gpu_at(a->out));
    p.z = static_cast<float *>(
        gpu_scratch_get(k, GPU_SCRATCH_SAMPLE, (size_t)a->rows.max * (size_t)a->vocab * 4));
    p.max = a->rows.max;
    p.vocab = a->vocab;
    p.stride = a->stride;
    if (p.z == nullptr) {
        return -ENOMEM;
    }
    r = gpu_join(k, GPU_JOIN_GATHER, a->logits, &a->rows, a->stride);
    return r < 0 ? r : STEP_LAUNCH(k, sample, p.max, 1, 1, THREADS, 0, p);
}
