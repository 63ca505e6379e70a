/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The engine without its threads, over the fake model: the same answer however
 * a request is batched, chunked, pre-empted and drafted for; a cancel at any
 * layer boundary; blocks that end inside; faults that hit one request only.
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

static unsigned rnd(struct rig *r, unsigned n)
{
    r->rng = r->rng * 1664525 + 1013904223;
    return (r->rng >> 8) % n;
}

static struct answer *answer_of(struct rig *r, uint64_t job)
{
    for (int i = 0; i < r->n_answers; i++) {
        if (r->answer[i].job == job) {
            return &r->answer[i];
        }
    }
    fail_msg("an event of an unknown job");
    return NULL;
}

static void on_emit(void *ctx, struct event *e)
{
    answer_take(answer_of(ctx, e->job), e);
}

static void on_log(void *ctx, int level, const char *line)
{
    struct rig *r = ctx;

    (void)level;
    assert_non_null(line);
    r->log_lines++;
}

static uint64_t on_clock(void *ctx)
{
    const struct rig *r = ctx;

    return r->clock_us;
}

static void on_layer(void *ctx, uint64_t n)
{
    struct rig *r = ctx;

    if (r->on_layer != NULL) {
        r->on_layer(r, n);
    }
}

/* After fake_reset() and what the test changes in it. */
static void rig_init(struct rig *r)
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

static void rig_start(struct rig *r)
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
static void assert_clean(struct rig *r)
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

static void rig_finish(struct rig *r)
{
    assert_clean(r);
    core_destroy(r->core);
    model_close(r->model);
    tickets_destroy(r->tickets);
    for (int i = 0; i < r->n_answers; i++) {
        answer_finish(&r->answer[i]);
    }
}

static void rig_add(struct rig *r, struct job *j)
{
    answer_init(&r->answer[r->n_answers++], j->id);
    j->born_us = r->clock_us;
    assert_int_equal(ticket_open(r->tickets, j), 0);
    core_add(r->core, j);
}

static void rig_run(struct rig *r)
{
    int steps = 0, n;

    while ((n = core_step(r->core)) > 0) {
        assert_true(++steps < 20000);
    }
    assert_int_equal(n, 0);
}

static void cancel(struct rig *r, uint64_t job)
{
    const struct ticket_call c = {
        .job = job,
        .end = true,
        .finish = FINISH_CANCELLED,
    };

    core_call(r->core, &c);
}

/* ---- jobs ---------------------------------------------------------------- */

static struct job *new_job(uint64_t id, int n_prompt)
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

static void sampling_of(const struct job *j, struct model_sampling *s)
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
static void continuation(const struct job *j, int n, int32_t *ret)
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

static void add_stop(struct job *j, const char *p, size_t n)
{
    j->stop[j->n_stops].p = malloc(n);
    memcpy(j->stop[j->n_stops].p, p, n);
    j->stop[j->n_stops++].n = n;
}

static bool is_ascii(int32_t id)
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
static int stop_at(struct job *j, int at)
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

static struct job *mixed_job(int i)
{
    static const int prompts[] = {1, 2, 5, 63, 64, 65, 130, 300, 20, 700};
    struct job *j = new_job((uint64_t)i + 1, prompts[i % 10] + i / 10);

    j->max_tokens = 5 + i * 7 % 90;
    j->temperature = (float)(i % 3) / 2;
    j->top_k = i % 4 * 10;
    j->top_p = i % 5 == 0 ? 0.9f : 1;
    j->repetition = i % 6 == 0 ? 1.1f : 1;
    j->logprobs = i % 3 == 0 ? i % 5 : -1;
    j->drafts = i % 5 - 1;
    j->priority = i % 3 - 1;
    j->uid = (uint32_t)(i % 4);
    j->want_ids = i % 7 != 0;
    j->chat = i % 2;
    j->thinking = i % 4 == 1;
    if (i % 5 == 2) {
        (void)stop_at(j, 6);
    }
    return j;
}

