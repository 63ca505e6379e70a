/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The last words of a start that cannot succeed.
 *
 * Owns each accepted descriptor for a moment. Runs where there is no loop and
 * no server yet, on the only thread. The invariant: a client that waits in the
 * backlog of an inherited socket learns why nobody serves him; without this he
 * would wait for a daemon that never comes, and each retry of his would start
 * it again until systemd gives the socket up.
 */

#include "daemon/net/farewell.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/wire.h"

#define HELLO_MS 200  /* for a client's first words, which are not read */
#define HELLO_READS 4 /* who says more than a few hellos is cut off */

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What he said is taken out first: closing a socket with unread bytes in it
 * would break his next write before he has read our answer. */
static void turn_away(int fd, const struct wire_buf *words)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char trash[WIRE_MAX_FRAME_HELLO];

    if (poll(&p, 1, HELLO_MS) > 0) {
        for (int i = 0; i < HELLO_READS; i++) {
            if (recv(fd, trash, sizeof(trash), MSG_DONTWAIT) <= 0) {
                break;
            }
        }
    }
    (void)send(fd, words->p, words->n, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

void farewell(int fd, const char *cause, int ms)
{
    int64_t until = now_ms() + ms, left = ms;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct wire_buf words;

    wire_buf_init(&words, SIZE_MAX);
    (void)wire_put_error(&words, 0, WIRE_E_UNAVAILABLE, cause, NULL, 0);
    for (; left > 0; left = until - now_ms()) {
        int client = -1;

        if (poll(&p, 1, (int)left) > 0) {
            client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        }
        if (client >= 0) {
            turn_away(client, &words);
        } else if (errno != EAGAIN && errno != EINTR && errno != 0) {
            break;
        }
    }
    wire_buf_finish(&words);
}
