/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Connections on one side, the engine on the other.
 *
 * Owns the table of connections, the requests in flight and the counters. I/O
 * thread, except for server_wake. What a request means is in ops.c, how bytes
 * become frames in conn.c; here is who may enter, which frame goes to which op,
 * and which event to which connection. The invariants:
 *   - exactly one `done` or `error` ends each request that was accepted, and
 * one `error` each that was not;
 *   - a flight is in the table until its final event, whether its connection
 *     lives or not, so no count is ever lost;
 *   - engine events carry ids: one for a flight that is gone is dropped.
 */

#include "daemon/net/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/conf.h"
#include "daemon/base/die.h"
#include "daemon/net/listen.h"
#include "daemon/net/ops.h"
#include "daemon/net/reply.h"
#include "daemon/sched/engine.h"
#include "daemon/sched/job.h"

#define SLOT_BITS 16 /* conf.c: max_connections <= 60000 */
#define SCRATCH_KEEP (256u << 10)

uint64_t server_now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- answers ------------------------------------------------------------ */

/* Empty, and small again after a long result. */
static void reset_scratch(struct server *s)
{
    if (s->scratch.cap > SCRATCH_KEEP) {
        wire_buf_finish(&s->scratch);
        wire_buf_init(&s->scratch, SIZE_MAX);
    }
    s->scratch.n = 0;
    s->scratch.err = 0;
}

void server_send(struct server *s, struct conn *c)
{
    conn_put(c, &s->scratch);
    reset_scratch(s);
}

static void count_error(struct server *s, int code)
{
    BUG_ON(code >= 0 ||
           -code >= (int)(sizeof(s->n_errors) / sizeof(s->n_errors[0])));
    s->n_errors[-code]++;
}

void server_error(struct server *s, struct conn *c, uint64_t id, int code,
                  const char *detail, uint64_t retry_ms, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    count_error(s, code);
    (void)wire_put_error(&s->scratch, id, code, text, detail, retry_ms);
    server_send(s, c);
}

/* A line about what a peer did wrong, within the budget. No text of his. */
static void log_refusal(struct server *s, uint32_t uid, int code,
                        const char *what)
{
    struct log_about about = LOG_ABOUT(LOG_ID_REFUSED);
    uint64_t dropped;

    if (!log_limit_ok(&s->noise, (int64_t)(server_now_us() / 1000), &dropped)) {
        return;
    }
    if (dropped > 0) {
        log_warn("%llu lines about refused clients were left out",
                 (unsigned long long)dropped);
    }
    about.uid = uid;
    log_event(LOG_WARN, &about, "uid=%u refused: %s (%s)", uid,
              wire_code_name(code), what);
}

/* ---- frames of a connection --------------------------------------------- */

/* An id that is in flight must not seem to end by an error about another
 * request. */
static uint64_t safe_id(const struct conn *c, uint64_t id)
{
    return flight_by_request(c, id) != NULL ? 0 : id;
}

static void refuse_frame(struct server *s, struct conn *c,
                         const struct wire_error *err)
{
    bool closes = err->code == WIRE_E_BAD_FRAME || err->code == WIRE_E_VERSION;
    uint64_t id = err->code == WIRE_E_BAD_FRAME ? 0 : safe_id(c, err->id);

    server_error(s, c, id, err->code, err->detail, 0, "%s", err->message);
    if (closes) {
        log_refusal(s, c->peer.uid, err->code, "connection closed");
        conn_close(c);
    }
}

static void on_frame(struct conn *c, const uint8_t *body, size_t n)
{
    struct server *s = c->host->ctx;
    struct wire_request *r = NULL;
    struct wire_error err;

    memset(&err, 0, sizeof(err));
    if (wire_decode_request(body, n, &r, &err) < 0) {
        refuse_frame(s, c, &err);
        return;
    }
    s->n_requests[r->op]++;
    if (!c->said_hello && r->op != WIRE_HELLO) {
        server_error(s, c, r->id, WIRE_E_BAD_REQUEST, "op", 0,
                     "hello must come first");
        conn_close(c);
    } else if (flight_by_request(c, r->id) != NULL) {
        server_error(s, c, 0, WIRE_E_BAD_REQUEST, "id", 0,
                     "id %llu is in flight already", (unsigned long long)r->id);
    } else {
        ops_run(s, c, r);
    }
    wire_request_destroy(r);
}

