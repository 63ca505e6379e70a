/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_BPE_H
#define STEPD_DAEMON_TEXT_BPE_H

/*
 * Byte-pair encoding of one word: the bytes become symbols, and the pair with
 * the lowest rank is merged, leftmost first, until no pair has a rank.
 */

#include <stddef.h>
#include <stdint.h>

#include "daemon/text/vocab.h"

/* Ids of a text so far. max: more than that is refused. */
struct bpe_ids {
    int32_t *v;
    int n, cap, max;
};

/* Immutable after load. */
struct bpe {
    uint64_t *key;  /* [mask + 1] left id << 32 | right id, by hash */
    uint32_t *rank; /* [mask + 1] BPE_NO_RANK: the slot is free */
    uint32_t mask;
    int32_t *merged; /* [n_merges] id that the merge of a rank makes */
    uint32_t n_merges;
    int32_t byte_id[256];
    const struct vocab *whole; /* a word found here is not merged up; NULL:
                                * no such short cut (ignore_merges) */
};

#define BPE_NO_RANK UINT32_MAX

/* Scratch of one encode, reused from word to word. pops counts the heap's
 * work: at most 3 for each byte. */
struct bpe_scratch {
    struct bpe_symbol *sym;
    uint64_t *heap;
    size_t cap;
    uint64_t pops;
};

int bpe_init(struct bpe *b, uint32_t n_merges);
void bpe_finish(struct bpe *b); /* zeroed or initialised */
/* Merges are added in the order of their ranks; a pair that comes again takes
 * the later rank. Never more than n_merges of them. */
void bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t merged);

void bpe_scratch_finish(struct bpe_scratch *s);
/* Appends the ids of a word. -E2BIG: more than ids->max; -ENOMEM. */
int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const uint8_t *word,
               size_t n, struct bpe_ids *ids);
int bpe_push(struct bpe_ids *ids, int32_t id);

#endif
