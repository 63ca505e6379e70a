/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_SCORE_H
#define STEPD_DAEMON_SCHED_SCORE_H

/*
 * Logprobs of tokens that are given: the score op, and those of a prompt. They
 * are computed with the rows of prefill, chunk by chunk, and go out as parts.
 *
 * A score task's session has all its tokens but the last, which only its
 * predecessors are asked about.
 */

#include "daemon/model/model.h"
#include "daemon/sched/admit.h"

/* Tokens of one part event. */
#define SCORE_PART 256

/* Rows of the prompt are wanted, so none of them may be taken from a cache. */
static inline bool score_wants(const struct job *j)
{
    return j->kind == JOB_SCORE || j->prompt_logprobs >= 0;
}
/* Tokens that the session begins with. */
static inline int score_session_ids(const struct job *j)
{
    return j->kind == JOB_SCORE ? j->n_ids - 1 : j->n_ids;
}
/* Alternatives that the model must tell of. */
int score_n_top(const struct job *j);
/* Turns a span over prompt rows into one that scores. */
void score_span(const struct task *t, struct model_span *s);
/* The scored rows of a span that began at row `pos`, each token once. */
int score_take(struct task *t, int pos, const struct model_out *o,
               const struct tokenizer *tok, deliver_emit emit, void *ctx);

#endif
