/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Drafting: it never changes an answer, it proposes what the reference says it
 * should, and whatever is accepted, cut, forced or taken back, the cache of
 * every committed slot equals that of a pass over the final tokens. The golden
 * logits of the modules are in test_forward.c.
 */

#include "tests/daemon/mk.h"

#include <errno.h>

#include "daemon/model/state.h"
#include "tests/ckpt.h"

static struct mk *open_tiny(const struct mk_backend *b)
{
    return mk_open(test_data("step-tiny"), b, -1, 0);
}

/* ---- lossless ---- */

/* Cases first .. first + n - 1, `at_once` a step. */
static void run_cases(const struct mk_backend *b, int first, int n, int at_once,
                      float temperature, int max_drafts, struct mk_req *ret)
{
    const struct mk_case *c = mk_cases(NULL);
    struct mk *k = open_tiny(b);

    for (int at = 0; at < n; at += at_once) {
        struct mk_req *all[16];
        int m = 0;

        for (int i = at; i < n && i < at + at_once; i++) {
            const struct mk_case *one = &c[(first + i) % MK_N_CASES];
            struct model_sampling p = mk_greedy;

            p.temperature = temperature;
            p.seed = 77u + (uint64_t)(first + i);
            p.max_drafts = max_drafts;
            p.top_p = i % 3 == 1 ? 0.95f : 1;
            p.repetition = i % 4 == 2 ? 1.05f : 1;
            p.frequency = i % 4 == 3 ? 0.1f : 0;
            mk_start(k, &ret[i], &p, one->prompt, one->n_prompt, 24);
            ret[i].eos = true;
            all[m++] = &ret[i];
        }
        mk_run(k, all, m);
        for (int i = 0; i < m; i++) {
            mk_end(k, all[i]);
        }
        mk_reuse_pages(k);
    }
    mk_close(k);
}

static void test_fr_47_drafts_never_change_an_answer(void **state)
{
    static const float temperature[] = {0, 0.7f, 1};
    static struct mk_req plain[MK_N_CASES], got[MK_N_CASES];

    (void)state;
    for (int b = 1; b < mk_n_backends(); b++) {
        const struct mk_backend *on = mk_backend(b);
        bool best = on == mk_best();
        int accepted = 0;

        for (int t = 0; t < 3; t++) {
            int most = best ? 12 : 3; /* 200 of them: test_lossless.c */

            run_cases(on, t, most, 4, temperature[t], 0, plain);
            for (int depth = 1; depth <= 3; depth++) {
                char what[64];

                run_cases(on, t, most, depth == 2 ? 1 : 8, temperature[t],
                          depth, got);
                snprintf(what, sizeof(what), "%s T %g drafts %d", on->name,
                         (double)temperature[t], depth);
                for (int i = 0; i < most; i++) {
                    mk_assert_same(what, i, &got[i], &plain[i]);
                    accepted += got[i].n_accepted;
                }
            }
        }
        assert_true(accepted > 0);
    }
}

/* ---- acceptance ---- */

/* CI floor on what drafting is worth: field report 43; and 44's healthy first
 * position. */
static void test_fr_43_mean_acceptance_is_the_reference_one(void **state)
{
    static struct mk_req r[MK_N_CASES];
    struct mk *k = open_tiny(mk_best());
    struct model_sampling p = mk_greedy;
    double golden;
    int drafts = 0, accepted = 0;

    (void)state;
    p.max_drafts = 3;
    for (int i = 0; i < MK_N_CASES; i++) {
        const struct mk_case *c = &mk_cases(&golden)[i];
        struct mk_req *one = &r[i];

        mk_start(k, one, &p, c->prompt, c->n_prompt, 120);
        one->eos = true;
        mk_run(k, &one, 1);
        mk_end(k, one);
        mk_reuse_pages(k);
        drafts += r[i].n_drafts;
        accepted += r[i].n_accepted;
    }
    printf("mean acceptance length %.4f over %d drafts (reference %.4f)\n",
           1 + (double)accepted / drafts, drafts, golden);
    assert_true(1 + (double)accepted / drafts >= 0.98 * golden);
    mk_close(k);
}

/* ---- the cache ---- */

