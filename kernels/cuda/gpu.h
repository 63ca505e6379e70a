/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CUDA_GPU_H
#define STEPD_KERNELS_CUDA_GPU_H

/*
 * What the files of the CUDA backend share: the backend's struct kern, buffers,
 * weights as they lie on the device, and the one way to launch. Read by C and by
 * C++.
 *
 * An op (one .cu each) turns its arguments into one plain struct of device
 * addresses and calls gpu_launch. The struct is zeroed first (GPU_PARAMS), so
 * that two launches are the same exactly when their bytes are: that is how a
 * recorded step is recognised (graph.c).
 */

#include <string.h>

#include "kernels/cuda/rt.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a matrix lies on the device. T: tile of 16 rows; Q: group of 128 columns;
 * lane 4 g + t holds rows g and g + 8 of a tile and columns 8 t .. 8 t + 7 of
 * each block of 32, which is what two mma.m16n8k16 take when their K is permuted
 * alike on both sides (frag.cuh).
 *
 * ROWS    BF16 or F32, row-major, pitch = columns up to a multiple of 32 (BF16).
 * NIBBLE  q: [T][Q][row half 2][lane 32][block 4] words of 8 E2M1: weight i of
 *         the 8 has its magnitude at bit 16 (i & 1) + 3 (i / 2) and its sign at
 *         bit 16 (i & 1) + 12 + i / 2, so that one shift and one mask give a
 *         pair. s: [T][Q][16 rows][4] E8M0 (MXFP4) or [16 rows][8] E4M3 (NVFP4).
 * BYTE    q: [T][Q][row half 2][block pair 2][lane 32][2] x 8 E4M3; f: scales
 *         as in quant.h.
 * COMPACT q: rows of blocks as kernels/compact.h says, where a lane's share of
 *         a block is three times 16 bytes. s: the exponent base of each row, a
 *         byte, rows up to a multiple of 16. f: words: for each [T][Q], and one
 *         past the last, which word of f its first escape is; then the escapes,
 *         GPU_ESCAPE of row in the tile, column in the group, BF16 bits.
 * Rows past the last and columns past the last are zero. */
enum gpu_layout { GPU_ROWS, GPU_NIBBLE, GPU_BYTE };

enum gpu_format { GPU_BF16, GPU_MXFP4, GPU_NVFP4, GPU_FP8, GPU_COMPACT, GPU_F32 };

#define GPU_ESCAPE(row, col, bits) \
    ((unsigned)(row) << 23 | (unsigned)(col) << 16 | (unsigned)(bits))

#define GPU_TILE 16   /* rows a weight tile */
#define GPU_GROUP 128 /* columns a group: the grain of the order of addition */
#define GPU_DOWN ((size_t)1 << 20)
#define GPU_MAX_FETCHES 16
#define GPU_BACK_FETCHED 64 /* bytes of GPU_BACK that are counters */
#define GPU_BACK (GPU_BACK_FETCHED + GPU_DOWN)
#define GPU_SLICES 8 /* parts into which K is cut, at most */

struct gpu_mat {
    const unsigned char *q, *s;
    const float *f;        /* FP8: block scales; NVFP4: a factor an expert;
                            * COMPACT: words */
    size_t q_step, s_step; /* bytes an expert */
    size_t f_step;         /* floats, or words, an expert */
    int rows, cols;
    int pitch;    /* ROWS: elements a row */
    int groups;   /* of 128 columns */
    int divide;   /* NVFP4_DIV: f divides */
    int format;   /* enum gpu_format */
    size_t bytes; /* of one expert, as the checkpoint counts */
};

struct gpu_buf {
    struct kern_buf base;
    char *at;
};

struct gpu_weight {
    struct kern_weight base;
    struct gpu_mat mat;
    char *mem; /* q, then s, then f */
    size_t mem_bytes;
    uint64_t *filled;         /* bytes of each plane of each expert that came */
    uint32_t *words;          /* COMPACT: planes 1 and 2, until they are sorted */
    int bad_expert, bad_byte; /* a scale or a value that is refused */
    size_t bad_at;
};

/* Counters that kernels add to, for ever; the host looks at end and download. */
enum {
    GPU_COUNT_WEIGHT,
    GPU_COUNT_LOADS,
    GPU_COUNT_KV,
    GPU_FAULT, /* the first one of a step: enum gpu_fault and two numbers */
    GPU_N_COUNTS
};

/* What a kernel finds that the host could not see: (code << 56) + (a << 28) + b.
 * It becomes -EIO at end or download. */
enum gpu_fault {
    GPU_FAULT_NONE,
    GPU_FAULT_ATTN_PAGE, /* sequence, page */
    GPU_FAULT_ATTN_SEQ,  /* row, sequence */
    GPU_FAULT_QKV_PAGE   /* row, slot */
};

