/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_REQUEST_H
#define STEPD_DAEMON_NET_REQUEST_H

#include "client/wire.h"
#include "daemon/net/peer.h"

struct conf;
struct job;

/* A decoded request of an op that makes a job (request_kind >= 0) to a job that
 * owns all of its texts. Checks what depends on configuration and peer; form
 * and ranges were checked by wire_decode_request. The caller fills id, conn and
 * born_us. 0, or a WIRE_E_ code with err filled. */
int request_to_job(const struct wire_request *r, const struct conf *conf,
                   const struct peer *peer, struct job **ret,
                   struct wire_error *err);
/* enum job_kind of an op, -1: the op makes no job. */
int request_kind(enum wire_op op);

#endif
