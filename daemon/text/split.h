/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_SPLIT_H
#define STEPD_DAEMON_TEXT_SPLIT_H

/*
 * Pre-tokenisation: successive passes of a regular expression, each cutting
 * the pieces that the pass before it left, matches and gaps alike (the "Split"
 * pre-tokeniser with behaviour "Isolated"). Each piece is a text of its own:
 * a look-ahead never sees beyond it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/why.h"

#define SPLIT_MAX_PASSES 8

/* A call of the matcher may take this many backtracking steps for each byte of
 * its piece, and SPLIT_MIN_STEPS on top. The published patterns need about
 * one. */
#define SPLIT_STEPS_PER_BYTE 64
#define SPLIT_MIN_STEPS 65536
/* Memory for its backtracking, in KiB; the published patterns need none. */
#define SPLIT_HEAP_KIB 65536

/* Immutable after load. */
struct split {
    struct pcre2_real_code_8 *pass[SPLIT_MAX_PASSES];
    int n_passes;
};

/* Scratch of one encode. n_calls counts the calls of the matcher; a test may
 * set a callout on context. */
struct split_scratch {
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_match_data_8 *data[SPLIT_MAX_PASSES];
    uint64_t n_calls;
};

/* Gets each piece in order; never an empty one. Non-zero ends the split. */
typedef int (*split_emit)(void *ctx, const uint8_t *piece, size_t n);

void split_finish(struct split *s); /* zeroed or filled */
/* Adds a pass. literal: the pattern is plain text. options: further PCRE2
 * compile options, 0 but in tests. -EBADMSG: the pattern cannot be compiled, or
 * says something that the engine it was written for reads differently. */
int split_add(struct split *s, const char *pattern, size_t n, bool literal,
              uint32_t options, const struct why *why);

int split_scratch_init(struct split_scratch *x, const struct split *s);
void split_scratch_finish(struct split_scratch *x);
/* text is valid UTF-8. 0, what emit returned, -ENOMEM, or -ELOOP: a pattern
 * took more steps than it may on this text. */
int split_run(const struct split *s, struct split_scratch *x,
              const uint8_t *text, size_t n, split_emit emit, void *ctx);

#endif
