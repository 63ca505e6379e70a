/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * attn: causal attention over the paged cache, flash style, for prefill, decode
 * and verification rows of many sequences in one launch.
 *
 * A query vector is one head of one row; the H / G heads that share a KV head
 * are the 16-side of mma.m16n8k16, together with those of the neighbouring rows
 * of the same sequence. A block owns a few consecutive rows and one KV head; it
 * brings each page of 64 slots into shared memory once, by cp.async, two stages.
 *
 * Order: within a split of SPLIT_PAGES pages (cut at absolute positions) pages
 * ascend under an online softmax; splits are merged in ascending order. With few
 * rows splits are blocks of their own and the last one to finish merges; with
 * many rows one block takes all splits of its rows and merges as it goes. Both
 * add alike, to the bit. A page that is masked changes nothing.
 *
 * Slots outside of the rows' own range are zeros in shared memory, whatever the
 * page holds; scores there are replaced, not multiplied.
 */

#include <errno.h>

#include "kernels/cuda/frag.cuh"

#define D KERN_HEAD_DIM
#define SPLIT_PAGES 8
#define PART (D + 2) /* a partial result: sums, maximum, weight */

struct attn_params {
    const int *n, *slot, *seq, *table, *first_page, *low;
    const char *pages;
    const unsigned short *q;
    const float *gate;
    unsigned short *out;
    float *part; /* [rows][H][splits][PART] */
    unsigned *turn;
    unsigned long long *counts;
    size_t page_bytes;
    int max, n_head, n_kv, group, n_seq, n_pages, max_pages, window, splits, tile_rows, q_vec;
};

/* Rows first .. last of one sequence, at consecutive slots, and the slots that any attends. */
struct attn_run {
    int first, last, seq, lo, hi;
};

static __device__ __forceinline__ int lowest(const attn_params &p, int slot, int seq)
{
    int lo = p.low[seq], w = slot - p.window + 1;

    lo = p.window > 0 && w > lo ? w : lo;
    return lo < 0 ? 0 : lo;
}

static __device__ __forceinline__ attn_run find_run(const attn_params &p, int row, int end)
{
    attn_run r = {row, row, p.seq[row], 0, p.slot[row]};
    int w;

    if (r.seq < 0 || r.seq >= p.n_seq) { /* nothing to look at, nothing to write */
        fault_set(p.counts, GPU_FAULT_ATTN_SEQ, row, r.seq);
        r.seq = 0;
        r.hi = -1;
        return r;
    }
    r.lo = lowest(p, r.hi, r.seq);
    while (r.last + 1 < end && p.seq[r.last + 1] == r.seq && p.slot[r.last + 1] == r.hi + 1) {
        r.last++;
        r.hi++;
    }
    /* slots before or after the table have no page to look at */
    w = p.first_page[r.seq] * KERN_PAGE_TOK;
    if (r.lo < w || r.hi >= w + p.max_pages * KERN_PAGE_TOK) {
        fault_set(p.counts, GPU_FAULT_ATTN_PAGE, r.seq, (r.lo < w ? r.lo : r.hi) / KERN_PAGE_TOK);
        r.lo = r.lo < w ? w : r.lo;
        r.hi = r.hi < w + p.max_pages * KERN_PAGE_TOK ? r.hi : w + p.max_pages * KERN_PAGE_TOK - 1;
    }
    return r;
}

static __device__ __forceinline__ const char *page_of(const attn_params &p, int seq, int page)
{
    int column = page - p.first_page[seq], id;

    id = column >= 0 && column < p.max_pages ? p.table[seq * p.max_pages + column] : -1;
    return id >= 0 && id < p.n_pages ? p.pages + (size_t)id * p.page_bytes : nullptr;
}

/* Chunk c (16 bytes) of slot s: K is read by 16-byte loads, two slots at a time; V by ldmatrix,
 * eight slots at a time. */
static __device__ __forceinline__ int k_chunk(int s, int c)
{
    return s * 16 + (c ^ (s & 1) << 2);
}
static __device__ __forceinline__ int v_chunk(int s, int c)
{
    return s * 16 + (c ^ (s & 7));
}

