/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepd.conf, table-driven: the table below is the only place that knows keys.
 * conf_value.c turns one value's text into a field; this file reads files.
 *
 * Owns the texts and lists inside struct conf. Runs before any thread exists,
 * and in conf_reload on the I/O thread, the only one that reads struct conf.
 * The invariant: a struct conf handed out is complete and in range; with any
 * problem there is none, and every problem is told at once, with file and line.
 *
 * inih does the line syntax. Two things it would do quietly are taken from it
 * by the reader: cutting a line at its limit, and joining an indented line to
 * the one before.
 */

#include "daemon/base/conf.h"

#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "daemon/base/conf_value.h"
#include "daemon/base/die.h"

#define MAX_FILE_BYTES (1 << 20)
#define MAX_PROBLEMS 100
#define MAX_FILES 256 /* in FILE.d */

/* ---- the table ---------------------------------------------------------- */

static const char *const backends[] = {"auto", "cpu", "cuda",
#ifdef WITH_CUEMU
                                       "cuda-emulated",
#endif
                                       NULL};
static const char *const isas[] = {"auto",     "avx512bf16", "avx512", "avx2",
                                   "neonbf16", "portable",   NULL};
static const char *const weights[] = {"auto", "map",     "lock",
                                      "copy", "compact", NULL};
static const char *const depths[] = {"require", "auto", "0", "1",
                                     "2",       "3",    NULL};
static const char *const levels[] = {"error", "warning", "info", "debug", NULL};

#define AT(field) offsetof(struct conf, field)
#define TEXT(key, def, doc, live)                                   \
    {                                                               \
#key, CONF_TEXT, def, AT(key), 0, 0, NULL, 0, "", doc, live \
    }
#define WORD(key, def, words, doc, live)                             \
    {                                                                \
#key, CONF_WORD, def, AT(key), 0, 0, words, 0, "", doc, live \
    }
#define CHOICE(key, def, words, first, doc, live)                          \
    {                                                                      \
#key, CONF_CHOICE, def, AT(key), 0, 0, words, first, "", doc, live \
    }
#define NUMBER(key, type, def, min, max, unit, doc, live)            \
    {                                                                \
#key, type, def, AT(key), min, max, NULL, 0, unit, doc, live \
    }
#define BOOL(key, def, doc, live)                                   \
    {                                                               \
#key, CONF_BOOL, def, AT(key), 0, 0, NULL, 0, "", doc, live \
    }
#define IDS(key, type, doc)                                   \
    {                                                         \
#key, type, "", AT(key), 0, 0, NULL, 0, "", doc, true \
    }

#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)
#define SEC 1000.0

