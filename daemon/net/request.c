/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A decoded request to a job: the place where every limit on what clients may
 * ask is checked that the protocol's own tables cannot know, because it is
 * configured or depends on who asks.
 *
 * Owns nothing; the job it returns owns its texts, so that the frame can go.
 * I/O thread: only copies, no tokenising. The invariant: a job that leaves here
 * has every field in range, and nothing behind it checks what a client may ask
 * for again, but for what only tokens can tell (too_long).
 *
 * To change what clients may ask: hard limits are in client/wire.h, tunable
 * ones in base/conf.c.
 */

#include "daemon/net/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/conf.h"
#include "daemon/base/die.h"
#include "daemon/sched/job.h"

_Static_assert(JOB_MAX_STOPS >= WIRE_MAX_STOPS, "stops");
_Static_assert(JOB_MAX_BAD_WORDS >= WIRE_MAX_BAD_WORDS, "bad words");
_Static_assert(JOB_MAX_STOP_IDS >= WIRE_MAX_STOP_IDS, "stop ids");
_Static_assert(JOB_MAX_TENANT >= WIRE_MAX_TENANT, "tenant");
_Static_assert((int)SESSION_FORK == WIRE_SESSION_FORK - WIRE_SESSION_LIST,
               "ops on sessions in the wire's order");
_Static_assert(JOB_MAX_SESSION >= WIRE_MAX_SESSION, "session");

int request_kind(enum wire_op op)
{
    switch (op) {
    case WIRE_GENERATE:
        return JOB_GENERATE;
    case WIRE_SCORE:
        return JOB_SCORE;
    case WIRE_TOKENIZE:
        return JOB_TOKENIZE;
    case WIRE_DETOKENIZE:
        return JOB_DETOKENIZE;
    case WIRE_RENDER:
        return JOB_RENDER;
    case WIRE_SESSION_LIST:
    case WIRE_SESSION_PIN:
    case WIRE_SESSION_UNPIN:
    case WIRE_SESSION_SAVE:
    case WIRE_SESSION_RESTORE:
    case WIRE_SESSION_DROP:
    case WIRE_SESSION_FORK:
        return JOB_SESSION;
    default:
        return -1;
    }
}

