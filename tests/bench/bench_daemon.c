/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
/*
 * The whole service, measured from outside: starts a private stepd on a
 * checkpoint (default: the bundled step-tiny), and prints time to READY,
 * memory, and for 1 to 32 streams: prefill and decode tokens/s, tokens/s of the
 * whole (from the first request to the last token), the 95th of a hundred times
 * between tokens that a reader sees, and what the socket adds to a token.
 * Before these the time to the first token of a prompt of some 512 tokens,
 * alone.
 *
 * Greedy requests with ids asked for, so that each token is seen when it comes.
 * Prefill is timed by the daemon (queue_ms + prefill_ms, from when all prompts
 * are there until the last of them is read), decode by both sides:
 * the difference, a token, is what socket, protocol and library cost. Several
 * rounds, medians. Asserts nothing.
 *
 * Of the decode also: the bytes of weights and KV that the steps read in it (by
 * the daemon's own count, from when all streams had started), by the time, and
 * that by what the probe reads before and after the round.
 *
 *     bench_daemon [STEPD [MODEL [WORDS [ROUNDS [STATE_DIR]]]]]
 *
 * WORDS: of a prompt, each some eight tokens of the bundled tokenizer.
 * STATE_DIR: the daemon's, where it keeps packed weights (weights = compact).
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "tests/bench/probe.h"
#include "tests/paths.h"

#define MAX_ROUNDS 20
#define MAX_STREAMS 32
#define MAX_WORDS 1000
#define ANSWER 96
#define FIRST_WORDS 64 /* some 512 tokens, as prefill in bench_model */

static int n_words = 220, n_rounds = 5;
static struct probe *probe;

/* What one round of so many streams came to. */
struct figures {
    double prefill, decode, whole; /* tokens/s */
    double p95_ms, added_us;
    double read, of_probe; /* bytes a second in decode, by the probe */
};

/* What the steps had read by then. */
struct reads {
    double bytes, at_ms;
    bool asked;
};

struct stream {
    double first_ms, last_ms; /* when the client saw tokens come */
    double queue_ms, prefill_ms, decode_ms;
    double at[ANSWER + 1]; /* when each token came */
    int n_at;
    int64_t prompt, answer;
    int done, failed;
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return v[n / 2];
}

static void die(const char *what, int code)
{
    fprintf(stderr, "bench_daemon: %s: %s\n", what, step_strerror(code));
    exit(1);
}

