/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_DAEMON_CORE_RIG_H
#define TESTS_DAEMON_CORE_RIG_H

/*
 * The engine's inside over the fake model, driven step by step by the test,
 * with a clock that the model's work moves.
 */

#include "tests/test.h"

#include <errno.h>

#include "daemon/sched/core.h"
#include "tests/daemon/answers.h"
#include "tests/daemon/fake_model.h"

#define N_JOBS 20

static struct tokenizer *tokenizer;

struct rig {
    struct model *model;
    struct tickets *tickets;
    struct core *core;
    struct core_conf conf;
    uint64_t clock_us;
    struct answer answer[N_JOBS + 100];
    int n_answers;
    unsigned rng;
    int log_lines;
    /* called by the fake at each layer boundary */
    void (*on_layer)(struct rig *r, uint64_t n);
    uint64_t strike_at;
    uint64_t victim;
};

static inline unsigned rnd(struct rig *r, unsigned n)
{
    r->rng = r->rng * 1664525 + 1013904223;
    return (r->rng >> 8) % n;
}

static inline struct answer *answer_of(struct rig *r, uint64_t job)
{
    for (int i = 0; i < r->n_answers; i++) {
        if (r->answer[i].job == job) {
            return &r->answer[i];
        }
    }
    fail_msg("an event of an unknown job");
    return NULL;
}

static inline void on_emit(void *ctx, struct event *e)
{
    answer_take(answer_of(ctx, e->job), e);
}

static inline void on_log(void *ctx, int level, const char *line)
{
    struct rig *r = ctx;

    (void)level;
    assert_non_null(line);
    r->log_lines++;
}

static inline uint64_t on_clock(void *ctx)
{
    const struct rig *r = ctx;

    return r->clock_us;
}

static inline void on_layer(void *ctx, uint64_t n)
{
    struct rig *r = ctx;

    if (r->on_layer != NULL) {
        r->on_layer(r, n);
    }
}

/* After fake_reset() and what the test changes in it. */
static inline void rig_init(struct rig *r)
{
    memset(r, 0, sizeof(*r));
    r->rng = 1;
    r->clock_us = 1000000;
    fake.on_layer = on_layer;
    fake.ctx = r;
    fake.clock_us = &r->clock_us;
    fake.step_us = 20000;
    fake.row_us = 500;
    r->conf = (struct core_conf){
        .max_live = N_JOBS + 100,
        .max_seqs = 8,
        .max_queued_tokens = 1 << 20,
        .max_batched_tokens = 2048,
        .step_target_ms = 150,
        .drafts = -1,
        .scrub_freed = true,
        .emit = on_emit,
        .log = on_log,
        .now_us = on_clock,
        .ctx = r,
    };
}

static inline void rig_start(struct rig *r)
{
    const struct model_conf mc = {
        .max_seqs = r->conf.max_seqs,
        .max_rows = r->conf.max_batched_tokens,
    };
    struct model_report rep = {0};

    assert_int_equal(
        tickets_create(&r->tickets, r->conf.max_live, r->conf.max_live), 0);
    assert_int_equal(model_open(&r->model, &mc, &rep), 0);
    r->conf.model = r->model;
    r->conf.tokenizer = tokenizer;
    r->conf.tickets = r->tickets;
    assert_int_equal(core_create(&r->core, &r->conf), 0);
}

/* Everything is as it was before the first job. */
static inline void assert_clean(struct rig *r)
{
    struct core_counts n;

    core_counts(r->core, &n);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        assert_int_equal(n.pages_free[g], n.pages[g]);
    }
    assert_int_equal(n.running + n.waiting, 0);
    assert_int_equal(tickets_live(r->tickets), 0);
    assert_int_equal(fake_open_seqs(), 0);
}

static inline void rig_finish(struct rig *r)
{
    assert_clean(r);
    core_destroy(r->core);
    model_close(r->model);
    tickets_destroy(r->tickets);
    for (int i = 0; i < r->n_answers; i++) {
        answer_finish(&r->answer[i]);
    }
}

static inline void rig_add(struct rig *r, struct job *j)
{
    answer_init(&r->answer[r->n_answers++], j->id);
    j->born_us = r->clock_us;
    assert_int_equal(ticket_open(r->tickets, j), 0);
    core_add(r->core, j);
}

static inline void rig_run(struct rig *r)
{
    int steps = 0, n;

    while ((n = core_step(r->core)) > 0) {
        assert_true(++steps < 20000);
    }
    assert_int_equal(n, 0);
}

