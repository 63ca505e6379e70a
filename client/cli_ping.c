/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl ping: the daemon's state; with --wait until it is ready, also when it
 * does not listen yet. Nothing tells a client when a socket appears or a load
 * ends, so this asks again every tenth of a second.
 */

#include <stdio.h>
#include <string.h>

#include "client/cli.h"

#define AGAIN_MS 100

struct answer {
    char state[32];
    int error; /* of the error event, and its words */
    char message[256];
};

static void on_event(void *ctx, const struct step_event *e)
{
    struct answer *a = ctx;
    const char *s;
    size_t n;

    a->error = step_event_code(e);
    if (a->error != 0 && step_event_get_str(e, "message", &s, &n) == 0) {
        snprintf(a->message, sizeof(a->message), "%.*s", (int)n, s);
    }
    if (step_event_type(e) == STEP_EVENT_DONE &&
        step_event_get_str(e, "state", &s, &n) == 0) {
        snprintf(a->state, sizeof(a->state), "%.*s", (int)n, s);
    }
}

/* One question on the connection, if need be a new one. 0: answered; a positive
 * value: a code that ends it; -1: not there yet. */
static int ask(struct cli *cli, const struct step_request *r, struct answer *a)
{
    int err = 0;

    *a = (struct answer){0};
    if (cli->client == NULL) {
        err = step_client_create(&cli->client);
    }
    if (err == 0 && step_client_get_fd(cli->client) < 0) {
        err = step_client_connect(cli->client, cli->socket);
    }
    if (err == STEP_E_NO_DAEMON || err == STEP_E_BUSY) {
        return -1;
    }
    if (err != 0) {
        /* Says what is wrong, and does not get further than we did. */
        return cli_connect(cli);
    }
    int code = cli_run(cli, r, on_event, a);
    if (a->error == 0) {
        return code;
    }
    if (a->error == STEP_E_DISCONNECTED || a->error == STEP_E_BUSY) {
        return -1;
    }
    cli_error("%s: %s", step_code_name(a->error), a->message);
    return code;
}

static void on_cause(void *ctx, const struct step_event *e)
{
    struct answer *a = ctx;
    const char *s;
    size_t n;

    if (step_event_type(e) == STEP_EVENT_DONE &&
        step_event_get_str(e, "cause", &s, &n) == 0) {
        snprintf(a->message, sizeof(a->message), "%.*s", (int)n, s);
    }
}

/* Why there is no model: ping says that, status why. */
static int say_failed(struct cli *cli)
{
    struct step_request *r = NULL;
    struct answer a = {0};

    if (step_request_create(&r, "status") == 0) {
        (void)cli_run(cli, r, on_cause, &a);
    }
    step_request_destroy(r);
    cli_error("unavailable: %s", a.message[0] != '\0'
                                     ? a.message
                                     : "the daemon could not load its model");
    return EX_UNAVAILABLE;
}

static int wait_ready(struct cli *cli, const struct step_request *r,
                      double seconds)
{
    struct answer a;

    cli->quiet = true;
    cli->until_ms = cli_now_ms() + (int64_t)(seconds * 1000);
    for (;;) {
        int code = ask(cli, r, &a);
        bool late = cli_now_ms() >= cli->until_ms;
        if ((code > 0 && !late) || cli_signal() != 0) {
            return code;
        }
        if (strcmp(a.state, "ready") == 0) {
            if (!cli->json) {
                cli_print("%s\n", a.state);
            }
            return EX_OK;
        }
        if (strcmp(a.state, "failed") == 0) {
            return say_failed(cli);
        }
        if (late) {
            cli_error("not ready after %g seconds (%s)", seconds,
                      a.state[0] != '\0' ? a.state : "no daemon");
            return EX_TEMPFAIL;
        }
        cli_wait(cli, AGAIN_MS);
    }
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    double seconds = -1;
    const struct cli_option options[] = {
        {"wait", CLI_SECONDS, "SECONDS", NULL, &seconds,
         "return when it is ready"},
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {0},
    };
    struct answer a = {0};
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "ping takes no argument");
    }
    cli->hears_json = true;
    if (seconds >= 0) {
        return wait_ready(cli, r, seconds);
    }
    code = cli_connect(cli);
    if (code == 0) {
        code = cli_run(cli, r, on_event, &a);
    }
    if (code == 0 && !cli->json) {
        cli_print("%s\n", a.state);
    }
    return code;
}

int cli_ping(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "ping", run, argc, argv);
}