static void on_slow(struct conn *c, bool slow)
{
    struct server *s = c->host->ctx;

    for (struct flight *f = c->flights; f != NULL; f = f->next_conn) {
        engine_pause(s->engine, f->job, slow);
    }
}

static void on_gone(struct conn *c)
{
    struct server *s = c->host->ctx;

    while (c->flights != NULL) {
        struct flight *f = c->flights;

        f->cancelled = true;
        engine_cancel(s->engine, f->job);
        flight_detach(f);
    }
}

static void on_swept(struct conn *c)
{
    struct server *s = c->host->ctx;
    int slot = (int)(c->id & ((1u << SLOT_BITS) - 1));

    BUG_ON(s->conns[slot] != c);
    s->conns[slot] = NULL;
    s->n_conns--;
    if (s->listener != NULL) {
        listen_retry(s->listener); /* a descriptor is free again */
    }
}

static const struct conn_ops conn_ops = {
    .frame = on_frame,
    .slow = on_slow,
    .gone = on_gone,
    .swept = on_swept,
};

/* ---- new connections ---------------------------------------------------- */

/* Where not even a struct conn is made: one error frame into the socket's
 * empty buffer, and gone. */
static void turn_away(struct server *s, int fd, uint32_t uid, const char *text)
{
    s->n_refused++;
    count_error(s, WIRE_E_BUSY);
    log_refusal(s, uid, WIRE_E_BUSY, text);
    if (wire_put_error(&s->scratch, 0, WIRE_E_BUSY, text, NULL,
                       SERVER_RETRY_MS) == 0 &&
        send(fd, s->scratch.p, s->scratch.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* He has gone before he was answered. */
    }
    reset_scratch(s);
    close(fd);
}

/* One more than a limit allows. */
static void turn_away_full(struct server *s, int fd, uint32_t uid, int n,
                           const char *whose, const char *limit)
{
    char text[128];

    (void)snprintf(text, sizeof(text),
                   "too many connections%s: %d are open (%s)", whose, n, limit);
    turn_away(s, fd, uid, text);
}

static int n_conns_of(struct server *s, uint32_t uid)
{
    struct account *a = account_get(&s->host.accounts, uid, "");
    int n = a->n_conns;

    account_put(&s->host.accounts, a);
    return n;
}

static int free_slot(struct server *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        int slot = (int)((s->serial + (uint64_t)i) % (uint64_t)s->n_slots);

        if (s->conns[slot] == NULL) {
            return slot;
        }
    }
    return -1;
}

/* He cannot read stepd.conf, it may be: what to ask for is in the message. */
static void deny(struct server *s, struct conn *c, const char *log,
                 const char *may)
{
    char text[256];

    s->n_refused++;
    count_error(s, WIRE_E_DENIED);
    log_refusal(s, c->peer.uid, WIRE_E_DENIED, log);
    if (c->peer.uid == PEER_NOBODY) {
        (void)snprintf(text, sizeof(text),
                       "this user %s use this daemon: uid %d is what it sees "
                       "of every user unknown to its user namespace "
                       "(PrivateUsers=yes, or a container)",
                       may, PEER_NOBODY);
    } else {
        (void)snprintf(text, sizeof(text),
                       "this user %s use this daemon: uid %u is on no list of "
                       "its stepd.conf (allow_users, allow_groups; an "
                       "administrator adds it and reloads)",
                       may, c->peer.uid);
    }
    conn_fail(c, WIRE_E_DENIED, text);
}

void server_add(struct server *s, int fd)
{
    struct peer_ids ids;
    struct peer peer;
    struct conn *c;
    bool welcome;
    int slot, n, r;

    r = peer_read(fd, &ids);
    if (r < 0) {
        log_warn("cannot tell who connects: %s", strerror(-r));
        close(fd);
        return;
    }
    welcome = peer_judge(&ids, s->conf, s->self_uid, &peer);
    slot = free_slot(s);
    if (slot < 0) {
        turn_away_full(s, fd, ids.uid, s->n_conns, "", "max_connections");
        return;
    }
    n = n_conns_of(s, ids.uid);
    if (n >= s->conf->max_connections_per_uid) {
        turn_away_full(s, fd, ids.uid, n, " of this user",
                       "max_connections_per_uid");
        return;
    }
    s->n_accepted++;
    s->n_conns++;
    c = conn_create(&s->host, fd, &peer,
                    s->serial++ << SLOT_BITS | (uint64_t)slot);
    s->conns[slot] = c;
    log_debug("uid=%u pid=%d connected", peer.uid, (int)peer.pid);
    if (!welcome) {
        deny(s, c, "not on a list", "may not");
    }
}

