/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Requests that go on with a named session, and the ops on sessions. Engine
 * thread only. The table is named.c's, files are core_save.c's.
 *
 * A request for a session comes here before it is rendered: it waits until
 * nobody else writes the session, gets the session's messages where it appends,
 * goes (back) to the preparation thread, and comes again as a granted job. The
 * grant ends with the request, whatever becomes of it.
 *
 * What a turn leaves: once a token of its answer was drawn, the turn's messages
 * and the answer as far as it was told are the session's, also when it was
 * cancelled or its reader went away; before that the session stays as it was,
 * and so it does where the request fails.
 * What was computed is in the prefix index in either case.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/sched/core_priv.h"

/* Sessions in one part of a list. */
#define LIST_PART 256

/* ---- ends of jobs that never became tasks -------------------------------- */

void core_refuse(struct core *c, struct job *j, const char *code,
                 const char *detail, const char *fmt, ...)
{
    uint64_t id = j->id;
    struct event *e;
    va_list ap;

    if (ticket_take(c->conf.tickets, id)) {
        e = event_error(j, code, "%s", "");
        va_start(ap, fmt);
        (void)vsnprintf(e->message, sizeof(e->message), fmt, ap);
        va_end(ap);
        (void)snprintf(e->detail, sizeof(e->detail), "%s", detail);
        core_send(c, e);
    }
    c->counts.failed++;
    job_destroy(j);
    ticket_close(c->conf.tickets, id);
}

static void drop_job(struct core *c, struct job *j)
{
    uint64_t id = j->id;

    job_destroy(j);
    ticket_close(c->conf.tickets, id);
}

static struct named *find(struct core *c, const struct job *j)
{
    return named_find(&c->named, j->uid, j->tenant, j->session);
}

static void run_op(struct core *c, struct job *j, struct named *n);

/* ---- the writer ---------------------------------------------------------- */

/* Whether the owner may keep a conversation of so many bytes in this session;
 * else the job has got its end. */
static bool has_room(struct core *c, const struct named *n, struct job *j,
                     uint64_t bytes)
{
    uint64_t others, most = c->named.limits.text_per_owner;

    if (named_has_room(&c->named, j->uid, j->tenant, n, bytes, &others)) {
        return true;
    }
    core_refuse(c, j, bytes > most ? "too_long" : "busy", "session",
                "messages and tools of %" PRIu64 " bytes beside %" PRIu64
                " of this user's other sessions, at most %" PRIu64
                " (max_session_text_per_owner): %s",
                bytes, others, most,
                bytes > most ? "begin a new one" : "drop some");
    return false;
}

/* Gives the session to the job. */
static void start(struct core *c, struct named *n, struct job *j)
{
    BUG_ON(n->writer != 0);
    if (ticket_answered(c->conf.tickets, j->id)) {
        drop_job(c, j);
    } else if (j->append && n->n_ids == 0) {
        core_refuse(c, j, "not_found", "session", "no session %s", j->session);
    } else if (j->append && n->messages.p == NULL) {
        core_refuse(c, j, "bad_request", "append",
                    "session %s holds a raw prompt: there are no messages to "
                    "append to",
                    j->session);
    } else if (j->append && named_append(n, j) < 0) {
        core_refuse(c, j, "no_memory", "",
                    "not enough memory for this request");
    } else if (has_room(c, n, j, j->messages.n + j->tools.n)) {
        n->writer = j->id;
        n->used_us = core_now_us(c);
        j->granted = true;
        c->conf.prepare(c->conf.ctx, j);
    }
}

/* Nobody writes it now: the next one's turn. One that never got anything and
 * that nobody waits for is forgotten. */
void core_named_next(struct core *c, struct named *n)
{
    struct job *j;

    if (!n->loaded) {
        if (n->wait != NULL) {
            core_load(c, n);
        }
        return;
    }
    while (n->writer == 0 && (j = named_next(n)) != NULL) {
        if (j->kind == JOB_SESSION) {
            run_op(c, j, n);
        } else {
            start(c, n, j);
        }
    }
    if (n->writer == 0 && n->n_ids == 0) {
        named_destroy(&c->named, n);
    }
}

