/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Each call of malloc, calloc, realloc, socket, connect, recv, send and poll
 * that libstepclient makes fails in turn. Every function still returns 0 or a
 * code of its own, every submitted request ends exactly once, nothing leaks,
 * and the next client is served as if nothing had been.
 *
 * The calls are taken over by this program's own symbols; they count only on
 * the thread that is the client's, while it is armed.
 */

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "tests/test.h"

#include "tests/client/played_daemon.h"

/* ---- calls that fail ---------------------------------------------------- */

enum call { NONE, MALLOC, SOCKET, CONNECT, RECV, SEND, POLL, N_CALLS };
static const char *const names[] = {"none", "malloc", "socket", "connect",
                                    "recv", "send",   "poll"};

static __thread bool armed;
static enum call failing;
static int fail_at, fail_errno, n_calls;
static long n_live; /* allocations of the client's that are not freed */

/* Not even a sum of 0 is written by the service's thread: it would take the
 * client's back. */
static inline void count_live(bool applies, long n)
{
    if (armed && applies) {
        n_live += n;
    }
}

static bool fails(enum call call)
{
    if (!armed || call != failing || n_calls++ != fail_at) {
        return false;
    }
    errno = fail_errno;
    return true;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#ifndef SANITIZED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

void *malloc(size_t n)
{
    void *p = fails(MALLOC) ? NULL : __libc_malloc(n);

    count_live(p != NULL, 1);
    return p;
}

void *calloc(size_t count, size_t n)
{
    void *p = fails(MALLOC) ? NULL : __libc_calloc(count, n);

    count_live(p != NULL, 1);
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = fails(MALLOC) ? NULL : __libc_realloc(old, n);

    count_live(old == NULL && p != NULL, 1);
    return p;
}

void free(void *p)
{
    count_live(p != NULL, -1);
    __libc_free(p);
}
#endif

/* Found before any of them is counted: dlsym allocates. */
#define REAL(name)                                                \
    static __typeof__(&name) real_##name;                         \
    __attribute__((constructor)) static void find_##name(void)    \
    {                                                             \
        real_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    }
REAL(socket)
REAL(connect)
REAL(recv)
REAL(send)
REAL(poll)

int socket(int domain, int type, int protocol)
{
    return fails(SOCKET) ? -1 : real_socket(domain, type, protocol);
}

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
    return fails(CONNECT) ? -1 : real_connect(fd, a, n);
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
    return fails(RECV) ? -1 : real_recv(fd, p, n, flags);
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
    return fails(SEND) ? -1 : real_send(fd, p, n, flags);
}

int poll(struct pollfd *p, nfds_t n, int ms)
{
    return fails(POLL) ? -1 : real_poll(p, n, ms);
}

/* ---- a daemon that nothing can surprise --------------------------------- */

static bool read_all(int fd, void *p, size_t n)
{
    for (ssize_t got; n > 0; n -= (size_t)got, p = (char *)p + got) {
        got = read(fd, p, n);
        if (got <= 0) {
            return false;
        }
    }
    return true;
}

static void answer(struct wire_buf *b, const struct wire_request *r)
{
    struct wire_limits_now now = {.server_version = "test", .model = "m"};
    struct wire_delta delta = {.kind = "content", .text = "hello", .n = 5};
    struct wire_done done = {.finish_reason = "stop"};

    if (r->op == WIRE_HELLO) {
        wire_put_hello(b, r->id, &now);
    } else if (r->op == WIRE_GENERATE) {
        wire_put_accepted(b, r->id, 1, 0, 3);
        wire_put_delta(b, r->id, &delta);
        wire_put_done(b, r->id, &done);
    } else {
        wire_put_error(b, r->id, WIRE_E_NOT_FOUND, "no such job", "", 0);
    }
}

/* Connection after connection, until the listener is shut down. */
static void *serve(void *arg)
{
    int listener = *(int *)arg, fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        uint8_t header[WIRE_HEADER_SIZE], body[4096];
        struct wire_error err;
        struct wire_buf b;

        wire_buf_init(&b, WIRE_MAX_FRAME);
        while (read_all(fd, header, sizeof(header))) {
            struct wire_request *r;
            int n = wire_frame_size(header, sizeof(body), &err);
            if (n <= 0 || !read_all(fd, body, (size_t)n) ||
                wire_decode_request(body, (size_t)n, &r, &err) != 0) {
                break;
            }
            answer(&b, r);
            wire_request_destroy(r);
            if (send(fd, b.p, b.n, MSG_NOSIGNAL) != (ssize_t)b.n) {
                break;
            }
            b.n = 0;
        }
        wire_buf_finish(&b);
        close(fd);
    }
    return NULL;
}

