/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_KERNELS_H
#define STEPD_KERNELS_KERNELS_H

/*
 * THE INTERFACE between the model and the arithmetic.
 *
 * One const table of mandatory ops a backend (ref, cpu, cuda), looked up by
 * name; arguments are plain structs; shapes are checked once, in kernels.c,
 * before the backend sees them. Legal C17 and C++17: no restrict, no
 * designated initialisers, no static array bounds here.
 *
 * Memory. Everything a step touches lives in struct kern_buf, device memory
 * that the host reads and writes only by upload and download. Token ids,
 * positions, row->sequence maps, page tables, accept counts and the number of
 * live rows are read FROM DEVICE BUFFERS inside the ops; the integers in the
 * argument structs are upper bounds for launches. So the host may queue a whole
 * step, sample -> accept -> MTP -> draft included, without knowing a result.
 *
 * Order. All work between begin and end is ordered as called. Only end and
 * download wait. A backend fault surfaces there as -EIO with text in
 * kern_error().
 *
 * Exactness (design.md 4.1). A result row depends on its own inputs alone: not
 * on the other rows of the call, not on how many there are, not on threads.
 * K runs across vector lanes in ascending chunks into one accumulator an output
 * element, folded by one fixed tree; routed experts are added in ascending
 * expert id; attention folds absolute, page-aligned pages in ascending order
 * and skips pages that the mask hides.
 *
 * Shapes in comments: rows R, hidden D, heads H, KV heads G, head_dim 128,
 * experts E, top-k T, expert width F, vocabulary V. All tensors row-major.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KERN_PAGE_TOK 64 /* tokens a KV page */
#define KERN_HEAD_DIM 128
#define KERN_MAX_PARTS 4 /* weights that share one input in linear */
#define KERN_MAX_TOP 20  /* alternatives a row in logprobs */
#define KERN_MAX_DRAFTS 3
#define KERN_CARRY 8     /* newest outputs a sequence keeps of a level (MTP) */
#define KERN_MAX_TOPK 16 /* experts a row */

struct kern;        /* an opened backend */
struct kern_buf;    /* device memory */
struct kern_weight; /* a matrix, or one an expert; layout is the backend's */

/* An address on the device. buf NULL means absent where a field allows it. */
struct kern_ptr {
    struct kern_buf *buf;
    size_t off; /* bytes */
};

/* The rows of an op: at most max, of which the first *n are live. */
struct kern_rows {
    int max;           /* launch bound, >= 1 */
    struct kern_ptr n; /* int32[1] */
};

enum kern_dtype {
    KERN_BF16,     /* plane 0: [rows][cols] */
    KERN_F32,      /* plane 0: [rows][cols] */
    KERN_MXFP4,    /* planes 0 nibbles, 1 E8M0 scales a 32-block (quant.h) */
    KERN_FP8_B128, /* planes 0 e4m3, 1 F32 scales a 128x128 block */
    KERN_NVFP4, /* planes 0 nibbles, 1 e4m3 scales a 16-block, 2 F32 factor */
    KERN_NVFP4_DIV, /* the same, plane 2 divides */
    KERN_COMPACT,   /* BF16 in 12 bits: planes 0 blocks, 1 rows, 2 escapes
                     * (compact.h) */
    KERN_N_DTYPES
};

struct kern_weight_desc {
    enum kern_dtype dtype;
    int rows;    /* output features of one matrix */
    int cols;    /* input features */
    int experts; /* 0: one matrix; else so many of this shape */
    int shard;   /* how several devices share it: see KERN_SHARD_* */
    int escapes; /* KERN_COMPACT: words of plane 2, its end included; else 0 */
};
/* Where several devices share a matrix, what they made of it comes together in
 * the op that needs the whole: parts of sums (COLS, EXPERTS) in norm's delta,
 * logits (ROWS) in sample. Other products of ROWS stay where their consumers
 * are. */
enum { KERN_SHARD_NONE, KERN_SHARD_ROWS, KERN_SHARD_COLS, KERN_SHARD_EXPERTS };

