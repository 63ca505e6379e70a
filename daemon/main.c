/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepd: the order in which it starts and stops. The program's table of
 * contents:
 *
 *   start   options (command line, base/conf), the process itself; net/listen
 *           (accepting before the first weight byte), net/server, sched/engine
 *           (which loads the model in the background), the loop. READY=1 once
 *           the engine has proved itself.
 *   stop    SIGTERM or SIGINT: no new connections and no new work, what runs
 *           goes on for drain_timeout; then, or at a second signal, the engine
 *           ends it, the last events are sent, and everything goes in reverse.
 *
 * Who owns what, on which thread:
 *
 *   struct conn   made by net/server   I/O thread    swept at the loop's end
 *   struct job    net/request          I/O -> prep -> engine, which frees it
 *   struct event  sched/               engine, prep -> I/O, which frees it
 *   weights, KV   model/               engine thread
 *
 * This file runs on the I/O thread. The invariant: whatever happens to the
 * engine, the loop goes on turning until everybody has been told.
 */

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "config.h"
#include "daemon/base/conf.h"
#include "daemon/base/die.h"
#include "daemon/base/log.h"
#include "daemon/base/sd.h"
#include "daemon/check.h"
#include "daemon/model/model.h"
#include "daemon/model/weights.h"
#include "daemon/net/farewell.h"
#include "daemon/net/listen.h"
#include "daemon/net/server.h"
#include "daemon/options.h"
#include "daemon/sandbox.h"
#include "daemon/sched/engine.h"
#include "daemon/service.h"

#define OWN_FILES 256 /* shards, socket, loop ... */
#define FLUSH_S 2.0   /* for the last events to leave at the end */
/* A stop with nothing in flight still waits so long for the first request of
 * clients that were let in just before: they are told `draining`, which says
 * to come again, and not cut off. */
#define SETTLE_S 0.1
/* Until idle_exit looks again for pinned sessions that it had saved. */
#define IDLE_SAVE_FIRST 0.1
#define IDLE_SAVE_MOST 60.
/* A start that failed stays this long to tell those who come through a socket
 * that others hold: the units know no limit of starts, so this is what bounds
 * how often their coming makes another one. */
#define FAILED_MS 3000
#define BAD_SOCKET                                                            \
    "the socket unit hands over more than one socket, or none of Unix's: it " \
    "has one ListenStream=, a path"

struct daemon {
    struct options opts;
    struct ev_loop *loop;
    struct listener listener;
    struct server *server;
    struct engine *engine;
    enum engine_state seen; /* the engine's state that was told last */
    bool inherited;         /* the listening socket */
    bool stopping, over;
    int status; /* what main returns */
    uint64_t started_us;
    ev_signal term, intr, hup, usr1, usr2;
    ev_timer drain_over, failed_over, settled, idle;
    double idle_wait; /* seconds for pinned sessions to be saved; 0: not yet */
    ev_prepare turn;
    struct service service;
};

/* ---- the process itself -------------------------------------------------- */

/* Better this process than the host: never below what the unit set. */
static void offer_to_oom_killer(int adj)
{
    FILE *f = fopen("/proc/self/oom_score_adj", "r+e");
    int now;

    if (f == NULL) {
        return;
    }
    if (fscanf(f, "%d", &now) == 1 && now < adj) {
        rewind(f);
        (void)fprintf(f, "%d", adj);
    }
    if (fclose(f) != 0) {
        log_warn("oom_score_adj stays as it is: %s", strerror(errno));
    }
}

/* A descriptor a connection, and some of our own. */
static void allow_files(rlim_t wanted)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= wanted) {
        return;
    }
    l.rlim_cur = l.rlim_max < wanted ? l.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur < wanted) {
        log_warn("%llu open files are allowed, max_connections needs %llu",
                 (unsigned long long)l.rlim_cur, (unsigned long long)wanted);
    }
}

static void prepare_process(const struct conf *c)
{
    int r = weights_catch_sigbus();

    if (r < 0) {
        log_warn("a mapped shard that is cut will not be named: %s",
                 strerror(-r));
    }
    (void)signal(SIGPIPE, SIG_IGN);
    allow_files((rlim_t)c->max_connections + OWN_FILES);
    (void)umask(0077);
    offer_to_oom_killer(c->oom_score_adj);
    /* Prompts and answers are in our memory: no core dump, no debugger of the
     * same user. After oom_score_adj, which this would close to us, too. */
    if (!c->log_text && prctl(PR_SET_DUMPABLE, 0) < 0) {
        log_warn("core dumps stay possible: %s", strerror(errno));
    }
}

