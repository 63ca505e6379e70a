/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The layer as a list of kernel calls (model-spec section 2), and the buffers
 * between them. Owns the activations; knows neither plans nor drafts: step.c
 * and mtp.c say which rows, which slots, which layer.
 *
 * What matters: the residual stream is F32 and everything that enters a product
 * BF16 (the router alone reads F32), as the published model's error budget
 * demands; every call covers all rows, so that a weight is read once a step.
 */

#include "daemon/model/forward.h"

#include <string.h>

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* ---- buffers ---- */

/* The widest of what layers need. */
struct widths {
    int heads, kv_heads, mlp;
};

static struct widths widest(const struct shape *s, int n_mtp)
{
    struct widths w = {0, 0, s->n_expert > 0 ? s->shared_width : 0};

    for (int i = 0; i < s->n_layers + n_mtp; i++) {
        w.heads = max_int(w.heads, s->layer[i].n_head);
        w.kv_heads = max_int(w.kv_heads, s->layer[i].n_kv_head);
        w.mlp = max_int(w.mlp, s->layer[i].width);
    }
    return w;
}

static void size_tables(struct forward *f)
{
    int window = f->s->window;
    int columns = (f->size.max_len + MODEL_MAX_DRAFTS) / KERN_PAGE_TOK + 1;
    int rows = f->size.max_rows + MODEL_MAX_DRAFTS;

    f->table_pages[MODEL_FULL] = columns;
    f->table_pages[MODEL_SLIDING] =
        min_int(columns, (window + rows) / KERN_PAGE_TOK + 2);
}

static void make_activations(struct forward *f, struct bufs *b)
{
    const struct shape *s = f->s;
    struct widths w = widest(s, f->size.n_mtp);
    size_t n = (size_t)f->all_rows, d = (size_t)s->hidden;
    size_t carried = (size_t)f->size.max_seqs * KERN_CARRY;
    size_t moe = s->n_expert > 0 ? n * (size_t)s->top_k : 0;
    size_t tile = (size_t)f->tile;

    bufs_make(b, &f->even, 2 * carried + n, d, 4);
    bufs_make(b, &f->odd, carried + n, d, 4);
    /* an MTP module's input is twice as wide: embedding and hidden state */
    bufs_make(b, &f->a, n, f->size.n_mtp > 0 ? 2 * d : d, 2);
    bufs_make(b, &f->delta, n, d, 4);
    bufs_make(b, &f->q, n, (size_t)w.heads * KERN_HEAD_DIM, 4);
    bufs_make(b, &f->key, n, (size_t)w.kv_heads * KERN_HEAD_DIM, 4);
    bufs_make(b, &f->v, n, (size_t)w.kv_heads * KERN_HEAD_DIM, 4);
    bufs_make(b, &f->gate, n, (size_t)w.heads, 4);
    bufs_make(b, &f->q_out, n, (size_t)w.heads * KERN_HEAD_DIM, 2);
    bufs_make(b, &f->attn, n, (size_t)w.heads * KERN_HEAD_DIM, 2);
    bufs_make(b, &f->up_gate, n, (size_t)w.mlp, 4);
    bufs_make(b, &f->up, n, (size_t)w.mlp, 4);
    bufs_make(b, &f->act, n, (size_t)w.mlp, 2);
    bufs_make(b, &f->a_f32, moe > 0 ? n : 0, d, 4);
    bufs_make(b, &f->sel, moe, 1, 4);
    bufs_make(b, &f->wt, moe, 1, 4);
    bufs_make(b, &f->pair, moe, 1, 4);
    bufs_make(b, &f->off, moe > 0 ? (size_t)s->n_expert + 1 : 0, 1, 4);
    bufs_make(b, &f->expert_act, moe, (size_t)s->expert_width, 2);
    bufs_make(b, &f->head_x, tile, d, 4);
    bufs_make(b, &f->head_a, tile, d, 2);
    bufs_make(b, &f->logits, tile, (size_t)s->vocab, 4);
}

