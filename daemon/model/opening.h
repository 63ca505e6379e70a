/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_OPENING_H
#define STEPD_DAEMON_MODEL_OPENING_H

/*
 * What checkpoint_open holds while it works: shared by checkpoint.c, which
 * sorts tensors, and folder.c, which finds and opens the files.
 */

#include "daemon/model/checkpoint.h"

/* A tensor in its shard, sorted by name. */
struct entry {
    const struct st_tensor *t;
    int file;
};

/* What is only needed while opening. */
struct opening {
    struct checkpoint *ck;
    struct report rep;
    char *config;
    size_t n_config;
    int n_names; /* shards to read */
    char **name;
    int n_entries;
    struct entry *entry;
    int n_vision, n_inert, n_unindexed;
    const char *inert, *unindexed; /* the first */
};

/* folder.c: config.json into ck->shape and ck->quant. 0, -EBADMSG with
 * problems, or the folder's own -errno with one. */
int folder_open(struct opening *o);
/* The index, where there is one, and every shard it names (else all there are)
 * into ck->file, by name. */
int folder_open_shards(struct opening *o);
/* A plain file name that ends in .safetensors. */
bool folder_is_shard(const char *name);

#endif
