/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_OPS_H
#define STEPD_DAEMON_NET_OPS_H

/* What each op does. A decoded request of a connection whose id is free. */

#include "client/wire.h"

struct conn;
struct server;

void ops_run(struct server *s, struct conn *c, const struct wire_request *r);

/* status.c, metrics.c */
void status_op(struct server *s, struct conn *c, const struct wire_request *r);
void metrics_op(struct server *s, struct conn *c, const struct wire_request *r);
/* "loading", "ready", "draining", "failed", "stopped". */
const char *status_state(const struct server *s);

#endif