/* ---- the engine's state ---------------------------------------------------
 */

static void finish(struct daemon *d)
{
    d->over = true;
    ev_break(d->loop, EVBREAK_ALL);
}

static void idle_again(struct daemon *d, double s)
{
    ev_timer_set(&d->idle, s, 0.);
    ev_timer_start(d->loop, &d->idle);
}

/* Runs from READY on; a start that took long is not idleness. */
static void watch_idle(struct daemon *d)
{
    if (d->opts.conf.idle_exit == 0) {
        return;
    }
    if (!d->inherited) {
        log_warn("idle_exit: no socket unit holds the socket, so nothing will "
                 "start this daemon again");
    }
    d->server->quiet_us = server_now_us();
    idle_again(d, (double)d->opts.conf.idle_exit / 1e3);
}

static void on_ready(struct daemon *d, const struct engine_status *st)
{
    struct log_about about = LOG_ABOUT(LOG_ID_READY);
    uint64_t us = server_now_us() - d->started_us;

    about.duration_ms = (int64_t)(us / 1000);
    log_event(LOG_INFO, &about, "ready after %.1f s: %s, %s, max_model_len %d",
              (double)us / 1e6, d->server->model_name, st->device,
              st->max_model_len);
    service_ready(&d->service);
    watch_idle(d);
}

static void on_time_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)revents;
    finish(w->data);
}

static void log_failed(int status, const char *cause)
{
    struct log_about about = LOG_ABOUT(LOG_ID_FAILED);

    log_event(LOG_ERROR, &about, "giving up (status %d): %s", status, cause);
}

/* The load or the device failed. Those who wait have been told by the engine's
 * events; whoever comes to a start that cannot succeed is told `unavailable`.
 * One that did serve ends at once: who comes waits for the next instance. */
static void on_failed(struct daemon *d, const struct engine_status *st)
{
    char hint[SANDBOX_HINT];

    d->status = st->exit_code != 0 ? st->exit_code : EX_SOFTWARE;
    log_failed(d->status, st->cause);
    if (sandbox_hint(d->opts.conf.model, hint)) {
        log_error("%s", hint);
    }
    service_failed(&d->service, st->cause);
    if (!d->inherited || d->stopping || d->service.ready) {
        finish(d);
        return;
    }
    ev_timer_set(&d->failed_over, FAILED_MS / 1e3, 0.);
    ev_timer_start(d->loop, &d->failed_over);
}

/* After each wake of the engine. READY is said in one place and once: the
 * engine goes from LOADING to READY once. */
static void on_wake(void *ctx)
{
    struct daemon *d = ctx;
    struct engine_status st;
    enum engine_state before = d->seen;

    engine_status(d->engine, &st);
    if (d->over) {
        return;
    }
    service_wake(&d->service);
    if (st.state == before) {
        return;
    }
    d->seen = st.state;
    if (st.state == ENGINE_FAILED) {
        on_failed(d, &st);
    } else if (before == ENGINE_LOADING && st.state == ENGINE_READY &&
               !d->stopping) {
        on_ready(d, &st);
    }
}

static int on_reload(void *ctx, struct conf_changes *ret, char *why,
                     size_t n_why)
{
    struct daemon *d = ctx;

    return service_reload(&d->service, ret, why, n_why);
}

static void on_engine_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    log_line(level <= 3   ? LOG_ERROR
             : level <= 4 ? LOG_WARN
             : level <= 6 ? LOG_INFO
                          : LOG_DEBUG,
             "%s", line);
}

/* ---- signals ---------------------------------------------------------------
 */

static void on_drain_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct daemon *d = w->data;

    (void)loop;
    (void)revents;
    log_warn("drain_timeout is over: %d requests are ended",
             d->server->flights.n);
    finish(d);
}

/* While stopping, at each turn of the loop: nothing left to wait for? */
static void on_turn(struct ev_loop *loop, ev_prepare *w, int revents)
{
    struct daemon *d = w->data;

    (void)revents;
    if (!server_is_quiet(d->server)) {
        ev_timer_stop(loop, &d->settled);
    } else if (d->server->n_conns == 0) {
        finish(d);
    } else if (!ev_is_active(&d->settled)) {
        ev_timer_set(&d->settled, SETTLE_S, 0.);
        ev_timer_start(loop, &d->settled);
    }
}

