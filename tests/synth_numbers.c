/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The numbers of synthetic checkpoints, row by row. Every row has a random
 * stream of its own, seeded by what it is (seed, matrix, expert, plane, row),
 * so a packed matrix and its BF16 twin agree without holding either.
 */
#include "tests/synth.h"

#include <math.h>
#include <string.h>

/* ---- random bits --------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    return mix(*state);
}

static uint64_t hash_text(const char *s)
{
    uint64_t h = 0xcbf29ce484222325ull;

    while (*s != '\0') {
        h = (h ^ (unsigned char)*s++) * 0x100000001b3ull;
    }
    return h;
}

static uint64_t row_seed(const struct synth *s, const struct synth_matrix *m,
                         int expert, int plane, int row)
{
    uint64_t x = mix(s->seed ^ hash_text(m->base));

    x = mix(x + (uint64_t)expert * 4 + (uint64_t)plane);
    return mix(x + (uint64_t)row);
}

/* ---- the known cycle ----------------------------------------------------- */

static int gcd(int a, int b)
{
    while (b != 0) {
        int r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/* A step near the golden section, so that neighbours in the cycle are no
 * neighbours in the table. */
static int cycle_step(int n)
{
    int step = (int)(0.618 * n) + 1;

    while (gcd(step, n) != 1) {
        step++;
    }
    return step;
}

int32_t synth_next(const struct synth *s, int32_t t)
{
    int n = s->vocab - s->first_id;

    return s->first_id +
           (int32_t)(((int64_t)(t - s->first_id) + cycle_step(n)) % n);
}

int32_t synth_before(const struct synth *s, int32_t t)
{
    int n = s->vocab - s->first_id;

    return s->first_id +
           (int32_t)(((int64_t)(t - s->first_id) + n - cycle_step(n) % n) % n);
}

bool synth_drafts(const struct synth *s, int k, int32_t t)
{
    uint64_t h = mix(mix(s->seed + 77u + (uint64_t)k) + (uint64_t)t);

    return (double)(h >> 11) * 0x1p-53 < s->accept[k - 1];
}

/* ---- values -------------------------------------------------------------- */

static uint16_t to_bf16(double x)
{
    float f = (float)x; /* exact for what is asked here, or a rounded norm */
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static void put16(unsigned char *at, uint16_t v)
{
    memcpy(at, &v, sizeof(v));
}

/* The power of two by which numbers of that RMS get the gain asked for. */
static int exponent(const struct synth_matrix *m, double rms)
{
    double want = m->gain / sqrt((double)m->cols);

    return (int)lround(log2(want / rms));
}

/* cols random BF16 numbers, magnitudes over four octaves. */
static void random_bf16(uint64_t seed, int e, int cols, unsigned char *ret)
{
    uint16_t top = (uint16_t)(127 + e);
    uint64_t bits = 0;

    for (int c = 0; c < cols; c++) {
        uint16_t x;

        if (c % 4 == 0) {
            bits = next(&seed);
        }
        x = (uint16_t)(bits >> (c % 4 * 16));
        put16(ret + 2 * c, (uint16_t)((x & 0x8000u) |
                                      ((unsigned)(top - ((x >> 7) & 3u)) << 7) |
                                      (x & 0x7fu)));
    }
}
#define RANDOM_BF16_RMS 0.88

static void random_bytes(uint64_t seed, size_t n, unsigned char *ret)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = next(&seed);

        memcpy(ret + i, &x, n - i < 8 ? n - i : 8);
    }
}

/* ---- packed forms -------------------------------------------------------- */

static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
#define E2M1_RMS 2.93

static double from_e4m3(unsigned b)
{
    double v = ((b >> 3) & 15u) == 0
                   ? (b & 7u) / 8.0 * 0x1p-6
                   : ldexp(1 + (b & 7u) / 8.0, (int)((b >> 3) & 15u) - 7);

    return b & 128u ? -v : v;
}
#define E4M3_RMS 110.0

static void put_f32(unsigned char *at, double x)
{
    float f = (float)x;

    memcpy(at, &f, sizeof(f));
}

/* Plane 0: any byte is a number, but for the NaNs of E4M3. */
static void codes(const struct synth_matrix *m, uint64_t seed,
                  unsigned char *ret)
{
    bool fp8 = m->form == SYNTH_AS_FP8;
    size_t n = (size_t)m->cols / (fp8 ? 1 : 2);

    random_bytes(seed, n, ret);
    for (size_t i = 0; fp8 && i < n; i++) {
        if ((ret[i] & 0x7f) == 0x7f) {
            ret[i] ^= 1;
        }
    }
}

/* Plane 1, blocks of a row: powers of two where they meet many digits. */
static void scales(const struct synth_matrix *m, uint64_t seed, int n,
                   unsigned char *ret)
{
    for (int i = 0; i < n; i++) {
        uint64_t x = next(&seed);

        if (m->form == SYNTH_AS_MXFP4) {
            ret[i] =
                (unsigned char)(127 + exponent(m, E2M1_RMS) + (int)(x % 3) - 1);
        } else if (m->form == SYNTH_AS_FP8) {
            put_f32(ret + 4 * i,
                    ldexp(1, exponent(m, E4M3_RMS) + (int)(x & 1)));
        } else {
            ret[i] = (unsigned char)(0x38 + (x & 7)); /* 1 .. 1.875 */
        }
    }
}

/* Plane 2 of NVFP4. */
static double factor(const struct synth_matrix *m, uint64_t seed)
{
    int e = exponent(m, E2M1_RMS * 1.4) + (int)(next(&seed) & 1);

    return ldexp(1, m->form == SYNTH_AS_NVFP4_DIV ? -e : e);
}

static int block_cols(enum synth_form f)
{
    return f == SYNTH_AS_MXFP4 ? 32 : f == SYNTH_AS_FP8 ? 128 : 16;
}

static int n_blocks(const struct synth_matrix *m)
{
    return (m->cols + block_cols(m->form) - 1) / block_cols(m->form);
}

static void packed_row(const struct synth *s, const struct synth_matrix *m,
                       int expert, int plane, int row, unsigned char *ret)
{
    uint64_t seed = row_seed(s, m, expert, plane, row);

    if (plane == 0) {
        codes(m, seed, ret);
    } else if (plane == 1) {
        scales(m, seed, n_blocks(m), ret);
    } else {
        put_f32(ret, factor(m, seed));
    }
}

/* The numbers of a packed row, as BF16. */
static void twin_row(const struct synth *s, const struct synth_matrix *m,
                     int expert, int row, unsigned char *ret)
{
    unsigned char code[65536], scale[65536];
    bool fp8 = m->form == SYNTH_AS_FP8;
    double f = 1;

    packed_row(s, m, expert, 0, row, code);
    packed_row(s, m, expert, 1, fp8 ? row / 128 : row, scale);
    if (m->form == SYNTH_AS_NVFP4 || m->form == SYNTH_AS_NVFP4_DIV) {
        f = factor(m, row_seed(s, m, expert, 2, 0));
        f = m->form == SYNTH_AS_NVFP4_DIV ? 1 / f : f;
    }
    for (int c = 0; c < m->cols; c++) {
        unsigned nibble = code[c / 2] >> (c % 2 * 4) & 15u;
        int b = c / block_cols(m->form);
        double v;

        if (fp8) {
            float block;

            memcpy(&block, scale + 4 * b, sizeof(block));
            v = from_e4m3(code[c]) * (double)block;
        } else {
            v = (nibble & 8u ? -1 : 1) * e2m1[nibble & 7u] * f;
            v *= m->form == SYNTH_AS_MXFP4 ? ldexp(1, scale[b] - 127)
                                           : from_e4m3(scale[b]);
        }
        put16(ret + 2 * c, to_bf16(v));
    }
}

/* ---- rows by kind -------------------------------------------------------- */

static void embed_row(const struct synth *s, int t, int cols,
                      unsigned char *ret)
{
    random_bf16(mix(mix(s->seed + 5) + (uint64_t)t), 0, cols, ret);
}

static void head_row(const struct synth *s, const struct synth_matrix *m,
                     int row, unsigned char *ret)
{
    uint64_t seed = row_seed(s, m, 0, 0, row);
    int before = row >= s->first_id ? synth_before(s, row) : 0;

    if (!s->cycle) {
        random_bf16(seed, exponent(m, RANDOM_BF16_RMS), m->cols, ret);
    } else if (row < s->first_id) {
        random_bf16(seed, -6, m->cols, ret); /* never the largest */
    } else if (m->module > 0 && !synth_drafts(s, m->module, before)) {
        random_bf16(seed, 0, m->cols, ret); /* some other token wins */
    } else {
        embed_row(s, before, m->cols, ret);
    }
}

/* Embedding half first: with cycle the identity, and little else. */
static void eh_row(const struct synth *s, const struct synth_matrix *m, int row,
                   unsigned char *ret)
{
    struct synth_matrix weak = *m;

    weak.gain = s->cycle ? 0.02 : m->gain;
    random_bf16(row_seed(s, m, 0, 0, row), exponent(&weak, RANDOM_BF16_RMS),
                m->cols, ret);
    if (s->cycle) {
        put16(ret + 2 * row, to_bf16(1));
    }
}

static void norm_row(const struct synth *s, const struct synth_matrix *m,
                     unsigned char *ret)
{
    uint64_t seed = row_seed(s, m, 0, 0, 0);

    /* Gains of 0.97 .. 1.03 leave directions alone; 0.6 .. 1.4 do not. */
    random_bf16(seed, s->cycle ? -6 : -2, m->cols, ret);
}

static void bias_row(const struct synth *s, const struct synth_matrix *m,
                     unsigned char *ret)
{
    uint64_t seed = row_seed(s, m, 0, 0, 0);

    for (int c = 0; c < m->cols; c++) {
        put_f32(ret + 4 * c,
                ((double)(next(&seed) >> 11) * 0x1p-53 - 0.5) * 0.2);
    }
}

static bool as_packed(const struct synth *s, const struct synth_matrix *m)
{
    return m->form > SYNTH_AS_F32 && !s->twin;
}

size_t synth_row_bytes(const struct synth *s, const struct synth_matrix *m,
                       int plane)
{
    size_t cols = (size_t)m->cols, blocks = (size_t)n_blocks(m);

    if (!as_packed(s, m)) {
        return cols * (m->form == SYNTH_AS_F32 ? 4 : 2);
    }
    if (plane == 0) {
        return m->form == SYNTH_AS_FP8 ? cols : cols / 2;
    }
    return plane == 2 ? 4 : m->form == SYNTH_AS_FP8 ? blocks * 4 : blocks;
}

int synth_plane_rows(const struct synth *s, const struct synth_matrix *m,
                     int plane)
{
    if (!as_packed(s, m) || plane == 0) {
        return m->rows;
    }
    return plane == 2                ? 1
           : m->form == SYNTH_AS_FP8 ? (m->rows + 127) / 128
                                     : m->rows;
}

void synth_row(const struct synth *s, const struct synth_matrix *m, int expert,
               int plane, int row, unsigned char *ret)
{
    switch (m->kind) {
    case SYNTH_EMBED:
        embed_row(s, row, m->cols, ret);
        break;
    case SYNTH_HEAD:
        head_row(s, m, row, ret);
        break;
    case SYNTH_EH:
        eh_row(s, m, row, ret);
        break;
    case SYNTH_NORM:
        norm_row(s, m, ret);
        break;
    case SYNTH_BIAS:
        bias_row(s, m, ret);
        break;
    case SYNTH_MATRIX:
        if (as_packed(s, m)) {
            packed_row(s, m, expert, plane, row, ret);
        } else if (m->form != SYNTH_AS_BF16) {
            twin_row(s, m, expert, row, ret);
        } else {
            random_bf16(row_seed(s, m, expert, 0, row),
                        exponent(m, RANDOM_BF16_RMS), m->cols, ret);
        }
        break;
    }
}
