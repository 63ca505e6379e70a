/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What became of each span of a step, once the results are on the host: its
 * status, its tokens and scores, and the sequence's new state.
 *
 * What matters: a span that failed counts as not run. Its sequence stands where
 * it stood, and nothing that its rows left in the cache is ever read.
 */

#include <errno.h>
#include <string.h>

#include "daemon/model/state.h"

static struct model_token token_of(const struct kern_sample_out *o)
{
    struct model_token t = {
        .id = o->id, .logprob = o->logprob, .n_top = o->n_top};

    for (int i = 0; i < o->n_top; i++) {
        t.top_id[i] = o->top_id[i];
        t.top_logprob[i] = o->top_logprob[i];
    }
    return t;
}

/* The span's status, from its rows and its draws. */
static int status_of(const struct model *m, const struct step_span *s,
                     int n_draws, int *ret_layer)
{
    const struct step *st = &m->step;
    int layer = m->s->n_layers + 1;

    if (s->gone) {
        return -ECANCELED;
    }
    for (int j = 0; j < s->n_rows; j++) {
        int mark = st->bad[s->row0 + j];

        layer = mark > 0 && mark - 1 < layer ? mark - 1 : layer;
    }
    for (int j = 0; j < s->n_scored + n_draws; j++) {
        int at = j < s->n_scored ? s->score0 + j : s->draw0 + j - s->n_scored;
        int id = m->draw.out[at].id;

        if (id == KERN_DRAW_MASKED) {
            return -ENODATA;
        }
        if (id < 0 && layer > m->s->n_layers) {
            layer = m->s->n_layers;
        }
    }
    if (layer > m->s->n_layers) {
        return 0;
    }
    *ret_layer = layer;
    return -EIO;
}

static void count(struct model *m, const struct step_span *sp,
                  const struct model_out *o)
{
    struct model_stats *s = &m->stats;

    if (o->n_drafted == 0) {
        return;
    }
    if (sp->choose) {
        depth_add_drafts(&m->depth, o->n_drafted, o->n_accepted);
        s->drafter_is_off = m->depth.off;
    }
    s->drafts++;
    s->drafted += (uint64_t)o->n_drafted;
    s->accepted += (uint64_t)o->n_accepted;
    for (int j = 0; j < o->n_accepted; j++) {
        s->accepted_at[j]++;
    }
}

/* A span that failed leaves its sequence where it was. What the modules wrote
 * past that is void, and with it what they carry. */
static void revert(struct model *m, const struct step_span *s)
{
    struct mtp_seq *q = &m->seq[s->seq].mtp;

    if (s->in_mtp) {
        mtp_seq_reset(q);
    }
}

static void commit_scores(struct model *m, const struct step_span *s,
                          struct model_out *ret)
{
    ret->scored = m->step.scored + s->score0;
    ret->n_scored = s->n_scored;
    for (int j = 0; j < s->n_scored; j++) {
        ret->scored[j] = token_of(&m->draw.out[s->score0 + j]);
    }
}

static int commit_draws(struct model *m, int at, struct model_out *ret)
{
    const struct step_span *s = &m->step.span[m->step.order[at]];
    struct seq *q = &m->seq[s->seq];
    int r = 0;

    ret->n_drafted = s->n_draft;
    ret->n_accepted = m->draw.n_accept[at];
    ret->n_tokens = ret->n_accepted + 1;
    ret->committed += ret->n_accepted;
    for (int j = 0; r == 0 && j < ret->n_tokens; j++) {
        ret->token[j] = token_of(&m->draw.out[s->draw0 + j]);
        r = sampling_add(&q->sampling, ret->token[j].id);
    }
    count(m, s, ret);
    return r;
}

int step_commit(struct model *m, int at, struct model_out *ret)
{
    struct step *st = &m->step;
    int i = st->order[at], r = 0;
    struct step_span *s = &st->span[i];
    const struct model_span *p = &st->plan->span[i];
    struct seq *q = &m->seq[s->seq];
    /* of the draws only those up to the correction count */
    int n_draws = s->draw0 < 0 || s->gone ? 0 : m->draw.n_accept[at] + 1;

    memset(ret, 0, sizeof(*ret));
    ret->layer = -1;
    ret->committed = p->pos;
    ret->status = status_of(m, s, n_draws, &ret->layer);
    if (ret->status < 0) {
        revert(m, s);
        return 0;
    }
    ret->committed = p->pos + s->n_sure;
    commit_scores(m, s, ret);
    if (n_draws > 0) {
        r = commit_draws(m, at, ret);
    }
    q->len = ret->committed;
    if (s->in_mtp) {
        mtp_seq_commit(&q->mtp, &st->mtp_span[at], q->len,
                       n_draws > 0 ? m->draw.next[at] : -1, st->drafts[at],
                       st->n_drafts[at]);
    } else {
        mtp_seq_reset(&q->mtp); /* a gap */
    }
    return r;
}
