/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The CPU backend's threads. A step is some hundred short jobs with little
 * between them, so a worker that runs dry spins for SPIN_NS before it sleeps
 * on a futex; an idle engine then uses no CPU. Where more threads were asked
 * for than there are cores, nobody spins.
 *
 * All of a job's state that a claim needs is one 64-bit ticket: generation,
 * number of items, next item. A claim is one fetch-add, and its result alone
 * says whether it got an item; so the caller waits for items and never for
 * workers. One that was asleep or not scheduled costs nothing, and one that
 * comes late finds no item, or one of the next job, which is as good.
 *
 * The invariant: fn and arg are read only between a successful claim and the
 * matching count of done items, and written only when no item is out.
 */
#include "kernels/cpu/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Longer than the gap between two jobs of a step, far shorter than an idle
 * engine's wait for work. */
#define SPIN_NS 60000

#define ITEM_BITS 24
#define ITEM_MASK ((UINT64_C(1) << ITEM_BITS) - 1)

struct worker {
    struct pool *pool;
    pthread_t thread;
    int i_thread;
};

struct pool {
    alignas(64) _Atomic uint64_t ticket; /* generation:16 n:24 next:24 */
    alignas(64) _Atomic uint32_t n_done;
    alignas(64) _Atomic uint32_t generation; /* futex word of the workers */
    _Atomic int n_asleep;
    _Atomic bool caller_asleep; /* on n_done */
    _Atomic bool stop;
    pool_fn *fn;
    void *arg;
    bool spin;
    int n_threads;
    int n_workers; /* started: n_threads - 1 */
    struct worker worker[];
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Spins until *word is not value; false where the time is up. */
static bool spin_while(const struct pool *p, _Atomic uint32_t *word,
                       uint32_t value)
{
    int64_t end = 0;

    if (!p->spin) {
        return atomic_load(word) != value;
    }
    for (unsigned i = 0;; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) {
            return true;
        }
        relax();
        if (i % 64 == 63) {
            int64_t t = now_ns();

            if (end == 0) {
                end = t + SPIN_NS;
            } else if (t > end) {
                return false;
            }
        }
    }
}

/* Claims and does items until there are none. */
static void work(struct pool *p, int i_thread)
{
    for (;;) {
        uint64_t t;
        uint32_t n, i;

        /* A look first, so that spinning workers do not fight for the line. */
        t = atomic_load_explicit(&p->ticket, memory_order_relaxed);
        if ((t & ITEM_MASK) >= (t >> ITEM_BITS & ITEM_MASK)) {
            return;
        }
        t = atomic_fetch_add_explicit(&p->ticket, 1, memory_order_acquire);
        i = (uint32_t)(t & ITEM_MASK);
        n = (uint32_t)(t >> ITEM_BITS & ITEM_MASK);
        if (i >= n) {
            return;
        }
        p->fn(p->arg, (int)i, i_thread);
        if (atomic_fetch_add(&p->n_done, 1) + 1 == n &&
            atomic_load(&p->caller_asleep)) {
            futex_wake(&p->n_done, 1);
        }
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint32_t seen = 0;

    while (!atomic_load(&p->stop)) {
        if (!spin_while(p, &p->generation, seen)) {
            atomic_fetch_add(&p->n_asleep, 1);
            while (atomic_load(&p->generation) == seen) {
                futex_wait(&p->generation, seen);
            }
            atomic_fetch_sub(&p->n_asleep, 1);
        }
        seen = atomic_load(&p->generation);
        work(p, w->i_thread);
    }
    return NULL;
}

static int n_cores(void)
{
    cpu_set_t set;
    int n = 0;

    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        n = CPU_COUNT(&set);
    } else {
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return n < 1 ? 1 : n;
}

/* The n-th core that this process may use, from 0; -1: not known. A worker
 * stays on its own where there is one for each: two on one core while a
 * stranger has the other run at half speed until the scheduler sees it (the
 * experts of a step on a busy host of 2 cores: 26 GB/s, pinned 38). The caller
 * is not ours to pin, and finds the free one. */
static int nth_cpu(int n)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0) {
        return -1;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &set) && n-- == 0) {
            return i;
        }
    }
    return -1;
}