struct kern_open_args {
    const int *devices; /* device numbers; NULL, 0 = the backend's choice */
    int n_devices;
    int n_threads;   /* cpu: worker threads, 0 = one a core allowed to us */
    const char *isa; /* cpu: avx512bf16|avx512|avx2|neonbf16|portable, NULL =
                      * best */
    bool exact;      /* results as design.md 4.1 (cpu and ref: always); cuda
                      * without: GPU_LT_ROWS rows and more by cuBLASLt */
    bool no_graphs;  /* cuda: every step launched kernel by kernel */
    double memory_utilization; /* cuda: share of the device's memory, 0: 0.97 */
    char *why;    /* NULL, or room for what stopped a failed open */
    size_t why_n; /* bytes of it */
};

/* What the ops did since the last kern_stats_reset. */
struct kern_stats {
    uint64_t weight_bytes;   /* of matrices that linear, router and the expert
                              * ops streamed, all planes, counted where read */
    uint64_t expert_loads;   /* (expert, tile of rows) passes in expert ops */
    uint64_t kv_bytes;       /* bytes of KV read by attention */
    uint64_t ops;            /* op calls */
    uint64_t launches;       /* cuda: kernels and copies launched one by one */
    uint64_t graph_launches; /* cuda: those that came with a graph */
    uint64_t waits;          /* cuda: times that the host waited */
};

/* out[r] = table[ids[r]], BF16 widened to F32; an id out of range gives 0. */
struct kern_embed_args {
    struct kern_rows rows;
    const struct kern_weight *table; /* [V][D] BF16 or COMPACT */
    struct kern_ptr ids;             /* int32[R] */
    struct kern_ptr out;             /* f32 [R][D] */
};

/* out[dst[i]] = x[src[i]]; dst absent means i; src[i] < 0 skips. f32 rows. out
 * may be x where no row is both read and written. */
struct kern_gather_args {
    struct kern_rows rows;
    int width;           /* elements a row */
    struct kern_ptr x;   /* f32 [..][width] */
    struct kern_ptr src; /* int32[R] */
    struct kern_ptr dst; /* int32[R] or absent */
    struct kern_ptr out; /* f32 [..][width] */
};

/* x += delta (if given); y = x / rms(x) * (1 + w). The sum is stored back. Only
 * the sum is made where neither out nor out_f32 is given (w may be NULL). */
struct kern_norm_args {
    struct kern_rows rows;
    int width;
    float eps;
    struct kern_ptr x;           /* f32 [R][width], updated when delta given */
    struct kern_ptr delta;       /* f32 [R][width] or absent */
    const struct kern_weight *w; /* [1][width] BF16 or F32, zero-centred */
    struct kern_ptr out;         /* bf16 [R][out_stride] or absent */
    int out_stride;              /* elements; >= width */
    struct kern_ptr out_f32;     /* f32 [R][width] or absent (router input) */
    struct kern_ptr bad; /* int32[R] or absent: of the sum, as finite does */
    int mark;
};

/* part[i].out = x * part[i].w^T (add: += ). All parts read the same x. */
struct kern_linear_args {
    struct kern_rows rows;
    int cols;
    struct kern_ptr x; /* bf16 [R][x_stride] */
    int x_stride;
    int n_parts;
    struct {
        const struct kern_weight *w; /* [n][cols] */
        struct kern_ptr out;         /* f32 [R][out_stride] */
        int out_stride;
    } part[KERN_MAX_PARTS];
    bool add;
};

/* One layer's part of the paged cache: for page id p, at p * page_bytes:
 * K [G][64][128] then V [G][64][128] in dtype. */
struct kern_kv {
    struct kern_ptr pages;
    enum kern_dtype dtype; /* KERN_BF16 */
    int n_pages;
    int n_kv_head;          /* G */
    size_t bytes_per_token; /* all heads, K and V */
    size_t page_bytes;
};

/* Where the rows of a step live in the cache. */
struct kern_slots {
    struct kern_ptr slot;       /* int32[R] absolute slot of each row */
    struct kern_ptr seq;        /* int32[R] line of the table */
    struct kern_ptr table;      /* int32[n_seq][max_pages] page ids, -1 none */
    struct kern_ptr first_page; /* int32[n_seq] absolute page of column 0 */
    struct kern_ptr low;        /* int32[n_seq] lowest slot ever attended */
    int n_seq;
    int max_pages;
};

/* Per head: RMSNorm(1 + w) of q and k, then RoPE on the first 2*n_freq
 * channels (pairs j, j + n_freq) at position slot + pos_shift; q to BF16, k and
 * v to BF16 in the cache at each row's slot. */
