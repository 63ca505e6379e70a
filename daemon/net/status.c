/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the daemon says about itself: status as a map, metrics as Prometheus
 * text.
 *
 * Owns nothing; reads the server's counters and one snapshot of the engine. I/O
 * thread. The invariant: numbers and names of ours only; no text of any
 * request, and of other users' jobs nothing unless an admin asks.
 */

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "daemon/base/conf.h"
#include "daemon/net/ops.h"
#include "daemon/net/server.h"
#include "daemon/sched/engine.h"

#define MAX_JOBS_LISTED 1024

static const char *state_name(const struct server *s,
                              const struct engine_status *st)
{
    switch (st->state) {
    case ENGINE_LOADING:
        return "loading";
    case ENGINE_READY:
        return s->draining ? "draining" : "ready";
    case ENGINE_DRAINING:
        return "draining";
    case ENGINE_FAILED:
        return "failed";
    case ENGINE_STOPPED:
        return "stopped";
    }
    return "unknown";
}

const char *status_state(const struct server *s)
{
    struct engine_status st;

    engine_status(s->engine, &st);
    return state_name(s, &st);
}

/* ---- the process -------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
    unsigned long long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f != NULL) {
        if (fscanf(f, "%llu %llu", &size, &resident) != 2) {
            resident = 0;
        }
        (void)fclose(f);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    uint64_t n = 0;

    if (d == NULL) {
        return 0;
    }
    while (readdir(d) != NULL) {
        n++;
    }
    (void)closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", ".." and this folder itself */
}

/* ---- status ------------------------------------------------------------- */

static void put_model(struct wire_map *m, const struct engine_status *st)
{
    struct wire_map in;

    wire_map_open(m, "load", &in);
    wire_map_uint(&in, "done", st->load_done);
    wire_map_uint(&in, "total", st->load_total);
    wire_map_close(&in);
    wire_map_open(m, "model", &in);
    wire_map_str(&in, "family", st->family);
    wire_map_str(&in, "dialect", st->dialect);
    wire_map_str(&in, "device", st->device);
    wire_map_int(&in, "max_model_len", st->max_model_len);
    wire_map_int(&in, "vocab", st->vocab);
    wire_map_int(&in, "mtp_layers", st->n_mtp);
    wire_map_close(&in);
}

static void put_pages(struct wire_map *m, const struct engine_status *st)
{
    static const char *const names[2] = {"full", "sliding"};
    struct wire_map in, group;

    wire_map_open(m, "pages", &in);
    for (int g = 0; g < 2; g++) {
        wire_map_open(&in, names[g], &group);
        wire_map_int(&group, "total", st->pages[g]);
        wire_map_int(&group, "free", st->pages_free[g]);
        wire_map_close(&group);
    }
    wire_map_close(&in);
}

static void put_requests(struct wire_map *m, const struct server *s)
{
    struct wire_map in;

    wire_map_open(m, "requests", &in);
    wire_map_uint(&in, "total", s->n_begun);
    wire_map_uint(&in, "finished", s->n_finished);
    wire_map_uint(&in, "failed", s->n_failed);
    wire_map_uint(&in, "cancelled", s->n_cancelled);
    wire_map_close(&in);
}

/* Mean acceptance length: the token that each verification yields anyway is
 * counted. */
static double mean_length(const struct engine_status *st)
{
    return st->drafts == 0 ? 1 : 1 + (double)st->accepted / (double)st->drafts;
}

static void put_drafts(struct wire_map *m, const struct engine_status *st)
{
    struct wire_map in, list;

    wire_map_open(m, "drafts", &in);
    wire_map_str(&in, "state",
                 st->n_mtp == 0       ? "none"
                 : st->drafter_is_off ? "switched off"
                                      : "on");
    wire_map_int(&in, "depth", st->draft_depth);
    wire_map_uint(&in, "verified", st->drafts);
    wire_map_uint(&in, "drafted", st->drafted);
    wire_map_uint(&in, "accepted", st->accepted);
    wire_map_open_list(&in, "accepted_at", &list);
    for (int i = 0; i < st->n_mtp; i++) {
        wire_list_int(&list, (int64_t)st->accepted_at[i]);
    }
    wire_map_close(&list);
    wire_map_real(&in, "mean_acceptance_length", mean_length(st));
    wire_map_close(&in);
}

