/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_LISTEN_H
#define STEPD_DAEMON_NET_LISTEN_H

/*
 * The listening socket: handed over by the service manager, or bound by
 * ourselves with care for what lies at the path already.
 */

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LISTEN_BACKLOG 512

struct listener {
    int fd; /* -1: closed */
    /* A socket of our own; NULL path: inherited, never unlinked or shut down.
     */
    char *path;
    char *lock_path;
    int lock_fd;
    dev_t dev; /* the file at path, to unlink nobody else's */
    ino_t ino;
    /* accepting */
    struct ev_loop *loop;
    ev_io accept_io;
    ev_timer retry; /* after EMFILE and the like */
    void (*on_conn)(void *ctx, int fd);
    void *ctx;
    uint64_t n_failed; /* accepts that failed for lack of something */
};

/* Takes over a listening descriptor of the service manager. */
int listen_inherit(struct listener *l, int fd);
/* Binds path with this mode and group (gid -1: unchanged). why, on an error,
 * is a whole sentence with the path and strerror: -EADDRINUSE: someone lives
 * there; -EEXIST: not a socket, not touched; -ENAMETOOLONG; other -errno. */
int listen_bind(struct listener *l, const char *path, mode_t mode, gid_t gid,
                char *why, size_t n_why);
/* Accepts: on_conn gets each new descriptor (CLOEXEC, non-blocking) and owns
 * it. */
void listen_start(struct listener *l, struct ev_loop *loop,
                  void (*on_conn)(void *ctx, int fd), void *ctx);
/* Room was made (a descriptor closed): tries again what failed. */
void listen_retry(struct listener *l);
/* No more connections: closes the socket, unlinks it if it is our own. The lock
 * stays, so that no other daemon starts while this one still ends its work. */
void listen_stop(struct listener *l);
/* Also gives up the lock. Twice is fine, and after a failed listen_bind. */
void listen_close(struct listener *l);

#endif
