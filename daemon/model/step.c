/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One step: the rows of all spans through the trunk, draws and verification,
 * the MTP modules over what was committed, and the new state of each sequence.
 * model_submit stages the plan and runs the trunk; model_collect does the rest,
 * so that masks may be built in between (stage.c brings the plan to the device,
 * outcome.c says what became of it). Engine thread, from where tick is called
 * as well.
 *
 * What matters: what a span yields depends on its own sequence alone. Rows keep
 * the order of the plan; a cancelled span's rows leave at the next layer
 * boundary, and the bits of the others do not notice.
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/model/state.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- cancelling ---- */

/* Moves the rows that stay to the front; st->src says which they are. The other
 * level's buffer, not in use yet, takes them on the way. */
static int compact(struct model *m, int n)
{
    struct step *st = &m->step;
    size_t row = (size_t)m->s->hidden * sizeof(float);
    struct kern_ptr aside = forward_rows(&m->f, 1);
    struct kern_gather_args a = {.rows = {n, st->rows.live.n},
                                 .width = m->s->hidden,
                                 .x = st->rows.x,
                                 .src = st->src_dev,
                                 .out = aside};
    int r;

    r = kern_download(m->k, st->bad, m->f.bad, (size_t)st->n_rows * 4);
    if (r < 0) {
        return r;
    }
    for (int i = 0; i < n; i++) {
        st->ids[i] = st->ids[st->src[i]];
        st->slot[i] = st->slot[st->src[i]];
        st->seq[i] = st->seq[st->src[i]];
        st->bad[i] = st->bad[st->src[i]];
    }
    st->n_rows = n;
    r = step_upload_rows(m);
    if (n == 0) {
        return r;
    }
    st->rows.live.max = n;
    r = r < 0 ? r : kern_upload(m->k, m->f.bad, st->bad, (size_t)n * 4);
    r = r < 0 ? r : kern_upload(m->k, st->src_dev, st->src, (size_t)n * 4);
    r = r < 0 ? r : kern_gather(m->k, &a);
    return r < 0 ? r : kern_copy(m->k, st->rows.x, aside, (size_t)n * row);
}

/* At a layer boundary: spans whose sequence was cancelled leave. layer is the
 * one that has just run. */
static int drop_cancelled(struct model *m, int layer)
{
    struct step *st = &m->step;
    int n = 0, r = 0;
    bool any = false;

    for (int i = 0; i < st->plan->n_spans; i++) {
        struct step_span *s = &st->span[i];

        if (!s->gone && m->seq[s->seq].cancelled) {
            s->gone = any = true;
        }
    }
    if (!any) {
        return 0;
    }
    st->left = true;
    r = forward_settle(&m->f, layer, &st->rows);
    for (int i = 0; i < st->plan->n_spans; i++) {
        struct step_span *s = &st->span[i];
        int row0 = n;

        for (int j = 0; !s->gone && j < s->n_rows; j++) {
            st->src[n++] = s->row0 + j;
        }
        s->row0 = row0;
    }
    return r < 0 ? r : compact(m, n);
}

static void tick(struct model *m)
{
    if (m->conf.tick != NULL) {
        m->conf.tick(m->conf.ctx);
    }
}

/* ---- the trunk ---- */

static int trunk(struct model *m)
{
    struct step *st = &m->step;
    int r = forward_embed(&m->f, &st->rows, st->rows.x);

    for (int i = 0; r == 0 && i < m->s->n_layers; i++) {
        tick(m);
        r = drop_cancelled(m, i - 1);
        if (st->n_rows == 0) {
            return r;
        }
        m->stats.layers++;
        m->stats.row_layers += (uint64_t)st->n_rows;
        r = r < 0 ? r : forward_layer(&m->f, i, &st->rows);
    }
    return r < 0 ? r : forward_settle(&m->f, m->s->n_layers - 1, &st->rows);
}

static uint64_t mix(uint64_t h, int x)
{
    return (h ^ (uint64_t)(uint32_t)x) * 0x100000001b3;
}

/* Equal for steps that launch the same kernels with the same bounds at the same
 * places of the blocks: rows, drawn rows, spans, those with MTP and how deep,
 * columns of the page tables, and whether masks come in between. */
static uint64_t shape_key(const struct model *m)
{
    const struct step *st = &m->step;
    int drawn = 0, scored = 0, deep[KERN_MAX_DRAFTS + 1] = {0}, rows = 0;
    bool masked = false;
    uint64_t h = 0xcbf29ce484222325;

    for (int i = 0; i < st->plan->n_spans; i++) {
        const struct step_span *s = &st->span[i];

        drawn += st->plan->span[i].want == MODEL_WANT_DRAW ? s->n_draft + 1 : 0;
        scored += st->plan->span[i].want == MODEL_WANT_SCORE ? s->n_rows : 0;
        deep[s->depth] += s->mtp;
        rows += s->mtp ? s->n_rows : 0;
        masked = masked || st->plan->span[i].mask != NULL;
    }
    h = mix(mix(mix(h, st->n_rows), drawn), scored);
    h = mix(mix(mix(h, st->plan->n_spans), rows), masked);
    for (int k = 0; k <= KERN_MAX_DRAFTS; k++) {
        h = mix(h, deep[k]);
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        h = mix(h, m->f.table[g].max_pages);
    }
    return h | 1; /* 0 is no key */
}

