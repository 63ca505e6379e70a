/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_accept and kern_mtp_rows: which drafts stand, and which slots the MTP
 * modules compute after that (design.md 4.3, struct kern_mtp_span). A few
 * integers a span: one thread, one form for all paths.
 */
#include "kernels/cpu/cpu.h"

int cpu_accept(struct cpu *c, const struct kern_accept_args *a)
{
    const int32_t *row0 = cpu_at(a->row0), *n_draft = cpu_at(a->n_draft);
    const int32_t *draft = cpu_at(a->draft);
    const struct kern_sample_out *sampled = cpu_at(a->sampled);
    int32_t *n_accept = cpu_at(a->n_accept), *next = cpu_at(a->next);

    (void)c;
    for (int i = 0; i < a->n_spans; i++, draft += KERN_MAX_DRAFTS) {
        const struct kern_sample_out *drawn = sampled + row0[i];
        int n = 0;

        if (row0[i] >= 0) {
            while (n < n_draft[i] && drawn[n].id == draft[n]) {
                n++;
            }
        }
        n_accept[i] = n;
        next[i] = row0[i] >= 0 ? drawn[n].id : -1;
    }
    return 0;
}

/* A run of slots and the rows, in one level's list of this step, that hold
 * them. */
struct run {
    int first, end; /* slots first .. end - 1 */
    int row0;       /* row of slot first */
};

/* One span as module k sees it. */
struct mtp {
    const struct kern_mtp_rows_args *a;
    const struct kern_mtp_span *span;
    int i_span;
    int len; /* L: tokens committed after this step */
    struct run below, here;
};

static int token_of(const struct mtp *m, int slot)
{
    const struct kern_sample_out *drafts = cpu_at(m->a->drafts);
    const int32_t *ids = cpu_at(m->a->step_ids), *next = cpu_at(m->a->next);
    int past = slot - m->len;

    if (past < 0) {
        return ids[m->span->row0 + slot - m->span->pos];
    }
    return past == 0 ? next[m->i_span]
                     : drafts[(past - 1) * m->a->n_spans + m->i_span].id;
}

/* Buffer row of the level below that holds slot. */
static int below_row(const struct mtp *m, int slot)
{
    return slot >= m->below.first
               ? m->a->below_base + m->below.row0 + slot - m->below.first
               : m->span->carry + slot % KERN_CARRY;
}

/* The newest rows of the level below go to the sequence's carried ones. */
static void list_keeps(const struct mtp *m)
{
    int32_t *src = (int32_t *)cpu_at(m->a->keep_src) + m->i_span * KERN_CARRY;
    int32_t *dst = (int32_t *)cpu_at(m->a->keep_dst) + m->i_span * KERN_CARRY;

    for (int j = 0; j < KERN_CARRY; j++) {
        int slot = m->below.end - KERN_CARRY + j;

        src[j] = -1;
        dst[j] = 0;
        if (m->span->row0 >= 0 && slot >= m->below.first) {
            src[j] = below_row(m, slot);
            dst[j] = m->span->carry + slot % KERN_CARRY;
        }
    }
}

/* Appends the module's rows to the lists; returns the new number of rows. */
static int list_rows(const struct mtp *m, int n)
{
    int32_t *ids = cpu_at(m->a->ids), *slots = cpu_at(m->a->slot);
    int32_t *seq = cpu_at(m->a->seq), *below = cpu_at(m->a->below);

    for (int s = m->here.first; s < m->here.end && n < m->a->max_rows; s++) {
        ids[n] = token_of(m, s);
        slots[n] = s;
        seq[n] = m->span->seq;
        below[n] = below_row(m, s - 1);
        n++;
    }
    return n;
}

int cpu_mtp_rows(struct cpu *c, const struct kern_mtp_rows_args *a)
{
    const struct kern_mtp_span *span = cpu_at(a->span);
    const int32_t *n_accept = cpu_at(a->n_accept);
    int32_t *first = cpu_at(a->first), *row0 = cpu_at(a->row0);
    int32_t *last = cpu_at(a->last), *last_pos = cpu_at(a->last_pos);
    int k = a->k, n = 0;

    (void)c;
    for (int i = 0; i < a->n_spans; i++) {
        const struct kern_mtp_span *p = &span[i];
        int line = (k - 1) * a->n_spans + i;
        int len = p->pos + p->n_sure + n_accept[i], end;
        struct mtp m = {.a = a, .span = p, .i_span = i, .len = len};

        m.below.first = k == 1 ? p->pos : first[line];
        m.below.row0 = k == 1 ? p->row0 : row0[line];
        m.below.end = p->depth >= k - 1 ? len + k - 1 : len;
        m.here.first = imax(p->low[k - 1], imin(p->end[k - 1], len));
        m.here.end = p->depth >= k ? len + k : len;
        m.here.row0 = n;
        first[line + a->n_spans] = m.here.first;
        row0[line + a->n_spans] = n;
        list_keeps(&m);
        end = p->row0 >= 0 ? list_rows(&m, n) : n;
        last[i] =
            p->depth >= k && end > n && end - n == m.here.end - m.here.first
                ? end - 1
                : -1;
        last_pos[i] = len + k;
        n = end;
    }
    *(int32_t *)cpu_at(a->n) = n;
    return 0;
}
