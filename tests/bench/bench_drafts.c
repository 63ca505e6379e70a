/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What drafting is worth: decode tokens/s of one stream by draft depth, with
 * the acceptance it goes with, on step-tiny and on a synthetic checkpoint that
 * has the byte ratios of the real one; and which acceptance proposals reach at
 * temperatures above 0 that share the target's noise (beta) or do not (greedy).
 *
 *     bench_drafts [tiny | proposals | real [HIDDEN]]     default: all, 256
 *
 * Every matrix but eh_proj has the hidden size as a dimension, so a checkpoint
 * with all other sizes real and a smaller hidden size reads the same shares of
 * bytes a token: the table of shares is printed from the loaded model. Experts
 * are fewer (32 for 288): a token takes 8 either way. Its acceptance is chosen,
 * that of step-tiny is the model's own.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/model/state.h"
#include "tests/paths.h"
#include "tests/synth.h"

#define MAX_LEN 1024
#define N_PAGES (MAX_LEN / MODEL_PAGE_TOK)
#define N_CASES 40

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_drafts: %s: %s\n", what, why);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct model *open_model(const char *dir)
{
    struct model_conf c = {.path = dir,
                           .backend = "cpu",
                           .drafts = -1,
                           .max_model_len = MAX_LEN,
                           .max_seqs = 1,
                           .max_rows = 512};
    struct model_report rep = {0};
    struct model *m;
    int r = model_open(&m, &c, &rep);

    if (r < 0) {
        die(dir, rep.n_problems > 0 ? rep.problem[0] : strerror(-r));
    }
    model_report_finish(&rep);
    return m;
}

/* ---- one stream ---------------------------------------------------------- */

struct answer {
    int n;          /* tokens drawn */
    double seconds; /* of all steps but the first, the prompt's */
    struct model_stats s;
};

static bool ends(const struct model_info *info, int32_t id)
{
    for (int i = 0; i < info->n_eos; i++) {
        if (info->eos[i] == id) {
            return true;
        }
    }
    return false;
}

/* Draws up to max tokens after a prompt, or to the end of the answer. */
static struct answer draw(struct model *m, const int32_t *prompt, int n_prompt,
                          int max, float temperature, uint64_t seed, int depth)
{
    struct model_sampling p = {.temperature = temperature,
                               .top_p = 1,
                               .repetition = 1,
                               .seed = seed,
                               .n_top = -1,
                               .max_drafts = depth};
    int32_t ids[MAX_LEN + MODEL_MAX_DRAFTS], pages[N_PAGES];
    struct answer a = {0};
    struct model_stats before, after;
    int seq, n_ids = n_prompt;
    bool over = false;

    memcpy(ids, prompt, (size_t)n_prompt * sizeof(*ids));
    for (int i = 0; i < N_PAGES; i++) {
        pages[i] = i;
    }
    model_stats(m, &before);
    if (model_seq_open(m, &p, ids, n_ids, 0, &seq) < 0) {
        die("sequence", model_error(m));
    }
    for (int step = 0; !over; step++) {
        int len = model_seq_len(m, seq);
        int n_draft = model_drafts(m, seq, ids + n_ids);
        struct model_span span = {.seq = seq,
                                  .pos = len,
                                  .ids = ids + len,
                                  .n_rows = n_ids - len + n_draft,
                                  .n_draft = n_draft,
                                  .want = MODEL_WANT_DRAW,
                                  .draft_next = depth,
                                  .next_id = -1,
                                  .pages = {pages, pages},
                                  .n_pages = {N_PAGES, N_PAGES}};
        struct model_plan plan = {.span = &span, .n_spans = 1};
        struct model_out out;
        double t0 = now();

        if (model_submit(m, &plan) < 0 || model_collect(m, &out, 1) < 0 ||
            out.status < 0) {
            die("step", model_error(m));
        }
        a.seconds += step > 0 ? now() - t0 : 0;
        for (int i = 0; i < out.n_tokens && !over; i++) {
            ids[n_ids++] = out.token[i].id;
            a.n++;
            /* as the reference counts: what the answer's end cuts off was
             * not accepted */
            if (i < out.n_accepted) {
                a.s.accepted++;
                a.s.accepted_at[i]++;
            }
            over = a.n == max || ends(model_info(m), out.token[i].id);
        }
    }
    model_seq_close(m, seq);
    model_stats(m, &after);
    a.s.steps = after.steps - before.steps;
    a.s.drafts = after.drafts - before.drafts;
    return a;
}

