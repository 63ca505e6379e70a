/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_DAEMON_ANSWERS_H
#define TESTS_DAEMON_ANSWERS_H

/*
 * What came back for a job, put together from its events, with the rules that
 * hold for every stream of events checked on the way; and what a job of the
 * fake model must answer.
 */

#include "tests/test.h"

#include <stdbool.h>

#include "daemon/sched/job.h"
#include "daemon/text/tokenizer.h"

#define ANSWER_MAX 2048
#define ANSWER_CALLS 2

struct answer_call {
    char id[JOB_CALL_ID + 1], name[32], arguments[128];
    char growing[128]; /* told beforehand */
    bool begun, whole;
};

struct answer {
    uint64_t job;
    bool accepted, done, failed, plain;
    int queue_position, prompt_tokens;
    int n_deltas, n_progress, n_parts, last_progress;
    char *text[3]; /* by event_kind; never NULL once used */
    size_t n_text[3];
    int32_t *ids;
    int n_ids;
    struct answer_call call[ANSWER_CALLS];
    int n_calls, n_grown;
    float logprob[ANSWER_MAX];
    int32_t top_id[ANSWER_MAX];
    int n_logprobs;
    enum event_finish finish;
    struct event_usage usage;
    struct event_timings timings;
    uint64_t seed;
    const char *code;
    char message[256], detail[128];
    uint64_t retry_ms;
    struct event_session session; /* done of an op on one */
};

static inline void answer_init(struct answer *a, uint64_t job)
{
    memset(a, 0, sizeof(*a));
    a->job = job;
    a->last_progress = -1;
    for (int k = 0; k < 3; k++) {
        a->text[k] = calloc(1, 1);
    }
}

static inline void answer_finish(struct answer *a)
{
    for (int k = 0; k < 3; k++) {
        free(a->text[k]);
    }
    free(a->ids);
}

static inline bool answer_over(const struct answer *a)
{
    return a->done || a->failed;
}

static inline void answer_content_(struct answer *a, const struct event *e)
{
    int k = e->kind;

    assert_true(e->text.n > 0 || e->n_ids > 0 || e->n_logprobs > 0);
    a->text[k] = realloc(a->text[k], a->n_text[k] + e->text.n + 1);
    assert_non_null(a->text[k]);
    memcpy(a->text[k] + a->n_text[k], e->text.p != NULL ? e->text.p : "",
           e->text.n);
    a->n_text[k] += e->text.n;
    a->text[k][a->n_text[k]] = '\0';
    a->ids =
        realloc(a->ids, (size_t)(a->n_ids + e->n_ids + 1) * sizeof(*a->ids));
    assert_non_null(a->ids);
    for (int i = 0; i < e->n_ids; i++) {
        a->ids[a->n_ids++] = e->ids[i];
    }
    assert_true(a->n_logprobs + e->n_logprobs <= ANSWER_MAX);
    for (int i = 0; i < e->n_logprobs; i++) {
        a->logprob[a->n_logprobs] = e->logprobs[i].logprob;
        a->top_id[a->n_logprobs++] =
            e->logprobs[i].n_top > 0 ? e->logprobs[i].top_id[0] : -1;
    }
}

static inline void answer_cat_(char *to, size_t cap, const struct job_text *t)
{
    size_t n = strlen(to);

    assert_true(n + t->n < cap);
    memcpy(to + n, t->p != NULL ? t->p : "", t->n);
    to[n + t->n] = '\0';
}

