/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_gather: rows moved by index lists; one form for all paths.
 */
#include <string.h>

#include "kernels/cpu/cpu.h"

struct gather {
    const float *x;
    float *out;
    const int32_t *src, *dst;
    size_t width;
};

static void gather_item(void *arg, int i_item, int i_thread)
{
    const struct gather *g = arg;
    int from = g->src[i_item];
    int to = g->dst == NULL ? i_item : g->dst[i_item];

    (void)i_thread;
    if (from >= 0 && to >= 0) {
        memmove(g->out + (size_t)to * g->width, g->x + (size_t)from * g->width,
                sizeof(*g->x) * g->width);
    }
}

int cpu_gather(struct cpu *c, const struct kern_gather_args *a)
{
    struct gather g = {.x = cpu_at(a->x),
                       .out = cpu_at(a->out),
                       .src = cpu_at(a->src),
                       .dst = cpu_at(a->dst),
                       .width = (size_t)a->width};

    pool_run(c->pool, gather_item, &g, cpu_rows(&a->rows));
    return 0;
}
