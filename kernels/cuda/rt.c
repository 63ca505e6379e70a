/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * rt.h over the CUDA runtime (linked statically; it loads the driver itself, so
 * that this file runs, and says no, where there is none).
 *
 * Runs on the thread that owns the backend. Invariant: after a device fault
 * every call fails; nobody limps on.
 */

#include "kernels/cuda/rt.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#define SMEM_DEFAULT (48u << 10) /* above it a kernel must be told */
#define MAX_BIG 64               /* kernels that were */
#define OLDEST 80                /* compute capability 8.0 */

struct rt {
    int device;
    cudaStream_t stream[RT_N_STREAMS];
    struct {
        const void *fn;
        size_t smem;
    } big[MAX_BIG];
    int n_big;
    char err[192];
};

struct rt_event {
    cudaEvent_t e;
};
struct rt_graph {
    cudaGraphExec_t g;
};

static int check(struct rt *rt, const char *what, cudaError_t e)
{
    if (e == cudaSuccess) {
        return 0;
    }
    snprintf(rt->err, sizeof(rt->err), "%s: %s: %s", what, cudaGetErrorName(e),
             cudaGetErrorString(e));
    return e == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

const char *rt_error(const struct rt *rt)
{
    return rt->err;
}

/* Why there is no device, in the words of who can do something about it. */
static void explain(cudaError_t e, char *why, size_t n)
{
    const char *text;

    switch (e) {
    case cudaErrorInsufficientDriver:
        text = "the NVIDIA driver is missing, or older than this CUDA needs";
        break;
    case cudaErrorStubLibrary:
        text = "libcuda is the toolkit's stub, not a driver";
        break;
    case cudaErrorNoDevice:
        text = "the driver sees no GPU";
        break;
    case cudaErrorSystemDriverMismatch:
        text = "driver and kernel module are of different versions";
        break;
    default:
        text = cudaGetErrorString(e);
        break;
    }
    snprintf(why, n, "%s (%s)", text, cudaGetErrorName(e));
}

static int choose(int device, char *why, size_t n)
{
    struct cudaDeviceProp p;
    int count = 0; /* untouched by a failing call */
    cudaError_t e = cudaGetDeviceCount(&count);

    if (e != cudaSuccess || count == 0) {
        explain(e != cudaSuccess ? e : cudaErrorNoDevice, why, n);
        return -ENODEV;
    }
    device = device < 0 ? 0 : device;
    if (device >= count) {
        snprintf(why, n, "there is no GPU %d: the driver sees %d", device, count);
        return -ENODEV;
    }
    e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess) {
        explain(e, why, n);
        return -ENODEV;
    }
    if (p.major * 10 + p.minor < OLDEST) {
        snprintf(why, n, "GPU %d (%s) has compute capability %d.%d: 8.0 is needed", device, p.name,
                 p.major, p.minor);
        return -ENODEV;
    }
    return device;
}

int rt_open(struct rt **ret, int device, char *why, size_t n)
{
    struct rt *rt;
    cudaError_t e;

    device = choose(device, why, n);
    if (device < 0) {
        return device;
    }
    rt = calloc(1, sizeof(*rt));
    if (rt == NULL) {
        return -ENOMEM;
    }
    rt->device = device;
    e = cudaSetDevice(device);
    for (int i = 0; e == cudaSuccess && i < RT_N_STREAMS; i++) {
        e = cudaStreamCreateWithFlags(&rt->stream[i], cudaStreamNonBlocking);
    }
    if (e != cudaSuccess) {
        explain(e, why, n);
        rt_close(rt);
        return -ENODEV;
    }
    *ret = rt;
    return 0;
}

void rt_close(struct rt *rt)
{
    if (rt == NULL) {
        return;
    }
    for (int i = 0; i < RT_N_STREAMS; i++) {
        if (rt->stream[i] != NULL) {
            cudaStreamDestroy(rt->stream[i]);
        }
    }
    free(rt);
}

int rt_info(struct rt *rt, struct rt_info *ret)
{
    struct cudaDeviceProp p;
    int r = check(rt, "properties", cudaGetDeviceProperties(&p, rt->device));

    if (r < 0) {
        return r;
    }
    snprintf(ret->name, sizeof(ret->name), "%.63s", p.name);
    ret->capability = p.major * 10 + p.minor;
    ret->n_sm = p.multiProcessorCount;
    ret->smem_block = p.sharedMemPerBlockOptin;
    ret->rank = 0;
    ret->n_ranks = 1;
    ret->group = NULL;
    return check(rt, "memory", cudaMemGetInfo(&ret->mem_free, &ret->mem_total));
}

int rt_alloc(struct rt *rt, size_t n, void **ret)
{
    return check(rt, "cudaMalloc", cudaMalloc(ret, n));
}

void rt_free(struct rt *rt, void *p)
{
    (void)rt;
    cudaFree(p);
}

/* Staging stays out of core dumps: weights on their way, what a step drew. */
static void leave_out_of_dumps(void *p, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)p + n) & ~(page - 1);

    if (to > from) {
        (void)madvise((void *)from, to - from, MADV_DONTDUMP);
    }
}

int rt_host_alloc(struct rt *rt, size_t n, void **ret)
{
    int r = check(rt, "cudaMallocHost", cudaMallocHost(ret, n));

    if (r == 0) {
        leave_out_of_dumps(*ret, n);
    }
    return r;
}

