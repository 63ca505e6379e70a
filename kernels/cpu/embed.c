/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_embed: table rows widened to F32. Once per path.
 */
#include "kernels/cpu/decode.h"
#include "kernels/cpu/ops.h"

struct embed {
    struct cpu *c;
    const struct kern_weight *table;
    const int32_t *ids;
    float *out;
};

static void widen(float *to, const uint8_t *from, int n)
{
    int i = 0;

    for (; i + VF_N <= n; i += VF_N) {
        vf_store(to + i, vf_load_bf16(from + (size_t)i * 2));
    }
    if (i < n) {
        vf_store_n(to + i, vf_load_bf16_n(from + (size_t)i * 2, n - i), n - i);
    }
}

static void embed_item(void *arg, int i_item, int i_thread)
{
    const struct embed *e = arg;
    int id = e->ids[i_item], d = e->table->desc.cols;
    float *to = e->out + (size_t)i_item * (size_t)d;

    (void)i_thread;
    if (id < 0 || id >= e->table->desc.rows) {
        memset(to, 0, sizeof(*to) * (size_t)d);
        return;
    }
    if (e->table->desc.dtype == KERN_BF16) {
        widen(to, cpu_plane(e->table, 0, 0) + (size_t)id * (size_t)d * 2, d);
        return;
    }
    for (int k = 0; k < d; k += COMPACT_COLS) {
        uint16_t v[COMPACT_COLS];
        int n = imin(COMPACT_COLS, d - k);

        decode_compact(v, e->c, e->table, id, k, n);
        widen(to + k, (const uint8_t *)v, n);
    }
}

int ISA(cpu_embed)(struct cpu *c, const struct kern_embed_args *a)
{
    struct embed e = {.c = c,
                      .table = a->table,
                      .ids = cpu_at(a->ids),
                      .out = cpu_at(a->out)};

    pool_run(c->pool, embed_item, &e, cpu_rows(&a->rows));
    return 0;
}