static void begin_stop(struct daemon *d)
{
    struct engine_status st;

    d->stopping = true;
    engine_status(d->engine, &st);
    log_info("stopping: %d requests in flight", d->server->flights.n);
    service_stopping(&d->service, d->opts.conf.drain_timeout + 15000);
    server_drain(d->server);
    engine_drain(d->engine, true);
    if (st.state == ENGINE_LOADING || st.state == ENGINE_FAILED) {
        finish(d); /* what waits would wait for the whole load */
        return;
    }
    ev_prepare_start(d->loop, &d->turn);
    ev_timer_set(&d->drain_over, (double)d->opts.conf.drain_timeout / 1e3, 0.);
    ev_timer_start(d->loop, &d->drain_over);
}

static void on_stop(struct ev_loop *loop, ev_signal *w, int revents)
{
    struct daemon *d = w->data;

    (void)loop;
    (void)revents;
    if (d->stopping) {
        log_warn("second signal: %d requests are ended", d->server->flights.n);
        finish(d);
        return;
    }
    begin_stop(d);
}

/* Nobody asked for this end, so no pinned conversation is lost by it: they are
 * saved before, and where that cannot be, tried again less and less often. */
static bool save_before_idle(struct daemon *d)
{
    struct engine_status st;

    engine_status(d->engine, &st);
    if (st.unsaved == 0) {
        return true;
    }
    if (d->idle_wait == 0.) {
        d->idle_wait = IDLE_SAVE_FIRST;
    } else {
        d->idle_wait = d->idle_wait * 2 < IDLE_SAVE_MOST ? d->idle_wait * 2
                                                         : IDLE_SAVE_MOST;
        log_warn("idle_exit: the daemon stays: %d pinned sessions are not "
                 "saved",
                 st.unsaved);
    }
    engine_save_pinned(d->engine);
    idle_again(d, d->idle_wait);
    return false;
}

/* Once idle_exit has passed; or the time that is missing is waited for. */
static void on_idle(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct daemon *d = w->data;
    uint64_t limit_ms = d->opts.conf.idle_exit;
    uint64_t ms = server_idle_us(d->server) / 1000;

    (void)loop;
    (void)revents;
    if (d->stopping || d->over) {
        return;
    }
    if (ms < limit_ms) {
        d->idle_wait = 0.;
        idle_again(d, (double)(limit_ms - ms) / 1e3);
        return;
    }
    if (!save_before_idle(d)) {
        return;
    }
    log_info("idle for %.0f s: the end, until somebody connects",
             (double)ms / 1e3);
    begin_stop(d);
}

static void on_hup(struct ev_loop *loop, ev_signal *w, int revents)
{
    struct daemon *d = w->data;
    struct conf_changes changes;
    char why[200];

    (void)loop;
    (void)revents;
    (void)service_reload(&d->service, &changes, why, sizeof(why));
}

/* test_hold_*: the held load or one held step, or all from now on. */
static void on_release(struct ev_loop *loop, ev_signal *w, int revents)
{
    struct daemon *d = w->data;

    (void)loop;
    (void)revents;
    engine_release(d->engine, w->signum == SIGUSR1 ? 1 : 1 << 30);
}

static void watch_signal(struct daemon *d, ev_signal *w, int signum,
                         void (*cb)(struct ev_loop *, ev_signal *, int))
{
    ev_signal_init(w, cb, signum);
    w->data = d;
    ev_signal_start(d->loop, w);
}

static void start_watching(struct daemon *d)
{
    watch_signal(d, &d->term, SIGTERM, on_stop);
    watch_signal(d, &d->intr, SIGINT, on_stop);
    watch_signal(d, &d->hup, SIGHUP, on_hup);
    if (d->opts.conf.test_hold_load || d->opts.conf.test_hold_steps) {
        watch_signal(d, &d->usr1, SIGUSR1, on_release);
        watch_signal(d, &d->usr2, SIGUSR2, on_release);
    }
    ev_prepare_init(&d->turn, on_turn);
    ev_set_priority(&d->turn, EV_MINPRI); /* after conn.c has flushed */
    ev_timer_init(&d->drain_over, on_drain_over, 0., 0.);
    ev_timer_init(&d->failed_over, on_time_over, 0., 0.);
    ev_timer_init(&d->settled, on_time_over, 0., 0.);
    d->turn.data = d->drain_over.data = d;
    d->failed_over.data = d->settled.data = d;
    ev_timer_init(&d->idle, on_idle, 0., 0.);
    d->idle.data = d;
    service_start(&d->service, d->loop, &d->opts, d->server, d->engine);
}

