/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_COMPACT_H
#define STEPD_KERNELS_COMPACT_H

/*
 * BF16 weights held without loss in about 12 bits (KERN_COMPACT). Sign and
 * mantissa take 8; the exponents of a row nearly all lie within 15 neighbouring
 * ones, so a code of 4 bits does, and what lies outside is listed.
 *
 *   plane 0   R rows of ceil(C/128) blocks of 192 bytes. A block is 64 bytes
 *             of codes, then twice 64 bytes of sign << 7 | mantissa: columns
 *             0..63, then 64..127. Byte i of the codes holds the code of byte
 *             i of the first 64 in its low half, of the second in its high
 *             half. Columns past C are zero.
 *   plane 1   R + 1 words: base << 24 | index of the row's first escape; the
 *             last word has base 0.
 *   plane 2   the escapes, words of column << 16 | BF16 bits, ascending within
 *             a row; COMPACT_END at the very end.
 *
 * Code c > 0 is the exponent base + c (so base <= 240). Code 0 is a zero of
 * either sign, mantissa 0; or an escape, whose byte is 0 as well.
 *
 * Within 64 columns, column c lies at byte c % 32 / 8 * 16 + c / 32 * 8 + c %
 * 8: bytes that are to be the low halves of BF16, interleaved lane by lane of
 * 16 bytes with their high halves, come out in ascending order, whether vectors
 * have 16, 32 or 64 bytes. Whole cache lines, one stream a row, and a GPU's
 * warp reads a block as 6 bytes a lane.
 *
 * Tried or calculated, and not kept (a row of 4096 Gaussian weights; 12.01 bits
 * a weight as above, 1.7e-4 of them escaped):
 *   two planes far apart instead of blocks      the same bits, twice the
 *                                               streams, nibbles widened one by
 *                                               one: 15 operations where 7.5 do
 *   3-bit codes, 7 exponents                    11.5 bits with 2 to 3 % of the
 *                                               weights escaped: two a vector,
 *                                               a branch each where the CPU
 *                                               has no expanding load
 *   Huffman codes of exponents                  10.7 bits; serial within a row
 *
 * Functions are static inline and legal C17 and C++17.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef QUANT_FN
#define QUANT_FN static inline
#endif

#define COMPACT_COLS 128  /* of a block */
#define COMPACT_BLOCK 192 /* bytes of it */
#define COMPACT_CODES 64  /* of these, codes */
#define COMPACT_MAX_COLS 65535
#define COMPACT_MAX_ESCAPES 0xffffff
#define COMPACT_END 0xffffffffu

QUANT_FN size_t compact_row_bytes(int cols)
{
    return ((size_t)cols + COMPACT_COLS - 1) / COMPACT_COLS * COMPACT_BLOCK;
}

/* Where column c < 64 lies among 64 bytes. */
QUANT_FN int compact_at(int c)
{
    return c % 32 / 8 * 16 + c / 32 * 8 + c % 8;
}

QUANT_FN unsigned compact_base(uint32_t word)
{
    return word >> 24;
}

QUANT_FN uint32_t compact_first(uint32_t word)
{
    return word & COMPACT_MAX_ESCAPES;
}

QUANT_FN uint32_t compact_word(unsigned base, uint32_t first)
{
    return (uint32_t)base << 24 | first;
}

/* Column and bits of an escape. */
QUANT_FN int compact_col(uint32_t escape)
{
    return (int)(escape >> 16);
}

/* The base under which the fewest of a row's weights are escapes. */
QUANT_FN unsigned compact_choose(const uint16_t *row, int cols)
{
    uint32_t n[256] = {0}, in = 0, best;
    unsigned base = 0;

    for (int c = 0; c < cols; c++) {
        n[row[c] >> 7 & 255u]++;
    }
    for (unsigned e = 1; e <= 15; e++) {
        in += n[e];
    }
    best = in;
    for (unsigned b = 1; b <= 240; b++) {
        in += n[b + 15] - n[b];
        if (in > best) {
            best = in;
            base = b;
        }
    }
    return base;
}

/* Packs a row under a base. Escapes are written to escape, at most cols of
 * them; returns their number. */
QUANT_FN int compact_pack(uint8_t *to, const uint16_t *row, int cols,
                          unsigned base, uint32_t *escape)
{
    int n = 0;

    memset(to, 0, compact_row_bytes(cols));
    for (int c = 0; c < cols; c++) {
        uint8_t *block = to + c / COMPACT_COLS * COMPACT_BLOCK;
        int half = c % COMPACT_COLS / 64, at = compact_at(c % 64);
        unsigned bits = row[c], code = (bits >> 7 & 255u) - base;

        if ((bits & 0x7fffu) == 0) {
            code = 0; /* only the sign remains */
        } else if (code - 1 > 14) {
            escape[n++] = (uint32_t)c << 16 | bits;
            continue;
        }
        block[at] |= (uint8_t)(code << (4 * half));
        block[COMPACT_CODES + 64 * half + at] =
            (uint8_t)((bits >> 8 & 0x80u) | (bits & 0x7fu));
    }
    return n;
}

/* 128 columns of a row as BF16, escapes still 0. */
QUANT_FN void compact_unpack(uint16_t *to, const uint8_t *block, unsigned base)
{
    for (int half = 0; half < 2; half++) {
        uint16_t v[64];

        for (int i = 0; i < 64; i++) {
            unsigned b = block[COMPACT_CODES + 64 * half + i];
            unsigned code = (unsigned)(block[i] >> (4 * half)) & 15u;
            unsigned e = code + (code != 0 ? base : 0);

            v[i] = (uint16_t)((b & 0x80u) << 8 | e << 7 | (b & 0x7fu));
        }
        for (int i = 0; i < 64; i += 8) {
            memcpy(to + 64 * half + i % 16 * 4 + i / 16 * 8, v + i, 16);
        }
    }
}

#endif
