/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A step as a CUDA graph. Every launch between begin and end is compared with
 * what the last step of the same shape key launched. Launches are equal exactly
 * when kernel, grid and the bytes of the parameters are: ids, positions and page
 * tables are read from device buffers, so they are.
 *
 * What is no launch and comes between launches (an upload of masks, a download)
 * cuts the step into segments, a graph each; without, a step is one graph. The
 * first step of a key is recorded: its launches are held back until the segment
 * ends, and then captured and launched in one go, so that nothing else of what
 * an op does on the host can fall into a capture. Later steps compare, and when
 * a segment's last launch has come its graph is launched. Where a launch differs,
 * what was held back of the segment is launched as it was recorded, the rest of
 * the step runs eagerly, and the key begins anew. So it does where the device has
 * no memory left for a graph, which nobody's plan counts; fewer are kept then.
 *
 * One exception: cuBLASLt and NCCL may load kernels and connect devices as they
 * are first called, which no capture is the place for. A key whose steps call them
 * runs eagerly once before it is recorded.
 */

#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_KEYS 64 /* shapes kept at most; the least recently used one goes */

enum call_kind { CALL_LAUNCH, CALL_COPY, CALL_FILL, CALL_LIB };

struct call {
    enum call_kind kind;
    const void *fn; /* launch; copy: the source */
    int (*lib)(const void *args, void *stream);
    void *to; /* copy, fill */
    struct rt_grid grid;
    unsigned threads;
    int byte;       /* fill */
    size_t smem, n; /* n: bytes of args, or of the copy */
    size_t args;    /* offset in the key's blob */
};

struct segment {
    int end; /* calls [end of the previous one, end) */
    struct rt_graph *graph;
};

struct key {
    uint64_t shape, used;
    struct call *call;
    char *blob;
    struct segment *segment;
    size_t n_blob, max_blob;
    int n_calls, max_calls, n_segments, max_segments;
    bool complete; /* recorded to the end once */
    bool warm;     /* ran eagerly once: libraries have what they load */
};

enum mode { OUTSIDE, EAGER, RECORD, REPLAY };

struct gpu_step {
    int n_keys; /* shapes kept; 0: no graphs */
    enum mode mode;
    struct key key[MAX_KEYS];
    struct key *at;
    int i_call, i_segment; /* how far */
    int held;              /* first call not launched yet */
    uint64_t clock;
    uint64_t graphed, eager; /* launches of this step */
};

/* ---- recording ---- */

/* Room for one element more. */
static int grow(void **p, int n, int *max, size_t size)
{
    void *more;

    if (n < *max) {
        return 0;
    }
    more = realloc(*p, size * (size_t)(*max * 2 + 64));
    if (more == NULL) {
        return -ENOMEM;
    }
    *p = more;
    *max = *max * 2 + 64;
    return 0;
}

static bool has_args(const struct call *c)
{
    return c->kind == CALL_LAUNCH || c->kind == CALL_LIB;
}

static int record(struct key *k, const struct call *c, const void *args)
{
    size_t n = has_args(c) ? c->n : 0;
    int r = grow((void **)&k->call, k->n_calls, &k->max_calls, sizeof(*k->call));

    if (r < 0) {
        return r;
    }
    if (k->n_blob + n > k->max_blob) {
        size_t max = k->max_blob * 2 + n + 4096;
        char *more = realloc(k->blob, max);

        if (more == NULL) {
            return -ENOMEM;
        }
        k->blob = more;
        k->max_blob = max;
    }
    k->call[k->n_calls] = *c;
    k->call[k->n_calls].args = k->n_blob;
    if (n > 0) {
        memcpy(k->blob + k->n_blob, args, n);
    }
    k->n_blob = (k->n_blob + n + 15) / 16 * 16;
    k->n_calls++;
    return 0;
}

static int end_segment(struct key *k, struct rt_graph *graph)
{
    int r = grow((void **)&k->segment, k->n_segments, &k->max_segments, sizeof(*k->segment));

    if (r == 0) {
        k->segment[k->n_segments].end = k->n_calls;
        k->segment[k->n_segments++].graph = graph;
    }
    return r;
}

static void clear(struct gpu *g, struct key *k)
{
    for (int i = 0; i < k->n_segments; i++) {
        rt_graph_free(g->rt, k->segment[i].graph);
    }
    k->n_calls = k->n_segments = 0;
    k->n_blob = 0;
    k->complete = false;
}

static struct key *key_of(struct gpu *g, uint64_t shape)
{
    struct gpu_step *s = g->step;
    struct key *oldest = &s->key[0];

