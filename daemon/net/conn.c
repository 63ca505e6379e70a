/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One connection: reads, splits frames, queues output, keeps the limits, ends.
 *
 * Owns the descriptor, both buffers and the timers. I/O thread. Knows lengths,
 * not contents. The invariants:
 *   - no callback frees a connection: conn_kill marks it, the sweep at the end
 *     of the loop frees it, so whoever holds one in a callback may go on;
 *   - `in` grows with the bytes that came, not with the length that a header
 *     claims, and its bytes are on the account of the user;
 *   - output waits in one queue; over the soft limit the jobs pause, over the
 *     hard one nothing is read, and the clock of slow_client_timeout runs; in
 *     between, where nothing grows any more, one that only waits for a byte to
 *     be taken, so that no job is paused for ever;
 *   - ops->gone is called exactly once, on the way out of CONN_OPEN.
 *
 * Output is written at the end of the loop, not when it is put: many deltas of
 * one step leave in one write. An error is the last thing that a client gets to
 * read, so a connection that ends by it is not simply closed: on a Unix socket
 * that would break the pipe under a client that is still sending. It is shut
 * for writing, and read and ignored until the client closes or CONN_LINGER_S.
 */

#include "daemon/net/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/conf.h"
#include "daemon/base/die.h"

#define IN_SLACK CONN_READ_BYTES /* a read may hold the next frame's start */

/* ---- the shared part ---------------------------------------------------- */

static void conn_destroy(struct conn *c)
{
    struct conn_host *h = c->host;

    h->ops->swept(c);
    ev_io_stop(h->loop, &c->rd);
    ev_io_stop(h->loop, &c->wr);
    ev_timer_stop(h->loop, &c->frame_timer);
    ev_timer_stop(h->loop, &c->slow_timer);
    ev_timer_stop(h->loop, &c->linger_timer);
    c->account->unfinished -= c->charged;
    c->account->n_conns--;
    account_put(&h->accounts, c->account);
    buf_finish(&c->in);
    buf_finish(&c->out);
    close(c->fd);
    free(c);
}

/* The end of each turn of the loop. Flushing may bring new output (a frame that
 * waited for room is answered), so it goes on until nothing is pending. */
static void on_tail(struct ev_loop *loop, ev_prepare *w, int revents)
{
    struct conn_host *h = w->data;
    struct conn *c;

    (void)loop;
    (void)revents;
    while ((c = h->pending) != NULL) {
        h->pending = c->next_pending;
        c->is_pending = false;
        conn_flush(c);
    }
    while ((c = h->doomed) != NULL) {
        h->doomed = c->next_doomed;
        conn_destroy(c);
    }
}

void conn_host_init(struct conn_host *h, struct ev_loop *loop,
                    const struct conf *conf, const struct conn_ops *ops,
                    void *ctx)
{
    memset(h, 0, sizeof(*h));
    h->loop = loop;
    h->conf = conf;
    h->ops = ops;
    h->ctx = ctx;
    ev_prepare_init(&h->tail, on_tail);
    h->tail.data = h;
    ev_prepare_start(loop, &h->tail);
}

void conn_host_finish(struct conn_host *h)
{
    on_tail(h->loop, &h->tail, 0);
    ev_prepare_stop(h->loop, &h->tail);
    accounts_finish(&h->accounts);
}

/* ---- ends --------------------------------------------------------------- */

static void leave_open(struct conn *c)
{
    struct conn_host *h = c->host;

    if (c->state != CONN_OPEN) {
        return;
    }
    c->state = CONN_CLOSING;
    ev_timer_stop(h->loop, &c->frame_timer);
    h->ops->gone(c);
}

void conn_kill(struct conn *c)
{
    struct conn_host *h = c->host;

    if (c->state == CONN_DEAD) {
        return;
    }
    leave_open(c);
    c->state = CONN_DEAD;
    ev_io_stop(h->loop, &c->rd);
    ev_io_stop(h->loop, &c->wr);
    ev_timer_stop(h->loop, &c->slow_timer);
    ev_timer_stop(h->loop, &c->linger_timer);
    c->next_doomed = h->doomed;
    h->doomed = c;
}

static void mark_pending(struct conn *c)
{
    if (!c->is_pending && c->state != CONN_DEAD) {
        c->is_pending = true;
        c->next_pending = c->host->pending;
        c->host->pending = c;
    }
}

/* The clock of slow readers, from now on. */
static void time_reader(struct conn *c, int times)
{
    c->slow_timer.repeat =
        (double)c->host->conf->slow_client_timeout / 1e3 * times;
    ev_timer_again(c->host->loop, &c->slow_timer);
}

void conn_close(struct conn *c)
{
    if (c->state != CONN_OPEN) {
        return;
    }
    leave_open(c);
    /* The reader gets as long for the rest as a slow one gets. Input is still
     * read, to throw it away and to see the other end close. */
    time_reader(c, 1);
    ev_io_start(c->host->loop, &c->rd);
    mark_pending(c);
}

