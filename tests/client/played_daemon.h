/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A daemon that a test of libstepclient plays itself, step by step on the
 * test's own thread: what the client sent is read here, events are put into
 * `out` and flushed. Every test gets a fresh one (TEST).
 */
#ifndef TESTS_CLIENT_PLAYED_DAEMON_H
#define TESTS_CLIENT_PLAYED_DAEMON_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/client.h"
#include "tests/client/frames.h"

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, start, stop)

struct daemon {
    char dir[64], path[96];
    int listener, fd;
    struct wire_buf out;
};

static inline int start(void **state)
{
    struct daemon *d = calloc(1, sizeof(*d));
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    strcpy(d->dir, "/tmp/test_client.XXXXXX");
    assert_non_null(mkdtemp(d->dir));
    snprintf(d->path, sizeof(d->path), "%s/s", d->dir);
    strcpy(a.sun_path, d->path);
    d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(d->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(d->listener, 16), 0);
    d->fd = -1;
    wire_buf_init(&d->out, (size_t)8 * WIRE_MAX_FRAME);
    *state = d;
    return 0;
}

static inline int stop(void **state)
{
    struct daemon *d = *state;

    close(d->listener);
    if (d->fd >= 0) {
        close(d->fd);
    }
    unlink(d->path);
    rmdir(d->dir);
    wire_buf_finish(&d->out);
    free(d);
    return 0;
}

static inline void daemon_read(int fd, void *p, size_t n)
{
    while (n > 0) {
        ssize_t got = read(fd, p, n);
        assert_true(got > 0);
        p = (char *)p + got;
        n -= (size_t)got;
    }
}

/* The next request that the client has sent. */
static inline struct wire_request *get_request(int fd)
{
    uint8_t header[WIRE_HEADER_SIZE];
    struct wire_request *r = NULL;
    struct wire_error err;

    daemon_read(fd, header, sizeof(header));
    int n = wire_frame_size(header, WIRE_MAX_FRAME, &err);
    assert_true(n > 0);
    uint8_t *body = malloc((size_t)n);
    daemon_read(fd, body, (size_t)n);
    if (wire_decode_request(body, (size_t)n, &r, &err) != 0) {
        fail_msg("the library's request is refused: %s", err.message);
    }
    free(body);
    return r;
}

static inline bool nothing_to_read(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 0;
}

/* Sends what was put into d->out. */
static inline void flush(struct daemon *d)
{
    assert_int_equal(d->out.err, 0);
    assert_int_equal(write(d->fd, d->out.p, d->out.n), d->out.n);
    d->out.n = 0;
}

static inline void put_text(struct daemon *d, uint64_t id, const char *text)
{
    struct wire_delta delta = {
        .kind = "content", .text = text, .n = strlen(text)};

    wire_put_delta(&d->out, id, &delta);
}

static inline void put_end(struct daemon *d, uint64_t id, const char *reason)
{
    struct wire_done done = {.finish_reason = reason,
                             .prompt_tokens = 7,
                             .seed = UINT64_MAX,
                             .decode_ms = 1.5};

    wire_put_done(&d->out, id, &done);
}

static inline void answer_hello(struct daemon *d)
{
    static const char *const features[] = {"word"};
    struct wire_limits_now now = {.server_version = "test",
                                  .model = "m",
                                  .features = features,
                                  .n_features = 1};
    struct wire_request *r = get_request(d->fd);

    assert_int_equal(r->op, WIRE_HELLO);
    wire_put_hello(&d->out, r->id, &now);
    wire_request_destroy(r);
    flush(d);
}

/* A client that is connected; hello is not answered yet. */
static inline struct step_client *connect_only(struct daemon *d)
{
    struct step_client *c;

    assert_int_equal(step_client_create(&c), 0);
    assert_int_equal(step_client_connect(c, d->path), 0);
    d->fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(d->fd >= 0);
    return c;
}

static inline struct step_client *connected(struct daemon *d)
{
    struct step_client *c = connect_only(d);

    assert_int_equal(step_client_dispatch(c), 0);
    answer_hello(d);
    assert_int_equal(step_client_dispatch(c), 0);
    assert_non_null(step_client_hello(c));
    return c;
}

static inline struct step_request *complete(const char *prompt)
{
    struct step_request *r;

    assert_int_equal(step_request_create(&r, "generate"), 0);
    step_request_set_str(r, "prompt", prompt, strlen(prompt));
    return r;
}

static inline uint64_t submit(struct step_client *c, const char *prompt,
                              void *userdata)
{
    struct step_request *r = complete(prompt);
    uint64_t id = 0;

    assert_int_equal(step_client_submit(c, r, userdata, &id), 0);
    step_request_destroy(r);
    return id;
}

static inline void assert_prompt(struct daemon *d, uint64_t id,
                                 const char *prompt)
{
    struct wire_request *r = get_request(d->fd);

    assert_int_equal(r->op, WIRE_GENERATE);
    assert_int_equal(r->id, id);
    assert_string_equal(r->prompt.p, prompt);
    wire_request_destroy(r);
}

static inline void assert_text(const struct step_event *e, uint64_t id,
                               const char *text)
{
    size_t n;

    assert_non_null(e);
    assert_int_equal(step_event_type(e), STEP_EVENT_DELTA);
    assert_int_equal(step_event_request(e), id);
    const char *got = step_event_text(e, &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(got, text, n);
}

static inline void assert_error(const struct step_event *e, uint64_t id,
                                int code)
{
    assert_non_null(e);
    assert_int_equal(step_event_type(e), STEP_EVENT_ERROR);
    assert_int_equal(step_event_request(e), id);
    assert_int_equal(step_event_code(e), code);
}

#endif
