/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Steps: greedy text as the independent reference writes it; the promise that
 * an answer depends on its request alone, whatever the batch, the chunks, the
 * threads; cancelled, failed and scored spans; plans that break a rule.
 */

#include "tests/daemon/mk.h"

#include <errno.h>

#include "daemon/model/state.h"

static struct mk *open_tiny(const struct mk_backend *b)
{
    return mk_open(test_data("step-tiny"), b, -1, 0);
}

/* ---- text ---- */

/* Equal up to the first near tie of the golden list. */
static void check_text(const struct mk *k, const struct mk_case *c, int i,
                       const struct mk_req *r)
{
    for (int j = 0; j < c->n_greedy && c->gap[j] >= 0.05; j++) {
        if (j >= r->n_ids - r->n_prompt ||
            r->ids[r->n_prompt + j] != c->greedy[j]) {
            fail_msg("%s: case %d: token %d is %d, expected %d", k->name, i, j,
                     r->ids[r->n_prompt + j], c->greedy[j]);
        }
    }
}

static void greedy_text(const struct mk_backend *b, int first, int n,
                        int max_drafts)
{
    static struct mk_req r[8];
    const struct mk_case *c = mk_cases(NULL);
    struct model_sampling p = mk_greedy;
    struct mk *k = open_tiny(b);

    p.max_drafts = max_drafts;
    for (int at = first; at < first + n; at += 8) {
        struct mk_req *all[8];
        int m = first + n - at < 8 ? first + n - at : 8;

        for (int i = 0; i < m; i++) {
            all[i] = &r[i];
            mk_start(k, &r[i], &p, c[at + i].prompt, c[at + i].n_prompt, 120);
            r[i].eos = true;
            r[i].chunk = 64;
        }
        mk_run(k, all, m);
        for (int i = 0; i < m; i++) {
            check_text(k, &c[at + i], at + i, &r[i]);
            mk_end(k, &r[i]);
        }
        mk_reuse_pages(k);
    }
    mk_close(k);
}

static void test_greedy_text_is_the_golden_one(void **state)
{
    (void)state;
    greedy_text(&mk_ref, 2, 1, 0);
    for (int i = 1; i < mk_n_backends(); i++) {
        const struct mk_backend *b = mk_backend(i);

        greedy_text(b, 0,
                    mk_is_slow(b)    ? 4
                    : b == mk_best() ? MK_N_CASES
                                     : 16,
                    0);
    }
}

/* ---- invariance ---- */

enum { N_MIX = 20 };

/* 20 requests, all different in length and in how they draw. */
static void start_mix_drafting(struct mk *k, struct mk_req *r, int i, int n_new,
                               int max_drafts)
{
    static const float temperature[] = {0, 0.7f, 1, 1.3f};
    const struct mk_case *c = &mk_cases(NULL)[2 * i];
    struct model_sampling p = mk_greedy;

    p.temperature = temperature[i % 4];
    p.seed = 1000003u * (uint64_t)i;
    p.top_k = i % 3 == 0 ? 40 : 0;
    p.top_p = i % 5 == 0 ? 0.9f : 1;
    p.min_p = i % 7 == 0 ? 0.01f : 0;
    p.repetition = i % 6 == 0 ? 1.1f : 1;
    p.frequency = i % 6 == 3 ? 0.2f : 0;
    p.n_top = i % 4 == 1 ? 3 : 0;
    p.max_drafts = max_drafts;
    mk_start(k, r, &p, c->prompt, c->n_prompt, n_new);
}

static void start_mix(struct mk *k, struct mk_req *r, int i, int n_new)
{
    start_mix_drafting(k, r, i, n_new, 0);
}

