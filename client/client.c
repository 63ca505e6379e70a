/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * libstepclient's handle as its caller sees it: connect, submit, cancel, the
 * functions of an event loop and the two that block. What moves bytes and
 * events is client_io.c. No thread, no timer, no state outside the handle; all
 * runs on the caller's thread.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/client_priv.h"
#include "config.h"

/* ---- creation ----------------------------------------------------------- */

int step_client_create(struct step_client **ret)
{
    struct step_client *c = calloc(1, sizeof(*c));

    if (c == NULL) {
        return STEP_E_NO_MEMORY;
    }
    c->fd = -1;
    c->last = &c->first;
    /* Submit stops at CLIENT_MAX_OUT; room for one frame and cancels more. */
    wire_buf_init(&c->out, 2 * CLIENT_MAX_OUT);
    wire_buf_init(&c->in, (size_t)2 * WIRE_MAX_FRAME);
    *ret = c;
    return 0;
}

void step_client_destroy(struct step_client *c)
{
    if (c == NULL) {
        return;
    }
    if (c->fd >= 0) {
        close(c->fd);
    }
    while (c->pending != NULL) {
        struct pending *p = c->pending;
        c->pending = p->next;
        client_free_pending(p);
    }
    while (c->first != NULL) {
        struct step_event *e = c->first;
        c->first = e->next;
        client_event_free(e);
    }
    client_event_free(c->taken);
    client_event_free(c->hello);
    wire_buf_finish(&c->out);
    wire_buf_finish(&c->in);
    free(c->name);
    free(c);
}

int step_client_set_name(struct step_client *c, const char *name)
{
    char *copy = strdup(name);

    if (copy == NULL) {
        return STEP_E_NO_MEMORY;
    }
    free(c->name);
    c->name = copy;
    return 0;
}

/* ---- connecting --------------------------------------------------------- */

/* A path has a slash or ends like a socket; anything else is an instance. */
static bool is_path(const char *where)
{
    size_t n = strlen(where);

    return strchr(where, '/') != NULL ||
           (n >= 5 && strcmp(where + n - 5, ".sock") == 0);
}

/* The i-th place to look at, or false after the last. */
static bool candidate(const char *where, int i, char *buf, size_t size,
                      int *ret_n)
{
    const char *env = where == NULL ? getenv("STEPD_SOCKET") : NULL;
    const char *run = where == NULL ? getenv("XDG_RUNTIME_DIR") : NULL;

    if (where == NULL && env != NULL && env[0] != '\0') {
        where = env;
    }
    if (where != NULL && is_path(where)) {
        *ret_n = snprintf(buf, size, "%s", where);
        return i == 0;
    }
    if (where != NULL) {
        *ret_n = snprintf(buf, size, "%s/%s.sock", STEPD_RUNDIR, where);
        return i == 0;
    }
    if (run == NULL || run[0] == '\0') {
        i++;
    }
    if (i == 0) {
        *ret_n = snprintf(buf, size, "%s/stepd/stepd.sock", run);
    } else {
        *ret_n = snprintf(buf, size, "%s/stepd.sock", STEPD_RUNDIR);
    }
    return i < 2;
}

/* A connected socket, or -errno. connect on a Unix socket never waits when it
 * is non-blocking: a full queue is EAGAIN. */
static int connect_to(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return -errno;
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

static int connect_code(int err)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
    case ENOTSOCK:
        return STEP_E_NO_DAEMON;
    case EACCES:
    case EPERM:
        return STEP_E_DENIED;
    case EAGAIN:
        return STEP_E_BUSY;
    case ENOMEM:
        return STEP_E_NO_MEMORY;
    default:
        return STEP_E_SYSTEM;
    }
}

static struct pending *pending_new(struct step_client *c, void *userdata)
{
    struct pending *p = calloc(1, sizeof(*p));
    struct step_event *end = calloc(1, sizeof(*end));

    if (p == NULL || end == NULL) {
        free(p);
        free(end);
        return NULL;
    }
    p->id = ++c->last_id;
    p->userdata = userdata;
    p->end = end;
    wire_buf_init(&p->held, WIRE_HEADER_SIZE + (size_t)WIRE_MAX_FRAME);
    wire_buf_init(&p->need, WIRE_MAX_FRAME);
    return p;
}

