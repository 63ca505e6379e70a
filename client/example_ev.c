/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * An application with a loop of its own, here libev's: the library is one
 * watcher among others and never blocks the rest. This one asks a question,
 * counts its own ticks meanwhile, and on SIGINT cancels the request, not the
 * program.
 *
 *     cc example_ev.c $(pkg-config --cflags --libs stepclient) -lev
 *     ./a.out "What is the capital of Kenya?"
 *
 * The pattern fits any loop: a hook before each wait asks the library what it
 * waits for (arm), and readiness or the timeout calls dispatch and takes the
 * events (serve).
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ev.h>
#include <poll.h>
#include <stepd/client.h>

struct app {
    struct step_client *client;
    uint64_t id; /* of the request in flight; 0: none */
    int status;  /* of main */
    unsigned n_ticks;
    ev_prepare prepare;
    ev_io io;
    ev_timer timeout, tick;
    ev_signal interrupt;
};

static void on_event(struct app *app, struct ev_loop *loop,
                     const struct step_event *e)
{
    size_t n;
    const char *text = step_event_text(e, &n);

    if (text != NULL) {
        fwrite(text, 1, n, stdout);
        fflush(stdout);
    }
    if (step_event_request(e) != app->id) {
        return;
    }
    if (step_event_type(e) == STEP_EVENT_DONE) {
        printf("\n");
        app->status = EXIT_SUCCESS;
    } else if (step_event_type(e) == STEP_EVENT_ERROR) {
        fprintf(stderr, "%s\n", step_strerror(step_event_code(e)));
    } else {
        return;
    }
    ev_break(loop, EVBREAK_ALL);
}

static void serve(struct app *app, struct ev_loop *loop)
{
    const struct step_event *e;

    step_client_dispatch(app->client);
    while ((e = step_client_next(app->client)) != NULL) {
        on_event(app, loop, e);
    }
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)revents;
    serve(w->data, loop);
}

static void on_timeout(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)revents;
    serve(w->data, loop);
}

/* Before each wait: the watchers as the library wants them now. */
static void arm(struct ev_loop *loop, ev_prepare *w, int revents)
{
    struct app *app = w->data;
    int fd = step_client_get_fd(app->client);
    int poll_events = step_client_get_events(app->client);
    int ms = step_client_get_timeout(app->client);
    int events = ((poll_events & POLLIN) != 0 ? EV_READ : 0) |
                 ((poll_events & POLLOUT) != 0 ? EV_WRITE : 0);

    (void)revents;
    if (app->io.fd != fd || app->io.events != events) {
        ev_io_stop(loop, &app->io);
        ev_io_set(&app->io, fd, events);
        if (fd >= 0 && events != 0) {
            ev_io_start(loop, &app->io);
        }
    }
    ev_timer_stop(loop, &app->timeout);
    if (ms >= 0) {
        ev_timer_set(&app->timeout, ms / 1000., 0.);
        ev_timer_start(loop, &app->timeout);
    }
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct app *app = w->data;

    (void)loop;
    (void)revents;
    app->n_ticks++;
}

/* The request ends as cancelled, by an event; the loop goes on until then. */
static void on_interrupt(struct ev_loop *loop, ev_signal *w, int revents)
{
    struct app *app = w->data;

    (void)loop;
    (void)revents;
    step_client_cancel(app->client, app->id);
}

static int ask(struct app *app, const char *question)
{
    struct step_request *r = NULL;
    int err = step_client_create(&app->client);

    if (err == 0) {
        err = step_client_connect(app->client, NULL);
    }
    if (err == 0) {
        err = step_request_create(&r, "generate");
    }
    if (err == 0) {
        step_request_add_message(r, "user", question, strlen(question));
        step_request_set_int(r, "max_tokens", 200);
        step_request_set_bool(r, "thinking", false);
        err = step_client_submit(app->client, r, NULL, &app->id);
    }
    step_request_destroy(r);
    return err;
}

int main(int argc, char **argv)
{
    struct app app = {.status = EXIT_FAILURE};
    struct ev_loop *loop = ev_default_loop(0);
    int err = loop == NULL ? STEP_E_SYSTEM
                           : ask(&app, argc > 1 ? argv[1] : "Who are you?");

    if (err < 0) {
        fprintf(stderr, "%s\n", step_strerror(err));
        step_client_destroy(app.client);
        return EXIT_FAILURE;
    }
    ev_prepare_init(&app.prepare, arm);
    ev_io_init(&app.io, on_io, -1, 0);
    ev_timer_init(&app.timeout, on_timeout, 0., 0.);
    ev_timer_init(&app.tick, on_tick, 0.1, 0.1);
    ev_signal_init(&app.interrupt, on_interrupt, SIGINT);
    app.prepare.data = app.io.data = app.timeout.data = app.tick.data =
        app.interrupt.data = &app;
    ev_prepare_start(loop, &app.prepare);
    ev_timer_start(loop, &app.tick);
    ev_signal_start(loop, &app.interrupt);
    ev_run(loop, 0);
    fprintf(stderr, "%u ticks of our own meanwhile\n", app.n_ticks);
    step_client_destroy(app.client);
    ev_loop_destroy(loop);
    return app.status;
}
