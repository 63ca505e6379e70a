/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The front of the kernels: names of the backends, every shape check, and the
 * dispatch. A backend may assume that pointers are there, lie inside their
 * buffers and are aligned to their element, that weights have the shape the op
 * needs, and that bounds are positive. What device buffers CONTAIN (ids, slots,
 * page tables) is not looked at here: it may not be known yet.
 *
 * Runs on the thread that owns the struct kern. Knows no backend but its name.
 */

#include "kernels/kernels.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/compact.h"
#include "kernels/quant.h"

/* Programs that do not link the specification (all but tests) see NULL. */
#pragma weak kern_ref_ops

/* One call's checks; the first failure wins. */
struct check {
    struct kern *k;
    const char *op;
    int r;
};

__attribute__((format(printf, 3, 4))) static void check_that(struct check *c,
                                                             bool ok,
                                                             const char *fmt,
                                                             ...)
{
    int n;
    va_list ap;

    if (ok || c->r < 0) {
        return;
    }
    c->r = -EINVAL;
    n = snprintf(c->k->err, sizeof(c->k->err), "%s: ", c->op);
    va_start(ap, fmt);
    vsnprintf(c->k->err + n, sizeof(c->k->err) - (size_t)n, fmt, ap);
    va_end(ap);
}

/* p holds count elements of size bytes each. */
static void check_ptr(struct check *c, const char *what, struct kern_ptr p,
                      size_t count, size_t size)
{
    size_t align = size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : size;
    size_t bytes;

    if (p.buf == NULL) {
        check_that(c, false, "%s is missing", what);
        return;
    }
    bytes = p.buf->bytes;
    check_that(c, p.off % align == 0, "%s is not aligned", what);
    check_that(c, p.off <= bytes && count * size <= bytes - p.off,
               "%s: %zu elements of %zu bytes at %zu, buffer holds %zu", what,
               count, size, p.off, bytes);
}

/* n rows of width elements, stride apart. */
static void check_matrix(struct check *c, const char *what, struct kern_ptr p,
                         int n, int width, int stride, size_t size)
{
    check_that(c, width > 0 && stride >= width, "%s: width %d, stride %d", what,
               width, stride);
    if (c->r == 0) {
        check_ptr(c, what, p, (size_t)(n - 1) * (size_t)stride + (size_t)width,
                  size);
    }
}

static void check_rows(struct check *c, const struct kern_rows *r)
{
    check_that(c, r->max > 0, "rows.max is %d", r->max);
    check_ptr(c, "rows.n", r->n, 1, sizeof(int32_t));
}

static void check_ints(struct check *c, const char *what, struct kern_ptr p,
                       size_t count)
{
    check_ptr(c, what, p, count, sizeof(int32_t));
}

static void check_weight(struct check *c, const char *what,
                         const struct kern_weight *w, int experts, int rows,
                         int cols)
{
    const struct kern_weight_desc *d;

    if (w == NULL) {
        check_that(c, false, "%s is missing", what);
        return;
    }
    d = &w->desc;
    check_that(c, d->experts == experts && d->rows == rows && d->cols == cols,
               "%s is %d x [%d][%d], needed %d x [%d][%d]", what, d->experts,
               d->rows, d->cols, experts, rows, cols);
}

/* A vector, or a table, of numbers that are not packed. */
static void check_plain(struct check *c, const char *what,
                        const struct kern_weight *w, int rows, int cols)
{
    check_weight(c, what, w, 0, rows, cols);
    if (c->r == 0) {
        check_that(c, w->desc.dtype == KERN_BF16 || w->desc.dtype == KERN_F32,
                   "%s is packed", what);
    }
}

static void check_slots(struct check *c, const struct kern_slots *s, int rows)
{
    size_t n_seq = (size_t)s->n_seq;

    check_that(c, s->n_seq > 0 && s->max_pages > 0, "%d sequences, %d pages",
               s->n_seq, s->max_pages);
    if (c->r < 0) {
        return;
    }
    check_ints(c, "slot", s->slot, (size_t)rows);
    check_ints(c, "seq", s->seq, (size_t)rows);
    check_ints(c, "table", s->table, n_seq * (size_t)s->max_pages);
    check_ints(c, "first_page", s->first_page, n_seq);
    check_ints(c, "low", s->low, n_seq);
}

