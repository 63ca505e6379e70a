/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Pinned memory in turns: n pieces, each with an event that says when the device
 * has done with it. So the host fills piece i + 1 while piece i is copied, and
 * waits only when it is a whole ring ahead. With staging each piece has a twin on
 * the device, where a plane waits to be repacked, and an event between the copy
 * and the repacking: they are on two streams, so that piece i + 1 is copied while
 * piece i is repacked.
 */

#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <stdlib.h>

struct gpu_ring {
    enum rt_stream stream;
    size_t piece;
    int n, at;
    struct {
        void *host, *device;
        struct rt_event *copied, *done;
        bool busy;
    } slot[];
};

int gpu_ring_new(struct gpu *g, enum rt_stream s, size_t piece, int n, bool staging,
                 struct gpu_ring **ret)
{
    struct gpu_ring *r = calloc(1, sizeof(*r) + (size_t)n * sizeof(r->slot[0]));
    int e = 0;

    if (r == NULL) {
        return -ENOMEM;
    }
    r->stream = s;
    r->piece = piece;
    r->n = n;
    for (int i = 0; e == 0 && i < n; i++) {
        e = rt_host_alloc(g->rt, piece, &r->slot[i].host);
        if (e == 0 && staging) {
            e = gpu_mem_alloc(g, piece, &r->slot[i].device);
        }
        if (e == 0 && staging) {
            e = rt_event_new(g->rt, &r->slot[i].copied);
        }
        if (e == 0) {
            e = rt_event_new(g->rt, &r->slot[i].done);
        }
    }
    if (e < 0) {
        gpu_ring_free(g, r);
        return e;
    }
    *ret = r;
    return 0;
}

void gpu_ring_free(struct gpu *g, struct gpu_ring *r)
{
    if (r == NULL) {
        return;
    }
    for (int i = 0; i < r->n; i++) {
        rt_event_free(g->rt, r->slot[i].copied);
        rt_event_free(g->rt, r->slot[i].done);
        gpu_mem_free(g, r->slot[i].device, r->piece);
        rt_host_free(g->rt, r->slot[i].host);
    }
    free(r);
}

size_t gpu_ring_piece(const struct gpu_ring *r)
{
    return r->piece;
}

int gpu_ring_next(struct gpu *g, struct gpu_ring *r, void **ret_host, void **ret_device)
{
    r->at = (r->at + 1) % r->n;
    if (r->slot[r->at].busy) {
        int e = rt_event_sync(g->rt, r->slot[r->at].done);

        if (e < 0) {
            return e;
        }
        r->slot[r->at].busy = false;
    }
    *ret_host = r->slot[r->at].host;
    if (ret_device != NULL) {
        *ret_device = r->slot[r->at].device;
    }
    return 0;
}

int gpu_ring_copied(struct gpu *g, struct gpu_ring *r)
{
    int e = rt_event_record(g->rt, r->slot[r->at].copied, RT_COPY);

    return e < 0 ? e : rt_event_wait(g->rt, r->slot[r->at].copied, r->stream);
}

int gpu_ring_used(struct gpu *g, struct gpu_ring *r)
{
    r->slot[r->at].busy = true;
    return rt_event_record(g->rt, r->slot[r->at].done, r->stream);
}
