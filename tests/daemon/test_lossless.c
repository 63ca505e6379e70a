/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Drafts never change an answer, at scale: 200 prompts of the bundled model,
 * each at three temperatures and every depth, alone and in a batch, tokens and
 * logprobs to the bit. And what that rests on: masks hold per position inside a
 * block, and slots past the end are never read. How drafts arise: test_mtp.c.
 */

#include <math.h>

#include "daemon/model/state.h"
#include "kernels/sample.h"
#include "tests/daemon/mk.h"

/* make check takes a fifth of the prompts, one of each conversation; with
 * STEPD_TEST_WHOLE=1 all of them. Where every access is watched, fewer are
 * enough: the answers are compared in the other builds. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { N_PROMPTS = 16, N_SOME = 16, N_CASES = 8 };
#else
enum { N_PROMPTS = 200, N_SOME = 40, N_CASES = 24 };
#endif
enum { AT_ONCE = 16, NEW = 8, N_ALL = 200 };

static int n_prompts;

/* One thread: small steps, and other tests run beside this one. */
static struct mk *open_tiny(void)
{
    struct mk_backend b = *mk_best();

    b.n_threads = 1;
    return mk_open(test_data("step-tiny"), &b, -1, 0);
}

/* ---- 200 prompts --------------------------------------------------------- */

/* Of each of 40 conversations five beginnings, 6 to 32 tokens long. A third of
 * them has a bias, half of them logprobs of what was drawn from. */
static void start(struct mk *k, struct mk_req *r, int i, float temperature,
                  int depth)
{
    const struct mk_case *c;
    static const struct model_bias bias[] = {
        {'e', 0.75f}, {' ', -1.5f}, {300, 2}, {1000, -100}, {10, 0.5f}};
    struct model_sampling p = mk_greedy;
    int n;

    i = i * 23 % N_ALL; /* the first few are of all kinds */
    c = &mk_cases(NULL)[i % MK_N_CASES];
    n = 6 + i / MK_N_CASES * 4 + i % 11;
    p.temperature = temperature;
    p.seed = 1000u + (uint64_t)i;
    p.max_drafts = depth;
    p.top_p = i % 3 == 1 ? 0.95f : 1;
    p.top_k = i % 5 == 4 ? 30 : 0;
    p.repetition = i % 4 == 2 ? 1.05f : 1;
    p.frequency = i % 4 == 3 ? 0.1f : 0;
    p.bias = bias;
    p.n_bias = i % 3 == 0 ? 5 : 0;
    p.of_drawn = i % 2 == 1;
    mk_start(k, r, &p, c->prompt, n < c->n_prompt ? n : c->n_prompt, NEW);
    r->eos = true;
}

/* What is kept of an answer. */
struct kept {
    int n;
    int32_t id[NEW];
    float logprob[NEW];
    int n_accepted;
};

static void keep(const struct mk_req *r, struct kept *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->n_accepted = r->n_accepted;
    for (int i = r->n_prompt; i < r->n_ids; i++) {
        ret->id[ret->n] = r->ids[i];
        ret->logprob[ret->n++] = r->logprob[i];
    }
}

/* Every step'th prompt from `first` on, at_once of them together. */
static void answer(struct mk *k, int first, int step, int at_once,
                   float temperature, int depth, struct kept *ret)
{
    static struct mk_req r[AT_ONCE];

    for (int i = first; i < n_prompts;) {
        struct mk_req *all[AT_ONCE];
        int n = 0, at[AT_ONCE];

        for (; n < at_once && i < n_prompts; i += step) {
            start(k, &r[n], i, temperature, depth);
            at[n] = i;
            all[n] = &r[n];
            n++;
        }
        mk_run(k, all, n);
        for (int j = 0; j < n; j++) {
            mk_end(k, &r[j]);
            keep(&r[j], &ret[at[j]]);
        }
        mk_reuse_pages(k);
    }
}

static void assert_same(const char *what, float temperature, int depth, int i,
                        const struct kept *got, const struct kept *want)
{
    if (got->n != want->n || memcmp(got->id, want->id, sizeof(got->id)) != 0 ||
        memcmp(got->logprob, want->logprob, sizeof(got->logprob)) != 0) {
        fail_msg("prompt %d %s, T %g, drafts %d: another answer", i, what,
                 (double)temperature, depth);
    }
}

