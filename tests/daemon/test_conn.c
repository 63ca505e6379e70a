/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * conn.c: frames out of any stream of bytes, limits in both directions, and
 * the ways in which a connection ends.
 */

#include "tests/daemon/net_bench.h"

static struct bench bench;
static struct bench *const b = &bench;

#define GENERATE_NO "{\"op\":\"generate\",\"id\":%d,\"prompt\":\"x\"}"

static int teardown(void **state)
{
    (void)state;
    bench_stop(b);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    bench_start(b, NULL);
    return 0;
}

/* Short times, small limits: what the tests of ends need. */
static int setup_small(void **state)
{
    static const char *const set[] = {
        "frame_timeout=20ms",
        "slow_client_timeout=20ms",
        "max_output_soft=8K",
        "max_output_hard=16K",
        NULL,
    };

    (void)state;
    bench_start(b, set);
    return 0;
}

/* Small limits and all the time of the world. */
static int setup_patient(void **state)
{
    static const char *const set[] = {
        "max_output_soft=8K",
        "max_output_hard=16K",
        "slow_client_timeout=1h",
        NULL,
    };

    (void)state;
    bench_start(b, set);
    return 0;
}

/* ---- frames ------------------------------------------------------------- */

static void test_one_byte_at_a_time(void **state)
{
    struct client c;
    struct buf all;

    (void)state;
    buf_init(&all, 1 << 20);
    frame_of(&all, HELLO);
    frame_of(&all, PING);
    client_connect(b, &c);
    for (size_t i = 0; i < all.n; i++) {
        client_send(b, &c, buf_data(&all) + i, 1);
        ev_run(b->loop, EVRUN_NOWAIT);
    }
    buf_finish(&all);
    expect_like(b, &c, "\"event\": \"hello\"");
    expect(b, &c, PONG);
    client_close(&c);
}

static void test_many_frames_in_one_write(void **state)
{
    struct client c;
    struct buf all;

    (void)state;
    buf_init(&all, 1 << 20);
    frame_of(&all, HELLO); /* larger frames may follow at once */
    for (int i = 0; i < 500; i++) {
        frame_of(&all, PING);
    }
    client_connect(b, &c);
    client_send(b, &c, buf_data(&all), all.n);
    buf_finish(&all);
    expect_like(b, &c, "\"event\": \"hello\"");
    for (int i = 0; i < 500; i++) {
        expect(b, &c, PONG);
    }
    expect(b, &c, "");
    client_close(&c);
}

/* The frame of a tokenize request with n times 'a'. */
static void tokenize_frame(struct buf *to, size_t n_text)
{
    static char text[WIRE_MAX_FRAME + 100];
    int n = snprintf(text, sizeof(text),
                     "{\"op\":\"tokenize\",\"id\":5,"
                     "\"prompt\":\"");

    memset(text + n, 'a', n_text);
    strcpy(text + n + n_text, "\"}");
    buf_init(to, (size_t)2 * WIRE_MAX_FRAME);
    frame_of(to, text);
}

static void test_frames_of_the_largest_size(void **state)
{
    struct client c;
    struct buf frame;
    size_t n_text;

    (void)state;
    tokenize_frame(&frame, 100000);
    n_text = WIRE_MAX_FRAME - (frame.n - 4 - 100000);
    buf_finish(&frame);
    tokenize_frame(&frame, n_text);
    assert_int_equal(frame.n, 4 + WIRE_MAX_FRAME);
    client_open(b, &c);
    client_send(b, &c, buf_data(&frame), frame.n);
    bench_run(b);
    assert_int_equal(b->engine->n_jobs, 1);
    assert_int_equal(fake_job(b->engine, 0)->job->prompt.n, n_text);
    assert_int_equal(bench_conn(b)->in.n, 0);
    assert_int_equal(bench_conn(b)->in.cap, 0); /* and the memory is back */
    buf_finish(&frame);
    client_close(&c);
}

