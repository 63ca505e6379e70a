/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What a step costs beside the model: planning, delivery (detokenising, parsing
 * reasoning and stop strings, events), bookkeeping; by the number of sequences.
 * The scheduler runs over a model that draws the same token everywhere and
 * takes no time to speak of, which is timed apart and left out.
 *
 *     bench_core
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/sched/core.h"
#include "tests/paths.h"

enum { MAX_SEQS = 64, STEPS = 400, ROUNDS = 9, MAX_LEN = 8192 };

static void die(const char *what)
{
    fprintf(stderr, "bench_core: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- a model of nothing -------------------------------------------------- */

struct model {
    struct model_info info;
    struct model_conf conf;
    int len[MAX_SEQS];
    bool open[MAX_SEQS];
    const struct model_plan *plan;
    double seconds; /* of submit and collect */
};

int model_open(struct model **ret, const struct model_conf *c,
               struct model_report *rep)
{
    struct model *m = calloc(1, sizeof(*m));

    (void)rep;
    if (m == NULL) {
        return -1;
    }
    m->conf = *c;
    m->info.vocab = 1024;
    m->info.window = 512;
    m->info.n_layers = 45;
    m->info.max_model_len = MAX_LEN;
    m->info.bos = 0;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        m->info.memory.kv_page_bytes[g] = 1 << 20;
        m->info.memory.kv_pages[g] = MAX_SEQS * MAX_LEN / MODEL_PAGE_TOK;
    }
    *ret = m;
    return 0;
}

void model_close(struct model *m)
{
    free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

int model_seq_open(struct model *m, const struct model_sampling *s,
                   const int32_t *history, int n_history, int n_drawn,
                   int *ret_seq)
{
    (void)s;
    (void)history;
    (void)n_history;
    (void)n_drawn;
    for (int i = 0; i < MAX_SEQS; i++) {
        if (!m->open[i]) {
            m->open[i] = true;
            m->len[i] = 0;
            *ret_seq = i;
            return 0;
        }
    }
    return -1;
}

void model_seq_close(struct model *m, int seq)
{
    m->open[seq] = false;
}

int model_seq_at(struct model *m, int seq, int pos, const void *aux)
{
    (void)aux;
    m->len[seq] = pos;
    return 0;
}

size_t model_aux_bytes(const struct model *m)
{
    (void)m;
    return 16;
}

int model_seq_aux(struct model *m, int seq, int pos, void *ret_aux)
{
    (void)m;
    (void)seq;
    (void)pos;
    memset(ret_aux, 0, 16);
    return 0;
}

int model_seq_len(const struct model *m, int seq)
{
    return m->len[seq];
}

int model_seq_r0(const struct model *m, int seq)
{
    (void)m;
    (void)seq;
    return -1;
}

int model_drafts(const struct model *m, int seq, int32_t ret[MODEL_MAX_DRAFTS])
{
    (void)m;
    (void)seq;
    (void)ret;
    return 0;
}

int model_submit(struct model *m, const struct model_plan *plan)
{
    double t = now();

    m->plan = plan;
    m->seconds += now() - t;
    return 0;
}

int model_collect(struct model *m, struct model_out *ret, int n_spans)
{
    double t = now();

    memset(ret, 0, (size_t)n_spans * sizeof(*ret));
    for (int i = 0; i < n_spans; i++) {
        const struct model_span *s = &m->plan->span[i];

        m->len[s->seq] = ret[i].committed = s->pos + s->n_rows;
        ret[i].layer = -1;
        if (s->want == MODEL_WANT_DRAW) {
            ret[i].n_tokens = 1;
            ret[i].token[0].id = 100 + (s->pos * 7 + s->seq) % 800;
        }
    }
    m->seconds += now() - t;
    return 0;
}

const char *model_error(const struct model *m)
{
    (void)m;
    return "";
}

void model_cancel(struct model *m, int seq)
{
    (void)m;
    (void)seq;
}

int model_copy_page(struct model *m, enum model_group g, int dst, int src)
{
    (void)m;
    (void)g;
    (void)dst;
    (void)src;
    return 0;
}

/* No session is saved here. */
size_t model_page_bytes(const struct model *m, enum model_group g)
{
    return (size_t)m->info.memory.kv_page_bytes[g];
}

int model_export_page(struct model *m, enum model_group g, int page, void *to)
{
    (void)to;
    return model_copy_page(m, g, page, page);
}

int model_import_page(struct model *m, enum model_group g, int page,
                      const void *from)
{
    (void)from;
    return model_copy_page(m, g, page, page);
}

int model_scrub_page(struct model *m, enum model_group g, int page)
{
    return model_copy_page(m, g, page, page);
}

void model_stats(const struct model *m, struct model_stats *ret)
{
    (void)m;
    memset(ret, 0, sizeof(*ret));
}

/* ---- the runs ------------------------------------------------------------ */

static uint64_t clock_us(void *ctx)
{
    (void)ctx;
    return (uint64_t)(now() * 1e6);
}

static void on_emit(void *ctx, struct event *e)
{
    (*(uint64_t *)ctx)++;
    event_destroy(e);
}

static void on_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static struct job *chat_job(uint64_t id, bool constrained)
{
    struct job *j = job_create(JOB_GENERATE);
    static const char stop[] = "a stop string that does not come";

    j->id = id;
    j->ids = malloc(128 * sizeof(*j->ids));
    if (j->ids == NULL) {
        die("no memory");
    }
    j->n_ids = 128;
    for (int i = 0; i < 128; i++) {
        j->ids[i] = (int32_t)(100 + (id * 131 + (uint64_t)i * 37) % 800);
    }
    j->chat = constrained; /* reasoning and tool calls are looked for */
    j->stop[0].p = malloc(sizeof(stop));
    if (j->stop[0].p == NULL) {
        die("no memory");
    }
    memcpy(j->stop[0].p, stop, sizeof(stop));
    j->stop[j->n_stops++].n = sizeof(stop) - 1;
    j->max_tokens = MAX_LEN - 256;
    return j;
}

/* Microseconds a step with n sequences, without the model's. */
static double cost(const struct tokenizer *tok, int n, bool chat)
{
    const struct model_conf mc = {.max_seqs = MAX_SEQS, .max_rows = 2048};
    uint64_t events = 0;
    struct core_conf conf = {.max_live = MAX_SEQS,
                             .max_seqs = MAX_SEQS,
                             .max_queued_tokens = 1 << 20,
                             .max_batched_tokens = 2048,
                             .step_target_ms = 60000,
                             .tokenizer = tok,
                             .emit = on_emit,
                             .log = on_log,
                             .now_us = clock_us,
                             .ctx = &events};
    struct core_counts counts;
    struct core *core;
    double best = 1e9;

    if (tickets_create(&conf.tickets, MAX_SEQS, MAX_SEQS) < 0 ||
        model_open(&conf.model, &mc, NULL) < 0 ||
        core_create(&core, &conf) < 0) {
        die("core");
    }
    for (int i = 0; i < n; i++) {
        struct job *j = chat_job((uint64_t)i + 1, chat);

        j->born_us = clock_us(NULL);
        if (ticket_open(conf.tickets, j) < 0) {
            die("ticket");
        }
        core_add(core, j);
    }
    for (int i = 0; i < 20; i++) { /* prompts */
        core_step(core);
    }
    for (int r = 0; r < ROUNDS; r++) {
        double t = now(), in_model = conf.model->seconds;

        for (int i = 0; i < STEPS; i++) {
            if (core_step(core) != 1) {
                die("nothing to do");
            }
        }
        t = (now() - t - (conf.model->seconds - in_model)) / STEPS * 1e6;
        best = t < best ? t : best;
    }
    core_counts(core, &counts);
    if (counts.completion_tokens < (uint64_t)n * STEPS * ROUNDS ||
        events < counts.completion_tokens / 4) { /* characters may be held */
        die("steps that delivered nothing");
    }
    core_end_all(core, false, "draining", "the end");
    core_destroy(core);
    model_close(conf.model);
    tickets_destroy(conf.tickets);
    return best;
}

int main(void)
{
    char dir[512], why[256];
    struct tokenizer *tok;

    snprintf(dir, sizeof(dir), "%s/tests/data/step-tiny", TEST_SRCDIR);
    if (tokenizer_load(&tok, dir, why, sizeof(why)) < 0) {
        die(why);
    }
    printf("a step beside the model (best of %d rounds of %d steps), "
           "microseconds\n  %9s %12s %12s %12s\n",
           ROUNDS, STEPS, "sequences", "raw text", "chat", "a sequence");
    for (int n = 1; n <= MAX_SEQS; n *= 2) {
        double raw = cost(tok, n, false), chat = cost(tok, n, true);

        printf("  %9d %12.2f %12.2f %12.2f\n", n, raw, chat, chat / n);
        fflush(stdout);
    }
    tokenizer_destroy(tok);
    return 0;
}
