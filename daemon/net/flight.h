/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_FLIGHT_H
#define STEPD_DAEMON_NET_FLIGHT_H

/*
 * Requests in flight: what the engine has taken and not yet ended. A flight
 * outlives its connection, for the engine still owes it one final event.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/wire.h"
#include "daemon/net/account.h"

struct conn;

#define FLIGHT_BUCKETS 1024

struct flight {
    struct flight *next_bucket; /* flights::bucket */
    struct flight *next_conn;   /* conn::flights */
    struct conn *conn;          /* NULL: gone */
    struct account *account;    /* of the (uid, tenant) */
    uint64_t job, request;
    enum wire_op op;
    uint64_t born_us;
    size_t bytes;      /* of the request, on the account */
    bool cancelled;    /* somebody asked for its end */
    uint64_t n_ids;    /* sent in parts so far */
    int prompt_tokens; /* as accepted said; -1: not yet */
    int cached_tokens; /* of them not computed, as far as progress told */
    uint64_t n_tokens; /* of the answer so far */
    uint64_t first_us; /* when the first of them came; 0: not yet */
};

struct flights {
    struct flight *bucket[FLIGHT_BUCKETS];
    int n;
};

/* A flight of this connection; the account, which it takes over with its
 * reference, gets one more job of so many bytes. */
struct flight *flight_begin(struct flights *t, struct conn *c, uint64_t job,
                            const struct wire_request *r,
                            struct account *account, size_t bytes,
                            uint64_t now_us);
/* After the final event: forgets it everywhere. */
void flight_end(struct flights *t, struct accounts *a, struct flight *f);
/* The connection is gone; the flight goes on without. */
void flight_detach(struct flight *f);

/* Whether the connection has a flight on this account. */
bool flight_of(const struct conn *c, const struct account *a);
struct flight *flight_by_job(const struct flights *t, uint64_t job);
struct flight *flight_by_request(const struct conn *c, uint64_t request);

#endif
