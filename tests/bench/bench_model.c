/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Whole steps of whole models, against what this machine's memory and
 * arithmetic give in the same seconds.
 *
 *     bench_model [--model ABCD] [--parts pdbl] [--quick] [--rounds N]
 *                 [--dir DIR]
 *                 [--weights map|lock|copy|compact] [--threads N] [--isa NAME]
 *
 * A  small: 1024 wide, 8 layers, 0.5 GB
 * B  real layers: 1 dense and 4 of experts, 16,384 words, 13 GB of files
 * C  real ratios: 45+3 layers 1,024 wide (--quick: 256), 128,896 words (MTP
 * 0.32 of the trunk's bytes, routed experts 0.19); what drafts give, and the
 * rest of a step D  real KV: 12 full and 33+3 sliding layers of 8 KV heads,
 * little else; what a long context costs
 *
 * Parts: p prefill, d drafts, b batches, l a long context. Batch 1 without
 * drafts is always measured.
 *
 * Checkpoints are written once, below DIR ($STEPD_BENCH_DIR, /tmp/bench-model),
 * and kept. Contexts are imported pages, no prefills (streams.h).
 *
 * Memory bandwidth of a shared host changes within seconds. So a case is at
 * least nine rounds, each a few steps between two probes (probe.h), and every
 * figure the median of the rounds; the ratio is each round's bytes a second by
 * the mean of its two probes. MB are read bytes: weights and KV, each counted
 * where a kernel reads it; "16-bit" counts weights at their checkpoint's size.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/opclock.h"
#include "tests/bench/probe.h"
#include "tests/bench/streams.h"

#define MAX_ROUNDS 99
#define ROUND_SECONDS 0.12
/* Tokens that a case may draw behind its context. */
#define ROOM 1024

struct options {
    const char *models, *parts, *dir, *isa;
    enum model_weights weights;
    bool quick;
    int rounds, n_threads;
};

struct bench {
    const struct options *o;
    struct probe *probe;
    struct synth shape;
    struct model *m;
    struct streams s;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_model: %s: %s\n", what, why);
    exit(1);
}

/* ---- the models ---------------------------------------------------------- */

static int max_context(char name)
{
    return name == 'D' ? 131072 : 8192;
}

static void shape_of(struct synth *s, char name, const struct options *o)
{
    synth_preset(s, name == 'A' ? "small" : name == 'B' ? "slice" : "real");
    s->cycle = true;
    if (name == 'C') {
        s->hidden = o->quick ? 256 : 1024;
        s->n_expert = o->quick ? 32 : 48; /* of 288; a token takes 8 */
        s->n_shards = 4;
    } else if (name == 'D') {
        s->hidden = 128;
        s->vocab = 512;
        s->n_dense = s->n_layers;
        s->dense_width = 128;
        s->n_head_full = s->n_head_sliding = s->n_kv_head;
        s->n_shards = 1;
    }
}

/* Written under another name first: an interrupted run leaves no half model. */
static void write_model(const struct synth *s, const char *dir)
{
    char part[600];
    struct stat st;
    double t = probe_now();
    int r;

    if (stat(dir, &st) == 0) {
        return;
    }
    snprintf(part, sizeof(part), "%s.part", dir);
    r = synth_write(s, part);
    if (r < 0 || rename(part, dir) < 0) {
        die(part, strerror(r < 0 ? -r : errno));
    }
    printf("written: %s in %.0f s\n", dir, probe_now() - t);
}

static void open_model(struct bench *b, char name)
{
    int streams = name == 'D' ? 1 : STREAMS_MAX;
    char dir[512], state[512];
    struct model_conf c = {.path = dir,
                           .state_dir = state,
                           .backend = "cpu",
                           .isa = b->o->isa,
                           .n_threads = b->o->n_threads,
                           .weights = b->o->weights,
                           .drafts = -1,
                           .max_model_len = max_context(name) + ROOM,
                           .max_seqs = streams,
                           .max_rows = STREAMS_PROMPT};
    struct model_report rep = {0};
    double t;
    int r;

    shape_of(&b->shape, name, b->o);
    snprintf(dir, sizeof(dir), "%s/%c%s", b->o->dir, name,
             name == 'C' && b->o->quick ? "-quick" : "");
    snprintf(state, sizeof(state), "%s/state", b->o->dir);
    if (mkdir(state, 0755) < 0 && errno != EEXIST) {
        die(state, strerror(errno));
    }
    write_model(&b->shape, dir);
    t = probe_now();
    r = model_open(&b->m, &c, &rep);
    if (r < 0) {
        die(dir, rep.n_problems > 0 ? rep.problem[0] : strerror(-r));
    }
    model_report_finish(&rep);
    printf("\n==== %c: hidden %d, %d+%d layers, %d words; %s; open in %.2f s\n",
           name, b->shape.hidden, b->shape.n_layers, b->shape.n_mtp,
           b->shape.vocab, model_info(b->m)->device, probe_now() - t);
    opclock_install(b->m);
    streams_init(&b->s, b->m, &b->shape, streams);
}

static void close_model(struct bench *b)
{
    streams_finish(&b->s);
    model_close(b->m);
}

/* ---- decode -------------------------------------------------------------- */

struct rounds {
    int n;
    double tokens_s[MAX_ROUNDS], ms[MAX_ROUNDS], gb_s[MAX_ROUNDS];
    double probe[MAX_ROUNDS], ratio[MAX_ROUNDS], ratio16[MAX_ROUNDS];
    double bytes, bytes16, tokens, steps, seconds, outside;
    struct opclock parts; /* of all rounds */
};

static double total(const struct opclock *c, bool as_in_checkpoint)
{
    double sum = 0;

    for (int l = 0; l < 2; l++) {
        for (int p = 0; p < OPCLOCK_N_PARTS; p++) {
            sum +=
                as_in_checkpoint ? c->part[l][p].bytes16 : c->part[l][p].bytes;
        }
    }
    return sum;
}

static void add_parts(struct opclock *to, const struct opclock *c)
{
    for (int l = 0; l < 2; l++) {
        for (int p = 0; p < OPCLOCK_N_PARTS; p++) {
            to->part[l][p].seconds += c->part[l][p].seconds;
            to->part[l][p].bytes += c->part[l][p].bytes;
            to->part[l][p].bytes16 += c->part[l][p].bytes16;
            to->part[l][p].flops += c->part[l][p].flops;
            to->part[l][p].calls += c->part[l][p].calls;
        }
    }
}

/* The best of three: where other programs run, a probe's thread may come late,
 * and a probe too slow would flatter what stands beside it. */
static double best_of(struct probe *p, double (*probe)(struct probe *))
{
    double best = 0;

    for (int i = 0; i < 3; i++) {
        double x = probe(p);

        best = x > best ? x : best;
    }
    return best;
}

static void one_round(struct bench *b, struct rounds *r, int n_steps)
{
    double before = best_of(b->probe, probe_read), t, mean;
    struct opclock c;
    int tokens = 0, i = r->n++;

    opclock_reset();
    t = probe_now();
    for (int k = 0; k < n_steps; k++) {
        tokens += streams_step(&b->s);
    }
    t = probe_now() - t;
    mean = (before + best_of(b->probe, probe_read)) / 2;
    opclock_read(&c);
    add_parts(&r->parts, &c);
    r->tokens_s[i] = tokens / t;
    r->ms[i] = t / n_steps * 1e3;
    r->gb_s[i] = total(&c, false) / t / 1e9;
    r->probe[i] = mean / 1e9;
    r->ratio[i] = total(&c, false) / t / mean;
    r->ratio16[i] = total(&c, true) / t / mean;
    r->bytes += total(&c, false);
    r->bytes16 += total(&c, true);
    r->tokens += tokens;
    r->steps += n_steps;
    r->seconds += t;
}

static void decode(struct bench *b, int n, int depth, int ctx, struct rounds *r)
{
    int most = depth < 0 ? MODEL_MAX_DRAFTS : depth, n_steps, limit;
    double t;

    memset(r, 0, sizeof(*r));
    streams_begin(&b->s, n, depth, ctx);
    streams_step(&b->s);
    t = probe_now();
    for (int i = 0; i < (depth < 0 ? 64 : 2); i++) {
        streams_step(&b->s); /* a depth of its own choice: chosen by now */
    }
    t = (probe_now() - t) / (depth < 0 ? 64 : 2);
    limit = (ROOM - 80 * (1 + most) / 2) / (1 + most) / b->o->rounds;
    n_steps = (int)(ROUND_SECONDS / t) + 1;
    n_steps = n_steps < limit ? n_steps : limit > 0 ? limit : 1;
    for (int i = 0; i < b->o->rounds; i++) {
        one_round(b, r, n_steps);
    }
}

static void print_head(void)
{
    printf("  %7s %5s %6s | %8s %8s | %8s %8s | %6s %6s %6s %6s | %6s\n",
           "context", "batch", "drafts", "tokens/s", "ms/step", "MB/token",
           "16-bit", "GB/s", "probe", "ratio", "16-bit", "length");
}

static void print_case(struct bench *b, int n, int depth, int ctx,
                       struct rounds *r)
{
    const struct streams *s = &b->s;
    char drafts[16];

    snprintf(drafts, sizeof(drafts), depth < 0 ? "chosen" : "%d", depth);
    printf("  %7d %5d %6s | %8.2f %8.2f | %8.1f %8.1f | %6.1f %6.1f %6.3f "
           "%6.3f | %6.3f\n",
           ctx, n, drafts, probe_median(r->tokens_s, r->n),
           probe_median(r->ms, r->n), r->bytes / r->tokens / 1e6,
           r->bytes16 / r->tokens / 1e6, probe_median(r->gb_s, r->n),
           probe_median(r->probe, r->n), probe_median(r->ratio, r->n),
           probe_median(r->ratio16, r->n),
           s->drafts > 0 ? 1 + (double)s->accepted / (double)s->drafts : 1.0);
    fflush(stdout);
}

static void run_case(struct bench *b, int n, int depth, int ctx,
                     struct rounds *r)
{
    decode(b, n, depth, ctx, r);
    print_case(b, n, depth, ctx, r);
    streams_end(&b->s);
}

/* ---- where the time goes ------------------------------------------------- */

static void print_parts(const char *what, const struct rounds *r)
{
    double probe = 0, inside = 0;

    for (int i = 0; i < r->n; i++) {
        probe += r->probe[i] / r->n;
    }
    printf("\n  parts of a step, %s\n  %-8s %-11s %8s %6s %9s %7s %6s\n", what,
           "", "", "ms/step", "share", "MB/step", "GB/s", "/probe");
    for (int l = 0; l < 2; l++) {
        for (int p = 0; p < OPCLOCK_N_PARTS; p++) {
            const struct opclock_line *x = &r->parts.part[l][p];
            double gb_s = x->seconds > 0 ? x->bytes / x->seconds / 1e9 : 0;

            if (x->calls > 0) {
                inside += x->seconds;
                printf("  %-8s %-11s %8.3f %5.1f%% %9.2f %7.1f %6.3f\n",
                       l == 0 ? "trunk" : "modules",
                       opclock_name((enum opclock_part)p),
                       x->seconds / r->steps * 1e3,
                       100 * x->seconds / r->seconds, x->bytes / r->steps / 1e6,
                       gb_s, gb_s / probe);
            }
        }
    }
    printf("  %-8s %-11s %8.3f %5.1f%%\n", "", "outside ops",
           (r->seconds - inside) / r->steps * 1e3,
           100 * (r->seconds - inside) / r->seconds);
}

/* Bytes of a decoded token by part, trunk only, as the checkpoint holds them;
 * of what reads no weights: how much of it there is, in units of its own. */
static void bytes_of(const struct synth *s, double to[OPCLOCK_N_PARTS])
{
    double h = s->hidden;

    memset(to, 0, OPCLOCK_N_PARTS * sizeof(*to));
    for (int i = 0; i < s->n_layers; i++) {
        double heads =
            i % s->full_every == 0 ? s->n_head_full : s->n_head_sliding;

        to[OPCLOCK_QKV_IN] += 2 * h * (heads * 129 + s->n_kv_head * 256.0);
        to[OPCLOCK_O] += 2 * h * heads * 128;
        to[OPCLOCK_ATTN] += s->n_kv_head;
        to[OPCLOCK_SMALL] += h;
        if (i < s->n_dense) {
            to[OPCLOCK_DENSE] += 6 * h * s->dense_width;
        } else {
            to[OPCLOCK_SHARED] += 6 * h * s->shared_width;
            to[OPCLOCK_ROUTER] += 2 * h * s->n_expert;
            to[OPCLOCK_EXPERTS] += 3 * h * s->expert_width * s->top_k * 17 / 32;
        }
    }
    to[OPCLOCK_HEAD] = 2.0 * s->vocab * h;
    to[OPCLOCK_SAMPLE] = s->vocab;
}

/* The real model from this one's times: each part in proportion to its size. */
static void print_projection(const struct synth *here, const struct rounds *r)
{
    double mine[OPCLOCK_N_PARTS], real[OPCLOCK_N_PARTS];
    double seconds = 0, inside = 0, bytes = 0;
    struct synth s;

    synth_preset(&s, "real");
    bytes_of(here, mine);
    bytes_of(&s, real);
    for (int p = 0; p < OPCLOCK_N_PARTS; p++) {
        double t = r->parts.part[0][p].seconds / r->steps;

        inside += t;
        seconds += mine[p] > 0 ? t * real[p] / mine[p] : 0;
        bytes += p == OPCLOCK_ATTN || p == OPCLOCK_SMALL || p == OPCLOCK_SAMPLE
                     ? 0
                     : real[p];
    }
    seconds += (r->seconds / r->steps - inside) * s.n_layers / here->n_layers;
    printf(
        "\n  the real model (45 layers, 128,896 words, %.2f GB a token) from "
        "these parts, each\n  in proportion to its size: %.2f tokens/s, "
        "calculated, not measured\n",
        bytes / 1e9, 1 / seconds);
}

/* ---- prefill ------------------------------------------------------------- */

static void prefill(struct bench *b, int depth)
{
    int rounds = b->o->quick || depth > 0 ? 3 : b->o->rounds;
    double rate[MAX_ROUNDS], flop[MAX_ROUNDS], peak[MAX_ROUNDS];
    double ratio[MAX_ROUNDS];
    struct rounds r = {.steps = rounds, .n = 1};

    for (int i = 0; i < rounds; i++) {
        struct opclock c;
        double sum = 0, before = best_of(b->probe, probe_peak), t;

        r.probe[0] = best_of(b->probe, probe_read) / 1e9;
        opclock_reset();
        t = streams_prefill(&b->s, STREAMS_PROMPT, depth);
        opclock_read(&c);
        add_parts(&r.parts, &c);
        for (int p = 0; p < 2 * OPCLOCK_N_PARTS; p++) {
            sum += c.part[p / OPCLOCK_N_PARTS][p % OPCLOCK_N_PARTS].flops;
        }
        peak[i] = (before + best_of(b->probe, probe_peak)) / 2;
        rate[i] = STREAMS_PROMPT / t;
        flop[i] = sum / t;
        ratio[i] = sum / t / peak[i];
        r.seconds += t;
    }
    printf("  prefill %d, drafts %d: %.1f tokens/s, %.0f GFLOP/s of %.0f "
           "(products with weights): ratio %.3f\n",
           STREAMS_PROMPT, depth, probe_median(rate, rounds),
           probe_median(flop, rounds) / 1e9, probe_median(peak, rounds) / 1e9,
           probe_median(ratio, rounds));
    fflush(stdout);
    if (depth == 0) {
        print_parts("prefill", &r);
        printf("\n");
    }
}

/* ---- the runs ------------------------------------------------------------ */

static void run_contexts(struct bench *b)
{
    static const int ctx[] = {128, 8192, 32768, 131072};
    double ms[4], mb[4];
    struct rounds r;

    print_head();
    for (size_t i = 0; i < sizeof(ctx) / sizeof(ctx[0]); i++) {
        run_case(b, 1, 0, ctx[i], &r);
        ms[i] = probe_median(r.ms, r.n);
        mb[i] = r.bytes / r.steps / 1e6;
    }
    print_parts("context 131,072", &r);
    printf("\n  growth beyond context 128, by what is read beyond it:\n");
    for (size_t i = 1; i < sizeof(ctx) / sizeof(ctx[0]); i++) {
        printf("  %7d %8.2f ms, %8.1f MB: %6.1f GB/s\n", ctx[i], ms[i] - ms[0],
               mb[i] - mb[0], (mb[i] - mb[0]) / (ms[i] - ms[0]));
    }
}

static bool wants(const struct bench *b, char part)
{
    return strchr(b->o->parts, part) != NULL;
}

/* What sampling costs where it is not greedy: see its part of the step. */
static void run_sampled(struct bench *b)
{
    static struct rounds r;

    b->s.sampled = true;
    decode(b, 1, 3, 128, &r);
    streams_end(&b->s);
    b->s.sampled = false;
    print_parts("batch 1, drafts 3, temperature 1, top-p 0.95", &r);
}

/* ---- drafts -------------------------------------------------------------- */

/* And the engine's choice, the last. */
#define N_DEPTHS (MODEL_MAX_DRAFTS + 2)
/* Steps in which the engine finds its depth; tokens that every case draws. */
#define LEARN_STEPS 96
#define DRAFT_TOKENS 240
#define DRAFT_TURN 24 /* tokens between two cases' turns */

struct depth_case {
    struct streams s;
    int tokens, steps;
    double seconds;
};

/* A chosen depth is chosen by now; the answer is not. */
static void learn_depth(struct bench *b)
{
    streams_begin(&b->s, 1, -1, 128);
    for (int i = 0; i < LEARN_STEPS; i++) {
        streams_step(&b->s);
    }
    streams_end(&b->s);
}

static void one_turn(struct depth_case *c, int until)
{
    double t = probe_now();

    while (c->tokens < until) {
        c->tokens += streams_step(&c->s);
        c->steps++;
    }
    c->seconds += probe_now() - t;
}

/* All depths take turns, drawing the same tokens from the same place. */
static void compare_depths(struct bench *b)
{
    struct depth_case c[N_DEPTHS] = {0};
    double base = 0;

    learn_depth(b);
    for (int i = 0; i < N_DEPTHS; i++) {
        streams_fork(&c[i].s, &b->s, i, i < N_DEPTHS - 1 ? i : -1, 128);
        streams_step(&c[i].s);
    }
    for (int n = DRAFT_TURN; n <= DRAFT_TOKENS; n += DRAFT_TURN) {
        for (int i = 0; i < N_DEPTHS; i++) {
            one_turn(&c[i], n);
        }
    }
    printf("\n  the same %d tokens at each depth, in turns of %d:\n"
           "  %6s | %8s %8s | %6s %8s\n",
           DRAFT_TOKENS, DRAFT_TURN, "drafts", "tokens/s", "ms/step", "length",
           "by 0");
    for (int i = 0; i < N_DEPTHS; i++) {
        double rate = c[i].tokens / c[i].seconds;
        char name[16];

        base = i == 0 ? rate : base;
        snprintf(name, sizeof(name), i < N_DEPTHS - 1 ? "%d" : "chosen", i);
        printf("  %6s | %8.2f %8.2f | %6.3f %8.3f\n", name, rate,
               c[i].seconds / c[i].steps * 1e3,
               (double)c[i].tokens / c[i].steps, rate / base);
        streams_end(&c[i].s);
    }
    printf("\n");
    fflush(stdout);
}

static void run_drafts(struct bench *b, struct rounds *deepest)
{
    static struct rounds r;

    compare_depths(b);
    print_head();
    for (int depth = 1; depth <= MODEL_MAX_DRAFTS; depth++) {
        run_case(b, 1, depth, 128, deepest);
    }
    for (int n = 2; n <= STREAMS_MAX && !b->o->quick; n *= 2) {
        run_case(b, n, -1, 128, &r);
    }
}

static void run_model(struct bench *b, char name)
{
    static struct rounds one, deepest, r;
    bool drafts = wants(b, 'd') && (name == 'C' || !b->o->quick);

    if (wants(b, 'p')) {
        prefill(b, 0);
        prefill(b, 3);
    }
    print_head();
    run_case(b, 1, 0, 128, &one);
    if (drafts) {
        run_drafts(b, &deepest);
    }
    for (int n = b->o->quick ? 4 : 2; n <= STREAMS_MAX && wants(b, 'b');
         n *= 2) {
        run_case(b, n, 0, 128, &r);
    }
    for (int n = 1; n <= STREAMS_MAX && wants(b, 'l') && !b->o->quick; n *= 2) {
        run_case(b, n, 0, 8192, &r);
    }
    print_parts("batch 1, drafts 0, context 128", &one);
    if (drafts) {
        print_parts("batch 1, drafts 3, context 128", &deepest);
        run_sampled(b);
    }
    if (name == 'B') {
        print_projection(&b->shape, &one);
    }
}

static void set_option(struct options *o, const char *key, const char *value)
{
    static const char *const modes[] = {[MODEL_MAP] = "map",
                                        [MODEL_LOCK] = "lock",
                                        [MODEL_COPY] = "copy",
                                        [MODEL_COMPACT] = "compact"};
    bool known = false;

    if (strcmp(key, "--model") == 0) {
        o->models = value;
    } else if (strcmp(key, "--parts") == 0) {
        o->parts = value;
    } else if (strcmp(key, "--dir") == 0) {
        o->dir = value;
    } else if (strcmp(key, "--isa") == 0) {
        o->isa = value;
    } else if (strcmp(key, "--threads") == 0) {
        o->n_threads = atoi(value);
    } else if (strcmp(key, "--rounds") == 0) {
        o->rounds = atoi(value);
    } else if (strcmp(key, "--weights") == 0) {
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            if (strcmp(value, modes[i]) == 0) {
                o->weights = (enum model_weights)i;
                known = true;
            }
        }
        if (!known) {
            die(key, value);
        }
    } else {
        die(key, "no such option");
    }
}

