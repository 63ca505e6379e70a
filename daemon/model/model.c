/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The life of a model: checkpoint, backend, weights, caches and buffers in this
 * order, and back. Owns all of them; what they do is in the files named like
 * them. Engine thread.
 *
 * What matters: a half-opened model closes like a whole one, so that every
 * failure on the way takes the same exit.
 */

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/mode.h"
#include "daemon/model/plan.h"
#include "daemon/model/state.h"

int model_fail(struct model *m, int r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m->err, sizeof(m->err), fmt, ap);
    va_end(ap);
    return r;
}

int model_fail_kern(struct model *m, int r)
{
    return model_fail(m, r, "%s", kern_error(m->k));
}

const char *model_error(const struct model *m)
{
    return m->err;
}

/* ---- opening ---- */

static bool is_auto(const struct model_conf *c, const struct kern_ops *ops)
{
    return ops == NULL && strcmp(c->backend, "auto") == 0;
}

static int open_backend(const struct model_conf *c, const struct kern_ops *ops,
                        struct kern **ret, struct report *rep)
{
    char why[256] = "";
    struct kern_open_args a = {.n_threads = c->n_threads,
                               .isa = c->isa,
                               .exact = !c->inexact,
                               .memory_utilization = c->memory_utilization,
                               .no_graphs = c->no_graphs,
                               .why = why,
                               .why_n = sizeof(why)};
    int r = ops != NULL ? kern_open(ops, &a, ret)
                        : kern_open_named(c->backend, &a, ret);

    if (r < 0 && why[0] != '\0') { /* also one that failed as it was opened */
        report_problem(rep, REPORT_DEVICE, "backend: cannot use %s", why);
        r = -ENODEV;
    } else if (r == -ENODEV) {
        report_problem(rep, REPORT_DEVICE,
                       "isa: this machine or this build has no %s",
                       c->isa != NULL ? c->isa : c->backend);
    } else if (r == 0 && (*ret)->note[0] != '\0') {
        report_note(rep, "%s", (*ret)->note);
    } else if (r == 0 && why[0] != '\0' && is_auto(c, ops)) {
        report_note(rep, "backend = auto: the CPU computes: %s", why);
    }
    return r;
}

/* The model does not fit the device that auto took: the CPU, and a note in
 * place of what was tried. */
static int open_cpu(struct checkpoint *ck, const struct model_conf *c,
                    struct kern **k, struct report *tried,
                    struct model_memory *mem)
{
    struct model_conf cpu = *c;
    struct report rep;
    int r;

    report_init(&rep);
    report_note(&rep, "backend = auto: the CPU computes: %s: %s", (*k)->desc,
                tried->n_kept > 0 ? tried->kept[0].text : "no memory");
    kern_close(*k);
    *k = NULL;
    report_finish(tried, NULL);
    cpu.backend = "cpu";
    ck->conf.weights = c->weights; /* chosen again, for the CPU */
    r = open_backend(&cpu, NULL, k, &rep);
    r = r < 0 ? r : mode_choose(ck, *k, MODE_LEAST_BYTES, &rep);
    r = r < 0 ? r : plan_memory(ck, *k, 0, &rep, mem);
    *tried = rep;
    return r;
}

int model_open_backend(struct checkpoint *ck, const struct model_conf *c,
                       const struct kern_ops *ops, struct kern **ret,
                       struct report *rep, struct model_memory *mem)
{
    int r;

    *ret = NULL;
    r = open_backend(c, ops, ret, rep);
    if (r < 0) {
        return r;
    }
    r = mode_choose(ck, *ret, MODE_LEAST_BYTES, rep);
    r = r < 0 ? r : plan_memory(ck, *ret, 0, rep, mem);
    if (r == -EBADMSG && (*ret)->memory > 0 && is_auto(c, ops)) {
        r = open_cpu(ck, c, ret, rep, mem);
    }
    return r;
}

