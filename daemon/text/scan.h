/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_SCAN_H
#define STEPD_DAEMON_TEXT_SCAN_H

/*
 * Looks for a few strings in a stream of bytes. What can no longer be part of
 * one is passed on at once; the longest suffix that still can is held. The
 * string whose end comes first is found, the longest of those that end
 * together, so the result does not depend on how the stream is cut.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCAN_MAX_NEEDLES 16

struct scan_needle {
    char *text;     /* [n] */
    uint32_t *fail; /* [n + 1] longest border of each prefix */
    uint32_t n;
    uint32_t k; /* the stream ends with the first k bytes */
};

struct scan {
    struct scan_needle needle[SCAN_MAX_NEEDLES];
    int n_needles;
    uint32_t active; /* bit i: needle i is looked for */
    bool first[256]; /* some needle starts with this byte */
    uint64_t steps; /* comparisons so far: at most 2 for each byte and needle */
};

/* Non-zero ends the feed and is returned by it. Never with n = 0. */
typedef int (*scan_emit)(void *ctx, const char *text, size_t n);

/* Needles are copied. -EINVAL: too many, or one is empty or too long. */
int scan_init(struct scan *s, int n, const char *const *needle,
              const size_t *len);
void scan_finish(struct scan *s); /* zeroed or initialised */
/* Forgets what is held, and looks for these needles from now on. */
void scan_restart(struct scan *s, uint32_t active);
/* Takes bytes up to the end of the first needle found, or all of them.
 * *ret_used: how many it took; *ret_found: the needle, whose bytes were neither
 * emitted nor are they held (restart before the next feed), or -1. */
int scan_feed(struct scan *s, const char *text, size_t n, scan_emit emit,
              void *ctx, size_t *ret_used, int *ret_found);
/* What is held; good until the next call. */
const char *scan_held(const struct scan *s, size_t *ret_n);

#endif