void core_named_add(struct core *c, struct job *j)
{
    struct named *n = find(c, j);

    if (ticket_answered(c->conf.tickets, j->id)) {
        drop_job(c, j);
        return;
    }
    if (n == NULL && j->append) {
        core_refuse(c, j, "not_found", "session",
                    "no session %s: without append one is begun", j->session);
        return;
    }
    if (n == NULL) {
        n = named_make(&c->named, j->uid, j->tenant, j->session);
    }
    if (n == NULL) {
        core_refuse(c, j, "busy", "session",
                    "%d sessions of this user, %d in all: drop some",
                    named_count(&c->named, j->uid, j->tenant), c->named.n);
        return;
    }
    n->salt = core_salt(c, j->uid, j->tenant);
    named_wait(n, j);
    if (n->writer == 0) {
        core_named_next(c, n);
    }
}

bool core_named_cancel(struct core *c, const struct ticket_call *call)
{
    struct job *j = named_take(&c->named, call->job);
    struct event *e;

    if (j == NULL) {
        return false;
    }
    if (ticket_take(c->conf.tickets, j->id)) {
        e = event_create(EVENT_DONE, j);
        e->finish = call->finish;
        core_send(c, e);
    }
    c->counts.cancelled++;
    drop_job(c, j);
    return true;
}

void core_named_free(struct core *c, uint64_t job)
{
    struct named *n = named_by_writer(&c->named, job);

    if (n != NULL) {
        n->writer = 0;
        core_named_next(c, n);
    }
}

static void let_go(struct core *c, struct named *n)
{
    prefix_unpin(c->prefix, n->pin);
    prefix_unpin(c->prefix, n->open_pin);
    n->pin = n->open_pin = NULL;
}

static void repin(struct core *c, struct named *n)
{
    char why[192];

    let_go(c, n);
    if (n->pinned && core_pin(c, n, why, sizeof(why)) < 0) {
        core_say(c, 4, "session %s: not pinned: %s", n->name, why);
    }
}

int core_make_turn(struct task *t)
{
    if (t->job->session[0] == '\0' || t->turn.ids != NULL || t->failed ||
        deliver_drawn(t->deliver) == 0) {
        return 0;
    }
    return turn_make(&t->turn, t->job, &t->said, t->session->ids,
                     t->session->n_ids);
}

void core_named_end(struct core *c, struct task *t, int committed)
{
    struct named *n = named_by_writer(&c->named, t->job->id);

    if (n == NULL) {
        return;
    }
    if (core_make_turn(t) < 0) { /* of one that was answered elsewhere */
        core_say(c, 3, "session %s: no memory to keep its turn", n->name);
    } else if (t->turn.ids != NULL) {
        named_turn(n, t->job, &t->turn, committed);
        repin(c, n);
    }
    core_named_free(c, t->job->id);
}

/* ---- pins ---------------------------------------------------------------- */

bool core_has_open(const struct core *c, const struct named *n, int len)
{
    return n->n_open > 0 && n->n_open < len &&
           prefix_marked(c->prefix, n->salt, n->ids, n->n_open);
}

/* What the owner's sessions hold by pins. Forks count each: a pin stands for
 * what would be left if the others went. */
static int pinned_by(const struct core *c, const struct named *of,
                     enum model_group g)
{
    int sum = 0;

    for (const struct named *n = c->named.first; n != NULL; n = n->next) {
        if (n->uid == of->uid && strcmp(n->tenant, of->tenant) == 0) {
            sum += n->pin != NULL ? prefix_pin_pages(n->pin, g) : 0;
        }
    }
    return sum;
}

/* The session's pages stay. Never so many that one request of max_model_len
 * would not fit beside them, nor that one owner would have them all. */
