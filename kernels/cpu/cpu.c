/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The CPU backend: what runs by default. Opens a path and a pool, owns buffers
 * and scratch memory, and hands each op to the path's table. Device memory is
 * plain memory here and every op is done when it returns; so begin and end have
 * nothing to wait for.
 *
 * One thread calls everything here; the pool's threads work inside an op only.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu.h"
#include "kernels/quant.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* ---- memory ---- */

int cpu_fail(struct cpu *c, int err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->base.err, sizeof(c->base.err), fmt, ap);
    va_end(ap);
    return err;
}

void *cpu_alloc(size_t bytes)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    void *p = NULL;

    if (bytes > SIZE_MAX - align) {
        return NULL;
    }
    if (posix_memalign(&p, align, (bytes + 63) & ~(size_t)63) != 0) {
        return NULL;
    }
    if (align == HUGE_PAGE) {
        /* May fail. The KV cache and weights of our own are left out of core
         * dumps: gigabytes, and what people wrote. */
        madvise(p, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
        madvise(p, bytes & ~(HUGE_PAGE - 1), MADV_DONTDUMP);
    }
    return p;
}

int cpu_shared(struct cpu *c, size_t bytes)
{
    uint8_t *p;

    if (bytes <= c->shared_bytes) {
        return 0;
    }
    p = cpu_alloc(bytes);
    if (p == NULL) {
        return cpu_fail(c, -ENOMEM, "no memory for %zu bytes", bytes);
    }
    free(c->shared);
    c->shared = p;
    c->shared_bytes = bytes;
    return 0;
}

int cpu_scratch(struct cpu *c, size_t bytes)
{
    if (bytes <= c->scratch_bytes) {
        return 0;
    }
    c->scratch_bytes = 0;
    for (int i = 0; i < c->n_threads; i++) {
        uint8_t *p = cpu_alloc(bytes);

        if (p == NULL) {
            return cpu_fail(c, -ENOMEM, "no memory for %zu bytes a thread",
                            bytes);
        }
        free(c->thread[i].scratch);
        c->thread[i].scratch = p;
    }
    c->scratch_bytes = bytes;
    return 0;
}

/* ---- open and close ---- */

static void fill_table(struct mx_table *t, float (*scale)(unsigned))
{
    for (unsigned s = 0; s < 256; s++) {
        for (unsigned v = 0; v < 16; v++) {
            uint16_t b = quant_f32_to_bf16(quant_e2m1(v) * scale(s));

            t->bf16[s][v] = t->bf16[s][v + 16] = b;
            t->bytes[s][v] = (uint8_t)b;
            t->bytes[s][16 + v] = (uint8_t)(b >> 8);
        }
    }
}

static void fill_tables(struct cpu *c)
{
    fill_table(&c->mx, quant_e8m0);
    fill_table(&c->nv, quant_e4m3);
    for (unsigned b = 0; b < 256; b++) {
        c->fp8[b] = quant_f32_to_bf16(quant_e4m3(b));
        for (unsigned code = 1; code < 16; code++) {
            c->compact.bytes[b][code] = (uint8_t)((b + code) << 7);
            c->compact.bytes[b][16 + code] = (uint8_t)((b + code) >> 1 & 0x7f);
        }
    }
}

static void cpu_close(struct kern *k)
{
    struct cpu *c = to_cpu(k);

    if (c == NULL) {
        return;
    }
    pool_destroy(c->pool);
    for (int i = 0; c->thread != NULL && i < c->n_threads; i++) {
        free(c->thread[i].scratch);
    }
    free(c->thread);
    free(c->shared);
    free(c);
}

static int cpu_open(struct kern **ret, const struct kern_open_args *a)
{
    struct cpu *c;
    size_t bytes;
    int r;

    c = cpu_alloc(sizeof(*c)); /* its tables begin with a line */
    if (c == NULL) {
        return -ENOMEM;
    }
    memset(c, 0, sizeof(*c));
    r = cpu_isa_find(a->isa, &c->isa);
    if (r < 0) {
        goto fail;
    }
    c->base.compact_pays = strncmp(c->isa->name, "avx", 3) == 0;
    r = pool_create(&c->pool, a->n_threads);
    if (r < 0) {
        goto fail;
    }
    c->n_threads = pool_n_threads(c->pool);
    bytes = sizeof(*c->thread) * (size_t)c->n_threads;
    c->thread = cpu_alloc(bytes);
    if (c->thread == NULL) {
        r = -ENOMEM;
        goto fail;
    }
    memset(c->thread, 0, bytes);
    fill_tables(c);
    snprintf(c->base.desc, sizeof(c->base.desc), "cpu %s, %d thread%s",
             c->isa->name, c->n_threads, c->n_threads == 1 ? "" : "s");
    *ret = &c->base;
    return 0;
fail:
    cpu_close(&c->base);
    return r;
}

