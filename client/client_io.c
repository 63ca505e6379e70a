/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What moves in a client: bytes in and out of the socket, frames to events,
 * events to the queue, requests to their end. Called by client.c on the
 * caller's thread, never blocks.
 *
 * The invariant: a request is on the list of pending ones until its final event
 * is queued, and an event that the library must make up itself was allocated
 * with the request. So each request ends once, whatever fails.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client_priv.h"

/* Buffers larger than this are given back when they run empty. */
#define KEEP_BYTES ((size_t)1 << 20)

/* ---- the queue ---------------------------------------------------------- */

static void queue_event(struct step_client *c, struct step_event *e)
{
    e->next = NULL;
    *c->last = e;
    c->last = &e->next;
    c->n_events++;
    c->event_bytes += e->n;
}

struct step_event *client_take(struct step_client *c, uint64_t id)
{
    struct step_event **at = &c->first;

    while (*at != NULL && id != 0 && (*at)->id != id) {
        at = &(*at)->next;
    }
    struct step_event *e = *at;
    if (e == NULL) {
        return NULL;
    }
    *at = e->next;
    if (e->next == NULL) {
        c->last = at;
    }
    c->n_events--;
    c->event_bytes -= e->n;
    if (c->fd >= 0) {
        /* A full queue may have left whole frames in the input. */
        client_take_frames(c);
    }
    return e;
}

bool client_queue_full(const struct step_client *c)
{
    return !c->calling && (c->n_events >= CLIENT_MAX_EVENTS ||
                           c->event_bytes >= CLIENT_MAX_EVENT_BYTES);
}

/* ---- pending requests --------------------------------------------------- */

void client_free_pending(struct pending *p)
{
    wire_buf_finish(&p->held);
    wire_buf_finish(&p->need);
    client_event_free(p->end);
    free(p);
}

struct pending **client_find(struct step_client *c, uint64_t id)
{
    struct pending **at = &c->pending;

    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

static void forget(struct pending **at)
{
    struct pending *p = *at;

    *at = p->next;
    client_free_pending(p);
}

void client_end(struct step_client *c, struct pending **at, int code,
                const char *why)
{
    struct pending *p = *at;
    struct step_event *e = p->end;

    if (!p->internal) {
        e->type = code != 0 ? STEP_EVENT_ERROR : STEP_EVENT_DONE;
        e->id = p->id;
        e->userdata = p->userdata;
        e->code = code;
        snprintf(e->message, sizeof(e->message), "%s", why);
        p->end = NULL;
        queue_event(c, e);
    }
    forget(at);
}

struct pending **client_release(struct step_client *c, struct pending **at)
{
    struct pending *p = *at;
    const char *word = (const char *)p->need.p;
    const char *end = word + p->need.n;
    char why[256];

    for (; word < end; word += strlen(word) + 1) {
        if (!step_client_has_feature(c, word)) {
            snprintf(why, sizeof(why), "this daemon does not know the %s %s",
                     word[0] == 'o' ? "operation" : "key",
                     strchr(word, '.') + 1);
            client_end(c, at, STEP_E_UNSUPPORTED, why);
            return at;
        }
    }
    wire_buf_put(&c->out, p->held.p, p->held.n);
    if (c->out.err != 0) {
        c->out.err = 0;
        client_end(c, at, STEP_E_NO_MEMORY, step_strerror(STEP_E_NO_MEMORY));
        return at;
    }
    wire_buf_finish(&p->held);
    wire_buf_finish(&p->need);
    return &p->next;
}

/* ---- the end of the connection ------------------------------------------ */

/* The first cause is the one that is told. */
static void set_cause(struct step_client *c, int code, const char *what,
                      const char *more)
{
    if (c->gone == 0) {
        c->gone = code;
        snprintf(c->why, sizeof(c->why), "%.350s%s%.150s", what,
                 more[0] != '\0' ? ": " : "", more);
    }
}

void client_give_up(struct step_client *c, int code, const char *what,
                    const char *more)
{
    set_cause(c, code, what, more);
    c->eof = true;
    c->in_at = c->in.n;
}

/* Everything pending ends, in order of submission. */
static void finish(struct step_client *c)
{
    set_cause(c, STEP_E_DISCONNECTED, step_strerror(STEP_E_DISCONNECTED), "");
    close(c->fd);
    c->fd = -1;
    while (c->pending != NULL) {
        client_end(c, &c->pending, c->gone, c->why);
    }
    wire_buf_finish(&c->out);
    wire_buf_finish(&c->in);
    c->out_at = c->in_at = 0;
}

/* ---- events ------------------------------------------------------------- */

static void message_of(const struct step_event *e, char *buf, size_t size)
{
    const char *s = "";
    size_t n = 0;

    (void)step_event_get_str(e, "message", &s, &n);
    snprintf(buf, size, "%.*s", (int)(n < size ? n : size), s);
}

/* Before hello there is only its answer, under its id or under 0. */
static void take_hello(struct step_client *c, struct step_event *e)
{
    char why[351];

    if (e->type == STEP_EVENT_ERROR) {
        /* The daemon's own words, where it has some, say it better. */
        message_of(e, why, sizeof(why));
        client_give_up(c, e->code,
                       why[0] != '\0' ? why : step_strerror(e->code), "");
        client_event_free(e);
        return;
    }
    if (e->id != c->hello_id || strcmp(step_event_name(e), "hello") != 0) {
        client_give_up(c, STEP_E_BAD_FRAME, step_strerror(STEP_E_BAD_FRAME),
                       "the daemon's first event is not hello");
        client_event_free(e);
        return;
    }
    c->hello = e;
    forget(client_find(c, c->hello_id));
    for (struct pending **at = &c->pending; *at != NULL;) {
        at = client_release(c, at);
    }
}

static void take_event(struct step_client *c, struct step_event *e)
{
    bool last = e->type == STEP_EVENT_DONE || e->type == STEP_EVENT_ERROR;

    if (c->hello == NULL) {
        take_hello(c, e);
        return;
    }
    if (e->id == 0) {
        char why[200];
        message_of(e, why, sizeof(why));
        if (e->code == STEP_E_BAD_FRAME) {
            /* The daemon will close: this is why. */
            set_cause(c, STEP_E_DISCONNECTED, step_strerror(e->code), why);
        }
        queue_event(c, e);
        return;
    }
    struct pending **at = client_find(c, e->id);
    if (*at == NULL || (*at)->internal) {
        client_event_free(e);
    } else {
        e->userdata = (*at)->userdata;
        queue_event(c, e);
    }
    if (*at != NULL && last) {
        forget(at);
    }
}

/* ---- bytes in ----------------------------------------------------------- */

/* The next whole frame in the input: its body's size, 0 when it is not whole,
 * or a negative code. */
static int next_frame(struct step_client *c, struct wire_error *err)
{
    size_t have = c->in.n - c->in_at;

    if (have < WIRE_HEADER_SIZE) {
        return 0;
    }
    int n = wire_frame_size(c->in.p + c->in_at, WIRE_MAX_FRAME, err);
    return n > 0 && have - WIRE_HEADER_SIZE < (size_t)n ? 0 : n;
}

/* The frame of n bytes at the front of the input to an event. NULL: gives up.
 */
static struct step_event *decode_frame(struct step_client *c, size_t n,
                                       struct wire_error *err)
{
    struct wire_event *w = NULL;
    struct step_event *e = NULL;
    const uint8_t *body = c->in.p + c->in_at + WIRE_HEADER_SIZE;
    int code = wire_decode_event(body, n, &w, err);

