/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A bounded ring of pointers under one lock.
 *
 * Owns the ring, not what the pointers mean. Any thread may call anything
 * except mbox_destroy, which needs to be the last to know the box.
 *
 * The invariant: n_items <= n_max, and an item is in the ring exactly while no
 * thread owns it. Two condition variables, one per direction, are signalled
 * only when the state that their waiters wait for can have come about, so an
 * uncontended push costs a lock and a store. A lock-free ring was not chosen:
 * the rates here are events per step and requests per second, and what counts
 * is that the rules (full, closed, empty before) hold exactly.
 */

#include "daemon/base/mbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/base/die.h"

struct mbox {
    pthread_mutex_t lock;
    pthread_cond_t not_empty;
    pthread_cond_t not_full;
    size_t n_max;
    size_t n_items;
    size_t i_first; /* the oldest item */
    bool closed;
    void *items[];
};

int mbox_create(struct mbox **ret, size_t n_max)
{
    pthread_condattr_t attr;
    struct mbox *m;

    BUG_ON(n_max == 0);
    if (n_max > (SIZE_MAX - sizeof(*m)) / sizeof(m->items[0])) {
        return -ENOMEM;
    }
    m = calloc(1, sizeof(*m) + n_max * sizeof(m->items[0]));
    if (m == NULL) {
        return -ENOMEM;
    }
    m->n_max = n_max;
    /* None of these can fail with these arguments on Linux. The clock that
     * timed waits go by must not jump. */
    BUG_ON(pthread_mutex_init(&m->lock, NULL) != 0);
    BUG_ON(pthread_condattr_init(&attr) != 0);
    BUG_ON(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) != 0);
    BUG_ON(pthread_cond_init(&m->not_empty, &attr) != 0);
    BUG_ON(pthread_cond_init(&m->not_full, &attr) != 0);
    (void)pthread_condattr_destroy(&attr);
    *ret = m;
    return 0;
}

void mbox_destroy(struct mbox *m)
{
    if (m == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&m->not_full);
    (void)pthread_cond_destroy(&m->not_empty);
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}

static int push(struct mbox *m, void *item, bool wait)
{
    int r;

    BUG_ON(item == NULL);
    (void)pthread_mutex_lock(&m->lock);
    while (wait && !m->closed && m->n_items == m->n_max) {
        (void)pthread_cond_wait(&m->not_full, &m->lock);
    }
    if (m->closed) {
        r = -EPIPE;
    } else if (m->n_items == m->n_max) {
        r = -EAGAIN;
    } else {
        m->items[(m->i_first + m->n_items) % m->n_max] = item;
        r = m->n_items == 0 ? 1 : 0;
        m->n_items++;
        (void)pthread_cond_signal(&m->not_empty);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return r;
}

int mbox_push(struct mbox *m, void *item)
{
    return push(m, item, false);
}

int mbox_push_wait(struct mbox *m, void *item)
{
    return push(m, item, true);
}

/* Under the lock. */
static void *take(struct mbox *m)
{
    void *item;

    if (m->n_items == 0) {
        return NULL;
    }
    item = m->items[m->i_first];
    m->items[m->i_first] = NULL;
    m->i_first = (m->i_first + 1) % m->n_max;
    m->n_items--;
    (void)pthread_cond_signal(&m->not_full);
    return item;
}

void *mbox_pop(struct mbox *m)
{
    void *item;

    (void)pthread_mutex_lock(&m->lock);
    item = take(m);
    (void)pthread_mutex_unlock(&m->lock);
    return item;
}

static struct timespec deadline_in(int timeout_ms)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

void *mbox_pop_wait(struct mbox *m, int timeout_ms)
{
    struct timespec until;
    void *item;
    int r = 0;

    if (timeout_ms == 0) {
        return mbox_pop(m);
    }
    if (timeout_ms > 0) {
        until = deadline_in(timeout_ms);
    }
    (void)pthread_mutex_lock(&m->lock);
    while (m->n_items == 0 && !m->closed && r != ETIMEDOUT) {
        if (timeout_ms < 0) {
            r = pthread_cond_wait(&m->not_empty, &m->lock);
        } else {
            r = pthread_cond_timedwait(&m->not_empty, &m->lock, &until);
        }
    }
    item = take(m);
    (void)pthread_mutex_unlock(&m->lock);
    return item;
}

void mbox_close(struct mbox *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->closed = true;
    (void)pthread_cond_broadcast(&m->not_empty);
    (void)pthread_cond_broadcast(&m->not_full);
    (void)pthread_mutex_unlock(&m->lock);
}

size_t mbox_count(struct mbox *m)
{
    size_t n;

    (void)pthread_mutex_lock(&m->lock);
    n = m->n_items;
    (void)pthread_mutex_unlock(&m->lock);
    return n;
}
