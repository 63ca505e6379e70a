/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CUDA_LT_H
#define STEPD_KERNELS_CUDA_LT_H

/*
 * The part of cuBLASLt's interface (version 13) that lt.c calls, declared here
 * so that neither its header nor the library is needed to build, and the library
 * not to run. tests/cuemu/lt_check.cc holds every line against NVIDIA's header
 * where there is one. Handles and descriptors are pointers to what only the
 * library knows; a status is 0 where all is well.
 */

#include <stddef.h>
#include <stdint.h>

#define LT_SONAME "libcublasLt.so.13"
#define LT_OLDEST 130000 /* of lt_api.version */

enum {
    LT_R_32F = 0,
    LT_R_16BF = 14,
    LT_COMPUTE_32F = 68,
    LT_OP_T = 1,
    LT_DESC_TRANSA = 3,
    LT_PREF_WORKSPACE = 1,   /* uint64_t, bytes */
    LT_PREF_ALIGNMENT_A = 5, /* uint32_t, bytes; then B, C, D */
};

struct lt_algo {
    uint64_t data[8];
};

struct lt_result {
    struct lt_algo algo;
    size_t workspace;
    int state; /* a status */
    float waves;
    int reserved[4];
};

typedef size_t lt_version_fn(void);
typedef int lt_create_fn(void **ret);
typedef int lt_destroy_fn(void *handle);
typedef int lt_desc_new_fn(void **ret, int compute, int scale);
typedef int lt_desc_free_fn(void *desc);
typedef int lt_desc_set_fn(void *desc, int attribute, const void *value, size_t n);
typedef int lt_layout_new_fn(void **ret, int type, uint64_t rows, uint64_t cols, int64_t ld);
typedef int lt_layout_free_fn(void *layout);
typedef int lt_pref_new_fn(void **ret);
typedef int lt_pref_free_fn(void *pref);
typedef int lt_pref_set_fn(void *pref, int attribute, const void *value, size_t n);
typedef int lt_heuristic_fn(void *handle, void *desc, void *a, void *b, void *c, void *d,
                            void *pref, int n, struct lt_result *ret, int *ret_n);
/* d = alpha op(a) b + beta c, matrices column by column. */
typedef int lt_matmul_fn(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                         const void *b, void *b_layout, const void *beta, const void *c,
                         void *c_layout, void *d, void *d_layout, const struct lt_algo *algo,
                         void *workspace, size_t workspace_n, void *stream);

/* Member, type, symbol. */
#define LT_SYMBOLS(X)                                                 \
    X(version, lt_version_fn, cublasLtGetVersion)                     \
    X(create, lt_create_fn, cublasLtCreate)                           \
    X(destroy, lt_destroy_fn, cublasLtDestroy)                        \
    X(desc_new, lt_desc_new_fn, cublasLtMatmulDescCreate)             \
    X(desc_free, lt_desc_free_fn, cublasLtMatmulDescDestroy)          \
    X(desc_set, lt_desc_set_fn, cublasLtMatmulDescSetAttribute)       \
    X(layout_new, lt_layout_new_fn, cublasLtMatrixLayoutCreate)       \
    X(layout_free, lt_layout_free_fn, cublasLtMatrixLayoutDestroy)    \
    X(pref_new, lt_pref_new_fn, cublasLtMatmulPreferenceCreate)       \
    X(pref_free, lt_pref_free_fn, cublasLtMatmulPreferenceDestroy)    \
    X(pref_set, lt_pref_set_fn, cublasLtMatmulPreferenceSetAttribute) \
    X(heuristic, lt_heuristic_fn, cublasLtMatmulAlgoGetHeuristic)     \
    X(matmul, lt_matmul_fn, cublasLtMatmul)

#define LT_MEMBER(member, type, symbol) type *member;
struct lt_api {
    LT_SYMBOLS(LT_MEMBER)
};

#endif
