/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Histograms of times. Owns nothing; any thread, one at a time for each
 * histogram. The invariant: count is the sum of n.
 */

#include "daemon/base/hist.h"

const double hist_bound[HIST_N_BOUNDS] = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5,    1,     2.5,    5,     10,   25,    50,   100, 250,
};

void hist_add(struct hist *h, double seconds, uint64_t n)
{
    int i = 0;

    if (!(seconds > 0)) {
        seconds = 0;
    }
    while (i < HIST_N_BOUNDS && seconds > hist_bound[i]) {
        i++;
    }
    h->n[i] += n;
    h->count += n;
    h->sum += seconds * (double)n;
}

double hist_quantile(const struct hist *h, double q)
{
    double want = q * (double)h->count, below = 0;

    for (int i = 0; i < HIST_N_BOUNDS && h->count > 0; i++) {
        double n = (double)h->n[i];

        if (n > 0 && below + n >= want) {
            double from = i > 0 ? hist_bound[i - 1] : 0;

            return from + (hist_bound[i] - from) * (want - below) / n;
        }
        below += n;
    }
    return h->count > 0 ? hist_bound[HIST_N_BOUNDS - 1] : 0;
}