/* K and V of one slot of a layer, out of an exported page; 2 KV heads. */
static void slot_of(struct mk *k, const struct mk_req *r, int layer, int slot,
                    uint16_t ret[2][2][128])
{
    enum model_group g = k->m->kv.group[layer];
    static char *page;
    size_t bytes = model_page_bytes(k->m, g), off = 0;
    const uint16_t *at;

    page = realloc(page, bytes);
    assert_non_null(page);
    mk_ok(k, model_export_page(k->m, g, r->page[g][slot / 64], page));
    for (int i = 0; i < layer; i++) {
        off += k->m->kv.group[i] == g ? k->m->kv.layer[i].page_bytes : 0;
    }
    at = (const uint16_t *)(page + off);
    for (int kv = 0; kv < 2; kv++) {
        for (int h = 0; h < 2; h++) {
            memcpy(ret[kv][h], at + ((kv * 2 + h) * 64 + slot % 64) * 128,
                   sizeof(ret[kv][h]));
        }
    }
}

/* Every committed slot of every layer from `from` on, MTP slots from r0 + k on,
 * against a run that was given all tokens at once. */
static void check_cache(struct mk *k, struct mk_req *r, int r0)
{
    static struct mk_req forced;
    struct mk_req *one = &forced;
    struct model_sampling p = mk_greedy;

    p.max_drafts = -1;
    /* an answer may have been cut inside an accepted block */
    mk_start(k, &forced, &p, r->ids, r->len < r->n_ids ? r->len : r->n_ids, 1);
    forced.keep = true;
    mk_step(k, &one, 1);
    for (int layer = 0; layer < k->m->kv.n_layers; layer++) {
        int module = layer - k->info->n_layers + 1;

        for (int u = module > 0 ? r0 + module : 0; u < forced.len; u++) {
            uint16_t a[2][2][128], b[2][2][128];

            slot_of(k, r, layer, u, a);
            slot_of(k, &forced, layer, u, b);
            if (memcmp(a, b, sizeof(a)) != 0) {
                fail_msg("%s: layer %d (module %d): slot %d of %d", k->name,
                         layer, module, u, forced.len);
            }
        }
    }
    mk_end(k, &forced);
}

static void test_fr_47_committed_slots_equal_a_pass_over_the_tokens(
    void **state)
{
    static struct mk_req r;

    (void)state;
    for (int b = 0; b < mk_n_backends(); b++) {
        struct mk *k = open_tiny(mk_backend(b));

        for (int i = 0; i < (mk_is_slow(mk_backend(b)) ? 1 : 6); i++) {
            const struct mk_case *c = &mk_cases(NULL)[3 + i];
            struct model_sampling p = mk_greedy;
            struct mk_req *one = &r;
            uint64_t seed = 5 + (uint64_t)i;

            p.max_drafts = 3;
            p.temperature = i % 2 == 0 ? 0 : 2; /* hot: drafts get rejected */
            p.seed = 9;
            mk_start(k, &r, &p, c->prompt, c->n_prompt, 40);
            r.keep = true;
            r.chunk = 1 + i * 11;
            while (!r.done) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                r.cut = (int)(seed >> 62); /* 0..3 of the pending ones */
                mk_step(k, &one, 1);
            }
            check_cache(k, &r, 0);
            mk_end(k, &r);
        }
        mk_close(k);
    }
}

/* ---- other ways on ---- */

static void test_forced_tokens_drop_what_was_made_with_others(void **state)
{
    static struct mk_req r;
    const struct mk_case *c = &mk_cases(NULL)[0];
    struct model_sampling p = mk_greedy;
    struct mk_req *one = &r;
    struct mk *k = open_tiny(mk_best());

    (void)state;
    p.max_drafts = 3;
    mk_start(k, &r, &p, c->prompt, c->n_prompt, 40);
    r.keep = true;
    for (int i = 0; !r.done; i++) {
        if (i > 0 && i % 2 == 0) {
            /* another token than the drawn one, and two more after it */
            r.ids[r.n_ids - 1] = 300 + i;
            r.ids[r.n_ids++] = 400 + i;
            r.ids[r.n_ids++] = 500 + i;
        } else if (i > 0 && i % 3 == 0) {
            /* the drawn one, then another than the first draft */
            r.ids[r.n_ids++] = 600 + i;
        }
        mk_step(k, &one, 1);
        if (r.n_ids - r.n_prompt > 34) {
            break;
        }
    }
    check_cache(k, &r, 0);
    mk_close(k);
}