int core_pin(struct core *c, struct named *n, char *why, size_t n_why)
{
    struct prefix_counts counts;
    int r = prefix_pin(c->prefix, n->salt, n->ids, n->n_committed, &n->pin);

    if (r < 0) {
        n->pin = NULL;
        (void)snprintf(why, n_why, "%s",
                       r == -ENOENT ? "its pages are not in the cache; the "
                                      "next turn pins them"
                                    : "out of memory");
        return r;
    }
    /* Where the next turn will take up. It may have gone; the end is what was
     * asked for. */
    if (core_has_open(c, n, n->n_committed)) {
        (void)prefix_pin(c->prefix, n->salt, n->ids, n->n_open, &n->open_pin);
    }
    prefix_counts(c->prefix, &counts);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int all = kvpool_pages(c->pool, (enum model_group)g);
        int one = session_most(&c->geo, (enum model_group)g, c->geo.max_len);

        int own = pinned_by(c, n, (enum model_group)g);
        int most = (all - one) / CORE_PINS_PER_OWNER;

        if (c->own != NULL && most > c->cap[g] / CORE_PINS_PER_OWNER) {
            most = c->cap[g] / CORE_PINS_PER_OWNER;
        }
        if (counts.pinned[g] > all - one || own > most) {
            (void)snprintf(why, n_why,
                           "%d of %d pages would be pinned, %d must stay for "
                           "one long request; sessions of this user would pin "
                           "%d, shared ones counted for each, and may pin %d: "
                           "unpin one",
                           counts.pinned[g], all, one, own, most);
            let_go(c, n);
            return -ENOSPC;
        }
    }
    r = core_owner_pin(c, n, why, n_why);
    if (r < 0) {
        let_go(c, n);
    }
    return r;
}

/* ---- ops ----------------------------------------------------------------- */

static void describe(struct core *c, const struct named *n,
                     struct event_session *ret)
{
    uint64_t now = core_now_us(c);

    (void)snprintf(ret->name, sizeof(ret->name), "%s", n->name);
    ret->tokens = n->n_ids;
    ret->cached = n->loaded ? prefix_look(c->prefix, n->salt, n->ids,
                                          n->n_committed, true)
                            : 0;
    /* As long as it is in its file only, nothing can take it. */
    ret->pinned = n->pinned && (n->pin != NULL || !n->loaded);
    ret->busy = n->writer != 0;
    ret->saved = n->file_bytes > 0 && !n->changed;
    ret->file_bytes = n->file_bytes;
    ret->idle_ms = now > n->used_us ? (now - n->used_us) / 1000 : 0;
}

/* The op is done. */
void core_session_done(struct core *c, struct job *j, const struct named *n)
{
    struct event *e;

    if (ticket_take(c->conf.tickets, j->id)) {
        e = event_create(EVENT_DONE, j);
        e->plain = true;
        if (n != NULL) {
            e->sessions = xcalloc(1, sizeof(*e->sessions));
            e->n_sessions = 1;
            describe(c, n, e->sessions);
        }
        core_send(c, e);
    }
    drop_job(c, j);
}

static void list(struct core *c, struct job *j)
{
    struct event *e = NULL;

    if (!ticket_take(c->conf.tickets, j->id)) {
        drop_job(c, j);
        return;
    }
    for (const struct named *n = c->named.first; n != NULL; n = n->next) {
        if (n->uid != j->uid || strcmp(n->tenant, j->tenant) != 0) {
            continue;
        }
        if (e == NULL) {
            e = event_create(EVENT_PART, j);
            e->sessions = xcalloc(LIST_PART, sizeof(*e->sessions));
        }
        describe(c, n, &e->sessions[e->n_sessions++]);
        if (e->n_sessions == LIST_PART) {
            core_send(c, e);
            e = NULL;
        }
    }
    if (e != NULL) {
        core_send(c, e);
    }
    e = event_create(EVENT_DONE, j);
    e->plain = true;
    core_send(c, e);
    drop_job(c, j);
}

static void pin(struct core *c, struct job *j, struct named *n)
{
    char why[192];
    int r = n->pin != NULL ? 0 : core_pin(c, n, why, sizeof(why));

    if (r < 0 && r != -ENOENT) {
        core_refuse(c, j, "no_memory", "session", "session %s: %s", n->name,
                    why);
        return;
    }
    n->changed = n->changed || !n->pinned;
    n->pinned = true;
    core_session_done(c, j, n);
}

