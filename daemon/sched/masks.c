/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One thread, one piece of work at a time: the masks of a step. Between
 * masks_begin and masks_wait the items and their maskers are the worker's;
 * outside they are the engine thread's. The mutex that says whose turn it is
 * orders their memory too.
 */
#include "daemon/sched/masks.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct masks {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock */
    struct masks_item *item; /* NULL: nothing to do */
    int n;
    bool stop;
};

/* Keeps of the line what fits: or only that, where they have nothing in
 * common (an answer that may only end, and may not yet). */
static void keep(uint32_t *line, const uint32_t *fits, size_t n)
{
    uint32_t any = 0;

    for (size_t i = 0; i < n; i++) {
        any |= line[i] & fits[i];
    }
    for (size_t i = 0; i < n; i++) {
        line[i] = any != 0 ? line[i] & fits[i] : fits[i];
    }
}

static void build(struct masks_item *x)
{
    uint32_t *fits = malloc(x->n_words * sizeof(*fits));
    int r = fits == NULL ? -ENOMEM : 0;

    for (int i = 0; i < x->n && r == 0; i++) {
        r = masker_mask(x->masker, i, fits);
        if (r == 0) {
            keep(x->words + (size_t)i * x->n_words, fits, x->n_words);
        }
    }
    free(fits);
    *x->status = r;
}

static void *run(void *arg)
{
    struct masks *w = arg;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->item == NULL && !w->stop) {
            pthread_cond_wait(&w->changed, &w->lock);
        }
        if (w->item == NULL) {
            break;
        }
        pthread_mutex_unlock(&w->lock);
        for (int i = 0; i < w->n; i++) {
            build(&w->item[i]);
        }
        pthread_mutex_lock(&w->lock);
        w->item = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int masks_create(struct masks **ret)
{
    struct masks *w = calloc(1, sizeof(*w));

    if (w == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    *ret = w;
    return 0;
}

void masks_destroy(struct masks *w)
{
    if (w == NULL) {
        return;
    }
    if (w->started) {
        pthread_mutex_lock(&w->lock);
        w->stop = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void masks_begin(struct masks *w, struct masks_item *item, int n)
{
    if (n == 0) {
        return;
    }
    if (!w->started) {
        w->started = pthread_create(&w->thread, NULL, run, w) == 0;
    }
    if (!w->started) {
        for (int i = 0; i < n; i++) {
            build(&item[i]);
        }
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->n = n;
    w->item = item;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void masks_wait(struct masks *w)
{
    if (!w->started) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    while (w->item != NULL) {
        pthread_cond_wait(&w->changed, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}
