/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_FORWARD_H
#define STEPD_DAEMON_MODEL_FORWARD_H

/*
 * The layers of the network as lists of kernel calls, over many rows of many
 * sequences. Prefill, decode and verification rows, and those of the MTP
 * modules, share all of it. Nothing here waits for the device.
 *
 * Levels: 0 is the trunk, 1..3 the MTP modules. A level's buffer holds the
 * outputs that a later step may need (KERN_CARRY rows a sequence), then the
 * rows of this step: the residual stream, F32.
 */

#include <stdbool.h>

#include "daemon/model/bufs.h"
#include "daemon/model/kv.h"
#include "daemon/model/shape.h"
#include "daemon/model/weights.h"
#include "kernels/kernels.h"

#define FORWARD_LEVELS (KERN_MAX_DRAFTS + 1)

/* Rows that go through layers together. */
struct rows {
    struct kern_rows live;
    struct kern_ptr ids;  /* int32 [max] tokens */
    struct kern_ptr slot; /* int32 [max] absolute slots */
    struct kern_ptr seq;  /* int32 [max] lines of the page tables */
    struct kern_ptr low;  /* int32 [n_seq] lowest slot to attend to */
    struct kern_ptr x;    /* f32 [max][hidden], the residual stream */
    int pos_shift;        /* rotary position = slot + pos_shift */
    bool pending;         /* delta has still to be added to x */
};

/* The page tables of a step, one line a sequence, in device memory: as staged.
 */
struct forward_table {
    struct kern_ptr page;       /* int32 [n_seq][max_pages] */
    struct kern_ptr first_page; /* int32 [n_seq] */
    int n_seq, max_pages;
};

/* What a model needs room for. */
struct forward_size {
    int max_rows; /* trunk rows of a step */
    int max_seqs;
    int max_len; /* tokens of a sequence */
    int n_mtp;
};

struct forward {
    struct kern *k;
    const struct shape *s;
    const struct weights *w;
    struct kv *kv;
    struct forward_size size;
    struct bufs bufs;
    int all_rows;                    /* rows of any level: trunk or module */
    int tile;                        /* logits rows at once */
    int table_pages[MODEL_N_GROUPS]; /* columns that fit */
    struct forward_table table[MODEL_N_GROUPS];
    struct kern_ptr freq[KV_MAX_LAYERS]; /* f32, into one buffer */
    /* f32: levels 0 and 2 share one buffer's rows, 1 and 3 the other's: what a
     * module reads is one level below. */
    struct kern_ptr even, odd;
    struct kern_ptr bad; /* int32: layer + 1 where a row stopped being finite;
                          * as staged */
    struct kern_ptr a, a_f32, delta; /* normed rows; what a block adds to x */
    struct kern_ptr q, key, v, gate, q_out, attn;   /* attention */
    struct kern_ptr up_gate, up, act;               /* dense and shared MLP */
    struct kern_ptr sel, wt, off, pair, expert_act; /* experts */
    struct kern_ptr head_x, head_a, logits;         /* [tile] rows */
};

/* Makes the buffers; with k NULL only counts their bytes (bufs.bytes). */
int forward_init(struct forward *f, struct kern *k, const struct shape *s,
                 const struct weights *w, struct kv *kv,
                 const struct forward_size *size);
void forward_finish(struct forward *f);

/* Where a level's buffer begins (its carried rows), and which of its rows is
 * the first of this step. */
struct kern_ptr forward_level(const struct forward *f, int level);
int forward_base(const struct forward *f, int level);
/* The rows of this step of a level. */
struct kern_ptr forward_rows(const struct forward *f, int level);

/* x = embedding of the rows' tokens. */
int forward_embed(struct forward *f, const struct rows *r, struct kern_ptr x);
/* One layer: trunk, or an MTP block, which follow it. Leaves the block's last
 * addition pending; notes rows whose input was not finite already. */
int forward_layer(struct forward *f, int layer, struct rows *r);
/* Adds what is pending; notes rows that are not finite after that layer. */
int forward_settle(struct forward *f, int layer, struct rows *r);
/* logits = head(norm(x[src])): at most tile rows of a level's buffer. */
int forward_head(struct forward *f, struct kern_rows live, struct kern_ptr x,
                 struct kern_ptr src, const struct kern_weight *norm,
                 const struct kern_weight *head);

#endif
