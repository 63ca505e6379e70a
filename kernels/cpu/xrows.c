/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Activation rows in the form that dot() takes: BF16 in place where the path
 * multiplies BF16 and the row is whole chunks, else a prepared copy (F32 with
 * even and odd columns of a chunk apart, padded with zeros). Once per path.
 */
#include "kernels/cpu/tile.h"

/* Elements of a prepared row, whole MXFP4 blocks; rows are kept apart by a
 * little more, so that equal columns of eight rows do not share a cache set. */
static size_t prepared_stride(int cols)
{
    return (size_t)((cols + 31) & ~31) + 64 / sizeof(xt) * 5;
}

static void prepare(xt *to, const uint16_t *from, int cols)
{
#if ISA_BF16
    memcpy(to, from, (size_t)cols * 2);
    memset(to + cols, 0, (size_t)(-cols & 31) * 2);
#else
    for (int k = 0; k < ((cols + 31) & ~31); k += DOT_K, to += DOT_K) {
        const uint8_t *p = (const uint8_t *)(from + imin(k, cols));
        int left = imax(cols - k, 0);
        wv v = left < DOT_K ? wv_load_n(p, left) : wv_load(p);

        vf_store(to, v.even);
        vf_store(to + VF_N, v.odd);
    }
#endif
}

/* Rows of one item of x_rows' job. */
#define PREPARE_ROWS 8
/* Elements below which the caller prepares alone: it takes less than a wake. */
#define PREPARE_ALONE 32768

struct prepare {
    xt *to;
    const uint16_t *from;
    int stride, n, cols;
};

static void prepare_item(void *arg, int i_item, int i_thread)
{
    const struct prepare *p = arg;
    int end = imin(p->n, (i_item + 1) * PREPARE_ROWS);

    (void)i_thread;
    for (int r = i_item * PREPARE_ROWS; r < end; r++) {
        prepare(p->to + (size_t)r * prepared_stride(p->cols),
                p->from + (size_t)r * (size_t)p->stride, p->cols);
    }
}

int x_rows(struct cpu *c, const uint16_t *x, int stride, int n, int cols,
           size_t extra, const xt ***ret_rows, void **ret_extra)
{
    bool copies = sizeof(xt) != 2 || cols % 32 != 0;
    size_t row = prepared_stride(cols) * sizeof(xt);
    size_t list = ((size_t)n * sizeof(xt *) + 63) & ~(size_t)63;
    struct prepare p = {.from = x, .stride = stride, .n = n, .cols = cols};
    const xt **rows;
    int r = cpu_shared(c, list + ((extra + 63) & ~(size_t)63) +
                              (copies ? (size_t)n * row : 0));

    if (r < 0) {
        return r;
    }
    rows = (const xt **)c->shared;
    p.to = (xt *)(c->shared + list + ((extra + 63) & ~(size_t)63));
    for (int i = 0; i < n; i++) {
        rows[i] = copies ? p.to + (size_t)i * prepared_stride(cols)
                         : (const xt *)(x + (size_t)i * (size_t)stride);
    }
    if (copies && (int64_t)n * cols <= PREPARE_ALONE) {
        for (int i = 0; i < ceil_div(n, PREPARE_ROWS); i++) {
            prepare_item(&p, i, 0);
        }
    } else if (copies) {
        pool_run(c->pool, prepare_item, &p, ceil_div(n, PREPARE_ROWS));
    }
    *ret_rows = rows;
    *ret_extra = c->shared + list;
    return 0;
}
