/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_CPU_H
#define STEPD_KERNELS_CPU_CPU_H

/*
 * What the files of the CPU backend share: the opened backend, its buffers and
 * weights, scratch memory, and the table that a path (an instruction set)
 * fills. Only this backend's own files include it.
 */

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/compact.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

struct cpu_isa;

/* For every scale byte the values of the 16 codes of FP4 times the scale: as
 * BF16, twice, so that a fifth bit of an index does not count; and as BF16's 16
 * low bytes followed by its 16 high bytes. */
struct mx_table {
    alignas(64) uint16_t bf16[256][32];
    uint8_t bytes[256][32];
};

/* For every base of a compact row (compact.h) what its 16 codes add to a BF16
 * value: 16 low bytes, then 16 high ones. */
struct compact_table {
    uint8_t bytes[256][32];
};

/* What one thread counts and owns; a cache line apart from the next. */
struct cpu_thread {
    alignas(64) uint64_t weight_bytes;
    uint64_t kv_bytes;
    uint8_t *scratch; /* cpu_scratch() bytes, 64-byte aligned */
};

struct cpu {
    struct kern base;
    const struct cpu_isa *isa;
    struct pool *pool;
    int n_threads;
    struct cpu_thread *thread;
    size_t scratch_bytes; /* of each thread */
    uint8_t *shared;      /* cpu_shared() bytes, 64-byte aligned */
    size_t shared_bytes;
    struct mx_table mx; /* scales are E8M0 (MXFP4) */
    struct mx_table nv; /* scales are E4M3 (NVFP4) */
    uint16_t fp8[256];  /* E4M3 as BF16 */
    struct compact_table compact;
};

struct cpu_buf {
    struct kern_buf base;
    uint8_t *p;
};

#define CPU_MAX_PLANES 3

struct cpu_weight {
    struct kern_weight base;
    int n_experts; /* >= 1 */
    int n_planes;
    uint8_t *own[CPU_MAX_PLANES];       /* filled by ranges, all experts */
    const uint8_t **at;                 /* [n_experts][n_planes] */
    size_t plane_bytes[CPU_MAX_PLANES]; /* of one expert */
    /* MXFP4: rows that hold a scale whose products BF16 cannot hold exactly,
     * a bit a row, [n_experts][extreme_words]; NULL where there is none. */
    uint64_t *extreme;
    size_t extreme_words;
    uint64_t n_extreme; /* such blocks */
};

/* The ops of one path. Arguments as in kernels.h, checked there. */
struct cpu_isa {
    const char *name;
    int (*embed)(struct cpu *c, const struct kern_embed_args *a);
    int (*norm)(struct cpu *c, const struct kern_norm_args *a);
    int (*linear)(struct cpu *c, const struct kern_linear_args *a);
    int (*qkv)(struct cpu *c, const struct kern_qkv_args *a);
    int (*attn)(struct cpu *c, const struct kern_attn_args *a);
    int (*swiglu)(struct cpu *c, const struct kern_swiglu_args *a);
    int (*router)(struct cpu *c, const struct kern_router_args *a);
    int (*expert_up)(struct cpu *c, const struct kern_expert_up_args *a);
    int (*expert_down)(struct cpu *c, const struct kern_expert_down_args *a);
    int (*sample)(struct cpu *c, const struct kern_sample_args *a);
    int (*finite)(struct cpu *c, const struct kern_finite_args *a);
};

extern const struct cpu_isa cpu_isa_portable;
extern const struct cpu_isa cpu_isa_neonbf16;
extern const struct cpu_isa cpu_isa_avx2;
extern const struct cpu_isa cpu_isa_avx512;
extern const struct cpu_isa cpu_isa_avx512bf16;

/* isa.c: the best path that this CPU runs, or the one asked for. -EINVAL: no
 * such name; -ENODEV: not built, or not on this CPU. */
int cpu_isa_find(const char *name, const struct cpu_isa **ret);

/* cpu.c: memory that lives until the next call of the same function. -ENOMEM
 * with text. Called by the thread that calls the ops, between jobs. */
int cpu_scratch(struct cpu *c, size_t bytes); /* for each thread */
int cpu_shared(struct cpu *c, size_t bytes);  /* one for all */
int cpu_fail(struct cpu *c, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void *cpu_alloc(size_t bytes); /* aligned to 64, huge pages where large */

/* weight.c */
int cpu_weight_new(struct kern *k, const struct kern_weight_desc *d,
                   struct kern_weight **ret);
void cpu_weight_free(struct kern *k, struct kern_weight *w);
int cpu_weight_fill(struct kern *k, struct kern_weight *w, int expert,
                    int plane, size_t off, const void *from, size_t n);
int cpu_weight_map(struct kern *k, struct kern_weight *w, int expert, int plane,
                   const void *at, size_t n);
int cpu_weight_ready(struct kern *k, struct kern_weight *w);

/* gather.c, accept.c, mtp_rows.c: ops that move and count, one for all paths */
int cpu_gather(struct cpu *c, const struct kern_gather_args *a);
int cpu_accept(struct cpu *c, const struct kern_accept_args *a);
int cpu_mtp_rows(struct cpu *c, const struct kern_mtp_rows_args *a);

static inline struct cpu *to_cpu(struct kern *k)
{
    return (struct cpu *)k;
}

static inline const struct cpu_weight *cpu_w(const struct kern_weight *w)
{
    return (const struct cpu_weight *)w;
}

static inline const uint8_t *cpu_plane(const struct kern_weight *w, int expert,
                                       int plane)
{
    const struct cpu_weight *cw = cpu_w(w);

    return cw->at[expert * cw->n_planes + plane];
}

/* Address of a pointer; NULL where absent. */
static inline void *cpu_at(struct kern_ptr p)
{
    return p.buf == NULL ? NULL : ((struct cpu_buf *)p.buf)->p + p.off;
}

/* Live rows. */
static inline int cpu_rows(const struct kern_rows *r)
{
    int32_t n = *(const int32_t *)cpu_at(r->n);

    return n < 0 ? 0 : n > r->max ? r->max : n;
}

static inline int imin(int a, int b)
{
    return a < b ? a : b;
}

static inline int imax(int a, int b)
{
    return a > b ? a : b;
}

static inline int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

#endif
