/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * How fast text becomes ids with the published vocabulary: loading, then 1 MB
 * of each kind of text, the worst kinds included. Prints a table, asserts
 * nothing. The texts are made here, so that the figures of two runs compare.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/text/tokenizer.h"
#include "tests/paths.h"

#define N_TEXT 1000000
#define N_WORDS 40
#define N_RUNS 3

/* Processor time: other load on the machine counts as little as can be. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*state * n >> 32);
}

static size_t english(char *p, size_t n)
{
    static const char *const word[N_WORDS] = {
        "the",    "of",      "and",   "to",     "in",      "model", "is",
        "that",   "request", "it",    "was",    "for",     "on",    "answer",
        "are",    "with",    "as",    "his",    "they",    "be",    "at",
        "one",    "have",    "this",  "from",   "service", "or",    "had",
        "by",     "hot",     "but",   "some",   "what",    "there", "we",
        "socket", "can",     "other", "memory", "which"};
    uint32_t state = 1;
    size_t i = 0;

    while (i + 16 < n) {
        i += (size_t)sprintf(p + i, "%s%s", word[draw(&state, N_WORDS)],
                             draw(&state, 12) == 0 ? ". " : " ");
    }
    return i;
}

static size_t code(char *p, size_t n)
{
    uint32_t state = 2;
    size_t i = 0;

    while (i + 128 < n) {
        i += (size_t)sprintf(p + i,
                             "    for (int i_%u = %u; i < n_%u; i++) {\n"
                             "        sum[i] += 0x%04x * row->x[i];\n    }\n",
                             draw(&state, 9), draw(&state, 999),
                             draw(&state, 99), draw(&state, 65536));
    }
    return i;
}

static size_t cjk(char *p, size_t n)
{
    uint32_t state = 3;
    size_t i = 0;

    while (i + 3 <= n) {
        uint32_t c = 0x4e00 + draw(&state, 0x5000);

        p[i++] = (char)(0xe0 | c >> 12);
        p[i++] = (char)(0x80 | (c >> 6 & 0x3f));
        p[i++] = (char)(0x80 | (c & 0x3f));
    }
    return i;
}

static size_t letters(char *p, size_t n)
{
    memset(p, 'a', n);
    return n;
}

static size_t spaces(char *p, size_t n)
{
    memset(p, ' ', n);
    return n;
}

static size_t noise(char *p, size_t n)
{
    uint32_t state = 4;

    for (size_t i = 0; i < n; i++) {
        p[i] = (char)draw(&state, 256);
    }
    return n;
}

static int bench(const struct tokenizer *t, const char *name,
                 size_t (*fill)(char *, size_t), char *text)
{
    size_t n = fill(text, N_TEXT);
    int32_t *ids = NULL;
    double best = 1e9;
    int n_ids = 0, cap = 0, r = 0;

    for (int i = 0; i < N_RUNS && r == 0; i++) {
        double start = now();

        n_ids = 0;
        r = tokenizer_encode(t, text, n, false, N_TEXT, &ids, &n_ids, &cap);
        best = now() - start < best ? now() - start : best;
    }
    printf("%-10s %8.1f %8.1f %9d\n", name, 1e-6 * (double)n / best, 1e3 * best,
           n_ids);
    free(ids);
    return r;
}

int main(void)
{
    static const struct {
        const char *name;
        size_t (*fill)(char *, size_t);
    } kinds[] = {{"English", english}, {"code", code},     {"CJK", cjk},
                 {"1M 'a'", letters},  {"1M ' '", spaces}, {"noise", noise}};
    struct tokenizer *t;
    char why[256] = "";
    char *text = malloc(N_TEXT);
    double start = now();
    int r = tokenizer_load(&t, TEST_BUILDDIR "/tests/data/real-tokenizer", why,
                           sizeof(why));

    if (text == NULL || r < 0) {
        printf("bench_tokenizer: %s (make tests/data/unpacked.stamp)\n", why);
        free(text);
        return 77;
    }
    printf("tokenizer: loaded in %.0f ms\n", 1e3 * (now() - start));
    printf("%-10s %8s %8s %9s\n", "1 MB of", "MB/s", "ms", "ids");
    for (size_t i = 0; r == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        r = bench(t, kinds[i].name, kinds[i].fill, text);
    }
    tokenizer_destroy(t);
    free(text);
    return r < 0;
}