static inline void cancel(struct rig *r, uint64_t job)
{
    const struct ticket_call c = {
        .job = job,
        .end = true,
        .finish = FINISH_CANCELLED,
    };

    core_call(r->core, &c);
}

/* ---- jobs ---------------------------------------------------------------- */

static inline struct job *new_job(uint64_t id, int n_prompt)
{
    struct job *j = job_create(JOB_GENERATE);

    j->id = id;
    j->ids = malloc((size_t)n_prompt * sizeof(*j->ids));
    j->n_ids = n_prompt;
    for (int i = 0; i < n_prompt; i++) {
        j->ids[i] = i == 0 ? 0
                           : (int32_t)(100 + (id * 131 + (uint64_t)i * 37 +
                                              id * (uint64_t)i) %
                                                 800);
    }
    j->seed = id * 1000 + 17;
    j->seed_given = true;
    j->want_ids = true;
    return j;
}

static inline void sampling_of(const struct job *j, struct model_sampling *s)
{
    *s = (struct model_sampling){
        .temperature = j->temperature,
        .top_p = j->top_p,
        .min_p = j->min_p,
        .top_k = j->top_k,
        .repetition = j->repetition,
        .presence = j->presence,
        .frequency = j->frequency,
        .seed = j->seed,
        .n_top = j->logprobs,
        .max_drafts = j->drafts,
    };
}

/* What the model says after this prompt: n tokens. */
static inline void continuation(const struct job *j, int n, int32_t *ret)
{
    struct model_sampling s;
    int32_t *ids = malloc((size_t)(j->n_ids + n) * sizeof(*ids));

    sampling_of(j, &s);
    memcpy(ids, j->ids, (size_t)j->n_ids * sizeof(*ids));
    for (int i = 0; i < n; i++) {
        ret[i] = ids[j->n_ids + i] = fake_next(&s, ids, j->n_ids, j->n_ids + i);
    }
    free(ids);
}

static inline void add_stop(struct job *j, const char *p, size_t n)
{
    j->stop[j->n_stops].p = malloc(n);
    memcpy(j->stop[j->n_stops].p, p, n);
    j->stop[j->n_stops++].n = n;
}

static inline bool is_ascii(int32_t id)
{
    size_t n;
    const char *b = tokenizer_bytes(tokenizer, id, &n);

    for (size_t i = 0; b != NULL && i < n; i++) {
        if ((unsigned char)b[i] >= 0x80) {
            return false;
        }
    }
    return b != NULL && n > 0 && id != fake.eos;
}

/* A stop string made of two words that the answer has, at `at` or soon after.
 * Returns where. */
static inline int stop_at(struct job *j, int at)
{
    int32_t ids[64];
    char text[256];
    size_t n = 0, m;

    continuation(j, 64, ids);
    while (at < 62 && (!is_ascii(ids[at]) || !is_ascii(ids[at + 1]))) {
        at++;
    }
    assert_true(at < 62);
    for (int i = 0; i < 2; i++) {
        const char *b = tokenizer_bytes(tokenizer, ids[at + i], &m);

        memcpy(text + n, b, m);
        n += m;
    }
    add_stop(j, text, n);
    return at;
}

/* One job alone with three right drafts a step. */
static inline struct answer alone_with_drafts(struct job *j)
{
    struct answer a;
    struct rig r;

    rig_init(&r);
    rig_start(&r);
    rig_add(&r, j);
    rig_run(&r);
    a = r.answer[0];
    r.n_answers = 0;
    rig_finish(&r);
    assert_true(a.done);
    assert_int_equal(a.usage.completion_tokens, a.n_ids);
    assert_true(a.usage.accepted <= a.usage.drafted);
    assert_true(a.usage.drafts <= a.usage.drafted);
    /* by position, each only where the one before it was accepted too */
    assert_int_equal(a.usage.accepted_at[0] + a.usage.accepted_at[1] +
                         a.usage.accepted_at[2],
                     a.usage.accepted);
    assert_true(a.usage.accepted_at[0] <= a.usage.drafts);
    assert_true(a.usage.accepted_at[1] <= a.usage.accepted_at[0]);
    assert_true(a.usage.accepted_at[2] <= a.usage.accepted_at[1]);
    return a;
}

static inline int setup(void **state)
{
    char why[256];

    (void)state;
    fake_reset();
    if (tokenizer == NULL) {
        assert_int_equal(tokenizer_load(&tokenizer, test_data("step-tiny"), why,
                                        sizeof(why)),
                         0);
    }
    return 0;
}

static inline int teardown_group(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

#endif
