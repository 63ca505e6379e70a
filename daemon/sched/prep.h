/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_PREP_H
#define STEPD_DAEMON_SCHED_PREP_H

/*
 * The preparation thread: text to token ids, away from the I/O thread and the
 * engine thread, neither of which may wait for a megabyte of prompt.
 *
 * It loads the tokenizer, fills in the ids of generate jobs and hands them on,
 * and answers tokenize, detokenize and render itself.
 */

#include <stdbool.h>

#include "daemon/sched/job.h"
#include "daemon/sched/ticket.h"
#include "daemon/sched/turns.h"
#include "daemon/text/tokenizer.h"

#define PREP_PART_IDS 65536         /* ids in one part of a long result */
#define PREP_PART_BYTES (256 << 10) /* text in one part */

struct prep_conf {
    const char *dir; /* the checkpoint's folder; copied */
    int max_queue;
    struct tickets *tickets;
    struct turns *turns; /* NULL: none are kept */
    /* All from the preparation thread. forward takes the job over, emit the
     * event; loaded: prep_tokenizer will answer now. */
    void (*forward)(void *ctx, struct job *j);
    void (*emit)(void *ctx, struct event *e);
    void (*loaded)(void *ctx);
    void (*ended)(void *ctx); /* the thread's last word */
    void *ctx;
};

struct prep;

int prep_create(struct prep **ret, const struct prep_conf *c);
/* Takes the job over, unless it is full (-EAGAIN) or stopped (-EPIPE). */
int prep_submit(struct prep *p, struct job *j);
/* 0: still loading. 1: *ret is the tokenizer, good until prep_destroy.
 * -errno: it cannot be loaded, and why. */
int prep_tokenizer(struct prep *p, const struct tokenizer **ret, char *why,
                   size_t n_why);
/* Tokens that a prompt may have; 0 (at first): not known, nothing refused. */
void prep_limit(struct prep *p, int max_prompt_tokens);
/* No more jobs; those inside are handed on as they are. */
void prep_stop(struct prep *p);
void prep_join(struct prep *p);
void prep_destroy(struct prep *p); /* after prep_join; NULL is fine */

/* What the thread does with one job. True: its ids are filled in and it is for
 * the engine; false: it has been answered and is the caller's to destroy. */
struct prep_env {
    const struct tokenizer *tokenizer;
    struct lexicon **lexicon; /* made when it is first needed */
    struct tickets *tickets;
    struct turns *turns;
    int max_prompt_tokens;
    void (*emit)(void *ctx, struct event *e);
    void *ctx;
};
bool prep_job(const struct prep_env *env, struct job *j);

#endif
