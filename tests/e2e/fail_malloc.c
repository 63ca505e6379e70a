/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Preloaded into a daemon: memory runs out for one allocation, whoever asks for
 * it, when the test says so. The file that $FAIL_MALLOC names is mapped and
 * holds two numbers, which the test writes at any time: how many allocations
 * there were, and which one fails (0: none).
 *
 * It takes malloc's place in front of glibc's, and so not a sanitizer's.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct control {
    _Atomic uint64_t n, fail_at;
};

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static struct control *control;

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("FAIL_MALLOC");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p;

    if (fd >= 0) {
        p = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                 0);
        control = p != MAP_FAILED ? p : NULL;
        close(fd);
    }
}

static int fails(void)
{
    if (control == NULL || atomic_fetch_add(&control->n, 1) + 1 !=
                               atomic_load(&control->fail_at)) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t count, size_t n)
{
    return fails() ? NULL : __libc_calloc(count, n);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
    void *p = fails() ? NULL : __libc_memalign(align, n);

    if (p == NULL) {
        return ENOMEM;
    }
    *ret = p;
    return 0;
}