static void check_kv(struct check *c, const struct kern_kv *kv, int n_head)
{
    size_t token;

    check_that(c, kv->dtype == KERN_BF16, "the KV cache is not BF16");
    check_that(c,
               kv->n_kv_head > 0 && n_head > 0 && n_head % kv->n_kv_head == 0,
               "%d heads, %d KV heads", n_head, kv->n_kv_head);
    check_that(c, kv->n_pages > 0, "no pages");
    if (c->r < 0) {
        return;
    }
    token = (size_t)kv->n_kv_head * KERN_HEAD_DIM * 2 * sizeof(uint16_t);
    check_that(
        c,
        kv->bytes_per_token == token && kv->page_bytes >= token * KERN_PAGE_TOK,
        "%zu bytes a token, %zu a page", kv->bytes_per_token, kv->page_bytes);
    check_ptr(c, "pages", kv->pages, (size_t)kv->n_pages * kv->page_bytes, 1);
}

/* The end of every checked call: the backend's slot, counted, with a text for
 * any failure. */
#define DISPATCH(c, slot, args)       \
    ((c).r < 0 ? (c).r                \
               : ((c).k->stats.ops++, \
                  finish((c).k, (c).op, (c).k->ops->slot((c).k, args))))

static int finish(struct kern *k, const char *op, int r)
{
    if (r < 0 && k->err[0] == '\0') {
        snprintf(k->err, sizeof(k->err), "%s: %s", op, strerror(-r));
    }
    return r;
}

static struct check check_begin(struct kern *k, const char *op)
{
    struct check c = {k, op, 0};

    k->err[0] = '\0';
    return c;
}

/* ---- backends ---- */

