/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What several GPUs that share a model make of it, put together: sums whose parts
 * lie on each of them, rows of which each has some columns. NCCL carries it, and is
 * loaded where rt_info tells of a second device and never else.
 *
 * Order of addition. ncclAllReduce picks its algorithm by the size of the message,
 * and with it which rank's part is added first: a row would depend on how many
 * others are in the step. So exact gathers the parts of all ranks, bits as they
 * are, and each rank adds them in ascending rank order (join.cu): ranks - 1 times
 * the bytes, the same sums everywhere. exact = no reduces.
 *
 * A rank is a struct gpu with a thread of its own, as NCCL wants it: one thread
 * that launches the graphs of several devices may wait for ever in the first. All
 * ranks make the same calls in the same order, and capture alike.
 *
 * Runs on the thread that owns the struct kern. Invariant: a collective is an
 * entry of the step like a launch (graph.c), told apart by its bytes.
 */

#include "kernels/cuda/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/gpu.h"

struct gpu_nccl {
    void *so, *comm;
    struct nccl_api api;
    bool exact;
};

/* One collective of a step. */
struct collective {
    struct gpu *g;
    const void *from;
    void *to; /* from: summed there */
    size_t n; /* floats of a rank */
};

/* ---- loading ---- */

static int failed(const struct gpu_nccl *c, const char *what, int result, char *why, size_t n)
{
    if (result != 0) {
        snprintf(why, n, "%s: %s", what, c->api.text(result));
    }
    return result != 0 ? -EIO : 0;
}

/* 0, or a sentence in why. */
static int load(struct gpu_nccl *c, char *why, size_t n)
{
    int version = 0;

    c->so = dlopen(NCCL_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (c->so == NULL) {
        snprintf(why, n, "several GPUs need NCCL: %s", dlerror());
        return -ENODEV;
    }
#define NCCL_LOAD(member, type, symbol)                        \
    *(void **)&c->api.member = dlsym(c->so, #symbol);          \
    if (c->api.member == NULL) {                               \
        snprintf(why, n, "%s lacks %s", NCCL_SONAME, #symbol); \
        return -ENODEV;                                        \
    }
    NCCL_SYMBOLS(NCCL_LOAD)
    if (failed(c, "ncclGetVersion", c->api.version(&version), why, n) < 0) {
        return -ENODEV;
    }
    if (version < NCCL_OLDEST) {
        snprintf(why, n, "%s is version %d, %d is needed", NCCL_SONAME, version, NCCL_OLDEST);
        return -ENODEV;
    }
    return 0;
}

int gpu_nccl_new(struct gpu *g, bool exact, char *why, size_t n)
{
    struct gpu_nccl *c = calloc(1, sizeof(*c));
    struct nccl_id id;
    int r;

    if (c == NULL) {
        return -ENOMEM;
    }
    g->nccl = c;
    c->exact = exact;
    r = load(c, why, n);
    if (r == 0 && g->info.group == NULL) {
        r = failed(c, "ncclGetUniqueId", c->api.id(&id), why, n);
    } else if (r == 0) {
        id = *g->info.group;
    }
    if (r == 0) {
        r = failed(c, "ncclCommInitRank", c->api.open(&c->comm, g->info.n_ranks, id, g->info.rank),
                   why, n);
    }
    return r;
}

void gpu_nccl_free(struct gpu *g)
{
    struct gpu_nccl *c = g->nccl;

    if (c == NULL) {
        return;
    }
    if (c->comm != NULL) {
        c->api.close(c->comm);
    }
    if (c->so != NULL) {
        dlclose(c->so);
    }
    free(c);
    g->nccl = NULL;
}

int gpu_nccl_check(struct gpu *g)
{
    int result = 0, r;

    if (g->nccl == NULL) {
        return 0;
    }
    r = g->nccl->api.state(g->nccl->comm, &result);
    return failed(g->nccl, "NCCL", r != 0 ? r : result, g->base.err, sizeof(g->base.err));
}

/* ---- collectives ---- */

static int run(const void *args, void *stream)
{
    const struct collective *a = args;
    struct gpu *g = a->g;
    const struct gpu_nccl *c = g->nccl;
    size_t n = sizeof(g->base.err);

    if (a->from == a->to) {
        return failed(c, "ncclAllReduce",
                      c->api.reduce(a->from, a->to, a->n, NCCL_FLOAT32, NCCL_SUM, c->comm, stream),
                      g->base.err, n);
    }
    return failed(c, "ncclAllGather",
                  c->api.gather(a->from, a->to, a->n, NCCL_FLOAT32, c->comm, stream), g->base.err,
                  n);
}

static int queue(struct kern *k, const float *from, float *to, size_t n)
{
    GPU_PARAMS(collective, a);
    a.g = gpu_of(k);
    a.from = from;
    a.to = to;
    a.n = n;
    return gpu_lib_call(k, run, &a, sizeof(a));
}

int gpu_join(struct kern *k, enum gpu_join how, struct kern_ptr p, const struct kern_rows *rows,
             int width)
{
    struct gpu *g = gpu_of(k);
    int part = how == GPU_JOIN_SUM ? width : gpu_ceil(width, gpu_max(1, g->info.n_ranks));
    size_t n = (size_t)rows->max * (size_t)part;
    float *all, *own;
    int r = 0;

    if (g->nccl == NULL) {
        return 0;
    }
    own = (float *)(void *)gpu_at(p);
    if (how == GPU_JOIN_SUM && !g->nccl->exact) {
        return queue(k, own, own, n);
    }
    /* Room for every rank's part, and for this one's columns side by side. */
    all = gpu_scratch_get(k, GPU_SCRATCH_JOIN, ((size_t)g->info.n_ranks + 1) * n * sizeof(*all));
    if (all == NULL) {
        return -ENOMEM;
    }
    if (how == GPU_JOIN_GATHER) {
        own = all + (size_t)g->info.n_ranks * n;
        r = gpu_join_cut(k, p, rows, width, part, own);
    }
    r = r < 0 ? r : queue(k, own, all, n);
    if (r < 0) {
        return r;
    }
    return how == GPU_JOIN_SUM ? gpu_join_add(k, p, rows, width, all)
                               : gpu_join_lay(k, p, rows, width, part, all);
}