static pid_t start(const char *stepd, const char *model, const char *sock,
                   const char *state_dir)
{
    char dir[512];
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        dup2(null, STDERR_FILENO);
        snprintf(dir, sizeof(dir), "state_dir=%s",
                 state_dir != NULL ? state_dir : "");
        execl(stepd, stepd, "--config", "/dev/null", "--model", model,
              "--socket", sock, state_dir != NULL ? "--set" : (char *)NULL, dir,
              "--set", "weights=compact", (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Connects and asks until the daemon says that it is ready. */
static struct step_client *ready(const char *sock)
{
    struct timespec pause = {0, 2000000};
    struct step_client *c = NULL;
    struct step_request *r;
    int err = step_client_create(&c);

    for (int i = 0; err == 0 && i < 5000; i++) {
        err = step_client_connect(c, sock);
        if (err == 0) {
            break;
        }
        err = 0;
        nanosleep(&pause, NULL);
    }
    /* A generate waits in the queue while the model loads. */
    step_request_create(&r, "generate");
    step_request_set_str(r, "prompt", STEP_STR("a"));
    step_request_set_int(r, "max_tokens", 1);
    err = step_client_call(c, r, NULL, NULL);
    step_request_destroy(r);
    if (err < 0) {
        die("no answer", err);
    }
    return c;
}

static double memory_mib(pid_t pid, const char *field)
{
    char path[64], line[256];
    double kib = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0) {
            kib = atof(line + strlen(field) + 1);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib / 1024;
}

static void submit(struct step_client *c, struct stream *s, int words, int seed)
{
    static int serial; /* in front: no two prompts share a page */
    char prompt[MAX_WORDS * 12 + 16];
    struct step_request *r;
    size_t n = (size_t)snprintf(prompt, sizeof(prompt), "%d: ", serial++);
    int err;

    for (int i = 0; i < words; i++) {
        n += (size_t)snprintf(prompt + n, sizeof(prompt) - n, "%d apples, ",
                              (i * 7 + seed * 13) % 97);
    }
    step_request_create(&r, "generate");
    step_request_set_str(r, "prompt", prompt, n);
    step_request_set_int(r, "max_tokens", ANSWER);
    step_request_set_real(r, "temperature", 1);
    step_request_set_int(r, "seed", seed);
    step_request_set_int(r, "drafts", 0);
    step_request_set_bool(r, "want_ids", true);
    step_request_set_bool(r, "ignore_eos", true);
    err = step_client_submit(c, r, s, NULL);
    step_request_destroy(r);
    if (err < 0) {
        die("submit", err);
    }
}

static void take_reads(void *arg, const struct step_event *e)
{
    struct reads *r = arg;
    uint64_t weights = 0, kv = 0;

    if (step_event_type(e) == STEP_EVENT_DONE) {
        step_event_get_uint(e, "steps.weight_bytes", &weights);
        step_event_get_uint(e, "steps.kv_bytes", &kv);
        r->bytes = (double)weights + (double)kv;
        r->at_ms = now_ms();
    }
}

/* Asks for what the steps have read; the answer comes between others' events,
 * or, with wait, at once. */
static void ask_reads(struct step_client *c, struct reads *r, bool wait)
{
    struct step_request *q;
    int err;

    r->asked = true;
    step_request_create(&q, "status");
    err = wait ? step_client_call(c, q, take_reads, r)
               : step_client_submit(c, q, r, NULL);
    step_request_destroy(q);
    if (err < 0) {
        die("status", err);
    }
}

static void take(const struct step_event *e)
{
    struct stream *s = step_event_userdata(e);
    size_t ids;

    switch (step_event_type(e)) {
    case STEP_EVENT_DELTA:
        if (step_event_get_count(e, "ids", &ids) == 0 && ids > 0) {
            s->last_ms = now_ms();
            if (s->first_ms == 0) {
                s->first_ms = s->last_ms;
            }
            while (ids-- > 0 && s->n_at <= ANSWER) {
                s->at[s->n_at++] = s->last_ms;
            }
        }
        break;
    case STEP_EVENT_DONE:
        step_event_get_int(e, "usage.prompt_tokens", &s->prompt);
        step_event_get_int(e, "usage.completion_tokens", &s->answer);
        step_event_get_real(e, "timings.queue_ms", &s->queue_ms);
        step_event_get_real(e, "timings.prefill_ms", &s->prefill_ms);
        step_event_get_real(e, "timings.decode_ms", &s->decode_ms);
        s->done = 1;
        break;
    case STEP_EVENT_ERROR:
        s->failed = s->done = 1;
        break;
    default:
        break;
    }
}

/* The waits between the deliveries that readers saw; tokens that came together
 * waited as long as the first of them, so each delivery counts once. */
static double p95_between(const struct stream *s, int n)
{
    static double wait[MAX_STREAMS * ANSWER];
    int k = 0;

    for (int i = 0; i < n; i++) {
        for (int j = 1; j < s[i].n_at; j++) {
            if (s[i].at[j] > s[i].at[j - 1]) {
                wait[k++] = s[i].at[j] - s[i].at[j - 1];
            }
        }
    }
    qsort(wait, (size_t)k, sizeof(*wait), by_value);
    return k > 0 ? wait[k * 95 / 100] : 0;
}

static bool all_started(const struct stream *s, int n)
{
    for (int i = 0; i < n; i++) {
        if (s[i].first_ms == 0) {
            return false;
        }
    }
    return true;
}

/* One round of n streams at once. */
static struct figures run(struct step_client *c, int n, int round)
{
    struct stream s[MAX_STREAMS] = {0};
    struct reads from = {0}, to = {0};
    const struct step_event *e;
    double first = 0, last = 0, extra = 0;
    int64_t prompt = 0, together = 0, answer = 0;
    double prefill_ms = 0, probed = probe_read(probe), start = now_ms();
    int left = n;

    for (int i = 0; i < n; i++) {
        submit(c, &s[i], n_words, 1 + i + round * MAX_STREAMS);
    }
    while (left > 0) {
        while ((e = step_client_next(c)) != NULL) {
            struct stream *of = step_event_userdata(e);

            if (step_event_userdata(e) == &from) {
                take_reads(&from, e);
                continue;
            }
            take(e);
            left -= of->done;
            if (!from.asked && all_started(s, n)) {
                ask_reads(c, &from, false);
            }
        }
        if (left > 0 && step_client_wait(c, -1) < 0) {
            die("wait", STEP_E_DISCONNECTED);
        }
    }
    for (int i = 0; i < n; i++) {
        double wall = s[i].last_ms - s[i].first_ms;

        if (s[i].failed || s[i].answer < 2) {
            die("a stream failed", STEP_E_INTERNAL);
        }
        first = i == 0 || s[i].first_ms > first ? s[i].first_ms : first;
        last = s[i].last_ms > last ? s[i].last_ms : last;
        prompt += s[i].prompt;
        answer += s[i].answer;
        /* All came at once: until the last of them has been read. Their own
         * prefill times overlap or follow each other, as steps are planned. */
        double read_ms = s[i].queue_ms + s[i].prefill_ms;
        prefill_ms = read_ms > prefill_ms ? read_ms : prefill_ms;
        extra += (wall - s[i].decode_ms) / (double)(s[i].answer - 1);
    }
    /* Decode: tokens that came once all streams had started. */
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < s[i].n_at; j++) {
            together += s[i].at[j] > first;
        }
    }
    ask_reads(c, &to, true);
    probed = (probed + probe_read(probe)) / 2;
    to.bytes -= from.bytes;
    return (struct figures){
        .prefill = (double)prompt / prefill_ms * 1e3,
        .decode = (double)together / (last - first) * 1e3,
        .whole = (double)answer / (last - start) * 1e3,
        .p95_ms = p95_between(s, n),
        .added_us = extra / n * 1e3,
        .read = to.bytes / (last - from.at_ms) * 1e3,
        .of_probe = to.bytes / (last - from.at_ms) * 1e3 / probed,
    };
}

/* From the request to its first token as the reader gets it, nothing else being
 * asked for. */
static void print_first(struct step_client *c)
{
    double ms[MAX_ROUNDS], rate[MAX_ROUNDS];

    for (int round = 0; round < n_rounds; round++) {
        struct stream s = {0};
        const struct step_event *e;
        double start = now_ms();

        submit(c, &s, FIRST_WORDS, 1 + round);
        while (!s.done) {
            while ((e = step_client_next(c)) != NULL) {
                take(e);
            }
            if (!s.done && step_client_wait(c, -1) < 0) {
                die("wait", STEP_E_DISCONNECTED);
            }
        }
        if (s.failed || s.answer < 2) {
            die("a stream failed", STEP_E_INTERNAL);
        }
        ms[round] = s.first_ms - start;
        rate[round] = (double)s.prompt / ms[round] * 1e3;
        if (round == n_rounds - 1) {
            printf(
                "first token of %3d     %8.1f ms, prompt by time %.0f tok/s\n",
                (int)s.prompt, median(ms, n_rounds), median(rate, n_rounds));
        }
    }
}

/* Medians over the rounds, each figure by itself. */
static void print_line(struct step_client *c, int n)
{
    double v[7][MAX_ROUNDS];

    for (int round = 0; round < n_rounds; round++) {
        struct figures f = run(c, n, round);

        v[0][round] = f.prefill;
        v[1][round] = f.decode;
        v[2][round] = f.whole;
        v[3][round] = f.p95_ms;
        v[4][round] = f.added_us;
        v[5][round] = f.read / 1e9;
        v[6][round] = f.of_probe;
    }
    printf("%8d %14.0f %14.0f %14.0f %14.2f %14.1f %8.1f %8.2f\n", n,
           median(v[0], n_rounds), median(v[1], n_rounds),
           median(v[2], n_rounds), median(v[3], n_rounds),
           median(v[4], n_rounds), median(v[5], n_rounds),
           median(v[6], n_rounds));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *stepd = argc > 1 ? argv[1] : TEST_BUILDDIR "/daemon/stepd";
    const char *model =
        argc > 2 ? argv[2] : TEST_SRCDIR "/tests/data/step-tiny";
    static const int streams[] = {1, 4, 8, 16, 32};
    char dir[] = "/tmp/bench_daemon.XXXXXX", sock[sizeof(dir) + 8];
    struct step_client *c;
    double t0, up;
    pid_t pid;
    int status;

    n_words = argc > 3 ? atoi(argv[3]) : n_words;
    n_rounds = argc > 4 ? atoi(argv[4]) : n_rounds;
    if (n_words < 1 || n_words > MAX_WORDS || n_rounds < 1 ||
        n_rounds > MAX_ROUNDS) {
        fprintf(stderr, "bench_daemon: 1 to %d words, 1 to %d rounds\n",
                MAX_WORDS, MAX_ROUNDS);
        return 2;
    }
    if (mkdtemp(dir) == NULL) {
        perror("bench_daemon: mkdtemp");
        return 1;
    }
    probe = probe_create(0, NULL);
    if (probe == NULL) {
        die("the probe", STEP_E_NO_MEMORY);
    }
    snprintf(sock, sizeof(sock), "%s/s", dir);
    t0 = now_ms();
    pid = start(stepd, model, sock, argc > 5 ? argv[5] : NULL);
    c = ready(sock);
    up = now_ms() - t0;
    printf("start to first answer  %8.1f ms\n", up);
    printf("memory after load      %8.1f MiB resident (%.1f anonymous)\n",
           memory_mib(pid, "VmRSS"), memory_mib(pid, "RssAnon"));
    print_first(c);
    printf("%8s %14s %14s %14s %14s %14s %8s %8s\n", "", "prefill", "decode",
           "aggregate", "p95 between", "socket adds", "reads", "by the");
    printf("%8s %14s %14s %14s %14s %14s %8s %8s\n", "streams", "tok/s",
           "tok/s", "tok/s", "tokens, ms", "us/token", "GB/s", "probe");
    for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
        print_line(c, streams[i]);
    }
    printf("memory at the end      %8.1f MiB resident (%.1f anonymous)\n",
           memory_mib(pid, "VmRSS"), memory_mib(pid, "RssAnon"));
    step_client_destroy(c);
    probe_destroy(probe);
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    rmdir(dir);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