/* Runs the whole mix on b, `at_once` a step, and keeps the answers. */
static void run_mix(const struct mk_backend *b, int n, int n_new, int at_once,
                    int chunk, int max_rows, struct mk_req *ret)
{
    static const int order[] = {7,  13, 2,  18, 0,  11, 5,  16, 9,  3,
                                14, 6,  19, 1,  12, 8,  17, 4,  15, 10};
    struct mk *k = mk_open(test_data("step-tiny"), b, -1, max_rows);

    for (int at = 0; at < n; at += at_once) {
        struct mk_req *all[N_MIX];
        int m = 0;

        for (int i = at; i < n && i < at + at_once; i++) {
            int which = n == N_MIX ? order[i] : i;

            all[m++] = &ret[which];
            start_mix(k, &ret[which], which, n_new);
            ret[which].chunk = chunk;
        }
        mk_run(k, all, m);
        for (int i = 0; i < m; i++) {
            mk_end(k, all[i]);
        }
        mk_reuse_pages(k);
    }
    mk_close(k);
}

static void check_mix(const char *what, const struct mk_backend *b, int n,
                      int n_new, int at_once, int chunk, int max_rows,
                      const struct mk_req *want)
{
    static struct mk_req got[N_MIX];

    run_mix(b, n, n_new, at_once, chunk, max_rows, got);
    for (int i = 0; i < n; i++) {
        mk_assert_same(what, i, &got[i], &want[i]);
    }
}

static void test_answers_depend_on_the_request_alone(void **state)
{
    static struct mk_req alone[N_MIX];

    (void)state;
    for (int i = 1; i < mk_n_backends(); i++) {
        const struct mk_backend *b = mk_backend(i);
        struct mk_backend two = *b;

        int n = mk_is_slow(b) ? 4 : b == mk_best() ? N_MIX : 8;
        int n_new = mk_is_slow(b) ? 3 : 8;

        run_mix(b, n, n_new, 1, 0, 0, alone);
        check_mix("chunks of 7", b, n, n_new, 16, 7, 0, alone);
        check_mix("few rows a step", b, n, n_new, 7, 0, 33, alone);
        if (mk_is_slow(b)) {
            continue;
        }
        check_mix("chunks of 1", b, n, n_new, 10, 1, 0, alone);
        check_mix("chunks of 64", b, n, n_new, 5, 64, 0, alone);
        two.n_threads = 3 - b->n_threads;
        check_mix("other threads", &two, n, n_new, 16, 512, 0, alone);
    }
}

static void test_ref_is_invariant_too(void **state)
{
    static struct mk_req alone[3];

    (void)state;
    run_mix(&mk_ref, 3, 2, 1, 0, 0, alone);
    check_mix("ref, chunks of 7", &mk_ref, 3, 2, 3, 7, 0, alone);
}

/* ---- cancelling ---- */

struct canceller {
    struct mk *k;
    int at, seen; /* the tick at which it strikes */
    int seq;
    uint64_t row_layers; /* at that moment */
};

static void on_tick(void *ctx)
{
    struct canceller *c = ctx;
    struct model_stats s;

    if (c->seen++ == c->at) {
        model_stats(c->k->m, &s);
        c->row_layers = s.row_layers;
        model_cancel(c->k->m, c->seq);
    }
}

/* Three requests with drafting, one of them cancelled at the given tick of the
 * step: before a layer of the trunk, or before a module. */
