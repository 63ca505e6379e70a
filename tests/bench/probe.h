/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_BENCH_PROBE_H
#define TESTS_BENCH_PROBE_H

/*
 * What the benches of ops measure against, in the same run: how fast this
 * machine reads memory and multiplies. Bandwidth on a shared host changes
 * within seconds, so a figure is a ratio to the probe next to it, the median
 * of several such pairs.
 */

#include <stddef.h>
#include <stdint.h>

struct probe;

/* For n_threads (0 = a thread a core) and an instruction set (NULL = best). */
struct probe *probe_create(int n_threads, const char *isa);
void probe_destroy(struct probe *p);
int probe_n_threads(const struct probe *p);

/* Seconds; with one thread those that it ran, so that whoever else is given the
 * core meanwhile does not count. */
double probe_now(void);
/* Bytes a second, reading 256 MiB. */
double probe_read(struct probe *p);
/* Operations a second (a multiplication and an addition are two) of the
 * instruction that the path multiplies BF16 with, operands in registers. */
double probe_peak(struct probe *p);

#define PROBE_ROUNDS 9
double probe_median(double *x, int n); /* sorts x */

#endif
