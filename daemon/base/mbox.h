/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_MBOX_H
#define STEPD_DAEMON_BASE_MBOX_H

/*
 * A bounded queue of pointers between threads: the only primitive by which
 * threads of the daemon meet. First in, first out; any number of pushers and
 * poppers. Pushing gives an item away, popping takes it over; mbox_destroy
 * frees none, so drain it first.
 *
 * A mailbox carries no wake-up of its own for an event loop: a push that finds
 * the box empty says so (returns 1), which is when the loop must be woken. A
 * popper drains until NULL, so one wake may stand for many items.
 */

#include <stddef.h>

struct mbox;

/* Room for n_max items, allocated now: a push never allocates. n_max > 0. */
int mbox_create(struct mbox **ret, size_t n_max);
void mbox_destroy(struct mbox *m); /* NULL is fine; nobody may be inside */

/* 1: pushed, the box was empty before; 0: pushed. -EAGAIN: full. -EPIPE:
 * closed. On an error the item stays the caller's. item is never NULL. */
int mbox_push(struct mbox *m, void *item);
/* Waits while the box is full; otherwise as mbox_push (never -EAGAIN). */
int mbox_push_wait(struct mbox *m, void *item);

/* The oldest item, or NULL when there is none. */
void *mbox_pop(struct mbox *m);
/* Waits for an item, at most timeout_ms (-1: for ever, 0: as mbox_pop). NULL:
 * the time is over, or the box is closed and empty. */
void *mbox_pop_wait(struct mbox *m, int timeout_ms);

/* No more pushes; waiters wake. Items inside can still be popped. */
void mbox_close(struct mbox *m);
size_t mbox_count(struct mbox *m);

#endif
