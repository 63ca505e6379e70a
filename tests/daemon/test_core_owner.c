/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * kv_share_per_owner: what one (uid, tenant) may hold of the KV cache. Over the
 * fake model; pages are counted in the pool itself after every step.
 */

#include "tests/test.h"

#include "daemon/sched/core_priv.h"
#include "tests/daemon/core_rig.h"

enum { POOL = 64, CAP = 16 };

static void open_rig(struct rig *r, double share)
{
    fake_reset();
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = fake.pages[MODEL_SLIDING] = POOL;
    rig_init(r);
    r->conf.kv_share_per_owner = share;
    r->conf.named = (struct named_limits){16, 16, 1u << 30};
    rig_start(r);
}

static int used(const struct rig *r, enum model_group g)
{
    return kvpool_pages(r->core->pool, g) - kvpool_free_pages(r->core->pool, g);
}

static struct job *job_by(uint32_t uid, uint64_t id, int n, int max_tokens)
{
    struct job *j = new_job(id, n);

    j->uid = uid;
    j->max_tokens = max_tokens;
    return j;
}

/* The answer of job i is what arithmetic says, whoever waited for whom. */
static void check(struct rig *r, uint64_t id, int n, int max_tokens)
{
    struct job *j = job_by(0, id, n, max_tokens);
    int32_t *want = malloc((size_t)max_tokens * sizeof(*want));
    const struct answer *a = answer_of(r, id);

    continuation(j, max_tokens, want);
    assert_true(a->done);
    assert_int_equal(a->n_ids, max_tokens);
    assert_memory_equal(a->ids, want, (size_t)max_tokens * sizeof(*want));
    free(want);
    job_destroy(j);
}

/* One user's crowd, whose prompts and answers are many times his share: the
 * most pages that were ever taken. */
static void crowd(double share, int peak[MODEL_N_GROUPS], uint64_t *preempted)
{
    struct core_counts n;
    struct rig r;

    open_rig(&r, share);
    memset(peak, 0, MODEL_N_GROUPS * sizeof(*peak));
    for (uint64_t id = 1; id <= 12; id++) {
        rig_add(&r, job_by(1, id, 100 + (int)id * 40, 150));
    }
    for (int steps = 0; core_step(r.core) > 0; steps++) {
        assert_true(steps < 20000);
        for (int g = 0; g < MODEL_N_GROUPS; g++) {
            int now = used(&r, (enum model_group)g);

            peak[g] = now > peak[g] ? now : peak[g];
        }
    }
    for (uint64_t id = 1; id <= 12; id++) {
        check(&r, id, 100 + (int)id * 40, 150);
    }
    core_counts(r.core, &n);
    *preempted = n.preempted;
    rig_finish(&r);
}

static void test_a_crowd_stays_within_its_share(void **state)
{
    int peak[MODEL_N_GROUPS];
    uint64_t preempted;

    (void)state;
    crowd(1, peak, &preempted);
    assert_true(peak[MODEL_FULL] > 3 * CAP); /* it would take all */
    assert_int_equal(preempted, 0);
    crowd((double)CAP / POOL, peak, &preempted);
    assert_in_range(peak[MODEL_FULL], CAP - 1, CAP);
    assert_in_range(peak[MODEL_SLIDING], 1, CAP);
    assert_true(preempted > 0);
}

/* While one has all that he may, another one's request runs as if he were
 * alone, and nothing of his is taken from him. */
static void test_others_do_not_notice(void **state)
{
    int steps[2];

    (void)state;
    for (int with = 0; with < 2; with++) {
        struct core_counts before, after;
        struct rig r;

        open_rig(&r, (double)CAP / POOL);
        r.conf.max_batched_tokens = 256;
        for (uint64_t id = 1; with && id <= 8; id++) {
            rig_add(&r, job_by(1, id, 400, 100));
        }
        for (int i = 0; i < 20; i++) {
            assert_int_equal(core_step(r.core), with);
        }
        core_counts(r.core, &before);
        rig_add(&r, job_by(2, 9, 700, 60));
        for (steps[with] = 0; answer_of(&r, 9)->n_ids == 0; steps[with]++) {
            assert_int_equal(core_step(r.core), 1);
        }
        core_counts(r.core, &after);
        rig_run(&r);
        check(&r, 9, 700, 60);
        rig_finish(&r);
        assert_true(with == 0 || before.running > 0);
        assert_int_equal(before.preempted, after.preempted);
    }
    assert_in_range(steps[1], 1, steps[0] + 2);
}

