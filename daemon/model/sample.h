/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_SAMPLE_H
#define STEPD_DAEMON_MODEL_SAMPLE_H

/*
 * How one sequence wants its tokens drawn: the parameters, and the tokens whose
 * logits are changed: those of the history, while a penalty is on, and those
 * with a bias. The drawing itself is kern_sample.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "kernels/kernels.h"

struct sampling {
    struct model_sampling p;
    int vocab;
    /* Those with a bias, then different tokens of the history, and where an id
     * stands among them (-1: nowhere). All NULL while nothing is changed. */
    struct kern_penalty *pen;
    int32_t *where;
    int n_pen, cap_pen;
    bool counts; /* a penalty is on: the history is kept */
};

/* -ENOMEM. n_drawn of the last tokens of history count as drawn, the others as
 * prompt; ids outside of the vocabulary are passed over. */
int sampling_init(struct sampling *s, const struct model_sampling *p, int vocab,
                  const int32_t *history, int n_history, int n_drawn);
void sampling_finish(struct sampling *s); /* a zeroed one is fine */
/* A token was drawn for good. */
int sampling_add(struct sampling *s, int32_t id);

/* The row of a draw; penalties and mask still off. */
struct kern_sample_row sampling_row(const struct sampling *s);
/* The row of a proposal; beta is the module's to set. */
struct kern_sample_row sampling_draft_row(const struct sampling *s);
/* Entries that the list may have with n more tokens drawn. */
int sampling_max_penalties(const struct sampling *s, int n);
/* The list as if extra had been drawn too; returns the entries written. */
int sampling_penalties(const struct sampling *s, const int32_t *extra, int n,
                       struct kern_penalty *ret);

#endif