/* The rotary frequencies of all layers, in one buffer. */
static int make_freqs(struct forward *f, struct bufs *b)
{
    int n = f->s->n_layers + f->size.n_mtp, r = 0;
    struct kern_ptr all = {NULL, 0};
    float freq[KERN_HEAD_DIM / 2];

    bufs_make(b, &all, (size_t)n, KERN_HEAD_DIM / 2, 4);
    for (int i = 0; b->k != NULL && b->r == 0 && r == 0 && i < n; i++) {
        shape_freqs(f->s, i, freq);
        f->freq[i] = kern_ptr_add(all, (size_t)i * sizeof(freq));
        r = kern_upload(b->k, f->freq[i], freq,
                        (size_t)f->s->layer[i].n_freq * sizeof(*freq));
    }
    return r;
}

int forward_init(struct forward *f, struct kern *k, const struct shape *s,
                 const struct weights *w, struct kv *kv,
                 const struct forward_size *size)
{
    int r;

    memset(f, 0, sizeof(*f));
    f->k = k;
    f->s = s;
    f->w = w;
    f->kv = kv;
    f->size = *size;
    f->all_rows = size->max_rows + size->max_seqs * MODEL_MAX_DRAFTS;
    /* every row that is drawn in a step, so that a head is read once */
    f->tile = min_int(size->max_rows, size->max_seqs * (1 + MODEL_MAX_DRAFTS));
    bufs_init(&f->bufs, k);
    size_tables(f);
    make_activations(f, &f->bufs);
    r = make_freqs(f, &f->bufs);
    r = f->bufs.r < 0 ? f->bufs.r : r;
    if (r < 0) {
        forward_finish(f);
    }
    return r;
}

void forward_finish(struct forward *f)
{
    bufs_finish(&f->bufs);
}

/* ---- levels ---- */

struct kern_ptr forward_level(const struct forward *f, int level)
{
    size_t carried =
        (size_t)f->size.max_seqs * KERN_CARRY * (size_t)f->s->hidden * 4;

    /* even: carried of 0, carried of 2, rows; odd: carried of 1, rows */
    return level % 2 != 0 ? f->odd : kern_ptr_add(f->even, level / 2 * carried);
}

int forward_base(const struct forward *f, int level)
{
    return f->size.max_seqs * KERN_CARRY * (level == 0 ? 2 : 1);
}

struct kern_ptr forward_rows(const struct forward *f, int level)
{
    return kern_ptr_add(forward_level(f, level),
                        (size_t)forward_base(f, level) * (size_t)f->s->hidden *
                            4);
}

/* ---- one layer ---- */

static const struct weights_layer *weights_of(const struct forward *f,
                                              int layer)
{
    return layer < f->s->n_layers ? &f->w->layer[layer]
                                  : &f->w->mtp[layer - f->s->n_layers].block;
}

int forward_embed(struct forward *f, const struct rows *r, struct kern_ptr x)
{
    struct kern_embed_args a = {
        .rows = r->live, .table = f->w->embed, .ids = r->ids, .out = x};

    return kern_embed(f->k, &a);
}

/* The norm that adds what layer left also notes what is not finite. Of trunk
 * rows only: a proposal that is not finite is none, nothing worse. */
static void note_bad(const struct forward *f, int layer,
                     struct kern_norm_args *a)
{
    if (layer < f->s->n_layers) {
        a->bad = f->bad;
        a->mark = layer + 1;
    }
}

/* a = norm(x + pending delta), in BF16 and, where asked, in F32 too. after: the
 * layer whose end this is, -1 none. */
static int norm(struct forward *f, struct rows *r, const struct kern_weight *w,
                bool f32, int after)
{
    struct kern_norm_args a = {
        .rows = r->live,
        .width = f->s->hidden,
        .eps = f->s->eps,
        .x = r->x,
        .w = w,
        .out = f->a,
        .out_stride = f->s->hidden,
    };

    if (r->pending) {
        a.delta = f->delta;
    }
    if (f32) {
        a.out_f32 = f->a_f32;
    }
    if (after >= 0) {
        note_bad(f, after, &a);
    }
    r->pending = false;
    return kern_norm(f->k, &a);
}

