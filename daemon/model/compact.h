/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_COMPACT_H
#define STEPD_DAEMON_MODEL_COMPACT_H

/*
 * weights = compact: the BF16 matrices of a checkpoint in 12 bits a weight
 * (kernels/compact.h), made once from the shards and kept in a file under the
 * state directory, which later starts map.
 */

#include "daemon/model/checkpoint.h"

struct compact;

#define COMPACT_MAX_PATH 512

/* Whether a slot is one of those that are packed: a filled BF16 matrix that
 * linear or embed read. Norms, routers and BF16 experts stay as they are. */
bool compact_takes(const struct checkpoint *ck, const struct slot *slot);
/* Bytes of a packed matrix but for its escapes: for the memory plan. */
uint64_t compact_bytes(const struct kern_weight_desc *d);

/* Where weights = compact packs a slot, d becomes the desc of its packed form:
 * with its escapes once compact_open has been here, before that with more than
 * are to be expected. */
void compact_desc(const struct checkpoint *ck, const struct slot *slot,
                  struct kern_weight_desc *d);

/* Maps the file where it is whole and of these very shards, else packs the
 * matrices (threads of its own, all gone when it returns) and writes it. Where
 * there is no state directory, or it cannot be written, the packed weights live
 * in memory only, or, where ck may map, *ret is NULL. Notes say which; a shard
 * that cannot be read is a problem (-EBADMSG). A negative return of the
 * progress callback.
 *
 * device: the host keeps none of it. The file stays open instead of mapped, for
 * compact_file; without one, compact_each packs. */
int compact_open(struct checkpoint *ck, struct report *rep, bool device,
                 struct compact **ret);
/* Whether a backend computes with packed weights: 0, -ENOTSUP, -ENOMEM. */
int compact_computes(struct kern *k);
/* STATE_DIR/compact-<hash of the checkpoint's folder>.bin; -errno. */
int compact_path(const struct checkpoint *ck, char *ret, size_t n);
void compact_close(struct compact *c); /* NULL is fine */
/* A device has taken the planes: the file is closed; compact_find's desc
 * holds. */
void compact_release(struct compact *c); /* NULL is fine */

/* The packed form of a slot, valid until compact_close: fills d and the planes.
 * False: the slot is not packed (too many escapes, or compact_takes says no).
 * c NULL: false. */
bool compact_find(const struct compact *c, const struct slot *slot,
                  struct kern_weight_desc *d, const void *plane[3]);
/* Bytes of the BF16 tensors that nobody reads any more. */
uint64_t compact_source(const struct compact *c);

/* ---- for a device ---- */

/* The file and its name; -1: there is none. */
int compact_file(const struct compact *c, const char **ret_name,
                 uint64_t *ret_bytes);
/* Where a plane of a slot that compact_find has found lies in it. */
uint64_t compact_plane_at(const struct compact *c, const struct slot *slot,
                          int plane);
/* Bytes of that plane as they pass by: those of a plane in order, plane 2 last.
 * Sums are checked this way, for nobody else reads the file. */
void compact_pass(struct compact *c, const struct slot *slot, int plane,
                  size_t off, const void *from, size_t n);
/* Whether all that passed is what was written; then it may pass again. */
bool compact_passed(struct compact *c);
/* Where not: makes the file again, with the same lines. A problem (-EBADMSG)
 * where that is impossible. */
int compact_again(struct checkpoint *ck, struct report *rep);
/* Whether compact_each has this slot to pack still. */
bool compact_is_late(const struct compact *c, const struct slot *slot);
/* Packs matrix by matrix, so that the host never holds more than one; give gets
 * it with its planes, valid for the call (d->dtype BF16: it stays so, planes
 * NULL). -EBADMSG with a problem, what give or the progress returned. */
typedef int compact_give_fn(void *ctx, const struct slot *slot,
                            const struct kern_weight_desc *d,
                            const void *const plane[3]);
int compact_each(struct checkpoint *ck, struct report *rep,
                 compact_give_fn *give, void *ctx);

#endif
