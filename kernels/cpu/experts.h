/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_EXPERTS_H
#define STEPD_KERNELS_CPU_EXPERTS_H

/* What expert_up and expert_down share: the experts that a step hits. */

#include "kernels/cpu/tile.h"

/* Weight rows of an item: enough to pay for packing the activation rows, where
 * that is done, and few enough for n_threads to end together. */
#define EXPERT_W 32
#define EXPERT_ITEMS 8 /* a thread, at least */
/* Most rows of an expert that are packed in a thread's scratch: 2 MB of it. */
#define EXPERT_PACK_X 256

struct experts {
    const int32_t *off;  /* [E + 1] */
    const int32_t *pair; /* [off[E]] */
    const xt *const *x;  /* [off[E]] the row of each pair, in this order */
    const int32_t *hit;  /* [n_hit] ids, ascending */
    int n_hit;
    int most; /* most rows of one expert */
};

INLINE int expert_w(const struct kern_weight *w, int most, int n_items_1,
                    int n_threads)
{
    bool wide_pays = w->desc.dtype == KERN_MXFP4 && tile_packs(w, most) > 0;
    int wide = wide_pays ? TILE_W : EXPERT_W;

    while (wide > EXPERT_W && ceil_div(w->desc.rows, wide) * n_items_1 <
                                  n_threads * EXPERT_ITEMS) {
        wide -= EXPERT_W;
    }
    return wide;
}

/* Bytes of x_rows' extra that experts_list fills. */
INLINE size_t experts_bytes(int n_expert, int n_pairs)
{
    return (size_t)n_pairs * sizeof(const xt *) +
           (size_t)n_expert * sizeof(int32_t);
}

/* pairs_a_row: pairs that share one of rows[] (top_k), or 1. */
INLINE struct experts experts_list(const struct kern_groups *g, int n_expert,
                                   int n_pairs, const xt *const *rows,
                                   int pairs_a_row, void *extra)
{
    const xt **x = extra;
    int32_t *hit = (int32_t *)(x + n_pairs);
    struct experts e = {.off = cpu_at(g->off), .pair = cpu_at(g->pair)};

    for (int i = 0; i < n_pairs; i++) {
        x[i] = rows[e.pair[i] / pairs_a_row];
    }
    for (int i = 0; i < n_expert; i++) {
        int n = e.off[i + 1] - e.off[i];

        if (n > 0) {
            hit[e.n_hit++] = i;
            e.most = imax(e.most, n);
        }
    }
    e.x = x;
    e.hit = hit;
    return e;
}

#endif