static void expect_bad_frame(const void *bytes, size_t n, bool after_hello)
{
    struct client c;

    if (after_hello) {
        client_open(b, &c);
    } else {
        client_connect(b, &c);
    }
    client_send(b, &c, bytes, n);
    expect_like(b, &c,
                "{\"id\": 0, \"event\": \"error\", \"code\": "
                "\"bad_frame\"");
    expect_closed(b, &c);
    client_close(&c);
    bench_run(b);
    assert_int_equal(b->server->n_conns, 0);
}

static void test_bad_frames_are_told_and_end_the_connection(void **state)
{
    static const uint8_t deep[] = "\x00\x00\x00\x04\x81\xa2op"; /* cut short */

    (void)state;
    expect_bad_frame("\x00\x00\x00\x00", 4, true); /* empty */
    expect_bad_frame("\x01\x00\x00\x01", 4, true); /* max_frame + 1 */
    expect_bad_frame("\xff\xff\xff\xff", 4, true);
    expect_bad_frame("\x00\x00\x10\x01", 4, false); /* 4097 before hello */
    expect_bad_frame("GET / HTTP/1.1\r\n\r\n", 18, false);
    expect_bad_frame(deep, 8, true);
    expect_bad_frame("\x00\x00\x00\x01\xc0", 5, true); /* nil, not a map */
    expect_bad_frame("\x00\x00\x00\x05\xdf\xff\xff\xff\xff", 9, true);
}

/* A hundred connections that claim 16 MiB each and send ten bytes hold next to
 * nothing. */
static void test_memory_follows_bytes_not_claims(void **state)
{
    struct client c[100];

    (void)state;
    for (int i = 0; i < 100; i++) {
        client_open(b, &c[i]);
        client_send(b, &c[i], "\x01\x00\x00\x00\x82\xa2op\xa4p", 10);
    }
    bench_run(b);
    for (int i = 0; i < 100; i++) {
        struct conn *k = b->server->conns[i];

        assert_non_null(k);
        assert_int_equal(k->in.n, 10);
        assert_true(k->in.cap <= 8192);
        client_close(&c[i]);
    }
}

static void test_unfinished_bytes_of_a_user_are_capped(void **state)
{
    static uint8_t bytes[30000];
    struct client c[3];

    (void)state;
    b->conf.max_unfinished_per_uid = 64 << 10;
    memcpy(bytes, "\x00\x01\x00\x00", 4); /* 64 KiB are to come */
    for (int i = 0; i < 3; i++) {
        client_open(b, &c[i]);
    }
    client_send(b, &c[0], bytes, sizeof(bytes));
    client_send(b, &c[1], bytes, sizeof(bytes));
    bench_run(b);
    assert_int_equal(bench_conn(b)->account->unfinished, 60000);
    assert_int_equal(b->server->n_conns, 3);
    client_send(b, &c[2], bytes, sizeof(bytes));
    expect_like(b, &c[2], "\"retry_ms\": 1000}");
    expect_closed(b, &c[2]);
    client_close(&c[2]);
    bench_run(b);
    assert_int_equal(bench_conn(b)->account->unfinished, 60000);
    client_close(&c[0]);
    client_close(&c[1]);
    bench_run(b);
    assert_int_equal(b->server->n_conns, 0);
}

static void test_an_unfinished_frame_dies_of_time(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    /* Whole frames may come as rarely as they like ... */
    client_say(b, &c, PING);
    expect(b, &c, PONG);
    assert_false(ev_is_active(&bench_conn(b)->frame_timer));
    /* ... but one that has begun must end. */
    client_send(b, &c, "\x00\x00", 2);
    while (b->server->host.n_timeouts == 0) {
        ev_run(b->loop, EVRUN_ONCE);
    }
    expect_like(b, &c, "a frame did not arrive within 20 ms");
    expect_closed(b, &c);
    client_close(&c);
}

/* Time that we stood still ourselves is not the client's. */
static void test_what_came_in_a_stall_is_heard_before_the_clock(void **state)
{
    struct client c;

    (void)state;
    client_connect(b, &c);
    client_say(b, &c, HELLO);
    bench_conn(b)->frame_timer.repeat = 1e-9; /* over in the next turn */
    ev_timer_again(b->loop, &bench_conn(b)->frame_timer);
    expect_like(b, &c, "\"event\": \"hello\"");
    assert_int_equal(b->server->host.n_timeouts, 0);
    client_close(&c);
}

