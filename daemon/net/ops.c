/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The ops: one row each, with the right that it takes. Those that make a job go
 * to the engine; all others are answered here and now, whatever the engine is
 * doing: they read a snapshot and never wait.
 *
 * Owns nothing. I/O thread. The invariant: each function answers with exactly
 * one `done` or `error` (hello: `hello`), or starts a flight, which ends in
 * one.
 *
 * To add an op: enum wire_op and its row in client/wire_table.c, a row here.
 */

#include "daemon/net/ops.h"

#include <errno.h>

#include "config.h"
#include "daemon/base/conf.h"
#include "daemon/base/die.h"
#include "daemon/net/request.h"
#include "daemon/net/server.h"
#include "daemon/sched/engine.h"
#include "daemon/sched/job.h"

enum right { RIGHT_ANY, RIGHT_OBSERVE, RIGHT_GENERATE, RIGHT_ADMIN };

struct op_row {
    void (*run)(struct server *s, struct conn *c, const struct wire_request *r);
    enum right right;
};

/* ---- talk about the connection itself ----------------------------------- */

static void op_hello(struct server *s, struct conn *c,
                     const struct wire_request *r)
{
    const struct conf *k = s->conf;
    struct wire_limit extra[] = {
        {"max_connections", (uint64_t)k->max_connections, ""},
        {"max_connections_per_uid", (uint64_t)k->max_connections_per_uid, ""},
        {"max_connections_per_tenant", (uint64_t)k->max_connections_per_tenant,
         ""},
        {"max_in_flight_per_uid", (uint64_t)k->max_in_flight_per_uid, ""},
        {"max_request_bytes_per_uid", k->max_request_bytes_per_uid, ""},
        {"max_queued_tokens_per_uid", (uint64_t)k->max_queued_tokens_per_uid,
         ""},
        {"max_queue", (uint64_t)k->max_queue, ""},
        {"max_prompt_tokens", (uint64_t)k->max_prompt_tokens, ""},
        {"max_unfinished_per_uid", k->max_unfinished_per_uid, ""},
        {"max_output_soft", k->max_output_soft, ""},
        {"max_output_hard", k->max_output_hard, ""},
        {"frame_timeout_ms", k->frame_timeout, ""},
        {"slow_client_timeout_ms", k->slow_client_timeout, ""},
    };
    struct engine_status st;
    struct wire_limits_now now = {
        .server_version = PACKAGE_VERSION,
        .model = s->model_name,
        .max_prompt_bytes = WIRE_MAX_FRAME,
        .max_in_flight = (uint64_t)k->max_in_flight,
        .extra = extra,
        .n_extra = (int)(sizeof(extra) / sizeof(extra[0])),
    };

    if (c->said_hello) {
        server_error(s, c, r->id, WIRE_E_BAD_REQUEST, "op", 0,
                     "hello was said already");
        return;
    }
    engine_status(s->engine, &st);
    now.max_model_len = st.max_model_len;
    c->said_hello = true;
    (void)wire_put_hello(&s->scratch, r->id, &now);
    server_send(s, c);
}

static void op_ping(struct server *s, struct conn *c,
                    const struct wire_request *r)
{
    struct wire_map m;

    wire_map_begin_done(&m, &s->scratch, r->id);
    wire_map_str(&m, "state", status_state(s));
    (void)wire_map_end(&m);
    server_send(s, c);
}

static void op_describe(struct server *s, struct conn *c,
                        const struct wire_request *r)
{
    (void)wire_put_describe(&s->scratch, r->id);
    server_send(s, c);
}

/* ---- jobs --------------------------------------------------------------- */

/* Whether the engine is there for new work; answers where it is not. */
static bool is_open(struct server *s, struct conn *c,
                    const struct wire_request *r)
{
    struct engine_status st;

    engine_status(s->engine, &st);
    if (st.state == ENGINE_FAILED || st.state == ENGINE_STOPPED) {
        server_error(s, c, r->id, WIRE_E_UNAVAILABLE, NULL, 0, "%s",
                     st.cause[0] != '\0' ? st.cause : "the engine has stopped");
    } else if (s->draining || st.state == ENGINE_DRAINING) {
        server_error(s, c, r->id, WIRE_E_DRAINING, NULL, 0,
                     "no new work is taken");
    } else if (st.state == ENGINE_LOADING && !r->wait) {
        server_error(s, c, r->id, WIRE_E_BUSY, NULL, SERVER_RETRY_MS,
                     "the model is loading");
    } else if (c->n_flights >= s->conf->max_in_flight) {
        server_error(s, c, r->id, WIRE_E_BUSY, NULL, SERVER_RETRY_MS,
                     "%d requests are in flight on this connection "
                     "(max_in_flight): wait for one",
                     c->n_flights);
    } else {
        return true;
    }
    return false;
}

