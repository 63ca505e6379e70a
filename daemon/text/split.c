/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Runs the split passes by PCRE2's interpreter (no JIT: it cannot be had under
 * MemoryDenyWriteExecute, and two ways to match are one too many). What keeps
 * it linear and off the stack:
 *
 * - the text is checked for UTF-8 once by the caller; PCRE2's own check runs
 *   over the whole subject at every call and would make each pass quadratic;
 * - a pass works on one piece at a time, so a match that looks ahead looks no
 *   further than its piece;
 * - a call gets a number of steps in proportion to its piece. A pattern that
 *   needs more fails the encode: a limit never turns into another cut;
 * - pcre2_match keeps its frames on the heap; the recursion here is one level a
 *   pass, and SPLIT_MAX_PASSES bounds it.
 *
 * Any thread; compiled patterns are read only, everything else is scratch.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "daemon/text/split.h"

#include <pcre2.h>
#include <string.h>

#include "daemon/text/regex.h"
#include "daemon/text/utf8.h"

void split_finish(struct split *s)
{
    for (int i = 0; i < s->n_passes; i++) {
        pcre2_code_free(s->pass[i]);
    }
    memset(s, 0, sizeof(*s));
}

/* The newline that "." stops at is a build option of PCRE2: ask for \n. */
static pcre2_code *compile(const char *pattern, size_t n, uint32_t options,
                           const struct why *why)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    pcre2_code *code = NULL;
    PCRE2_UCHAR text[128];
    PCRE2_SIZE at;
    int err;

    if (context != NULL) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        code =
            pcre2_compile((PCRE2_SPTR)pattern, n, options, &err, &at, context);
        if (code == NULL) {
            pcre2_get_error_message(err, text, sizeof(text));
            why_set(why, 0, "pattern: %s", (const char *)text);
        }
    } else {
        why_set(why, 0, "out of memory");
    }
    pcre2_compile_context_free(context);
    return code;
}

int split_add(struct split *s, const char *pattern, size_t n, bool literal,
              uint32_t options, const struct why *why)
{
    struct str translated = {0};
    pcre2_code *code;
    int r = 0;

    if (s->n_passes == SPLIT_MAX_PASSES) {
        return why_set(why, -EBADMSG, "more than %d split passes",
                       SPLIT_MAX_PASSES);
    }
    options |= PCRE2_UTF;
    if (literal) {
        options |= PCRE2_LITERAL;
        str_add(&translated, pattern, n);
        r = translated.err;
    } else {
        options |= PCRE2_UCP;
        r = regex_translate(pattern, n, &translated, why);
    }
    if (r < 0) {
        goto out;
    }
    code = compile(translated.n != 0 ? translated.p : "", translated.n, options,
                   why);
    if (code == NULL) {
        r = -EBADMSG;
        goto out;
    }
    s->pass[s->n_passes++] = code;
out:
    str_finish(&translated);
    return r;
}

int split_scratch_init(struct split_scratch *x, const struct split *s)
{
    memset(x, 0, sizeof(*x));
    x->context = pcre2_match_context_create(NULL);
    if (x->context == NULL) {
        return -ENOMEM;
    }
    pcre2_set_heap_limit(x->context, SPLIT_HEAP_KIB);
    for (int i = 0; i < s->n_passes; i++) {
        x->data[i] = pcre2_match_data_create(1, NULL);
        if (x->data[i] == NULL) {
            split_scratch_finish(x);
            return -ENOMEM;
        }
    }
    return 0;
}

void split_scratch_finish(struct split_scratch *x)
{
    for (int i = 0; i < SPLIT_MAX_PASSES; i++) {
        pcre2_match_data_free(x->data[i]);
    }
    pcre2_match_context_free(x->context);
    memset(x, 0, sizeof(*x));
}

struct run {
    const struct split *s;
    struct split_scratch *x;
    split_emit emit;
    void *ctx;
};

static int run_pass(const struct run *run, int k, const uint8_t *piece,
                    size_t n);

/* A piece of pass k goes on to the next one, or out. */
static int hand_on(const struct run *run, int k, const uint8_t *piece, size_t n)
{
    if (n == 0) {
        return 0;
    }
    if (k + 1 < run->s->n_passes) {
        return run_pass(run, k + 1, piece, n);
    }
    return run->emit(run->ctx, piece, n);
}

/* 1: match in [ret[0], ret[1]); 0: none from off on. */
static int match(const struct run *run, int k, const uint8_t *piece, size_t n,
                 size_t off, size_t *ret)
{
    pcre2_match_data *data = run->x->data[k];
    const PCRE2_SIZE *o;
    int rc;

    run->x->n_calls++;
    rc = pcre2_match(run->s->pass[k], piece, n, off, PCRE2_NO_UTF_CHECK, data,
                     run->x->context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        return 0;
    }
    if (rc == PCRE2_ERROR_NOMEMORY) {
        return -ENOMEM;
    }
    if (rc < 0) {
        return -ELOOP;
    }
    o = pcre2_get_ovector_pointer(data);
    ret[0] = o[0];
    ret[1] = o[1];
    return 1;
}

static void set_limit(const struct run *run, size_t n)
{
    uint64_t steps = (uint64_t)n * SPLIT_STEPS_PER_BYTE + SPLIT_MIN_STEPS;

    pcre2_set_match_limit(run->x->context,
                          steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
}

static int run_pass(const struct run *run, int k, const uint8_t *piece,
                    size_t n)
{
    size_t off = 0, from = 0;
    size_t m[2];
    int r;

    while (off < n) {
        set_limit(run, n - off);
        r = match(run, k, piece, n, off, m);
        if (r < 0) {
            return r;
        }
        if (r == 0) {
            break;
        }
        r = hand_on(run, k, piece + from, m[0] - from);
        if (r != 0) {
            return r;
        }
        off = from = m[1];
        if (m[1] == m[0]) {
            /* An empty match cuts, and the search goes on a character later. */
            off += m[0] < n ? (size_t)utf8_length(piece[m[0]]) : 1;
            continue;
        }
        r = hand_on(run, k, piece + m[0], m[1] - m[0]);
        if (r != 0) {
            return r;
        }
    }
    return hand_on(run, k, piece + from, n - from);
}

int split_run(const struct split *s, struct split_scratch *x,
              const uint8_t *text, size_t n, split_emit emit, void *ctx)
{
    const struct run run = {.s = s, .x = x, .emit = emit, .ctx = ctx};

    if (n == 0) {
        return 0;
    }
    if (s->n_passes == 0) {
        return emit(ctx, text, n);
    }
    return run_pass(&run, 0, text, n);
}