/* What can never fit is refused with the numbers; an answer ends where the
 * share does. */
static void test_what_can_never_fit_is_refused(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 8.0 / POOL);
    rig_add(&r, job_by(1, 1, 8 * MODEL_PAGE_TOK, 5));
    assert_true(r.answer[0].failed);
    assert_string_equal(r.answer[0].code, "too_long");
    assert_string_equal(
        r.answer[0].message,
        "the prompt has 512 tokens, that is 9 pages of the KV cache, and one "
        "user may hold 8 of 64 (kv_share_per_owner), 0 of them pinned by "
        "sessions: shorten it");
    rig_add(&r, job_by(1, 2, 500, 0));
    rig_run(&r);
    assert_int_equal(r.answer[1].n_ids, 12);
    assert_int_equal(r.answer[1].finish, FINISH_LENGTH);
    check(&r, 2, 500, 12);
    /* Beyond the model's length it is that which is named. */
    rig_add(&r, job_by(1, 3, 1024, 5));
    assert_string_equal(r.answer[2].message,
                        "the prompt has 1024 tokens, at most 1023 fit");
    rig_finish(&r);
}

/* What is cached counts, and gives way: the last used stays, another user's is
 * not touched. */
static void test_cached_pages_give_way(void **state)
{
    struct core_counts n;
    struct rig r;

    (void)state;
    open_rig(&r, (double)CAP / POOL);
    rig_add(&r, job_by(2, 1, 300, 10)); /* 5 pages */
    rig_run(&r);
    for (uint64_t id = 2; id <= 8; id++) {
        rig_add(&r, job_by(1, id, 300, 10));
        rig_run(&r);
        core_counts(r.core, &n);
        assert_true(n.pages_cached[MODEL_FULL] <= CAP + 5);
    }
    assert_true(n.pages_cached[MODEL_FULL] > 10);
    for (uint64_t id = 9; id <= 11; id++) {
        /* That of user 2, the last of user 1, his first. */
        const uint64_t same[] = {1, 8, 2};
        struct job *j = job_by(id == 9 ? 2 : 1, same[id - 9], 300, 10);

        j->id = id;
        rig_add(&r, j);
        rig_run(&r);
        assert_int_equal(r.answer[id - 1].usage.cached_tokens,
                         id == 11 ? 0 : 299);
    }
    rig_finish(&r);
}

/* With one domain for all what is cached is nobody's. */
static void test_a_shared_cache_counts_for_nobody(void **state)
{
    struct core_counts n;
    struct rig r;

    (void)state;
    open_rig(&r, (double)CAP / POOL);
    core_destroy(r.core);
    r.conf.share_prefix_cache = true;
    assert_int_equal(core_create(&r.core, &r.conf), 0);
    for (uint64_t id = 1; id <= 8; id++) {
        rig_add(&r, job_by(1, id, 300, 10));
        rig_run(&r);
    }
    core_counts(r.core, &n);
    assert_int_equal(n.pages_cached[MODEL_FULL], 40);
    for (uint64_t id = 9; id <= 12; id++) {
        rig_add(&r, job_by(1, id, 900, 60)); /* 15 pages each */
    }
    for (int i = 0, holds[MODEL_N_GROUPS], fixed[MODEL_N_GROUPS];
         core_step(r.core) > 0; i++) {
        core_owner_holds(r.core, &(struct core_owner){1, ""}, fixed, holds);
        assert_true(holds[MODEL_FULL] <= CAP);
        assert_true(i < 5000);
    }
    for (uint64_t id = 9; id <= 12; id++) {
        check(&r, id, 900, 60);
    }
    rig_finish(&r);
}

/* An owner's first request gets its next page, and none of his is thrown out so
 * that its chunk may be longer: that one would be let in again at once, take up
 * what was cached, and so on without end. */
