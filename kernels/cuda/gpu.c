/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The CUDA backend's table, its life, and its memory. Nothing here knows
 * whether rt.h is the CUDA runtime or the emulator.
 *
 * Runs on the thread that owns the struct kern. Invariants: device memory is
 * taken at open, by buf_new, weight_new and reserve; within a step only where
 * reserve was told too little. A step's results cross in one copy, at its end:
 * what is fetched is gathered on the device, behind the counters.
 */

#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef GPU_BACKEND_NAME
#define GPU_BACKEND_NAME "cuda"
#endif

#define MIB ((size_t)1 << 20)
#define UPLOAD_PIECE (4 * MIB)
#define UPLOAD_PIECES 4
#define DEFAULT_UTILIZATION 0.97

int gpu_fail(struct kern *k, int r)
{
    if (r < 0 && k->err[0] == '\0') {
        snprintf(k->err, sizeof(k->err), "%s", rt_error(gpu_of(k)->rt));
    }
    return r;
}

/* The one way to wait for a step, counted. */
static int wait_main(struct gpu *g)
{
    g->base.stats.waits++;
    return rt_sync(g->rt, RT_MAIN);
}

/* ---- memory ---- */

int gpu_mem_alloc(struct gpu *g, size_t n, void **ret)
{
    int r;

    if (n > g->budget - g->used) {
        snprintf(g->base.err, sizeof(g->base.err),
                 "%zu bytes more would pass the budget: %zu of %zu MiB used", n, g->used / MIB,
                 g->budget / MIB);
        return -ENOMEM;
    }
    r = rt_alloc(g->rt, n, ret);
    if (r < 0) {
        return gpu_fail(&g->base, r);
    }
    g->used += n;
    return 0;
}

void gpu_mem_free(struct gpu *g, void *p, size_t n)
{
    if (p != NULL) {
        rt_free(g->rt, p);
        g->used -= n;
    }
}

void *gpu_scratch_get(struct kern *k, enum gpu_scratch which, size_t n)
{
    struct gpu *g = gpu_of(k);
    void *p;

    if (g->scratch[which].n >= n) {
        return g->scratch[which].at;
    }
    /* Earlier launches may still use the old one. It goes first: two at a time
     * are not in the plan. */
    if (gpu_step_flush(g) < 0 || wait_main(g) < 0) {
        return NULL;
    }
    gpu_mem_free(g, g->scratch[which].at, g->scratch[which].n);
    g->scratch[which].at = NULL;
    g->scratch[which].n = 0;
    if (gpu_mem_alloc(g, n, &p) < 0) {
        return NULL;
    }
    if (rt_fill(g->rt, RT_MAIN, p, 0, n) < 0) {
        gpu_mem_free(g, p, n);
        return NULL;
    }
    g->scratch[which].at = p;
    g->scratch[which].n = n;
    return p;
}

/* Each gpu_scratch_get of one device at its largest. */
static void scratch_sizes(const struct kern_sizes *s, uint64_t ret[GPU_N_SCRATCH])
{
    uint64_t n = (uint64_t)s->rows;

    gpu_attn_scratch(s->rows, s->n_head, s->n_kv_head, s->pages, &ret[GPU_SCRATCH_ATTN],
                     &ret[GPU_SCRATCH_TURNS]);
    ret[GPU_SCRATCH_PAIRS] = n * (uint64_t)s->top_k * (uint64_t)s->hidden * sizeof(float);
    ret[GPU_SCRATCH_LOGITS] = n * (uint64_t)s->n_expert * sizeof(float);
    ret[GPU_SCRATCH_SAMPLE] = (uint64_t)s->sampled_rows * (uint64_t)s->vocab * sizeof(float);
    ret[GPU_SCRATCH_JOIN] = 0;
}

/* The scratch, what results come back through, and the staging of weight.c. */
static uint64_t gpu_scratch_bytes(const struct kern_sizes *s)
{
    uint64_t each[GPU_N_SCRATCH], n = GPU_BACK + gpu_load_bytes();

    scratch_sizes(s, each);
    for (int i = 0; i < GPU_N_SCRATCH; i++) {
        n += each[i];
    }
    return n;
}

