/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What moves in a client: the order of hello and requests, events to their
 * requests, refusals, the end of a connection, and that nothing grows without a
 * limit on either side.
 */

#include "tests/client/played_daemon.h"

/* ---- hello and order ------------------------------------------------------
 */

static void test_requests_wait_for_hello_and_keep_their_order(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connect_only(d);
    uint64_t a = submit(c, "one", NULL), b = submit(c, "two", NULL);

    assert_int_equal(step_client_get_events(c), POLLIN | POLLOUT);
    assert_int_equal(step_client_get_timeout(c), -1);
    assert_null(step_client_hello(c));
    assert_false(step_client_has_feature(c, "op.generate"));
    step_client_dispatch(c);
    assert_int_equal(step_client_get_events(c), POLLIN);
    answer_hello(d);
    assert_true(nothing_to_read(d->fd));
    step_client_dispatch(c);
    assert_prompt(d, a, "one");
    assert_prompt(d, b, "two");
    assert_true(nothing_to_read(d->fd));
    assert_true(step_client_has_feature(c, "op.generate"));
    assert_true(step_client_has_feature(c, "word"));
    assert_false(step_client_has_feature(c, "wor"));
    step_client_destroy(c);
}

static void test_hello_names_the_program(void **state)
{
    struct daemon *d = *state;
    struct step_client *c;

    assert_int_equal(step_client_create(&c), 0);
    assert_int_equal(step_client_set_name(c, "me 1.0"), 0);
    assert_string_equal(step_client_path(c), "");
    assert_int_equal(step_client_connect(c, d->path), 0);
    assert_string_equal(step_client_path(c), d->path);
    assert_int_equal(step_client_connect(c, d->path), STEP_E_INVALID);
    d->fd = accept(d->listener, NULL, NULL);
    step_client_dispatch(c);
    struct wire_request *r = get_request(d->fd);
    assert_string_equal(r->client_name.p, "me 1.0");
    wire_request_destroy(r);
    assert_true(fcntl(step_client_get_fd(c), F_GETFD) & FD_CLOEXEC);
    step_client_destroy(c);
}

static void test_events_reach_their_requests(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    int x, y;
    uint64_t a = submit(c, "a", &x), b = submit(c, "b", &y);
    const struct step_event *e;

    put_text(d, b, "B1");
    put_text(d, a, "A1");
    put_end(d, a, "stop");
    put_text(d, a, "after its end");
    put_text(d, 999, "nobody's");
    put_text(d, b, "B2");
    put_end(d, b, "length");
    flush(d);
    step_client_dispatch(c);
    assert_int_equal(step_client_get_timeout(c), 0);
    e = step_client_next(c);
    assert_text(e, b, "B1");
    assert_ptr_equal(step_event_userdata(e), &y);
    e = step_client_next(c);
    assert_text(e, a, "A1");
    assert_ptr_equal(step_event_userdata(e), &x);
    e = step_client_next(c);
    assert_int_equal(step_event_type(e), STEP_EVENT_DONE);
    assert_int_equal(step_event_request(e), a);
    assert_text(step_client_next(c), b, "B2");
    e = step_client_next(c);
    assert_int_equal(step_event_type(e), STEP_EVENT_DONE);
    assert_null(step_client_next(c));
    assert_int_equal(step_client_get_timeout(c), -1);
    step_client_destroy(c);
}

static void test_byte_by_byte(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);

    put_text(d, id, "h\u00e9");
    put_end(d, id, "stop");
    for (size_t i = 0; i < d->out.n; i++) {
        assert_null(step_client_next(c));
        assert_int_equal(write(d->fd, d->out.p + i, 1), 1);
        step_client_dispatch(c);
        if (i + 1 < d->out.n && step_client_get_timeout(c) == 0) {
            assert_text(step_client_next(c), id, "h\u00e9");
        }
    }
    assert_int_equal(step_event_type(step_client_next(c)), STEP_EVENT_DONE);
    step_client_destroy(c);
}