static int setup(void **state)
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

static int teardown_group(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

/* ---- the promise --------------------------------------------------------- */

/* Each job alone, held against arithmetic that knows nothing of steps. */
static void answer_alone(int i, struct answer *ret)
{
    struct job *j = mixed_job(i);
    int limit = j->max_tokens, n_stops = j->n_stops;
    int32_t *want = malloc((size_t)limit * sizeof(*want));
    bool ids = j->want_ids;
    struct rig r;
    struct answer *a;

    continuation(j, limit, want);
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, j);
    rig_run(&r);
    a = &r.answer[0];
    assert_true(a->accepted && a->done);
    assert_int_equal(a->usage.completion_tokens > 0, 1);
    for (int k = 0; ids && k < a->n_ids; k++) {
        assert_int_equal(a->ids[k], want[k]);
        /* It ends at the first stop id, and only there. */
        assert_int_equal(want[k] == fake.eos && k + 1 < a->n_ids, 0);
    }
    if (ids) {
        assert_int_equal(a->n_ids, a->usage.completion_tokens);
        if (n_stops == 0 && want[a->n_ids - 1] != fake.eos) {
            assert_int_equal(a->n_ids, limit);
            assert_int_equal(a->finish, FINISH_LENGTH);
        } else if (n_stops == 0) {
            assert_int_equal(a->finish, FINISH_STOP);
        }
    }
    *ret = *a;
    r.n_answers = 0; /* it is the caller's now */
    rig_finish(&r);
    free(want);
}

/* All of them, coming in at random moments, some read too slowly for a while.
 */
static void answers_together(struct rig *r, unsigned seed, bool pauses)
{
    int order[N_JOBS], n = 0;
    uint64_t paused = 0;

    r->rng = seed;
    for (int i = 0; i < N_JOBS; i++) {
        int k = (int)rnd(r, (unsigned)i + 1);

        order[i] = order[k];
        order[k] = i;
    }
    for (int steps = 0;; steps++) {
        int s;

        assert_true(steps < 50000);
        while (n < N_JOBS && rnd(r, 3) == 0) {
            rig_add(r, mixed_job(order[n++]));
        }
        if (pauses && paused == 0 && n > 0 && rnd(r, 5) == 0) {
            const struct ticket_call c = {
                .job = (uint64_t)order[rnd(r, (unsigned)n)] + 1,
                .paused = true,
            };

            paused = core_call(r->core, &c) ? c.job : 0;
        }
        s = core_step(r->core);
        assert_true(s >= 0);
        if (paused != 0 && rnd(r, 6) == 0) {
            const struct ticket_call c = {.job = paused};

            core_call(r->core, &c);
            paused = 0;
            continue;
        }
        if (s == 0 && n == N_JOBS && paused == 0) {
            break;
        }
    }
}

static void test_same_answer_alone_batched_chunked_and_preempted(void **state)
{
    const int chunk[] = {0, 1, 7, 64, 512};
    struct answer alone[N_JOBS];
    uint64_t preempted = 0;

    (void)state;
    for (int i = 0; i < N_JOBS; i++) {
        answer_alone(i, &alone[i]);
    }
    for (unsigned v = 0; v < 20; v++) {
        struct core_counts n;
        struct rig r;

        fake_reset();
        if (v >= 10) {
            /* One longest request and a little. */
            fake.pages[MODEL_FULL] = 16 + (int)v % 3;
            fake.pages[MODEL_SLIDING] = 6;
        }
        rig_init(&r);
        r.conf.prefill_chunk = chunk[v % 5];
        r.conf.max_seqs = v % 2 ? 8 : 3;
        rig_start(&r);
        answers_together(&r, v + 1, v % 3 == 0);
        for (int i = 0; i < N_JOBS; i++) {
            assert_same_answer(answer_of(&r, alone[i].job), &alone[i]);
        }
        core_counts(r.core, &n);
        preempted += n.preempted;
        assert_int_equal(n.finished, N_JOBS);
        assert_true(fake_shared_steps() > 0);
        rig_finish(&r);
    }
    assert_true(preempted > 10);
    for (int i = 0; i < N_JOBS; i++) {
        answer_finish(&alone[i]);
    }
}

