/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See opclock.h. A copy of the backend's table, each compute op between two
 * looks at the clock. What a product is for is told by its weight; the modules'
 * part of a step begins with the first list of their rows.
 */
#include "tests/bench/opclock.h"

#include <string.h>

#include "tests/bench/probe.h"

static struct {
    const struct kern_ops *real;
    struct kern_ops timed;
    const struct model *m;
    int level; /* 0 trunk, 1 modules */
    struct opclock sum;
} ck;

const char *opclock_name(enum opclock_part p)
{
    static const char *const names[OPCLOCK_N_PARTS] = {
        [OPCLOCK_QKV_IN] = "q k v gate",
        [OPCLOCK_ATTN] = "attention",
        [OPCLOCK_O] = "o",
        [OPCLOCK_DENSE] = "dense mlp",
        [OPCLOCK_ROUTER] = "router",
        [OPCLOCK_EXPERTS] = "experts",
        [OPCLOCK_SHARED] = "shared mlp",
        [OPCLOCK_HEAD] = "head",
        [OPCLOCK_JOIN] = "eh_proj",
        [OPCLOCK_SMALL] = "small ops",
        [OPCLOCK_SAMPLE] = "sampling",
    };

    return names[p];
}

/* ---- what a call is for -------------------------------------------------- */

static enum opclock_part of_layer(const struct weights_layer *l,
                                  const struct kern_weight *w)
{
    if (w == l->q) {
        return OPCLOCK_QKV_IN;
    }
    if (w == l->o) {
        return OPCLOCK_O;
    }
    if (w == l->gate || w == l->down) {
        return OPCLOCK_DENSE;
    }
    return w == l->shared_gate || w == l->shared_down ? OPCLOCK_SHARED
                                                      : OPCLOCK_N_PARTS;
}

static enum opclock_part of_weight(const struct kern_weight *w)
{
    const struct weights *all = ck.m->w;
    enum opclock_part p = OPCLOCK_N_PARTS;

    for (int i = 0; p == OPCLOCK_N_PARTS && i < all->n_layers; i++) {
        p = of_layer(&all->layer[i], w);
    }
    for (int i = 0; p == OPCLOCK_N_PARTS && i < all->n_mtp; i++) {
        p = w == all->mtp[i].eh_proj ? OPCLOCK_JOIN
                                     : of_layer(&all->mtp[i].block, w);
    }
    return p == OPCLOCK_N_PARTS ? OPCLOCK_HEAD : p;
}

static double checkpoint_bytes(const struct kern_weight *w)
{
    double n = 0;

    if (w->desc.dtype == KERN_COMPACT) {
        return 2.0 * w->desc.rows * w->desc.cols;
    }
    for (int p = 0; p < kern_weight_n_planes(w->desc.dtype); p++) {
        n += (double)kern_weight_plane_bytes(&w->desc, p);
    }
    return n;
}

/* ---- the table ----------------------------------------------------------- */

struct before {
    double t;
    uint64_t bytes;
};

static struct before begin(const struct kern *k)
{
    struct before b = {probe_now(), k->stats.weight_bytes + k->stats.kv_bytes};

    return b;
}

/* flops and bytes16 come from the caller; 0 bytes16: what was read. */
static int add(const struct kern *k, struct before b, enum opclock_part p,
               double bytes16, double flops, int r)
{
    struct opclock_line *to = &ck.sum.part[ck.level][p];
    double bytes =
        (double)(k->stats.weight_bytes + k->stats.kv_bytes - b.bytes);

    to->seconds += probe_now() - b.t;
    to->bytes += bytes;
    to->bytes16 += bytes16 > 0 ? bytes16 : bytes;
    to->flops += flops;
    to->calls++;
    return r;
}

#define TIMED(op, part)                                                 \
    static int t_##op(struct kern *k, const struct kern_##op##_args *a) \
    {                                                                   \
        struct before b = begin(k);                                     \
                                                                        \
        return add(k, b, part, 0, 0, ck.real->op(k, a));                \
    }