static void unpin(struct core *c, struct job *j, struct named *n)
{
    n->changed = n->changed || n->pinned;
    n->pinned = false;
    let_go(c, n);
    core_session_done(c, j, n);
}

static void fork_it(struct core *c, struct job *j, struct named *n)
{
    struct named *to;

    if (named_find(&c->named, j->uid, j->tenant, j->to) != NULL) {
        core_refuse(c, j, "bad_request", "to", "there is a session %s already",
                    j->to);
        return;
    }
    if (!has_room(c, NULL, j, n->messages.n + n->tools.n)) {
        return;
    }
    to = named_make(&c->named, j->uid, j->tenant, j->to);
    if (to == NULL) {
        core_refuse(c, j, "busy", "to",
                    "%d sessions of this user, %d in all: drop some",
                    named_count(&c->named, j->uid, j->tenant), c->named.n);
    } else if (named_copy(to, n) < 0) {
        named_destroy(&c->named, to);
        core_refuse(c, j, "no_memory", "", "not enough memory for a session");
    } else {
        core_session_done(c, j, to);
    }
}

static void drop(struct core *c, struct job *j, struct named *n)
{
    char why[192];

    if (n->file_bytes > 0 && core_unlink(c, n, why, sizeof(why)) < 0) {
        core_refuse(c, j, "internal", "session", "%s", why);
        return;
    }
    core_drop_saves(c, n);
    let_go(c, n);
    n->pinned = false;
    n->loaded = true; /* empty: core_named_next forgets it */
    n->file_bytes = 0;
    n->n_ids = n->n_committed = 0;
    free(n->messages.p);
    n->messages = (struct job_text){0};
    core_session_done(c, j, NULL);
}

static void run_op(struct core *c, struct job *j, struct named *n)
{
    if (ticket_answered(c->conf.tickets, j->id)) {
        drop_job(c, j);
        return;
    }
    if (n->n_ids == 0) {
        core_refuse(c, j, "not_found", "session", "no session %s", j->session);
        return;
    }
    switch (j->op) {
    case SESSION_PIN:
        pin(c, j, n);
        break;
    case SESSION_UNPIN:
        unpin(c, j, n);
        break;
    case SESSION_FORK:
        fork_it(c, j, n);
        break;
    case SESSION_SAVE:
        core_save(c, n, j);
        break;
    case SESSION_RESTORE:
        core_session_done(c, j, n); /* it is here */
        break;
    case SESSION_DROP:
        drop(c, j, n);
        break;
    case SESSION_LIST:
        BUG_ON(true);
    }
}

void core_named_unread(struct core *c, struct named *n, const char *code,
                       const char *why)
{
    struct job *j;

    while (!n->loaded && (j = named_next(n)) != NULL) {
        if (j->kind != JOB_SESSION || j->op != SESSION_DROP) {
            core_refuse(c, j, code, "session", "%s", why);
        } else if (ticket_answered(c->conf.tickets, j->id)) {
            drop_job(c, j);
        } else {
            drop(c, j, n);
        }
    }
    core_named_next(c, n); /* dropped: who came later finds none */
}

void core_session_op(struct core *c, struct job *j)
{
    struct named *n = j->op == SESSION_LIST ? NULL : find(c, j);

    if (ticket_answered(c->conf.tickets, j->id)) {
        drop_job(c, j);
        return;
    }
    if (j->op == SESSION_LIST) {
        list(c, j);
        return;
    }
    if (n == NULL) {
        core_refuse(c, j, "not_found", "session", "no session %s", j->session);
        return;
    }
    /* A file that cannot be read can be dropped. */
    if (j->op == SESSION_DROP && !n->loaded && !n->moving) {
        drop(c, j, n);
    } else {
        named_wait(n, j); /* after who writes it, or when it has been read */
    }
    if (n->writer == 0) {
        core_named_next(c, n);
    }
}

void core_named_finish(struct core *c)
{
    while (c->named.first != NULL) {
        struct named *n = c->named.first;
        struct job *j;

        while ((j = named_next(n)) != NULL) {
            drop_job(c, j);
        }
        let_go(c, n);
        n->writer = 0;
        named_destroy(&c->named, n);
    }
}
