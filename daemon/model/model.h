/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_MODEL_H
#define STEPD_DAEMON_MODEL_MODEL_H

/*
 * The model as the scheduler sees it: token rows in, accepted tokens out.
 *
 * One thread (the engine thread) calls everything here. A step is one plan of
 * spans; a span is one sequence's rows (a row is one token). model_submit
 * starts it, model_collect waits and returns what was drawn, so that host work
 * can overlap a device. Everything about speculation except that drafts exist
 * is hidden here: how they arise, verification, rollback and repair.
 *
 * The promise of design.md 4.1 is kept below this line: what a span yields
 * depends on its sequence's tokens, parameters and seed alone.
 *
 * KV pages hold 64 tokens, aligned to absolute positions, in two groups. Who
 * may have which page is the scheduler's business (sched/kvpool.c); where the
 * bytes of a page lie is the model's (model/kv.c).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_DRAFTS 3
#define MODEL_MAX_TOP 20
#define MODEL_PAGE_TOK 64
#define MODEL_DEFAULT_SEQS 64
#define MODEL_DEFAULT_ROWS 2048
/* Vectors of so many checkpoints are planned for (prefix reuse). */
#define MODEL_CHECKPOINTS 1024

enum model_group {
    MODEL_FULL,    /* full-attention layers: every page of a sequence */
    MODEL_SLIDING, /* sliding layers and the MTP layers: the window only */
    MODEL_N_GROUPS
};

struct model; /* a loaded checkpoint with its caches */
struct model_info;

/* Weights in memory: design.md 4.4. auto: compact or map (mode.h). */
enum model_weights {
    MODEL_MAP,
    MODEL_LOCK,
    MODEL_COPY,
    MODEL_COMPACT,
    MODEL_AUTO
};

struct model_conf {
    const char *path;    /* checkpoint folder */
    const char *backend; /* "auto", "cpu", "cuda"; tests: "ref" */
    const char *isa;     /* cpu: forced instruction set, NULL = best */
    int n_threads;       /* 0 = all cores allowed to us */
    enum model_weights weights;
    const char *state_dir; /* keeps compact weights; NULL, "": nowhere */
    int max_model_len;     /* tokens a sequence; 0 = what config.json says */
    int max_seqs;          /* sequences open at once */
    int max_rows;          /* rows a step (max_batched_tokens) */
    int drafts;            /* greatest speculative depth, -1 = what there is */
    bool drafts_required;  /* absent MTP layers are an error */
    uint64_t kv_bytes;     /* budget of both page groups; 0 = planned */
    uint64_t checkpoint_bytes; /* of it for sliding pages beyond those that
                                * running sequences need; 0 = what is left */
    double memory_utilization; /* share of what is free, 0..1; 0: as the
                                * backend does best */
    bool no_graphs;            /* cuda: each step launched kernel by kernel */
    bool inexact;              /* cuda: dense prefill by cuBLASLt */
    /* Called once, before the first byte of a weight is read. */
    void (*planned)(void *ctx, const struct model_info *info);
    /* Called between bytes loaded; negative return stops with that error. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    /* Called between layers of a step, on the calling thread: the place where
     * the engine hears cancels (model_cancel is allowed inside). */
    void (*tick)(void *ctx);
    void *ctx;
};

/* All problems of a checkpoint at once, worst first. */
struct model_report {
    int n_problems; /* that stop a load */
    char **problem; /* at most MODEL_MAX_PROBLEMS texts, then a count line */
    int n_notes;    /* what was assumed or left unused: for the log */
    char **note;
};
#define MODEL_MAX_PROBLEMS 50
void model_report_finish(struct model_report *r); /* frees the texts */

/* Where the bytes go, before the first one is read. */
struct model_memory {
    uint64_t weights_bf16, weights_experts, weights_other, weights_mtp;
    uint64_t kv_page_bytes[MODEL_N_GROUPS];
    int kv_pages[MODEL_N_GROUPS]; /* what the pools will hold */
    uint64_t kv_bytes;
    uint64_t checkpoint_bytes; /* vectors of MODEL_CHECKPOINTS checkpoints */
    uint64_t activations;
    uint64_t available; /* by sysinfo and the cgroup */
    int max_model_len;  /* the largest context that fits, <= the asked one */
};

