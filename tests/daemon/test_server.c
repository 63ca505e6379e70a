/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * server.c, ops.c and flight.c with a fake engine behind them: what
 * is answered by whom, under which id, to whom, and how each request ends.
 */

#include <errno.h>

#include "tests/daemon/net_bench.h"

static struct bench bench;
static struct bench *const b = &bench;

static int setup(void **state)
{
    (void)state;
    bench_start(b, NULL);
    return 0;
}

static int setup_small(void **state)
{
    static const char *const set[] = {
        "max_connections=3",
        "max_connections_per_uid=2",
        "max_in_flight=3",
        "max_in_flight_per_uid=4",
        "served_model_name=steppy",
        "model=/models/x/",
        NULL,
    };

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

/* ---- hello -------------------------------------------------------------- */

static void test_hello_reports_limits_and_name(void **state)
{
    static const char *const names[] = {
        "max_frame",
        "max_frame_hello",
        "max_depth",
        "max_stops",
        "max_in_flight",
        "max_in_flight_per_uid",
        "max_connections",
        "max_connections_per_uid",
        "max_queue",
        "frame_timeout_ms",
        "slow_client_timeout_ms",
        "max_output_soft",
        "max_output_hard",
        "max_unfinished_per_uid",
        "max_model_len",
        "max_prompt_bytes",
        "max_connections_per_tenant",
    };
    struct wire_value v;
    struct wire_event *e;
    struct client c;

    (void)state;
    b->engine->status.max_model_len = 4096;
    client_connect(b, &c);
    client_say(b, &c, HELLO);
    e = client_event(b, &c);
    assert_string_equal(wire_event_name(e), "hello");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[64];

        snprintf(path, sizeof(path), "limits.%s", names[i]);
        if (!wire_event_get(e, path, &v)) {
            fail_msg("hello lacks %s", path);
        }
    }
    assert_true(wire_event_get(e, "limits.max_model_len", &v));
    assert_int_equal(v.u, 4096);
    assert_true(wire_event_get(e, "limits.max_in_flight", &v));
    assert_int_equal(v.u, 3);
    assert_true(wire_event_get(e, "limits.frame_timeout_ms", &v));
    assert_int_equal(v.u, 30000);
    assert_true(wire_event_get(e, "served_model_name", &v));
    assert_int_equal(v.s.n, 6);
    assert_memory_equal(v.s.p, "steppy", 6);
    wire_event_destroy(e);
    client_close(&c);
}

static void test_model_name_is_the_folders_last(void **state)
{
    static const char *const set[] = {"model=/models/Step-3.7-Flash//", NULL};
    struct client c;

    (void)state;
    bench_start(b, set);
    client_connect(b, &c);
    client_say(b, &c, HELLO);
    expect_like(b, &c, "\"served_model_name\": \"Step-3.7-Flash\"");
    client_close(&c);
    bench_stop(b);
}

static void test_nothing_runs_before_hello(void **state)
{
    struct client c;

    (void)state;
    client_connect(b, &c);
    client_say(b, &c, GENERATE("9"));
    expect_like(b, &c, ERROR("9", "bad_request"));
    expect_closed(b, &c);
    assert_int_equal(b->engine->n_jobs, 0);
    client_close(&c);
}

static void test_no_common_version_is_told_with_the_range(void **state)
{
    struct client c;

    (void)state;
    client_connect(b, &c);
    client_say(b, &c,
               "{\"op\":\"hello\",\"id\":1,\"version_min\":900,"
               "\"version_max\":901,\"new_key\":1}");
    expect_like(b, &c, "\"code\": \"version\"");
    expect_closed(b, &c);
    client_close(&c);
    client_connect(b, &c);
    client_say(b, &c,
               "{\"op\":\"hello\",\"id\":1,\"version_min\":900,"
               "\"version_max\":901}");
    expect_like(b, &c, "\"version_min\": 1, \"version_max\": 1");
    client_close(&c);
}

static void test_second_hello_is_refused_and_life_goes_on(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    client_say(b, &c, HELLO);
    expect_like(b, &c, ERROR("1", "bad_request"));
    client_say(b, &c, PING);
    expect(b, &c, PONG);
    client_close(&c);
}

