/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Per-user accounts: a hash of small counters.
 *
 * Owns the accounts; the counters in them belong to conn.c (connections, bytes)
 * and server.c (jobs, totals). I/O thread. The invariants: an account that is
 * referred to stays, and so does the user's own beside a tenant's; of those
 * that nobody refers to only ACCOUNT_MAX_IDLE users' are kept, for their
 * totals. So the table is bounded by max_connections, what the engine holds and
 * that number, whoever comes and goes and whatever tenants a gateway invents.
 */

#include "daemon/net/account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

static struct account **place(struct accounts *a, uint32_t uid,
                              const char *tenant)
{
    /* Uids come in runs (1000, 1001 ...): the low bits spread them. */
    uint32_t h = uid;
    struct account **p;

    for (const char *t = tenant; *t != '\0'; t++) {
        h = h * 31 + (unsigned char)*t;
    }
    p = &a->bucket[h % ACCOUNT_BUCKETS];
    while (*p != NULL &&
           ((*p)->uid != uid || strcmp((*p)->tenant, tenant) != 0)) {
        p = &(*p)->next;
    }
    return p;
}

struct account *account_get(struct accounts *a, uint32_t uid,
                            const char *tenant)
{
    struct account **p = place(a, uid, tenant);
    struct account *acc = *p;

    if (acc == NULL) {
        acc = *p = xcalloc(1, sizeof(*acc));
        acc->uid = uid;
        (void)snprintf(acc->tenant, sizeof(acc->tenant), "%s", tenant);
        acc->user = tenant[0] == '\0' ? acc : account_get(a, uid, "");
    } else if (acc->n_refs == 0) {
        a->n_idle--;
    }
    acc->n_refs++;
    return acc;
}

static void forget(struct accounts *a, struct account *acc)
{
    struct account **p = place(a, acc->uid, acc->tenant);

    BUG_ON(*p != acc);
    *p = acc->next;
    free(acc);
}

/* The one that has been idle for the longest. */
static void forget_oldest(struct accounts *a)
{
    struct account *oldest = NULL;

    for (int i = 0; i < ACCOUNT_BUCKETS; i++) {
        for (struct account *x = a->bucket[i]; x != NULL; x = x->next) {
            if (x->n_refs == 0 &&
                (oldest == NULL || x->idle_since < oldest->idle_since)) {
                oldest = x;
            }
        }
    }
    BUG_ON(oldest == NULL);
    forget(a, oldest);
    a->n_idle--;
}

void account_put(struct accounts *a, struct account *acc)
{
    struct account *user = acc->user;

    BUG_ON(acc->n_refs <= 0);
    if (--acc->n_refs > 0) {
        return;
    }
    BUG_ON(acc->n_conns != 0 || acc->n_jobs != 0 || acc->unfinished != 0 ||
           acc->job_bytes != 0);
    if (acc != user) {
        forget(a, acc);
        account_put(a, user);
        return;
    }
    acc->idle_since = ++a->clock;
    if (++a->n_idle > ACCOUNT_MAX_IDLE) {
        forget_oldest(a);
    }
}

void accounts_finish(struct accounts *a)
{
    while (a->n_idle > 0) {
        forget_oldest(a);
    }
    for (int i = 0; i < ACCOUNT_BUCKETS; i++) {
        BUG_ON(a->bucket[i] != NULL);
    }
}
