/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_finite: marks rows that hold a NaN or an infinity. Once per path.
 */
#include "kernels/cpu/ops.h"

struct finite {
    const float *x;
    int32_t *bad;
    int width;
    int mark;
};

static bool row_is_finite(const float *x, int n)
{
    int i = 0;
    unsigned bits = 0;

    for (; i + VF_N <= n; i += VF_N) {
        bits |= vf_nonfinite_bits(vf_load(x + i));
    }
    if (i < n) {
        bits |= vf_nonfinite_bits(vf_load_n(x + i, n - i));
    }
    return bits == 0;
}

static void finite_item(void *arg, int i_item, int i_thread)
{
    const struct finite *f = arg;

    (void)i_thread;
    if (f->bad[i_item] == 0 &&
        !row_is_finite(f->x + (size_t)i_item * (size_t)f->width, f->width)) {
        f->bad[i_item] = f->mark;
    }
}

int ISA(cpu_finite)(struct cpu *c, const struct kern_finite_args *a)
{
    struct finite f = {.x = cpu_at(a->x),
                       .bad = cpu_at(a->bad),
                       .width = a->width,
                       .mark = a->mark};

    pool_run(c->pool, finite_item, &f, cpu_rows(&a->rows));
    return 0;
}
