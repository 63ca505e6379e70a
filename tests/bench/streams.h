/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_BENCH_STREAMS_H
#define TESTS_BENCH_STREAMS_H

/*
 * Decoding streams of a synthetic checkpoint with a known cycle: every stream
 * starts somewhere else in it, so tokens, and the experts that they hit, are
 * diverse. A stream begins at any position without a prefill: its pages are
 * imported, all the same random numbers.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "tests/synth.h"

#define STREAMS_MAX 8
#define STREAMS_PROMPT 512 /* rows of the longest prompt */

struct streams {
    struct model *m;
    const struct synth *shape;
    int max;      /* streams that there is room for */
    int n;        /* that are open */
    int first;    /* slot of the first one's pages; 0 unless several share m */
    int depth;    /* drafts a step, -1: the engine's choice */
    bool sampled; /* temperature 1, top-p 0.95; else greedy */
    int n_table;  /* pages a sequence may have */
    int ring;     /* sliding pages of a stream */
    int seq[STREAMS_MAX];
    int32_t next[STREAMS_MAX];
    int32_t *table[MODEL_N_GROUPS];     /* [max][n_table] */
    uint64_t drafts, drafted, accepted; /* since streams_begin */
};

/* Pages into memory, all that streams use. Ends the program where it cannot. */
void streams_init(struct streams *s, struct model *m, const struct synth *shape,
                  int max);
void streams_finish(struct streams *s);
/* n streams after ctx tokens; ctx 0: after one. */
void streams_begin(struct streams *s, int n, int depth, int ctx);
void streams_end(struct streams *s);
/* One more stream in slot `slot` of the same pages, drawing the same tokens as
 * one that streams_begin of 1 begins: for cases that take turns. */
void streams_fork(struct streams *to, const struct streams *from, int slot,
                  int depth, int ctx);
int streams_step(struct streams *s); /* tokens drawn by all */
/* One prompt of n tokens, with drafting or without; seconds. */
double streams_prefill(struct streams *s, int n, int depth);

#endif