/* As service_reload: a changed key that takes a restart. */
static int reload_refused(void *ctx, struct conf_changes *ret, char *why,
                          size_t n_why)
{
    (void)ctx;
    ret->n = 0;
    snprintf(why, n_why, "f.conf:3: model cannot change");
    return -EPERM;
}

static int reload_broken(void *ctx, struct conf_changes *ret, char *why,
                         size_t n_why)
{
    (void)reload_refused(ctx, ret, why, n_why);
    return -EINVAL;
}

static int reload_done(void *ctx, struct conf_changes *ret, char *why,
                       size_t n_why)
{
    (void)ctx;
    (void)why;
    (void)n_why;
    ret->key[0] = "log_level";
    ret->n = 1;
    return 0;
}

static void test_reload_says_what_became_of_it(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    b->server->on_reload = reload_done;
    client_say(b, &c, "{\"op\":\"reload\",\"id\":5}");
    expect_like(b, &c, "\"changed\": [\"log_level\"]");
    b->server->on_reload = reload_broken;
    client_say(b, &c, "{\"op\":\"reload\",\"id\":6}");
    expect_like(b, &c, ERROR("6", "bad_request"));
    b->server->on_reload = reload_refused;
    client_say(b, &c, "{\"op\":\"reload\",\"id\":7}");
    expect_like(b, &c, "f.conf:3: model cannot change");
    client_close(&c);
}

static void test_a_bad_request_leaves_the_connection(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    client_say(b, &c, "{\"op\":\"ping\",\"id\":3,\"temprature\":1}");
    expect_like(b, &c, "\"detail\": \"temprature\"");
    client_say(b, &c, "{\"op\":\"pong\",\"id\":4}");
    expect_like(b, &c, ERROR("4", "unknown_op"));
    b->server->on_reload = reload_refused;
    client_say(b, &c, "{\"op\":\"reload\",\"id\":5}");
    expect_like(b, &c, ERROR("5", "unsupported"));
    client_say(b, &c, PING);
    expect(b, &c, PONG);
    client_close(&c);
}

/* ---- jobs --------------------------------------------------------------- */

static void test_an_answer_from_accepted_to_done(void **state)
{
    struct client c;
    struct job *j;

    (void)state;
    client_open(b, &c);
    client_say(b, &c,
               "{\"op\":\"generate\",\"id\":5,\"prompt\":\"top "
               "secret\",\"seed\":1}");
    expect(b, &c, "");
    j = fake_job(b->engine, 0)->job;
    assert_int_equal(j->id, 1);
    assert_int_equal(j->request, 5);
    assert_int_equal(j->conn, bench_conn(b)->id);
    assert_int_equal(j->uid, geteuid());
    assert_true(j->born_us > 0);
    assert_int_equal(bench_conn(b)->account->n_jobs, 1);
    fake_accepted(b->engine, 0, 0, 7);
    fake_delta(b->engine, 0, "Nai");
    fake_delta(b->engine, 0, "robi");
    fake_done(b->engine, 0, FINISH_STOP);
    expect_like(b, &c, "{\"id\": 5, \"event\": \"accepted\", \"job\": 1");
    expect_like(b, &c, "\"text\": \"Nai\"");
    expect_like(b, &c, "\"text\": \"robi\"");
    expect_like(b, &c,
                "{\"id\": 5, \"event\": \"done\", \"finish_reason\": "
                "\"stop\"");
    expect(b, &c, "");
    assert_int_equal(bench_conn(b)->account->n_jobs, 0);
    client_close(&c);
}

