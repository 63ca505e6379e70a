/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_BENCH_OPCLOCK_H
#define TESTS_BENCH_OPCLOCK_H

/*
 * Where a step's time goes: an open model's kernel ops, each timed and counted
 * by what it is for. One model at a time; only its thread runs ops.
 */

#include <stdint.h>

#include "daemon/model/state.h"

enum opclock_part {
    OPCLOCK_QKV_IN, /* q, k, v and gate projections */
    OPCLOCK_ATTN,
    OPCLOCK_O,
    OPCLOCK_DENSE,
    OPCLOCK_ROUTER,
    OPCLOCK_EXPERTS,
    OPCLOCK_SHARED,
    OPCLOCK_HEAD,
    OPCLOCK_JOIN,  /* eh_proj */
    OPCLOCK_SMALL, /* norms, RoPE, SwiGLU, gathers, row lists */
    OPCLOCK_SAMPLE,
    OPCLOCK_N_PARTS
};

struct opclock_line {
    double seconds;
    double bytes;   /* weights and KV that were read */
    double bytes16; /* the same, weights at their size in the checkpoint */
    double flops;   /* of products with weights; attention's are not counted */
    uint64_t calls;
};

/* [0] the trunk and its draws, [1] the MTP modules with their proposals. */
struct opclock {
    struct opclock_line part[2][OPCLOCK_N_PARTS];
};

void opclock_install(struct model *m);
void opclock_reset(void);
void opclock_read(struct opclock *ret);
const char *opclock_name(enum opclock_part p);

#endif
