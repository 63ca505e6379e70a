/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Sampling parameters, biases and token history of one sequence. Owns the
 * history's memory. Engine thread.
 *
 * What matters: a row's parameters depend on its own sequence and on the tokens
 * before it, accepted or still drafts, and on nothing else: that is what makes
 * a draw the same with and without drafting (design.md 4.1).
 */

#include "daemon/model/sample.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool penalised(const struct model_sampling *p)
{
    return p->repetition != 1.0f || p->presence != 0.0f || p->frequency != 0.0f;
}

/* The entry of id, made with a count of -1 where there is none. */
static int entry(struct sampling *s, int32_t id, struct kern_penalty **ret)
{
    if (s->where[id] < 0) {
        if (s->n_pen == s->cap_pen) {
            int cap = s->cap_pen > 0 ? 2 * s->cap_pen : 256;
            struct kern_penalty *pen =
                realloc(s->pen, (size_t)cap * sizeof(*pen));

            if (pen == NULL) {
                return -ENOMEM;
            }
            s->pen = pen;
            s->cap_pen = cap;
        }
        s->where[id] = s->n_pen;
        s->pen[s->n_pen++] = (struct kern_penalty){.id = id, .count = -1};
    }
    *ret = &s->pen[s->where[id]];
    return 0;
}

/* e occurs: by of 0 in the prompt only. */
static void count(struct kern_penalty *e, int by)
{
    e->count = (e->count < 0 ? 0 : e->count) + by;
}

static int note(struct sampling *s, int32_t id, int by)
{
    struct kern_penalty *e;
    int r;

    if (!s->counts || id < 0 || id >= s->vocab) {
        return 0;
    }
    r = entry(s, id, &e);
    if (r == 0) {
        count(e, by);
    }
    return r;
}

static int add_biases(struct sampling *s, const struct model_sampling *p)
{
    struct kern_penalty *e;
    int r = 0;

    for (int i = 0; r == 0 && i < p->n_bias; i++) {
        r = entry(s, p->bias[i].id, &e);
        if (r == 0) {
            e->bias = p->bias[i].bias;
        }
    }
    return r;
}

int sampling_init(struct sampling *s, const struct model_sampling *p, int vocab,
                  const int32_t *history, int n_history, int n_drawn)
{
    int r;

    memset(s, 0, sizeof(*s));
    s->p = *p;
    s->p.bias = NULL; /* the caller's */
    s->vocab = vocab;
    s->counts = penalised(p);
    if (!s->counts && p->n_bias == 0) {
        return 0;
    }
    s->where = malloc((size_t)vocab * sizeof(*s->where));
    if (s->where == NULL) {
        return -ENOMEM;
    }
    memset(s->where, 0xff, (size_t)vocab * sizeof(*s->where));
    r = add_biases(s, p);
    for (int i = 0; r == 0 && i < n_history; i++) {
        r = note(s, history[i], i >= n_history - n_drawn ? 1 : 0);
    }
    if (r < 0) {
        sampling_finish(s);
    }
    return r;
}

void sampling_finish(struct sampling *s)
{
    free(s->pen);
    free(s->where);
    memset(s, 0, sizeof(*s));
}

int sampling_add(struct sampling *s, int32_t id)
{
    return note(s, id, 1);
}

struct kern_sample_row sampling_row(const struct sampling *s)
{
    struct kern_sample_row r = {
        .temperature = s->p.temperature,
        .top_p = s->p.top_p,
        .min_p = s->p.min_p,
        .beta = 1,
        .top_k = s->p.top_k,
        .n_top = s->p.n_top,
        .seed = s->p.seed,
        .repetition = s->p.repetition,
        .presence = s->p.presence,
        .frequency = s->p.frequency,
        .mask = -1,
        .given = -1,
        .of_drawn = s->p.of_drawn,
    };

    return r;
}

struct kern_sample_row sampling_draft_row(const struct sampling *s)
{
    struct kern_sample_row r = sampling_row(s);

    r.n_top = -1;
    return r;
}

int sampling_max_penalties(const struct sampling *s, int n)
{
    return s->n_pen + (s->counts ? n : 0);
}

int sampling_penalties(const struct sampling *s, const int32_t *extra, int n,
                       struct kern_penalty *ret)
{
    int n_ret = s->n_pen;

    if (s->n_pen > 0) {
        memcpy(ret, s->pen, (size_t)s->n_pen * sizeof(*ret));
    }
    for (int i = 0; s->counts && i < n; i++) {
        int at = s->where[extra[i]];

        /* not in the history: perhaps among the extra ones before */
        for (int j = s->n_pen; at < 0 && j < n_ret; j++) {
            at = ret[j].id == extra[i] ? j : -1;
        }
        if (at < 0) {
            at = n_ret++;
            ret[at] = (struct kern_penalty){.id = extra[i], .count = -1};
        }
        count(&ret[at], 1);
    }
    return n_ret;
}
