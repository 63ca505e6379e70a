/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CUEMU_CUEMU_LOAD_H
#define TESTS_CUEMU_CUEMU_LOAD_H

/*
 * What the emulated runtime counts while weights come, and in the stream of the
 * steps beside kernels: for tests, which take cuemu_load_stats from the plugin
 * by name.
 */

#include <stddef.h>
#include <stdint.h>

struct cuemu_load {
    uint64_t copies, bytes;          /* from the host to the device */
    size_t in_flight, max_in_flight; /* bytes queued and not yet copied */
    uint64_t packs;                  /* kernels of RT_LOAD */
    uint64_t overlapped; /* of these, beside which a copy might have run */
    int64_t live;        /* allocations, of the device and pinned */
    /* RT_MAIN: graphs launched; copies from and to the host */
    uint64_t graphs, uploads, downloads;
    uint64_t captured;
    int64_t kept; /* graphs that were captured and not freed */
};

typedef struct cuemu_load *cuemu_load_stats_fn(void);

#endif
