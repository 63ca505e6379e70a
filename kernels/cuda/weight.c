/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Weights: from checkpoint order, in any pieces, into the layouts of gpu.h. A
 * piece goes through a pinned ring to staging on the device (RT_COPY), and a kernel
 * puts it in its place (RT_LOAD); reading, copying and repacking overlap, and there
 * is never a second copy of a weight. The first step waits for it.
 *
 * Every byte passes through the host once, so scale bytes are judged here.
 */

#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/compact.h"
#include "kernels/quant.h"

#define MIB ((size_t)1 << 20)
#ifndef GPU_LOAD_PIECE
#define GPU_LOAD_PIECE (8 * MIB)
#endif
#define LOAD_PIECES 4

static size_t align256(size_t n)
{
    return (n + 255) / 256 * 256;
}

static void lay_out(struct gpu_mat *m, const struct kern_weight_desc *d)
{
    size_t tiles = (size_t)gpu_ceil(d->rows, GPU_TILE);
    size_t b = QUANT_FP8_BLOCK;

    m->rows = d->rows;
    m->cols = d->cols;
    m->groups = gpu_ceil(d->cols, GPU_GROUP);
    for (int p = 0; p < kern_weight_n_planes(d->dtype); p++) {
        m->bytes += kern_weight_plane_bytes(d, p);
    }
    switch (d->dtype) {
    case KERN_F32:
        m->format = GPU_F32;
        m->pitch = d->cols;
        m->q_step = (size_t)d->rows * (size_t)d->cols * 4;
        break;
    case KERN_MXFP4:
        m->format = GPU_MXFP4;
        m->q_step = tiles * (size_t)m->groups * 1024;
        m->s_step = tiles * (size_t)m->groups * 64;
        break;
    case KERN_NVFP4_DIV:
    case KERN_NVFP4:
        m->format = GPU_NVFP4;
        m->divide = d->dtype == KERN_NVFP4_DIV;
        m->q_step = tiles * (size_t)m->groups * 1024;
        m->s_step = tiles * (size_t)m->groups * 128;
        m->f_step = 1;
        break;
    case KERN_FP8_B128:
        m->format = GPU_FP8;
        m->q_step = tiles * (size_t)m->groups * 2048;
        m->f_step = ((size_t)d->rows + b - 1) / b * (size_t)m->groups;
        break;
    case KERN_COMPACT:
        m->format = GPU_COMPACT;
        m->q_step = (size_t)d->rows * compact_row_bytes(d->cols);
        m->s_step = tiles * GPU_TILE;
        m->f_step = tiles * (size_t)m->groups + (size_t)d->escapes;
        m->bytes = kern_weight_plane_bytes(d, 0) + (size_t)d->rows * 4; /* but for escapes */
        break;
    case KERN_BF16:
    case KERN_N_DTYPES:
        m->format = GPU_BF16;
        m->pitch = gpu_ceil(d->cols, 32) * 32;
        m->q_step = (size_t)d->rows * (size_t)m->pitch * 2;
        break;
    }
}

/* The three planes of all experts, each at a boundary. */
static void plane_sizes(const struct gpu_mat *m, size_t n, size_t *q, size_t *s, size_t *f)
{
    *q = align256(n * m->q_step);
    *s = align256(n * m->s_step);
    *f = align256(n * m->f_step * sizeof(float));
}

static size_t n_of(const struct kern_weight_desc *d)
{
    return d->experts > 0 ? (size_t)d->experts : 1;
}

uint64_t gpu_weight_bytes(const struct kern_weight_desc *d)
{
    struct gpu_mat m;
    size_t q, s, f;

    memset(&m, 0, sizeof(m));
    lay_out(&m, d);
    plane_sizes(&m, n_of(d), &q, &s, &f);
    return q + s + f;
}

uint64_t gpu_load_bytes(void)
{
    return LOAD_PIECES * GPU_LOAD_PIECE;
}

static uint32_t *new_words(const struct kern_weight_desc *d)
{
    return malloc(kern_weight_plane_bytes(d, 1) + kern_weight_plane_bytes(d, 2));
}

