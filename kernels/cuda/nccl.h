/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CUDA_NCCL_H
#define STEPD_KERNELS_CUDA_NCCL_H

/*
 * The part of NCCL's interface that nccl.c calls, declared here so that neither
 * its header nor the library is needed to build, and the library not to run on one
 * GPU. tests/cuemu/nccl_check.cc holds every line against NVIDIA's header where
 * there is one. A communicator is a pointer to what only the library knows; a
 * result is 0 where all is well.
 */

#include <stddef.h>

#define NCCL_SONAME "libnccl.so.2"
#define NCCL_OLDEST \
    22800 /* of nccl_api.version, 10000 X + 100 Y + Z: the first that was looked at */
#define NCCL_ID_BYTES 128

enum { NCCL_SUM = 0, NCCL_FLOAT32 = 7 };

/* Where the ranks of a group meet: rank 0 makes it, all of them open with it. */
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

typedef int nccl_version_fn(int *ret);
typedef const char *nccl_text_fn(int result);
typedef int nccl_id_fn(struct nccl_id *ret);
/* Returns when all n ranks have called it. */
typedef int nccl_open_fn(void **ret, int n, struct nccl_id id, int rank);
typedef int nccl_close_fn(void *comm);
typedef int nccl_state_fn(void *comm, int *ret_result);
/* to is [n ranks][count]. */
typedef int nccl_gather_fn(const void *from, void *to, size_t count, int type, void *comm,
                           void *stream);
typedef int nccl_reduce_fn(const void *from, void *to, size_t count, int type, int op, void *comm,
                           void *stream);

/* Member, type, symbol. */
#define NCCL_SYMBOLS(X)                            \
    X(version, nccl_version_fn, ncclGetVersion)    \
    X(text, nccl_text_fn, ncclGetErrorString)      \
    X(id, nccl_id_fn, ncclGetUniqueId)             \
    X(open, nccl_open_fn, ncclCommInitRank)        \
    X(close, nccl_close_fn, ncclCommDestroy)       \
    X(state, nccl_state_fn, ncclCommGetAsyncError) \
    X(gather, nccl_gather_fn, ncclAllGather)       \
    X(reduce, nccl_reduce_fn, ncclAllReduce)

#define NCCL_MEMBER(member, type, symbol) type *member;
struct nccl_api {
    NCCL_SYMBOLS(NCCL_MEMBER)
};

#endif