static void read_options(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            o->quick = true;
        } else if (i + 1 < argc) {
            set_option(o, argv[i], argv[i + 1]);
            i++;
        } else {
            die(argv[i], "value expected");
        }
    }
    if (o->rounds < 1 || o->rounds > MAX_ROUNDS ||
        strspn(o->models, "ABCD") != strlen(o->models) ||
        strspn(o->parts, "pdbl") != strlen(o->parts)) {
        die("options", "--model takes letters of ABCD, --parts of pdbl, "
                       "--rounds 1 .. 99");
    }
}

int main(int argc, char **argv)
{
    const char *dir = getenv("STEPD_BENCH_DIR");
    struct options o = {.models = "ABCD",
                        .parts = "pdbl",
                        .dir = dir != NULL ? dir : "/tmp/bench-model",
                        .rounds = PROBE_ROUNDS};
    struct bench b = {.o = &o};

    read_options(&o, argc, argv);
    if (mkdir(o.dir, 0755) < 0 && errno != EEXIST) {
        die(o.dir, strerror(errno));
    }
    b.probe = probe_create(o.n_threads, o.isa);
    if (b.probe == NULL) {
        die("probe", "no memory");
    }
    printf("this machine, %d threads: read %.1f GB/s, products %.0f GFLOP/s\n",
           probe_n_threads(b.probe), best_of(b.probe, probe_read) / 1e9,
           best_of(b.probe, probe_peak) / 1e9);
    for (const char *c = o.models; *c != '\0'; c++) {
        open_model(&b, *c);
        if (*c == 'D') {
            run_contexts(&b);
        } else {
            run_model(&b, *c);
        }
        close_model(&b);
    }
    probe_destroy(b.probe);
    return 0;
}
