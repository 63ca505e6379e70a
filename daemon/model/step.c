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

/* Equal for steps that launch the same kernels with the same bounds: rows,
 * drawn rows, spans, those with MTP and how deep, and columns of the page
 * tables. */
static uint64_t shape_key(const struct model *m)
{
    const struct step *st = &m->step;
    int drawn = 0, scored = 0, deep[KERN_MAX_DRAFTS + 1] = {0}, rows = 0;
    uint64_t h = 0xcbf29ce484222325;

    for (int i = 0; i < st->plan->n_spans; i++) {
        const struct step_span *s = &st->span[i];

        drawn += st->plan->span[i].want == MODEL_WANT_DRAW ? s->n_draft + 1 : 0;
        scored += st->plan->span[i].want == MODEL_WANT_SCORE ? s->n_rows : 0;
        deep[s->depth] += s->mtp;
        rows += s->mtp ? s->n_rows : 0;
    }
    h = mix(mix(mix(h, st->n_rows), drawn), scored);
    h = mix(mix(h, st->plan->n_spans), rows);
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

/* ---- draws ---- */

/* Rows that are drawn: after the last sure one and after each draft. */
static int add_draws(struct model *m, int i)
{
    const struct model_span *s = &m->step.plan->span[i];
    struct step_span *sp = &m->step.span[i];
    const struct sampling *p = &m->seq[sp->seq].sampling;
    struct kern_sample_row row = sampling_row(p);
    const int32_t *drafts = s->ids + sp->n_sure;
    int r = 0;

    for (int j = 0; r == 0 && j <= sp->n_draft; j++) {
        int at = sp->n_sure - 1 + j;
        int n = draw_add(&m->draw, sp->row0 + at, s->pos + at + 1, &row);

        sp->draw0 = j == 0 ? n : sp->draw0;
        r = draw_penalties(&m->draw, p, drafts, j);
        if (r == 0 && s->mask != NULL) {
            r = draw_mask(&m->draw, s->mask + j * m->draw.n_words);
        }
    }
    return r;
}

/* Rows whose next token is given; the last one draws where none is. */
static int add_scores(struct model *m, int i)
{
    const struct model_span *s = &m->step.plan->span[i];
    struct step_span *sp = &m->step.span[i];
    struct kern_sample_row row = sampling_row(&m->seq[sp->seq].sampling);

    row.n_top = row.n_top < 0 ? 0 : row.n_top;
    sp->score0 = m->draw.n;
    for (int j = 0; j < s->n_rows; j++) {
        bool last = j == s->n_rows - 1;

        row.given = last ? s->next_id : s->ids[j + 1];
        if (row.given < 0) {
            return add_draws(m, i);
        }
        draw_add(&m->draw, sp->row0 + j, s->pos + j + 1, &row);
        sp->n_scored++;
    }
    return 0;
}

/* Spans with MTP first, by falling depth; stable. */
static void sort_spans(struct step *st)
{
    int n = 0;

    st->n_mtp = 0;
    for (int depth = KERN_MAX_DRAFTS; depth >= -1; depth--) {
        for (int i = 0; i < st->plan->n_spans; i++) {
            const struct step_span *s = &st->span[i];
            int d = s->mtp && !s->gone ? s->depth : -1;

            if (d == depth) {
                st->order[n++] = i;
                st->n_mtp += d >= 0;
            }
        }
    }
}

static int draws(struct model *m)
{
    struct step *st = &m->step;
    struct draw *d = &m->draw;
    int r = 0;

    draw_begin(d);
    for (int i = 0; r == 0 && i < st->plan->n_spans; i++) {
        if (st->span[i].gone) {
            continue;
        }
        if (st->plan->span[i].want == MODEL_WANT_DRAW) {
            r = add_draws(m, i);
        } else if (st->plan->span[i].want == MODEL_WANT_SCORE) {
            r = add_scores(m, i);
        }
    }
    if (r == 0 && d->n > 0) {
        r = draw_run(d);
    }
    sort_spans(st);
    for (int i = 0; i < st->plan->n_spans; i++) {
        const struct step_span *s = &st->span[st->order[i]];
        const struct model_span *p = &st->plan->span[st->order[i]];

        d->row0[i] = s->gone ? -1 : s->draw0;
        d->n_draft[i] = s->n_draft;
        for (int j = 0; j < s->n_draft; j++) {
            d->draft[i][j] = p->ids[s->n_sure + j];
        }
    }
    return r < 0 ? r : draw_accept(d, st->plan->n_spans);
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

static void stage_mtp_span(struct model *m, int i)
{
    struct step *st = &m->step;
    int n = st->plan->n_spans;
    struct step_span *s = &st->span[st->order[i]];
    const struct model_span *p = &st->plan->span[st->order[i]];
    struct seq *q = &m->seq[s->seq];
    struct kern_mtp_span *to = &st->mtp_span[i];

    mtp_seq_step(&q->mtp, q->len, p->ids, s->n_sure, s->depth, to);
    s->in_mtp = true;
    to->row0 = s->row0;
    to->seq = st->order[i];
    to->carry = s->seq * KERN_CARRY;
    for (int k = 0; k < KERN_MAX_DRAFTS; k++) {
        st->low[k * n + st->order[i]] = to->low[k];
    }
    st->mtp_params[i] = sampling_draft_row(&q->sampling);
    if (s->draw0 >= 0) {
        /* the history without what this step draws: unknown as yet */
        st->mtp_params[i].pen_off = m->draw.row[s->draw0].pen_off;
        st->mtp_params[i].pen_n = m->draw.row[s->draw0].pen_n;
    }
}

static int modules(struct model *m)
{
    struct step *st = &m->step;
    struct mtp_step *t = &st->mtp;
    int n = 0;

    memset(st->low, 0,
           (size_t)st->plan->n_spans * KERN_MAX_DRAFTS * sizeof(*st->low));
    for (int i = 0; i < st->n_mtp; i++) {
        stage_mtp_span(m, i);
        n += st->span[st->order[i]].n_rows + KERN_MAX_DRAFTS;
    }
    memset(t, 0, sizeof(*t));
    t->n_spans = st->n_mtp;
    t->span = st->mtp_span;
    t->n_lines = st->plan->n_spans;
    t->low = st->low;
    t->params = st->mtp_params;
    t->pen = m->draw.pen_dev;
    t->n_step_rows = st->n_rows;
    t->max_rows = n;
    t->step_ids = st->rows.ids;
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

static int fetch(struct model *m)
{
    struct step *st = &m->step;
    int r = 0;

    if (st->n_rows > 0) {
        r = kern_fetch(m->k, st->bad, m->f.bad, (size_t)st->n_rows * 4);
    }
    r = r < 0 ? r : draw_fetch(&m->draw, st->plan->n_spans);
    if (r == 0 && st->n_mtp > 0) {
        r = mtp_fetch(&m->mtp, &st->mtp);
    }
    r = r < 0 ? r : kern_end(m->k); /* the one wait of a step */
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
    r = r < 0 ? r : draws(m);
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
