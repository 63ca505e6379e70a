/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See streams.h. Full-attention pages lie one after another, sliding pages of
 * a stream in a ring as long as the pools allow.
 */
#include "tests/bench/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/probe.h"

/* Pages that a window and the rows of a prompt or of a verification span. */
#define RING 12

static void die(struct streams *s, const char *what)
{
    fprintf(stderr, "bench_model: %s: %s\n", what, model_error(s->m));
    exit(1);
}

/* BF16 numbers between 2^-4 and 2, of both signs. */
static void random_page(uint16_t *to, size_t n)
{
    uint64_t x = 88172645463325252u;

    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        to[i] = (uint16_t)((x & 0x807fu) | ((123u + (x >> 20) % 5) << 7));
    }
}

static void fill_pages(struct streams *s, enum model_group g, int n)
{
    size_t bytes = model_page_bytes(s->m, g);
    uint16_t *page = malloc(bytes + 2);

    if (page == NULL) {
        die(s, "page");
    }
    random_page(page, bytes / 2);
    for (int i = 0; i < n; i++) {
        if (bytes > 0 && model_import_page(s->m, g, i, page) < 0) {
            die(s, "page");
        }
    }
    free(page);
}

void streams_init(struct streams *s, struct model *m, const struct synth *shape,
                  int max)
{
    const struct model_memory *mem = &model_info(m)->memory;

    memset(s, 0, sizeof(*s));
    s->m = m;
    s->shape = shape;
    s->max = max;
    s->n_table = mem->kv_pages[MODEL_FULL] / max;
    s->ring = mem->kv_pages[MODEL_SLIDING] / max;
    if (s->ring > RING) {
        s->ring = RING;
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        s->table[g] = calloc((size_t)max * (size_t)s->n_table, 4);
        if (s->table[g] == NULL) {
            die(s, "table");
        }
        fill_pages(s, g, max * (g == MODEL_FULL ? s->n_table : s->ring));
    }
    for (int i = 0; i < max * s->n_table; i++) {
        s->table[MODEL_FULL][i] = i;
        s->table[MODEL_SLIDING][i] =
            i / s->n_table * s->ring + i % s->n_table % s->ring;
    }
}

void streams_finish(struct streams *s)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        free(s->table[g]);
    }
}

static int32_t first_token(const struct streams *s, int i)
{
    int n = s->shape->vocab - s->shape->first_id;

    return s->shape->first_id +
           (int32_t)((int64_t)n * i / STREAMS_MAX + 77) % n;
}

static int open_seq(struct streams *s, int32_t token, int depth)
{
    struct model_sampling p = {.temperature = s->sampled ? 1 : 0,
                               .top_p = s->sampled ? 0.95f : 1,
                               .repetition = 1,
                               .n_top = -1,
                               .max_drafts = depth};
    int seq;

    if (model_seq_open(s->m, &p, &token, 1, 0, &seq) < 0) {
        die(s, "sequence");
    }
    return seq;
}

void streams_begin(struct streams *s, int n, int depth, int ctx)
{
    s->n = n;
    s->depth = depth;
    s->drafts = s->drafted = s->accepted = 0;
    for (int i = 0; i < n; i++) {
        s->next[i] = first_token(s, i);
        s->seq[i] = open_seq(s, s->next[i], depth);
        if (model_seq_at(s->m, s->seq[i], ctx, NULL) < 0) {
            die(s, "position");
        }
    }
}

void streams_fork(struct streams *to, const struct streams *from, int slot,
                  int depth, int ctx)
{
    *to = *from;
    to->first = slot;
    streams_begin(to, 1, depth, ctx);
}

void streams_end(struct streams *s)
{
    for (int i = 0; i < s->n; i++) {
        model_seq_close(s->m, s->seq[i]);
    }
    s->n = 0;
}

/* The pages that rows pos .. pos + n - 1 read and write. */
static void set_pages(const struct streams *s, int i, struct model_span *span)
{
    int window = s->shape->window;
    int low = span->pos > window ? span->pos - window : 0;
    int end =
        (span->pos + span->n_rows + MODEL_MAX_DRAFTS) / MODEL_PAGE_TOK + 1;

    end = end < s->n_table ? end : s->n_table;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int first = g == MODEL_SLIDING ? low / MODEL_PAGE_TOK : 0;

        span->pages[g] =
            s->table[g] + (size_t)(s->first + i) * (size_t)s->n_table + first;
        span->first_page[g] = first;
        span->n_pages[g] = end - first;
    }
}

static void run_plan(struct streams *s, const struct model_span *span, int n,
                     struct model_out *out)
{
    struct model_plan plan = {.span = span, .n_spans = n};

    if (model_submit(s->m, &plan) < 0 || model_collect(s->m, out, n) < 0) {
        die(s, "step");
    }
    for (int i = 0; i < n; i++) {
        if (out[i].status < 0) {
            die(s, "span");
        }
    }
}

int streams_step(struct streams *s)
{
    int32_t ids[STREAMS_MAX][1 + MODEL_MAX_DRAFTS];
    struct model_span span[STREAMS_MAX];
    struct model_out out[STREAMS_MAX];
    int drawn = 0;

    for (int i = 0; i < s->n; i++) {
        int n_draft = model_drafts(s->m, s->seq[i], ids[i] + 1);

        ids[i][0] = s->next[i];
        span[i] = (struct model_span){
            .seq = s->seq[i],
            .pos = model_seq_len(s->m, s->seq[i]),
            .ids = ids[i],
            .n_rows = 1 + n_draft,
            .n_draft = n_draft,
            .want = MODEL_WANT_DRAW,
            .draft_next = s->depth,
            .next_id = -1,
        };
        set_pages(s, i, &span[i]);
    }
    run_plan(s, span, s->n, out);
    for (int i = 0; i < s->n; i++) {
        s->next[i] = out[i].token[out[i].n_tokens - 1].id;
        s->drafts += out[i].n_drafted > 0;
        s->drafted += (uint64_t)out[i].n_drafted;
        s->accepted += (uint64_t)out[i].n_accepted;
        drawn += out[i].n_tokens;
    }
    return drawn;
}

double streams_prefill(struct streams *s, int n, int depth)
{
    int32_t ids[STREAMS_PROMPT];
    struct model_span span = {.ids = ids,
                              .n_rows = n,
                              .want = MODEL_WANT_DRAW,
                              .draft_next = depth,
                              .next_id = -1};
    struct model_out out;
    double t;

    ids[0] = first_token(s, 0);
    for (int i = 1; i < n; i++) {
        ids[i] = synth_next(s->shape, ids[i - 1]);
    }
    span.seq = open_seq(s, ids[0], depth);
    set_pages(s, 0, &span);
    t = probe_now();
    run_plan(s, &span, 1, &out);
    t = probe_now() - t;
    model_seq_close(s->m, span.seq);
    return t;
}