int gpu_weight_new(struct kern *k, const struct kern_weight_desc *d, struct kern_weight **ret)
{
    struct gpu *g = gpu_of(k);
    struct gpu_weight *w;
    size_t n = n_of(d), q, s, f;
    void *mem;
    int r;

    w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return -ENOMEM;
    }
    w->filled = calloc(n * 3, sizeof(*w->filled));
    if (w->filled == NULL || (d->dtype == KERN_COMPACT && !(w->words = new_words(d)))) {
        free(w->filled);
        free(w);
        return -ENOMEM;
    }
    lay_out(&w->mat, d);
    plane_sizes(&w->mat, n, &q, &s, &f);
    w->mem_bytes = q + s + f;
    r = gpu_mem_alloc(g, w->mem_bytes, &mem);
    if (r == 0) {
        w->mem = mem;
        r = rt_fill(g->rt, RT_COPY, mem, 0, w->mem_bytes);
    }
    if (r < 0) {
        gpu_weight_free(k, &w->base);
        return gpu_fail(k, r);
    }
    g->loading = true;
    w->mat.q = (unsigned char *)w->mem;
    w->mat.s = (unsigned char *)w->mem + q;
    w->mat.f = (float *)(void *)(w->mem + q + s);
    *ret = &w->base;
    return 0;
}

void gpu_weight_free(struct kern *k, struct kern_weight *weight)
{
    struct gpu_weight *w = (struct gpu_weight *)weight;

    gpu_mem_free(gpu_of(k), w->mem, w->mem_bytes);
    free(w->filled);
    free(w->words);
    free(w);
}

/* Remembers the first value that no kernel can stand. */
static void judge(struct gpu_weight *w, int expert, int plane, size_t off,
                  const unsigned char *from, size_t n)
{
    enum kern_dtype t = w->base.desc.dtype;
    bool scales = t == KERN_MXFP4 && plane == 1;
    bool e4m3 = (t == KERN_FP8_B128 && plane == 0) ||
                ((t == KERN_NVFP4 || t == KERN_NVFP4_DIV) && plane == 1);

    for (size_t i = 0; (scales || e4m3) && w->bad_byte == 0 && i < n; i++) {
        if ((scales && from[i] == QUANT_MX_NAN) || (e4m3 && (from[i] & 0x7f) == 0x7f)) {
            w->bad_byte = from[i];
            w->bad_expert = expert;
            w->bad_at = off + i;
        }
    }
}

/* Where a plane goes, and how; what -1: as it is. */
static void plan(const struct gpu_weight *w, int expert, int plane, struct gpu_piece *ret)
{
    const struct gpu_mat *m = &w->mat;
    size_t e = (size_t)expert;

    memset(ret, 0, sizeof(*ret));
    ret->rows = m->rows;
    ret->cols = m->cols;
    ret->pitch = m->pitch;
    ret->groups = m->groups;
    ret->to = (unsigned char *)w->mem + e * m->q_step;
    ret->what = -1;
    switch (m->format) {
    case GPU_BF16:
        ret->what = m->pitch == m->cols ? -1 : GPU_PACK_PITCH;
        break;
    case GPU_MXFP4:
    case GPU_NVFP4:
        ret->what = plane == 0               ? GPU_PACK_NIBBLE
                    : m->format == GPU_MXFP4 ? GPU_PACK_SCALE4
                                             : GPU_PACK_SCALE8;
        break;
    case GPU_FP8:
        ret->what = GPU_PACK_BYTE;
        break;
    default:
        break;
    }
    if (plane == 1 && m->format != GPU_FP8) {
        ret->to = (unsigned char *)w->mem + (m->s - m->q) + e * m->s_step;
    } else if (plane != 0) {
        ret->what = -1;
        ret->to =
            (unsigned char *)w->mem + ((const unsigned char *)m->f - m->q) + e * m->f_step * 4;
    }
}

/* n bytes of pinned memory, with their twin on the device, on their way. What needs
 * no repacking is copied to its place at once. */
static int send(struct gpu *g, struct gpu_piece *p, const void *host, void *twin)
{
    int r = rt_copy(g->rt, RT_COPY, RT_TO_DEVICE, p->what < 0 ? (void *)(p->to + p->off) : twin,
                    host, p->n);

    r = r < 0 ? r : gpu_ring_copied(g, g->load);
    if (r == 0 && p->what >= 0) {
        p->from = twin;
        r = gpu_pack(g, p);
    }
    return r < 0 ? r : gpu_ring_used(g, g->load);
}

static int open_ring(struct gpu *g)
{
    g->loading = true;
    return g->load != NULL ? 0
                           : gpu_ring_new(g, RT_LOAD, GPU_LOAD_PIECE, LOAD_PIECES, true, &g->load);
}

static int load(struct gpu *g, struct gpu_piece *p, size_t off, const void *from, size_t n)
{
    uintptr_t in = (uintptr_t)from - (uintptr_t)g->room;
    int r = open_ring(g);

    if (r == 0 && g->room != NULL && in < GPU_LOAD_PIECE && n <= GPU_LOAD_PIECE - in) {
        p->off = off;
        p->n = n;
        return send(g, p, from, g->room_twin + in);
    }
    g->room = NULL;
    for (size_t done = 0; r == 0 && done < n; done += p->n) {
        void *host, *twin;

        p->off = off + done;
        p->n = n - done < GPU_LOAD_PIECE ? n - done : GPU_LOAD_PIECE;
        r = gpu_ring_next(g, g->load, &host, &twin);
        if (r == 0) {
            memcpy(host, (const char *)from + done, p->n);
            r = send(g, p, host, twin);
        }
    }
    return r;
}

