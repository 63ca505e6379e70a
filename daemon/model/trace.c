/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Tests: hidden states and logits of every row of a step, of every level. Owns
 * the copies, which stay until the next traced step. Costs a head over all rows
 * a level, and waits for the device: nothing else may turn it on.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/state.h"

static void forget(struct trace *t, int level)
{
    free(t->hidden[level]);
    free(t->logits[level]);
    t->hidden[level] = t->logits[level] = NULL;
    t->n[level] = 0;
}

void trace_finish(struct trace *t)
{
    for (int i = 0; i < FORWARD_LEVELS; i++) {
        forget(t, i);
    }
}

/* The logits of rows first .. first + n - 1. */
static int tile(struct model *m, int level, const struct rows *rows, int first,
                int n, const struct kern_weight *norm,
                const struct kern_weight *head)
{
    size_t v = (size_t)m->s->vocab;
    struct kern_rows live = {n, m->step.src_n};
    int32_t count = n;
    int r = kern_upload(m->k, m->step.src_n, &count, sizeof(count));

    for (int i = 0; i < n; i++) {
        m->step.src[i] = first + i;
    }
    r = r < 0 ? r
              : kern_upload(m->k, m->step.src_dev, m->step.src, (size_t)n * 4);
    r = r < 0 ? r
              : forward_head(&m->f, live, rows->x, m->step.src_dev, norm, head);
    return r < 0
               ? r
               : kern_download(m->k, m->trace.logits[level] + (size_t)first * v,
                               m->f.logits, (size_t)n * v * 4);
}

int trace_keep(struct model *m, int level, const struct rows *rows)
{
    struct trace *t = &m->trace;
    size_t d = (size_t)m->s->hidden, v = (size_t)m->s->vocab;
    const struct kern_weight *norm =
        level == 0 ? m->w->norm : m->w->mtp[level - 1].norm;
    const struct kern_weight *head =
        level == 0 ? m->w->head : m->w->mtp[level - 1].head;
    int32_t n = 0;
    int r = kern_download(m->k, &n, rows->live.n, sizeof(n));

    forget(t, level);
    if (r < 0 || n == 0) {
        return r;
    }
    t->hidden[level] = malloc((size_t)n * d * sizeof(float));
    t->logits[level] = malloc((size_t)n * v * sizeof(float));
    if (t->hidden[level] == NULL || t->logits[level] == NULL) {
        return -ENOMEM;
    }
    t->n[level] = n;
    r = kern_download(m->k, t->hidden[level], rows->x, (size_t)n * d * 4);
    for (int i = 0; r == 0 && i < n; i += m->f.tile) {
        r = tile(m, level, rows, i, n - i < m->f.tile ? n - i : m->f.tile, norm,
                 head);
    }
    return r;
}

int model_trace(struct model *m, bool on)
{
    m->trace.on = on;
    for (int i = 0; i < FORWARD_LEVELS; i++) {
        forget(&m->trace, i);
    }
    return 0;
}

int model_traced(struct model *m, int level, float *ret_hidden,
                 float *ret_logits, int max_rows)
{
    const struct trace *t = &m->trace;
    size_t d = (size_t)m->s->hidden, v = (size_t)m->s->vocab, n;

    if (level < 0 || level >= FORWARD_LEVELS || t->n[level] > max_rows) {
        return -EINVAL;
    }
    n = (size_t)t->n[level];
    if (ret_hidden != NULL && n > 0) {
        memcpy(ret_hidden, t->hidden[level], n * d * sizeof(float));
    }
    if (ret_logits != NULL && n > 0) {
        memcpy(ret_logits, t->logits[level], n * v * sizeof(float));
    }
    return t->n[level];
}