static void cancel_at(const struct mk_backend *b, int at,
                      const struct mk_req *want)
{
    static struct mk_req r[3];
    static int32_t ids[3][MK_MAX];
    struct canceller c = {.at = at};
    struct model_span span[3];
    struct model_out out[3];
    struct model_plan plan = {.span = span, .n_spans = 3};
    struct model_stats before, after;
    struct mk *k = open_tiny(b);
    int n_trunk = k->info->n_layers, kept = 0;

    c.k = k;
    for (int i = 0; i < 3; i++) {
        start_mix_drafting(k, &r[i], i, 6, -1);
        span[i] = mk_span(k, &r[i], 512, ids[i]);
        kept += i != 1 ? span[i].n_rows : 0;
    }
    c.seq = r[1].seq;
    k->m->conf.tick = on_tick;
    k->m->conf.ctx = &c;
    model_stats(k->m, &before);
    mk_ok(k, model_submit(k->m, &plan));
    mk_ok(k, model_collect(k->m, out, 3));
    model_stats(k->m, &after);
    assert_int_equal(out[1].status, -ECANCELED);
    assert_int_equal(out[1].n_tokens, 0);
    assert_int_equal(out[1].committed, 0);
    /* not one more layer of the cancelled rows */
    if (at < n_trunk) {
        assert_int_equal(after.row_layers - c.row_layers,
                         (uint64_t)kept * (uint64_t)(n_trunk - at));
    }
    k->m->conf.tick = NULL;
    for (int i = 0; i < 3; i += 2) {
        struct mk_req *one = &r[i];

        mk_take(k, &r[i], &span[i], &out[i]);
        mk_run(k, &one, 1);
        mk_assert_same("beside a cancelled one", i, &r[i], &want[i]);
    }
    /* the sequence itself can go on from where it was */
    {
        struct mk_req *one = &r[1];

        mk_run(k, &one, 1);
        mk_assert_same("cancelled and run again", 1, &r[1], &want[1]);
    }
    mk_close(k);
}

static void test_cancelled_rows_leave_at_the_next_layer(void **state)
{
    static struct mk_req want[3];

    (void)state;
    for (int i = 0; i < mk_n_backends(); i++) {
        const struct mk_backend *b = mk_backend(i);

        run_mix(b, 3, 6, 3, 0, 0, want);
        for (int at = mk_is_slow(b) ? 3 : 0; at < 9;
             at += mk_is_slow(b) ? 9 : 1) {
            cancel_at(b, at, want);
        }
    }
}

static void test_all_spans_cancelled(void **state)
{
    static struct mk_req r;
    static int32_t ids[MK_MAX];
    struct mk *k = open_tiny(mk_best());
    struct canceller c = {.k = k, .at = 2};
    struct model_span span;
    struct model_out out;
    struct model_plan plan = {.span = &span, .n_spans = 1};
    struct model_stats s;

    (void)state;
    start_mix(k, &r, 0, 4);
    span = mk_span(k, &r, 512, ids);
    c.seq = r.seq;
    k->m->conf.tick = on_tick;
    k->m->conf.ctx = &c;
    mk_ok(k, model_submit(k->m, &plan));
    mk_ok(k, model_collect(k->m, &out, 1));
    assert_int_equal(out.status, -ECANCELED);
    model_stats(k->m, &s);
    assert_int_equal(s.layers, 2);
    mk_close(k);
}

/* ---- rows that are not finite ---- */

/* A NaN in one sequence's cache fails that sequence and no other. */
static void test_fr_53_nonfinite_rows_fail_their_span_alone(void **state)
{
    static struct mk_req r[2], want[2];

    (void)state;
    for (int b = 0; b < mk_n_backends(); b++) {
        struct mk *k = open_tiny(mk_backend(b));
        struct mk_req *both[2] = {&r[0], &r[1]};
        struct model_span span[2];
        static int32_t ids[2][MK_MAX];
        struct model_out out[2];
        struct model_plan plan = {.span = span, .n_spans = 2};

        run_mix(mk_backend(b), 2, 6, 1, 0, 0, want);
        for (int i = 0; i < 2; i++) {
            start_mix(k, &r[i], i, 6);
        }
        mk_step(k, both, 2);
        /* the first layer is a full one: its page goes bad */
        mk_ok(k, model_scrub_page(k->m, MODEL_FULL, r[0].page[MODEL_FULL][0]));
        for (int i = 0; i < 2; i++) {
            span[i] = mk_span(k, &r[i], 256, ids[i]);
        }
        mk_ok(k, model_submit(k->m, &plan));
        mk_ok(k, model_collect(k->m, out, 2));
        assert_int_equal(out[0].status, -EIO);
        assert_int_equal(out[0].layer, 0);
        assert_int_equal(out[0].n_tokens, 0);
        assert_int_equal(out[0].committed, r[0].len);
        assert_int_equal(model_seq_len(k->m, r[0].seq), r[0].len);
        mk_take(k, &r[1], &span[1], &out[1]);
        mk_run(k, &both[1], 1);
        mk_assert_same("beside a failed one", 1, &r[1], &want[1]);
        mk_close(k);
    }
}