void conn_fail(struct conn *c, int code, const char *message)
{
    struct wire_buf b;

    wire_buf_init(&b, WIRE_MAX_FRAME_HELLO);
    (void)wire_put_error(&b, 0, code, message, NULL,
                         code == WIRE_E_BUSY ? CONN_RETRY_MS : 0);
    conn_put(c, &b);
    wire_buf_finish(&b);
    conn_close(c);
}

static void on_linger_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)revents;
    conn_kill(w->data);
}

/* Everything is sent: no more from us, and a while for the other end. */
static void linger(struct conn *c)
{
    c->state = CONN_LINGER;
    ev_timer_stop(c->host->loop, &c->slow_timer);
    if (shutdown(c->fd, SHUT_WR) < 0) {
        conn_kill(c);
        return;
    }
    ev_timer_start(c->host->loop, &c->linger_timer);
}

/* ---- input -------------------------------------------------------------- */

static uint32_t frame_limit(const struct conn *c)
{
    return c->said_hello ? WIRE_MAX_FRAME : WIRE_MAX_FRAME_HELLO;
}

/* The clock runs while a frame is incomplete, and from the connect until the
 * first one is; it starts anew with each frame. Not while we do not read. */
static void time_frame(struct conn *c, bool new_frame)
{
    struct ev_loop *loop = c->host->loop;
    bool wanted =
        c->state == CONN_OPEN && !c->hard && (c->in.n > 0 || !c->said_hello);

    if (!wanted || new_frame) {
        ev_timer_stop(loop, &c->frame_timer);
    }
    if (wanted && !ev_is_active(&c->frame_timer)) {
        ev_timer_again(loop, &c->frame_timer);
    }
}

static void on_frame_timeout(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct conn *c = w->data;
    char text[128];

    (void)loop;
    (void)revents;
    c->host->n_timeouts++;
    (void)snprintf(text, sizeof(text), "%s did not arrive within %llu ms",
                   c->said_hello ? "a frame" : "hello",
                   (unsigned long long)c->host->conf->frame_timeout);
    conn_fail(c, WIRE_E_BAD_FRAME, text);
}

/* Puts what is left in `in` on the account. */
static void charge(struct conn *c)
{
    c->account->unfinished += c->in.n;
    c->account->unfinished -= c->charged;
    c->charged = c->in.n;
    if (c->account->unfinished > c->host->conf->max_unfinished_per_uid) {
        conn_fail(c, WIRE_E_BUSY,
                  "too many bytes of unfinished frames of this user");
    }
}

/* Hands over the frames that are complete, as long as there is room for the
 * answers. */
static void split_frames(struct conn *c)
{
    bool any = false, hello_before = c->said_hello;
    struct wire_error err;
    int size;

    while (c->state == CONN_OPEN && !c->hard && c->in.n >= WIRE_HEADER_SIZE) {
        size = wire_frame_size(buf_data(&c->in), frame_limit(c), &err);
        if (size < 0) {
            conn_fail(c, size, err.message);
            return;
        }
        if (c->in.n - WIRE_HEADER_SIZE < (size_t)size) {
            break;
        }
        c->host->ops->frame(c, buf_data(&c->in) + WIRE_HEADER_SIZE,
                            (size_t)size);
        buf_consume(&c->in, WIRE_HEADER_SIZE + (size_t)size);
        any = true;
    }
    if (c->state == CONN_OPEN) {
        charge(c);
    }
    /* Before hello the clock does not start anew with each refused frame. */
    time_frame(c, any && (hello_before || c->said_hello));
}

/* What a peer sends to a connection that is ending. */
static void throw_away(struct conn *c)
{
    uint8_t bytes[4096];
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        conn_kill(c);
    }
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
    struct conn *c = w->data;
    size_t room = CONN_READ_BYTES;
    uint8_t *p;
    ssize_t n;

    (void)loop;
    (void)revents;
    if (c->state != CONN_OPEN) {
        throw_away(c);
        return;
    }
    /* Small at first and as much as came so far later: growth follows bytes. */
    if (c->in.n < room) {
        room = c->in.n > 4096 ? c->in.n : 4096;
    }
    if (!c->said_hello && room > WIRE_HEADER_SIZE + WIRE_MAX_FRAME_HELLO) {
        room = WIRE_HEADER_SIZE + WIRE_MAX_FRAME_HELLO;
    }
    if (buf_room(&c->in, room, &p) < 0) {
        conn_fail(c, WIRE_E_NO_MEMORY, "no memory for this frame");
        return;
    }
    n = recv(c->fd, p, room, MSG_DONTWAIT);
    if (n == 0) { /* the other end is gone: no half-close */
        conn_kill(c);
    } else if (n > 0) {
        buf_added(&c->in, (size_t)n);
        c->host->bytes_in += (uint64_t)n;
        split_frames(c);
    } else if (errno != EAGAIN && errno != EINTR) {
        conn_kill(c);
    }
}