/* One more output of a linear call. */
static void add_part(struct kern_linear_args *a, const struct kern_weight *w,
                     struct kern_ptr out)
{
    int i = a->n_parts++;

    a->part[i].w = w;
    a->part[i].out = out;
    a->part[i].out_stride = w->desc.rows;
}

static struct kern_linear_args linear_of(const struct rows *r,
                                         struct kern_ptr x, int cols)
{
    struct kern_linear_args a = {
        .rows = r->live, .cols = cols, .x = x, .x_stride = cols};

    return a;
}

static struct kern_slots slots_of(const struct forward *f, int layer,
                                  const struct rows *r)
{
    const struct forward_table *t = &f->table[f->kv->group[layer]];
    struct kern_slots at = {
        .slot = r->slot,
        .seq = r->seq,
        .table = t->page,
        .first_page = t->first_page,
        .low = r->low,
        .n_seq = t->n_seq,
        .max_pages = t->max_pages,
    };

    return at;
}

/* q, k, v and gate from a; k and v into the cache; attention into attn. */
static int attend(struct forward *f, int layer, const struct rows *r)
{
    const struct weights_layer *w = weights_of(f, layer);
    const struct shape_layer *l = &f->s->layer[layer];
    struct kern_linear_args in = linear_of(r, f->a, f->s->hidden);
    struct kern_qkv_args qkv = {
        .rows = r->live,
        .at = slots_of(f, layer, r),
        .kv = f->kv->layer[layer],
        .n_head = l->n_head,
        .eps = f->s->eps,
        .pos_shift = r->pos_shift,
        .n_freq = l->n_freq,
        .freq = f->freq[layer],
        .q_norm = w->q_norm,
        .k_norm = w->k_norm,
        .q = f->q,
        .k = f->key,
        .v = f->v,
        .q_out = f->q_out,
    };
    struct kern_attn_args attn = {
        .rows = r->live,
        .at = qkv.at,
        .kv = qkv.kv,
        .n_head = l->n_head,
        .window = l->window,
        .q = f->q_out,
        .out = f->attn,
    };
    int ret;

    add_part(&in, w->q, f->q);
    add_part(&in, w->k, f->key);
    add_part(&in, w->v, f->v);
    if (w->g != NULL) {
        add_part(&in, w->g, f->gate);
        attn.gate = f->gate;
    }
    ret = kern_linear(f->k, &in);
    ret = ret < 0 ? ret : kern_qkv(f->k, &qkv);
    return ret < 0 ? ret : kern_attn(f->k, &attn);
}

/* delta (+)= down(swiglu(gate a, up a)): both halves. */
struct mlp {
    struct kern_mlp_up_args up;
    struct kern_linear_args down;
};

static struct mlp mlp_of(const struct forward *f, const struct rows *r,
                         const struct kern_weight *gate,
                         const struct kern_weight *up,
                         const struct kern_weight *down, float limit, bool add)
{
    struct mlp m = {.up = {.rows = r->live,
                           .cols = f->s->hidden,
                           .limit = limit,
                           .x = f->a,
                           .gate = gate,
                           .up = up,
                           .gate_out = f->up_gate,
                           .up_out = f->up,
                           .out = f->act},
                    .down = linear_of(r, f->act, gate->desc.rows)};

    add_part(&m.down, down, f->delta);
    m.down.add = add;
    return m;
}

