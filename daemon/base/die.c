/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The end of the process for our own faults, and allocation of what is small
 * and of a fixed size.
 *
 * Owns nothing. Any thread may call everything here. die() goes past log.c on
 * purpose: it must work when nothing else does, and from code that does not
 * log. The status is EX_SOFTWARE (70), which the unit answers by a restart.
 */

#include "daemon/base/die.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

void die(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    int n, m;

    n = snprintf(line, sizeof(line), "stepd: ");
    va_start(ap, fmt);
    m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (m > 0) {
        n = (int)strlen(line);
    }
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0) {
        /* There is nobody left to tell. */
    }
    _exit(EX_SOFTWARE);
}

void *xmalloc(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);

    if (p == NULL) {
        die("out of memory (%zu bytes)", n);
    }
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);

    if (p == NULL) {
        die("out of memory (%zu times %zu bytes)", n, size);
    }
    return p;
}

char *xstrdup(const char *s)
{
    size_t n = strlen(s) + 1;

    return memcpy(xmalloc(n), s, n);
}
