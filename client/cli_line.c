/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Prompts typed at a terminal: libedit with a history, a pasted block as one
 * prompt, a trailing backslash that goes on with the next line. Where the
 * terminal cannot move its cursor (TERM=dumb) lines are read as they come.
 *
 * Signals reach us between two keys and nowhere else: libedit's own handlers
 * would send them on to the whole process group. The terminal is in libedit's
 * mode only inside of cli_line_read.
 */

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "client/cli.h"

#define N_HISTORY 1000
#define PROMPT "> "
#define PROMPT_MORE "... "
/* Around a pasted block, once the terminal was asked for it. */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
static const wchar_t paste_end[] = L"\033[201~";

struct cli_line {
    EditLine *edit; /* NULL: plain lines */
    History *history;
    char path[PATH_MAX]; /* of the history; "": none is kept */
    bool more;           /* reading the lines after a backslash */
    bool eof;
};

static volatile sig_atomic_t resized, stopped;

static void on_signal(int sig)
{
    if (sig == SIGWINCH) {
        resized = 1;
    } else {
        stopped = 1;
    }
}

/* ---- the history's file ------------------------------------------------- */

/* Folders on the way to a file, for its owner only. */
static void make_folders(const char *path)
{
    char copy[PATH_MAX];

    snprintf(copy, sizeof(copy), "%s", path);
    for (char *s = strchr(copy + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        (void)mkdir(copy, 0700);
        *s = '/';
    }
}

/* $STEPCTL_HISTORY, where "" is none; else below $XDG_STATE_HOME. */
static void find_history(struct cli_line *l)
{
    const char *own = getenv("STEPCTL_HISTORY");
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n = 0;

    if (own != NULL) {
        n = snprintf(l->path, sizeof(l->path), "%s", own);
    } else if (state != NULL && state[0] == '/') {
        n = snprintf(l->path, sizeof(l->path), "%s/stepd/history", state);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(l->path, sizeof(l->path), "%s/.local/state/stepd/history",
                     home);
    }
    if (n >= (int)sizeof(l->path)) {
        l->path[0] = '\0';
    }
}

/* At each prompt, so that it is there however the program ends. What cannot be
 * written is not worth a word. */
static void remember(struct cli_line *l, const char *text)
{
    HistEvent ev;

    if (l->history == NULL) {
        return;
    }
    history(l->history, &ev, H_ENTER, text);
    if (l->path[0] != '\0') {
        mode_t before = umask(077);
        make_folders(l->path);
        history(l->history, &ev, H_SAVE, l->path);
        umask(before);
    }
}

/* ---- keys --------------------------------------------------------------- */

static void bracket_paste(bool on)
{
    const char *s = on ? PASTE_ON : PASTE_OFF;

    while (write(STDOUT_FILENO, s, strlen(s)) < 0 && errno == EINTR) {
    }
}

/* Ctrl-Z: the terminal as the shell expects it, and back. */
static void stop(EditLine *el)
{
    struct sigaction ours, plain = {.sa_handler = SIG_DFL};
    sigset_t set, before;

    stopped = 0;
    bracket_paste(false);
    el_set(el, EL_PREP_TERM, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    sigaction(SIGTSTP, &plain, &ours);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, &before); /* here we stand still */
    sigprocmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGTSTP, &ours, NULL);
    el_set(el, EL_PREP_TERM, 1);
    bracket_paste(true);
    el_resize(el);
    el_set(el, EL_REFRESH);
}

/* One byte. 1; 0 at the end; -1 when a signal asks for an end. The signals are
 * blocked but while it waits. */
static int get_byte(EditLine *el, char *c)
{
    for (;;) {
        if (cli_signal() != 0) {
            errno = EINTR;
            return -1;
        }
        if (stopped != 0) {
            stop(el);
        }
        if (resized != 0) {
            resized = 0;
            el_resize(el);
            el_set(el, EL_REFRESH);
        }
        if (!cli_wait_input()) {
            continue;
        }
        ssize_t n = read(STDIN_FILENO, c, 1);
        if (n >= 0) {
            return (int)n;
        }
        if (errno != EINTR && errno != EAGAIN) {
            return 0; /* the terminal has gone */
        }
    }
}

static int get_char(EditLine *el, wchar_t *ret)
{
    mbstate_t state = {0};
    char c;

    for (;;) {
        int n = get_byte(el, &c);
        if (n <= 0) {
            return n;
        }
        size_t done = mbrtowc(ret, &c, 1, &state);
        if (done == (size_t)-1) {
            /* Not of this character set: skipped. */
            state = (mbstate_t){0};
        } else if (done != (size_t)-2) {
            return 1;
        }
    }
}

/* Appends what was pasted. Terminals send CR for a line end; other control
 * characters have no place in a prompt. */
static bool paste_put(wchar_t **text, size_t *n, wchar_t c)
{
    if (c == L'\r') {
        c = L'\n';
    }
    if (c != L'\n' && c != L'\t' && (c < 0x20 || (c >= 0x7f && c < 0xa0))) {
        return true;
    }
    if (*n % 1024 == 0) {
        wchar_t *grown = realloc(*text, (*n + 1025) * sizeof(**text));
        if (grown == NULL) {
            return false;
        }
        *text = grown;
    }
    (*text)[(*n)++] = c;
    (*text)[*n] = L'\0';
    return true;
}

/* Bound to PASTE_BEGIN: everything up to paste_end goes into the line as it is,
 * line ends included. A last one is not wanted: Enter is pressed by hand. */
