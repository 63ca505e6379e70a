/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A saved session of a long conversation, back from the page cache: how long
 * who restores it waits, and what others notice of it meanwhile.
 *
 *     bench_session [TOKENS]
 *
 * The model is D of bench_model.c (the real KV: 48 KiB a token and 75 MB for
 * the window), below $STEPD_BENCH_DIR (/tmp/bench-model), where `make
 * bench-model ARGS='--model D --quick'` writes it. The session's pages are
 * random numbers, no prefill; its file lies beside the model and is removed.
 *
 * First the memory of the pool is asked for, as the engine does after its start
 * (kv_ready). alone: nobody else is there, each time with an empty cache. On a
 * machine that does other things, too, the CPU times say more: the two threads
 * work side by side. beside a stream: one answer is drawn meanwhile; between
 * two of its steps is moved what comes in a share of the step's target, and
 * that is what it notices.
 */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/sched/core.h"
#include "daemon/sched/store.h"
#include "tests/bench/probe.h"
#include "tests/paths.h"

#define ROUNDS 5
#define ROOM 1024

struct bench {
    struct model *m;
    struct core *core;
    struct core_conf conf;
    sem_t moved;
    char dir[512];
    uint64_t id, ended; /* the last job given, and the one of `last` */
    char last[256];     /* "" or what it failed of */
    int cached;
    int tokens; /* drawn by the stream */
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_session: %s: %s\n", what, why);
    exit(1);
}

/* ---- what the core asks of an engine ------------------------------------- */

static uint64_t clock_us(void *ctx)
{
    (void)ctx;
    return (uint64_t)(probe_now() * 1e6);
}

static void on_emit(void *ctx, struct event *e)
{
    struct bench *b = ctx;

    if (e->type == EVENT_DELTA) {
        b->tokens++;
    } else if (e->type == EVENT_DONE || e->type == EVENT_ERROR) {
        b->ended = e->job;
        b->cached = e->n_sessions > 0 ? e->sessions->cached : 0;
        (void)snprintf(b->last, sizeof(b->last), "%s",
                       e->type == EVENT_ERROR ? e->message : "");
    }
    event_destroy(e);
}

static void on_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level < 6) {
        fprintf(stderr, "bench_session: %s\n", line);
    }
}

static void on_wake(void *ctx)
{
    struct bench *b = ctx;

    (void)sem_post(&b->moved);
}

static void no_prepare(void *ctx, struct job *j)
{
    (void)ctx;
    (void)j;
}

/* ---- the file ------------------------------------------------------------ */

/* Pages of BF16 numbers between 2^-4 and 2, of both signs. */
static void random_numbers(void *to, size_t bytes, uint64_t seed)
{
    uint16_t *p = to;
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 88172645463325252u;

    for (size_t i = 0; i < bytes / 2; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (uint16_t)((x & 0x807fu) | ((123u + (x >> 20) % 5) << 7));
    }
}

static void describe(const struct bench *b, struct store_transfer *t, int len)
{
    const struct model_info *info = model_info(b->m);
    struct store_head *h = &t->head;
    uint32_t end = (uint32_t)(len + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK;
    uint32_t first = (uint32_t)(len - info->window) / MODEL_PAGE_TOK;
    int32_t *ids = calloc((size_t)len + 1, sizeof(*ids));

    t->aux = calloc(1, model_aux_bytes(b->m));
    t->messages = calloc(1, 1);
    t->tools = calloc(1, 1);
    t->open_aux = calloc(1, 1);
    if (ids == NULL || t->aux == NULL || t->messages == NULL ||
        t->tools == NULL || t->open_aux == NULL) {
        die("session", "no memory");
    }
    for (int i = 0; i <= len; i++) {
        ids[i] = 100 + i % 300;
    }
    t->ids = ids;
    store_owner(0, "", t->owner, sizeof(t->owner));
    (void)snprintf(t->name, sizeof(t->name), "long");
    h->fingerprint = info->fingerprint;
    (void)snprintf(h->kernels, sizeof(h->kernels), "%.*s",
                   (int)strcspn(info->device, ","), info->device);
    h->n_ids = (uint32_t)len + 1;
    h->n_committed = (uint32_t)len;
    h->aux_bytes = (uint32_t)model_aux_bytes(b->m);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        h->page_bytes[g] = model_page_bytes(b->m, (enum model_group)g);
    }
    h->n_pages[STORE_FULL] = end;
    h->n_pages[STORE_SLIDING] = end - first;
    h->first_page[STORE_SLIDING] = first;
    store_head_finish(h);
}

