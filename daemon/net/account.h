/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_ACCOUNT_H
#define STEPD_DAEMON_NET_ACCOUNT_H

/*
 * What each user holds of what is limited per user: connections, requests in
 * flight, bytes of unfinished frames.
 */

#include <stddef.h>
#include <stdint.h>

#define ACCOUNT_BUCKETS 256

struct account {
    struct account *next; /* in its bucket */
    uint32_t uid;
    int n_refs; /* connections and jobs that point here */
    int n_conns;
    int n_jobs;
    size_t unfinished; /* bytes */
};

struct accounts {
    struct account *bucket[ACCOUNT_BUCKETS];
};

/* The account of a uid, made where there is none, with one more reference. */
struct account *account_get(struct accounts *a, uint32_t uid);
/* Drops one; the account goes with the last. */
void account_put(struct accounts *a, struct account *acc);

#endif
