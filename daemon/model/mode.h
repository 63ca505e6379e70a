/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_MODE_H
#define STEPD_DAEMON_MODEL_MODE_H

/* weights = auto: which of the modes it means here. */

#include "daemon/model/checkpoint.h"

/* BF16 matrices of fewer bytes are not worth a file: much of them stays in the
 * caches from one step to the next. */
#define MODE_LEAST_BYTES ((uint64_t)256 << 20)

/* Where ck's configuration says auto, it says compact or map afterwards, with a
 * note of the reason: compact where the backend computes in the host's memory
 * and gains by packed weights, there are `least` bytes to pack, and a state
 * directory that holds the file or has room for twice its bytes. Before the
 * memory plan. k NULL: one that computes in the host's memory. -ENOMEM. */
int mode_choose(struct checkpoint *ck, struct kern *k, uint64_t least,
                struct report *rep);

#endif
