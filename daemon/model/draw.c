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
    bufs_make(b, &d->mask_dev, (size_t)f->tile, (size_t)d->n_words, 4);
    /* every token of every row, so that no history can ask for memory later:
     * on a device, where the pools have the rest, it would be refused */
    bufs_make(b, &d->pen_dev, (size_t)f->tile, (size_t)f->s->vocab,
              sizeof(struct kern_penalty));
    if (k == NULL) {
        return 0;
    }
    d->src = calloc(rows, sizeof(*d->src));
    d->pos = calloc(rows, sizeof(*d->pos));
    d->row = calloc(rows, sizeof(*d->row));
    d->tile_n = calloc(rows, sizeof(*d->tile_n));
    d->mask_from = calloc((size_t)f->tile, sizeof(*d->mask_from));
    d->mask = calloc((size_t)f->tile, (size_t)d->n_words * sizeof(*d->mask));
    d->row0 = calloc(spans, sizeof(*d->row0));
    d->n_draft = calloc(spans, sizeof(*d->n_draft));
    d->draft = calloc(spans, sizeof(*d->draft));
    if (b->r == 0 &&
        (d->src == NULL || d->pos == NULL || d->row == NULL ||
         d->tile_n == NULL || d->mask_from == NULL || d->mask == NULL ||
         d->row0 == NULL || d->n_draft == NULL || d->draft == NULL)) {
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
    free(d->tile_n);
    free(d->mask_from);
    free(d->mask);
    free(d->row0);
    free(d->n_draft);
    free(d->draft);
    d->src = d->pos = d->tile_n = NULL;
    d->row = NULL;
    d->pen = NULL;
    d->mask_from = NULL;
    d->mask = NULL;
    d->row0 = d->n_draft = NULL;
    d->draft = NULL;
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

void draw_mask(struct draw *d, const uint32_t *words)
{
    d->row[d->n - 1].mask = d->n_masks;
    d->mask_from[d->n_masks++] = words;
}

/* All of them in one copy. */
static int upload_masks(struct draw *d)
{
    size_t n = (size_t)d->n_words;

    if (d->n_masks == 0) {
        return 0;
    }
    for (int i = 0; i < d->n_masks; i++) {
        memcpy(d->mask + (size_t)i * n, d->mask_from[i], n * sizeof(*d->mask));
    }
    return kern_upload(d->k, d->mask_dev, d->mask,
                       (size_t)d->n_masks * n * sizeof(*d->mask));
}

/* ---- what crosses ---- */

static int n_tiles(const struct draw *d, int rows)
{
    return (rows + d->f->tile - 1) / d->f->tile;
}

size_t draw_in_bytes(const struct draw *d)
{
    size_t rows = (size_t)d->max_rows, spans = (size_t)d->max_spans;

    return block_room((size_t)n_tiles(d, d->max_rows), 4) +
           2 * block_room(rows, 4) +
           block_room(rows, sizeof(struct kern_sample_row)) +
           2 * block_room(spans, 4) + block_room(spans, 4 * KERN_MAX_DRAFTS);
}

size_t draw_out_bytes(const struct draw *d)
{
    return 2 * block_room((size_t)d->max_spans, 4) +
           block_room((size_t)d->max_rows, sizeof(struct kern_sample_out));
}

int draw_stage(struct draw *d, struct block *in, struct block *out, int n_spans)
{
    size_t n = (size_t)d->n, spans = (size_t)n_spans;
    int tiles = n_tiles(d, d->n);

    for (int i = 0; i < tiles; i++) {
        d->tile_n[i] = i < tiles - 1 ? d->f->tile : d->n - i * d->f->tile;
    }
    block_put(in, d->tile_n, (size_t)tiles, 4, &d->n_dev);
    block_put(in, d->src, n, 4, &d->src_dev);
    block_put(in, d->pos, n, 4, &d->pos_dev);
    block_put(in, d->row, n, sizeof(*d->row), &d->row_dev);
    block_put(in, d->row0, spans, 4, &d->row0_dev);
    block_put(in, d->n_draft, spans, 4, &d->n_draft_dev);
    block_put(in, d->draft, spans, sizeof(*d->draft), &d->draft_dev);
    d->n_accept = block_take(out, spans, 4, &d->n_accept_dev);
    d->next = block_take(out, spans, 4, &d->next_dev);
    d->out = block_take(out, n, sizeof(*d->out), &d->out_dev);
    return d->n_pen == 0 ? 0
                         : kern_upload(d->k, d->pen_dev, d->pen,
                                       (size_t)d->n_pen * sizeof(*d->pen));
}

/* ---- what runs ---- */

static int draw_tile(struct draw *d, int i)
{
    size_t at = (size_t)i * (size_t)d->f->tile;
    struct kern_rows rows = {d->tile_n[i],
                             kern_ptr_add(d->n_dev, (size_t)i * 4)};
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
    int r = forward_head(d->f, rows, forward_level(d->f, 0),
                         kern_ptr_add(d->src_dev, at * 4), d->f->w->norm,
                         d->f->w->head);

    return r < 0 ? r : kern_sample(d->k, &a);
}

int draw_run(struct draw *d)
{
    int r = upload_masks(d);

    for (int i = 0; r == 0 && i < n_tiles(d, d->n); i++) {
        r = draw_tile(d, i);
    }
    return r;
}

int draw_accept(struct draw *d, int n_spans)
{
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

    return kern_accept(d->k, &a);
}
