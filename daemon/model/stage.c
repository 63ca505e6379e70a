/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The staging of a step: its memory on both sides, and all that the device is
 * told of the plan: rows and page tables, draws, the modules' spans. Owns
 * nothing but struct step's buffers.
 *
 * What matters: rows keep the order of the plan, and a span is one line of the
 * page tables. Of a table only the pages that the step touches are sent. What
 * is known at submit crosses then, in one copy, so that nothing later cuts the
 * step of a device into several graphs: masks alone are still to come, and
 * penalties, of no fixed size, have a copy of their own before it.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/state.h"

/* ---- memory ---- */

/* Everything that stage_rows, stage_table, draw_stage and mtp_stage may take.
 */
static size_t in_bytes(const struct model *m, size_t rows, size_t seqs)
{
    size_t n = block_room(1, 4) + 3 * block_room(rows, 4);

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        n += block_room(seqs * (size_t)m->f.table_pages[g], 4) +
             block_room(seqs, 4);
    }
    return n + draw_in_bytes(&m->draw) + mtp_in_bytes(&m->mtp);
}

int step_init(struct model *m, struct kern *k, int max_rows)
{
    struct step *st = &m->step;
    struct bufs *b = &st->bufs;
    size_t rows = (size_t)max_rows, seqs = (size_t)m->max_seqs;

    memset(st, 0, sizeof(*st));
    bufs_init(b, k);
    block_make(b, &st->in, in_bytes(m, rows, seqs));
    block_make(b, &st->out,
               block_room(rows, 4) + draw_out_bytes(&m->draw) +
                   mtp_out_bytes(&m->mtp));
    bufs_make(b, &st->src_n, 1, 1, 4);
    bufs_make(b, &st->src_dev, rows, 1, 4);
    bufs_make(b, &st->zero_low, seqs, 1, 4);
    if (k == NULL) {
        return 0;
    }
    st->span = calloc(seqs, sizeof(*st->span));
    st->order = calloc(seqs, sizeof(*st->order));
    st->ids = calloc(rows, sizeof(*st->ids));
    st->slot = calloc(rows, sizeof(*st->slot));
    st->seq = calloc(rows, sizeof(*st->seq));
    st->src = calloc(rows, sizeof(*st->src));
    st->table =
        calloc(seqs * (size_t)m->f.table_pages[MODEL_FULL], sizeof(*st->table));
    st->first_page = calloc(seqs, sizeof(*st->first_page));
    st->low = calloc(seqs * KERN_MAX_DRAFTS, sizeof(*st->low));
    st->mtp_span = calloc(seqs, sizeof(*st->mtp_span));
    st->mtp_params = calloc(seqs, sizeof(*st->mtp_params));
    st->drafts = calloc(seqs, sizeof(*st->drafts));
    st->n_drafts = calloc(seqs, sizeof(*st->n_drafts));
    st->scored = calloc(rows, sizeof(*st->scored));
    if (b->r == 0 &&
        (st->span == NULL || st->order == NULL || st->ids == NULL ||
         st->slot == NULL || st->seq == NULL || st->src == NULL ||
         st->table == NULL || st->first_page == NULL || st->low == NULL ||
         st->mtp_span == NULL || st->mtp_params == NULL || st->drafts == NULL ||
         st->n_drafts == NULL || st->scored == NULL)) {
        b->r = -ENOMEM;
    }
    if (b->r == 0) {
        b->r = kern_fill(k, st->zero_low, 0, seqs * 4);
    }
    if (b->r < 0) {
        step_finish(st);
    }
    return b->r;
}

void step_finish(struct step *st)
{
    free(st->span);
    free(st->order);
    free(st->ids);
    free(st->slot);
    free(st->seq);
    free(st->src);
    free(st->table);
    free(st->first_page);
    free(st->low);
    free(st->mtp_span);
    free(st->mtp_params);
    free(st->drafts);
    free(st->n_drafts);
    free(st->scored);
    block_finish(&st->in);
    block_finish(&st->out);
    bufs_finish(&st->bufs);
    memset(st, 0, sizeof(*st));
}

/* ---- staging ---- */

/* The pages of group g that the step touches: those of the window and of the
 * rows, and in the sliding group those of the drafts to come. */
static void page_range(const struct model *m, int g, int i, int *ret_lo,
                       int *ret_hi)
{
    const struct model_span *s = &m->step.plan->span[i];
    int lo = g == MODEL_FULL ? 0 : s->pos - m->s->window + 1;
    int hi = s->pos + s->n_rows - 1;

    if (g == MODEL_SLIDING) {
        hi += m->step.span[i].depth;
    }
    *ret_lo = (lo < 0 ? 0 : lo) / MODEL_PAGE_TOK;
    *ret_hi = hi / MODEL_PAGE_TOK;
}

/* Columns come as powers of two: a sequence that grows by a page mostly stays
 * within the shape of the step before (kern_begin). */
