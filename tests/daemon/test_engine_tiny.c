/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The whole engine on the bundled model: the golden answers, and the promise
 * that an answer is a function of its request.
 */

#include "tests/test.h"

#include <jansson.h>
#include <stdatomic.h>

#include "tests/daemon/engine_rig.h"

/* tests/data/oracle/README.md: up to the first near-tie. */
#define GAP 0.05

/* Where every access is watched, fewer cases are enough to see the threads
 * meet; the answers are compared in the other builds. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
static const bool light = true;
#else
static const bool light = false;
#endif

static json_t *golden;

static int setup(void **state)
{
    json_error_t err;

    (void)state;
    golden = json_load_file(test_data("step-tiny/golden-greedy.json"), 0, &err);
    return golden == NULL;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static json_t *golden_case(size_t i)
{
    return json_array_get(json_object_get(golden, "cases"), i);
}

static size_t n_cases(void)
{
    return light ? 2 : json_array_size(json_object_get(golden, "cases"));
}

static void set_json(struct job_text *t, const json_t *value)
{
    char *s;

    if (json_is_array(value)) {
        s = json_dumps(value, JSON_COMPACT);
        assert_non_null(s);
        set(t, s);
        free(s);
    }
}

static struct job *chat_job(struct rig *r, size_t i, int max_tokens)
{
    struct job *j = new_job(r, "", max_tokens);
    json_t *c = golden_case(i);

    free(j->prompt.p);
    j->prompt = (struct job_text){0};
    j->chat = true;
    set_json(&j->messages, json_object_get(c, "messages"));
    set_json(&j->tools, json_object_get(c, "tools"));
    return j;
}

/* Returns how many tokens were held against the golden ones. */
static int assert_golden(const struct answer *a, const json_t *c)
{
    const json_t *ids = json_object_get(c, "greedy_ids");
    const json_t *gaps = json_object_get(c, "gaps");
    int n = (int)json_array_size(ids), i;

    for (i = 0; i < n; i++) {
        if (json_number_value(json_array_get(gaps, (size_t)i)) < GAP) {
            return i;
        }
        assert_true(i < a->n_ids);
        assert_int_equal(a->ids[i],
                         json_integer_value(json_array_get(ids, (size_t)i)));
    }
    assert_int_equal(a->n_ids, n);
    return n;
}

/* Reasoning and content, as far as a person would split the golden text. */
static void assert_golden_text(const struct answer *a, const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "greedy_text"));
    const char *mid = strstr(text, "\n</think>\n");
    const char *end = strstr(text, "<|im_end|>");

    if (mid == NULL || end == NULL || strstr(text, "<tool_call>") != NULL) {
        return;
    }
    assert_int_equal(a->n_text[EVENT_REASONING], mid - text);
    assert_memory_equal(a->text[EVENT_REASONING], text, mid - text);
    mid += strlen("\n</think>\n");
    assert_int_equal(a->n_text[EVENT_CONTENT], end - mid);
    assert_memory_equal(a->text[EVENT_CONTENT], mid, end - mid);
}

static void test_golden_answers_come_through_the_engine(void **state)
{
    static struct rig r;
    int held = 0, whole = 0;

    (void)state;
    for (int drafts = light ? 3 : 0; drafts <= 3; drafts += 3) {
        rig_init(&r);
        r.model.max_seqs = 16;
        r.conf.step_target_ms = 60000; /* drafts are cut where time is short */
        rig_start(&r);
        for (size_t i = 0; i < n_cases(); i++) {
            struct job *j = chat_job(&r, i, 120);

            j->temperature = 0;
            j->drafts = drafts;
            submit(&r, j);
        }
        for (size_t i = 0; i < n_cases(); i++) {
            const struct answer *a = wait_over(&r, i + 1);
            json_t *c = golden_case(i);
            int n = assert_golden(a, c);

            assert_int_equal(a->usage.drafted > 0, drafts > 0);
            held += n;
            if (n == (int)json_array_size(json_object_get(c, "greedy_ids"))) {
                assert_golden_text(a, c);
                whole++;
            }
        }
        rig_finish(&r);
    }
    assert_true(light || (held > 2000 && whole > 60));
}

static int n_mixed(void)
{
    return light ? 4 : 20;
}

static uint64_t n_at_once(void)
{
    return light ? 4 : 32;
}

/* Raw and chat, long and short, every parameter. */
static struct job *mixed_job(struct rig *r, int i)
{
    static char text[512];
    struct job *j;

