/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The engine thread from its first moment to READY: the model is loaded, the
 * tokenizer waited for, a prompt computed, the core made. And where it ends
 * when it cannot go on, then or later.
 *
 * Owns nothing but what it makes in struct engine. The invariant: whatever
 * fails, everybody who waits is told the cause, and so is who comes later,
 * until the stop.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/sched/engine_priv.h"
#include "daemon/sched/prep.h"

/* sysexits of a start that failed (design.md section 2) */
#define EXIT_CHECKPOINT 65
#define EXIT_CONFIG 78
#define EXIT_DEVICE 69

/* ---- failing --------------------------------------------------------------
 */

void engine_fail(struct engine *e, int exit_code, const char *code,
                 const char *cause)
{
    (void)pthread_mutex_lock(&e->lock);
    e->status.exit_code = exit_code;
    snprintf(e->status.cause, sizeof(e->status.cause), "%s", cause);
    (void)pthread_mutex_unlock(&e->lock);
    engine_say(e, 3, "%s", cause);
    engine_set_state(e, ENGINE_FAILED);
    /* Those who wait are told the cause even when the stop comes at once. */
    engine_answer_all(e, code, cause);
    engine_drop_jobs(e);
    atomic_store(&e->idle, true);
    while (!atomic_load(&e->stop)) {
        engine_doze(e);
        engine_answer_all(e, code, cause);
        engine_drop_jobs(e);
    }
}

/* ---- the model ------------------------------------------------------------
 */

static void publish_info(struct engine *e)
{
    const struct model_info *i = model_info(e->model);
    struct engine_status *s = &e->status;

    (void)pthread_mutex_lock(&e->lock);
    snprintf(s->model, sizeof(s->model), "%s", e->path);
    snprintf(s->device, sizeof(s->device), "%s", i->device);
    snprintf(s->dialect, sizeof(s->dialect), "%s", i->dialect);
    snprintf(s->family, sizeof(s->family), "%s", i->family);
    s->max_model_len = i->max_model_len;
    s->n_mtp = i->n_mtp;
    memcpy(s->draft_beta, i->draft_beta, sizeof(s->draft_beta));
    s->vocab = i->vocab;
    s->memory_weights = i->memory.weights_bf16 + i->memory.weights_experts +
                        i->memory.weights_other + i->memory.weights_mtp;
    s->memory_kv = i->memory.kv_bytes;
    (void)pthread_mutex_unlock(&e->lock);
}

/* A line a quarter: a load that stalls says no more, a slow one goes on. */
static void say_load(struct engine *e, uint64_t done, uint64_t total)
{
    int quarter = total > 0 ? (int)(done * 4 / total) : 0;

    if (quarter > e->load_quarter) {
        e->load_quarter = quarter;
        engine_say(e, 6, "loading: %.2f of %.2f GiB", (double)done / (1 << 30),
                   (double)total / (1 << 30));
    }
}

/* Before the first byte: where the memory goes, whatever then happens. */
void engine_on_plan(void *ctx, const struct model_info *i)
{
    const struct model_memory *m = &i->memory;
    const double gib = (double)(1 << 30);

    engine_say(ctx, 6,
               "memory plan: weights %.2f GiB, KV cache %.2f GiB, buffers %.2f "
               "GiB, of %.2f GiB on %s; sequences of at most %d tokens",
               (double)(m->weights_bf16 + m->weights_experts +
                        m->weights_other + m->weights_mtp) /
                   gib,
               (double)m->kv_bytes / gib,
               (double)(m->activations + m->checkpoint_bytes) / gib,
               (double)m->available / gib, i->device, i->max_model_len);
}

/* Between bytes of the load. Jobs stay in the box until there is a core. */
int engine_on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct engine *e = ctx;

    (void)pthread_mutex_lock(&e->lock);
    e->status.load_done = done;
    e->status.load_total = total;
    (void)pthread_mutex_unlock(&e->lock);
    say_load(e, done, total);
    engine_hear(e);
    if (e->conf.hold_load && !e->load_released) {
        while (!atomic_load(&e->stop) && !engine_take_release(e)) {
            engine_doze(e);
        }
        e->load_released = true;
    }
    return atomic_load(&e->stop) ? -ECANCELED : 0;
}

static int exit_code_of(int r)
{
    switch (r) {
    case -ENODEV:
        return EXIT_DEVICE;
    case -E2BIG:
        return EXIT_CONFIG;
    case -ENOMEM:
        return EXIT_FAULT;
    default:
        return EXIT_CHECKPOINT;
    }
}

/* "FOLDER: what", also where what begins with the folder. */
static void name_cause(const struct engine *e, const char *what, char *cause,
                       size_t n)
{
    bool named = strncmp(what, e->path, strlen(e->path)) == 0;

    snprintf(cause, n, "%s%s%s", named ? "" : e->path, named ? "" : ": ", what);
}