/* Moves r's pages and aux to a new sequence. */
static void resume(struct mk *k, const struct mk_req *r, const void *aux,
                   struct mk_req *ret)
{
    mk_start(k, ret, &r->p, r->ids, r->len, r->max_new);
    ret->keep = true;
    ret->chunk = r->chunk;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        for (int i = 0; i < ret->n_pages && i < r->n_pages; i++) {
            mk_ok(k, model_copy_page(k->m, g, ret->page[g][i], r->page[g][i]));
        }
    }
    mk_ok(k, model_seq_at(k->m, ret->seq, r->len, aux));
    ret->len = r->len;
    ret->n_prompt = r->len;
    memcpy(ret->ids, r->ids, sizeof(r->ids));
    ret->n_ids = r->n_ids;
}

/* A stop token inside an accepted block: the sequence goes back by a few
 * tokens, then on with other ones (the next turn). */
static void test_going_back_a_few_tokens_keeps_the_run(void **state)
{
    static struct mk_req r, next;
    const struct mk_case *c = &mk_cases(NULL)[1];
    struct model_sampling p = mk_greedy;
    struct mk_req *one = &r, *two = &next;
    struct mk *k = open_tiny(mk_best());
    char *aux = malloc(model_aux_bytes(k->m));

    (void)state;
    assert_non_null(aux);
    p.max_drafts = 3;
    for (int back = 0; back <= MODEL_MAX_BACK; back++) {
        mk_start(k, &r, &p, c->prompt, c->n_prompt, 40);
        r.keep = true;
        for (int i = 0; i < 4; i++) {
            mk_step(k, &one, 1);
        }
        assert_true(r.n_accepted > 2);
        r.len -= back;
        mk_ok(k, model_seq_at(k->m, r.seq, r.len, NULL));
        assert_int_equal(model_seq_r0(k->m, r.seq), 0);
        r.n_ids = r.len;
        for (int i = 0; i < 9; i++) {
            r.ids[r.n_ids++] = 200 + 7 * i;
        }
        /* and what is carried is that of the new end */
        mk_ok(k, model_seq_aux(k->m, r.seq, model_seq_len(k->m, r.seq), aux));
        resume(k, &r, aux, &next);
        next.chunk = r.chunk = 4;
        for (int i = 0; i < 4; i++) {
            mk_step(k, &two, 1);
        }
        check_cache(k, &next, 0);
        mk_end(k, &next);
        for (int i = 0; i < 5; i++) {
            mk_step(k, &one, 1);
        }
        check_cache(k, &r, 0);
        mk_end(k, &r);
    }
    free(aux);
    /* further back the run is lost, which costs drafts and nothing else */
    mk_ok(k, model_seq_open(k->m, &p, NULL, 0, 0, &r.seq));
    mk_ok(k, model_seq_at(k->m, r.seq, 100, NULL));
    assert_int_equal(model_seq_r0(k->m, r.seq), -1);
    mk_close(k);
}

static void test_aux_carries_the_run_to_another_sequence(void **state)
{
    static struct mk_req r, next;
    const struct mk_case *c = &mk_cases(NULL)[4];
    struct model_sampling p = mk_greedy;
    struct mk_req *one = &r, *two = &next;
    struct mk *k = open_tiny(mk_best());
    char *aux = malloc(model_aux_bytes(k->m));
    int32_t want[3], got[3];

    (void)state;
    assert_non_null(aux);
    p.max_drafts = 3;
    for (int steps = 1; steps < 5; steps++) {
        mk_start(k, &r, &p, c->prompt, c->n_prompt, 60);
        r.keep = true;
        r.chunk = 10;
        for (int i = 0; i < steps; i++) {
            mk_step(k, &one, 1);
        }
        mk_ok(k, model_seq_aux(k->m, r.seq, model_seq_len(k->m, r.seq), aux));
        resume(k, &r, aux, &next);
        assert_int_equal(model_seq_aux(k->m, 99, 0, aux), -EINVAL);
        /* without drafts pending the next token comes first */
        r.cut = 0;
        mk_step(k, &one, 1);
        mk_step(k, &two, 1);
        assert_int_equal(model_drafts(k->m, r.seq, want),
                         model_drafts(k->m, next.seq, got));
        assert_memory_equal(got, want,
                            (size_t)model_drafts(k->m, r.seq, want) * 4);
        check_cache(k, &next, 0);
        mk_end(k, &next);
        /* an aux record of another point is refused */
        mk_ok(k, model_seq_open(k->m, &p, NULL, 0, 0, &next.seq));
        mk_ok(k, model_seq_aux(k->m, r.seq, model_seq_len(k->m, r.seq), aux));
        assert_int_equal(model_seq_at(k->m, next.seq, r.len + 1, aux), -EINVAL);
        aux[0] ^= 1;
        assert_int_equal(model_seq_at(k->m, next.seq, r.len, aux), -EINVAL);
        mk_end(k, &next);
        mk_end(k, &r);
    }
    free(aux);
    mk_close(k);
}

