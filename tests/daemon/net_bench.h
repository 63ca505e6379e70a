/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The bench for the tests of daemon/net: a server on its own loop, a fake
 * engine behind it, and clients on socket pairs that say and hear JSON. All on
 * one thread: bench_run turns the loop until nothing more happens by itself.
 */
#ifndef TESTS_DAEMON_NET_BENCH_H
#define TESTS_DAEMON_NET_BENCH_H

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "client/wire.h"
#include "daemon/base/conf.h"
#include "daemon/base/log.h"
#include "daemon/net/server.h"
#include "tests/daemon/fake_engine.h"
#include "tests/test.h"

struct bench {
    struct ev_loop *loop;
    struct conf conf;
    struct engine *engine;
    struct server *server;
    int log[2]; /* what the server logs */
};

struct client {
    int fd;
    struct buf in;
};

#define PING "{\"op\":\"ping\",\"id\":2}"
#define PONG "{\"id\": 2, \"event\": \"done\", \"state\": \"ready\"}"
#define GENERATE(id) "{\"op\":\"generate\",\"id\":" id ",\"prompt\":\"x\"}"
#define ERROR(id, code) \
    "{\"id\": " id ", \"event\": \"error\", \"code\": \"" code "\""
#define HELLO                                       \
    "{\"op\":\"hello\",\"id\":1,\"version_min\":1," \
    "\"version_max\":1}"

