/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * design.md 4.1 as a test: fifty requests of mixed lengths and parameters give
 * the same tokens and logprobs, bit for bit, however they are run. `make check`
 * runs every fourth of them; STEPD_TEST_WHOLE=1 all fifty.
 */

#include "tests/test.h"

#include <jansson.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/daemon/engine_rig.h"

#define N_REQUESTS 50

static int stride = 4;
static char state_dir[4096];
/* Each alone in an engine that keeps nothing: 1 thread, no drafts. */
static struct rig cold;
static int n_cold;

static int n_runs(void)
{
    return (N_REQUESTS + stride - 1) / stride;
}

static void set_json(struct job_text *t, json_t *value)
{
    char *s = json_dumps(value, JSON_COMPACT);

    assert_non_null(s);
    set(t, s);
    free(s);
    json_decref(value);
}

/* Request i, raw or chat, with its own number whatever ran before. */
static struct job *request(struct rig *r, int i, int drafts)
{
    static char text[1200];
    int n = i % 7 == 0 ? 900 : i % 5 == 1 ? 1 : 30 * (i % 11) + 3;
    struct job *j;

    for (int k = 0; k < n; k++) {
        text[k] = "The capital of Kenya is 7 + 8.\n"[(k * 7 + i) % 31];
    }
    text[n] = '\0';
    j = new_job(r, text, 8 + i % 23);
    if (i % 2 == 1) {
        free(j->prompt.p);
        j->prompt = (struct job_text){0};
        j->chat = true;
        j->thinking = i % 4 == 1;
        set_json(&j->messages,
                 json_pack("[{s:s, s:s}]", "role", "user", "content", text));
    }
    j->seed = 7000 + (uint64_t)i;
    j->temperature = (float)(i % 4) / 2;
    j->top_k = i % 3 * 20;
    j->top_p = i % 4 == 1 ? 0.8f : 1;
    j->min_p = i % 7 == 2 ? 0.05f : 0;
    j->repetition = i % 5 == 3 ? 1.2f : 1;
    j->presence = i % 6 == 1 ? 0.5f : 0;
    j->frequency = i % 6 == 4 ? 0.5f : 0;
    j->logprobs = i % 6;
    j->logprobs_sampled = i % 4 >= 2;
    if (i % 3 == 1) {
        j->n_bias = 2;
        j->bias = calloc(2, sizeof(*j->bias));
        assert_non_null(j->bias);
        j->bias[0] = (struct model_bias){'e', 1.5f};
        j->bias[1] = (struct model_bias){' ', -1};
    }
    j->drafts = drafts;
    j->priority = i % 3 - 1;
    return j;
}

static void start(struct rig *r, int threads, int chunk)
{
    rig_init(r);
    r->model.n_threads = threads;
    r->model.max_seqs = 8;
    r->conf.max_queue = N_REQUESTS;
    r->conf.prefill_chunk = chunk;
    r->conf.step_target_ms = 60000;
    r->conf.max_sessions = r->conf.max_sessions_per_owner = 64;
    r->conf.max_session_text_per_owner = 1u << 30;
    r->conf.session_disk = r->conf.session_disk_per_owner = 1u << 30;
    rig_start(r);
}

static void assert_as_cold(struct rig *r, uint64_t id, int run)
{
    assert_same_answer(wait_over(r, id), &cold.answer[run]);
}

