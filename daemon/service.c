/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the service manager hears: the heartbeat of a load, READY, a status line
 * that says what is going on, the watchdog, and the two ends of a reload.
 *
 * Owns its timers. I/O thread. The invariants: nothing is said by the clock
 * alone: a heartbeat needs bytes that moved, a watchdog an engine that has
 * nothing to run or computed a layer; and every RELOADING=1 is followed by
 * READY=1, whatever became of the reload.
 */

#include "daemon/service.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "daemon/base/log.h"
#include "daemon/net/server.h"
#include "daemon/options.h"
#include "daemon/sched/engine.h"

#define GIB ((double)(1 << 30))

/* ---- status ---------------------------------------------------------------
 */

static void say(struct service *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* While it loads the same line is said again: it is part of the heartbeat. */
static void say(struct service *s, const char *fmt, ...)
{
    char line[sizeof(s->said)];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (s->ready && strcmp(line, s->said) == 0) {
        return;
    }
    memcpy(s->said, line, sizeof(line));
    (void)sd_say_status("%s", line);
}

static void say_state(struct service *s, const struct engine_status *st)
{
    if (s->stopping) {
        say(s, "Stopping: %d requests in flight", s->server->flights.n);
    } else if (st->state == ENGINE_LOADING) {
        say(s, "Loading: %.1f of %.1f GiB", (double)st->load_done / GIB,
            (double)st->load_total / GIB);
    } else if (st->state == ENGINE_DRAINING) {
        say(s, "Draining: %d requests in flight", s->server->flights.n);
    } else if (st->state == ENGINE_READY && s->server->flights.n == 0) {
        say(s, "Serving %s", s->server->model_name);
    } else if (st->state == ENGINE_READY) {
        say(s, "Serving %s: %d running, %d waiting", s->server->model_name,
            st->running, st->queued);
    }
}

/* ---- progress -------------------------------------------------------------
 */

/* Bytes that moved towards a model that serves: what the loader counts, and
 * what the first pass over mapped weights reads in; and layers. */
static uint64_t progress(const struct engine_status *st)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return st->load_done + st->ticks + (uint64_t)u.ru_majflt +
           (uint64_t)u.ru_inblock;
}

/* Every second while there is something to tell. */
static void on_beat(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct service *s = w->data;
    struct engine_status st;

    (void)revents;
    engine_status(s->engine, &st);
    if (st.state == ENGINE_LOADING) {
        (void)sd_beat(&s->sd_beat, progress(&st));
    } else if (s->server->flights.n == 0 || st.state == ENGINE_FAILED) {
        ev_timer_stop(loop, w);
    }
    say_state(s, &st);
}

/* The loop is alive, for it runs this; the engine is if it has nothing to run
 * or computed at least one layer since the last time. */
static void on_watchdog(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct service *s = w->data;
    struct engine_status st;
    uint64_t now;

    (void)loop;
    (void)revents;
    engine_status(s->engine, &st);
    now = progress(&st);
    if (st.idle || now != s->watched) {
        (void)sd_say_watchdog();
    }
    s->watched = now;
}

void service_start(struct service *s, struct ev_loop *loop,
                   struct options *opts, struct server *server,
                   struct engine *engine)
{
    uint64_t usec = sd_watchdog_usec();

    memset(s, 0, sizeof(*s));
    s->loop = loop;
    s->opts = opts;
    s->server = server;
    s->engine = engine;
    ev_timer_init(&s->beat, on_beat, 0., SD_BEAT_MS / 1e3);
    ev_timer_init(&s->watchdog, on_watchdog, 0., (double)usec / 2e6);
    s->beat.data = s->watchdog.data = s;
    ev_timer_again(loop, &s->beat);
    if (usec > 0) {
        ev_timer_again(loop, &s->watchdog);
    }
}

void service_stop(struct service *s)
{
    ev_timer_stop(s->loop, &s->beat);
    ev_timer_stop(s->loop, &s->watchdog);
}

void service_wake(struct service *s)
{
    struct engine_status st;

    if (s->server->flights.n > 0 && !ev_is_active(&s->beat)) {
        ev_timer_again(s->loop, &s->beat);
    } else if (s->server->flights.n == 0 && s->ready) {
        engine_status(s->engine, &st);
        say_state(s, &st);
    }
}

void service_ready(struct service *s)
{
    struct engine_status st;

    engine_status(s->engine, &st);
    say_state(s, &st);
    s->ready = true;
    (void)sd_say_ready();
}

void service_failed(struct service *s, const char *cause)
{
    say(s, "Failed: %s", cause);
}

void service_stopping(struct service *s, uint64_t may_take_ms)
{
    s->stopping = true;
    (void)sd_say_stopping(may_take_ms);
    say(s, "Stopping: %d requests in flight", s->server->flights.n);
}

/* ---- reload ---------------------------------------------------------------
 */

static void log_changes(const struct conf_changes *c)
{
    char list[512] = "";
    size_t n = 0;

    for (int i = 0; i < c->n && n < sizeof(list); i++) {
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
                              i > 0 ? ", " : "", c->key[i]);
    }
    log_info("reload: %s%s", c->n > 0 ? "changed: " : "nothing has changed",
             list);
}

int service_reload(struct service *s, struct conf_changes *ret, char *why,
                   size_t n_why)
{
    bool tell = s->ready && !s->stopping;
    struct engine_status st;
    struct conf_report rep;
    int r;

    if (tell) {
        (void)sd_say_reloading();
    }
    r = conf_reload(&s->opts->source, &rep, &s->opts->conf, ret);
    if (r == 0) {
        log_set_level((enum log_level)s->opts->conf.log_level);
        log_changes(ret);
        server_reconfigured(s->server);
    } else {
        log_error("reload: nothing was changed:");
        for (int i = 0; i < rep.n; i++) {
            log_error("reload: %s", rep.line[i]);
        }
        (void)snprintf(why, n_why, "%s", rep.line[0]);
    }
    conf_report_finish(&rep);
    if (tell) {
        (void)sd_say_ready();
        engine_status(s->engine, &st);
        say_state(s, &st);
    }
    return r;
}
