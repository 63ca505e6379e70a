/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_STATE_H
#define STEPD_DAEMON_MODEL_STATE_H

/*
 * What stands behind struct model. Private to the files of daemon/model that
 * run steps: model.c (life), seq.c (sequences), step.c (one step), draw.c (its
 * draws), trace.c (tests).
 */

#include <stdbool.h>

#include "daemon/model/depth.h"
#include "daemon/model/draw.h"
#include "daemon/model/forward.h"
#include "daemon/model/kv.h"
#include "daemon/model/model.h"
#include "daemon/model/mtp.h"
#include "daemon/model/report.h"
#include "daemon/model/sample.h"

struct checkpoint;

struct seq {
    bool open;
    bool cancelled; /* heard during the running step */
    int len;        /* L: tokens whose trunk KV is committed */
    struct sampling sampling;
    struct mtp_seq mtp;
};

/* A span of the running step. */
struct step_span {
    int seq;
    int row0;   /* its first row among those that are left */
    int n_rows; /* n_sure + n_draft */
    int n_sure, n_draft;
    int depth;   /* drafts to make */
    bool choose; /* the depth is ours to choose */
    bool mtp;    /* the modules run over it */
    bool gone;   /* cancelled: its rows have left */
    bool in_mtp; /* it had not left when the modules began */
    int draw0;   /* its first drawn row among the sampled ones, -1 none */
    int score0, n_scored; /* likewise its scored ones */
};

struct step {
    bool running;
    const struct model_plan *plan;
    struct step_span *span; /* [max_seqs], in the order of the plan */
    int *order;    /* [max_seqs] spans with MTP by falling depth, the others */
    int n_mtp;     /* of them with MTP */
    int n_planned; /* rows of the plan */
    int n_rows;    /* rows that are left */
    double forward_s; /* what the trunk took */
    bool left;        /* spans have left since the draws were staged */
    /* What the step is told and what it tells, each in one copy. The pieces
     * from rest_in and rest_out on are staged again where spans leave. */
    struct block in, out;
    size_t rest_in, rest_out;
    int32_t *bad; /* [n_rows], in out */
    /* host copies, [max_rows] and [max_seqs] */
    int32_t *ids, *slot, *seq, *src;
    int32_t *table, *first_page, *low; /* low: [KERN_MAX_DRAFTS][n_spans] */
    struct kern_mtp_span *mtp_span;
    struct kern_sample_row *mtp_params;
    int32_t (*drafts)[KERN_MAX_DRAFTS];
    int *n_drafts;
    struct model_token *scored; /* [max_rows], by sampled row */
    struct mtp_step mtp;
    /* device */
    struct bufs bufs;
    struct kern_ptr src_n, src_dev, zero_low;
    struct rows rows;
};

struct trace {
    bool on;
    int n[FORWARD_LEVELS];
    float *hidden[FORWARD_LEVELS]; /* [n][hidden] */
    float *logits[FORWARD_LEVELS]; /* [n][vocab] */
};

struct model {
    struct model_conf conf;
    struct model_info info;
    struct kern *k;
    struct checkpoint *ck;
    const struct shape *s;
    struct weights *w;
    struct kv kv;
    struct forward f;
    struct mtp mtp;
    struct draw draw;
    struct depth depth;
    int max_seqs, max_drafts;
    struct seq *seq; /* [max_seqs] */
    struct step step;
    struct trace trace;
    struct model_stats stats;
    char err[256];
};

/* model.c: model_open on a backend of the caller's choice (tests), NULL = by
 * name. */
int model_open_on(struct model **ret, const struct model_conf *c,
                  const struct kern_ops *ops, struct model_report *rep);
/* model.c: the backend that the configuration asks for, ops where they are not
 * NULL, how weights lie there, and the plan on it; auto goes on with the CPU
 * where CUDA is not to be had or nothing fits, with a note. -ENODEV: not here,
 * and rep, empty before, says what; else as plan_memory, with *ret opened. */
int model_open_backend(struct checkpoint *ck, const struct model_conf *c,
                       const struct kern_ops *ops, struct kern **ret,
                       struct report *rep, struct model_memory *mem);
/* Sets err, returns r. */
int model_fail(struct model *m, int r, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with the backend's own text. */
int model_fail_kern(struct model *m, int r);

/* seq.c: what model_aux_bytes is for a model of this shape. */
uint64_t seq_aux_bytes(const struct shape *s);
/* seq.c: how many drafts the sequence may have, 0..n_mtp. */
int seq_max_drafts(const struct model *m, const struct seq *q);

/* span.c: -EINVAL with text where the plan breaks a rule of model.h; else
 * fills step.span (row0, counts, depth). */
int step_check(struct model *m, const struct model_plan *plan);

/* stage.c: memory (with k NULL only counts bytes), after forward's, draw's and
 * mtp's; the plan to the device; the rows that are left, again. */
int step_init(struct model *m, struct kern *k, int max_rows);
void step_finish(struct step *s);
int step_stage(struct model *m);
int step_upload_rows(struct model *m);
/* The draws and the modules' part again, without the spans that left. */
int step_stage_rest(struct model *m);
/* How wide the page tables of the step are: before step_stage. */
void step_columns(struct model *m);

/* outcome.c: fills ret for the span at that position of the order, and moves
 * its sequence on. */
int step_commit(struct model *m, int at, struct model_out *ret);

/* trace.c: keeps hidden states and logits of these rows of a level. */
int trace_keep(struct model *m, int level, const struct rows *rows);
void trace_finish(struct trace *t);

#endif
