/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The CPU backend's threads: every item once, whatever the number of threads,
 * and no work when there is none.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "kernels/cpu/pool.h"
#include "tests/test.h"

enum { MOST = 3000 };

struct job {
    _Atomic int done[MOST];
    int n_threads;
    int plain[MOST]; /* written by the item's thread, read after the run */
    _Atomic int bad;
};

static void item(void *arg, int i_item, int i_thread)
{
    struct job *j = arg;

    if (i_thread < 0 || i_thread >= j->n_threads) {
        atomic_fetch_add(&j->bad, 1);
    }
    atomic_fetch_add(&j->done[i_item], 1);
    j->plain[i_item]++;
}

static void test_every_item_once(void **state)
{
    static const int threads[] = {1, 2, 3, 8, 33};
    static const int items[] = {0, 1, 2, 3, 7, 64, MOST};
    struct job *j = calloc(1, sizeof(*j));

    (void)state;
    assert_non_null(j);
    for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
        struct pool *p;

        assert_int_equal(pool_create(&p, threads[t]), 0);
        assert_int_equal(pool_n_threads(p), threads[t]);
        for (int round = 0; round < 60; round++) {
            int n = items[round % 7];

            memset(j, 0, sizeof(*j));
            j->n_threads = threads[t];
            pool_run(p, item, j, n);
            for (int i = 0; i < MOST; i++) {
                assert_int_equal(j->done[i], i < n);
                assert_int_equal(j->plain[i], i < n);
            }
            assert_int_equal(j->bad, 0);
        }
        pool_destroy(p);
    }
    free(j);
}

/* Many jobs in a row: the generation of a ticket wraps, late workers meet the
 * next job. */
static void count(void *arg, int i_item, int i_thread)
{
    (void)i_item;
    (void)i_thread;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void test_many_short_jobs(void **state)
{
    _Atomic int n = 0;
    struct pool *p;

    (void)state;
    assert_int_equal(pool_create(&p, 3), 0);
    for (int i = 0; i < 5000; i++) {
        pool_run(p, count, &n, 2 + i % 3);
    }
    assert_int_equal(n, 5000 / 3 * 9 + 2 + 3);
    pool_destroy(p);
}

static void test_more_threads_than_cores(void **state)
{
    _Atomic int n = 0;
    struct pool *p;

    (void)state;
    assert_int_equal(pool_create(&p, 64), 0);
    for (int i = 0; i < 200; i++) {
        pool_run(p, count, &n, 100);
    }
    assert_int_equal(n, 200 * 100);
    pool_destroy(p);
}

static void test_the_affinity_mask_decides(void **state)
{
    cpu_set_t old, one;
    struct pool *p;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &old)) {
            CPU_SET(i, &one);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(pool_create(&p, 0), 0);
    assert_int_equal(pool_n_threads(p), 1);
    pool_destroy(p);
    assert_int_equal(sched_setaffinity(0, sizeof(old), &old), 0);
    assert_int_equal(pool_create(&p, 0), 0);
    assert_int_equal(pool_n_threads(p), CPU_COUNT(&old));
    pool_destroy(p);
    assert_true(pool_create(&p, -1) < 0);
}

static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Once the workers have had their spin, the process uses no CPU: waits until
 * that is seen over a while. A pool that never sleeps fails by the deadline. */
static void test_an_idle_pool_uses_no_cpu(void **state)
{
    _Atomic int n = 0;
    bool idle = false;
    struct pool *p;

    (void)state;
    assert_int_equal(pool_create(&p, 4), 0);
    pool_run(p, count, &n, 100);
    for (int i = 0; i < 100 && !idle; i++) {
        struct timespec rest = {.tv_nsec = 20000000};
        int64_t before = cpu_ns();

        nanosleep(&rest, NULL);
        idle = cpu_ns() - before < 2000000;
    }
    assert_true(idle);
    pool_run(p, count, &n, 100); /* and wakes again */
    assert_int_equal(n, 200);
    pool_destroy(p);
}

/* A mapped page that cannot be read raises SIGBUS in the thread that touches
 * it: where that blocks it the process ends and its handler is not asked. */
struct masks {
    _Atomic int n_workers, n_blocked, n_open_to_term;
};

static void look_at_mask(void *arg, int i_item, int i_thread)
{
    struct masks *m = arg;
    sigset_t now;

    (void)i_item;
    if (i_thread > 0 && pthread_sigmask(SIG_SETMASK, NULL, &now) == 0) {
        atomic_fetch_add(&m->n_workers, 1);
        atomic_fetch_add(&m->n_blocked, sigismember(&now, SIGBUS));
        atomic_fetch_add(&m->n_open_to_term, !sigismember(&now, SIGTERM));
    }
}

static void test_workers_block_all_signals_but_faults(void **state)
{
    struct masks m = {0};
    struct pool *p;

    (void)state;
    assert_int_equal(pool_create(&p, 4), 0);
    for (int i = 0; i < 100000 && m.n_workers == 0; i++) {
        pool_run(p, look_at_mask, &m, 1000);
    }
    pool_destroy(p);
    assert_true(m.n_workers > 0);
    assert_int_equal(m.n_blocked, 0);
    assert_int_equal(m.n_open_to_term, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_many_short_jobs),
        cmocka_unit_test(test_more_threads_than_cores),
        cmocka_unit_test(test_the_affinity_mask_decides),
        cmocka_unit_test(test_an_idle_pool_uses_no_cpu),
        cmocka_unit_test(test_workers_block_all_signals_but_faults),
    };

    return test_main(tests, NULL, NULL);
}
