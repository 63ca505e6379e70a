/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_SERVER_H
#define STEPD_DAEMON_NET_SERVER_H

/*
 * The I/O thread's half of the daemon: connections on one side, the engine on
 * the other, requests in flight between them. main.c makes one and runs the
 * loop.
 */

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/wire.h"
#include "daemon/base/log.h"
#include "daemon/net/conn.h"
#include "daemon/net/flight.h"

struct conf;
struct conf_changes;
struct engine;
struct event;
struct listener;

#define SERVER_RETRY_MS CONN_RETRY_MS

struct server {
    struct ev_loop *loop;
    const struct conf *conf;
    struct engine *engine;
    struct listener *listener; /* NULL: does not accept */
    struct conn_host host;
    struct flights flights;
    ev_async wake;
    double step_other_s; /* in metrics: as told last, for it never falls */
    void (*on_wake)(void *ctx); /* after events were drained */
    /* `reload`: as service_reload */
    int (*on_reload)(void *ctx, struct conf_changes *ret, char *why,
                     size_t n_why);
    void *ctx;
    char model_name[256];
    uint32_t self_uid;
    uint64_t started_us;
    uint64_t quiet_us; /* when a request last began or ended */
    bool draining;     /* no new work: a stop has begun */
    /* Connections by slot; an id is (serial << 16 | slot). */
    struct conn **conns;
    int n_slots, n_conns;
    uint64_t serial, last_job;
    struct wire_buf scratch; /* frames on their way to a connection */
    struct log_limit noise;  /* lines that clients can provoke */
    /* counters */
    uint64_t n_accepted, n_refused; /* connections */
    struct account_totals totals;   /* of everybody's requests */
    uint64_t n_requests[WIRE_N_OPS];
    uint64_t n_errors[16]; /* by -code */
};

/* conf and the loop outlive the server. */
int server_create(struct server **ret, struct ev_loop *loop,
                  const struct conf *conf);
/* Ends what is open (the engine is stopped or gone). */
void server_destroy(struct server *s);

/* From here on, connections of this listener are served. */
void server_accept(struct server *s, struct listener *l);
/* The engine whose wake callback is server_wake(s). Before the loop runs. */
void server_attach(struct server *s, struct engine *e);
/* Any thread: events wait. */
void server_wake(void *server);
/* Takes the engine's events to their connections. */
void server_pump(struct server *s);
/* A connected descriptor, as from accept. */
void server_add(struct server *s, int fd);

/* No more connections and no new work; what runs goes on. */
void server_drain(struct server *s);
/* The configuration was read again: who may stay is judged anew. */
void server_reconfigured(struct server *s);
/* Microseconds for which nothing has been in flight. */
uint64_t server_idle_us(const struct server *s);
/* Nothing is in flight and every byte has left. */
bool server_is_quiet(const struct server *s);
/* Writes what can be written now; true when nothing is left. */
bool server_flush(struct server *s);

/* For ops.c and status.c: an error event about request id. */
void server_error(struct server *s, struct conn *c, uint64_t id, int code,
                  const char *detail, uint64_t retry_ms, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));
/* Sends what is in s->scratch. */
void server_send(struct server *s, struct conn *c);
uint64_t server_now_us(void);

#endif
