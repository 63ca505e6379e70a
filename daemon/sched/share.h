/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_SHARE_H
#define STEPD_DAEMON_SCHED_SHARE_H

/*
 * Who asks: the (uid, tenant) pairs and how many rows each has been given. An
 * owner is an index into the table as long as it has a live request, and its
 * account is remembered for a while after.
 */

#include "daemon/sched/batch.h"
#include "daemon/sched/job.h"

struct shares;

/* n_live: requests at once, so at most as many owners. */
int shares_create(struct shares **ret, int n_live);
void shares_destroy(struct shares *s); /* NULL is fine */

/* One request more of the job's owner; soft_rows as in batch_owner_wakes. */
int share_join(struct shares *s, const struct job *j, int soft_rows);
void share_leave(struct shares *s, int owner);
void share_charge(struct shares *s, int owner, int rows);

/* The table as the planner reads it. */
const struct batch_owner *shares_table(const struct shares *s, int *ret_n);

#endif