/* ---- output ------------------------------------------------------------- */

/* After each change of out.n. Going down, half a limit is waited for, so that
 * a connection near a limit does not flap. */
static void check_limits(struct conn *c)
{
    struct conn_host *h = c->host;
    size_t soft = h->conf->max_output_soft, hard = h->conf->max_output_hard;

    if (c->state != CONN_OPEN) {
        return;
    }
    if (!c->soft && c->out.n > soft) {
        c->soft = true;
        time_reader(c, CONN_STALLED);
        h->ops->slow(c, true);
    } else if (c->soft && c->out.n <= soft / 2) {
        c->soft = false;
        if (!c->hard) {
            ev_timer_stop(h->loop, &c->slow_timer);
        }
        h->ops->slow(c, false);
    }
    if (!c->hard && c->out.n > hard) {
        c->hard = true;
        ev_io_stop(h->loop, &c->rd);
        time_reader(c, 1);
        time_frame(c, false);
    } else if (c->hard && c->out.n <= hard / 2) {
        c->hard = false;
        if (c->soft) {
            time_reader(c, CONN_STALLED);
        } else {
            ev_timer_stop(h->loop, &c->slow_timer);
        }
        ev_io_start(h->loop, &c->rd);
        split_frames(c); /* what was read before reading stopped */
    }
}

static void on_too_slow(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct conn *c = w->data;

    (void)loop;
    (void)revents;
    c->host->n_slow++;
    conn_kill(c);
}

void conn_put(struct conn *c, struct wire_buf *b)
{
    int r = b->err;

    if (c->state == CONN_OPEN) {
        if (r == 0) {
            r = buf_put(&c->out, b->p, b->n);
        }
        if (r < 0) {
            conn_kill(c); /* a frame is missing: the stream is worth nothing */
        } else {
            mark_pending(c);
            check_limits(c);
        }
    }
    b->n = 0;
    b->err = 0;
}

bool conn_flushed(const struct conn *c)
{
    return c->out.n == 0 || c->state == CONN_DEAD;
}

void conn_flush(struct conn *c)
{
    struct ev_loop *loop = c->host->loop;
    bool taken = false;
    ssize_t n;

    while (c->out.n > 0 && c->state <= CONN_CLOSING) {
        n = send(c->fd, buf_data(&c->out), c->out.n,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            buf_consume(&c->out, (size_t)n);
            c->host->bytes_out += (uint64_t)n;
            taken = true;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            conn_kill(c);
            return;
        }
    }
    if (c->state > CONN_CLOSING) {
        return;
    }
    if (c->out.n > 0) {
        ev_io_start(loop, &c->wr);
    } else {
        ev_io_stop(loop, &c->wr);
        if (c->state == CONN_CLOSING) {
            linger(c);
            return;
        }
    }
    if (taken && c->state == CONN_OPEN && c->soft && !c->hard) {
        time_reader(c, CONN_STALLED);
    }
    check_limits(c);
}

static void on_writable(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop;
    (void)revents;
    conn_flush(w->data);
}

/* ---- the beginning ------------------------------------------------------ */

struct conn *conn_create(struct conn_host *h, int fd, const struct peer *peer,
                         uint64_t id)
{
    struct conn *c = xcalloc(1, sizeof(*c));

    c->host = h;
    c->id = id;
    c->fd = fd;
    c->peer = *peer;
    c->account = account_get(&h->accounts, peer->uid, "");
    c->account->n_conns++;
    buf_init(&c->in, WIRE_HEADER_SIZE + WIRE_MAX_FRAME + IN_SLACK);
    buf_init(&c->out, h->conf->max_output_hard + CONN_OUT_SLACK);
    ev_io_init(&c->rd, on_readable, fd, EV_READ);
    ev_io_init(&c->wr, on_writable, fd, EV_WRITE);
    ev_timer_init(&c->frame_timer, on_frame_timeout, 0.,
                  (double)h->conf->frame_timeout / 1e3);
    ev_timer_init(&c->slow_timer, on_too_slow, 0., 0.); /* time_reader */
    ev_timer_init(&c->linger_timer, on_linger_over, CONN_LINGER_S, 0.);
    /* After a stall of ours, what came meanwhile is read before the clock. */
    ev_set_priority(&c->frame_timer, EV_MINPRI);
    ev_set_priority(&c->slow_timer, EV_MINPRI);
    c->rd.data = c->wr.data = c;
    c->frame_timer.data = c->slow_timer.data = c->linger_timer.data = c;
    ev_io_start(h->loop, &c->rd);
    time_frame(c, false);
    return c;
}