struct kern_qkv_args {
    struct kern_rows rows;
    struct kern_slots at;
    struct kern_kv kv;
    int n_head; /* H */
    float eps;
    int pos_shift; /* 0 in the trunk, -k in MTP module k */
    int n_freq;
    struct kern_ptr freq;             /* f32[n_freq] inverse frequencies */
    const struct kern_weight *q_norm; /* [1][128] */
    const struct kern_weight *k_norm; /* [1][128] */
    struct kern_ptr q;                /* f32 [R][H][128] */
    struct kern_ptr k;                /* f32 [R][G][128] */
    struct kern_ptr v;                /* f32 [R][G][128] */
    struct kern_ptr q_out;            /* bf16 [R][H][128] */
};

/* Causal attention of every row over its own sequence's slots u with
 * max(low, slot - window + 1) <= u <= slot (window 0: no bound), softmax in
 * F32, times sigmoid(gate) a head. Prefill, decode and verification rows of
 * many sequences in one call. Scale 128^-1/2. Query head h reads KV head
 * h / (H / G). What a masked slot holds (NaN in debug builds) must not show: it
 * is left out, not multiplied by zero. */
struct kern_attn_args {
    struct kern_rows rows;
    struct kern_slots at;
    struct kern_kv kv;
    int n_head;
    int window;
    struct kern_ptr q;    /* bf16 [R][H][128] */
    struct kern_ptr gate; /* f32 [R][H] or absent */
    struct kern_ptr out;  /* bf16 [R][H][128] */
};

/* s = silu(gate); limit != 0: s = min(s, limit), up clamped to +-limit. */
struct kern_swiglu_args {
    struct kern_rows rows;
    int width;
    float limit;
    struct kern_ptr gate; /* f32 [R][width] */
    struct kern_ptr up;   /* f32 [R][width] */
    struct kern_ptr out;  /* bf16 [R][width] */
};

/* linear of the two weights, then swiglu of what they gave, bit for bit. */
struct kern_mlp_up_args {
    struct kern_rows rows;
    int cols;
    float limit;
    struct kern_ptr x;                /* bf16 [R][cols] */
    const struct kern_weight *gate;   /* [width][cols] */
    const struct kern_weight *up;     /* [width][cols] */
    struct kern_ptr gate_out, up_out; /* f32 [R][width], for the way: what they
                                       * hold afterwards is not said */
    struct kern_ptr out;              /* bf16 [R][width] */
};

/* The (row, expert) pairs of a step, grouped: pairs of expert e are
 * pair[off[e]] .. pair[off[e+1]-1], each row * T + j, rows ascending. */
struct kern_groups {
    struct kern_ptr off;  /* int32[E + 1] */
    struct kern_ptr pair; /* int32[R * T] */
};

/* p = sigmoid(x w^T) in F32; picks the T largest p + bias (ties: lowest id; a
 * NaN counts as the smallest, so that sel always holds T different experts);
 * weights p, divided by (their sum, in the order of sel, + 1e-20) when renorm,
 * times scale. */
struct kern_router_args {
    struct kern_rows rows;
    int n_expert; /* E */
    int top_k;    /* T */
    float scale;
    bool renorm;
    struct kern_ptr x;              /* f32 [R][D] */
    const struct kern_weight *w;    /* [E][D] */
    const struct kern_weight *bias; /* [1][E] F32, or NULL */
    struct kern_ptr sel;            /* int32 [R][T], ascending expert id */
    struct kern_ptr wt;             /* f32 [R][T], in the order of sel */
    struct kern_groups groups;      /* written */
};

/* h[pair] = bf16(swiglu(gate_e x, up_e x)), expert by expert. */
struct kern_expert_up_args {
    struct kern_rows rows;
    int top_k;
    float limit;
    struct kern_ptr x;              /* bf16 [R][D] */
    const struct kern_weight *gate; /* E x [F][D] */
    const struct kern_weight *up;   /* E x [F][D] */
    struct kern_groups groups;      /* read */
    struct kern_ptr h;              /* bf16 [R * T][F], pair-indexed */
    /* Done as well, of the same rows: the shared expert. NULL: none. */
    const struct kern_mlp_up_args *shared;
};

