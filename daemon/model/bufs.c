/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See bufs.h. One buffer a tensor, so that a backend's bounds check, or a test
 * that takes access away, tells which one was overrun.
 */

#include "daemon/model/bufs.h"

#include <errno.h>
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