void step_columns(struct model *m)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int most = m->f.table_pages[g], columns = 1, lo, hi;

        for (int i = 0; i < m->step.plan->n_spans; i++) {
            page_range(m, g, i, &lo, &hi);
            while (columns < hi - lo + 1) {
                columns *= 2;
            }
        }
        m->f.table[g].max_pages = columns < most ? columns : most;
        m->f.table[g].n_seq = m->step.plan->n_spans;
    }
}

static void stage_table(struct model *m, int g)
{
    struct step *st = &m->step;
    struct forward_table *t = &m->f.table[g];
    int n = t->n_seq, columns = t->max_pages, lo, hi;

    for (int i = 0; i < n; i++) {
        const struct model_span *s = &st->plan->span[i];

        page_range(m, g, i, &lo, &hi);
        st->first_page[i] = lo;
        for (int c = 0; c < columns; c++) {
            int at = lo + c - s->first_page[g];

            st->table[i * columns + c] =
                lo + c <= hi && at >= 0 && at < s->n_pages[g] ? s->pages[g][at]
                                                              : -1;
        }
    }
    block_put(&st->in, st->table, (size_t)n * (size_t)columns, 4, &t->page);
    block_put(&st->in, st->first_page, (size_t)n, 4, &t->first_page);
}

static void stage_rows(struct step *st)
{
    size_t n = (size_t)st->n_rows;
    int32_t live = st->n_rows;

    block_put(&st->in, &live, 1, sizeof(live), &st->rows.live.n);
    block_put(&st->in, st->ids, n, 4, &st->rows.ids);
    block_put(&st->in, st->slot, n, 4, &st->rows.slot);
    block_put(&st->in, st->seq, n, 4, &st->rows.seq);
}

int step_upload_rows(struct model *m)
{
    struct step *st = &m->step;
    size_t bytes = (size_t)st->n_rows * 4;
    int32_t n = st->n_rows;
    int r = kern_upload(m->k, st->rows.live.n, &n, sizeof(n));

    r = r < 0 ? r : kern_upload(m->k, st->rows.ids, st->ids, bytes);
    r = r < 0 ? r : kern_upload(m->k, st->rows.slot, st->slot, bytes);
    return r < 0 ? r : kern_upload(m->k, st->rows.seq, st->seq, bytes);
}

/* ---- the draws ---- */

/* Rows that are drawn: after the last sure one and after each draft. */
static int add_draws(struct model *m, int i)
{
    const struct model_span *s = &m->step.plan->span[i];
    struct step_span *sp = &m->step.span[i];
    const struct sampling *p = &m->seq[sp->seq].sampling;
    struct kern_sample_row row = sampling_row(p);
    const int32_t *drafts = s->ids + sp->n_sure;
    int r = 0;

    for (int j = 0; r == 0 && j <= sp->n_draft; j++) {
        int at = sp->n_sure - 1 + j;
        int n = draw_add(&m->draw, sp->row0 + at, s->pos + at + 1, &row);

        sp->draw0 = j == 0 ? n : sp->draw0;
        r = draw_penalties(&m->draw, p, drafts, j);
        if (r == 0 && s->mask != NULL) {
            draw_mask(&m->draw, s->mask + j * m->draw.n_words);
        }
    }
    return r;
}

/* Rows whose next token is given; the last one draws where none is. */
static int add_scores(struct model *m, int i)
{
    const struct model_span *s = &m->step.plan->span[i];
    struct step_span *sp = &m->step.span[i];
    struct kern_sample_row row = sampling_row(&m->seq[sp->seq].sampling);

    row.n_top = row.n_top < 0 ? 0 : row.n_top;
    sp->score0 = m->draw.n;
    for (int j = 0; j < s->n_rows; j++) {
        bool last = j == s->n_rows - 1;

        row.given = last ? s->next_id : s->ids[j + 1];
        if (row.given < 0) {
            return add_draws(m, i);
        }
        draw_add(&m->draw, sp->row0 + j, s->pos + j + 1, &row);
        sp->n_scored++;
    }
    return 0;
}

/* Spans with MTP first, by falling depth; stable. */
static void sort_spans(struct step *st)
{
    int n = 0;

    st->n_mtp = 0;
    for (int depth = KERN_MAX_DRAFTS; depth >= -1; depth--) {
        for (int i = 0; i < st->plan->n_spans; i++) {
            const struct step_span *s = &st->span[i];
            int d = s->mtp && !s->gone ? s->depth : -1;

            if (d == depth) {
                st->order[n++] = i;
                st->n_mtp += d >= 0;
            }
        }
    }
}

