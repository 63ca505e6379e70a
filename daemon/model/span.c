/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The rules that a plan must keep, looked at once, before anything is computed.
 * A broken one is a fault of the scheduler; it is told, not repaired. The one
 * thing decided here is how many drafts a span may make.
 */

#include <errno.h>

#include "daemon/model/state.h"

/* A page of the span's table that holds a slot; -1 where there is none. */
static int page_of(const struct model_span *s, enum model_group g, int slot)
{
    int i = slot / MODEL_PAGE_TOK - s->first_page[g];

    return i >= 0 && i < s->n_pages[g] ? s->pages[g][i] : -1;
}

/* Whether slots lo..hi have pages. */
static bool covered(const struct model *m, const struct model_span *s,
                    enum model_group g, int lo, int hi)
{
    for (int p = lo / MODEL_PAGE_TOK; p <= hi / MODEL_PAGE_TOK; p++) {
        int page = page_of(s, g, p * MODEL_PAGE_TOK);

        if (page < 0 || page >= m->kv.n_pages[g]) {
            return false;
        }
    }
    return true;
}

static int check_pages(struct model *m, int i, const struct model_span *s)
{
    int hi = s->pos + s->n_rows - 1;

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int lo = g == MODEL_FULL ? 0 : s->pos - m->s->window + 1;

        if (m->kv.page_bytes[g] == 0) {
            continue;
        }
        if (!covered(m, s, g, lo < 0 ? 0 : lo, hi)) {
            return model_fail(m, -EINVAL,
                              "span %d: group %d has no page for some slot of "
                              "%d..%d",
                              i, g, lo < 0 ? 0 : lo, hi);
        }
    }
    return 0;
}

static int check_tokens(struct model *m, int i, const struct model_span *s,
                        const struct seq *q)
{
    for (int j = 0; j < s->n_rows; j++) {
        if (s->ids[j] < 0 || s->ids[j] >= m->s->vocab) {
            return model_fail(m, -EINVAL, "span %d: token %d of %d", i,
                              s->ids[j], m->s->vocab);
        }
    }
    for (int j = 0; j < s->n_draft; j++) {
        if (s->ids[1 + j] != q->mtp.known[1 + j]) {
            return model_fail(m, -EINVAL, "span %d: draft %d is not pending", i,
                              j);
        }
    }
    if (s->want == MODEL_WANT_SCORE && s->next_id >= m->s->vocab) {
        return model_fail(m, -EINVAL, "span %d: next token %d", i, s->next_id);
    }
    return 0;
}

static int check_span(struct model *m, int i, const struct model_span *s)
{
    const struct seq *q;
    int r;

    if (s->seq < 0 || s->seq >= m->max_seqs || !m->seq[s->seq].open) {
        return model_fail(m, -EINVAL, "span %d: no sequence %d", i, s->seq);
    }
    q = &m->seq[s->seq];
    for (int j = 0; j < i; j++) {
        if (m->step.span[j].seq == s->seq) {
            return model_fail(m, -EINVAL, "sequence %d has two spans", s->seq);
        }
    }
    if (s->pos != q->len || s->n_rows < 1 ||
        s->n_rows > m->info.max_model_len - s->pos) {
        return model_fail(m, -EINVAL,
                          "span %d: %d rows at %d, the sequence stands at %d "
                          "of %d",
                          i, s->n_rows, s->pos, q->len, m->info.max_model_len);
    }
    if (s->n_draft < 0 || s->n_draft > q->mtp.n_drafts ||
        (s->n_draft > 0 &&
         (s->n_rows != s->n_draft + 1 || s->want != MODEL_WANT_DRAW))) {
        return model_fail(m, -EINVAL, "span %d: %d drafts in %d rows", i,
                          s->n_draft, s->n_rows);
    }
    r = check_tokens(m, i, s, q);
    return r < 0 ? r : check_pages(m, i, s);
}

/* Drafts to make: as wanted or chosen, as allowed, and as the pages reach. */
static int depth_of(const struct model *m, const struct model_span *s,
                    int chosen)
{
    int n = seq_max_drafts(m, &m->seq[s->seq]);
    int end = s->pos + s->n_rows;

    if (s->want != MODEL_WANT_DRAW) {
        return 0;
    }
    if (s->draft_next >= 0 && s->draft_next < n) {
        n = s->draft_next;
    } else if (s->draft_next < 0 && chosen < n) {
        n = chosen;
    }
    while (n > 0 && (end + n > m->info.max_model_len ||
                     !covered(m, s, MODEL_SLIDING, end, end + n - 1))) {
        n--;
    }
    return n;
}

/* Whether somebody asks for a depth of our choice. */
static bool chooses(const struct model_plan *plan)
{
    for (int i = 0; i < plan->n_spans; i++) {
        if (plan->span[i].want == MODEL_WANT_DRAW &&
            plan->span[i].draft_next < 0) {
            return true;
        }
    }
    return false;
}

/* The modules pass over sequences that may draft. Where the drafter is off they
 * need not; a request that asks for drafts by number still gets them. */
static bool needs_mtp(const struct model *m, const struct model_span *s)
{
    return seq_max_drafts(m, &m->seq[s->seq]) > 0 &&
           !(m->depth.off && m->seq[s->seq].sampling.p.max_drafts < 0);
}

int step_check(struct model *m, const struct model_plan *plan)
{
    struct step *st = &m->step;
    int n = 0;

    if (plan->n_spans < 1 || plan->n_spans > m->max_seqs) {
        return model_fail(m, -EINVAL, "%d spans of at most %d", plan->n_spans,
                          m->max_seqs);
    }
    for (int i = 0; i < plan->n_spans; i++) {
        const struct model_span *s = &plan->span[i];
        struct step_span *to = &st->span[i];
        int r = check_span(m, i, s);

        if (r < 0) {
            return r;
        }
        if (s->n_rows > m->f.size.max_rows - n) {
            return model_fail(m, -EINVAL, "more than %d rows",
                              m->f.size.max_rows);
        }
        to->seq = s->seq;
        to->row0 = n;
        to->n_rows = s->n_rows;
        to->n_draft = s->n_draft;
        to->n_sure = s->n_rows - s->n_draft;
        to->choose = s->draft_next < 0;
        to->mtp = needs_mtp(m, s);
        to->gone = to->in_mtp = false;
        to->draw0 = -1;
        to->score0 = to->n_scored = 0;
        n += s->n_rows;
    }
    if (chooses(plan)) {
        m->stats.depth = depth_pick(&m->depth, plan->n_spans);
    }
    for (int i = 0; i < plan->n_spans; i++) {
        st->span[i].depth = depth_of(m, &plan->span[i], m->stats.depth);
    }
    st->n_planned = st->n_rows = n;
    return 0;
}
