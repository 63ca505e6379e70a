/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_BUF_H
#define STEPD_DAEMON_BASE_BUF_H

/*
 * A byte queue with a hard cap: written at the end, read at the front. It
 * grows with the bytes that are put in, never ahead of them by more than a
 * small factor, and gives its memory back when it is empty.
 */

#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *p;
    size_t off; /* first byte not yet read */
    size_t n;   /* bytes from off on */
    size_t cap; /* bytes at p */
    size_t max; /* n may not pass this */
};

void buf_init(struct buf *b, size_t max); /* allocates nothing */
void buf_finish(struct buf *b);

/* The bytes to read: buf_data(b)[0 .. b->n). Valid until the next call that
 * is not buf_data. */
static inline const uint8_t *buf_data(const struct buf *b)
{
    return b->p != NULL ? b->p + b->off : NULL;
}

/* Room for n more bytes at the end; *ret points to it. -ENOBUFS: the cap.
 * -ENOMEM. Nothing changes on an error. Then buf_added says how many came. */
int buf_room(struct buf *b, size_t n, uint8_t **ret);
void buf_added(struct buf *b, size_t n);
int buf_put(struct buf *b, const void *data, size_t n);
/* Drops n bytes at the front. */
void buf_consume(struct buf *b, size_t n);

#endif
