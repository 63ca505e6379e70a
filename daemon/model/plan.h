/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_PLAN_H
#define STEPD_DAEMON_MODEL_PLAN_H

/*
 * Where the bytes will go, before the first one is read: weights by kind, KV
 * pages of both groups, activations; and the largest context that fits.
 */

#include "daemon/model/checkpoint.h"

/* What a published checkpoint of that shape holds, its routed experts stored in
 * that form, all else BF16 and the router bias F32; of ModelOpt the input_scale
 * too, which is stored and never used. Sets the weights_* members. -ENOMEM. */
int plan_weights(const struct shape *s, enum scheme experts,
                 struct model_memory *ret);

/* Pages that hold a window of that many slots while rows rows of one sequence
 * are computed, wherever the first lies in its page. */
int plan_sliding_pages(int window, int rows);

/* Bytes of the buffers of a step: of at most max_rows rows of at most max_seqs
 * sequences of at most max_len tokens. Counted by the same code that makes
 * them. -ENOMEM. */
int plan_activations(const struct shape *s, int max_rows, int max_seqs,
                     int max_len, uint64_t *ret);

/* The largest step of such a model, as backends want to know it. */
struct kern_sizes plan_sizes(const struct shape *s, int max_rows, int max_seqs,
                             int max_len);

/* The whole plan for a checkpoint under ck's model_conf on an opened backend
 * (NULL: one that computes in the host's memory), where available bytes are
 * free (0: as available_memory says; on a device what k->memory says, of which
 * memory_utilization is taken already). The pools never take more than
 * memory_utilization of them. With a problem in rep -E2BIG where an asked size
 * does not fit, -EBADMSG where nothing does; a context that was not asked for
 * shrinks with a note. */
int plan_memory(const struct checkpoint *ck, const struct kern *k,
                uint64_t available, struct report *rep,
                struct model_memory *ret);

#endif
