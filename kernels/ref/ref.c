/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The reference backend: the table, buffers and weights. The ops beside it are
 * the executable specification of kernels.h: plain loops, sums in double, one
 * rounding where a result is stored. Linked by tests only; no threads.
 *
 * Buffers come from mmap, each on memory pages of its own, so that a test can
 * take all access away outside of ops.
 */

#include "kernels/ref/ref.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *ref_at(struct kern_ptr p)
{
    if (p.buf == NULL) {
        return NULL;
    }
    return (char *)((struct ref_buf *)p.buf)->at + p.off;
}

int ref_rows(const struct kern_rows *r)
{
    int32_t n = *(const int32_t *)ref_at(r->n);

    return n < 0 ? 0 : n > r->max ? r->max : n;
}

/* ---- lifetime ---- */

static int ref_open(struct kern **ret, const struct kern_open_args *a)
{
    struct kern *k = calloc(1, sizeof(*k));

    (void)a; /* no devices, no threads, always exact */
    if (k == NULL) {
        return -ENOMEM;
    }
    snprintf(k->desc, sizeof(k->desc), "ref");
    *ret = k;
    return 0;
}

static void ref_close(struct kern *k)
{
    free(k);
}

static int ref_begin(struct kern *k, uint64_t shape_key)
{
    (void)k;
    (void)shape_key;
    return 0;
}

static int ref_end(struct kern *k)
{
    (void)k;
    return 0;
}

/* ---- buffers ---- */

static int ref_buf_new(struct kern *k, size_t bytes, struct kern_buf **ret)
{
    struct ref_buf *b;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    (void)k;
    if (bytes > SIZE_MAX - page) {
        return -ENOMEM;
    }
    b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return -ENOMEM;
    }
    b->mapped = (bytes + page - 1) / page * page;
    b->at = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->at == MAP_FAILED) {
        free(b);
        return -ENOMEM;
    }
    *ret = &b->base;
    return 0;
}

static void ref_buf_free(struct kern *k, struct kern_buf *buf)
{
    struct ref_buf *b = (struct ref_buf *)buf;

    (void)k;
    munmap(b->at, b->mapped);
    free(b);
}

static int ref_upload(struct kern *k, struct kern_ptr to, const void *from,
                      size_t n)
{
    (void)k;
    memcpy(ref_at(to), from, n);
    return 0;
}

static int ref_download(struct kern *k, void *to, struct kern_ptr from,
                        size_t n)
{
    (void)k;
    memcpy(to, ref_at(from), n);
    return 0;
}

static int ref_copy(struct kern *k, struct kern_ptr to, struct kern_ptr from,
                    size_t n)
{
    (void)k;
    memmove(ref_at(to), ref_at(from), n);
    return 0;
}

static int ref_fill(struct kern *k, struct kern_ptr to, int byte, size_t n)
{
    (void)k;
    memset(ref_at(to), byte, n);
    return 0;
}

/* ---- weights ---- */

static void ref_weight_free(struct kern *k, struct kern_weight *weight)
{
    struct ref_weight *w = (struct ref_weight *)weight;

    (void)k;
    for (int i = 0; w->own != NULL && i < w->n_parts * REF_MAX_PLANES; i++) {
        free(w->own[i]);
    }
    free(w->own);
    free(w->plane);
    free(w);
}

static int ref_weight_new(struct kern *k, const struct kern_weight_desc *d,
                          struct kern_weight **ret)
{
    struct ref_weight *w = calloc(1, sizeof(*w));
    size_t n;

    if (w == NULL) {
        return -ENOMEM;
    }
    w->n_parts = d->experts > 0 ? d->experts : 1;
    n = (size_t)w->n_parts * REF_MAX_PLANES;
    w->plane = calloc(n, sizeof(*w->plane));
    w->own = calloc(n, sizeof(*w->own));
    if (w->plane == NULL || w->own == NULL) {
        ref_weight_free(k, &w->base);
        return -ENOMEM;
    }
    *ret = &w->base;
    return 0;
}

static int ref_weight_fill(struct kern *k, struct kern_weight *weight,
                           int expert, int plane, size_t off, const void *from,
                           size_t n)
{
    struct ref_weight *w = (struct ref_weight *)weight;
    int i = expert * REF_MAX_PLANES + plane;

    (void)k;
    if (w->own[i] == NULL) {
        w->own[i] = calloc(1, kern_weight_plane_bytes(&w->base.desc, plane));
        if (w->own[i] == NULL) {
            return -ENOMEM;
        }
        w->plane[i] = w->own[i];
    }
    memcpy((char *)w->own[i] + off, from, n);
    return 0;
}

static int ref_weight_map(struct kern *k, struct kern_weight *weight,
                          int expert, int plane, const void *at, size_t n)
{
    struct ref_weight *w = (struct ref_weight *)weight;

    (void)k;
    (void)n;
    w->plane[expert * REF_MAX_PLANES + plane] = at;
    return 0;
}

