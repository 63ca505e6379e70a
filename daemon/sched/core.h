/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_CORE_H
#define STEPD_DAEMON_SCHED_CORE_H

/*
 * The engine without its threads: tasks, the step (plan, submit, collect,
 * deliver), cancel. One thread, the engine thread, calls everything; a test
 * can be that thread and count the steps.
 *
 * Jobs come in prepared and with an open ticket; a job's ticket is taken
 * before its final event goes out and closed when the job is freed.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "daemon/sched/job.h"
#include "daemon/sched/named.h"
#include "daemon/sched/ticket.h"
#include "daemon/sched/times.h"
#include "daemon/sched/turns.h"
#include "daemon/text/tokenizer.h"

/* A request that is queued or in prefill hears of it this often at most. */
#define CORE_PROGRESS_US 250000
/* What `busy` advises: when to try again. */
#define CORE_RETRY_MS 1000

struct core_conf {
    struct model *model;
    const struct tokenizer *tokenizer;
    struct tickets *tickets;
    struct turns *turns; /* NULL: none are kept */
    int max_live;        /* tasks at once */
    int max_seqs;        /* of them running */
    int max_prompt_tokens;
    int max_queued_tokens; /* of one (uid, tenant), not yet started */
    int max_batched_tokens;
    int prefill_chunk;
    int step_target_ms;
    int drafts;
    double kv_share_per_owner; /* of the pages of each group; 0 or 1: all */
    int kv_ready;              /* tokens of the KV cache for core_touch */
    int max_checkpoints;       /* of the prefix index; 0: as planned */
    bool no_prefix_cache; /* every request is computed from its first token */
    bool share_prefix_cache; /* one cache domain for all */
    bool scrub_freed; /* freed pages are spoilt, so that a stale read shows */
    /* Named sessions. prepare takes a job over that may be rendered now and
     * comes back by core_add; wake: core_tend has something to do (from another
     * thread). */
    struct named_limits named;
    const char *session_dir; /* NULL or "": they are not saved */
    uint64_t session_disk, session_disk_per_owner, session_disk_floor;
    size_t store_chunk; /* bytes, as STORE_CHUNK_BYTES (0: that) */
    void (*prepare)(void *ctx, struct job *j);
    void (*wake)(void *ctx);
    void (*emit)(void *ctx, struct event *e); /* takes it over */
    void (*log)(void *ctx, int level, const char *line);
    uint64_t (*now_us)(void *ctx);
    void *ctx;
};

struct core_counts {
    int waiting, running;
    uint64_t requests, finished, failed, cancelled, preempted;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t steps;
    int pages[MODEL_N_GROUPS];
    int pages_free[MODEL_N_GROUPS];   /* or can be: cached and nobody's */
    int pages_cached[MODEL_N_GROUPS]; /* in the prefix index */
    int pages_pinned[MODEL_N_GROUPS];
    int checkpoints, sessions;
    int unsaved; /* as core_unsaved */
    uint64_t pages_evicted[MODEL_N_GROUPS], checkpoints_evicted;
    double step_ms; /* moving average */
    struct times times;
};

struct core;

/* -ENOSPC: the page pools cannot hold one request of max_model_len. */
int core_create(struct core **ret, const struct core_conf *c);
/* Every task must have ended. NULL is fine. */
void core_destroy(struct core *c);

/* Takes a prepared generate job over: accepted, or refused with its error. */
void core_add(struct core *c, struct job *j);
/* From the engine's loop or from within a step (the model's tick). False: no
 * such task here. */
bool core_call(struct core *c, const struct ticket_call *call);
/* Ends every task: running ones as cancelled, waiting ones with the code; or
 * all of them with it (all = true). Allowed within a step. */
void core_end_all(struct core *c, bool all, const char *code, const char *why);

/* Files: a chunk of what is being saved or restored. True: something moved, and
 * more may. Between steps. */
bool core_tend(struct core *c);
/* Memory of the KV cache that was never used is asked of the host, a little at
 * a time. True: there is more. Between steps, when there is nothing else to do.
 */
bool core_touch(struct core *c);
/* Pinned sessions whose file is not what they are, or that have none. */
int core_unsaved(const struct core *c);
/* These are saved, as far as there is room for them; core_tend does it. One
 * whose pin was taken back is saved, too, where its file still says it is. */
void core_save_pinned(struct core *c);
/* The same, at the end: waits for the disk. */
void core_save_last(struct core *c);

/* One step: 1, or 0 where there is nothing to do. -errno: the device failed
 * and nothing can run any more; the tasks are still there. */
int core_step(struct core *c);
/* Requests that the running step still works for; 0 between steps. */
int core_step_live(const struct core *c);
/* A step that ran elsewhere (the self-test): a first idea of the speed. */
void core_measured(struct core *c, int rows, double ms);

void core_counts(const struct core *c, struct core_counts *ret);

#endif