static void test_nobody_is_evicted_for_a_longer_chunk(void **state)
{
    static const struct session_geometry geo = {64, 3, 1024};
    const struct batch_req req[] = {
        {.running = true, .n_tokens = 400, .committed = 128, .held = {2, 2}},
        {.arrival = 1,
         .running = true,
         .n_tokens = 500,
         .committed = 128,
         .held = {2, 2}},
    };
    const struct batch_owner owner = {0};
    struct batch_own own = {.free = {100, 1}, .all = {100, 5}};
    const struct batch_args a = {
        .req = req,
        .n_req = 2,
        .owner = &owner,
        .own = &own,
        .n_owners = 1,
        .geo = &geo,
        .free_pages = {100, 100},
        .all_pages = {100, 100},
        .max_seats = 4,
        .max_rows = 512,
        .soft_rows = 256,
        .hard_rows = 512,
    };
    struct batch_plan *plan;

    (void)state;
    assert_int_equal(batch_plan_create(&plan, 2, 1), 0);
    batch_plan(&a, plan);
    assert_int_equal(plan->pick[0].req, 0);
    assert_int_equal(plan->pick[0].n_rows, 64);
    assert_int_equal(plan->n_evicts, 0);
    own.free[MODEL_SLIDING] = 0; /* for its next page it is */
    batch_plan(&a, plan);
    assert_int_equal(plan->pick[0].req, 0);
    assert_int_equal(plan->n_evicts, 1);
    batch_plan_destroy(plan);
}

/* Two users with priorities, pauses and cancels, over pools and shares of many
 * sizes: neither ever has more than he may, nobody waits for ever, and every
 * answer is what it is alone. */
static void test_random_crowds(void **state)
{
    uint64_t preempted = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++) {
        int len[60], most[60], n = 0, i;
        struct core_counts counts;
        uint64_t paused = 0;
        struct rig r;

        fake_reset();
        fake.eos_one_in = 0;
        fake.pages[MODEL_FULL] = 16 + (int)seed;
        fake.pages[MODEL_SLIDING] = 4 + (int)seed;
        rig_init(&r);
        r.conf.kv_share_per_owner = 0.3 + 0.1 * (seed % 6);
        r.conf.prefill_chunk = seed % 3 == 0 ? 64 : seed % 3 == 1 ? 0 : 7;
        r.conf.share_prefix_cache = seed % 4 == 0;
        rig_start(&r);
        r.rng = seed;
        for (int steps = 0;; steps++) {
            int s, fixed[MODEL_N_GROUPS], holds[MODEL_N_GROUPS];

            assert_true(steps < 50000);
            while (n < 24 && rnd(&r, 4) == 0) {
                struct job *j;

                len[n] = 2 + (int)rnd(&r, 250);
                most[n] = 1 + (int)rnd(&r, 60);
                j = job_by(1 + rnd(&r, 2), (uint64_t)n + 1, len[n], most[n]);
                j->priority = (int)rnd(&r, 2);
                j->drafts = (int)rnd(&r, 4);
                rig_add(&r, j);
                n++;
            }
            if (paused == 0 && n > 0 && rnd(&r, 6) == 0) {
                const struct ticket_call c = {.job = 1 + rnd(&r, (unsigned)n),
                                              .paused = true};

                paused = core_call(r.core, &c) ? c.job : 0;
            }
            if (n > 0 && rnd(&r, 60) == 0) {
                cancel(&r, 1 + rnd(&r, (unsigned)n));
            }
            s = core_step(r.core);
            assert_true(s >= 0);
            for (uint32_t uid = 1; uid <= 2; uid++) {
                core_owner_holds(r.core, &(struct core_owner){uid, ""}, fixed,
                                 holds);
                for (int g = 0; g < MODEL_N_GROUPS; g++) {
                    assert_true(holds[g] <= r.core->cap[g]);
                }
            }
            if (paused != 0 && rnd(&r, 6) == 0) {
                (void)core_call(r.core, &(struct ticket_call){.job = paused});
                paused = 0;
            } else if (s == 0 && n == 24 && paused == 0) {
                break;
            }
        }
        for (i = 0; i < n; i++) {
            if (r.answer[i].finish != FINISH_CANCELLED) {
                check(&r, (uint64_t)i + 1, len[i], most[i]);
            }
        }
        core_counts(r.core, &counts);
        preempted += counts.preempted;
        rig_finish(&r);
    }
    assert_true(preempted > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_crowd_stays_within_its_share, setup),
        cmocka_unit_test_setup(test_others_do_not_notice, setup),
        cmocka_unit_test_setup(test_what_can_never_fit_is_refused, setup),
        cmocka_unit_test_setup(test_cached_pages_give_way, setup),
        cmocka_unit_test_setup(test_a_shared_cache_counts_for_nobody, setup),
        cmocka_unit_test(test_nobody_is_evicted_for_a_longer_chunk),
        cmocka_unit_test_setup(test_random_crowds, setup),
    };

    return test_main(tests, NULL, teardown_group);
}