/* ---- what a client does ------------------------------------------------- */

struct seen {
    int n_ends[2]; /* of the two submitted requests */
    bool submitted[2];
    bool text;
};

static void check(int code)
{
    if (code < STEP_E_SYSTEM) {
        armed = false;
        fail_msg("%d is no code", code);
    }
}

static void on_event(void *ctx, const struct step_event *e)
{
    char *json = NULL;

    (void)ctx;
    check(step_event_get_json(e, "", &json));
    free(json);
}

static struct step_request *build(void)
{
    struct step_request *r = NULL;

    check(step_request_create(&r, "generate"));
    if (r != NULL) {
        step_request_add_message(r, "user", STEP_STR("Hello"));
        step_request_add_tool(r, "f", "does", "{\"type\": \"object\"}");
        step_request_set_real(r, "temperature", 0.5);
        step_request_add_str(r, "stop", STEP_STR("x"));
        check(step_request_error(r, NULL));
    }
    return r;
}

static void take(struct step_client *c, struct seen *s)
{
    const struct step_event *e;
    char *json = NULL;

    while ((e = step_client_next(c)) != NULL) {
        int *n_ends = step_event_userdata(e);
        size_t n;
        s->text |= step_event_text(e, &n) != NULL;
        on_event(NULL, e);
        if (step_event_get_json(e, "", &json) == 0) {
            free(json);
        }
        if (n_ends != NULL && (step_event_type(e) == STEP_EVENT_DONE ||
                               step_event_type(e) == STEP_EVENT_ERROR)) {
            ++*n_ends;
        }
    }
}

/* Connects, calls, submits two and cancels one, reads everything. */
static void use(const char *path, struct seen *s)
{
    struct step_client *c = NULL;
    struct step_request *r = build();
    int err = step_client_create(&c);

    check(err);
    if (err == 0 && r != NULL) {
        check(step_client_set_name(c, "a name"));
        check(step_client_connect(c, path));
        check(step_client_call(c, r, on_event, NULL));
        for (int i = 0; i < 2; i++) {
            uint64_t id = 0;
            err = step_client_submit(c, r, &s->n_ends[i], &id);
            check(err);
            s->submitted[i] = err == 0;
            if (err == 0 && i == 0) {
                check(step_client_cancel(c, id));
            }
        }
        while (s->n_ends[0] < s->submitted[0] ||
               s->n_ends[1] < s->submitted[1]) {
            err = step_client_wait(c, -1);
            check(err);
            take(c, s);
            if (err == STEP_E_DISCONNECTED) {
                break;
            }
        }
    }
    step_request_destroy(r);
    step_client_destroy(c);
}

/* One call after the other, until there is none left to fail. */
static int fail_each(enum call call, int error, const char *path)
{
    int n = 0;

    for (;; n++) {
        struct seen s = {0};
        failing = call;
        fail_at = n;
        fail_errno = error;
        n_calls = 0;
        n_live = 0;
        armed = true;
        use(path, &s);
        armed = false;
        bool all = n_calls <= n;
        failing = NONE;
        for (int i = 0; i < 2; i++) {
            if (s.n_ends[i] != s.submitted[i]) {
                fail_msg("%s %d: %d ends", names[call], n, s.n_ends[i]);
            }
        }
        if (n_live != 0) {
            fail_msg("%s %d: %ld allocations leak", names[call], n, n_live);
        }
        if (all) {
            /* Nothing has failed in this round: the service is whole. */
            assert_true(s.submitted[0] && s.submitted[1] && s.text);
            break;
        }
    }
    printf("%s: %d calls\n", names[call], n);
    return n;
}

static void test_each_call_fails_in_turn(void **state)
{
    static const struct {
        enum call call;
        int error;
    } rounds[] = {
#ifndef SANITIZED
        {MALLOC, ENOMEM},
#endif
        {SOCKET, EMFILE},   {CONNECT, EAGAIN}, {CONNECT, ECONNREFUSED},
        {RECV, ECONNRESET}, {RECV, EINTR},     {SEND, ENOBUFS},
        {SEND, EINTR},      {POLL, EINTR},     {POLL, ENOMEM},
    };
    struct daemon *d = *state;
    pthread_t server;

    assert_int_equal(pthread_create(&server, NULL, serve, &d->listener), 0);
    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        int n = fail_each(rounds[i].call, rounds[i].error, d->path);
        assert_true(n >= (rounds[i].call == MALLOC ? 20 : 1));
    }
    shutdown(d->listener, SHUT_RDWR);
    pthread_join(server, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_call_fails_in_turn),
    };
    return test_main(tests, NULL, NULL);
}
