/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_SAMPLE_H
#define STEPD_KERNELS_SAMPLE_H

/*
 * THE SAMPLER, to the bit: what kern_sample computes from one row of logits.
 * Every backend gives the same id and the same logprob for the same logits,
 * because each step below is either a single IEEE operation on one element, or
 * an integer sum, whose order cannot matter, or a selection under a total
 * order. Floats are binary32, rounding to nearest; fma is written out and
 * nothing else may be contracted.
 *
 * Row parameters: struct kern_sample_row. Let l[i] be the raw logits, i < V.
 *
 *  0. Any l[i] NaN or infinite: id = KERN_DRAW_NONFINITE, nothing else.
 *  1. Penalties and bias, for ids in the row's list (struct kern_penalty); the
 *     penalties only where count >= 0:
 *         repetition != 1:  l = l > 0 ? l / repetition : l * repetition
 *         l = fma(-frequency, count, l);   count > 0:  l = l - presence
 *         l = l + bias;   bias != 0
 *     Repetition counts prompt and output, the other two the output alone.
 *  2. Mask: ids whose bit is clear are out of everything below. None left: id =
 *     KERN_DRAW_MASKED.
 *  3. Temperature T: z = clamp(l / T). T < SAMPLE_MIN_TEMPERATURE or beta = 0
 *     is greedy: z = clamp(l), the answer is the first id in the order (z
 *     descending, id ascending), and 4 to 7 are skipped. clamp is to
 *     +-SAMPLE_MAX_Z.
 *     From here w[i] = sample_weight(z[i] - max z), an integer: the
 *     probability up to a common factor, 2^40 for the largest.
 *  4. top_k in 1..V-1: keeps the first top_k ids in the order (z descending,
 *     id ascending).
 *  5. top_p < 1: among the kept, in the same order, keeps an id while the sum
 *     of w before it, as a double, is < (double)top_p * (double)(sum of w of
 *     all that top_k kept). The first one always stays.
 *  6. min_p > 0: keeps ids with (double)w >= (double)min_p * 2^40. The first
 *     one always stays.
 *  7. Among the kept: the id with the largest fma(z, beta, noise), noise =
 *     sample_noise(seed, pos, id); ties take the lowest id. This is Gumbel-max:
 *     with beta = 1 the id is distributed as the softmax of z over the kept.
 *
 * Logprobs are raw: of the l of step 0, before penalties, mask, temperature:
 *         logprob[i] = sample_logprob(l[i], max l, sample_log_total(sum
 *                      sample_weight(l[i] - max l)))
 * Alternatives come in the order (l descending, id ascending). A `given` id is
 * only scored: steps 1 to 7 are skipped.
 *
 * With of_drawn, and an id that was drawn, logprobs are of what it was drawn
 * from: the same formula over z instead of l, sum and alternatives over what
 * steps 2 to 6 kept (greedy: what step 2 left, z = clamp(l)). beta has no part
 * in them. Alternatives are fewer where fewer ids were kept.
 *
 * The noise. Philox4x32-10 (Salmon et al. 2011) with key = seed (low word
 * first) and counter = (id / 4, pos, 0, SAMPLE_DOMAIN); the word of id is
 * number id % 4. So noise is a function of (seed, position, id) alone. The word
 * x stands for the uniform u = (x + 1/2) / 2^32, and noise = -log(-log(u)),
 * computed so that the half of u near 1, where the large noise comes from,
 * keeps all 32 bits: from d = 1 - u = (~x + 1/2) / 2^32 as log1p(-d). u stays
 * strictly inside (0, 1) in this arithmetic: noise lies within (-3.2, 22.9).
 *
 * Functions are static inline; a .cu file sets SAMPLE_FN. Legal C17 and C++17.
 */

#include <math.h>
#include <stdint.h>

#include "kernels/quant.h"

#ifndef SAMPLE_FN
#define SAMPLE_FN static inline
#endif

#define SAMPLE_MIN_TEMPERATURE 1e-4f
#define SAMPLE_MAX_Z 1e30f
#define SAMPLE_DOMAIN 0x53544550u  /* other uses of a seed take another */
#define SAMPLE_ONE 1099511627776.0 /* 2^40: the largest weight */

/* Four words of Philox4x32-10. */
SAMPLE_FN void sample_philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0];
        uint64_t b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t c0 = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        uint32_t c2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;

        c[0] = c0;
        c[1] = (uint32_t)b;
        c[2] = c2;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

SAMPLE_FN uint32_t sample_word(uint64_t seed, int32_t pos, int32_t id)
{
    uint32_t c[4];

    c[0] = (uint32_t)id >> 2;
    c[1] = (uint32_t)pos;
    c[2] = 0;
    c[3] = SAMPLE_DOMAIN;
    sample_philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    return c[id & 3];
}

