/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * A step ends whatever the planner says: who had to leave in it does not come
 * back in it, though each who is seated takes up a cached prefix, after which
 * rows and pages are counted and planned anew.
 */

#include "tests/test.h"

#include "daemon/sched/batch.h"
#include "tests/daemon/core_rig.h"

static bool contrary;
static int spared, n_plans;

void __real_batch_plan(const struct batch_args *a, struct batch_plan *ret);
void __wrap_batch_plan(const struct batch_args *a, struct batch_plan *ret);

/* Contrary: who runs must leave, but for the spared one; who may be seated is.
 */
void __wrap_batch_plan(const struct batch_args *a, struct batch_plan *ret)
{
    n_plans++;
    if (!contrary) {
        __real_batch_plan(a, ret);
        return;
    }
    assert_in_range(n_plans, 1, 2 * a->n_req);
    ret->n_picks = ret->n_evicts = ret->n_rows = 0;
    for (int i = 0; i < a->n_req; i++) {
        if (a->req[i].running && i != spared) {
            ret->evict[ret->n_evicts++] = i;
        } else if (!a->req[i].running && !a->req[i].paused) {
            ret->pick[ret->n_picks++] = (struct batch_pick){i, 1, 0};
            ret->n_rows++;
        }
    }
}

static struct job *job(uint64_t id)
{
    struct job *j = new_job(id, 200);

    j->max_tokens = 40;
    return j;
}

static void test_who_left_is_not_seated_again_in_the_step(void **state)
{
    struct core_counts counts;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    rig_start(&r);
    for (uint64_t id = 1; id <= 2; id++) {
        rig_add(&r, job(id));
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(core_step(r.core), 1);
    }
    contrary = true;
    spared = 1;
    n_plans = 0;
    assert_int_equal(core_step(r.core), 0); /* the first has left */
    assert_int_equal(n_plans, 1);
    spared = -1;
    n_plans = 0;
    assert_int_equal(core_step(r.core), 0);
    assert_int_equal(n_plans, 2); /* it came for the other, and left again */
    contrary = false;
    core_counts(r.core, &counts);
    assert_int_equal(counts.preempted, 3);
    rig_run(&r);
    /* Who resumes has waited in the queue once. */
    core_counts(r.core, &counts);
    assert_int_equal(counts.times.queue.count, 2);
    assert_int_equal(counts.times.first_token.count, 2);
    for (uint64_t id = 1; id <= 2; id++) {
        struct job *j = job(id);
        int32_t *want = malloc((size_t)j->max_tokens * sizeof(*want));

        continuation(j, j->max_tokens, want);
        assert_true(answer_of(&r, id)->done);
        assert_int_equal(answer_of(&r, id)->n_ids, j->max_tokens);
        assert_memory_equal(answer_of(&r, id)->ids, want,
                            (size_t)j->max_tokens * sizeof(*want));
        free(want);
        job_destroy(j);
    }
    rig_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_who_left_is_not_seated_again_in_the_step,
                               setup),
    };

    return test_main(tests, NULL, teardown_group);
}
