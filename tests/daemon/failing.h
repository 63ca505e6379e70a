/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_DAEMON_FAILING_H
#define TESTS_DAEMON_FAILING_H

/*
 * An allocator that fails once: while it is armed it counts, and allocation
 * number fail_at, from 0, gets nothing. For the one file of a program that is
 * linked with --wrap=malloc,--wrap=calloc,--wrap=realloc.
 */

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool armed;
static int n_allocations;
static int fail_at = -1;

static bool fails(void)
{
    return armed && n_allocations++ == fail_at;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

#endif
