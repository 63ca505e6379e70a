/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_MTP_H
#define STEPD_DAEMON_MODEL_MTP_H

/*
 * The MTP modules: which slots a sequence has of them, and their passes over a
 * step's committed rows, which end in drafts. design.md 4.3 is the law; the
 * rows of a pass are listed on the device (kern_mtp_rows).
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/forward.h"
#include "daemon/model/model.h"

/* What a sequence keeps between steps; L is the sequence's committed length. */
struct mtp_seq {
    int r0; /* first trunk row of the unbroken run, -1: none */
    int end[KERN_MAX_DRAFTS]; /* module k has slots r0 + k .. end[k - 1] - 1 */
    /* The tokens that slots from L on were made with: the drawn one, drafts. */
    int n_known;
    int32_t known[KERN_MAX_DRAFTS + 1];
    int n_drafts; /* pending: known[1 .. n_drafts] */
};

/* No run; the next span with drafting on begins one at its first row. */
void mtp_seq_reset(struct mtp_seq *q);
/* The run continues at L = len with its slots below len only. */
void mtp_seq_at(struct mtp_seq *q, int r0, int len);
/* A step computes n_sure rows of these tokens from slot len on: slots that were
 * made with other tokens are dropped, a run is begun where there is none. Fills
 * all of ret but row0, seq and carry. */
void mtp_seq_step(struct mtp_seq *q, int len, const int32_t *ids, int n_sure,
                  int depth, struct kern_mtp_span *ret);
/* After it: L is len now, `next` was drawn (-1: nothing), drafts proposed. */
void mtp_seq_commit(struct mtp_seq *q, const struct kern_mtp_span *span,
                    int len, int32_t next, const int32_t *drafts, int n_drafts);

struct mtp {
    struct kern *k;
    struct forward *f;
    int n;         /* modules */
    int max_spans; /* of a step */
    /* Of each module's proposals at temperature > 0: 0 proposes the likeliest
     * token, else argmax(beta * log q + the noise of that position). */
    float beta[KERN_MAX_DRAFTS];
    struct bufs bufs;
    struct rows rows; /* of the module that is being computed */
    struct kern_ptr first, row0, below, last, last_pos, keep_src, keep_dst;
    /* Pieces of the step's blocks. */
    struct kern_ptr span, keep_n;
    struct kern_ptr low; /* int32 [KERN_MAX_DRAFTS][n_lines] */
    struct {             /* of module i + 1 */
        int n;           /* spans that it proposes for */
        struct kern_ptr n_dev, params;
    } head[KERN_MAX_DRAFTS];
    struct kern_ptr drafts;      /* struct kern_sample_out
                                  * [KERN_MAX_DRAFTS][n_spans] */
    struct kern_sample_out *out; /* they on the host, once they are there */
};

/* One step's passes. Spans stand in descending order of depth. */
struct mtp_step {
    int n_spans;
    struct kern_mtp_span *span;
    int n_lines;                    /* of the page tables */
    const int32_t *low;             /* [KERN_MAX_DRAFTS][n_lines] */
    struct kern_sample_row *params; /* [n_spans], of their proposals; beta is
                                     * set by mtp_stage, module by module */
    struct kern_ptr pen; /* what params' penalties point into, or absent */
    int n_step_rows, max_rows; /* bounds: trunk rows, rows of a module */
    struct kern_ptr step_ids, n_accept, next; /* on the device */
    /* Called before each module; true: span.row0 of some became -1. May be
     * NULL. */
    bool (*tick)(void *ctx);
    /* Called after each module, its rows settled. May be NULL. */
    int (*seen)(void *ctx, int module, const struct rows *rows);
    void *ctx;
};

/* With k NULL only counts bytes. */
int mtp_init(struct mtp *t, struct kern *k, struct forward *f, int n,
             int max_spans);
void mtp_finish(struct mtp *t);
/* What mtp_stage takes of the step's blocks at the most. */
size_t mtp_in_bytes(const struct mtp *t);
size_t mtp_out_bytes(const struct mtp *t);
/* The host's part of s into in, room for the proposals in out. */
void mtp_stage(struct mtp *t, const struct mtp_step *s, struct block *in,
               struct block *out);
/* Queues all passes of what was staged. */
int mtp_run(struct mtp *t, const struct mtp_step *s);
/* Once they are back: those of span i in ret, their number. */
void mtp_drafts(const struct mtp *t, const struct mtp_step *s,
                int32_t (*ret)[KERN_MAX_DRAFTS], int *ret_n);

#endif
