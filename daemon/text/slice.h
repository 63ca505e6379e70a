/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_SLICE_H
#define STEPD_DAEMON_TEXT_SLICE_H

/*
 * What a vocabulary has to say about one set of characters: the tokens that are
 * made of nothing else, with the number of characters that each begins, and the
 * others that begin in the set, as a trie of their own. Where a grammar repeats
 * the set, the mask is the first, cut to the characters left, and a walk over
 * the second. Immutable once made.
 */

#include <stdint.h>

#include "daemon/text/gram.h"
#include "daemon/text/toktrie.h"

/* Lengths for which the cut is there before it is asked for. */
#define SLICE_LEVELS 24

/* Where the characters left are fewer than that, a set that may be left by one
 * of its own characters is walked instead. */
#define SLICE_SHORT 16

struct slice {
    uint32_t n_words;
    uint32_t *mask;         /* [n_words] tokens that stay inside */
    uint32_t *level;        /* [SLICE_LEVELS][n_words]: of at most i + 1
                             * characters; NULL: worked out when asked */
    uint8_t *chars;         /* [n_ids] characters begun; 0: not in mask */
    uint8_t longest;        /* of them */
    struct toktrie *rest;   /* tokens that leave after a byte at least */
    struct toktrie *longer; /* tokens of mask of more than SLICE_SHORT
                             * characters; NULL with leaves_by */
};

/* Of a character rule of g. leaves_by: the one byte that can end it, or -1:
 * tokens that leave by another are in neither part. levels: with `level`.
 * -ENOMEM. */
int slice_create(struct slice **ret, const struct gram *g, uint32_t rule,
                 const struct toktrie *t, const struct tokenizer *tok,
                 int leaves_by, bool levels);
void slice_destroy(struct slice *s); /* NULL is fine */
/* Sets the bits of those with at most max characters, max >= 1. */
void slice_or(const struct slice *s, uint32_t max, uint32_t *words);

#endif
