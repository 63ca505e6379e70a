/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The MTP modules (model-spec section 3, design.md 4.3). Owns the buffers of
 * their passes and the bookkeeping of slots; whose rows, and when, is step.c's.
 *
 * Module k joins, at slot s, the embedding of token s with what the level below
 * made of slot s - 1. So slot s depends on tokens <= s alone, chunks need no
 * look-ahead, and one rule is both rollback and repair: after verification
 * every slot >= L is dropped, and each module goes on at its first missing one.
 * The bodies of all modules run over every committed row; a module beyond the
 * wanted depth only skips its head.
 *
 * What matters: proposals can make an answer faster, never different. Nothing
 * here is read by the trunk.
 *
 * How to propose at temperature > 0, mean acceptance length at depth 3 of
 * step-tiny (its 40 golden prompts, three seeds, about 1,050 verifications
 * each; greedy proposals at T 0: 3.887):
 *
 *     T     greedy  beta 0.5   0.8    0.9    1.0    1.1    1.25   1.5
 *     0.7   3.845   3.830     3.877  3.881  3.881  3.877  3.877  3.877
 *     1.0   3.824   3.301     3.853  3.855  3.857  3.861  3.861  3.861
 *     1.3   3.775   2.217     3.665  3.743  3.780  3.784  3.789  3.792
 *
 * Sharing the target's noise wins at every temperature. beta 1, the module's
 * own distribution, is within the error of the best and stays the default.
 */

#include "daemon/model/mtp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a sequence has ---- */

void mtp_seq_reset(struct mtp_seq *q)
{
    memset(q, 0, sizeof(*q));
    q->r0 = -1;
}

void mtp_seq_at(struct mtp_seq *q, int r0, int len)
{
    mtp_seq_reset(q);
    q->r0 = r0;
    for (int k = 1; k <= KERN_MAX_DRAFTS; k++) {
        q->end[k - 1] = r0 + k > len ? r0 + k : len;
    }
}

void mtp_seq_step(struct mtp_seq *q, int len, const int32_t *ids, int n_sure,
                  int depth, struct kern_mtp_span *ret)
{
    int same = 0;

    if (q->r0 < 0) {
        mtp_seq_at(q, len, len);
    }
    while (same < n_sure && same < q->n_known && ids[same] == q->known[same]) {
        same++;
    }
    memset(ret, 0, sizeof(*ret));
    ret->pos = len;
    ret->n_sure = n_sure;
    ret->depth = depth;
    for (int k = 1; k <= KERN_MAX_DRAFTS; k++) {
        ret->low[k - 1] = q->r0 + k;
        ret->end[k - 1] = q->end[k - 1];
        /* from the first token that is not the expected one on */
        if (same < n_sure && ret->end[k - 1] > len + same) {
            ret->end[k - 1] = len + same;
        }
    }
}

/* The same arithmetic as kern_mtp_rows. */
void mtp_seq_commit(struct mtp_seq *q, const struct kern_mtp_span *span,
                    int len, int32_t next, const int32_t *drafts, int n_drafts)
{
    for (int k = 1; k <= KERN_MAX_DRAFTS; k++) {
        int first = span->end[k - 1] < len ? span->end[k - 1] : len;
        int limit = span->depth >= k ? len + k : len;

        first = first > span->low[k - 1] ? first : span->low[k - 1];
        q->end[k - 1] = limit > first ? limit : first;
    }
    q->n_known = 0;
    q->n_drafts = 0;
    if (next < 0) {
        return;
    }
    q->known[q->n_known++] = next;
    for (int i = 0; i < n_drafts; i++) {
        q->known[q->n_known++] = drafts[i];
    }
    q->n_drafts = n_drafts;
}

/* ---- passes ---- */

