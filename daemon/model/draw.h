/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_DRAW_H
#define STEPD_DAEMON_MODEL_DRAW_H

/*
 * The rows of a step that are drawn or scored: listed on the host, then head,
 * sampler and verification in one go. "Sampled row" counts in the order added.
 */

#include <stdint.h>

#include "daemon/model/forward.h"
#include "daemon/model/sample.h"

struct draw {
    struct kern *k;
    struct forward *f;
    int max_rows, max_spans, n_words; /* words of a mask line */
    /* host */
    int n, n_masks, n_pen, cap_pen;
    int32_t *src, *pos; /* [max_rows] */
    struct kern_sample_row *row;
    struct kern_penalty *pen;
    int32_t *tile_n;            /* [max_rows] rows of each tile */
    const uint32_t **mask_from; /* [tile] */
    uint32_t *mask;             /* [tile][n_words], side by side */
    int32_t *row0, *n_draft;    /* [max_spans] */
    int32_t (*draft)[KERN_MAX_DRAFTS];
    /* In the block of results, once they are there. */
    struct kern_sample_out *out;
    int32_t *n_accept, *next; /* [n_spans] */
    /* device; but for masks and penalties pieces of the step's blocks */
    struct bufs bufs;
    struct kern_ptr n_dev, src_dev, pos_dev, row_dev, out_dev, mask_dev;
    struct kern_ptr row0_dev, n_draft_dev, draft_dev, n_accept_dev, next_dev;
    struct kern_ptr pen_dev;
};

/* With k NULL only counts bytes. */
int draw_init(struct draw *d, struct kern *k, struct forward *f, int max_rows,
              int max_spans);
void draw_finish(struct draw *d);

void draw_begin(struct draw *d);
/* The sampled row of step row r draws position pos; r->pen_* and mask are set
 * by what follows. Returns its number. */
int draw_add(struct draw *d, int r, int pos, const struct kern_sample_row *row);
/* Penalties of the row added last: the history and extra tokens. -ENOMEM. */
int draw_penalties(struct draw *d, const struct sampling *s,
                   const int32_t *extra, int n);
/* The mask of the row added last: read by draw_run, not before. */
void draw_mask(struct draw *d, const uint32_t *words);
/* What draw_stage takes of the step's blocks at the most. */
size_t draw_in_bytes(const struct draw *d);
size_t draw_out_bytes(const struct draw *d);
/* The lists into in, row0, n_draft and draft of n_spans spans with them, and
 * room for the results in out. Penalties are uploaded by themselves. */
int draw_stage(struct draw *d, struct block *in, struct block *out,
               int n_spans);
/* The masks, then head and sampler over the staged rows of the trunk; queues.
 */
int draw_run(struct draw *d);
/* Verification of n_spans spans by row0, n_draft, draft; queues. */
int draw_accept(struct draw *d, int n_spans);

#endif