static void test_fr_47_200_prompts_at_every_depth(void **state)
{
    static const float temperature[] = {0, 0.7f, 1};
    static struct kept plain[N_PROMPTS], got[N_PROMPTS];
    struct mk *k = open_tiny();

    (void)state;
    n_prompts = getenv("STEPD_TEST_WHOLE") != NULL ? N_PROMPTS : N_SOME;
    for (int t = 0; t < 3; t++) {
        int accepted = 0, drawn = 0;

        answer(k, 0, 1, AT_ONCE, temperature[t], 0, plain);
        for (int depth = 1; depth <= 3; depth++) {
            answer(k, 0, 1, AT_ONCE, temperature[t], depth, got);
            for (int i = 0; i < n_prompts; i++) {
                assert_same("batched", temperature[t], depth, i, &got[i],
                            &plain[i]);
                accepted += got[i].n_accepted;
                drawn += got[i].n;
            }
        }
        /* alone: a quarter of them at each depth, so all at each temperature;
         * when all are asked for, each at every depth */
        for (int depth = 0; depth <= 3; depth++) {
            int step = n_prompts == N_ALL ? 1 : 4, first = (depth + t) % step;

            answer(k, first, step, 1, temperature[t], depth, got);
            for (int i = first; i < n_prompts; i += step) {
                assert_same("alone", temperature[t], depth, i, &got[i],
                            &plain[i]);
            }
        }
        assert_true(drawn > 3 * n_prompts * NEW / 2);
        assert_true(accepted > drawn / 8);
    }
    mk_close(k);
}

/* ---- masks inside a block ------------------------------------------------ */

enum { WORDS = 32 }; /* of a mask line: 1,024 words of vocabulary */

static void allow_only(uint32_t *line, int32_t id)
{
    memset(line, 0, WORDS * sizeof(*line));
    line[id / 32] = 1u << (id % 32);
}

static struct model_out step_masked(struct mk *k, struct mk_req *r,
                                    const uint32_t *mask)
{
    static int32_t ids[MK_MAX];
    struct model_span span = mk_span(k, r, 512, ids);
    struct model_plan plan = {.span = &span, .n_spans = 1};
    struct model_out out;

    span.mask = mask;
    mk_ok(k, model_submit(k->m, &plan));
    mk_ok(k, model_collect(k->m, &out, 1));
    assert_int_equal(out.status, 0);
    mk_take(k, r, &span, &out);
    return out;
}

/* fr_50: a constraint that begins in the middle of a block holds from there on:
 * line j masks what is drawn after draft j, and a draft that its line forbids
 * is not accepted. Same tokens and logprobs as one token a step. */
static void test_fr_50_masks_hold_per_position_inside_a_block(void **state)
{
    static struct mk_req one_by_one, block;
    static uint32_t mask[4][WORDS];
    const struct mk_case *c = &mk_cases(NULL)[2];
    struct mk *k = open_tiny();
    struct model_sampling p = mk_greedy;
    struct mk_req *r = &block;

    (void)state;
    for (int at = 0; at <= 3; at++) {
        int32_t draft[3], want = 500 + at;
        struct model_out a, b;

        p.max_drafts = 3;
        mk_start(k, &block, &p, c->prompt, c->n_prompt, 20);
        mk_step(k, &r, 1);
        assert_int_equal(model_drafts(k->m, block.seq, draft), 3);
        memset(mask, 0xff, sizeof(mask));
        allow_only(mask[at], want);
        a = step_masked(k, &block, mask[0]);
        assert_true(a.n_tokens >= 1 && a.n_tokens <= at + 1);
        /* the same lines, one at a time */
        p.max_drafts = 0;
        mk_start(k, &one_by_one, &p, c->prompt, c->n_prompt, 20);
        r = &one_by_one;
        mk_step(k, &r, 1);
        for (int i = 0; i < a.n_tokens; i++) {
            b = step_masked(k, &one_by_one, mask[i]);
            assert_int_equal(a.token[i].id, b.token[0].id);
            assert_memory_equal(&a.token[i].logprob, &b.token[0].logprob,
                                sizeof(float));
        }
        if (a.n_tokens == at + 1) { /* the forced one was reached */
            assert_int_equal(a.token[at].id, want);
        } else { /* a draft before it was wrong */
            assert_true(a.token[a.n_tokens - 1].id != draft[a.n_tokens - 1]);
        }
        r = &block;
        mk_end(k, &block);
        mk_end(k, &one_by_one);
        mk_reuse_pages(k);
    }
    mk_close(k);
}