/* ---- blocks that end inside ---------------------------------------------- */

/* One job alone with three right drafts a step. */
static struct answer alone_with_drafts(struct job *j)
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

static void test_max_tokens_inside_a_block(void **state)
{
    (void)state;
    fake.wrong_drafts = 0;
    fake.eos_one_in = 0;
    for (int limit = 1; limit <= 13; limit++) {
        struct job *j = new_job(3, 40);
        int32_t want[16];
        struct answer a;

        j->max_tokens = limit;
        j->logprobs = 2;
        continuation(j, limit, want);
        a = alone_with_drafts(j);
        assert_int_equal(a.finish, FINISH_LENGTH);
        assert_int_equal(a.n_ids, limit);
        assert_int_equal(a.n_logprobs, limit);
        assert_memory_equal(a.ids, want, (size_t)limit * sizeof(*want));
        /* 1 + 4 + 4 ...: one delta a step, not one a token, and no draft is
         * verified that there is no room for. */
        assert_int_equal(a.n_deltas, 1 + (limit - 1 + 3) / 4);
        assert_int_equal(a.usage.accepted, limit - a.n_deltas);
        assert_int_equal(a.usage.drafted, a.usage.accepted);
        answer_finish(&a);
    }
}

static void test_eos_inside_a_block(void **state)
{
    int inside = 0;

    (void)state;
    fake.wrong_drafts = 0;
    fake.eos_one_in = 12;
    for (uint64_t id = 1; id <= 30; id++) {
        struct job *j = new_job(id, 10);
        int32_t want[200];
        struct answer a;
        int n = 0;

        j->max_tokens = 200;
        continuation(j, 200, want);
        while (n < 199 && want[n] != fake.eos) {
            n++;
        }
        a = alone_with_drafts(j);
        assert_int_equal(a.n_ids, n + 1);
        assert_memory_equal(a.ids, want, ((size_t)n + 1) * sizeof(*want));
        assert_int_equal(a.finish, FINISH_STOP);
        /* The stop id is in the ids and never in the text. */
        assert_null(strstr(a.text[EVENT_CONTENT], "<|im_end|>"));
        /* Not the last of its block: 1 + 4 + 4 ... */
        inside += n % 4 != 0;
        assert_int_equal(a.usage.accepted + a.n_deltas,
                         n + 1 + (n % 4 != 0 ? 1 : 0));
        answer_finish(&a);
    }
    assert_true(inside > 5);
}

static void test_stop_string_inside_a_block(void **state)
{
    (void)state;
    fake.wrong_drafts = 0;
    fake.eos_one_in = 0;
    for (int at = 1; at < 12; at++) {
        struct job *j = new_job(5, 12);
        struct answer a, full;
        char stop[128] = "", *cut;
        int end;

        full = alone_with_drafts(({
            struct job *k = new_job(5, 12);

            k->max_tokens = 40;
            k;
        }));
        j->max_tokens = 40;
        end = stop_at(j, at) + 2;
        memcpy(stop, j->stop[0].p, j->stop[0].n);
        a = alone_with_drafts(j);
        assert_int_equal(a.finish, FINISH_STOP);
        /* All of the text before the first stop, and nothing else. */
        cut = strstr(full.text[EVENT_CONTENT], stop);
        assert_non_null(cut);
        *cut = '\0';
        assert_string_equal(a.text[EVENT_CONTENT], full.text[EVENT_CONTENT]);
        assert_true(a.n_ids <= end);
        assert_memory_equal(a.ids, full.ids, (size_t)a.n_ids * sizeof(*a.ids));
        answer_finish(&a);
        answer_finish(&full);
    }
}

