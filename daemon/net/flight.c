/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Requests in flight, found by job and by connection.
 *
 * Owns the records. I/O thread. The invariant: a flight is in the table from
 * the moment that the engine took its job until its one final event, and in its
 * connection's list for as long as that is open. Both are small: a connection
 * has at most max_in_flight (a list will do), the table what the engine holds.
 * A tenant's account counts the connections whose lists name it.
 */

#include "daemon/net/flight.h"

#include <stdlib.h>

#include "daemon/base/die.h"
#include "daemon/net/conn.h"

bool flight_of(const struct conn *c, const struct account *a)
{
    const struct flight *f = c->flights;

    while (f != NULL && f->account != a) {
        f = f->next_conn;
    }
    return f != NULL;
}

/* The connection has got, or has lost, its only flight of a tenant. */
static void count_conn(const struct flight *f, int by)
{
    if (f->account != f->account->user && !flight_of(f->conn, f->account)) {
        f->account->n_conns += by;
    }
}

struct flight *flight_begin(struct flights *t, struct conn *c, uint64_t job,
                            const struct wire_request *r,
                            struct account *account, size_t bytes,
                            uint64_t now_us)
{
    struct flight **bucket = &t->bucket[job % FLIGHT_BUCKETS];
    struct flight *f = xcalloc(1, sizeof(*f));

    f->job = job;
    f->request = r->id;
    f->op = r->op;
    f->born_us = now_us;
    f->prompt_tokens = -1;
    f->bytes = bytes;
    f->account = account;
    f->account->n_jobs++;
    f->account->job_bytes += bytes;
    f->account->user->totals.begun++;
    f->conn = c;
    count_conn(f, 1);
    f->next_conn = c->flights;
    c->flights = f;
    c->n_flights++;
    f->next_bucket = *bucket;
    *bucket = f;
    t->n++;
    return f;
}

void flight_detach(struct flight *f)
{
    struct flight **p;

    if (f->conn == NULL) {
        return;
    }
    for (p = &f->conn->flights; *p != f; p = &(*p)->next_conn) {
        BUG_ON(*p == NULL);
    }
    *p = f->next_conn;
    f->next_conn = NULL;
    count_conn(f, -1);
    f->conn->n_flights--;
    f->conn = NULL;
}

void flight_end(struct flights *t, struct accounts *a, struct flight *f)
{
    struct flight **p;

    flight_detach(f);
    for (p = &t->bucket[f->job % FLIGHT_BUCKETS]; *p != f;
         p = &(*p)->next_bucket) {
        BUG_ON(*p == NULL);
    }
    *p = f->next_bucket;
    t->n--;
    f->account->n_jobs--;
    f->account->job_bytes -= f->bytes;
    account_put(a, f->account);
    free(f);
}

struct flight *flight_by_job(const struct flights *t, uint64_t job)
{
    struct flight *f = t->bucket[job % FLIGHT_BUCKETS];

    while (f != NULL && f->job != job) {
        f = f->next_bucket;
    }
    return f;
}

struct flight *flight_by_request(const struct conn *c, uint64_t request)
{
    struct flight *f = c->flights;

    while (f != NULL && f->request != request) {
        f = f->next_conn;
    }
    return f;
}