int mtp_init(struct mtp *t, struct kern *k, struct forward *f, int n,
             int max_spans)
{
    size_t rows = (size_t)f->all_rows, spans = (size_t)max_spans;
    struct bufs *b = &t->bufs;

    memset(t, 0, sizeof(*t));
    t->k = k;
    t->f = f;
    t->n = n;
    t->max_spans = max_spans;
    for (int i = 0; i < KERN_MAX_DRAFTS; i++) {
        t->beta[i] = 1;
    }
    bufs_init(b, k);
    if (n == 0) {
        return 0;
    }
    bufs_make(b, &t->rows.live.n, 1, 1, 4);
    bufs_make(b, &t->rows.ids, rows, 1, 4);
    bufs_make(b, &t->rows.slot, rows, 1, 4);
    bufs_make(b, &t->rows.seq, rows, 1, 4);
    bufs_make(b, &t->below, rows, 1, 4);
    bufs_make(b, &t->first, FORWARD_LEVELS, spans, 4);
    bufs_make(b, &t->row0, FORWARD_LEVELS, spans, 4);
    bufs_make(b, &t->last, spans, 1, 4);
    bufs_make(b, &t->last_pos, spans, 1, 4);
    bufs_make(b, &t->keep_src, spans, KERN_CARRY, 4);
    bufs_make(b, &t->keep_dst, spans, KERN_CARRY, 4);
    if (b->r < 0) {
        mtp_finish(t);
    }
    return b->r;
}

void mtp_finish(struct mtp *t)
{
    bufs_finish(&t->bufs);
}

size_t mtp_in_bytes(const struct mtp *t)
{
    size_t n = (size_t)t->max_spans;

    return block_room(n, sizeof(struct kern_mtp_span)) + block_room(1, 4) +
           block_room(n * KERN_MAX_DRAFTS, 4) +
           KERN_MAX_DRAFTS * (block_room(1, 4) +
                              block_room(n, sizeof(struct kern_sample_row)));
}

size_t mtp_out_bytes(const struct mtp *t)
{
    return block_room((size_t)t->max_spans * KERN_MAX_DRAFTS,
                      sizeof(struct kern_sample_out));
}

static void stage_head(struct mtp *t, const struct mtp_step *s, int k,
                       struct block *in)
{
    int32_t n = 0;

    while (n < s->n_spans && s->span[n].depth >= k) {
        s->params[n++].beta = t->beta[k - 1];
    }
    t->head[k - 1].n = n;
    block_put(in, &n, 1, sizeof(n), &t->head[k - 1].n_dev);
    block_put(in, s->params, (size_t)n, sizeof(*s->params),
              &t->head[k - 1].params);
}

void mtp_stage(struct mtp *t, const struct mtp_step *s, struct block *in,
               struct block *out)
{
    size_t n = (size_t)s->n_spans;
    int32_t keep = s->n_spans * KERN_CARRY;

    block_put(in, s->span, n, sizeof(*s->span), &t->span);
    block_put(in, &keep, 1, sizeof(keep), &t->keep_n);
    block_put(in, s->low, (size_t)s->n_lines * KERN_MAX_DRAFTS, 4, &t->low);
    for (int k = 1; k <= t->n; k++) {
        stage_head(t, s, k, in);
    }
    t->out = block_take(out, n * KERN_MAX_DRAFTS, sizeof(*t->out), &t->drafts);
}

static int list_rows(struct mtp *t, const struct mtp_step *s, int k)
{
    struct kern_mtp_rows_args a = {
        .k = k,
        .n_spans = s->n_spans,
        .max_rows = s->max_rows,
        .n_step_rows = s->n_step_rows,
        .below_base = forward_base(t->f, k - 1),
        .span = t->span,
        .n_accept = s->n_accept,
        .next = s->next,
        .step_ids = s->step_ids,
        .drafts = t->drafts,
        .first = t->first,
        .row0 = t->row0,
        .n = t->rows.live.n,
        .ids = t->rows.ids,
        .slot = t->rows.slot,
        .seq = t->rows.seq,
        .below = t->below,
        .last = t->last,
        .last_pos = t->last_pos,
        .keep_src = t->keep_src,
        .keep_dst = t->keep_dst,
    };

    return kern_mtp_rows(t->k, &a);
}

/* Half of the input: a's columns from `half` on = norm(delta). */
static int norm_half(struct mtp *t, int half, const struct kern_weight *w)
{
    int d = t->f->s->hidden;
    struct kern_norm_args a = {
        .rows = t->rows.live,
        .width = d,
        .eps = t->f->s->eps,
        .x = t->f->delta,
        .w = w,
        .out = kern_ptr_add(t->f->a, (size_t)half * (size_t)d * 2),
        .out_stride = 2 * d,
    };

    return kern_norm(t->k, &a);
}

/* x = eh_proj (enorm(embedding), hnorm(level below)); then the level below may
 * lose its rows, so what later steps need of them is kept. */