static bool load_model(struct engine *e)
{
    struct model_report rep = {0};
    int r = model_open(&e->model, &e->model_conf, &rep);
    char cause[512];

    for (int i = 0; i < rep.n_notes; i++) {
        engine_say(e, 6, "%s: %s", e->path, rep.note[i]);
    }
    for (int i = 1; i < rep.n_problems; i++) {
        engine_say(e, 3, "%s: %s", e->path, rep.problem[i]);
    }
    name_cause(e, rep.n_problems > 0 ? rep.problem[0] : strerror(-r), cause,
               sizeof(cause));
    model_report_finish(&rep);
    if (r < 0) {
        e->model = NULL;
        if (!atomic_load(&e->stop)) {
            engine_fail(e, exit_code_of(r), "unavailable", cause);
        }
        return false;
    }
    publish_info(e);
    if (model_info(e->model)->n_mtp > 0) {
        const float *beta = model_info(e->model)->draft_beta;

        engine_say(
            e, 6,
            "Detected MTP model: %d draft layers, sharing target embeddings",
            model_info(e->model)->n_mtp);
        engine_say(e, 6, "Drafts share the target's noise: beta %g %g %g",
                   (double)beta[0], (double)beta[1], (double)beta[2]);
    }
    return true;
}

static bool wait_for_tokenizer(struct engine *e)
{
    char why[256] = "", cause[512];
    int vocab = model_info(e->model)->vocab, r;

    while ((r = prep_tokenizer(e->prep, &e->tokenizer, why, sizeof(why))) ==
               0 &&
           !atomic_load(&e->stop)) {
        engine_doze(e);
    }
    if (r > 0 && tokenizer_vocab(e->tokenizer) > vocab) {
        r = -EBADMSG;
        snprintf(why, sizeof(why), "tokenizer: ids up to %d, the model has %d",
                 tokenizer_vocab(e->tokenizer) - 1, vocab);
    }
    if (r < 0) {
        snprintf(cause, sizeof(cause), "%s: %s", e->path, why);
        engine_fail(e, exit_code_of(r), "unavailable", cause);
    }
    return r > 0;
}

/* ---- the core, and the proof ----------------------------------------------
 */

/* A session was granted: its messages are rendered now. There is a place for
 * every ticket in the box, unless the daemon stops. */
static void on_granted(void *ctx, struct job *j)
{
    struct engine *e = ctx;

    if (prep_submit(e->prep, j) < 0) {
        engine_keep_early(e, j);
    }
}

static void on_moved(void *ctx)
{
    engine_poke(ctx);
}

static int create_core(struct engine *e)
{
    const struct core_conf c = {
        .model = e->model,
        .tokenizer = e->tokenizer,
        .tickets = e->tickets,
        .turns = e->turns,
        .max_live = e->max_live,
        .max_seqs = e->model_conf.max_seqs,
        .max_prompt_tokens = e->conf.max_prompt_tokens,
        .max_queued_tokens = e->conf.max_queued_tokens,
        .max_batched_tokens = e->conf.max_batched_tokens,
        .prefill_chunk = e->conf.prefill_chunk,
        .step_target_ms = e->conf.step_target_ms,
        .drafts = e->conf.drafts,
        .no_prefix_cache = e->conf.no_prefix_cache,
        .kv_ready = e->conf.kv_ready,
        .kv_share_per_owner = e->conf.kv_share_per_owner,
        .share_prefix_cache = e->conf.share_prefix_cache,
        .scrub_freed = e->conf.scrub_freed,
        .named = {e->conf.max_sessions, e->conf.max_sessions_per_owner,
                  e->conf.max_session_text_per_owner},
        .session_dir = e->session_dir,
        .session_disk = e->conf.session_disk,
        .session_disk_per_owner = e->conf.session_disk_per_owner,
        .session_disk_floor = e->conf.session_disk_floor,
        .prepare = on_granted,
        .wake = on_moved,
        .emit = engine_on_core_event,
        .log = engine_on_log,
        .now_us = engine_clock_us,
        .ctx = e,
    };
    int limit = model_info(e->model)->max_model_len - 1;
    int r = core_create(&e->core, &c);

    if (e->conf.max_prompt_tokens > 0 && e->conf.max_prompt_tokens < limit) {
        limit = e->conf.max_prompt_tokens;
    }
    prep_limit(e->prep, limit);
    return r;
}

/* Numbers before service: a model that cannot compute one fixed prompt never
 * becomes READY. */
static bool prove(struct engine *e)
{
    char why[256] = "", cause[512];
    struct model_stats a, b;
    uint64_t t0;
    int r;

    model_stats(e->model, &a);
    t0 = engine_clock_us(NULL);
    r = model_self_test(e->model, why, sizeof(why));
    if (r < 0) {
        snprintf(cause, sizeof(cause), "%s: self-test: %s", e->path, why);
        engine_fail(e, EXIT_FAULT, "unavailable", cause);
        return false;
    }
    r = create_core(e);
    if (r < 0) {
        snprintf(cause, sizeof(cause), "%s: %s", e->path,
                 r == -ENOSPC ? "the KV pages cannot hold one request"
                              : strerror(-r));
        engine_fail(e, EXIT_FAULT, "unavailable", cause);
        return false;
    }
    model_stats(e->model, &b);
    if (b.steps > a.steps) {
        core_measured(e->core, (int)((b.rows - a.rows) / (b.steps - a.steps)),
                      (double)(engine_clock_us(NULL) - t0) / 1000 /
                          (double)(b.steps - a.steps));
    }
    return true;
}

bool engine_load(struct engine *e)
{
    return load_model(e) && wait_for_tokenizer(e) && prove(e);
}
