/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_WHY_H
#define STEPD_DAEMON_TEXT_WHY_H

/*
 * The reason of a refusal, written once where it is found into the buffer that
 * the caller gave. It names keys, indices, ids and types, never the text of a
 * prompt: it may end up in a log.
 */

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct why {
    char *p; /* NULL with n 0: nobody asks */
    size_t n;
};

/* Returns err, so that a refusal is one statement. */
__attribute__((format(printf, 3, 4))) static inline int why_set(
    const struct why *w, int err, const char *fmt, ...)
{
    va_list ap;

    if (w->n != 0) {
        va_start(ap, fmt);
        vsnprintf(w->p, w->n, fmt, ap);
        va_end(ap);
    }
    return err;
}

#endif