static void stop_watching(struct daemon *d)
{
    ev_signal_stop(d->loop, &d->term);
    ev_signal_stop(d->loop, &d->intr);
    ev_signal_stop(d->loop, &d->hup);
    if (d->opts.conf.test_hold_load || d->opts.conf.test_hold_steps) {
        ev_signal_stop(d->loop, &d->usr1);
        ev_signal_stop(d->loop, &d->usr2);
    }
    ev_prepare_stop(d->loop, &d->turn);
    ev_timer_stop(d->loop, &d->drain_over);
    ev_timer_stop(d->loop, &d->failed_over);
    ev_timer_stop(d->loop, &d->idle);
    ev_timer_stop(d->loop, &d->settled);
    service_stop(&d->service);
}

/* ---- start ------------------------------------------------------------------
 */

static gid_t group_of(const char *name, int *ret_r)
{
    const struct group *g;
    char *end;
    unsigned long n;

    *ret_r = 0;
    if (name[0] == '\0') {
        return (gid_t)-1;
    }
    n = strtoul(name, &end, 10);
    if (*end == '\0') {
        return (gid_t)n;
    }
    g = getgrnam(name);
    if (g == NULL) {
        log_error("socket_group: no group '%s' on this host", name);
        *ret_r = -ENOENT;
        return (gid_t)-1;
    }
    return g->gr_gid;
}

/* A start that cannot succeed before there is a server. Clients that wait on a
 * socket which others hold would wait for ever: they are told. */
static void tell_waiting(int fd, const char *cause)
{
    (void)sd_say_status("Failed: %s", cause);
    farewell(fd, cause, FAILED_MS);
}

/* The service manager's socket, else our own. */
static int open_listener(struct daemon *d)
{
    char why[512];
    gid_t gid;
    int fd, r;

    r = sd_listen_fd(&fd);
    if (r == 0) {
        r = listen_inherit(&d->listener, fd);
        d->inherited = r == 0;
    } else if (r == -EINVAL) {
        log_failed(EX_CONFIG, BAD_SOCKET);
        tell_waiting(fd, BAD_SOCKET);
        return r;
    }
    if (r != -ENOENT) {
        if (r < 0) {
            log_error("the socket that was handed over: %s", strerror(-r));
        }
        return r;
    }
    gid = group_of(d->opts.conf.socket_group, &r);
    if (r == 0) {
        r = listen_bind(&d->listener, d->opts.conf.socket,
                        (mode_t)d->opts.conf.socket_mode, gid, why,
                        sizeof(why));
        if (r < 0) {
            log_error("%s", why);
        }
    }
    return r;
}

/* Where sessions are saved; "" where there is no such place. systemd may name
 * several folders, of which the first is ours. */
static void find_session_dir(const struct conf *conf, char *buf, size_t n)
{
    const char *state = conf->state_dir;

    if (*state == '\0') {
        state = getenv("STATE_DIRECTORY");
    }
    buf[0] = '\0';
    if (state != NULL && *state != '\0') {
        (void)snprintf(buf, n, "%.*s/sessions", (int)strcspn(state, ":"),
                       state);
    }
}

static int create_engine(struct daemon *d)
{
    char session_dir[4096];
    struct model_conf model = options_model(&d->opts.conf);
    const struct engine_conf c = {
        .model = &model,
        .max_queue = d->opts.conf.max_queue,
        .max_prompt_tokens = d->opts.conf.max_prompt_tokens,
        .max_queued_tokens = d->opts.conf.max_queued_tokens_per_uid,
        .max_batched_tokens = d->opts.conf.max_batched_tokens,
        .prefill_chunk = d->opts.conf.prefill_chunk,
        .step_target_ms = d->opts.conf.step_target_ms,
        .drafts = model.drafts,
        .no_prefix_cache = !d->opts.conf.prefix_cache,
        .max_sessions = d->opts.conf.max_sessions,
        .max_sessions_per_owner = d->opts.conf.max_sessions_per_owner,
        .max_session_text_per_owner = d->opts.conf.max_session_text_per_owner,
        .session_dir = session_dir,
        .session_disk = d->opts.conf.session_disk,
        .session_disk_per_owner = d->opts.conf.session_disk_per_owner,
        .session_disk_floor = d->opts.conf.session_disk_floor,
        .kv_ready = d->opts.conf.kv_ready,
        .kv_share_per_owner = d->opts.conf.kv_share_per_owner,
        .share_prefix_cache = d->opts.conf.share_prefix_cache,
#ifdef STEPD_DEBUG
        .scrub_freed = true,
#endif
        .hold_load = d->opts.conf.test_hold_load,
        .hold_steps = d->opts.conf.test_hold_steps,
        .wake = server_wake,
        .log = on_engine_log,
        .ctx = d->server,
    };
    int r;

    find_session_dir(&d->opts.conf, session_dir, sizeof(session_dir));
    r = engine_create(&d->engine, &c);

    if (r < 0) {
        log_error("the engine does not start: %s", strerror(-r));
    }
    return r;
}

