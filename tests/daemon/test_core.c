/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The engine without its threads: the same answer however a request is batched,
 * chunked, pre-empted and drafted for, and blocks that end inside.
 */

#include "tests/test.h"

#include "tests/daemon/core_rig.h"

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
    };

    return test_main(tests, NULL, teardown_group);
}