/* What a (uid, tenant) may have in flight at once: requests, bytes of them,
 * which lie in memory until they end, and for a tenant connections that they
 * are on. A single request is never too large, for no limit is below a frame.
 * Answers where it is full. */
static bool within_quota(struct server *s, struct conn *c, uint64_t id,
                         const struct account *a, size_t bytes)
{
    const char *whose = a->tenant[0] != '\0' ? "tenant" : "user";

    if (a->n_jobs >= s->conf->max_in_flight_per_uid) {
        server_error(s, c, id, WIRE_E_BUSY, NULL, SERVER_RETRY_MS,
                     "%d requests of this %s are in flight "
                     "(max_in_flight_per_uid): wait for one",
                     a->n_jobs, whose);
    } else if (a != a->user && !flight_of(c, a) &&
               a->n_conns >= s->conf->max_connections_per_tenant) {
        server_error(s, c, id, WIRE_E_BUSY, NULL, SERVER_RETRY_MS,
                     "requests of this tenant are in flight on %d connections "
                     "(max_connections_per_tenant): ask on one of those, or "
                     "wait for one",
                     a->n_conns);
    } else if (a->n_jobs > 0 &&
               a->job_bytes + bytes > s->conf->max_request_bytes_per_uid) {
        server_error(s, c, id, WIRE_E_BUSY, NULL, SERVER_RETRY_MS,
                     "%zu bytes of requests of this %s are in flight, with "
                     "this one more than max_request_bytes_per_uid",
                     a->job_bytes, whose);
    } else {
        return true;
    }
    return false;
}

static void op_job(struct server *s, struct conn *c,
                   const struct wire_request *r)
{
    struct wire_error err;
    struct account *a;
    struct job *j = NULL;
    uint64_t now = server_now_us(), id;
    size_t bytes;
    int code;

    if (!is_open(s, c, r)) {
        return;
    }
    code = request_to_job(r, s->conf, &c->peer, &j, &err);
    if (code < 0) {
        server_error(s, c, r->id, code, err.detail, 0, "%s", err.message);
        return;
    }
    a = account_get(&s->host.accounts, c->peer.uid, j->tenant);
    bytes = job_bytes(j);
    if (!within_quota(s, c, r->id, a, bytes)) {
        account_put(&s->host.accounts, a);
        job_destroy(j);
        return;
    }
    id = ++s->last_job;
    j->id = id;
    j->conn = c->id;
    j->born_us = now;
    j->paused = c->soft;
    code = engine_submit(s->engine, j);
    if (code == 0) {
        flight_begin(&s->flights, c, id, r, a, bytes, now);
        s->totals.begun++;
        s->quiet_us = now;
        return;
    }
    account_put(&s->host.accounts, a);
    job_destroy(j);
    if (code == -EBUSY) {
        server_error(s, c, r->id, WIRE_E_BUSY, NULL, SERVER_RETRY_MS,
                     "the queue is full");
    } else if (is_open(s, c, r)) { /* else it has just changed, and is told */
        server_error(s, c, r->id, WIRE_E_DRAINING, NULL, 0,
                     "no new work is taken");
    }
}

static void op_cancel(struct server *s, struct conn *c,
                      const struct wire_request *r)
{
    struct flight *f;
    struct wire_map m;

    f = r->target != 0 ? flight_by_request(c, r->target)
                       : flight_by_job(&s->flights, r->job);
    /* Another user's job is answered as one that is not: what others do is
     * not to be found out by trying numbers. */
    if (f == NULL || (f->account->uid != c->peer.uid && !c->peer.is_admin)) {
        server_error(s, c, r->id, WIRE_E_NOT_FOUND,
                     r->target != 0 ? "target" : "job", 0,
                     "no such request is running");
        return;
    }
    f->cancelled = true;
    engine_cancel(s->engine, f->job);
    wire_map_begin_done(&m, &s->scratch, r->id);
    wire_map_uint(&m, "cancelled", 1);
    (void)wire_map_end(&m);
    server_send(s, c);
}

