/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_norm: residual add and RMSNorm, a row an item. Once per path.
 */
#include <math.h>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/ops.h"

struct norm {
    const struct kern_norm_args *a;
    float *x;
    const float *delta; /* or NULL */
    uint16_t *out;      /* or NULL */
    float *out_f32;     /* or NULL */
};

/* x += delta; returns the sum of squares, chunks ascending in one vector. */
static float add_square(float *x, const float *delta, int n)
{
    vf sum = vf_set(0.0f);
    int i = 0;

    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i);

        if (delta != NULL) {
            v = vf_add(v, vf_load(delta + i));
            vf_store(x + i, v);
        }
        sum = vf_fma(v, v, sum);
    }
    if (i < n) {
        vf v = vf_load_n(x + i, n - i);

        if (delta != NULL) {
            v = vf_add(v, vf_load_n(delta + i, n - i));
            vf_store_n(x + i, v, n - i);
        }
        sum = vf_fma(v, v, sum);
    }
    return vf_sum(sum);
}

static void norm_item(void *arg, int i_item, int i_thread)
{
    const struct norm *j = arg;
    int n = j->a->width, i = 0;
    size_t row = (size_t)i_item;
    float *x = j->x + row * (size_t)n;
    float sum =
        add_square(x, j->delta == NULL ? NULL : j->delta + row * (size_t)n, n);
    vf scale = vf_set(norm_scale(sum, n, j->a->eps));

    (void)i_thread;
    if (j->out == NULL && j->out_f32 == NULL) {
        return;
    }
    for (; i < n; i += VF_N) {
        int left = imin(VF_N, n - i);
        vf w = norm_gain(j->a->w, i, left);
        vf y = vf_mul(vf_mul(vf_load_n(x + i, left), scale), w);

        if (j->out != NULL) {
            vf_store_bf16_n(j->out + row * (size_t)j->a->out_stride + i, y,
                            left);
        }
        if (j->out_f32 != NULL) {
            vf_store_n(j->out_f32 + row * (size_t)n + i, y, left);
        }
    }
}

int ISA(cpu_norm)(struct cpu *c, const struct kern_norm_args *a)
{
    struct norm j = {.a = a,
                     .x = cpu_at(a->x),
                     .delta = cpu_at(a->delta),
                     .out = cpu_at(a->out),
                     .out_f32 = cpu_at(a->out_f32)};

    pool_run(c->pool, norm_item, &j, cpu_rows(&a->rows));
    return 0;
}
