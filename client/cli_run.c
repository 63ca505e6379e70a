/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One request from submit to exit code: connection and what to say when there
 * is none, the event loop, signals, and the table of exit codes.
 *
 * Signals are blocked between the look at the flag and the wait, so that none
 * is missed. The first asks the daemon to cancel and the program waits for it
 * to say so; a second ends the program.
 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli.h"
#include "config.h"

/* How long an interrupted request may take to end. */
#define CANCEL_MS 2000

static volatile sig_atomic_t got_signal, patient;
static sigset_t ended_by;  /* the signals that ask for an end */
static sigset_t unblocked; /* the mask before cli_block_signals */

static void on_signal(int sig)
{
    if (got_signal == 0) {
        got_signal = sig;
    } else if (patient == 0 || got_signal != SIGINT) {
        _exit(128 + sig);
    } else {
        got_signal = sig; /* another SIGINT, or one that ends the program */
    }
}

int cli_signal(void)
{
    return got_signal;
}

void cli_patient(void)
{
    patient = 1;
}

bool cli_forget_interrupt(void)
{
    sigset_t before;

    sigprocmask(SIG_BLOCK, &ended_by, &before);
    if (got_signal == SIGINT) {
        got_signal = 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return got_signal == 0;
}

void cli_block_signals(bool on)
{
    sigset_t set = ended_by;

    if (on) {
        sigaddset(&set, SIGWINCH);
        sigaddset(&set, SIGTSTP);
        sigprocmask(SIG_BLOCK, &set, &unblocked);
    } else {
        sigprocmask(SIG_SETMASK, &unblocked, NULL);
    }
}

bool cli_wait_input(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

    return ppoll(&p, 1, NULL, &unblocked) > 0;
}

void cli_setup(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction a = {.sa_handler = on_signal};

    /* A closed stream's number must not become the socket's. */
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) {
            _exit(EX_OSERR);
        }
    }
    sigemptyset(&ended_by);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction old;
        /* nohup and background jobs of a shell ignore some: leave it so. */
        if (sigaction(signals[i], NULL, &old) == 0 &&
            old.sa_handler != SIG_IGN) {
            sigaction(signals[i], &a, NULL);
            sigaddset(&ended_by, signals[i]);
        }
    }
    signal(SIGPIPE, SIG_IGN);
}

