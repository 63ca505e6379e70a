/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_STREAM_H
#define STEPD_DAEMON_MODEL_STREAM_H

/*
 * Brings the bytes of the shards, and of packed matrices, to a device: read
 * past the page cache, straight into memory that the device takes them from,
 * each byte once.
 */

#include "daemon/model/checkpoint.h"

/* Fills every wanted weight but those that compact_each has filled. of gives a
 * slot's weight, which is made already. -EBADMSG with a problem in rep that
 * names file and byte; -ENOMEM; a negative return of the progress callback. */
int stream_weights(struct checkpoint *ck, struct kern *k,
                   struct kern_weight *(*of)(void *ctx,
                                             const struct slot *slot),
                   void *ctx, struct report *rep);

#endif
