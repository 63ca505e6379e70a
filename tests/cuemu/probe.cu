/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One kernel for each asm wrapper of dev.cuh, its operands read from and
 * written to known places: check_probe.py finds each of them again in the PTX.
 */
#include "kernels/cuda/dev.cuh"

extern "C" __global__ void probe_mma(float *c, const unsigned *a,
                                     const unsigned *b)
{
    float d[4] = {c[0], c[1], c[2], c[3]};
    unsigned x[4] = {a[0], a[1], a[2], a[3]};

    mma_bf16(d, x, b[0], b[1]);
    c[0] = d[0];
    c[1] = d[1];
    c[2] = d[2];
    c[3] = d[3];
}

extern "C" __global__ void probe_ldmatrix(unsigned *out)
{
    STEP_SHARED(uint4, s, 64);
    unsigned r[4];

    s[threadIdx.x] = make_uint4(threadIdx.x, 1, 2, 3);
    __syncthreads();
    ldmatrix_x4_trans(r, &s[threadIdx.x]);
    out[0] = r[0];
    out[1] = r[1];
    out[2] = r[2];
    out[3] = r[3];
}

extern "C" __global__ void probe_mul(unsigned *out, const unsigned *a,
                                     const unsigned *b)
{
    out[0] = mul_bf16x2(a[0], b[0]);
}

extern "C" __global__ void probe_exp2(float *out, const float *a)
{
    out[0] = dev_exp2(a[0]);
}

extern "C" __global__ void probe_cp_async(unsigned *out, const uint4 *from)
{
    STEP_SHARED(uint4, s, 64);

    cp_async16(&s[threadIdx.x], from + 3, true);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    out[0] = s[0].x;
}
