/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_STATUS_H
#define STEPD_DAEMON_NET_STATUS_H

/* What status.c and metrics.c share: the process and who may see what. */

#include "daemon/net/server.h"
#include "daemon/sched/engine.h"

/* The most jobs of one status event. */
#define STATUS_MAX_JOBS 1024

const char *status_state_name(const struct server *s,
                              const struct engine_status *st);
/* What of st and of the server's counters this peer may see: all of it, or
 * (false) the totals of his own uid, put in place of everybody's. */
struct status_view {
    struct engine_status st;
    struct account_totals totals;
    bool all;
    struct job_view job[STATUS_MAX_JOBS]; /* of the own uid, or all */
    int n_jobs;
};
void status_look(const struct server *s, const struct conn *c,
                 struct status_view *ret);

uint64_t status_resident_bytes(void);
uint64_t status_open_fds(void);

#endif
