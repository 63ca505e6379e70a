/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * libstepclient's handle: connecting, cancelling, waiting, the blocking call,
 * threads.
 */

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "tests/client/played_daemon.h"

/* ---- cancel ---------------------------------------------------------------
 */

static void test_cancel(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);

    assert_int_equal(step_client_cancel(c, id + 1), STEP_E_NOT_FOUND);
    assert_int_equal(step_client_cancel(c, 0), STEP_E_NOT_FOUND);
    assert_int_equal(step_client_cancel(c, id), 0);
    step_client_dispatch(c);
    assert_prompt(d, id, "a");
    struct wire_request *r = get_request(d->fd);
    assert_int_equal(r->op, WIRE_CANCEL);
    assert_int_equal(r->target, id);
    /* The answer to cancel is nobody's event. */
    put_end(d, r->id, NULL);
    put_end(d, id, "cancelled");
    wire_request_destroy(r);
    flush(d);
    step_client_dispatch(c);
    const struct step_event *e = step_client_next(c);
    assert_int_equal(step_event_type(e), STEP_EVENT_DONE);
    assert_int_equal(step_event_request(e), id);
    assert_null(step_client_next(c));
    assert_int_equal(step_client_cancel(c, id), STEP_E_NOT_FOUND);
    step_client_destroy(c);
}

static void test_cancel_before_hello_is_never_sent(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connect_only(d);
    uint64_t id = submit(c, "a", NULL);
    const struct step_event *e;
    char *json;

    assert_int_equal(step_client_cancel(c, id), 0);
    e = step_client_next(c);
    assert_int_equal(step_event_type(e), STEP_EVENT_DONE);
    assert_int_equal(step_event_get_json(e, "finish_reason", &json), 0);
    assert_string_equal(json, "\"cancelled\"");
    free(json);
    step_client_dispatch(c);
    answer_hello(d);
    step_client_dispatch(c);
    assert_true(nothing_to_read(d->fd));
    step_client_destroy(c);
}

/* ---- connecting -----------------------------------------------------------
 */

static void test_connect_errors(void **state)
{
    struct daemon *d = *state;
    struct step_client *c;
    char path[256];

    assert_int_equal(step_client_create(&c), 0);
    assert_int_equal(step_client_connect(c, "/nonexistent/socket"),
                     STEP_E_NO_DAEMON);
    assert_int_equal(errno, ENOENT);
    assert_string_equal(step_client_path(c), "/nonexistent/socket");
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(step_client_connect(c, path), STEP_E_INVALID);
    assert_int_equal(errno, ENAMETOOLONG);
    assert_int_equal(step_client_connect(c, "an-instance-that-is-not"),
                     STEP_E_NO_DAEMON);
    assert_non_null(
        strstr(step_client_path(c), "/an-instance-that-is-not.sock"));
    close(d->listener);
    assert_int_equal(step_client_connect(c, d->path), STEP_E_NO_DAEMON);
    assert_int_equal(errno, ECONNREFUSED);
    assert_int_equal(step_client_get_fd(c), -1);
    assert_int_equal(step_client_dispatch(c), STEP_E_DISCONNECTED);
    d->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    step_client_destroy(c);
}

/* The kernel's queue of connections is full: EAGAIN, which is busy. */
static void test_connect_to_a_full_queue_is_busy(void **state)
{
    struct daemon *d = *state;
    struct step_client *c[64] = {0};
    int err = 0, n = 0;

    assert_int_equal(listen(d->listener, 1), 0);
    while (err == 0 && n < 64) {
        assert_int_equal(step_client_create(&c[n]), 0);
        err = step_client_connect(c[n], d->path);
        n++;
    }
    assert_int_equal(err, STEP_E_BUSY);
    assert_int_equal(errno, EAGAIN);
    while (n > 0) {
        step_client_destroy(c[--n]);
    }
}

