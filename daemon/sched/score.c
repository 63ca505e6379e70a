/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What a span scores, and its results as part events. Engine thread only; owns
 * nothing. Token i of the prompt is scored by row i - 1; the first has no
 * logprob. A task that was pre-empted computes rows again whose tokens have
 * gone out: they do not go out twice.
 */
#include "daemon/sched/score.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int score_n_top(const struct job *j)
{
    int n = j->logprobs;

    if (j->kind == JOB_SCORE) {
        return n > 0 ? n : 0;
    }
    return j->prompt_logprobs > n ? j->prompt_logprobs : n;
}

void score_span(const struct task *t, struct model_span *s)
{
    int end = s->pos + s->n_rows;
    bool draws = s->want == MODEL_WANT_DRAW;

    if (!score_wants(t->job) || s->pos >= t->n_prompt - (draws ? 0 : 1) ||
        s->n_draft > 0) {
        return;
    }
    s->want = MODEL_WANT_SCORE;
    s->next_id = end < t->n_prompt ? t->job->ids[end] : -1;
}

static struct event_bytes bytes_of(const struct tokenizer *tok, int32_t id)
{
    struct event_bytes b = {NULL, 0};

    b.p = tokenizer_bytes(tok, id, &b.n);
    return b;
}

static void fill(struct event_logprob *to, const struct model_token *t,
                 int32_t id, int n_top, const struct tokenizer *tok)
{
    memset(to, 0, sizeof(*to));
    to->id = id;
    to->logprob = t->logprob;
    to->bytes = bytes_of(tok, id);
    to->n_top = t->n_top < n_top ? t->n_top : n_top;
    for (int i = 0; i < to->n_top; i++) {
        to->top_id[i] = t->top_id[i];
        to->top_logprob[i] = t->top_logprob[i];
        to->top_bytes[i] = bytes_of(tok, t->top_id[i]);
    }
}

int score_take(struct task *t, int pos, const struct model_out *o,
               const struct tokenizer *tok, deliver_emit emit, void *ctx)
{
    int n_top = t->job->kind == JOB_SCORE ? score_n_top(t->job)
                                          : t->job->prompt_logprobs;
    /* Token pos + 1 + i is row i's; those before n_scored are told. */
    int i = t->n_scored > pos + 1 ? t->n_scored - pos - 1 : 0;

    while (i < o->n_scored) {
        int n = o->n_scored - i < SCORE_PART ? o->n_scored - i : SCORE_PART;
        struct event_logprob *list = malloc((size_t)n * sizeof(*list));
        struct event *e;

        if (list == NULL) {
            return -ENOMEM;
        }
        for (int k = 0; k < n; k++, i++) {
            fill(&list[k], &o->scored[i], t->job->ids[pos + 1 + i], n_top, tok);
        }
        e = event_create(EVENT_PART, t->job);
        e->logprobs = list;
        e->n_logprobs = n;
        emit(ctx, e);
        t->n_scored = pos + 1 + i;
    }
    return 0;
}
