/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The table of live jobs, under one lock, for all three threads. Owns no job,
 * only its numbers. Tables are as long as the queue limit allows (hundreds), so
 * they are searched from one end to the other.
 *
 * The invariant: a ticket exists from ticket_open to ticket_close, and
 * `answered` turns true once. A cancel that comes after that means nothing.
 *
 * `pending` and `deadline` are read without the lock, between the layers of a
 * step: they may be stale for a moment, never wrong for long, since whoever
 * changes them afterwards wakes the engine.
 */

#include "daemon/sched/ticket.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "daemon/base/die.h"

struct ticket {
    uint64_t job, conn, request;
    uint32_t uid;
    uint64_t deadline_us; /* UINT64_MAX: none */
    bool used, started, answered;
    bool cancel, paused;
    bool told_end, told_paused; /* what the engine has heard */
};

struct tickets {
    pthread_mutex_t lock;
    struct ticket *t;
    int n_max, max_waiting;
    int n_live, n_waiting;
    atomic_bool pending;
    atomic_uint_fast64_t deadline_us;
};

int tickets_create(struct tickets **ret, int n_max, int max_waiting)
{
    struct tickets *t = xcalloc(1, sizeof(*t));

    t->t = calloc((size_t)n_max, sizeof(*t->t));
    if (t->t == NULL) {
        free(t);
        return -ENOMEM;
    }
    t->n_max = n_max;
    t->max_waiting = max_waiting;
    (void)pthread_mutex_init(&t->lock, NULL);
    atomic_init(&t->pending, false);
    atomic_init(&t->deadline_us, UINT64_MAX);
    *ret = t;
    return 0;
}

void tickets_destroy(struct tickets *t)
{
    if (t == NULL) {
        return;
    }
    (void)pthread_mutex_destroy(&t->lock);
    free(t->t);
    free(t);
}

static void lock(struct tickets *t)
{
    (void)pthread_mutex_lock(&t->lock);
}

static void unlock(struct tickets *t)
{
    (void)pthread_mutex_unlock(&t->lock);
}

static struct ticket *find(struct tickets *t, uint64_t job)
{
    for (int i = 0; i < t->n_max; i++) {
        if (t->t[i].used && t->t[i].job == job) {
            return &t->t[i];
        }
    }
    return NULL;
}

static void update_deadline(struct tickets *t)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < t->n_max; i++) {
        const struct ticket *k = &t->t[i];

        if (k->used && !k->answered && !k->told_end && k->deadline_us < least) {
            least = k->deadline_us;
        }
    }
    atomic_store(&t->deadline_us, least);
}

int ticket_open(struct tickets *t, const struct job *j)
{
    struct ticket *k = NULL;
    int r = -EBUSY;

    lock(t);
    for (int i = 0; i < t->n_max && k == NULL; i++) {
        k = t->t[i].used ? NULL : &t->t[i];
    }
    if (k != NULL && t->n_waiting < t->max_waiting) {
        *k = (struct ticket){
            .job = j->id,
            .conn = j->conn,
            .request = j->request,
            .uid = j->uid,
            .deadline_us = UINT64_MAX,
            .used = true,
        };
        if (j->timeout_ms > 0 &&
            j->timeout_ms < (UINT64_MAX - j->born_us) / 1000) {
            k->deadline_us = j->born_us + j->timeout_ms * 1000;
        }
        t->n_live++;
        t->n_waiting++;
        update_deadline(t);
        r = 0;
    }
    unlock(t);
    return r;
}

bool ticket_cancel(struct tickets *t, uint64_t job)
{
    struct ticket *k;

    lock(t);
    k = find(t, job);
    if (k != NULL) {
        k->cancel = true;
        atomic_store(&t->pending, true);
    }
    unlock(t);
    return k != NULL;
}

bool ticket_pause(struct tickets *t, uint64_t job, bool paused)
{
    struct ticket *k;

    lock(t);
    k = find(t, job);
    if (k != NULL) {
        k->paused = paused;
        atomic_store(&t->pending, true);
    }
    unlock(t);
    return k != NULL;
}