/* A call is told of in one order: begin, pieces, whole or dropped. */
static inline void answer_call_(struct answer *a, const struct event *e)
{
    struct answer_call *c = &a->call[e->call_index];

    assert_in_range(e->call_index, 0, ANSWER_CALLS - 1);
    assert_int_equal(e->n_ids + e->n_logprobs, 0);
    switch (e->call) {
    case EVENT_CALL_BEGIN:
        assert_false(c->begun || c->whole);
        c->begun = true;
        break;
    case EVENT_CALL_GROW:
        assert_true(c->begun && e->text.n > 0);
        answer_cat_(c->growing, sizeof(c->growing), &e->text);
        a->n_grown++;
        break;
    case EVENT_CALL_WHOLE:
        assert_int_equal(e->call_index, a->n_calls);
        c->whole = true;
        memcpy(c->id, e->call_id, sizeof(c->id));
        answer_cat_(c->name, sizeof(c->name), &e->call_name);
        answer_cat_(c->arguments, sizeof(c->arguments), &e->text);
        a->n_calls++;
        break;
    case EVENT_CALL_DROPPED:
        assert_true(c->begun);
        memset(c, 0, sizeof(*c));
        break;
    }
}

static inline void assert_same_calls(const struct answer *a,
                                     const struct answer *b)
{
    assert_int_equal(a->n_calls, b->n_calls);
    for (int i = 0; i < a->n_calls; i++) {
        assert_string_equal(a->call[i].id, b->call[i].id);
        assert_string_equal(a->call[i].name, b->call[i].name);
        assert_string_equal(a->call[i].arguments, b->call[i].arguments);
    }
}

/* Takes the event over. */
static inline void answer_take(struct answer *a, struct event *e)
{
    assert_int_equal(e->job, a->job);
    assert_false(answer_over(a)); /* nothing comes after the end */
    switch (e->type) {
    case EVENT_ACCEPTED:
        assert_false(a->accepted);
        a->accepted = true;
        a->queue_position = e->queue_position;
        a->prompt_tokens = e->prompt_tokens;
        break;
    case EVENT_PROGRESS:
        assert_true(a->accepted && a->n_deltas == 0);
        assert_true(e->done > a->last_progress && e->done <= e->total);
        a->last_progress = e->done;
        a->n_progress++;
        break;
    case EVENT_DELTA:
        assert_true(a->accepted);
        a->n_deltas++;
        if (e->kind == EVENT_TOOL_CALL) {
            answer_call_(a, e);
        } else {
            answer_content_(a, e);
        }
        break;
    case EVENT_PART:
        a->n_parts++;
        if (e->n_sessions == 0) {
            answer_content_(a, e);
        }
        break;
    case EVENT_DONE:
        a->done = true;
        a->plain = e->plain;
        a->finish = e->finish;
        a->usage = e->usage;
        a->timings = e->timings;
        a->seed = e->seed;
        if (e->n_sessions == 1) {
            a->session = e->sessions[0];
        }
        break;
    case EVENT_ERROR:
        a->failed = true;
        a->code = e->code;
        a->retry_ms = e->retry_ms;
        memcpy(a->message, e->message, sizeof(a->message));
        memcpy(a->detail, e->detail, sizeof(a->detail));
        break;
    }
    event_destroy(e);
}

static inline void assert_same_answer(const struct answer *a,
                                      const struct answer *b)
{
    assert_true(a->done && b->done);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n_ids, b->n_ids);
    for (int i = 0; i < a->n_ids; i++) {
        assert_int_equal(a->ids[i], b->ids[i]);
    }
    assert_int_equal(a->n_logprobs, b->n_logprobs);
    for (int i = 0; i < a->n_logprobs; i++) {
        assert_memory_equal(&a->logprob[i], &b->logprob[i], sizeof(float));
        assert_int_equal(a->top_id[i], b->top_id[i]);
    }
    for (int k = 0; k < 3; k++) {
        assert_string_equal(a->text[k], b->text[k]);
    }
    assert_int_equal(a->usage.prompt_tokens, b->usage.prompt_tokens);
    assert_int_equal(a->usage.completion_tokens, b->usage.completion_tokens);
    assert_int_equal(a->usage.reasoning_tokens, b->usage.reasoning_tokens);
    assert_int_equal(a->seed, b->seed);
}

#endif