    if (i % 3 == 0) {
        j = chat_job(r, (size_t)i, 40);
        j->thinking = i % 2;
    } else {
        int n = i % 5 == 0 ? 300 : i % 5 == 1 ? 1 : 40 * (i % 5);

        for (int k = 0; k < n; k++) {
            text[k] = "The capital of Kenya is 7 + 8.\n"[(k * 7 + i) % 31];
        }
        text[n] = '\0';
        j = new_job(r, text, 10 + i);
    }
    j->seed = 1000 + (uint64_t)i;
    j->temperature = (float)(i % 4) / 2;
    j->top_k = i % 3 * 20;
    j->top_p = i % 4 == 1 ? 0.8f : 1;
    j->min_p = i % 7 == 2 ? 0.05f : 0;
    j->repetition = i % 5 == 3 ? 1.2f : 1;
    j->presence = i % 6 == 1 ? 0.5f : 0;
    j->frequency = i % 6 == 4 ? 0.5f : 0;
    j->logprobs = i % 2 ? i % 6 : -1;
    j->drafts = i % 5 - 1;
    j->priority = i % 3 - 1;
    j->uid = (uint32_t)(i % 3);
    if (i % 4 == 2) {
        set(&j->stop[j->n_stops++], "a");
    }
    return j;
}

static void run_mixed(struct rig *r, bool together, unsigned order)
{
    for (int k = 0; k < n_mixed(); k++) {
        int i = (int)((unsigned)k * 7 + order) % n_mixed();
        struct job *j = mixed_job(r, i);

        j->id = (uint64_t)i + 1;
        j->request = j->id + 100;
        submit(r, j);
        if (!together) {
            wait_over(r, (uint64_t)i + 1);
        }
    }
    for (int i = 0; i < n_mixed(); i++) {
        wait_over(r, (uint64_t)i + 1);
    }
}

static void test_mixed_requests_do_not_depend_on_how_they_are_run(void **state)
{
    const int chunk[] = {0, 1, 7, 64, 512};
    static struct rig alone, r;

    (void)state;
    rig_init(&alone);
    alone.model.n_threads = 1;
    rig_start(&alone);
    run_mixed(&alone, false, 0);
    engine_stop(alone.engine);
    for (unsigned v = light ? 3 : 0; v < (light ? 4 : 5); v++) {
        rig_init(&r);
        r.model.n_threads = 1 + (int)v % 2;
        r.model.max_seqs = v % 2 ? 16 : 3;
        r.conf.prefill_chunk = chunk[v % 5];
        r.conf.step_target_ms = v % 3 ? 150 : 2;
        rig_start(&r);
        run_mixed(&r, true, v);
        for (uint64_t id = 1; id <= (uint64_t)n_mixed(); id++) {
            assert_same_answer(answer_of(&r, id), answer_of(&alone, id));
        }
        rig_finish(&r);
    }
    rig_finish(&alone);
}

static void test_many_at_once_equal_their_solo_runs(void **state)
{
    static struct rig solo, r;

    (void)state;
    for (int together = 0; together < 2; together++) {
        struct rig *g = together ? &r : &solo;

        rig_init(g);
        g->model.max_seqs = 32;
        g->conf.step_target_ms = 60000; /* a slow machine plans as a fast one */
        rig_start(g);
        for (size_t i = 0; i < n_at_once(); i++) {
            struct job *j = chat_job(g, i, 60);
            uint64_t id = j->id;

            j->logprobs = 3;
            submit(g, j);
            if (!together) {
                wait_over(g, id);
            }
        }
        for (uint64_t id = 1; id <= n_at_once(); id++) {
            wait_over(g, id);
        }
        engine_stop(g->engine);
    }
    for (uint64_t id = 1; id <= n_at_once(); id++) {
        assert_same_answer(answer_of(&r, id), answer_of(&solo, id));
    }
    /* The batch took fewer steps than the rows one by one. */
    assert_true(light || status(&r).steps * 4 < status(&solo).steps);
    rig_finish(&r);
    rig_finish(&solo);
}

/* Field report 63: a client that goes away leaves nothing behind. */
static void test_fr_63_cancelled_work_leaves_nothing(void **state)
{
    static struct rig r;
    struct answer *before, *after;
    struct job *j;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    before = wait_over(&r, submit(&r, chat_job(&r, 0, 60)));
    for (int k = 0; k < (light ? 3 : 30); k++) {
        uint64_t id = submit(&r, new_job(&r, "Once upon a time", 3000));

        wait_accepted(&r, id);
        while (answer_of(&r, id)->n_deltas < k % 10 &&
               !answer_over(answer_of(&r, id))) {
            next_wake(&r);
        }
        engine_cancel(r.engine, id);
        assert_true(wait_over(&r, id)->usage.completion_tokens < 3000);
    }
    j = chat_job(&r, 0, 60);
    j->seed = 31;
    after = wait_over(&r, submit(&r, j));
    assert_same_answer(before, after);
    rig_finish(&r); /* asserts that every page is free */
}

