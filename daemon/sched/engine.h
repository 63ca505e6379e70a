/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_ENGINE_H
#define STEPD_DAEMON_SCHED_ENGINE_H

/*
 * The engine as the I/O thread sees it: jobs in, events out, ids for the rest.
 *
 * Two threads stand behind it: the preparation thread (rendering, tokenising)
 * and the engine thread (loads the model, then drain inbox, plan, step,
 * deliver, repeat). All functions here are called from the I/O thread, never
 * block on a step, and return at once.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/sched/job.h"
#include "daemon/sched/times.h"

struct engine;
struct model_conf;

enum engine_state {
    ENGINE_LOADING,
    ENGINE_READY,
    ENGINE_DRAINING, /* running requests go on, new ones are refused */
    ENGINE_FAILED,   /* the load or the device failed: exit_code says how */
    ENGINE_STOPPED
};

struct engine_conf {
    const struct model_conf *model; /* copied; progress and tick are set here */
    int max_queue;                  /* jobs waiting, all kinds */
    int max_prompt_tokens;          /* 0 = max_model_len - 1 */
    int kv_ready;                   /* tokens; see core_touch */
    double kv_share_per_owner;      /* of the KV cache's pages; 1: all */
    int max_queued_tokens;          /* of one (uid, tenant), not yet started */
    int max_batched_tokens;         /* rows a step */
    int prefill_chunk; /* forced chunk (tests), 0 = by the time budget */
    int step_target_ms;
    int drafts; /* greatest depth, -1 = what the model has */
    bool no_prefix_cache, share_prefix_cache;
    int max_sessions, max_sessions_per_owner;
    uint64_t max_session_text_per_owner;
    const char *session_dir; /* copied; NULL or "": none are saved */
    uint64_t session_disk, session_disk_per_owner, session_disk_floor;
    bool hold_load;   /* tests: the load waits for engine_release */
    bool hold_steps;  /* tests: a step waits for engine_release */
    bool scrub_freed; /* freed pages are spoilt: a stale read shows */
    /* Called from the engine's threads when events wait: must only wake. */
    void (*wake)(void *ctx);
    /* Log lines of the engine thread; may be NULL. level as syslog. */
    void (*log)(void *ctx, int level, const char *line);
    void *ctx;
};

/* A snapshot, copied under a lock. */
struct engine_status {
    enum engine_state state;
    int exit_code;                  /* sysexits of a failed load: 65 .. 78 */
    char cause[512];                /* why it failed, first problem */
    uint64_t load_done, load_total; /* bytes */
    char model[256], device[64], dialect[48], family[32];
    int max_model_len, n_mtp, vocab;
    float draft_beta[3]; /* as in model_info */
    int queued, running;
    uint64_t requests, finished, failed, cancelled, preempted;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t steps, rows, layers, row_layers;
    uint64_t ticks; /* layers, counted while a step runs too */
    bool idle;      /* nothing can run: no work, or its readers are slow */
    uint64_t drafts, drafted, accepted, accepted_at[3], proposed_by[3];
    int draft_depth;     /* of the engine's choice, now */
    bool drafter_is_off; /* too little of it was accepted */
    uint64_t weight_bytes, kv_bytes, expert_loads;
    int pages[2], pages_free[2]; /* full, sliding; free or can be */
    int pages_cached[2], pages_pinned[2];
    uint64_t pages_evicted[2], checkpoints_evicted;
    int checkpoints, sessions;
    int unsaved; /* pinned sessions whose file is not what they are */
    uint64_t memory_weights, memory_kv;
    double step_ms; /* moving average */
    struct times times;
    double forward_s, sample_s, mtp_s; /* of steps, inside the model */
    uint64_t major_faults;             /* page faults with a read, in steps */
};

/* Starts both threads; the model loads in the background. */
int engine_create(struct engine **ret, const struct engine_conf *c);
/* Takes the job over. -EBUSY: the queue is full (the job stays the caller's).
 * -ESHUTDOWN: draining, stopped or failed. */
int engine_submit(struct engine *e, struct job *j);
/* Work for the job stops before the next layer boundary has passed; its one
 * final event still comes. Unknown ids are ignored. */
void engine_cancel(struct engine *e, uint64_t job);
/* A paused job is not planned (its reader is slow); cancel is still heard. */
void engine_pause(struct engine *e, uint64_t job, bool paused);
/* Pinned sessions are saved soon; engine_status tells when. */
void engine_save_pinned(struct engine *e);
/* Next event, now the caller's, or NULL. Drain until NULL on each wake. */
struct event *engine_poll(struct engine *e);
void engine_status(struct engine *e, struct engine_status *ret);
/* The jobs that wait or run, n at most; returns how many. */
int engine_jobs(struct engine *e, struct job_view *ret, int n);
void engine_drain(struct engine *e, bool on);
/* Ends running work with `cancelled`/`draining` events, joins the threads. */
void engine_stop(struct engine *e);
void engine_destroy(struct engine *e); /* stops first; NULL is fine */
/* Tests: lets n held steps (or the held load) pass. */
void engine_release(struct engine *e, int n);

#endif
