/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_ENGINE_PRIV_H
#define STEPD_DAEMON_SCHED_ENGINE_PRIV_H

/* What engine.c (threads, boxes, the loop) and engine_load.c (until READY, and
 * the end after a failure) share; nobody else's. Engine thread, where nothing
 * else is said. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/mbox.h"
#include "daemon/model/model.h"
#include "daemon/sched/core.h"
#include "daemon/sched/engine.h"
#include "daemon/sched/faults.h"
#include "daemon/sched/spec.h"
#include "daemon/sched/ticket.h"

#define EXIT_FAULT 70 /* sysexits: EX_SOFTWARE */

struct engine {
    struct engine_conf conf;
    struct model_conf model_conf; /* with our own copies of its strings */
    char *path, *backend, *isa, *session_dir;

    struct tickets *tickets;
    struct turns *turns;
    struct prep *prep;
    struct mbox *inbox; /* struct job, or &nudge */
    struct mbox *out;   /* struct event, or &over */
    int max_live;

    pthread_t thread;
    bool started;
    atomic_bool stop, draining;
    atomic_bool nudged;      /* the nudge is in the inbox, or about to be */
    atomic_bool save_pinned; /* is asked for */
    atomic_bool idle;        /* the engine thread sleeps for want of work */
    atomic_ullong ticks;     /* layers begun */
    atomic_int released;     /* steps that may pass while they are held */

    /* I/O thread: what engine_stop popped, for engine_poll. */
    struct event *stash, **stash_end;

    /* Engine thread only. */
    struct model *model;
    const struct tokenizer *tokenizer;
    struct core *core;
    struct job *early, **early_end; /* came before there was a core */
    bool load_released, step_released;
    int load_quarter; /* of the bytes, said so far */
    struct spec_log spec_log;
    struct faults faults;

    pthread_mutex_t lock; /* of status */
    struct engine_status status;
};

/* ---- engine.c ---- */

uint64_t engine_clock_us(void *ctx); /* any thread */
void engine_on_log(void *ctx, int level, const char *line);
void engine_say(struct engine *e, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void engine_set_state(struct engine *e, enum engine_state s);
/* An event of the core, after its counters. */
void engine_on_core_event(void *ctx, struct event *ev);
/* What is in the inbox, then the tickets. */
void engine_hear(struct engine *e);
/* Until something comes in or a time limit runs out, then hears it. */
void engine_doze(struct engine *e);
bool engine_take_release(struct engine *e);
/* A job that comes before there is a core, or when none will be. */
void engine_keep_early(struct engine *e, struct job *j);
/* Every job that has not been answered yet, wherever it is. */
void engine_answer_all(struct engine *e, const char *code, const char *why);
/* Early jobs that nobody will serve; they have been answered. */
void engine_drop_jobs(struct engine *e);
/* Makes the engine thread look at everything. Any thread. */
void engine_poke(struct engine *e);

/* ---- engine_load.c ---- */

/* Between bytes of the load; -ECANCELED at a stop. */
void engine_on_plan(void *ctx, const struct model_info *i);
int engine_on_progress(void *ctx, uint64_t done, uint64_t total);
/* Model, tokenizer, proof, core. False: it failed and has been stopped, or it
 * was stopped. */
bool engine_load(struct engine *e);
/* Tells the cause to all, also to who comes later, until the stop. code: of the
 * errors. exit_code: what the process ends with. */
void engine_fail(struct engine *e, int exit_code, const char *code,
                 const char *cause);

#endif