/* ---- administration ----------------------------------------------------- */

static void op_drain(struct server *s, struct conn *c,
                     const struct wire_request *r)
{
    struct wire_map m;

    engine_drain(s->engine, !r->off);
    log_info("drain %s by uid=%u", r->off ? "ended" : "begun", c->peer.uid);
    wire_map_begin_done(&m, &s->scratch, r->id);
    wire_map_str(&m, "state", status_state(s));
    (void)wire_map_end(&m);
    server_send(s, c);
}

static void op_reload(struct server *s, struct conn *c,
                      const struct wire_request *r)
{
    struct conf_changes changes;
    struct wire_map m, list;
    char why[200] = "";
    uint64_t id = r->id;
    int err;

    log_info("reload by uid=%u", c->peer.uid);
    err = s->on_reload(s->ctx, &changes, why, sizeof(why));
    if (err == -EPERM) {
        server_error(s, c, id, WIRE_E_UNSUPPORTED, NULL, 0, "%s", why);
    } else if (err < 0) {
        server_error(s, c, id, WIRE_E_BAD_REQUEST, NULL, 0, "%s", why);
    } else {
        wire_map_begin_done(&m, &s->scratch, id);
        wire_map_open_list(&m, "changed", &list);
        for (int i = 0; i < changes.n; i++) {
            wire_list_str(&list, changes.key[i]);
        }
        wire_map_close(&list);
        (void)wire_map_end(&m);
        server_send(s, c);
    }
}

/* ---- the table ---------------------------------------------------------- */

static const struct op_row rows[WIRE_N_OPS] = {
    [WIRE_HELLO] = {op_hello, RIGHT_ANY},
    [WIRE_PING] = {op_ping, RIGHT_ANY},
    [WIRE_DESCRIBE] = {op_describe, RIGHT_ANY},
    [WIRE_GENERATE] = {op_job, RIGHT_GENERATE},
    [WIRE_CANCEL] = {op_cancel, RIGHT_GENERATE},
    [WIRE_TOKENIZE] = {op_job, RIGHT_GENERATE},
    [WIRE_DETOKENIZE] = {op_job, RIGHT_GENERATE},
    [WIRE_RENDER] = {op_job, RIGHT_GENERATE},
    [WIRE_SCORE] = {op_job, RIGHT_GENERATE},
    [WIRE_STATUS] = {status_op, RIGHT_OBSERVE},
    [WIRE_METRICS] = {metrics_op, RIGHT_OBSERVE},
    [WIRE_SESSION_LIST] = {op_job, RIGHT_GENERATE},
    [WIRE_SESSION_PIN] = {op_job, RIGHT_GENERATE},
    [WIRE_SESSION_UNPIN] = {op_job, RIGHT_GENERATE},
    [WIRE_SESSION_SAVE] = {op_job, RIGHT_GENERATE},
    [WIRE_SESSION_RESTORE] = {op_job, RIGHT_GENERATE},
    [WIRE_SESSION_DROP] = {op_job, RIGHT_GENERATE},
    [WIRE_SESSION_FORK] = {op_job, RIGHT_GENERATE},
    [WIRE_DRAIN] = {op_drain, RIGHT_ADMIN},
    [WIRE_RELOAD] = {op_reload, RIGHT_ADMIN},
};

static bool has_right(const struct peer *p, enum right right)
{
    switch (right) {
    case RIGHT_ANY:
        return true;
    case RIGHT_OBSERVE:
        return p->may_observe;
    case RIGHT_GENERATE:
        return p->may_generate;
    case RIGHT_ADMIN:
        return p->is_admin;
    }
    return false;
}

void ops_run(struct server *s, struct conn *c, const struct wire_request *r)
{
    const struct op_row *row = &rows[r->op];

    BUG_ON(r->op >= WIRE_N_OPS || row->run == NULL);
    if (!has_right(&c->peer, row->right)) {
        server_error(s, c, r->id, WIRE_E_DENIED, "op", 0,
                     "this user may not %s here", wire_op_name(r->op));
        return;
    }
    row->run(s, c, r);
}
