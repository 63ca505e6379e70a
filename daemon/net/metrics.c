/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Metrics as Prometheus text (format 0.0.4). Which there are, with labels and
 * buckets, is said in client/wire.h, METRICS; a test compares the two.
 *
 * Owns nothing; reads what status.c reads. I/O thread. The invariants: counters
 * never go back; labels have a fixed set of values, none of them a client's;
 * who may not see everybody's totals gets the families of his own.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "daemon/net/ops.h"
#include "daemon/net/status.h"

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

static void real(FILE *f, const char *name, const char *label, const char *word,
                 double v)
{
    (void)fprintf(f, "stepd_%s{%s=\"%s\"} %.6f\n", name, label, word, v);
}

/* Buckets count up, as Prometheus wants them. */
static void histogram(FILE *f, const char *name, const char *help,
                      const struct hist *h)
{
    uint64_t n = 0;

    family(f, name, "histogram", help);
    for (int i = 0; i < HIST_N_BOUNDS; i++) {
        n += h->n[i];
        (void)fprintf(f, "stepd_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                      hist_bound[i], n);
    }
    (void)fprintf(f, "stepd_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name,
                  h->count);
    (void)fprintf(f, "stepd_%s_sum %.6f\n", name, h->sum);
    (void)fprintf(f, "stepd_%s_count %" PRIu64 "\n", name, h->count);
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

static void of_service(FILE *f, const struct server *s,
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
            strcmp(states[i], status_state_name(s, st)) == 0);
    }
}

static void of_process(FILE *f, const struct server *s,
                       const struct engine_status *st)
{
    value(f, "uptime_seconds", "gauge", "Time since the start.",
          (server_now_us() - s->started_us) / 1000000);
    family(f, "load_bytes", "gauge", "Bytes of the checkpoint.");
    row(f, "load_bytes", "kind", "done", st->load_done);
    row(f, "load_bytes", "kind", "total", st->load_total);
    family(f, "memory_bytes", "gauge", "Memory by use.");
    row(f, "memory_bytes", "use", "weights", st->memory_weights);
    row(f, "memory_bytes", "use", "kv", st->memory_kv);
    row(f, "memory_bytes", "use", "resident", status_resident_bytes());
    value(f, "open_fds", "gauge", "Open file descriptors.", status_open_fds());
}

static void of_clients(FILE *f, const struct server *s)
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

/* With `own`, those of the asker's uid. */
static void of_jobs(FILE *f, const struct status_view *v)
{
    static const char *const outcomes[OUTCOME_N] = {
        [OUTCOME_STOP] = "stop",
        [OUTCOME_LENGTH] = "length",
        [OUTCOME_TOOL_CALLS] = "tool_calls",
        [OUTCOME_ANSWERED] = "answered",
        [OUTCOME_CANCELLED] = "cancelled",
        [OUTCOME_TIMEOUT] = "timeout",
        [OUTCOME_ERROR] = "error",
    };

    family(f, "jobs", "gauge", "Jobs now.");
    row(f, "jobs", "state", "queued", (uint64_t)v->st.queued);
    row(f, "jobs", "state", "running", (uint64_t)v->st.running);
    family(f, "jobs_total", "counter", "Jobs ended, by outcome.");
    for (int i = 0; i < OUTCOME_N; i++) {
        row(f, "jobs_total", "outcome", outcomes[i], v->totals.outcome[i]);
    }
    family(f, "tokens_total", "counter",
           "Prompt tokens, those of them not recomputed, and drawn ones.");
    row(f, "tokens_total", "kind", "prompt", v->st.prompt_tokens);
    row(f, "tokens_total", "kind", "cached", v->st.cached_tokens);
    row(f, "tokens_total", "kind", "completion", v->st.completion_tokens);
}

static void of_times(FILE *f, const struct times *t)
{
    histogram(f, "queue_seconds", "From acceptance to the first row.",
              &t->queue);
    histogram(f, "time_to_first_token_seconds",
              "From acceptance to the first token.", &t->first_token);
    histogram(f, "time_between_tokens_seconds",
              "Between deliveries of a request, by the tokens they bring.",
              &t->between_tokens);
    histogram(f, "request_seconds", "From acceptance to the end.", &t->request);
    histogram(f, "step_seconds", "Steps: model and delivery.", &t->step);
}

/* What the model does not account for of its own time is `other`: a difference
 * of clocks, which may be less for a step than nothing. */
static void of_parts(FILE *f, struct server *s, const struct engine_status *st)
{
    double other = st->times.model_s - st->forward_s - st->sample_s - st->mtp_s;

    if (other > s->step_other_s) {
        s->step_other_s = other;
    }
    family(f, "step_part_seconds_total", "counter", "Time in steps, by part.");
    real(f, "step_part_seconds_total", "part", "plan", st->times.plan_s);
    real(f, "step_part_seconds_total", "part", "forward", st->forward_s);
    real(f, "step_part_seconds_total", "part", "sample", st->sample_s);
    real(f, "step_part_seconds_total", "part", "draft", st->mtp_s);
    real(f, "step_part_seconds_total", "part", "other", s->step_other_s);
    real(f, "step_part_seconds_total", "part", "deliver", st->times.deliver_s);
}

static void of_steps(FILE *f, const struct engine_status *st)
{
    static const char *const groups[2] = {"full", "sliding"};

    value(f, "steps_total", "counter", "Steps of the model.", st->steps);
    value(f, "step_rows_total", "counter", "Rows of all steps.", st->rows);
    value(f, "preemptions_total", "counter",
          "Requests that gave up seat and pages for others.", st->preempted);
    value(f, "major_faults_total", "counter",
          "Page faults in steps that waited for a disk.", st->major_faults);
    value(f, "weight_read_bytes_total", "counter", "Weight bytes read.",
          st->weight_bytes);
    value(f, "kv_read_bytes_total", "counter", "KV cache bytes read.",
          st->kv_bytes);
    family(f, "kv_pages", "gauge", "Pages of the KV cache.");
    for (int g = 0; g < 2; g++) {
        row(f, "kv_pages", "group", groups[g], (uint64_t)st->pages[g]);
    }
    family(f, "kv_pages_free", "gauge",
           "Pages of the KV cache that nobody runs on.");
    for (int g = 0; g < 2; g++) {
        row(f, "kv_pages_free", "group", groups[g],
            (uint64_t)st->pages_free[g]);
    }
    family(f, "kv_pages_cached", "gauge", "Pages that the prefix cache has.");
    for (int g = 0; g < 2; g++) {
        row(f, "kv_pages_cached", "group", groups[g],
            (uint64_t)st->pages_cached[g]);
    }
    family(f, "kv_pages_evicted_total", "counter",
           "Pages that the prefix cache gave up.");
    for (int g = 0; g < 2; g++) {
        row(f, "kv_pages_evicted_total", "group", groups[g],
            st->pages_evicted[g]);
    }
    value(f, "checkpoints", "gauge", "Checkpoints of the prefix cache.",
          (uint64_t)st->checkpoints);
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
static void of_drafts(FILE *f, const struct engine_status *st)
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
    struct status_view v;
    struct wire_map m;
    char *text = NULL;
    size_t n = 0;
    FILE *f;

    status_look(s, c, &v);
    f = open_memstream(&text, &n);
    if (f != NULL) {
        of_service(f, s, &v.st);
        of_jobs(f, &v);
    }
    if (f != NULL && v.all) {
        of_process(f, s, &v.st);
        of_clients(f, s);
        of_times(f, &v.st.times);
        of_steps(f, &v.st);
        of_parts(f, s, &v.st);
        of_drafts(f, &v.st);
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
