/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The memory plan. Owns the rule by which memory is shared out; allocates
 * nothing of what it plans. Pure, any thread.
 *
 * The rule. room = memory_utilization * available. Weights and the buffers of a
 * step come first, the KV pools get the rest, no more than max_seqs sequences
 * of max_model_len could use. The sliding group has a fixed need a session
 * (window, alignment, verify rows) plus the rows of one step; where even that
 * would take more than half of the pools, fewer sessions are held at once and
 * the others wait. Memory that no context needs goes to more sliding pages:
 * they are what prefix checkpoints are made of; checkpoint_memory asks for so
 * many instead, before the full pages get theirs. The vectors of the
 * checkpoints are counted too.
 *
 * On a device the room is what its backend may take (memory_utilization of it),
 * weights lie as the backend lays them out, and what its ops keep for
 * themselves counts with the buffers.
 *
 * How many escapes packed weights have is known once they are packed: until
 * then the plan allows for several times what is usual, and a device's is made
 * again.
 *
 * Mapped weights are page cache and may exceed the room: that is slow and legal
 * (a note says so), so they then leave half of the room to the pools.
 */
#include "daemon/model/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "daemon/model/available.h"
#include "daemon/model/compact.h"
#include "daemon/model/state.h"

#define DEFAULT_UTILIZATION 0.8
#define MIB (1024.0 * 1024)

/* ---- weights ------------------------------------------------------------- */

static uint64_t stored_bytes(const struct kern_weight_desc *d)
{
    uint64_t bytes = 0;

    for (int p = 0; p < kern_weight_n_planes(d->dtype); p++) {
        bytes += kern_weight_plane_bytes(d, p);
    }
    return bytes * (d->experts > 0 ? (uint64_t)d->experts : 1);
}

static void add_weight(const struct slots *s, const struct slot *slot,
                       uint64_t bytes, struct model_memory *m)
{
    const struct kern_weight_desc *d = &slot->desc;

    if (slot_is_mtp(s, slot)) {
        m->weights_mtp += bytes;
    } else if (role_is_expert(slot->role)) {
        m->weights_experts += bytes;
    } else if (d->dtype == KERN_BF16) {
        m->weights_bf16 += bytes;
    } else {
        m->weights_other += bytes;
    }
}

int plan_weights(const struct shape *shape, enum scheme experts,
                 struct model_memory *ret)
{
    struct slots s;
    int r = slots_init(&s, shape);

    ret->weights_bf16 = ret->weights_experts = 0;
    ret->weights_other = ret->weights_mtp = 0;
    for (int i = 0; r == 0 && i < s.n; i++) {
        if (role_is_expert(s.slot[i].role)) {
            s.slot[i].desc.dtype = scheme_dtype(experts);
            if (experts == SCHEME_NVFP4) { /* input_scale */
                ret->weights_experts += 4 * (uint64_t)shape->n_expert;
            }
        }
        add_weight(&s, &s.slot[i], stored_bytes(&s.slot[i].desc), ret);
    }
    slots_finish(&s);
    return r;
}

static uint64_t weights_total(const struct model_memory *m)
{
    return m->weights_bf16 + m->weights_experts + m->weights_other +
           m->weights_mtp;
}

/* ---- what a step and a session need -------------------------------------- */