static int join(struct mtp *t, const struct mtp_step *s, int k)
{
    const struct weights_mtp *w = &t->f->w->mtp[k - 1];
    struct forward *f = t->f;
    int d = f->s->hidden, r;
    struct kern_ptr below = forward_level(f, k - 1);
    struct kern_gather_args take = {.rows = t->rows.live,
                                    .width = d,
                                    .x = below,
                                    .src = t->below,
                                    .out = f->delta};
    struct kern_gather_args keep = {
        .rows = {s->n_spans * KERN_CARRY, t->keep_n},
        .width = d,
        .x = below,
        .src = t->keep_src,
        .dst = t->keep_dst,
        .out = below};
    struct kern_linear_args lin = {.rows = t->rows.live,
                                   .cols = 2 * d,
                                   .x = f->a,
                                   .x_stride = 2 * d,
                                   .n_parts = 1};

    lin.part[0].w = w->eh_proj;
    lin.part[0].out = t->rows.x;
    lin.part[0].out_stride = d;
    r = forward_embed(f, &t->rows, f->delta);
    r = r < 0 ? r : norm_half(t, 0, w->enorm);
    r = r < 0 ? r : kern_gather(t->k, &take);
    r = r < 0 ? r : norm_half(t, 1, w->hnorm);
    r = r < 0 ? r : kern_gather(t->k, &keep);
    return r < 0 ? r : kern_linear(t->k, &lin);
}

/* A proposal for each span that wants one, from module k's head. */
static int propose(struct mtp *t, const struct mtp_step *s, int k)
{
    const struct weights_mtp *w = &t->f->w->mtp[k - 1];
    struct kern_rows live = {t->head[k - 1].n, t->head[k - 1].n_dev};
    size_t line = (size_t)(k - 1) * (size_t)s->n_spans;
    struct kern_sample_args a = {
        .rows = live,
        .vocab = t->f->s->vocab,
        .stride = t->f->s->vocab,
        .logits = t->f->logits,
        .params = t->head[k - 1].params,
        .pos = t->last_pos,
        .pen = s->pen,
        .out = kern_ptr_add(t->drafts, line * sizeof(struct kern_sample_out)),
    };
    int r = forward_head(t->f, live, t->rows.x, t->last, w->norm, w->head);

    return r < 0 ? r : kern_sample(t->k, &a);
}

static int run_module(struct mtp *t, const struct mtp_step *s, int k)
{
    int layer = t->f->s->n_layers + k - 1, r;

    t->rows.low =
        kern_ptr_add(t->low, (size_t)(k - 1) * (size_t)s->n_lines * 4);
    t->rows.x = forward_rows(t->f, k);
    t->rows.pos_shift = -k;
    t->rows.pending = false;
    r = list_rows(t, s, k);
    r = r < 0 ? r : join(t, s, k);
    r = r < 0 ? r : forward_layer(t->f, layer, &t->rows);
    r = r < 0 ? r : forward_settle(t->f, layer, &t->rows);
    if (r == 0 && s->seen != NULL) {
        r = s->seen(s->ctx, k, &t->rows);
    }
    return r < 0 || t->head[k - 1].n == 0 ? r : propose(t, s, k);
}

static bool any_live(const struct mtp_step *s)
{
    for (int i = 0; i < s->n_spans; i++) {
        if (s->span[i].row0 >= 0) {
            return true;
        }
    }
    return false;
}

int mtp_run(struct mtp *t, const struct mtp_step *s)
{
    int r = 0;

    t->rows.live.max = s->max_rows;
    for (int k = 1; r == 0 && k <= t->n; k++) {
        if (s->tick != NULL && s->tick(s->ctx)) {
            if (!any_live(s)) {
                return 0;
            }
            r = kern_upload(t->k, t->span, s->span,
                            (size_t)s->n_spans * sizeof(*s->span));
        }
        r = r < 0 ? r : run_module(t, s, k);
    }
    return r;
}

void mtp_drafts(const struct mtp *t, const struct mtp_step *s,
                int32_t (*ret)[KERN_MAX_DRAFTS], int *ret_n)
{
    const struct kern_sample_out *out = t->out;
    int n = s->n_spans;

    for (int i = 0; i < n; i++) {
        ret_n[i] = 0;
        while (ret_n[i] < s->span[i].depth && out[ret_n[i] * n + i].id >= 0) {
            ret[i][ret_n[i]] = out[ret_n[i] * n + i].id;
            ret_n[i]++;
        }
    }
}
