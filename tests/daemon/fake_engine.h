/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * An engine for the tests of daemon/net: it implements daemon/sched/engine.h
 * without threads and without a model. Jobs wait in a list until the test
 * answers them, event by event; what net/ asked for is written down.
 */
#ifndef TESTS_DAEMON_FAKE_ENGINE_H
#define TESTS_DAEMON_FAKE_ENGINE_H

#include "daemon/sched/engine.h"
#include "daemon/sched/job.h"

#define FAKE_MAX_JOBS 4096

struct fake_job {
    struct job *job;
    bool ended; /* its final event was sent */
    bool started;
    int n_cancels;
    bool paused;
    int n_pauses; /* changes of paused */
};

struct engine {
    struct engine_conf conf;
    struct engine_status status;
    struct fake_job jobs[FAKE_MAX_JOBS];
    int n_jobs;
    int submit_error; /* what engine_submit returns, 0: takes the job */
    bool drained;
    bool end_cancelled; /* a cancel ends its job at once, as an idle engine */
    struct event *first, *last;
};

/* The number of jobs that were submitted and not yet ended. */
int fake_running(const struct engine *e);
/* The i-th job that was ever submitted. */
struct fake_job *fake_job(struct engine *e, int i);
/* Events about the i-th job; the last two end it. */
void fake_accepted(struct engine *e, int i, int position, int prompt_tokens);
void fake_delta(struct engine *e, int i, const char *text);
void fake_ids(struct engine *e, int i, int n); /* a part: 0, 1, ... n-1 */
void fake_done(struct engine *e, int i, enum event_finish finish);
void fake_plain_done(struct engine *e, int i);
void fake_error(struct engine *e, int i, const char *code, const char *text);
/* An event made by the test. */
void fake_event(struct engine *e, struct event *ev);
void fake_state(struct engine *e, enum engine_state state);

#endif