/* One line a request: who, how much, how long, how it ended; never text. */
static void test_one_log_line_without_text(void **state)
{
    struct client c;
    const char *log;
    char want[64];

    (void)state;
    client_open(b, &c);
    client_say(b, &c,
               "{\"op\":\"generate\",\"id\":5,\"prompt\":\"top "
               "secret\",\"stop\":[\"hush\"]}");
    bench_run(b);
    fake_accepted(b->engine, 0, 0, 7);
    fake_delta(b->engine, 0, "classified");
    fake_done(b->engine, 0, FINISH_STOP);
    client_say(b, &c, "{\"op\":\"tokenize\",\"id\":6,\"prompt\":\"secret\"}");
    bench_run(b);
    fake_ids(b->engine, 1, 4);
    fake_plain_done(b->engine, 1);
    client_say(b, &c, GENERATE("7"));
    bench_run(b);
    fake_error(b->engine, 2, "too_long", "secret");
    client_say(b, &c,
               "{\"op\":\"generate\",\"id\":8,\"prompt\":\"secret\","
               "\"secret\":1}");
    bench_run(b);
    log = bench_log(b);
    snprintf(want, sizeof(want), "<6>request uid=%u job=1 op=generate ",
             (unsigned)geteuid());
    assert_non_null(strstr(log, want));
    assert_non_null(strstr(log, "finish=stop prompt_tokens=7 cached_tokens=0 "
                                "completion_tokens=3 "));
    assert_non_null(strstr(log, "queue_ms="));
    assert_non_null(strstr(log, "total_ms="));
    assert_non_null(strstr(log, "job=2 op=tokenize finish=done ids=4 "));
    assert_non_null(
        strstr(log, "job=3 op=generate finish=error code=too_long "));
    assert_null(strstr(log, "secret"));
    assert_null(strstr(log, "classified"));
    assert_null(strstr(log, "hush"));
    client_close(&c);
}

static void test_several_requests_share_a_connection(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    client_say(b, &c, GENERATE("5"));
    client_say(b, &c, GENERATE("6"));
    client_say(b, &c, "{\"op\":\"render\",\"id\":7,\"messages\":[]}");
    bench_run(b);
    fake_delta(b->engine, 1, "b");
    fake_delta(b->engine, 0, "a");
    fake_plain_done(b->engine, 2);
    fake_done(b->engine, 1, FINISH_LENGTH);
    fake_done(b->engine, 0, FINISH_STOP);
    expect_like(b, &c, "{\"id\": 6, \"event\": \"delta\"");
    expect_like(b, &c, "{\"id\": 5, \"event\": \"delta\"");
    expect(b, &c, "{\"id\": 7, \"event\": \"done\"}");
    expect_like(b, &c, "{\"id\": 6, \"event\": \"done\"");
    expect_like(b, &c, "{\"id\": 5, \"event\": \"done\"");
    client_close(&c);
}

static void test_duplicate_id_is_refused_under_id_0(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    client_say(b, &c, GENERATE("5"));
    client_say(b, &c, GENERATE("5"));
    expect_like(b, &c,
                "{\"id\": 0, \"event\": \"error\", \"code\": "
                "\"bad_request\", \"message\": \"id 5 is in flight "
                "already\", \"detail\": \"id\"}");
    client_say(b, &c, "{\"op\":\"ping\",\"id\":5}");
    expect_like(b, &c, ERROR("0", "bad_request"));
    /* Even a malformed request must not seem to end the running one. */
    client_say(b, &c, "{\"op\":\"ping\",\"id\":5,\"bad_key\":1}");
    expect_like(b, &c, ERROR("0", "bad_request"));
    client_say(b, &c, "{\"op\":\"ping\",\"id\":5,\"session\":7}");
    expect_like(b, &c, ERROR("0", "bad_request"));
    assert_int_equal(b->engine->n_jobs, 1);
    fake_done(b->engine, 0, FINISH_STOP);
    expect_like(b, &c, "{\"id\": 5, \"event\": \"done\"");
    /* Free again. */
    client_say(b, &c, GENERATE("5"));
    expect(b, &c, "");
    assert_int_equal(b->engine->n_jobs, 2);
    client_close(&c);
}

/* The same id on two connections is two requests. */
static void test_ids_are_per_connection(void **state)
{
    struct client c[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        client_open(b, &c[i]);
        client_say(b, &c[i], GENERATE("5"));
        bench_run(b);
    }
    fake_delta(b->engine, 0, "for the first");
    fake_delta(b->engine, 1, "for the second");
    expect_like(b, &c[0], "for the first");
    expect_like(b, &c[1], "for the second");
    expect(b, &c[0], "");
    expect(b, &c[1], "");
    client_close(&c[0]);
    client_close(&c[1]);
}

static void test_events_of_unknown_jobs_are_dropped(void **state)
{
    struct job ghost = {.id = 77, .conn = 1, .request = 5};
    struct client c;

    (void)state;
    client_open(b, &c);
    fake_event(b->engine, event_create(EVENT_DONE, &ghost));
    expect(b, &c, "");
    client_close(&c);
}

