/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See guard.h: the ops table of ref, each slot between opening and closing all
 * buffers. A struct ref_buf is ref's own, so its memory can be protected here.
 */

#include "tests/daemon/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/ref/ref.h"

enum { MAX_BUFS = 512 };

struct guard {
    struct kern base;
    struct kern *ref;
    struct ref_buf *buf[MAX_BUFS];
    int n;
};

static struct kern *doors(struct kern *k, int prot)
{
    struct guard *g = (struct guard *)k;

    for (int i = 0; i < g->n; i++) {
        if (mprotect(g->buf[i]->at, g->buf[i]->mapped, prot) != 0) {
            abort();
        }
    }
    return g->ref;
}

static struct kern *unlock(struct kern *k)
{
    return doors(k, PROT_READ | PROT_WRITE);
}

static int lock(struct kern *k, int r)
{
    struct guard *g = (struct guard *)k;

    doors(k, PROT_NONE);
    if (r < 0) {
        memcpy(k->err, g->ref->err, sizeof(k->err));
    }
    k->stats = g->ref->stats;
    return r;
}

static int g_open(struct kern **ret, const struct kern_open_args *a)
{
    struct guard *g = calloc(1, sizeof(*g));
    int r;

    if (g == NULL) {
        return -ENOMEM;
    }
    r = kern_open(&kern_ref_ops, a, &g->ref);
    if (r < 0) {
        free(g);
        return r;
    }
    strcpy(g->base.desc, "guard");
    *ret = &g->base;
    return 0;
}

static void g_close(struct kern *k)
{
    struct guard *g = (struct guard *)k;

    kern_close(g->ref);
    free(g);
}

static int g_buf_new(struct kern *k, size_t bytes, struct kern_buf **ret)
{
    struct guard *g = (struct guard *)k;
    int r =
        g->n == MAX_BUFS ? -ENOMEM : kern_ref_ops.buf_new(g->ref, bytes, ret);

    if (r == 0) {
        g->buf[g->n++] = (struct ref_buf *)*ret;
    }
    return lock(k, r);
}

static void g_buf_free(struct kern *k, struct kern_buf *b)
{
    struct guard *g = (struct guard *)k;

    for (int i = 0; i < g->n; i++) {
        if (&g->buf[i]->base == b) {
            g->buf[i] = g->buf[--g->n];
        }
    }
    kern_ref_ops.buf_free(g->ref, b);
}

/* Slots that only pass their arguments on. */
#define MEMORY(name, params, args)              \
    static int g_##name params                  \
    {                                           \
        return lock(k, kern_ref_ops.name args); \
    }
MEMORY(upload, (struct kern * k, struct kern_ptr p, const void *x, size_t n),
       (unlock(k), p, x, n))
MEMORY(download, (struct kern * k, void *x, struct kern_ptr p, size_t n),
       (unlock(k), x, p, n))
MEMORY(copy,
       (struct kern * k, struct kern_ptr to, struct kern_ptr from, size_t n),
       (unlock(k), to, from, n))
MEMORY(fill, (struct kern * k, struct kern_ptr p, int byte, size_t n),
       (unlock(k), p, byte, n))
MEMORY(begin, (struct kern * k, uint64_t key), (unlock(k), key))
MEMORY(end, (struct kern * k), (unlock(k)))
MEMORY(weight_new,
       (struct kern * k, const struct kern_weight_desc *d,
        struct kern_weight **ret),
       (unlock(k), d, ret))
MEMORY(weight_fill,
       (struct kern * k, struct kern_weight *w, int e, int p, size_t off,
        const void *from, size_t n),
       (unlock(k), w, e, p, off, from, n))
MEMORY(weight_map,
       (struct kern * k, struct kern_weight *w, int e, int p, const void *at,
        size_t n),
       (unlock(k), w, e, p, at, n))
MEMORY(weight_ready, (struct kern * k, struct kern_weight *w), (unlock(k), w))

static void g_weight_free(struct kern *k, struct kern_weight *w)
{
    kern_ref_ops.weight_free(((struct guard *)k)->ref, w);
}

#define OP(name)                                                            \
    static int g_##name(struct kern *k, const struct kern_##name##_args *a) \
    {                                                                       \
        return lock(k, kern_ref_ops.name(unlock(k), a));                    \
    }
OP(embed)
OP(gather)
OP(norm)
OP(linear)
OP(qkv)
OP(attn)
OP(swiglu)
OP(router)
OP(expert_up)
OP(expert_down)
OP(sample)
OP(accept)
OP(mtp_rows)
OP(finite)

const struct kern_ops guard_ops = {
    .name = "guard",
    .open = g_open,
    .close = g_close,
    .buf_new = g_buf_new,
    .buf_free = g_buf_free,
    .upload = g_upload,
    .download = g_download,
    .copy = g_copy,
    .fill = g_fill,
    .begin = g_begin,
    .end = g_end,
    .weight_new = g_weight_new,
    .weight_free = g_weight_free,
    .weight_fill = g_weight_fill,
    .weight_map = g_weight_map,
    .weight_ready = g_weight_ready,
    .embed = g_embed,
    .gather = g_gather,
    .norm = g_norm,
    .linear = g_linear,
    .qkv = g_qkv,
    .attn = g_attn,
    .swiglu = g_swiglu,
    .router = g_router,
    .expert_up = g_expert_up,
    .expert_down = g_expert_down,
    .sample = g_sample,
    .accept = g_accept,
    .mtp_rows = g_mtp_rows,
    .finite = g_finite,
};
