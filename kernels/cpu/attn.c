/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_attn: paged attention with an online softmax. An item is one KV head for
 * a block of neighbouring rows of one sequence: each page's K and V are brought
 * into a form that suits the arithmetic once and serve all query heads of all
 * rows of the block. Once per path.
 *
 * Order. A score is one chain over the channels (lanes are tokens, so a page's
 * K is transposed); an output channel is one chain over the tokens (lanes are
 * channels); pages are folded in ascending order with the row's running maximum
 * and sum. A row looks at its own token range of a page and nothing else: what
 * its neighbours in the block need changes neither its values nor their order,
 * and a slot that its mask hides is left out, not multiplied by zero.
 *
 * Limits: long contexts of one row, on a path with the BF16 dot product the
 * memory; in F32 the multiplications (4 * 128 a head and token), and bringing a
 * page into form, which 8 query heads share: about a third of their cost.
 *
 * Tried (Zen 3, avx2, one thread, 64 query and 8 KV heads; bench_attn; KV read
 * by one row at 8,192, share of the FMA peak by 512 rows at 512):
 *   a page as [128][64], V as [64][128]           3.5 GB/s, 0.47
 *   in blocks that one tile reads                 3.7 GB/s, 0.51
 *   K transposed before it is widened             3.9 GB/s, 0.52
 *   one block at a time, kept in L1               3.4 GB/s, 0.50  waits for
 * DRAM and the next page fetched in one go           3.3 GB/s, 0.50  waits as
 * well and fetched a little with each tile           5.5 GB/s, 0.54  kept
 * (Zen 5, avx512bf16, 2 threads; KV read by one row at 32,768, share of the
 * read probe; 1, 2, 3, 4 and 8 query heads for each of 8 KV heads)
 *   fetched with each whole tile only   0.47 0.45 0.42 0.48 0.50
 *   with each transposition and each token, V widened in registers, up to 8
 *   heads                               0.65 0.61 0.58 0.63 0.54  kept
 */
#include <errno.h>
#include <math.h>

#include "kernels/cpu/ops.h"

#define D KERN_HEAD_DIM
#define TOK KERN_PAGE_TOK

/* Query heads of a block: they pay for a page's transposition together. */
#define BLOCK_Q 64
/* Register tile: query heads times vectors. */
#define TILE_Q (ISA_LEVEL >= 2 ? 4 : 2)
#define TILE_V 4
#define BLOCK (TILE_V * VF_N)

/* A transposed page: [TOK / BLOCK][QK_STEPS][BLOCK] elements of 32 bits, so
 * that what one tile reads lies together and stays in L1. With the BF16 dot
 * product a step is a pair of channels, else one channel as F32. */
#if ISA_BF16
#define QK_STEPS (D / 2)
#else
#define QK_STEPS D
#endif

struct attn {
    struct cpu *c;
    const struct kern_attn_args *a;
    const int32_t *block; /* [n_blocks + 1] first row of each */
    int n_kv, group, most_q;
};

/* A block's state in its thread's scratch. */
struct work {
    uint32_t *kt; /* [QK_STEPS][BLOCK] */
    float *v;     /* [TOK][BLOCK] */
    uint32_t *q;  /* [n_q][QK_STEPS] */
    float *s;     /* [n_q][TOK] scores, then weights */
    float *o;     /* [n_q][D] */
    float *max;   /* [n_q] */
    float *sum;   /* [n_q] */
    /* What is read next, brought into L2 a little with each tile: the pages of
     * a sequence lie apart, which no hardware foresees, and asking for all at
     * once would only wait. */
    const uint16_t *ahead, *ahead_end;
    /* Few query heads: there are not tiles enough to hide it behind, so lines
     * with each transposition, and with each token of a tile; and V is used
     * where it lies. */
    bool few;
    int lines_k, lines_v;
};

#define LINE 32 /* BF16 of a cache line */
/* Lines a tile, so that 8 query heads bring a page's half in. */
#define LINES_QK (TOK * D / LINE * TILE_Q * BLOCK / (8 * TOK))
#define LINES_PV (TOK * D / LINE * TILE_Q * BLOCK / (8 * D))
#define LINES_K (VF_N * VF_N * 2 / LINE)
/* Query heads of a block that share a page and do not pay for a copy of V. */
#define FEW_Q (2 * TILE_Q)

INLINE void fetch_ahead(struct work *w, int lines)
{
    for (; lines > 0 && w->ahead < w->ahead_end; lines--, w->ahead += LINE) {
        __builtin_prefetch(w->ahead, 0, 2);
    }
}

