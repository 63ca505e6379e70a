/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The accounts behind fair shares between (uid, tenant). Engine thread only.
 * The policy on them is batch.c's; here is only who is who.
 *
 * The clock is where the least served owner stands, and never goes back.
 * Somebody new, or back after a pause, starts near it: an account is a debt of
 * the others, and time in which one wanted nothing does not count as one.
 */

#include "daemon/sched/share.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

/* Owners remembered although they ask for nothing now. */
#define IDLE_OWNERS 64

struct owner {
    uint32_t uid;
    char tenant[JOB_MAX_TENANT + 1];
    int n_live;
    bool used;
};

struct shares {
    int n;
    struct owner *owner;         /* [n] */
    struct batch_owner *account; /* [n] */
    int64_t clock;
};

int shares_create(struct shares **ret, int n_live)
{
    struct shares *s = xcalloc(1, sizeof(*s));

    s->n = n_live + IDLE_OWNERS;
    s->owner = calloc((size_t)s->n, sizeof(*s->owner));
    s->account = calloc((size_t)s->n, sizeof(*s->account));
    if (s->owner == NULL || s->account == NULL) {
        shares_destroy(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void shares_destroy(struct shares *s)
{
    if (s == NULL) {
        return;
    }
    free(s->owner);
    free(s->account);
    free(s);
}

/* The owner's place, or one for it: a free one, or that of the idle owner
 * whose account is the furthest back. */
static int find(struct shares *s, const struct job *j)
{
    int spare = -1;

    for (int i = 0; i < s->n; i++) {
        const struct owner *o = &s->owner[i];

        if (o->used && o->uid == j->uid && strcmp(o->tenant, j->tenant) == 0) {
            return i;
        }
        if (spare >= 0 && !s->owner[spare].used) {
            continue;
        }
        if (!o->used ||
            (o->n_live == 0 &&
             (spare < 0 || s->account[i].served < s->account[spare].served))) {
            spare = i;
        }
    }
    BUG_ON(spare < 0);
    s->owner[spare] = (struct owner){.uid = j->uid, .used = true};
    snprintf(s->owner[spare].tenant, sizeof(s->owner[spare].tenant), "%s",
             j->tenant);
    s->account[spare].served = INT64_MIN;
    return spare;
}

static void advance(struct shares *s)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < s->n; i++) {
        if (s->owner[i].n_live > 0 && s->account[i].served < least) {
            least = s->account[i].served;
        }
    }
    if (least != INT64_MAX && least > s->clock) {
        s->clock = least;
    }
}

int share_join(struct shares *s, const struct job *j, int soft_rows)
{
    int me = find(s, j);

    if (s->owner[me].n_live == 0) {
        s->account[me].served =
            batch_owner_wakes(s->account[me].served, s->clock, soft_rows);
    }
    s->owner[me].n_live++;
    return me;
}

void share_leave(struct shares *s, int owner)
{
    BUG_ON(s->owner[owner].n_live == 0);
    s->owner[owner].n_live--;
}

void share_charge(struct shares *s, int owner, int rows)
{
    s->account[owner].served += rows;
    advance(s);
}

const struct batch_owner *shares_table(const struct shares *s, int *ret_n)
{
    *ret_n = s->n;
    return s->account;
}
