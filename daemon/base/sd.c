/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The little that is left to do over libsystemd.
 *
 * Owns nothing but the rule of the heartbeat. I/O thread only (main.c). The
 * rule that matters: a beat is sent only after progress, never by the clock
 * alone, so that a stuck start is ended by the manager and a slow one is not.
 */

#include "daemon/base/sd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "config.h"

#ifdef HAVE_LIBSYSTEMD

#include <sys/socket.h>
#include <systemd/sd-daemon.h>

bool sd_built(void)
{
    return true;
}

static int notify(const char *state)
{
    return sd_notify(0, state);
}

int sd_listen_fd(int *ret_fd)
{
    int n = sd_listen_fds(1);

    if (n < 0) {
        return n;
    }
    if (n == 0) {
        return -ENOENT;
    }
    *ret_fd = SD_LISTEN_FDS_START;
    if (n > 1 ||
        sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, NULL, 0) <= 0) {
        return -EINVAL;
    }
    return 0;
}

uint64_t sd_watchdog_usec(void)
{
    uint64_t usec = 0;

    return sd_watchdog_enabled(0, &usec) > 0 ? usec : 0;
}

#else

bool sd_built(void)
{
    return false;
}

static int notify(const char *state)
{
    (void)state;
    return 0;
}

int sd_listen_fd(int *ret_fd)
{
    (void)ret_fd;
    return -ENOENT;
}

uint64_t sd_watchdog_usec(void)
{
    return 0;
}

#endif

int sd_say_status(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    int n;

    n = snprintf(line, sizeof(line), "STATUS=");
    va_start(ap, fmt);
    (void)vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    return notify(line);
}

int sd_say_ready(void)
{
    return notify("READY=1");
}

int sd_say_reloading(void)
{
    struct timespec t;
    char line[96];

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    (void)snprintf(line, sizeof(line), "RELOADING=1\nMONOTONIC_USEC=%llu",
                   (unsigned long long)t.tv_sec * 1000000 +
                       (unsigned long long)t.tv_nsec / 1000);
    return notify(line);
}

int sd_say_stopping(uint64_t extend_ms)
{
    char line[96];

    (void)snprintf(line, sizeof(line), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
                   (unsigned long long)extend_ms * 1000);
    return notify(line);
}

int sd_say_watchdog(void)
{
    return notify("WATCHDOG=1");
}

int sd_beat(struct sd_beat *b, uint64_t progress)
{
    char line[64];

    if (progress == b->last) {
        return 0;
    }
    b->last = progress;
    (void)snprintf(line, sizeof(line), "EXTEND_TIMEOUT_USEC=%lld",
                   SD_EXTEND_MS * 1000LL);
    return notify(line);
}
