/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Weights of the CPU backend: used where and as they lie, row-major, in the
 * caller's mapping or in memory of our own that is filled by ranges. There is
 * no second copy and no other layout.
 *
 * weight_ready looks at MXFP4 scales. 255 is not a number and refused. Scales
 * under which a product would be subnormal or overflow BF16 (quant.h) are rare
 * but legal: where such a block holds anything but zeros, its row is marked and
 * takes a slower exact form (tile_fold.h). A block of zeros is zero under any
 * scale and no reason to be slow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/quant.h"

int cpu_weight_new(struct kern *k, const struct kern_weight_desc *d,
                   struct kern_weight **ret)
{
    struct cpu_weight *w = calloc(1, sizeof(*w));

    (void)k;
    if (w == NULL) {
        return -ENOMEM;
    }
    w->base.desc = *d;
    w->n_experts = imax(d->experts, 1);
    w->n_planes = kern_weight_n_planes(d->dtype);
    for (int p = 0; p < w->n_planes; p++) {
        w->plane_bytes[p] = kern_weight_plane_bytes(d, p);
    }
    w->at = calloc((size_t)w->n_experts * (size_t)w->n_planes, sizeof(*w->at));
    if (w->at == NULL) {
        free(w);
        return -ENOMEM;
    }
    *ret = &w->base;
    return 0;
}

void cpu_weight_free(struct kern *k, struct kern_weight *kw)
{
    struct cpu_weight *w = (struct cpu_weight *)kw;

    (void)k;
    if (w == NULL) {
        return;
    }
    for (int p = 0; p < CPU_MAX_PLANES; p++) {
        free(w->own[p]);
    }
    free(w->extreme);
    free(w->at);
    free(w);
}

int cpu_weight_fill(struct kern *k, struct kern_weight *kw, int expert,
                    int plane, size_t off, const void *from, size_t n)
{
    struct cpu_weight *w = (struct cpu_weight *)kw;
    size_t bytes = w->plane_bytes[plane];

    if (w->own[plane] == NULL) {
        w->own[plane] = cpu_alloc(bytes * (size_t)w->n_experts);
        if (w->own[plane] == NULL) {
            return cpu_fail(to_cpu(k), -ENOMEM, "weight_fill: %zu bytes",
                            bytes * (size_t)w->n_experts);
        }
    }
    w->at[expert * w->n_planes + plane] =
        w->own[plane] + (size_t)expert * bytes;
    memcpy(w->own[plane] + (size_t)expert * bytes + off, from, n);
    return 0;
}

int cpu_weight_map(struct kern *k, struct kern_weight *kw, int expert,
                   int plane, const void *at, size_t n)
{
    struct cpu_weight *w = (struct cpu_weight *)kw;

    (void)k;
    (void)n;
    w->at[expert * w->n_planes + plane] = at;
    return 0;
}

/* ---- MXFP4 scales ---- */

/* Scales that are looked at together. */
#define SPAN 64

/* Whether one of them is out of the plain range. */
static bool is_odd(const uint8_t *s, size_t n)
{
    uint8_t odd = 0;

    for (size_t i = 0; i < n; i++) {
        odd |= (uint8_t)(s[i] - QUANT_MX_LOW) > QUANT_MX_HIGH - QUANT_MX_LOW;
    }
    return odd != 0;
}

struct scan {
    const struct cpu_weight *w;
    bool *odd; /* [n_experts] */
};

static void scan_expert(void *arg, int e, int i_thread)
{
    const struct scan *sc = arg;
    const struct cpu_weight *w = sc->w;
    const uint8_t *s = w->at[e * w->n_planes + 1];
    size_t n = w->plane_bytes[1], i = 0;
    bool odd = false;

    (void)i_thread;
    for (; i + SPAN <= n && !odd; i += SPAN) {
        odd = is_odd(s + i, SPAN);
    }
    sc->odd[e] = odd || is_odd(s + i, n - i);
}

static bool block_is_zero(const uint8_t *q)
{
    uint8_t any = 0;

    for (int i = 0; i < QUANT_MX_BLOCK / 2; i++) {
        any |= q[i] & 0x77u; /* the sign of a zero does not count */
    }
    return any == 0;
}

static int mark_extreme(struct cpu *c, struct cpu_weight *w, int expert,
                        int row)
{
    if (w->extreme == NULL) {
        w->extreme_words = ((size_t)w->base.desc.rows + 63) / 64;
        w->extreme = calloc((size_t)w->n_experts * w->extreme_words,
                            sizeof(*w->extreme));
        if (w->extreme == NULL) {
            return cpu_fail(c, -ENOMEM, "weight_ready: no memory");
        }
    }
    w->extreme[(size_t)expert * w->extreme_words + (size_t)row / 64] |=
        UINT64_C(1) << (row % 64);
    w->n_extreme++;
    return 0;
}

static int check_scales(struct cpu *c, struct cpu_weight *w, int expert)
{
    const uint8_t *q = w->at[expert * w->n_planes];
    const uint8_t *s = w->at[expert * w->n_planes + 1];
    int per_row = w->base.desc.cols / QUANT_MX_BLOCK;
    size_t n = (size_t)w->base.desc.rows * (size_t)per_row;

    for (size_t i = 0; i < n; i++) {
        int row = (int)(i / (size_t)per_row), r;

        if (s[i] >= QUANT_MX_LOW && s[i] <= QUANT_MX_HIGH) {
            continue;
        }
        if (s[i] == QUANT_MX_NAN) {
            return cpu_fail(c, -ERANGE,
                            "MXFP4 scale 255 (expert %d, row %d, block %d)",
                            expert, row, (int)(i % (size_t)per_row));
        }
        if (!block_is_zero(q + i * (QUANT_MX_BLOCK / 2))) {
            r = mark_extreme(c, w, expert, row);
            if (r < 0) {
                return r;
            }
        }
    }
    return 0;
}

/* All threads look for the experts that hold something rare, these are then
 * looked at one by one. A start reads 1/17 of the model here. */
static int check_all_scales(struct cpu *c, struct cpu_weight *w)
{
    struct scan sc = {w, calloc((size_t)w->n_experts, sizeof(bool))};
    int r = 0;

    if (sc.odd == NULL) {
        return cpu_fail(c, -ENOMEM, "weight_ready: no memory");
    }
    pool_run(c->pool, scan_expert, &sc, w->n_experts);
    for (int e = 0; e < w->n_experts && r == 0; e++) {
        r = sc.odd[e] ? check_scales(c, w, e) : 0;
    }
    free(sc.odd);
    return r;
}

int cpu_weight_ready(struct kern *k, struct kern_weight *kw)
{
    struct cpu_weight *w = (struct cpu_weight *)kw;

    for (int i = 0; i < w->n_experts * w->n_planes; i++) {
        if (w->at[i] == NULL) {
            return cpu_fail(to_cpu(k), -EINVAL,
                            "weight_ready: expert %d lacks plane %d",
                            i / w->n_planes, i % w->n_planes);
        }
    }
    return w->base.desc.dtype == KERN_MXFP4 ? check_all_scales(to_cpu(k), w)
                                            : 0;
}