static void add(struct answer *to, const struct answer *a)
{
    to->n += a->n - 1; /* the first came with the prompt */
    to->seconds += a->seconds;
    to->s.steps += a->s.steps - 1;
    to->s.drafts += a->s.drafts;
    to->s.accepted += a->s.accepted;
    for (int i = 0; i < MODEL_MAX_DRAFTS; i++) {
        to->s.accepted_at[i] += a->s.accepted_at[i];
    }
}

static double mean_length(const struct answer *a)
{
    return a->s.drafts == 0 ? 1
                            : 1 + (double)a->s.accepted / (double)a->s.drafts;
}

static void print_head(void)
{
    printf("  %-7s %10s %9s %8s   %s\n", "drafts", "tokens/s", "ms/step",
           "length", "accepted by position");
}

static void print_row(int depth, const struct answer *a)
{
    char name[8];

    snprintf(name, sizeof(name), "%d", depth);
    printf("  %-7s %10.1f %9.2f %8.3f  ", depth < 0 ? "chosen" : name,
           a->n / a->seconds, a->seconds * 1e3 / (double)a->s.steps,
           mean_length(a));
    for (int i = 0; i < MODEL_MAX_DRAFTS && a->s.drafts > 0; i++) {
        printf(" %.3f", (double)a->s.accepted_at[i] / (double)a->s.drafts);
    }
    printf("\n");
    fflush(stdout);
}

/* ---- step-tiny ----------------------------------------------------------- */

struct prompt {
    int n;
    int32_t ids[MAX_LEN];
};

static struct prompt *read_prompts(const char *dir)
{
    struct prompt *p = calloc(N_CASES, sizeof(*p));
    json_t *top, *cases;
    char path[512];

    snprintf(path, sizeof(path), "%s/golden-greedy.json", dir);
    top = json_load_file(path, 0, NULL);
    cases = json_object_get(top, "cases");
    if (p == NULL || json_array_size(cases) < N_CASES) {
        die(path, "cannot be read");
    }
    for (int i = 0; i < N_CASES; i++) {
        json_t *ids =
            json_object_get(json_array_get(cases, (size_t)i), "prompt_ids");

        p[i].n = (int)json_array_size(ids);
        if (p[i].n < 1 || p[i].n > MAX_LEN / 2) {
            die(path, "a prompt of another size");
        }
        for (int j = 0; j < p[i].n; j++) {
            p[i].ids[j] =
                (int32_t)json_integer_value(json_array_get(ids, (size_t)j));
        }
    }
    json_decref(top);
    return p;
}

static struct answer answer_all(struct model *m, const struct prompt *p, int n,
                                float temperature, int depth)
{
    struct answer all = {0};

    for (int i = 0; i < n; i++) {
        struct answer a =
            draw(m, p[i].ids, p[i].n, 120, temperature, (uint64_t)i + 1, depth);

        add(&all, &a);
    }
    return all;
}

static void bench_tiny(const char *dir)
{
    struct prompt *p = read_prompts(dir);
    struct model *m = open_model(dir);

    printf("step-tiny, greedy, %d prompts, %s; its weights stay in the cache, "
           "so a step\ncosts by its rows: drafts gain little here, whatever is "
           "accepted\n",
           N_CASES, model_info(m)->device);
    print_head();
    for (int i = 0; i <= 4; i++) {
        int depth = i < 4 ? i : -1;
        struct answer a = answer_all(m, p, N_CASES, 0, depth);

        print_row(depth, &a);
    }
    model_close(m);
    free(p);
}

/* ---- proposals ----------------------------------------------------------- */

static void bench_proposals(const char *dir)
{
    static const float temperatures[] = {0.7f, 1};
    static const float betas[] = {0, 0.5f, 0.8f, 1, 1.25f};
    struct prompt *p = read_prompts(dir);
    struct model *m = open_model(dir);

    printf("\nstep-tiny, mean acceptance length at depth 3 by proposal: greedy "
           "or\nargmax(beta * log q + the target's noise)\n  %-5s",
           "T");
    for (size_t b = 0; b < sizeof(betas) / sizeof(betas[0]); b++) {
        if (b == 0) {
            printf(" %9s", "greedy");
        } else {
            printf(" %4s %.2f", "beta", (double)betas[b]);
        }
    }
    printf("\n");
    for (size_t t = 0; t < 2; t++) {
        printf("  %-5.1f", (double)temperatures[t]);
        for (size_t b = 0; b < sizeof(betas) / sizeof(betas[0]); b++) {
            struct answer a;

            for (int k = 0; k < MODEL_MAX_DRAFTS; k++) {
                m->mtp.beta[k] = betas[b];
            }
            a = answer_all(m, p, N_CASES, temperatures[t], 3);
            printf(" %9.3f", mean_length(&a));
            fflush(stdout);
        }
        printf("\n");
    }
    model_close(m);
    free(p);
}

