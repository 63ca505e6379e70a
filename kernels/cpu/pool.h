/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_POOL_H
#define STEPD_KERNELS_CPU_POOL_H

/* Threads that share the items of one job at a time. The caller is thread 0. */
struct pool;

#define POOL_MAX_THREADS 256
#define POOL_MAX_ITEMS (1 << 22)

/* One item, done by thread i_thread (0 .. n_threads - 1). */
typedef void pool_fn(void *arg, int i_item, int i_thread);

/* n_threads 0: one for each core that the affinity mask allows. */
int pool_create(struct pool **ret, int n_threads);
void pool_destroy(struct pool *p); /* NULL is fine */
int pool_n_threads(const struct pool *p);

/* Returns once every item of 0 .. n_items - 1 is done; what they wrote is then
 * visible. Which thread does which item is not determined. */
void pool_run(struct pool *p, pool_fn *fn, void *arg, int n_items);

#endif