/* Scratch that ops use within a step, by purpose. */
enum gpu_scratch {
    GPU_SCRATCH_ATTN,  /* partial results of attention splits */
    GPU_SCRATCH_TURNS, /* counters: who of several blocks is last; zero */
    GPU_SCRATCH_PAIRS, /* results of expert_down by pair */
    GPU_SCRATCH_LOGITS,
    GPU_SCRATCH_SAMPLE,
    GPU_SCRATCH_JOIN, /* parts of all ranks (nccl.c) */
    GPU_N_SCRATCH
};

struct gpu_step; /* graph.c */
struct gpu_ring; /* ring.c */
struct gpu_lt;   /* lt.c */
struct gpu_nccl; /* nccl.c */

struct gpu {
    struct kern base;
    struct rt *rt;
    struct rt_info info;
    size_t budget, used;                      /* bytes of device memory */
    unsigned long long *counts;               /* GPU_BACK bytes: behind them what was fetched */
    unsigned long long counted[GPU_N_COUNTS]; /* as they were when last seen */
    char *back_host;                          /* pinned, GPU_BACK bytes */
    struct {
        void *at;
        size_t n;
    } scratch[GPU_N_SCRATCH];
    struct gpu_step *step;
    struct gpu_lt *lt;       /* NULL: exact, or no cuBLASLt */
    struct gpu_nccl *nccl;   /* NULL: one device */
    struct gpu_ring *upload; /* pinned, for RT_MAIN */
    char *up;                /* its piece that is being filled, or NULL */
    size_t up_n;             /* bytes of it that are taken */
    char *down;              /* pinned, GPU_DOWN bytes: downloads */
    struct gpu_fetch {
        void *to;
        size_t at, n;
    } fetch[GPU_MAX_FETCHES];
    int n_fetches;
    size_t fetched;        /* bytes */
    struct gpu_ring *load; /* pinned and device staging, for RT_LOAD */
    char *room;            /* its piece that load_room gave, or NULL */
    char *room_twin;       /* that piece's on the device */
    bool in_step;
    bool loading; /* RT_LOAD has work that RT_MAIN has not waited for */
};

static inline struct gpu *gpu_of(struct kern *k)
{
    return (struct gpu *)k;
}

/* The address behind p; NULL where p is absent. */
static inline char *gpu_at(struct kern_ptr p)
{
    return p.buf == NULL ? NULL : ((struct gpu_buf *)p.buf)->at + p.off;
}

static inline const struct gpu_mat *gpu_mat_of(const struct kern_weight *w)
{
    return &((const struct gpu_weight *)w)->mat;
}

static inline int gpu_min(int a, int b)
{
    return a < b ? a : b;
}
static inline int gpu_max(int a, int b)
{
    return a > b ? a : b;
}
static inline int gpu_ceil(int a, int b)
{
    return (a + b - 1) / b;
}

#define GPU_PARAMS(type, name) \
    struct type name;          \
    memset(&name, 0, sizeof(name))

/* gpu.c */
int gpu_fail(struct kern *k, int r); /* r, with the device's text */
/* At least n bytes, kept until close, zero at first; NULL: none left. */
void *gpu_scratch_get(struct kern *k, enum gpu_scratch which, size_t n);
int gpu_mem_alloc(struct gpu *g, size_t n, void **ret);
void gpu_mem_free(struct gpu *g, void *p, size_t n);

/* graph.c: every launch and copy of a step passes here. */
int gpu_step_new(struct gpu *g, bool graphs);
void gpu_step_free(struct gpu *g);
int gpu_step_begin(struct gpu *g, uint64_t shape_key);
int gpu_step_end(struct gpu *g);
int gpu_launch(struct kern *k, const void *fn, struct rt_grid grid, unsigned threads, size_t smem,
               const void *args, size_t n);
int gpu_copy_call(struct kern *k, void *to, const void *from, size_t n);
int gpu_fill_call(struct kern *k, void *to, int byte, size_t n);
/* What a library launches, as rt_call: told apart by fn and the bytes of args. */
int gpu_lib_call(struct kern *k, int (*fn)(const void *args, void *stream), const void *args,
                 size_t n);
/* Something that is no launch (an upload, a download) comes now. */
int gpu_step_flush(struct gpu *g);

/* lt.c: dense products of many rows by cuBLASLt, where exact is off. Its absence
 * is no failure: it is said in kern.note. */
#define GPU_LT_ROWS 128 /* from here on */
int gpu_lt_new(struct gpu *g);
void gpu_lt_free(struct gpu *g);
/* Bit i of *ret_taken: part i of a is done. */
int gpu_lt_linear(struct kern *k, const struct kern_linear_args *a, unsigned *ret_taken);

/* nccl.c: the seam for several devices. new returns when all of them have called
 * it; -ENODEV, -EIO with a sentence in why. */
int gpu_nccl_new(struct gpu *g, bool exact, char *why, size_t n);
void gpu_nccl_free(struct gpu *g);
/* -EIO with text: a collective failed after it was queued. */
int gpu_nccl_check(struct gpu *g);
/* How what each of several devices holds becomes what all of them hold. */
enum gpu_join {
    GPU_JOIN_SUM,   /* parts of sums: added */
    GPU_JOIN_GATHER /* columns of each row, as many a rank, the last one's fewer:
                     * side by side */
};
/* Before an op that needs all of rows, floats [rows][width], whose matrix is cut
 * (KERN_SHARD_*): nothing on one device. */
