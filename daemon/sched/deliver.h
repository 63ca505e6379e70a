/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_DELIVER_H
#define STEPD_DAEMON_SCHED_DELIVER_H

/*
 * Drawn tokens of one request to delta events, and the decision when it has
 * ended: stop ids, stop strings, max_tokens.
 *
 * A step may bring several tokens at once. They go out in one delta (two where
 * reasoning ends among them), and where the answer ends inside the block, ids,
 * text, logprobs and usage all end at the same token.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "daemon/sched/job.h"
#include "daemon/text/tokenizer.h"

struct deliver;

struct deliver_conf {
    const struct tokenizer *tokenizer;
    const int32_t *stop_ids; /* end an answer; lives as long as we do */
    int n_stop_ids;
    int max_tokens; /* that this request may draw, >= 1 */
};

/* Takes an event over. */
typedef void (*deliver_emit)(void *ctx, struct event *e);

/* j must outlive it. -ENOMEM. */
int deliver_create(struct deliver **ret, const struct job *j,
                   const struct deliver_conf *c);
void deliver_destroy(struct deliver *d); /* NULL is fine */

/* The tokens of one step. Returns how many of them belong to the answer, all
 * unless it ended among them. -ENOMEM: nothing more can come. */
int deliver_tokens(struct deliver *d, const struct model_token *t, int n,
                   deliver_emit emit, void *ctx);
/* True when the answer has ended by itself, and why. */
bool deliver_ended(const struct deliver *d, enum event_finish *ret);
/* Cut short (cancel, timeout): text that was withheld comes out. */
int deliver_cut(struct deliver *d, deliver_emit emit, void *ctx);

int deliver_drawn(const struct deliver *d); /* tokens of the answer so far */
int deliver_left(const struct deliver *d);  /* tokens it may still have */
/* Fills the completion and reasoning counts. */
void deliver_usage(const struct deliver *d, struct event_usage *ret);

#endif
