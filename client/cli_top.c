/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl top: status again and again, as a table that fits the terminal, with
 * what happened since the last look as rates. In a pipe, and on a terminal that
 * cannot clear its screen, one table after the other.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/cli.h"

#define CLEAR "\033[H\033[2J"

struct top {
    int64_t at_ms, prompt, completion, drafts, accepted, steps; /* last look */
    bool again;  /* there was one */
    int n_rows;  /* lines that fit; -1: all */
    int columns; /* -1: all */
};

static int64_t get_int(const struct step_event *e, const char *path)
{
    int64_t v = 0;

    (void)step_event_get_int(e, path, &v);
    return v;
}

/* One line, cut where the terminal ends. */
static void put(struct top *t, const char *line)
{
    if (t->n_rows == 0) {
        return;
    }
    int n = (int)strlen(line);
    if (t->columns >= 0 && n > t->columns) {
        n = t->columns;
    }
    cli_write_text(line, (size_t)n);
    cli_write("\n", 1);
    t->n_rows -= t->n_rows > 0;
}

/* A string of the event: at most 31 bytes of it. */
static const char *word(const struct step_event *e, const char *path,
                        char buf[32])
{
    const char *s = "";
    size_t n = 0;

    (void)step_event_get_str(e, path, &s, &n);
    snprintf(buf, 32, "%.*s", n < 31 ? (int)n : 31, s);
    return buf;
}

static void put_head(struct top *t, const struct step_event *e)
{
    char line[256], a[32], b[32], c[32];
    int64_t s = get_int(e, "uptime_ms") / 1000;

    snprintf(line, sizeof(line), "%s  %s  on %s  up %" PRId64 ":%02d:%02d",
             word(e, "served_model_name", a), word(e, "state", b),
             word(e, "model.device", c), s / 3600, (int)(s / 60 % 60),
             (int)(s % 60));
    put(t, line);
    snprintf(line, sizeof(line),
             "jobs: %" PRId64 " running, %" PRId64 " queued, %" PRId64
             " done   connections: %" PRId64 "   memory: %.1f GiB",
             get_int(e, "running"), get_int(e, "queued"),
             get_int(e, "requests.total"), get_int(e, "connections.open"),
             (double)get_int(e, "memory.resident") / (1 << 30));
    put(t, line);
    if (strcmp(b, "loading") == 0 && get_int(e, "load.total") > 0) {
        snprintf(line, sizeof(line), "loading: %.1f of %.1f GiB",
                 (double)get_int(e, "load.done") / (1 << 30),
                 (double)get_int(e, "load.total") / (1 << 30));
        put(t, line);
    }
}

static void put_rates(struct top *t, const struct step_event *e)
{
    struct top now = {.at_ms = cli_now_ms(),
                      .prompt = get_int(e, "tokens.prompt"),
                      .completion = get_int(e, "tokens.completion"),
                      .drafts = get_int(e, "drafts.verified"),
                      .accepted = get_int(e, "drafts.accepted"),
                      .steps = get_int(e, "steps.total")};
    double s = (double)(now.at_ms - t->at_ms) / 1000;
    char line[256] = "";
    int64_t drafts = now.drafts - t->drafts;

    if (t->again && s > 0) {
        int n = snprintf(line, sizeof(line),
                         "tokens/s: %.1f read, %.1f written   steps/s: %.1f",
                         (double)(now.prompt - t->prompt) / s,
                         (double)(now.completion - t->completion) / s,
                         (double)(now.steps - t->steps) / s);
        if (drafts > 0) {
            snprintf(line + n, sizeof(line) - (size_t)n,
                     "   tokens a step: %.2f",
                     1 + (double)(now.accepted - t->accepted) / (double)drafts);
        }
    } else {
        snprintf(line, sizeof(line),
                 "tokens: %" PRId64 " read, %" PRId64
                 " written   steps: %" PRId64,
                 now.prompt, now.completion, now.steps);
    }
    put(t, line);
    now.again = true;
    now.n_rows = t->n_rows;
    now.columns = t->columns;
    *t = now;
}

static void put_jobs(struct top *t, const struct step_event *e)
{
    size_t n = 0;
    char path[64], line[256], state[32], op[32];

    (void)step_event_get_count(e, "jobs", &n);
    put(t, "");
    snprintf(line, sizeof(line), "%8s %-10s %8s %-10s %8s %8s %8s %9s", "job",
             "op", "uid", "state", "prompt", "cached", "written", "age s");
    put(t, line);
    for (size_t i = 0; i < n && t->n_rows != 0; i++) {
        int64_t v[6];
        static const char *const keys[] = {"job",
                                           "uid",
                                           "prompt_tokens",
                                           "cached_tokens",
                                           "completion_tokens",
                                           "age_ms"};
        for (size_t k = 0; k < 6; k++) {
            snprintf(path, sizeof(path), "jobs.%zu.%s", i, keys[k]);
            v[k] = get_int(e, path);
        }
        snprintf(path, sizeof(path), "jobs.%zu.state", i);
        word(e, path, state);
        snprintf(path, sizeof(path), "jobs.%zu.op", i);
        snprintf(line, sizeof(line),
                 "%8" PRId64 " %-10.10s %8" PRId64 " %-10.10s %8" PRId64
                 " %8" PRId64 " %8" PRId64 " %9.1f",
                 v[0], word(e, path, op), v[1], state, v[2], v[3], v[4],
                 (double)v[5] / 1000);
        put(t, line);
    }
}

static void on_event(void *ctx, const struct step_event *e)
{
    struct top *t = ctx;
    struct winsize size;

    if (step_event_type(e) != STEP_EVENT_DONE) {
        return;
    }
    t->n_rows = t->columns = -1;
    if (cli_terminal()) {
        t->columns = cli_columns() - 1;
    }
    if (cli_moves() && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_row > 1) {
        t->n_rows = size.ws_row - 1;
    }
    if (cli_moves()) {
        cli_print("%s", CLEAR);
    } else if (t->again) {
        cli_write("\n", 1);
    }
    put_head(t, e);
    put_rates(t, e);
    put_jobs(t, e);
}

static int watch(struct cli *cli, const struct step_request *r, double seconds,
                 int64_t count)
{
    struct top t = {0};
    int code = cli_connect(cli);

    while (code == 0) {
        int64_t next = cli_now_ms() + (int64_t)(seconds * 1000);
        code = cli_run(cli, r, on_event, &t);
        if (code != 0 || cli_output_error() != 0 || --count == 0) {
            break;
        }
        for (int64_t left = next - cli_now_ms(); left > 0 && cli_signal() == 0;
             left = next - cli_now_ms()) {
            cli_wait(cli, (int)left);
        }
        if (cli_signal() != 0) {
            (void)cli_forget_interrupt(); /* the usual way to leave it */
            break;
        }
    }
    return code;
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    double seconds = 1, count = -1; /* for ever */
    const struct cli_option options[] = {
        {"interval", CLI_SECONDS, "SECONDS", NULL, &seconds,
         "between two looks (default: 1)"},
        {"count", CLI_SECONDS, "N", NULL, &count,
         "end after so many looks (default: at Ctrl-C)"},
        {0},
    };
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "top takes no argument");
    }
    if (seconds < 0.1) {
        return cli_usage(cli, "--interval is 0.1 seconds at least");
    }
    if (count >= 0 && count < 1) {
        return cli_usage(cli, "--count is 1 at least");
    }
    return watch(cli, r, seconds, (int64_t)count);
}

int cli_top(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "status", run, argc, argv);
}