static int ref_weight_ready(struct kern *k, struct kern_weight *weight)
{
    struct ref_weight *w = (struct ref_weight *)weight;
    const struct kern_weight_desc *d = &w->base.desc;

    for (int e = 0; e < w->n_parts; e++) {
        const void *const *plane = &w->plane[e * REF_MAX_PLANES];
        size_t n = kern_weight_plane_bytes(d, 1);

        for (int p = 0; p < kern_weight_n_planes(d->dtype); p++) {
            if (plane[p] == NULL) {
                snprintf(k->err, sizeof(k->err),
                         "expert %d: plane %d was never filled", e, p);
                return -EINVAL;
            }
        }
        for (size_t i = 0; d->dtype == KERN_MXFP4 && i < n; i++) {
            if (((const uint8_t *)plane[1])[i] == QUANT_MX_NAN) {
                snprintf(k->err, sizeof(k->err),
                         "expert %d: MXFP4 scale byte %zu is 255 (NaN)", e, i);
                return -ERANGE;
            }
        }
    }
    return 0;
}

size_t ref_weight_bytes(const struct kern_weight *w)
{
    size_t n = 0;

    for (int p = 0; p < kern_weight_n_planes(w->desc.dtype); p++) {
        n += kern_weight_plane_bytes(&w->desc, p);
    }
    return n;
}

/* Nibbles: column 2b in the low half of byte b, 2b + 1 in the high half. */
static double nibble(const uint8_t *row, int c)
{
    return (double)quant_e2m1(row[c / 2] >> (c % 2 * 4) & 15u);
}

static void compact_row(const struct ref_weight *w, int r, double *ret)
{
    int cols = w->base.desc.cols;
    const uint32_t *row = (const uint32_t *)w->plane[1] + r,
                   *escape = w->plane[2];
    const uint8_t *block =
        (const uint8_t *)w->plane[0] + (size_t)r * compact_row_bytes(cols);

    for (int c = 0; c < cols; c += COMPACT_COLS, block += COMPACT_BLOCK) {
        uint16_t v[COMPACT_COLS];

        compact_unpack(v, block, compact_base(*row));
        for (int i = 0; i < COMPACT_COLS && c + i < cols; i++) {
            ret[c + i] = (double)quant_bf16_to_f32(v[i]);
        }
    }
    for (uint32_t e = compact_first(row[0]); e < compact_first(row[1]); e++) {
        ret[compact_col(escape[e])] =
            (double)quant_bf16_to_f32((uint16_t)escape[e]);
    }
}

void ref_weight_row(const struct kern_weight *weight, int expert, int r,
                    double *ret)
{
    const struct ref_weight *w = (const struct ref_weight *)weight;
    const struct kern_weight_desc *d = &weight->desc;
    const void *const *plane = &w->plane[expert * REF_MAX_PLANES];
    size_t cols = (size_t)d->cols, row = (size_t)r;
    size_t b = QUANT_FP8_BLOCK, across = (cols + b - 1) / b;
    const uint8_t *p0 = plane[0], *p1 = plane[1];

    if (d->dtype == KERN_COMPACT) {
        compact_row(w, r, ret);
        return;
    }
    for (size_t c = 0; c < cols; c++) {
        switch (d->dtype) {
        case KERN_BF16:
            ret[c] = (double)quant_bf16_to_f32(
                ((const uint16_t *)plane[0])[row * cols + c]);
            break;
        case KERN_F32:
            ret[c] = (double)((const float *)plane[0])[row * cols + c];
            break;
        case KERN_MXFP4:
            ret[c] = ldexp(nibble(p0 + row * (cols / 2), (int)c),
                           p1[row * (cols / 32) + c / 32] - 127);
            break;
        case KERN_FP8_B128:
            ret[c] =
                (double)quant_e4m3(p0[row * cols + c]) *
                (double)((const float *)plane[1])[row / b * across + c / b];
            break;
        case KERN_NVFP4:
        case KERN_NVFP4_DIV: {
            double factor = (double)*(const float *)plane[2];
            double v = nibble(p0 + row * (cols / 2), (int)c) *
                       (double)quant_e4m3(p1[row * (cols / 16) + c / 16]);

            ret[c] = d->dtype == KERN_NVFP4 ? v * factor : v / factor;
            break;
        }
        case KERN_COMPACT:
        case KERN_N_DTYPES:
            break;
        }
    }
}

const struct kern_ops kern_ref_ops = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .buf_new = ref_buf_new,
    .buf_free = ref_buf_free,
    .upload = ref_upload,
    .download = ref_download,
    .copy = ref_copy,
    .fill = ref_fill,
    .begin = ref_begin,
    .end = ref_end,
    .weight_new = ref_weight_new,
    .weight_free = ref_weight_free,
    .weight_fill = ref_weight_fill,
    .weight_map = ref_weight_map,
    .weight_ready = ref_weight_ready,
    .embed = ref_embed,
    .gather = ref_gather,
    .norm = ref_norm,
    .linear = ref_linear,
    .qkv = ref_qkv,
    .attn = ref_attn,
    .swiglu = ref_swiglu_op,
    .router = ref_router,
    .expert_up = ref_expert_up,
    .expert_down = ref_expert_down,
    .sample = ref_sample,
    .accept = ref_accept,
    .mtp_rows = ref_mtp_rows,
    .finite = ref_finite,
};
