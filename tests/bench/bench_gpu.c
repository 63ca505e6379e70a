/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The kernels of a decode step and of a prefill chunk on a device, at the sizes
 * of the real model, each as a graph of many launches over weights that
 * together are larger than any cache. Prints a line a kernel, "kernel, rows,
 * us", tabs between; tests/cuemu/roofline.py sets them against the bounds (make
 * bench-gpu).
 *
 *     bench_gpu [BACKEND [small]]     cuda; small: sizes for a trial run
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/compact.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

/* FOLDED: rows up to which the shared expert goes with the routed ones; SHARED
 * of them, so that no cache holds them. */
enum { MAX_ROUNDS = 9, ROUTES = 8, FORMS = 64, FOLDED = 16, SHARED = 16 };

struct dims {
    int hidden, heads, kv_heads, experts, top_k, width, shared, vocab;
    int context;   /* tokens that rows attend */
    int most;      /* rows of the largest call */
    size_t spread; /* bytes of weights that one kernel goes through */
    int reps;      /* launches a graph */
    int rounds;    /* whose median counts */
};
static const struct dims real = {
    4096, 64, 8, 288, 8, 1280, 1280, 128896, 4096, 2048, (size_t)512 << 20,
    24,   9};
static const struct dims small = {256, 8,   4,  16,      2, 128, 128,
                                  512, 128, 32, 1 << 18, 2, 1};

static struct kern *k;
static const struct dims *d;
static struct kern_ptr n_rows, bf16, f32, out, out2, sel, wt;
static struct kern_groups route[ROUTES];

static void die(const char *what)
{
    fprintf(stderr, "bench_gpu: %s: %s\n", what,
            k != NULL ? kern_error(k) : "");
    exit(1);
}