static void put_pages(struct store_transfer *t, enum store_run run)
{
    size_t bytes = t->head.page_bytes[store_group(run)];

    for (uint32_t i = 0; i < t->head.n_pages[run]; i++) {
        struct store_chunk *k = malloc(sizeof(*k) + bytes);

        if (k == NULL) {
            die("session", "no memory");
        }
        *k = (struct store_chunk){run, (int)i, 1};
        random_numbers(k->data, bytes, i + 1);
        if (mbox_push_wait(t->chunk, k) < 0) {
            die("session", "the store ended");
        }
    }
}

/* A session that was never computed. */
static void write_session(struct bench *b, int len)
{
    struct store_conf sc = {.dir = b->dir,
                            .chunk_bytes = STORE_CHUNK_BYTES,
                            .wake = on_wake,
                            .ctx = b};
    struct store_transfer *t = NULL;
    struct store *s = NULL;

    if (store_create(&s, &sc) < 0 || store_transfer_create(&t) < 0) {
        die(b->dir, strerror(errno));
    }
    describe(b, t, len);
    store_start(s, t);
    put_pages(t, STORE_FULL);
    put_pages(t, STORE_SLIDING);
    while (atomic_load(&t->state) == 0) {
        store_wait(s);
    }
    if (atomic_load(&t->state) < 0) {
        die("session", t->why);
    }
    printf("a session of %d tokens, %.2f GB\n", len,
           (double)t->head.file_bytes * 1e-9);
    store_transfer_destroy(t);
    store_destroy(s);
}

/* What a restore reads is in the page cache. */
static void warm(const struct bench *b)
{
    static char bytes[1 << 20];
    char file[600];
    int fd;

    (void)snprintf(file, sizeof(file), "%s/0/long", b->dir);
    fd = open(file, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && read(fd, bytes, sizeof(bytes)) > 0) {
    }
    (void)close(fd);
}

/* ---- the runs ------------------------------------------------------------ */

static void open_core(struct bench *b)
{
    b->conf = (struct core_conf){
        .model = b->m,
        .max_live = 8,
        .max_seqs = 1,
        .max_queued_tokens = 1 << 20,
        .max_batched_tokens = 512,
        .step_target_ms = 150,
        .drafts = -1,
        .kv_ready = 32768,
        .named = {16, 16, 1u << 26},
        .session_dir = b->dir,
        .session_disk = (uint64_t)1 << 40,
        .session_disk_per_owner = (uint64_t)1 << 40,
        .prepare = no_prepare,
        .wake = on_wake,
        .emit = on_emit,
        .log = on_log,
        .now_us = clock_us,
        .ctx = b,
    };
}

static void give(struct bench *b, struct job *j)
{
    j->id = ++b->id;
    j->born_us = clock_us(NULL);
    if (ticket_open(b->conf.tickets, j) < 0) {
        die("job", "refused");
    }
    core_add(b->core, j);
}

static void give_op(struct bench *b, enum session_op op)
{
    struct job *j = job_create(JOB_SESSION);

    j->op = op;
    (void)snprintf(j->session, sizeof(j->session), "long");
    give(b, j);
}

static struct job *stream(void)
{
    struct job *j = job_create(JOB_GENERATE);

    j->n_ids = 100;
    j->ids = malloc(100 * sizeof(*j->ids));
    if (j->ids == NULL) {
        die("stream", "no memory");
    }
    for (int i = 0; i < 100; i++) {
        j->ids[i] = 400 + i;
    }
    j->drafts = 0;
    j->ignore_eos = true;
    j->max_tokens = 900;
    return j;
}

struct wait {
    double seconds, cpu[2]; /* of this thread, of the store's */
    double longest;         /* between two steps of the stream */
    int steps;
};

