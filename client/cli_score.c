/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl score: the logprob of each token of a text, given those before it. A
 * line a token: the logprob, the id, the text (as JSON writes it), then the
 * alternatives in the same way; the sum on a terminal.
 */

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

struct totals {
    double sum;
    size_t n;
};

/* A token's bytes as a JSON string; bytes that are no text as hex. */
static void print_bytes(const struct step_event *e, const char *path)
{
    const char *p = "";
    size_t n = 0;
    json_t *v;
    char *s;

    (void)step_event_get_str(e, path, &p, &n);
    v = json_stringn(p, n);
    s = v != NULL ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    if (s != NULL) {
        cli_print("%s", s);
    } else {
        cli_print("0x");
        for (size_t i = 0; i < n; i++) {
            cli_print("%02x", (unsigned char)p[i]);
        }
    }
    free(s);
    json_decref(v);
}

static double print_token(const struct step_event *e, const char *at)
{
    char path[64];
    double logprob = 0;
    int64_t id = -1;

    snprintf(path, sizeof(path), "%s.logprob", at);
    (void)step_event_get_real(e, path, &logprob);
    snprintf(path, sizeof(path), "%s.id", at);
    (void)step_event_get_int(e, path, &id);
    cli_print("%.6f\t%" PRId64 "\t", logprob, id);
    snprintf(path, sizeof(path), "%s.bytes", at);
    print_bytes(e, path);
    return logprob;
}

static void print_scores(void *ctx, const struct step_event *e)
{
    struct totals *t = ctx;
    size_t n = 0, n_top;
    char at[48], path[56];

    (void)step_event_get_count(e, "logprobs", &n);
    for (size_t i = 0; i < n; i++) {
        snprintf(at, sizeof(at), "logprobs.%zu", i);
        t->sum += print_token(e, at);
        t->n++;
        n_top = 0;
        snprintf(path, sizeof(path), "%s.top", at);
        (void)step_event_get_count(e, path, &n_top);
        for (size_t k = 0; k < n_top; k++) {
            cli_print("\t");
            snprintf(path, sizeof(path), "logprobs.%zu.top.%zu", i, k);
            (void)print_token(e, path);
        }
        cli_print("\n");
    }
}

static int run(struct cli *cli, struct step_request *r, int argc, char **argv)
{
    bool stats = false;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, NULL, NULL, &cli->json, "print the events as JSON"},
        {"logprobs", CLI_KEY_INT, "N", "logprobs", NULL,
         "so many alternatives of each token, 0..20"},
        {"stats", CLI_FLAG, NULL, NULL, &stats,
         "the sum and the mean, on stderr"},
        {0},
    };
    struct totals totals = {0};
    int n, code = cli_parse(cli, options, r, argc, argv, &n);

    if (code >= 0) {
        return code;
    }
    code = cli_take_text(cli, r, n, argv);
    if (code == 0) {
        code = cli_connect(cli);
    }
    if (code == 0) {
        code = cli_run(cli, r, print_scores, &totals);
    }
    if (code == 0 && stats && totals.n > 0) {
        fprintf(stderr, "%zu tokens, logprob %.4f, mean %.4f\n", totals.n,
                totals.sum, totals.sum / (double)totals.n);
    }
    return code;
}

int cli_score(struct cli *cli, int argc, char **argv)
{
    return cli_with_request(cli, "score", run, argc, argv);
}