static void pending_append(struct step_client *c, struct pending *p)
{
    *client_find(c, 0) = p;
}

static int queue_hello(struct step_client *c)
{
    static const char default_name[] = "libstepclient " PACKAGE_VERSION;
    struct pending *p = pending_new(c, NULL);
    struct wire_map m, list;

    if (p == NULL) {
        return STEP_E_NO_MEMORY;
    }
    wire_map_begin_request(&m, &c->out, p->id, "hello");
    wire_map_uint(&m, "version_min", WIRE_VERSION_MIN);
    wire_map_uint(&m, "version_max", WIRE_VERSION_MAX);
    wire_map_str(&m, "client_name", c->name != NULL ? c->name : default_name);
    wire_map_open_list(&m, "features", &list);
    wire_map_close(&list);
    if (wire_map_end(&m) != 0) {
        c->out.err = 0;
        client_free_pending(p);
        return STEP_E_NO_MEMORY;
    }
    p->internal = true;
    c->hello_id = p->id;
    pending_append(c, p);
    return 0;
}

int step_client_connect(struct step_client *c, const char *where)
{
    char path[4096];
    int n = 0, fd = -ENOENT;

    if (c->fd >= 0) {
        return STEP_E_INVALID;
    }
    for (int i = 0;
         fd == -ENOENT && candidate(where, i, path, sizeof(path), &n); i++) {
        if (n >= (int)sizeof(c->path)) {
            errno = ENAMETOOLONG;
            return STEP_E_INVALID;
        }
        memcpy(c->path, path, (size_t)n + 1);
        fd = connect_to(c->path);
    }
    if (fd < 0) {
        errno = -fd;
        return connect_code(-fd);
    }
    client_event_free(c->hello);
    c->hello = NULL;
    c->no_write = c->eof = false;
    c->gone = 0;
    c->why[0] = '\0';
    int err = queue_hello(c);
    if (err != 0) {
        close(fd);
        return err;
    }
    c->fd = fd;
    return 0;
}

const char *step_client_path(const struct step_client *c)
{
    return c->path;
}

/* ---- submitting --------------------------------------------------------- */

bool step_client_has_feature(const struct step_client *c, const char *word)
{
    size_t n = 0, len = strlen(word);

    if (c->hello == NULL ||
        step_event_get_count(c->hello, "features", &n) != 0) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char path[40];
        const char *s;
        size_t n_s;
        snprintf(path, sizeof(path), "features.%zu", i);
        if (step_event_get_str(c->hello, path, &s, &n_s) == 0 && n_s == len &&
            memcmp(s, word, len) == 0) {
            return true;
        }
    }
    return false;
}

/* The features that a request stands on: its op and its keys. */
static void list_needs(struct wire_buf *b, const struct step_request *r)
{
    wire_buf_put(b, "op.", 3);
    wire_buf_put(b, r->op, strlen(r->op) + 1);
    for (size_t i = 0; i < r->n_keys; i++) {
        const char *name = r->key[i].name;
        if (strncmp(name, "x_", 2) != 0) {
            wire_buf_put(b, "key.", 4);
            wire_buf_put(b, name, strlen(name) + 1);
        }
    }
}

/* What waits to go out, held requests included. */
static size_t out_bytes(const struct step_client *c)
{
    size_t n = c->out.n - c->out_at;

    for (const struct pending *p = c->pending; p != NULL; p = p->next) {
        n += p->held.n;
    }
    return n;
}

int step_client_submit(struct step_client *c, const struct step_request *r,
                       void *userdata, uint64_t *ret_id)
{
    struct pending *p;

    if (r->err != 0) {
        return r->err;
    }
    if (c->fd < 0 || c->eof) {
        return STEP_E_DISCONNECTED;
    }
    if (out_bytes(c) > CLIENT_MAX_OUT) {
        return STEP_E_BUSY;
    }
    p = pending_new(c, userdata);
    if (p == NULL) {
        return STEP_E_NO_MEMORY;
    }
    list_needs(&p->need, r);
    int err = client_encode(r, p->id, &p->held);
    if (err == 0) {
        err = p->need.err;
    }
    if (err != 0) {
        client_free_pending(p);
        return err == -E2BIG ? STEP_E_TOO_LONG : STEP_E_NO_MEMORY;
    }
    if (ret_id != NULL) {
        *ret_id = p->id;
    }
    struct pending **at = client_find(c, 0);
    *at = p;
    if (c->hello != NULL) {
        client_release(c, at);
    }
    return 0;
}

