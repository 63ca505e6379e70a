/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * When memory runs out below a request: each allocation whose size a client
 * chooses fails in turn, from its text to its last token, with the prefix cache
 * and without, cold and warm; and from a session's turn to its file and back.
 * The request ends once, by `no_memory` or as if
 * nothing had been, nothing is lost, and the next one is served right.
 *
 * The allocator is wrapped by the linker, so only our own calls are counted and
 * failed; those of small fixed sizes (die.h) and the fake model's are not.
 */

#include "tests/daemon/core_rig.h"

#include <semaphore.h>
#include <stdlib.h>

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

/* ---- sessions ------------------------------------------------------------ */

enum kind { TURN, APPEND, FORK, SAVE, RESTORE, N_KINDS };

static char state_dir[64];
static struct job *granted;
static sem_t moved;

static void on_prepare(void *ctx, struct job *j)
{
    (void)ctx;
    granted = j;
}

static void on_wake(void *ctx)
{
    (void)ctx;
    (void)sem_post(&moved);
}

static void open_sessions(struct rig *r)
{
    rig_init(r);
    r->conf.named = (struct named_limits){16, 16, 1u << 30};
    r->conf.session_dir = state_dir;
    r->conf.session_disk = r->conf.session_disk_per_owner = 1u << 30;
    r->conf.prepare = on_prepare;
    r->conf.wake = on_wake;
    r->conf.emit = take;
    rig_start(r);
}

/* What the engine and its preparation thread do, until the job has ended. */
static struct answer *serve(struct rig *r, struct job *j)
{
    const struct prep_env env = {
        .tokenizer = tokenizer,
        .tickets = r->tickets,
        .max_prompt_tokens = 1000,
        .emit = take,
        .ctx = r,
    };
    struct answer *a = &r->answer[r->n_answers++];
    bool before = armed;

    armed = false;
    j->id = ++r->victim;
    answer_init(a, j->id);
    assert_int_equal(ticket_open(r->tickets, j), 0);
    armed = before;
    core_add(r->core, j);
    while (tickets_live(r->tickets) > 0) {
        struct job *k = granted;
        bool busy = core_tend(r->core);

        granted = NULL;
        if (k != NULL) {
            (void)prep_job(&env, k);
            core_add(r->core, k);
        } else if (core_step(r->core) == 0 && !busy && granted == NULL &&
                   tickets_live(r->tickets) > 0) {
            (void)sem_wait(&moved);
        }
    }
    assert_true(a->done != a->failed);
    return a;
}

static struct job *session_job(enum kind kind, const char *name)
{
    struct job *j;

    if (kind == TURN || kind == APPEND) {
        j = text_job(0, 1);
        j->max_tokens = 20;
        j->append = kind == APPEND;
    } else {
        j = job_create(JOB_SESSION);
        j->op = kind == FORK   ? SESSION_FORK
                : kind == SAVE ? SESSION_SAVE
                               : SESSION_RESTORE;
        (void)snprintf(j->to, sizeof(j->to), "other");
    }
    (void)snprintf(j->session, sizeof(j->session), "%s", name);
    return j;
}

/* One of the kind on a session of two turns, of which the n-th allocation
 * fails; then what the session answers, in *ret. True: it came to that.
 * */
static bool session_attempt(enum kind kind, int n, int ret[2], bool *ret_failed)
{
    struct answer *a;
    struct job *j;
    struct rig r;
    char command[96];

    (void)snprintf(command, sizeof(command), "rm -rf %s", state_dir);
    assert_int_equal(system(command), 0);
    open_sessions(&r);
    assert_true(serve(&r, session_job(TURN, "talk"))->done);
    assert_true(serve(&r, session_job(APPEND, "talk"))->done);
    if (kind == RESTORE) {
        assert_true(serve(&r, session_job(SAVE, "talk"))->done);
        rig_finish(&r);
        open_sessions(&r);
    }
    j = session_job(kind, "talk");
    n_allocations = 0;
    fail_at = n;
    armed = n >= 0;
    a = serve(&r, j);
    armed = false;
    *ret_failed = a->failed;
    if (a->failed) {
        assert_string_equal(a->code, "no_memory");
        /* Nothing is lost: it can be asked again. */
        a = serve(&r, session_job(kind, "talk"));
        assert_true(a->done);
    }
    ret[0] = a->usage.prompt_tokens;
    a = serve(&r, session_job(APPEND, kind == FORK ? "other" : "talk"));
    assert_true(a->done);
    ret[1] = a->usage.prompt_tokens;
    rig_finish(&r);
    return n >= 0 && n_allocations > n;
}

static void test_sessions(void **state)
{
    char root[] = "/tmp/stepd-memory.XXXXXX", command[64];

    (void)state;
    fake.eos_one_in = 0;
    assert_non_null(mkdtemp(root));
    (void)snprintf(state_dir, sizeof(state_dir), "%s/sessions", root);
    (void)sem_init(&moved, 0, 0);
    for (int kind = 0; kind < N_KINDS; kind++) {
        int want[2], got[2], n_failed = 0, n = 0;
        bool again, failed;

        (void)session_attempt((enum kind)kind, -1, want, &failed);
        do {
            again = session_attempt((enum kind)kind, n++, got, &failed);
            n_failed += failed;
            assert_memory_equal(got, want, sizeof(want));
        } while (again);
        assert_true(n_failed > 0);
    }
    (void)sem_destroy(&moved);
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        TEST(test_without_a_cache),
        TEST(test_prefixes_that_are_new),
        TEST(test_prefixes_that_are_known),
        TEST(test_sessions),
    };

    return test_main(tests, NULL, teardown_group);
}