static int setup(void **state)
{
    (void)state;
    if (getenv("STEPD_TEST_WHOLE") != NULL) {
        stride = 1;
    }
    rig_init(&cold);
    cold.model.n_threads = 1;
    cold.conf.no_prefix_cache = true;
    rig_start(&cold);
    for (int i = 0; i < N_REQUESTS; i += stride) {
        wait_over(&cold, submit(&cold, request(&cold, i, 0)));
        n_cold++;
    }
    engine_stop(cold.engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_finish(&cold);
    return 0;
}

/* In batches, in another order, by chunks of each size, with each depth. */
static void test_batches_chunks_threads_and_drafts(void **state)
{
    static const int chunk[] = {1, 7, 64, 512};
    static struct rig r;
    uint64_t id[N_REQUESTS];

    (void)state;
    for (int v = 0; v < 4; v++) {
        start(&r, 1 + v % 2, chunk[v]);
        for (int k = 0; k < n_runs(); k++) {
            int run = (k * 7 + v) % n_runs();

            if (n_runs() % 7 == 0) {
                run = (k + v) % n_runs();
            }
            id[run] = submit(&r, request(&r, run * stride, (v + k) % 4));
        }
        for (int run = 0; run < n_runs(); run++) {
            assert_as_cold(&r, id[run], run);
        }
        rig_finish(&r);
    }
}

/* Again and again in one engine: from what was computed before. */
static void test_prefix_hits(void **state)
{
    static struct rig r;
    int hits = 0;

    (void)state;
    start(&r, 2, 0);
    for (int round = 0; round < 3; round++) {
        for (int run = 0; run < n_runs(); run++) {
            uint64_t id = submit(&r, request(&r, run * stride, round + 1));

            assert_as_cold(&r, id, run);
            hits += answer_of(&r, id)->usage.cached_tokens > 0;
        }
    }
    assert_true(hits >= 3 * n_runs() / 2);
    rig_finish(&r);
}

/* The held step is let go; the next one is held. */
static void pass_step(struct rig *r)
{
    uint64_t before = status(r).steps;

    engine_release(r->engine, 1);
    while (status(r).steps == before) {
        sched_yield();
    }
}

/* Two seats, and pages for little more: requests lose them and resume. */
static void test_preempted(void **state)
{
    static struct rig r;
    uint64_t id[N_REQUESTS];

    (void)state;
    rig_init(&r);
    r.model.max_seqs = 2;
    r.model.max_model_len = 1280;
    r.model.max_rows = r.conf.max_batched_tokens = 64;
    r.model.kv_bytes = 5u << 20;
    r.conf.max_queue = N_REQUESTS;
    r.conf.hold_steps = true;
    rig_start(&r);
    /* The lowest priority first, until both seats are taken: who comes later
     * takes the second one. */
    for (int p = -1; p <= 1; p++) {
        for (int run = 0; run < n_runs(); run++) {
            if ((run * stride) % 3 - 1 == p) {
                id[run] = submit(&r, request(&r, run * stride, 3));
                wait_accepted(&r, id[run]);
            }
        }
        do {
            pass_step(&r);
        } while (status(&r).running < 2);
    }
    engine_release(r.engine, INT_MAX / 2);
    for (int run = 0; run < n_runs(); run++) {
        assert_as_cold(&r, id[run], run);
    }
    assert_true(status(&r).preempted > 0);
    rig_finish(&r);
}

/* Cancelled in the middle of prompt or answer, then asked again. */
static void test_cancelled_and_asked_again(void **state)
{
    static struct rig r;

    (void)state;
    start(&r, 2, 64);
    for (int run = 0; run < n_runs(); run++) {
        struct job *j = request(&r, run * stride, run % 4);
        uint64_t id = j->id;

        j->max_tokens = 400;
        submit(&r, j);
        wait_accepted(&r, id);
        while (answer_of(&r, id)->n_deltas < run % 5 &&
               !answer_over(answer_of(&r, id))) {
            next_wake(&r);
        }
        engine_cancel(r.engine, id);
        wait_over(&r, id);
        assert_as_cold(&r, submit(&r, request(&r, run * stride, 3 - run % 4)),
                       run);
    }
    rig_finish(&r);
}

/* ---- sessions ---- */

static struct job *turn(struct rig *r, const char *text, const char *session,
                        int k)
{
    struct job *j = new_job(r, "", 40);

    free(j->prompt.p);
    j->prompt = (struct job_text){0};
    j->chat = true;
    j->thinking = k % 2 == 0;
    set_json(&j->messages,
             json_pack("[{s:s, s:s}]", "role", "user", "content", text));
    j->seed = 900 + (uint64_t)k;
    j->temperature = (float)(k % 3) / 2;
    j->logprobs = 2;
    j->drafts = k % 4;
    if (session != NULL) {
        (void)snprintf(j->session, sizeof(j->session), "%s", session);
    }
    return j;
}

static uint64_t session_op(struct rig *r, enum session_op op, const char *name,
                           const char *to)
{
    struct job *j = new_job(r, "", 1);

    free(j->prompt.p);
    j->prompt = (struct job_text){0};
    j->kind = JOB_SESSION;
    j->op = op;
    (void)snprintf(j->session, sizeof(j->session), "%s", name);
    (void)snprintf(j->to, sizeof(j->to), "%s", to);
    return submit(r, j);
}

static struct answer *append(struct rig *r, const char *session, int k)
{
    struct job *j = turn(r, "And 3 plus 4?", session, k);

    j->append = true;
    return wait_over(r, submit(r, j));
}

/* The whole conversation, computed from its first token. */
static void whole(struct rig *r, const struct answer *first, int k)
{
    struct job *j = turn(r, "", NULL, k);
    json_t *said = json_pack("{s:s, s:s#}", "role", "assistant", "content",
                             first->text[EVENT_CONTENT],
                             (int)first->n_text[EVENT_CONTENT]);

    if (first->n_text[EVENT_REASONING] > 0) {
        json_object_set_new(said, "reasoning_content",
                            json_string(first->text[EVENT_REASONING]));
    }
    free(j->messages.p);
    set_json(&j->messages,
             json_pack("[{s:s, s:s}, o, {s:s, s:s}]", "role", "user", "content",
                       "What is 7 plus 8?", said, "role", "user", "content",
                       "And 3 plus 4?"));
    wait_over(r, submit(r, j));
}

static void test_append_fork_save_and_restore(void **state)
{
    enum { TALKS = 6 };
    static struct rig base, r;
    char name[16], other[16];
    int cached[TALKS];

    (void)state;
    rig_init(&base);
    base.conf.no_prefix_cache = true;
    rig_start(&base);
    rig_init(&r);
    r.conf.max_sessions = r.conf.max_sessions_per_owner = 64;
    r.conf.max_session_text_per_owner = 1u << 30;
    r.conf.session_disk = r.conf.session_disk_per_owner = 1u << 30;
    r.conf.session_dir = state_dir;
    rig_start(&r);
    for (int k = 0; k < TALKS; k++) {
        struct answer *first, *got;

        (void)snprintf(name, sizeof(name), "s%d", k);
        (void)snprintf(other, sizeof(other), "f%d", k);
        first =
            wait_over(&r, submit(&r, turn(&r, "What is 7 plus 8?", name, k)));
        assert_true(first->done);
        assert_true(
            wait_over(&r, session_op(&r, SESSION_SAVE, name, ""))->done);
        assert_true(
            wait_over(&r, session_op(&r, SESSION_FORK, name, other))->done);
        whole(&base, first, k);
        got = append(&r, name, k);
        assert_same_answer(got, &base.answer[k]);
        /* Up to the open turn's `assistant\n` at least. */
        assert_true(got->usage.cached_tokens >=
                    first->usage.prompt_tokens - (k % 2 == 0 ? 2 : 0));
        cached[k] = got->usage.cached_tokens;
        assert_same_answer(append(&r, other, k), &base.answer[k]);
    }
    rig_finish(&r);
    /* Another engine finds the saved ones, as they were. */
    rig_init(&r);
    r.conf.max_sessions = r.conf.max_sessions_per_owner = 64;
    r.conf.max_session_text_per_owner = 1u << 30;
    r.conf.session_disk = r.conf.session_disk_per_owner = 1u << 30;
    r.conf.session_dir = state_dir;
    rig_start(&r);
    for (int k = 0; k < TALKS; k++) {
        struct answer *got;

        (void)snprintf(name, sizeof(name), "s%d", k);
        if (k % 2 == 0) { /* or by the request itself */
            assert_true(
                wait_over(&r, session_op(&r, SESSION_RESTORE, name, ""))->done);
        }
        got = append(&r, name, k);
        assert_same_answer(got, &base.answer[k]);
        /* Not a token more is computed than without a stop. */
        assert_int_equal(got->usage.cached_tokens, cached[k]);
    }
    rig_finish(&r);
    rig_finish(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_chunks_threads_and_drafts),
        cmocka_unit_test(test_prefix_hits),
        cmocka_unit_test(test_preempted),
        cmocka_unit_test(test_cancelled_and_asked_again),
        cmocka_unit_test(test_append_fork_save_and_restore),
    };
    char root[] = "/tmp/stepd-promise.XXXXXX";
    char command[64];
    int r;

    if (mkdtemp(root) == NULL) {
        return 1;
    }
    (void)snprintf(state_dir, sizeof(state_dir), "%s/sessions", root);
    r = test_main(tests, setup, teardown);
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command) != 0 ? 1 : r;
}