static void test_usage_adds_up(void **state)
{
    struct core_counts n;
    struct model_stats st;
    int completion = 0, drafted = 0, accepted = 0, prompt = 0;
    struct rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    for (int i = 0; i < N_JOBS; i++) {
        rig_add(&r, mixed_job(i));
    }
    rig_run(&r);
    for (int i = 0; i < N_JOBS; i++) {
        completion += r.answer[i].usage.completion_tokens;
        prompt += r.answer[i].usage.prompt_tokens;
        drafted += r.answer[i].usage.drafted;
        accepted += r.answer[i].usage.accepted;
        assert_int_equal(r.answer[i].usage.cached_tokens, 0);
        assert_int_equal(r.answer[i].usage.prompt_tokens,
                         r.answer[i].prompt_tokens);
    }
    core_counts(r.core, &n);
    model_stats(r.model, &st);
    assert_int_equal(n.completion_tokens, completion);
    assert_int_equal(n.prompt_tokens, prompt);
    assert_int_equal(st.drafted, drafted);
    /* Fewer where an answer ended inside a block. */
    assert_true(accepted > 0 && (uint64_t)accepted <= st.accepted);
    assert_int_equal(n.requests, N_JOBS);
    assert_int_equal(n.finished, N_JOBS);
    rig_finish(&r);
}

static void test_drafts_are_what_was_asked_for(void **state)
{
    (void)state;
    fake.wrong_drafts = 0;
    for (int depth = 0; depth <= 3; depth++) {
        struct job *j = new_job(8, 30);
        struct answer a;

        j->max_tokens = 30;
        j->drafts = depth;
        a = alone_with_drafts(j);
        assert_int_equal(a.usage.drafted > 0, depth > 0);
        assert_true(a.usage.drafted <= depth * a.n_deltas);
        answer_finish(&a);
    }
}

/* Field report 37: the limit is what the model has, and it is named. */
static void test_fr_37_more_drafts_than_layers_are_refused(void **state)
{
    (void)state;
    for (int layers = 0; layers <= 3; layers++) {
        for (int depth = 0; depth <= 4; depth++) {
            struct job *j = new_job(8, 30);
            char limit[64];
            struct rig r;

            fake.n_mtp = layers;
            rig_init(&r);
            rig_start(&r);
            j->drafts = depth;
            rig_add(&r, j);
            rig_run(&r);
            assert_int_equal(r.answer[0].done, depth <= layers);
            if (depth > layers) {
                snprintf(limit, sizeof(limit), "drafts may be %d at most",
                         layers);
                assert_string_equal(r.answer[0].code, "bad_request");
                assert_non_null(strstr(r.answer[0].message, limit));
            }
            rig_finish(&r);
        }
    }
}

/* ---- cancel -------------------------------------------------------------- */

static void strike(struct rig *r, uint64_t n)
{
    if (n == r->strike_at) {
        cancel(r, r->victim);
        assert_true(answer_of(r, r->victim)->done);
        assert_int_equal(answer_of(r, r->victim)->finish, FINISH_CANCELLED);
    }
}

/* 50 random layer boundaries, three others in the batch: after the cancel no
 * row of the request is computed, its final event is out at once, its pages are
 * free after the step, and the others never notice. */