/* ---- stop -------------------------------------------------------------------
 */

static void on_flush_over(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)w;
    (void)revents;
    ev_break(loop, EVBREAK_ALL);
}

/* The engine's last events, and time for them to leave. */
static void say_goodbye(struct daemon *d)
{
    ev_timer limit;

    engine_stop(d->engine);
    server_pump(d->server);
    ev_timer_init(&limit, on_flush_over, FLUSH_S, 0.);
    ev_timer_start(d->loop, &limit);
    while (!server_flush(d->server) && ev_is_active(&limit)) {
        ev_run(d->loop, EVRUN_ONCE);
    }
    ev_timer_stop(d->loop, &limit);
}

/* libev's own would abort. */
static void *loop_memory(void *p, long n)
{
    void *grown;

    if (n == 0) {
        free(p);
        return NULL;
    }
    grown = realloc(p, (size_t)n);
    if (grown == NULL) {
        die("out of memory (%ld bytes)", n);
    }
    return grown;
}

static int run(struct daemon *d)
{
    static const int faults[] = {SIGBUS,  SIGSEGV, SIGFPE, SIGILL,
                                 SIGABRT, SIGSYS,  SIGTRAP};
    struct log_about about = LOG_ABOUT(LOG_ID_START);
    sigset_t all, before;

    /* Signals are for the loop: the engine's threads inherit that they are
     * blocked, and one that comes before the loop runs waits for it. */
    (void)sigfillset(&all);
    /* Faults are the thread's own: blocked they would kill us unexplained. */
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        (void)sigdelset(&all, faults[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    d->started_us = server_now_us();
    ev_set_allocator(loop_memory);
    d->loop = ev_default_loop(EVFLAG_AUTO);
    if (d->loop == NULL) {
        log_error("no event loop");
        return EX_SOFTWARE;
    }
    if (open_listener(d) < 0) {
        return EX_CONFIG;
    }
    if (getenv("NOTIFY_SOCKET") != NULL && !sd_built()) {
        log_warn("built without libsystemd: READY will not be told");
    }
    d->status = EX_SOFTWARE;
    if (server_create(&d->server, d->loop, &d->opts.conf) == 0) {
        server_accept(d->server, &d->listener);
        d->server->on_wake = on_wake;
        d->server->on_reload = on_reload;
        d->server->ctx = d;
        if (create_engine(d) == 0) {
            server_attach(d->server, d->engine);
            d->status = EX_OK;
            log_event(LOG_INFO, &about, "stepd %s: %s", PACKAGE_VERSION,
                      d->opts.conf.model);
            start_watching(d);
            (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
            ev_run(d->loop, 0);
            stop_watching(d);
            say_goodbye(d);
        }
        server_destroy(d->server);
        engine_destroy(d->engine);
    }
    listen_close(&d->listener);
    ev_loop_destroy(d->loop);
    log_info("stopped");
    return d->status;
}

static void bad_configuration(const char *cause)
{
    int fd = -1;

    log_failed(EX_CONFIG, cause);
    (void)sd_listen_fd(&fd);
    if (fd >= 0) {
        tell_waiting(fd, cause);
    }
}

int main(int argc, char **argv)
{
    struct daemon d = {.seen = ENGINE_LOADING};
    struct model_conf model;
    char cause[512];
    int status;

    log_init(LOG_INFO);
    status = options_read(argc, argv, &d.opts, cause, sizeof(cause));
    if (status != EX_OK) {
        if (!d.opts.check) {
            bad_configuration(cause);
        }
        options_finish(&d.opts);
        return status;
    }
    log_set_level((enum log_level)d.opts.conf.log_level);
    if (d.opts.check) {
        model = options_model(&d.opts.conf);
        status = check_run(&model);
    } else {
        prepare_process(&d.opts.conf);
        status = run(&d);
    }
    conf_finish(&d.opts.conf);
    options_finish(&d.opts);
    return status;
}
