/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_SD_H
#define STEPD_DAEMON_BASE_SD_H

/*
 * What the service manager is told, and what it hands over: readiness, status,
 * the heartbeat of a long start, the watchdog, listening sockets. Everything is
 * quiet where no manager asked for it ($NOTIFY_SOCKET, $LISTEN_FDS unset), and
 * where the build has no libsystemd.
 */

#include <stdbool.h>
#include <stdint.h>

/* True when built with libsystemd. Without it a unit of Type=notify would wait
 * for ever: main.c says so when it sees $NOTIFY_SOCKET. */
bool sd_built(void);

/* STATUS=: what is going on, for `systemctl status`. Each returns as sd_notify:
 * > 0 sent, 0 nobody listens, -errno. */
int sd_say_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int sd_say_ready(void); /* READY=1; the caller says it once */
/* RELOADING=1 and the time; READY=1 ends it. */
int sd_say_reloading(void);
/* STOPPING=1; the stop may take so long. */
int sd_say_stopping(uint64_t extend_ms);
int sd_say_watchdog(void); /* WATCHDOG=1 */

/* The heartbeat of a start that takes long: EXTEND_TIMEOUT_USEC while work
 * moves, silence when it is stuck, so that TimeoutStartSec= means "without
 * progress" whatever the size of the model. */
#define SD_BEAT_MS 1000    /* how often to call sd_beat */
#define SD_EXTEND_MS 30000 /* what each beat asks for */
struct sd_beat {
    uint64_t last; /* progress at the last beat */
};
/* progress is any number that changes when work was done. 1: the timeout was
 * extended; 0: nothing moved since the last call, or nobody listens. */
int sd_beat(struct sd_beat *b, uint64_t progress);

/* The socket that the manager listens on for us: 0 when it passed one, -ENOENT
 * when none; -EINVAL: more than one, or not a listening Unix stream socket.
 * ret_fd is then the first of them, to tell those who wait on it. CLOEXEC is
 * set. The environment is cleared: children inherit nothing. */
int sd_listen_fd(int *ret_fd);

/* Interval in which WATCHDOG=1 is expected, in microseconds; 0: none. */
uint64_t sd_watchdog_usec(void);

#endif
