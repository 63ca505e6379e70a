/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_KVPOOL_H
#define STEPD_DAEMON_SCHED_KVPOOL_H

/*
 * Who may have which KV page: the ids of both groups with reference counts.
 * Integers only; where the bytes of a page lie is model/kv.c's business.
 *
 * A page with one reference belongs to one token timeline and may be written.
 * A page with more is shared and read-only: whoever wants to write into it
 * takes a fresh page and copies (session_reserve does). The prefix index will
 * hold references like anybody else.
 */

#include <stdint.h>

#include "daemon/model/model.h"

struct kvpool;

/* Called when a page's last reference went, before it can be handed out
 * again. */
typedef void (*kvpool_freed)(void *ctx, enum model_group g, int32_t page);

int kvpool_create(struct kvpool **ret, const int n_pages[MODEL_N_GROUPS]);
/* NULL is fine. Every page must be free again: what is not is a leak. */
void kvpool_destroy(struct kvpool *p);
void kvpool_on_free(struct kvpool *p, kvpool_freed fn, void *ctx);

/* n pages with one reference each, or none at all: -ENOSPC. */
int kvpool_alloc(struct kvpool *p, enum model_group g, int n, int32_t *ret);
void kvpool_share(struct kvpool *p, enum model_group g, int32_t page);
void kvpool_drop(struct kvpool *p, enum model_group g, int32_t page);

int kvpool_refs(const struct kvpool *p, enum model_group g, int32_t page);
int kvpool_free_pages(const struct kvpool *p, enum model_group g);
int kvpool_pages(const struct kvpool *p, enum model_group g); /* in all */

#endif
