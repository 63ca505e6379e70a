/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SERVICE_H
#define STEPD_DAEMON_SERVICE_H

/*
 * The running daemon as its service manager sees it: what it is told while the
 * model loads and while it serves, and the reload.
 */

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/sd.h"

struct conf_changes;
struct engine;
struct options;
struct server;

struct service {
    struct ev_loop *loop;
    struct engine *engine;
    struct server *server;
    struct options *opts;
    ev_timer beat, watchdog;
    struct sd_beat sd_beat;
    uint64_t watched; /* the engine's progress at the last watchdog */
    bool ready;       /* READY=1 was said */
    bool stopping;
    char said[160]; /* the last STATUS= */
};

/* Server, engine and options outlive the service. From the loop's thread. */
void service_start(struct service *s, struct ev_loop *loop,
                   struct options *opts, struct server *server,
                   struct engine *engine);
void service_stop(struct service *s);

/* READY=1. Once. */
void service_ready(struct service *s);
/* The engine did something: the status line follows. */
void service_wake(struct service *s);
void service_failed(struct service *s, const char *cause);
/* STOPPING=1; the stop may take so long. */
void service_stopping(struct service *s, uint64_t may_take_ms);

/* Reads the configuration again, for `reload` and SIGHUP. As conf_reload; why
 * has the first thing that is wrong, the log all of them. */
int service_reload(struct service *s, struct conf_changes *ret, char *why,
                   size_t n_why);

#endif