/* delta = the routed experts of a, then the shared one */
static int experts(struct forward *f, const struct weights_layer *w,
                   const struct shape_layer *l, const struct rows *r)
{
    const struct shape *s = f->s;
    struct kern_groups groups = {f->off, f->pair};
    struct kern_router_args route = {
        .rows = r->live,
        .n_expert = s->n_expert,
        .top_k = s->top_k,
        .scale = s->router_scale,
        .renorm = s->router_renorm,
        .x = f->a_f32,
        .w = w->router,
        .bias = w->router_bias,
        .sel = f->sel,
        .wt = f->wt,
        .groups = groups,
    };
    struct mlp shared = mlp_of(f, r, w->shared_gate, w->shared_up,
                               w->shared_down, l->limit_shared, true);
    struct kern_expert_up_args up = {
        .rows = r->live,
        .top_k = s->top_k,
        .limit = l->limit_routed,
        .x = f->a,
        .gate = w->expert_gate,
        .up = w->expert_up,
        .groups = groups,
        .h = f->expert_act,
        .shared = &shared.up,
    };
    struct kern_expert_down_args down = {
        .rows = r->live,
        .top_k = s->top_k,
        .h = f->expert_act,
        .down = w->expert_down,
        .groups = groups,
        .wt = f->wt,
        .out = f->delta,
        .shared = &shared.down,
    };
    int ret = kern_router(f->k, &route);

    ret = ret < 0 ? ret : kern_expert_up(f->k, &up);
    return ret < 0 ? ret : kern_expert_down(f->k, &down);
}

int forward_layer(struct forward *f, int layer, struct rows *r)
{
    const struct weights_layer *w = weights_of(f, layer);
    const struct shape_layer *l = &f->s->layer[layer];
    struct kern_linear_args o =
        linear_of(r, f->attn, l->n_head * KERN_HEAD_DIM);
    bool had = r->pending;
    int ret;

    ret = norm(f, r, w->attn_norm, false, had ? layer - 1 : -1);
    ret = ret < 0 ? ret : attend(f, layer, r);
    add_part(&o, w->o, f->delta);
    ret = ret < 0 ? ret : kern_linear(f->k, &o);
    r->pending = true;
    ret = ret < 0 ? ret : norm(f, r, w->ffn_norm, l->moe, -1);
    if (ret < 0) {
        return ret;
    }
    if (l->moe) {
        ret = experts(f, w, l, r);
    } else {
        struct mlp m =
            mlp_of(f, r, w->gate, w->up, w->down, l->limit_shared, false);

        ret = kern_mlp_up(f->k, &m.up);
        ret = ret < 0 ? ret : kern_linear(f->k, &m.down);
    }
    r->pending = true;
    return ret;
}

int forward_settle(struct forward *f, int layer, struct rows *r)
{
    struct kern_norm_args a = {.rows = r->live,
                               .width = f->s->hidden,
                               .eps = f->s->eps,
                               .x = r->x,
                               .delta = f->delta};

    if (!r->pending) {
        return 0;
    }
    r->pending = false;
    note_bad(f, layer, &a);
    return kern_norm(f->k, &a);
}

/* ---- the head ---- */

int forward_head(struct forward *f, struct kern_rows live, struct kern_ptr x,
                 struct kern_ptr src, const struct kern_weight *norm_w,
                 const struct kern_weight *head)
{
    struct kern_gather_args pick = {.rows = live,
                                    .width = f->s->hidden,
                                    .x = x,
                                    .src = src,
                                    .out = f->head_x};
    struct kern_norm_args to_a = {.rows = live,
                                  .width = f->s->hidden,
                                  .eps = f->s->eps,
                                  .x = f->head_x,
                                  .w = norm_w,
                                  .out = f->head_a,
                                  .out_stride = f->s->hidden};
    struct kern_linear_args lin = {.rows = live,
                                   .cols = f->s->hidden,
                                   .x = f->head_a,
                                   .x_stride = f->s->hidden};
    int ret;

    add_part(&lin, head, f->logits);
    ret = kern_gather(f->k, &pick);
    ret = ret < 0 ? ret : kern_norm(f->k, &to_a);
    return ret < 0 ? ret : kern_linear(f->k, &lin);
}
