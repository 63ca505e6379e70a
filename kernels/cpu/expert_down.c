/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_expert_down: an item is item_w output features, through all experts in
 * ascending id; so one thread owns each sum, the order is the one promised,
 * and each expert is read once, however many rows it has. Once per path.
 */
#include <errno.h>

#include "kernels/cpu/experts.h"
#include "kernels/cpu/ops.h"

struct expert_down {
    struct cpu *c;
    const struct kern_expert_down_args *a;
    struct experts e;
    int n;      /* live rows */
    int item_w; /* features of an item */
    size_t tiles;
};

/* out += wt * y, n of them. */
static void add_row(float *out, const float *y, float wt, int n)
{
    int i = 0;

    for (; i + VF_N <= n; i += VF_N) {
        vf_store(out + i, vf_fma(vf_set(wt), vf_load(y + i), vf_load(out + i)));
    }
    if (i < n) {
        vf_store_n(out + i,
                   vf_fma(vf_set(wt), vf_load_n(y + i, n - i),
                          vf_load_n(out + i, n - i)),
                   n - i);
    }
}

static void down_item(void *arg, int i_item, int i_thread)
{
    const struct expert_down *d = arg;
    struct cpu_thread *t = &d->c->thread[i_thread];
    const struct kern_weight *w = d->a->down;
    const float *wt = cpu_at(d->a->wt);
    int width = w->desc.rows, d0 = i_item * d->item_w;
    float *out = (float *)cpu_at(d->a->out) + d0;
    float *y = (float *)(t->scratch + d->tiles);
    struct tile_job j = {.cpu = d->c,
                         .w = w,
                         .n0 = d0,
                         .n_w = imin(d->item_w, width - d0),
                         .y = y,
                         .y_stride = (size_t)d->item_w,
                         .scratch = t->scratch};

    for (int r = 0; r < d->n; r++) {
        memset(out + (size_t)r * (size_t)width, 0,
               sizeof(*out) * (size_t)j.n_w);
    }
    for (int i = 0; i < d->e.n_hit; i++) {
        int first;

        j.expert = d->e.hit[i];
        first = d->e.off[j.expert];
        j.n_x = d->e.off[j.expert + 1] - first;
        j.x = d->e.x + first;
        if (i + 1 < d->e.n_hit) {
            tile_next(&j, w, d->e.hit[i + 1], d0);
        } else { /* likely this thread's next item */
            int next = d0 + d->c->n_threads * d->item_w;

            tile_next(&j, w, next < width ? d->e.hit[0] : -1, next);
        }
        t->weight_bytes += tile_run(&j);
        for (int r = 0; r < j.n_x; r++) {
            int pair = d->e.pair[first + r];

            add_row(out + (size_t)(pair / d->a->top_k) * (size_t)width,
                    y + r * d->item_w, wt[pair], j.n_w);
        }
    }
}

int ISA(cpu_expert_down)(struct cpu *c, const struct kern_expert_down_args *a)
{
    const struct kern_weight_desc *w = &a->down->desc;
    int n = cpu_rows(&a->rows), pairs = n * a->top_k, r;
    struct expert_down d = {
        .c = c, .a = a, .n = n, .tiles = tile_scratch(w->cols)};
    const xt **rows;
    void *extra;

    if (!tile_takes(w->dtype)) {
        return cpu_fail(c, -ENOTSUP, "expert_down: weight type %d", w->dtype);
    }
    if (n == 0) {
        return 0;
    }
    r = x_rows(c, cpu_at(a->h), w->cols, pairs, w->cols,
               experts_bytes(w->experts, pairs), &rows, &extra);
    if (r < 0) {
        return r;
    }
    d.e = experts_list(&a->groups, w->experts, pairs, rows, 1, extra);
    d.item_w = expert_w(a->down, d.e.most, 1, c->n_threads);
    r = cpu_scratch(c, d.tiles +
                           sizeof(float) * (size_t)d.item_w * (size_t)d.e.most);
    if (r < 0) {
        return r;
    }
    c->base.stats.expert_loads += (uint64_t)d.e.n_hit;
    pool_run(c->pool, down_item, &d, ceil_div(w->rows, d.item_w));
    return 0;
}