/* ---- real ratios --------------------------------------------------------- */

static void shape_real(struct synth *s, int hidden)
{
    synth_preset(s, "real");
    s->hidden = hidden;
    s->n_expert = 32;
    s->n_shards = 4;
    s->cycle = true;
    s->accept[0] = 0.9;
    s->accept[1] = 0.8;
    s->accept[2] = 0.7;
}

/* Bytes that a decoded token reads, of the shapes; experts in MXFP4. */
static void print_shares(const struct synth *s)
{
    double h = s->hidden, attn = 0, mlp = 0, shared = 0, routed = 0;
    double head = 2.0 * s->vocab * h, trunk, mtp;

    for (int i = 0; i < s->n_layers; i++) {
        int heads = i % s->full_every == 0 ? s->n_head_full : s->n_head_sliding;

        attn += 2 * h * (2.0 * heads * 128 + 2.0 * s->n_kv_head * 128 + heads);
        if (i < s->n_dense) {
            mlp += 2 * 3 * h * s->dense_width;
        } else {
            shared += 2 * 3 * h * s->shared_width;
            routed += 3 * h * s->expert_width * s->top_k * 17 / 32;
        }
    }
    trunk = attn + mlp + shared + routed + head;
    mtp = s->n_mtp *
          (head + 2 * 3 * h * s->dense_width + 4 * h * h +
           2 * h * (2.0 * s->n_head_sliding + 2.0 * s->n_kv_head) * 128);
    printf("\nreal ratios: hidden %d, %d layers, %d words; trunk %.0f MB a "
           "token (routed %.2f,\nhead %.2f), MTP %.0f MB: %.2f of it; "
           "acceptance chosen %.1f %.1f %.1f\n",
           s->hidden, s->n_layers, s->vocab, trunk * 1e-6, routed / trunk,
           head / trunk, mtp * 1e-6, mtp / trunk, s->accept[0], s->accept[1],
           s->accept[2]);
}

static void bench_real(const char *dir, const struct synth *s)
{
    struct model *m = open_model(dir);
    int32_t prompt[16] = {77};
    struct answer a;

    for (int i = 1; i < 16; i++) {
        prompt[i] = synth_next(s, prompt[i - 1]);
    }
    a = draw(m, prompt, 16, 24, 0, 1, 3); /* pages come into memory */
    print_head();
    for (int i = 0; i <= 4; i++) {
        int depth = i < 4 ? i : -1;
        struct answer sum = {0};

        a = draw(m, prompt, 16, depth < 0 ? 400 : 160, 0, 1, depth);
        add(&sum, &a);
        print_row(depth, &sum);
    }
    model_close(m);
}

static void with_real(int hidden)
{
    char dir[] = "/tmp/stepd-bench.XXXXXX", command[64];
    struct synth s;
    int r;

    if (mkdtemp(dir) == NULL) {
        die(dir, strerror(errno));
    }
    shape_real(&s, hidden);
    r = synth_write(&s, dir);
    if (r == 0) {
        print_shares(&s);
        bench_real(dir, &s);
    }
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    if (system(command) != 0 || r < 0) {
        die(dir, r < 0 ? strerror(-r) : "cannot be removed");
    }
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    int hidden = argc > 2 ? atoi(argv[2]) : 256;
    char tiny[512];

    if (hidden < 64 || hidden % 64 != 0) {
        die(argv[2], "expected a multiple of 64");
    }
    snprintf(tiny, sizeof(tiny), "%s/tests/data/step-tiny", TEST_SRCDIR);
    if (part[0] == '\0' || strcmp(part, "tiny") == 0) {
        bench_tiny(tiny);
    }
    if (part[0] == '\0' || strcmp(part, "proposals") == 0) {
        bench_proposals(tiny);
    }
    if (part[0] == '\0' || strcmp(part, "real") == 0) {
        with_real(hidden);
    }
    return 0;
}
