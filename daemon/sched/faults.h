/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_FAULTS_H
#define STEPD_DAEMON_SCHED_FAULTS_H

/* Major page faults during steps: mapped weights that had to be read from disk.
 * The first pass over a model is expected to have some; steps that go on having
 * them are many times slower than they should be, and the log says so, once a
 * minute at most. Engine thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULTS_LOG_US 60000000
/* A minute's steps are worth a line with so many faults a step on average. */
#define FAULTS_A_STEP 8

struct faults {
    uint64_t total;
    uint64_t since_us; /* of the interval; 0: none has begun */
    uint64_t faults, steps;
};

/* One step more. True: line is to be logged as a warning. */
bool faults_add(struct faults *f, uint64_t now_us, uint64_t n, char *line,
                size_t n_line);

#endif
