/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_DIE_H
#define STEPD_DAEMON_BASE_DIE_H

/*
 * The end of the process for what is our own fault: a broken invariant, or no
 * memory for an object of a small fixed size. Never for anything that a client
 * sent or whose size a client chose: those get an error event.
 */

#include <stddef.h>

/* "stepd: ..." on stderr, then exit status 70 without running atexit handlers
 * (other threads still run). Any thread. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A programmer's error; stays on in release builds. */
#define BUG_ON(cond)                                            \
    do {                                                        \
        if (__builtin_expect(!!(cond), 0)) {                    \
            die("bug: %s at %s:%d", #cond, __FILE__, __LINE__); \
        }                                                       \
    } while (0)

/* Small fixed sizes only. Never NULL; xcalloc is zeroed. */
void *xmalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));

#endif
