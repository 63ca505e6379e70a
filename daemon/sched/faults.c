/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Counts the major faults of steps and decides when they are worth a warning:
 * when a whole minute of steps had them, which a cold start has not, unless the
 * disk is so slow that the warning is right. Engine thread. Owns nothing.
 */

#include "daemon/sched/faults.h"

#include <inttypes.h>
#include <stdio.h>

bool faults_add(struct faults *f, uint64_t now_us, uint64_t n, char *line,
                size_t n_line)
{
    bool much;

    f->total += n;
    if (f->since_us == 0) {
        f->since_us = now_us;
    }
    f->faults += n;
    f->steps++;
    if (now_us - f->since_us < FAULTS_LOG_US) {
        return false;
    }
    much = f->faults >= FAULTS_A_STEP * f->steps;
    if (much) {
        (void)snprintf(line, n_line,
                       "%" PRIu64 " major page faults in the last %" PRIu64
                       " steps: weights are read from disk while they are "
                       "used; this host needs more memory, or weights = lock",
                       f->faults, f->steps);
    }
    f->since_us = now_us;
    f->faults = f->steps = 0;
    return much;
}