/* One page of one KV head into a stage: 1,024 chunks of K, then of V. */
static __device__ __forceinline__ void bring(const attn_params &p, const attn_run &run, int kv,
                                             int page, uint4 *stage)
{
    const char *at = page_of(p, run.seq, page);

    for (int i = (int)threadIdx.x; at != nullptr && i < 2048; i += (int)blockDim.x) {
        int v = i / 1024, s = i / 16 % KERN_PAGE_TOK, c = i % 16, slot = page * KERN_PAGE_TOK + s;
        size_t row = (size_t)((v * p.n_kv + kv) * KERN_PAGE_TOK + s) * D * 2;

        cp_async16(stage + v * 1024 + (v ? v_chunk(s, c) : k_chunk(s, c)),
                   at + row + (size_t)c * 16, slot >= run.lo && slot <= run.hi);
    }
    cp_async_commit();
}

/* What a lane knows of its two query vectors, g and g + 8 of its warp's 16. */
struct attn_lane {
    const unsigned short *q[2]; /* nullptr: none */
    int lo[2], hi[2];           /* slots; hi -1: none */
    float max[2], sum[2];       /* of this split, sum over this lane's own slots */
    float acc[16][4];
};

static __device__ __forceinline__ void lane_reset(attn_lane &l)
{
    l.max[0] = l.max[1] = -INFINITY;
    l.sum[0] = l.sum[1] = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        l.acc[i][0] = l.acc[i][1] = l.acc[i][2] = l.acc[i][3] = 0;
    }
}

/* Scores of one page, scaled to powers of two, -inf where masked. */
static __device__ __forceinline__ void scores(const attn_params &p, const uint4 *ks,
                                              const attn_lane &l, int page, float (&s)[8][4])
{
    int lane = (int)threadIdx.x & 31, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < 8; n++) {
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
    }
#pragma unroll
    for (int b = 0; b < 4; b++) { /* q again for each page: it is near, registers are not */
        uint4 lo = x_eight(l.q[0], b * 32 + t * 8, D, p.q_vec != 0);
        uint4 hi = x_eight(l.q[1], b * 32 + t * 8, D, p.q_vec != 0);
        unsigned a0[4] = {lo.x, hi.x, lo.y, hi.y}, a1[4] = {lo.z, hi.z, lo.w, hi.w};

#pragma unroll
        for (int n = 0; n < 8; n++) {
            uint4 k = ld128(ks + k_chunk(n * 8 + g, b * 4 + t));

            mma_bf16(s[n], a0, k.x, k.y);
            mma_bf16(s[n], a1, k.z, k.w);
        }
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int slot = page * KERN_PAGE_TOK + n * 8 + 2 * t + (e & 1);

            s[n][e] = slot >= l.lo[e / 2] && slot <= l.hi[e / 2]
                          ? s[n][e] * 0.127517432f /* 128^-1/2 log2 e */
                          : -INFINITY;
        }
    }
}

/* The online softmax: s becomes weights, rounded to BF16 as they will be used. */
static __device__ __forceinline__ void soften(attn_lane &l, float (&s)[8][4], unsigned (&w)[8][2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = l.max[h], old = l.max[h], sum = 0, shrink;

#pragma unroll
        for (int n = 0; n < 8; n++) {
            top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        shrink = old == top ? 1.0f : dev_exp2(old - top);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float a = s[n][2 * h], b = s[n][2 * h + 1];

            /* -inf is no difference to be taken of -inf; a NaN must stay one */
            a = a == -INFINITY ? 0.0f : dev_exp2(a - top);
            b = b == -INFINITY ? 0.0f : dev_exp2(b - top);
            w[n][h] = pack_bf16(a, b);
            sum += quant_from_bits(w[n][h] << 16);
            sum += quant_from_bits(w[n][h] & 0xffff0000u);
        }
        l.max[h] = top;
        l.sum[h] = fmaf(l.sum[h], shrink, sum);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            l.acc[i][2 * h] *= shrink;
            l.acc[i][2 * h + 1] *= shrink;
        }
    }
}

static __device__ __forceinline__ void weigh(attn_lane &l, const uint4 *vs,
                                             const unsigned (&w)[8][2])
{
    int lane = (int)threadIdx.x & 31;

#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned a[4] = {w[2 * k][0], w[2 * k][1], w[2 * k + 1][0], w[2 * k + 1][1]};
        int s = k * 16 + lane % 16;

#pragma unroll
        for (int i = 0; i < 8; i++) {
            unsigned b[4];

            ldmatrix_x4_trans(b, vs + v_chunk(s, 2 * i + lane / 16));
            mma_bf16(l.acc[2 * i], a, b[0], b[1]);
            mma_bf16(l.acc[2 * i + 1], a, b[2], b[3]);
        }
    }
}

/* The whole sum of a quad's lanes: each lane summed its own slots. */
static __device__ __forceinline__ float quad_sum(float v)
{
    v += __shfl_xor_sync(ALL_LANES, v, 1);
    return v + __shfl_xor_sync(ALL_LANES, v, 2);
}