/* ---- buffers and the stream ---- */

static int cpu_buf_new(struct kern *k, size_t bytes, struct kern_buf **ret)
{
    struct cpu_buf *b = calloc(1, sizeof(*b));

    if (b == NULL) {
        return -ENOMEM;
    }
    b->p = cpu_alloc(bytes);
    if (b->p == NULL) {
        free(b);
        return cpu_fail(to_cpu(k), -ENOMEM, "no memory for %zu bytes", bytes);
    }
    *ret = &b->base;
    return 0;
}

static void cpu_buf_free(struct kern *k, struct kern_buf *kb)
{
    struct cpu_buf *b = (struct cpu_buf *)kb;

    (void)k;
    if (b != NULL) {
        free(b->p);
        free(b);
    }
}

static int cpu_upload(struct kern *k, struct kern_ptr to, const void *from,
                      size_t n)
{
    (void)k;
    memcpy(cpu_at(to), from, n);
    return 0;
}

static int cpu_download(struct kern *k, void *to, struct kern_ptr from,
                        size_t n)
{
    (void)k;
    memcpy(to, cpu_at(from), n);
    return 0;
}

static int cpu_copy(struct kern *k, struct kern_ptr to, struct kern_ptr from,
                    size_t n)
{
    (void)k;
    memmove(cpu_at(to), cpu_at(from), n);
    return 0;
}

static int cpu_fill(struct kern *k, struct kern_ptr to, int byte, size_t n)
{
    (void)k;
    memset(cpu_at(to), byte, n);
    return 0;
}

static int cpu_begin(struct kern *k, uint64_t shape_key)
{
    (void)k;
    (void)shape_key;
    return 0;
}

static int cpu_end(struct kern *k)
{
    (void)k;
    return 0;
}

/* ---- ops ---- */

/* Folds what the threads counted into the stats. */
static int counted(struct cpu *c, int r)
{
    for (int i = 0; i < c->n_threads; i++) {
        c->base.stats.weight_bytes += c->thread[i].weight_bytes;
        c->base.stats.kv_bytes += c->thread[i].kv_bytes;
        c->thread[i].weight_bytes = 0;
        c->thread[i].kv_bytes = 0;
    }
    return r;
}

#define OP(name, call)                                                       \
    static int op_##name(struct kern *k, const struct kern_##name##_args *a) \
    {                                                                        \
        struct cpu *c = to_cpu(k);                                           \
                                                                             \
        return counted(c, call(c, a));                                       \
    }
OP(embed, c->isa->embed)
OP(gather, cpu_gather)
OP(norm, c->isa->norm)
OP(linear, c->isa->linear)
OP(qkv, c->isa->qkv)
OP(attn, c->isa->attn)
OP(swiglu, c->isa->swiglu)
OP(router, c->isa->router)
OP(expert_up, c->isa->expert_up)
OP(expert_down, c->isa->expert_down)
OP(sample, c->isa->sample)
OP(accept, cpu_accept)
OP(mtp_rows, cpu_mtp_rows)
OP(finite, c->isa->finite)

const struct kern_ops kern_cpu_ops = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .buf_new = cpu_buf_new,
    .buf_free = cpu_buf_free,
    .upload = cpu_upload,
    .download = cpu_download,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .begin = cpu_begin,
    .end = cpu_end,
    .weight_new = cpu_weight_new,
    .weight_free = cpu_weight_free,
    .weight_fill = cpu_weight_fill,
    .weight_map = cpu_weight_map,
    .weight_ready = cpu_weight_ready,
    .embed = op_embed,
    .gather = op_gather,
    .norm = op_norm,
    .linear = op_linear,
    .qkv = op_qkv,
    .attn = op_attn,
    .swiglu = op_swiglu,
    .router = op_router,
    .expert_up = op_expert_up,
    .expert_down = op_expert_down,
    .sample = op_sample,
    .accept = op_accept,
    .mtp_rows = op_mtp_rows,
    .finite = op_finite,
};
