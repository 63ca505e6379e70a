/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What weights = auto means on this host. Owns nothing. Any thread.
 *
 * What matters: packed weights are the same results bit for bit and a quarter
 * less to read, so they are taken wherever they cost the operator nothing that
 * would be missed: no disk is filled, no memory is taken for what could be
 * mapped, and a folder that cannot be written is no reason to stop.
 */
#include "daemon/model/mode.h"

#include <errno.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/model/compact.h"

#define MIB 1048576.0

/* Bytes as BF16 of what would be packed, and packed. */
static void count(const struct checkpoint *ck, uint64_t *ret_bf16,
                  uint64_t *ret_packed)
{
    *ret_bf16 = *ret_packed = 0;
    for (int i = 0; i < ck->slots.n; i++) {
        const struct kern_weight_desc *d = &ck->slots.slot[i].desc;

        if (compact_takes(ck, &ck->slots.slot[i])) {
            *ret_bf16 += (uint64_t)d->rows * (uint64_t)d->cols * 2;
            *ret_packed += compact_bytes(d);
        }
    }
}

/* Why they cannot be packed, or NULL. */
static const char *obstacle(const struct checkpoint *ck, uint64_t bytes)
{
    const char *dir = ck->conf.state_dir;
    char path[COMPACT_MAX_PATH];
    struct statvfs fs;

    if (dir == NULL || dir[0] == '\0') {
        return "no state_dir to keep them in";
    }
    if (compact_path(ck, path, sizeof(path)) < 0) {
        return "state_dir has no usable path";
    }
    if (access(path, R_OK) == 0) {
        return NULL; /* packed already */
    }
    if (access(dir, W_OK | X_OK) < 0 || statvfs(dir, &fs) < 0) {
        return "state_dir cannot be written";
    }
    if ((uint64_t)fs.f_bavail * fs.f_frsize < 2 * bytes) {
        return "state_dir has not twice the room that they take";
    }
    return NULL;
}

int mode_choose(struct checkpoint *ck, struct kern *k, uint64_t least,
                struct report *rep)
{
    uint64_t bf16, packed;
    const char *why;
    int r;

    if (ck->conf.weights != MODEL_AUTO) {
        return 0;
    }
    ck->conf.weights = MODEL_MAP;
    r = k == NULL ? 0 : k->memory > 0 ? -ENOTSUP : compact_computes(k);
    if (r < 0) {
        return r == -ENOTSUP ? 0 : r; /* nothing to choose from */
    }
    count(ck, &bf16, &packed);
    why = bf16 < least ? "too few to matter"
          : k != NULL && !k->compact_pays
              ? "on this instruction set it would not be faster"
              : obstacle(ck, packed);
    if (why != NULL) {
        report_note(rep,
                    "weights = auto: map: %.0f MiB of BF16 matrices are not "
                    "packed: %s",
                    (double)bf16 / MIB, why);
        return 0;
    }
    ck->conf.weights = MODEL_COMPACT;
    ck->may_map = true;
    report_note(rep,
                "weights = auto: compact: %.0f MiB of BF16 matrices are read "
                "as %.0f MiB, without loss, from a file in %s",
                (double)bf16 / MIB, (double)packed / MIB, ck->conf.state_dir);
    return 0;
}