static void test_socket_search(void **state)
{
    struct daemon *d = *state;
    struct step_client *c;
    char dir[128];

    assert_int_equal(step_client_create(&c), 0);
    setenv("STEPD_SOCKET", d->path, 1);
    assert_int_equal(step_client_connect(c, NULL), 0);
    assert_string_equal(step_client_path(c), d->path);
    step_client_destroy(c);

    assert_int_equal(step_client_create(&c), 0);
    unsetenv("STEPD_SOCKET");
    setenv("XDG_RUNTIME_DIR", d->dir, 1);
    snprintf(dir, sizeof(dir), "%s/stepd", d->dir);
    /* No such file there: on to the system's. */
    (void)step_client_connect(c, NULL);
    assert_null(strstr(step_client_path(c), d->dir));
    step_client_destroy(c);

    assert_int_equal(step_client_create(&c), 0);
    assert_int_equal(symlink(".", dir), 0);
    snprintf(dir, sizeof(dir), "%s/stepd.sock", d->dir);
    assert_int_equal(symlink("s", dir), 0);
    assert_int_equal(step_client_connect(c, NULL), 0);
    assert_non_null(strstr(step_client_path(c), d->dir));
    unlink(dir);
    snprintf(dir, sizeof(dir), "%s/stepd", d->dir);
    unlink(dir);
    unsetenv("XDG_RUNTIME_DIR");
    step_client_destroy(c);
}

/* ---- waiting --------------------------------------------------------------
 */

static void on_alarm(int sig)
{
    (void)sig;
}

static void test_wait(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL);
    struct sigaction a = {.sa_handler = on_alarm};
    struct itimerval soon = {.it_value = {.tv_usec = 1000},
                             .it_interval = {.tv_usec = 1000}};
    struct itimerval never = {0};

    assert_int_equal(step_client_wait(c, 0), STEP_E_TIMEOUT);
    assert_int_equal(step_client_wait(c, 5), STEP_E_TIMEOUT);
    sigaction(SIGALRM, &a, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    assert_int_equal(step_client_wait(c, -1), STEP_E_SYSTEM);
    assert_int_equal(errno, EINTR);
    setitimer(ITIMER_REAL, &never, NULL);
    put_text(d, id, "t");
    flush(d);
    assert_int_equal(step_client_wait(c, -1), 1);
    assert_int_equal(step_client_wait(c, 0), 1);
    assert_text(step_client_next(c), id, "t");
    step_client_destroy(c);
}

/* ---- the blocking call, threads -------------------------------------------
 */

/* A daemon on a thread of its own: answers each request with its prompt in
 * single characters, "bad" with an error; events of an unasked id between. */
static void *serve(void *arg)
{
    struct daemon d = {.fd = *(int *)arg};
    struct wire_limits_now now = {.server_version = "test"};
    uint8_t header[WIRE_HEADER_SIZE];

    wire_buf_init(&d.out, WIRE_MAX_FRAME);
    while (recv(d.fd, header, sizeof(header), MSG_PEEK) > 0) {
        struct wire_request *r = get_request(d.fd);
        if (r->op == WIRE_HELLO) {
            wire_put_hello(&d.out, r->id, &now);
        } else if (strcmp(r->prompt.p, "bad") == 0) {
            wire_put_error(&d.out, r->id, WIRE_E_TOO_LONG, "too long", "prompt",
                           0);
        } else {
            for (size_t i = 0; i < r->prompt.n; i++) {
                char text[2] = {r->prompt.p[i], '\0'};
                put_text(&d, r->id, text);
            }
            put_end(&d, r->id, "stop");
        }
        wire_request_destroy(r);
        flush(&d);
    }
    close(d.fd);
    wire_buf_finish(&d.out);
    return NULL;
}

static void collect(void *ctx, const struct step_event *e)
{
    size_t n;
    const char *text = step_event_text(e, &n);

    if (text != NULL) {
        strncat(ctx, text, n);
    }
}