static size_t work_bytes(int n_q)
{
    return sizeof(float) *
           (QK_STEPS * TOK + TOK * D + (size_t)n_q * (QK_STEPS + TOK + D + 2));
}

static struct work work_at(uint8_t *p, int n_q)
{
    struct work w = {0};

    w.kt = (uint32_t *)p;
    w.v = (float *)(w.kt + QK_STEPS * BLOCK);
    w.s = w.v + TOK * BLOCK;
    w.o = w.s + (size_t)n_q * TOK;
    w.q = (uint32_t *)(w.o + (size_t)n_q * D);
    w.max = (float *)(w.q + (size_t)n_q * QK_STEPS);
    w.sum = w.max + n_q;
    return w;
}

/* ---- a page, made ready ---- */

/* K of tokens t0 .. t1 - 1 (whole vectors of one block), transposed as pairs of
 * channels and only then widened: half the shuffles. */
static void load_k(struct work *w, const uint16_t *k, int t0, int t1)
{
    for (int t = t0; t < t1; t += VF_N) {
        uint32_t *to = w->kt + t % BLOCK;

        for (int d = 0; d < D / 2; d += VF_N) {
            vi r[VF_N];

            fetch_ahead(w, w->lines_k);
#pragma GCC unroll 16
            for (int i = 0; i < VF_N; i++) {
                r[i] = vi_load(k + (size_t)(t + i) * D + 2 * d);
            }
            vi_transpose(r);
#pragma GCC unroll 16
            for (int i = 0; i < VF_N; i++) {
#if ISA_BF16
                vi_store(to + (d + i) * BLOCK, r[i]);
#else
                vi_store(to + 2 * (d + i) * BLOCK, vi_low_bf16(r[i]));
                vi_store(to + (2 * (d + i) + 1) * BLOCK, vi_high_bf16(r[i]));
#endif
            }
        }
    }
}

/* BLOCK channels of V of tokens t0 .. t1 - 1. */
static void load_v(float *to, const uint16_t *v, int t0, int t1)
{
    for (int t = t0; t < t1; t++) {
#pragma GCC unroll 4
        for (int i = 0; i < BLOCK; i += VF_N) {
            vf_store(to + t * BLOCK + i, vf_load_bf16(v + t * D + i));
        }
    }
}

static void load_q(uint32_t *to, const uint16_t *q)
{
#if ISA_BF16
    memcpy(to, q, D * 2);
#else
    for (int i = 0; i < D; i += VF_N) {
        vf_store((float *)to + i, vf_load_bf16(q + i));
    }
#endif
}

/* ---- the two products; Q and V are constants ---- */

INLINE vf qk(vf acc, const uint32_t *k, uint32_t q)
{
#if ISA_BF16
    return dot_pairs(acc, k, q);
#else
    float f;

    memcpy(&f, &q, sizeof(f));
    return vf_fma(vf_set(f), vf_load((const float *)k), acc);
#endif
}

