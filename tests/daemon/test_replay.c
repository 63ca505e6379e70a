/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What a step of the whole model costs the host on a GPU backend: every step is
 * graphs, captured when its shape first comes; the host waits once, takes no
 * memory, and so many kernels are launched. Runs with KT_BACKEND=cuda-emulated
 * or cuda (tests/cuemu/test_model.sh), else skips.
 */

#include "tests/daemon/mk.h"

#include <dlfcn.h>

#include "daemon/model/state.h"
#include "tests/cuemu/cuemu_load.h"
#include "tests/cuemu/fake_nccl.h"

/* What one decode step of step-tiny launches; tests/cuemu/roofline.py reads
 * these numbers here, and multiplies launch gaps with them.
 *
 *   MoE layer: norm, linear q k v gate, qkv (norms of q and k, RoPE, the KV
 *   write), attn (its gate), linear o, norm, router, expert_up, expert_down,
 *   where the shared expert goes along; two more where its weights are packed
 *   dense layer: mlp_up and linear down in place of the last three
 *   beside them: bad = 0, embed; settle; head: gather, norm, linear; sample,
 *   accept; the results side by side for the way to the host
 *   module: a dense layer; the linear that joins, linear of the head, sample;
 *   rows, embed, norms, copies */
#define MOE_LAYER 9
#define MOE_LAYER_COMPACT 11
#define DENSE_LAYER 8
#define BESIDE 9
#define MODULE 20

/* What else its stream has: graphs that start, copies from and to the host. */
#define GRAPHS_DEPTH_0 1
#define UPLOADS_DEPTH_0 1
#define DOWNLOADS_DEPTH_0 1
#define GRAPHS_DEPTH_3 1
#define UPLOADS_DEPTH_3 1
#define DOWNLOADS_DEPTH_3 1
/* Masks come while the trunk runs: a copy of their own, between two graphs. */
#define GRAPHS_MASKED 2
#define UPLOADS_MASKED 2
#define DOWNLOADS_MASKED 1

static const struct mk_backend *gpu(void)
{
    const struct mk_backend *b = mk_n_backends() > 0 ? mk_backend(0) : NULL;

    if (b == NULL || strncmp(b->name, "cuda", 4) != 0) {
        test_skip("REQUIRE_GPU", "KT_BACKEND names no GPU backend");
    }
    return b;
}

struct cost {
    uint64_t eager, replayed, waits;
    /* counted by the emulator alone */
    uint64_t graphs, captured, uploads, downloads;
    int64_t allocations;
};

