/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_MASK_H
#define STEPD_DAEMON_TEXT_MASK_H

/*
 * The tokens that may come next. A lexicon is what is worked out once for a
 * vocabulary; a masker runs one answer's grammar and says for each of its
 * states which tokens fit, as a line of bits.
 *
 * A lexicon is immutable and shared by threads; a masker has one owner at a
 * time.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/text/gram.h"
#include "daemon/text/tokenizer.h"

/* Masks kept by a masker, 16 KiB each with 128,896 tokens. */
#define MASK_CACHE 32
/* Nodes that one mask may visit: some 50 ms. */
#define MASK_MAX_VISITS (8u << 20)
/* Sets of characters of one grammar that get a slice; others are walked. */
#define MASK_MAX_SLICES 8

struct lexicon;
struct masker;

/* tok must outlive it. -ENOMEM. */
int lexicon_create(struct lexicon **ret, const struct tokenizer *tok);
void lexicon_destroy(struct lexicon *l); /* NULL is fine */

/* A grammar ready for a vocabulary: takes g over (also where it fails). */
struct compiled;
int compiled_create(struct compiled **ret, struct gram *g,
                    const struct lexicon *l);
void compiled_destroy(struct compiled *c); /* NULL is fine */

struct masker_conf {
    int vocab; /* rows of the model's head: bits of a mask, in words of 32; at
                * least the tokenizer's */
    const int32_t *stop_ids; /* end an answer: they fit exactly where the text
                              * may end; live as long as the masker */
    int n_stop_ids;
};
/* c must outlive it. -ENOMEM. */
int masker_create(struct masker **ret, const struct compiled *c,
                  const struct masker_conf *conf);
void masker_destroy(struct masker *m); /* NULL is fine */

/* The state after the tokens of the answer so far: position 0. Looking ahead
 * takes positions 1.. n, one for each draft; masker_look returns how many of
 * them fit, which is where the next mask is the last that is needed. */
int masker_advance(struct masker *m, const int32_t *ids, int n);
int masker_look(struct masker *m, const int32_t *ids, int n);
/* The mask at a position that was looked at (0: without a look). Every bit of
 * words is written. -E2BIG: the grammar is too large to be followed; -ENOMEM.
 */
int masker_mask(struct masker *m, int position, uint32_t *words);
/* The answer fits and nothing can follow it. */
bool masker_is_over(struct masker *m);
bool masker_accepts(const struct masker *m);
/* The number of the answer's state, good until the next advance. */
uint32_t masker_state(const struct masker *m);
/* Benches: forgets masks; and with states everything that was worked out. */
void masker_forget(struct masker *m, bool states);
unsigned long masker_visits(const struct masker *m); /* trie nodes, so far */

#endif