/* Drafting switched on late: r0 is where it began; 3(W-1) rows later the slots
 * are those of a cold run, and until then the answer is right all the same. */
static void test_a_gap_heals_after_three_windows(void **state)
{
    static struct mk_req r, late;
    const struct mk_case *c = &mk_cases(NULL)[5]; /* 265 tokens */
    struct model_sampling p = mk_greedy;
    struct mk_req *one = &r, *two = &late;
    struct mk *k = open_tiny(mk_best());
    int at = 70, heal = at + 3 * (k->info->window - 1);

    (void)state;
    assert_true(c->n_prompt > heal + 3);
    mk_start(k, &r, &p, c->prompt, c->n_prompt, 4);
    r.keep = true;
    r.chunk = at;
    mk_step(k, &one, 1);
    assert_int_equal(r.len, at);
    assert_int_equal(model_seq_r0(k->m, r.seq), -1);
    /* the same pages under a sequence that drafts */
    p.max_drafts = 3;
    mk_start(k, &late, &p, c->prompt, c->n_prompt, 4);
    memcpy(late.page, r.page, sizeof(late.page));
    late.keep = true;
    late.chunk = 33;
    mk_ok(k, model_seq_at(k->m, late.seq, at, NULL));
    late.len = at;
    while (!late.done) {
        mk_step(k, &two, 1);
    }
    assert_int_equal(model_seq_r0(k->m, late.seq), at);
    r.chunk = 0;
    mk_start(k, &r, &mk_greedy, c->prompt, c->n_prompt, 4);
    mk_run(k, &one, 1);
    mk_assert_same("after a gap", 5, &late, &r);
    check_cache(k, &late, heal);
    mk_close(k);
}

static void test_depth_follows_wish_and_pages(void **state)
{
    static struct mk_req r;
    static int32_t ids[MK_MAX];
    int32_t draft[3];
    struct mk *k = open_tiny(mk_best());
    struct model_sampling p = mk_greedy;
    const struct mk_case *c = &mk_cases(NULL)[5];

    (void)state;
    for (int pass = 0; pass < 6; pass++) {
        /* rows to the end of a page: the drafts' slots would lie past it */
        static const int rows[] = {20, 20, 20, 64, 63, 62};
        static const int wish[] = {-1, 2, 0, -1, -1, -1};
        static const int want[] = {3, 2, 0, 0, 1, 2};
        struct model_span span;
        struct model_plan plan = {.span = &span, .n_spans = 1};
        struct model_out out;

        p.max_drafts = -1;
        mk_start(k, &r, &p, c->prompt, rows[pass], 8);
        span = mk_span(k, &r, 512, ids);
        span.draft_next = wish[pass];
        span.n_pages[MODEL_SLIDING] = 1;
        mk_ok(k, model_submit(k->m, &plan));
        mk_ok(k, model_collect(k->m, &out, 1));
        assert_int_equal(model_drafts(k->m, r.seq, draft), want[pass]);
        mk_end(k, &r);
    }
    mk_close(k);
}

static void test_drafts_off_loads_no_modules(void **state)
{
    static struct mk_req r;
    struct mk *k = mk_open(test_data("step-tiny"), mk_best(), 0, 0);
    const struct mk_case *c = &mk_cases(NULL)[0];
    struct model_sampling p = mk_greedy;
    struct mk_req *one = &r;
    struct model_stats s;

    (void)state;
    p.max_drafts = 3;
    mk_start(k, &r, &p, c->prompt, c->n_prompt, 8);
    mk_run(k, &one, 1);
    model_stats(k->m, &s);
    assert_int_equal(s.drafts, 0);
    assert_int_equal(s.layers, 8 * (uint64_t)k->info->n_layers);
    mk_close(k);
}