static void put_work(struct wire_map *m, const struct engine_status *st)
{
    struct wire_map in;

    wire_map_int(m, "queued", st->queued);
    wire_map_int(m, "running", st->running);
    wire_map_open(m, "tokens", &in);
    wire_map_uint(&in, "prompt", st->prompt_tokens);
    wire_map_uint(&in, "cached", st->cached_tokens);
    wire_map_uint(&in, "completion", st->completion_tokens);
    wire_map_close(&in);
    wire_map_open(m, "steps", &in);
    wire_map_uint(&in, "total", st->steps);
    wire_map_uint(&in, "rows", st->rows);
    wire_map_uint(&in, "layers", st->layers);
    wire_map_uint(&in, "row_layers", st->row_layers);
    wire_map_uint(&in, "weight_bytes", st->weight_bytes);
    wire_map_uint(&in, "kv_bytes", st->kv_bytes);
    wire_map_uint(&in, "expert_loads", st->expert_loads);
    wire_map_real(&in, "step_ms", st->step_ms);
    wire_map_close(&in);
    put_drafts(m, st);
}

static void put_process(struct wire_map *m, const struct server *s,
                        const struct engine_status *st)
{
    struct wire_map in;

    wire_map_open(m, "connections", &in);
    wire_map_int(&in, "open", s->n_conns);
    wire_map_uint(&in, "total", s->n_accepted);
    wire_map_uint(&in, "refused", s->n_refused);
    wire_map_close(&in);
    wire_map_open(m, "memory", &in);
    wire_map_uint(&in, "weights", st->memory_weights);
    wire_map_uint(&in, "kv", st->memory_kv);
    wire_map_uint(&in, "resident", resident_bytes());
    wire_map_close(&in);
    wire_map_uint(m, "open_fds", open_fds());
}

/* Jobs in flight that the asker may see: his own, or all of them. */
static void put_jobs(struct wire_map *m, const struct server *s,
                     const struct conn *c)
{
    struct wire_map list, job;
    uint64_t now = server_now_us();
    int n = 0;

    wire_map_open_list(m, "jobs", &list);
    for (int i = 0; i < FLIGHT_BUCKETS; i++) {
        for (const struct flight *f = s->flights.bucket[i];
             f != NULL && n < MAX_JOBS_LISTED; f = f->next_bucket) {
            if (f->account->uid != c->peer.uid && !c->peer.is_admin) {
                continue;
            }
            n++;
            wire_list_open(&list, &job);
            wire_map_uint(&job, "job", f->job);
            wire_map_str(&job, "op", wire_op_name(f->op));
            wire_map_uint(&job, "uid", f->account->uid);
            if (f->tenant[0] != '\0') {
                wire_map_str(&job, "tenant", f->tenant);
            }
            if (f->prompt_tokens >= 0) {
                wire_map_int(&job, "prompt_tokens", f->prompt_tokens);
            }
            wire_map_uint(&job, "age_ms", (now - f->born_us) / 1000);
            wire_map_bool(&job, "cancelled", f->cancelled);
            wire_map_close(&job);
        }
    }
    wire_map_close(&list);
}

void status_op(struct server *s, struct conn *c, const struct wire_request *r)
{
    struct engine_status st;
    struct wire_map m;

    engine_status(s->engine, &st);
    wire_map_begin_done(&m, &s->scratch, r->id);
    wire_map_str(&m, "state", state_name(s, &st));
    if (st.cause[0] != '\0') {
        wire_map_str(&m, "cause", st.cause);
    }
    wire_map_str(&m, "served_model_name", s->model_name);
    wire_map_str(&m, "server_version", PACKAGE_VERSION);
    wire_map_uint(&m, "uptime_ms", (server_now_us() - s->started_us) / 1000);
    put_model(&m, &st);
    put_requests(&m, s);
    put_work(&m, &st);
    put_pages(&m, &st);
    put_process(&m, s, &st);
    put_jobs(&m, s, c);
    (void)wire_map_end(&m);
    server_send(s, c);
}