static void test_cancel_stops_at_the_layer_boundary(void **state)
{
    struct answer other;
    int struck = 0;

    (void)state;
    fake.eos_one_in = 0;
    other = alone_with_drafts(({
        struct job *j = new_job(2, 90);

        j->max_tokens = 40;
        j->drafts = 0;
        j;
    }));
    for (unsigned k = 0; k < 50; k++) {
        struct core_counts n;
        struct job *j;
        struct rig r;

        fake_reset();
        fake.eos_one_in = 0;
        rig_init(&r);
        rig_start(&r);
        r.rng = k + 1;
        r.strike_at = 1 + rnd(&r, 80);
        r.victim = 1;
        r.on_layer = strike;
        for (uint64_t id = 1; id <= 4; id++) {
            j = new_job(id, id == 1 ? 200 : 90);
            j->max_tokens = id == 1 ? 200 : 40;
            j->drafts = id == 1 ? -1 : 0;
            rig_add(&r, j);
        }
        while (fake_boundaries() < r.strike_at) {
            assert_int_equal(core_step(r.core), 1);
        }
        core_counts(r.core, &n);
        assert_int_equal(n.cancelled, 1);
        assert_true(fake_last_row(1 * 1000 + 17) < r.strike_at);
        struck += fake_last_row(1 * 1000 + 17) > 0;
        rig_run(&r);
        assert_same_answer(answer_of(&r, 2), &other);
        rig_finish(&r);
    }
    assert_true(struck > 40);
    answer_finish(&other);
}

static void test_cancel_between_steps_and_while_queued(void **state)
{
    struct core_counts n;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    r.conf.max_seqs = 1;
    rig_start(&r);
    for (uint64_t id = 1; id <= 3; id++) {
        rig_add(&r, new_job(id, 50));
    }
    assert_int_equal(r.answer[0].queue_position, 0);
    assert_int_equal(r.answer[2].queue_position, 2);
    for (int i = 0; i < 5; i++) {
        core_step(r.core);
    }
    cancel(&r, 2); /* queued */
    assert_int_equal(r.answer[1].finish, FINISH_CANCELLED);
    assert_int_equal(r.answer[1].usage.completion_tokens, 0);
    cancel(&r, 1); /* running */
    assert_true(r.answer[0].usage.completion_tokens > 0);
    assert_int_equal(r.answer[0].n_ids, r.answer[0].usage.completion_tokens);
    cancel(&r, 3);
    cancel(&r, 3);
    cancel(&r, 99);
    core_counts(r.core, &n);
    assert_int_equal(n.cancelled, 3);
    assert_int_equal(core_step(r.core), 0);
    rig_finish(&r);
}

static void end_all(struct rig *r, uint64_t n)
{
    if (n == r->strike_at) {
        core_end_all(r->core, false, "draining", "the daemon stops");
    }
}

static void test_end_of_everything_within_a_step(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r);
    r.conf.max_seqs = 2;
    rig_start(&r);
    r.on_layer = end_all;
    r.strike_at = 3;
    for (uint64_t id = 1; id <= 4; id++) {
        rig_add(&r, new_job(id, 50));
    }
    rig_run(&r);
    assert_int_equal(fake_boundaries(), 4);
    for (int i = 0; i < 4; i++) {
        assert_true(answer_over(&r.answer[i]));
        assert_int_equal(r.answer[i].done, i < 2);
        if (i >= 2) {
            assert_string_equal(r.answer[i].code, "draining");
        }
    }
    rig_finish(&r);
}

/* ---- faults -------------------------------------------------------------- */

static void test_non_finite_hits_one_request(void **state)
{
    struct answer other;
    struct rig r;

    (void)state;
    other = alone_with_drafts(new_job(2, 90));
    fake.nan_token = 55;
    rig_init(&r);
    rig_start(&r);
    for (uint64_t id = 1; id <= 2; id++) {
        struct job *j = new_job(id, 90);

        if (id == 1) {
            j->ids[70] = 55;
        }
        rig_add(&r, j);
    }
    rig_run(&r);
    assert_true(r.answer[0].failed);
    assert_string_equal(r.answer[0].code, "internal");
    assert_non_null(strstr(r.answer[0].message, "layer 2"));
    assert_int_equal(r.log_lines, 1);
    assert_same_answer(&r.answer[1], &other);
    rig_finish(&r);
    answer_finish(&other);
}

/* Also where freed pages are otherwise left as they are: the fake model would
 * not let the next request write into them. */