static void test_silence_before_hello_dies_of_time(void **state)
{
    struct client c;

    (void)state;
    client_connect(b, &c);
    while (b->server->host.n_timeouts == 0) {
        ev_run(b->loop, EVRUN_ONCE);
    }
    expect_like(b, &c, "hello did not arrive within 20 ms");
    expect_closed(b, &c);
    client_close(&c);
}

/* ---- ends --------------------------------------------------------------- */

static void test_end_of_file_is_gone(void **state)
{
    struct client c;

    (void)state;
    client_open(b, &c);
    client_say(b, &c, "{\"op\":\"generate\",\"id\":5,\"prompt\":\"x\"}");
    client_say(b, &c, "{\"op\":\"generate\",\"id\":6,\"prompt\":\"x\"}");
    bench_run(b);
    assert_int_equal(b->engine->n_jobs, 2);
    /* Not even a half-close is something else. */
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    bench_run(b);
    assert_int_equal(b->server->n_conns, 0);
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 1);
    assert_int_equal(fake_job(b->engine, 1)->n_cancels, 1);
    /* The engine's last words find nobody, and are counted. */
    assert_int_equal(b->server->flights.n, 2);
    fake_delta(b->engine, 0, "late");
    fake_done(b->engine, 0, FINISH_CANCELLED);
    fake_done(b->engine, 1, FINISH_CANCELLED);
    bench_run(b);
    assert_int_equal(b->server->flights.n, 0);
    client_close(&c);
}

static void test_disconnect_in_every_state_leaves_nothing(void **state)
{
    struct buf all;

    (void)state;
    b->engine->end_cancelled = true;
    buf_init(&all, 1 << 20);
    frame_of(&all, HELLO);
    frame_of(&all, PING);
    frame_of(&all, "{\"op\":\"generate\",\"id\":5,\"prompt\":\"x\"}");
    frame_of(&all, "{\"op\":\"tokenize\",\"id\":6,\"prompt\":\"x\"}");
    for (size_t n = 0; n <= all.n; n++) {
        struct client c;

        client_connect(b, &c);
        client_send(b, &c, buf_data(&all), n);
        if (n % 2 == 0) {
            bench_run(b); /* else it is gone before it was heard */
        }
        client_close(&c);
        bench_run(b);
        assert_int_equal(b->server->n_conns, 0);
        assert_int_equal(b->server->flights.n, 0);
        assert_int_equal(fake_running(b->engine), 0);
        for (int i = 0; i < ACCOUNT_BUCKETS; i++) {
            struct account *a = b->server->host.accounts.bucket[i];

            assert_true(a == NULL || a->n_refs == 0);
        }
    }
    buf_finish(&all);
}

/* The reply to a frame that is too large reaches a client that is still
 * sending it, and the daemon does not wait for ever for the client to close. */
static void test_an_error_is_readable_while_sending(void **state)
{
    static uint8_t bytes[1 << 20];
    struct client c;

    (void)state;
    client_open(b, &c);
    memcpy(bytes, "\x7f\xff\xff\xff", 4);
    client_send(b, &c, bytes, sizeof(bytes));
    expect_like(b, &c, "\"code\": \"bad_frame\"");
    expect_closed(b, &c);
    assert_int_equal(bench_conn(b)->state, CONN_LINGER);
    bench_wait_conns(b, 0); /* CONN_LINGER_S */
    client_close(&c);
}

/* ---- slow readers ------------------------------------------------------- */

/* A client whose socket holds almost nothing. */
static void slow_open(struct client *c)
{
    int one = 1;

    client_open(b, c);
    assert_int_equal(
        setsockopt(bench_conn(b)->fd, SOL_SOCKET, SO_SNDBUF, &one, sizeof(one)),
        0);
}

