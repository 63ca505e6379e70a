/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Making and freeing what crosses threads: jobs and events. Plain memory, no
 * locks, any thread. The structs themselves are small and of a fixed size, so
 * their allocation cannot fail (die.h); what hangs on them has the size that a
 * client chose and is allocated, checked, by whoever fills it in.
 *
 * The invariant: an object has one owner, and every pointer in it is its own,
 * so that destroying it is always right.
 */

#include "daemon/sched/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/text/mask.h"

struct job *job_create(enum job_kind kind)
{
    struct job *j = xcalloc(1, sizeof(*j));

    j->kind = kind;
    j->thinking = true;
    j->add_generation = true;
    j->temperature = 1;
    j->top_p = 1;
    j->repetition = 1;
    j->logprobs = -1;
    j->prompt_logprobs = -1;
    j->drafts = -1;
    j->max_reasoning = -1;
    return j;
}

/* Only one key makes it: a format of type text makes none. */
const char *job_grammar_key(const struct job *j)
{
    return j->n_bad_words > 0 ? "bad_words"
           : j->choice == JOB_CHOICE_REQUIRED || j->choice == JOB_CHOICE_NAMED
               ? "tools"
               : "response_format";
}

bool job_has_format(const struct job *j)
{
    return j->grammar != NULL &&
           strcmp(job_grammar_key(j), "response_format") == 0;
}

void job_destroy(struct job *j)
{
    if (j == NULL) {
        return;
    }
    free(j->messages.p);
    free(j->tools.p);
    free(j->tool_choice.p);
    free(j->choice_name.p);
    free(j->prompt.p);
    free(j->response_format.p);
    for (int i = 0; i < j->n_bad_words; i++) {
        free(j->bad_word[i].p);
    }
    compiled_destroy(j->grammar);
    free(j->ids);
    free(j->stop_ids);
    free(j->bias);
    for (int i = 0; i < j->n_stops; i++) {
        free(j->stop[i].p);
    }
    free(j);
}

size_t job_bytes(const struct job *j)
{
    size_t n = j->messages.n + j->tools.n + j->tool_choice.n + j->prompt.n +
               j->response_format.n + (size_t)j->n_ids * sizeof(j->ids[0]) +
               (size_t)j->n_bias * sizeof(j->bias[0]);

    for (int i = 0; i < j->n_stops; i++) {
        n += j->stop[i].n;
    }
    return n;
}

struct event *event_create(enum event_type type, const struct job *about)
{
    struct event *e = xcalloc(1, sizeof(*e));

    e->type = type;
    if (about != NULL) {
        e->job = about->id;
        e->conn = about->conn;
        e->request = about->request;
    }
    return e;
}

void event_destroy(struct event *e)
{
    if (e == NULL) {
        return;
    }
    free(e->text.p);
    free(e->call_name.p);
    free(e->ids);
    free(e->logprobs);
    free(e->sessions);
    free(e);
}

struct event *event_error(const struct job *about, const char *code,
                          const char *fmt, ...)
{
    struct event *e = event_create(EVENT_ERROR, about);
    va_list ap;

    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof(e->message), fmt, ap);
    va_end(ap);
    return e;
}
