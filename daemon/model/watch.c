/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The handler of SIGBUS. Owns the table of mapped shards, which is global
 * because a signal handler gets no argument; nothing but the handler's text
 * depends on it.
 *
 * The handler runs on whatever thread touched the page, in the middle of a
 * kernel: it takes no lock, allocates nothing and calls only what signal-safety
 * (7) allows. An entry is written before its address is published, and is taken
 * out by clearing the address.
 */
#include "daemon/model/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/model/weights.h"

#define EXIT_FAULT 70

static struct {
    atomic_uintptr_t at; /* 0: free */
    size_t bytes;
    char name[WATCH_NAME];
} table[WATCH_MAX];

void watch_add(const void *at, size_t bytes, const char *name)
{
    for (int i = 0; i < WATCH_MAX; i++) {
        uintptr_t none = 0, busy = 1;

        /* 1 is no address of a mapping: the entry is being written. */
        if (atomic_compare_exchange_strong(&table[i].at, &none, busy)) {
            table[i].bytes = bytes;
            snprintf(table[i].name, sizeof(table[i].name), "%s", name);
            atomic_store(&table[i].at, (uintptr_t)at);
            return;
        }
    }
}

void watch_remove(const void *at)
{
    for (int i = 0; i < WATCH_MAX; i++) {
        uintptr_t mine = (uintptr_t)at;

        if (atomic_compare_exchange_strong(&table[i].at, &mine, 0)) {
            return;
        }
    }
}

/* Appends to a line; snprintf is not async-signal-safe. */
static size_t put_text(char *line, size_t at, size_t max, const char *text)
{
    while (*text != '\0' && at < max) {
        line[at++] = *text++;
    }
    return at;
}

static size_t put_number(char *line, size_t at, size_t max, uintptr_t n)
{
    char digits[24];
    size_t i = sizeof(digits);

    digits[--i] = '\0';
    do {
        digits[--i] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    return put_text(line, at, max, &digits[i]);
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    uintptr_t addr = (uintptr_t)info->si_addr;
    char line[256];
    size_t n = 0, max = sizeof(line) - 1;

    (void)sig;
    (void)context;
    n = put_text(line, n, max, "stepd: SIGBUS: ");
    for (int i = 0; i < WATCH_MAX; i++) {
        uintptr_t at = atomic_load(&table[i].at);

        if (at > 1 && addr >= at && addr - at < table[i].bytes) {
            n = put_text(line, n, max, table[i].name);
            n = put_text(line, n, max, ": offset ");
            n = put_number(line, n, max, addr - at);
            n = put_text(line, n, max,
                         " cannot be read: the file was cut or the disk "
                         "failed");
            line[n++] = '\n';
            (void)!write(STDERR_FILENO, line, n);
            _exit(EXIT_FAULT);
        }
    }
    n = put_text(line, n, max, "not in a mapped shard");
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n);
    /* Back to what the system does: a core where cores are wanted. */
    signal(SIGBUS, SIG_DFL);
    raise(SIGBUS);
}

int weights_catch_sigbus(void)
{
    struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

    sigemptyset(&sa.sa_mask);
    return sigaction(SIGBUS, &sa, NULL) < 0 ? -errno : 0;
}
