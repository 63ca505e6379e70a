/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Log lines on stderr.
 *
 * Owns the log level, which with the stop flag in main.c is all the global
 * state there is. Any thread may log: a line is built on the caller's stack
 * and leaves by one write(2), so lines never mix and no lock is held. A write
 * that fails (a full disk, a journal that is gone) loses the line and nothing
 * else: a daemon must not stop answering because nobody takes its log. For the
 * same reason nothing here waits for a journal that has stopped reading: both
 * of its sockets are written without blocking, and lost lines are counted.
 *
 * Lines with fields go to the journal's own socket, in its native form: KEY=
 * VALUE lines in one datagram. (sd_journal_send would wait for a full queue.)
 */

#include "daemon/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static atomic_int log_level_now = LOG_INFO;
static atomic_int log_fd = STDERR_FILENO;
static atomic_bool log_prefix;
static atomic_int journal_fd = -1; /* connected to the journal, or -1 */
static atomic_uint n_lost;         /* lines, since the last that was taken */

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

void log_journal_to(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0) {
        close(fd);
        fd = -1;
    }
    fd = atomic_exchange(&journal_fd, fd);
    if (fd >= 0) {
        close(fd);
    }
}

void log_init(enum log_level level)
{
    bool journal = stderr_is_journal();

    log_set_level(level);
    log_to(STDERR_FILENO, journal);
    if (journal) {
        log_journal_to("/run/systemd/journal/socket");
    }
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

/* Appends the message to the head of n bytes; control characters are shown as
 * '?', a line that is too long ends in "...". The new length. */
static size_t put_text(char *line, size_t head, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

static size_t put_text(char *line, size_t head, const char *fmt, va_list ap)
{
    static const char cut[] = "...";
    int r = vsnprintf(line + head, LOG_MAX_LINE - head, fmt, ap);
    size_t n = head + (r > 0 ? (size_t)r : 0);

    if (n >= LOG_MAX_LINE) {
        n = LOG_MAX_LINE - 1;
        memcpy(line + n - strlen(cut), cut, strlen(cut));
    }
    for (size_t i = head; i < n; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    return n;
}

/* A line that nobody takes now is lost; the next one that is taken is followed
 * by how many were. */
static void send_line(const char *line, size_t n)
{
    int fd = atomic_load(&log_fd);
    char note[80];
    unsigned lost;
    ssize_t r = send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (r < 0 && errno == ENOTSOCK) {
        r = write(fd, line, n);
    }
    if (r < 0) {
        atomic_fetch_add(&n_lost, 1);
        return;
    }
    lost = atomic_exchange(&n_lost, 0);
    if (lost > 0) {
        int k = snprintf(
            note, sizeof(note), "%s%u log lines were lost\n",
            atomic_load(&log_prefix) ? levels[LOG_WARN].prefix : "", lost);
        if (write(fd, note, (size_t)k) < 0) {
            atomic_fetch_add(&n_lost, lost);
        }
    }
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[LOG_MAX_LINE + 1]; /* + the newline */
    size_t n;
    va_list ap;

    if (!log_enabled(level)) {
        return;
    }
    n = (size_t)put_head(line, LOG_MAX_LINE, level);
    va_start(ap, fmt);
    n = put_text(line, n, fmt, ap);
    va_end(ap);
    line[n++] = '\n';
    send_line(line, n);
}

/* ---- lines with fields --------------------------------------------------- */

static size_t put_field(char *p, size_t size, const char *name, int64_t v)
{
    return v < 0 ? 0 : (size_t)snprintf(p, size, "%s=%" PRId64 "\n", name, v);
}

/* The fields, before the message. */
static size_t put_fields(char *p, size_t size, enum log_level level,
                         const struct log_about *a)
{
    size_t n = (size_t)snprintf(p, size,
                                "SYSLOG_IDENTIFIER=stepd\nPRIORITY=%c\n"
                                "MESSAGE_ID=%s\n",
                                levels[level].prefix[1], a->message_id);

    n += put_field(p + n, size - n, "REQUEST_ID", a->request_id);
    n += put_field(p + n, size - n, "UID", a->uid);
    n += put_field(p + n, size - n, "TOKENS", a->tokens);
    n += put_field(p + n, size - n, "DURATION_MS", a->duration_ms);
    return n + (size_t)snprintf(p + n, size - n, "MESSAGE=");
}

void log_event(enum log_level level, const struct log_about *about,
               const char *fmt, ...)
{
    int fd = atomic_load(&journal_fd);
    char line[LOG_MAX_LINE + 1];
    size_t n;
    va_list ap;

    if (!log_enabled(level)) {
        return;
    }
    n = fd < 0 ? (size_t)put_head(line, LOG_MAX_LINE, level)
               : put_fields(line, LOG_MAX_LINE, level, about);
    va_start(ap, fmt);
    n = put_text(line, n, fmt, ap);
    va_end(ap);
    line[n++] = '\n';
    if (fd < 0) {
        send_line(line, n);
    } else if (send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        atomic_fetch_add(&n_lost, 1);
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
