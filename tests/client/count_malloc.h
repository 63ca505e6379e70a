/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * How many bytes a test's program asks malloc for, its libraries included: by
 * taking malloc's place (glibc), or through the sanitizers' hook.
 */
#ifndef TESTS_CLIENT_COUNT_MALLOC_H
#define TESTS_CLIENT_COUNT_MALLOC_H

#include <stddef.h>

static size_t malloc_bytes;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNT_BY_HOOK 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNT_BY_HOOK 1
#endif

#ifdef COUNT_BY_HOOK

int __sanitizer_install_malloc_and_free_hooks(
    void (*malloc_hook)(const volatile void *, size_t),
    void (*free_hook)(const volatile void *));

static void saw_malloc(const volatile void *p, size_t n)
{
    (void)p;
    malloc_bytes += n;
}

static void saw_free(const volatile void *p)
{
    (void)p;
}

static inline void count_malloc(void)
{
    static int installed;

    if (!installed) {
        __sanitizer_install_malloc_and_free_hooks(saw_malloc, saw_free);
        installed = 1;
    }
    malloc_bytes = 0;
}

#else

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n);
void *calloc(size_t count, size_t n);
void *realloc(void *p, size_t n);

void *malloc(size_t n)
{
    malloc_bytes += n;
    return __libc_malloc(n);
}

void *calloc(size_t count, size_t n)
{
    malloc_bytes += count * n;
    return __libc_calloc(count, n);
}

void *realloc(void *p, size_t n)
{
    malloc_bytes += n;
    return __libc_realloc(p, n);
}

static inline void count_malloc(void)
{
    malloc_bytes = 0;
}

#endif

#endif
