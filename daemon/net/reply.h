/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_REPLY_H
#define STEPD_DAEMON_NET_REPLY_H

#include <stdbool.h>

#include "client/wire.h"

struct event;
struct flight;

/* The frames of one event, appended to b; errors stick to b. Counts into f what
 * a later event needs. */
void reply_event(struct wire_buf *b, const struct event *e, struct flight *f);
/* True when no event of this job follows. */
bool reply_is_final(const struct event *e);
/* "stop", "length" ... */
const char *reply_finish_name(const struct event *e);

#endif
