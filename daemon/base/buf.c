/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A byte queue with a hard cap.
 *
 * Owns its memory. One thread at a time. The invariant: off + n <= cap, and
 * n <= max.
 *
 * Reading moves off forward instead of moving bytes. They slide to the front
 * only when the end is reached and no more bytes move than were read since the
 * last slide; otherwise the buffer doubles. So a byte moves a constant number
 * of times on average, whatever the pattern of puts and consumes. An empty
 * buffer keeps at most KEEP_BYTES: a thousand idle connections hold none of the
 * large frames they once sent.
 */

#include "daemon/base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

#define KEEP_BYTES 4096
#define FIRST_BYTES 512

void buf_init(struct buf *b, size_t max)
{
    memset(b, 0, sizeof(*b));
    b->max = max;
}

void buf_finish(struct buf *b)
{
    free(b->p);
    buf_init(b, b->max);
}

int buf_room(struct buf *b, size_t n, uint8_t **ret)
{
    size_t cap;
    uint8_t *p;

    if (n > b->max || b->n > b->max - n) {
        return -ENOBUFS;
    }
    if (b->off + b->n + n <= b->cap) {
        *ret = b->p + b->off + b->n;
        return 0;
    }
    if (b->n + n <= b->cap && b->off >= b->n) {
        memmove(b->p, b->p + b->off, b->n);
        b->off = 0;
        *ret = b->p + b->n;
        return 0;
    }
    cap = b->cap > 0 ? b->cap * 2 : FIRST_BYTES;
    while (cap < b->n + n) {
        cap *= 2;
    }
    p = malloc(cap);
    if (p == NULL) {
        return -ENOMEM;
    }
    if (b->n > 0) {
        memcpy(p, b->p + b->off, b->n);
    }
    free(b->p);
    b->p = p;
    b->off = 0;
    b->cap = cap;
    *ret = p + b->n;
    return 0;
}

void buf_added(struct buf *b, size_t n)
{
    BUG_ON(n > b->cap - b->off - b->n);
    b->n += n;
}

int buf_put(struct buf *b, const void *data, size_t n)
{
    uint8_t *p;
    int r;

    if (n == 0) {
        return 0;
    }
    r = buf_room(b, n, &p);
    if (r < 0) {
        return r;
    }
    memcpy(p, data, n);
    b->n += n;
    return 0;
}

void buf_consume(struct buf *b, size_t n)
{
    BUG_ON(n > b->n);
    b->n -= n;
    b->off = b->n > 0 ? b->off + n : 0;
    if (b->n == 0 && b->cap > KEEP_BYTES) {
        free(b->p);
        b->p = NULL;
        b->cap = 0;
    }
}
