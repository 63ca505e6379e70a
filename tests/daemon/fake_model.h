/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_DAEMON_FAKE_MODEL_H
#define TESTS_DAEMON_FAKE_MODEL_H

/*
 * A model for tests of the scheduler: daemon/model/model.h over arithmetic that
 * a test can redo in its head. The next token is a hash of all tokens so far
 * (of those in the window a second time), of position, seed and parameters; it
 * is computed from what stands in the pages, so whatever the scheduler does
 * wrong with pages, positions or order changes the text.
 *
 * And it is strict. Every plan is checked: rows go on where the sequence
 * stands, sure tokens are the known ones and drafts the ones that were shown,
 * page tables cover what is read and written, and what is read was written by
 * the same history and not scrubbed since (run the scheduler with scrub_freed).
 * The first fault is printed and aborts.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/model/model.h"

struct fake_conf {
    int n_layers, n_mtp, window, vocab, max_model_len;
    int pages[MODEL_N_GROUPS];
    int first_token, n_tokens; /* what is drawn, beside eos */
    int eos;                   /* also in model_info */
    int eos_one_in;            /* 0: never */
    int wrong_drafts;          /* in 100 */
    int32_t nan_token;         /* a row that holds it is not finite; -1 none */
    int open_error, self_test_error;
    int fail_step;        /* this step's collect fails; 0 none */
    uint64_t stale_after; /* model_verify_files complains from that step on */
    uint64_t load_bytes;
    uint64_t fingerprint;
    const char *device;
    /* Called at every layer boundary, before the scheduler's own tick, with
     * the number of boundaries so far. */
    void (*on_layer)(void *ctx, uint64_t n);
    /* Called between bytes of the load. */
    void (*on_load)(void *ctx);
    /* Called in model_verify_files: after a step or a sleep of the engine. */
    void (*on_verify)(void *ctx);
    /* Called for each page that is overwritten. */
    void (*on_scrub)(void *ctx, enum model_group g, int page);
    void *ctx;
    /* A step's time for a fake clock: base + rows * row. */
    uint64_t *clock_us;
    uint64_t step_us, row_us;
};

extern struct fake_conf fake; /* set it before model_open */
void fake_reset(void);        /* defaults: 4 layers, window 64, 3 MTP modules */

/* The token that follows these n, of which the first n_prompt were given, as
 * the model would draw it. */
int32_t fake_next(const struct model_sampling *s, const int32_t *ids,
                  int n_prompt, int n);

/* Layer boundaries passed so far; any thread. */
uint64_t fake_boundaries(void);
/* The last boundary after which a row of the sequence with this seed was
 * computed; 0 never. */
uint64_t fake_last_row(uint64_t seed);
/* Sequences open now; the most rows of a step; steps with more than one
 * sequence; evidence that a test tested what it says. */
int fake_open_seqs(void);
int fake_most_rows(void);
int fake_shared_steps(void);

#endif