const struct kern_ops *kern_find(const char *name)
{
    const struct kern_ops *const backends[] = {&kern_cpu_ops, &kern_ref_ops};

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (backends[i] != NULL && strcmp(backends[i]->name, name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}

int kern_open(const struct kern_ops *ops, const struct kern_open_args *a,
              struct kern **ret)
{
    struct kern *k = NULL;
    int r = ops->open(&k, a);

    if (r < 0) {
        return r;
    }
    k->ops = ops;
    k->err[0] = '\0';
    *ret = k;
    return 0;
}

void kern_close(struct kern *k)
{
    if (k != NULL) {
        k->ops->close(k);
    }
}

const char *kern_error(const struct kern *k)
{
    return k->err;
}

void kern_stats_reset(struct kern *k)
{
    memset(&k->stats, 0, sizeof(k->stats));
}

const char *kern_describe(const struct kern *k, char *buf, size_t n)
{
    snprintf(buf, n, "%s", k->desc);
    return buf;
}

/* ---- memory and stream ---- */

int kern_reserve(struct kern *k, const struct kern_sizes *s)
{
    k->err[0] = '\0';
    return k->ops->reserve == NULL
               ? 0
               : finish(k, "reserve", k->ops->reserve(k, s));
}

int kern_buf_new(struct kern *k, size_t bytes, struct kern_buf **ret)
{
    struct check c = check_begin(k, "buf_new");
    struct kern_buf *b = NULL;
    int r;

    check_that(&c, bytes > 0, "no bytes");
    if (c.r < 0) {
        return c.r;
    }
    r = finish(k, c.op, k->ops->buf_new(k, bytes, &b));
    if (r < 0) {
        return r;
    }
    b->bytes = bytes;
    *ret = b;
    return 0;
}

void kern_buf_free(struct kern *k, struct kern_buf *b)
{
    if (b != NULL) {
        k->ops->buf_free(k, b);
    }
}

int kern_upload(struct kern *k, struct kern_ptr to, const void *from, size_t n)
{
    struct check c = check_begin(k, "upload");

    check_ptr(&c, "to", to, n, 1);
    return c.r < 0 ? c.r : finish(k, c.op, k->ops->upload(k, to, from, n));
}

int kern_download(struct kern *k, void *to, struct kern_ptr from, size_t n)
{
    struct check c = check_begin(k, "download");

    check_ptr(&c, "from", from, n, 1);
    return c.r < 0 ? c.r : finish(k, c.op, k->ops->download(k, to, from, n));
}

int kern_fetch(struct kern *k, void *to, struct kern_ptr from, size_t n)
{
    struct check c = check_begin(k, "fetch");

    check_ptr(&c, "from", from, n, 1);
    if (c.r < 0) {
        return c.r;
    }
    return finish(k, c.op,
                  k->ops->fetch != NULL ? k->ops->fetch(k, to, from, n)
                                        : k->ops->download(k, to, from, n));
}

int kern_copy(struct kern *k, struct kern_ptr to, struct kern_ptr from,
              size_t n)
{
    struct check c = check_begin(k, "copy");

    check_ptr(&c, "to", to, n, 1);
    check_ptr(&c, "from", from, n, 1);
    return c.r < 0 ? c.r : finish(k, c.op, k->ops->copy(k, to, from, n));
}

int kern_fill(struct kern *k, struct kern_ptr to, int byte, size_t n)
{
    struct check c = check_begin(k, "fill");

    check_ptr(&c, "to", to, n, 1);
    return c.r < 0 ? c.r : finish(k, c.op, k->ops->fill(k, to, byte, n));
}

int kern_begin(struct kern *k, uint64_t shape_key)
{
    k->err[0] = '\0';
    return finish(k, "begin", k->ops->begin(k, shape_key));
}

int kern_end(struct kern *k)
{
    return finish(k, "end", k->ops->end(k));
}

/* ---- weights ---- */

int kern_weight_new(struct kern *k, const struct kern_weight_desc *d,
                    struct kern_weight **ret)
{
    struct check c = check_begin(k, "weight_new");
    struct kern_weight *w = NULL;
    int block = d->dtype == KERN_MXFP4                                 ? 32
                : d->dtype == KERN_NVFP4 || d->dtype == KERN_NVFP4_DIV ? 16
                                                                       : 1;
    int r;

    check_that(&c, kern_weight_n_planes(d->dtype) > 0, "unknown dtype");
    check_that(&c, d->rows > 0 && d->cols > 0 && d->experts >= 0,
               "%d x [%d][%d]", d->experts, d->rows, d->cols);
    check_that(&c, d->cols % block == 0, "%d columns are no whole %d-blocks",
               d->cols, block);
    check_that(&c,
               d->shard >= KERN_SHARD_NONE && d->shard <= KERN_SHARD_EXPERTS,
               "unknown shard");
    check_that(&c,
               d->dtype != KERN_COMPACT ||
                   (d->cols <= COMPACT_MAX_COLS && d->experts == 0 &&
                    d->escapes > 0 && d->escapes <= COMPACT_MAX_ESCAPES),
               "%d escapes of [%d][%d]", d->escapes, d->rows, d->cols);
    if (c.r < 0) {
        return c.r;
    }
    r = finish(k, c.op, k->ops->weight_new(k, d, &w));
    if (r < 0) {
        return r;
    }
    w->desc = *d;
    *ret = w;
    return 0;
}

void kern_weight_free(struct kern *k, struct kern_weight *w)
{
    if (w != NULL) {
        k->ops->weight_free(k, w);
    }
}

static void check_plane(struct check *c, const struct kern_weight *w,
                        int expert, int plane, size_t off, size_t n)
{
    const struct kern_weight_desc *d = &w->desc;
    size_t bytes = kern_weight_plane_bytes(d, plane);

    check_that(c, expert >= 0 && expert < (d->experts > 0 ? d->experts : 1),
               "expert %d of %d", expert, d->experts);
    check_that(c, plane >= 0 && plane < kern_weight_n_planes(d->dtype),
               "plane %d", plane);
    check_that(c, off <= bytes && n <= bytes - off,
               "bytes %zu+%zu of a plane of %zu", off, n, bytes);
}

int kern_weight_fill(struct kern *k, struct kern_weight *w, int expert,
                     int plane, size_t off, const void *from, size_t n)
{
    struct check c = check_begin(k, "weight_fill");

    check_plane(&c, w, expert, plane, off, n);
    return c.r < 0
               ? c.r
               : finish(k, c.op,
                        k->ops->weight_fill(k, w, expert, plane, off, from, n));
}

/* Bytes of one element of a plane. */
static size_t plane_align(const struct kern_weight_desc *d, int plane)
{
    bool words =
        d->dtype == KERN_F32 || plane == 2 ||
        (plane == 1 && (d->dtype == KERN_FP8_B128 || d->dtype == KERN_COMPACT));

    return words ? 4 : d->dtype == KERN_BF16 ? 2 : 1;
}

int kern_weight_map(struct kern *k, struct kern_weight *w, int expert,
                    int plane, const void *at, size_t n)
{
    struct check c = check_begin(k, "weight_map");

    check_plane(&c, w, expert, plane, 0, n);
    check_that(&c, n == kern_weight_plane_bytes(&w->desc, plane),
               "%zu bytes, not the whole plane", n);
    check_that(&c, (uintptr_t)at % plane_align(&w->desc, plane) == 0,
               "the mapping is not aligned");
    return c.r < 0 ? c.r
                   : finish(k, c.op,
                            k->ops->weight_map(k, w, expert, plane, at, n));
}

int kern_load_room(struct kern *k, void **ret, size_t *ret_bytes)
{
    k->err[0] = '\0';
    return k->ops->load_room == NULL
               ? -ENOTSUP
               : finish(k, "load_room", k->ops->load_room(k, ret, ret_bytes));
}

int kern_load_end(struct kern *k)
{
    k->err[0] = '\0';
    return k->ops->load_end == NULL
               ? -ENOTSUP
               : finish(k, "load_end", k->ops->load_end(k));
}

int kern_weight_ready(struct kern *k, struct kern_weight *w)
{
    k->err[0] = '\0';
    return finish(k, "weight_ready", k->ops->weight_ready(k, w));
}

/* ---- compute ---- */

int kern_embed(struct kern *k, const struct kern_embed_args *a)
{
    struct check c = check_begin(k, "embed");

    check_rows(&c, &a->rows);
    check_that(&c, a->table != NULL, "table is missing");
    if (c.r == 0) {
        const struct kern_weight_desc *d = &a->table->desc;

        check_that(&c,
                   (d->dtype == KERN_BF16 || d->dtype == KERN_COMPACT) &&
                       d->experts == 0,
                   "the table is not a BF16 matrix");
        check_ints(&c, "ids", a->ids, (size_t)a->rows.max);
        check_matrix(&c, "out", a->out, a->rows.max, d->cols, d->cols, 4);
    }
    return DISPATCH(c, embed, a);
}

int kern_gather(struct kern *k, const struct kern_gather_args *a)
{
    struct check c = check_begin(k, "gather");
    size_t n;

    check_rows(&c, &a->rows);
    check_that(&c, a->width > 0, "width %d", a->width);
    if (c.r == 0) {
        n = (size_t)a->rows.max;
        check_ints(&c, "src", a->src, n);
        check_ptr(&c, "x", a->x, (size_t)a->width, 4);
        if (a->dst.buf != NULL) {
            check_ints(&c, "dst", a->dst, n);
            n = 1;
        }
        check_ptr(&c, "out", a->out, n * (size_t)a->width, 4);
    }
    return DISPATCH(c, gather, a);
}

int kern_norm(struct kern *k, const struct kern_norm_args *a)
{
    struct check c = check_begin(k, "norm");
    int n = a->rows.max, w = a->width;

    check_rows(&c, &a->rows);
    check_matrix(&c, "x", a->x, n, w, w, 4);
    if (a->delta.buf != NULL) {
        check_matrix(&c, "delta", a->delta, n, w, w, 4);
    }
    if (a->out.buf != NULL) {
        check_matrix(&c, "out", a->out, n, w, a->out_stride, 2);
    }
    if (a->out_f32.buf != NULL) {
        check_matrix(&c, "out_f32", a->out_f32, n, w, w, 4);
    }
    if (a->out.buf != NULL || a->out_f32.buf != NULL) {
        check_plain(&c, "w", a->w, 1, w);
    }
    if (a->bad.buf != NULL) {
        check_ints(&c, "bad", a->bad, (size_t)(n > 0 ? n : 1));
        check_that(&c, a->mark != 0, "mark is 0");
    }
    if (a->bad.buf != NULL && !k->ops->norm_marks) {
        struct kern_finite_args f = {.rows = a->rows,
                                     .width = w,
                                     .mark = a->mark,
                                     .x = a->x,
                                     .bad = a->bad};
        int r = DISPATCH(c, norm, a);

        return r < 0 ? r : kern_finite(k, &f);
    }
    return DISPATCH(c, norm, a);
}

int kern_linear(struct kern *k, const struct kern_linear_args *a)
{
    struct check c = check_begin(k, "linear");
    int n = a->rows.max;

    check_rows(&c, &a->rows);
    check_matrix(&c, "x", a->x, n, a->cols, a->x_stride, 2);
    check_that(&c, a->n_parts >= 1 && a->n_parts <= KERN_MAX_PARTS, "%d parts",
               a->n_parts);
    for (int i = 0; c.r == 0 && i < a->n_parts; i++) {
        const struct kern_weight *w = a->part[i].w;

        check_that(&c, w != NULL, "part %d has no weight", i);
        if (c.r == 0) {
            check_weight(&c, "part", w, 0, w->desc.rows, a->cols);
            check_matrix(&c, "part.out", a->part[i].out, n, w->desc.rows,
                         a->part[i].out_stride, 4);
        }
    }
    return DISPATCH(c, linear, a);
}

int kern_qkv(struct kern *k, const struct kern_qkv_args *a)
{
    struct check c = check_begin(k, "qkv");
    int n = a->rows.max, h = a->n_head, g = a->kv.n_kv_head;

    check_rows(&c, &a->rows);
    check_slots(&c, &a->at, n);
    check_kv(&c, &a->kv, h);
    check_that(&c, a->n_freq >= 1 && 2 * a->n_freq <= KERN_HEAD_DIM,
               "%d frequencies", a->n_freq);
    check_plain(&c, "q_norm", a->q_norm, 1, KERN_HEAD_DIM);
    check_plain(&c, "k_norm", a->k_norm, 1, KERN_HEAD_DIM);
    if (c.r == 0) {
        h *= KERN_HEAD_DIM;
        g *= KERN_HEAD_DIM;
        check_ptr(&c, "freq", a->freq, (size_t)a->n_freq, 4);
        check_matrix(&c, "q", a->q, n, h, h, 4);
        check_matrix(&c, "k", a->k, n, g, g, 4);
        check_matrix(&c, "v", a->v, n, g, g, 4);
        check_matrix(&c, "q_out", a->q_out, n, h, h, 2);
    }
    return DISPATCH(c, qkv, a);
}

int kern_attn(struct kern *k, const struct kern_attn_args *a)
{
    struct check c = check_begin(k, "attn");
    int n = a->rows.max, h = a->n_head;

    check_rows(&c, &a->rows);
    check_slots(&c, &a->at, n);
    check_kv(&c, &a->kv, h);
    check_that(&c, a->window >= 0, "window %d", a->window);
    if (a->gate.buf != NULL) {
        check_matrix(&c, "gate", a->gate, n, h, h, 4);
    }
    if (c.r == 0) {
        h *= KERN_HEAD_DIM;
        check_matrix(&c, "q", a->q, n, h, h, 2);
        check_matrix(&c, "out", a->out, n, h, h, 2);
    }
    return DISPATCH(c, attn, a);
}

int kern_swiglu(struct kern *k, const struct kern_swiglu_args *a)
{
    struct check c = check_begin(k, "swiglu");
    int n = a->rows.max, w = a->width;

    check_rows(&c, &a->rows);
    check_that(&c, a->limit >= 0, "limit %g", (double)a->limit);
    check_matrix(&c, "gate", a->gate, n, w, w, 4);
    check_matrix(&c, "up", a->up, n, w, w, 4);
    check_matrix(&c, "out", a->out, n, w, w, 2);
    return DISPATCH(c, swiglu, a);
}

static int mlp_up_in_two(struct kern *k, const struct kern_mlp_up_args *a)
{
    int width = a->gate->desc.rows;
    struct kern_linear_args in = {
        .rows = a->rows, .cols = a->cols, .x = a->x, .x_stride = a->cols};
    struct kern_swiglu_args act = {.rows = a->rows,
                                   .width = width,
                                   .limit = a->limit,
                                   .gate = a->gate_out,
                                   .up = a->up_out,
                                   .out = a->out};
    int r;

    in.n_parts = 2;
    in.part[0].w = a->gate;
    in.part[0].out = a->gate_out;
    in.part[0].out_stride = width;
    in.part[1].w = a->up;
    in.part[1].out = a->up_out;
    in.part[1].out_stride = width;
    r = kern_linear(k, &in);
    return r < 0 ? r : kern_swiglu(k, &act);
}

static void check_mlp_up(struct check *c, const struct kern_mlp_up_args *a)
{
    int n = a->rows.max, w;

    check_that(c, a->gate != NULL && a->up != NULL, "a weight is missing");
    if (c->r < 0) {
        return;
    }
    w = a->gate->desc.rows;
    check_rows(c, &a->rows);
    check_that(c, a->limit >= 0, "limit %g", (double)a->limit);
    check_weight(c, "gate", a->gate, 0, w, a->cols);
    check_weight(c, "up", a->up, 0, w, a->cols);
    check_matrix(c, "x", a->x, n, a->cols, a->cols, 2);
    check_matrix(c, "gate_out", a->gate_out, n, w, w, 4);
    check_matrix(c, "up_out", a->up_out, n, w, w, 4);
    check_matrix(c, "out", a->out, n, w, w, 2);
}

int kern_mlp_up(struct kern *k, const struct kern_mlp_up_args *a)
{
    struct check c = check_begin(k, "mlp_up");

    check_mlp_up(&c, a);
    if (c.r == 0 && k->ops->mlp_up == NULL) {
        return mlp_up_in_two(k, a);
    }
    return DISPATCH(c, mlp_up, a);
}

static void check_groups(struct check *c, const struct kern_groups *g,
                         int n_expert, int n_rows, int top_k)
{
    check_that(c, top_k >= 1 && top_k <= KERN_MAX_TOPK && top_k <= n_expert,
               "top %d of %d experts", top_k, n_expert);
    if (c->r == 0) {
        check_ints(c, "groups.off", g->off, (size_t)n_expert + 1);
        check_ints(c, "groups.pair", g->pair, (size_t)n_rows * (size_t)top_k);
    }
}

int kern_router(struct kern *k, const struct kern_router_args *a)
{
    struct check c = check_begin(k, "router");
    int n = a->rows.max, t = a->top_k;

    check_rows(&c, &a->rows);
    check_groups(&c, &a->groups, a->n_expert, n, t);
    check_that(&c, a->w != NULL, "w is missing");
    if (c.r == 0) {
        int d = a->w->desc.cols;

        check_plain(&c, "w", a->w, a->n_expert, d);
        check_matrix(&c, "x", a->x, n, d, d, 4);
        check_matrix(&c, "sel", a->sel, n, t, t, 4);
        check_matrix(&c, "wt", a->wt, n, t, t, 4);
    }
    if (a->bias != NULL) {
        check_plain(&c, "bias", a->bias, 1, a->n_expert);
    }
    return DISPATCH(c, router, a);
}

int kern_expert_up(struct kern *k, const struct kern_expert_up_args *a)
{
    struct check c = check_begin(k, "expert_up");
    int n = a->rows.max;

    check_rows(&c, &a->rows);
    check_that(&c, a->limit >= 0, "limit %g", (double)a->limit);
    check_that(&c, a->gate != NULL, "gate is missing");
    if (c.r == 0) {
        const struct kern_weight_desc *d = &a->gate->desc;

        check_weight(&c, "up", a->up, d->experts, d->rows, d->cols);
        check_groups(&c, &a->groups, d->experts, n, a->top_k);
        check_matrix(&c, "x", a->x, n, d->cols, d->cols, 2);
        check_ptr(&c, "h", a->h, (size_t)n * (size_t)a->top_k * (size_t)d->rows,
                  2);
    }
    if (a->shared != NULL) {
        check_mlp_up(&c, a->shared);
        check_that(&c, a->shared->rows.max == n, "%d rows of the shared expert",
                   a->shared->rows.max);
    }
    if (a->shared != NULL && !k->ops->expert_shares) {
        int r = DISPATCH(c, expert_up, a);

        return r < 0 ? r : kern_mlp_up(k, a->shared);
    }
    return DISPATCH(c, expert_up, a);
}

/* Into the same rows of the same width, on top. */
static void check_shared_down(struct check *c,
                              const struct kern_expert_down_args *a)
{
    const struct kern_linear_args *s = a->shared;

    if (s == NULL) {
        return;
    }
    check_that(c, s->rows.max == a->rows.max && s->n_parts == 1 && s->add,
               "the shared expert's rows or parts");
    check_that(c,
               s->part[0].out.buf == a->out.buf &&
                   s->part[0].out.off == a->out.off &&
                   s->part[0].out_stride == a->down->desc.rows,
               "the shared expert's out");
    check_weight(c, "shared", s->part[0].w, 0, a->down->desc.rows, s->cols);
    check_matrix(c, "shared x", s->x, s->rows.max, s->cols, s->x_stride, 2);
}

int kern_expert_down(struct kern *k, const struct kern_expert_down_args *a)
{
    struct check c = check_begin(k, "expert_down");
    int n = a->rows.max;

    check_rows(&c, &a->rows);
    check_that(&c, a->down != NULL, "down is missing");
    if (c.r == 0) {
        const struct kern_weight_desc *d = &a->down->desc;

        check_groups(&c, &a->groups, d->experts, n, a->top_k);
        check_ptr(&c, "h", a->h, (size_t)n * (size_t)a->top_k * (size_t)d->cols,
                  2);
        check_matrix(&c, "wt", a->wt, n, a->top_k, a->top_k, 4);
        check_matrix(&c, "out", a->out, n, d->rows, d->rows, 4);
        check_shared_down(&c, a);
    }
    if (a->shared != NULL && !k->ops->expert_shares) {
        int r = DISPATCH(c, expert_down, a);

        return r < 0 ? r : kern_linear(k, a->shared);
    }
    return DISPATCH(c, expert_down, a);
}

int kern_sample(struct kern *k, const struct kern_sample_args *a)
{
    struct check c = check_begin(k, "sample");
    size_t n = (size_t)a->rows.max;

    check_rows(&c, &a->rows);
    check_matrix(&c, "logits", a->logits, a->rows.max, a->vocab, a->stride, 4);
    if (c.r == 0) {
        check_ptr(&c, "params", a->params, n, sizeof(struct kern_sample_row));
        check_ints(&c, "pos", a->pos, n);
        check_ptr(&c, "out", a->out, n, sizeof(struct kern_sample_out));
    }
    return DISPATCH(c, sample, a);
}

int kern_accept(struct kern *k, const struct kern_accept_args *a)
{
    struct check c = check_begin(k, "accept");
    size_t n = (size_t)a->n_spans;

    check_that(&c, a->n_spans > 0 && a->n_sampled >= 0, "%d spans, %d sampled",
               a->n_spans, a->n_sampled);
    if (c.r == 0) {
        check_ints(&c, "row0", a->row0, n);
        check_ints(&c, "n_draft", a->n_draft, n);
        check_ints(&c, "draft", a->draft, n * KERN_MAX_DRAFTS);
        check_ptr(&c, "sampled", a->sampled, (size_t)a->n_sampled,
                  sizeof(struct kern_sample_out));
        check_ints(&c, "n_accept", a->n_accept, n);
        check_ints(&c, "next", a->next, n);
    }
    return DISPATCH(c, accept, a);
}

int kern_mtp_rows(struct kern *k, const struct kern_mtp_rows_args *a)
{
    struct check c = check_begin(k, "mtp_rows");
    size_t n = (size_t)a->n_spans, rows = (size_t)a->max_rows;
    size_t lines = (KERN_MAX_DRAFTS + 1) * n;

    check_that(&c, a->k >= 1 && a->k <= KERN_MAX_DRAFTS, "module %d", a->k);
    check_that(&c, a->n_spans > 0 && a->max_rows > 0 && a->n_step_rows > 0,
               "%d spans, %d rows of %d", a->n_spans, a->max_rows,
               a->n_step_rows);
    if (c.r == 0) {
        check_ptr(&c, "span", a->span, n, sizeof(struct kern_mtp_span));
        check_ints(&c, "n_accept", a->n_accept, n);
        check_ints(&c, "next", a->next, n);
        check_ints(&c, "step_ids", a->step_ids, (size_t)a->n_step_rows);
        check_ptr(&c, "drafts", a->drafts, KERN_MAX_DRAFTS * n,
                  sizeof(struct kern_sample_out));
        check_ints(&c, "first", a->first, lines);
        check_ints(&c, "row0", a->row0, lines);
        check_ints(&c, "n", a->n, 1);
        check_ints(&c, "ids", a->ids, rows);
        check_ints(&c, "slot", a->slot, rows);
        check_ints(&c, "seq", a->seq, rows);
        check_ints(&c, "below", a->below, rows);
        check_ints(&c, "last", a->last, n);
        check_ints(&c, "last_pos", a->last_pos, n);
        check_ints(&c, "keep_src", a->keep_src, n * KERN_CARRY);
        check_ints(&c, "keep_dst", a->keep_dst, n * KERN_CARRY);
    }
    return DISPATCH(c, mtp_rows, a);
}

int kern_finite(struct kern *k, const struct kern_finite_args *a)
{
    struct check c = check_begin(k, "finite");

    check_rows(&c, &a->rows);
    check_that(&c, a->mark != 0, "mark is 0");
    check_matrix(&c, "x", a->x, a->rows.max, a->width, a->width, 4);
    check_ints(&c, "bad", a->bad, (size_t)(a->rows.max > 0 ? a->rows.max : 1));
    return DISPATCH(c, finite, a);
}
