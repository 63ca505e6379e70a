/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What structured output costs with the published vocabulary: compiling each
 * schema of tests/data/schemas.jsonl, and the masks of the distinct states that
 * random answers pass through, the mask cache emptied before each. `cold` also
 * forgets every state and edge of the automaton first. Then steps of 32 rows,
 * each with 3 drafts, whose 128 masks the worker builds while a forward runs
 * that takes a fixed time and no processor: what building takes of the worker,
 * and what share of a step the engine waits for it, by the clock and by
 * what the worker computed (on a machine that has no core for it the clock
 * tells of the others). Every answer walks through states that it has not seen.
 * 20 ms is less than any forward of 128 rows of the published model takes:
 * nearly every expert is hit, and reading 110 GB takes 23 ms of an H200's
 * memory. Prints tables in about 20 s, asserts nothing.
 *
 *     tests/bench/bench_mask [-v]     -v: a line a schema
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/sched/masks.h"
#include "daemon/text/format.h"
#include "daemon/text/mask.h"
#include "daemon/text/tokenizer.h"
#include "tests/paths.h"

#define VOCAB 128896
#define N_WORDS ((VOCAB + 31) / 32)
#define N_TOKENS 120 /* of one answer */
#define N_ANSWERS 3
#define N_ROWS 32 /* of a step */
#define N_POS 4   /* and positions of each */
#define N_STEPS 100

/* Processor time: other load on the machine counts as little as can be. */
static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static uint64_t seed;

static uint32_t draw(uint32_t n)
{
    uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) % n);
}

struct samples {
    double *v;
    size_t n, cap;
};