void rt_host_free(struct rt *rt, void *p)
{
    (void)rt;
    cudaFreeHost(p);
}

int rt_copy(struct rt *rt, enum rt_stream s, enum rt_copy kind, void *to, const void *from,
            size_t n)
{
    static const enum cudaMemcpyKind kinds[] = {
        [RT_TO_DEVICE] = cudaMemcpyHostToDevice,
        [RT_TO_HOST] = cudaMemcpyDeviceToHost,
        [RT_ON_DEVICE] = cudaMemcpyDeviceToDevice,
    };

    return check(rt, "copy", cudaMemcpyAsync(to, from, n, kinds[kind], rt->stream[s]));
}

int rt_fill(struct rt *rt, enum rt_stream s, void *to, int byte, size_t n)
{
    return check(rt, "fill", cudaMemsetAsync(to, byte, n, rt->stream[s]));
}

/* Dynamic shared memory past 48 KiB has to be asked for, once a kernel. */
static int allow(struct rt *rt, const void *fn, size_t smem)
{
    int i = 0, r;

    while (i < rt->n_big && rt->big[i].fn != fn) {
        i++;
    }
    if (i < rt->n_big && rt->big[i].smem >= smem) {
        return 0;
    }
    r = check(rt, "shared memory",
              cudaFuncSetAttribute(fn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem));
    if (r == 0 && i < MAX_BIG) {
        rt->big[i].fn = fn;
        rt->big[i].smem = smem;
        rt->n_big = i == rt->n_big ? i + 1 : rt->n_big;
    }
    return r;
}

/* Kernels are loaded when they are first wanted. */
int rt_prepare(struct rt *rt, const void *fn, size_t smem)
{
    struct cudaFuncAttributes a;
    int r = check(rt, "kernel", cudaFuncGetAttributes(&a, fn));

    return r == 0 && smem > SMEM_DEFAULT ? allow(rt, fn, smem) : r;
}

int rt_launch(struct rt *rt, enum rt_stream s, const void *fn, struct rt_grid grid,
              unsigned threads, size_t smem, const void *args, size_t n)
{
    dim3 blocks = {grid.x, grid.y, grid.z}, block = {threads, 1, 1};
    void *argv[1] = {(void *)(uintptr_t)args};
    int r = smem > SMEM_DEFAULT ? allow(rt, fn, smem) : 0;

    (void)n;
    return r < 0 ? r
                 : check(rt, "launch",
                         cudaLaunchKernel(fn, blocks, block, argv, smem, rt->stream[s]));
}

int rt_call(struct rt *rt, enum rt_stream s, int (*fn)(const void *args, void *stream),
            const void *args, size_t n)
{
    (void)n;
    return fn(args, rt->stream[s]);
}

int rt_sync(struct rt *rt, enum rt_stream s)
{
    return check(rt, "device", cudaStreamSynchronize(rt->stream[s]));
}

int rt_event_new(struct rt *rt, struct rt_event **ret)
{
    struct rt_event *e = calloc(1, sizeof(*e));
    int r;

    if (e == NULL) {
        return -ENOMEM;
    }
    r = check(rt, "event",
              cudaEventCreateWithFlags(&e->e, cudaEventDisableTiming | cudaEventBlockingSync));
    if (r < 0) {
        free(e);
        return r;
    }
    *ret = e;
    return 0;
}

void rt_event_free(struct rt *rt, struct rt_event *e)
{
    (void)rt;
    if (e != NULL) {
        cudaEventDestroy(e->e);
        free(e);
    }
}

int rt_event_record(struct rt *rt, struct rt_event *e, enum rt_stream s)
{
    return check(rt, "event", cudaEventRecord(e->e, rt->stream[s]));
}

int rt_event_sync(struct rt *rt, struct rt_event *e)
{
    return check(rt, "device", cudaEventSynchronize(e->e));
}

int rt_event_wait(struct rt *rt, struct rt_event *e, enum rt_stream s)
{
    return check(rt, "event", cudaStreamWaitEvent(rt->stream[s], e->e, 0));
}

int rt_capture_begin(struct rt *rt)
{
    return check(rt, "capture",
                 cudaStreamBeginCapture(rt->stream[RT_MAIN], cudaStreamCaptureModeThreadLocal));
}

int rt_capture_end(struct rt *rt, struct rt_graph **ret)
{
    cudaGraph_t graph = NULL;
    int r = check(rt, "capture", cudaStreamEndCapture(rt->stream[RT_MAIN], &graph));
    struct rt_graph *g = r == 0 ? calloc(1, sizeof(*g)) : NULL;

    if (r == 0 && g == NULL) {
        cudaGraphDestroy(graph);
        return -ENOMEM;
    }
    if (r == 0) {
        r = check(rt, "graph", cudaGraphInstantiate(&g->g, graph, 0));
        cudaGraphDestroy(graph);
    }
    if (r < 0) {
        free(g);
        return r;
    }
    *ret = g;
    return 0;
}

int rt_graph_launch(struct rt *rt, struct rt_graph *g)
{
    return check(rt, "graph", cudaGraphLaunch(g->g, rt->stream[RT_MAIN]));
}

void rt_graph_free(struct rt *rt, struct rt_graph *g)
{
    (void)rt;
    if (g != NULL) {
        cudaGraphExecDestroy(g->g);
        free(g);
    }
}