/* ---- limits ------------------------------------------------------------- */

static void test_in_flight_limits(void **state)
{
    struct client c[2];

    (void)state;
    client_open(b, &c[0]);
    client_open(b, &c[1]);
    client_say(b, &c[0], GENERATE("1"));
    client_say(b, &c[0], GENERATE("2"));
    client_say(b, &c[0], GENERATE("3"));
    client_say(b, &c[0], GENERATE("4"));
    expect_like(b, &c[0], ERROR("4", "busy"));
    client_say(b, &c[1], GENERATE("1"));
    client_say(b, &c[1], GENERATE("2"));
    expect_like(b, &c[1], ERROR("2", "busy"));
    assert_int_equal(b->engine->n_jobs, 4);
    fake_done(b->engine, 0, FINISH_STOP);
    expect_like(b, &c[0], "\"done\"");
    client_say(b, &c[1], GENERATE("2"));
    expect(b, &c[1], "");
    assert_int_equal(b->engine->n_jobs, 5);
    client_close(&c[0]);
    client_close(&c[1]);
}

/* Jobs that outlive their connection still count: leaving does not make room
 * before the engine has made it. */
static void test_a_vanished_client_still_counts(void **state)
{
    struct client c;

    (void)state;
    for (int i = 0; i < 2; i++) {
        client_open(b, &c);
        client_say(b, &c, GENERATE("1"));
        client_say(b, &c, GENERATE("2"));
        bench_run(b);
        client_close(&c);
        bench_run(b);
    }
    client_open(b, &c);
    client_say(b, &c, GENERATE("1"));
    expect_like(b, &c, ERROR("1", "busy"));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fake_job(b->engine, i)->n_cancels, 1);
        fake_done(b->engine, i, FINISH_CANCELLED);
    }
    bench_run(b);
    client_say(b, &c, GENERATE("1"));
    expect(b, &c, "");
    assert_int_equal(b->engine->n_jobs, 5);
    client_close(&c);
}

static void test_connection_limits_are_told(void **state)
{
    struct client c[3];

    (void)state;
    client_open(b, &c[0]);
    client_open(b, &c[1]);
    client_connect(b, &c[2]);
    expect_like(b, &c[2],
                "\"code\": \"busy\", \"message\": \"too many "
                "connections of this user: 2 are open "
                "(max_connections_per_uid)\", \"retry_ms\"");
    expect_closed(b, &c[2]);
    client_close(&c[2]);
    assert_int_equal(b->server->n_conns, 2);
    assert_int_equal(b->server->n_refused, 1);
    client_close(&c[0]);
    bench_run(b);
    client_open(b, &c[2]); /* room again */
    client_close(&c[2]);
    client_close(&c[1]);
}

static void test_all_slots_taken(void **state)
{
    struct client c[4];

    (void)state;
    b->conf.max_connections_per_uid = 10;
    for (int i = 0; i < 3; i++) {
        client_open(b, &c[i]);
    }
    client_connect(b, &c[3]);
    expect_like(b, &c[3],
                "\"message\": \"too many connections: 3 are "
                "open (max_connections)\"");
    expect_closed(b, &c[3]);
    for (int i = 0; i < 4; i++) {
        client_close(&c[i]);
    }
}

static void test_engine_refusals(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    b->engine->submit_error = -EBUSY;
    client_say(b, &c, GENERATE("5"));
    expect_like(b, &c,
                "\"code\": \"busy\", \"message\": \"the queue is full\", "
                "\"retry_ms\": 1000}");
    b->engine->submit_error = -ESHUTDOWN;
    client_say(b, &c, GENERATE("5"));
    expect_like(b, &c, ERROR("5", "draining"));
    b->engine->submit_error = 0;
    fake_state(b->engine, ENGINE_FAILED);
    strcpy(b->engine->status.cause, "shard 3 is truncated");
    client_say(b, &c, GENERATE("5"));
    expect_like(b, &c,
                "\"code\": \"unavailable\", \"message\": "
                "\"shard 3 is truncated\"");
    assert_int_equal(b->engine->n_jobs, 0);
    assert_int_equal(b->server->flights.n, 0);
    client_close(&c);
}