/* ---- slots past the end -------------------------------------------------- */

/* Fills every slot of r's own pages that may not be read any more with NaN: of
 * the trunk from L on; of module k from L and from its own end on (slots that
 * were made with drafts which may still be confirmed end there). */
static void spoil(struct mk *k, const struct mk_req *r)
{
    const struct seq *q = &k->m->seq[r->seq];
    static uint16_t page[1 << 20];

    for (int layer = 0; layer < k->m->kv.n_layers; layer++) {
        const struct kern_kv *kv = &k->m->kv.layer[layer];
        enum model_group g = k->m->kv.group[layer];
        int module = layer - k->info->n_layers + 1, from = q->len;
        int tokens = KERN_PAGE_TOK, lines = 2 * kv->n_kv_head;

        assert_true(kv->page_bytes <= sizeof(page));
        if (module > 0 && q->mtp.end[module - 1] > from) {
            from = q->mtp.end[module - 1];
        }
        for (int i = from / tokens; i < r->n_pages; i++) {
            struct kern_ptr at = kv->pages;
            int first = i == from / tokens ? from % tokens : 0;

            at.off += (size_t)r->page[g][i] * kv->page_bytes;
            mk_ok(k, kern_download(k->m->k, page, at, kv->page_bytes));
            for (int l = 0; l < lines; l++) {
                memset(page + (l * tokens + first) * KERN_HEAD_DIM, 0xff,
                       (size_t)(tokens - first) * KERN_HEAD_DIM * 2);
            }
            mk_ok(k, kern_upload(k->m->k, at, page, kv->page_bytes));
        }
    }
}

static void test_slots_past_the_end_are_never_read(void **state)
{
    static struct mk_req r;
    static struct kept clean, got;
    struct mk *k = open_tiny();

    (void)state;
    for (int i = 0; i < 6; i++) {
        int drafted[2] = {0, 0}, accepted[2] = {0, 0};

        for (int pass = 0; pass < 2; pass++) {
            const struct mk_case *c = &mk_cases(NULL)[7 + i];
            struct model_sampling p = mk_greedy;
            struct mk_req *one = &r;

            p.temperature = i % 2 == 0 ? 0 : 2; /* hot: drafts get rejected */
            p.seed = 3;
            p.max_drafts = 3;
            mk_start(k, &r, &p, c->prompt, c->n_prompt, NEW);
            r.chunk = 5 + 9 * i;
            r.keep = true;
            while (!r.done) {
                mk_step(k, &one, 1);
                if (pass == 1) {
                    spoil(k, &r);
                }
            }
            drafted[pass] = r.n_drafted;
            accepted[pass] = r.n_accepted;
            keep(&r, pass == 0 ? &clean : &got);
            mk_end(k, &r);
            mk_reuse_pages(k);
        }
        assert_same("with spoilt slots", (float)(i % 2 * 2), 3, i, &got,
                    &clean);
        /* nor do the modules read them */
        assert_int_equal(drafted[0], drafted[1]);
        assert_int_equal(accepted[0], accepted[1]);
        assert_true(i % 2 == 0 || drafted[0] > accepted[0]);
    }
    mk_close(k);
}

/* ---- how drafts are drawn ------------------------------------------------ */

enum { VOCAB = 1024 };

/* The id that a module with these logits proposes for position pos. */
static int proposal(const float *l, int n, float beta, float temperature,
                    uint64_t seed, int pos)
{
    float most = -INFINITY;
    int best = -1;

    for (int i = 0; i < n; i++) {
        float z = beta > 0
                      ? fmaf(l[i] / temperature, beta,
                             sample_noise(seed, (uint32_t)pos, (uint32_t)i))
                      : l[i];

        if (z > most) {
            most = z;
            best = i;
        }
    }
    return best;
}

/* fr_41: what a drafter's sampling is set to is explicit (model_info), does
 * what it says in each module, and is what was measured to be the better one:
 * `bench_drafts proposals` prints the table. */