void cli_error(const char *fmt, ...)
{
    va_list ap;

    cli_progress(NULL);
    fputs("stepctl: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* ---- exit codes -----------------------------------------------------------
 */

static const struct {
    int error, exit;
} exits[] = {
    {STEP_OK, EX_OK},
    {STEP_E_BAD_REQUEST, EX_USAGE},
    {STEP_E_UNKNOWN_OP, EX_USAGE},
    {STEP_E_INVALID, EX_USAGE},
    {STEP_E_TOO_LONG, EX_DATAERR},
    {STEP_E_CORRUPT, EX_DATAERR},
    {STEP_E_NOT_FOUND, EX_NOINPUT},
    {STEP_E_UNAVAILABLE, EX_UNAVAILABLE},
    {STEP_E_UNSUPPORTED, EX_UNAVAILABLE},
    {STEP_E_DISCONNECTED, EX_UNAVAILABLE},
    {STEP_E_NO_DAEMON, EX_UNAVAILABLE},
    {STEP_E_INTERNAL, EX_SOFTWARE},
    {STEP_E_NO_MEMORY, EX_OSERR},
    {STEP_E_SYSTEM, EX_OSERR},
    {STEP_E_BUSY, EX_TEMPFAIL},
    {STEP_E_DRAINING, EX_TEMPFAIL},
    {STEP_E_TIMEOUT, EX_TEMPFAIL},
    {STEP_E_BAD_FRAME, EX_PROTOCOL},
    {STEP_E_VERSION, EX_PROTOCOL},
    {STEP_E_DENIED, EX_NOPERM},
};

int cli_exit_code(int step_error)
{
    for (size_t i = 0; i < sizeof(exits) / sizeof(exits[0]); i++) {
        if (exits[i].error == step_error) {
            return exits[i].exit;
        }
    }
    return EX_SOFTWARE;
}

/* Exit code of a done event. */
static int exit_of_done(const struct cli *cli, const struct step_event *e)
{
    const char *s;
    size_t n;

    if (step_event_get_str(e, "finish_reason", &s, &n) != 0) {
        return EX_OK;
    }
    if (n == 6 && memcmp(s, "length", n) == 0) {
        cli_error("the answer was cut at the limit of tokens");
        return cli->strict ? EX_DATAERR : EX_OK;
    }
    if (n == 7 && memcmp(s, "timeout", n) == 0) {
        cli_error("the time ran out");
        return EX_TEMPFAIL;
    }
    if (n == 9 && memcmp(s, "cancelled", n) == 0 && got_signal == 0) {
        cli_error("the request was cancelled");
        return EX_TEMPFAIL;
    }
    return EX_OK;
}

static int exit_of_error(const struct cli *cli, const struct step_event *e)
{
    const char *message = "", *detail = "";
    size_t n_message = 0, n_detail = 0;
    int code = step_event_code(e);

    (void)step_event_get_str(e, "message", &message, &n_message);
    (void)step_event_get_str(e, "detail", &detail, &n_detail);
    /* The daemon's messages begin with the key where that makes a sentence. */
    bool named =
        n_detail == 0 || memmem(message, n_message, detail, n_detail) != NULL;
    if (!cli->quiet) {
        cli_error("%s: %.*s%s%.*s%s", step_code_name(code), (int)n_message,
                  message, named ? "" : " (", named ? 0 : (int)n_detail, detail,
                  named ? "" : ")");
    }
    return cli_exit_code(code);
}

int cli_request_error(const struct step_request *r)
{
    const char *why;
    int code = step_request_error(r, &why);

    if (code != 0) {
        cli_error("%s", why);
    }
    return cli_exit_code(code);
}

/* ---- connection -----------------------------------------------------------
 */

/* Whom the socket lets in: the group of the file that said no. */
static void explain_denied(const char *path)
{
    char copy[256];
    struct stat st;
    const struct group *g = NULL;

    snprintf(copy, sizeof(copy), "%s", path);
    if (stat(path, &st) == 0 || stat(dirname(copy), &st) == 0) {
        g = getgrgid(st.st_gid);
    }
    cli_error("%s: permission denied: join the group %s (usermod -aG %s USER, "
              "then log in again)",
              path, g != NULL ? g->gr_name : "stepd",
              g != NULL ? g->gr_name : "stepd");
}

int cli_connect(struct cli *cli)
{
    int err = 0;

    if (cli->client == NULL) {
        err = step_client_create(&cli->client);
        if (err == 0) {
            err = step_client_set_name(cli->client, "stepctl " PACKAGE_VERSION);
        }
    }
    if (err == 0) {
        err = step_client_connect(cli->client, cli->socket);
    }
    if (err == 0) {
        return 0;
    }
    const char *path = cli->client != NULL ? step_client_path(cli->client) : "";
    if (err == STEP_E_DENIED) {
        explain_denied(path);
    } else if (err == STEP_E_NO_DAEMON || err == STEP_E_SYSTEM ||
               err == STEP_E_INVALID) {
        cli_error("%s: %s: %s", path, step_strerror(err), strerror(errno));
    } else {
        cli_error("%s: %s", path, step_strerror(err));
    }
    return cli_exit_code(err);
}

/* ---- the loop -------------------------------------------------------------
 */

int64_t cli_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void cli_wait(struct cli *cli, int ms)
{
    struct pollfd p = {.fd = -1};
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    sigset_t before;
    int seen = got_signal;

    if (cli->client != NULL) {
        p.fd = step_client_get_fd(cli->client);
        p.events = (short)step_client_get_events(cli->client);
    }
    sigprocmask(SIG_BLOCK, &ended_by, &before);
    if (got_signal == seen) {
        ppoll(&p, 1, ms >= 0 ? &t : NULL, &before);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (p.fd >= 0) {
        step_client_dispatch(cli->client);
    }
}

static void print_json(const struct step_event *e)
{
    char *json;

    if (step_event_get_json(e, "", &json) == 0) {
        cli_write(json, strlen(json));
        cli_write("\n", 1);
        free(json);
    }
}

static void show_progress(const struct step_event *e)
{
    int64_t done, total;
    char line[64];

    if (step_event_get_int(e, "done", &done) == 0 &&
        step_event_get_int(e, "total", &total) == 0) {
        snprintf(line, sizeof(line), "reading the prompt: %lld of %lld tokens",
                 (long long)done, (long long)total);
        cli_progress(line);
    }
}

/* -1, or the exit code when the event was the request's last. */
static int take_event(struct cli *cli, const struct step_event *e,
                      step_event_fn fn, void *ctx)
{
    enum step_event_type type = step_event_type(e);

    if (type == STEP_EVENT_PROGRESS) {
        show_progress(e);
    } else if (type != STEP_EVENT_ACCEPTED) {
        cli_progress(NULL);
    }
    if (cli->json) {
        print_json(e);
    }
    if (fn != NULL && (!cli->json || cli->hears_json)) {
        fn(ctx, e);
    }
    if (type == STEP_EVENT_DONE) {
        cli_flush();
        return exit_of_done(cli, e);
    }
    if (type == STEP_EVENT_ERROR && step_event_request(e) != 0) {
        cli_flush();
        return exit_of_error(cli, e);
    }
    return -1;
}

/* What is to be done between two rounds of events: -1 to go on, or the exit
 * code. *until: when an interrupted request is given up, 0 before that. */
static int between(struct cli *cli, uint64_t id, int64_t *until)
{
    int err;

    cli_flush();
    err = cli_output_error();
    if (err == EPIPE) {
        /* Nobody listens: closing the connection cancels. */
        return EX_OK;
    }
    if (err != 0 && err != EINTR) {
        return EX_IOERR;
    }
    if (got_signal == 0) {
        int64_t left = cli->until_ms - cli_now_ms();
        if (cli->until_ms > 0 && left <= 0) {
            return EX_TEMPFAIL;
        }
        cli_wait(cli, cli->until_ms <= 0 ? -1
                      : left < INT_MAX   ? (int)left
                                         : INT_MAX);
        return -1;
    }
    if (*until == 0) {
        *until = cli_now_ms() + CANCEL_MS;
        step_client_cancel(cli->client, id);
    }
    int64_t left = *until - cli_now_ms();
    if (left <= 0) {
        return 128 + got_signal;
    }
    cli_wait(cli, (int)left);
    return -1;
}

int cli_run(struct cli *cli, const struct step_request *r, step_event_fn fn,
            void *ctx)
{
    uint64_t id;
    int64_t until = 0;
    int code = -1;
    int err = step_client_submit(cli->client, r, NULL, &id);

    if (err != 0) {
        const char *why = "";
        bool more = step_request_error(r, &why) != 0;
        cli_error("%s%s%s", step_strerror(err), more ? ": " : "", why);
        return cli_exit_code(err);
    }
    while (code < 0) {
        const struct step_event *e;
        while (code < 0 && (e = step_client_next(cli->client)) != NULL) {
            code = take_event(cli, e, fn, ctx);
        }
        if (code < 0) {
            code = between(cli, id, &until);
        }
    }
    return code;
}
