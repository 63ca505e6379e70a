/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_linear: up to four matrices against the same rows. The output features
 * of all parts are cut into items of ITEM_W weight rows, which the threads take
 * as they come; an item's weights are read once and meet every activation row.
 * Once per path.
 */
#include <errno.h>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/tile.h"

/* Enough bytes to make a claim cheap (256 KiB at 4096 columns), few enough for
 * the threads to end together. Many rows: a panel of L2, so that few of them
 * pass over the activation rows, where there are ITEMS for each thread. */
#define ITEM_W 32
#define ITEM_WIDE 64
#define ITEMS 8

struct linear {
    struct cpu *c;
    const struct kern_linear_args *a;
    int n;      /* live rows */
    int item_w; /* weight rows of an item */
    const xt *const *x;
    xt *packed;                    /* or NULL */
    int side;                      /* rows of it side by side */
    int item0[KERN_MAX_PARTS + 1]; /* first item of each part */
};

static void linear_item(void *arg, int i_item, int i_thread)
{
    const struct linear *l = arg;
    struct cpu_thread *t = &l->c->thread[i_thread];
    int p = 0, next;
    struct tile_job j = {.cpu = l->c,
                         .x = l->x,
                         .n_x = l->n,
                         .packed = l->packed,
                         .add = l->a->add,
                         .scratch = t->scratch};

    while (i_item >= l->item0[p + 1]) {
        p++;
    }
    j.w = l->a->part[p].w;
    j.n0 = (i_item - l->item0[p]) * l->item_w;
    j.n_w = imin(l->item_w, j.w->desc.rows - j.n0);
    j.y = (float *)cpu_at(l->a->part[p].out) + j.n0;
    j.y_stride = (size_t)l->a->part[p].out_stride;
    /* Likely this thread's next item. */
    next = j.n0 + l->c->n_threads * l->item_w;
    tile_next(&j, j.w, next + l->item_w <= j.w->desc.rows ? 0 : -1, next);
    t->weight_bytes += tile_run(&j);
}

static void pack_item(void *arg, int i_item, int i_thread)
{
    const struct linear *l = arg;
    int r = i_item * l->side;

    (void)i_thread;
    tile_pack(l->packed + (size_t)r * (size_t)l->a->cols, l->x + r,
              imin(l->side, l->n - r), l->side, l->a->cols);
}

/* Rows side by side that all parts take, or 0. */
static int linear_side(const struct kern_linear_args *a, int n)
{
    int side = tile_packs(a->part[0].w, n);

    for (int p = 1; p < a->n_parts; p++) {
        side = tile_packs(a->part[p].w, n) == side ? side : 0;
    }
    return side;
}

static int linear_item_w(const struct kern_linear_args *a, int side,
                         int n_threads)
{
    int64_t rows = 0;

    for (int p = 0; p < a->n_parts; p++) {
        rows += a->part[p].w->desc.rows;
    }
    return side > 0 && rows >= (int64_t)ITEM_WIDE * ITEMS * n_threads
               ? ITEM_WIDE
               : ITEM_W;
}

int ISA(cpu_linear)(struct cpu *c, const struct kern_linear_args *a)
{
    struct linear l = {.c = c, .a = a, .n = cpu_rows(&a->rows)};
    const xt **x;
    void *extra;
    int r;

    for (int p = 0; p < a->n_parts; p++) {
        if (!tile_takes(a->part[p].w->desc.dtype)) {
            return cpu_fail(c, -ENOTSUP, "linear: weight type %d",
                            a->part[p].w->desc.dtype);
        }
    }
    l.side = linear_side(a, l.n);
    l.item_w = linear_item_w(a, l.side, c->n_threads);
    for (int p = 0; p < a->n_parts; p++) {
        l.item0[p + 1] =
            l.item0[p] + ceil_div(a->part[p].w->desc.rows, l.item_w);
    }
    r = x_rows(c, cpu_at(a->x), a->x_stride, l.n, a->cols,
               l.side > 0 ? sizeof(xt) * (size_t)l.n * (size_t)a->cols : 0, &x,
               &extra);
    if (r < 0) {
        return r;
    }
    l.x = x;
    r = cpu_scratch(c, tile_scratch(a->cols));
    if (r < 0) {
        return r;
    }
    if (l.side > 0) {
        l.packed = extra;
        pool_run(c->pool, pack_item, &l, ceil_div(l.n, l.side));
    }
    if (l.n > 0) {
        pool_run(c->pool, linear_item, &l, l.item0[a->n_parts]);
    }
    return 0;
}
