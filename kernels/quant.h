/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_QUANT_H
#define STEPD_KERNELS_QUANT_H

/*
 * THE BLOCK FORMATS of weights, byte by byte, and what each code is worth.
 *
 * A matrix has R rows (output features) and C columns (inputs), stored row by
 * row with no padding. A weight of several experts holds one such matrix each;
 * a plane below is one expert's. Multi-byte values are little-endian.
 *
 * BF16       plane 0: R*C values of 2 bytes: the upper half of an IEEE float.
 *
 * F32        plane 0: R*C IEEE floats.
 *
 * MXFP4      (compressed-tensors, Quark) C is a multiple of 32.
 *            plane 0: R rows of C/2 bytes. Byte b of a row: column 2b in bits
 *            0..3, column 2b+1 in bits 4..7. A nibble is E2M1: bit 3 the sign,
 *            bits 0..2 an index into 0, 0.5, 1, 1.5, 2, 3, 4, 6.
 *            plane 1: R rows of C/32 bytes: E8M0, one a block of 32 columns.
 *            w[r][c] = e2m1 * 2^(scale[r][c/32] - 127).
 *            Code 8 is -0; zero stays zero under any scale. Scale byte 255 is
 *            NaN by OCP and refused at load (-ERANGE). Every product is exactly
 *            a BF16 number, and a normal one, for scale bytes
 *            QUANT_MX_LOW..QUANT_MX_HIGH; outside of them it may be subnormal
 *            (vdpbf16ps would flush it) or overflow a float.
 *            Bytes 0x21 with scale 128: column 0 is 1, column 1 is 2.
 *
 * FP8_B128   (official FP8) any R and C; blocks at the edges are partial.
 *            plane 0: R*C bytes of E4M3 ("fn": no infinity, 0x7f and 0xff are
 *            NaN, largest 448).
 *            plane 1: ceil(R/128) rows of ceil(C/128) floats, one a 128x128
 *            block. w[r][c] = e4m3 * scale[r/128][c/128] (the tensor is called
 *            weight_scale_inv, yet it multiplies).
 *
 * NVFP4      (ModelOpt) C is a multiple of 16.
 *            plane 0: nibbles as in MXFP4.
 *            plane 1: R rows of C/16 bytes: E4M3, one a block of 16 columns.
 *            plane 2: one float, the expert's factor (weight_scale_2).
 *            w[r][c] = e2m1 * e4m3[r][c/16] * factor.
 *
 * NVFP4_DIV  (compressed-tensors NVFP4) the same planes, except that plane 2
 *            (weight_global_scale) divides: w = e2m1 * e4m3 / factor.
 *
 * The KV cache is BF16: see struct kern_kv in kernels.h.
 *
 * Functions are static inline; a .cu file sets QUANT_FN to add __host__
 * __device__. Legal C17 and C++17.
 */

#include <stdint.h>
#include <string.h>

#ifndef QUANT_FN
#define QUANT_FN static inline
#endif

#define QUANT_MX_BLOCK 32
#define QUANT_NV_BLOCK 16
#define QUANT_FP8_BLOCK 128
/* Scale bytes whose 16 products are all normal BF16 numbers (or zero). */
#define QUANT_MX_LOW 2
#define QUANT_MX_HIGH 252
#define QUANT_MX_NAN 255

QUANT_FN float quant_from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

QUANT_FN uint32_t quant_to_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

QUANT_FN float quant_bf16_to_f32(uint16_t b)
{
    return quant_from_bits((uint32_t)b << 16);
}

/* Round to nearest, ties to even. A NaN stays one, quiet, with its sign. */
QUANT_FN uint16_t quant_f32_to_bf16(float f)
{
    uint32_t u = quant_to_bits(f);

    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* The value of a nibble; only the low four bits count. */
QUANT_FN float quant_e2m1(unsigned code)
{
    unsigned mag = code & 7u;
    /* 0 and 0.5 are the two subnormals; the rest is 1.m * 2^(e-1). */
    float v = mag < 2 ? 0.5f * (float)mag
                      : quant_from_bits((126u + (mag >> 1)) << 23 |
                                        (uint32_t)(mag & 1u) << 22);

    return (code & 8u) != 0 ? -v : v;
}

/* 2^(s - 127); s = 0 gives the subnormal 2^-127, s = 255 NaN. */
QUANT_FN float quant_e8m0(unsigned s)
{
    if (s == 0) {
        return quant_from_bits(0x00400000u);
    }
    return quant_from_bits(s == 255u ? 0x7fc00000u : (uint32_t)s << 23);
}

/* E4M3 "fn": bias 7, subnormals of 2^-9, no infinities. */
QUANT_FN float quant_e4m3(unsigned b)
{
    unsigned e = (b >> 3) & 15u, m = b & 7u;
    float v;

    if (e == 15u && m == 7u) {
        v = quant_from_bits(0x7fc00000u);
    } else if (e == 0) {
        v = (float)m * 0.001953125f;
    } else {
        v = quant_from_bits((e + 120u) << 23 | (uint32_t)m << 20);
    }
    return (b & 128u) != 0 ? -v : v;
}

#endif