static void test_non_finite_pages_are_scrubbed(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    fake.nan_token = 55;
    rig_init(&r);
    r.conf.scrub_freed = false;
    rig_start(&r);
    j = new_job(1, 60);
    j->ids[50] = 55;
    rig_add(&r, j);
    rig_run(&r);
    assert_true(r.answer[0].failed);
    j = new_job(2, 60);
    j->max_tokens = 1;
    rig_add(&r, j);
    rig_run(&r);
    assert_true(r.answer[1].done);
    rig_finish(&r);
}

static void test_device_fault_is_told_and_everything_can_be_ended(void **state)
{
    struct rig r;

    (void)state;
    fake.fail_step = 3;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 50));
    rig_add(&r, new_job(2, 50));
    assert_int_equal(core_step(r.core), 1);
    assert_int_equal(core_step(r.core), 1);
    assert_int_equal(core_step(r.core), -EIO);
    core_end_all(r.core, true, "internal", "the step failed");
    assert_true(r.answer[0].failed && r.answer[1].failed);
    rig_finish(&r);
}

static void test_too_long_names_both_numbers(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 1024)); /* no room for an answer */
    assert_string_equal(r.answer[0].code, "too_long");
    assert_non_null(strstr(r.answer[0].message, "1024"));
    assert_non_null(strstr(r.answer[0].message, "1023"));
    j = new_job(2, 10);
    j->ids[4] = 1024;
    rig_add(&r, j);
    assert_string_equal(r.answer[1].code, "bad_request");
    rig_add(&r, new_job(3, 1023)); /* just fits: one token */
    rig_run(&r);
    assert_int_equal(r.answer[2].n_ids, 1);
    rig_finish(&r);

    rig_init(&r);
    r.conf.max_prompt_tokens = 100;
    rig_start(&r);
    rig_add(&r, new_job(1, 101));
    assert_non_null(strstr(r.answer[0].message, "at most 100"));
    rig_finish(&r);
}

static void test_pools_too_small_are_refused_at_the_start(void **state)
{
    const struct model_conf mc = {.max_seqs = 1, .max_rows = 64};
    struct model_report rep = {0};
    struct core *c;
    struct rig r;

    (void)state;
    fake.pages[MODEL_FULL] = 15;
    rig_init(&r);
    assert_int_equal(model_open(&r.model, &mc, &rep), 0);
    r.conf.model = r.model;
    r.conf.tokenizer = tokenizer;
    assert_int_equal(core_create(&c, &r.conf), -ENOSPC);
    model_close(r.model);
}

static void test_answer_fills_the_context(void **state)
{
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.max_model_len = 200;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 60));
    rig_run(&r);
    assert_int_equal(r.answer[0].finish, FINISH_LENGTH);
    assert_int_equal(r.answer[0].n_ids, 140);
    rig_finish(&r);
}

static void test_seed_is_drawn_and_told(void **state)
{
    uint64_t seed[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job *j = new_job(1, 5);
        struct rig r;

        j->seed_given = false;
        j->max_tokens = 3;
        rig_init(&r);
        rig_start(&r);
        rig_add(&r, j);
        rig_run(&r);
        seed[i] = r.answer[0].seed;
        rig_finish(&r);
    }
    assert_true(seed[0] != seed[1]);
}

/* ---- waiting ------------------------------------------------------------- */

static void test_progress_comes_four_times_a_second_at_most(void **state)
{
    struct core_counts n;
    struct rig r;
    uint64_t t0;

    (void)state;
    fake.step_us = 100000; /* ten steps a second */
    rig_init(&r);
    fake.step_us = 100000;
    r.conf.prefill_chunk = 7;
    rig_start(&r);
    t0 = r.clock_us;
    rig_add(&r, new_job(1, 700));
    while (!r.answer[0].done && r.answer[0].n_deltas == 0) {
        core_step(r.core);
        assert_true((uint64_t)r.answer[0].n_progress <=
                    1 + (r.clock_us - t0) / 250000);
    }
    core_counts(r.core, &n);
    assert_true(r.answer[0].n_progress > (int)n.steps / 4);
    assert_true(r.answer[0].n_progress < (int)n.steps / 2);
    rig_run(&r);
    rig_finish(&r);
}