static void test_call(void **state)
{
    struct daemon *d = *state;
    struct step_client *c;
    pthread_t thread;
    char text[4096] = "", expect[3000];
    uint64_t other;
    int n = 0;

    assert_int_equal(step_client_create(&c), 0);
    assert_int_equal(step_client_connect(c, d->path), 0);
    d->fd = accept(d->listener, NULL, NULL);
    assert_int_equal(pthread_create(&thread, NULL, serve, &d->fd), 0);

    struct step_request *r = complete("hello");
    assert_int_equal(step_client_call(c, r, collect, text), 0);
    assert_string_equal(text, "hello");
    /* The same request again; without a function. */
    assert_int_equal(step_client_call(c, r, NULL, NULL), 0);
    step_request_destroy(r);
    /* More events of another request than the queue takes stand before. */
    memset(expect, 'z', sizeof(expect));
    expect[sizeof(expect) - 1] = '\0';
    other = submit(c, expect, NULL);
    r = complete("bad");
    text[0] = '\0';
    assert_int_equal(step_client_call(c, r, collect, text), STEP_E_TOO_LONG);
    assert_string_equal(text, "");
    step_request_destroy(r);
    for (;;) {
        assert_int_equal(step_client_wait(c, -1), 1);
        const struct step_event *e = step_client_next(c);
        assert_int_equal(step_event_request(e), other);
        if (step_event_type(e) == STEP_EVENT_DONE) {
            break;
        }
        n++;
    }
    assert_int_equal(n, sizeof(expect) - 1);
    step_client_destroy(c);
    pthread_join(thread, NULL);
    d->fd = -1;
}

static void test_call_when_the_daemon_goes_away(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    struct step_request *r = complete("a");

    shutdown(d->fd, SHUT_RDWR);
    assert_int_equal(step_client_call(c, r, NULL, NULL), STEP_E_DISCONNECTED);
    assert_int_equal(step_client_call(c, r, NULL, NULL), STEP_E_DISCONNECTED);
    step_request_destroy(r);
    step_client_destroy(c);
}

/* What a thread works with. client NULL: it makes its own; else it takes turns
 * with others. The request is everybody's and is not changed. */
struct share {
    const char *path;
    const struct step_request *r;
    struct step_client *client;
    pthread_mutex_t turn;
};

static void *use(void *arg)
{
    struct share *s = arg;
    struct step_client *c = s->client;
    intptr_t n_bad = 0;

    if (c == NULL) {
        n_bad += step_client_create(&c) != 0;
        n_bad += step_client_connect(c, s->path) != 0;
    }
    for (int i = 0; i < 200; i++) {
        char text[64] = "";
        if (s->client != NULL) {
            pthread_mutex_lock(&s->turn);
        }
        n_bad += step_client_call(c, s->r, collect, text) != 0;
        n_bad += strcmp(text, "threads") != 0;
        if (s->client != NULL) {
            pthread_mutex_unlock(&s->turn);
        }
    }
    if (s->client == NULL) {
        step_client_destroy(c);
    }
    return (void *)n_bad;
}

static void test_handles_of_different_threads_are_independent(void **state)
{
    enum { N = 4 };
    struct daemon *d = *state;
    struct step_request *r = complete("threads");
    struct share s = {.path = d->path, .r = r};
    pthread_t user[N], server[N];
    int fd[N];
    void *n_bad;

    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&user[i], NULL, use, &s), 0);
    }
    for (int i = 0; i < N; i++) {
        fd[i] = accept(d->listener, NULL, NULL);
        assert_int_equal(pthread_create(&server[i], NULL, serve, &fd[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(user[i], &n_bad);
        assert_null(n_bad);
        pthread_join(server[i], NULL);
    }
    step_request_destroy(r);
}

static void test_a_handle_may_be_used_by_threads_in_turn(void **state)
{
    enum { N = 4 };
    struct daemon *d = *state;
    struct step_request *r = complete("threads");
    struct share s = {.r = r, .turn = PTHREAD_MUTEX_INITIALIZER};
    pthread_t user[N], server;
    void *n_bad;

    assert_int_equal(step_client_create(&s.client), 0);
    assert_int_equal(step_client_connect(s.client, d->path), 0);
    d->fd = accept(d->listener, NULL, NULL);
    assert_int_equal(pthread_create(&server, NULL, serve, &d->fd), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&user[i], NULL, use, &s), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(user[i], &n_bad);
        assert_null(n_bad);
    }
    step_client_destroy(s.client);
    pthread_join(server, NULL);
    d->fd = -1;
    step_request_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_cancel),
        TEST(test_cancel_before_hello_is_never_sent),
        TEST(test_connect_errors),
        TEST(test_connect_to_a_full_queue_is_busy),
        TEST(test_socket_search),
        TEST(test_wait),
        TEST(test_call),
        TEST(test_call_when_the_daemon_goes_away),
        TEST(test_handles_of_different_threads_are_independent),
        TEST(test_a_handle_may_be_used_by_threads_in_turn),
    };
    return test_main(tests, NULL, NULL);
}
