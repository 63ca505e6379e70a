/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_SYNTH_H
#define TESTS_SYNTH_H

/*
 * Writes checkpoints with random weights, of any shape and in every dialect,
 * for loader tests and benchmarks. An own writing of the formats: it shares no
 * code with the daemon.
 *
 * The same seed gives the same numbers in every dialect's packed form, and with
 * `twin` those numbers written out as BF16, exactly: every scale is such that
 * the products are BF16 numbers.
 *
 * With `cycle` the greedy answer is known. Residual contributions are small, so
 * the last hidden state points where the last token's embedding does, and row
 * synth_next(t) of the head is the embedding of t. MTP module k proposes the
 * same token, except after those tokens for which synth_drafts says no; so the
 * acceptance of module k is accept[k - 1] over all tokens.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum synth_dialect {
    SYNTH_BF16,
    SYNTH_MXFP4,    /* compressed-tensors, expert by expert */
    SYNTH_FP8,      /* official: 128x128 blocks, scales not in the index */
    SYNTH_NVFP4,    /* ModelOpt: fused, model.language_model. names */
    SYNTH_NVFP4_CT, /* compressed-tensors, expert by expert, factor divides */
    SYNTH_QUARK,    /* MXFP4, expert by expert, no ".experts." */
    SYNTH_N_DIALECTS
};

enum synth_inert {
    SYNTH_NO_INERT,
    SYNTH_SCALAR_INERT, /* as exports write them, trunk and MTP layers */
    SYNTH_VECTOR_INERT  /* a value a head, also under self_attn.attn. */
};

enum synth_mtp_names {
    SYNTH_MTP_PUBLISHED, /* transformer.shared_head.output */
    SYNTH_MTP_BLOCK,     /* mtp_block.self_attn.., shared_head.head */
    SYNTH_MTP_SHORT      /* shared_head.output */
};

struct synth {
    enum synth_dialect dialect;
    uint64_t seed;
    int hidden, vocab, n_layers, n_mtp;
    int n_dense; /* layers 0 .. n_dense-1 have a dense MLP, the rest experts */
    int full_every; /* layer i is full iff i % full_every == 0 */
    int n_head_full, n_head_sliding, n_kv_head;
    int window, max_len;
    int n_expert, top_k, expert_width, shared_width, dense_width;
    double limit_routed, limit_shared; /* of the last two trunk layers */
    bool flat;                         /* config.json as 3.5 writes it */
    int n_shards;

    bool cycle;
    int first_id;     /* the cycle runs over first_id .. vocab-1 */
    double accept[3]; /* with cycle: of module k + 1, 0..1 */

    bool twin;        /* the dialect's numbers, written out as BF16 */
    bool pack_all;    /* MXFP4: attention and dense layers packed too */
    bool fused;       /* MXFP4, NVFP4_CT: one tensor for all experts */
    bool vision;      /* a few tensors of a vision tower */
    bool short_lists; /* per-layer lists end with the trunk */
    bool no_mtp;      /* config.json names MTP layers that are not there */
    bool only_mtp;    /* nothing but MTP layers: a draft checkpoint */
    bool no_index;
    bool sparse; /* headers only, the data are holes: real sizes in no space */
    enum synth_inert inert;
    enum synth_mtp_names mtp_names;
    const char *tokenizer; /* a tokenizer.json to extend to vocab, or NULL */
};

/* Presets: "micro" (kilobytes), "small" (0.5 GB in MXFP4), "slice" (real layer
 * sizes, 5 layers, 13 GB), "real" (everything). false: no such name. */
bool synth_preset(struct synth *s, const char *name);
/* Writes the folder (made where it is not there). 0 or -errno. */
int synth_write(const struct synth *s, const char *dir);

/* Of a checkpoint with cycle, for t >= first_id. */
int32_t synth_next(const struct synth *s, int32_t t);
int32_t synth_before(const struct synth *s, int32_t t);
bool synth_drafts(const struct synth *s, int k, int32_t t);

/* ---- synth_numbers.c: what stands in a row ------------------------------- */

enum synth_kind {
    SYNTH_MATRIX, /* random, of that gain */
    SYNTH_EMBED,
    SYNTH_HEAD, /* of the trunk, or of module `module` */
    SYNTH_EH,
    SYNTH_NORM,
    SYNTH_BIAS
};

/* How a matrix's numbers are held. */
enum synth_form {
    SYNTH_AS_BF16,
    SYNTH_AS_F32,
    SYNTH_AS_MXFP4,
    SYNTH_AS_FP8,
    SYNTH_AS_NVFP4,
    SYNTH_AS_NVFP4_DIV
};

struct synth_matrix {
    char base[160]; /* name without part; its hash seeds the numbers */
    enum synth_kind kind;
    enum synth_form form; /* of the numbers; with twin, not of the file */
    int module;           /* 0: trunk */
    int layer;
    int rows, cols, experts; /* experts 0: one matrix */
    double gain;             /* of a vector of RMS 1 */
};

/* Bytes of a row of a plane as the file holds it. */
size_t synth_row_bytes(const struct synth *s, const struct synth_matrix *m,
                       int plane);
int synth_plane_rows(const struct synth *s, const struct synth_matrix *m,
                     int plane);
void synth_row(const struct synth *s, const struct synth_matrix *m, int expert,
               int plane, int row, unsigned char *ret);

#endif
