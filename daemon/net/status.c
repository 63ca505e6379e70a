/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the daemon says about itself, as a map; metrics.c says the same as text.
 *
 * Owns nothing; reads the server's counters and one snapshot of the engine. I/O
 * thread. The invariant: numbers and names of ours only; no text of any
 * request. Totals of everybody are for admins and observers, jobs of others for
 * admins: whoever else asks is told of his own uid, and of the daemon no more
 * than what it serves and whether it does.
 */

#include "daemon/net/status.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "daemon/base/conf.h"
#include "daemon/net/ops.h"

const char *status_state_name(const struct server *s,
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
    return status_state_name(s, &st);
}

/* ---- the process -------------------------------------------------------- */

uint64_t status_resident_bytes(void)
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

uint64_t status_open_fds(void)
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

/* ---- who sees what ------------------------------------------------------ */

static void own_only(struct status_view *v, const struct conn *c)
{
    int n = 0, queued = 0;

    v->totals = c->account->user->totals;
    for (int i = 0; i < v->n_jobs; i++) {
        if (v->job[i].uid == c->peer.uid) {
            queued += !v->job[i].started;
            v->job[n++] = v->job[i];
        }
    }
    v->n_jobs = n;
    v->st.queued = queued;
    v->st.running = n - queued;
    v->st.prompt_tokens = v->totals.prompt_tokens;
    v->st.cached_tokens = v->totals.cached_tokens;
    v->st.completion_tokens = v->totals.completion_tokens;
}

void status_look(const struct server *s, const struct conn *c,
                 struct status_view *ret)
{
    engine_status(s->engine, &ret->st);
    ret->n_jobs = engine_jobs(s->engine, ret->job, STATUS_MAX_JOBS);
    ret->totals = s->totals;
    ret->all = c->peer.sees_all;
    if (!ret->all) {
        own_only(ret, c);
    }
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
        wire_map_int(&group, "cached", st->pages_cached[g]);
        wire_map_int(&group, "pinned", st->pages_pinned[g]);
        wire_map_uint(&group, "evicted", st->pages_evicted[g]);
        wire_map_close(&group);
    }
    wire_map_int(&in, "checkpoints", st->checkpoints);
    wire_map_close(&in);
}

