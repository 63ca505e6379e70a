/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CUEMU_CUEMU_PRIV_H
#define TESTS_CUEMU_CUEMU_PRIV_H

/* What sched.cc (who runs) and check.cc (who may touch what) share. */

#include "tests/cuemu/cuemu.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

enum thr_state { THR_READY, THR_AT_BARRIER, THR_AT_COLLECTIVE, THR_DONE };

struct pending { /* one cp.async that may not have landed */
    char *dst;
    const char *src;
    size_t n;
    bool live;
    int group;
    const void *pc;
};

struct thr {
    void *sp, *fake;
    char *stack;
    thr_state state;
    cuemu_idx tid;
    int id, warp, lane;
    const void *pc; /* where it waits */
    int line;
    uint64_t fence; /* time of its last __threadfence */
    std::vector<pending> cp;
    int cp_group;
    std::unordered_map<const void *, uint32_t> visits;
};

struct collective {
    uint32_t mask, arrived;
    cuemu_op op;
    int line, parity;
    const void *pc;
    cuemu_slot buf[2][32];
};

struct warp {
    std::vector<std::unique_ptr<collective>> meet;
    uint32_t epoch;
};

enum { THR_STACK = 128 << 10, ARENA = 512 << 10, RED_ZONE = 64 };

struct machine {
    std::vector<thr> thread;
    std::vector<warp> warps;
    thr *self;
    int n_threads, n_done, n_waiting;
    cuemu_idx bid, bdim, gdim;
    int block;      /* linear index */
    uint32_t epoch; /* barrier intervals, over the whole run */
    void (*fn)(const void *);
    const void *arg;
    size_t n_arg;
    char *arena; /* shared memory of the block */
    size_t arena_top, dyn_bytes;
    /* statics by the address of their key: offset and length */
    std::vector<std::pair<const void *, std::pair<size_t, size_t>>> statics;
};
extern machine cuemu_m;

/* check.cc */
void check_launch(void);
void check_block(size_t clear);
void check_block_end(void);
void check_cp_issue(char *dst, size_t n, const void *pc);
void check_cp_land(char *dst, size_t n, const void *pc);
void check_report(const void *pc, const std::string &what);
std::string check_where(const void *pc);

#endif