int model_submit(struct model *m, const struct model_plan *plan)
{
    struct step *st = &m->step;
    double t0 = now();
    int r;

    if (st->running) {
        return model_fail(m, -EINVAL, "a step is running");
    }
    r = step_check(m, plan);
    if (r < 0) {
        return r;
    }
    st->plan = plan;
    st->running = true;
    for (int i = 0; i < plan->n_spans; i++) {
        m->seq[plan->span[i].seq].cancelled = false;
    }
    step_columns(m);
    r = kern_begin(m->k, shape_key(m));
    r = r < 0 ? r : step_stage(m);
    r = r < 0 ? r : trunk(m);
    m->stats.steps++;
    m->stats.rows += (uint64_t)st->n_planned;
    st->forward_s = now() - t0;
    m->stats.forward_s += st->forward_s;
    if (r < 0) {
        st->running = false;
        return model_fail_kern(m, r);
    }
    return 0;
}

/* ---- the modules ---- */

/* Cancelled spans take no further part; with the last of them the modules end,
 * and there is nothing to fetch. */
static bool mtp_tick(void *ctx)
{
    struct model *m = ctx;
    struct step *st = &m->step;
    bool any = false;
    int live = 0;

    tick(m);
    for (int i = 0; i < st->n_mtp; i++) {
        struct step_span *s = &st->span[st->order[i]];

        if (!s->gone && m->seq[s->seq].cancelled) {
            s->gone = any = true;
            st->mtp_span[i].row0 = -1;
        }
        live += !s->gone;
    }
    if (live == 0) {
        st->n_mtp = 0;
    } else {
        m->stats.layers++;
    }
    return any || live == 0;
}

static int mtp_seen(void *ctx, int module, const struct rows *rows)
{
    struct model *m = ctx;

    return m->trace.on ? trace_keep(m, module, rows) : 0;
}

static int modules(struct model *m)
{
    struct mtp_step *t = &m->step.mtp;

    t->pen = m->draw.pen_dev;
    t->step_ids = m->step.rows.ids;
    t->n_accept = m->draw.n_accept_dev;
    t->next = m->draw.next_dev;
    t->tick = mtp_tick;
    t->seen = mtp_seen;
    t->ctx = m;
    return mtp_run(&m->mtp, t);
}

/* ---- the whole ---- */

/* What the step cost, where it tells something about the depth that we chose:
 * all spans decode and verify as many drafts as they made. */
static void weigh(struct model *m, double seconds)
{
    const struct step *st = &m->step;
    int depth = st->span[0].n_draft;
    bool ours = false;

    for (int i = 0; i < st->plan->n_spans; i++) {
        const struct step_span *s = &st->span[i];

        ours = ours || s->choose;
        if (s->gone || s->n_sure != 1 || s->n_draft != depth ||
            s->depth != depth || st->plan->span[i].want != MODEL_WANT_DRAW) {
            return;
        }
    }
    if (ours) {
        depth_add_step(&m->depth, st->plan->n_spans, depth, seconds * 1e3);
    }
}

/* Brings all results: the one wait of a step. */
static int fetch(struct model *m)
{
    struct step *st = &m->step;
    int r = kern_fetch(m->k, st->out.host, st->out.at, st->out.n);

    r = r < 0 ? r : kern_end(m->k);
    if (r == 0 && st->n_mtp > 0) {
        mtp_drafts(&m->mtp, &st->mtp, st->drafts, st->n_drafts);
    }
    for (int i = 0; r == 0 && i < st->n_mtp; i++) {
        for (int k = 0; k < st->n_drafts[i]; k++) {
            m->stats.proposed_by[k]++;
        }
    }
    return r;
}

/* Everything after the trunk, up to the results on the host. */
static int finish(struct model *m)
{
    struct step *st = &m->step;
    double t0 = now(), t1;
    int r = drop_cancelled(m, m->s->n_layers - 1);

    if (r == 0 && m->trace.on && st->n_rows > 0) {
        r = trace_keep(m, 0, &st->rows);
    }
    if (r == 0 && st->left) {
        r = step_stage_rest(m);
    }
    if (r == 0 && m->draw.n > 0) {
        r = draw_run(&m->draw);
    }
    r = r < 0 ? r : draw_accept(&m->draw, st->plan->n_spans);
    t1 = now();
    m->stats.sample_s += t1 - t0;
    if (r == 0 && st->n_mtp > 0) {
        r = modules(m);
    }
    r = r < 0 ? r : fetch(m);
    m->stats.mtp_s += now() - t1;
    if (r == 0) {
        weigh(m, st->forward_s + now() - t0);
    }
    return r;
}

int model_collect(struct model *m, struct model_out *ret, int n_spans)
{
    struct step *st = &m->step;
    int r;

    if (!st->running || n_spans != st->plan->n_spans) {
        return model_fail(m, -EINVAL, "no step of %d spans runs", n_spans);
    }
    if (st->plan->masks_ready != NULL) {
        st->plan->masks_ready(st->plan->ctx);
    }
    r = finish(m);
    st->running = false;
    m->trace.on = false;
    if (r < 0) {
        return model_fail_kern(m, r);
    }
    for (int i = 0; r == 0 && i < n_spans; i++) {
        r = step_commit(m, i, &ret[st->order[i]]);
    }
    return r;
}