static int refuse(struct wire_error *err, const struct wire_request *r,
                  int code, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static int refuse(struct wire_error *err, const struct wire_request *r,
                  int code, const char *key, const char *fmt, ...)
{
    va_list ap;

    err->code = code;
    err->id = r->id;
    (void)snprintf(err->detail, sizeof(err->detail), "%s", key);
    va_start(ap, fmt);
    (void)vsnprintf(err->message, sizeof(err->message), fmt, ap);
    va_end(ap);
    return code;
}

static int check(const struct wire_request *r, const struct conf *conf,
                 const struct peer *peer, struct wire_error *err)
{
    if (r->tenant.p != NULL && !peer->may_delegate) {
        return refuse(err, r, WIRE_E_DENIED, "tenant",
                      "only delegate_users may name a tenant");
    }
    if (r->append && r->session.p == NULL) {
        return refuse(err, r, WIRE_E_BAD_REQUEST, "append",
                      "append goes with a session");
    }
    if (r->append && r->messages.p == NULL) {
        return refuse(err, r, WIRE_E_BAD_REQUEST, "append",
                      "append goes with messages");
    }
    if (r->priority > conf->max_priority && !peer->is_admin) {
        return refuse(err, r, WIRE_E_DENIED, "priority",
                      "priority may be %d at most here", conf->max_priority);
    }
    if (conf->drafts >= 0 && r->drafts > conf->drafts) {
        return refuse(err, r, WIRE_E_BAD_REQUEST, "drafts",
                      "drafts may be %d at most here", conf->drafts);
    }
    return 0;
}

/* Text sizes are the client's choice: running out of memory is an answer. */
static int copy(struct job_text *to, const struct wire_str *from)
{
    if (from->p == NULL) {
        return 0;
    }
    to->p = malloc(from->n + 1);
    if (to->p == NULL) {
        return -1;
    }
    memcpy(to->p, from->p, from->n);
    to->p[from->n] = '\0';
    to->n = from->n;
    return 0;
}

/* Names whose length wire_decode_request has checked. */
static void copy_name(char *to, size_t n_to, const struct wire_str *from)
{
    BUG_ON(from->n >= n_to);
    if (from->n > 0) {
        memcpy(to, from->p, from->n);
    }
    to[from->n] = '\0';
}

static int copy_bias(struct job *j, const struct wire_request *r)
{
    if (r->n_logit_bias == 0) {
        return 0;
    }
    j->bias = malloc(r->n_logit_bias * sizeof(j->bias[0]));
    if (j->bias == NULL) {
        return 1;
    }
    for (size_t i = 0; i < r->n_logit_bias; i++) {
        j->bias[i].id = r->logit_bias[i].id;
        j->bias[i].bias = r->logit_bias[i].bias;
    }
    j->n_bias = (int)r->n_logit_bias;
    return 0;
}

static int copy_texts(struct job *j, const struct wire_request *r)
{
    int bad = copy(&j->messages, &r->messages) | copy(&j->tools, &r->tools) |
              copy(&j->tool_choice, &r->tool_choice) |
              copy(&j->prompt, &r->prompt) |
              copy(&j->response_format, &r->response_format);

    for (size_t i = 0; i < r->n_bad_words; i++) {
        bad |= copy(&j->bad_word[i], &r->bad_words[i]);
        j->n_bad_words++;
    }
    for (size_t i = 0; i < r->n_stops; i++) {
        bad |= copy(&j->stop[i], &r->stop[i]);
        j->n_stops++;
    }
    if (r->n_ids > 0) {
        j->ids = malloc(r->n_ids * sizeof(j->ids[0]));
        if (j->ids != NULL) {
            memcpy(j->ids, r->ids, r->n_ids * sizeof(j->ids[0]));
            j->n_ids = (int)r->n_ids;
        }
        bad |= j->ids == NULL;
    }
    if (r->n_stop_ids > 0) {
        j->stop_ids = malloc(r->n_stop_ids * sizeof(j->stop_ids[0]));
        if (j->stop_ids != NULL) {
            memcpy(j->stop_ids, r->stop_ids,
                   r->n_stop_ids * sizeof(j->stop_ids[0]));
            j->n_stop_ids = (int)r->n_stop_ids;
        }
        bad |= j->stop_ids == NULL;
    }
    return bad | copy_bias(j, r);
}

static void copy_numbers(struct job *j, const struct wire_request *r)
{
    j->request = r->id;
    j->chat = r->messages.p != NULL;
    j->thinking = r->thinking;
    j->add_generation = r->add_generation_prompt;
    j->parse_special = r->special;
    j->want_ids = r->want_ids;
    j->temperature = (float)r->temperature;
    j->top_p = (float)r->top_p;
    j->min_p = (float)r->min_p;
    j->top_k = (int)r->top_k;
    j->repetition = (float)r->repetition_penalty;
    j->presence = (float)r->presence_penalty;
    j->frequency = (float)r->frequency_penalty;
    j->seed_given = wire_has(r, WIRE_K_SEED);
    j->seed = r->seed;
    j->max_tokens = (int)r->max_tokens;
    j->min_tokens = (int)r->min_tokens;
    j->max_reasoning = (int)r->max_reasoning_tokens;
    j->ignore_eos = r->ignore_eos;
    j->include_stop = r->include_stop;
    j->want_bytes = r->want_bytes;
    j->logprobs = (int)r->logprobs;
    j->prompt_logprobs = (int)r->prompt_logprobs;
    j->logprobs_sampled = r->logprobs_mode.p != NULL &&
                          strcmp(r->logprobs_mode.p, "sampled") == 0;
    j->drafts = (int)r->drafts;
    j->priority = (int)r->priority;
    j->timeout_ms = r->timeout_ms;
    j->append = r->append;
}

int request_to_job(const struct wire_request *r, const struct conf *conf,
                   const struct peer *peer, struct job **ret,
                   struct wire_error *err)
{
    struct job *j;
    int code, kind = request_kind(r->op);

    BUG_ON(kind < 0);
    code = check(r, conf, peer, err);
    if (code < 0) {
        return code;
    }
    j = job_create((enum job_kind)kind);
    if (j == NULL || copy_texts(j, r) != 0) {
        job_destroy(j);
        return refuse(err, r, WIRE_E_NO_MEMORY, "",
                      "no memory for this request");
    }
    copy_numbers(j, r);
    j->uid = peer->uid;
    copy_name(j->tenant, sizeof(j->tenant), &r->tenant);
    copy_name(j->session, sizeof(j->session), &r->session);
    copy_name(j->to, sizeof(j->to), &r->to);
    if (kind == JOB_SESSION) {
        j->op = (enum session_op)(r->op - WIRE_SESSION_LIST);
    }
    copy_name(j->reasoning, sizeof(j->reasoning), &r->reasoning_effort);
    *ret = j;
    return 0;
}
