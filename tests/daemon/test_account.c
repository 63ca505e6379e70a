/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What a (uid, tenant) may hold, and what is remembered of it.
 */

#include "tests/daemon/net_bench.h"

static struct bench bench;
static struct bench *const b = &bench;

static int setup(void **state)
{
    static const char *const set[] = {"max_in_flight_per_uid=4", NULL};

    (void)state;
    bench_start(b, set);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bench_stop(b);
    return 0;
}

static void test_each_tenant_has_limits_of_its_own(void **state)
{
    struct peer gateway = {.uid = 4000,
                           .may_generate = true,
                           .may_observe = true,
                           .may_delegate = true};
    struct client c, d;

    (void)state;
    open_as(b, &c, gateway);
    open_as(b, &d, gateway);
#define OF(id, tenant)                                                         \
    "{\"op\":\"generate\",\"id\":" id ",\"prompt\":\"x\",\"tenant\":\"" tenant \
    "\"}"
    client_say(b, &c, OF("1", "ann"));
    client_say(b, &c, OF("2", "ann"));
    client_say(b, &c, OF("3", "ben"));
    bench_run(b);
    client_say(b, &d, OF("1", "ann"));
    client_say(b, &d, OF("2", "ann"));
    client_say(b, &d, OF("3", "ann"));
    expect_like(b, &d,
                "\"message\": \"4 requests of this tenant are in flight "
                "(max_in_flight_per_uid): wait for one\"");
    client_say(b, &d, OF("3", "ben"));
    expect(b, &d, "");
    assert_int_equal(b->engine->n_jobs, 6);
    assert_string_equal(fake_job(b->engine, 5)->job->tenant, "ben");
    client_close(&c);
    client_close(&d);
}

/* A tenant on as many connections as it may is told so on the next one, and on
 * those it goes on; a connection is free for it again when its last request
 * there has ended, or the connection has. Others do not notice. */
static void test_connections_of_a_tenant_are_capped(void **state)
{
    struct peer gateway = {.uid = 4000,
                           .may_generate = true,
                           .may_observe = true,
                           .may_delegate = true};
    struct client c[3];

    (void)state;
    b->conf.max_connections_per_tenant = 2;
    for (int i = 0; i < 3; i++) {
        open_as(b, &c[i], gateway);
    }
    client_say(b, &c[0], OF("1", "ann"));
    client_say(b, &c[0], OF("2", "ann"));
    bench_run(b);
    client_say(b, &c[1], OF("1", "ann"));
    bench_run(b);
    client_say(b, &c[2], OF("1", "ann"));
    expect_like(b, &c[2], ERROR("1", "busy"));
    client_say(b, &c[2], OF("1", "ann"));
    expect_like(b, &c[2],
                "\"requests of this tenant are in flight on 2 connections "
                "(max_connections_per_tenant): ask on one of those, or wait "
                "for one\", \"retry_ms\": 1000");
    client_say(b, &c[2], OF("2", "ben"));
    client_say(b, &c[2], GENERATE("3"));
    client_say(b, &c[1], OF("2", "ann"));
    bench_run(b);
    expect(b, &c[2], "");
    assert_int_equal(b->engine->n_jobs, 6);
    fake_done(b->engine, 0, FINISH_STOP);
    expect_like(b, &c[0], "\"done\""); /* ann has one more there */
    client_say(b, &c[2], OF("1", "ann"));
    expect_like(b, &c[2], ERROR("1", "busy"));
    fake_done(b->engine, 1, FINISH_STOP);
    expect_like(b, &c[0], "\"done\"");
    client_say(b, &c[2], OF("1", "ann"));
    expect(b, &c[2], "");
    client_say(b, &c[0], OF("1", "ann"));
    expect_like(b, &c[0], ERROR("1", "busy"));
    client_close(&c[1]);
    bench_run(b);
    client_say(b, &c[0], OF("1", "ann"));
    expect(b, &c[0], "");
    assert_int_equal(b->engine->n_jobs, 8);
    client_close(&c[0]);
    client_close(&c[2]);
}

static void test_bytes_in_flight_are_capped(void **state)
{
    struct client c;

    (void)state;
    b->conf.max_request_bytes_per_uid = 10;
    client_open(b, &c);
#define LONG(id) \
    "{\"op\":\"generate\",\"id\":" id ",\"prompt\":\"123456789012345\"}"
    client_say(b, &c, LONG("1")); /* a first one is always taken */
    expect(b, &c, "");
    client_say(b, &c, GENERATE("2"));
    expect_like(b, &c, ERROR("2", "busy"));
    client_say(b, &c, GENERATE("2"));
    expect_like(b, &c, "\"retry_ms\": 1000");
    fake_done(b->engine, 0, FINISH_STOP);
    expect_like(b, &c, "\"done\"");
    client_say(b, &c, GENERATE("2"));
    client_say(b, &c, GENERATE("3"));
    expect(b, &c, "");
    assert_int_equal(b->engine->n_jobs, 3);
    client_close(&c);
}

/* ---- the table ---------------------------------------------------------- */

/* One request of a tenant of this user. */
static void touch(struct accounts *a, uint32_t uid)
{
    struct account *x = account_get(a, uid, "some-tenant");

    x->user->totals.begun++;
    account_put(a, x);
}

static uint64_t begun(struct accounts *a, uint32_t uid)
{
    struct account *x = account_get(a, uid, "");
    uint64_t n = x->totals.begun;

    account_put(a, x);
    return n;
}

static void test_users_are_remembered_and_bounded(void **state)
{
    struct accounts *a = &b->server->host.accounts;
    int n = 0;

    (void)state;
    for (uint32_t uid = 0; uid < ACCOUNT_MAX_IDLE; uid++) {
        touch(a, uid);
    }
    assert_int_equal(a->n_idle, ACCOUNT_MAX_IDLE);
    assert_int_equal(begun(a, 0), 1); /* now user 1 has been idle longest */
    touch(a, 5000);
    assert_int_equal(a->n_idle, ACCOUNT_MAX_IDLE);
    assert_int_equal(begun(a, 0), 1);
    assert_int_equal(begun(a, 5000), 1);
    for (int i = 0; i < ACCOUNT_BUCKETS; i++) {
        for (struct account *x = a->bucket[i]; x != NULL; x = x->next) {
            assert_string_equal(x->tenant, "");
            assert_int_not_equal(x->uid, 1);
            n++;
        }
    }
    assert_int_equal(n, ACCOUNT_MAX_IDLE);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_each_tenant_has_limits_of_its_own),
        CASE(test_connections_of_a_tenant_are_capped),
        CASE(test_bytes_in_flight_are_capped),
        CASE(test_users_are_remembered_and_bounded),
    };

    return test_main(tests, NULL, NULL);
}