static int gpu_reserve(struct kern *k, const struct kern_sizes *s)
{
    uint64_t each[GPU_N_SCRATCH];

    scratch_sizes(s, each);
    for (int i = 0; i < GPU_N_SCRATCH; i++) {
        if (each[i] > 0 && gpu_scratch_get(k, (enum gpu_scratch)i, each[i]) == NULL) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int gpu_buf_new(struct kern *k, size_t bytes, struct kern_buf **ret)
{
    struct gpu_buf *b = calloc(1, sizeof(*b));
    void *at;
    int r;

    if (b == NULL) {
        return -ENOMEM;
    }
    r = gpu_mem_alloc(gpu_of(k), bytes, &at);
    if (r < 0) {
        free(b);
        return r;
    }
    b->at = at;
    *ret = &b->base;
    return 0;
}

static void gpu_buf_free(struct kern *k, struct kern_buf *buf)
{
    struct gpu_buf *b = (struct gpu_buf *)buf;

    gpu_mem_free(gpu_of(k), b->at, b->base.bytes);
    free(b);
}

/* ---- copies ---- */

/* Room in the pinned ring, at most *n bytes: uploads lie one behind the other in
 * a piece, so that a step waits for none of its own. */
static int upload_room(struct gpu *g, size_t *n, char **ret)
{
    size_t piece = gpu_ring_piece(g->upload);
    void *next;
    int r = 0;

    if (g->up != NULL && g->up_n >= piece) {
        r = gpu_ring_used(g, g->upload);
        g->up = NULL;
    }
    if (r == 0 && g->up == NULL) {
        r = gpu_ring_next(g, g->upload, &next, NULL);
        g->up = r == 0 ? next : NULL;
        g->up_n = 0;
    }
    if (r == 0) {
        *n = *n < piece - g->up_n ? *n : piece - g->up_n;
        *ret = g->up + g->up_n;
        g->up_n += (*n + 15) / 16 * 16;
    }
    return r;
}

static int gpu_upload(struct kern *k, struct kern_ptr to, const void *from, size_t n)
{
    struct gpu *g = gpu_of(k);
    size_t done = 0;
    int r = gpu_step_flush(g);

    while (r == 0 && done < n) {
        size_t m = n - done;
        char *host;

        r = upload_room(g, &m, &host);
        if (r == 0) {
            memcpy(host, (const char *)from + done, m);
            r = rt_copy(g->rt, RT_MAIN, RT_TO_DEVICE, gpu_at(to) + done, host, m);
        }
        done += m;
    }
    return gpu_fail(k, r);
}

static int fault(struct gpu *g, unsigned long long f)
{
    int a = (int)(f >> 28 & 0xfffffff), b = (int)(f & 0xfffffff);
    static const char *const text[] = {
        [GPU_FAULT_NONE] = "no fault %d %d",
        [GPU_FAULT_ATTN_PAGE] = "attn: sequence %d has no page %d",
        [GPU_FAULT_ATTN_SEQ] = "attn: row %d has no sequence (%d)",
        [GPU_FAULT_QKV_PAGE] = "qkv: row %d: no page for slot %d",
    };

    snprintf(g->base.err, sizeof(g->base.err), text[f >> 56], a, b);
    return -EIO;
}

/* Adds what kernels counted since the last time, of what has come back. */
static int add_counts(struct gpu *g)
{
    const unsigned long long *now = (const unsigned long long *)g->back_host;
    unsigned long long *was = g->counted;
    int r;

    g->base.stats.weight_bytes += now[GPU_COUNT_WEIGHT] - was[GPU_COUNT_WEIGHT];
    g->base.stats.expert_loads += now[GPU_COUNT_LOADS] - was[GPU_COUNT_LOADS];
    g->base.stats.kv_bytes += now[GPU_COUNT_KV] - was[GPU_COUNT_KV];
    memcpy(was, now, sizeof(g->counted));
    if (was[GPU_FAULT] == 0) {
        return 0;
    }
    r = rt_fill(g->rt, RT_MAIN, &g->counts[GPU_FAULT], 0, sizeof(*g->counts));
    return r < 0 ? r : fault(g, was[GPU_FAULT]);
}

/* Waits; the counters are back then, and the first n bytes of what was fetched. */
static int take_back(struct gpu *g, size_t n)
{
    int r = rt_copy(g->rt, RT_MAIN, RT_TO_HOST, g->back_host, g->counts, GPU_BACK_FETCHED + n);

    r = r < 0 ? r : wait_main(g);
    return r < 0 ? r : add_counts(g);
}

static int gpu_download(struct kern *k, void *to, struct kern_ptr from, size_t n)
{
    struct gpu *g = gpu_of(k);
    size_t done = 0;
    int r = gpu_step_flush(g);

    while (r == 0 && done < n) {
        size_t m = n - done < GPU_DOWN ? n - done : GPU_DOWN;

        r = rt_copy(g->rt, RT_MAIN, RT_TO_HOST, g->down, gpu_at(from) + done, m);
        if (r == 0) {
            r = done + m == n && !g->in_step ? take_back(g, 0) : wait_main(g);
        }
        if (r == 0) {
            memcpy((char *)to + done, g->down, m);
        }
        done += m;
    }
    return gpu_fail(k, r);
}

/* A copy on the device, as much a part of the graph as a launch; end brings all of
 * them at once. What finds no room is downloaded. */
static int gpu_fetch(struct kern *k, void *to, struct kern_ptr from, size_t n)
{
    struct gpu *g = gpu_of(k);
    size_t at = g->fetched;
    int r;

    if (!g->in_step || g->n_fetches == GPU_MAX_FETCHES || n > GPU_DOWN - at) {
        return gpu_download(k, to, from, n);
    }
    r = gpu_copy_call(k, (char *)g->counts + GPU_BACK_FETCHED + at, gpu_at(from), n);
    if (r == 0) {
        g->fetch[g->n_fetches].to = to;
        g->fetch[g->n_fetches].at = at;
        g->fetch[g->n_fetches++].n = n;
        g->fetched += (n + 15) / 16 * 16;
        g->fetched = g->fetched < GPU_DOWN ? g->fetched : GPU_DOWN;
    }
    return r;
}

static int gpu_copy(struct kern *k, struct kern_ptr to, struct kern_ptr from, size_t n)
{
    return gpu_copy_call(k, gpu_at(to), gpu_at(from), n);
}

static int gpu_fill(struct kern *k, struct kern_ptr to, int byte, size_t n)
{
    return gpu_fill_call(k, gpu_at(to), byte, n);
}

/* One host wait a step: here, counters and all. */
static int gpu_end(struct kern *k)
{
    struct gpu *g = gpu_of(k);
    int r = gpu_step_end(g);

    g->in_step = false;
    r = r < 0 ? r : take_back(g, g->fetched);
    r = r < 0 ? r : gpu_nccl_check(g);
    for (int i = 0; r == 0 && i < g->n_fetches; i++) {
        memcpy(g->fetch[i].to, g->back_host + GPU_BACK_FETCHED + g->fetch[i].at, g->fetch[i].n);
    }
    g->up_n = 0; /* the device has done with all of the piece */
    return gpu_fail(k, r);
}

static int gpu_begin(struct kern *k, uint64_t shape_key)
{
    struct gpu *g = gpu_of(k);
    int r = gpu_after_load(g);

    g->in_step = true;
    g->n_fetches = 0;
    g->fetched = 0;
    return gpu_fail(k, r < 0 ? r : gpu_step_begin(g, shape_key));
}

/* ---- life ---- */

static void gpu_close(struct kern *k)
{
    struct gpu *g = gpu_of(k);

    if (g->rt != NULL) {
        rt_sync(g->rt, RT_MAIN);
        rt_sync(g->rt, RT_COPY);
        rt_sync(g->rt, RT_LOAD);
        gpu_step_free(g);
        gpu_lt_free(g);
        gpu_nccl_free(g);
        gpu_ring_free(g, g->upload);
        gpu_ring_free(g, g->load);
        for (int i = 0; i < GPU_N_SCRATCH; i++) {
            gpu_mem_free(g, g->scratch[i].at, g->scratch[i].n);
        }
        rt_free(g->rt, g->counts);
        rt_host_free(g->rt, g->back_host);
        rt_host_free(g->rt, g->down);
        rt_close(g->rt);
    }
    free(g);
}

/* The share is one of the whole device, less what others hold already (the
 * context of this process among them). What the share leaves is for what nobody
 * counts: modules, graphs, what cudaMalloc rounds up. */
static int set_budget(struct gpu *g, double share, char *why, size_t n)
{
    size_t mine = (size_t)((double)g->info.mem_total * share);
    size_t others = g->info.mem_total - g->info.mem_free;

    if (mine <= others) { /* a memory of 0 would be the host's */
        snprintf(why, n, "others hold %zu of %zu MiB, and memory_utilization is %g", others / MIB,
                 g->info.mem_total / MIB, share);
        return -ENOMEM;
    }
    g->budget = mine - others;
    g->base.memory = g->budget;
    return 0;
}

static int set_up(struct gpu *g, const struct kern_open_args *a, char *why, size_t why_n)
{
    double share = a->memory_utilization > 0 ? a->memory_utilization : DEFAULT_UTILIZATION;
    void *p;
    int r = rt_info(g->rt, &g->info);

    if (r == 0 && g->info.n_ranks > 1) {
        r = gpu_nccl_new(g, a->exact, why, why_n);
        r = r < 0 ? r : rt_info(g->rt, &g->info); /* it takes memory of its own */
    }
    r = r < 0 ? r : set_budget(g, share, why, why_n);
    if (r < 0) {
        return r;
    }
    if ((r = rt_alloc(g->rt, GPU_BACK, &p)) < 0) { /* scratch_bytes has it */
        return r;
    }
    g->counts = p;
    if ((r = rt_fill(g->rt, RT_MAIN, p, 0, GPU_BACK)) < 0 ||
        (r = rt_host_alloc(g->rt, GPU_BACK, &p)) < 0) {
        return r;
    }
    g->back_host = p;
    if ((r = rt_host_alloc(g->rt, GPU_DOWN, &p)) < 0) {
        return r;
    }
    g->down = p;
    if ((r = gpu_ring_new(g, RT_MAIN, UPLOAD_PIECE, UPLOAD_PIECES, false, &g->upload)) < 0) {
        return r;
    }
    if ((r = gpu_step_new(g, !a->no_graphs)) < 0 || a->exact) {
        return r;
    }
    r = gpu_lt_new(g);
    g->base.memory = g->budget - g->used;
    return r;
}

static int open_device(struct gpu *g, const struct kern_open_args *a, char *why, size_t n)
{
    int r = rt_open(&g->rt, a->n_devices > 0 ? a->devices[0] : -1, why, n);

    if (r == 0) {
        r = set_up(g, a, why, n);
        if (r < 0 && why[0] == '\0') {
            snprintf(why, n, "%s", rt_error(g->rt));
        }
    }
    return r;
}

static int gpu_open(struct kern **ret, const struct kern_open_args *a)
{
    struct gpu *g = calloc(1, sizeof(*g));
    char why[256] = "";
    int r;

    if (g == NULL) {
        return -ENOMEM;
    }
    if (a->n_devices > 1) {
        snprintf(why, sizeof(why), "%d GPUs: one is what it can use", a->n_devices);
        r = -ENODEV;
    } else {
        r = open_device(g, a, why, sizeof(why));
    }
    if (r < 0) {
        if (a->why != NULL) {
            snprintf(a->why, a->why_n, "%s", why);
        }
        gpu_close(&g->base);
        return r;
    }
    snprintf(g->base.desc, sizeof(g->base.desc), "%s: %.40s", GPU_BACKEND_NAME, g->info.name);
    *ret = &g->base;
    return 0;
}

const struct kern_ops kern_cuda_ops = {
    .name = GPU_BACKEND_NAME,
    .open = gpu_open,
    .close = gpu_close,
    .weight_bytes = gpu_weight_bytes,
    .scratch_bytes = gpu_scratch_bytes,
    .reserve = gpu_reserve,
    .buf_new = gpu_buf_new,
    .buf_free = gpu_buf_free,
    .upload = gpu_upload,
    .download = gpu_download,
    .fetch = gpu_fetch,
    .copy = gpu_copy,
    .fill = gpu_fill,
    .begin = gpu_begin,
    .end = gpu_end,
    .weight_new = gpu_weight_new,
    .weight_free = gpu_weight_free,
    .weight_fill = gpu_weight_fill,
    .weight_map = gpu_weight_map,
    .weight_ready = gpu_weight_ready,
    .load_room = gpu_load_room,
    .load_end = gpu_load_end,
    .embed = gpu_embed,
    .gather = gpu_gather,
    .norm = gpu_norm,
    .linear = gpu_linear,
    .qkv = gpu_qkv,
    .attn = gpu_attn,
    .swiglu = gpu_swiglu,
    .router = gpu_router,
    .expert_up = gpu_expert_up,
    .expert_down = gpu_expert_down,
    .sample = gpu_sample,
    .accept = gpu_accept,
    .mtp_rows = gpu_mtp_rows,
    .finite = gpu_finite,
    .mlp_up = gpu_mlp_up,
    .norm_marks = true,
    .expert_shares = true,
};