    if (code == 0) {
        e = client_event_new(w);
        code = e == NULL ? WIRE_E_NO_MEMORY : 0;
    }
    if (code == WIRE_E_NO_MEMORY) {
        client_give_up(c, STEP_E_NO_MEMORY, step_strerror(STEP_E_NO_MEMORY),
                       "");
    } else if (code != 0) {
        client_give_up(c, STEP_E_DISCONNECTED, step_strerror(STEP_E_BAD_FRAME),
                       err->message);
    } else {
        e->n = n;
        c->in_at += WIRE_HEADER_SIZE + n;
    }
    return e;
}

void client_take_frames(struct step_client *c)
{
    struct wire_error err;
    int n = 0;

    while (!client_queue_full(c)) {
        n = next_frame(c, &err);
        if (n <= 0) {
            break;
        }
        struct step_event *e = decode_frame(c, (size_t)n, &err);
        if (e != NULL) {
            take_event(c, e);
        }
    }
    if (n < 0) {
        client_give_up(c, STEP_E_DISCONNECTED, step_strerror(STEP_E_BAD_FRAME),
                       err.message);
    }
    if (c->in_at == c->in.n) {
        c->in.n = c->in_at = 0;
        if (c->in.cap > KEEP_BYTES) {
            wire_buf_finish(&c->in);
        }
    }
    if (c->eof) {
        finish(c);
    }
}

/* Room to read into, behind what is left of the input. */
static bool make_room(struct step_client *c)
{
    if (c->in_at > 0) {
        memmove(c->in.p, c->in.p + c->in_at, c->in.n - c->in_at);
        c->in.n -= c->in_at;
        c->in_at = 0;
    }
    return wire_buf_reserve(&c->in, 4096);
}

void client_read(struct step_client *c)
{
    size_t got = 0;

    while (!c->eof && !client_queue_full(c) && got < CLIENT_MAX_READ) {
        if (!make_room(c)) {
            client_give_up(c, STEP_E_NO_MEMORY, step_strerror(STEP_E_NO_MEMORY),
                           "");
            break;
        }
        ssize_t n =
            recv(c->fd, c->in.p + c->in.n, c->in.cap - c->in.n, MSG_DONTWAIT);
        if (n > 0) {
            c->in.n += (size_t)n;
            got += (size_t)n;
            client_take_frames(c);
            if (c->fd < 0) {
                return;
            }
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            /* Whole frames that are left are taken still. */
            c->eof = true;
        } else if (errno == EAGAIN) {
            break;
        }
    }
    client_take_frames(c);
}

/* ---- bytes out ---------------------------------------------------------- */

void client_write(struct step_client *c)
{
    while (!c->no_write && c->out_at < c->out.n) {
        ssize_t n = send(c->fd, c->out.p + c->out_at, c->out.n - c->out_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            c->out_at += (size_t)n;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            /* What the daemon said before it closed is still to be read: it may
             * be the reason. One that has not closed is told that nothing more
             * comes; then it does, and the wait for its words ends. */
            c->no_write = true;
            (void)shutdown(c->fd, SHUT_WR);
        }
    }
    if (c->out_at == c->out.n) {
        c->out.n = c->out_at = 0;
        if (c->out.cap > KEEP_BYTES) {
            wire_buf_finish(&c->out);
        }
    } else if (c->out_at > c->out.n / 2) {
        memmove(c->out.p, c->out.p + c->out_at, c->out.n - c->out_at);
        c->out.n -= c->out_at;
        c->out_at = 0;
    }
}