/* How a split (max m, weight s) joins what came before it (M, S): factors for both. */
static __device__ __forceinline__ void join(float *max, float *sum, float m, float s,
                                            float *ret_old, float *ret_new)
{
    float top = fmaxf(*max, m);

    /* fmaxf passes over a NaN; this keeps it */
    top = m != m || *max != *max ? m + *max : top;
    *ret_old = *max == -INFINITY ? 0.0f : dev_exp2(*max - top);
    *ret_new = dev_exp2(m - top);
    *sum = fmaf(*sum, *ret_old, s * *ret_new);
    *max = top;
}

static __device__ __forceinline__ float gated(const attn_params &p, int row, int head, float v)
{
    return p.gate == nullptr ? v : v * (1.0f / (1.0f + expf(-p.gate[row * p.n_head + head])));
}

/* All pages of a run from split `first` to split `last`, into l, reset at each split; done(l) is
 * called at each split's end. */
template <class Done>
static __device__ __forceinline__ void walk(const attn_params &p, const attn_run &run, int kv,
                                            int first, int last, attn_lane &l, uint4 *stage,
                                            const Done &done)
{
    int lo = run.lo / KERN_PAGE_TOK, hi = run.hi < 0 ? -1 : run.hi / KERN_PAGE_TOK, at = 0;
    unsigned long long slots = 0;

    lo = first * SPLIT_PAGES > lo ? first * SPLIT_PAGES : lo;
    hi = last * SPLIT_PAGES + SPLIT_PAGES - 1 < hi ? last * SPLIT_PAGES + SPLIT_PAGES - 1 : hi;
    lane_reset(l);
    if (lo > hi) {
        return;
    }
    bring(p, run, kv, lo, stage);
    for (int page = lo; page <= hi; page++, at ^= 1) {
        bool have = page_of(p, run.seq, page) != nullptr;
        float s[8][4];
        unsigned w[8][2];

        if (page < hi) {
            bring(p, run, kv, page + 1, stage + (at ^ 1) * 2048);
        } else {
            cp_async_commit();
        }
        cp_async_wait<1>();
        __syncthreads();
        if (have) {
            int a = page * KERN_PAGE_TOK, b = a + KERN_PAGE_TOK - 1;

            scores(p, stage + at * 2048, l, page, s);
            soften(l, s, w);
            weigh(l, stage + at * 2048 + 1024, w);
            slots += (unsigned)((b < run.hi ? b : run.hi) - (a > run.lo ? a : run.lo) + 1);
        } else {
            fault_set(p.counts, GPU_FAULT_ATTN_PAGE, run.seq, page);
        }
        __syncthreads();
        if (page == hi || page % SPLIT_PAGES == SPLIT_PAGES - 1) {
            done(l, page / SPLIT_PAGES);
            lane_reset(l);
        }
    }
    if (threadIdx.x == 0) {
        count_add(p.counts, GPU_COUNT_KV, slots * (2 * D * 2));
    }
}

/* The query vectors of a warp's lane within a run. */
static __device__ __forceinline__ void lane_begin(const attn_params &p, const attn_run &run,
                                                  int row0, int kv, attn_lane &l)
{
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        int v = warp * 16 + h * 8 + lane / 4, row = row0 + v / p.group;
        bool in = row >= run.first && row <= run.last && run.hi >= 0 && v < p.tile_rows * p.group;
        const unsigned short *at =
            p.q + ((size_t)row * (size_t)p.n_head + (size_t)(kv * p.group + v % p.group)) * D;

        l.hi[h] = in ? p.slot[row] : -1;
        l.lo[h] = in ? lowest(p, l.hi[h], run.seq) : 0;
        l.q[h] = in ? at : nullptr;
    }
}

/* ---- many rows: a block takes all splits of its rows ---- */