/* Signals are the main thread's business, but for SIGBUS: it is raised where a
 * page of the weights cannot be read, and blocked it would end the process
 * before its handler could say which. */
static int start_worker(struct worker *w, int cpu)
{
    sigset_t all, old;
    char name[16];
    cpu_set_t one;
    int r;

    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r != 0) {
        return -r;
    }
    snprintf(name, sizeof(name), "kern-%d", w->i_thread);
    pthread_setname_np(w->thread, name);
    if (cpu >= 0) {
        CPU_ZERO(&one);
        CPU_SET(cpu, &one); /* may be refused; it runs anywhere then */
        (void)pthread_setaffinity_np(w->thread, sizeof(one), &one);
    }
    return 0;
}

int pool_create(struct pool **ret, int n_threads)
{
    int cores = n_cores(), r;
    size_t bytes;
    struct pool *p;

    if (n_threads < 0) {
        return -EINVAL;
    }
    if (n_threads == 0) {
        n_threads = cores;
    }
    if (n_threads > POOL_MAX_THREADS) {
        n_threads = POOL_MAX_THREADS;
    }
    bytes = sizeof(*p) + (size_t)n_threads * sizeof(p->worker[0]);
    p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) {
        return -ENOMEM;
    }
    atomic_init(&p->ticket, 0);
    atomic_init(&p->n_done, 0);
    atomic_init(&p->generation, 0);
    atomic_init(&p->n_asleep, 0);
    atomic_init(&p->caller_asleep, false);
    atomic_init(&p->stop, false);
    p->fn = NULL;
    p->arg = NULL;
    p->spin = n_threads <= cores;
    p->n_threads = n_threads;
    p->n_workers = 0;
    while (p->n_workers < n_threads - 1) {
        struct worker *w = &p->worker[p->n_workers];

        w->pool = p;
        w->i_thread = p->n_workers + 1;
        r = start_worker(w, n_threads == cores ? nth_cpu(w->i_thread) : -1);
        if (r < 0) {
            pool_destroy(p);
            return r;
        }
        p->n_workers++;
    }
    *ret = p;
    return 0;
}

void pool_destroy(struct pool *p)
{
    if (p == NULL) {
        return;
    }
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->generation, 1);
    futex_wake(&p->generation, INT_MAX);
    for (int i = 0; i < p->n_workers; i++) {
        pthread_join(p->worker[i].thread, NULL);
    }
    free(p);
}

int pool_n_threads(const struct pool *p)
{
    return p->n_threads;
}

static void wait_done(struct pool *p, uint32_t n)
{
    uint32_t done;

    while ((done = atomic_load(&p->n_done)) != n) {
        if (spin_while(p, &p->n_done, done)) {
            continue;
        }
        atomic_store(&p->caller_asleep, true);
        while ((done = atomic_load(&p->n_done)) != n) {
            futex_wait(&p->n_done, done);
        }
        atomic_store(&p->caller_asleep, false);
    }
}

void pool_run(struct pool *p, pool_fn *fn, void *arg, int n_items)
{
    uint64_t generation;

    if (p->n_workers == 0 || n_items <= 1) {
        for (int i = 0; i < n_items; i++) {
            fn(arg, i, 0);
        }
        return;
    }
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    generation = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;
    atomic_store(&p->ticket, generation << (2 * ITEM_BITS) | (uint64_t)n_items
                                                                 << ITEM_BITS);
    atomic_store(&p->generation, (uint32_t)generation);
    if (atomic_load(&p->n_asleep) > 0) {
        futex_wake(&p->generation, INT_MAX);
    }
    work(p, 0);
    wait_done(p, (uint32_t)n_items);
}
