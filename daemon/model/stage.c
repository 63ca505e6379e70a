/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The staging of a step: its memory on both sides, and the plan's rows and page
 * tables brought to the device. Owns nothing but struct step's buffers.
 *
 * What matters: rows keep the order of the plan, and a span is one line of the
 * page tables. Of a table only the pages that the step touches are sent.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/state.h"

/* ---- memory ---- */

int step_init(struct model *m, struct kern *k, int max_rows)
{
    struct step *st = &m->step;
    struct bufs *b = &st->bufs;
    size_t rows = (size_t)max_rows, seqs = (size_t)m->max_seqs;

    memset(st, 0, sizeof(*st));
    bufs_init(b, k);
    bufs_make(b, &st->rows.live.n, 1, 1, 4);
    bufs_make(b, &st->rows.ids, rows, 1, 4);
    bufs_make(b, &st->rows.slot, rows, 1, 4);
    bufs_make(b, &st->rows.seq, rows, 1, 4);
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
    st->bad = calloc(rows, sizeof(*st->bad));
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
         st->bad == NULL || st->table == NULL || st->first_page == NULL ||
         st->low == NULL || st->mtp_span == NULL || st->mtp_params == NULL ||
         st->drafts == NULL || st->n_drafts == NULL || st->scored == NULL)) {
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
    free(st->bad);
    free(st->table);
    free(st->first_page);
    free(st->low);
    free(st->mtp_span);
    free(st->mtp_params);
    free(st->drafts);
    free(st->n_drafts);
    free(st->scored);
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

static int stage_table(struct model *m, int g)
{
    struct step *st = &m->step;
    struct forward_table *t = &m->f.table[g];
    int n = t->n_seq, columns = t->max_pages, lo, hi, r;

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
    r = kern_upload(m->k, t->page, st->table,
                    (size_t)n * (size_t)columns * sizeof(*st->table));
    return r < 0 ? r
                 : kern_upload(m->k, t->first_page, st->first_page,
                               (size_t)n * sizeof(*st->first_page));
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

int step_stage(struct model *m)
{
    struct step *st = &m->step;
    int n = 0, r = 0;

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
    r = step_upload_rows(m);
    for (int g = 0; r == 0 && g < MODEL_N_GROUPS; g++) {
        r = stage_table(m, g);
    }
    return r < 0 ? r : kern_fill(m->k, m->f.bad, 0, (size_t)n * 4);
}