template <int WARPS>
static __global__ void __launch_bounds__(WARPS * 32, 1) attn_rows(const attn_params p)
{
    STEP_DYN_SHARED(uint4, stage); /* two pages, then the merged sums: 64 a thread */
    float *merged = reinterpret_cast<float *>(stage + 4096) + threadIdx.x;
    int n = live_rows(p.n, p.max), kv = (int)blockIdx.y, row0 = (int)blockIdx.x * p.tile_rows;
    int end = row0 + p.tile_rows < n ? row0 + p.tile_rows : n;
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;

    for (int row = row0; row < end;) {
        attn_run run = find_run(p, row, end);
        attn_lane l;
        float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

        lane_begin(p, run, row0, kv, l);
        for (int i = 0; i < 64; i++) {
            merged[i * WARPS * 32] = 0;
        }
        walk(p, run, kv, 0, run.hi / KERN_PAGE_TOK / SPLIT_PAGES, l, stage,
             [&](attn_lane &part, int) {
#pragma unroll
                 for (int h = 0; h < 2; h++) {
                     float s = quad_sum(part.sum[h]), old, now;

                     if (part.max[h] == -INFINITY) {
                         continue;
                     }
                     join(&max[h], &sum[h], part.max[h], s, &old, &now);
#pragma unroll
                     for (int i = 0; i < 32; i++) {
                         float *m = merged + (i * 2 + h) * WARPS * 32;

                         *m = fmaf(*m, old, part.acc[i / 2][2 * h + (i & 1)] * now);
                     }
                 }
             });
        for (int h = 0; h < 2; h++) {
            int v = warp * 16 + h * 8 + lane / 4, r = row0 + v / p.group;
            int head = kv * p.group + v % p.group;

            if (l.hi[h] < 0) {
                continue;
            }
            for (int i = 0; i < 32; i++) {
                int c = i / 2 * 8 + lane % 4 * 2 + (i & 1);

                p.out[((size_t)r * (size_t)p.n_head + (size_t)head) * D + c] =
                    quant_f32_to_bf16(gated(p, r, head, merged[(i * 2 + h) * WARPS * 32] / sum[h]));
            }
        }
        row = run.last + 1;
    }
}

/* ---- few rows: a split is a block ---- */

static __device__ __forceinline__ float *part_at(const attn_params &p, int row, int head, int split)
{
    return p.part +
           (((size_t)row * (size_t)p.n_head + (size_t)head) * (size_t)p.splits + (size_t)split) *
               PART;
}

/* The last block of a tile: a warp a query vector, four elements a lane. */
static __device__ void merge(const attn_params &p, int row0, int end, int kv)
{
    int lane = (int)threadIdx.x & 31;

    for (int row = row0; row < end;) {
        attn_run run = find_run(p, row, end);
        int first = run.lo / KERN_PAGE_TOK / SPLIT_PAGES;
        int splits = run.hi < 0 ? 0 : run.hi / KERN_PAGE_TOK / SPLIT_PAGES - first + 1;
        int n = (run.last - run.first + 1) * p.group;

        for (int v = (int)threadIdx.x / 32; v < n; v += (int)blockDim.x / 32) {
            int r = run.first + v / p.group, head = kv * p.group + v % p.group;
            float max = -INFINITY, sum = 0, acc[4] = {0, 0, 0, 0}, old, now;

            for (int s = 0; s < splits; s++) {
                const float *at = part_at(p, r, head, s);
                float m = ld_volatile(at + D);

                if (m == -INFINITY) {
                    continue;
                }
                join(&max, &sum, m, ld_volatile(at + D + 1), &old, &now);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    acc[i] = fmaf(acc[i], old, ld_volatile(at + lane + 32 * i) * now);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p.out[((size_t)r * (size_t)p.n_head + (size_t)head) * D + lane + 32 * i] =
                    quant_f32_to_bf16(gated(p, r, head, acc[i] / sum));
            }
        }
        row = run.last + 1;
    }
}

template <int WARPS>
static __global__ void __launch_bounds__(WARPS * 32, 1) attn_split(const attn_params p)
{
    STEP_DYN_SHARED(uint4, stage);
    STEP_SHARED(unsigned, last, 1);
    int n = live_rows(p.n, p.max), kv = (int)blockIdx.y, row0 = (int)blockIdx.x * p.tile_rows;
    int end = row0 + p.tile_rows < n ? row0 + p.tile_rows : n;
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;

    if (row0 >= n) {
        return;
    }
    for (int row = row0; row < end;) {
        attn_run run = find_run(p, row, end);
        int first = run.lo / KERN_PAGE_TOK / SPLIT_PAGES, split = first + (int)blockIdx.z;
        attn_lane l;

        row = run.last + 1;
        if (run.hi < 0 || split > run.hi / KERN_PAGE_TOK / SPLIT_PAGES) {
            continue;
        }
        lane_begin(p, run, row0, kv, l);
        walk(p, run, kv, split, split, l, stage, [&](attn_lane &part, int) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int v = warp * 16 + h * 8 + lane / 4;
                float s = quad_sum(part.sum[h]);
                float *to =
                    part_at(p, row0 + v / p.group, kv * p.group + v % p.group, (int)blockIdx.z);

                if (part.hi[h] < 0) {
                    continue;
                }
#pragma unroll
                for (int i = 0; i < 32; i++) {
                    to[i / 2 * 8 + lane % 4 * 2 + (i & 1)] = part.acc[i / 2][2 * h + (i & 1)];
                }
                if (lane % 4 == 0) {
                    to[D] = part.max[h];
                    to[D + 1] = s;
                }
            }
        });
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *turn = p.turn + (size_t)blockIdx.x * (size_t)p.n_kv + (size_t)kv;

        last[0] = atomicAdd(turn, 1u) == gridDim.z - 1;
        if (last[0]) {
            *turn = 0;
        }
    }
    __syncthreads();
    if (last[0]) {
        __threadfence();
        merge(p, row0, end, kv);
    }
}