static void on_accept(void *ctx, int fd)
{
    server_add(ctx, fd);
}

void server_accept(struct server *s, struct listener *l)
{
    s->listener = l;
    listen_start(l, s->loop, on_accept, s);
}

/* ---- events of the engine ----------------------------------------------- */

/* One line a request. Numbers and words of ours only, never text. */
static void log_end(const struct flight *f, const struct event *e)
{
    struct log_about about = LOG_ABOUT(LOG_ID_REQUEST);
    double total_ms = (double)(server_now_us() - f->born_us) / 1e3;

    about.request_id = (int64_t)f->job;
    about.uid = f->account->uid;
    about.duration_ms = (int64_t)total_ms;
    if (e->type == EVENT_ERROR) {
        log_event(LOG_INFO, &about,
                  "request uid=%u job=%llu op=%s finish=error code=%s "
                  "total_ms=%.1f",
                  f->account->uid, (unsigned long long)f->job,
                  wire_op_name(f->op), e->code, total_ms);
    } else if (e->plain) {
        log_event(LOG_INFO, &about,
                  "request uid=%u job=%llu op=%s finish=done ids=%llu "
                  "total_ms=%.1f",
                  f->account->uid, (unsigned long long)f->job,
                  wire_op_name(f->op), (unsigned long long)f->n_ids, total_ms);
    } else {
        about.tokens = e->usage.prompt_tokens + e->usage.completion_tokens;
        log_event(LOG_INFO, &about,
                  "request uid=%u job=%llu op=%s finish=%s prompt_tokens=%d "
                  "cached_tokens=%d completion_tokens=%d drafted=%d "
                  "accepted=%d queue_ms=%.1f prefill_ms=%.1f decode_ms=%.1f "
                  "total_ms=%.1f",
                  f->account->uid, (unsigned long long)f->job,
                  wire_op_name(f->op), reply_finish_name(e),
                  e->usage.prompt_tokens, e->usage.cached_tokens,
                  e->usage.completion_tokens, e->usage.drafted,
                  e->usage.accepted, e->timings.queue_ms, e->timings.prefill_ms,
                  e->timings.decode_ms, total_ms);
    }
}

static enum account_outcome outcome_of(const struct event *e)
{
    if (e->type == EVENT_ERROR) {
        return OUTCOME_ERROR;
    }
    if (e->plain) {
        return OUTCOME_ANSWERED;
    }
    switch (e->finish) {
    case FINISH_STOP:
        return OUTCOME_STOP;
    case FINISH_LENGTH:
        return OUTCOME_LENGTH;
    case FINISH_TOOL_CALLS:
        return OUTCOME_TOOL_CALLS;
    case FINISH_CANCELLED:
        return OUTCOME_CANCELLED;
    case FINISH_TIMEOUT:
        return OUTCOME_TIMEOUT;
    }
    return OUTCOME_ERROR;
}

static void add_end(struct account_totals *t, const struct event *e)
{
    t->outcome[outcome_of(e)]++;
    if (e->type == EVENT_DONE && !e->plain) {
        t->prompt_tokens += (uint64_t)e->usage.prompt_tokens;
        t->cached_tokens += (uint64_t)e->usage.cached_tokens;
        t->completion_tokens += (uint64_t)e->usage.completion_tokens;
    }
}

static void count_end(struct server *s, const struct flight *f,
                      const struct event *e)
{
    if (e->type == EVENT_ERROR) {
        count_error(s, wire_code_find(e->code, strlen(e->code)));
    }
    add_end(&s->totals, e);
    add_end(&f->account->user->totals, e);
}

/* What status says of a running request. */
static void note(struct flight *f, const struct event *e)
{
    if (e->type == EVENT_PROGRESS) {
        f->cached_tokens = e->cached;
    } else if (e->type == EVENT_DELTA) {
        f->n_tokens = (uint64_t)e->usage.completion_tokens;
        f->first_us = f->first_us != 0 ? f->first_us : server_now_us();
    }
}

