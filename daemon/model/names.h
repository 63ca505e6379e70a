/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_NAMES_H
#define STEPD_DAEMON_MODEL_NAMES_H

/*
 * Tensor names: what a name in a checkpoint stands for, whichever release wrote
 * it. A tensor is (layer, role, expert, part): role says which matrix or vector
 * of the model it belongs to, part which piece of it (the numbers, or one of
 * the scales of a packed form).
 */

#include <stdbool.h>
#include <stddef.h>

enum role {
    ROLE_EMBED, /* these three have no layer */
    ROLE_NORM,
    ROLE_HEAD,
    ROLE_ATTN_NORM,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_G,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_O,
    ROLE_FFN_NORM,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_ROUTER,
    ROLE_ROUTER_BIAS,
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    ROLE_ENORM, /* from here on: MTP layers only */
    ROLE_HNORM,
    ROLE_EH_PROJ,
    ROLE_MTP_NORM,
    ROLE_MTP_HEAD,
    N_ROLES
};
#define ROLE_FIRST_OF_LAYER ROLE_ATTN_NORM
#define ROLE_FIRST_OF_MTP ROLE_ENORM

enum part {
    PART_WEIGHT,       /* .weight, and router_bias, which has no suffix */
    PART_PACKED,       /* .weight_packed: compressed-tensors */
    PART_SCALE,        /* .weight_scale */
    PART_SCALE_INV,    /* .weight_scale_inv: FP8 blocks */
    PART_SCALE_2,      /* .weight_scale_2: ModelOpt NVFP4, multiplies */
    PART_GLOBAL_SCALE, /* .weight_global_scale: divides */
    N_PARTS
};

/* How the names of the routed experts are built. */
enum expert_names {
    EXPERTS_FUSED,  /* moe.gate_proj.weight [E][..][..] */
    EXPERTS_LISTED, /* moe.experts.E.gate_proj.weight */
    EXPERTS_BARE,   /* moe.E.gate_proj.weight: AMD Quark */
};

enum name_kind {
    NAME_TENSOR,
    NAME_VISION, /* of the vision tower: not used */
    NAME_INERT,  /* scales of a quantised KV cache or of activations */
    NAME_SHAPE,  /* .weight_shape, which says what the header says too */
    NAME_UNKNOWN
};

struct tensor_name {
    enum name_kind kind;
    int layer; /* -1: none */
    enum role role;
    int expert; /* -1: all of them, or not an expert */
    enum expert_names experts;
    enum part part;
    bool mtp_only;   /* spelled as only an MTP layer's tensor may be */
    size_t n_prefix; /* characters before the canonical name */
    size_t n_module; /* characters before the last ".part" */
};

/* What name stands for. */
void name_parse(const char *name, struct tensor_name *ret);

/* The name, without prefix, of a tensor that the published BF16 (fused) or
 * packed (listed, bare) releases would have; returns buf. expert < 0: fused. */
const char *name_format(char *buf, size_t n, int layer, bool mtp,
                        enum role role, int expert, enum expert_names experts,
                        enum part part);

bool role_is_expert(enum role r);

#endif
