/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_TURNS_H
#define STEPD_DAEMON_SCHED_TURNS_H

/*
 * Turns with tool calls, as the model wrote them, by the id of their first
 * call: a client sends a call back as JSON of its own making, and the prompt
 * needs the model's bytes, or no prefix of it is found again. Kept for each
 * (uid, tenant) apart, within limits; the one that was not asked for longest
 * goes first. What is gone is rendered by the template.
 *
 * The engine thread adds, the preparation thread finds: all calls lock.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/sched/job.h"
#include "daemon/text/chat.h"
#include "daemon/text/str.h"
#include "daemon/text/tokenizer.h"

#define TURNS_MAX_BYTES (32u << 20) /* all of them */
#define TURNS_OWNER_BYTES (8u << 20)

struct turns;

/* A turn while it is written. */
struct turn_draft {
    struct str reasoning, content;
    struct str ids;   /* int32_t each, the stop id is not among them */
    struct str calls; /* texts of calls, one after another */
    struct turn_call {
        size_t id, name, arguments; /* where they begin in calls */
        size_t n_id, n_name, n_arguments;
    } * call;
    int n_calls;
    int err; /* 0 or -ENOMEM: it is not kept */
};
void turn_draft_call(struct turn_draft *d, const char *id, const char *name,
                     size_t n_name, const char *arguments, size_t n_arguments);
void turn_draft_finish(struct turn_draft *d); /* zeroed or filled */

int turns_create(struct turns **ret);
void turns_destroy(struct turns *t); /* NULL is fine */
/* Keeps a copy, if there are calls and there is memory for it. */
void turns_add(struct turns *t, const struct job *j,
               const struct tokenizer *tokenizer, const struct turn_draft *d);
/* The turn of this owner whose first call has this id; it stays until
 * turns_release, which the same thread calls next. NULL: there is none, and
 * nothing to release. */
const struct chat_turn *turns_find(struct turns *t, uint32_t uid,
                                   const char *tenant, const char *id,
                                   size_t n);
void turns_release(struct turns *t);
size_t turns_bytes(struct turns *t); /* what is kept now */

#endif
