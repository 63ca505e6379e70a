/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * poll(2): many questions in flight over one connection, beside another
 * descriptor. Each line of standard input is a question; each answer is printed
 * when it is whole, with its question's number, in the order in which they end.
 * "cancel N" cancels one. The program ends when all are answered.
 *
 *     cc example_poll.c $(pkg-config --cflags --libs stepclient)
 *     printf '%s\n' 'What is 7 plus 8?' 'What is 2 plus 2?' | ./a.out
 */

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stepd/client.h>

/* One question in flight: the userdata of its request. */
struct question {
    struct question *next;
    int number;
    uint64_t id;
    char *answer;
    size_t n;
};

static struct question *questions;
static int last_number;

static void forget(struct question *q)
{
    struct question **at = &questions;

    while (*at != q) {
        at = &(*at)->next;
    }
    *at = q->next;
    free(q->answer);
    free(q);
}

/* False: the question could not be asked. */
static int ask(struct step_client *c, const char *text)
{
    struct step_request *r = NULL;
    struct question *q = calloc(1, sizeof(*q));
    int err =
        q == NULL ? STEP_E_NO_MEMORY : step_request_create(&r, "generate");

    if (err == 0) {
        step_request_add_message(r, "user", text, strlen(text));
        step_request_set_int(r, "max_tokens", 200);
        /* Nothing is sent here: that is for dispatch, when the socket can
         * take it. The request may be destroyed at once. */
        err = step_client_submit(c, r, q, &q->id);
    }
    step_request_destroy(r);
    if (err < 0) {
        fprintf(stderr, "%s: %s\n", text, step_strerror(err));
        free(q);
        return 0;
    }
    q->number = ++last_number;
    q->next = questions;
    questions = q;
    return 1;
}

static void cancel(struct step_client *c, int number)
{
    for (struct question *q = questions; q != NULL; q = q->next) {
        if (q->number == number) {
            /* Its last event still comes. */
            step_client_cancel(c, q->id);
        }
    }
}

/* The lines that are whole so far. False at the end of input. */
static int read_lines(struct step_client *c)
{
    static char line[4096];
    static size_t n;
    ssize_t got = read(STDIN_FILENO, line + n, sizeof(line) - 1 - n);
    char *end;

    if (got <= 0) {
        return 0;
    }
    n += (size_t)got;
    line[n] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        if (strncmp(line, "cancel ", 7) == 0) {
            cancel(c, atoi(line + 7));
        } else if (line[0] != '\0') {
            ask(c, line);
        }
        n -= (size_t)(end + 1 - line);
        memmove(line, end + 1, n + 1);
    }
    return n < sizeof(line) - 1;
}

/* Keeps text, and prints the answer when it is whole. */
static void on_event(const struct step_event *e)
{
    struct question *q = step_event_userdata(e);
    const char *text, *why = "";
    size_t n, n_why = 0;

    if (q == NULL) {
        return; /* an event about the connection */
    }
    text = step_event_text(e, &n);
    if (text != NULL) {
        char *grown = realloc(q->answer, q->n + n);
        if (grown != NULL) {
            q->answer = grown;
            memcpy(q->answer + q->n, text, n);
            q->n += n;
        }
    } else if (step_event_type(e) == STEP_EVENT_DONE) {
        (void)step_event_get_str(e, "finish_reason", &why, &n_why);
        printf("%d [%.*s] %.*s\n", q->number, (int)n_why, why, (int)q->n,
               q->answer != NULL ? q->answer : "");
        forget(q);
    } else if (step_event_type(e) == STEP_EVENT_ERROR) {
        (void)step_event_get_str(e, "message", &why, &n_why);
        printf("%d: %s: %.*s\n", q->number, step_strerror(step_event_code(e)),
               (int)n_why, why);
        forget(q);
    }
}

int main(void)
{
    struct step_client *c = NULL;
    int err = step_client_create(&c), reading = 1;

    setvbuf(stdout, NULL, _IOLBF, 0); /* in a pipe, too */
    if (err == 0) {
        err = step_client_connect(c, NULL);
    }
    if (err < 0) {
        fprintf(stderr, "%s\n", step_strerror(err));
        step_client_destroy(c);
        return EXIT_FAILURE;
    }
    while (reading || questions != NULL) {
        const struct step_event *e;
        /* Ask anew before each wait: what it waits for changes. A negative fd
         * is skipped by poll. */
        struct pollfd p[2] = {
            {.fd = step_client_get_fd(c),
             .events = (short)step_client_get_events(c)},
            {.fd = reading ? STDIN_FILENO : -1, .events = POLLIN},
        };
        if (poll(p, 2, step_client_get_timeout(c)) < 0) {
            continue; /* a signal handler ran */
        }
        if (p[1].revents != 0) {
            reading = read_lines(c);
        }
        step_client_dispatch(c);
        while ((e = step_client_next(c)) != NULL) {
            on_event(e);
        }
        if (step_client_get_fd(c) < 0) {
            /* The daemon went away: each question has been told so. */
            fprintf(stderr, "%s\n", step_strerror(STEP_E_DISCONNECTED));
            step_client_destroy(c);
            return EXIT_FAILURE;
        }
    }
    step_client_destroy(c);
    return EXIT_SUCCESS;
}