/* ---- while loading ------------------------------------------------------ */

static void test_while_loading_the_rest_is_answered(void **state)
{
    struct client c;

    (void)state;
    fake_state(b->engine, ENGINE_LOADING);
    b->engine->status.load_done = 10;
    b->engine->status.load_total = 40;
    client_open(b, &c);
    client_say(b, &c, PING);
    expect(b, &c, "{\"id\": 2, \"event\": \"done\", \"state\": \"loading\"}");
    client_say(b, &c, "{\"op\":\"status\",\"id\":3}");
    expect_like(b, &c, "\"load\": {\"done\": 10, \"total\": 40}");
    client_say(b, &c, "{\"op\":\"metrics\",\"id\":4}");
    expect_like(b, &c, "stepd_load_bytes{kind=\\\"total\\\"} 40");
    expect(b, &c, "{\"id\": 4, \"event\": \"done\"}");
    client_say(b, &c, "{\"op\":\"describe\",\"id\":5}");
    expect_like(b, &c, "{\"id\": 5, \"event\": \"done\", \"protocol\": 1");
    /* generate waits in the queue, or says so. */
    client_say(b, &c, GENERATE("6"));
    expect(b, &c, "");
    assert_int_equal(b->engine->n_jobs, 1);
    client_say(b, &c,
               "{\"op\":\"generate\",\"id\":7,\"prompt\":\"x\","
               "\"wait\":false}");
    expect_like(b, &c,
                "\"code\": \"busy\", \"message\": \"the model is "
                "loading\", \"retry_ms\": 1000}");
    /* One that waits can be cancelled. */
    client_say(b, &c, "{\"op\":\"cancel\",\"id\":8,\"target\":6}");
    expect(b, &c, "{\"id\": 8, \"event\": \"done\", \"cancelled\": 1}");
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 1);
    client_close(&c);
}

/* ---- cancel ------------------------------------------------------------- */

static void test_cancel_by_target_and_by_job(void **state)
{
    struct client c, other;

    (void)state;
    client_open(b, &c);
    client_open(b, &other);
    client_say(b, &c, GENERATE("5"));
    client_say(b, &c, GENERATE("6"));
    bench_run(b);
    client_say(b, &c, "{\"op\":\"cancel\",\"id\":7,\"target\":5}");
    expect(b, &c, "{\"id\": 7, \"event\": \"done\", \"cancelled\": 1}");
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 1);
    assert_int_equal(fake_job(b->engine, 1)->n_cancels, 0);
    /* A target is a request of this connection only; a job is found from any
     * connection of the user. */
    client_say(b, &other, "{\"op\":\"cancel\",\"id\":7,\"target\":6}");
    expect_like(b, &other, "\"code\": \"not_found\"");
    client_say(b, &other, "{\"op\":\"cancel\",\"id\":7,\"job\":2}");
    expect(b, &other, "{\"id\": 7, \"event\": \"done\", \"cancelled\": 1}");
    assert_int_equal(fake_job(b->engine, 1)->n_cancels, 1);
    client_say(b, &other, "{\"op\":\"cancel\",\"id\":7,\"job\":3}");
    expect_like(b, &other, "\"code\": \"not_found\"");
    /* Each still ends by its own done. */
    fake_done(b->engine, 0, FINISH_CANCELLED);
    expect_like(b, &c,
                "{\"id\": 5, \"event\": \"done\", \"finish_reason\": "
                "\"cancelled\"");
    client_say(b, &c, "{\"op\":\"cancel\",\"id\":7,\"job\":1}");
    expect_like(b, &c, "\"code\": \"not_found\"");
    client_close(&c);
    client_close(&other);
}

/* ---- rights ------------------------------------------------------------- */

