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
 * the threads to end together. */
#define ITEM_W 32

struct linear {
    struct cpu *c;
    const struct kern_linear_args *a;
    int n; /* live rows */
    const xt *const *x;
    int item0[KERN_MAX_PARTS + 1]; /* first item of each part */
};

static void linear_item(void *arg, int i_item, int i_thread)
{
    const struct linear *l = arg;
    struct cpu_thread *t = &l->c->thread[i_thread];
    int p = 0;
    struct tile_job j = {.cpu = l->c,
                         .x = l->x,
                         .n_x = l->n,
                         .add = l->a->add,
                         .scratch = t->scratch};

    while (i_item >= l->item0[p + 1]) {
        p++;
    }
    j.w = l->a->part[p].w;
    j.n0 = (i_item - l->item0[p]) * ITEM_W;
    j.n_w = imin(ITEM_W, j.w->desc.rows - j.n0);
    j.y = (float *)cpu_at(l->a->part[p].out) + j.n0;
    j.y_stride = (size_t)l->a->part[p].out_stride;
    t->weight_bytes += tile_run(&j);
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
        l.item0[p + 1] = l.item0[p] + ceil_div(a->part[p].w->desc.rows, ITEM_W);
    }
    r = x_rows(c, cpu_at(a->x), a->x_stride, l.n, a->cols, 0, &x, &extra);
    if (r < 0) {
        return r;
    }
    l.x = x;
    r = cpu_scratch(c, tile_scratch(a->cols));
    if (r < 0) {
        return r;
    }
    if (l.n > 0) {
        pool_run(c->pool, linear_item, &l, l.item0[a->n_parts]);
    }
    return 0;
}
