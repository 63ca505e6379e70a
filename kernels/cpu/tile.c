/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The register tiles under linear and the experts, once per path. A tile holds
 * M weight rows times N activation rows of accumulators, one vector an output
 * element, and walks k in ascending chunks; afterwards each vector is folded
 * by vf_sum's tree. Nothing here depends on M or N but speed.
 *
 * Few rows (decode, drafts): the weights stream from memory through registers,
 * packed ones decoded there. Some rows (eight streams): k is cut so that all of
 * x for a cut, packed in the order in which it is read, stays in L1 while the
 * weight rows pass. MXFP4 with more rows (an expert's share of a prefill): the
 * same, share after share of the rows, and decoded in registers for each. Many
 * rows (prefill): a panel of weight rows stays in L2 (packed ones decoded into
 * it once), and for each tile of activation rows k is cut so that the tile
 * stays in L1. Accumulators wait in memory between cuts, whole, so that a cut
 * changes no sum.
 *
 * Runs on the pool's threads, each with its own job and scratch.
 *
 * Limits: few rows, the memory; many rows, the multiplier: a tile of M x N
 * takes M + N loads for M * N dots, 10 for 24 with 32 registers, so that loads
 * do not bind; with 16 registers they nearly do (26 for 24 multiplications).
 *
 * Tried (Zen 5, avx512bf16, one thread; share of what a read of one prefetched
 * stream gets, 40 GB/s; 4096 columns):
 *   BF16, one row: 4 streams, next row prefetched to L2   0.82
 *   4 streams, 4 KiB ahead to L1                          0.88
 *   2 streams, 4 KiB ahead to L1                          1.00  kept: FEW_M
 *   1 stream, 8 KiB ahead                                 0.99  one chain of
 *                                                 additions: no room above it
 *   compact: 4 streams, 2 streams                   0.78, 0.97  kept: 2
 *   MXFP4: 4 streams, 2 KiB ahead                         0.58
 *   4 neighbouring rows, 8 KiB or more ahead              0.88  kept: MX_M
 *   8 neighbouring rows                                   0.75  spills
 *   expert_up, two threads: 12 KiB ahead, a line a row    0.70
 *   whole tiles ahead, their lines in ascending order     0.90  kept
 *   expert_down: each row of a tile looked up, folded alone 0.71
 *   rows from one base, folded for a row of x at a time   0.82  kept
 *   4 rows: k cut; whole rows, x all in L1            0.74, 0.80  kept: whole
 *   8 rows: whole rows, tiles of 2, of 3              0.41, 0.49  x from L2
 *   8 rows: k cut at 512, 1024, 2048            0.49, 0.63, 0.65
 *   x packed, k cut at 512, 1024, 2048          0.50, 0.72, 0.52  kept: 1024
 *   the same without a cut, x from L2                     0.61
 *   the same, next tile prefetched to L2                    0.65  no matter
 *   two tiles ahead, three; past L2; as one stream 0.71, 0.68; 0.74; 0.62
 *   tiles of 1, 2 weight rows for 3                   0.42, 0.66
 *   8 rows, compact: prefetched in one go before it is decoded    0.36
 *   a line with each step of the tile before                      0.42
 *   decoded in registers for each 8 rows                          0.48
 *   (two threads, of 70 GB/s; a load of x for each weight row     0.47)
 *   the rows of a tile decoded together, a load of x for all; 2, 3
 *                                                      0.53, 0.55 kept
 *   4 rows of 11264 columns, x from L2: BF16, compact       0.71, 0.60
 *   k cut, x packed in L1                                   0.89, 0.71  kept
 *   4 rows, BF16: 2, 4, 8 KiB ahead  at 53 GB/s 1.03, 0.96, 0.90; at 73
 *                                    0.81, 0.84; 4 KiB kept
 *   8 rows, BF16 and compact: 2, 3 tiles ahead              no matter
 *   (from L3 they get 0.94 of the multiplier, as from L2: what misses is lines
 *   under way to memory, and a longer way ahead adds none)
 *   MXFP4, of the peak; 6, 10, 14 rows: decoded to L1 before 0.40, 0.46, 0.50
 *   decoded in registers for each 8 rows       0.50, 0.57, 0.56
 *   (tests/bench/bench_expert, 112 rows: some 14 an expert)      0.59
 *   share after share, k cut at 2048, x packed once for gate and up, items of
 *   128 rows, the next ones prefetched to L2                     0.77  kept
 *   a load of x for each weight row                              0.70
 *   512 rows, 4096 and 11264 columns, x in place           0.83, 0.77
 *   x packed once an op, the next tile of it prefetched to L2 0.85, 0.81
 *   the next panel prefetched to L2                        0.87, 0.80
 *   panels of 48 rows or 17, of 64 and 24    0.88, 0.81 and 0.90, 0.79
 *   panels of up to 768 KiB: 64 and 32 rows                0.90, 0.84  kept
 * (Zen 3, avx2, one thread; share of the FMA peak, 102 GFLOP/s)
 *   512 rows: x outside, weights inside a tile       0.58  spills
 *   512 rows: weights outside, x inside              0.64  kept
 *   512 rows: all even products, then all odd ones   0.61  spills
 *   narrow to forward; through memory                1.1 GB/s  kept
 * (Zen 5, avx2, two threads, one row; share of what they read without products)
 *   BF16: 4 streams, 4 KiB ahead; 2 streams         0.91, 0.88
 *   BF16, compact: 4 streams, 1 to 2 KiB ahead      0.95, 0.90  kept
 *   MXFP4: 4 rows decoded, then multiplied           17.9 GB/s  spills
 *   row by row, nibbles parted by a shift a lane     23.5 GB/s  kept
 *   widened by unpacks with zeros; 5 to 8 rows       the same
 */
#include "kernels/cpu/tile.h"
#include "kernels/cpu/decode.h"
#include "kernels/cpu/tile_fold.h"
#include "kernels/cpu/tile_reg.h"

/* ---- few rows ---- */

/* Even shares of n_x rows, none above the register tile. */
static int tile_rows(int n_x, int most)
{
    return ceil_div(n_x, ceil_div(n_x, most));
}

/* Of a compact row its escapes, and what its codes stand for. */
static void compact_of(struct tile *t, int m, const struct tile_job *j, int row)
{
    const uint32_t *at =
        (const uint32_t *)(const void *)cpu_plane(j->w, 0, 1) + row;
    const uint32_t *e = (const uint32_t *)(const void *)cpu_plane(j->w, 0, 2);

    t->e[m] = e + compact_first(at[0]);
    t->e_end[m] = e + compact_first(at[1]);
    t->lut[m] = j->cpu->compact.bytes[compact_base(at[0])];
}

/* Points a tile's line m at row n of the job. */
static void tile_row(struct tile *t, int m, const struct tile_job *j, int n,
                     size_t row_bytes)
{
    int row = j->n0 + n;

    t->w[m] = cpu_plane(j->w, j->expert, 0) + (size_t)row * row_bytes;
    if (j->w->desc.dtype == KERN_COMPACT) {
        compact_of(t, m, j, row);
    }
}

/* FEW_M rows at a time through registers, all of the activation rows at once.
 * The rows of a tile are a share of the job apart, so that each is a long
 * stream, where the job's rows can be shared out evenly. */
static void run_few(const struct tile_job *j, size_t row_bytes, tile_fn *tile)
{
    struct tile t = {.k = j->w->desc.cols,
                     .ahead = AHEAD,
                     .first = true,
                     .acc = (float *)j->scratch};
    int gap = j->n_w % FEW_M == 0 ? j->n_w / FEW_M : 1;
    int step = gap > 1 ? 1 : FEW_M, end = gap > 1 ? gap : j->n_w;

    for (int i = 0; i < j->n_x; i++) {
        t.x[i] = j->x[i];
    }
    for (int n = 0; n < end; n += step) {
        struct place at = {n, gap, gap > 1 ? FEW_M : imin(FEW_M, j->n_w - n),
                           0};

        for (int m = 0; m < FEW_M; m++) {
            tile_row(&t, m, j, n + imin(m, at.m_live - 1) * gap, row_bytes);
        }
        tile(&t);
        tile_fold(j, t.acc, FEW_M, j->n_x, at);
    }
}

/* The same for MXFP4, whose rows are short: MX_M neighbours a tile, which are
 * one stream. It prefetches whole tiles ahead, so that from the job's end on
 * it asks for the next job's rows from their very first. */
static void run_mx(const struct tile_job *j)
{
    size_t row = (size_t)j->w->desc.cols / 2, s_row = row / 16;
    const uint8_t *w = cpu_plane(j->w, j->expert, 0) + (size_t)j->n0 * row;
    const uint8_t *s = cpu_plane(j->w, j->expert, 1) + (size_t)j->n0 * s_row;
    int tiles = ceil_div(MX_AHEAD, MX_M * (int)row);
    struct tile t = {.mx = &j->cpu->mx,
                     .k = j->w->desc.cols,
                     .first = true,
                     .acc = (float *)j->scratch};

    for (int i = 0; i < j->n_x; i++) {
        t.x[i] = j->x[i];
    }
    for (int n = 0; n < j->n_w; n += MX_M) {
        struct place at = {n, 1, imin(MX_M, j->n_w - n), 0};
        int next = n + tiles * MX_M;

        for (int m = 0; m < MX_M; m++) {
            size_t to = (size_t)(n + imin(m, at.m_live - 1));

            t.w[m] = w + to * row;
            t.s[m] = s + to * s_row;
        }
        t.ahead = (ptrdiff_t)row * (next - n);
        t.ahead_s = (ptrdiff_t)s_row * (next - n);
        if (next >= j->n_w && j->next != NULL) {
            t.ahead = j->next - t.w[0] + (ptrdiff_t)row * (next - j->n_w);
            t.ahead_s = j->next_s - t.s[0] + (ptrdiff_t)s_row * (next - j->n_w);
        }
        few_mx[j->n_x](&t);
        tile_fold(j, t.acc, MX_M, j->n_x, at);
    }
}

/* ---- some rows ---- */

/* Whether a packed job's tiles ask for what is decoded next, a line at a time;
 * else it is asked for in one go, before a decoding. MXFP4 has the shortest
 * rows, and two shares of activation rows time enough. */
static bool tile_fetches(const struct tile_job *j)
{
    return j->w->desc.dtype == KERN_COMPACT && j->n_x <= CUT_N;
}

/* Whether the tiles decode compact rows themselves, in registers, for each
 * share of the activation rows again; there must be room for it beside the
 * accumulators. */
static bool tile_decodes(const struct tile_job *j)
{
    return ISA_LEVEL == 3 && j->w->desc.dtype == KERN_COMPACT;
}

/* Weight rows of a tile of so many activation rows. */
static int cut_m(const struct tile_job *j, int rows)
{
    return tile_decodes(j) ? COMPACT_M : TILE_M(rows);
}

/* A compact row's escapes from column k on, and what its codes stand for. */
static void cut_escapes(struct tile *t, int m, const struct tile_job *j,
                        int row, int k)
{
    compact_of(t, m, j, row);
    t->k0 = k;
    while (t->e[m] < t->e_end[m] && compact_col(*t->e[m]) < k) {
        t->e[m]++;
    }
}

/* M rows of a job's weights, from row n on, columns k .. k + n_k - 1, as rows
 * of a tile: in place, or decoded to memory. next: the row of the job, and the
 * column, that comes after them, for prefetching; behind the last column comes
 * what the caller reads next. */
static void cut_rows(const struct tile_job *j, struct tile *t, uint16_t *to,
                     int M, int n, int k, int n_k, int next, int next_k)
{
    const struct kern_weight_desc *d = &j->w->desc;
    const uint8_t *w = cpu_plane(j->w, j->expert, 0);
    size_t row_bytes = d->dtype == KERN_BF16      ? (size_t)d->cols * 2
                       : d->dtype == KERN_COMPACT ? compact_row_bytes(d->cols)
                                                  : (size_t)d->cols / 2;
    size_t per_32 = d->dtype == KERN_BF16      ? 64
                    : d->dtype == KERN_COMPACT ? 48
                                               : 16;

    t->ahead = (ptrdiff_t)row_bytes * (next - n) +
               (next_k - k) / 32 * (ptrdiff_t)per_32;
    t->next = w + (size_t)(j->n0 + n) * row_bytes + (size_t)k / 32 * per_32;
    if (next_k >= d->cols && j->next != NULL) {
        t->ahead = j->next - t->next;
    }
    t->next += t->ahead;
    t->next_row = (ptrdiff_t)row_bytes;
    t->next_k = (ptrdiff_t)per_32 * DOT_K / 32;
    for (int m = 0; m < M; m++) {
        int row = j->n0 + imin(n + m, j->n_w - 1);
        const uint8_t *at =
            w + (size_t)row * row_bytes + (size_t)k / 32 * per_32;

        t->w[m] = at;
        if (d->dtype == KERN_BF16) {
            continue;
        }
        if (tile_decodes(j)) {
            cut_escapes(t, m, j, row, k);
            continue;
        }
        for (size_t i = 0; i < (size_t)n_k / 32 * per_32 && !tile_fetches(j);
             i += 64) {
            __builtin_prefetch(at + i + t->ahead, 0, 3);
        }
        t->w[m] = (const uint8_t *)(to + m * CUT_K);
        if (d->dtype == KERN_COMPACT) {
            decode_compact(to + m * CUT_K, j->cpu, j->w, row, k, n_k);
        } else {
            const uint8_t *s = cpu_plane(j->w, j->expert, 1) +
                               (size_t)row * (size_t)(d->cols / 32) + k / 32;

            __builtin_prefetch(
                s + (next - n) * (d->cols / 32) + (next_k - k) / 32, 0, 3);
            decode_mx(to + m * CUT_K, j->cpu, at, s, n_k / 32);
        }
    }
}

/* n_k columns from k on of n activation rows: chunk by chunk the rows side by
 * side. In place, rows a power of two apart would meet in the same few sets of
 * L1. */
static xt *pack_rows(xt *to, const xt *const *x, int n, int k, int n_k)
{
    for (int c = 0; c < n_k; c += DOT_K) {
        for (int i = 0; i < n; i++, to += DOT_K) {
            memcpy(to, x[i] + k + c, sizeof(xt) * DOT_K);
        }
    }
    return to;
}

/* The same of all of the job's rows, for its tiles of nr rows. */
static void pack_x(xt *to, const struct tile_job *j, int nr, int k, int n_k)
{
    for (int r = 0; r < j->n_x; r += nr) {
        to = pack_rows(to, j->x + r, imin(nr, j->n_x - r), k, n_k);
    }
}

/* Some tens of multiplications a weight: k is cut so that x stays in L1 while
 * the job's weight rows pass, each tile of them against all activation rows.
 * Whole accumulators wait in memory between the cuts. */
static void run_cuts(const struct tile_job *j)
{
    int cols = j->w->desc.cols, nr = tile_rows(j->n_x, CUT_N), M = cut_m(j, nr);
    int even = ceil_div(cols, ceil_div(cols, CUT_K));
    int cut = ceil_div(even, COMPACT_COLS) * COMPACT_COLS;
    float *acc = (float *)j->scratch;
    uint16_t *decoded = (uint16_t *)(j->scratch + CUT_ACC_BYTES);
    tile_fn *const *first = j->w->desc.dtype == KERN_BF16 ? tiles_ahead
                            : tile_decodes(j)             ? tiles_compact
                            : tile_fetches(j)             ? tiles_next
                                                          : tiles_plain;
    tile_fn *const *other = tile_decodes(j) ? tiles_compact_plain : tiles_plain;
    xt *x = (xt *)(j->scratch + CUT_ACC_BYTES + CUT_DECODED);
    struct tile t = {.k = 0};

    for (int k = 0; k < cols; k += cut) {
        int n_k = imin(cut, cols - k);
        int k_pad = (n_k + DOT_K - 1) / DOT_K * DOT_K;

        t.k = n_k;
        t.first = k == 0;
        t.acc = acc;
        pack_x(x, j, nr, k, k_pad);
        for (int n = 0; n < j->n_w; n += M) {
            bool last = n + M >= j->n_w;

            cut_rows(j, &t, decoded, M, n, k, t.k, last ? 0 : n + M,
                     last ? k + cut : k);
            for (int m = M; m < TILE_M_MAX; m++) {
                t.w[m] = t.w[M - 1]; /* a last share's tile may be taller */
                t.e[m] = t.e[M - 1];
                t.e_end[m] = t.e_end[M - 1];
                t.lut[m] = t.lut[M - 1];
            }
            for (int r = 0; r < j->n_x; r += nr) {
                int rows = imin(nr, j->n_x - r);

                t.x[0] = x + (size_t)r * (size_t)k_pad;
                (r > 0 ? other : first)[rows](&t);
                if (k + cut >= cols) {
                    struct place at = {n, 1, imin(M, j->n_w - n), r};

                    tile_fold(j, t.acc, cut_m(j, rows), rows, at);
                }
                t.acc += TILE_ACC * VF_N;
            }
        }
    }
}

/* ---- MXFP4, decoded in registers for more rows ---- */

/* Columns of a cut: even shares of whole lines of codes. */
static int share_cut(int cols)
{
    int even = ceil_div(cols, ceil_div(cols, SHARE_K));

    return ceil_div(even, 128) * 128;
}

/* Share after share of the activation rows, of each a cut after the other stays
 * in L1 while the job's weight rows pass from L2: decoding costs next to
 * nothing beside the products, so it is done for each share again. Whole
 * accumulators wait in memory between the cuts. With the first share all of
 * what the caller reads next is asked for. */
static void run_shares(const struct tile_job *j)
{
    int cols = j->w->desc.cols, cut = share_cut(cols);
    int nr = tile_rows(j->n_x, TILE_X);
    size_t row = (size_t)cols / 2, s_row = row / 16;
    const uint8_t *w = cpu_plane(j->w, j->expert, 0) + (size_t)j->n0 * row;
    const uint8_t *s = cpu_plane(j->w, j->expert, 1) + (size_t)j->n0 * s_row;
    struct tile t = {.mx = &j->cpu->mx};
    xt *own = (xt *)(j->scratch + SHARE_ACC_BYTES);

    if (j->next != NULL) {
        t.ahead = j->next - w;
        t.ahead_s = j->next_s - s;
    }
    for (int r = 0; r < j->n_x; r += nr) {
        int rows = imin(nr, j->n_x - r), M = TILE_M(rows);
        const xt *x = j->packed + (size_t)r * (size_t)cols;
        tile_fn *tile =
            (r == 0 && j->next != NULL ? tiles_mx : tiles_mx_plain)[rows];

        if (j->packed == NULL) {
            pack_rows(own, j->x + r, rows, 0, cols);
            x = own;
        }
        for (int k = 0; k < cols; k += cut) {
            t.k = imin(cut, cols - k);
            t.first = k == 0;
            t.acc = (float *)j->scratch;
            t.x[0] = x + (size_t)k * (size_t)rows;
            for (int n = 0; n < j->n_w; n += M, t.acc += M * rows * VF_N) {
                struct place at = {n, 1, imin(M, j->n_w - n), r};

                for (int m = 0; m < M; m++) {
                    size_t to = (size_t)(n + imin(m, at.m_live - 1));

                    t.w[m] = w + to * row + k / 2;
                    t.s[m] = s + to * s_row + k / 32;
                }
                tile(&t);
                if (k + cut >= cols) {
                    tile_fold(j, t.acc, M, rows, at);
                }
            }
        }
    }
}

/* ---- many rows ---- */

/* One panel's place: n_w <= PANEL_W BF16 rows at w, of which the first is n
 * within the job. */
struct panel {
    const uint8_t *w;
    int n, n_w;
    /* What comes after it, asked for share by share. */
    const uint8_t *next, *next_end;
    size_t next_share;
};

/* The panel's weight rows against rows activation rows from r on, columns k ..
 * k + n_k - 1, into the accumulators of its tiles at acc. */
static void panel_cut(const struct tile_job *j, struct panel *p, float *acc,
                      int r, int rows, int k, int n_k, bool first)
{
    size_t row_bytes = (size_t)j->w->desc.cols * 2;
    int M = TILE_M(rows);
    struct tile t = {.k = n_k, .first = first, .acc = acc};
    tile_fn *tile = (j->packed != NULL ? tiles_x : tiles_gemm)[rows];

    for (int i = 0; i < rows; i++) {
        t.x[i] = j->x[r + i] + k;
    }
    if (j->packed != NULL) { /* what is read next follows it */
        t.x[0] = j->packed + (size_t)r * (size_t)j->w->desc.cols +
                 (size_t)k * (size_t)rows;
        t.next = (const uint8_t *)(t.x[0] + (size_t)n_k * (size_t)rows);
    }
    for (size_t i = 0; i < p->next_share && p->next < p->next_end; i += 64) {
        __builtin_prefetch(p->next, 0, 2);
        p->next += 64;
    }
    for (int n = 0; n < p->n_w; n += M, t.acc += M * rows * VF_N) {
        for (int m = 0; m < M; m++) {
            t.w[m] = p->w + (size_t)imin(n + m, p->n_w - 1) * row_bytes +
                     (size_t)k * 2;
        }
        tile(&t);
        t.next += n_k / DOT_K * 64;
    }
}

/* Adds the cut's accumulators, times the scale of their weight row's block, to
 * the sums. FP8 is exact in BF16 only without its scale. */
static void scale_cut(const struct tile_job *j, const struct panel *p,
                      const float *acc, float *sum, int rows, int k)
{
    int M = TILE_M(rows), block = k / QUANT_FP8_BLOCK;

    for (int n = 0; n < p->n_w; n += M) {
        for (int i = 0; i < M * rows; i++, acc += VF_N, sum += VF_N) {
            int row = j->n0 + p->n + imin(n + i % M, p->n_w - 1);
            vf s = vf_set(fp8_scale(j->w, j->expert, row, block));
            vf a = vf_load(acc);

            vf_store(sum, k == 0 ? vf_mul(s, a) : vf_fma(s, a, vf_load(sum)));
        }
    }
}

/* One panel against every activation row. */
static void gemm_panel(const struct tile_job *j, struct panel *p)
{
    bool fp8 = j->w->desc.dtype == KERN_FP8_B128;
    int cols = j->w->desc.cols, cut = fp8 ? QUANT_FP8_BLOCK : GEMM_K;
    int nr = tile_rows(j->n_x, GEMM_N);
    float *acc = (float *)j->scratch;
    float *sum = fp8 ? (float *)(j->scratch + ACC_BYTES) : acc;

    p->next_share = (size_t)(p->next_end - p->next) /
                        (size_t)(ceil_div(j->n_x, nr) * ceil_div(cols, cut)) +
                    64;
    for (int r = 0; r < j->n_x; r += nr) {
        int rows = imin(nr, j->n_x - r), M = TILE_M(rows);

        for (int k = 0; k < cols; k += cut) {
            panel_cut(j, p, acc, r, rows, k, imin(cut, cols - k),
                      fp8 || k == 0);
            if (fp8) {
                scale_cut(j, p, acc, sum, rows, k);
            }
        }
        for (int n = 0; n < p->n_w; n += M) {
            struct place at = {p->n + n, 1, imin(M, p->n_w - n), r};

            tile_fold(j, sum + (size_t)(n / M * M * rows) * VF_N, M, rows, at);
        }
    }
}

static int panel_rows(const struct kern_weight_desc *d)
{
    int n = PANEL_BYTES / (2 * d->cols);

    n -= n % TILE_M_MAX;
    return imin(imax(n, TILE_M_MAX), PANEL_W);
}

/* The job's next panel, or after its last the caller's next. */
static void panel_next(const struct tile_job *j, struct panel *p, int step)
{
    const struct kern_weight_desc *d = &j->w->desc;
    size_t row = d->dtype == KERN_BF16 ? (size_t)d->cols * 2
                                       : compact_row_bytes(d->cols);
    int left = j->n_w - p->n - p->n_w;

    if (d->dtype == KERN_BF16 || d->dtype == KERN_COMPACT) {
        p->next = j->next;
        if (left > 0) {
            p->next = cpu_plane(j->w, j->expert, 0) +
                      (size_t)(j->n0 + j->n_w - left) * row;
        }
        p->next_end = p->next + row * (size_t)(left > 0 ? imin(step, left)
                                               : p->next != NULL ? step
                                                                 : 0);
    }
}

static void run_many(const struct tile_job *j)
{
    const struct kern_weight_desc *d = &j->w->desc;
    int step = panel_rows(d);
    uint16_t *decoded = (uint16_t *)(j->scratch + 2 * ACC_BYTES);

    for (int n = 0; n < j->n_w; n += step) {
        struct panel p = {.w = (const uint8_t *)decoded,
                          .n = n,
                          .n_w = imin(step, j->n_w - n)};

        panel_next(j, &p, step);

        if (d->dtype == KERN_BF16) {
            p.w = cpu_plane(j->w, j->expert, 0) +
                  (size_t)(j->n0 + n) * (size_t)d->cols * 2;
        } else {
            decode_rows(decoded, j->cpu, j->w, j->expert, j->n0 + n, p.n_w);
        }
        gemm_panel(j, &p);
    }
}

size_t tile_scratch(int cols)
{
    size_t decoded = (size_t)cols * 2 * TILE_M_MAX;
    size_t many =
        2 * ACC_BYTES + (decoded > PANEL_BYTES ? decoded : PANEL_BYTES);

    size_t cuts = CUT_BYTES;
    size_t shares = SHARE_ACC_BYTES + (size_t)cols * sizeof(xt) * TILE_X;

    many = many > cuts ? many : cuts;
    return many > shares ? many : shares;
}

int tile_packs(const struct kern_weight *w, int n_x)
{
    if (ISA_LEVEL < 3) {
        return 0;
    }
    if (w->desc.dtype == KERN_MXFP4) {
        return n_x > FEW_N ? tile_rows(n_x, TILE_X) : 0;
    }
    if (w->desc.dtype == KERN_BF16 || w->desc.dtype == KERN_COMPACT) {
        return n_x > TILE_GEMM_X && w->desc.cols % DOT_K == 0
                   ? tile_rows(n_x, GEMM_N)
                   : 0;
    }
    return 0;
}

void tile_pack(xt *to, const xt *const *x, int n, int side, int cols)
{
    for (int r = 0; r < n; r += side) {
        to = pack_rows(to, x + r, imin(side, n - r), 0, cols);
    }
}

uint64_t tile_run(const struct tile_job *j)
{
    const struct kern_weight_desc *d = &j->w->desc;
    bool mx = d->dtype == KERN_MXFP4, compact = d->dtype == KERN_COMPACT;
    bool cuts = d->dtype == KERN_BF16 || mx || compact;
    bool few = j->n_x <= FEW_N && (ISA_LEVEL > 0 || d->dtype == KERN_BF16);
    size_t cols = (size_t)d->cols;
    /* Else x would come from L2 with each tile. */
    bool fit = ISA_LEVEL < 3 || (size_t)j->n_x * cols * sizeof(xt) <= FEW_BYTES;

    if (j->n_x == 0) {
        return 0;
    }
    if (few && fit && d->dtype == KERN_BF16) {
        run_few(j, cols * 2, few_bf16[j->n_x]);
    } else if (few && fit && compact) {
        run_few(j, compact_row_bytes(d->cols), few_compact[j->n_x]);
    } else if (few && mx) {
        run_mx(j);
    } else if (mx && tile_packs(j->w, j->n_x) > 0 &&
               (j->packed != NULL || j->n_x <= SHARE_X)) {
        run_shares(j);
    } else if (cuts && j->n_x <= TILE_GEMM_X && j->n_w <= CUT_W) {
        run_cuts(j);
    } else {
        run_many(j);
    }
    return rows_bytes(d, j->n0, j->n_w);
}