static const struct conf_key table[] = {
    /* clang-format off */
    TEXT(model, "", "The folder with the checkpoint", false),
    TEXT(served_model_name, "", "The name that clients see", true),
    WORD(backend, "auto", backends, "What computes", false),
    WORD(isa, "auto", isas, "The instruction set of the CPU backend", false),
    NUMBER(threads, CONF_INT, "0", 0, 1024, "threads",
        "Worker threads of the CPU backend", false),
    CHOICE(weights, "auto", weights, 0, "How weights lie in memory", false),
    TEXT(state_dir, "", "Where the daemon keeps files of its own", false),
    NUMBER(max_model_len, CONF_INT, "0", 0, 16777216, "tokens",
        "The longest sequence, prompt and answer together", false),
    NUMBER(kv_memory, CONF_BYTES, "0", 0, 1024 * 1024 * GIB, "bytes",
        "Memory for the KV cache", false),
    NUMBER(checkpoint_memory, CONF_BYTES, "0", 0, 1024 * 1024 * GIB, "bytes",
        "Memory for the checkpoints that prefixes are taken up at", false),
    BOOL(prefix_cache, "yes",
        "Whether what was computed is kept for later requests", false),
    BOOL(share_prefix_cache, "no",
        "Whether users take up each other's prefixes", false),
    NUMBER(kv_ready, CONF_INT, "32768", 0, 16777216, "tokens",
        "Tokens of the KV cache whose memory is asked for after the start",
        false),
    NUMBER(kv_share_per_owner, CONF_REAL, "1", 0.001, 1, "",
        "The share of the KV cache that one user (and tenant) may hold", false),
    NUMBER(memory_utilization, CONF_REAL, "0", 0, 0.99, "",
        "The share of memory that a plan may fill", false),
    BOOL(cuda_graphs, "yes",
        "Whether a step on a GPU is a graph", false),
    BOOL(exact, "yes",
        "Whether an answer computed with CUDA is a function of its request alone",
        false),
    CHOICE(drafts, "auto", depths, CONF_DRAFTS_REQUIRE,
        "The greatest depth of speculative drafting", false),
    NUMBER(max_seqs, CONF_INT, "64", 1, 4096, "sequences",
        "Requests that advance together in one step", false),
    NUMBER(max_batched_tokens, CONF_INT, "2048", 1, 65536, "rows",
        "Rows of one step at most", false),
    NUMBER(step_target_ms, CONF_INT, "150", 1, 60000, "ms",
        "The time that a step is meant to take", false),
    NUMBER(prefill_chunk, CONF_INT, "0", 0, 65536, "rows",
        "A fixed size of prefill chunks", false),

    TEXT(socket, "/run/stepd/stepd.sock", "Where to listen", false),
    TEXT(socket_group, "", "The group of the socket file", false),
    NUMBER(socket_mode, CONF_OCTAL, "0660", 0, 0777, "",
        "The mode of the socket file", false),
    IDS(allow_users, CONF_USERS, "Users who may generate"),
    IDS(allow_groups, CONF_GROUPS, "Groups whose members may generate"),
    IDS(observe_users, CONF_USERS, "Users who may see status and metrics only"),
    IDS(observe_groups, CONF_GROUPS,
        "Groups whose members may see status and metrics only"),
    IDS(admin_users, CONF_USERS, "Users who may do everything"),
    IDS(admin_groups, CONF_GROUPS, "Groups whose members may do everything"),
    IDS(delegate_users, CONF_USERS,
        "Users who may speak for tenants of their own"),

    NUMBER(max_connections, CONF_INT, "1024", 1, 60000, "connections",
        "Connections at once", false),
    NUMBER(max_connections_per_uid, CONF_INT, "256", 1, 60000, "connections",
        "Connections of one user at once", true),
    NUMBER(max_connections_per_tenant, CONF_INT, "64", 1, 60000, "connections",
        "Connections on which one tenant of a delegate has unanswered requests",
        true),
    NUMBER(max_in_flight, CONF_INT, "64", 1, 64, "requests",
        "Unanswered requests of one connection", true),
    NUMBER(max_in_flight_per_uid, CONF_INT, "256", 1, 65536, "requests",
        "Unanswered requests of one user", true),
    NUMBER(max_request_bytes_per_uid, CONF_BYTES, "64M", 16 * MIB, 64 * GIB,
        "bytes", "Bytes of unanswered requests of one user", true),
    NUMBER(max_queued_tokens_per_uid, CONF_INT, "1048576", 1, 1 << 30, "tokens",
        "Prompt tokens of one user that wait for their turn", false),
    NUMBER(max_queue, CONF_INT, "512", 1, 65536, "requests",
        "Requests that wait for their turn", false),
    NUMBER(max_prompt_tokens, CONF_INT, "0", 0, 16777216, "tokens",
        "The longest prompt", false),
    NUMBER(max_priority, CONF_INT, "0", 0, 10, "",
        "The highest priority of a request of a user who is no admin", true),
    NUMBER(max_unfinished_per_uid, CONF_BYTES, "64M", 64 * KIB, 64 * GIB,
        "bytes", "Bytes of unfinished frames of one user", true),
    NUMBER(max_output_soft, CONF_BYTES, "256K", 4 * KIB, 1 * GIB, "bytes",
        "Unread output of a connection above which its requests pause", true),
    NUMBER(max_output_hard, CONF_BYTES, "1M", 4 * KIB, 1 * GIB, "bytes",
        "Unread output of a connection above which it is not read", true),
    NUMBER(frame_timeout, CONF_TIME, "30s", 10, 3600 * SEC, "time",
        "How long one frame may take to arrive, the hello included", true),
    NUMBER(slow_client_timeout, CONF_TIME, "30s", 10, 3600 * SEC, "time",
        "How long a connection may stay above max_output_hard", true),

    NUMBER(idle_exit, CONF_TIME, "0", 0, 365 * 24 * 3600 * SEC, "time",
        "How long nobody may ask before the daemon ends", false),
    NUMBER(max_sessions, CONF_INT, "4096", 1, 1000000, "sessions",
        "Named sessions of all users", false),
    NUMBER(max_sessions_per_owner, CONF_INT, "256", 1, 1000000, "sessions",
        "Named sessions of one user (and tenant)", false),
    NUMBER(max_session_text_per_owner, CONF_BYTES, "64M", 1, 2 * GIB, "bytes",
        "Bytes of messages and tools in all sessions of one user (and tenant)", false),
    NUMBER(session_disk, CONF_BYTES, "256G", 0, 1024 * 1024 * GIB, "bytes",
        "Bytes of all saved sessions", false),
    NUMBER(session_disk_per_owner, CONF_BYTES, "64G", 0, 1024 * 1024 * GIB,
        "bytes", "Bytes of the saved sessions of one user (and tenant)", false),
    NUMBER(session_disk_floor, CONF_BYTES, "1G", 0, 1024 * 1024 * GIB, "bytes",
        "Bytes that a save leaves free on the disk", false),
    NUMBER(drain_timeout, CONF_TIME, "60s", 0, 24 * 3600 * SEC, "time",
        "How long a stop waits for running requests", true),
    CHOICE(log_level, "info", levels, 0, "What is logged", true),
    BOOL(log_text, "no", "Whether text may reach log and core dumps", false),
    NUMBER(oom_score_adj, CONF_INT, "500", 0, 1000, "",
        "Who is killed first when the host has no memory left", false),
    BOOL(test_hold_load, "no", "For tests: the load waits for a signal", false),
    BOOL(test_hold_steps, "no", "For tests: steps wait for a signal", false),
    /* clang-format on */
};
#define N_KEYS ((int)(sizeof(table) / sizeof(table[0])))

