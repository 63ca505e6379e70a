/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_expert_up: gate and up of every expert that the step hits, and SwiGLU on
 * the way out. An item is item_w features of one expert, for all of its
 * rows; so each expert is read once, however many rows it has. Once per path.
 */
#include <errno.h>

#include "kernels/cpu/act.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/ops.h"

struct expert_up {
    struct cpu *c;
    const struct kern_expert_up_args *a;
    struct experts e;
    int width;    /* F */
    int item_w;   /* features of an item */
    int per_hit;  /* items of one expert */
    size_t tiles; /* scratch bytes of tile_run */
};

static void up_item(void *arg, int i_item, int i_thread)
{
    const struct expert_up *u = arg;
    struct cpu_thread *t = &u->c->thread[i_thread];
    int e = u->e.hit[i_item / u->per_hit];
    int first = u->e.off[e], n = u->e.off[e + 1] - first;
    int f0 = i_item % u->per_hit * u->item_w;
    int n_w = imin(u->item_w, u->width - f0);
    float *gate = (float *)(t->scratch + u->tiles);
    float *up = gate + (size_t)u->e.most * (size_t)u->item_w;
    xt *packed = (xt *)(up + (size_t)u->e.most * (size_t)u->item_w);
    uint16_t *h = cpu_at(u->a->h);
    int side = n <= EXPERT_PACK_X ? tile_packs(u->a->gate, n) : 0;
    /* Likely the next one of this thread: the others take those between. */
    int next = i_item + u->c->n_threads;
    int next_e =
        next < u->e.n_hit * u->per_hit ? u->e.hit[next / u->per_hit] : -1;
    int next_f = next % u->per_hit * u->item_w;
    struct tile_job j = {.cpu = u->c,
                         .w = u->a->gate,
                         .expert = e,
                         .n0 = f0,
                         .n_w = n_w,
                         .x = u->e.x + first,
                         .n_x = n,
                         .y = gate,
                         .y_stride = (size_t)u->item_w,
                         .scratch = t->scratch};

    if (side > 0 && tile_packs(u->a->up, n) == side) {
        tile_pack(packed, j.x, n, side, u->a->gate->desc.cols);
        j.packed = packed;
    }
    tile_next(&j, u->a->up, e, f0);
    t->weight_bytes += tile_run(&j);
    j.w = u->a->up;
    j.y = up;
    tile_next(&j, u->a->gate, next_e, next_f);
    t->weight_bytes += tile_run(&j);
    for (int i = 0; i < n; i++) {
        size_t pair = (size_t)u->e.pair[first + i];

        swiglu_row(h + pair * (size_t)u->width + f0, gate + i * u->item_w,
                   up + i * u->item_w, n_w, u->a->limit);
    }
}

int ISA(cpu_expert_up)(struct cpu *c, const struct kern_expert_up_args *a)
{
    const struct kern_weight_desc *d = &a->gate->desc;
    int n = cpu_rows(&a->rows), pairs = n * a->top_k, r;
    struct expert_up u = {
        .c = c, .a = a, .width = d->rows, .tiles = tile_scratch(d->cols)};
    const xt **rows;
    void *extra;

    if (!tile_takes(d->dtype) || !tile_takes(a->up->desc.dtype)) {
        return cpu_fail(c, -ENOTSUP, "expert_up: weight type %d", d->dtype);
    }
    if (n == 0) {
        return 0;
    }
    r = x_rows(c, cpu_at(a->x), d->cols, n, d->cols,
               experts_bytes(d->experts, pairs), &rows, &extra);
    if (r < 0) {
        return r;
    }
    u.e = experts_list(&a->groups, d->experts, pairs, rows, a->top_k, extra);
    u.item_w = expert_w(a->gate, u.e.most, u.e.n_hit, c->n_threads);
    u.per_hit = ceil_div(d->rows, u.item_w);
    r = cpu_scratch(c, u.tiles +
                           sizeof(float) * 2 * (size_t)(u.e.most * u.item_w) +
                           sizeof(xt) * (size_t)imin(u.e.most, EXPERT_PACK_X) *
                               (size_t)d->cols);
    if (r < 0) {
        return r;
    }
    c->base.stats.expert_loads += (uint64_t)u.e.n_hit;
    pool_run(c->pool, up_item, &u, u.e.n_hit * u.per_hit);
    return 0;
}
