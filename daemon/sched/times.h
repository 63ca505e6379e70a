/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_TIMES_H
#define STEPD_DAEMON_SCHED_TIMES_H

/*
 * How long requests and steps take, measured by the engine thread; a copy goes
 * to whoever asks for status or metrics.
 */

#include "daemon/base/hist.h"

struct times {
    struct hist queue;       /* from acceptance to the first row */
    struct hist first_token; /* from acceptance */
    /* From one delivery of a request to its next, divided by the tokens that
     * the latter brought, once for each of them. Waiting that pre-emption or a
     * slow reader caused is in it. */
    struct hist between_tokens;
    struct hist request; /* from acceptance to the final event */
    struct hist step;    /* model and delivery */
    /* Where steps go, seconds; what the model takes of it is in its own
     * counters. */
    double plan_s, model_s, deliver_s;
};

#endif
