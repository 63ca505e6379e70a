/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_REF_REF_H
#define STEPD_KERNELS_REF_REF_H

/*
 * What the files of the executable specification share: how a buffer and a
 * weight look here, and how a row of a weight is read.
 */

#include <stddef.h>
#include <stdint.h>

#include "kernels/compact.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

#define REF_MAX_PLANES 3

struct ref_buf {
    struct kern_buf base;
    void *at;      /* from mmap, so that a test may mprotect it */
    size_t mapped; /* whole memory pages */
};

struct ref_weight {
    struct kern_weight base;
    int n_parts; /* experts, or 1 */
    /* [n_parts][REF_MAX_PLANES]: where a plane lies, and what of it is ours */
    const void **plane;
    void **own;
};

/* The address behind p; NULL where p is absent. */
void *ref_at(struct kern_ptr p);
/* The live rows: *n, never more than max. */
int ref_rows(const struct kern_rows *r);
/* Row r of an expert's matrix (expert 0 where there is only one), as numbers:
 * ret holds cols doubles. */
void ref_weight_row(const struct kern_weight *w, int expert, int r,
                    double *ret);
/* Bytes of one expert's matrix, all planes. */
size_t ref_weight_bytes(const struct kern_weight *w);
/* silu(gate) * up with the clamp of model-spec 2.5; limit 0: none. */
double ref_swiglu(double gate, double up, double limit);

int ref_embed(struct kern *k, const struct kern_embed_args *a);
int ref_gather(struct kern *k, const struct kern_gather_args *a);
int ref_norm(struct kern *k, const struct kern_norm_args *a);
int ref_linear(struct kern *k, const struct kern_linear_args *a);
int ref_qkv(struct kern *k, const struct kern_qkv_args *a);
int ref_attn(struct kern *k, const struct kern_attn_args *a);
int ref_swiglu_op(struct kern *k, const struct kern_swiglu_args *a);
int ref_router(struct kern *k, const struct kern_router_args *a);
int ref_expert_up(struct kern *k, const struct kern_expert_up_args *a);
int ref_expert_down(struct kern *k, const struct kern_expert_down_args *a);
int ref_sample(struct kern *k, const struct kern_sample_args *a);
int ref_accept(struct kern *k, const struct kern_accept_args *a);
int ref_mtp_rows(struct kern *k, const struct kern_mtp_rows_args *a);
int ref_finite(struct kern *k, const struct kern_finite_args *a);

#endif