int plan_sliding_pages(int window, int rows)
{
    /* The slots from the window of the first row to the last row touch the
     * most pages when the first is the last of its page. */
    int slots = window - 1 + rows;

    return slots <= 0 ? 0
                      : (slots - 1 + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK + 1;
}

int plan_activations(const struct shape *s, int max_rows, int max_seqs,
                     int max_len, uint64_t *ret)
{
    struct model *m = calloc(1, sizeof(*m)); /* nothing but sizes */
    struct forward_size size = {
        .max_rows = max_rows,
        .max_seqs = max_seqs,
        .max_len = max_len,
        .n_mtp = s->n_mtp,
    };
    int r = m != NULL ? 0 : -ENOMEM;

    if (r == 0) {
        m->s = s;
        m->max_seqs = max_seqs;
        r = forward_init(&m->f, NULL, s, NULL, NULL, &size);
    }
    if (r == 0) {
        r = draw_init(&m->draw, NULL, &m->f, max_rows, max_seqs);
    }
    if (r == 0) {
        r = mtp_init(&m->mtp, NULL, &m->f, s->n_mtp, max_seqs);
    }
    if (r == 0) {
        r = step_init(m, NULL, max_rows);
    }
    if (r == 0) {
        *ret = m->f.bufs.bytes + m->draw.bufs.bytes + m->mtp.bufs.bytes +
               m->step.bufs.bytes;
    }
    free(m);
    return r;
}

/* ---- the pools ----------------------------------------------------------- */

/* What the configuration asks for, with its zeros resolved. */
struct wish {
    const struct kern *device; /* NULL: the host's memory */
    int max_len;               /* tokens */
    bool asked_len;
    int n_seqs, n_rows;
    double share;
    int full_pages;            /* of one sequence of max_len */
    int session_pages;         /* sliding pages of one session */
    int step_pages;            /* sliding pages for the rows of one step */
    uint64_t checkpoint_bytes; /* for sliding pages of checkpoints, 0 any */
};

static struct wish wishes(const struct checkpoint *ck, const struct kern *k)
{
    const struct model_conf *c = &ck->conf;
    const struct shape *s = &ck->shape;
    struct wish w = {
        .device = k != NULL && k->memory > 0 ? k : NULL,
        .max_len = s->max_model_len,
        .n_seqs = c->max_seqs > 0 ? c->max_seqs : MODEL_DEFAULT_SEQS,
        .n_rows = c->max_rows > 0 ? c->max_rows : MODEL_DEFAULT_ROWS,
        .share = c->memory_utilization > 0 ? c->memory_utilization
                                           : DEFAULT_UTILIZATION,
    };

    if (w.device != NULL) { /* k->memory is that share already */
        w.share = 1;
    }
    w.checkpoint_bytes = c->checkpoint_bytes;
    if (c->max_model_len > 0 && c->max_model_len <= s->max_model_len) {
        w.max_len = c->max_model_len;
        w.asked_len = true;
    }
    w.full_pages = (w.max_len + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK;
    if (s->window > 0) {
        /* r rows take at most ceil(r / 64) pages more than one row does; the
         * sum over the sessions of a step is step_pages, and one page a
         * session for the rounding up. */
        w.session_pages = plan_sliding_pages(s->window, s->n_mtp + 1) + 1;
        w.step_pages = (w.n_rows + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK;
    }
    return w;
}

static uint64_t at_most(uint64_t x, uint64_t max)
{
    return x < max ? x : max;
}

/* Shares budget bytes among the two pools. */
static void share_pools(const struct wish *w, uint64_t budget,
                        struct model_memory *m)
{
    uint64_t full_bytes = m->kv_page_bytes[MODEL_FULL];
    uint64_t slide_bytes = m->kv_page_bytes[MODEL_SLIDING];
    uint64_t n_seqs = (uint64_t)w->n_seqs;
    uint64_t full_all = n_seqs * (uint64_t)w->full_pages;
    uint64_t slide_all =
        n_seqs * (uint64_t)w->session_pages + (uint64_t)w->step_pages;
    uint64_t slide_one = (uint64_t)w->session_pages + (uint64_t)w->step_pages;
    uint64_t full, slide = 0, left;

    if (slide_bytes > 0) {
        slide_all += w->checkpoint_bytes / slide_bytes;
        slide = at_most(slide_all, budget / 2 / slide_bytes);
        if (slide < slide_one) {
            slide = at_most(slide_one, budget / slide_bytes);
        }
    }
    left = budget - slide * slide_bytes;
    full = full_bytes > 0 ? at_most(full_all, left / full_bytes) : full_all;
    left -= full * full_bytes;
    if (slide_bytes > 0 && slide >= slide_all && w->checkpoint_bytes == 0) {
        slide += at_most(left / slide_bytes, full);
    }
    m->kv_pages[MODEL_FULL] = (int)at_most(full, INT32_MAX);
    m->kv_pages[MODEL_SLIDING] = (int)at_most(slide, INT32_MAX);
    m->kv_bytes = (uint64_t)m->kv_pages[MODEL_FULL] * full_bytes +
                  (uint64_t)m->kv_pages[MODEL_SLIDING] * slide_bytes;
}

/* Page cache, which may be dropped and read again. */
static bool is_mapped(const struct checkpoint *ck, const struct wish *w)
{
    return w->device == NULL &&
           (ck->conf.weights == MODEL_MAP || ck->conf.weights == MODEL_COMPACT);
}

/* What is left for the pools; 0 where weights and a step fill the room. */
static uint64_t budget_of(const struct checkpoint *ck, const struct wish *w,
                          const struct model_memory *m, struct report *rep)
{
    uint64_t room = (uint64_t)(w->share * (double)m->available);
    uint64_t weights = weights_total(m), budget;

    if (weights > room && is_mapped(ck, w)) {
        report_note(rep,
                    "the mapped weights (%.0f MiB) are larger than the memory "
                    "for them (%.0f MiB): every step will read from the disk",
                    (double)weights / MIB, (double)room / MIB);
    }
    if (is_mapped(ck, w)) {
        weights = at_most(weights, room / 2);
    }
    if (room <= weights + m->activations + m->checkpoint_bytes) {
        return 0;
    }
    budget = room - weights - m->activations - m->checkpoint_bytes;
    if (ck->conf.kv_bytes > budget) {
        report_problem(rep, REPORT_MEMORY,
                       "kv_memory: expected at most %" PRIu64
                       " bytes (what fits), found %" PRIu64,
                       budget, ck->conf.kv_bytes);
    }
    return ck->conf.kv_bytes > 0 ? at_most(budget, ck->conf.kv_bytes) : budget;
}

/* What a step needs at the least, and what there is for it. */
static int report_short(const struct checkpoint *ck, const struct wish *w,
                        const struct model_memory *m, struct report *rep)
{
    int one = w->session_pages + w->step_pages;
    double session = (double)(m->kv_page_bytes[MODEL_FULL] +
                              (uint64_t)one * m->kv_page_bytes[MODEL_SLIDING]);

    if (ck->conf.kv_bytes > 0 && (double)ck->conf.kv_bytes < session) {
        report_problem(rep, REPORT_MEMORY,
                       "kv_memory: expected at least %.0f bytes (one short "
                       "session), found %" PRIu64,
                       session, ck->conf.kv_bytes);
        return -E2BIG;
    }
    report_problem(rep, REPORT_MEMORY,
                   "not enough memory: weights take %.0f MiB, the buffers of a "
                   "step %.0f MiB, one short session %.0f MiB; expected at "
                   "most %.0f MiB (%g of what is available)",
                   (double)weights_total(m) / MIB, (double)m->activations / MIB,
                   session / MIB, w->share * (double)m->available / MIB,
                   w->share);
    return -EBADMSG;
}

/* -E2BIG where another configuration would fit: that is what is at fault. */
static int judge(const struct checkpoint *ck, const struct wish *w,
                 const struct model_memory *m, struct report *rep)
{
    int one = w->session_pages + w->step_pages;

    if (ck->conf.max_model_len > ck->shape.max_model_len) {
        report_problem(rep, REPORT_CONFIG,
                       "max_model_len: expected at most %d (config.json), "
                       "found %d",
                       ck->shape.max_model_len, ck->conf.max_model_len);
        return -E2BIG;
    }
    if (m->kv_pages[MODEL_FULL] < 1 || m->kv_pages[MODEL_SLIDING] < one) {
        return report_short(ck, w, m, rep);
    }
    if (m->max_model_len < w->max_len && w->asked_len) {
        report_problem(rep, REPORT_MEMORY,
                       "max_model_len: expected at most %d tokens (what fits "
                       "in memory), found %d",
                       m->max_model_len, w->max_len);
        return -E2BIG;
    }
    if (m->max_model_len < w->max_len) {
        report_note(rep,
                    "max_model_len is %d tokens: the %d of config.json do not "
                    "fit in memory",
                    m->max_model_len, w->max_len);
    }
    return 0;
}

/* What a weight takes where it will lie. */
static uint64_t resident_bytes(const struct checkpoint *ck,
                               const struct wish *w, const struct slot *slot)
{
    if (w->device != NULL) {
        struct kern_weight_desc d = slot->desc;

        compact_desc(ck, slot, &d);
        return w->device->ops->weight_bytes(&d);
    }
    return ck->conf.weights == MODEL_COMPACT && compact_takes(ck, slot)
               ? compact_bytes(&slot->desc)
               : stored_bytes(&slot->desc);
}

struct kern_sizes plan_sizes(const struct shape *s, int max_rows, int max_seqs,
                             int max_len)
{
    struct kern_sizes z = {
        .rows = max_rows + max_seqs * MODEL_MAX_DRAFTS,
        .sampled_rows = max_seqs * (1 + MODEL_MAX_DRAFTS),
        .pages = (max_len + MODEL_MAX_DRAFTS) / MODEL_PAGE_TOK + 1,
        .hidden = s->hidden,
        .n_expert = s->n_expert,
        .top_k = s->n_expert > 0 ? s->top_k : 0,
        .vocab = s->vocab,
    };

    for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
        z.n_head =
            z.n_head > s->layer[i].n_head ? z.n_head : s->layer[i].n_head;
        z.n_kv_head = z.n_kv_head > s->layer[i].n_kv_head
                          ? z.n_kv_head
                          : s->layer[i].n_kv_head;
    }
    return z;
}

static uint64_t scratch_of(const struct shape *s, const struct wish *w)
{
    struct kern_sizes z = plan_sizes(s, w->n_rows, w->n_seqs, w->max_len);

    return w->device != NULL ? w->device->ops->scratch_bytes(&z) : 0;
}

int plan_memory(const struct checkpoint *ck, const struct kern *k,
                uint64_t available, struct report *rep,
                struct model_memory *ret)
{
    const struct slots *s = &ck->slots;
    struct wish w = wishes(ck, k);
    struct model_memory m = {
        .available = available > 0      ? available
                     : w.device != NULL ? w.device->memory
                                        : available_memory(""),
    };
    int n_before = rep->n_problems;
    int r = plan_activations(&ck->shape, w.n_rows, w.n_seqs, w.max_len,
                             &m.activations);
    uint64_t fits;

    if (r < 0) {
        return r;
    }
    for (int i = 0; i < s->n; i++) {
        if (checkpoint_wants(ck, &s->slot[i])) {
            add_weight(s, &s->slot[i], resident_bytes(ck, &w, &s->slot[i]), &m);
        }
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        m.kv_page_bytes[g] = shape_page_bytes(&ck->shape, g);
    }
    m.activations += scratch_of(&ck->shape, &w);
    m.checkpoint_bytes =
        w.device != NULL ? 0 : MODEL_CHECKPOINTS * seq_aux_bytes(&ck->shape);
    share_pools(&w, budget_of(ck, &w, &m, rep), &m);
    fits = (uint64_t)m.kv_pages[MODEL_FULL] * MODEL_PAGE_TOK;
    m.max_model_len = (int)at_most((uint64_t)w.max_len, fits);
    r = judge(ck, &w, &m, rep);
    *ret = m;
    return r == 0 && rep->n_problems > n_before ? -E2BIG : r; /* kv_memory */
}