static void stop_waiting(struct tickets *t, struct ticket *k)
{
    if (!k->started) {
        k->started = true;
        t->n_waiting--;
    }
}

void ticket_start(struct tickets *t, uint64_t job)
{
    struct ticket *k;

    lock(t);
    k = find(t, job);
    if (k != NULL) {
        stop_waiting(t, k);
    }
    unlock(t);
}

bool ticket_take(struct tickets *t, uint64_t job)
{
    struct ticket *k;
    bool mine = false;

    lock(t);
    k = find(t, job);
    if (k != NULL && !k->answered) {
        k->answered = mine = true;
        stop_waiting(t, k);
        update_deadline(t);
    }
    unlock(t);
    return mine;
}

bool ticket_answered(struct tickets *t, uint64_t job)
{
    const struct ticket *k;
    bool answered;

    lock(t);
    k = find(t, job);
    answered = k == NULL || k->answered;
    unlock(t);
    return answered;
}

void ticket_close(struct tickets *t, uint64_t job)
{
    struct ticket *k;

    lock(t);
    k = find(t, job);
    BUG_ON(k == NULL);
    stop_waiting(t, k);
    k->used = false;
    t->n_live--;
    update_deadline(t);
    unlock(t);
}

bool ticket_paused(struct tickets *t, uint64_t job)
{
    const struct ticket *k;
    bool paused;

    lock(t);
    k = find(t, job);
    paused = k != NULL && k->paused;
    unlock(t);
    return paused;
}

bool ticket_pending(struct tickets *t, uint64_t now_us)
{
    return atomic_load(&t->pending) || now_us >= atomic_load(&t->deadline_us);
}

uint64_t ticket_deadline(struct tickets *t)
{
    return atomic_load(&t->deadline_us);
}

static void call(const struct ticket *k, struct ticket_call *ret)
{
    *ret = (struct ticket_call){
        .job = k->job,
        .conn = k->conn,
        .request = k->request,
        .paused = k->paused,
    };
}

bool ticket_next(struct tickets *t, uint64_t now_us, struct ticket_call *ret)
{
    bool found = false;

    lock(t);
    for (int i = 0; i < t->n_max && !found; i++) {
        struct ticket *k = &t->t[i];

        if (!k->used || k->answered || k->told_end) {
            continue;
        }
        if (k->cancel || k->deadline_us <= now_us) {
            call(k, ret);
            ret->end = k->told_end = found = true;
            ret->finish = k->cancel ? FINISH_CANCELLED : FINISH_TIMEOUT;
        } else if (k->paused != k->told_paused) {
            call(k, ret);
            k->told_paused = k->paused;
            found = true;
        }
    }
    if (!found) {
        atomic_store(&t->pending, false);
        update_deadline(t);
    }
    unlock(t);
    return found;
}

bool ticket_any(struct tickets *t, struct ticket_call *ret)
{
    bool found = false;

    lock(t);
    for (int i = 0; i < t->n_max && !found; i++) {
        found = t->t[i].used && !t->t[i].answered;
        if (found) {
            call(&t->t[i], ret);
        }
    }
    unlock(t);
    return found;
}

int tickets_view(struct tickets *t, struct job_view *ret, int n)
{
    int at = 0;

    lock(t);
    for (int i = 0; i < t->n_max && at < n; i++) {
        const struct ticket *k = &t->t[i];

        if (k->used && !k->answered) {
            ret[at++] = (struct job_view){
                .job = k->job,
                .uid = k->uid,
                .started = k->started,
                .paused = k->paused,
            };
        }
    }
    unlock(t);
    return at;
}

int tickets_waiting(struct tickets *t)
{
    int n;

    lock(t);
    n = t->n_waiting;
    unlock(t);
    return n;
}

int tickets_live(struct tickets *t)
{
    int n;

    lock(t);
    n = t->n_live;
    unlock(t);
    return n;
}