/* set: KEY=VALUE texts, NULL at the end; may be NULL. */
static inline void bench_start(struct bench *b, const char *const *set)
{
    struct conf_source src = {TEST_SRCDIR "/etc/stepd.conf", set, 0};
    struct engine_conf ec = {.wake = server_wake};
    struct conf_report rep;

    memset(b, 0, sizeof(*b));
    while (set != NULL && set[src.n_set] != NULL) {
        src.n_set++;
    }
    if (conf_load(&src, &rep, &b->conf) < 0) {
        fail_msg("the test's own configuration: %s", rep.line[0]);
    }
    assert_int_equal(pipe(b->log), 0);
    assert_int_equal(fcntl(b->log[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(b->log[1], F_SETFL, O_NONBLOCK), 0);
    log_init(LOG_INFO);
    log_to(b->log[1], true);
    b->loop = ev_loop_new(EVFLAG_AUTO);
    assert_non_null(b->loop);
    assert_int_equal(server_create(&b->server, b->loop, &b->conf), 0);
    ec.ctx = b->server;
    assert_int_equal(engine_create(&b->engine, &ec), 0);
    server_attach(b->server, b->engine);
}

static inline void bench_stop(struct bench *b)
{
    server_destroy(b->server);
    engine_destroy(b->engine);
    ev_loop_destroy(b->loop);
    conf_finish(&b->conf);
    log_to(STDERR_FILENO, false);
    close(b->log[0]);
    close(b->log[1]);
}

/* Turns the loop as long as it finds something to do. Timers do not count: none
 * of them is due unless a test made it short, and then it uses bench_wait. */
static inline void bench_run(struct bench *b)
{
    for (int idle = 0; idle < 3; idle++) {
        uint64_t in = b->server->host.bytes_in;
        uint64_t out = b->server->host.bytes_out;
        int n = b->server->n_conns;

        ev_run(b->loop, EVRUN_NOWAIT);
        if (in != b->server->host.bytes_in ||
            out != b->server->host.bytes_out || n != b->server->n_conns) {
            idle = -1;
        }
    }
}

/* Turns the loop, sleeping in it, until the connections are n. */
static inline void bench_wait_conns(struct bench *b, int n)
{
    for (;;) {
        bench_run(b); /* the sweep is the first thing of the next turn */
        if (b->server->n_conns == n) {
            return;
        }
        ev_run(b->loop, EVRUN_ONCE);
    }
}

/* What was logged since the last call. */
static inline const char *bench_log(struct bench *b)
{
    static char text[1 << 16];
    ssize_t n = read(b->log[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* ---- clients ------------------------------------------------------------ */

/* A connected client that has said nothing yet. */
static inline void client_connect(struct bench *b, struct client *c)
{
    int fds[2];

    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
        0);
    c->fd = fds[0];
    buf_init(&c->in, SIZE_MAX / 2);
    server_add(b->server, fds[1]);
}

static inline void client_close(struct client *c)
{
    if (c->fd >= 0) {
        close(c->fd);
    }
    c->fd = -1;
    buf_finish(&c->in);
}

static inline void client_send(struct bench *b, struct client *c,
                               const void *bytes, size_t n)
{
    const char *p = bytes;

    while (n > 0) {
        ssize_t sent = send(c->fd, p, n, MSG_NOSIGNAL);

        if (sent < 0) {
            assert_int_equal(errno, EAGAIN);
            bench_run(b);
            continue;
        }
        p += sent;
        n -= (size_t)sent;
    }
}

/* The frame of a JSON text, appended. */
static inline void frame_of(struct buf *to, const char *json)
{
    struct wire_buf body;
    char why[128];
    uint8_t head[4];

    wire_buf_init(&body, (size_t)2 * WIRE_MAX_FRAME);
    if (wire_value_json(&body, json, strlen(json), why, sizeof(why)) < 0) {
        fail_msg("the test's own JSON: %s: %s", why, json);
    }
    head[0] = (uint8_t)(body.n >> 24);
    head[1] = (uint8_t)(body.n >> 16);
    head[2] = (uint8_t)(body.n >> 8);
    head[3] = (uint8_t)body.n;
    assert_int_equal(buf_put(to, head, 4), 0);
    assert_int_equal(buf_put(to, body.p, body.n), 0);
    wire_buf_finish(&body);
}

static inline void client_say(struct bench *b, struct client *c,
                              const char *json)
{
    struct buf frame;

    buf_init(&frame, (size_t)2 * WIRE_MAX_FRAME);
    frame_of(&frame, json);
    client_send(b, c, buf_data(&frame), frame.n);
    buf_finish(&frame);
}

/* Reads what is there now. Returns false at the end of the stream. */
static inline bool client_read(struct client *c)
{
    uint8_t *p;

    for (;;) {
        ssize_t n;

        assert_int_equal(buf_room(&c->in, 65536, &p), 0);
        n = recv(c->fd, p, 65536, 0);
        if (n > 0) {
            buf_added(&c->in, (size_t)n);
        } else if (n == 0 || errno == ECONNRESET) {
            return false;
        } else {
            assert_int_equal(errno, EAGAIN);
            return true;
        }
    }
}

/* The next event, NULL where none comes without more being done. */
static inline struct wire_event *client_event(struct bench *b, struct client *c)
{
    struct wire_event *e = NULL;
    struct wire_error err;
    int n = 0;

    for (int i = 0; i < 4; i++) {
        bench_run(b);
        (void)client_read(c);
        if (c->in.n >= 4) {
            n = wire_frame_size(buf_data(&c->in), WIRE_MAX_FRAME, &err);
            assert_true(n > 0);
            if (c->in.n >= 4 + (size_t)n) {
                break;
            }
        }
        n = 0;
    }
    if (n == 0) {
        return NULL;
    }
    if (wire_decode_event(buf_data(&c->in) + 4, (size_t)n, &e, &err) < 0) {
        fail_msg("the daemon sent what is not an event: %s", err.message);
    }
    buf_consume(&c->in, 4 + (size_t)n);
    return e;
}

/* The next event as JSON, "" for none. */
static inline const char *client_hear(struct bench *b, struct client *c)
{
    static char text[1 << 16];
    struct wire_event *e = client_event(b, c);
    struct wire_buf json;

    text[0] = '\0';
    if (e != NULL) {
        wire_buf_init(&json, sizeof(text) - 1);
        assert_int_equal(wire_event_json(e, "", &json), 0);
        memcpy(text, json.p, json.n);
        text[json.n] = '\0';
        wire_buf_finish(&json);
        wire_event_destroy(e);
    }
    return text;
}

#define expect(b, c, json) assert_string_equal(client_hear(b, c), json)

/* The next event must hold this text somewhere. */
#define expect_like(b, c, part) expect_like_(b, c, part, __FILE__, __LINE__)

static inline void expect_like_(struct bench *b, struct client *c,
                                const char *part, const char *file, int line)
{
    const char *got = client_hear(b, c);

    if (strstr(got, part) == NULL) {
        print_error("heard: %s\nexpected in it: %s\n", got, part);
        _fail(file, line);
    }
}

/* Connects, says hello and hears it. */
static inline void client_open(struct bench *b, struct client *c)
{
    client_connect(b, c);
    client_say(b, c, HELLO);
    expect_like(b, c, "\"event\": \"hello\"");
}

/* A connection that counts as that of somebody else. */
static inline void open_as(struct bench *b, struct client *c, struct peer peer)
{
    struct accounts *a = &b->server->host.accounts;
    struct conn *k;

    client_open(b, c);
    k = b->server
            ->conns[(b->server->serial - 1) % (uint64_t)b->server->n_slots];
    k->account->n_conns--;
    account_put(a, k->account);
    k->peer = peer;
    k->account = account_get(a, peer.uid, "");
    k->account->n_conns++;
}

/* Nothing more came, and the daemon has closed. */
static inline void expect_closed(struct bench *b, struct client *c)
{
    bench_run(b);
    assert_false(client_read(c));
    assert_int_equal(c->in.n, 0);
}

/* The one connection that there is. */
static inline struct conn *bench_conn(struct bench *b)
{
    for (int i = 0; i < b->server->n_slots; i++) {
        if (b->server->conns[i] != NULL) {
            return b->server->conns[i];
        }
    }
    fail_msg("no connection");
    return NULL;
}

#endif