int gpu_join(struct kern *k, enum gpu_join how, struct kern_ptr p, const struct kern_rows *rows,
             int width);
/* join.cu */
int gpu_join_cut(struct kern *k, struct kern_ptr x, const struct kern_rows *rows, int width,
                 int part, float *own);
int gpu_join_lay(struct kern *k, struct kern_ptr x, const struct kern_rows *rows, int width,
                 int part, const float *all);
int gpu_join_add(struct kern *k, struct kern_ptr x, const struct kern_rows *rows, int width,
                 const float *all);

/* ring.c: pinned memory in turns. */
int gpu_ring_new(struct gpu *g, enum rt_stream s, size_t piece, int n, bool staging,
                 struct gpu_ring **ret);
void gpu_ring_free(struct gpu *g, struct gpu_ring *r);
size_t gpu_ring_piece(const struct gpu_ring *r);
/* The next piece, once the device is done with it. */
int gpu_ring_next(struct gpu *g, struct gpu_ring *r, void **ret_host, void **ret_device);
int gpu_ring_used(struct gpu *g, struct gpu_ring *r);
/* The ring's stream goes on once the piece has arrived on RT_COPY (staging). */
int gpu_ring_copied(struct gpu *g, struct gpu_ring *r);

/* weight.c */
uint64_t gpu_weight_bytes(const struct kern_weight_desc *d);
uint64_t gpu_load_bytes(void);     /* of staging, while weights come */
int gpu_after_load(struct gpu *g); /* RT_MAIN goes on after what was loaded */
int gpu_weight_new(struct kern *k, const struct kern_weight_desc *d, struct kern_weight **ret);
void gpu_weight_free(struct kern *k, struct kern_weight *w);
int gpu_weight_fill(struct kern *k, struct kern_weight *w, int expert, int plane, size_t off,
                    const void *from, size_t n);
int gpu_weight_map(struct kern *k, struct kern_weight *w, int expert, int plane, const void *at,
                   size_t n);
int gpu_weight_ready(struct kern *k, struct kern_weight *w);
int gpu_load_room(struct kern *k, void **ret, size_t *ret_bytes);
int gpu_load_end(struct kern *k);

/* compact.c: s and f of COMPACT from planes 1 and 2. -EINVAL with text: they
 * contradict each other or the size. */
int gpu_compact_sort(const struct kern_weight_desc *d, const struct gpu_mat *m,
                     const uint32_t *words, unsigned char *bases, uint32_t *f, char *why, size_t n);

/* pack.cu: from checkpoint order into the layouts above. */
struct gpu_piece {
    const unsigned char *from; /* n bytes of a plane, beginning at off */
    unsigned char *to;         /* the expert's plane on the device */
    size_t off, n;
    int rows, cols, pitch, groups;
    int what; /* enum gpu_pack_what */
};
enum gpu_pack_what {
    GPU_PACK_PITCH,  /* BF16 rows into a wider pitch */
    GPU_PACK_NIBBLE, /* plane 0 of MXFP4 and NVFP4 */
    GPU_PACK_SCALE4, /* plane 1 of MXFP4 */
    GPU_PACK_SCALE8, /* plane 1 of NVFP4 */
    GPU_PACK_BYTE    /* plane 0 of FP8 */
};
int gpu_pack(struct gpu *g, const struct gpu_piece *p);

/* The ops, one .cu each. */
int gpu_embed(struct kern *k, const struct kern_embed_args *a);
int gpu_gather(struct kern *k, const struct kern_gather_args *a);
int gpu_norm(struct kern *k, const struct kern_norm_args *a);
int gpu_linear(struct kern *k, const struct kern_linear_args *a);
int gpu_mlp_up(struct kern *k, const struct kern_mlp_up_args *a);
int gpu_qkv(struct kern *k, const struct kern_qkv_args *a);
int gpu_attn(struct kern *k, const struct kern_attn_args *a);
void gpu_attn_scratch(int rows, int n_head, int n_kv_head, int pages, uint64_t *ret_part,
                      uint64_t *ret_turns);
int gpu_swiglu(struct kern *k, const struct kern_swiglu_args *a);
int gpu_router(struct kern *k, const struct kern_router_args *a);
int gpu_expert_up(struct kern *k, const struct kern_expert_up_args *a);
int gpu_expert_down(struct kern *k, const struct kern_expert_down_args *a);
int gpu_sample(struct kern *k, const struct kern_sample_args *a);
int gpu_accept(struct kern *k, const struct kern_accept_args *a);
int gpu_mtp_rows(struct kern *k, const struct kern_mtp_rows_args *a);
int gpu_finite(struct kern *k, const struct kern_finite_args *a);

/* The backend's table: "cuda", or "cuda-emulated" over the emulator. */
extern const struct kern_ops kern_cuda_ops;

#ifdef __cplusplus
}
#endif
#endif
