/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Generated text: a line with a digit (1 starts in reasoning, 2 raw, 4 with
 * tools), a line with stop strings between tabs, the rest text. Fed whole, byte
 * by byte and in threes it must come to the same.
 */
#include <jansson.h>
#include <string.h>

#include "daemon/text/parse.h"
#include "tests/fuzz/fuzz.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
    "\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},"
    "\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},"
    "\"o\":{\"type\":\"object\"},\"x\":{\"type\":[]}}}}}]";

struct answer {
    char *text[3]; /* content, reasoning, calls one after another */
    size_t n[3], cap[3];
    int begun; /* calls begun that have not had their word yet */
    int stopped;
};

static void append(struct answer *a, int k, const char *p, size_t n)
{
    if (n == 0) {
        return;
    }
    if (a->n[k] + n > a->cap[k]) {
        a->cap[k] = 2 * (a->n[k] + n);
        a->text[k] = realloc(a->text[k], a->cap[k]);
        FUZZ_CHECK(a->text[k] != NULL);
    }
    memcpy(a->text[k] + a->n[k], p, n);
    a->n[k] += n;
}

static void take_call(struct answer *a, const struct parse_piece *p)
{
    json_error_t error;
    json_t *v = json_loadb(p->text, p->n, JSON_ALLOW_NUL, &error);

    /* Arguments are JSON, but that jansson has no large integers, no NUL in
     * keys, and a limit of its own on depth; and invalid text stays so. */
    FUZZ_CHECK(p->n >= 2 && p->text[0] == '{' && p->text[p->n - 1] == '}');
    FUZZ_CHECK(v != NULL ||
               json_error_code(&error) == json_error_numeric_overflow ||
               json_error_code(&error) == json_error_null_byte_in_key ||
               json_error_code(&error) == json_error_stack_overflow ||
               json_error_code(&error) == json_error_invalid_utf8);
    json_decref(v);
    append(a, 2, p->id, strlen(p->id));
    append(a, 2, p->name, p->n_name);
    append(a, 2, p->text, p->n);
}

static int collect(void *ctx, const struct parse_piece *p)
{
    struct answer *a = ctx;

    switch (p->kind) {
    case PARSE_CONTENT:
    case PARSE_REASONING:
        FUZZ_CHECK(p->n > 0);
        append(a, p->kind == PARSE_REASONING, p->text, p->n);
        break;
    case PARSE_CALL_BEGIN:
        a->begun++;
        break;
    case PARSE_CALL_GROW:
        FUZZ_CHECK(a->begun > 0 && p->n > 0);
        break;
    case PARSE_CALL:
        take_call(a, p);
        a->begun -= a->begun > 0;
        break;
    case PARSE_CALL_DROPPED:
        FUZZ_CHECK(a->begun-- > 0);
        break;
    }
    return 0;
}

static void run(const struct parse_args *args, const char *text, size_t n,
                size_t step, struct answer *a)
{
    struct parse *p;
    int r = 0;

    memset(a, 0, sizeof(*a));
    FUZZ_CHECK(parse_create(&p, args) == 0);
    for (size_t i = 0; i < n; i += step) {
        r = parse_feed(p, text + i, step < n - i ? step : n - i, collect, a);
        FUZZ_CHECK(r == 0 || r == 1);
    }
    a->stopped = parse_flush(p, collect, a);
    FUZZ_CHECK(a->stopped >= r);
    FUZZ_CHECK(a->begun == 0);
    parse_destroy(p);
}

static void finish(struct answer *a)
{
    for (int k = 0; k < 3; k++) {
        free(a->text[k]);
    }
}

static void same_in_steps(const struct parse_args *args, const char *text,
                          size_t n, size_t step, const struct answer *whole)
{
    struct answer a;

    run(args, text, n, step, &a);
    for (int k = 0; k < 3; k++) {
        FUZZ_CHECK(a.n[k] == whole->n[k]);
        FUZZ_CHECK(a.n[k] == 0 ||
                   memcmp(a.text[k], whole->text[k], a.n[k]) == 0);
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
    if ((text[0] & 4) != 0) {
        args.tools = tools;
        args.n_tools = sizeof(tools) - 1;
    }
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
