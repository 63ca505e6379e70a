/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_ADMIT_H
#define STEPD_DAEMON_SCHED_ADMIT_H

/*
 * A prepared job to a task: the engine's own object for a request from its
 * admission to its final event. Refused here is what can never be served; the
 * longest cached prefix will be looked up here too.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "daemon/sched/deliver.h"
#include "daemon/sched/job.h"
#include "daemon/sched/named.h"
#include "daemon/sched/session.h"
#include "daemon/text/mask.h"

/* Checkpoints that a long prompt leaves on the way, at most. */
#define TASK_MAX_SPARSE 8

struct task {
    struct job *job;
    struct session *session;
    struct deliver *deliver;
    struct masker *masker; /* holds it to its grammar; NULL: there is none */
    int mask_status;       /* of this step's masks */
    int owner;             /* index into the table of shares */
    uint64_t arrival;      /* order of admission; kept through pre-emption */
    int seq;               /* the model's handle; -1: waiting */
    bool paused;
    bool ended; /* its final event is out; freed when no step holds it */
    bool in_step;
    uint64_t last_step;
    uint64_t left; /* the call of core_step that pre-empted it; 0 none */
    uint64_t salt; /* its cache domain */
    int n_prompt;
    int most;     /* tokens that it can come to have, answer included */
    int n_cached; /* prompt tokens that were not computed; -1: not known yet */
    int n_kept;   /* tokens that it has put into the prefix index */
    int sparse[TASK_MAX_SPARSE], n_sparse; /* its checkpoints on the way */
    bool failed;                           /* its session stays as it was */
    struct turn turn;                      /* what its session becomes */
    struct said said;                      /* where it writes a named session */
    void *core;                            /* whose it is */
    bool spoilt;  /* its numbers were not finite: nothing of it is kept */
    int n_scored; /* prompt tokens whose logprobs are told */
    int n_draft;  /* drafts that the next step may verify */
    int32_t draft[MODEL_MAX_DRAFTS];
    uint32_t *mask; /* of a step's rows; NULL until one is needed */
    int drafts, drafted, accepted, accepted_at[MODEL_MAX_DRAFTS];
    uint64_t started_us, first_us; /* 0: not yet */
    uint64_t last_us;              /* of the last tokens */
    uint64_t progress_us;          /* when it was last told */
    int progress_done;             /* and what, -1: nothing */
};

struct admit_conf {
    struct kvpool *pool;
    const struct session_geometry *geo;
    const struct tokenizer *tokenizer;
    const int32_t *stop_ids;
    int n_stop_ids;
    int32_t think_end, tool_call; /* ids of </think>, <tool_call>; -1: none */
    int max_prompt_tokens;
    int max_len; /* tokens of a sequence of this owner */
    int vocab;
    int max_drafts; /* MTP layers that the model has */
};

/* Takes the job over. A positive return: refused, *ret_error is the event to
 * send and the job is destroyed; 0: *ret. */
int admit_job(struct task **ret, struct job *j, const struct admit_conf *c,
              struct event **ret_error);
void task_destroy(struct task *t); /* job and pages included; NULL is fine */

#endif