struct model_info {
    char family[32]; /* "step3p5", "step3p7" */
    char dialect[48];
    uint64_t fingerprint; /* of config and tensor identities */
    int vocab;            /* rows of the head */
    int hidden;
    int n_layers;
    int n_mtp; /* MTP layers present and loaded: 0..3 */
    /* How each of them proposes at temperature > 0: 0 the likeliest token, else
     * argmax(beta * log q + the target's noise). */
    float draft_beta[MODEL_MAX_DRAFTS];
    int window;
    int max_model_len;
    int n_eos;
    int eos[8]; /* stop ids of config.json */
    int bos;
    char device[64]; /* kern_describe */
    struct model_memory memory;
};

/* Reads headers only: fills the report and the plan. 0 = would load; -EBADMSG
 * = problems are listed; -E2BIG = likewise, and the configuration asks for more
 * memory than there is or may be locked (exit 78); -ENOENT, -EACCES ... = the
 * folder itself. */
int model_check(const struct model_conf *c, struct model_report *rep,
                struct model_info *ret_info);
/* Loads. -EBADMSG and -E2BIG as above (exit 65, 78), -ENODEV: no such device
 * (69), -ENOMEM. c is copied; what it points to must outlive the model. */
int model_open(struct model **ret, const struct model_conf *c,
               struct model_report *rep);
void model_close(struct model *m); /* NULL is fine */
const struct model_info *model_info(const struct model *m);
/* One fixed prompt, finite logits: gates READY. -EIO with text in why. */
int model_self_test(struct model *m, char *why, size_t n);
/* 0 while the shards are those that were opened; -ESTALE names file in why. */
int model_verify_files(struct model *m, char *why, size_t n);

/* ---- sequences: the model's own state of one token timeline ---- */

/* Added to the logit of id, after the penalties. */
struct model_bias {
    int32_t id;
    float bias; /* finite */
};

struct model_sampling {
    float temperature; /* 0 = greedy */
    float top_p, min_p;
    int top_k;
    float repetition, presence, frequency;
    uint64_t seed;
    const struct model_bias *bias; /* ids all different; copied */
    int n_bias;
    bool of_drawn;  /* logprobs of drawn tokens are those of the distribution
                     * that they were drawn from */
    int n_top;      /* alternatives in logprobs, -1 = no logprobs at all */
    int max_drafts; /* 0..MODEL_MAX_DRAFTS, -1 = the engine's choice */
};

/* Opens a sequence; its handle is a small index, 0 .. max_seqs-1. history: the
 * tokens known so far (the prompt), of which the penalties need to know;
 * n_drawn of the last ones were drawn by the model itself (resumed requests).
 * -EMFILE: max_seqs are open. */
int model_seq_open(struct model *m, const struct model_sampling *s,
                   const int32_t *history, int n_history, int n_drawn,
                   int *ret_seq);
void model_seq_close(struct model *m, int seq);
/* Starts at L = pos committed tokens whose pages are in place: aux is what
 * model_seq_aux gave at that point, NULL = unknown (drafting restarts there).
 * -EINVAL: aux is of another point or model. On a sequence that has run, going
 * back by at most MODEL_MAX_BACK tokens with aux NULL keeps the run: how a
 * sequence ends at a stop token inside an accepted block. Pending drafts are
 * dropped; the penalties' history is not touched. */
#define MODEL_MAX_BACK 4
int model_seq_at(struct model *m, int seq, int pos, const void *aux);
size_t model_aux_bytes(const struct model *m);
/* What model_seq_at needs to take the sequence up at pos, which is L or at most
 * MODEL_MAX_BACK before it. -EINVAL: it is not, or a step runs. */
int model_seq_aux(struct model *m, int seq, int pos, void *ret_aux);
/* Committed tokens, L: the position of the next span's first row. */
int model_seq_len(const struct model *m, int seq);
/* r0 of design.md 4.3: the first trunk row of the unbroken MTP run, -1 while
 * there is none (drafting off). */
int model_seq_r0(const struct model *m, int seq);
/* Drafts pending for the next step, in order; returns their number. */
int model_drafts(const struct model *m, int seq, int32_t ret[MODEL_MAX_DRAFTS]);

/* ---- steps ---- */

enum model_want {
    MODEL_WANT_NONE,  /* prefill that goes on */
    MODEL_WANT_DRAW,  /* draw after the last sure row and after each draft */
    MODEL_WANT_SCORE, /* the logprob of each next token of the span: row i
                       * scores ids[i + 1], the last row next_id; where that is
                       * -1 it draws instead. No drafts. */
};

