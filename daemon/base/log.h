/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_LOG_H
#define STEPD_DAEMON_BASE_LOG_H

/*
 * Log lines on stderr, one write(2) each, so that lines of several threads
 * never mix. Under systemd (JOURNAL_STREAM names our stderr) a line starts with
 * its priority, <3> ... <7>, and carries no time; elsewhere with the time.
 *
 * Who logs: main.c, net/ and sched/engine.c. Everyone else returns errors.
 * Prompt and answer text never come here; control characters that reach a line
 * anyway (a file name, a client's name) are shown as '?'.
 */

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

#define LOG_MAX_LINE 2048 /* longer lines are cut, marked by "..." */

/* Before the first line: level INFO, format by JOURNAL_STREAM. */
void log_init(enum log_level level);
void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);
/* Tests: lines go to fd instead of stderr; prefix: priorities on or off. */
void log_to(int fd, bool prefix);

void log_line(enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* What a line is about, for those who search the journal: numbers of ours, -1
 * where there is none. Under systemd the line goes to the journal with the
 * fields MESSAGE_ID, REQUEST_ID, UID, TOKENS and DURATION_MS (stepd(8)); else
 * it is a line like any other. */
struct log_about {
    const char *message_id; /* LOG_ID_... */
    int64_t request_id;     /* the job's number on the wire */
    int64_t uid;
    int64_t tokens; /* prompt and completion together */
    int64_t duration_ms;
};
#define LOG_ABOUT(id)        \
    {                        \
        (id), -1, -1, -1, -1 \
    }
#define LOG_ID_START "c1ea9c3f4b0d4a6d9c3b0a6f5d2e7b14"
#define LOG_ID_READY "5a0d7be0c9e44e0f8a4c2f1b6d93e8a7"
#define LOG_ID_REQUEST "e7c8f1d25a3b4f7c9b60d4a18f2e3c59"
#define LOG_ID_REFUSED "93b1d6e8f04c4c2b8e5a7d9012f4c6ab"
#define LOG_ID_FAILED "2f6e0b9ad1c7453e9f8b3c5d7a1e4062"
void log_event(enum log_level level, const struct log_about *about,
               const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Tests: where events go instead of the journal's socket. */
void log_journal_to(const char *path);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* A budget for lines that a client can provoke: at most `burst` lines in each
 * window of window_ms; the first line of a new window says how many were left
 * out before it. One thread per limit. Zeroed except for the two settings. */
struct log_limit {
    int burst;
    int64_t window_ms;
    int64_t window_start;
    int n_window;
    uint64_t n_dropped;
};
#define LOG_LIMIT(burst, window_ms)           \
    {                                         \
        (burst), (window_ms), INT64_MIN, 0, 0 \
    }
/* True when a line may be written now; now_ms is any monotonic clock.
 * *ret_dropped: lines left out since the last one that was allowed. */
bool log_limit_ok(struct log_limit *l, int64_t now_ms, uint64_t *ret_dropped);

#endif