static void must(int r, const char *what)
{
    if (r < 0) {
        die(what);
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 33;
}

static struct kern_ptr room(size_t bytes)
{
    struct kern_ptr p = {NULL, 0};

    must(kern_buf_new(k, bytes, &p.buf), "buffer");
    must(kern_fill(k, p, 0x3c, bytes), "buffer"); /* small, finite */
    return p;
}

static struct kern_ptr put(const void *from, size_t bytes)
{
    struct kern_ptr p = room(bytes);

    must(kern_upload(k, p, from, bytes), "upload");
    return p;
}

static struct kern_ptr past(struct kern_ptr p, size_t bytes)
{
    p.off += bytes;
    return p;
}

/* ---- weights ---- */

/* Numbers near one, in any format: what they are changes no time. */
static struct kern_weight *weight(enum kern_dtype t, int experts, int rows,
                                  int cols)
{
    static unsigned char some[1 << 20];
    struct kern_weight_desc desc = {t, rows, cols, experts, 0, 0};
    struct kern_weight *w;

    must(kern_weight_new(k, &desc, &w), "weight");
    for (int p = 0; p < kern_weight_n_planes(t); p++) {
        size_t n = kern_weight_plane_bytes(&desc, p);

        for (size_t i = 0; i < sizeof(some); i++) {
            some[i] = (unsigned char)(t == KERN_BF16 ? (i % 2 ? 0x3c : i * 37)
                                      : p == 0       ? i * 37
                                                     : 120 + i % 4);
        }
        for (int e = 0; e < (experts > 0 ? experts : 1); e++) {
            for (size_t at = 0; at < n; at += sizeof(some)) {
                size_t m = n - at < sizeof(some) ? n - at : sizeof(some);

                must(kern_weight_fill(k, w, e, p, at, some, m), "weight");
            }
        }
    }
    must(kern_weight_ready(k, w), "weight");
    return w;
}

/* Rows such as they are: a bell of numbers, of which a few are escapes. */
enum { SAMPLE = 16 };

static int sample_rows(int cols, unsigned char *q, uint32_t *base,
                       uint32_t *escape, int *ret_n)
{
    uint16_t *row = malloc((size_t)cols * sizeof(*row));
    uint64_t s = 1;
    int n = 0;

    for (int r = 0; row != NULL && r < SAMPLE; r++) {
        for (int c = 0; c < cols; c++) {
            float x = -2;

            for (int i = 0; i < 4; i++) {
                x += (float)(next(&s) % 65536) / 65536;
            }
            row[c] = quant_f32_to_bf16(x / 50);
        }
        base[r] = compact_choose(row, cols);
        ret_n[r] = compact_pack(q + (size_t)r * compact_row_bytes(cols), row,
                                cols, base[r], escape + n);
        n += ret_n[r];
    }
    free(row);
    return row != NULL ? n : -1;
}

static struct kern_weight *packed(int rows, int cols)
{
    size_t row = compact_row_bytes(cols);
    unsigned char *q = malloc(SAMPLE * row);
    uint32_t *escape = malloc((size_t)SAMPLE * (size_t)cols * 4);
    uint32_t *word = malloc(((size_t)rows + 1) * 4), *list, base[SAMPLE];
    int n[SAMPLE], all = 0, at = 0;
    struct kern_weight_desc desc = {KERN_COMPACT, rows, cols, 0, 0, 0};
    struct kern_weight *w;

    if (q == NULL || escape == NULL || word == NULL ||
        (all = sample_rows(cols, q, base, escape, n)) < 0) {
        die("no memory");
    }
    list = malloc(((size_t)rows / SAMPLE + 1) * (size_t)all * 4 + 4);
    if (list == NULL) {
        die("no memory");
    }
    for (int r = 0, from = 0; r < rows; r++) {
        from = r % SAMPLE == 0 ? 0 : from;
        word[r] = compact_word(base[r % SAMPLE], (uint32_t)at);
        memcpy(list + at, escape + from, (size_t)n[r % SAMPLE] * 4);
        at += n[r % SAMPLE];
        from += n[r % SAMPLE];
    }
    word[rows] = compact_word(0, (uint32_t)at);
    list[at] = COMPACT_END;
    desc.escapes = at + 1;
    must(kern_weight_new(k, &desc, &w), "weight");
    for (int r = 0; r < rows; r += SAMPLE) {
        int m = rows - r < SAMPLE ? rows - r : SAMPLE;

        must(kern_weight_fill(k, w, 0, 0, (size_t)r * row, q, (size_t)m * row),
             "weight");
    }
    must(kern_weight_fill(k, w, 0, 1, 0, word, ((size_t)rows + 1) * 4),
         "weight");
    must(kern_weight_fill(k, w, 0, 2, 0, list, (size_t)desc.escapes * 4),
         "weight");
    must(kern_weight_ready(k, w), "weight");
    free(q);
    free(escape);
    free(word);
    free(list);
    return w;
}

/* ---- one kernel ---- */

/* What is launched; i counts launches, so that neighbours differ. */
struct form {
    const char *name;
    int rows, copies;
    int (*launch)(const struct form *f, int i);
    int cols, parts, part_rows[KERN_MAX_PARTS], window;
    struct kern_weight *w[FORMS];
    struct kern_kv kv;
    struct kern_slots at[FORMS];
    struct kern_ptr params, pos, freq;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double once(const struct form *f, uint64_t key)
{
    double t = now();

    must(kern_begin(k, key), f->name);
    for (int i = 0; i < d->reps; i++) {
        must(f->launch(f, i), f->name);
    }
    must(kern_end(k), f->name);
    return now() - t;
}

static void clock_form(const struct form *f)
{
    static uint64_t key;
    double t[MAX_ROUNDS];
    int32_t n = f->rows;

    key++;
    must(kern_upload(k, n_rows, &n, sizeof(n)), "upload");
    for (int i = 0; i < 3; i++) { /* captured, replayed */
        once(f, key);
    }
    kern_stats_reset(k);
    for (int i = 0; i < d->rounds; i++) {
        t[i] = once(f, key);
    }
    if (k->stats.launches > 0) {
        die("a step that was no replay");
    }
    qsort(t, (size_t)d->rounds, sizeof(t[0]), compare);
    printf("%s\t%d\t%.3f\n", f->name, f->rows,
           t[d->rounds / 2] / d->reps * 1e6);
    fflush(stdout);
}

static struct kern_rows rows_of(const struct form *f)
{
    return (struct kern_rows){f->rows, n_rows};
}

/* ---- the kernels ---- */

static int launch_linear(const struct form *f, int i)
{
    struct kern_linear_args a = {.rows = rows_of(f),
                                 .cols = f->cols,
                                 .x = bf16,
                                 .x_stride = f->cols,
                                 .n_parts = f->parts};

    for (int p = 0; p < f->parts; p++) {
        a.part[p].w = f->w[i % f->copies * f->parts + p];
        a.part[p].out = past(out, (size_t)p * (size_t)f->rows *
                                      (size_t)f->part_rows[0] * 4);
        a.part[p].out_stride = f->part_rows[p];
    }
    return kern_linear(k, &a);
}

static int launch_router(const struct form *f, int i)
{
    struct kern_router_args a = {.rows = rows_of(f),
                                 .n_expert = d->experts,
                                 .top_k = d->top_k,
                                 .scale = 1,
                                 .renorm = true,
                                 .x = f32,
                                 .w = f->w[i % f->copies],
                                 .sel = sel,
                                 .wt = wt,
                                 .groups = {out, out2}};

    return kern_router(k, &a);
}

static int launch_up(const struct form *f, int i)
{
    struct kern_mlp_up_args shared = {.rows = rows_of(f),
                                      .cols = d->hidden,
                                      .x = bf16,
                                      .gate = f->w[2 + i % SHARED * 2],
                                      .up = f->w[3 + i % SHARED * 2],
                                      .gate_out = f32,
                                      .up_out = f32,
                                      .out = out2};
    struct kern_expert_up_args a = {.rows = rows_of(f),
                                    .top_k = d->top_k,
                                    .x = bf16,
                                    .gate = f->w[0],
                                    .up = f->w[1],
                                    .groups = route[i % ROUTES],
                                    .h = out,
                                    .shared =
                                        f->rows <= FOLDED ? &shared : NULL};

    return kern_expert_up(k, &a);
}

static int launch_down(const struct form *f, int i)
{
    struct kern_linear_args shared = {.rows = rows_of(f),
                                      .cols = d->shared,
                                      .x = bf16,
                                      .x_stride = d->shared,
                                      .n_parts = 1,
                                      .add = true};
    struct kern_expert_down_args a = {.rows = rows_of(f),
                                      .top_k = d->top_k,
                                      .h = bf16,
                                      .down = f->w[0],
                                      .groups = route[i % ROUTES],
                                      .wt = wt,
                                      .out = out,
                                      .shared =
                                          f->rows <= FOLDED ? &shared : NULL};

    shared.part[0].w = f->w[1 + i % SHARED];
    shared.part[0].out = out;
    shared.part[0].out_stride = d->hidden;
    return kern_expert_down(k, &a);
}

static int launch_norm(const struct form *f, int i)
{
    struct kern_norm_args a = {.rows = rows_of(f),
                               .width = d->hidden,
                               .eps = 1e-5f,
                               .x = f32,
                               .delta = out,
                               .w = f->w[0],
                               .out = out2,
                               .out_stride = d->hidden};

    (void)i;
    return kern_norm(k, &a);
}

static int launch_mlp_up(const struct form *f, int i)
{
    size_t bytes = (size_t)f->rows * (size_t)d->shared * 4;
    struct kern_mlp_up_args a = {.rows = rows_of(f),
                                 .cols = f->cols,
                                 .x = bf16,
                                 .gate = f->w[i % f->copies * 2],
                                 .up = f->w[i % f->copies * 2 + 1],
                                 .gate_out = out,
                                 .up_out = past(out, bytes),
                                 .out = out2};

    return kern_mlp_up(k, &a);
}

static int launch_qkv(const struct form *f, int i)
{
    struct kern_qkv_args a = {.rows = rows_of(f),
                              .at = f->at[i % f->copies],
                              .kv = f->kv,
                              .n_head = d->heads,
                              .eps = 1e-5f,
                              .n_freq = KERN_HEAD_DIM / 2,
                              .freq = f->freq,
                              .q_norm = f->w[0],
                              .k_norm = f->w[0],
                              .q = f32,
                              .k = out,
                              .v = out,
                              .q_out = bf16};

    return kern_qkv(k, &a);
}

static int launch_attn(const struct form *f, int i)
{
    struct kern_attn_args a = {.rows = rows_of(f),
                               .at = f->at[i % f->copies],
                               .kv = f->kv,
                               .n_head = d->heads,
                               .window = f->window,
                               .q = bf16,
                               .gate = out,
                               .out = out2};

    return kern_attn(k, &a);
}

static int launch_sample(const struct form *f, int i)
{
    struct kern_sample_args a = {.rows = rows_of(f),
                                 .vocab = d->vocab,
                                 .stride = d->vocab,
                                 .logits = out,
                                 .params = f->params,
                                 .pos = f->pos,
                                 .out = out2};

    (void)i;
    return kern_sample(k, &a);
}

/* Sequence c's pages lie behind those of c - 1; the rows are its last ones. */
static struct kern_slots slots(int rows, int c, int pages)
{
    struct kern_slots at = {.n_seq = 1, .max_pages = pages};
    int32_t *n = calloc((size_t)(rows + pages), sizeof(*n));

    if (n == NULL) {
        die("no memory");
    }
    at.seq = put(n, (size_t)rows * 4); /* zeros: as the two below */
    at.low = put(n, 4);
    at.first_page = put(n, 4);
    for (int r = 0; r < rows; r++) {
        n[r] = d->context - rows + r;
    }
    at.slot = put(n, (size_t)rows * 4);
    for (int p = 0; p < pages; p++) {
        n[p] = c * pages + p;
    }
    at.table = put(n, (size_t)pages * 4);
    free(n);
    return at;
}

/* Attention of one sequence at a time, full and windowed, and what comes before
 * it; as many sequences as no cache holds. */
static void attention(int rows, struct kern_weight *norm)
{
    struct form f = {.rows = rows};
    int pages = d->context / KERN_PAGE_TOK;
    float freq[KERN_HEAD_DIM / 2];

    for (int i = 0; i < KERN_HEAD_DIM / 2; i++) {
        freq[i] = 1.0f / (float)(i + 1);
    }
    f.w[0] = norm;
    f.freq = put(freq, sizeof(freq));
    f.kv.dtype = KERN_BF16;
    f.kv.n_kv_head = d->kv_heads;
    f.kv.bytes_per_token = (size_t)d->kv_heads * KERN_HEAD_DIM * 4;
    f.kv.page_bytes = f.kv.bytes_per_token * KERN_PAGE_TOK;
    f.copies = (int)(d->spread / (f.kv.page_bytes * (size_t)pages)) + 1;
    f.copies = f.copies > FORMS ? FORMS : f.copies;
    f.kv.n_pages = f.copies * pages;
    f.kv.pages = room(f.kv.page_bytes * (size_t)f.kv.n_pages);
    for (int c = 0; c < f.copies; c++) {
        f.at[c] = slots(rows, c, pages);
    }
    f.name = "qkv";
    f.launch = launch_qkv;
    clock_form(&f);
    f.name = "attn";
    f.launch = launch_attn;
    clock_form(&f);
    f.name = "attn, window";
    f.window = 512;
    clock_form(&f);
    for (int c = 0; c < f.copies; c++) {
        kern_buf_free(k, f.at[c].seq.buf);
        kern_buf_free(k, f.at[c].low.buf);
        kern_buf_free(k, f.at[c].first_page.buf);
        kern_buf_free(k, f.at[c].slot.buf);
        kern_buf_free(k, f.at[c].table.buf);
    }
    kern_buf_free(k, f.kv.pages.buf);
    kern_buf_free(k, f.freq.buf);
}

/* One row in a batch draws greedily, the rest as chats do. */
static void draws(int rows)
{
    struct form f = {
        .name = "sample", .rows = rows, .copies = 1, .launch = launch_sample};
    struct kern_sample_row *row = calloc((size_t)rows, sizeof(*row));
    int32_t *pos = calloc((size_t)rows, sizeof(*pos));

    if (row == NULL || pos == NULL) {
        die("no memory");
    }
    for (int r = 0; r < rows; r++) {
        row[r].temperature = rows > 1 && r == 0 ? 0 : 0.8f;
        row[r].top_p = 0.95f;
        row[r].beta = row[r].repetition = 1;
        row[r].n_top = row[r].mask = row[r].given = -1;
        row[r].seed = (uint64_t)r + 1;
        pos[r] = 1;
    }
    f.params = put(row, sizeof(*row) * (size_t)rows);
    f.pos = put(pos, sizeof(*pos) * (size_t)rows);
    clock_form(&f);
    kern_buf_free(k, f.params.buf);
    kern_buf_free(k, f.pos.buf);
    free(row);
    free(pos);
}

static void linear(const char *name, int (*launch)(const struct form *f, int i),
                   enum kern_dtype t, int rows, int cols, int parts,
                   const int *part_rows)
{
    char title[64];
    struct form f = {.name = title,
                     .rows = rows,
                     .launch = launch,
                     .cols = cols,
                     .parts = parts};
    size_t bytes = 0;

    for (int p = 0; p < parts; p++) {
        f.part_rows[p] = part_rows[p];
        bytes +=
            (size_t)part_rows[p] *
            (t == KERN_COMPACT ? compact_row_bytes(cols) : (size_t)cols * 2);
    }
    snprintf(title, sizeof(title), "%s%s", name,
             t == KERN_COMPACT ? ", compact" : "");
    f.copies = (int)(d->spread / bytes) + 1;
    if (f.copies * parts > FORMS) {
        f.copies = FORMS / parts;
    }
    for (int i = 0; i < f.copies * parts; i++) {
        f.w[i] = t == KERN_COMPACT ? packed(part_rows[i % parts], cols)
                                   : weight(t, 0, part_rows[i % parts], cols);
    }
    clock_form(&f);
    for (int i = 0; i < f.copies * parts; i++) {
        kern_weight_free(k, f.w[i]);
    }
}

/* Packed, the shared expert never goes with the routed ones. */
static void linears(enum kern_dtype t, int rows)
{
    int q = d->heads * KERN_HEAD_DIM, kv = d->kv_heads * KERN_HEAD_DIM;

    linear("linear q k v gate", launch_linear, t, rows, d->hidden, 4,
           (const int[]){q, kv, kv, d->heads});
    linear("linear o", launch_linear, t, rows, q, 1, &d->hidden);
    if (t == KERN_COMPACT || rows > FOLDED) {
        linear("mlp_up, shared", launch_mlp_up, t, rows, d->hidden, 2,
               (const int[]){d->shared, d->shared});
        linear("linear down, shared", launch_linear, t, rows, d->shared, 1,
               &d->hidden);
    }
    if (rows <= 64) { /* rows that are drawn */
        linear("linear head", launch_linear, t, rows, d->hidden, 1, &d->vocab);
    }
}

/* Each row takes top_k different experts, all alike. */
static void make_routes(int rows)
{
    size_t pairs = (size_t)rows * (size_t)d->top_k;
    int32_t *off = calloc((size_t)d->experts + 1, sizeof(*off));
    int32_t *of = malloc(pairs * sizeof(*of)), *pair = malloc(pairs * 4);
    uint64_t s = 1;

    if (off == NULL || of == NULL || pair == NULL) {
        die("no memory");
    }
    for (int r = 0; r < ROUTES; r++) {
        int n = 0;

        for (size_t i = 0; i < pairs; i++) {
            int first = (int)(i / (size_t)d->top_k * (size_t)d->top_k), e;

            do {
                e = (int)(next(&s) % (uint64_t)d->experts);
                for (int j = first; j < (int)i && e >= 0; j++) {
                    e = of[j] == e ? -1 : e;
                }
            } while (e < 0);
            of[i] = e;
        }
        for (int e = 0; e < d->experts; e++) {
            off[e] = n;
            for (size_t i = 0; i < pairs; i++) {
                if (of[i] == e) {
                    pair[n++] = (int32_t)i;
                }
            }
        }
        off[d->experts] = n;
        route[r].off = put(off, ((size_t)d->experts + 1) * 4);
        route[r].pair = put(pair, pairs * 4);
    }
    free(off);
    free(of);
    free(pair);
}

static void experts(int rows, struct kern_weight *gate, struct kern_weight *up,
                    struct kern_weight *down)
{
    struct form f = {.rows = rows, .copies = 1};

    make_routes(rows);
    f.name = "expert_up";
    f.launch = launch_up;
    f.w[0] = gate;
    f.w[1] = up;
    for (int i = 2; i < 2 + 2 * SHARED; i++) {
        f.w[i] = weight(KERN_BF16, 0, d->shared, d->hidden);
    }
    clock_form(&f);
    for (int i = 2; i < 2 + 2 * SHARED; i++) {
        kern_weight_free(k, f.w[i]);
    }
    f.name = "expert_down";
    f.launch = launch_down;
    f.w[0] = down;
    for (int i = 1; i < 1 + SHARED; i++) {
        f.w[i] = weight(KERN_BF16, 0, d->hidden, d->shared);
    }
    clock_form(&f);
    for (int i = 1; i < 1 + SHARED; i++) {
        kern_weight_free(k, f.w[i]);
    }
    for (int r = 0; r < ROUTES; r++) {
        kern_buf_free(k, route[r].off.buf);
        kern_buf_free(k, route[r].pair.buf);
    }
}

static void rest(int rows, struct kern_weight *norm, struct kern_weight *router)
{
    struct form f = {.rows = rows, .copies = 1};

    f.name = "norm";
    f.launch = launch_norm;
    f.w[0] = norm;
    clock_form(&f);
    f.name = "router";
    f.launch = launch_router;
    f.w[0] = router;
    clock_form(&f);
}

int main(int argc, char **argv)
{
    static const int n[] = {1, 4, 8, 32, 2048};
    const char *name = argc > 1 ? argv[1] : "cuda";
    struct kern_weight *gate, *up, *down, *norm, *router, *head;
    char why[256] = "", text[64];
    struct kern_open_args open = {
        .exact = true, .why = why, .why_n = sizeof(why)};
    size_t most, wide;

    d = argc > 2 ? &small : &real;
    if (kern_open_named(name, &open, &k) < 0) {
        printf("SKIP: bench-gpu: %s\n", why);
        return 77;
    }
    printf("device\t%s\n", kern_describe(k, text, sizeof(text)));
    printf("sizes\t%d %d %d %d %d %d %d %d %d\n", d->hidden, d->heads,
           d->kv_heads, d->experts, d->top_k, d->width, d->shared, d->vocab,
           d->context);
    most = (size_t)d->most * (size_t)d->top_k;
    wide = (size_t)d->heads * KERN_HEAD_DIM;
    n_rows = room(4);
    bf16 = room(most * wide * 2);
    f32 = room((size_t)d->most * wide * 4);
    out = room(KERN_MAX_PARTS * most * wide * 4);
    out2 = room(most * wide * 4);
    sel = room(most * 4);
    wt = room(most * 4);
    gate = weight(KERN_MXFP4, d->experts, d->width, d->hidden);
    up = weight(KERN_MXFP4, d->experts, d->width, d->hidden);
    down = weight(KERN_MXFP4, d->experts, d->hidden, d->width);
    norm = weight(KERN_BF16, 0, 1, d->hidden);
    router = weight(KERN_BF16, 0, d->experts, d->hidden);
    head = weight(KERN_BF16, 0, 1, KERN_HEAD_DIM);
    for (size_t i = 0; i < sizeof(n) / sizeof(n[0]) && n[i] <= d->most; i++) {
        linears(KERN_BF16, n[i]);
        linears(KERN_COMPACT, n[i]);
        experts(n[i], gate, up, down);
        rest(n[i], norm, router);
        attention(n[i], head);
        if (n[i] <= 64) {
            draws(n[i]);
        }
    }
    kern_weight_free(k, gate);
    kern_weight_free(k, up);
    kern_weight_free(k, down);
    kern_weight_free(k, norm);
    kern_weight_free(k, router);
    kern_weight_free(k, head);
    kern_buf_free(k, n_rows.buf);
    kern_buf_free(k, bf16.buf);
    kern_buf_free(k, f32.buf);
    kern_buf_free(k, out.buf);
    kern_buf_free(k, out2.buf);
    kern_buf_free(k, sel.buf);
    kern_buf_free(k, wt.buf);
    kern_close(k);
    return 0;
}
