/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * exact = no: products of dense BF16 weights with many rows go to cuBLASLt,
 * which is loaded when it is wanted and never else. What it does not take (other
 * formats, few rows, odd addresses, shapes that it has nothing for) stays with
 * linear.cu.
 *
 * The library takes the number of rows from the host, which does not know it in a
 * replay: it computes rows.max of them, the bucket that the step's shape is of.
 * Rows past the counted ones are written and never read.
 *
 * Runs on the thread that owns the struct kern. Invariant: a product is an entry
 * of the step like a launch (graph.c), told apart by its bytes; so it names
 * sizes and addresses, and the library's descriptors are looked up when it runs.
 */

#include "kernels/cuda/lt.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/gpu.h"

#define WORKSPACE ((size_t)32 << 20)
#define MAX_SHAPES 128 /* kept; the least recently used one goes */

/* What the library chooses by. */
struct size {
    int rows, outs, cols, x_stride, pitch, out_stride;
    uint32_t align[3]; /* of the addresses of weight, x and out */
};

struct shape {
    struct size size;
    uint64_t used;
    bool there;             /* the library has something for it */
    void *weight, *x, *out; /* layouts */
    struct lt_algo algo;
};

struct gpu_lt {
    void *so, *handle, *desc, *pref, *workspace;
    struct lt_api api;
    struct shape shape[MAX_SHAPES];
    uint64_t clock;
};

/* One product of a step. */
struct product {
    struct gpu *g;
    struct size size;
    const void *weight, *x;
    void *out;
    int add;
};

/* ---- loading ---- */