/* ---- scoring and masks ---- */

/* log p(ids[i + 1] | ids[0..i]) from traced logits, in doubles. */
static double log_p(const float *l, int vocab, int32_t id)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < vocab; i++) {
        max = fmax(max, (double)l[i]);
    }
    for (int i = 0; i < vocab; i++) {
        sum += exp((double)l[i] - max);
    }
    return (double)l[id] - max - log(sum);
}

/* One scored chunk of the request's prompt, n rows. */
static void score(struct mk *k, struct mk_req *r, int n, double *ret)
{
    static int32_t ids[MK_MAX];
    struct model_span span = mk_span(k, r, n, ids);
    struct model_plan plan = {.span = &span, .n_spans = 1};
    struct model_out out;
    int end = r->len + span.n_rows;

    span.want = MODEL_WANT_SCORE;
    span.next_id = end < r->n_ids ? r->ids[end] : -1;
    mk_ok(k, model_submit(k->m, &plan));
    mk_ok(k, model_collect(k->m, &out, 1));
    assert_int_equal(out.status, 0);
    assert_int_equal(out.n_scored,
                     span.next_id < 0 ? span.n_rows - 1 : span.n_rows);
    assert_int_equal(out.n_tokens, span.next_id < 0 ? 1 : 0);
    for (int i = 0; i < out.n_scored; i++) {
        assert_int_equal(out.scored[i].id, r->ids[r->len + i + 1]);
        ret[r->len + i] = (double)out.scored[i].logprob;
    }
    r->len = out.committed;
}

static void test_scores_do_not_depend_on_chunks(void **state)
{
    static struct mk_req r;
    static float logits[MK_MAX * 1024];
    const struct mk_case *c = &mk_cases(NULL)[5];
    double whole[MK_MAX], parts[MK_MAX];
    struct mk *k = mk_open(test_data("step-tiny"), mk_best(), -1, 0);

    (void)state;
    mk_start(k, &r, &mk_greedy, c->prompt, c->n_prompt, 1);
    mk_ok(k, model_trace(k->m, true));
    score(k, &r, 512, whole);
    assert_int_equal(model_traced(k->m, 0, NULL, logits, MK_MAX), c->n_prompt);
    for (int i = 0; i + 1 < c->n_prompt; i++) {
        double want = log_p(logits + i * 1024, 1024, c->prompt[i + 1]);

        assert_true(fabs(whole[i] - want) < 1e-5);
    }
    mk_start(k, &r, &mk_greedy, c->prompt, c->n_prompt, 1);
    while (r.len < c->n_prompt) {
        score(k, &r, 37, parts);
    }
    assert_memory_equal(parts, whole,
                        (size_t)(c->n_prompt - 1) * sizeof(*whole));
    mk_close(k);
}

static uint32_t mask[2][32];

static void fill_mask(void *ctx)
{
    int32_t *only = ctx;

    memset(mask, 0, sizeof(mask));
    mask[0][only[0] / 32] = 1u << (only[0] % 32);
}

