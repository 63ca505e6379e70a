/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_CHECKPOINT_H
#define STEPD_DAEMON_MODEL_CHECKPOINT_H

/*
 * What weights.h keeps opaque: a checkpoint folder whose headers have been
 * read. checkpoint.c makes it, weights.c and plan.c read it.
 */

#include <jansson.h>

#include "daemon/model/safetensors.h"
#include "daemon/model/shape.h"
#include "daemon/model/slots.h"
#include "daemon/model/weights.h"

#define CHECKPOINT_MAX_FILES 1024
#define CHECKPOINT_MAX_INDEX (256 << 20) /* bytes */
#define CHECKPOINT_INDEX "model.safetensors.index.json"

struct compact; /* compact.h */

struct checkpoint {
    struct model_conf conf;
    int dir;
    struct shape shape;
    int n_files;
    struct st_file *file; /* by name */
    struct slots slots;
    json_t *index;            /* NULL: there is none */
    const json_t *weight_map; /* inside of it */
    json_t *quant;            /* quantization_config, or NULL */
    uint64_t fingerprint;
    struct compact *compact; /* packed BF16 matrices, or NULL */
    bool may_map; /* weights = auto: mapped where they cannot be packed */
    /* One mapping a file: the file itself, or its copy in memory; NULL where
     * nothing of the file is needed. Owned by the checkpoint. */
    struct checkpoint_map {
        unsigned char *at;
        size_t bytes;
    } * map;
};

/* Whether the slot's bytes are to be loaded: all but those of MTP modules that
 * are not complete or not wanted. */
bool checkpoint_wants(const struct checkpoint *ck, const struct slot *slot);

#endif
