/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_TICKET_H
#define STEPD_DAEMON_SCHED_TICKET_H

/*
 * A ticket for every job that the engine has accepted and not yet answered:
 * what any thread may know of a job without holding it.
 *
 * A job itself has one owner at a time, so a cancel cannot reach into it. It
 * marks the ticket instead, and the engine thread, which alone ends jobs early,
 * looks at the marks: nothing is lost however often or early a cancel comes,
 * and nothing grows. Who answers a job first takes the ticket (ticket_take), so
 * there is exactly one final event.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/sched/job.h"

struct tickets;

/* n_max: jobs alive at once; max_waiting: of them not yet started. */
int tickets_create(struct tickets **ret, int n_max, int max_waiting);
void tickets_destroy(struct tickets *t); /* NULL is fine */

/* I/O thread. -EBUSY: as many as allowed wait, or live. */
int ticket_open(struct tickets *t, const struct job *j);
/* I/O thread: marks; false where there is no such job. */
bool ticket_cancel(struct tickets *t, uint64_t job);
bool ticket_pause(struct tickets *t, uint64_t job, bool paused);

/* The job has left the queue. */
void ticket_start(struct tickets *t, uint64_t job);
/* Claims the right to send the final event: true for one caller only. */
bool ticket_take(struct tickets *t, uint64_t job);
bool ticket_answered(struct tickets *t, uint64_t job);
/* The job's memory is gone: the place is free. */
void ticket_close(struct tickets *t, uint64_t job);
bool ticket_paused(struct tickets *t, uint64_t job);

/* What the engine thread must look at. */
struct ticket_call {
    uint64_t job, conn, request;
    bool end; /* cancelled or out of time: finish says which */
    enum event_finish finish;
    bool paused; /* else: now paused or not */
};
/* The next call, in no order; false: none. Each is told once. now_us: for the
 * time limits. */
bool ticket_next(struct tickets *t, uint64_t now_us, struct ticket_call *ret);
/* Cheap: whether ticket_next can have anything to tell at now_us. */
bool ticket_pending(struct tickets *t, uint64_t now_us);
/* When the next time limit runs out, UINT64_MAX: never. */
uint64_t ticket_deadline(struct tickets *t);

/* Any job not yet answered, for the end of everything; false: none. */
bool ticket_any(struct tickets *t, struct ticket_call *ret);
/* The jobs that are not yet answered, n at most; returns how many. */
int tickets_view(struct tickets *t, struct job_view *ret, int n);
int tickets_waiting(struct tickets *t);
int tickets_live(struct tickets *t);

#endif
