/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * accept, mtp_rows: what becomes of drafts, and which rows the MTP modules
 * compute after that (design.md 4.3, struct kern_mtp_span). Integers only.
 */

#include "kernels/ref/ref.h"

int ref_accept(struct kern *k, const struct kern_accept_args *a)
{
    const int32_t *row0 = ref_at(a->row0), *n_draft = ref_at(a->n_draft);
    const int32_t *draft = ref_at(a->draft);
    const struct kern_sample_out *drawn = ref_at(a->sampled);
    int32_t *n_accept = ref_at(a->n_accept), *next = ref_at(a->next);

    (void)k;
    for (int i = 0; i < a->n_spans; i++) {
        int j = 0;

        if (row0[i] < 0) {
            n_accept[i] = 0;
            next[i] = -1;
            continue;
        }
        while (j < n_draft[i] &&
               draft[i * KERN_MAX_DRAFTS + j] == drawn[row0[i] + j].id) {
            j++;
        }
        n_accept[i] = j;
        next[i] = drawn[row0[i] + j].id;
    }
    return 0;
}

static int32_t max32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t min32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The token of slot s, L being the tokens committed after this step. */
static int32_t token(const struct kern_mtp_rows_args *a, int i, int s, int len)
{
    const struct kern_mtp_span *p =
        (const struct kern_mtp_span *)ref_at(a->span) + i;
    const struct kern_sample_out *drafts = ref_at(a->drafts);

    if (s < len) {
        return ((const int32_t *)ref_at(a->step_ids))[p->row0 + s - p->pos];
    }
    if (s == len) {
        return ((const int32_t *)ref_at(a->next))[i];
    }
    return drafts[(s - len - 1) * a->n_spans + i].id;
}

/* Lists which of the level below's rows to keep: its newest ones. */
static void keep(const struct kern_mtp_rows_args *a, int i, int first, int row0,
                 int limit)
{
    const struct kern_mtp_span *p =
        (const struct kern_mtp_span *)ref_at(a->span) + i;
    int32_t *src = (int32_t *)ref_at(a->keep_src) + i * KERN_CARRY;
    int32_t *dst = (int32_t *)ref_at(a->keep_dst) + i * KERN_CARRY;

    for (int j = 0; j < KERN_CARRY; j++) {
        int s = limit - KERN_CARRY + j;
        bool have = p->row0 >= 0 && s >= first;

        src[j] = have ? a->below_base + row0 + s - first : -1;
        dst[j] = have ? p->carry + s % KERN_CARRY : 0;
    }
}

int ref_mtp_rows(struct kern *k, const struct kern_mtp_rows_args *a)
{
    const struct kern_mtp_span *span = ref_at(a->span);
    const int32_t *n_accept = ref_at(a->n_accept);
    int32_t *first = ref_at(a->first), *row0 = ref_at(a->row0);
    int32_t *ids = ref_at(a->ids), *slot = ref_at(a->slot);
    int32_t *seq = ref_at(a->seq), *below = ref_at(a->below);
    int32_t *last = ref_at(a->last), *last_pos = ref_at(a->last_pos);
    int32_t n = 0;

    (void)k;
    for (int i = 0; i < a->n_spans; i++) {
        const struct kern_mtp_span *p = &span[i];
        int32_t len = p->pos + p->n_sure + n_accept[i];
        int32_t f = max32(p->low[a->k - 1], min32(p->end[a->k - 1], len));
        int32_t limit = p->depth >= a->k ? len + a->k : len;
        /* The level below: where its rows of this step begin and end. */
        int line = (a->k - 1) * a->n_spans + i;
        int32_t bf = a->k == 1 ? p->pos : first[line];
        int32_t b0 = a->k == 1 ? p->row0 : row0[line];
        int32_t bl = p->depth >= a->k - 1 ? len + a->k - 1 : len;

        first[line + a->n_spans] = f;
        row0[line + a->n_spans] = n;
        keep(a, i, bf, b0, bl);
        last[i] = -1;
        last_pos[i] = len + a->k;
        for (int32_t s = f; p->row0 >= 0 && s < limit && n < a->max_rows; s++) {
            ids[n] = token(a, i, s, len);
            slot[n] = s;
            seq[n] = p->seq;
            below[n] = s - 1 >= bf ? a->below_base + b0 + s - 1 - bf
                                   : p->carry + (s - 1) % KERN_CARRY;
            last[i] = p->depth >= a->k && s == limit - 1 ? n : -1;
            n++;
        }
    }
    *(int32_t *)ref_at(a->n) = n;
    return 0;
}
