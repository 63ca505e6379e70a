/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_embed: table rows widened to F32. Once per path.
 */
#include "kernels/cpu/ops.h"

struct embed {
    const struct kern_weight *table;
    const int32_t *ids;
    float *out;
};

static void embed_item(void *arg, int i_item, int i_thread)
{
    const struct embed *e = arg;
    int id = e->ids[i_item], d = e->table->desc.cols, i = 0;
    const uint8_t *from = cpu_plane(e->table, 0, 0);
    float *to = e->out + (size_t)i_item * (size_t)d;

    (void)i_thread;
    if (id < 0 || id >= e->table->desc.rows) {
        memset(to, 0, sizeof(*to) * (size_t)d);
        return;
    }
    from += (size_t)id * (size_t)d * 2;
    for (; i + VF_N <= d; i += VF_N) {
        vf_store(to + i, vf_load_bf16(from + (size_t)i * 2));
    }
    if (i < d) {
        vf_store_n(to + i, vf_load_bf16_n(from + (size_t)i * 2, d - i), d - i);
    }
}

int ISA(cpu_embed)(struct cpu *c, const struct kern_embed_args *a)
{
    struct embed e = {
        .table = a->table, .ids = cpu_at(a->ids), .out = cpu_at(a->out)};

    pool_run(c->pool, embed_item, &e, cpu_rows(&a->rows));
    return 0;
}
