/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_CONN_H
#define STEPD_DAEMON_NET_CONN_H

/*
 * One connection as a stream of frames in both directions. What the frames mean
 * is said by server.c, through struct conn_ops.
 */

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/wire.h"
#include "daemon/base/buf.h"
#include "daemon/net/account.h"
#include "daemon/net/peer.h"

struct conf;
struct conn;
struct flight;

#define CONN_READ_BYTES (64u << 10) /* a wake; others want their turn */
/* Output over max_output_hard: what the requests that are still running may
 * add. A connection that passes this too is dropped at once. */
#define CONN_OUT_SLACK (4 * (size_t)WIRE_MAX_FRAME)
/* How long a closed connection is still read, so that its client gets to read
 * the last error instead of a broken pipe. */
#define CONN_LINGER_S 2.0
/* slow_client_timeouts that one above the soft limit may take nothing for. */
#define CONN_STALLED 10
#define CONN_RETRY_MS 1000 /* what `busy` advises */

enum conn_state {
    CONN_OPEN,
    CONN_CLOSING, /* output is flushed, input is thrown away */
    CONN_LINGER,  /* all is sent, we wait for the other end to close */
    CONN_DEAD     /* to be swept at the end of the loop */
};

/* None of these may free the connection; all may call conn_put, conn_close and
 * conn_kill on it. */
struct conn_ops {
    /* One whole frame's body; n is 1 .. the limit. */
    void (*frame)(struct conn *c, const uint8_t *body, size_t n);
    /* Output passed the soft limit (true), or fell well below it. */
    void (*slow)(struct conn *c, bool slow);
    /* No more frames will come, nothing that is put will be sent. Once. */
    void (*gone)(struct conn *c);
    /* The last call: c is freed next. */
    void (*swept)(struct conn *c);
};

/* What connections share. */
struct conn_host {
    struct ev_loop *loop;
    const struct conf *conf;
    const struct conn_ops *ops;
    void *ctx; /* of the ops */
    struct accounts accounts;
    ev_prepare tail; /* the loop's end: flush and sweep */
    struct conn *pending, *doomed;
    uint64_t bytes_in, bytes_out;
    uint64_t n_timeouts, n_slow; /* dropped: frames, readers */
};

struct conn {
    struct conn_host *host;
    uint64_t id;
    int fd;
    enum conn_state state;
    struct peer peer;
    struct account *account;
    bool said_hello; /* frames may be large now */
    struct buf in, out;
    size_t charged;  /* bytes of `in` on the account */
    bool soft, hard; /* output is above the limit */
    ev_io rd, wr;
    ev_timer frame_timer, slow_timer, linger_timer;
    struct conn *next_pending, *next_doomed;
    bool is_pending;
    /* server.c: requests in flight */
    struct flight *flights;
    int n_flights;
};

void conn_host_init(struct conn_host *h, struct ev_loop *loop,
                    const struct conf *conf, const struct conn_ops *ops,
                    void *ctx);
void conn_host_finish(struct conn_host *h); /* all connections are gone */

/* Takes fd over (non-blocking). Never fails: small fixed sizes. */
struct conn *conn_create(struct conn_host *h, int fd, const struct peer *peer,
                         uint64_t id);
/* Frames of b to the other end; b is emptied. A sticky error in b, or output
 * beyond all limits, drops the connection. */
void conn_put(struct conn *c, struct wire_buf *b);
/* An error about no request, then conn_close. */
void conn_fail(struct conn *c, int code, const char *message);
/* Sends what is there, then closes. */
void conn_close(struct conn *c);
/* Closes without sending. */
void conn_kill(struct conn *c);
/* True when everything that was put has gone to the kernel. */
bool conn_flushed(const struct conn *c);
/* Writes now what can be written (also done at each loop's end). */
void conn_flush(struct conn *c);

#endif