int step_client_cancel(struct step_client *c, uint64_t id)
{
    struct pending **at = client_find(c, id);
    struct pending *p;
    struct wire_map m;

    if (*at == NULL || (*at)->internal) {
        return STEP_E_NOT_FOUND;
    }
    if (c->hello == NULL) {
        /* It never went out: there is nobody to say so but us. */
        client_end(c, at, 0, "");
        return 0;
    }
    p = pending_new(c, NULL);
    if (p == NULL) {
        return STEP_E_NO_MEMORY;
    }
    wire_map_begin_request(&m, &c->out, p->id, "cancel");
    wire_map_uint(&m, "target", id);
    if (wire_map_end(&m) != 0) {
        c->out.err = 0;
        client_free_pending(p);
        return STEP_E_NO_MEMORY;
    }
    p->internal = true;
    pending_append(c, p);
    return 0;
}

/* ---- the caller's loop -------------------------------------------------- */

int step_client_get_fd(const struct step_client *c)
{
    return c->fd;
}

int step_client_get_events(const struct step_client *c)
{
    int events = 0;

    if (c->fd < 0) {
        return 0;
    }
    if (!c->eof && !client_queue_full(c)) {
        events |= POLLIN;
    }
    if (!c->no_write && c->out_at < c->out.n) {
        events |= POLLOUT;
    }
    return events;
}

int step_client_get_timeout(const struct step_client *c)
{
    return c->first != NULL ? 0 : -1;
}

int step_client_dispatch(struct step_client *c)
{
    if (c->fd < 0) {
        return STEP_E_DISCONNECTED;
    }
    client_write(c);
    client_read(c);
    if (c->fd >= 0) {
        /* Hello may have released requests. */
        client_write(c);
    }
    return 0;
}

const struct step_event *step_client_next(struct step_client *c)
{
    client_event_free(c->taken);
    c->taken = client_take(c, 0);
    return c->taken;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* One poll and dispatch. 0, STEP_E_TIMEOUT, STEP_E_DISCONNECTED, STEP_E_SYSTEM.
 */
static int step_once(struct step_client *c, int64_t until)
{
    struct pollfd p = {.fd = c->fd, .events = (short)step_client_get_events(c)};
    int timeout = -1;

    if (c->fd < 0) {
        return STEP_E_DISCONNECTED;
    }
    if (until >= 0) {
        int64_t left = until - now_ms();
        timeout = left > 0 ? (int)left : 0;
    }
    int n = poll(&p, 1, timeout);
    if (n < 0) {
        return STEP_E_SYSTEM;
    }
    return n == 0 ? STEP_E_TIMEOUT : step_client_dispatch(c);
}

int step_client_wait(struct step_client *c, int timeout_ms)
{
    int64_t until = timeout_ms >= 0 ? now_ms() + timeout_ms : -1;
    int err = 0;

    while (err == 0 && c->first == NULL) {
        err = step_once(c, until);
    }
    return c->first != NULL ? 1 : err;
}

/* Waits for the next event of a request that is pending; there will be one. */
static struct step_event *wait_for(struct step_client *c, uint64_t id)
{
    struct step_event *e;

    while ((e = client_take(c, id)) == NULL) {
        if (step_once(c, -1) == STEP_E_SYSTEM && errno != EINTR) {
            client_give_up(c, STEP_E_SYSTEM, step_strerror(STEP_E_SYSTEM), "");
            client_take_frames(c);
        }
    }
    return e;
}

int step_client_call(struct step_client *c, const struct step_request *r,
                     step_event_fn fn, void *ctx)
{
    uint64_t id;
    bool last = false;
    int code = step_client_submit(c, r, NULL, &id);

    c->calling = true;
    while (code == 0 && !last) {
        struct step_event *e = wait_for(c, id);
        if (fn != NULL) {
            fn(ctx, e);
        }
        last = e->type == STEP_EVENT_DONE || e->type == STEP_EVENT_ERROR;
        code = e->code;
        client_event_free(e);
    }
    c->calling = false;
    return code;
}

const struct step_event *step_client_hello(const struct step_client *c)
{
    return c->hello;
}