/* fr_51: a mask that allows nothing is told, and ends in no endless answer. */
static void test_masks_may_come_late(void **state)
{
    static struct mk_req r;
    static int32_t ids[MK_MAX];
    int32_t only = 777;
    struct mk *k = open_tiny(mk_best());
    struct model_span span;
    struct model_plan plan = {
        .span = &span, .n_spans = 1, .masks_ready = fill_mask, .ctx = &only};
    struct model_out out;

    (void)state;
    start_mix(k, &r, 0, 4);
    span = mk_span(k, &r, 512, ids);
    span.mask = mask[0];
    memset(mask, 0xff, sizeof(mask));
    mk_ok(k, model_submit(k->m, &plan));
    mk_ok(k, model_collect(k->m, &out, 1));
    assert_int_equal(out.status, 0);
    assert_int_equal(out.token[0].id, 777);
    /* a mask that allows nothing is told */
    start_mix(k, &r, 1, 4);
    span = mk_span(k, &r, 512, ids);
    span.mask = mask[1]; /* all clear now */
    plan.masks_ready = NULL;
    mk_ok(k, model_submit(k->m, &plan));
    mk_ok(k, model_collect(k->m, &out, 1));
    assert_int_equal(out.status, -ENODATA);
    mk_close(k);
}

/* ---- weights are read once ---- */

/* Bytes of all matrices but the embedding that a trunk step streams, experts
 * apart: as the op layer counts them. */
static uint64_t dense_bytes(const struct model *m)
{
    uint64_t n = 0;
    const struct weights *w = m->w;

#define ADD(x)                                               \
    do {                                                     \
        const struct kern_weight *at = (x);                  \
        for (int p = 0; at != NULL && p < 3; p++) {          \
            n += p < kern_weight_n_planes(at->desc.dtype)    \
                     ? kern_weight_plane_bytes(&at->desc, p) \
                     : 0;                                    \
        }                                                    \
    } while (0)
    for (int i = 0; i < w->n_layers; i++) {
        const struct weights_layer *l = &w->layer[i];

        ADD(l->q);
        ADD(l->k);
        ADD(l->v);
        ADD(l->g);
        ADD(l->o);
        ADD(l->gate);
        ADD(l->up);
        ADD(l->down);
        ADD(l->router);
        ADD(l->shared_gate);
        ADD(l->shared_up);
        ADD(l->shared_down);
    }
    ADD(w->head);
    return n;
}

static uint64_t expert_bytes(const struct model *m)
{
    const struct weights_layer *l = NULL;
    uint64_t n = 0;

    for (int i = 0; i < m->w->n_layers; i++) {
        l = m->w->layer[i].expert_gate != NULL ? &m->w->layer[i] : l;
    }
    ADD(l->expert_gate);
    ADD(l->expert_up);
    ADD(l->expert_down);
    return n;
}

static void test_decode_reads_each_weight_once(void **state)
{
    static struct mk_req r[8];

    (void)state;
    for (int b = 0; b < mk_n_backends(); b++) {
        struct mk *k = mk_open(test_data("step-tiny"), mk_backend(b), 0, 0);
        struct mk_req *all[8];
        struct model_stats s0, s1;
        uint64_t n_moe = 0, loads, bytes;

        for (int i = 0; i < 8; i++) {
            all[i] = &r[i];
            mk_start(k, &r[i], &mk_greedy, mk_cases(NULL)[i].prompt, 10, 4);
        }
        for (int i = 0; i < k->m->w->n_layers; i++) {
            n_moe += k->m->s->layer[i].moe;
        }
        mk_step(k, all, 8);
        model_stats(k->m, &s0);
        mk_step(k, all, 8);
        model_stats(k->m, &s1);
        assert_int_equal(s1.rows - s0.rows, 8);
        loads = s1.expert_loads - s0.expert_loads;
        bytes = s1.weight_bytes - s0.weight_bytes - dense_bytes(k->m);
        /* of 16 experts, 8 rows hit 4 at least; up and down are two passes */
        assert_in_range(loads, 2 * 4 * n_moe, 2 * 16 * n_moe);
        assert_int_equal(bytes % expert_bytes(k->m), 0);
        assert_int_equal(bytes / expert_bytes(k->m), loads / 2);
        mk_close(k);
    }
}

/* However many rows a chunk has: an expert's rows may be cut into tiles, yet
 * the cpu streams its matrices once for all of them, up and down. */
