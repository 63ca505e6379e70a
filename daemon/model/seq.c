/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Sequences: the model's own state of one token timeline. Owns the table of
 * handles. Pages are the scheduler's; what is kept here is the committed
 * length, the sampling history, and where the MTP run stands.
 *
 * An aux record, as model_seq_aux gives it: 4 little-endian 32-bit words
 * (AUX_MAGIC, number of levels, L, r0), then for each level 0 .. levels - 1 its
 * output at slot L - 1: hidden floats. r0 = -1: no run, the floats are 0.
 */

#include <errno.h>
#include <string.h>

#include "daemon/model/state.h"

#define AUX_MAGIC 0x31585541u /* "AUX1" */

struct aux {
    uint32_t magic, levels;
    int32_t len, r0;
};

static struct seq *get(const struct model *m, int seq)
{
    if (seq < 0 || seq >= m->max_seqs || !m->seq[seq].open) {
        return NULL;
    }
    return &m->seq[seq];
}

int seq_max_drafts(const struct model *m, const struct seq *q)
{
    int n = q->sampling.p.max_drafts;

    return n < 0 || n > m->max_drafts ? m->max_drafts : n;
}

int model_seq_open(struct model *m, const struct model_sampling *s,
                   const int32_t *history, int n_history, int n_drawn,
                   int *ret_seq)
{
    int i = 0, r;

    while (i < m->max_seqs && m->seq[i].open) {
        i++;
    }
    if (i == m->max_seqs) {
        return model_fail(m, -EMFILE, "%d sequences are open", i);
    }
    memset(&m->seq[i], 0, sizeof(m->seq[i]));
    r = sampling_init(&m->seq[i].sampling, s, m->s->vocab, history, n_history,
                      n_drawn);
    if (r < 0) {
        return r;
    }
    mtp_seq_at(&m->seq[i].mtp, 0, 0);
    m->seq[i].open = true;
    *ret_seq = i;
    return 0;
}

void model_seq_close(struct model *m, int seq)
{
    struct seq *q = get(m, seq);

    if (q != NULL) {
        sampling_finish(&q->sampling);
        q->open = false;
    }
}

uint64_t seq_aux_bytes(const struct shape *s)
{
    return sizeof(struct aux) +
           (uint64_t)s->n_mtp * (uint64_t)s->hidden * sizeof(float);
}

size_t model_aux_bytes(const struct model *m)
{
    return sizeof(struct aux) +
           (size_t)m->mtp.n * (size_t)m->s->hidden * sizeof(float);
}

/* A level's carried output at a slot. */
static struct kern_ptr carried(const struct model *m, int seq, int level,
                               int slot)
{
    size_t row = (size_t)seq * KERN_CARRY + (size_t)(slot % KERN_CARRY);

    return kern_ptr_add(forward_level(&m->f, level),
                        row * (size_t)m->s->hidden * sizeof(float));
}

int model_seq_aux(struct model *m, int seq, int pos, void *ret_aux)
{
    struct seq *q = get(m, seq);
    size_t n = (size_t)m->s->hidden * sizeof(float);
    struct aux head = {AUX_MAGIC, (uint32_t)m->mtp.n, 0, -1};
    char *to = (char *)ret_aux + sizeof(head);
    int r = 0;

    if (q == NULL || m->step.running || pos < 0 || pos > q->len ||
        q->len - pos > MODEL_MAX_BACK) {
        return model_fail(m, -EINVAL, "aux of sequence %d at %d", seq, pos);
    }
    head.len = pos;
    head.r0 = seq_max_drafts(m, q) > 0 && q->mtp.r0 <= pos ? q->mtp.r0 : -1;
    memset(ret_aux, 0, model_aux_bytes(m));
    for (int k = 0; r == 0 && head.r0 >= 0 && k < m->mtp.n; k++) {
        /* a level whose first slot is still ahead has nothing to carry */
        if (pos - 1 >= head.r0 + k) {
            r = kern_download(m->k, to + (size_t)k * n,
                              carried(m, seq, k, pos - 1), n);
        }
    }
    if (r < 0) {
        return model_fail_kern(m, r);
    }
    memcpy(ret_aux, &head, sizeof(head));
    return 0;
}

/* Back by a few tokens of the run that goes on. */
static void rewind_run(struct mtp_seq *q, int len)
{
    for (int k = 1; k <= KERN_MAX_DRAFTS; k++) {
        int low = q->r0 + k;

        if (q->end[k - 1] > len) {
            q->end[k - 1] = low > len ? low : len;
        }
    }
    q->n_known = 0;
    q->n_drafts = 0;
}

int model_seq_at(struct model *m, int seq, int pos, const void *aux)
{
    struct seq *q = get(m, seq);
    size_t n = (size_t)m->s->hidden * sizeof(float);
    struct aux head;
    int r = 0, back;

    if (q == NULL || m->step.running || pos < 0 ||
        pos > m->info.max_model_len) {
        return model_fail(m, -EINVAL, "sequence %d at %d", seq, pos);
    }
    if (aux == NULL) {
        back = q->len - pos;
        if (q->mtp.r0 >= 0 && q->mtp.r0 < pos && back >= 0 &&
            back <= MODEL_MAX_BACK && q->len > 0) {
            rewind_run(&q->mtp, pos);
        } else if (pos == 0) {
            mtp_seq_at(&q->mtp, 0, 0);
        } else {
            mtp_seq_reset(&q->mtp);
        }
        q->len = pos;
        return 0;
    }
    memcpy(&head, aux, sizeof(head));
    if (head.magic != AUX_MAGIC || head.levels != (uint32_t)m->mtp.n ||
        head.len != pos || head.r0 < -1 || head.r0 > pos) {
        return model_fail(m, -EINVAL, "the aux record is not of position %d",
                          pos);
    }
    for (int k = 0; r == 0 && pos > 0 && head.r0 >= 0 && k < m->mtp.n; k++) {
        r = kern_upload(m->k, carried(m, seq, k, pos - 1),
                        (const char *)aux + sizeof(head) + (size_t)k * n, n);
    }
    if (r < 0) {
        return model_fail_kern(m, r);
    }
    if (head.r0 < 0) {
        mtp_seq_reset(&q->mtp);
    } else {
        mtp_seq_at(&q->mtp, head.r0, pos);
    }
    q->len = pos;
    return 0;
}

int model_seq_len(const struct model *m, int seq)
{
    const struct seq *q = get(m, seq);

    return q != NULL ? q->len : -EINVAL;
}

int model_seq_r0(const struct model *m, int seq)
{
    const struct seq *q = get(m, seq);

    return q != NULL && seq_max_drafts(m, q) > 0 ? q->mtp.r0 : -1;
}

int model_drafts(const struct model *m, int seq, int32_t ret[MODEL_MAX_DRAFTS])
{
    const struct seq *q = get(m, seq);

    if (q == NULL) {
        return 0;
    }
    for (int i = 0; i < q->mtp.n_drafts; i++) {
        ret[i] = q->mtp.known[i + 1];
    }
    return q->mtp.n_drafts;
}

void model_cancel(struct model *m, int seq)
{
    struct seq *q = get(m, seq);

    if (q != NULL && m->step.running) {
        q->cancelled = true;
    }
}
