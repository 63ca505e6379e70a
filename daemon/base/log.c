/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Log lines on stderr.
 *
 * Owns the log level, which with the stop flag in main.c is all the global
 * state there is. Any thread may log: a line is built on the caller's stack
 * and leaves by one write(2), so lines never mix and no lock is held. A write
 * that fails (a full disk, a journal that is gone) loses the line and nothing
 * else: a daemon must not stop answering because nobody takes its log.
 */

#include "daemon/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static atomic_int log_level_now = LOG_INFO;
static atomic_int log_fd = STDERR_FILENO;
static atomic_bool log_prefix;

static const struct {
    char prefix[4]; /* sd-daemon(3): the priority as systemd reads it */
    char word[8];
} levels[] = {
    [LOG_ERROR] = {"<3>", "error"},
    [LOG_WARN] = {"<4>", "warning"},
    [LOG_INFO] = {"<6>", "info"},
    [LOG_DEBUG] = {"<7>", "debug"},
};

/* JOURNAL_STREAM holds device and inode of the stream that the journal reads;
 * it is inherited by children whose stderr may be something else. */
static bool stderr_is_journal(void)
{
    const char *s = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;

    return s != NULL && sscanf(s, "%llu:%llu", &dev, &ino) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev &&
           st.st_ino == ino;
}

void log_init(enum log_level level)
{
    log_set_level(level);
    log_to(STDERR_FILENO, stderr_is_journal());
}

void log_set_level(enum log_level level)
{
    atomic_store(&log_level_now, (int)level);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load(&log_level_now);
}

void log_to(int fd, bool prefix)
{
    atomic_store(&log_fd, fd);
    atomic_store(&log_prefix, prefix);
}

static int put_head(char *line, size_t n, enum log_level level)
{
    struct timespec now;
    struct tm tm;
    size_t at;

    if (atomic_load(&log_prefix)) {
        return snprintf(line, n, "%s", levels[level].prefix);
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)localtime_r(&now.tv_sec, &tm);
    at = strftime(line, n, "%Y-%m-%d %H:%M:%S", &tm);
    return (int)at + snprintf(line + at, n - at,
                              ".%03ld %s: ", now.tv_nsec / 1000000,
                              levels[level].word);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char cut[] = "...";
    char line[LOG_MAX_LINE + 1]; /* + the newline */
    size_t head, n;
    va_list ap;
    int r;

    if (!log_enabled(level)) {
        return;
    }
    head = (size_t)put_head(line, LOG_MAX_LINE, level);
    va_start(ap, fmt);
    r = vsnprintf(line + head, LOG_MAX_LINE - head, fmt, ap);
    va_end(ap);
    if (r < 0) {
        return;
    }
    n = head + (size_t)r;
    if (n >= LOG_MAX_LINE) {
        n = LOG_MAX_LINE - 1;
        memcpy(line + n - strlen(cut), cut, strlen(cut));
    }
    for (size_t i = head; i < n; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[n++] = '\n';
    if (write(atomic_load(&log_fd), line, n) < 0) {
        /* See the top: the line is lost, the daemon goes on. */
    }
}

bool log_limit_ok(struct log_limit *l, int64_t now_ms, uint64_t *ret_dropped)
{
    if (l->window_start == INT64_MIN ||
        now_ms - l->window_start >= l->window_ms) {
        l->window_start = now_ms;
        l->n_window = 0;
    }
    if (l->n_window >= l->burst) {
        l->n_dropped++;
        return false;
    }
    l->n_window++;
    *ret_dropped = l->n_dropped;
    l->n_dropped = 0;
    return true;
}
