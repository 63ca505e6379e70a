/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/* Jobs and events: defaults, what they own, and shares between owners and the
 * tickets of live jobs, which are as small. */

#include "tests/test.h"

#include <errno.h>

#include "daemon/sched/job.h"
#include "daemon/sched/share.h"
#include "daemon/sched/ticket.h"

static struct job *job(uint64_t id)
{
    struct job *j = job_create(JOB_GENERATE);

    j->id = id;
    j->conn = 100 + id;
    j->request = 200 + id;
    return j;
}

static void test_defaults_are_those_of_the_contract(void **state)
{
    struct job *j = job_create(JOB_GENERATE);

    (void)state;
    assert_int_equal(j->kind, JOB_GENERATE);
    assert_true(j->temperature == 1 && j->top_p == 1 && j->min_p == 0);
    assert_true(j->repetition == 1 && j->presence == 0 && j->frequency == 0);
    assert_int_equal(j->top_k, 0);
    assert_int_equal(j->max_tokens, 0);
    assert_int_equal(j->logprobs, -1);
    assert_int_equal(j->drafts, -1);
    assert_int_equal(j->priority, 0);
    assert_int_equal(j->timeout_ms, 0);
    assert_true(j->thinking && j->add_generation);
    assert_false(j->seed_given || j->append || j->want_ids);
    job_destroy(j);
}

static void test_owned_memory_is_freed(void **state)
{
    struct job *j = job(1);
    struct event *e;

    (void)state;
    /* What is not freed here, ASan finds. */
    j->messages.p = strdup("[]");
    j->tools.p = strdup("[]");
    j->tool_choice.p = strdup("{}");
    j->prompt.p = strdup("x");
    j->ids = calloc(4, sizeof(*j->ids));
    j->n_stops = 2;
    j->stop[0].p = strdup("a");
    j->stop[1].p = strdup("b");
    e = event_create(EVENT_DELTA, j);
    e->text.p = strdup("t");
    e->ids = calloc(1, sizeof(*e->ids));
    e->logprobs = calloc(1, sizeof(*e->logprobs));
    event_destroy(e);
    job_destroy(j);
    job_destroy(NULL);
    event_destroy(NULL);
}

static void test_event_names_its_job(void **state)
{
    struct job *j = job(7);
    struct event *e = event_error(j, "too_long", "%d of %d", 9, 8);

    (void)state;
    assert_int_equal(e->type, EVENT_ERROR);
    assert_int_equal(e->job, 7);
    assert_int_equal(e->conn, 107);
    assert_int_equal(e->request, 207);
    assert_string_equal(e->code, "too_long");
    assert_string_equal(e->message, "9 of 8");
    event_destroy(e);
    job_destroy(j);
}

/* ---- tickets ------------------------------------------------------------- */

static void test_ticket_limits_what_waits(void **state)
{
    struct tickets *t;
    struct job *j[4];

    (void)state;
    assert_int_equal(tickets_create(&t, 3, 2), 0);
    for (int i = 0; i < 4; i++) {
        j[i] = job((uint64_t)i);
    }
    assert_int_equal(ticket_open(t, j[0]), 0);
    assert_int_equal(ticket_open(t, j[1]), 0);
    assert_int_equal(ticket_open(t, j[2]), -EBUSY);
    ticket_start(t, 0);
    ticket_start(t, 0);
    assert_int_equal(tickets_waiting(t), 1);
    assert_int_equal(ticket_open(t, j[2]), 0);
    ticket_start(t, 1);
    /* Nobody too many waits, but the table is full. */
    assert_int_equal(ticket_open(t, j[3]), -EBUSY);
    ticket_close(t, 0);
    assert_int_equal(ticket_open(t, j[3]), 0);
    ticket_close(t, 1);
    ticket_close(t, 2);
    ticket_close(t, 3);
    assert_int_equal(tickets_waiting(t), 0);
    assert_int_equal(tickets_live(t), 0);
    for (int i = 0; i < 4; i++) {
        job_destroy(j[i]);
    }
    tickets_destroy(t);
}

static void test_ticket_is_taken_once(void **state)
{
    struct ticket_call call;
    struct tickets *t;
    struct job *j = job(5);

    (void)state;
    assert_int_equal(tickets_create(&t, 1, 1), 0);
    assert_int_equal(ticket_open(t, j), 0);
    assert_false(ticket_answered(t, 5));
    assert_true(ticket_any(t, &call));
    assert_true(ticket_take(t, 5));
    assert_false(ticket_take(t, 5));
    assert_true(ticket_answered(t, 5));
    assert_false(ticket_any(t, &call));
    /* A cancel after the answer tells nobody anything. */
    assert_true(ticket_cancel(t, 5));
    assert_false(ticket_next(t, 0, &call));
    ticket_close(t, 5);
    assert_false(ticket_cancel(t, 5));
    assert_false(ticket_take(t, 5));
    tickets_destroy(t);
    job_destroy(j);
}

