/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What goes to the terminal or the pipe. Text is collected and written where
 * the event loop flushes; a reader that goes away ends output without a word,
 * and cli_run.c then cancels the request. Colours and progress are for
 * terminals only.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/cli.h"

static struct {
    char buf[16384];
    size_t n;
    int err;
    int n_progress; /* length of the line that stands on stderr */
} out;

static void write_all(void)
{
    size_t done = 0;

    while (done < out.n && out.err == 0) {
        ssize_t n = write(STDOUT_FILENO, out.buf + done, out.n - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            out.err = errno;
        } else if (cli_signal() != 0) {
            out.err = EINTR;
        }
    }
    out.n = 0;
}

int cli_flush(void)
{
    write_all();
    return out.err == EINTR ? 0 : out.err;
}

int cli_output_error(void)
{
    return out.err;
}

void cli_write(const char *s, size_t n)
{
    while (n > 0) {
        size_t now = sizeof(out.buf) - out.n;
        if (now > n) {
            now = n;
        }
        memcpy(out.buf + out.n, s, now);
        out.n += now;
        s += now;
        n -= now;
        if (out.n == sizeof(out.buf)) {
            write_all();
        }
    }
}

void cli_print(const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    cli_write(text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

bool cli_terminal(void)
{
    return isatty(STDOUT_FILENO);
}

void cli_write_text(const char *s, size_t n)
{
    size_t from = 0;

    if (!cli_terminal()) {
        cli_write(s, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        /* C1 controls are two bytes in UTF-8. */
        bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] < 0xa0;
        if (!c1 && (c >= 0x20 ? c != 0x7f : c == '\n' || c == '\t')) {
            continue;
        }
        cli_write(s + from, i - from);
        if (c1) {
            cli_write("?", 1);
            i++;
        } else {
            cli_write((char[]){'^', (char)(c ^ 0x40)}, 2);
        }
        from = i + 1;
    }
    cli_write(s + from, n - from);
}

bool cli_moves(void)
{
    const char *term = getenv("TERM");

    return cli_terminal() && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0;
}

static bool colours(void)
{
    const char *no = getenv("NO_COLOR");

    return cli_moves() && (no == NULL || no[0] == '\0');
}

void cli_dim(bool on)
{
    if (colours()) {
        cli_print("%s", on ? "\033[2m" : "\033[0m");
    }
}

int cli_columns(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
               ? size.ws_col
               : 80;
}

void cli_progress(const char *line)
{
    char text[128] = "";
    int n, room = cli_columns() - 1;

    if (!isatty(STDERR_FILENO) || (line == NULL && out.n_progress == 0)) {
        return;
    }
    if (line != NULL) {
        snprintf(text, sizeof(text), "%.*s", room, line);
    }
    /* Carriage return and spaces work on any terminal. A line never reaches the
     * last column: it would not be one line any more. */
    n = (int)strlen(text);
    if (out.n_progress > room) {
        out.n_progress = room;
    }
    fprintf(stderr, "\r%s%*s%s", text,
            out.n_progress > n ? out.n_progress - n : 0, "",
            n == 0 ? "\r" : "");
    fflush(stderr);
    out.n_progress = n;
}

void cli_print_ids(void *ctx, const struct step_event *e)
{
    size_t *n_printed = ctx, n = 0;
    char path[32];
    int64_t id;

    if (step_event_type(e) == STEP_EVENT_DONE) {
        cli_write("\n", 1);
    }
    if (step_event_type(e) != STEP_EVENT_PART) {
        return;
    }
    (void)step_event_get_count(e, "ids", &n);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "ids.%zu", i);
        if (step_event_get_int(e, path, &id) == 0) {
            cli_print("%s%" PRId64, *n_printed > 0 ? " " : "", id);
            ++*n_printed;
        }
    }
}

void cli_print_text(void *ctx, const struct step_event *e)
{
    char *last = ctx;
    size_t n;
    const char *text = step_event_text(e, &n);

    if (step_event_type(e) == STEP_EVENT_PART && n > 0) {
        cli_write_text(text, n);
        *last = text[n - 1];
    } else if (step_event_type(e) == STEP_EVENT_DONE && cli_terminal() &&
               *last != '\n') {
        cli_write("\n", 1);
    }
}