/* out[r] = sum over the row's experts, ascending id, of wt * (down_e h). */
struct kern_expert_down_args {
    struct kern_rows rows;
    int top_k;
    struct kern_ptr h;              /* bf16 [R * T][F] */
    const struct kern_weight *down; /* E x [D][F] */
    struct kern_groups groups;      /* read */
    struct kern_ptr wt;             /* f32 [R][T] */
    struct kern_ptr out;            /* f32 [R][D], overwritten */
    /* Added last, of the same rows, its one part into out; NULL: none. */
    const struct kern_linear_args *shared;
};

/* What a logits row asks of the sampler; device memory, filled by the host. */
struct kern_sample_row {
    float temperature; /* 0 (or under SAMPLE_MIN_TEMPERATURE): greedy */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float beta;        /* scales z before the noise: 1; proposals: as tuned,
                        * 0 = without noise (greedy) */
    int32_t top_k;     /* 0: off */
    int32_t n_top;     /* alternatives in logprobs, 0..KERN_MAX_TOP; -1: no
                        * logprobs at all (logprob is NaN) */
    uint64_t seed;
    float repetition; /* 1: off */
    float presence;   /* 0: off */
    float frequency;  /* 0: off */
    int32_t pen_off;  /* first entry of this row in pen */
    int32_t pen_n;    /* entries, ids all different */
    int32_t mask;     /* line of masks, -1: none */
    int32_t given;    /* >= 0: draws nothing, scores this id; -1: draws */
    int32_t of_drawn; /* 1: logprobs are those of the distribution that was
                       * drawn from, not the raw ones; 0 */
};

/* A token whose logit is changed: one of the history, for the penalties, or one
 * with a bias, or both. */
struct kern_penalty {
    int32_t id;
    int32_t count; /* times drawn so far; 0: in the prompt only; -1: not in the
                    * history, no penalty applies */
    float bias;    /* added after the penalties; 0: none. Finite */
};

/* id of a row that could not be drawn. */
#define KERN_DRAW_NONFINITE (-1) /* a logit is NaN or infinite */
#define KERN_DRAW_MASKED (-2)    /* the mask allows nothing */

struct kern_sample_out {
    int32_t id;    /* drawn or given; negative: KERN_DRAW_* */
    float logprob; /* log-softmax of id, see of_drawn */
    int32_t n_top;
    int32_t pad;
    int32_t top_id[KERN_MAX_TOP]; /* descending logprob, ties lowest id */
    float top_logprob[KERN_MAX_TOP];
};

/* Draws one token a row as kernels/sample.h specifies, to the bit: penalties,
 * bias, mask, temperature, top-k, top-p, min-p, then Gumbel-max with counter
 * noise.
 */
struct kern_sample_args {
    struct kern_rows rows;
    int vocab;              /* V: ids that may be drawn */
    int stride;             /* elements a logits row, >= vocab */
    struct kern_ptr logits; /* f32 [R][stride] */
    struct kern_ptr params; /* struct kern_sample_row [R] */
    struct kern_ptr pos;    /* int32[R] index of the drawn token, BOS = 0 */
    struct kern_ptr pen;    /* struct kern_penalty [] or absent */
    struct kern_ptr masks;  /* uint32 [..][ceil(V/32)] or absent, bit = may:
                             * id i is bit i % 32 of word i / 32 */
    struct kern_ptr out;    /* struct kern_sample_out [R] */
};

/* Verification. Span i drew tokens at sampled rows row0[i] ..; the draft that
 * was fed after position j is accepted exactly when it equals the token drawn
 * there. n_accept[i] = length of the accepted prefix; next[i] = the token drawn
 * after it (the correction or the bonus). row0[i] < 0: the span draws nothing,
 * n_accept = 0, next = -1. */
struct kern_accept_args {
    int n_spans;
    int n_sampled;            /* rows of sampled */
    struct kern_ptr row0;     /* int32[n] */
    struct kern_ptr n_draft;  /* int32[n] */
    struct kern_ptr draft;    /* int32[n][KERN_MAX_DRAFTS] */
    struct kern_ptr sampled;  /* struct kern_sample_out [n_sampled] */
    struct kern_ptr n_accept; /* int32[n], written */
    struct kern_ptr next;     /* int32[n], written */
};