static void test_ticket_tells_cancel_pause_and_time(void **state)
{
    struct ticket_call call;
    struct tickets *t;
    struct job *a = job(1), *b = job(2);

    (void)state;
    assert_int_equal(tickets_create(&t, 2, 2), 0);
    a->born_us = 1000;
    a->timeout_ms = 5;
    assert_int_equal(ticket_open(t, a), 0);
    assert_int_equal(ticket_open(t, b), 0);
    assert_int_equal(ticket_deadline(t), 6000);
    assert_false(ticket_pending(t, 5999));
    assert_true(ticket_pending(t, 6000));
    assert_false(ticket_next(t, 5999, &call));
    assert_true(ticket_next(t, 6000, &call));
    assert_int_equal(call.job, 1);
    assert_int_equal(call.conn, 101);
    assert_int_equal(call.request, 201);
    assert_true(call.end && call.finish == FINISH_TIMEOUT);
    assert_false(ticket_next(t, 6000, &call));
    assert_true(ticket_deadline(t) == UINT64_MAX);
    assert_false(ticket_pending(t, 6000));

    assert_true(ticket_pause(t, 2, true));
    assert_true(ticket_pending(t, 0));
    assert_true(ticket_paused(t, 2));
    assert_true(ticket_next(t, 0, &call));
    assert_true(!call.end && call.paused && call.job == 2);
    /* On and off again before anybody looked is nothing. */
    assert_true(ticket_pause(t, 2, false));
    assert_true(ticket_pause(t, 2, true));
    assert_false(ticket_next(t, 0, &call));
    /* However often: once. */
    assert_true(ticket_cancel(t, 2));
    assert_true(ticket_cancel(t, 2));
    assert_true(ticket_next(t, 0, &call));
    assert_true(call.end && call.finish == FINISH_CANCELLED);
    assert_false(ticket_next(t, 0, &call));
    ticket_close(t, 1);
    ticket_close(t, 2);
    tickets_destroy(t);
    job_destroy(a);
    job_destroy(b);
}

/* ---- shares -------------------------------------------------------------- */

static void test_share_knows_uid_and_tenant(void **state)
{
    struct job *j = job(1);
    struct shares *s;
    int a, b, c;

    (void)state;
    assert_int_equal(shares_create(&s, 4), 0);
    j->uid = 10;
    a = share_join(s, j, 8);
    strcpy(j->tenant, "x");
    b = share_join(s, j, 8);
    j->uid = 11;
    c = share_join(s, j, 8);
    assert_true(a != b && b != c && a != c);
    j->uid = 10;
    assert_int_equal(share_join(s, j, 8), b);
    job_destroy(j);
    shares_destroy(s);
}

static void test_share_of_a_newcomer_starts_near_the_clock(void **state)
{
    struct job *j = job(1);
    const struct batch_owner *t;
    struct shares *s;
    int a, b, n;

    (void)state;
    assert_int_equal(shares_create(&s, 4), 0);
    a = share_join(s, j, 8);
    share_charge(s, a, 100000);
    j->uid = 1;
    b = share_join(s, j, 8);
    t = shares_table(s, &n);
    assert_true(n >= 4);
    /* Ahead by one step's rows at most, not by all that a has had. */
    assert_int_equal(t[a].served - t[b].served, 8);
    /* Coming and going earns nothing. */
    share_charge(s, b, 500);
    share_leave(s, b);
    assert_int_equal(share_join(s, j, 8), b);
    assert_int_equal(t[b].served - t[a].served, 492);
    job_destroy(j);
    shares_destroy(s);
}

static void test_share_table_forgets_idle_owners_only(void **state)
{
    struct job *j = job(1);
    struct shares *s;
    int keep;

    (void)state;
    assert_int_equal(shares_create(&s, 2), 0);
    j->uid = 4242;
    keep = share_join(s, j, 8);
    for (uint32_t uid = 0; uid < 1000; uid++) {
        int o;

        j->uid = uid;
        o = share_join(s, j, 8);
        assert_int_not_equal(o, keep);
        share_charge(s, o, 3);
        share_leave(s, o);
    }
    j->uid = 4242;
    assert_int_equal(share_join(s, j, 8), keep);
    job_destroy(j);
    shares_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_those_of_the_contract),
        cmocka_unit_test(test_owned_memory_is_freed),
        cmocka_unit_test(test_event_names_its_job),
        cmocka_unit_test(test_ticket_limits_what_waits),
        cmocka_unit_test(test_ticket_is_taken_once),
        cmocka_unit_test(test_ticket_tells_cancel_pause_and_time),
        cmocka_unit_test(test_share_knows_uid_and_tenant),
        cmocka_unit_test(test_share_of_a_newcomer_starts_near_the_clock),
        cmocka_unit_test(test_share_table_forgets_idle_owners_only),
    };

    return test_main(tests, NULL, NULL);
}