static void test_unknown_events_keys_and_codes(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);
    const struct step_event *e;
    struct wire_map m;

    wire_map_begin_event(&m, &d->out, id, "novelty");
    wire_map_str(&m, "text", "t");
    wire_map_end(&m);
    wire_map_begin_event(&m, &d->out, id, "error");
    wire_map_str(&m, "code", "from_the_future");
    wire_map_end(&m);
    flush(d);
    step_client_dispatch(c);
    e = step_client_next(c);
    assert_int_equal(step_event_type(e), STEP_EVENT_OTHER);
    assert_string_equal(step_event_name(e), "novelty");
    assert_error(step_client_next(c), id, STEP_E_INTERNAL);
    step_client_destroy(c);
}

/* ---- refusals -------------------------------------------------------------
 */

static void test_a_key_that_the_daemon_lacks_is_not_sent(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connect_only(d);
    struct step_request *r = complete("a");
    const struct step_event *e;
    uint64_t early, late, op;
    const char *s;
    size_t n;

    step_request_set_bool(r, "x_anything", true);
    assert_int_equal(step_client_submit(c, r, NULL, NULL), 0);
    step_request_set_json(r, "colour", STEP_STR("{}"));
    assert_int_equal(step_client_submit(c, r, r, &early), 0);
    step_client_dispatch(c);
    answer_hello(d);
    step_client_dispatch(c);
    struct wire_request *got = get_request(d->fd);
    assert_int_equal(got->op, WIRE_GENERATE);
    wire_request_destroy(got);
    assert_int_equal(step_client_submit(c, r, r, &late), 0);
    step_request_destroy(r);
    assert_int_equal(step_request_create(&r, "sing"), 0);
    assert_int_equal(step_client_submit(c, r, NULL, &op), 0);
    step_request_destroy(r);
    step_client_dispatch(c);
    assert_true(nothing_to_read(d->fd));
    e = step_client_next(c);
    assert_error(e, early, STEP_E_UNSUPPORTED);
    assert_non_null(step_event_userdata(e));
    assert_int_equal(step_event_get_str(e, "message", &s, &n), 0);
    assert_non_null(strstr(s, "colour"));
    assert_error(step_client_next(c), late, STEP_E_UNSUPPORTED);
    e = step_client_next(c);
    assert_error(e, op, STEP_E_UNSUPPORTED);
    assert_int_equal(step_event_get_str(e, "message", &s, &n), 0);
    assert_non_null(strstr(s, "sing"));
    assert_null(step_client_next(c));
    step_client_destroy(c);
}

/* Hello refused, under its id or under 0: that is what requests end with. */
static void test_a_refused_hello_ends_what_was_held(void **state)
{
    static const int codes[] = {WIRE_E_VERSION, WIRE_E_DENIED, WIRE_E_BUSY};
    struct daemon *d = *state;

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct step_client *c = connect_only(d);
        uint64_t a = submit(c, "a", NULL), b = submit(c, "b", NULL);
        const char *s;
        size_t n;
        step_client_dispatch(c);
        struct wire_request *r = get_request(d->fd);
        wire_put_error(&d->out, i == 1 ? 0 : r->id, codes[i], "because", NULL,
                       0);
        wire_request_destroy(r);
        flush(d);
        step_client_dispatch(c);
        const struct step_event *e = step_client_next(c);
        assert_error(e, a, codes[i]);
        assert_int_equal(step_event_get_str(e, "message", &s, &n), 0);
        assert_non_null(strstr(s, "because"));
        assert_error(step_client_next(c), b, codes[i]);
        assert_null(step_client_next(c));
        assert_int_equal(step_client_get_fd(c), -1);
        step_client_destroy(c);
        close(d->fd);
        d->fd = -1;
    }
}

/* ---- the end --------------------------------------------------------------
 */