/*
 * One span's part in the passes of the MTP modules (slots: design.md 4.3).
 * Filled by the host at submit, when it cannot know how many drafts will be
 * accepted; kern_mtp_rows completes it on the device. With L = pos + n_sure +
 * n_accept, the tokens committed after this step, module k computes slots
 *   first = max(low[k], min(end[k], L))  ..  limit - 1,
 *   limit = depth >= k ? L + k : L
 * (none where limit <= first): everything committed that it lacks and, where
 * it is to propose, k slots more. Slot s embeds t_s (the step's own ids below
 * L, next at L, draft s - L past it) and takes the level below (k = 1: the
 * trunk) at slot s - 1.
 */
struct kern_mtp_span {
    int32_t row0;   /* step row of its first trunk row; -1: it left the step */
    int32_t pos;    /* the slot of that row */
    int32_t n_sure; /* trunk rows that are no drafts, >= 1 */
    int32_t seq;    /* line of the page tables */
    int32_t depth;  /* drafts wanted, 0..KERN_MAX_DRAFTS */
    int32_t carry;  /* first of KERN_CARRY rows, in every level's buffer, that
                     * keep this sequence's newest outputs: slot s lies at
                     * carry + s % KERN_CARRY */
    int32_t low[KERN_MAX_DRAFTS]; /* r0 + k: lowest slot of module k */
    int32_t end[KERN_MAX_DRAFTS]; /* slots of module k below it are there */
};

/* Lists module k's rows. A level's buffer is f32 rows: carried ones, then from
 * some base on the rows of this step (trunk: step rows; module: as listed). */
struct kern_mtp_rows_args {
    int k; /* 1 .. KERN_MAX_DRAFTS */
    int n_spans;
    int max_rows;             /* bound of this module's rows */
    int n_step_rows;          /* bound of step_ids */
    int below_base;           /* buffer row of the level below's row 0 */
    struct kern_ptr span;     /* struct kern_mtp_span [n] */
    struct kern_ptr n_accept; /* int32[n] */
    struct kern_ptr next;     /* int32[n] */
    struct kern_ptr step_ids; /* int32[n_step_rows] ids of the trunk rows */
    struct kern_ptr drafts;   /* struct kern_sample_out [KERN_MAX_DRAFTS][n]:
                               * line j - 1 = proposals of module j */
    /* [KERN_MAX_DRAFTS + 1][n] int32: line k written, line k - 1 read (k > 1):
     * a span's first slot in module k, and the row of that slot. */
    struct kern_ptr first;
    struct kern_ptr row0;
    struct kern_ptr n;        /* int32[1], written: live rows */
    struct kern_ptr ids;      /* int32[max_rows], written */
    struct kern_ptr slot;     /* int32[max_rows], written */
    struct kern_ptr seq;      /* int32[max_rows], written */
    struct kern_ptr below;    /* int32[max_rows], written: the buffer row, in
                               * the level below, of slot - 1 */
    struct kern_ptr last;     /* int32[n], written: row of slot L + k - 1, -1
                               * where nothing is proposed */
    struct kern_ptr last_pos; /* int32[n], written: L + k, what it draws */
    /* int32[n * KERN_CARRY], written: rows of the level BELOW to keep, in its
     * buffer, -1 none. Copy them once below has been gathered. */
    struct kern_ptr keep_src;
    struct kern_ptr keep_dst;
};

/* bad[r] = mark where row r holds a NaN or infinity and bad[r] is 0. */
struct kern_finite_args {
    struct kern_rows rows;
    int width;
    int mark;            /* not 0 */
    struct kern_ptr x;   /* f32 [R][width] */
    struct kern_ptr bad; /* int32[R] */
};

/* The largest steps to come: what scratch_bytes goes by. */
struct kern_sizes {
    int rows, sampled_rows;
    int pages; /* of the longest sequence */
    int hidden, n_head, n_kv_head;
    int n_expert, top_k; /* 0: none */
    int vocab;
};