/* ---- metrics ------------------------------------------------------------ */

/* One family: its help and type, then rows. */
static void family(FILE *f, const char *name, const char *type,
                   const char *help)
{
    (void)fprintf(f, "# HELP stepd_%s %s\n# TYPE stepd_%s %s\n", name, help,
                  name, type);
}

static void value(FILE *f, const char *name, const char *type, const char *help,
                  uint64_t v)
{
    family(f, name, type, help);
    (void)fprintf(f, "stepd_%s %" PRIu64 "\n", name, v);
}

static void row(FILE *f, const char *name, const char *label, const char *word,
                uint64_t v)
{
    (void)fprintf(f, "stepd_%s{%s=\"%s\"} %" PRIu64 "\n", name, label, word, v);
}

/* A label's value: quotes, backslashes and line ends are escaped. */
static void put_label(FILE *f, const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\') {
            (void)fputc('\\', f);
        }
        if (*s == '\n') {
            (void)fputs("\\n", f);
        } else {
            (void)fputc(*s, f);
        }
    }
}

static void metrics_of_process(FILE *f, const struct server *s,
                               const struct engine_status *st)
{
    static const char *const states[] = {"loading", "ready", "draining",
                                         "failed", "stopped"};

    family(f, "info", "gauge", "Version and model; always 1.");
    (void)fprintf(f, "stepd_info{version=\"" PACKAGE_VERSION "\",model=\"");
    put_label(f, s->model_name);
    (void)fputs("\"} 1\n", f);
    family(f, "state", "gauge", "1 for the state that holds.");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        row(f, "state", "state", states[i],
            strcmp(states[i], state_name(s, st)) == 0);
    }
    value(f, "uptime_seconds", "gauge", "Time since the start.",
          (server_now_us() - s->started_us) / 1000000);
    family(f, "load_bytes", "gauge", "Bytes of the checkpoint.");
    row(f, "load_bytes", "kind", "done", st->load_done);
    row(f, "load_bytes", "kind", "total", st->load_total);
    family(f, "memory_bytes", "gauge", "Memory by use.");
    row(f, "memory_bytes", "use", "weights", st->memory_weights);
    row(f, "memory_bytes", "use", "kv", st->memory_kv);
    row(f, "memory_bytes", "use", "resident", resident_bytes());
    value(f, "open_fds", "gauge", "Open file descriptors.", open_fds());
}

static void metrics_of_clients(FILE *f, const struct server *s)
{
    value(f, "connections", "gauge", "Open connections.", (uint64_t)s->n_conns);
    value(f, "connections_total", "counter", "Connections taken.",
          s->n_accepted);
    value(f, "connections_refused_total", "counter",
          "Connections refused: limits, lists.", s->n_refused);
    value(f, "frame_timeouts_total", "counter",
          "Connections dropped for a frame that did not arrive.",
          s->host.n_timeouts);
    value(f, "slow_clients_total", "counter",
          "Connections dropped because nobody read.", s->host.n_slow);
    value(f, "received_bytes_total", "counter", "Bytes from clients.",
          s->host.bytes_in);
    value(f, "sent_bytes_total", "counter", "Bytes to clients.",
          s->host.bytes_out);
    family(f, "requests_total", "counter", "Requests by op.");
    for (int op = 0; op < WIRE_N_OPS; op++) {
        row(f, "requests_total", "op", wire_op_name((enum wire_op)op),
            s->n_requests[op]);
    }
    family(f, "errors_total", "counter", "Error events by code.");
    for (int code = WIRE_E_BAD_FRAME; code > WIRE_E_DISCONNECTED; code--) {
        row(f, "errors_total", "code", wire_code_name(code),
            s->n_errors[-code]);
    }
}