static void test_others_jobs_are_admins_business(void **state)
{
    struct peer user = {.uid = 4000, .may_generate = true, .may_observe = true};
    struct peer admin = {.uid = 5000,
                         .may_generate = true,
                         .may_observe = true,
                         .sees_all = true,
                         .is_admin = true};
    struct client owner, stranger, boss;
    char gone[256];

    (void)state;
    client_open(b, &owner);
    client_say(b, &owner, GENERATE("5"));
    bench_run(b);
    open_as(b, &stranger, user);
    /* Word for word what a job is told that never was. */
    client_say(b, &stranger, "{\"op\":\"cancel\",\"id\":7,\"job\":99}");
    strcpy(gone, client_hear(b, &stranger));
    assert_non_null(strstr(gone, ERROR("7", "not_found")));
    client_say(b, &stranger, "{\"op\":\"cancel\",\"id\":7,\"job\":1}");
    expect(b, &stranger, gone);
    client_say(b, &stranger, "{\"op\":\"status\",\"id\":8}");
    expect_like(b, &stranger, "\"jobs\": []}");
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 0);
    open_as(b, &boss, admin);
    client_say(b, &boss, "{\"op\":\"status\",\"id\":8}");
    expect_like(b, &boss, "\"jobs\": [{\"job\": 1, \"op\": \"generate\"");
    client_say(b, &boss, "{\"op\":\"cancel\",\"id\":7,\"job\":1}");
    expect(b, &boss, "{\"id\": 7, \"event\": \"done\", \"cancelled\": 1}");
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 1);
    client_close(&owner);
    client_close(&stranger);
    client_close(&boss);
}

static void test_observers_get_status_and_metrics_only(void **state)
{
    static const char *const denied[] = {
        GENERATE("5"),
        "{\"op\":\"tokenize\",\"id\":5,\"prompt\":\"x\"}",
        "{\"op\":\"detokenize\",\"id\":5,\"ids\":[1]}",
        "{\"op\":\"render\",\"id\":5,\"messages\":[]}",
        "{\"op\":\"cancel\",\"id\":5,\"job\":1}",
        "{\"op\":\"drain\",\"id\":5}",
    };
    struct peer observer = {.uid = 4000, .may_observe = true, .sees_all = true};
    struct client c, owner;

    (void)state;
    client_open(b, &owner);
    client_say(b, &owner, GENERATE("5"));
    bench_run(b);
    open_as(b, &c, observer);
    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++) {
        client_say(b, &c, denied[i]);
        expect_like(b, &c, ERROR("5", "denied"));
    }
    /* Everybody's totals, nobody's jobs. */
    client_say(b, &c, "{\"op\":\"status\",\"id\":5}");
    expect_like(b, &c, "\"requests\": {\"total\": 1");
    client_say(b, &c, "{\"op\":\"status\",\"id\":5}");
    expect_like(b, &c, "\"jobs\": []}");
    client_say(b, &c, "{\"op\":\"metrics\",\"id\":5}");
    expect_like(b, &c, "stepd_info");
    expect_like(b, &c, "\"done\"");
    client_say(b, &c, PING);
    expect(b, &c, PONG);
    assert_int_equal(b->engine->n_jobs, 1);
    client_close(&c);
    client_close(&owner);
}

/* The uid that connects, told so. Root is always let in: be somebody else while
 * connecting. */
static void refused_as(uint32_t uid, const char *why)
{
    struct client c;
    char want[320];

    if (geteuid() == 0) {
        assert_int_equal(seteuid(uid), 0);
    }
    client_connect(b, &c);
    if (getuid() == 0) {
        assert_int_equal(seteuid(0), 0);
    }
    client_say(b, &c, HELLO);
    (void)snprintf(
        want, sizeof(want),
        "{\"id\": 0, \"event\": \"error\", \"code\": \"denied\", "
        "\"message\": \"this user may not use this daemon: uid %u %s",
        uid, why);
    expect_like(b, &c, want);
    expect_closed(b, &c);
    client_close(&c);
    bench_run(b);
    assert_int_equal(b->server->n_conns, 0);
}

/* Not on a list: a typed reply that says which lists, then closed; readable
 * also for a client that says hello first, as all do. */
static void fr_78_denied_is_a_typed_reply(void **state)
{
    struct conf_ids before = b->conf.allow_users;
    uint32_t id = 424242;

    (void)state;
    if (geteuid() == 0) {
        refused_as(PEER_NOBODY, "is what it sees of every user unknown to its "
                                "user namespace (PrivateUsers=yes, ");
    } else {
        b->server->self_uid = id;
    }
    b->conf.allow_users.id = &id;
    b->conf.allow_users.n = 1;
    refused_as(geteuid() == 0 ? 4321 : geteuid(),
               "is on no list of its stepd.conf (allow_users, allow_groups; ");
    assert_non_null(strstr(bench_log(b), "refused: denied (not on a list)"));
    b->conf.allow_users = before;
}

