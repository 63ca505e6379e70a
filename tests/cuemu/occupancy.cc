/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Blocks that an SM of each target holds, by NVIDIA's calculator. Reads lines
 * "kernel target registers shared threads dynamic" (bytes), prints "kernel
 * target registers blocks". Built and run by test_static.sh.
 */

#include <climits>
#include <cstdio>
#include <cstring>

#include <cuda_occupancy.h>

struct target {
    const char *name;
    int major, minor, threads, shared_kib;
};
/* Threads and KiB of shared memory an SM, by the programming guide; a block may
 * have all but 1 KiB of it. */
static const struct target targets[] = {
    {"80", 8, 0, 2048, 164},
    {"90a", 9, 0, 2048, 228},
    {"100f", 10, 0, 2048, 228},
    {"120f", 12, 0, 1536, 100},
};

static int blocks(const struct target *t, int regs, size_t smem, int threads,
                  size_t dynamic)
{
    cudaOccDeviceProp p;
    cudaOccFuncAttributes f;
    cudaOccDeviceState state;
    cudaOccResult r;

    memset(&p, 0, sizeof(p));
    memset(&f, 0, sizeof(f));
    p.computeMajor = t->major;
    p.computeMinor = t->minor;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = t->threads;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.sharedMemPerBlock = 48 << 10;
    p.sharedMemPerMultiprocessor = (size_t)t->shared_kib << 10;
    p.sharedMemPerBlockOptin = (size_t)(t->shared_kib - 1) << 10;
    p.reservedSharedMemPerBlock = 1 << 10;
    p.numSms = 1;
    f.maxThreadsPerBlock = INT_MAX;
    f.numRegs = regs;
    f.sharedSizeBytes = smem;
    f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    f.maxDynamicSharedSizeBytes = dynamic;
    f.numBlockBarriers = 1;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &state, threads,
                                                dynamic) != 0) {
        return 0;
    }
    return r.activeBlocksPerMultiprocessor;
}

int main()
{
    char kernel[256], target[16];
    int regs, smem, threads, dynamic;

    while (scanf("%255s %15s %d %d %d %d", kernel, target, &regs, &smem,
                 &threads, &dynamic) == 6) {
        for (const struct target &t : targets) {
            if (strcmp(t.name, target) == 0) {
                printf(
                    "%s %s %d %d\n", kernel, target, regs,
                    blocks(&t, regs, (size_t)smem, threads, (size_t)dynamic));
            }
        }
    }
    return 0;
}