TIMED(embed, OPCLOCK_SMALL)
TIMED(gather, OPCLOCK_SMALL)
TIMED(norm, OPCLOCK_SMALL)
TIMED(qkv, OPCLOCK_SMALL)
TIMED(swiglu, OPCLOCK_SMALL)
TIMED(accept, OPCLOCK_SMALL)
TIMED(finite, OPCLOCK_SMALL)
TIMED(attn, OPCLOCK_ATTN)
TIMED(sample, OPCLOCK_SAMPLE)

/* The live rows of a call; on the CPU they are known. */
static double rows_of(struct kern *k, const struct kern_rows *r)
{
    int32_t n = r->max;

    (void)ck.real->download(k, &n, r->n, sizeof(n));
    return n;
}

static int t_linear(struct kern *k, const struct kern_linear_args *a)
{
    struct before b = begin(k);
    int r = ck.real->linear(k, a);
    double bytes = 0, weights = 0;

    for (int i = 0; i < a->n_parts; i++) {
        bytes += checkpoint_bytes(a->part[i].w);
        weights += (double)a->part[i].w->desc.rows * a->part[i].w->desc.cols;
    }
    return add(k, b, of_weight(a->part[0].w), bytes,
               2 * weights * rows_of(k, &a->rows), r);
}

static int t_router(struct kern *k, const struct kern_router_args *a)
{
    struct before b = begin(k);
    int r = ck.real->router(k, a);

    return add(k, b, OPCLOCK_ROUTER, checkpoint_bytes(a->w),
               2.0 * a->w->desc.rows * a->w->desc.cols * rows_of(k, &a->rows),
               r);
}

static int t_expert_up(struct kern *k, const struct kern_expert_up_args *a)
{
    struct before b = begin(k);
    int r = ck.real->expert_up(k, a);

    return add(k, b, OPCLOCK_EXPERTS, 0,
               4.0 * a->up->desc.rows * a->up->desc.cols * a->top_k *
                   rows_of(k, &a->rows),
               r);
}

static int t_expert_down(struct kern *k, const struct kern_expert_down_args *a)
{
    struct before b = begin(k);
    int r = ck.real->expert_down(k, a);

    return add(k, b, OPCLOCK_EXPERTS, 0,
               2.0 * a->down->desc.rows * a->down->desc.cols * a->top_k *
                   rows_of(k, &a->rows),
               r);
}

static int t_mtp_rows(struct kern *k, const struct kern_mtp_rows_args *a)
{
    struct before b = begin(k);

    ck.level = 1;
    return add(k, b, OPCLOCK_SMALL, 0, 0, ck.real->mtp_rows(k, a));
}

static int t_begin(struct kern *k, uint64_t shape_key)
{
    ck.level = 0;
    return ck.real->begin(k, shape_key);
}

void opclock_install(struct model *m)
{
    memset(&ck, 0, sizeof(ck));
    ck.m = m;
    ck.real = m->k->ops;
    ck.timed = *ck.real;
    ck.timed.begin = t_begin;
    ck.timed.embed = t_embed;
    ck.timed.gather = t_gather;
    ck.timed.norm = t_norm;
    ck.timed.linear = t_linear;
    ck.timed.qkv = t_qkv;
    ck.timed.attn = t_attn;
    ck.timed.swiglu = t_swiglu;
    ck.timed.router = t_router;
    ck.timed.expert_up = t_expert_up;
    ck.timed.expert_down = t_expert_down;
    ck.timed.sample = t_sample;
    ck.timed.accept = t_accept;
    ck.timed.mtp_rows = t_mtp_rows;
    ck.timed.finite = t_finite;
    m->k->ops = &ck.timed;
}

void opclock_reset(void)
{
    memset(&ck.sum, 0, sizeof(ck.sum));
}

void opclock_read(struct opclock *ret)
{
    *ret = ck.sum;
}