static void test_paused_request_makes_no_rows(void **state)
{
    struct model_stats a, b;
    const struct ticket_call on = {.job = 1, .paused = true};
    const struct ticket_call off = {.job = 1};
    struct rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    rig_add(&r, new_job(1, 10));
    core_step(r.core);
    assert_true(core_call(r.core, &on));
    model_stats(r.model, &a);
    assert_int_equal(core_step(r.core), 0);
    model_stats(r.model, &b);
    assert_int_equal(a.rows, b.rows);
    assert_true(core_call(r.core, &off));
    rig_run(&r);
    assert_true(r.answer[0].done);
    rig_finish(&r);
}

/* uid A holds 64 queued requests; B's first token comes after at most two more
 * steps than alone. */
static void test_crowd_does_not_delay_a_newcomer(void **state)
{
    int steps[2];

    (void)state;
    fake.eos_one_in = 0;
    for (int crowd = 0; crowd < 2; crowd++) {
        struct job *j;
        struct rig r;

        rig_init(&r);
        rig_start(&r);
        for (uint64_t id = 1; crowd && id <= 64; id++) {
            j = new_job(id, 200);
            j->max_tokens = 100;
            rig_add(&r, j);
        }
        for (int i = 0; crowd && i < 40; i++) {
            core_step(r.core);
        }
        j = new_job(100, 60);
        j->uid = 7;
        j->max_tokens = 4;
        rig_add(&r, j);
        for (steps[crowd] = 0; answer_of(&r, 100)->n_deltas == 0;) {
            core_step(r.core);
            steps[crowd]++;
        }
        core_end_all(r.core, false, "draining", "enough");
        rig_finish(&r);
    }
    assert_true(steps[1] <= steps[0] + 2);
}

/* More owners come and go than the table of shares has places. */
static void test_any_number_of_owners(void **state)
{
    struct core_counts n;
    struct rig r;

    (void)state;
    rig_init(&r);
    r.conf.max_live = 4;
    rig_start(&r);
    for (uint64_t id = 1; id <= 100; id++) {
        struct job *j = new_job(id, 3);

        j->uid = (uint32_t)id;
        j->max_tokens = 1;
        rig_add(&r, j);
        rig_run(&r);
    }
    core_counts(r.core, &n);
    assert_int_equal(n.finished, 100);
    rig_finish(&r);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        TEST(test_same_answer_alone_batched_chunked_and_preempted),
        TEST(test_max_tokens_inside_a_block),
        TEST(test_eos_inside_a_block),
        TEST(test_stop_string_inside_a_block),
        TEST(test_usage_adds_up),
        TEST(test_drafts_are_what_was_asked_for),
        TEST(test_fr_37_more_drafts_than_layers_are_refused),
        TEST(test_cancel_stops_at_the_layer_boundary),
        TEST(test_cancel_between_steps_and_while_queued),
        TEST(test_end_of_everything_within_a_step),
        TEST(test_non_finite_hits_one_request),
        TEST(test_non_finite_pages_are_scrubbed),
        TEST(test_device_fault_is_told_and_everything_can_be_ended),
        TEST(test_too_long_names_both_numbers),
        TEST(test_pools_too_small_are_refused_at_the_start),
        TEST(test_answer_fills_the_context),
        TEST(test_seed_is_drawn_and_told),
        TEST(test_progress_comes_four_times_a_second_at_most),
        TEST(test_paused_request_makes_no_rows),
        TEST(test_any_number_of_owners),
        TEST(test_crowd_does_not_delay_a_newcomer),
    };

    return test_main(tests, NULL, teardown_group);
}
