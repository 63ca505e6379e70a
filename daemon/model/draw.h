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
    struct kern_sample_out *out; /* after draw_fetch and kern_end */
    int32_t *n_accept, *next;    /* [max_spans], likewise */
    int32_t *row0, *n_draft;     /* [max_spans] */
    int32_t (*draft)[KERN_MAX_DRAFTS];
    /* device */
    struct bufs bufs;
    struct kern_ptr n_dev, src_dev, pos_dev, row_dev, out_dev, mask_dev;
    struct kern_ptr row0_dev, n_draft_dev, draft_dev, n_accept_dev, next_dev;
    struct kern_ptr pen_dev; /* grows with the histories */
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
/* The mask of the row added last. */
int draw_mask(struct draw *d, const uint32_t *words);
/* head and sampler over the added rows of the trunk; queues. */
int draw_run(struct draw *d);
/* Verification of n_spans spans by row0, n_draft, draft; queues. */
int draw_accept(struct draw *d, int n_spans);
/* Before kern_end, which fills out, n_accept, next. */
int draw_fetch(struct draw *d, int n_spans);

#endif
