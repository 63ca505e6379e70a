/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CUEMU_FAKE_NCCL_H
#define TESTS_CUEMU_FAKE_NCCL_H

#include <stdbool.h>

#include "kernels/cuda/nccl.h"

enum { FAKE_NCCL_RANKS = 8, FAKE_NCCL_LOG = 128 };

/* What fake_nccl.c is to do, and what it did: its symbol fake_nccl. */
struct fake_nccl {
    int version;       /* what it says that it is */
    const char *fails; /* the call that does, or NULL */
    bool late;         /* what was queued failed */
    /* Another rank r holds what the caller holds, times scale[r]. */
    float scale[FAKE_NCCL_RANKS];
    int rank, n; /* of the last that was opened, */
    struct nccl_id id;
    int live; /* communicators: opened and not closed */
    struct {
        bool sum; /* reduced, else gathered */
        size_t count;
    } log[FAKE_NCCL_LOG];
    int n_log;
};

#endif
