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
#include "daemon/sched/turns.h"
#include "daemon/text/tokenizer.h"

/* Of the model and of the request together. */
#define DELIVER_MAX_STOP_IDS (16 + JOB_MAX_STOP_IDS)
/* Bytes of the drafts of a step that are looked at for the end of reasoning:
 * the longest token of a real vocabulary has 128. */
#define DELIVER_AHEAD_BYTES 1024

struct deliver;

struct deliver_conf {
    const struct tokenizer *tokenizer;
    const int32_t *stop_ids; /* of the model; end an answer; copied */
    int n_stop_ids;
    int32_t think_end, tool_call; /* ids of </think>, <tool_call>; -1: none */
    int max_tokens;               /* that this request may draw, >= 1 */
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
/* Nothing can follow what there is: the answer has ended by itself. */
int deliver_over(struct deliver *d, deliver_emit emit, void *ctx);
/* Cut short (cancel, timeout): text that was withheld comes out. */
int deliver_cut(struct deliver *d, deliver_emit emit, void *ctx);

/* The turn with its calls, where the answer has some and the model ended it;
 * else NULL. */
const struct turn_draft *deliver_turn(const struct deliver *d);

/* What the request forbids a row to draw. */
enum {
    DELIVER_NO_STOP = 1,      /* min_tokens are not there yet */
    DELIVER_NO_CALL = 2,      /* tool_choice none */
    DELIVER_END_REASONING = 4 /* nothing but </think>: the budget is spent */
};
/* Fills in the limits of the rows after the first 0, 1, .. n drafts: what a row
 * may draw depends on the tokens before it alone, whatever the steps. True
 * where there is any. */
bool deliver_limits(const struct deliver *d, const int32_t *draft, int n,
                    uint8_t ret[MODEL_MAX_DRAFTS + 1]);
bool deliver_allows(const struct deliver *d, uint8_t limits, int32_t id);
/* The same as a line of struct model_span's mask. */
void deliver_mask(const struct deliver *d, uint8_t limits, uint32_t *words,
                  int n_words);

int deliver_drawn(const struct deliver *d); /* tokens of the answer so far */
int deliver_left(const struct deliver *d);  /* tokens it may still have */
/* Fills the completion and reasoning counts. */
void deliver_usage(const struct deliver *d, struct event_usage *ret);

#endif
