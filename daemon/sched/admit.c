/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Job to task: every check that needs the model's numbers, then the session
 * that the request works on. Engine thread only. Owns nothing itself.
 *
 * The invariant: a task that passed here can be finished by a pool that holds
 * nothing else, so the planner may promise that the oldest one always advances.
 */

#include "daemon/sched/admit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/base/die.h"
#include "daemon/sched/score.h"

static struct event *too_long(const struct job *j, int limit)
{
    return event_error(j, "too_long",
                       "the prompt has %d tokens, at most %d fit", j->n_ids,
                       limit);
}

static struct event *refused_key(const struct job *j, const char *code,
                                 const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static struct event *refused_key(const struct job *j, const char *code,
                                 const char *key, const char *fmt, ...)
{
    char why[200];
    struct event *e;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    e = event_error(j, code, "%s", why);
    (void)snprintf(e->detail, sizeof(e->detail), "%s", key);
    return e;
}

/* Tokens that the answer may have: what was asked for, and what the context
 * and the pools have room for. */
static int answer_limit(const struct job *j, const struct admit_conf *c)
{
    int fits = c->max_len - j->n_ids;

    return j->max_tokens > 0 && j->max_tokens < fits ? j->max_tokens : fits;
}

/* What holds the answer to its grammar. */
static int create_masker(struct task *t, const struct job *j,
                         const struct admit_conf *c)
{
    const struct masker_conf mc = {
        .vocab = c->vocab,
        .stop_ids = c->stop_ids,
        .n_stop_ids = c->n_stop_ids,
    };

    return j->grammar == NULL ? 0 : masker_create(&t->masker, j->grammar, &mc);
}

static struct event *check(const struct job *j, const struct admit_conf *c)
{
    int limit = c->geo->max_len - 1;

    if (c->max_prompt_tokens > 0 && c->max_prompt_tokens < limit) {
        limit = c->max_prompt_tokens;
    }
    if (j->n_ids > limit) {
        return too_long(j, limit);
    }
    if (j->drafts > c->max_drafts) {
        return refused_key(j, "bad_request", "drafts",
                           "drafts may be %d at most: the model has %d MTP "
                           "layers",
                           c->max_drafts, c->max_drafts);
    }
    for (int i = 0; i < j->n_ids; i++) {
        if (j->ids[i] < 0 || j->ids[i] >= c->vocab) {
            return event_error(j, "bad_request",
                               "token %d of the prompt is %d: the model knows "
                               "0 to %d",
                               i, (int)j->ids[i], c->vocab - 1);
        }
    }
    for (int i = 0; i < j->n_stop_ids; i++) {
        if (j->stop_ids[i] < 0 || j->stop_ids[i] >= c->vocab) {
            return refused_key(j, "bad_request", "stop_ids",
                               "stop_ids: the model knows 0 to %d",
                               c->vocab - 1);
        }
    }
    for (int i = 0; i < j->n_bias; i++) {
        if (j->bias[i].id < 0 || j->bias[i].id >= c->vocab) {
            return refused_key(j, "bad_request", "logit_bias",
                               "logit_bias has token %d: the model knows 0 to "
                               "%d",
                               (int)j->bias[i].id, c->vocab - 1);
        }
    }
    if (j->max_reasoning >= 0 && c->think_end < 0) {
        return refused_key(j, "unsupported", "max_reasoning_tokens",
                           "the tokenizer has no token </think> to end "
                           "reasoning with");
    }
    return NULL;
}

int admit_job(struct task **ret, struct job *j, const struct admit_conf *c,
              struct event **ret_error)
{
    const struct deliver_conf dc = {
        .tokenizer = c->tokenizer,
        .stop_ids = c->stop_ids,
        .n_stop_ids = c->n_stop_ids,
        .think_end = c->think_end,
        .tool_call = c->tool_call,
        .max_tokens = answer_limit(j, c),
    };
    struct event *e = check(j, c);
    struct task *t = NULL;
    int r;

    if (e != NULL) {
        goto refused;
    }
    t = xcalloc(1, sizeof(*t));
    t->seq = -1;
    t->n_prompt = j->n_ids;
    t->most = j->n_ids + dc.max_tokens;
    t->progress_done = -1;
    t->n_cached = -1;
    r = session_create(&t->session, c->pool, c->geo, j->ids,
                       score_session_ids(j));
    if (r == 0) {
        r = deliver_create(&t->deliver, j, &dc);
    }
    if (r == 0) {
        r = create_masker(t, j, c);
    }
    if (r == -EINVAL) {
        e = event_error(j, "bad_request", "a stop string is empty");
        goto refused;
    }
    if (r == -E2BIG) {
        e = refused_key(j, "too_long", job_grammar_key(j),
                        "%s: too large to be followed", job_grammar_key(j));
        goto refused;
    }
    if (r < 0) {
        e = event_error(j, "no_memory", "not enough memory for this request");
        goto refused;
    }
    t->job = j;
    *ret = t;
    return 0;
refused:
    task_destroy(t);
    *ret_error = e;
    job_destroy(j);
    return 1;
}

void task_destroy(struct task *t)
{
    if (t == NULL) {
        return;
    }
    free(t->mask);
    deliver_destroy(t->deliver);
    masker_destroy(t->masker);
    session_destroy(t->session);
    said_finish(&t->said);
    turn_finish(&t->turn);
    job_destroy(t->job);
    free(t);
}