struct kern_ops {
    const char *name;
    /* Lifetime. open returns -ENODEV where it cannot run here, or what failed
     * as it was opened, and says in args->why what a device said. */
    int (*open)(struct kern **ret, const struct kern_open_args *a);
    void (*close)(struct kern *k);
    /* For the memory plan, all NULL where memory is the host's: what a weight
     * takes on the device, and what ops and loading take besides buffers.
     * reserve takes now what ops of such steps would take of it. */
    uint64_t (*weight_bytes)(const struct kern_weight_desc *d);
    uint64_t (*scratch_bytes)(const struct kern_sizes *s);
    int (*reserve)(struct kern *k, const struct kern_sizes *s);
    /* Memory and stream: these are not compute ops. upload has taken its bytes
     * when it returns; buf_new promises nothing about contents. */
    int (*buf_new)(struct kern *k, size_t bytes, struct kern_buf **ret);
    void (*buf_free)(struct kern *k, struct kern_buf *b);
    int (*upload)(struct kern *k, struct kern_ptr to, const void *from,
                  size_t n);
    int (*download)(struct kern *k, void *to, struct kern_ptr from, size_t n);
    /* NULL: download serves. */
    int (*fetch)(struct kern *k, void *to, struct kern_ptr from, size_t n);
    int (*copy)(struct kern *k, struct kern_ptr to, struct kern_ptr from,
                size_t n);
    int (*fill)(struct kern *k, struct kern_ptr to, int byte, size_t n);
    int (*begin)(struct kern *k, uint64_t shape_key);
    int (*end)(struct kern *k);
    /* Weights: by range, or by a mapping that outlives the weight and is
     * aligned to the plane's elements (2 bytes for BF16, 4 for floats). */
    int (*weight_new)(struct kern *k, const struct kern_weight_desc *d,
                      struct kern_weight **ret);
    void (*weight_free)(struct kern *k, struct kern_weight *w);
    int (*weight_fill)(struct kern *k, struct kern_weight *w, int expert,
                       int plane, size_t off, const void *from, size_t n);
    int (*weight_map)(struct kern *k, struct kern_weight *w, int expert,
                      int plane, const void *at, size_t n);
    int (*weight_ready)(struct kern *k, struct kern_weight *w);
    /* Where weights lie on a device; both NULL where memory is the host's. */
    int (*load_room)(struct kern *k, void **ret, size_t *ret_bytes);
    int (*load_end)(struct kern *k);
    /* Compute, at most 24. */
    int (*embed)(struct kern *k, const struct kern_embed_args *a);
    int (*gather)(struct kern *k, const struct kern_gather_args *a);
    int (*norm)(struct kern *k, const struct kern_norm_args *a);
    int (*linear)(struct kern *k, const struct kern_linear_args *a);
    int (*qkv)(struct kern *k, const struct kern_qkv_args *a);
    int (*attn)(struct kern *k, const struct kern_attn_args *a);
    int (*swiglu)(struct kern *k, const struct kern_swiglu_args *a);
    int (*router)(struct kern *k, const struct kern_router_args *a);
    int (*expert_up)(struct kern *k, const struct kern_expert_up_args *a);
    int (*expert_down)(struct kern *k, const struct kern_expert_down_args *a);
    int (*sample)(struct kern *k, const struct kern_sample_args *a);
    int (*accept)(struct kern *k, const struct kern_accept_args *a);
    int (*mtp_rows)(struct kern *k, const struct kern_mtp_rows_args *a);
    int (*finite)(struct kern *k, const struct kern_finite_args *a);
    /* Several in one: NULL, false where kernels.c puts them together. */
    int (*mlp_up)(struct kern *k, const struct kern_mlp_up_args *a);
    bool norm_marks;    /* norm knows bad */
    bool expert_shares; /* expert_up, expert_down know shared */
};

/* What every backend's struct kern begins with, so that kernels.c can dispatch,
 * count and report without knowing the rest. */
struct kern {
    const struct kern_ops *ops;
    struct kern_stats stats;
    char err[256];     /* text of the last failure, "" when none */
    char desc[64];     /* by open: "cpu avx512bf16, 2 threads" */
    char note[256];    /* by open: what was asked for and is not to be had */
    bool compact_pays; /* by open: KERN_COMPACT is decoded faster than memory
                        * gives the BF16 that it stands for */
    uint64_t memory; /* by open: device bytes that weights, buffers and scratch
                      * may take together; 0: memory is the host's */
};

/* Likewise for its buffers and weights; kernels.c fills these after buf_new and
 * weight_new have succeeded. */
struct kern_buf {
    size_t bytes;
};
struct kern_weight {
    struct kern_weight_desc desc;
};

/* The backends. ref is linked by tests only (NULL in kern_find without it). */
extern const struct kern_ops kern_cpu_ops;
extern const struct kern_ops kern_ref_ops;

/* kernels.c: the front that callers use. Each kern_X checks shapes (a wrong one
 * is -EINVAL with text in err), counts, and calls the backend's slot. */
