/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Generated text: a line with a digit (1 starts in reasoning, 2 raw), a line
 * with stop strings between tabs, the rest text. Fed whole, byte by byte and in
 * threes it must come to the same.
 */
#include <string.h>

#include "daemon/text/parse.h"
#include "tests/fuzz/fuzz.h"

struct answer {
    char *text[2]; /* content, reasoning */
    size_t n[2];
    int stopped;
};

static int collect(void *ctx, const struct parse_piece *p)
{
    struct answer *a = ctx;
    int k = p->kind == PARSE_REASONING;

    FUZZ_CHECK(p->n > 0);
    memcpy(a->text[k] + a->n[k], p->text, p->n);
    a->n[k] += p->n;
    return 0;
}

static void run(const struct parse_args *args, const char *text, size_t n,
                size_t step, struct answer *a)
{
    struct parse *p;
    int r = 0;

    for (int k = 0; k < 2; k++) {
        /* The tags of an implicit end are written anew: no more than read. */
        a->text[k] = malloc(n + 16);
        a->n[k] = 0;
        FUZZ_CHECK(a->text[k] != NULL);
    }
    FUZZ_CHECK(parse_create(&p, args) == 0);
    for (size_t i = 0; i < n; i += step) {
        r = parse_feed(p, text + i, step < n - i ? step : n - i, collect, a);
        FUZZ_CHECK(r == 0 || r == 1);
    }
    a->stopped = parse_flush(p, collect, a);
    FUZZ_CHECK(a->stopped >= r);
    parse_destroy(p);
}

static void finish(struct answer *a)
{
    free(a->text[0]);
    free(a->text[1]);
}

static void same_in_steps(const struct parse_args *args, const char *text,
                          size_t n, size_t step, const struct answer *whole)
{
    struct answer a;

    run(args, text, n, step, &a);
    for (int k = 0; k < 2; k++) {
        FUZZ_CHECK(a.n[k] == whole->n[k]);
        FUZZ_CHECK(memcmp(a.text[k], whole->text[k], a.n[k]) == 0);
    }
    FUZZ_CHECK(a.stopped == whole->stopped);
    finish(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data;
    const char *line = n >= 2 ? memchr(text + 2, '\n', n - 2) : NULL;
    const char *stop[PARSE_MAX_STOPS];
    size_t len[PARSE_MAX_STOPS];
    struct parse_args args = {.stop = stop, .stop_len = len};
    struct answer whole;

    if (line == NULL) {
        return 0;
    }
    args.reasoning = (text[0] & 1) != 0;
    args.raw = (text[0] & 2) != 0;
    for (const char *s = text + 2;
         s < line && args.n_stops < PARSE_MAX_STOPS;) {
        const char *tab = memchr(s, '\t', (size_t)(line - s));
        const char *end = tab != NULL ? tab : line;

        if (end > s) {
            stop[args.n_stops] = s;
            len[args.n_stops++] = (size_t)(end - s);
        }
        s = end + 1;
    }
    n -= (size_t)(line + 1 - text);
    text = line + 1;
    run(&args, text, n, n != 0 ? n : 1, &whole);
    same_in_steps(&args, text, n, 1, &whole);
    same_in_steps(&args, text, n, 3, &whole);
    finish(&whole);
    return 0;
}