static void add(struct samples *s, double v)
{
    if (s->n == s->cap) {
        s->cap = s->cap > 0 ? 2 * s->cap : 1024;
        s->v = realloc(s->v, s->cap * sizeof(*s->v));
        if (s->v == NULL) {
            abort();
        }
    }
    s->v[s->n++] = v;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static double at(const struct samples *s, double q)
{
    return s->n == 0 ? 0 : s->v[(size_t)(q * (double)(s->n - 1))];
}

static void report(const char *name, struct samples *s)
{
    double sum = 0;

    for (size_t i = 0; i < s->n; i++) {
        sum += s->v[i];
    }
    qsort(s->v, s->n, sizeof(*s->v), by_value);
    printf("%-28s %7zu %8.1f %8.1f %8.1f %8.1f %8.1f\n", name, s->n,
           s->n > 0 ? sum / (double)s->n : 0, at(s, 0.5), at(s, 0.9),
           at(s, 0.99), at(s, 1));
}

/* One of the tokens allowed; a short one more often than not, as answers
 * have. -1: none. */
static int32_t pick(const uint32_t *words)
{
    int32_t best = -1;

    for (int tries = 0; tries < 40; tries++) {
        uint32_t id = draw(tries < 20 ? 3000 : VOCAB);

        if (words[id >> 5] >> (id & 31) & 1) {
            return (int32_t)id;
        }
    }
    for (uint32_t i = 0, from = draw(VOCAB); i < VOCAB && best < 0; i++) {
        uint32_t id = (from + i) % VOCAB;

        if (words[id >> 5] >> (id & 31) & 1) {
            best = (int32_t)id;
        }
    }
    return best;
}

struct result {
    struct samples compile, warm, cold;
};

static void answer(struct masker *m, int32_t eos, bool cold, struct result *r)
{
    static uint32_t words[N_WORDS];
    static uint8_t seen[1 << 20];

    memset(seen, 0, sizeof(seen));
    for (int i = 0; i < N_TOKENS; i++) {
        uint32_t state = masker_state(m);
        double t;
        int32_t id;

        if (cold) {
            masker_forget(m, true);
        } else {
            masker_forget(m, false);
        }
        t = now_us();
        if (masker_mask(m, 0, words) < 0) {
            printf("a mask failed\n");
            return;
        }
        t = now_us() - t;
        if (cold || !seen[state % sizeof(seen)]) {
            add(cold ? &r->cold : &r->warm, t);
        }
        seen[state % sizeof(seen)] = 1;
        id = pick(words);
        if (id < 0 || id == eos || masker_advance(m, &id, 1) < 0) {
            return;
        }
    }
}

/* What it was compiled to is the caller's. */
static struct compiled *one(const json_t *line, const struct lexicon *lex,
                            int32_t eos, bool verbose, struct result *r)
{
    const char *name = json_string_value(json_object_get(line, "name"));
    json_t *form = json_pack("{s:s,s:O}", "type", "json_schema", "schema",
                             json_object_get(line, "schema"));
    char *text = json_dumps(form, 0);
    struct format_args a = {.text = text, .n = strlen(text)};
    char buf[256] = "";
    struct why why = {buf, sizeof(buf)};
    struct compiled *c;
    struct masker *m;
    struct gram *g;
    const struct masker_conf conf = {VOCAB, &eos, 1};
    size_t first = r->warm.n;
    double t = now_us();

    if (format_compile(&g, &a, &why) < 0 || compiled_create(&c, g, lex) < 0) {
        printf("%s: %s\n", name, buf);
        exit(1);
    }
    t = now_us() - t;
    add(&r->compile, t);
    for (int i = 0; i < N_ANSWERS * 2; i++) {
        if (masker_create(&m, c, &conf) < 0) {
            abort();
        }
        seed = (uint64_t)(i % N_ANSWERS);
        answer(m, eos, i >= N_ANSWERS, r);
        masker_destroy(m);
    }
    if (verbose) {
        struct samples s = {r->warm.v + first, r->warm.n - first, 0};

        printf("compile %7.0f us  ", t);
        report(name, &s);
    }
    json_decref(form);
    free(text);
    return c;
}

/* ---- steps ---- */

static double clock_us(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* A request of a step. guide goes ahead of m and finds the tokens, so that what
 * m is asked for it has not been asked for before. */
struct row {
    struct compiled *const *all;
    int n_all, at; /* the schema */
    struct masker *guide, *m;
    int32_t ids[N_POS];
    uint32_t words[N_POS * N_WORDS];
    int status;
};

static void begin_answer(struct row *r, const struct masker_conf *conf)
{
    masker_destroy(r->guide);
    masker_destroy(r->m);
    if (masker_create(&r->guide, r->all[r->at], conf) < 0 ||
        masker_create(&r->m, r->all[r->at], conf) < 0) {
        abort();
    }
}

/* The tokens of the next step; false: the answer has an end among them. */
static bool guess(struct row *r, int32_t eos)
{
    for (int i = 0; i < N_POS; i++) {
        if ((i > 0 && masker_look(r->guide, r->ids, i) < i) ||
            masker_mask(r->guide, i, r->words) < 0) {
            return false;
        }
        r->ids[i] = pick(r->words);
        if (r->ids[i] < 0 || r->ids[i] == eos) {
            return false;
        }
    }
    return true;
}

static void step(struct masks *w, struct row *row,
                 const struct masker_conf *conf, double forward_us,
                 struct samples *build, struct samples *wait,
                 struct samples *least)
{
    static struct masks_item item[N_ROWS];
    const struct timespec forward = {0, (long)(1e3 * forward_us)};
    double t, cpu;

    for (int i = 0; i < N_ROWS; i++) {
        struct row *r = &row[i];

        /* An answer may be shorter than a step, and those of some schemas are
         * always: the next one's turn. */
        for (int tries = 1; !guess(r, conf->stop_ids[0]); tries++) {
            r->at = (r->at + (tries % 4 == 0)) % r->n_all;
            begin_answer(r, conf);
        }
        (void)masker_look(r->m, r->ids, N_POS - 1);
        memset(r->words, 0xff, sizeof(r->words));
        item[i] =
            (struct masks_item){r->m, N_POS, r->words, N_WORDS, &r->status};
    }
    cpu = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    masks_begin(w, item, N_ROWS);
    nanosleep(&forward, NULL);
    t = clock_us(CLOCK_MONOTONIC);
    masks_wait(w);
    t = clock_us(CLOCK_MONOTONIC) - t;
    cpu = clock_us(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    add(build, cpu);
    add(least, cpu > forward_us ? 100 * (cpu - forward_us) / cpu : 0);
    add(wait, 100 * t / (forward_us + t));
    for (int i = 0; i < N_ROWS; i++) {
        (void)masker_advance(row[i].m, row[i].ids, N_POS);
        (void)masker_advance(row[i].guide, row[i].ids, N_POS);
    }
}

/* The schemas are spread over the rows. */
static void steps(struct compiled **c, int n, int32_t eos)
{
    static const double forward_ms[] = {5, 20, 40};
    static struct row row[N_ROWS];
    const struct masker_conf conf = {VOCAB, &eos, 1};
    struct masks *w;

    if (masks_create(&w) < 0) {
        abort();
    }
    printf("\n%d rows x %d positions %12s %8s %8s %8s %8s %8s\n", N_ROWS, N_POS,
           "n", "mean", "median", "p90", "p99", "max");
    for (int k = 0; k < 3; k++) {
        struct samples build = {0}, wait = {0}, least = {0};
        char name[64];

        seed = (uint64_t)k;
        for (int i = 0; i < N_ROWS; i++) {
            row[i].all = c;
            row[i].n_all = n;
            row[i].at = (k + i * n / N_ROWS) % n;
            begin_answer(&row[i], &conf);
        }
        for (int i = 0; i < N_STEPS; i++) {
            step(w, row, &conf, 1e3 * forward_ms[k], &build, &wait, &least);
        }
        report("masks of a step, us", &build);
        snprintf(name, sizeof(name), "wait, %% of %g ms + wait", forward_ms[k]);
        report(name, &wait);
        report("the same, by processor time", &least);
        free(least.v);
        free(build.v);
        free(wait.v);
    }
    for (int i = 0; i < N_ROWS; i++) {
        masker_destroy(row[i].guide);
        masker_destroy(row[i].m);
    }
    masks_destroy(w);
}

#define MAX_SCHEMAS 1000

int main(int argc, char **argv)
{
    static struct compiled *all[MAX_SCHEMAS];
    int n = 0;
    FILE *f = fopen(TEST_SRCDIR "/tests/data/schemas.jsonl", "r");
    struct tokenizer *tok;
    struct lexicon *lex;
    struct result r = {0};
    char why[256], *line = NULL;
    size_t cap = 0;
    double t;
    int32_t eos;

    if (f == NULL ||
        tokenizer_load(&tok, TEST_BUILDDIR "/tests/data/real-tokenizer", why,
                       sizeof(why)) < 0) {
        printf("no schemas or no tokenizer\n");
        return 1;
    }
    eos = tokenizer_id(tok, "<|im_end|>");
    t = now_us();
    if (lexicon_create(&lex, tok) < 0) {
        return 1;
    }
    printf("vocabulary: %.1f ms, once\n", (now_us() - t) / 1e3);
    printf("%-28s %7s %8s %8s %8s %8s %8s\n", "us", "n", "mean", "median",
           "p90", "p99", "max");
    while (n < MAX_SCHEMAS && getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);

        all[n++] = one(v, lex, eos, argc > 1 && strcmp(argv[1], "-v") == 0, &r);
        json_decref(v);
    }
    report("compile a schema", &r.compile);
    report("mask, distinct states", &r.warm);
    report("mask, automaton cold", &r.cold);
    steps(all, n, eos);
    for (int i = 0; i < n; i++) {
        compiled_destroy(all[i]);
    }
    free(line);
    fclose(f);
    lexicon_destroy(lex);
    tokenizer_destroy(tok);
    free(r.compile.v);
    free(r.warm.v);
    free(r.cold.v);
    return 0;
}