/* The emulator's counters, once it is loaded; NULL: a device. */
static const struct cuemu_load *counted(void)
{
    char so[4096];
    void *lib;

    if (strcmp(gpu()->name, "cuda") == 0) {
        return NULL;
    }
    snprintf(so, sizeof(so), "%s/stepd-cuda-emulated.so",
             getenv("STEPD_PLUGIN_DIR"));
    lib = dlopen(so, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    return ((cuemu_load_stats_fn *)dlsym(lib, "cuemu_load_stats"))();
}

static struct cost step_cost(struct mk *k, struct mk_req **r, int n)
{
    static const struct cuemu_load none;
    const struct cuemu_load *l = counted() != NULL ? counted() : &none;
    struct kern_stats before = k->m->k->stats;
    struct cuemu_load l0 = *l;
    struct cost c;

    mk_step(k, r, n);
    c.eager = k->m->k->stats.launches - before.launches;
    c.replayed = k->m->k->stats.graph_launches - before.graph_launches;
    c.waits = k->m->k->stats.waits - before.waits;
    c.graphs = l->graphs - l0.graphs;
    c.captured = l->captured - l0.captured;
    c.allocations = l->live - l0.live;
    c.uploads = l->uploads - l0.uploads;
    c.downloads = l->downloads - l0.downloads;
    return c;
}

/* Of a replayed step without modules. */
static uint64_t kernels(const struct shape *s, int moe_layer)
{
    int n_moe = 0;

    for (int i = 0; i < s->n_layers; i++) {
        n_moe += s->layer[i].moe;
    }
    assert_in_range(n_moe, 2, s->n_layers - 1);
    return (uint64_t)(n_moe * moe_layer + (s->n_layers - n_moe) * DENSE_LAYER +
                      BESIDE);
}

static void check_beside(const struct cost *c, int graphs, int uploads,
                         int downloads)
{
    if (counted() != NULL) {
        assert_int_equal(c->graphs, graphs);
        assert_int_equal(c->uploads, uploads);
        assert_int_equal(c->downloads, downloads);
    }
}

static void start(struct mk *k, struct mk_req *r, int i, int depth, int n)
{
    const struct mk_case *c = &mk_cases(NULL)[i];
    struct model_sampling p = mk_greedy;
    int32_t prompt[MK_MAX];

    for (int j = 0; j < c->n_prompt; j++) {
        prompt[j] = c->prompt[j] % k->info->vocab;
    }
    p.max_drafts = depth;
    mk_start(k, r, &p, prompt, c->n_prompt, n);
}

/* Decode over page boundaries: the first step of a shape captures, all others
 * replay; shapes change when the number of pages doubles, no oftener. Over the
 * smallest model, for it takes many steps; its window of 16 tokens lies in one
 * page or two. */
static void test_decode_is_a_replay(void **state)
{
    static struct mk_req r;
    struct mk_req *one = &r;
    struct mk *k = mk_open(test_data_built("micro/micro-bf16"), gpu(), 0, 0);
    int n_captures = 0, n_steps = 0, n_shapes;

    (void)state;
    start(k, &r, 3, 0, 150);
    mk_step(k, &one, 1); /* the prompt */
    while (!r.done) {
        struct cost c = step_cost(k, &one, 1);

        assert_int_equal(c.eager, 0);
        assert_int_equal(c.waits, 1);
        assert_int_equal(c.allocations, 0);
        n_captures += c.captured > 0;
        n_steps++;
    }
    assert_in_range(r.len, 2 * MODEL_PAGE_TOK + 1, 3 * MODEL_PAGE_TOK);
    n_shapes = 3 * 2; /* 1, 2, 4 pages of one group, 1 or 2 of the other */
    assert_true(n_steps > 2 * MODEL_PAGE_TOK);
    if (counted() != NULL) {
        assert_in_range(n_captures, 2, n_shapes);
    }
    mk_end(k, &r);
    mk_close(k);
}

/* Sequences that come and go do not spoil each other's shapes. */
static void test_shapes_are_kept_apart(void **state)
{
    static struct mk_req r[2];
    struct mk_req *both[2] = {&r[0], &r[1]};
    struct mk *k = mk_open(test_data("step-tiny"), gpu(), 0, 0);

    (void)state;
    start(k, &r[0], 3, 0, 40);
    start(k, &r[1], 4, 0, 40);
    for (int i = 0; i < 8; i++) {
        mk_step(k, both, 1 + i % 2);
    }
    for (int i = 0; i < 8; i++) {
        struct cost c = step_cost(k, both, 1 + i % 2);

        assert_int_equal(c.eager, 0);
        assert_int_equal(c.captured, 0);
        assert_int_equal(c.waits, 1);
    }
    mk_end(k, &r[0]);
    mk_end(k, &r[1]);
    mk_close(k);
}

/* A step with drafts: trunk, verification, modules and all in one wait. */
static void test_drafting_waits_once(void **state)
{
    static struct mk_req r;
    struct mk_req *one = &r;
    struct mk *k = mk_open(test_data("step-tiny"), gpu(), -1, 0);
    int n_steps = 0;

    (void)state;
    start(k, &r, 3, 3, 60);
    while (!r.done) {
        struct cost c = step_cost(k, &one, 1);

        assert_int_equal(c.waits, 1);
        assert_int_equal(c.eager, 0);
        if (n_steps++ > 0) { /* the prompt is another shape */
            assert_int_equal(c.replayed,
                             kernels(k->m->s, MOE_LAYER) + 3 * MODULE);
            check_beside(&c, GRAPHS_DEPTH_3, UPLOADS_DEPTH_3,
                         DOWNLOADS_DEPTH_3);
        }
    }
    assert_true(n_steps > 5);
    mk_end(k, &r);
    mk_close(k);
}

/* Histories that grow take no memory, which a device whose pools are full has
 * not, and spoil no graph: penalties are one copy more. */
static void test_penalties_are_one_copy(void **state)
{
    static struct mk_req r;
    struct mk_req *one = &r;
    struct mk *k = mk_open(test_data("step-tiny"), gpu(), -1, 0);
    const struct mk_case *c = &mk_cases(NULL)[3];
    struct model_sampling p = mk_greedy;
    int n_steps = 0;

    (void)state;
    p.max_drafts = 3;
    p.repetition = 1.1f;
    mk_start(k, &r, &p, c->prompt, c->n_prompt, 60);
    while (!r.done) {
        struct cost cost = step_cost(k, &one, 1);

        assert_int_equal(cost.eager, 0);
        assert_int_equal(cost.waits, 1);
        assert_int_equal(cost.allocations, 0);
        if (n_steps++ > 0) {
            check_beside(&cost, GRAPHS_DEPTH_3, UPLOADS_DEPTH_3 + 1,
                         DOWNLOADS_DEPTH_3);
        }
    }
    assert_true(n_steps > 5);
    mk_end(k, &r);
    mk_close(k);
}

/* The numbers of kernels and copies. */
static void check_kernels(enum model_weights weights, int moe_layer)
{
    static struct mk_req r;
    struct mk_req *one = &r;
    struct mk *k =
        mk_open_as(test_data("step-tiny"), gpu(), 0, 0, weights, NULL, NULL);
    struct cost c = {0};

    start(k, &r, 3, 0, 8);
    while (!r.done) {
        c = step_cost(k, &one, 1);
    }
    assert_int_equal(c.replayed, kernels(k->m->s, moe_layer));
    check_beside(&c, GRAPHS_DEPTH_0, UPLOADS_DEPTH_0, DOWNLOADS_DEPTH_0);
    mk_end(k, &r);
    mk_close(k);
}

static uint32_t mask[MK_MAX];

static void masks_ready(void *ctx)
{
    memset(mask, 0xff, sizeof(mask));
    (void)ctx;
}

/* A step with masks, however many rows have one. */
static void test_masks_are_one_copy(void **state)
{
    static struct mk_req r[2];
    static int32_t ids[2][MK_MAX];
    struct mk *k = mk_open(test_data("step-tiny"), gpu(), 0, 0);
    struct model_out out[2];
    struct model_span span[2];
    struct model_plan plan = {
        .span = span, .n_spans = 2, .masks_ready = masks_ready};
    const struct cuemu_load *l = counted();
    uint64_t first = 0;

    (void)state;
    assert_true((size_t)(k->info->vocab + 31) / 32 <= MK_MAX);
    for (int i = 0; i < 3; i++) {
        struct kern_stats s0 = k->m->k->stats;
        struct cuemu_load l0 = l != NULL ? *l : (struct cuemu_load){0};

        for (int j = 0; j < 2; j++) {
            start(k, &r[j], 3 + j, 0, 4);
            span[j] = mk_span(k, &r[j], 512, ids[j]);
            span[j].mask = mask;
        }
        mk_ok(k, model_submit(k->m, &plan));
        mk_ok(k, model_collect(k->m, out, 2));
        assert_int_equal(out[0].status, 0);
        assert_int_equal(k->m->k->stats.launches, s0.launches);
        assert_int_equal(k->m->k->stats.waits, s0.waits + 1);
        if (l != NULL) {
            assert_int_equal(l->graphs - l0.graphs, GRAPHS_MASKED);
            assert_int_equal(l->uploads - l0.uploads, UPLOADS_MASKED);
            assert_int_equal(l->downloads - l0.downloads, DOWNLOADS_MASKED);
            first = i == 0 ? l->captured : first;
            assert_int_equal(l->captured, first);
        }
        mk_end(k, &r[0]);
        mk_end(k, &r[1]);
    }
    mk_close(k);
}

static void test_kernels_of_a_decode_step(void **state)
{
    (void)state;
    check_kernels(MODEL_MAP, MOE_LAYER);
    check_kernels(MODEL_COMPACT, MOE_LAYER_COMPACT);
}

/* With two devices a decode step joins rows twice a layer, after o and after
 * down, and the logits once. */
static void test_joins_of_a_decode_step(void **state)
{
    static struct mk_req r;
    struct mk_req *one = &r;
    const struct mk_backend *b = gpu();
    void *so = dlopen(NCCL_SONAME, RTLD_NOW | RTLD_LOCAL);
    struct fake_nccl *f = so != NULL ? dlsym(so, "fake_nccl") : NULL;
    struct mk *k;
    int n;

    (void)state;
    if (strcmp(b->name, "cuda") == 0 || f == NULL) {
        test_skip(NULL,
                  "the emulator alone has a second device, with " NCCL_SONAME
                  " of the tests");
    }
    f->scale[1] = 1;
    setenv("STEPD_CUEMU_RANKS", "0/2", 1);
    k = mk_open(test_data("step-tiny"), b, 0, 0);
    start(k, &r, 3, 0, 4);
    mk_step(k, &one, 1); /* the prompt */
    f->n_log = 0;
    mk_step(k, &one, 1);
    unsetenv("STEPD_CUEMU_RANKS");
    n = 2 * k->m->s->n_layers;
    assert_int_equal(f->n_log, n + 1);
    for (int i = 0; i < n; i++) {
        assert_int_equal(f->log[i].count, k->m->s->hidden);
    }
    assert_int_equal(f->log[n].count, (k->m->s->vocab + 1) / 2);
    mk_end(k, &r);
    mk_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_is_a_replay),
        cmocka_unit_test(test_shapes_are_kept_apart),
        cmocka_unit_test(test_drafting_waits_once),
        cmocka_unit_test(test_penalties_are_one_copy),
        cmocka_unit_test(test_masks_are_one_copy),
        cmocka_unit_test(test_kernels_of_a_decode_step),
        cmocka_unit_test(test_joins_of_a_decode_step),
    };

    return test_main(tests, NULL, NULL);
}