static void begin_jobs(struct client *c, int n)
{
    char json[128];

    for (int i = 0; i < n; i++) {
        snprintf(json, sizeof(json), GENERATE_NO, 10 + i);
        client_say(b, c, json);
    }
    bench_run(b);
    assert_int_equal(b->engine->n_jobs, n);
}

static void fr_80_slow_reader_pauses_its_jobs_and_no_others(void **state)
{
    char text[1001];
    struct client slow, other;

    (void)state;
    memset(text, 'x', 1000);
    text[1000] = '\0';
    slow_open(&slow);
    begin_jobs(&slow, 2);
    client_open(b, &other);
    client_say(b, &other, "{\"op\":\"generate\",\"id\":5,\"prompt\":\"x\"}");
    bench_run(b);
    while (!fake_job(b->engine, 0)->paused) {
        fake_delta(b->engine, 0, text);
        bench_run(b);
    }
    assert_true(fake_job(b->engine, 1)->paused); /* shares the output */
    assert_false(fake_job(b->engine, 2)->paused);
    /* Above the soft limit and below the hard one it is still read: a cancel
     * arrives, and a new job starts paused. */
    client_say(b, &slow, "{\"op\":\"cancel\",\"id\":3,\"target\":10}");
    client_say(b, &slow, "{\"op\":\"generate\",\"id\":4,\"prompt\":\"x\"}");
    bench_run(b);
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 1);
    assert_true(fake_job(b->engine, 3)->paused);
    /* The others do not notice. */
    fake_delta(b->engine, 2, "hello");
    expect_like(b, &other, "\"text\": \"hello\"");
    /* Once it reads, everything goes on, and nothing is lost. */
    expect_like(b, &slow, text);
    while (client_hear(b, &slow)[0] != '\0') {
    }
    assert_false(fake_job(b->engine, 0)->paused);
    assert_false(fake_job(b->engine, 1)->paused);
    assert_int_equal(fake_job(b->engine, 1)->n_pauses, 2);
    client_close(&slow);
    client_close(&other);
}

/* Between the limits nothing grows any more: a job would be paused for ever,
 * with its session. Who takes a little now and then is no such client. */
static void fr_80_who_takes_nothing_is_dropped(void **state)
{
    struct client c;
    char text[1001], one;

    (void)state;
    memset(text, 'x', 1000);
    text[1000] = '\0';
    slow_open(&c);
    begin_jobs(&c, 1);
    while (!fake_job(b->engine, 0)->paused) {
        fake_delta(b->engine, 0, text);
        bench_run(b);
    }
    assert_false(bench_conn(b)->hard);
    assert_true(ev_is_active(&bench_conn(b)->slow_timer));
    assert_true(bench_conn(b)->slow_timer.repeat >= 0.02 * CONN_STALLED);
    bench_wait_conns(b, 0);
    assert_int_equal(b->server->host.n_slow, 1);
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 1);
    while (recv(c.fd, &one, 1, MSG_DONTWAIT) == 1) {
    }
    client_close(&c);
}

static void fr_80_the_clock_stops_when_it_reads(void **state)
{
    struct client c;
    struct conn *k;
    char text[1001];
    double first, ends;

    (void)state;
    memset(text, 'x', 1000);
    text[1000] = '\0';
    slow_open(&c);
    begin_jobs(&c, 1);
    k = bench_conn(b);
    while (k->out.n < 14 << 10) { /* what is left of it takes several writes */
        fake_delta(b->engine, 0, text);
        bench_run(b);
    }
    first = ends = k->slow_timer.at;
    while (k->soft) {
        assert_true(ev_is_active(&k->slow_timer));
        assert_true(k->slow_timer.at >= ends);
        ends = k->slow_timer.at;
        (void)client_hear(b, &c);
    }
    assert_true(ends > first); /* it began anew */
    assert_false(ev_is_active(&k->slow_timer));
    client_close(&c);
}

