/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Per-user accounts: a hash of small counters.
 *
 * Owns the accounts; the counters in them belong to conn.c (connections, bytes)
 * and server.c (jobs). I/O thread. The invariant: an account lives exactly as
 * long as a connection or a job refers to it, so the table is bounded by
 * max_connections and what the engine holds, whoever comes and goes.
 */

#include "daemon/net/account.h"

#include <stdlib.h>

#include "daemon/base/die.h"

static struct account **place(struct accounts *a, uint32_t uid)
{
    /* Uids come in runs (1000, 1001 ...): the low bits spread them. */
    struct account **p = &a->bucket[uid % ACCOUNT_BUCKETS];

    while (*p != NULL && (*p)->uid != uid) {
        p = &(*p)->next;
    }
    return p;
}

struct account *account_get(struct accounts *a, uint32_t uid)
{
    struct account **p = place(a, uid);

    if (*p == NULL) {
        *p = xcalloc(1, sizeof(**p));
        (*p)->uid = uid;
    }
    (*p)->n_refs++;
    return *p;
}

void account_put(struct accounts *a, struct account *acc)
{
    struct account **p;

    BUG_ON(acc->n_refs <= 0);
    if (--acc->n_refs > 0) {
        return;
    }
    BUG_ON(acc->n_conns != 0 || acc->n_jobs != 0 || acc->unfinished != 0);
    p = place(a, acc->uid);
    BUG_ON(*p != acc);
    *p = acc->next;
    free(acc);
}
