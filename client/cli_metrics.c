/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl metrics: Prometheus text as the daemon says it; with --http as the
 * answer to one HTTP request that comes on stdin, for a socket unit with
 * Accept=yes (systemd/stepd-metrics.socket), which makes it a scrape target
 * without the daemon speaking HTTP.
 *
 * Of HTTP there is what a scraper needs: GET or HEAD of /metrics, one request a
 * connection, a length and a close. The head is read up to HEAD_BYTES within
 * HEAD_MS; whoever sends more, or slower, gets no answer.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/cli.h"

#define HEAD_BYTES 8192
#define HEAD_MS 10000
/* How long the other end may take to close after it was answered. */
#define CLOSE_MS 2000

/* ---- the request --------------------------------------------------------- */

/* The head of the request, to its empty line. False: none came. */
static bool read_head(char head[HEAD_BYTES + 1])
{
    int64_t until = cli_now_ms() + HEAD_MS;
    size_t n = 0;

    head[0] = '\0';
    while (strstr(head, "\r\n\r\n") == NULL && strstr(head, "\n\n") == NULL) {
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        int64_t left = until - cli_now_ms();
        ssize_t got;

        if (n == HEAD_BYTES || left <= 0 || poll(&p, 1, (int)left) <= 0) {
            return false;
        }
        got = read(STDIN_FILENO, head + n, HEAD_BYTES - n);
        if (got <= 0) {
            return false;
        }
        n += (size_t)got;
        head[n] = '\0';
    }
    return true;
}

/* What to answer, 200 or why not; *ret_body: not for HEAD. */
static const char *judge(const char *head, bool *ret_body)
{
    char method[16], path[256], version[16];

    *ret_body = true;
    if (sscanf(head, "%15[^ ] %255[^ ] %15[^\r\n]", method, path, version) !=
            3 ||
        strncmp(version, "HTTP/1.", 7) != 0) {
        return "400 Bad Request";
    }
    *ret_body = strcmp(method, "HEAD") != 0;
    if (*ret_body && strcmp(method, "GET") != 0) {
        return "405 Method Not Allowed";
    }
    path[strcspn(path, "?")] = '\0';
    return strcmp(path, "/metrics") == 0 ? "200 OK" : "404 Not Found";
}

/* ---- the answer ---------------------------------------------------------- */

static void collect(void *ctx, const struct step_event *e)
{
    size_t n;
    const char *text = step_event_text(e, &n);

    if (step_event_type(e) == STEP_EVENT_PART && n > 0) {
        cli_append(ctx, text, n);
    }
}

static void answer(const char *status, const char *text, size_t n, bool body)
{
    cli_print("HTTP/1.1 %s\r\n"
              "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
              "Content-Length: %zu\r\n"
              "%sConnection: close\r\n\r\n",
              status, n,
              strncmp(status, "405", 3) == 0 ? "Allow: GET\r\n" : "");
    if (body) {
        cli_write(text, n);
    }
    (void)cli_flush();
}

/* Closing while bytes of the request are unread would take the answer back. */
static void wait_for_close(void)
{
    int64_t until = cli_now_ms() + CLOSE_MS, left;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char junk[4096];

    if (shutdown(STDOUT_FILENO, SHUT_WR) < 0) {
        return; /* no socket */
    }
    while ((left = until - cli_now_ms()) > 0 && poll(&p, 1, (int)left) > 0 &&
           read(STDIN_FILENO, junk, sizeof(junk)) > 0) {
    }
}

static int serve(struct cli *cli, struct step_request *r)
{
    struct cli_text text = {NULL, 0};
    char head[HEAD_BYTES + 1];
    const char *status;
    bool body;
    int code = EX_OK;

    if (!read_head(head)) {
        cli_error("no HTTP request came");
        return EX_PROTOCOL;
    }
    cli_append(&text, "", 0);
    status = judge(head, &body);
    if (strncmp(status, "200", 3) == 0) {
        code = cli_connect(cli);
        code = code == 0 ? cli_run(cli, r, collect, &text) : code;
        status = code == 0 ? status : "503 Service Unavailable";
    }
    if (strncmp(status, "200", 3) != 0) {
        text.n = 0;
        cli_append(&text, status, strlen(status));
        cli_append(&text, "\n", 1);
    }
    answer(status, text.p, text.n, body);
    wait_for_close();
    free(text.p);
    return code;
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    bool http = false;
    const struct cli_option options[] = {
        {"http", CLI_FLAG, NULL, NULL, &http,
         "answer one HTTP request that comes on stdin"},
        {0},
    };
    char last = '\n';
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "metrics takes no argument");
    }
    if (http) {
        return serve(cli, r);
    }
    code = cli_connect(cli);
    return code == 0 ? cli_run(cli, r, cli_print_text, &last) : code;
}

int cli_metrics(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "metrics", run, argc, argv);
}
