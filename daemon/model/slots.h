/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_SLOTS_H
#define STEPD_DAEMON_MODEL_SLOTS_H

/*
 * A slot is one weight that the shape asks for: its place, its size, and, once
 * the headers have been read, the tensors that fill it and the form they are
 * in. Every tensor of a checkpoint goes into exactly one slot or is a problem;
 * every slot is filled or is a problem.
 */

#include <jansson.h>

#include "daemon/model/names.h"
#include "daemon/model/report.h"
#include "daemon/model/safetensors.h"
#include "daemon/model/shape.h"
#include "kernels/kernels.h"

/* A form that a matrix may be stored in. */
enum scheme {
    SCHEME_BF16,
    SCHEME_F32,
    SCHEME_FP8,         /* official FP8: 128x128 blocks */
    SCHEME_NVFP4,       /* ModelOpt */
    SCHEME_MXFP4_QUARK, /* AMD Quark */
    SCHEME_MXFP4,       /* compressed-tensors */
    SCHEME_NVFP4_CT,    /* compressed-tensors */
    N_SCHEMES
};

/* How a form is stored: the part with the numbers, its block scales, its
 * factor a matrix. */
struct form {
    const char *name;
    enum kern_dtype dtype;
    enum part numbers;
    enum st_dtype numbers_dtype;
    int per_byte; /* packed: elements a byte; else 1 element an element */
    enum part scale;
    enum st_dtype scale_dtype, scale_alt;
    int block_rows, block_cols;
    enum part factor;
};
#define NO_PART N_PARTS
extern const struct form slot_forms[N_SCHEMES];

#define SLOT_MAX_NAME 256

const char *scheme_name(enum scheme s);
enum kern_dtype scheme_dtype(enum scheme s);

struct slot_part {
    const struct st_tensor *t; /* NULL: not there */
    int file;
};

struct slot {
    enum role role;
    int layer; /* -1: none; n_layers + j: MTP module j + 1 */
    struct kern_weight_desc desc;
    enum scheme scheme; /* valid once filled */
    bool filled;        /* everything there, as it should be */
    int n_found;        /* tensors put into it */
    enum expert_names names;
    struct slot_part whole[N_PARTS];   /* one tensor for all experts */
    struct slot_part (*each)[N_PARTS]; /* [experts], NULL: none so */
};

struct slots {
    const struct shape *shape;
    int n;
    struct slot *slot;
    int at[SHAPE_MAX_LAYERS + SHAPE_MAX_MTP + 1][N_ROLES]; /* -1: none; line 0
                                                            * has no layer */
    /* For texts: where missing tensors would be, how they would be called. */
    const struct st_file *file;
    int n_files;
    const json_t *weight_map; /* of the index, or NULL */
    char prefix[32];
    char prefix_mtp[32];
    enum scheme expert_scheme;
    enum expert_names expert_names;
};

/* The slots of a shape; -ENOMEM. */
int slots_init(struct slots *s, const struct shape *shape);
void slots_finish(struct slots *s);

/* Puts tensor t of file i_file where its name n says; what has no place is a
 * problem. -ENOMEM. */
int slots_put(struct slots *s, const struct tensor_name *n, int i_file,
              const struct st_tensor *t, struct report *rep);
/* fill.c: decides the form of a slot into which all its tensors have been put,
 * and checks them. */
void slot_fill(const struct slots *s, struct slot *slot, struct report *rep);

/* Where a plane of a filled slot lies (expert 0 where there are none). */
struct slot_range {
    int file;
    uint64_t off;
    size_t bytes;
};
struct slot_range slot_plane(const struct slot *slot, int expert, int plane);
bool slot_is_mtp(const struct slots *s, const struct slot *slot);
/* The name that a tensor of the slot would have here; returns buf. */
const char *slot_name(const struct slots *s, const struct slot *slot,
                      int expert, enum expert_names names, enum part part,
                      char *buf, size_t n);
/* A tensor that has no place, and why. */
void slot_unknown(const struct slots *s, int i_file, const struct st_tensor *t,
                  const char *why, struct report *rep);
/* "model.layers.3.moe.gate_proj": for texts. */
const char *slot_text(const struct slots *s, const struct slot *slot, char *buf,
                      size_t n);

#endif
