/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_SHAPE_H
#define STEPD_DAEMON_MODEL_SHAPE_H

/*
 * The shape of a Step model: every number that config.json says about the text
 * decoder and its MTP modules, checked once and resolved layer by layer, so
 * that nobody after this reads a list of 45 or 48 entries or falls back to a
 * default. Plain data: copied freely, freed by nobody.
 *
 * layer[0 .. n_layers-1] is the trunk, layer[n_layers + j] the block of MTP
 * module j + 1.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/model.h"

/* What a config.json may ask for; beyond it the file is refused. */
#define SHAPE_MAX_LAYERS 256 /* trunk */
#define SHAPE_MAX_MTP MODEL_MAX_DRAFTS
#define SHAPE_MAX_HIDDEN 65536
#define SHAPE_MAX_WIDTH 262144
#define SHAPE_MAX_VOCAB 4194304
#define SHAPE_MAX_HEADS 1024
#define SHAPE_MAX_EXPERTS 4096
#define SHAPE_MAX_LEN (1 << 26) /* tokens */
#define SHAPE_MAX_EOS 8

struct shape_layer {
    bool sliding;
    int window; /* tokens seen, the row's own included; 0: no bound (full) */
    int n_head;
    int n_kv_head;
    int n_freq;         /* rotary pairs (j, j + n_freq); head_dim / 2 = all */
    double theta;       /* rotary base */
    bool scaled;        /* the llama3 scaling of struct shape applies */
    bool moe;           /* routed and shared experts, else one dense MLP */
    int width;          /* rows of the dense gate and up; 0 in a MoE layer */
    float limit_routed; /* SwiGLU clamp of the routed experts; 0: none */
    float limit_shared; /* of the shared expert, and of a dense MLP */
};

struct shape {
    char family[32]; /* "step3p5", "step3p7": the outermost model_type */
    int hidden;
    int vocab; /* rows of the embedding and of every head */
    int n_layers;
    int n_mtp;    /* modules promised; 0..3 */
    int head_dim; /* 128 */
    int n_expert; /* 0: no MoE layer at all */
    int top_k;
    int expert_width;   /* rows of a routed expert's gate and up */
    int shared_width;   /* rows of the shared expert's gate and up */
    float router_scale; /* the routed weights are multiplied by it */
    bool router_renorm; /* weights divided by their sum first */
    bool router_bias;   /* a selection-only bias exists */
    bool attn_gate;     /* g_proj: one sigmoid gate a head */
    float eps;          /* of every RMSNorm */
    int window;         /* of the sliding layers; 0: there are none */
    int max_model_len;
    int n_eos;
    int eos[SHAPE_MAX_EOS];
    int bos;       /* -1: config.json names none */
    double factor; /* llama3 scaling of layers with scaled set */
    double low_freq, high_freq;
    double original_len;
    struct shape_layer layer[SHAPE_MAX_LAYERS + SHAPE_MAX_MTP];
};

/* The inverse frequencies of a layer (MTP blocks follow the trunk): n_freq
 * values, computed in double, rounded once. ret holds n_freq floats. */
void shape_freqs(const struct shape *s, int layer, float *ret);

/* Bytes that one token takes in a layer's part of the KV cache, K and V. */
uint64_t shape_kv_token_bytes(const struct shape *s, int layer);

/* Bytes of one page of a group: its layers' 64-token parts, MTP blocks of the
 * shape included. */
uint64_t shape_page_bytes(const struct shape *s, enum model_group g);

#endif
