/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_LOAD_H
#define STEPD_DAEMON_MODEL_LOAD_H

/*
 * Brings the needed bytes of the shards to where the weights will read them:
 * mapped (and in the page cache), locked, or copied. Afterwards ck->map[i].at +
 * offset in the file is the address of every byte that a wanted slot names, in
 * all three modes.
 */

#include "daemon/model/checkpoint.h"

/* 0; -ENOMEM, -EBADMSG or -E2BIG (weights.h) with a problem in rep; a negative
 * return of the progress callback. Threads of its own, all gone when it
 * returns. */
int load_bytes(struct checkpoint *ck, struct report *rep);

/* Bytes of all wanted slots: what the modes map, lock or copy. */
uint64_t load_total(const struct checkpoint *ck);

#endif
