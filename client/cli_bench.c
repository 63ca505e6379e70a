/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl bench: so many requests at once, level by level, and what each of
 * them saw: the time to the first token, the times between tokens, and the
 * tokens of all together. Its own loop over the library, for here many requests
 * are in flight on the one connection.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli.h"

#define MAX_LEVELS 16
#define MAX_CONCURRENCY 64 /* requests that a connection may have in flight */
#define WORDS "the quick brown fox jumps over the lazy dog and runs away "

struct times {
    double *ms;
    size_t n, room;
};

struct level {
    struct times first, between;
    int64_t prompt, answer; /* tokens of all */
    int n_begun, n_ended, code;
};

/* A request in flight: its userdata. level NULL: free. */
struct one {
    struct level *level;
    double begun, last;
};

struct bench {
    struct cli *cli;
    int64_t n_requests, n_prompt, n_answer;
    double bytes_a_token;
    int level[MAX_LEVELS], n_levels;
    unsigned n_asked; /* makes every prompt another one */
    struct one one[MAX_CONCURRENCY];
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void add(struct times *t, double ms)
{
    if (t->n == t->room) {
        t->room = t->room > 0 ? 2 * t->room : 1024;
        t->ms = realloc(t->ms, t->room * sizeof(*t->ms));
        if (t->ms == NULL) {
            cli_error("out of memory");
            exit(EX_OSERR);
        }
    }
    t->ms[t->n++] = ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The smallest value that q of all values do not exceed; they are sorted. */
static double quantile(const struct times *t, double q)
{
    double at = q * (double)t->n;
    size_t i = (size_t)at;

    if (t->n == 0) {
        return 0;
    }
    i -= i > 0 && (double)i == at;
    return t->ms[i < t->n ? i : t->n - 1];
}

/* ---- requests ----------------------------------------------------------- */

/* A prompt of about so many tokens, unlike any other from its first word on. */
static char *make_prompt(struct bench *b)
{
    static const char words[] = WORDS;
    size_t n = (size_t)((double)b->n_prompt * b->bytes_a_token);
    char *text = malloc(n + 64);

    if (text != NULL) {
        int at =
            snprintf(text, 64, "%lld-%u ", (long long)time(NULL), b->n_asked++);
        for (size_t i = 0; i < n; i++) {
            text[(size_t)at + i] = words[i % (sizeof(words) - 1)];
        }
        text[(size_t)at + n] = '\0';
    }
    return text;
}

static int begin_one(struct bench *b, struct level *l)
{
    struct step_request *r = NULL;
    struct one *one = b->one;
    char *prompt = make_prompt(b);
    int err = STEP_E_NO_MEMORY;

    while (one->level != NULL) {
        one++;
    }
    if (prompt != NULL && (err = step_request_create(&r, "generate")) == 0) {
        step_request_set_str(r, "prompt", prompt, strlen(prompt));
        step_request_set_int(r, "max_tokens", b->n_answer);
        step_request_set_bool(r, "want_ids", true);
        step_request_set_int(r, "seed", b->n_asked);
        if (step_client_has_feature(b->cli->client, "key.ignore_eos")) {
            step_request_set_bool(r, "ignore_eos", true);
        }
        *one = (struct one){.level = l, .begun = now_ms()};
        err = step_client_submit(b->cli->client, r, one, NULL);
    }
    if (err != 0) {
        cli_error("%s", step_strerror(err));
        l->code = cli_exit_code(err);
    }
    l->n_begun++;
    step_request_destroy(r);
    free(prompt);
    return err;
}

static void on_delta(struct one *one, const struct step_event *e)
{
    size_t n = 0;
    double now = now_ms();

    (void)step_event_get_count(e, "ids", &n);
    if (n == 0) {
        return;
    }
    if (one->last == 0) {
        add(&one->level->first, now - one->begun);
    } else {
        for (size_t i = 0; i < n; i++) {
            add(&one->level->between, (now - one->last) / (double)n);
        }
    }
    one->last = now;
}

static void on_end(struct one *one, const struct step_event *e)
{
    struct level *l = one->level;
    int64_t v = 0;

    l->n_ended++;
    if (step_event_type(e) == STEP_EVENT_ERROR) {
        const char *why = "";
        size_t n = 0;
        (void)step_event_get_str(e, "message", &why, &n);
        cli_error("%s: %.*s", step_code_name(step_event_code(e)), (int)n, why);
        l->code = cli_exit_code(step_event_code(e));
    }
    if (step_event_get_int(e, "usage.prompt_tokens", &v) == 0) {
        l->prompt += v;
    }
    if (step_event_get_int(e, "usage.completion_tokens", &v) == 0) {
        l->answer += v;
    }
    one->level = NULL;
}

/* All requests of one level. After an error or a signal no more are begun, and
 * the connection's end ends those in flight. */
static void run_level(struct bench *b, struct level *l, int concurrency)
{
    const struct step_event *e;
    struct step_client *c = b->cli->client;

    while (l->code == 0 && cli_signal() == 0 && l->n_ended < b->n_requests) {
        while (l->code == 0 && l->n_begun < b->n_requests &&
               l->n_begun - l->n_ended < concurrency) {
            begin_one(b, l);
        }
        cli_wait(b->cli, -1);
        while ((e = step_client_next(c)) != NULL) {
            struct one *one = step_event_userdata(e);
            if (one != NULL && step_event_type(e) == STEP_EVENT_DELTA) {
                on_delta(one, e);
            } else if (one != NULL &&
                       (step_event_type(e) == STEP_EVENT_DONE ||
                        step_event_type(e) == STEP_EVENT_ERROR)) {
                on_end(one, e);
            }
        }
    }
}

/* ---- results ------------------------------------------------------------ */

static void print_level(const struct bench *b, struct level *l, int concurrency,
                        double seconds)
{
    static const double q[] = {0.5, 0.95, 0.99};
    double v[6], rate = (double)l->answer / seconds;
    double n = (double)b->n_requests;

    if (l->first.n > 0) {
        qsort(l->first.ms, l->first.n, sizeof(double), by_value);
    }
    if (l->between.n > 0) {
        qsort(l->between.ms, l->between.n, sizeof(double), by_value);
    }
    for (int i = 0; i < 3; i++) {
        v[i] = quantile(&l->first, q[i]);
        v[3 + i] = quantile(&l->between, q[i]);
    }
    if (b->cli->json) {
        cli_print(
            "{\"concurrency\": %d, \"requests\": %" PRId64
            ", \"seconds\": %.3f, \"prompt_tokens\": %.1f, "
            "\"completion_tokens\": %.1f, \"tokens_per_s\": %.2f, "
            "\"first_ms\": {\"p50\": %.2f, \"p95\": %.2f, \"p99\": %.2f}, "
            "\"between_ms\": {\"p50\": %.3f, \"p95\": %.3f, "
            "\"p99\": %.3f}}\n",
            concurrency, b->n_requests, seconds, (double)l->prompt / n,
            (double)l->answer / n, rate, v[0], v[1], v[2], v[3], v[4], v[5]);
    } else {
        cli_print(
            "%8d %8.0f %8.0f %10.1f %9.1f %9.1f %9.1f %8.2f %8.2f %8.2f\n",
            concurrency, (double)l->prompt / n, (double)l->answer / n, rate,
            v[0], v[1], v[2], v[3], v[4], v[5]);
    }
    cli_flush();
}

static int run_levels(struct bench *b)
{
    int code = 0;

    if (!b->cli->json) {
        cli_print("%8s %8s %8s %10s %29s %26s\n", "requests", "prompt",
                  "answer", "tokens/s", "ms to the first token",
                  "ms between tokens");
        cli_print("%8s %8s %8s %10s %9s %9s %9s %8s %8s %8s\n", "at once",
                  "tokens", "tokens", "together", "p50", "p95", "p99", "p50",
                  "p95", "p99");
        cli_flush();
    }
    for (int i = 0; i < b->n_levels && code == 0; i++) {
        struct level l = {0};
        double begun = now_ms();
        run_level(b, &l, b->level[i]);
        code = l.code;
        if (code == 0 && cli_signal() == 0) {
            print_level(b, &l, b->level[i], (now_ms() - begun) / 1e3);
        }
        free(l.first.ms);
        free(l.between.ms);
        if (cli_signal() != 0 || cli_output_error() != 0) {
            break;
        }
    }
    return code;
}

/* ---- the command line --------------------------------------------------- */

static bool parse_levels(struct bench *b, const char *list)
{
    char *end;

    for (const char *s = list;; s = end + 1) {
        long v = strtol(s, &end, 10);
        if (end == s || v < 1 || v > MAX_CONCURRENCY ||
            b->n_levels == MAX_LEVELS || (*end != ',' && *end != '\0')) {
            return false;
        }
        b->level[b->n_levels++] = (int)v;
        if (*end == '\0') {
            return true;
        }
    }
}

static void on_count(void *ctx, const struct step_event *e)
{
    (void)step_event_get_int(e, "count", ctx);
}

/* How many bytes of our words this model's tokens take. */
static int measure_words(struct bench *b)
{
    struct step_request *r;
    int64_t count = 0;
    char *text =
        make_prompt(&(struct bench){.n_prompt = 1000, .bytes_a_token = 1});
    int code = EX_OSERR;

    if (text != NULL && step_request_create(&r, "tokenize") == 0) {
        step_request_set_str(r, "prompt", text, strlen(text));
        bool json = b->cli->json;
        b->cli->json = false;
        code = cli_run(b->cli, r, on_count, &count);
        b->cli->json = json;
        b->bytes_a_token = count > 0 ? (double)strlen(text) / (double)count : 1;
        step_request_destroy(r);
    }
    free(text);
    return code;
}

int cli_bench(struct cli *cli, int argc, char **argv)
{
    struct bench b = {.cli = cli};
    const char *levels = "1,2,4,8";
    double requests = 16, prompt = 256, answer = 64;
    const struct cli_option options[] = {
        {"concurrency", CLI_TEXT, "N,N...", NULL, &levels,
         "requests in flight, level by level (default: 1,2,4,8)"},
        {"requests", CLI_SECONDS, "N", NULL, &requests,
         "of each level (default: 16)"},
        {"prompt-tokens", CLI_SECONDS, "N", NULL, &prompt,
         "length of a prompt, about (default: 256)"},
        {"max-tokens", CLI_SECONDS, "N", NULL, &answer,
         "length of an answer (default: 64)"},
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "one JSON object a level"},
        {0},
    };
    int n, code = cli_parse(cli, options, NULL, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    if (n > 0) {
        return cli_usage(cli, "bench takes no argument");
    }
    if (!parse_levels(&b, levels)) {
        return cli_usage(cli,
                         "--concurrency takes up to %d numbers from 1 to "
                         "%d, with commas between",
                         MAX_LEVELS, MAX_CONCURRENCY);
    }
    if (requests < 1 || requests > 1e6 || prompt > 1e6 || answer < 1 ||
        answer > 1e6) {
        return cli_usage(cli, "--requests, --prompt-tokens and --max-tokens "
                              "are 1 to 1000000");
    }
    b.n_requests = (int64_t)requests;
    b.n_prompt = (int64_t)prompt;
    b.n_answer = (int64_t)answer;
    code = cli_connect(cli);
    if (code == 0) {
        code = measure_words(&b);
    }
    return code == 0 ? run_levels(&b) : code;
}
