/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_FAREWELL_H
#define STEPD_DAEMON_NET_FAREWELL_H

/* For a start that cannot succeed while somebody else holds the socket: every
 * client that waits on the listening fd, or comes within ms, is told
 * `unavailable: CAUSE`. Blocks for so long; fd stays open and is not shut down.
 */
void farewell(int fd, const char *cause, int ms);

#endif