static void metrics_of_jobs(FILE *f, const struct server *s,
                            const struct engine_status *st)
{
    family(f, "jobs", "gauge", "Jobs now.");
    row(f, "jobs", "state", "queued", (uint64_t)st->queued);
    row(f, "jobs", "state", "running", (uint64_t)st->running);
    family(f, "jobs_total", "counter", "Jobs ended, by how.");
    row(f, "jobs_total", "end", "finished", s->n_finished);
    row(f, "jobs_total", "end", "failed", s->n_failed);
    row(f, "jobs_total", "end", "cancelled", s->n_cancelled);
    family(f, "tokens_total", "counter",
           "Prompt tokens, those of them not recomputed, and drawn ones.");
    row(f, "tokens_total", "kind", "prompt", st->prompt_tokens);
    row(f, "tokens_total", "kind", "cached", st->cached_tokens);
    row(f, "tokens_total", "kind", "completion", st->completion_tokens);
}

static void metrics_of_steps(FILE *f, const struct engine_status *st)
{
    static const char *const groups[2] = {"full", "sliding"};

    value(f, "steps_total", "counter", "Steps of the model.", st->steps);
    value(f, "step_rows_total", "counter", "Rows of all steps.", st->rows);
    value(f, "weight_read_bytes_total", "counter", "Weight bytes read.",
          st->weight_bytes);
    value(f, "kv_read_bytes_total", "counter", "KV cache bytes read.",
          st->kv_bytes);
    family(f, "kv_pages", "gauge", "Pages of the KV cache.");
    for (int g = 0; g < 2; g++) {
        row(f, "kv_pages", "group", groups[g], (uint64_t)st->pages[g]);
    }
    family(f, "kv_pages_free", "gauge", "Free pages of the KV cache.");
    for (int g = 0; g < 2; g++) {
        row(f, "kv_pages_free", "group", groups[g],
            (uint64_t)st->pages_free[g]);
    }
}

static void per_position(FILE *f, const struct engine_status *st,
                         const char *name, const char *help, const uint64_t *v)
{
    static const char *const position[] = {"0", "1", "2"};

    family(f, name, "counter", help);
    for (int i = 0; i < st->n_mtp; i++) {
        row(f, name, "position", position[i], v[i]);
    }
}

/* Names and meanings of the first four as vLLM has them. */
static void metrics_of_drafts(FILE *f, const struct engine_status *st)
{
    value(f, "spec_decode_num_drafts", "counter", "Verifications of drafts.",
          st->drafts);
    value(f, "spec_decode_num_draft_tokens", "counter", "Drafted tokens.",
          st->drafted);
    value(f, "spec_decode_num_accepted_tokens", "counter", "Accepted drafts.",
          st->accepted);
    per_position(f, st, "spec_decode_num_accepted_tokens_per_pos",
                 "Accepted drafts, by position.", st->accepted_at);
    per_position(f, st, "spec_decode_num_proposals_per_pos",
                 "Drafts made, by position: each by a head of its own.",
                 st->proposed_by);
    value(f, "spec_decode_depth", "gauge",
          "Drafts a step where the engine chooses.", (uint64_t)st->draft_depth);
    value(f, "spec_decode_switched_off", "gauge",
          "1: too few drafts were accepted.", st->drafter_is_off);
}

void metrics_op(struct server *s, struct conn *c, const struct wire_request *r)
{
    struct engine_status st;
    struct wire_map m;
    char *text = NULL;
    size_t n = 0;
    FILE *f;

    engine_status(s->engine, &st);
    f = open_memstream(&text, &n);
    if (f != NULL) {
        metrics_of_process(f, s, &st);
        metrics_of_clients(f, s);
        metrics_of_jobs(f, s, &st);
        metrics_of_steps(f, &st);
        metrics_of_drafts(f, &st);
    }
    if (f == NULL || fclose(f) != 0) {
        server_error(s, c, r->id, WIRE_E_NO_MEMORY, NULL, 0, "no memory");
    } else {
        (void)wire_put_part_text(&s->scratch, r->id, text, n, false);
        wire_map_begin_done(&m, &s->scratch, r->id);
        (void)wire_map_end(&m);
        server_send(s, c);
    }
    free(text);
}