/* Scores of Q query heads for V vectors of tokens. */
INLINE void qk_tile(float *s, const uint32_t *q, const uint32_t *kt, int Q,
                    int V)
{
    vf acc[TILE_Q * TILE_V];

#pragma GCC unroll 16
    for (int i = 0; i < Q * V; i++) {
        acc[i] = vf_set(0.0f);
    }
    for (int d = 0; d < QK_STEPS; d++) {
#pragma GCC unroll 4
        for (int i = 0; i < Q; i++) {
#pragma GCC unroll 4
            for (int t = 0; t < V; t++) {
                acc[i * V + t] = qk(acc[i * V + t], kt + d * BLOCK + t * VF_N,
                                    q[i * QK_STEPS + d]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < Q; i++) {
#pragma GCC unroll 4
        for (int t = 0; t < V; t++) {
            vf_store(s + i * TOK + t * VF_N, acc[i * V + t]);
        }
    }
}

/* o += sum over t0 <= t < t1 of p[t] v[t], for Q query heads and one block of
 * channels; v is [TOK][BLOCK], or the page's own [TOK][D]. */
INLINE void pv_tile(struct work *w, float *o, const float *p, const void *v,
                    bool own, int t0, int t1, int Q)
{
    const float *f = v;
    const uint16_t *b = v;
    vf acc[TILE_Q * TILE_V];

#pragma GCC unroll 16
    for (int i = 0; i < Q * TILE_V; i++) {
        acc[i] = vf_load(o + i / TILE_V * D + i % TILE_V * VF_N);
    }
    for (int t = t0; t < t1; t++) {
        if (own) {
            fetch_ahead(w, w->lines_v);
        }
#pragma GCC unroll 4
        for (int i = 0; i < Q; i++) {
            vf s = vf_set(p[i * TOK + t]);

#pragma GCC unroll 4
            for (int u = 0; u < TILE_V; u++) {
                vf x = own ? vf_load_bf16(b + t * D + u * VF_N)
                           : vf_load(f + t * BLOCK + u * VF_N);

                acc[i * TILE_V + u] = vf_fma(s, x, acc[i * TILE_V + u]);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Q * TILE_V; i++) {
        vf_store(o + i / TILE_V * D + i % TILE_V * VF_N, acc[i]);
    }
}

/* n query heads of one row against tokens t0 .. t1 - 1 of a block. */
static void scores(struct work *w, int i_q, int n, int t0, int t1)
{
    const uint32_t *q = w->q + i_q * QK_STEPS;
    float *s = w->s + i_q * TOK;
    bool whole = t0 % BLOCK == 0 && t1 > t0 + BLOCK - VF_N;
    int i;

    for (int t = t0 - t0 % VF_N; t < t1; t += whole ? BLOCK : VF_N) {
        const uint32_t *kt = w->kt + t % BLOCK;

        for (i = 0; i + TILE_Q <= n; i += TILE_Q) {
            fetch_ahead(w, w->few ? 0 : LINES_QK);
            if (whole) {
                qk_tile(s + i * TOK + t, q + i * QK_STEPS, kt, TILE_Q, TILE_V);
            } else {
                qk_tile(s + i * TOK + t, q + i * QK_STEPS, kt, TILE_Q, 1);
            }
        }
        for (; i < n; i++) {
            if (whole) {
                qk_tile(s + i * TOK + t, q + i * QK_STEPS, kt, 1, TILE_V);
            } else {
                qk_tile(s + i * TOK + t, q + i * QK_STEPS, kt, 1, 1);
            }
        }
    }
}

/* n query heads of one row: BLOCK channels from d on of their outputs. */
static void values(struct work *w, const uint16_t *v, int i_q, int n, int d,
                   int t0, int t1)
{
    const float *p = w->s + i_q * TOK;
    float *o = w->o + i_q * D + d;
    int i = 0;

    for (; i + TILE_Q <= n; i += TILE_Q) {
        if (w->few) {
            pv_tile(w, o + i * D, p + i * TOK, v + d, true, t0, t1, TILE_Q);
        } else {
            fetch_ahead(w, LINES_PV);
            pv_tile(w, o + i * D, p + i * TOK, w->v, false, t0, t1, TILE_Q);
        }
    }
    for (; i < n && w->few; i++) {
        pv_tile(w, o + i * D, p + i * TOK, v + d, true, t0, t1, 1);
    }
    for (; i < n; i++) {
        pv_tile(w, o + i * D, p + i * TOK, w->v, false, t0, t1, 1);
    }
}

/* ---- the fold ---- */

/* Turns the scores of query head i into weights and rescales its sums. */
static void fold(const struct work *w, int i, int t0, int t1)
{
    const vf scale = vf_set(0.088388347648318447f); /* 128^-1/2 */
    const vf none = vf_set(-INFINITY);
    vf m = none, l = vf_set(0.0f);
    float *s = w->s + i * TOK, *o = w->o + i * D;
    float before = w->max[i], now, shrink;
    int first = t0 - t0 % VF_N;

    for (int t = first; t < t1; t += VF_N) {
        vf x = vf_mul(vf_load(s + t), scale);

        x = vf_where_lanes(t0 - t, t1 - t, x, none);
        vf_store(s + t, x);
        m = vf_max(m, x);
    }
    now = vf_hmax(m);
    now = now > before ? now : before;
    for (int t = first; t < t1; t += VF_N) {
        vf p = vf_exp(vf_sub(vf_load(s + t), vf_set(now)));

        vf_store(s + t, p);
        l = vf_add(l, p);
    }
    shrink = vf_first(vf_exp(vf_set(before - now)));
    w->max[i] = now;
    w->sum[i] = w->sum[i] * shrink + vf_sum(l);
    for (int d = 0; d < D; d += VF_N) {
        vf_store(o + d, vf_mul(vf_load(o + d), vf_set(shrink)));
    }
}

/* ---- rows and pages ---- */

/* Slots that row looks at: *ret_lo .. its own. */
static int row_range(const struct kern_attn_args *a, int row, int *ret_lo)
{
    int slot = ((const int32_t *)cpu_at(a->at.slot))[row];
    int seq = ((const int32_t *)cpu_at(a->at.seq))[row];
    int low = ((const int32_t *)cpu_at(a->at.low))[seq];

    *ret_lo = a->window > 0 ? imax(low, slot - a->window + 1) : low;
    return slot;
}

static int page_id(const struct kern_attn_args *a, int seq, int page)
{
    const int32_t *table = cpu_at(a->at.table),
                  *first = cpu_at(a->at.first_page);
    int col = page - first[seq], id;

    if (col < 0 || col >= a->at.max_pages) {
        return -1;
    }
    id = table[(size_t)seq * (size_t)a->at.max_pages + (size_t)col];
    return id < a->kv.n_pages ? id : -1;
}

/* K of KV head g in a page of seq; its V lies G * TOK * D further. */
static const uint16_t *page_at(const struct kern_attn_args *a, int seq,
                               int page, int g)
{
    size_t id = (size_t)page_id(a, seq, page);

    return (const uint16_t *)((const uint8_t *)cpu_at(a->kv.pages) +
                              id * a->kv.page_bytes) +
           (size_t)g * TOK * D;
}

/* Tokens of a page that each row of a block looks at; empty where none. */
struct span {
    int t0, t1;
};

static struct span row_span(const struct kern_attn_args *a, int row, int page)
{
    int from, slot = row_range(a, row, &from);
    struct span s = {imax(0, from - page * TOK),
                     imin(TOK, slot + 1 - page * TOK)};

    return s;
}

/* Folds a page into all rows of a block: span[i] is row i's part of it, all
 * lies within all. next: the page that comes after it, or NULL. */
static void block_page(const struct attn *j, struct work *w, const uint16_t *k,
                       const uint16_t *next, const struct span *span,
                       int n_rows, struct span all)
{
    const uint16_t *v = k + (size_t)j->n_kv * TOK * D;

    w->ahead = v + all.t0 * D;
    w->ahead_end = v + all.t1 * D;

    for (int t = all.t0 - all.t0 % BLOCK; t < all.t1; t += BLOCK) {
        int t0 = imax(t, all.t0), t1 = imin(t + BLOCK, all.t1);

        load_k(w, k, t0 - t0 % VF_N, (t1 + VF_N - 1) / VF_N * VF_N);
        for (int r = 0; r < n_rows; r++) {
            scores(w, r * j->group, j->group, imax(t, span[r].t0),
                   imin(t + BLOCK, span[r].t1));
        }
    }
    w->ahead = next;
    w->ahead_end = next == NULL ? NULL : next + TOK * D;
    for (int i = 0; i < n_rows * j->group; i++) {
        const struct span *s = &span[i / j->group];

        if (s->t0 < s->t1) {
            fold(w, i, s->t0, s->t1);
        }
    }
    for (int d = 0; d < D; d += BLOCK) {
        if (!w->few) {
            load_v(w->v, v + d, all.t0, all.t1);
        }
        for (int r = 0; r < n_rows; r++) {
            values(w, v, r * j->group, j->group, d, span[r].t0, span[r].t1);
        }
    }
}

static void block_out(const struct attn *j, const struct work *w, int row0,
                      int n_rows, int g)
{
    const struct kern_attn_args *a = j->a;
    const float *gate = cpu_at(a->gate);
    uint16_t *out = cpu_at(a->out);

    for (int i = 0; i < n_rows * j->group; i++) {
        size_t head = (size_t)(row0 + i / j->group) * (size_t)a->n_head +
                      (size_t)(g * j->group + i % j->group);
        const float *o = w->o + i * D;
        vf norm = vf_set(w->sum[i] == 0.0f ? 0.0f : 1.0f / w->sum[i]);

        if (gate != NULL) {
            norm = vf_mul(norm, vf_sigmoid(vf_set(gate[head])));
        }
        for (int d = 0; d < D; d += VF_N) {
            vf_store_bf16(out + head * D + d, vf_mul(vf_load(o + d), norm));
        }
    }
}

static void attn_item(void *arg, int i_item, int i_thread)
{
    const struct attn *j = arg;
    struct cpu_thread *t = &j->c->thread[i_thread];
    int b = i_item / j->n_kv, g = i_item % j->n_kv;
    int row0 = j->block[b], n_rows = j->block[b + 1] - row0;
    int n_q = n_rows * j->group, first = INT32_MAX, last = 0;
    int seq = ((const int32_t *)cpu_at(j->a->at.seq))[row0];
    struct work w = work_at(t->scratch, j->most_q);

    for (int r = 0; r < n_rows; r++) {
        int lo, slot = row_range(j->a, row0 + r, &lo);
        const uint16_t *q = (const uint16_t *)cpu_at(j->a->q) +
                            ((size_t)(row0 + r) * (size_t)j->a->n_head +
                             (size_t)(g * j->group)) *
                                D;

        first = imin(first, lo);
        last = imax(last, slot);
        for (int h = 0; h < j->group; h++) {
            load_q(w.q + (r * j->group + h) * QK_STEPS, q + h * D);
        }
    }
    for (int i = 0; i < n_q; i++) {
        w.max[i] = -INFINITY;
        w.sum[i] = 0.0f;
    }
    memset(w.o, 0, sizeof(*w.o) * (size_t)n_q * D);
    w.few = n_q <= FEW_Q;
    w.lines_k = w.few ? LINES_K : 0;
    w.lines_v = n_q < 2 * TILE_Q ? 2 : 1;
    for (int page = first / TOK; page <= last / TOK; page++) {
        struct span span[BLOCK_Q], all = {TOK, 0};

        for (int r = 0; r < n_rows; r++) {
            span[r] = row_span(j->a, row0 + r, page);
            if (span[r].t0 < span[r].t1) {
                all.t0 = imin(all.t0, span[r].t0);
                all.t1 = imax(all.t1, span[r].t1);
            }
        }
        if (all.t0 < all.t1) {
            block_page(j, &w, page_at(j->a, seq, page, g),
                       page < last / TOK ? page_at(j->a, seq, page + 1, g)
                                         : NULL,
                       span, n_rows, all);
            t->kv_bytes +=
                (uint64_t)(all.t1 - all.t0) * D * 2 * sizeof(uint16_t);
        }
    }
    block_out(j, &w, row0, n_rows, g);
}

/* The pages that the rows of a block look at are there. */
static int check_pages(struct cpu *c, const struct kern_attn_args *a, int seq,
                       int lo, int hi)
{
    for (int p = lo / TOK; p <= hi / TOK; p++) {
        if (lo < 0 || page_id(a, seq, p) < 0) {
            return cpu_fail(c, -EIO, "attn: sequence %d has no page %d", seq,
                            p);
        }
    }
    return 0;
}

/* Cuts the rows into blocks; returns their number. */
static int find_blocks(struct cpu *c, const struct kern_attn_args *a, int n,
                       int most_rows, int32_t *block)
{
    const int32_t *seq = cpu_at(a->at.seq);
    int n_blocks = 0, ret;

    for (int r = 0; r < n;) {
        int r0 = r, first = INT32_MAX, last = 0;

        if (seq[r] < 0 || seq[r] >= a->at.n_seq) {
            return cpu_fail(c, -EIO, "attn: row %d has no sequence", r);
        }
        block[n_blocks++] = r0;
        for (; r < n && r < r0 + most_rows && seq[r] == seq[r0]; r++) {
            int lo, slot = row_range(a, r, &lo);

            first = imin(first, lo);
            last = imax(last, slot);
        }
        ret = check_pages(c, a, seq[r0], first, last);
        if (ret < 0) {
            return ret;
        }
    }
    block[n_blocks] = n;
    return n_blocks;
}

int ISA(cpu_attn)(struct cpu *c, const struct kern_attn_args *a)
{
    int n = cpu_rows(&a->rows), group = a->n_head / a->kv.n_kv_head;
    int most_rows = imax(1, BLOCK_Q / group), n_blocks, r;
    struct attn j = {.c = c,
                     .a = a,
                     .n_kv = a->kv.n_kv_head,
                     .group = group,
                     .most_q = most_rows * group};

    r = cpu_shared(c, sizeof(int32_t) * ((size_t)n + 1));
    if (r < 0) {
        return r;
    }
    n_blocks = find_blocks(c, a, n, most_rows, (int32_t *)c->shared);
    if (n_blocks < 0) {
        return n_blocks;
    }
    r = cpu_scratch(c, work_bytes(j.most_q));
    if (r < 0) {
        return r;
    }
    j.block = (const int32_t *)c->shared;
    pool_run(c->pool, attn_item, &j, n_blocks * j.n_kv);
    return 0;
}