static void deliver(struct server *s, const struct event *e)
{
    struct flight *f = flight_by_job(&s->flights, e->job);

    if (f == NULL) {
        return;
    }
    reply_event(&s->scratch, e, f);
    if (f->conn != NULL) {
        conn_put(f->conn, &s->scratch);
    }
    reset_scratch(s);
    note(f, e);
    if (reply_is_final(e)) {
        count_end(s, f, e);
        log_end(f, e);
        flight_end(&s->flights, &s->host.accounts, f);
        s->quiet_us = server_now_us();
    }
}

void server_pump(struct server *s)
{
    struct event *e;

    while ((e = engine_poll(s->engine)) != NULL) {
        deliver(s, e);
        event_destroy(e);
    }
}

static void on_async(struct ev_loop *loop, ev_async *w, int revents)
{
    struct server *s = w->data;

    (void)loop;
    (void)revents;
    server_pump(s);
    if (s->on_wake != NULL) {
        s->on_wake(s->ctx);
    }
}

void server_wake(void *server)
{
    struct server *s = server;

    ev_async_send(s->loop, &s->wake);
}

/* ---- the whole ---------------------------------------------------------- */

/* The name that clients see: the configured one, or the folder's last. */
static void name_model(struct server *s)
{
    const char *path = s->conf->model, *end = path + strlen(path), *start;

    if (s->conf->served_model_name[0] != '\0') {
        (void)snprintf(s->model_name, sizeof(s->model_name), "%s",
                       s->conf->served_model_name);
        return;
    }
    while (end > path && end[-1] == '/') {
        end--;
    }
    for (start = end; start > path && start[-1] != '/'; start--) {
    }
    (void)snprintf(s->model_name, sizeof(s->model_name), "%.*s",
                   (int)(end - start), start);
}

int server_create(struct server **ret, struct ev_loop *loop,
                  const struct conf *conf)
{
    struct server *s = xcalloc(1, sizeof(*s));

    s->loop = loop;
    s->conf = conf;
    s->self_uid = (uint32_t)geteuid();
    s->started_us = server_now_us();
    s->noise = (struct log_limit)LOG_LIMIT(10, 10000);
    s->n_slots = conf->max_connections;
    s->conns = xcalloc((size_t)s->n_slots, sizeof(s->conns[0]));
    wire_buf_init(&s->scratch, SIZE_MAX);
    name_model(s);
    conn_host_init(&s->host, loop, conf, &conn_ops, s);
    ev_async_init(&s->wake, on_async);
    s->wake.data = s;
    ev_async_start(loop, &s->wake);
    *ret = s;
    return 0;
}

void server_reconfigured(struct server *s)
{
    name_model(s);
    for (int i = 0; i < s->n_slots; i++) {
        struct conn *c = s->conns[i];
        struct peer_ids ids;

        if (c == NULL || c->state != CONN_OPEN || peer_read(c->fd, &ids) < 0 ||
            peer_judge(&ids, s->conf, s->self_uid, &c->peer)) {
            continue;
        }
        deny(s, c, "no longer on a list", "may no longer");
    }
}

void server_attach(struct server *s, struct engine *e)
{
    s->engine = e;
}

void server_drain(struct server *s)
{
    s->draining = true;
    if (s->listener != NULL) {
        listen_stop(s->listener);
        s->listener = NULL;
    }
}

uint64_t server_idle_us(const struct server *s)
{
    return s->flights.n > 0 ? 0 : server_now_us() - s->quiet_us;
}

bool server_is_quiet(const struct server *s)
{
    if (s->flights.n > 0) {
        return false;
    }
    for (int i = 0; i < s->n_slots; i++) {
        if (s->conns[i] != NULL && !conn_flushed(s->conns[i])) {
            return false;
        }
    }
    return true;
}

bool server_flush(struct server *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        if (s->conns[i] != NULL) {
            conn_flush(s->conns[i]);
        }
    }
    return server_is_quiet(s);
}

void server_destroy(struct server *s)
{
    if (s == NULL) {
        return;
    }
    server_drain(s);
    for (int i = 0; i < s->n_slots; i++) {
        if (s->conns[i] != NULL) {
            conn_kill(s->conns[i]);
        }
    }
    for (int i = 0; i < FLIGHT_BUCKETS; i++) {
        while (s->flights.bucket[i] != NULL) {
            flight_end(&s->flights, &s->host.accounts, s->flights.bucket[i]);
        }
    }
    conn_host_finish(&s->host);
    ev_async_stop(s->loop, &s->wake);
    wire_buf_finish(&s->scratch);
    free(s->conns);
    free(s);
}