static void test_a_long_chunk_reads_each_expert_once(void **state)
{
    static int32_t prompt[512], ids[MK_MAX];
    static struct mk_req r;

    (void)state;
    for (int i = 0; i < 512; i++) {
        const struct mk_case *c = &mk_cases(NULL)[i % 32];

        prompt[i] = c->prompt[i / 32 % c->n_prompt];
    }
    for (int b = 0; b < mk_n_backends(); b++) {
        struct mk *k = mk_open(test_data("step-tiny"), mk_backend(b), 0, 0);
        struct model_span span;
        struct model_plan plan = {.span = &span, .n_spans = 1};
        struct model_out out;
        struct model_stats s;
        uint64_t n_moe = 0;

        for (int i = 0; i < k->m->w->n_layers; i++) {
            n_moe += k->m->s->layer[i].moe;
        }
        mk_start(k, &r, &mk_greedy, prompt, 512, 4);
        span = mk_span(k, &r, 512, ids);
        assert_int_equal(span.n_rows, 512);
        mk_ok(k, model_submit(k->m, &plan));
        mk_ok(k, model_collect(k->m, &out, 1));
        mk_ok(k, out.status);
        model_stats(k->m, &s);
        assert_int_equal(s.steps, 1);
        assert_int_equal(s.rows, 512);
        /* at most once each: 16 experts, two passes */
        assert_in_range(s.expert_loads, 2 * 4 * n_moe, 2 * 16 * n_moe);
        assert_int_equal(s.weight_bytes,
                         dense_bytes(k->m) +
                             s.expert_loads / 2 * expert_bytes(k->m));
        mk_close(k);
    }
}

/* ---- pages ---- */

static void test_pages_can_be_copied_and_moved(void **state)
{
    static struct mk_req a, b;
    struct mk *k = open_tiny(mk_best());
    struct mk_req *all = &a;
    char *at[MODEL_N_GROUPS];

    (void)state;
    start_mix(k, &a, 1, 12);
    mk_step(k, &all, 1);
    /* the same prompt elsewhere: its pages arrive as copies and as bytes */
    start_mix(k, &b, 1, 12);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        at[g] = malloc(model_page_bytes(k->m, g));
        assert_non_null(at[g]);
        for (int i = 0; i < b.n_pages; i++) {
            if (i % 2 == 0) {
                mk_ok(k, model_copy_page(k->m, g, b.page[g][i], a.page[g][i]));
            } else {
                mk_ok(k, model_export_page(k->m, g, a.page[g][i], at[g]));
                mk_ok(k, model_import_page(k->m, g, b.page[g][i], at[g]));
            }
        }
        free(at[g]);
        assert_int_equal(model_copy_page(k->m, g, 0, -1), -EINVAL);
        assert_int_equal(
            model_copy_page(k->m, g, k->info->memory.kv_pages[g], 0), -EINVAL);
    }
    mk_ok(k, model_seq_at(k->m, b.seq, a.len, NULL));
    b.len = a.len;
    b.ids[b.n_ids] = a.ids[a.n_prompt];
    b.logprob[b.n_ids++] = a.logprob[a.n_prompt];
    mk_run(k, &all, 1);
    all = &b;
    mk_run(k, &all, 1);
    mk_assert_same("on copied pages", 1, &b, &a);
    mk_close(k);
}

/* ---- rules ---- */