/* log(2^e * (1 + f)), f in [sqrt(1/2) - 1, sqrt(2) - 1]: f - f^2/2 + f^3 P(f),
 * P minimax of degree 7 (6e-9 relative before rounding). */
SAMPLE_FN float sample_log_parts(float e, float f)
{
    float q = -0.07865443f;

    q = fmaf(q, f, 0.12879188f);
    q = fmaf(q, f, -0.13125293f);
    q = fmaf(q, f, 0.14181422f);
    q = fmaf(q, f, -0.16624970f);
    q = fmaf(q, f, 0.20002282f);
    q = fmaf(q, f, -0.25000797f);
    q = fmaf(q, f, 0.33333317f);
    q = fmaf(q, f, -0.5f);
    q = fmaf(q, f * f, f);
    q = fmaf(e, -2.1219444e-4f, q); /* ln 2 = 0.693359375 - 2.1219444e-4 */
    return fmaf(e, 0.693359375f, q);
}

/* x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); x positive, normal. */
SAMPLE_FN float sample_split(float x, float *ret_f)
{
    /* 0x3f3504f3 is sqrt(1/2), rounded down; its exponent is -1. */
    uint32_t u = quant_to_bits(x) - 0x3f3504f3u;
    int32_t e = (int32_t)u >> 23;

    *ret_f = quant_from_bits((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    return (float)e;
}

/* Natural logarithm of a positive, normal x. */
SAMPLE_FN float sample_log(float x)
{
    float f, e = sample_split(x, &f);

    return sample_log_parts(e, f);
}

/* -log(u), u = (x + 1/2) / 2^32: exponentially distributed, in [2^-33, 22.9].
 */
SAMPLE_FN float sample_exponential(uint32_t x)
{
    uint32_t upper = x >> 31;
    /* The nearer end of (0, 1): u itself, or d = 1 - u. */
    float near = ((float)(upper ? ~x : x) + 0.5f) * 2.3283064365386963e-10f;
    float f, e = sample_split(upper ? 1.0f - near : near, &f);

    if (upper && e == 0.0f) {
        f = -near; /* all of its bits, where 1 - d would drop them */
    }
    return -sample_log_parts(e, f);
}

SAMPLE_FN float sample_noise(uint64_t seed, int32_t pos, int32_t id)
{
    return -sample_log(sample_exponential(sample_word(seed, pos, id)));
}

/* exp(x) for -87 <= x <= 0 (less counts as -87); exactly 1 at 0. */
SAMPLE_FN float sample_exp(float x)
{
    float y = x < -87.0f ? -87.0f : x;
    float t = fmaf(y, 1.44269504f, 12582912.0f); /* 1.5 * 2^23: rounds */
    float n = t - 12582912.0f;
    float r = fmaf(n, -0.693359375f, y);
    float q = 0.0013950337f;

    r = fmaf(n, 2.1219444e-4f, r);
    q = fmaf(q, r, 0.0083688219f);
    q = fmaf(q, r, 0.041666209f);
    q = fmaf(q, r, 0.16666520f);
    q = fmaf(q, r, 0.5f);
    q = fmaf(q, r, 1.0f);
    q = fmaf(q, r, 1.0f);
    return quant_from_bits(quant_to_bits(q) + (quant_to_bits(t) << 23));
}

/* exp(x) as an integer of 2^40ths, to nearest, ties to even; x <= 0. Sums of
 * up to 2^23 of them fit. */
SAMPLE_FN uint64_t sample_weight(float x)
{
    return (uint64_t)llrint((double)sample_exp(x) * SAMPLE_ONE);
}

/* log of a sum of weights in units of the largest: total >= 2^40. */
SAMPLE_FN float sample_log_total(uint64_t total)
{
    return sample_log((float)total * 9.094947017729282e-13f);
}

/* A logprob, never -0: of equal logits some may be 0 and some -0, and which of
 * them the largest is depends on how it was looked for. */
SAMPLE_FN float sample_logprob(float l, float max, float log_total)
{
    return ((l - max) - log_total) + 0.0f;
}

SAMPLE_FN float sample_clamp(float z)
{
    return z > SAMPLE_MAX_Z    ? SAMPLE_MAX_Z
           : z < -SAMPLE_MAX_Z ? -SAMPLE_MAX_Z
                               : z;
}

/* Step 1 of the order above, for one listed id. */
SAMPLE_FN float sample_penalise(float l, int32_t count, float bias,
                                float repetition, float presence,
                                float frequency)
{
    if (count >= 0) {
        if (repetition != 1.0f) {
            l = l > 0.0f ? l / repetition : l * repetition;
        }
        l = fmaf(-frequency, (float)count, l);
        if (count > 0) {
            l = l - presence;
        }
    }
    return bias != 0.0f ? l + bias : l;
}

#endif
