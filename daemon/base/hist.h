/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_HIST_H
#define STEPD_DAEMON_BASE_HIST_H

/*
 * A histogram of times, of a fixed size: counts by bucket, the sum and the
 * number. All histograms have the same bounds, so that they can be compared and
 * documented once (client/wire.h, METRICS). Plain memory, no locks.
 */

#include <stdint.h>

/* Upper bounds in seconds: 0.0005, then 1, 2.5, 5 of each decade to 250. */
#define HIST_N_BOUNDS 18
extern const double hist_bound[HIST_N_BOUNDS];

struct hist {
    uint64_t n[HIST_N_BOUNDS + 1]; /* the last one: above all bounds */
    uint64_t count;
    double sum; /* seconds */
};

/* n times of so many seconds each; below 0 counts as 0. */
void hist_add(struct hist *h, double seconds, uint64_t n);
/* The time below which the share q (0..1) lies, by straight lines within
 * buckets; above the last bound: that bound. 0 where there is nothing. */
double hist_quantile(const struct hist *h, double q);

#endif