/* ---- cancel at any moment ---- */

/* The linker puts this between the engine and the model: the counters of every
 * layer boundary, and the start of every step. Engine thread. */
static struct {
    struct rig *rig; /* NULL: nobody watches */
    void (*tick)(void *ctx);
    void *ctx;
    struct model *m;
    atomic_int left;              /* boundaries until `caught` */
    atomic_bool caught;           /* the moment has come */
    atomic_uint_fast64_t begun;   /* layers, at the last boundary */
    atomic_bool armed;            /* the next step tells at_step */
    atomic_uint_fast64_t at_step; /* layers, as that step starts */
} watch;

int __real_model_open(struct model **ret, const struct model_conf *c,
                      struct model_report *rep);
int __wrap_model_open(struct model **ret, const struct model_conf *c,
                      struct model_report *rep);
int __real_model_submit(struct model *m, const struct model_plan *plan);
int __wrap_model_submit(struct model *m, const struct model_plan *plan);

static uint64_t layers_of(struct model *m)
{
    struct model_stats s;

    model_stats(m, &s);
    return s.layers;
}

/* Before the engine's own look. */
static void watch_tick(void *ctx)
{
    (void)ctx;
    atomic_store(&watch.begun, layers_of(watch.m));
    if (atomic_fetch_sub(&watch.left, 1) == 1) {
        atomic_store(&watch.caught, true);
        rig_on_wake(watch.rig);
    }
    watch.tick(watch.ctx);
}

int __wrap_model_open(struct model **ret, const struct model_conf *c,
                      struct model_report *rep)
{
    struct model_conf mine = *c;

    if (watch.rig != NULL) {
        watch.tick = c->tick;
        watch.ctx = c->ctx;
        mine.tick = watch_tick;
    }
    return __real_model_open(ret, &mine, rep);
}

int __wrap_model_submit(struct model *m, const struct model_plan *plan)
{
    watch.m = m;
    if (atomic_exchange(&watch.armed, false)) {
        atomic_store(&watch.at_step, layers_of(m));
    }
    return __real_model_submit(m, plan);
}

/* Cancels a job that has the engine for itself, some boundaries after it came
 * in, from this thread, while layers run. False: the job was over before. */
static bool cancel_somewhere(struct rig *r, int boundaries, const char *prompt)
{
    uint64_t begun, id, probe;

    atomic_store(&watch.caught, false);
    atomic_store(&watch.left, boundaries);
    id = submit(r, new_job(r, prompt, 3000));
    while (!atomic_load(&watch.caught) && !answer_over(answer_of(r, id))) {
        next_wake(r);
    }
    engine_cancel(r->engine, id);
    /* The layer after this boundary may have begun before the cancel; at the
     * next boundary it is heard. */
    begun = atomic_load(&watch.begun);
    if (wait_over(r, id)->finish != FINISH_CANCELLED) {
        return false;
    }
    /* The next step begins when nothing of the last one is left to do. */
    atomic_store(&watch.armed, true);
    probe = submit(r, new_job(r, "a", 1));
    assert_int_equal(wait_over(r, probe)->usage.completion_tokens, 1);
    assert_in_range(atomic_load(&watch.at_step), begun, begun + 1);
    return true;
}

static void test_fr_63_cancel_stops_before_the_next_layer_boundary(void **state)
{
    static struct rig r;
    static char prompt[400];
    int want = light ? 5 : 50, n = 0;
    uint32_t x = 63;

    (void)state;
    rig_init(&r);
    watch.rig = &r;
    rig_start(&r);
    wait_over(&r, submit(&r, chat_job(&r, 0, 10)));
    memset(prompt, 'k', sizeof(prompt) - 1);
    for (int k = 0; n < want && k < 2 * want; k++) {
        x = x * 1664525 + 1013904223;
        /* in the prompt's rows, in the answer's, between two layers or two
         * modules, in the first step and the tenth */
        n += cancel_somewhere(&r, 1 + (int)(x >> 16) % 100,
                              k % 2 ? prompt : "Once upon a time");
    }
    assert_int_equal(n, want);
    rig_finish(&r); /* asserts that every page is free */
    watch.rig = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_answers_come_through_the_engine),
        cmocka_unit_test(test_mixed_requests_do_not_depend_on_how_they_are_run),
        cmocka_unit_test(test_many_at_once_equal_their_solo_runs),
        cmocka_unit_test(test_fr_63_cancelled_work_leaves_nothing),
        cmocka_unit_test(
            test_fr_63_cancel_stops_before_the_next_layer_boundary),
    };

    return test_main(tests, setup, teardown);
}