static void test_a_lost_daemon_ends_each_request_once(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    int x;
    uint64_t a = submit(c, "a", &x), b = submit(c, "b", NULL);
    uint64_t e_id = submit(c, "c", NULL);
    const struct step_event *e;
    char *json;

    step_client_dispatch(c);
    put_text(d, b, "some");
    put_end(d, e_id, "stop");
    flush(d);
    close(d->fd);
    d->fd = -1;
    step_client_dispatch(c);
    assert_text(step_client_next(c), b, "some");
    e = step_client_next(c);
    assert_int_equal(step_event_type(e), STEP_EVENT_DONE);
    e = step_client_next(c);
    assert_error(e, a, STEP_E_DISCONNECTED);
    assert_ptr_equal(step_event_userdata(e), &x);
    assert_string_equal(step_event_name(e), "error");
    assert_int_equal(step_event_get_json(e, "code", &json), 0);
    assert_string_equal(json, "\"disconnected\"");
    free(json);
    assert_error(step_client_next(c), b, STEP_E_DISCONNECTED);
    assert_null(step_client_next(c));
    assert_int_equal(step_client_get_fd(c), -1);
    assert_int_equal(step_client_get_events(c), 0);
    assert_int_equal(step_client_dispatch(c), STEP_E_DISCONNECTED);
    assert_int_equal(step_client_wait(c, -1), STEP_E_DISCONNECTED);
    struct step_request *r = complete("d");
    assert_int_equal(step_client_submit(c, r, NULL, NULL), STEP_E_DISCONNECTED);
    step_request_destroy(r);

    /* The handle may be used again; nothing is sent a second time. */
    assert_int_equal(step_client_connect(c, d->path), 0);
    d->fd = accept(d->listener, NULL, NULL);
    step_client_dispatch(c);
    answer_hello(d);
    step_client_dispatch(c);
    assert_true(nothing_to_read(d->fd));
    uint64_t again = submit(c, "again", NULL);
    assert_true(again > e_id);
    step_client_dispatch(c);
    assert_prompt(d, again, "again");
    step_client_destroy(c);
}

/* Requests that never went out end the same way, and no SIGPIPE comes. */
static void test_a_daemon_that_closes_at_once(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connect_only(d);
    uint64_t a = submit(c, "a", NULL);

    close(d->fd);
    d->fd = -1;
    for (int i = 0; i < 3 && step_client_get_fd(c) >= 0; i++) {
        step_client_dispatch(c);
    }
    assert_error(step_client_next(c), a, STEP_E_DISCONNECTED);
    assert_null(step_client_next(c));
    step_client_destroy(c);
}

/* What the daemon said before it closed is read although writing fails. */
static void test_last_words_are_heard(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connect_only(d);
    uint64_t a = submit(c, "a", NULL);

    step_client_dispatch(c);
    wire_request_destroy(get_request(d->fd));
    wire_put_error(&d->out, 0, WIRE_E_DENIED, "not you", NULL, 0);
    flush(d);
    close(d->fd);
    d->fd = -1;
    step_client_dispatch(c);
    assert_error(step_client_next(c), a, STEP_E_DENIED);
    step_client_destroy(c);
}

static void test_broken_frames_end_the_connection(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"\xff\xff\xff\xff", 4},
        {"\x01\x00\x00\x01", 4}, /* one over max_frame */
        {"\0\0\0\0", 4},
        {"\0\0\0\1\xc1", 5},
        {"\0\0\0\1\x90", 5},
        {"\0\0\0\1\x80", 5},
        {"\0\0\0\5\xdd\xff\xff\xff\xff", 9},
        {"\0\0\0\4\x81\xa2id", 8},
    };
    struct daemon *d = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct step_client *c = connected(d);
        uint64_t a = submit(c, "a", NULL);
        const char *s;
        size_t n;
        put_text(d, a, "fine");
        flush(d);
        assert_int_equal(write(d->fd, bad[i].bytes, bad[i].n), bad[i].n);
        step_client_dispatch(c);
        assert_text(step_client_next(c), a, "fine");
        const struct step_event *e = step_client_next(c);
        assert_error(e, a, STEP_E_DISCONNECTED);
        assert_int_equal(step_event_get_str(e, "message", &s, &n), 0);
        assert_non_null(strstr(s, "protocol"));
        assert_null(step_client_next(c));
        assert_int_equal(step_client_get_fd(c), -1);
        step_client_destroy(c);
        close(d->fd);
        d->fd = -1;
    }
}

static void test_a_first_event_that_is_not_hello(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connect_only(d);
    uint64_t a = submit(c, "a", NULL);

    put_text(d, a, "too early");
    flush(d);
    step_client_dispatch(c);
    assert_error(step_client_next(c), a, STEP_E_BAD_FRAME);
    step_client_destroy(c);
}

/* ---- flow -----------------------------------------------------------------
 */