/* ---- drain -------------------------------------------------------------- */

static void test_drain_by_an_admin(void **state)
{
    struct peer user = {.uid = 4000, .may_generate = true, .may_observe = true};
    struct client c, other;

    (void)state;
    client_open(b, &c); /* we ourselves: the daemon's uid is an admin */
    open_as(b, &other, user);
    client_say(b, &other, "{\"op\":\"drain\",\"id\":3}");
    expect_like(b, &other, ERROR("3", "denied"));
    client_say(b, &c, "{\"op\":\"drain\",\"id\":3}");
    expect_like(b, &c, "\"state\": \"draining\"");
    assert_true(b->engine->drained);
    client_say(b, &other, GENERATE("4"));
    expect_like(b, &other, ERROR("4", "draining"));
    client_say(b, &c, "{\"op\":\"drain\",\"id\":3,\"off\":true}");
    expect_like(b, &c, "\"state\": \"ready\"");
    assert_false(b->engine->drained);
    client_say(b, &other, GENERATE("4"));
    expect(b, &other, "");
    client_close(&c);
    client_close(&other);
}

static void test_a_stop_refuses_new_work_and_waits_for_the_old(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    client_say(b, &c, GENERATE("4"));
    bench_run(b);
    server_drain(b->server);
    client_say(b, &c, GENERATE("5"));
    expect_like(b, &c, ERROR("5", "draining"));
    client_say(b, &c, PING);
    expect_like(b, &c, "\"state\": \"draining\"");
    assert_false(server_is_quiet(b->server));
    fake_done(b->engine, 0, FINISH_STOP);
    expect_like(b, &c, "{\"id\": 4, \"event\": \"done\"");
    assert_true(server_is_quiet(b->server));
    client_close(&c);
}

/* Lines that clients can provoke do not fill the log. */
static void test_refused_clients_do_not_flood_the_log(void **state)
{
    const char *log, *p;
    int n = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        struct client c;

        client_connect(b, &c);
        client_say(b, &c,
                   "{\"op\":\"hello\",\"id\":1,\"version_min\":9,"
                   "\"version_max\":9}");
        bench_run(b);
        client_close(&c);
        bench_run(b);
    }
    log = bench_log(b);
    for (p = log; (p = strstr(p, "refused")) != NULL; p++) {
        n++;
    }
    assert_in_range(n, 1, 11);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define SMALL(f) cmocka_unit_test_setup_teardown(f, setup_small, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SMALL(test_hello_reports_limits_and_name),
        cmocka_unit_test(test_model_name_is_the_folders_last),
        CASE(test_nothing_runs_before_hello),
        CASE(test_no_common_version_is_told_with_the_range),
        CASE(test_second_hello_is_refused_and_life_goes_on),
        CASE(test_reload_says_what_became_of_it),
        CASE(test_a_bad_request_leaves_the_connection),
        CASE(test_an_answer_from_accepted_to_done),
        CASE(test_one_log_line_without_text),
        CASE(test_several_requests_share_a_connection),
        CASE(test_duplicate_id_is_refused_under_id_0),
        CASE(test_ids_are_per_connection),
        CASE(test_events_of_unknown_jobs_are_dropped),
        SMALL(test_in_flight_limits),
        SMALL(test_a_vanished_client_still_counts),
        SMALL(test_connection_limits_are_told),
        SMALL(test_all_slots_taken),
        CASE(test_engine_refusals),
        CASE(test_while_loading_the_rest_is_answered),
        CASE(test_cancel_by_target_and_by_job),
        CASE(test_others_jobs_are_admins_business),
        CASE(test_observers_get_status_and_metrics_only),
        CASE(fr_78_denied_is_a_typed_reply),
        CASE(test_drain_by_an_admin),
        CASE(test_a_stop_refuses_new_work_and_waits_for_the_old),
        CASE(test_refused_clients_do_not_flood_the_log),
    };

    return test_main(tests, NULL, NULL);
}