/* The lists of draws, and of which spans the modules run over. */
static int list_draws(struct model *m)
{
    struct step *st = &m->step;
    struct draw *d = &m->draw;
    int r = 0;

    draw_begin(d);
    for (int i = 0; r == 0 && i < st->plan->n_spans; i++) {
        struct step_span *s = &st->span[i];

        s->draw0 = -1;
        s->score0 = s->n_scored = 0;
        if (s->gone) {
            continue;
        }
        if (st->plan->span[i].want == MODEL_WANT_DRAW) {
            r = add_draws(m, i);
        } else if (st->plan->span[i].want == MODEL_WANT_SCORE) {
            r = add_scores(m, i);
        }
    }
    sort_spans(st);
    for (int i = 0; i < st->plan->n_spans; i++) {
        const struct step_span *s = &st->span[st->order[i]];
        const struct model_span *p = &st->plan->span[st->order[i]];

        d->row0[i] = s->gone ? -1 : s->draw0;
        d->n_draft[i] = s->n_draft;
        for (int j = 0; j < s->n_draft; j++) {
            d->draft[i][j] = p->ids[s->n_sure + j];
        }
    }
    return r;
}

/* ---- the modules ---- */

static void stage_mtp_span(struct model *m, int i)
{
    struct step *st = &m->step;
    int n = st->plan->n_spans;
    struct step_span *s = &st->span[st->order[i]];
    const struct model_span *p = &st->plan->span[st->order[i]];
    struct seq *q = &m->seq[s->seq];
    struct kern_mtp_span *to = &st->mtp_span[i];

    mtp_seq_step(&q->mtp, q->len, p->ids, s->n_sure, s->depth, to);
    s->in_mtp = true;
    to->row0 = s->row0;
    to->seq = st->order[i];
    to->carry = s->seq * KERN_CARRY;
    for (int k = 0; k < KERN_MAX_DRAFTS; k++) {
        st->low[k * n + st->order[i]] = to->low[k];
    }
    st->mtp_params[i] = sampling_draft_row(&q->sampling);
    if (s->draw0 >= 0) {
        /* the history without what this step draws: unknown as yet */
        st->mtp_params[i].pen_off = m->draw.row[s->draw0].pen_off;
        st->mtp_params[i].pen_n = m->draw.row[s->draw0].pen_n;
    }
}

static void list_modules(struct model *m, struct mtp_step *t)
{
    struct step *st = &m->step;
    int n = 0;

    memset(st->low, 0,
           (size_t)st->plan->n_spans * KERN_MAX_DRAFTS * sizeof(*st->low));
    for (int i = 0; i < st->plan->n_spans; i++) {
        st->span[i].in_mtp = false;
    }
    for (int i = 0; i < st->n_mtp; i++) {
        stage_mtp_span(m, i);
        n += st->span[st->order[i]].n_rows + KERN_MAX_DRAFTS;
    }
    memset(t, 0, sizeof(*t));
    t->n_spans = st->n_mtp;
    t->span = st->mtp_span;
    t->n_lines = st->plan->n_spans;
    t->low = st->low;
    t->params = st->mtp_params;
    t->n_step_rows = st->n_rows;
    t->max_rows = n;
}

/* Draws and modules: everything is known but what will be drawn, and masks. */
static int stage_rest(struct model *m)
{
    struct step *st = &m->step;
    int n = st->plan->n_spans;
    int r = list_draws(m);

    r = r < 0 ? r : draw_stage(&m->draw, &st->in, &st->out, n);
    if (r == 0) {
        list_modules(m, &st->mtp);
        if (st->n_mtp > 0) {
            mtp_stage(&m->mtp, &st->mtp, &st->in, &st->out);
        }
    }
    st->left = false;
    return r;
}

static int upload_from(struct model *m, size_t from)
{
    struct block *in = &m->step.in;

    return kern_upload(m->k, kern_ptr_add(in->at, from), in->host + from,
                       in->n - from);
}

int step_stage_rest(struct model *m)
{
    struct step *st = &m->step;
    int r;

    st->in.n = st->rest_in;
    st->out.n = st->rest_out;
    r = stage_rest(m);
    return r < 0 ? r : upload_from(m, st->rest_in);
}

/* ---- the whole ---- */

int step_stage(struct model *m)
{
    struct step *st = &m->step;
    int n = 0, r;

    for (int i = 0; i < st->plan->n_spans; i++) {
        const struct model_span *s = &st->plan->span[i];

        for (int j = 0; j < s->n_rows; j++, n++) {
            st->ids[n] = s->ids[j];
            st->slot[n] = s->pos + j;
            st->seq[n] = i;
        }
    }
    st->rows.live.max = n;
    st->rows.low = st->zero_low;
    st->rows.x = forward_rows(&m->f, 0);
    st->rows.pos_shift = 0;
    st->rows.pending = false;
    st->in.n = st->out.n = 0;
    stage_rows(st);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        stage_table(m, g);
    }
    st->bad = block_take(&st->out, (size_t)n, 4, &m->f.bad);
    st->rest_in = st->in.n;
    st->rest_out = st->out.n;
    r = stage_rest(m);
    r = r < 0 ? r : upload_from(m, 0);
    return r < 0 ? r : kern_fill(m->k, m->f.bad, 0, (size_t)n * 4);
}