/* A client that takes no events reads no more than its limit. */
static void test_events_that_nobody_takes_are_bounded(void **state)
{
    const int n_events = 20000;
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);
    char text[16];
    size_t sent = 0;
    int taken = 0;

    for (int i = 0; i < n_events; i++) {
        snprintf(text, sizeof(text), "%d", i);
        put_text(d, id, text);
    }
    fcntl(d->fd, F_SETFL, O_NONBLOCK);
    /* As much as goes in while the client only dispatches. */
    for (int idle = 0; idle < 3;) {
        ssize_t n = write(d->fd, d->out.p + sent, d->out.n - sent);
        sent += n > 0 ? (size_t)n : 0;
        idle = n > 0 ? 0 : idle + 1;
        step_client_dispatch(c);
    }
    assert_true(sent < d->out.n);
    assert_int_equal(step_client_get_events(c) & POLLIN, 0);
    assert_int_equal(step_client_get_timeout(c), 0);
    while (taken < n_events) {
        ssize_t n = write(d->fd, d->out.p + sent, d->out.n - sent);
        sent += n > 0 ? (size_t)n : 0;
        step_client_dispatch(c);
        const struct step_event *e = step_client_next(c);
        assert_non_null(e);
        snprintf(text, sizeof(text), "%d", taken);
        assert_text(e, id, text);
        taken++;
    }
    assert_int_equal(sent, d->out.n);
    step_client_destroy(c);
}

/* The same by bytes: few events, and large. */
static void test_large_events_that_nobody_takes_are_bounded(void **state)
{
    enum { N = 72 };
    const size_t n = (size_t)1 << 20;
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);
    char *text = calloc(1, n);
    size_t sent = 0, got;

    for (int i = 0; i < N; i++) {
        assert_int_equal(wire_put_part_text(&d->out, id, text, n, false), 0);
    }
    fcntl(d->fd, F_SETFL, O_NONBLOCK);
    for (int idle = 0; idle < 3;) {
        ssize_t k = write(d->fd, d->out.p + sent, d->out.n - sent);
        sent += k > 0 ? (size_t)k : 0;
        idle = k > 0 ? 0 : idle + 1;
        step_client_dispatch(c);
    }
    assert_true(sent < d->out.n * 2 / 3);
    assert_int_equal(step_client_get_events(c) & POLLIN, 0);
    for (int i = 0; i < N;) {
        ssize_t k = write(d->fd, d->out.p + sent, d->out.n - sent);
        sent += k > 0 ? (size_t)k : 0;
        step_client_dispatch(c);
        const struct step_event *e = step_client_next(c);
        if (e != NULL) {
            assert_non_null(step_event_text(e, &got));
            assert_int_equal(got, n);
            i++;
        }
        /* There is always a way on: something to take, or to read. */
        assert_true(e != NULL || (step_client_get_events(c) & POLLIN) != 0);
    }
    free(text);
    step_client_destroy(c);
}

/* Frames that a full queue left in the buffer come, also after the end. */
static void test_a_full_queue_loses_nothing_at_the_end(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);
    int n = 0;

    for (int i = 0; i < 1500; i++) {
        put_text(d, id, "x");
    }
    flush(d);
    close(d->fd);
    d->fd = -1;
    for (int i = 0; i < 5; i++) {
        step_client_dispatch(c);
    }
    const struct step_event *e;
    while (step_client_wait(c, -1) == 1) {
        e = step_client_next(c);
        if (n < 1500) {
            assert_text(e, id, "x");
        } else {
            assert_error(e, id, STEP_E_DISCONNECTED);
        }
        n++;
    }
    assert_int_equal(n, 1501);
    step_client_destroy(c);
}

static void test_a_large_event(void **state)
{
    const size_t n = (size_t)5 << 20;
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);
    struct wire_map m;
    char *text = malloc(n);
    size_t sent = 0, got;

    memset(text, 'x', n);
    wire_map_begin_event(&m, &d->out, id, "part");
    wire_map_strn(&m, "text", text, n);
    wire_map_end(&m);
    fcntl(d->fd, F_SETFL, O_NONBLOCK);
    while (sent < d->out.n) {
        ssize_t k = write(d->fd, d->out.p + sent, d->out.n - sent);
        sent += k > 0 ? (size_t)k : 0;
        step_client_dispatch(c);
    }
    assert_int_equal(step_client_wait(c, -1), 1);
    const struct step_event *e = step_client_next(c);
    assert_memory_equal(step_event_text(e, &got), text, n);
    assert_int_equal(got, n);
    free(text);
    step_client_destroy(c);
}