static void test_broken_plans_are_refused(void **state)
{
    static struct mk_req r;
    static int32_t ids[MK_MAX];
    int32_t hole[MK_MAX / 64 + 1];
    struct mk *k = open_tiny(mk_best());
    struct model_span good, s[2];
    struct model_plan plan = {.span = s, .n_spans = 1};
    struct model_out out;

    (void)state;
    start_mix(k, &r, 12, 4); /* 211 rows */
    good = mk_span(k, &r, 512, ids);
    memcpy(hole, good.pages[0], sizeof(hole));
    hole[1] = -1;
#define REFUSED(change)                                       \
    do {                                                      \
        s[0] = s[1] = good;                                   \
        change;                                               \
        assert_int_equal(model_submit(k->m, &plan), -EINVAL); \
        assert_true(model_error(k->m)[0] != '\0');            \
    } while (0)
    REFUSED(s[0].seq = 15);
    REFUSED(s[0].seq = -1);
    REFUSED(s[0].pos = 1);
    REFUSED(s[0].n_rows = 0);
    REFUSED(s[0].n_rows = 513);
    REFUSED(s[0].n_draft = 1);
    REFUSED(ids[3] = 1024);
    ids[3] = r.ids[3];
    REFUSED(s[0].pages[MODEL_FULL] = hole);
    REFUSED(s[0].n_pages[MODEL_FULL] = 2);
    REFUSED(s[0].first_page[MODEL_SLIDING] = 1);
    REFUSED(plan.n_spans = 2);
    REFUSED(plan.n_spans = 0);
    plan.n_spans = 1;
    assert_int_equal(model_collect(k->m, &out, 1), -EINVAL);
    s[0] = good;
    mk_ok(k, model_submit(k->m, &plan));
    assert_int_equal(model_submit(k->m, &plan), -EINVAL);
    mk_ok(k, model_collect(k->m, &out, 1));
    mk_close(k);
}

static void test_sequences_are_counted(void **state)
{
    struct mk *k = open_tiny(mk_best());
    int seq[17];

    (void)state;
    for (int i = 0; i < 16; i++) {
        mk_ok(k, model_seq_open(k->m, &mk_greedy, NULL, 0, 0, &seq[i]));
    }
    assert_int_equal(model_seq_open(k->m, &mk_greedy, NULL, 0, 0, &seq[16]),
                     -EMFILE);
    model_seq_close(k->m, seq[3]);
    mk_ok(k, model_seq_open(k->m, &mk_greedy, NULL, 0, 0, &seq[16]));
    assert_int_equal(seq[16], seq[3]);
    mk_close(k);
}

static void test_fr_19_self_test_gates_and_leaves_no_trace(void **state)
{
    char why[128] = "";
    struct model_stats s;

    (void)state;
    for (int b = 0; b < mk_n_backends(); b++) {
        struct mk *k = open_tiny(mk_backend(b));

        assert_int_equal(model_self_test(k->m, why, sizeof(why)), 0);
        model_stats(k->m, &s);
        assert_int_equal(s.steps, 0);
        assert_int_equal(s.weight_bytes, 0);
        /* a rotary table gone bad: no READY */
        for (int i = 0; i < k->info->n_layers; i++) {
            mk_ok(k, kern_fill(k->m->k, k->m->f.freq[i], 0xff, 4));
        }
        assert_int_equal(model_self_test(k->m, why, sizeof(why)), -EIO);
        assert_non_null(strstr(why, "not finite"));
        mk_close(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_text_is_the_golden_one),
        cmocka_unit_test(test_answers_depend_on_the_request_alone),
        cmocka_unit_test(test_ref_is_invariant_too),
        cmocka_unit_test(test_cancelled_rows_leave_at_the_next_layer),
        cmocka_unit_test(test_all_spans_cancelled),
        cmocka_unit_test(test_fr_53_nonfinite_rows_fail_their_span_alone),
        cmocka_unit_test(test_scores_do_not_depend_on_chunks),
        cmocka_unit_test(test_masks_may_come_late),
        cmocka_unit_test(test_decode_reads_each_weight_once),
        cmocka_unit_test(test_a_long_chunk_reads_each_expert_once),
        cmocka_unit_test(test_pages_can_be_copied_and_moved),
        cmocka_unit_test(test_broken_plans_are_refused),
        cmocka_unit_test(test_sequences_are_counted),
        cmocka_unit_test(test_fr_19_self_test_gates_and_leaves_no_trace),
    };

    return test_main(tests, NULL, NULL);
}
