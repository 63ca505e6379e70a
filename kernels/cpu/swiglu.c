/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_swiglu, element by element: nothing depends on how rows are cut. Once
 * per path.
 */
#include "kernels/cpu/act.h"
#include "kernels/cpu/ops.h"

#define ITEM_COLS 4096 /* elements of an item */

struct swiglu_job {
    const float *gate, *up;
    uint16_t *out;
    int64_t n;
    float limit;
};

static void swiglu_item(void *arg, int i_item, int i_thread)
{
    const struct swiglu_job *j = arg;
    int64_t at = (int64_t)i_item * ITEM_COLS;
    int n = j->n - at < ITEM_COLS ? (int)(j->n - at) : ITEM_COLS;

    (void)i_thread;
    swiglu_row(j->out + at, j->gate + at, j->up + at, n, j->limit);
}

int ISA(cpu_swiglu)(struct cpu *c, const struct kern_swiglu_args *a)
{
    struct swiglu_job j = {.gate = cpu_at(a->gate),
                           .up = cpu_at(a->up),
                           .out = cpu_at(a->out),
                           .n = (int64_t)cpu_rows(&a->rows) * a->width,
                           .limit = a->limit};

    pool_run(c->pool, swiglu_item, &j,
             (int)((j.n + ITEM_COLS - 1) / ITEM_COLS));
    return 0;
}