    for (int i = 0; i < s->n_keys; i++) {
        if (s->key[i].used != 0 && s->key[i].shape == shape) {
            return &s->key[i];
        }
        if (s->key[i].used < oldest->used) {
            oldest = &s->key[i];
        }
    }
    clear(g, oldest);
    oldest->shape = shape;
    oldest->warm = false;
    return oldest;
}

/* ---- running ---- */

static int run(struct gpu *g, const struct call *c, const void *args)
{
    switch (c->kind) {
    case CALL_LAUNCH:
        return rt_launch(g->rt, RT_MAIN, c->fn, c->grid, c->threads, c->smem, args, c->n);
    case CALL_COPY:
        return rt_copy(g->rt, RT_MAIN, RT_ON_DEVICE, c->to, c->fn, c->n);
    case CALL_FILL:
        return rt_fill(g->rt, RT_MAIN, c->to, c->byte, c->n);
    case CALL_LIB:
        return rt_call(g->rt, RT_MAIN, c->lib, args, c->n);
    }
    return -EINVAL;
}

/* REPLAY met something new, or RECORD what cannot be captured yet: launches what
 * was held back, and goes eager. */
static int fall_back(struct gpu *g)
{
    struct gpu_step *s = g->step;
    int r = 0;

    for (; r == 0 && s->held < s->i_call; s->held++) {
        r = run(g, &s->at->call[s->held], s->at->blob + s->at->call[s->held].args);
        s->eager++;
    }
    s->mode = EAGER;
    s->at->complete = false; /* its graphs, which may run now, go at begin */
    s->at = NULL;
    return r;
}

/* The device has no memory for one graph more: half as many shapes are kept from
 * now on, none in the end, and the step goes on eagerly. Graphs of other shapes do
 * not run now. */
static int keep_fewer(struct gpu *g)
{
    struct gpu_step *s = g->step;
    struct key at = *s->at;

    *s->at = s->key[0];
    s->key[0] = at;
    s->at = &s->key[0];
    s->n_keys /= 2;
    for (int i = 1; i < MAX_KEYS; i++) {
        clear(g, &s->key[i]);
        s->key[i].used = 0;
    }
    return fall_back(g);
}

static bool same(const struct key *k, int i, const struct call *c, const void *args)
{
    const struct call *o = &k->call[i];

    return i < k->n_calls && o->kind == c->kind && o->fn == c->fn && o->lib == c->lib &&
           o->to == c->to && o->byte == c->byte && o->n == c->n && o->smem == c->smem &&
           o->threads == c->threads && o->grid.x == c->grid.x && o->grid.y == c->grid.y &&
           o->grid.z == c->grid.z && (!has_args(c) || memcmp(k->blob + o->args, args, c->n) == 0);
}

static int launch_segment(struct gpu *g)
{
    struct gpu_step *s = g->step;
    int r = rt_graph_launch(g->rt, s->at->segment[s->i_segment].graph);

    if (r < 0) {
        return r == -ENOMEM ? keep_fewer(g) : r;
    }
    s->i_segment++;
    s->graphed += (uint64_t)(s->i_call - s->held);
    s->held = s->i_call;
    return 0;
}

static int replay(struct gpu *g, const struct call *c, const void *args)
{
    struct gpu_step *s = g->step;
    int r;

    if (s->i_segment >= s->at->n_segments || s->i_call >= s->at->segment[s->i_segment].end ||
        !same(s->at, s->i_call, c, args)) {
        r = fall_back(g);
        s->eager++;
        return r < 0 ? r : run(g, c, args);
    }
    s->i_call++;
    if (s->i_call < s->at->segment[s->i_segment].end) {
        return 0;
    }
    return launch_segment(g);
}

/* Calls [from, n_calls) as a graph. A capture is open for their launches alone. */
static int capture(struct gpu *g, int from, struct rt_graph **ret)
{
    const struct key *k = g->step->at;
    int r = 0, end;

    *ret = NULL;
    for (int i = from; r == 0 && i < k->n_calls; i++) {
        if (k->call[i].kind == CALL_LAUNCH) {
            r = rt_prepare(g->rt, k->call[i].fn, k->call[i].smem);
        }
    }
    r = r < 0 ? r : rt_capture_begin(g->rt);
    if (r < 0) {
        return r;
    }
    for (int i = from; r == 0 && i < k->n_calls; i++) {
        r = run(g, &k->call[i], k->blob + k->call[i].args);
    }
    end = rt_capture_end(g->rt, ret);
    if (r < 0) {
        rt_graph_free(g->rt, *ret);
    }
    return r < 0 ? r : end;
}

/* What was recorded since the last segment becomes one, and is launched. */
static int record_segment(struct gpu *g)
{
    struct gpu_step *s = g->step;
    struct rt_graph *graph;
    int r = capture(g, s->held, &graph);

    if (r < 0) {
        return r == -ENOMEM ? keep_fewer(g) : r;
    }
    r = end_segment(s->at, graph);
    if (r < 0) {
        rt_graph_free(g->rt, graph);
        return r;
    }
    return launch_segment(g);
}

