/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The numbers of kernels/quant.h, which kernels and references share, against
 * NVIDIA's headers, bit for bit: every BF16, E4M3, E8M0 and E2M1 code, and the
 * rounding of floats to BF16. A NaN is only required to be one: quant.h keeps
 * its sign and payload, NVIDIA's rounding does not. Built and run by
 * test_types.sh.
 */

#include <cstdio>

#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include "kernels/quant.h"

static long n_compared, n_wrong;

static void same(const char *what, uint32_t code, float ours, float theirs)
{
    bool nan = theirs != theirs;

    n_compared++;
    if (nan ? ours == ours : quant_to_bits(ours) != quant_to_bits(theirs)) {
        if (n_wrong++ < 10) {
            printf("%s %#x: %a, NVIDIA's %a\n", what, code, (double)ours,
                   (double)theirs);
        }
    }
}

static float widened(__half_raw h)
{
    return __half2float(__half(h));
}

static void round_to_bf16(uint32_t bits)
{
    float f = quant_from_bits(bits);

    same("to BF16", bits, quant_bf16_to_f32(quant_f32_to_bf16(f)),
         __bfloat162float(__float2bfloat16_rn(f)));
}

int main()
{
    static const uint32_t low[] = {0,      1,      0x3fff, 0x7fff, 0x8000,
                                   0x8001, 0xbfff, 0xfffe, 0xffff};

    for (uint32_t i = 0; i < 65536; i++) {
        __nv_bfloat16_raw raw;

        raw.x = (unsigned short)i;
        same("BF16", i, quant_bf16_to_f32((uint16_t)i),
             __bfloat162float(__nv_bfloat16(raw)));
        for (uint32_t l : low) {
            round_to_bf16(i << 16 | l);
        }
    }
    for (uint32_t i = 0, bits = 1; i < 4000000; i++) {
        bits = bits * 1664525u + 1013904223u; /* every float can come */
        round_to_bf16(bits);
    }
    for (unsigned i = 0; i < 256; i++) {
        __nv_fp8_storage_t b = (__nv_fp8_storage_t)i;

        same("E4M3", i, quant_e4m3(i),
             widened(__nv_cvt_fp8_to_halfraw(b, __NV_E4M3)));
        same("E8M0", i, quant_e8m0(i),
             __bfloat162float(__nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(b))));
    }
    for (unsigned i = 0; i < 16; i++) {
        same(
            "E2M1", i, quant_e2m1(i),
            widened(__nv_cvt_fp4_to_halfraw((__nv_fp4_storage_t)i, __NV_E2M1)));
    }
    printf("%ld compared, %ld differ\n", n_compared, n_wrong);
    return n_wrong != 0 || n_compared != 65536 * 10 + 4000000 + 512 + 16;
}
