/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * accept, mtp_rows: what becomes of drafts, and which rows the MTP modules
 * compute after that (struct kern_mtp_span). Integers only; a thread a span, one
 * block, because spans number few.
 */

#include "kernels/cuda/dev.cuh"

#define THREADS 128

struct accept_params {
    const int *row0, *n_draft, *draft;
    const struct kern_sample_out *sampled;
    int *n_accept, *next;
    int n_spans;
};

static __global__ void __launch_bounds__(THREADS) accept_drafts(const accept_params p)
{
    int i = (int)(blockIdx.x * THREADS + threadIdx.x), j = 0;

    if (i >= p.n_spans) {
        return;
    }
    if (p.row0[i] < 0) {
        p.n_accept[i] = 0;
        p.next[i] = -1;
        return;
    }
    while (j < p.n_draft[i] && p.draft[i * KERN_MAX_DRAFTS + j] == p.sampled[p.row0[i] + j].id) {
        j++;
    }
    p.n_accept[i] = j;
    p.next[i] = p.sampled[p.row0[i] + j].id;
}

extern "C" int gpu_accept(struct kern *k, const struct kern_accept_args *a)
{
    GPU_PARAMS(accept_params, p);

    p.row0 = reinterpret_cast<const int *>(gpu_at(a->row0));
    p.n_draft = reinterpret_cast<const int *>(gpu_at(a->n_draft));
    p.draft = reinterpret_cast<const int *>(gpu_at(a->draft));
    p.sampled = reinterpret_cast<const struct kern_sample_out *>(gpu_at(a->sampled));
    p.n_accept = reinterpret_cast<int *>(gpu_at(a->n_accept));
    p.next = reinterpret_cast<int *>(gpu_at(a->next));
    p.n_spans = a->n_spans;
    return STEP_LAUNCH(k, accept_drafts, gpu_ceil(p.n_spans, THREADS), 1, 1, THREADS, 0, p);
}

/* ---- mtp_rows ---- */

struct mtp_params {
    const struct kern_mtp_span *span;
    const struct kern_sample_out *drafts;
    const int *n_accept, *next, *step_ids;
    int *first, *row0, *n, *ids, *slot, *seq, *below, *last, *last_pos, *keep_src, *keep_dst;
    int k, n_spans, max_rows, below_base;
};

/* Where a span's part of this module, and of the level below, begins and ends. */
struct mtp_part {
    int len, first, limit, below_first, below_row0, below_limit;
};

static __device__ mtp_part part_of(const mtp_params &p, int i)
{
    const struct kern_mtp_span &s = p.span[i];
    int line = (p.k - 1) * p.n_spans + i;
    mtp_part m;

    m.len = s.pos + s.n_sure + p.n_accept[i];
    m.first = s.end[p.k - 1] < m.len ? s.end[p.k - 1] : m.len;
    m.first = s.low[p.k - 1] > m.first ? s.low[p.k - 1] : m.first;
    m.limit = s.depth >= p.k ? m.len + p.k : m.len;
    m.below_first = p.k == 1 ? s.pos : p.first[line];
    m.below_row0 = p.k == 1 ? s.row0 : p.row0[line];
    m.below_limit = s.depth >= p.k - 1 ? m.len + p.k - 1 : m.len;
    return m;
}

static __device__ int token(const mtp_params &p, int i, int s, int len)
{
    if (s < len) {
        return p.step_ids[p.span[i].row0 + s - p.span[i].pos];
    }
    return s == len ? p.next[i] : p.drafts[(s - len - 1) * p.n_spans + i].id;
}

/* The newest rows of the level below, to be kept. */
static __device__ void keep(const mtp_params &p, int i, const mtp_part &m)
{
    const struct kern_mtp_span &sp = p.span[i];

    for (int j = 0; j < KERN_CARRY; j++) {
        int s = m.below_limit - KERN_CARRY + j;
        bool have = sp.row0 >= 0 && s >= m.below_first;

        p.keep_src[i * KERN_CARRY + j] =
            have ? p.below_base + m.below_row0 + s - m.below_first : -1;
        p.keep_dst[i * KERN_CARRY + j] = have ? sp.carry + s % KERN_CARRY : 0;
    }
}

