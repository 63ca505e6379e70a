/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The listening socket.
 *
 * Owns the descriptor and, when we bound it, the socket file and its lock file.
 * I/O thread. The invariants: a socket file appears under its name only when it
 * has its mode and is listening, whatever the umask is; a file that is not a
 * dead socket is never removed; an inherited socket is never unlinked or shut
 * down, for it belongs to the unit and outlives us.
 *
 * Between two starters the lock file decides, not the bind: probing, removing
 * and binding are three steps, and without the lock a second starter could
 * remove what the first just bound.
 */

#include "daemon/net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/die.h"
#include "daemon/base/log.h"

#define ACCEPT_BURST 64 /* a wake; other connections want their turn */
#define RETRY_S 0.25    /* after a failed accept, unless room is made */
#define LOCK_TRIES 16

static void listener_init(struct listener *l)
{
    memset(l, 0, sizeof(*l));
    l->fd = -1;
    l->lock_fd = -1;
}

int listen_inherit(struct listener *l, int fd)
{
    int flags;

    listener_init(l);
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        return -errno;
    }
    l->fd = fd;
    return 0;
}

/* ---- a socket of our own ------------------------------------------------ */

static int say(char *why, size_t n_why, int r, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static int say(char *why, size_t n_why, int r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(why, n_why, fmt, ap);
    va_end(ap);
    return r;
}

/* The lock is on a file beside the socket. It is unlinked at the end while the
 * lock is held, so whoever gets the lock must see that the name still means the
 * file that he locked. */
static int take_lock(struct listener *l, char *why, size_t n_why)
{
    struct stat by_fd, by_name;
    int fd, r;

    for (int i = 0; i < LOCK_TRIES; i++) {
        fd = open(l->lock_path,
                  O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0) {
            r = -errno;
            return say(why, n_why, r, "cannot open lock file %s: %s",
                       l->lock_path, strerror(-r));
        }
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            r = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
            close(fd);
            if (r == -EADDRINUSE) {
                return say(why, n_why, r,
                           "already running: another daemon holds %s",
                           l->lock_path);
            }
            return say(why, n_why, r, "cannot lock %s: %s", l->lock_path,
                       strerror(-r));
        }
        if (fstat(fd, &by_fd) == 0 && stat(l->lock_path, &by_name) == 0 &&
            by_fd.st_dev == by_name.st_dev && by_fd.st_ino == by_name.st_ino) {
            l->lock_fd = fd;
            return 0;
        }
        close(fd); /* its last holder removed it: again */
    }
    return say(why, n_why, -EADDRINUSE,
               "already running: %s changes hands all the time", l->lock_path);
}

/* Whether somebody lives at the path. 0: nobody, and what lies there (a dead
 * socket or nothing) may be replaced. */
static int probe(const struct sockaddr_un *addr, char *why, size_t n_why)
{
    const char *path = addr->sun_path;
    struct stat st;
    int fd, r = 0;

    if (lstat(path, &st) < 0) {
        if (errno == ENOENT) {
            return 0;
        }
        r = -errno;
        return say(why, n_why, r, "cannot look at %s: %s", path, strerror(-r));
    }
    if (!S_ISSOCK(st.st_mode)) {
        return say(why, n_why, -EEXIST,
                   "%s exists and is not a socket; it was left alone", path);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        r = -errno;
        return say(why, n_why, r, "socket: %s", strerror(-r));
    }
    if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ||
        errno == EAGAIN || errno == EINPROGRESS) { /* EAGAIN: backlog full */
        r = say(why, n_why, -EADDRINUSE, "already running: %s answers (%s)",
                path, strerror(EADDRINUSE));
    } else if (errno != ECONNREFUSED && errno != ENOENT) {
        r = -errno;
        r = say(why, n_why, r, "cannot tell whether %s is in use: %s", path,
                strerror(-r));
    }
    close(fd);
    return r;
}

/* Binds under a temporary name in a folder that only we can enter, gives the
 * file its mode and group there, listens, and only then moves it into place. */
