/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * When memory runs out below a request: each allocation whose size a client
 * chooses fails in turn, from its text to its last token, with the prefix cache
 * and without, cold and warm. The request ends once, by `no_memory` or as if
 * nothing had been, nothing is lost, and the next one is served right.
 *
 * The allocator is wrapped by the linker, so only our own calls are counted and
 * failed; those of small fixed sizes (die.h) and the fake model's are not.
 */

#include "tests/daemon/core_rig.h"

#include "daemon/sched/prep.h"
#include "tests/daemon/failing.h"

void *__real_xcalloc(size_t n, size_t size);
void *__wrap_xcalloc(size_t n, size_t size);

void *__wrap_xcalloc(size_t n, size_t size)
{
    bool before = armed;
    void *p;

    armed = false;
    p = __real_xcalloc(n, size);
    armed = before;
    return p;
}

/* The fake model's own. */
int __real_model_seq_open(struct model *m, const struct model_sampling *s,
                          const int32_t *history, int n, int n_drawn, int *ret);
int __wrap_model_seq_open(struct model *m, const struct model_sampling *s,
                          const int32_t *history, int n, int n_drawn, int *ret);
int __real_model_submit(struct model *m, const struct model_plan *plan);
int __wrap_model_submit(struct model *m, const struct model_plan *plan);
int __real_model_collect(struct model *m, struct model_out *ret, int n);
int __wrap_model_collect(struct model *m, struct model_out *ret, int n);

int __wrap_model_seq_open(struct model *m, const struct model_sampling *s,
                          const int32_t *history, int n, int n_drawn, int *ret)
{
    bool before = armed;
    int r;

    armed = false;
    r = __real_model_seq_open(m, s, history, n, n_drawn, ret);
    armed = before;
    return r;
}

int __wrap_model_submit(struct model *m, const struct model_plan *plan)
{
    bool before = armed;
    int r;

    armed = false;
    r = __real_model_submit(m, plan);
    armed = before;
    return r;
}

int __wrap_model_collect(struct model *m, struct model_out *ret, int n)
{
    bool before = armed;
    int r;

    armed = false;
    r = __real_model_collect(m, ret, n);
    armed = before;
    return r;
}

/* ---- requests ------------------------------------------------------------ */

static void take(void *ctx, struct event *e)
{
    bool before = armed;

    armed = false;
    on_emit(ctx, e);
    armed = before;
}

static void put(struct job_text *t, const char *fmt, int i)
{
    char text[1024];

    t->n = (size_t)snprintf(text, sizeof(text), fmt, i);
    t->p = strdup(text);
}

/* A long prompt; i makes it another from its first words on. */
static struct job *text_job(uint64_t id, int i)
{
    struct job *j = job_create(JOB_GENERATE);

    j->id = id;
    j->chat = i % 2;
    if (j->chat) {
        put(&j->messages,
            "[{\"role\":\"user\",\"content\":\"%d of the cities, one a line, "
            "with the country in which each lies and the river.\"}]",
            i);
    } else {
        put(&j->prompt,
            "%d cities, one a line, with the country in which each lies, and "
            "the river that flows through it, and the sea to which it flows, "
            "and what else there is to say of the place and its people.",
            i);
    }
    j->thinking = i % 4 == 1;
    j->seed = 99 + (uint64_t)i;
    j->seed_given = true;
    j->want_ids = true;
    j->logprobs = 3;
    j->max_tokens = 150;
    j->temperature = 0.5f;
    add_stop(j, "never said", 10);
    return j;
}

/* From text to the end; the n-th allocation fails, -1: none. Returns whether it
 * came to that. */
static bool attempt(struct rig *r, int i, int n, struct answer *ret)
{
    struct prep_env env = {
        .tokenizer = tokenizer,
        .tickets = r->tickets,
        .max_prompt_tokens = 1000,
        .emit = take,
        .ctx = r,
    };
    struct job *j = text_job(++r->victim, i);
    uint64_t id = j->id;

    answer_init(&r->answer[0], id);
    r->n_answers = 1;
    assert_int_equal(ticket_open(r->tickets, j), 0);
    n_allocations = 0;
    fail_at = n;
    armed = n >= 0;
    if (prep_job(&env, j)) {
        core_add(r->core, j);
        rig_run(r);
    } else {
        job_destroy(j);
        ticket_close(r->tickets, id);
    }
    armed = false;
    *ret = r->answer[0];
    r->n_answers = 0;
    assert_true(ret->done != ret->failed); /* once */
    assert_clean(r);
    return n >= 0 && n_allocations > n;
}

/* Each allocation in turn. With `cold` each prompt is one that the cache has
 * not seen. */
static int exhaust(struct rig *r, int first, bool cold)
{
    int n_failed = 0, n = 0;
    bool failed;

    do {
        struct answer a, b;
        int i = cold ? first + n : first;

        failed = attempt(r, i, n++, &a);
        (void)attempt(r, i, -1, &b);
        assert_true(b.done && b.n_ids > 0);
        if (a.done) {
            assert_same_answer(&a, &b);
        } else {
            assert_true(failed);
            assert_string_equal(a.code, "no_memory");
            assert_true(a.message[0] != '\0');
            n_failed++;
        }
        answer_finish(&a);
        answer_finish(&b);
    } while (failed);
    return n_failed;
}

static void run(bool no_cache, int first, bool cold)
{
    struct answer a;
    struct rig r;

    fake.eos_one_in = 0;
    rig_init(&r);
    r.conf.no_prefix_cache = no_cache;
    r.conf.emit = take;
    rig_start(&r);
    if (!cold) {
        (void)attempt(&r, first, -1, &a);
        answer_finish(&a);
    }
    /* Text, ids, session, deltas: it is not one place that was tried. */
    assert_true(exhaust(&r, first, cold) > 10);
    rig_finish(&r);
}

static void test_without_a_cache(void **state)
{
    (void)state;
    run(true, 0, false);
    run(true, 1, false);
}

static void test_prefixes_that_are_new(void **state)
{
    (void)state;
    run(false, 100, true);
}

static void test_prefixes_that_are_known(void **state)
{
    (void)state;
    run(false, 0, false);
    run(false, 1, false);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        TEST(test_without_a_cache),
        TEST(test_prefixes_that_are_new),
        TEST(test_prefixes_that_are_known),
    };

    return test_main(tests, NULL, teardown_group);
}