/* ---- the chain ---- */

enum { CHAIN_ROWS = 40, CHAIN_VOCAB = 512, CHAIN_HIDDEN = 96 };

/* What a prompt makes of each level, and the drafts after it. */
struct chain {
    int n[FORWARD_LEVELS];
    float hidden[FORWARD_LEVELS][(CHAIN_ROWS + 3) * CHAIN_HIDDEN];
    float logits[FORWARD_LEVELS][(CHAIN_ROWS + 3) * CHAIN_VOCAB];
    int32_t draft[MODEL_MAX_DRAFTS];
};

static void run_chain(const char *dir, struct chain *ret)
{
    static struct mk_req r;
    struct mk_req *one = &r;
    struct model_sampling p = mk_greedy;
    struct mk *k = mk_open(dir, mk_best(), -1, 0);
    struct model_stats s;
    int32_t prompt[CHAIN_ROWS];

    for (int i = 0; i < CHAIN_ROWS; i++) {
        prompt[i] = (i * 131 + 7) % CHAIN_VOCAB;
    }
    p.max_drafts = 3;
    mk_start(k, &r, &p, prompt, CHAIN_ROWS, 4);
    mk_ok(k, model_trace(k->m, true));
    mk_step(k, &one, 1);
    for (int level = 0; level < FORWARD_LEVELS; level++) {
        ret->n[level] = model_traced(k->m, level, ret->hidden[level],
                                     ret->logits[level], CHAIN_ROWS + 3);
        assert_true(ret->n[level] >= CHAIN_ROWS);
    }
    assert_int_equal(model_drafts(k->m, r.seq, ret->draft), 3);
    model_stats(k->m, &s);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s.proposed_by[i], 1);
    }
    mk_end(k, &r);
    mk_close(k);
}

/* Draft k is what head k thinks likeliest after the last row, none other. */
static void assert_own_heads(const struct chain *c)
{
    for (int k = 1; k <= 3; k++) {
        const float *row = c->logits[k] + (c->n[k] - 1) * CHAIN_VOCAB;

        for (int i = 0; i < CHAIN_VOCAB; i++) {
            assert_true(row[i] <= row[c->draft[k - 1]]);
        }
    }
}

/* fr_38, fr_40, fr_42: module k is fed by module k - 1 and by the last
 * row, and each step takes its own module. Damage to one module's body shows in
 * it and in all after it, damage to its head in its logits alone. */
static void test_fr_38_40_42_each_module_feeds_the_next(void **state)
{
    static struct chain whole, hurt;
    struct synth s;
    char *dir;

    (void)state;
    assert_true(synth_preset(&s, "micro"));
    s.dialect = SYNTH_BF16;
    dir = ckpt_synth(&s);
    run_chain(dir, &whole);
    assert_own_heads(&whole);
    assert_true(whole.draft[0] != whole.draft[1] &&
                whole.draft[1] != whole.draft[2]);
    ckpt_remove(dir);
    for (int part = 0; part < 2; part++) {
        for (int k = 1; k <= 3; k++) {
            char name[128];

            dir = ckpt_synth(&s);
            snprintf(name, sizeof(name), "model.layers.%d.%s",
                     s.n_layers + k - 1,
                     part == 0 ? "eh_proj.weight"
                               : "transformer.shared_head.output.weight");
            ckpt_poke(dir, name, 1, 0x42); /* the first number: tens */
            run_chain(dir, &hurt);
            assert_own_heads(&hurt);
            for (int level = 0; level <= 3; level++) {
                bool body = part == 0 && level >= k;
                bool head = part == 1 && level == k;

                /* the drafts' rows too, which depend on earlier drafts */
                assert_int_equal(
                    memcmp(whole.hidden[level], hurt.hidden[level],
                           CHAIN_ROWS / 2 * CHAIN_HIDDEN * sizeof(float)) != 0,
                    body);
                assert_int_equal(
                    memcmp(whole.logits[level], hurt.logits[level],
                           CHAIN_ROWS / 2 * CHAIN_VOCAB * sizeof(float)) != 0,
                    body || head);
            }
            ckpt_remove(dir);
        }
    }
}

