/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A libnccl.so.2 for tests: the calls that kernels/cuda/nccl.c makes, on memory
 * of the host, which is what the emulator's device memory is. The other ranks
 * are made up of the caller's own part (fake_nccl.scale). It adds them in
 * descending order, which exact does not, and refuses what the real one would
 * not take.
 */

#include "tests/cuemu/fake_nccl.h"

#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#define FAKE_SYMBOL(member, type, symbol) PUBLIC type symbol;
NCCL_SYMBOLS(FAKE_SYMBOL)

extern PUBLIC struct fake_nccl fake_nccl;
struct fake_nccl fake_nccl = {.version = NCCL_OLDEST};

enum { FAILS = 2, BAD_ARGUMENT = 4, REMOTE = 6 };
static char comm_of_all;

static int result_of(const char *call)
{
    return fake_nccl.fails != NULL && strcmp(fake_nccl.fails, call) == 0 ? FAILS
                                                                         : 0;
}

int ncclGetVersion(int *ret)
{
    *ret = fake_nccl.version;
    return result_of("ncclGetVersion");
}

const char *ncclGetErrorString(int result)
{
    return result == FAILS          ? "it was told to fail"
           : result == BAD_ARGUMENT ? "invalid argument"
           : result == REMOTE       ? "another rank failed"
                                    : "no error";
}

int ncclGetUniqueId(struct nccl_id *ret)
{
    memset(ret, 0, sizeof(*ret));
    strcpy(ret->bytes, "the fake's");
    return result_of("ncclGetUniqueId");
}

int ncclCommInitRank(void **ret, int n, struct nccl_id id, int rank)
{
    int result = result_of("ncclCommInitRank");

    if (result != 0 || rank < 0 || rank >= n || n > FAKE_NCCL_RANKS) {
        return result != 0 ? result : BAD_ARGUMENT;
    }
    fake_nccl.n = n;
    fake_nccl.rank = rank;
    fake_nccl.id = id;
    fake_nccl.live++;
    *ret = &comm_of_all;
    return 0;
}

int ncclCommDestroy(void *comm)
{
    fake_nccl.live -= comm == &comm_of_all;
    return comm == &comm_of_all ? 0 : BAD_ARGUMENT;
}

int ncclCommGetAsyncError(void *comm, int *ret_result)
{
    *ret_result = fake_nccl.late ? REMOTE : 0;
    return comm == &comm_of_all ? 0 : BAD_ARGUMENT;
}

static float held_by(int rank, float own)
{
    return rank == fake_nccl.rank ? own : own * fake_nccl.scale[rank];
}

static void log_call(bool sum, size_t count)
{
    if (fake_nccl.n_log < FAKE_NCCL_LOG) {
        fake_nccl.log[fake_nccl.n_log].sum = sum;
        fake_nccl.log[fake_nccl.n_log++].count = count;
    }
}

int ncclAllGather(const void *from, void *to, size_t count, int type,
                  void *comm, void *stream)
{
    const float *own = from;
    float *all = to;

    (void)stream;
    log_call(false, count);
    if (type != NCCL_FLOAT32 || comm != &comm_of_all || from == to) {
        return BAD_ARGUMENT;
    }
    for (int r = 0; r < fake_nccl.n; r++) {
        for (size_t i = 0; i < count; i++) {
            all[(size_t)r * count + i] = held_by(r, own[i]);
        }
    }
    return result_of("ncclAllGather");
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                  void *comm, void *stream)
{
    const float *own = from;
    float *sums = to;

    (void)stream;
    log_call(true, count);
    if (type != NCCL_FLOAT32 || op != NCCL_SUM || comm != &comm_of_all) {
        return BAD_ARGUMENT;
    }
    for (size_t i = 0; i < count; i++) {
        float sum = held_by(fake_nccl.n - 1, own[i]);

        for (int r = fake_nccl.n - 2; r >= 0; r--) {
            sum += held_by(r, own[i]);
        }
        sums[i] = sum;
    }
    return result_of("ncclAllReduce");
}