struct model_span {
    int seq;
    int pos;            /* absolute position of the first row */
    const int32_t *ids; /* n_rows tokens: the sure ones, then the drafts */
    int n_rows;
    int n_draft; /* of them; <= what model_drafts showed, same tokens */
    enum model_want want;
    int draft_next;  /* depth wanted for the next step, 0..3, -1 = choose */
    int32_t next_id; /* WANT_SCORE: the token after the span, -1 none */
    /* Page tables of both groups: pages[g][i] is the page of absolute page
     * first_page[g] + i; they cover every slot that the rows write or read:
     * from pos - window + 1 (full group: 0) to pos + n_rows - 1. Drafting
     * writes MODEL_MAX_DRAFTS slots more in the sliding group: fewer drafts are
     * made where its table does not reach them. */
    const int32_t *pages[MODEL_N_GROUPS];
    int n_pages[MODEL_N_GROUPS];
    int first_page[MODEL_N_GROUPS];
    /* Allowed ids, one line of ceil(vocab/32) words for each drawing row, or
     * NULL. May be written until plan.masks_ready has returned. Bit i % 32 of
     * word i / 32. */
    const uint32_t *mask;
};

struct model_plan {
    const struct model_span *span;
    int n_spans;
    /* Called once, before sampling, when masks must be complete; may be NULL.
     */
    void (*masks_ready)(void *ctx);
    void *ctx;
};

struct model_token {
    int32_t id;
    float logprob; /* log-softmax, raw but for of_drawn; NAN: not asked */
    int n_top;
    int32_t top_id[MODEL_MAX_TOP];
    float top_logprob[MODEL_MAX_TOP];
};

/* What became of one span. */
struct model_out {
    int status;     /* 0, -EIO non-finite (layer says where), -ECANCELED,
                     * -ENODATA a mask allows nothing. Unless 0 the span counts
                     * as not run: L stays, its rows' slots are void. */
    int layer;      /* first layer with a non-finite row, n_layers = the head,
                     * -1 none */
    int n_tokens;   /* drawn and final: accepted drafts + 1; 0 if not drawn */
    int n_drafted;  /* drafts verified */
    int n_accepted; /* n_tokens - 1 when n_drafted > 0 */
    int committed;  /* tokens whose trunk KV is now valid: pos + sure + acc. */
    int drawn_by[MODEL_MAX_DRAFTS + 1]; /* reserved for per-module counters */
    struct model_token token[MODEL_MAX_DRAFTS + 1];
    int n_scored; /* WANT_SCORE: rows whose next token was scored, from row 0 */
    struct model_token *scored; /* valid until the next submit */
};

/* -EINVAL: the plan is wrong (a bug): model_error says how. Nothing is drawn
 * before collect; the plan and all that it points to stay until then. One span
 * a sequence, one step at a time. Any other failure, here or in collect, is
 * the backend's and final: -EIO, -ENOMEM. */
int model_submit(struct model *m, const struct model_plan *plan);
int model_collect(struct model *m, struct model_out *ret, int n_spans);
const char *model_error(const struct model *m); /* of the last failure */
/* From tick or between steps: the sequence's rows leave the running step at the
 * next layer boundary; its span ends with -ECANCELED. */
void model_cancel(struct model *m, int seq);

/* ---- pages ---- */

int model_copy_page(struct model *m, enum model_group g, int dst, int src);
size_t model_page_bytes(const struct model *m, enum model_group g);
int model_export_page(struct model *m, enum model_group g, int page, void *to);
int model_import_page(struct model *m, enum model_group g, int page,
                      const void *from);
/* Debug builds: fills a freed page with NaN so that a stale read shows. */
int model_scrub_page(struct model *m, enum model_group g, int page);

/* ---- counters ---- */

struct model_stats {
    uint64_t steps, rows, layers; /* layers: layer passes begun, all steps */
    uint64_t row_layers;          /* rows times layers computed */
    uint64_t weight_bytes, kv_bytes, expert_loads;
    uint64_t drafts, drafted, accepted;     /* verification events, tokens */
    uint64_t accepted_at[MODEL_MAX_DRAFTS]; /* per position */
    uint64_t proposed_by[MODEL_MAX_DRAFTS]; /* per module's head */
    int depth;           /* chosen for the last step that left it to us */
    bool drafter_is_off; /* too little was accepted: no drafts of our choice */
    double forward_s, sample_s, mtp_s; /* wall time by part */
};
void model_stats(const struct model *m, struct model_stats *ret);

/* Tests: keeps hidden states and logits of every row of the next step. level 0
 * is the trunk, 1..3 the MTP modules. Returns the number of rows kept. */
int model_trace(struct model *m, bool on);
int model_traced(struct model *m, int level, float *ret_hidden,
                 float *ret_logits, int max_rows);

#endif
