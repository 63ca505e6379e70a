/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_KV_H
#define STEPD_DAEMON_MODEL_KV_H

/*
 * Where the bytes of a KV page lie. Which page belongs to whom is the
 * scheduler's business.
 */

#include <stddef.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "daemon/model/shape.h"
#include "kernels/kernels.h"

#define KV_MAX_LAYERS (SHAPE_MAX_LAYERS + SHAPE_MAX_MTP)

struct kv {
    struct kern *k;
    int n_layers; /* trunk, then the MTP blocks */
    int n_pages[MODEL_N_GROUPS];
    size_t page_bytes[MODEL_N_GROUPS]; /* all layers of the group */
    enum model_group group[KV_MAX_LAYERS];
    struct kern_kv layer[KV_MAX_LAYERS]; /* as attention takes it */
};

/* Buffers for n_pages pages a group; n_mtp blocks follow the trunk. */
int kv_init(struct kv *kv, struct kern *k, const struct shape *s, int n_mtp,
            const int n_pages[MODEL_N_GROUPS]);
void kv_finish(struct kv *kv); /* a half-made or zeroed one is fine */

/* -EINVAL: no such page. Not between kern_begin and kern_end. */
int kv_copy_page(struct kv *kv, enum model_group g, int dst, int src);
int kv_export_page(struct kv *kv, enum model_group g, int page, void *to);
int kv_import_page(struct kv *kv, enum model_group g, int page,
                   const void *from);
/* Fills it with NaN, so that a read of a slot never written shows. */
int kv_scrub_page(struct kv *kv, enum model_group g, int page);

#endif