static int record_or_run(struct gpu *g, const struct call *c, const void *args)
{
    struct gpu_step *s = g->step;
    int r;

    if (c->kind == CALL_LIB && !s->at->warm) {
        s->at->warm = true;
        r = fall_back(g);
        s->eager++;
        return r < 0 ? r : run(g, c, args);
    }
    r = record(s->at, c, args);
    s->i_call = s->at->n_calls;
    return r;
}

static int call(struct gpu *g, const struct call *c, const void *args)
{
    struct gpu_step *s = g->step;
    int r = gpu_after_load(g);

    if (r < 0) {
        return r;
    }
    switch (s->mode) {
    case REPLAY:
        return replay(g, c, args);
    case RECORD:
        return record_or_run(g, c, args);
    case EAGER:
    case OUTSIDE:
        break;
    }
    s->eager++;
    return run(g, c, args);
}

int gpu_launch(struct kern *k, const void *fn, struct rt_grid grid, unsigned threads, size_t smem,
               const void *args, size_t n)
{
    struct call c;

    memset(&c, 0, sizeof(c));
    c.kind = CALL_LAUNCH;
    c.fn = fn;
    c.grid = grid;
    c.threads = threads;
    c.smem = smem;
    c.n = n;
    return gpu_fail(k, call(gpu_of(k), &c, args));
}

int gpu_lib_call(struct kern *k, int (*fn)(const void *args, void *stream), const void *args,
                 size_t n)
{
    struct call c;

    memset(&c, 0, sizeof(c));
    c.kind = CALL_LIB;
    c.lib = fn;
    c.n = n;
    return gpu_fail(k, call(gpu_of(k), &c, args));
}

int gpu_copy_call(struct kern *k, void *to, const void *from, size_t n)
{
    struct call c;

    memset(&c, 0, sizeof(c));
    c.kind = CALL_COPY;
    c.to = to;
    c.fn = from;
    c.n = n;
    return n == 0 ? 0 : gpu_fail(k, call(gpu_of(k), &c, NULL));
}

int gpu_fill_call(struct kern *k, void *to, int byte, size_t n)
{
    struct call c;

    memset(&c, 0, sizeof(c));
    c.kind = CALL_FILL;
    c.to = to;
    c.byte = byte;
    c.n = n;
    return n == 0 ? 0 : gpu_fail(k, call(gpu_of(k), &c, NULL));
}

/* ---- steps ---- */

int gpu_step_flush(struct gpu *g)
{
    struct gpu_step *s = g->step;

    if (s == NULL || s->held == s->i_call) {
        return 0;
    }
    return s->mode == RECORD ? record_segment(g) : s->mode == REPLAY ? fall_back(g) : 0;
}

int gpu_step_begin(struct gpu *g, uint64_t shape_key)
{
    struct gpu_step *s = g->step;

    s->mode = EAGER;
    s->at = NULL;
    s->eager = s->graphed = 0;
    s->i_call = s->i_segment = s->held = 0;
    if (s->n_keys == 0 || shape_key == 0) {
        return 0;
    }
    s->at = key_of(g, shape_key);
    s->mode = s->at->complete ? REPLAY : RECORD;
    if (s->mode == RECORD) {
        clear(g, s->at); /* of a step that never ended */
    }
    s->at->used = ++s->clock;
    return 0;
}

int gpu_step_end(struct gpu *g)
{
    struct gpu_step *s = g->step;
    int r = gpu_step_flush(g);

    if (s->mode == RECORD && r == 0) {
        s->at->complete = true;
    } else if (s->mode == REPLAY && s->i_segment < s->at->n_segments) {
        /* Shorter than the recorded one: what ran was the same so far, but the
         * rest is not to be expected again. */
        s->at->complete = false;
    }
    g->base.stats.launches += s->eager;
    g->base.stats.graph_launches += s->graphed;
    s->mode = OUTSIDE;
    s->at = NULL;
    return r;
}

int gpu_step_new(struct gpu *g, bool graphs)
{
    g->step = calloc(1, sizeof(*g->step));
    if (g->step == NULL) {
        return -ENOMEM;
    }
    g->step->n_keys = graphs ? MAX_KEYS : 0;
    return 0;
}

void gpu_step_free(struct gpu *g)
{
    for (int i = 0; g->step != NULL && i < MAX_KEYS; i++) {
        clear(g, &g->step->key[i]);
        free(g->step->key[i].call);
        free(g->step->key[i].blob);
        free(g->step->key[i].segment);
    }
    free(g->step);
}