/* Caches and buffers, as the memory plan says. */
static int make_buffers(struct model *m)
{
    struct forward_size size = {
        .max_rows = m->conf.max_rows,
        .max_seqs = m->max_seqs,
        .max_len = m->info.max_model_len,
        .n_mtp = m->w->n_mtp,
    };
    struct kern_sizes sizes =
        plan_sizes(m->s, size.max_rows, size.max_seqs, size.max_len);
    int r = kv_init(&m->kv, m->k, m->s, size.n_mtp, m->info.memory.kv_pages);

    r = r < 0 ? r : kern_reserve(m->k, &sizes);
    r = r < 0 ? r : forward_init(&m->f, m->k, m->s, m->w, &m->kv, &size);
    r = r < 0 ? r
              : draw_init(&m->draw, m->k, &m->f, size.max_rows, m->max_seqs);
    r = r < 0 ? r : mtp_init(&m->mtp, m->k, &m->f, size.n_mtp, m->max_seqs);
    memcpy(m->info.draft_beta, m->mtp.beta, sizeof(m->info.draft_beta));
    return r < 0 ? r : step_init(m, m->k, size.max_rows);
}

/* Packed weights are as large as they came out: on a device, whose budget is
 * hard, the pools get what they left. */
static int plan_again(struct model *m, struct model_report *rep)
{
    struct report mine;
    int r;

    if (m->ck->compact == NULL || m->k->memory == 0) {
        return 0;
    }
    report_init(&mine);
    r = plan_memory(m->ck, m->k, 0, &mine, &m->info.memory);
    report_finish(&mine, r < 0 ? rep : NULL);
    m->info.max_model_len = m->info.memory.max_model_len;
    return r;
}

static int open_parts(struct model *m, const struct kern_ops *ops,
                      struct model_report *rep)
{
    struct report mine;
    int r = checkpoint_open(&m->conf, rep, &m->ck);

    if (r < 0) {
        return r;
    }
    m->s = checkpoint_shape(m->ck);
    checkpoint_info(m->ck, &m->info);
    report_init(&mine);
    r = model_open_backend(m->ck, &m->conf, ops, &m->k, &mine, &m->info.memory);
    report_finish(&mine, rep);
    if (r < 0) {
        return r;
    }
    m->info.max_model_len = m->info.memory.max_model_len;
    kern_describe(m->k, m->info.device, sizeof(m->info.device));
    if (m->conf.planned != NULL) {
        m->conf.planned(m->conf.ctx, &m->info);
    }
    r = weights_load(m->ck, m->k, rep, &m->w);
    r = r < 0 ? r : plan_again(m, rep);
    if (r < 0) {
        return r;
    }
    m->info.n_mtp = m->w->n_mtp;
    m->max_drafts = m->conf.drafts < 0 || m->conf.drafts > m->w->n_mtp
                        ? m->w->n_mtp
                        : m->conf.drafts;
    depth_init(&m->depth, m->max_drafts);
    m->stats.depth = m->max_drafts;
    m->seq = calloc((size_t)m->max_seqs, sizeof(*m->seq));
    return m->seq == NULL ? -ENOMEM : make_buffers(m);
}

int model_open_on(struct model **ret, const struct model_conf *c,
                  const struct kern_ops *ops, struct model_report *rep)
{
    struct model *m = calloc(1, sizeof(*m));
    int r;

    if (m == NULL) {
        return -ENOMEM;
    }
    m->conf = *c;
    m->conf.max_seqs = c->max_seqs > 0 ? c->max_seqs : MODEL_DEFAULT_SEQS;
    m->conf.max_rows = c->max_rows > 0 ? c->max_rows : MODEL_DEFAULT_ROWS;
    m->max_seqs = m->conf.max_seqs;
    r = open_parts(m, ops, rep);
    if (r < 0) {
        model_close(m);
        return r;
    }
    *ret = m;
    return 0;
}

int model_open(struct model **ret, const struct model_conf *c,
               struct model_report *rep)
{
    return model_open_on(ret, c, NULL, rep);
}

