/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_ACCOUNT_H
#define STEPD_DAEMON_NET_ACCOUNT_H

/*
 * What each user holds of what is limited, and what he has had so far.
 *
 * An account is that of a (uid, tenant). The one without a tenant is the
 * user's own: connections, unfinished frames and totals are on it, whatever
 * tenant a request named; requests in flight are on the pair's. A tenant has no
 * connections of its own, for a gateway may put many on one: its account counts
 * those on which it has requests in flight.
 */

#include <stddef.h>
#include <stdint.h>

#include "client/wire.h"

#define ACCOUNT_BUCKETS 256
/* Users whose totals are remembered though they have nothing open. */
#define ACCOUNT_MAX_IDLE 1024

/* How a request that became a job ended. */
enum account_outcome {
    OUTCOME_STOP,
    OUTCOME_LENGTH,
    OUTCOME_TOOL_CALLS,
    OUTCOME_ANSWERED, /* an op that generates nothing */
    OUTCOME_CANCELLED,
    OUTCOME_TIMEOUT,
    OUTCOME_ERROR,
    OUTCOME_N
};

/* Requests that became jobs, how they ended, and the tokens of those that
 * have. */
struct account_totals {
    uint64_t begun, outcome[OUTCOME_N];
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
};

struct account {
    struct account *next; /* in its bucket */
    struct account *user; /* the same uid's own; itself where this is it */
    uint32_t uid;
    char tenant[WIRE_MAX_TENANT + 1];
    int n_refs; /* connections, jobs and tenants' accounts that point here */
    int n_conns;
    int n_jobs;
    size_t job_bytes;  /* of the requests behind n_jobs */
    size_t unfinished; /* bytes */
    uint64_t idle_since;
    struct account_totals totals;
};

struct accounts {
    struct account *bucket[ACCOUNT_BUCKETS];
    int n_idle;
    uint64_t clock; /* of idle_since: counts, does not tell time */
};

/* The account of a pair, made where there is none, with one more reference.
 * tenant "": the user's own. */
struct account *account_get(struct accounts *a, uint32_t uid,
                            const char *tenant);
/* Drops one; a tenant's account goes with the last, a user's own is kept until
 * ACCOUNT_MAX_IDLE others have fallen idle after it. */
void account_put(struct accounts *a, struct account *acc);
/* Frees all; nobody may hold a reference. */
void accounts_finish(struct accounts *a);

#endif
