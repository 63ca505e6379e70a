/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/* The table of named sessions by itself: caps, owners, the order of writers. */

#include "tests/test.h"

#include <string.h>

#include "daemon/sched/named.h"

static void test_caps_of_owners_and_of_all(void **state)
{
    struct named_table t = {.limits = {3, 2, UINT64_MAX}};
    struct named *a;

    (void)state;
    a = named_make(&t, 1, "", "a");
    assert_non_null(a);
    assert_non_null(named_make(&t, 1, "", "b"));
    assert_null(named_make(&t, 1, "", "c"));
    /* A tenant is another owner. */
    assert_non_null(named_make(&t, 1, "x", "a"));
    assert_null(named_make(&t, 2, "", "a"));
    assert_int_equal(named_count(&t, 1, ""), 2);
    assert_int_equal(named_count(&t, 1, "x"), 1);
    assert_ptr_equal(named_find(&t, 1, "", "a"), a);
    assert_ptr_not_equal(named_find(&t, 1, "x", "a"), a);
    assert_null(named_find(&t, 2, "", "a"));
    named_destroy(&t, a);
    assert_non_null(named_make(&t, 2, "", "a"));
    while (t.first != NULL) {
        named_destroy(&t, t.first);
    }
    assert_int_equal(t.n, 0);
}

/* In order of arrival, whoever leaves meanwhile. */
static void test_writers_wait_in_order(void **state)
{
    struct named_table t = {.limits = {2, 2, UINT64_MAX}};
    struct named *n = named_make(&t, 1, "", "a");
    struct job job[5] = {{0}};

    (void)state;
    for (int i = 0; i < 5; i++) {
        job[i].id = 10 + (uint64_t)i;
        named_wait(n, &job[i]);
    }
    assert_ptr_equal(named_take(&t, 12), &job[2]);
    assert_ptr_equal(named_take(&t, 10), &job[0]);
    assert_ptr_equal(named_take(&t, 14), &job[4]);
    assert_null(named_take(&t, 14));
    named_wait(n, &job[0]); /* behind those that are left */
    assert_ptr_equal(named_next(n), &job[1]);
    assert_ptr_equal(named_next(n), &job[3]);
    assert_ptr_equal(named_next(n), &job[0]);
    assert_null(named_next(n));
    named_wait(n, &job[2]); /* and into an empty queue */
    assert_ptr_equal(named_take(&t, 12), &job[2]);
    named_wait(n, &job[3]);
    assert_ptr_equal(named_next(n), &job[3]);
    n->writer = 7;
    assert_ptr_equal(named_by_writer(&t, 7), n);
    assert_null(named_by_writer(&t, 8));
    n->writer = 0;
    named_destroy(&t, n);
}

/* With want_bytes a client gets what no character is made of. The session keeps
 * it as JSON, which append must be able to read. */
static void test_bytes_that_are_no_text_stay_readable(void **state)
{
    static const char said_bytes[] = "a\xff\xe2\x82z \xc3\xa9 \xf0\x9f";
    struct named_table t = {.limits = {2, 2, UINT64_MAX}};
    struct named *n = named_make(&t, 1, "", "a");
    struct job *j = job_create(JOB_GENERATE), *next;
    struct event *e = event_create(EVENT_DELTA, j);
    const int32_t ids[] = {0, 1, 2};
    struct said said = {0};
    struct turn turn;

    (void)state;
    e->kind = EVENT_CONTENT;
    e->text_is_bytes = true;
    e->text = (struct job_text){strdup(said_bytes), sizeof(said_bytes) - 1};
    said_take(&said, e);
    event_destroy(e);
    j->chat = true;
    j->messages = (struct job_text){strdup("[1]"), 3};
    assert_int_equal(turn_make(&turn, j, &said, ids, 3), 0);
    named_turn(n, j, &turn, 2);
    assert_null(turn.ids);
    assert_string_equal(
        n->messages.p,
        "[1,{\"role\":\"assistant\",\"content\":\"a\xef\xbf\xbd\xef\xbf\xbd"
        "\xef\xbf\xbdz \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\"}]");
    next = job_create(JOB_GENERATE);
    next->messages = (struct job_text){strdup("[2]"), 3};
    assert_int_equal(named_append(n, next), 0);
    assert_int_equal(next->messages.n, n->messages.n + 2);
    said_finish(&said);
    job_destroy(j);
    job_destroy(next);
    named_destroy(&t, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caps_of_owners_and_of_all),
        cmocka_unit_test(test_writers_wait_in_order),
        cmocka_unit_test(test_bytes_that_are_no_text_stay_readable),
    };

    return test_main(tests, NULL, NULL);
}