void model_close(struct model *m)
{
    if (m == NULL) {
        return;
    }
    for (int i = 0; m->seq != NULL && i < m->max_seqs; i++) {
        model_seq_close(m, i);
    }
    free(m->seq);
    trace_finish(&m->trace);
    if (m->k != NULL) {
        step_finish(&m->step);
        mtp_finish(&m->mtp);
        draw_finish(&m->draw);
        forward_finish(&m->f);
        kv_finish(&m->kv);
    }
    weights_destroy(m->w);
    kern_close(m->k);
    checkpoint_close(m->ck);
    free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

int model_verify_files(struct model *m, char *why, size_t n)
{
    return checkpoint_verify(m->ck, why, n);
}

/* ---- the self-test ---- */

enum { TEST_ROWS = 16 };

/* One step of the test's only sequence on page 0 of both groups. */
static int test_step(struct model *m, int seq, const int32_t *ids, int n,
                     int n_draft, struct model_out *ret)
{
    static const int32_t page = 0;
    struct model_span span = {
        .seq = seq,
        .pos = model_seq_len(m, seq),
        .ids = ids,
        .n_rows = n,
        .n_draft = n_draft,
        .want = MODEL_WANT_DRAW,
        .draft_next = -1,
        .next_id = -1,
        .pages = {&page, &page},
        .n_pages = {1, 1},
    };
    struct model_plan plan = {.span = &span, .n_spans = 1};
    int r = model_submit(m, &plan);

    return r < 0 ? r : model_collect(m, ret, 1);
}

static int test_sequence(struct model *m, int seq)
{
    int32_t ids[TEST_ROWS], next[1 + MODEL_MAX_DRAFTS];
    int n = TEST_ROWS, n_draft, r;
    struct model_out out;

    if (n > m->conf.max_rows) {
        n = m->conf.max_rows;
    }
    for (int i = 0; i < n; i++) {
        ids[i] =
            i == 0 && m->info.bos >= 0 ? m->info.bos : i * 31 % m->info.vocab;
    }
    r = test_step(m, seq, ids, n, 0, &out);
    if (r < 0 || out.status < 0) {
        return r < 0 ? r : out.status;
    }
    /* and once more with what was drawn and drafted */
    next[0] = out.token[0].id;
    n_draft = model_drafts(m, seq, next + 1);
    if (n_draft > m->conf.max_rows - 1) {
        n_draft = m->conf.max_rows - 1;
    }
    r = test_step(m, seq, next, 1 + n_draft, n_draft, &out);
    return r < 0 ? r : out.status;
}

int model_self_test(struct model *m, char *why, size_t n)
{
    static const struct model_sampling greedy = {
        .top_p = 1, .repetition = 1, .n_top = 0, .max_drafts = -1};
    struct model_stats stats = m->stats;
    struct depth depth = m->depth;
    int seq, r;

    if (m->info.max_model_len < 2 * TEST_ROWS) {
        return 0; /* no room for a prompt worth trying */
    }
    r = model_seq_open(m, &greedy, NULL, 0, 0, &seq);
    if (r < 0) {
        snprintf(why, n, "%s", m->err);
        return r;
    }
    r = test_sequence(m, seq);
    model_seq_close(m, seq);
    m->stats = stats;
    m->depth = depth;
    kern_stats_reset(m->k);
    if (r == -EIO) {
        snprintf(why, n, "the fixed prompt gave logits that are not finite");
    } else if (r < 0) {
        snprintf(why, n, "%s", m->err);
    }
    return r;
}

/* ---- pages, counters ---- */

int model_copy_page(struct model *m, enum model_group g, int dst, int src)
{
    return kv_copy_page(&m->kv, g, dst, src);
}

size_t model_page_bytes(const struct model *m, enum model_group g)
{
    return m->kv.page_bytes[g];
}

int model_export_page(struct model *m, enum model_group g, int page, void *to)
{
    return kv_export_page(&m->kv, g, page, to);
}

int model_import_page(struct model *m, enum model_group g, int page,
                      const void *from)
{
    return kv_import_page(&m->kv, g, page, from);
}

int model_scrub_page(struct model *m, enum model_group g, int page)
{
    return kv_scrub_page(&m->kv, g, page);
}

void model_stats(const struct model *m, struct model_stats *ret)
{
    *ret = m->stats;
    ret->weight_bytes = m->k->stats.weight_bytes;
    ret->kv_bytes = m->k->stats.kv_bytes;
    ret->expert_loads = m->k->stats.expert_loads;
}
