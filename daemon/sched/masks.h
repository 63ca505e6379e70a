/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_MASKS_H
#define STEPD_DAEMON_SCHED_MASKS_H

/*
 * The worker that builds masks while the model computes. The engine thread
 * hands it the maskers of a step and does not touch them until masks_wait.
 */

#include <stddef.h>
#include <stdint.h>

#include "daemon/text/mask.h"

struct masks_item {
    struct masker *masker; /* that has looked at n - 1 drafts */
    int n;                 /* positions */
    uint32_t *words;       /* [n][n_words]: bits that do not fit are cleared;
                            * where that leaves none, the grammar's stay */
    size_t n_words;
    int *status; /* after masks_wait: 0, or masker_mask's error */
};

struct masks;

/* The thread starts with the first work. -ENOMEM. */
int masks_create(struct masks **ret);
void masks_destroy(struct masks *w); /* joins; NULL is fine */
/* item: n of them, which stay until masks_wait has returned. Where no thread
 * can be started the work is done here and now. */
void masks_begin(struct masks *w, struct masks_item *item, int n);
void masks_wait(struct masks *w);

#endif
