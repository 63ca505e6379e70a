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