static void test_fr_41_proposals_are_as_set(void **state)
{
    static struct mk_req r;
    static float logits[700 * VOCAB];
    struct mk *k = open_tiny();
    struct mk_req *one = &r;
    const struct mk_case *c = &mk_cases(NULL)[5]; /* 265 tokens */
    int differ = 0;

    (void)state;
    assert_true(k->info->vocab <= VOCAB);
    for (int i = 0; i < 3; i++) {
        assert_true(k->info->draft_beta[i] == 1);
        assert_true(k->m->mtp.beta[i] == k->info->draft_beta[i]);
    }
    for (int pass = 0; pass < 9; pass++) {
        struct model_sampling p = mk_greedy;
        float beta = pass % 3 == 0 ? 0 : pass % 3 == 1 ? 1 : 1.25f;
        int32_t draft[3];

        for (int i = 0; i < 3; i++) {
            k->m->mtp.beta[i] = beta;
        }
        p.temperature = 4; /* the likeliest is seldom drawn */
        p.seed = 40 + (uint64_t)pass;
        p.max_drafts = 3;
        mk_start(k, &r, &p, c->prompt, c->n_prompt - pass, 4);
        mk_ok(k, model_trace(k->m, true));
        mk_step(k, &one, 1);
        assert_int_equal(model_drafts(k->m, r.seq, draft), 3);
        for (int level = 1; level <= 3; level++) {
            int n = model_traced(k->m, level, NULL, logits, 700);
            const float *last =
                logits + (size_t)(n - 1) * (size_t)k->info->vocab;

            assert_in_range(n, 1, 700);
            assert_int_equal(draft[level - 1],
                             proposal(last, k->info->vocab, beta, p.temperature,
                                      p.seed, r.len + level));
            differ +=
                draft[level - 1] != proposal(last, k->info->vocab, 0, 1, 0, 0);
        }
        mk_end(k, &r);
        mk_reuse_pages(k);
    }
    assert_true(differ > 6); /* of the 18 with noise */
    mk_close(k);
}

/* Mean acceptance length over most conversations, 24 tokens each. */
static double acceptance(struct mk *k, float temperature)
{
    static struct mk_req r[8];
    int drafts = 0, accepted = 0;

    for (int i = 0; i < N_CASES; i += 8) {
        struct mk_req *all[8];

        for (int j = 0; j < 8; j++) {
            const struct mk_case *c = &mk_cases(NULL)[i + j];
            struct model_sampling p = mk_greedy;

            p.temperature = temperature;
            p.seed = (uint64_t)(i + j);
            p.max_drafts = 3;
            mk_start(k, &r[j], &p, c->prompt, c->n_prompt, 24);
            r[j].eos = true;
            all[j] = &r[j];
        }
        mk_run(k, all, 8);
        for (int j = 0; j < 8; j++) {
            drafts += r[j].n_drafts;
            accepted += r[j].n_accepted;
            mk_end(k, &r[j]);
        }
        mk_reuse_pages(k);
    }
    return 1 + (double)accepted / drafts;
}

static void test_fr_41_the_better_setting_is_the_one_in_use(void **state)
{
    static const float temperature[] = {0.7f, 1};
    struct mk *k = open_tiny();

    (void)state;
    for (int t = 0; t < 2; t++) {
        double in_use, greedy;

        in_use = acceptance(k, temperature[t]);
        memset(k->m->mtp.beta, 0, sizeof(k->m->mtp.beta));
        greedy = acceptance(k, temperature[t]);
        for (int i = 0; i < 3; i++) {
            k->m->mtp.beta[i] = k->info->draft_beta[i];
        }
        printf("T %.1f: mean acceptance length %.3f sharing noise, %.3f "
               "greedy\n",
               (double)temperature[t], in_use, greedy);
        assert_true(in_use > 0.99 * greedy && in_use > 3.5);
    }
    mk_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fr_47_200_prompts_at_every_depth),
        cmocka_unit_test(test_fr_50_masks_hold_per_position_inside_a_block),
        cmocka_unit_test(test_slots_past_the_end_are_never_read),
        cmocka_unit_test(test_fr_41_proposals_are_as_set),
        cmocka_unit_test(test_fr_41_the_better_setting_is_the_one_in_use),
    };

    return test_main(tests, NULL, NULL);
}