static int bind_aside(struct listener *l, const struct sockaddr_un *addr,
                      mode_t mode, gid_t gid, char *why, size_t n_why)
{
    struct sockaddr_un aside = {.sun_family = AF_UNIX};
    char folder[sizeof(addr->sun_path) + 16];
    const char *slash = strrchr(addr->sun_path, '/');
    int n_dir = slash != NULL ? (int)(slash - addr->sun_path) + 1 : 0;
    struct stat st;
    int fd = -1, r;
    bool moved = false;

    (void)snprintf(folder, sizeof(folder), "%.*s.XXXXXX", n_dir,
                   addr->sun_path);
    if (strlen(folder) + 2 >= sizeof(aside.sun_path)) {
        return say(why, n_why, -ENAMETOOLONG,
                   "%s: its folder's name is too long", addr->sun_path);
    }
    if (mkdtemp(folder) == NULL) {
        r = -errno;
        return say(why, n_why, r, "cannot make a folder beside %s: %s",
                   addr->sun_path, strerror(-r));
    }
    memcpy(aside.sun_path, folder, strlen(folder));
    memcpy(aside.sun_path + strlen(folder), "/s", 2);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 ||
        bind(fd, (const struct sockaddr *)&aside, sizeof(aside)) < 0 ||
        (gid != (gid_t)-1 && chown(aside.sun_path, (uid_t)-1, gid) < 0) ||
        chmod(aside.sun_path, mode) < 0 || listen(fd, LISTEN_BACKLOG) < 0 ||
        stat(aside.sun_path, &st) < 0 ||
        rename(aside.sun_path, addr->sun_path) < 0) {
        r = -errno;
        (void)say(why, n_why, r, "cannot listen on %s: %s", addr->sun_path,
                  strerror(-r));
        goto out;
    }
    moved = true;
    l->fd = fd;
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    fd = -1;
    r = 0;
out:
    if (fd >= 0) {
        close(fd);
    }
    if (!moved) {
        (void)unlink(aside.sun_path);
    }
    (void)rmdir(folder);
    return r;
}

int listen_bind(struct listener *l, const char *path, mode_t mode, gid_t gid,
                char *why, size_t n_why)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    int r;

    listener_init(l);
    if (n == 0 || n >= sizeof(addr.sun_path)) {
        return say(why, n_why, -ENAMETOOLONG,
                   "socket path of %zu bytes: 1 to %zu are possible", n,
                   sizeof(addr.sun_path) - 1);
    }
    memcpy(addr.sun_path, path, n);
    l->path = xstrdup(path);
    l->lock_path = xmalloc(n + sizeof(".lock"));
    memcpy(l->lock_path, path, n);
    memcpy(l->lock_path + n, ".lock", sizeof(".lock"));
    r = take_lock(l, why, n_why);
    if (r == 0) {
        r = probe(&addr, why, n_why);
    }
    if (r == 0) {
        r = bind_aside(l, &addr, mode, gid, why, n_why);
    }
    if (r < 0) {
        listen_close(l);
    }
    return r;
}

/* ---- accepting ---------------------------------------------------------- */

static void pause_accept(struct listener *l)
{
    ev_io_stop(l->loop, &l->accept_io);
    ev_timer_set(&l->retry, RETRY_S, 0.);
    ev_timer_start(l->loop, &l->retry);
}

static void on_acceptable(struct ev_loop *loop, ev_io *w, int revents)
{
    struct listener *l = w->data;
    int fd;

    (void)loop;
    (void)revents;
    for (int i = 0; i < ACCEPT_BURST && l->fd >= 0; i++) {
        fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            l->on_conn(l->ctx, fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            /* No descriptor or memory left: the socket stays readable, and
             * without a pause the loop would spin on it. */
            if (l->n_failed++ == 0) {
                log_warn("accept: %s", strerror(errno));
            }
            pause_accept(l);
            return;
        }
    }
}

static void on_retry(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)revents;
    listen_retry(w->data);
}

void listen_start(struct listener *l, struct ev_loop *loop,
                  void (*on_conn)(void *ctx, int fd), void *ctx)
{
    BUG_ON(l->fd < 0 || l->loop != NULL);
    l->loop = loop;
    l->on_conn = on_conn;
    l->ctx = ctx;
    ev_io_init(&l->accept_io, on_acceptable, l->fd, EV_READ);
    l->accept_io.data = l;
    ev_timer_init(&l->retry, on_retry, 0., 0.);
    l->retry.data = l;
    ev_io_start(loop, &l->accept_io);
}

void listen_retry(struct listener *l)
{
    if (l->loop != NULL && l->fd >= 0 && !ev_is_active(&l->accept_io)) {
        ev_timer_stop(l->loop, &l->retry);
        ev_io_start(l->loop, &l->accept_io);
    }
}

void listen_stop(struct listener *l)
{
    struct stat st;

    if (l->loop != NULL) {
        ev_io_stop(l->loop, &l->accept_io);
        ev_timer_stop(l->loop, &l->retry);
        l->loop = NULL;
    }
    if (l->fd < 0) {
        return;
    }
    close(l->fd);
    l->fd = -1;
    if (l->path != NULL && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
        st.st_ino == l->ino) {
        (void)unlink(l->path);
    }
}

void listen_close(struct listener *l)
{
    listen_stop(l);
    if (l->lock_fd >= 0) {
        (void)unlink(l->lock_path); /* while it is held: see take_lock */
        close(l->lock_fd);
        l->lock_fd = -1;
    }
    free(l->lock_path);
    l->lock_path = NULL;
    free(l->path);
    l->path = NULL;
}