/* A daemon that does not read: output waits, POLLOUT says so, submit is busy at
 * the limit, and what went in comes out whole and in order. */
static void test_output_waits_and_is_bounded(void **state)
{
    const size_t n = (size_t)3 << 20;
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    char *text = malloc(n + 1);
    struct step_request *r;
    int n_sent = 0, err;

    memset(text, 'p', n);
    text[n] = '\0';
    r = complete(text);
    while ((err = step_client_submit(c, r, NULL, NULL)) == 0) {
        n_sent++;
        step_client_dispatch(c);
        assert_int_equal(step_client_get_events(c), POLLIN | POLLOUT);
        assert_true(n_sent < 20);
    }
    assert_int_equal(err, STEP_E_BUSY);
    assert_true(n_sent >= 5);
    uint8_t *frame = malloc(n + 1000);
    for (int i = 0; i < n_sent; i++) {
        size_t got = 0, want = WIRE_HEADER_SIZE;
        struct wire_error werr;
        struct wire_request *w = NULL;
        while (got < want) {
            step_client_dispatch(c);
            ssize_t k = recv(d->fd, frame + got, want - got, MSG_DONTWAIT);
            got += k > 0 ? (size_t)k : 0;
            if (got == WIRE_HEADER_SIZE) {
                want = WIRE_HEADER_SIZE +
                       (size_t)wire_frame_size(frame, WIRE_MAX_FRAME, &werr);
            }
        }
        assert_int_equal(wire_decode_request(frame + WIRE_HEADER_SIZE,
                                             got - WIRE_HEADER_SIZE, &w, &werr),
                         0);
        assert_string_equal(w->prompt.p, text);
        wire_request_destroy(w);
    }
    free(frame);
    assert_int_equal(step_client_get_events(c), POLLIN);
    assert_int_equal(step_client_submit(c, r, NULL, NULL), 0);
    step_request_destroy(r);
    free(text);
    step_client_destroy(c);
}

static void test_a_request_over_max_frame(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    char *text = calloc(1, WIRE_MAX_FRAME + 1);
    struct step_request *r;

    memset(text, 'a', WIRE_MAX_FRAME);
    assert_int_equal(step_request_create(&r, "generate"), 0);
    assert_int_equal(step_request_set_str(r, "prompt", text, WIRE_MAX_FRAME),
                     STEP_E_TOO_LONG);
    assert_int_equal(step_client_submit(c, r, NULL, NULL), STEP_E_TOO_LONG);
    step_request_destroy(r);
    /* Each key alone fits. */
    assert_int_equal(step_request_create(&r, "generate"), 0);
    assert_int_equal(step_request_set_str(r, "prompt", text, 9 << 20), 0);
    assert_int_equal(step_request_set_str(r, "x_more", text, 9 << 20), 0);
    assert_int_equal(step_client_submit(c, r, NULL, NULL), STEP_E_TOO_LONG);
    step_request_destroy(r);
    free(text);
    step_client_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_requests_wait_for_hello_and_keep_their_order),
        TEST(test_hello_names_the_program),
        TEST(test_events_reach_their_requests),
        TEST(test_byte_by_byte),
        TEST(test_unknown_events_keys_and_codes),
        TEST(test_a_key_that_the_daemon_lacks_is_not_sent),
        TEST(test_a_refused_hello_ends_what_was_held),
        TEST(test_a_lost_daemon_ends_each_request_once),
        TEST(test_a_daemon_that_closes_at_once),
        TEST(test_last_words_are_heard),
        TEST(test_broken_frames_end_the_connection),
        TEST(test_a_first_event_that_is_not_hello),
        TEST(test_events_that_nobody_takes_are_bounded),
        TEST(test_large_events_that_nobody_takes_are_bounded),
        TEST(test_a_full_queue_loses_nothing_at_the_end),
        TEST(test_a_large_event),
        TEST(test_output_waits_and_is_bounded),
        TEST(test_a_request_over_max_frame),
    };
    return test_main(tests, NULL, NULL);
}
