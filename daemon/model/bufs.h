/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_BUFS_H
#define STEPD_DAEMON_MODEL_BUFS_H

/*
 * A set of device buffers made and freed together. The same calls, without a
 * backend, tell how many bytes they would take: so the memory plan and the
 * allocation cannot disagree.
 */

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define BUFS_MAX 64

struct bufs {
    struct kern *k; /* NULL: only counts */
    int n;
    struct kern_buf *buf[BUFS_MAX];
    uint64_t bytes;
    int r; /* the first error; later calls do nothing */
};

void bufs_init(struct bufs *b, struct kern *k);
void bufs_finish(struct bufs *b);
/* A buffer of rows x width elements; none at all where a factor is 0. */
void bufs_make(struct bufs *b, struct kern_ptr *ret, size_t rows, size_t width,
               size_t elem);

/* What crosses in one copy: device memory and its twin on the host, dealt out
 * anew in each step. Pieces that come in the same order with the same sizes lie
 * at the same places. */
struct block {
    struct kern_ptr at;
    char *host;
    size_t cap, n; /* bytes: there are, are dealt */
};

/* The bytes of a block that such a piece takes. */
static inline size_t block_room(size_t rows, size_t elem)
{
    return (rows * elem + 15) / 16 * 16;
}

/* Its device memory in b; on the host where b has a backend. */
void block_make(struct bufs *b, struct block *ret, size_t cap);
void block_finish(struct block *p);
/* A piece: where it lies on the device, and on the host. */
void *block_take(struct block *p, size_t rows, size_t elem,
                 struct kern_ptr *ret);
/* A piece with these contents. */
void block_put(struct block *p, const void *from, size_t rows, size_t elem,
               struct kern_ptr *ret);

/* p + n bytes */
static inline struct kern_ptr kern_ptr_add(struct kern_ptr p, size_t n)
{
    p.off += n;
    return p;
}

#endif