/* ---- the engine's choice ---- */

/* Field report 44: heads that propose noise. The answers are the same; where
 * the depth is the engine's choice drafting ends, and with it the modules'
 * passes; a request that wants drafts gets them. */
static void test_fr_44_a_drafter_of_noise_is_switched_off(void **state)
{
    static struct mk_req r;
    struct mk_req *one = &r;
    struct model_sampling p = mk_greedy;
    struct model_stats a, b;
    struct synth s;
    struct mk *k;
    char *dir;

    (void)state;
    assert_true(synth_preset(&s, "micro"));
    s.cycle = true;
    s.accept[0] = 0.02;
    dir = ckpt_synth(&s);
    k = mk_open(dir, mk_best(), -1, 0);
    for (int want = -1; want <= 3; want += 4) {
        int32_t prompt = 77;

        p.max_drafts = want;
        mk_start(k, &r, &p, &prompt, 1, 700);
        for (int i = 0; !r.done; i++) {
            model_stats(k->m, &a);
            mk_step(k, &one, 1);
            model_stats(k->m, &b);
            if (a.drafter_is_off && want < 0) {
                assert_int_equal(b.proposed_by[0], a.proposed_by[0]);
                assert_int_equal(b.layers - a.layers, k->info->n_layers);
            } else if (want == 3 && i > 0 && !r.done) {
                assert_int_equal(b.proposed_by[2], a.proposed_by[2] + 1);
            }
        }
        assert_true(b.drafter_is_off);
        for (int i = 1; i < r.n_ids; i++) {
            assert_int_equal(r.ids[i], synth_next(&s, r.ids[i - 1]));
        }
        mk_end(k, &r);
        mk_reuse_pages(k);
    }
    mk_close(k);
    ckpt_remove(dir);
}

/* Whatever depths the engine takes, probes included, with many at once. */
static void test_chosen_depths_never_change_an_answer(void **state)
{
    enum { N = 4, NEW = 150 };
    static struct mk_req plain[N], chosen[N];
    struct mk_req *all[N];
    int depths = 0;

    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        struct mk_req *r = pass == 0 ? plain : chosen;
        struct mk *k = open_tiny(mk_best());

        for (int i = 0; i < N; i++) {
            const struct mk_case *c = &mk_cases(NULL)[10 + i];
            struct model_sampling p = mk_greedy;

            p.temperature = (float)(i % 2) * 0.7f;
            p.seed = (uint64_t)i;
            p.max_drafts = pass == 0 ? 0 : -1;
            mk_start(k, &r[i], &p, c->prompt, c->n_prompt, NEW);
            all[i] = &r[i];
        }
        while (!r[0].done || !r[1].done || !r[2].done || !r[3].done) {
            struct model_stats s;

            mk_step(k, all, N);
            model_stats(k->m, &s);
            depths |= pass == 0 ? 0 : 1 << s.depth;
        }
        for (int i = 0; i < N; i++) {
            mk_end(k, &r[i]);
        }
        mk_close(k);
    }
    assert_true((depths & (depths - 1)) != 0); /* more than one */
    for (int i = 0; i < N; i++) {
        mk_assert_same("chosen depths", i, &chosen[i], &plain[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fr_47_drafts_never_change_an_answer),
        cmocka_unit_test(test_fr_43_mean_acceptance_is_the_reference_one),
        cmocka_unit_test(
            test_fr_47_committed_slots_equal_a_pass_over_the_tokens),
        cmocka_unit_test(test_forced_tokens_drop_what_was_made_with_others),
        cmocka_unit_test(test_going_back_a_few_tokens_keeps_the_run),
        cmocka_unit_test(test_aux_carries_the_run_to_another_sequence),
        cmocka_unit_test(test_a_gap_heals_after_three_windows),
        cmocka_unit_test(test_depth_follows_wish_and_pages),
        cmocka_unit_test(test_drafts_off_loads_no_modules),
        cmocka_unit_test(test_fr_38_40_42_each_module_feeds_the_next),
        cmocka_unit_test(test_fr_44_a_drafter_of_noise_is_switched_off),
        cmocka_unit_test(test_chosen_depths_never_change_an_answer),
    };

    return test_main(tests, NULL, NULL);
}