static void fr_80_memory_of_a_slow_reader_is_bounded(void **state)
{
    struct client c;
    struct conn *k;
    struct buf pings;
    size_t sent = 0;

    (void)state;
    slow_open(&c);
    k = bench_conn(b);
    buf_init(&pings, 1 << 20);
    for (int i = 0; i < 5000; i++) {
        frame_of(&pings, PING);
    }
    /* 5,000 pings whose answers nobody reads: reading stops at the hard limit,
     * with at most one answer above it. */
    while (!k->hard) {
        ssize_t n =
            send(c.fd, buf_data(&pings) + sent, pings.n - sent, MSG_NOSIGNAL);

        sent += n > 0 ? (size_t)n : 0;
        ev_run(b->loop, EVRUN_NOWAIT);
    }
    assert_false(ev_is_active(&k->rd));
    assert_true(k->out.n <= (16 << 10) + 100);
    assert_true(k->in.n <= CONN_READ_BYTES);
    /* Nobody reads: dropped by the rule. */
    bench_wait_conns(b, 0);
    assert_int_equal(b->server->host.n_slow, 1);
    buf_finish(&pings);
    client_close(&c);
}

static void test_pipelined_requests_survive_the_hard_limit(void **state)
{
    struct client c;
    struct buf pings;
    size_t sent = 0;
    int n_heard = 0;

    (void)state;
    slow_open(&c);
    buf_init(&pings, 1 << 20);
    for (int i = 0; i < 5000; i++) {
        frame_of(&pings, PING);
    }
    while (n_heard < 5000) {
        ssize_t n =
            send(c.fd, buf_data(&pings) + sent, pings.n - sent, MSG_NOSIGNAL);

        sent += n > 0 ? (size_t)n : 0;
        expect(b, &c, PONG);
        n_heard++;
    }
    assert_int_equal(sent, pings.n);
    expect(b, &c, "");
    assert_int_equal(b->server->host.n_slow, 0);
    buf_finish(&pings);
    client_close(&c);
}

/* What an answer needs beyond the hard limit is still taken, but not without
 * end. */
static void test_output_beyond_all_limits_drops(void **state)
{
    struct client c;

    (void)state;
    slow_open(&c);
    begin_jobs(&c, 1);
    for (int i = 0; i < 200 && b->server->n_conns > 0; i++) {
        fake_ids(b->engine, 0, 1 << 18); /* about 1.2 MB of msgpack each */
        bench_run(b);
        if (b->server->n_conns > 0) {
            assert_true(bench_conn(b)->out.n <= (16 << 10) + CONN_OUT_SLACK);
        }
    }
    assert_int_equal(b->server->n_conns, 0);
    assert_int_equal(b->server->host.n_slow, 0);
    assert_int_equal(fake_job(b->engine, 0)->n_cancels, 1);
    client_close(&c);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define SMALL(f) cmocka_unit_test_setup_teardown(f, setup_small, teardown)
#define PATIENT(f) cmocka_unit_test_setup_teardown(f, setup_patient, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_one_byte_at_a_time),
        CASE(test_many_frames_in_one_write),
        CASE(test_frames_of_the_largest_size),
        CASE(test_bad_frames_are_told_and_end_the_connection),
        CASE(test_memory_follows_bytes_not_claims),
        CASE(test_unfinished_bytes_of_a_user_are_capped),
        SMALL(test_an_unfinished_frame_dies_of_time),
        SMALL(test_what_came_in_a_stall_is_heard_before_the_clock),
        SMALL(test_silence_before_hello_dies_of_time),
        CASE(test_end_of_file_is_gone),
        CASE(test_disconnect_in_every_state_leaves_nothing),
        CASE(test_an_error_is_readable_while_sending),
        PATIENT(fr_80_slow_reader_pauses_its_jobs_and_no_others),
        SMALL(fr_80_who_takes_nothing_is_dropped),
        PATIENT(fr_80_the_clock_stops_when_it_reads),
        SMALL(fr_80_memory_of_a_slow_reader_is_bounded),
        PATIENT(test_pipelined_requests_survive_the_hard_limit),
        PATIENT(test_output_beyond_all_limits_drops),
    };

    return test_main(tests, NULL, NULL);
}