/* 0, or a sentence in why. */
static int load(struct gpu_lt *lt, char *why, size_t n)
{
    lt->so = dlopen(LT_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (lt->so == NULL) {
        snprintf(why, n, "%s", dlerror());
        return -ENOENT;
    }
#define LT_LOAD(member, type, symbol)                        \
    *(void **)&lt->api.member = dlsym(lt->so, #symbol);      \
    if (lt->api.member == NULL) {                            \
        snprintf(why, n, "%s lacks %s", LT_SONAME, #symbol); \
        return -ENOENT;                                      \
    }
    LT_SYMBOLS(LT_LOAD)
    if (lt->api.version() < LT_OLDEST) {
        snprintf(why, n, "%s is version %zu, %d is needed", LT_SONAME, lt->api.version(),
                 LT_OLDEST);
        return -ENOENT;
    }
    return 0;
}

static int set_up(struct gpu_lt *lt)
{
    const struct lt_api *api = &lt->api;
    uint64_t most = WORKSPACE;
    int op = LT_OP_T, e = api->create(&lt->handle);

    e = e != 0 ? e : api->desc_new(&lt->desc, LT_COMPUTE_32F, LT_R_32F);
    e = e != 0 ? e : api->desc_set(lt->desc, LT_DESC_TRANSA, &op, sizeof(op));
    e = e != 0 ? e : api->pref_new(&lt->pref);
    return e != 0 ? e : api->pref_set(lt->pref, LT_PREF_WORKSPACE, &most, sizeof(most));
}

int gpu_lt_new(struct gpu *g)
{
    struct gpu_lt *lt = calloc(1, sizeof(*lt));
    char why[sizeof(g->base.note)] = "";
    int e;

    if (lt == NULL) {
        return -ENOMEM;
    }
    g->lt = lt;
    if (load(lt, why, sizeof(why)) == 0) {
        e = set_up(lt);
        if (e != 0) {
            snprintf(why, sizeof(why), "%s: status %d", LT_SONAME, e);
        } else if (gpu_mem_alloc(g, WORKSPACE, &lt->workspace) < 0) {
            snprintf(why, sizeof(why), "no room for its %zu MiB", WORKSPACE >> 20);
        }
    }
    if (why[0] != '\0') { /* slower, and nothing worse */
        gpu_lt_free(g);
        snprintf(g->base.note, sizeof(g->base.note),
                 "exact = no: own kernels for want of cuBLASLt: %.180s", why);
        g->base.err[0] = '\0';
    }
    return 0;
}

static void forget(const struct lt_api *api, struct shape *s)
{
    void *all[] = {s->weight, s->x, s->out};

    for (int i = 0; i < 3; i++) {
        if (all[i] != NULL) {
            api->layout_free(all[i]);
        }
    }
    memset(s, 0, sizeof(*s));
}

void gpu_lt_free(struct gpu *g)
{
    struct gpu_lt *lt = g->lt;

    if (lt == NULL) {
        return;
    }
    for (int i = 0; i < MAX_SHAPES; i++) {
        forget(&lt->api, &lt->shape[i]);
    }
    if (lt->pref != NULL) {
        lt->api.pref_free(lt->pref);
    }
    if (lt->desc != NULL) {
        lt->api.desc_free(lt->desc);
    }
    if (lt->handle != NULL) {
        lt->api.destroy(lt->handle);
    }
    gpu_mem_free(g, lt->workspace, WORKSPACE);
    if (lt->so != NULL) {
        dlclose(lt->so);
    }
    free(lt);
    g->lt = NULL;
}

/* ---- shapes ---- */

/* Row by row here is column by column there: out^T = weight x^T. */
static bool choose(struct gpu_lt *lt, struct shape *s)
{
    const struct lt_api *api = &lt->api;
    const struct size *z = &s->size;
    const uint32_t align[4] = {z->align[0], z->align[1], z->align[2], z->align[2]};
    struct lt_result best;
    int n = 0, e;

    e = api->layout_new(&s->weight, LT_R_16BF, (uint64_t)z->cols, (uint64_t)z->outs, z->pitch);
    e = e != 0
            ? e
            : api->layout_new(&s->x, LT_R_16BF, (uint64_t)z->cols, (uint64_t)z->rows, z->x_stride);
    e = e != 0 ? e
               : api->layout_new(&s->out, LT_R_32F, (uint64_t)z->outs, (uint64_t)z->rows,
                                 z->out_stride);
    for (int i = 0; e == 0 && i < 4; i++) {
        e = api->pref_set(lt->pref, LT_PREF_ALIGNMENT_A + i, &align[i], sizeof(align[i]));
    }
    e = e != 0 ? e
               : api->heuristic(lt->handle, lt->desc, s->weight, s->x, s->out, s->out, lt->pref, 1,
                                &best, &n);
    if (e != 0 || n == 0 || best.state != 0) {
        return false;
    }
    s->algo = best.algo;
    return true;
}

static struct shape *shape_of(struct gpu_lt *lt, const struct size *z)
{
    struct shape *s = &lt->shape[0];

    for (int i = 0; i < MAX_SHAPES; i++) {
        if (lt->shape[i].used != 0 && memcmp(&lt->shape[i].size, z, sizeof(*z)) == 0) {
            lt->shape[i].used = ++lt->clock;
            return &lt->shape[i];
        }
        s = lt->shape[i].used < s->used ? &lt->shape[i] : s;
    }
    forget(&lt->api, s);
    s->size = *z;
    s->there = choose(lt, s);
    s->used = ++lt->clock;
    return s;
}

/* ---- products ---- */

static int run(const void *args, void *stream)
{
    const struct product *p = args;
    struct gpu_lt *lt = p->g->lt;
    const struct shape *s = shape_of(lt, &p->size);
    const float one = 1, zero = 0;
    int e = lt->api.matmul(lt->handle, lt->desc, &one, p->weight, s->weight, p->x, s->x,
                           p->add ? &one : &zero, p->out, s->out, p->out, s->out, &s->algo,
                           lt->workspace, WORKSPACE, stream);

    if (e != 0) {
        snprintf(p->g->base.err, sizeof(p->g->base.err), "cublasLtMatmul: status %d", e);
    }
    return e != 0 ? -EIO : 0;
}

/* The greatest power of two, up to 256, that divides an address. */
static uint32_t alignment(const void *p)
{
    uintptr_t a = (uintptr_t)p | 256;

    return (uint32_t)(a & -a);
}

/* Whether part i of a goes to the library, and as what. */
static bool takes(struct gpu *g, const struct kern_linear_args *a, int i, struct product *p)
{
    const struct gpu_mat *w = gpu_mat_of(a->part[i].w);

    memset(p, 0, sizeof(*p));
    p->g = g;
    p->weight = w->q;
    p->x = gpu_at(a->x);
    p->out = gpu_at(a->part[i].out);
    p->add = a->add;
    p->size.rows = a->rows.max;
    p->size.outs = w->rows;
    p->size.cols = a->cols;
    p->size.x_stride = a->x_stride;
    p->size.pitch = w->pitch;
    p->size.out_stride = a->part[i].out_stride;
    p->size.align[0] = alignment(p->weight);
    p->size.align[1] = alignment(p->x);
    p->size.align[2] = alignment(p->out);
    return w->format == GPU_BF16 && a->rows.max >= GPU_LT_ROWS && p->size.align[0] >= 16 &&
           p->size.align[1] >= 16 && p->size.align[2] >= 16 && a->x_stride % 8 == 0 &&
           p->size.out_stride % 4 == 0 && shape_of(g->lt, &p->size)->there;
}

int gpu_lt_linear(struct kern *k, const struct kern_linear_args *a, unsigned *ret_taken)
{
    struct gpu *g = gpu_of(k);
    struct product p;
    int r = 0;

    *ret_taken = 0;
    for (int i = 0; r == 0 && g->lt != NULL && i < a->n_parts; i++) {
        if (takes(g, a, i, &p)) {
            /* how often it reads them is the library's business */
            k->stats.weight_bytes += gpu_mat_of(a->part[i].w)->bytes;
            *ret_taken |= 1u << i;
            r = gpu_lib_call(k, run, &p, sizeof(p));
        }
    }
    return r;
}
