/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CUDA_RT_H
#define STEPD_KERNELS_CUDA_RT_H

/*
 * The little of a GPU runtime that the backend needs, and the seam at which the
 * emulator takes over: rt.c is the CUDA runtime, tests/cuemu/rt_emu.cc the host.
 * Everything above this line is the same code in both.
 *
 * One device, three streams: RT_MAIN computes, RT_COPY brings weights, RT_LOAD puts
 * them in their places. Calls that
 * fail return -errno; rt_error says what the device said. Only rt_sync and
 * rt_event_sync wait.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nccl_id;
struct rt;
struct rt_event;
struct rt_graph;

enum rt_stream { RT_MAIN, RT_COPY, RT_LOAD, RT_N_STREAMS };
enum rt_copy { RT_TO_DEVICE, RT_TO_HOST, RT_ON_DEVICE };

struct rt_info {
    char name[64];
    int capability; /* 90 for 9.0 */
    int n_sm;
    size_t mem_free, mem_total;
    size_t smem_block; /* bytes of shared memory a block may ask for */
    /* Of the devices that share the model, which one this is: rank 0 of 1 is all
     * that rt.c has (design.md 7). Where they meet, made by rank 0, whose own is
     * NULL. */
    int rank, n_ranks;
    const struct nccl_id *group;
};

struct rt_grid {
    unsigned x, y, z;
};

/* -ENODEV with a sentence in why: no driver, a stub, none that is new enough,
 * no device, or one older than compute capability 8.0. device -1: the first. */
int rt_open(struct rt **ret, int device, char *why, size_t n);
void rt_close(struct rt *rt); /* NULL is fine */
const char *rt_error(const struct rt *rt);
int rt_info(struct rt *rt, struct rt_info *ret);

int rt_alloc(struct rt *rt, size_t n, void **ret);
void rt_free(struct rt *rt, void *p);
/* Memory of the host that a device reads at full speed, in whole pages. */
int rt_host_alloc(struct rt *rt, size_t n, void **ret);
void rt_host_free(struct rt *rt, void *p);

int rt_copy(struct rt *rt, enum rt_stream s, enum rt_copy kind, void *to, const void *from,
            size_t n);
int rt_fill(struct rt *rt, enum rt_stream s, void *to, int byte, size_t n);
/* Whatever a first launch of fn with smem bytes would do besides launching: a
 * capture is not the place for it. */
int rt_prepare(struct rt *rt, const void *fn, size_t smem);
/* fn takes one struct of n bytes by value. */
int rt_launch(struct rt *rt, enum rt_stream s, const void *fn, struct rt_grid grid,
              unsigned threads, size_t smem, const void *args, size_t n);
/* What a library launches: fn(args, the stream's native handle), args being n
 * bytes of which a copy is kept while they may be needed. */
int rt_call(struct rt *rt, enum rt_stream s, int (*fn)(const void *args, void *stream),
            const void *args, size_t n);
int rt_sync(struct rt *rt, enum rt_stream s);

int rt_event_new(struct rt *rt, struct rt_event **ret);
void rt_event_free(struct rt *rt, struct rt_event *e);
int rt_event_record(struct rt *rt, struct rt_event *e, enum rt_stream s);
int rt_event_sync(struct rt *rt, struct rt_event *e);
/* What comes on s waits for what e recorded last; the host does not. */
int rt_event_wait(struct rt *rt, struct rt_event *e, enum rt_stream s);

/* What is launched on RT_MAIN between the two is recorded, not run. Nothing else
 * may be called between them: no allocation, no event, no wait. */
int rt_capture_begin(struct rt *rt);
int rt_capture_end(struct rt *rt, struct rt_graph **ret);
int rt_graph_launch(struct rt *rt, struct rt_graph *g);
void rt_graph_free(struct rt *rt, struct rt_graph *g);

#ifdef __cplusplus
}
#endif
#endif
