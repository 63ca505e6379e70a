/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The growing buffer of text/. It doubles, so appending is linear; it has no
 * cap of its own, since what is built here is a few times the size of a
 * request whose size has a limit. Owned and used by one thread at a time.
 */
#include "daemon/text/str.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#define STR_FIRST 256

void str_finish(struct str *s)
{
    free(s->p);
    memset(s, 0, sizeof(*s));
}

static int str_grow(struct str *s, size_t n)
{
    size_t cap = s->cap != 0 ? s->cap : STR_FIRST;
    char *p;

    if (n > SIZE_MAX / 4 || s->n > SIZE_MAX / 4) {
        return -ENOMEM;
    }
    while (cap < s->n + n) {
        cap *= 2;
    }
    p = realloc(s->p, cap);
    if (p == NULL) {
        return -ENOMEM;
    }
    s->p = p;
    s->cap = cap;
    return 0;
}

void str_add(struct str *s, const void *p, size_t n)
{
    if (s->err != 0 || n == 0) {
        return;
    }
    if (n > s->cap - s->n) {
        s->err = str_grow(s, n);
        if (s->err != 0) {
            return;
        }
    }
    memcpy(s->p + s->n, p, n);
    s->n += n;
}