int gpu_load_room(struct kern *k, void **ret, size_t *ret_bytes)
{
    struct gpu *g = gpu_of(k);
    int r = open_ring(g);
    void *host = NULL, *twin = NULL;

    r = r < 0 ? r : gpu_ring_next(g, g->load, &host, &twin);
    g->room = host;
    g->room_twin = twin;
    *ret = host;
    *ret_bytes = GPU_LOAD_PIECE;
    return gpu_fail(k, r);
}

int gpu_load_end(struct kern *k)
{
    return gpu_fail(k, gpu_after_load(gpu_of(k)));
}

int gpu_weight_fill(struct kern *k, struct kern_weight *weight, int expert, int plane, size_t off,
                    const void *from, size_t n)
{
    struct gpu_weight *w = (struct gpu_weight *)weight;
    struct gpu_piece p;

    w->filled[expert * 3 + plane] += n;
    if (w->words != NULL && plane > 0) { /* sorted when all of them are there */
        size_t at = plane == 1 ? 0 : kern_weight_plane_bytes(&w->base.desc, 1);

        memcpy((char *)w->words + at + off, from, n);
        return 0;
    }
    judge(w, expert, plane, off, from, n);
    plan(w, expert, plane, &p);
    return gpu_fail(k, load(gpu_of(k), &p, off, from, n));
}

int gpu_weight_map(struct kern *k, struct kern_weight *w, int expert, int plane, const void *at,
                   size_t n)
{
    return gpu_weight_fill(k, w, expert, plane, 0, at, n);
}

/* s and f of a compact weight, and the planes they were made of are gone. */
static int load_words(struct kern *k, struct gpu_weight *w)
{
    struct gpu_piece p = {.what = -1};
    unsigned char *bases = calloc(1, w->mat.s_step);
    uint32_t *f = calloc(w->mat.f_step, sizeof(*f));
    int r = -ENOMEM;

    if (bases != NULL && f != NULL) {
        r = gpu_compact_sort(&w->base.desc, &w->mat, w->words, bases, f, k->err, sizeof(k->err));
    }
    if (r == 0) {
        p.to = (unsigned char *)w->mem + (w->mat.s - w->mat.q);
        r = load(gpu_of(k), &p, 0, bases, w->mat.s_step);
    }
    if (r == 0) {
        p.to = (unsigned char *)w->mem + ((const unsigned char *)w->mat.f - w->mat.q);
        r = load(gpu_of(k), &p, 0, f, w->mat.f_step * sizeof(*f));
    }
    free(bases);
    free(f);
    free(w->words);
    w->words = NULL;
    return gpu_fail(k, r);
}

int gpu_weight_ready(struct kern *k, struct kern_weight *weight)
{
    struct gpu_weight *w = (struct gpu_weight *)weight;
    const struct kern_weight_desc *d = &w->base.desc;
    int n = d->experts > 0 ? d->experts : 1;

    for (int e = 0; e < n; e++) {
        for (int p = 0; p < kern_weight_n_planes(d->dtype); p++) {
            if (w->filled[e * 3 + p] < kern_weight_plane_bytes(d, p)) {
                snprintf(k->err, sizeof(k->err), "expert %d: plane %d was never filled", e, p);
                return -EINVAL;
            }
        }
    }
    if (w->bad_byte != 0) {
        snprintf(k->err, sizeof(k->err), "expert %d: %s byte %zu is %d (NaN)", w->bad_expert,
                 d->dtype == KERN_MXFP4      ? "MXFP4 scale"
                 : d->dtype == KERN_FP8_B128 ? "FP8"
                                             : "NVFP4 scale",
                 w->bad_at, w->bad_byte);
        return -ERANGE;
    }
    return w->words != NULL ? load_words(k, w) : 0;
}

/* The load stream is waited for by the host: it happens once, before the first
 * step, and not at all later on. */
int gpu_after_load(struct gpu *g)
{
    int r = 0;

    if (g->loading) {
        r = rt_sync(g->rt, RT_COPY);
        r = r < 0 ? r : rt_sync(g->rt, RT_LOAD);
        gpu_ring_free(g, g->load);
        g->room = NULL;
        g->load = NULL;
        g->loading = false;
    }
    return r;
}