/* ---- launch ---- */

#define STAGE_BYTES (4096 * sizeof(uint4))
#define FEW_ROWS 64

static int n_splits(int pages)
{
    return gpu_ceil(pages, SPLIT_PAGES) + 1;
}

static size_t part_bytes(int rows, int n_head, int pages)
{
    return (size_t)rows * (size_t)n_head * (size_t)n_splits(pages) * PART * sizeof(float);
}

/* At most a turn a row and KV head. */
extern "C" void gpu_attn_scratch(int rows, int n_head, int n_kv_head, int pages, uint64_t *ret_part,
                                 uint64_t *ret_turns)
{
    rows = gpu_min(rows, FEW_ROWS);
    *ret_part = part_bytes(rows, n_head, pages);
    *ret_turns = (size_t)rows * (size_t)n_kv_head * sizeof(unsigned);
}

extern "C" int gpu_attn(struct kern *k, const struct kern_attn_args *a)
{
    GPU_PARAMS(attn_params, p);
    int few = a->rows.max <= FEW_ROWS, warps = few ? 2 : 4, tiles;

    p.group = a->n_head / a->kv.n_kv_head;
    if (p.group > warps * 16 || a->kv.page_bytes % 16 != 0) {
        return -EOPNOTSUPP;
    }
    p.n = reinterpret_cast<const int *>(gpu_at(a->rows.n));
    p.slot = reinterpret_cast<const int *>(gpu_at(a->at.slot));
    p.seq = reinterpret_cast<const int *>(gpu_at(a->at.seq));
    p.table = reinterpret_cast<const int *>(gpu_at(a->at.table));
    p.first_page = reinterpret_cast<const int *>(gpu_at(a->at.first_page));
    p.low = reinterpret_cast<const int *>(gpu_at(a->at.low));
    p.pages = gpu_at(a->kv.pages);
    p.q = reinterpret_cast<const unsigned short *>(gpu_at(a->q));
    p.gate = reinterpret_cast<const float *>(gpu_at(a->gate));
    p.out = reinterpret_cast<unsigned short *>(gpu_at(a->out));
    p.counts = gpu_of(k)->counts;
    p.page_bytes = a->kv.page_bytes;
    p.max = a->rows.max;
    p.n_head = a->n_head;
    p.n_kv = a->kv.n_kv_head;
    p.n_seq = a->at.n_seq;
    p.n_pages = a->kv.n_pages;
    p.max_pages = a->at.max_pages;
    p.window = a->window;
    p.tile_rows = warps * 16 / p.group;
    p.q_vec = reinterpret_cast<uintptr_t>(p.q) % 16 == 0;
    tiles = gpu_ceil(p.max, p.tile_rows);
    if (reinterpret_cast<uintptr_t>(p.pages) % 16 != 0) {
        return -EOPNOTSUPP;
    }
    if (!few) {
        return STEP_LAUNCH(k, attn_rows<4>, tiles, p.n_kv, 1, 128, STAGE_BYTES + 128 * 64 * 4, p);
    }
    p.splits = n_splits(p.max_pages);
    p.part = static_cast<float *>(
        gpu_scratch_get(k, GPU_SCRATCH_ATTN, part_bytes(p.max, p.n_head, p.max_pages)));
    p.turn = static_cast<unsigned *>(
        gpu_scratch_get(k, GPU_SCRATCH_TURNS, (size_t)tiles * (size_t)p.n_kv * sizeof(unsigned)));
    if (p.part == nullptr || p.turn == nullptr) {
        return -ENOMEM;
    }
    return STEP_LAUNCH(k, attn_split<2>, tiles, p.n_kv, p.splits, 64, STAGE_BYTES, p);
}