const struct conf_key *conf_keys(int *ret_n)
{
    *ret_n = N_KEYS;
    return table;
}

/* ---- one load ----------------------------------------------------------- */

struct load {
    struct conf conf;
    struct conf_report *rep;
    bool bad_key; /* the list of keys is told once, at the end */
    /* the file that is being read */
    FILE *f;
    const char *file;
    int line;
    long n_bytes;
    int line_of[N_KEYS]; /* where this file set the key, 0 = not */
    /* "FILE:LINE" of the value that holds; NULL: the built-in default */
    char *place[N_KEYS];
};
_Static_assert(N_KEYS <= CONF_MAX_KEYS, "keys of struct conf_changes");

void conf_report_finish(struct conf_report *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->line[i]);
    }
    free(r->line);
    r->line = NULL;
    r->n = 0;
}

static void problem(struct load *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void problem(struct load *l, const char *fmt, ...)
{
    struct conf_report *r = l->rep;
    char text[2048];
    va_list ap;
    int n = 0;

    if (r->n >= MAX_PROBLEMS) {
        return;
    }
    if (r->line == NULL) {
        r->line = xcalloc(MAX_PROBLEMS, sizeof(r->line[0]));
    }
    if (l->file != NULL && l->line > 0) {
        n = snprintf(text, 1024, "%s:%d: ", l->file, l->line);
    } else if (l->file != NULL) {
        n = snprintf(text, 1024, "%s: ", l->file);
    }
    n = n < 1023 ? n : 1023;
    va_start(ap, fmt);
    (void)vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    r->line[r->n++] = xstrdup(text);
}

static int key_find(const char *name)
{
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static void set_key(struct load *l, int i_key, const char *value)
{
    const struct conf_key *key = &table[i_key];
    char allowed[1024], why[256] = "";

    if (conf_value_set(&l->conf, key, value, why, sizeof(why)) < 0) {
        conf_allowed(key, allowed, sizeof(allowed));
        problem(l, "%s = %.200s: %s%sexpected %s (%s)", key->name, value, why,
                why[0] != '\0' ? "; " : "", allowed, key->doc);
    }
}

/* The file or option that is being read sets the key. */
static void set_key_here(struct load *l, int i_key, const char *value)
{
    char place[1100];

    if (l->line > 0) {
        (void)snprintf(place, sizeof(place), "%.1024s:%d", l->file, l->line);
    } else {
        (void)snprintf(place, sizeof(place), "%.1024s", l->file);
    }
    free(l->place[i_key]);
    l->place[i_key] = xstrdup(place);
    set_key(l, i_key, value);
}

static void unknown_key(struct load *l, const char *name)
{
    problem(l, "unknown key '%.100s'", name);
    l->bad_key = true;
}

static void tell_keys(struct load *l)
{
    char text[2048];
    size_t at = 0;

    for (int i = 0; i < N_KEYS; i++) {
        int n = snprintf(text + at, sizeof(text) - at, "%s%s",
                         i > 0 ? ", " : "", table[i].name);

        BUG_ON(n < 0 || at + (size_t)n >= sizeof(text));
        at += (size_t)n;
    }
    problem(l, "the keys are: %s", text);
}

/* ---- files -------------------------------------------------------------- */

/* inih's reader: one line, which inih may keep whole. Lines that inih would
 * misread are reported here and handed on empty. */
static char *read_line(char *str, int num, void *stream)
{
    struct load *l = stream;
    int limit = num - 3, n = 0, c;
    bool nul = false;
    char *s;

    l->line++;
    while ((c = getc(l->f)) != EOF && c != '\n') {
        nul |= c == '\0';
        if (n < limit) {
            str[n] = (char)c;
        }
        n += n <= limit;
        if (l->n_bytes++ > MAX_FILE_BYTES) {
            break; /* no end of line in sight either */
        }
    }
    l->n_bytes++;
    if (c == EOF && n == 0) {
        return NULL;
    }
    if (l->n_bytes > MAX_FILE_BYTES) {
        problem(l, "the file is longer than %d bytes", MAX_FILE_BYTES);
        return NULL;
    }
    str[n <= limit ? n : 0] = '\0';
    if (n > limit) {
        problem(l, "a line is longer than %d bytes", limit);
    } else if (nul) {
        problem(l, "a line holds a NUL byte");
        str[0] = '\0';
    }
    if (l->line == 1 && strncmp(str, "\xef\xbb\xbf", 3) == 0) {
        memmove(str, str + 3, strlen(str + 3) + 1);
    }
    s = str + strspn(str, " \t\r");
    if (*s == '[') {
        problem(l, "sections are not used here");
        *s = '\0';
    } else if (*s != '\0' && *s != '#' && *s != ';' &&
               strpbrk(s, "=:") == NULL) {
        problem(l, "'%.100s' is not KEY = VALUE", s);
        *s = '\0';
    }
    memmove(str, s, strlen(s) + 1);
    return str;
}

static int on_key(void *user, const char *section, const char *name,
                  const char *value)
{
    struct load *l = user;
    int i = key_find(name);

    (void)section; /* read_line lets none through */
    if (i < 0) {
        unknown_key(l, name);
    } else if (l->line_of[i] > 0) {
        problem(l, "%s is set a second time; first in line %d", name,
                l->line_of[i]);
    } else {
        l->line_of[i] = l->line;
        set_key_here(l, i, value);
    }
    return 1;
}

static void read_file(struct load *l, const char *file, bool may_be_absent)
{
    int before = l->rep->n, r;

    l->file = file;
    l->line = 0;
    l->n_bytes = 0;
    memset(l->line_of, 0, sizeof(l->line_of));
    l->f = fopen(file, "re");
    if (l->f == NULL) {
        if (!may_be_absent || errno != ENOENT) {
            problem(l, "%s", strerror(errno));
        }
        goto out;
    }
    r = ini_parse_stream(read_line, l, on_key, l);
    if (ferror(l->f)) {
        l->line = 0;
        problem(l, "%s", strerror(errno));
    } else if (r != 0 && l->rep->n == before) {
        l->line = r > 0 ? r : 0;
        problem(l, "not KEY = VALUE");
    }
    (void)fclose(l->f);
out:
    l->file = NULL;
    l->line = 0;
}

static int is_conf_name(const struct dirent *d)
{
    size_t n = strlen(d->d_name);

    return d->d_name[0] != '.' && n > 5 &&
           strcmp(d->d_name + n - 5, ".conf") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* FILE.d/ *.conf in the order of their names' bytes. */
static void read_folder(struct load *l, const char *file)
{
    struct dirent **list = NULL;
    char path[4096 + 512];
    int n;

    if (snprintf(path, sizeof(path), "%s.d", file) >= 4096) {
        return; /* the file itself could not be opened either */
    }
    n = scandir(path, &list, is_conf_name, by_name);
    if (n < 0) {
        if (errno != ENOENT) {
            l->file = path;
            problem(l, "%s", strerror(errno));
            l->file = NULL;
        }
        return;
    }
    for (int i = 0; i < n; i++) {
        if (i < MAX_FILES) {
            (void)snprintf(path, sizeof(path), "%.4090s.d/%s", file,
                           list[i]->d_name);
            read_file(l, path, false);
        } else if (i == MAX_FILES) {
            problem(l, "%s.d holds more than %d files", file, MAX_FILES);
        }
        free(list[i]);
    }
    free(list);
}

/* ---- all of it ---------------------------------------------------------- */

static void read_set(struct load *l, const char *set)
{
    const char *eq = strchr(set, '=');
    char name[64];
    int i;

    l->file = "--set";
    if (eq == NULL || eq - set >= (long)sizeof(name)) {
        problem(l, "'%.100s' is not KEY=VALUE", set);
    } else {
        memcpy(name, set, (size_t)(eq - set));
        name[eq - set] = '\0';
        i = key_find(name);
        if (i < 0) {
            unknown_key(l, name);
        } else {
            set_key_here(l, i, eq + 1);
        }
    }
    l->file = NULL;
}

/* What single values cannot say. */
static void check_whole(struct load *l)
{
    const struct conf *c = &l->conf;

    if (c->max_output_soft > c->max_output_hard) {
        problem(l, "max_output_soft must not be above max_output_hard");
    }
    if (c->prefill_chunk > c->max_batched_tokens) {
        problem(l, "prefill_chunk must not be above max_batched_tokens");
    }
    if (c->max_connections_per_uid > c->max_connections) {
        problem(l, "max_connections_per_uid must not be above max_connections");
    }
}

/* l.conf is complete where this returns 0, and gone otherwise. */
static int load_all(struct load *l, const struct conf_source *src)
{
    const char *file =
        src->file != NULL ? src->file : STEPD_CONFDIR "/stepd.conf";

    memset(l->rep, 0, sizeof(*l->rep));
    l->file = "built-in default";
    for (int i = 0; i < N_KEYS; i++) {
        set_key(l, i, table[i].def);
    }
    BUG_ON(l->rep->n > 0);
    read_file(l, file, src->file == NULL);
    read_folder(l, file);
    for (int i = 0; i < src->n_set; i++) {
        read_set(l, src->set[i]);
    }
    if (l->rep->n == 0) {
        check_whole(l);
    }
    if (l->bad_key) {
        tell_keys(l);
    }
    if (l->rep->n > 0) {
        conf_finish(&l->conf);
        return -EINVAL;
    }
    return 0;
}

static void forget_places(struct load *l)
{
    for (int i = 0; i < N_KEYS; i++) {
        free(l->place[i]);
    }
}

int conf_load(const struct conf_source *src, struct conf_report *rep,
              struct conf *ret)
{
    struct load l = {.rep = rep};
    int r = load_all(&l, src);

    forget_places(&l);
    if (r == 0) {
        *ret = l.conf;
    }
    return r;
}

int conf_reload(const struct conf_source *src, struct conf_report *rep,
                struct conf *c, struct conf_changes *ret)
{
    struct load l = {.rep = rep};
    int r = load_all(&l, src);

    ret->n = 0;
    if (r < 0) {
        goto out;
    }
    for (int i = 0; i < N_KEYS; i++) {
        if (conf_value_same(c, &l.conf, &table[i])) {
            continue;
        }
        ret->key[ret->n++] = table[i].name;
        if (!table[i].live) {
            problem(&l,
                    "%s%s%s cannot change while the daemon runs: restart "
                    "it, or put the old value back",
                    l.place[i] != NULL ? l.place[i] : "",
                    l.place[i] != NULL ? ": " : "", table[i].name);
            r = -EPERM;
        }
    }
    for (int i = 0; r == 0 && i < N_KEYS; i++) {
        if (table[i].live) {
            conf_value_swap(c, &l.conf, &table[i]);
        }
    }
    conf_finish(&l.conf); /* the old values, where they were exchanged */
out:
    forget_places(&l);
    return r;
}

void conf_finish(struct conf *c)
{
    for (int i = 0; i < N_KEYS; i++) {
        conf_value_clear(c, &table[i]);
    }
}