static double cpu_time(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The engine's loop, until the last job given has ended. */
static void wait_for(struct bench *b, struct wait *ret)
{
    double begin = probe_now(), last = begin, now;
    double all = cpu_time(CLOCK_PROCESS_CPUTIME_ID);
    double own = cpu_time(CLOCK_THREAD_CPUTIME_ID);
    uint64_t id = b->id;

    memset(ret, 0, sizeof(*ret));
    while (b->ended != id) {
        bool moved = core_tend(b->core);

        if (core_step(b->core) > 0) {
            now = probe_now();
            ret->longest =
                now - last > ret->longest ? now - last : ret->longest;
            last = now;
            ret->steps++;
        } else if (!moved && b->ended != id) {
            (void)sem_wait(&b->moved);
        }
    }
    ret->seconds = probe_now() - begin;
    ret->cpu[0] = cpu_time(CLOCK_THREAD_CPUTIME_ID) - own;
    ret->cpu[1] = cpu_time(CLOCK_PROCESS_CPUTIME_ID) - all - ret->cpu[0];
    if (b->last[0] != '\0') {
        die("session", b->last);
    }
}

static void restore(struct bench *b, int len, struct wait *ret)
{
    give_op(b, SESSION_RESTORE);
    wait_for(b, ret);
    if (b->cached != len) {
        die("session", "restored, and not in the cache");
    }
}

/* A daemon that starts: an empty cache, over the same pool. */
static void start(struct bench *b)
{
    if (tickets_create(&b->conf.tickets, 8, 8) < 0 ||
        core_create(&b->core, &b->conf) < 0) {
        die("core", "cannot be made");
    }
}

static void stop(struct bench *b)
{
    core_end_all(b->core, true, "draining", "the end");
    while (core_step(b->core) > 0) {
    }
    core_destroy(b->core);
    tickets_destroy(b->conf.tickets);
}

/* As the engine does it while nobody asks anything. */
static void touch(struct bench *b)
{
    double begin = probe_now(), last = begin, longest = 0;

    while (core_touch(b->core)) {
        double now = probe_now();

        longest = now - last > longest ? now - last : longest;
        last = now;
    }
    if (b->id == 0) {
        printf("  memory of %d tokens asked for in %.3f s, at most %.1f ms at "
               "once\n",
               b->conf.kv_ready, probe_now() - begin, longest * 1e3);
    }
}

static void alone(struct bench *b, int len)
{
    struct wait w;

    start(b);
    touch(b);
    stop(b);
    printf("  alone, restored in s (CPU time of the engine's thread, of the "
           "store's):\n   ");
    for (int i = 0; i < ROUNDS; i++) {
        warm(b);
        start(b);
        restore(b, len, &w);
        stop(b);
        printf(" %.3f (%.3f, %.3f)", w.seconds, w.cpu[0], w.cpu[1]);
        fflush(stdout);
    }
    printf("\n");
}

static void beside(struct bench *b, int len)
{
    struct wait w;

    printf("  beside a stream, restored in s (its steps meanwhile, the longest "
           "time between two in ms):\n   ");
    for (int i = 0; i < ROUNDS; i++) {
        warm(b);
        start(b);
        give(b, stream());
        b->tokens = 0;
        while (b->tokens == 0) {
            (void)core_step(b->core);
        }
        restore(b, len, &w);
        stop(b);
        printf(" %.3f (%d, %.0f)", w.seconds, w.steps, w.longest * 1e3);
        fflush(stdout);
    }
    printf("\n");
}

static void open_model(struct bench *b, const char *top, int len)
{
    char path[512];
    struct model_conf c = {.path = path,
                           .backend = "cpu",
                           .drafts = -1,
                           .max_model_len = len + ROOM,
                           .max_seqs = 1,
                           .max_rows = 512};
    struct model_report rep = {0};
    struct stat st;
    int r;

    (void)snprintf(path, sizeof(path), "%s/D", top);
    (void)snprintf(b->dir, sizeof(b->dir), "%s/sessions", top);
    if (stat(path, &st) < 0) {
        die(path, "make bench-model ARGS='--model D --quick' writes it");
    }
    r = model_open(&b->m, &c, &rep);
    if (r < 0) {
        die(path, rep.n_problems > 0 ? rep.problem[0] : strerror(-r));
    }
    model_report_finish(&rep);
}

int main(int argc, char **argv)
{
    const char *top = getenv("STEPD_BENCH_DIR");
    int len = argc > 1 ? atoi(argv[1]) : 32768;
    char dir[512], file[600], why[256];
    struct tokenizer *tok;
    struct bench b = {0};

    (void)snprintf(dir, sizeof(dir), "%s/tests/data/step-tiny", TEST_SRCDIR);
    if (tokenizer_load(&tok, dir, why, sizeof(why)) < 0) {
        die(dir, why);
    }
    (void)sem_init(&b.moved, 0, 0);
    open_model(&b, top != NULL ? top : "/tmp/bench-model", len);
    if (len < model_info(b.m)->window) {
        die("TOKENS", "at least a window");
    }
    write_session(&b, len);
    open_core(&b);
    b.conf.tokenizer = tok;
    alone(&b, len);
    beside(&b, len);
    (void)snprintf(file, sizeof(file), "%s/0/long", b.dir);
    (void)unlink(file);
    model_close(b.m);
    tokenizer_destroy(tok);
    return 0;
}
