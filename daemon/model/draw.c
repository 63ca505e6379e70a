/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The sampled rows of a step. Owns the lists on both sides and the results;
 * which rows, and what becomes of the tokens, is step.c's.
 *
 * What matters: a head is streamed once a step. Logits are made a tile of rows
 * at a time, and a tile has room for every row that can be drawn in a step;
 * only scoring of long spans takes several.
 */

#include "daemon/model/draw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int draw_init(struct draw *d, struct kern *k, struct forward *f, int max_rows,
              int max_spans)
{
    size_t rows = (size_t)max_rows, spans = (size_t)max_spans;
    struct bufs *b = &d->bufs;

    memset(d, 0, sizeof(*d));
    d->k = k;
    d->f = f;
    d->max_rows = max_rows;
    d->max_spans = max_spans;
    d->n_words = (f->s->vocab + 31) / 32;
    bufs_init(b, k);
    bufs_make(b, &d->n_dev, 1, 1, 4);
    bufs_make(b, &d->src_dev, rows, 1, 4);
    bufs_make(b, &d->pos_dev, rows, 1, 4);
    bufs_make(b, &d->row_dev, rows, 1, sizeof(struct kern_sample_row));
    bufs_make(b, &d->out_dev, rows, 1, sizeof(struct kern_sample_out));
    bufs_make(b, &d->mask_dev, (size_t)f->tile, (size_t)d->n_words, 4);
    bufs_make(b, &d->row0_dev, spans, 1, 4);
    bufs_make(b, &d->n_draft_dev, spans, 1, 4);
    bufs_make(b, &d->draft_dev, spans, KERN_MAX_DRAFTS, 4);
    bufs_make(b, &d->n_accept_dev, spans, 1, 4);
    bufs_make(b, &d->next_dev, spans, 1, 4);
    if (k == NULL) {
        return 0;
    }
    d->src = calloc(rows, sizeof(*d->src));
    d->pos = calloc(rows, sizeof(*d->pos));
    d->row = calloc(rows, sizeof(*d->row));
    d->out = calloc(rows, sizeof(*d->out));
    d->n_accept = calloc(spans, sizeof(*d->n_accept));
    d->next = calloc(spans, sizeof(*d->next));
    d->row0 = calloc(spans, sizeof(*d->row0));
    d->n_draft = calloc(spans, sizeof(*d->n_draft));
    d->draft = calloc(spans, sizeof(*d->draft));
    if (b->r == 0 &&
        (d->src == NULL || d->pos == NULL || d->row == NULL || d->out == NULL ||
         d->n_accept == NULL || d->next == NULL || d->row0 == NULL ||
         d->n_draft == NULL || d->draft == NULL)) {
        b->r = -ENOMEM;
    }
    if (b->r < 0) {
        draw_finish(d);
    }
    return b->r;
}

void draw_finish(struct draw *d)
{
    free(d->src);
    free(d->pos);
    free(d->row);
    free(d->pen);
    free(d->out);
    free(d->n_accept);
    free(d->next);
    free(d->row0);
    free(d->n_draft);
    free(d->draft);
    d->src = d->pos = NULL;
    d->row = NULL;
    d->pen = NULL;
    d->out = NULL;
    d->n_accept = d->next = d->row0 = d->n_draft = NULL;
    d->draft = NULL;
    if (d->pen_dev.buf != NULL) {
        kern_buf_free(d->k, d->pen_dev.buf);
        d->pen_dev.buf = NULL;
    }
    bufs_finish(&d->bufs);
}

void draw_begin(struct draw *d)
{
    d->n = 0;
    d->n_masks = 0;
    d->n_pen = 0;
}

int draw_add(struct draw *d, int r, int pos, const struct kern_sample_row *row)
{
    d->src[d->n] = forward_base(d->f, 0) + r;
    d->pos[d->n] = pos;
    d->row[d->n] = *row;
    return d->n++;
}

int draw_penalties(struct draw *d, const struct sampling *s,
                   const int32_t *extra, int n)
{
    struct kern_sample_row *row = &d->row[d->n - 1];
    int most = sampling_max_penalties(s, n);

    if (most == 0) {
        return 0;
    }
    if (d->n_pen + most > d->cap_pen) {
        int cap = 2 * (d->n_pen + most);
        struct kern_penalty *pen = realloc(d->pen, (size_t)cap * sizeof(*pen));

        if (pen == NULL) {
            return -ENOMEM;
        }
        d->pen = pen;
        d->cap_pen = cap;
    }
    row->pen_off = d->n_pen;
    row->pen_n = sampling_penalties(s, extra, n, d->pen + d->n_pen);
    d->n_pen += row->pen_n;
    return 0;
}

