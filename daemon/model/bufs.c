/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See bufs.h. One buffer a tensor, so that a backend's bounds check, or a test
 * that takes access away, tells which one was overrun.
 */

#include "daemon/model/bufs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

void bufs_init(struct bufs *b, struct kern *k)
{
    memset(b, 0, sizeof(*b));
    b->k = k;
}

void bufs_finish(struct bufs *b)
{
    for (int i = 0; i < b->n; i++) {
        kern_buf_free(b->k, b->buf[i]);
    }
    b->n = 0;
}

void bufs_make(struct bufs *b, struct kern_ptr *ret, size_t rows, size_t width,
               size_t elem)
{
    size_t bytes = rows * width * elem;
    struct kern_buf *buf;

    if (bytes == 0 || b->r < 0) {
        return;
    }
    b->bytes += bytes;
    if (b->k == NULL) {
        return;
    }
    BUG_ON(b->n == BUFS_MAX);
    b->r = kern_buf_new(b->k, bytes, &buf);
    if (b->r == 0) {
        b->buf[b->n++] = buf;
        ret->buf = buf;
        ret->off = 0;
    }
}

void block_make(struct bufs *b, struct block *ret, size_t cap)
{
    bufs_make(b, &ret->at, 1, 1, cap);
    ret->cap = cap;
    if (b->k == NULL || b->r < 0) {
        return;
    }
    ret->host = calloc(1, cap);
    b->r = ret->host == NULL ? -ENOMEM : 0;
}

void block_finish(struct block *p)
{
    free(p->host);
    memset(p, 0, sizeof(*p));
}

void *block_take(struct block *p, size_t rows, size_t elem,
                 struct kern_ptr *ret)
{
    size_t at = p->n;

    BUG_ON(block_room(rows, elem) > p->cap - at);
    p->n += block_room(rows, elem);
    *ret = kern_ptr_add(p->at, at);
    return p->host + at;
}

void block_put(struct block *p, const void *from, size_t rows, size_t elem,
               struct kern_ptr *ret)
{
    void *to = block_take(p, rows, elem, ret);

    if (rows > 0) {
        memcpy(to, from, rows * elem);
    }
}
