/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What tests of daemon/model share: an opened model whose pages begin as NaN,
 * golden tensors, and requests that are driven step by step as a scheduler
 * would, in any batch and any chunks.
 */
#ifndef TESTS_DAEMON_MK_H
#define TESTS_DAEMON_MK_H

#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "tests/test.h"

/* ---- backends ---- */

struct mk_backend {
    const char *name; /* "ref", "guard" (ref behind closed doors), "cpu" */
    const char *isa;
    int n_threads;
};

/* Those that run here: ref, then cpu with each instruction set, the last one
 * with two threads. */
int mk_n_backends(void);
const struct mk_backend *mk_backend(int i);
extern const struct mk_backend mk_ref, mk_guard;
/* The fastest one. */
const struct mk_backend *mk_best(void);
/* ref and portable C: tests give them less to do. */
bool mk_is_slow(const struct mk_backend *b);

/* ---- a model ---- */

struct mk {
    struct model *m;
    const struct model_info *info;
    char name[64];
    int n_used[MODEL_N_GROUPS]; /* pages handed out */
    struct model_conf conf;
};

/* drafts as in model_conf; max_rows 0: 512. */
struct mk *mk_open(const char *path, const struct mk_backend *b, int drafts,
                   int max_rows);
/* With the weights held that way; notes: NULL, or MK_NOTES bytes, empty, for
 * what the report noted. */
enum { MK_NOTES = 8192 };
struct mk *mk_open_as(const char *path, const struct mk_backend *b, int drafts,
                      int max_rows, enum model_weights weights,
                      const char *state_dir, char *notes);
void mk_close(struct mk *k);
#define mk_ok(k, r) mk_ok_(k, r, __FILE__, __LINE__)
void mk_ok_(const struct mk *k, int r, const char *file, int line);

/* ---- requests ---- */

#define MK_MAX 1024 /* tokens of a request, drawn ones included */

struct mk_req {
    struct model_sampling p;
    int32_t ids[MK_MAX]; /* prompt, then what was drawn */
    int n_prompt, n_ids;
    int max_new;
    bool eos;  /* stop at the model's stop ids */
    int chunk; /* prompt rows a step, 0: all that fit */
    int cut;   /* feed at most so many of the pending drafts, -1: all */
    bool keep; /* pages that left the window stay as they are */
    int seq;   /* -1 until started */
    int len;   /* committed */
    bool done;
    float logprob[MK_MAX]; /* of the drawn ones, by position */
    /* verifications, drafts in them, drafts that became part of the answer */
    int n_drafts, n_drafted, n_accepted;
    int32_t page[MODEL_N_GROUPS][MK_MAX / MODEL_PAGE_TOK + 1];
    int n_pages;
};

extern const struct model_sampling mk_greedy;

/* A request for max_new tokens after the prompt; seq is opened at once. */
void mk_start(struct mk *k, struct mk_req *r, const struct model_sampling *p,
              const int32_t *prompt, int n_prompt, int max_new);
/* Closes the sequence; its pages are not reused ... */
void mk_end(struct mk *k, struct mk_req *r);
/* ... until all are given back, as NaN again. No sequence may be open. */
void mk_reuse_pages(struct mk *k);
/* One step of all that are not done; max_rows bounds the prompt rows. */
void mk_step(struct mk *k, struct mk_req **r, int n);
/* Steps until all are done. */
void mk_run(struct mk *k, struct mk_req **r, int n);
/* The span that mk_step would plan for r; ids has room for MK_MAX. */
struct model_span mk_span(struct mk *k, struct mk_req *r, int max_rows,
                          int32_t *ids);
/* What a collected span means for r. */
void mk_take(struct mk *k, struct mk_req *r, const struct model_span *s,
             const struct model_out *o);
/* Fails unless both answered with the same ids and logprobs, to the bit; what
 * and i name the case. */
void mk_assert_same(const char *what, int i, const struct mk_req *a,
                    const struct mk_req *b);

/* ---- golden data ---- */

/* The F32 tensor of a golden.safetensors, to be freed; dims of up to 2. */
float *mk_golden(const char *folder, const char *name, int *ret_rows,
                 int *ret_cols);

/* A conversation of step-tiny's golden-greedy.json. */
struct mk_case {
    int n_prompt, n_greedy;
    int32_t prompt[MK_MAX], greedy[MK_MAX];
    double gap[MK_MAX]; /* per greedy token; under 0.05 is a near tie */
};
enum { MK_N_CASES = 40 };
/* All of them, read once; and the mean acceptance length at depth 3. */
const struct mk_case *mk_cases(double *ret_mean);

#endif