int draw_mask(struct draw *d, const uint32_t *words)
{
    size_t bytes = (size_t)d->n_words * sizeof(*words);

    d->row[d->n - 1].mask = d->n_masks;
    return kern_upload(d->k,
                       kern_ptr_add(d->mask_dev, (size_t)d->n_masks++ * bytes),
                       words, bytes);
}

static int upload_penalties(struct draw *d)
{
    size_t bytes = (size_t)d->n_pen * sizeof(*d->pen);
    int r;

    if (bytes == 0) {
        return 0;
    }
    if (d->pen_dev.buf == NULL || d->pen_dev.buf->bytes < bytes) {
        struct kern_buf *buf;

        r = kern_buf_new(d->k, (size_t)d->cap_pen * sizeof(*d->pen), &buf);
        if (r < 0) {
            return r;
        }
        kern_buf_free(d->k, d->pen_dev.buf);
        d->pen_dev.buf = buf;
    }
    return kern_upload(d->k, d->pen_dev, d->pen, bytes);
}

/* Sampled rows first .. first + n - 1, their live count in n_dev. */
static int draw_tile(struct draw *d, int first, int n)
{
    int32_t live = n;
    size_t at = (size_t)first;
    struct kern_rows rows = {n, d->n_dev};
    struct kern_sample_args a = {
        .rows = rows,
        .vocab = d->f->s->vocab,
        .stride = d->f->s->vocab,
        .logits = d->f->logits,
        .params = kern_ptr_add(d->row_dev, at * sizeof(*d->row)),
        .pos = kern_ptr_add(d->pos_dev, at * 4),
        .pen = d->pen_dev,
        .masks = d->mask_dev,
        .out = kern_ptr_add(d->out_dev, at * sizeof(*d->out)),
    };
    int r = kern_upload(d->k, d->n_dev, &live, sizeof(live));

    r = r < 0 ? r
              : forward_head(d->f, rows, forward_level(d->f, 0),
                             kern_ptr_add(d->src_dev, at * 4), d->f->w->norm,
                             d->f->w->head);
    return r < 0 ? r : kern_sample(d->k, &a);
}

int draw_run(struct draw *d)
{
    size_t n = (size_t)d->n;
    int r = upload_penalties(d);

    r = r < 0 ? r : kern_upload(d->k, d->src_dev, d->src, n * 4);
    r = r < 0 ? r : kern_upload(d->k, d->pos_dev, d->pos, n * 4);
    r = r < 0 ? r : kern_upload(d->k, d->row_dev, d->row, n * sizeof(*d->row));
    for (int i = 0; r == 0 && i < d->n; i += d->f->tile) {
        r = draw_tile(d, i, d->n - i < d->f->tile ? d->n - i : d->f->tile);
    }
    return r;
}

int draw_accept(struct draw *d, int n_spans)
{
    size_t n = (size_t)n_spans;
    struct kern_accept_args a = {
        .n_spans = n_spans,
        .n_sampled = d->n,
        .row0 = d->row0_dev,
        .n_draft = d->n_draft_dev,
        .draft = d->draft_dev,
        .sampled = d->out_dev,
        .n_accept = d->n_accept_dev,
        .next = d->next_dev,
    };
    int r = kern_upload(d->k, d->row0_dev, d->row0, n * 4);

    r = r < 0 ? r : kern_upload(d->k, d->n_draft_dev, d->n_draft, n * 4);
    r = r < 0
            ? r
            : kern_upload(d->k, d->draft_dev, d->draft, n * sizeof(*d->draft));
    return r < 0 ? r : kern_accept(d->k, &a);
}

int draw_fetch(struct draw *d, int n_spans)
{
    size_t n = (size_t)n_spans;
    int r = kern_fetch(d->k, d->n_accept, d->n_accept_dev, n * 4);

    r = r < 0 ? r : kern_fetch(d->k, d->next, d->next_dev, n * 4);
    return r < 0 || d->n == 0 ? r
                              : kern_fetch(d->k, d->out, d->out_dev,
                                           (size_t)d->n * sizeof(*d->out));
}
