/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * For test_start.sh: a disk so slow that a tiny model takes seconds. Preloaded
 * into the daemon; every long read at an offset waits for a second and a half.
 * (Short ones are headers; on a real disk they move blocks, which the heartbeat
 * counts, but here they come from the page cache.)
 */

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONG_READ (64u << 10)

ssize_t pread64(int fd, void *buf, size_t n, off64_t at);
ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
    const struct timespec t = {.tv_sec = 1, .tv_nsec = 500000000};

    if (n >= LONG_READ) {
        (void)nanosleep(&t, NULL);
    }
    return syscall(SYS_pread64, fd, buf, n, at);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at);
ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    return pread64(fd, buf, n, at);
}
