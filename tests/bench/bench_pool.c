/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * How soon an idle engine is at work: from a job in its inbox to the engine
 * thread that takes it, and from the first op of a step to all workers being at
 * it; and what the process uses while it is idle.
 *
 *     bench_pool [THREADS]        default: 2
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/base/mbox.h"
#include "kernels/cpu/pool.h"
#include "tests/bench/probe.h"

enum { ROUNDS = 99, REST_MS = 5, IDLE_MS = 1000 };

static void rest(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

/* ---- the inbox ---- */

static struct mbox *inbox;
static _Atomic double taken;

static void *engine_thread(void *arg)
{
    (void)arg;
    while (mbox_pop_wait(inbox, -1) != NULL) {
        atomic_store(&taken, probe_now());
    }
    return NULL;
}

static double wake_inbox(void)
{
    static int job;
    double us[ROUNDS];
    pthread_t thread;

    if (mbox_create(&inbox, 1) < 0 ||
        pthread_create(&thread, NULL, engine_thread, NULL) != 0) {
        exit(1);
    }
    for (int i = 0; i < ROUNDS; i++) {
        double t;

        rest(REST_MS);
        atomic_store(&taken, 0);
        t = probe_now();
        (void)mbox_push(inbox, &job);
        while (atomic_load(&taken) == 0) {
        }
        us[i] = (atomic_load(&taken) - t) * 1e6;
    }
    mbox_close(inbox);
    pthread_join(thread, NULL);
    mbox_destroy(inbox);
    return probe_median(us, ROUNDS);
}

/* ---- the workers ---- */

struct meet {
    int n;
    atomic_int here;
};

/* Ends when as many are at it as there are threads. */
static void meet(void *arg, int i_item, int i_thread)
{
    struct meet *m = arg;

    (void)i_item;
    (void)i_thread;
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < m->n) {
    }
}

static double wake_workers(struct pool *p, int rest_ms)
{
    double us[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        struct meet m = {.n = pool_n_threads(p)};
        double t;

        if (rest_ms > 0) {
            rest(rest_ms);
        }
        t = probe_now();
        pool_run(p, meet, &m, m.n);
        us[i] = (probe_now() - t) * 1e6;
    }
    return probe_median(us, ROUNDS);
}

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int main(int argc, char **argv)
{
    struct pool *p;
    double used;

    if (pool_create(&p, argc > 1 ? atoi(argv[1]) : 2) < 0) {
        fprintf(stderr, "bench_pool: no threads\n");
        return 1;
    }
    printf("%d threads, median of %d\n", pool_n_threads(p), ROUNDS);
    printf("a job to a sleeping engine thread   %8.1f us\n", wake_inbox());
    printf("an op to all workers, asleep        %8.1f us\n",
           wake_workers(p, REST_MS));
    printf("an op to all workers, within a step %8.1f us\n",
           wake_workers(p, 0));
    rest(REST_MS);
    used = cpu_ms();
    rest(IDLE_MS);
    printf("processor time of an idle second    %8.3f ms\n", cpu_ms() - used);
    pool_destroy(p);
    return 0;
}