const struct kern_ops *kern_find(const char *name); /* NULL: no such backend */
/* By name: auto is CUDA where its plugin and a device work, else the CPU; what
 * is not built in is a plugin (kernels/plugin.h). What went wrong is in a->why,
 * also why auto did not take CUDA. */
int kern_open_named(const char *name, const struct kern_open_args *a,
                    struct kern **ret);
int kern_open(const struct kern_ops *ops, const struct kern_open_args *a,
              struct kern **ret);
void kern_close(struct kern *k); /* NULL is fine */
const char *kern_error(const struct kern *k);
void kern_stats_reset(struct kern *k);
/* "cpu avx512bf16, 2 threads": for the log and for status. */
const char *kern_describe(const struct kern *k, char *buf, size_t n);

/* So that no step takes memory: after the weights, before the first step. */
int kern_reserve(struct kern *k, const struct kern_sizes *s);
int kern_buf_new(struct kern *k, size_t bytes, struct kern_buf **ret);
void kern_buf_free(struct kern *k, struct kern_buf *b);
int kern_upload(struct kern *k, struct kern_ptr to, const void *from, size_t n);
int kern_download(struct kern *k, void *to, struct kern_ptr from, size_t n);
/* Within a step: to holds what from does at this point of the order once
 * kern_end has returned, by the wait that is in it. */
int kern_fetch(struct kern *k, void *to, struct kern_ptr from, size_t n);
int kern_copy(struct kern *k, struct kern_ptr to, struct kern_ptr from,
              size_t n);
int kern_fill(struct kern *k, struct kern_ptr to, int byte, size_t n);
int kern_begin(struct kern *k, uint64_t shape_key);
int kern_end(struct kern *k);
/* -ENOTSUP: the backend does not compute with this dtype; said here, before a
 * byte is loaded. */
int kern_weight_new(struct kern *k, const struct kern_weight_desc *d,
                    struct kern_weight **ret);
void kern_weight_free(struct kern *k, struct kern_weight *w);
/* Bytes of one expert's plane (experts 0: of the matrix). */
size_t kern_weight_plane_bytes(const struct kern_weight_desc *d, int plane);
int kern_weight_n_planes(enum kern_dtype t);
int kern_weight_fill(struct kern *k, struct kern_weight *w, int expert,
                     int plane, size_t off, const void *from, size_t n);
int kern_weight_map(struct kern *k, struct kern_weight *w, int expert,
                    int plane, const void *at, size_t n);
/* A device's weights on their way. load_room gives memory (aligned to 4096) to
 * read a file into: weight_fill takes bytes that lie in it without a copy on
 * the host and without waiting, so that the next room is read meanwhile; it
 * holds until the next load_room, or fill from elsewhere. load_end waits for
 * all and frees the rooms; fills may follow. -ENOTSUP: memory is the host's. */
int kern_load_room(struct kern *k, void **ret, size_t *ret_bytes);
int kern_load_end(struct kern *k);
/* After the last range or mapping: lays out, checks scale bytes. -ERANGE: MXFP4
 * scale 255, named in err. */
int kern_weight_ready(struct kern *k, struct kern_weight *w);

int kern_embed(struct kern *k, const struct kern_embed_args *a);
int kern_gather(struct kern *k, const struct kern_gather_args *a);
int kern_norm(struct kern *k, const struct kern_norm_args *a);
int kern_linear(struct kern *k, const struct kern_linear_args *a);
int kern_qkv(struct kern *k, const struct kern_qkv_args *a);
int kern_attn(struct kern *k, const struct kern_attn_args *a);
int kern_swiglu(struct kern *k, const struct kern_swiglu_args *a);
int kern_mlp_up(struct kern *k, const struct kern_mlp_up_args *a);
int kern_router(struct kern *k, const struct kern_router_args *a);
int kern_expert_up(struct kern *k, const struct kern_expert_up_args *a);
int kern_expert_down(struct kern *k, const struct kern_expert_down_args *a);
int kern_sample(struct kern *k, const struct kern_sample_args *a);
int kern_accept(struct kern *k, const struct kern_accept_args *a);
int kern_mtp_rows(struct kern *k, const struct kern_mtp_rows_args *a);
int kern_finite(struct kern *k, const struct kern_finite_args *a);

#ifdef __cplusplus
}
#endif
#endif