static unsigned char paste(EditLine *el, int key)
{
    const size_t n_end = sizeof(paste_end) / sizeof(paste_end[0]) - 1;
    wchar_t *text = NULL, c;
    size_t n = 0, matched = 0;
    bool ok = true;

    (void)key;
    while (ok && matched < n_end) {
        if (el_wgetc(el, &c) != 1) {
            free(text);
            return CC_EOF;
        }
        if (c == paste_end[matched]) {
            matched++;
            continue;
        }
        for (size_t i = 0; i < matched && ok; i++) {
            ok = paste_put(&text, &n, paste_end[i]);
        }
        matched = c == paste_end[0];
        ok = ok && (matched > 0 || paste_put(&text, &n, c));
    }
    if (n > 0 && text[n - 1] == L'\n') {
        text[--n] = L'\0';
    }
    ok = ok && (n == 0 || el_winsertstr(el, text) == 0);
    free(text);
    return ok ? CC_REFRESH : CC_ERROR;
}

/* ---- opening ------------------------------------------------------------ */

static char *prompt(EditLine *el)
{
    static char first[] = PROMPT, more[] = PROMPT_MORE;
    struct cli_line *l = NULL;

    el_get(el, EL_CLIENTDATA, &l);
    return l != NULL && l->more ? more : first;
}

static void open_edit(struct cli_line *l)
{
    HistEvent ev;

    /* Wide characters need a character set; the daemon's is UTF-8. */
    if (setlocale(LC_CTYPE, "") == NULL ||
        strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
    l->edit = el_init("stepctl", stdin, stdout, stderr);
    l->history = history_init();
    if (l->edit == NULL || l->history == NULL) {
        return;
    }
    history(l->history, &ev, H_SETSIZE, N_HISTORY);
    history(l->history, &ev, H_SETUNIQUE, 1);
    find_history(l);
    if (l->path[0] != '\0') {
        history(l->history, &ev, H_LOAD, l->path);
    }
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_PROMPT, prompt);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_HIST, history, l->history);
    el_source(l->edit, NULL); /* ~/.editrc: vi, keys */
    el_set(l->edit, EL_SIGNAL, 0);
    el_set(l->edit, EL_GETCFN, get_char);
    el_set(l->edit, EL_ADDFN, "stepctl-paste", "a pasted block", paste);
    el_set(l->edit, EL_BIND, PASTE_BEGIN, "stepctl-paste", NULL);
}

struct cli_line *cli_line_open(void)
{
    struct cli_line *l = calloc(1, sizeof(*l));
    const char *term = getenv("TERM");

    if (l == NULL) {
        cli_error("out of memory");
        exit(EX_OSERR);
    }
    if (term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0) {
        open_edit(l);
    }
    return l;
}

void cli_line_close(struct cli_line *l)
{
    if (l->edit != NULL) {
        el_end(l->edit);
    }
    if (l->history != NULL) {
        history_end(l->history);
    }
    free(l);
}

/* ---- reading ------------------------------------------------------------ */

/* A line by libedit, its line end included; NULL at the end or interrupted. */
static const char *edit_line(struct cli_line *l, int *n)
{
    static const int signals[] = {SIGWINCH, SIGTSTP};
    struct sigaction ours = {.sa_handler = on_signal}, before[2];
    const char *line;

    for (int i = 0; i < 2; i++) {
        sigaction(signals[i], &ours, &before[i]);
    }
    cli_block_signals(true);
    el_resize(l->edit);
    /* Before the prompt is seen: a key between the two would be the terminal's
     * own, and Ctrl-D lost. */
    el_set(l->edit, EL_PREP_TERM, 1);
    bracket_paste(true);
    line = el_gets(l->edit, n);
    bracket_paste(false);
    cli_block_signals(false);
    for (int i = 0; i < 2; i++) {
        sigaction(signals[i], &before[i], NULL);
    }
    return line;
}

/* The same without libedit, into t. */
static bool plain_line(struct cli_line *l, struct cli_text *t)
{
    char c = 0;
    ssize_t n = 0;

    cli_write(l->more ? PROMPT_MORE : PROMPT,
              strlen(l->more ? PROMPT_MORE : PROMPT));
    cli_flush();
    while (c != '\n' && cli_signal() == 0) {
        n = read(STDIN_FILENO, &c, 1);
        if (n > 0) {
            cli_append(t, &c, 1);
        } else if (n == 0 || errno != EINTR) {
            return false;
        }
    }
    return cli_signal() == 0;
}

static bool read_line(struct cli_line *l, struct cli_text *t)
{
    int n = 0;

    if (l->edit == NULL) {
        return plain_line(l, t);
    }
    const char *line = edit_line(l, &n);
    if (line == NULL || n <= 0) {
        return false;
    }
    cli_append(t, line, (size_t)n);
    return line[n - 1] == '\n';
}

/* An odd number of backslashes at the end: the last becomes a line end. */
static bool goes_on(struct cli_text *t)
{
    size_t n = 0;

    while (n < t->n && t->p[t->n - 1 - n] == '\\') {
        n++;
    }
    if (n % 2 == 1) {
        t->p[t->n - 1] = '\n';
    }
    return n % 2 == 1;
}

bool cli_line_read(struct cli_line *l, struct cli_text *t)
{
    t->n = 0;
    cli_append(t, "", 0);
    l->more = false;
    do {
        if (!read_line(l, t)) {
            /* As the shell shows it; the terminal did not echo it. */
            cli_write("\n", 1);
            cli_flush();
            return false;
        }
        t->p[--t->n] = '\0';
        l->more = goes_on(t);
    } while (l->more);
    if (t->n > 0) {
        remember(l, t->p);
    }
    return true;
}
