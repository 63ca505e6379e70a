/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_COMPACT_PRIV_H
#define STEPD_DAEMON_MODEL_COMPACT_PRIV_H

/*
 * What compact.c (the file, packing) and compact_device.c (packed matrices on
 * their way to a device) share.
 */

#include <xxhash.h>

#include "daemon/model/compact.h"

struct line {
    int32_t role, layer, rows, cols;
    uint32_t escapes; /* words of plane 2; 0: the matrix stays BF16 */
    uint32_t pad;
    uint64_t off[3];
    uint64_t sum; /* of the three planes */
};

struct compact {
    int n;
    struct line *line;
    const struct slot **slot;
    unsigned char *at;
    size_t bytes;
    uint64_t source;
    uint64_t key;    /* of these shards */
    uint64_t packed; /* bytes of shards that compact_each has read */
    /* for a device */
    bool device, late;
    int fd; /* of the file, -1: none */
    char path[COMPACT_MAX_PATH];
    XXH3_state_t *state; /* of the plane that passes by */
    uint64_t *passed;    /* [n] sums so far */
};

struct kern_weight_desc compact_line_desc(const struct line *l);
/* The slot's line, -1: none. c NULL: -1. */
int compact_line_of(const struct compact *c, const struct slot *slot);
/* Once its escapes are known: into the source, or into a note. */
void compact_count_line(const struct checkpoint *ck, struct compact *c, int i,
                        struct report *rep);
/* -EBADMSG with a problem where a shard is to blame, else r. */
int compact_blame(struct report *rep, const char *shard, int r);
/* Packs all lines into the file c->path, which is then mapped, or, for a
 * device, open. *ret_shard: the one that cannot be read. -errno. */
int compact_make_file(struct checkpoint *ck, struct compact *c,
                      struct report *rep, const char **ret_shard);
/* Packs all lines into memory, which is then mapped. */
int compact_pack_memory(struct checkpoint *ck, struct compact *c,
                        const char **ret_shard);
void compact_unmap(struct compact *c);
void compact_close_file(struct compact *c);

#endif