static __global__ void __launch_bounds__(THREADS) mtp_rows(const mtp_params p)
{
    STEP_SHARED(int, count, THREADS + 1);
    int base = 0;

    for (int i0 = 0; i0 < p.n_spans; i0 += THREADS) {
        int i = i0 + (int)threadIdx.x, n = 0;
        mtp_part m = {0, 0, 0, 0, 0, 0};

        if (i < p.n_spans) {
            m = part_of(p, i);
            n = p.span[i].row0 >= 0 && m.limit > m.first ? m.limit - m.first : 0;
        }
        count[threadIdx.x + 1] = n;
        __syncthreads();
        if (threadIdx.x == 0) {
            count[0] = base;
            for (int j = 1; j <= THREADS; j++) { /* rows past the bound are left out */
                int sum = count[j - 1] + count[j];

                count[j] = sum < p.max_rows ? sum : p.max_rows;
            }
        }
        __syncthreads();
        if (i < p.n_spans) {
            const struct kern_mtp_span &s = p.span[i];
            int row = count[threadIdx.x], rows = count[threadIdx.x + 1] - row;

            p.first[p.k * p.n_spans + i] = m.first;
            p.row0[p.k * p.n_spans + i] = row;
            p.last[i] = n > 0 && rows == n && s.depth >= p.k ? row + rows - 1 : -1;
            p.last_pos[i] = m.len + p.k;
            keep(p, i, m);
            for (int j = 0; j < rows; j++) {
                int at = m.first + j;

                p.ids[row + j] = token(p, i, at, m.len);
                p.slot[row + j] = at;
                p.seq[row + j] = s.seq;
                p.below[row + j] = at - 1 >= m.below_first
                                       ? p.below_base + m.below_row0 + at - 1 - m.below_first
                                       : s.carry + (at - 1) % KERN_CARRY;
            }
        }
        base = count[THREADS];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *p.n = base;
    }
}

extern "C" int gpu_mtp_rows(struct kern *k, const struct kern_mtp_rows_args *a)
{
    GPU_PARAMS(mtp_params, p);

    p.span = reinterpret_cast<const struct kern_mtp_span *>(gpu_at(a->span));
    p.drafts = reinterpret_cast<const struct kern_sample_out *>(gpu_at(a->drafts));
    p.n_accept = reinterpret_cast<const int *>(gpu_at(a->n_accept));
    p.next = reinterpret_cast<const int *>(gpu_at(a->next));
    p.step_ids = reinterpret_cast<const int *>(gpu_at(a->step_ids));
    p.first = reinterpret_cast<int *>(gpu_at(a->first));
    p.row0 = reinterpret_cast<int *>(gpu_at(a->row0));
    p.n = reinterpret_cast<int *>(gpu_at(a->n));
    p.ids = reinterpret_cast<int *>(gpu_at(a->ids));
    p.slot = reinterpret_cast<int *>(gpu_at(a->slot));
    p.seq = reinterpret_cast<int *>(gpu_at(a->seq));
    p.below = reinterpret_cast<int *>(gpu_at(a->below));
    p.last = reinterpret_cast<int *>(gpu_at(a->last));
    p.last_pos = reinterpret_cast<int *>(gpu_at(a->last_pos));
    p.keep_src = reinterpret_cast<int *>(gpu_at(a->keep_src));
    p.keep_dst = reinterpret_cast<int *>(gpu_at(a->keep_dst));
    p.k = a->k;
    p.n_spans = a->n_spans;
    p.max_rows = a->max_rows;
    p.below_base = a->below_base;
    return STEP_LAUNCH(k, mtp_rows, 1, 1, 1, THREADS, 0, p);
}
