/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The bench on which ops are tested: an opened backend with everything that a
 * test put into it, numbers that are the same in every run, and the list of
 * backends that this build and this machine can run.
 *
 *     for (int i = 0; i < kt_n_backends(); i++) {
 *         struct kt *t = kt_open(kt_backend(i));
 *         struct kern_ptr x = kt_put(t, data, sizeof(data));
 *         ...
 *         kt_close(t);
 *     }
 *
 * A result is compared with ref's: ref is opened by kt_open(&kt_ref).
 */
#ifndef TESTS_KERNELS_KT_H
#define TESTS_KERNELS_KT_H

#include "kernels/kernels.h"
#include "tests/test.h"

/* A backend as one test run takes it. */
struct kt_backend {
    const char *name; /* "ref", "cpu" */
    const char *isa;  /* NULL: none to choose */
    int n_threads;
};

extern const struct kt_backend kt_ref;

/* Whether a backend is the GPU's, emulated or not. There a weight is read once
 * a tile of rows, of at most so many rows. */
static inline bool kt_is_gpu(const struct kt_backend *b)
{
    return strncmp(b->name, "cuda", 4) == 0;
}
#define KT_GPU_LINEAR_ROWS 64
#define KT_GPU_ROUTER_ROWS 16

/* Every backend but ref that opens here: cpu with each instruction set, with
 * one thread and with two. */
int kt_n_backends(void);
const struct kt_backend *kt_backend(int i);

struct kt {
    struct kern *k;
    char name[64];
    /* freed by kt_close */
    struct kern_buf **buf;
    struct kern_weight **weight;
    int n_bufs, n_weights;
};

struct kt *kt_open(const struct kt_backend *b);
struct kt *kt_open_inexact(const struct kt_backend *b); /* exact = no */
void kt_close(struct kt *t);

/* A new buffer of just these bytes, filled from data (NULL: with 0xff, which is
 * NaN as a float and as BF16, and -1 as an integer). */
struct kern_ptr kt_put(struct kt *t, const void *data, size_t bytes);
void kt_get(struct kt *t, void *to, struct kern_ptr from, size_t bytes);
/* n live rows of at most max. */
struct kern_rows kt_rows(struct kt *t, int n, int max);

/* Random planes, the same for the same seed on every backend; values are of
 * the size of 1. experts 0: one matrix. Odd seeds map the planes, even ones
 * fill them in pieces. */
struct kern_weight *kt_weight(struct kt *t, enum kern_dtype dtype, int experts,
                              int rows, int cols, uint64_t seed);
/* A weight with the given planes (one expert or none). */
struct kern_weight *kt_weight_of(struct kt *t, enum kern_dtype dtype, int rows,
                                 int cols, const void *const *plane);
/* The same BF16 values as a KERN_COMPACT weight. */
struct kern_weight *kt_compact(struct kt *t, int rows, int cols,
                               const uint16_t *w);

/* Random numbers: a plain generator, not the sampler's. */
uint64_t kt_random(uint64_t *state);
float kt_uniform(uint64_t *state); /* -1 .. 1 */
void kt_fill_f32(float *x, size_t n, uint64_t seed);
void kt_fill_bf16(uint16_t *x, size_t n, uint64_t seed);

/* Fails with the backend's text where an op did not succeed. */
#define kt_ok(t, r) kt_ok_(t, r, __FILE__, __LINE__)
void kt_ok_(const struct kt *t, int r, const char *file, int line);

#endif