static void put_requests(struct wire_map *m, const struct account_totals *t)
{
    const uint64_t *n = t->outcome;
    struct wire_map in;

    wire_map_open(m, "requests", &in);
    wire_map_uint(&in, "total", t->begun);
    wire_map_uint(&in, "finished",
                  n[OUTCOME_STOP] + n[OUTCOME_LENGTH] + n[OUTCOME_TOOL_CALLS] +
                      n[OUTCOME_ANSWERED]);
    wire_map_uint(&in, "failed", n[OUTCOME_ERROR]);
    wire_map_uint(&in, "cancelled", n[OUTCOME_CANCELLED] + n[OUTCOME_TIMEOUT]);
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
    wire_map_open_list(&in, "beta", &list);
    for (int i = 0; i < st->n_mtp; i++) {
        wire_list_real(&list, (double)st->draft_beta[i]);
    }
    wire_map_close(&list);
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

static void put_tokens(struct wire_map *m, const struct engine_status *st)
{
    struct wire_map in;

    wire_map_int(m, "queued", st->queued);
    wire_map_int(m, "running", st->running);
    wire_map_open(m, "tokens", &in);
    wire_map_uint(&in, "prompt", st->prompt_tokens);
    wire_map_uint(&in, "cached", st->cached_tokens);
    wire_map_uint(&in, "completion", st->completion_tokens);
    wire_map_close(&in);
}

/* Median and the 95th of a hundred, as fine as the histogram's buckets are. */
static void put_time(struct wire_map *m, const char *name, const struct hist *h)
{
    struct wire_map in;

    wire_map_open(m, name, &in);
    wire_map_uint(&in, "count", h->count);
    wire_map_real(&in, "p50", hist_quantile(h, 0.5) * 1e3);
    wire_map_real(&in, "p95", hist_quantile(h, 0.95) * 1e3);
    wire_map_close(&in);
}

static void put_times(struct wire_map *m, const struct times *t)
{
    struct wire_map in;

    wire_map_open(m, "times_ms", &in);
    put_time(&in, "queue", &t->queue);
    put_time(&in, "first_token", &t->first_token);
    put_time(&in, "between_tokens", &t->between_tokens);
    put_time(&in, "request", &t->request);
    put_time(&in, "step", &t->step);
    wire_map_close(&in);
}

static void put_steps(struct wire_map *m, const struct engine_status *st)
{
    struct wire_map in;

    wire_map_open(m, "steps", &in);
    wire_map_uint(&in, "total", st->steps);
    wire_map_uint(&in, "rows", st->rows);
    wire_map_uint(&in, "layers", st->layers);
    wire_map_uint(&in, "row_layers", st->row_layers);
    wire_map_uint(&in, "weight_bytes", st->weight_bytes);
    wire_map_uint(&in, "kv_bytes", st->kv_bytes);
    wire_map_uint(&in, "expert_loads", st->expert_loads);
    wire_map_real(&in, "step_ms", st->step_ms);
    wire_map_uint(&in, "preempted", st->preempted);
    wire_map_uint(&in, "major_faults", st->major_faults);
    wire_map_close(&in);
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
    wire_map_uint(&in, "resident", status_resident_bytes());
    wire_map_close(&in);
    wire_map_uint(m, "open_fds", status_open_fds());
}

static const char *job_state(const struct status_view *v, uint64_t job)
{
    for (int i = 0; i < v->n_jobs; i++) {
        if (v->job[i].job == job) {
            return v->job[i].paused    ? "paused"
                   : v->job[i].started ? "running"
                                       : "queued";
        }
    }
    return "ending"; /* its last event is on the way */
}

static void put_job(struct wire_map *list, const struct status_view *v,
                    const struct flight *f, uint64_t now)
{
    struct wire_map job;

    wire_list_open(list, &job);
    wire_map_uint(&job, "job", f->job);
    wire_map_str(&job, "op", wire_op_name(f->op));
    wire_map_uint(&job, "uid", f->account->uid);
    if (f->account->tenant[0] != '\0') {
        wire_map_str(&job, "tenant", f->account->tenant);
    }
    wire_map_str(&job, "state", job_state(v, f->job));
    if (f->prompt_tokens >= 0) {
        wire_map_int(&job, "prompt_tokens", f->prompt_tokens);
        wire_map_int(&job, "cached_tokens", f->cached_tokens);
        wire_map_uint(&job, "completion_tokens", f->n_tokens);
    }
    if (f->first_us > 0) {
        wire_map_uint(&job, "first_token_ms",
                      (f->first_us - f->born_us) / 1000);
    }
    wire_map_uint(&job, "age_ms", (now - f->born_us) / 1000);
    wire_map_bool(&job, "cancelled", f->cancelled);
    wire_map_close(&job);
}

/* Jobs in flight that the asker may see: his own, or all of them. */
static void put_jobs(struct wire_map *m, const struct server *s,
                     const struct conn *c, const struct status_view *v)
{
    struct wire_map list;
    uint64_t now = server_now_us();
    int n = 0;

    wire_map_open_list(m, "jobs", &list);
    for (int i = 0; i < FLIGHT_BUCKETS; i++) {
        for (const struct flight *f = s->flights.bucket[i];
             f != NULL && n < STATUS_MAX_JOBS; f = f->next_bucket) {
            if (f->account->uid == c->peer.uid || c->peer.is_admin) {
                put_job(&list, v, f, now);
                n++;
            }
        }
    }
    wire_map_close(&list);
}

static void put_own_connections(struct wire_map *m, const struct conn *c)
{
    struct wire_map in;

    wire_map_open(m, "connections", &in);
    wire_map_int(&in, "open", c->account->n_conns);
    wire_map_close(&in);
}

void status_op(struct server *s, struct conn *c, const struct wire_request *r)
{
    struct status_view v;
    struct wire_map m;

    status_look(s, c, &v);
    wire_map_begin_done(&m, &s->scratch, r->id);
    wire_map_str(&m, "state", status_state_name(s, &v.st));
    if (v.st.cause[0] != '\0') {
        wire_map_str(&m, "cause", v.st.cause);
    }
    wire_map_str(&m, "served_model_name", s->model_name);
    wire_map_str(&m, "server_version", PACKAGE_VERSION);
    wire_map_uint(&m, "uptime_ms", (server_now_us() - s->started_us) / 1000);
    wire_map_str(&m, "scope", v.all ? "all" : "own");
    put_model(&m, &v.st);
    put_requests(&m, &v.totals);
    put_tokens(&m, &v.st);
    if (v.all) {
        put_times(&m, &v.st.times);
        put_steps(&m, &v.st);
        put_drafts(&m, &v.st);
        put_pages(&m, &v.st);
        put_process(&m, s, &v.st);
    } else {
        put_own_connections(&m, c);
    }
    put_jobs(&m, s, c, &v);
    (void)wire_map_end(&m);
    server_send(s, c);
}
