/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * BF16 in 12 bits (kernels/compact.h): nothing is lost on the way there and
 * back, and every op gives the bits that it gives for the BF16 weights.
 */
#include <errno.h>

#include "kernels/compact.h"
#include "tests/kernels/kx.h"

/* ---- there and back ---- */

/* Packs a row and compares what comes back; returns the escapes. */
static int round_trip(const uint16_t *row, int cols, unsigned base)
{
    uint8_t *packed = malloc(compact_row_bytes(cols));
    uint32_t *escape = malloc(sizeof(*escape) * (size_t)cols);
    uint16_t *back = calloc(COMPACT_MAX_COLS + COMPACT_COLS, sizeof(*back));
    int n;

    assert_non_null(packed);
    assert_non_null(escape);
    assert_non_null(back);
    n = compact_pack(packed, row, cols, base, escape);
    for (int c = 0; c < cols; c += COMPACT_COLS) {
        compact_unpack(back + c, packed + c / COMPACT_COLS * COMPACT_BLOCK,
                       base);
    }
    for (int i = 0; i < n; i++) {
        int col = compact_col(escape[i]);

        assert_true(col < cols && (i == 0 || col > compact_col(escape[i - 1])));
        assert_int_equal(back[col], 0);
        back[col] = (uint16_t)escape[i];
    }
    assert_memory_equal(back, row, sizeof(*row) * (size_t)cols);
    free(packed);
    free(escape);
    free(back);
    return n;
}

/* All 65536 patterns (a row of at most COMPACT_MAX_COLS: in two), zeros of both
 * signs, subnormals, infinities and NaNs among them, under every base. */
static void test_every_pattern_under_every_base(void **state)
{
    static uint16_t all[65536];

    (void)state;
    for (int i = 0; i < 65536; i++) {
        all[i] = (uint16_t)(i * 40503u); /* odd: each pattern once */
    }
    for (unsigned base = 0; base <= 240; base++) {
        int n = round_trip(all, 32768, base);

        n += round_trip(all + 32768, 32768, base);
        /* 15 exponents of 256 patterns each, and two zeros, need no escape */
        assert_int_equal(n, 65536 - 15 * 256 - 2);
    }
}

static void test_ragged_rows(void **state)
{
    uint16_t row[300];

    (void)state;
    kt_fill_bf16(row, 300, 3);
    for (int cols = 1; cols <= 300; cols++) {
        round_trip(row, cols, compact_choose(row, cols));
    }
}

static void test_the_base_with_the_fewest_escapes(void **state)
{
    uint16_t row[100];

    (void)state;
    for (int i = 0; i < 100; i++) {
        row[i] = (uint16_t)((100 + i % 15) << 7 | i);
    }
    row[7] = 0x7f80; /* an infinity does not draw the window to itself */
    row[8] = 0x0001; /* nor does a subnormal */
    row[9] = 0x8000; /* a zero costs nothing */
    assert_int_equal(compact_choose(row, 100), 99);
    assert_int_equal(round_trip(row, 100, 99), 2);
}

/* The layout is a file format and what a device reads: it must not drift. */
static void test_the_layout(void **state)
{
    uint16_t row[130];
    uint8_t packed[2 * COMPACT_BLOCK];
    uint32_t escape[130];
    bool seen[64] = {false};

    (void)state;
    for (int c = 0; c < 64; c++) {
        assert_false(seen[compact_at(c)]);
        seen[compact_at(c)] = true;
    }
    memset(row, 0, sizeof(row));
    row[9] = 0xbfc0;   /* -1.5: exponent 127 */
    row[97] = 0x4049;  /* 3.14: exponent 128 */
    row[129] = 0x3f80; /* 1 */
    assert_int_equal(compact_row_bytes(130), 384);
    assert_int_equal(compact_pack(packed, row, 130, 120, escape), 0);
    assert_int_equal(packed[17], 0x07);      /* column 9, low half */
    assert_int_equal(packed[64 + 17], 0xc0); /* sign, mantissa */
    assert_int_equal(packed[9], 0x80);       /* column 97, high half */
    assert_int_equal(packed[64 + 64 + 9], 0x49);
    assert_int_equal(packed[192 + 1], 0x07); /* column 129 */
    assert_int_equal(packed[192 + 64 + 1], 0x00);
}

/* ---- the same bits from every op ---- */

enum { MOST_ROWS = 33 };

/* Weights about 1 with escapes here and there: far larger and smaller ones. */
static void fill(uint16_t *w, size_t n, uint64_t seed, int one_in)
{
    kt_fill_bf16(w, n, seed);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = kt_random(&seed);

        if (r % (uint64_t)one_in == 0) {
            w[i] = (uint16_t)((w[i] & 0x807f) | (r >> 40) % 140 << 7);
        } else if (r % 31 == 0) {
            w[i] &= 0x8000;
        }
    }
}

static void same_linear(const struct kt_backend *b, int rows, int cols,
                        int one_in)
{
    size_t n_w = (size_t)rows * (size_t)cols;
    size_t n_y = (size_t)rows * MOST_ROWS;
    uint16_t *w = malloc(sizeof(*w) * n_w);
    uint16_t *x = malloc(sizeof(*x) * MOST_ROWS * (size_t)cols);
    float *y[2] = {malloc(sizeof(float) * n_y), malloc(sizeof(float) * n_y)};
    const void *plane[] = {w};

    assert_non_null(w);
    assert_non_null(x);
    fill(w, n_w, (uint64_t)rows + 7, one_in);
    kt_fill_bf16(x, (size_t)MOST_ROWS * (size_t)cols, 5);
    for (int n = 1; n <= MOST_ROWS; n += n < 18 ? 1 : 15) {
        struct kt *t = kt_open(b);
        struct kern_linear_args a = {
            .cols = cols, .x_stride = cols, .n_parts = 2};
        size_t bytes = sizeof(float) * (size_t)n * (size_t)rows;

        a.rows = kt_rows(t, n, n);
        a.x = kt_put(t, x, sizeof(*x) * (size_t)n * (size_t)cols);
        a.part[0].w = kt_weight_of(t, KERN_BF16, rows, cols, plane);
        a.part[1].w = kt_compact(t, rows, cols, w);
        for (int p = 0; p < 2; p++) {
            a.part[p].out = kt_put(t, NULL, bytes);
            a.part[p].out_stride = rows;
        }
        kt_ok(t, kern_linear(t->k, &a));
        for (int p = 0; p < 2; p++) {
            kt_get(t, y[p], a.part[p].out, bytes);
        }
        kx_same(t->name, (uint8_t *)y[1], (uint8_t *)y[0], bytes);
        kt_close(t);
    }
    free(w);
    free(x);
    free(y[0]);
    free(y[1]);
}

static void linears(const struct kt_backend *b)
{
    same_linear(b, 37, 416, 50); /* most blocks have escapes */
    same_linear(b, 64, 2304, 4000);
    same_linear(b, 5, 97, 10); /* no whole block */
    same_linear(b, 33, 130, 100000);
}

static void test_linear_gives_the_same_bits(void **state)
{
    (void)state;
    kx_each_path(linears);
}

/* Every pattern through embed, which widens and computes nothing. */
static void embeds(const struct kt_backend *b)
{
    enum { ROWS = 256, COLS = 256 };
    static uint16_t w[ROWS * COLS];
    static float got[ROWS * COLS];
    int32_t ids[ROWS];
    struct kern_embed_args a;
    struct kt *t;

    t = kt_open(b);
    for (int i = 0; i < ROWS * COLS; i++) {
        w[i] = (uint16_t)(i * 40503u);
    }
    for (int i = 0; i < ROWS; i++) {
        ids[i] = ROWS - 1 - i;
    }
    a.rows = kt_rows(t, ROWS, ROWS);
    a.table = kt_compact(t, ROWS, COLS, w);
    a.ids = kt_put(t, ids, sizeof(ids));
    a.out = kt_put(t, NULL, sizeof(got));
    kt_ok(t, kern_embed(t->k, &a));
    kt_get(t, got, a.out, sizeof(got));
    for (int i = 0; i < ROWS * COLS; i++) {
        int from = (ROWS - 1 - i / COLS) * COLS + i % COLS;
        uint32_t bits;

        memcpy(&bits, &got[i], sizeof(bits));
        assert_int_equal(bits, (uint32_t)w[from] << 16);
    }
    kt_close(t);
}

static void test_embed_gives_the_same_bits(void **state)
{
    (void)state;
    kx_each_path(embeds);
}

/* ---- promises, bytes, refusals ---- */

struct input {
    int rows, cols;
    uint16_t *x;
};

static void run_rows(struct kt *t, const void *input, const int *row, int n,
                     uint8_t *out)
{
    const struct input *in = input;
    struct kern_linear_args a = {
        .cols = in->cols, .x_stride = in->cols, .n_parts = 1};
    size_t bytes = sizeof(float) * (size_t)in->rows * (size_t)n;

    a.rows = kt_rows(t, n, n);
    a.x = kx_put_rows(t, in->x, sizeof(*in->x) * (size_t)in->cols, row, n);
    a.part[0].w = kt_weight(t, KERN_COMPACT, 0, in->rows, in->cols, 11);
    a.part[0].out = kt_put(t, NULL, bytes);
    a.part[0].out_stride = in->rows;
    kt_ok(t, kern_linear(t->k, &a));
    kt_get(t, out, a.part[0].out, bytes);
}

static void promises(const struct kt_backend *b)
{
    struct input in = {41, 2208, NULL};
    size_t n = (size_t)KX_BATCH * 2208;

    in.x = malloc(n * sizeof(*in.x));
    assert_non_null(in.x);
    kt_fill_bf16(in.x, n, 23);
    kx_promises(b, run_rows, &in, sizeof(float) * 41);
    free(in.x);
}

static void test_a_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

static void bytes_read(const struct kt_backend *b)
{
    static const int n_rows[] = {1, 8, 33};

    for (size_t i = 0; i < 3; i++) {
        struct kt *t = kt_open(b);
        struct kern_linear_args a = {
            .cols = 256, .x_stride = 256, .n_parts = 1};
        float out[1];

        a.rows = kt_rows(t, n_rows[i], n_rows[i]);
        a.x = kt_put(t, NULL, (size_t)n_rows[i] * 512);
        a.part[0].w = kt_weight(t, KERN_COMPACT, 0, 70, 256, 1);
        a.part[0].out = kt_put(t, NULL, (size_t)n_rows[i] * 70 * 4);
        a.part[0].out_stride = 70;
        kt_ok(t, kern_linear(t->k, &a));
        kt_get(t, out, a.part[0].out, 4); /* a device counts until then */
        assert_int_equal(t->k->stats.weight_bytes, 70 * (2 * 192 + 4));
        kt_close(t);
    }
}

static void test_12_bits_a_weight_are_read(void **state)
{
    (void)state;
    kx_each_path(bytes_read);
}

static void test_shapes_that_cannot_be(void **state)
{
    struct kt *t = kt_open(&kt_ref);
    struct kern_weight *w = NULL;
    struct kern_weight_desc d = {KERN_COMPACT,    2, COMPACT_MAX_COLS + 1, 0,
                                 KERN_SHARD_NONE, 1};

    (void)state;
    assert_int_equal(kern_weight_new(t->k, &d, &w), -EINVAL);
    d.cols = COMPACT_MAX_COLS;
    d.escapes = 0; /* not even its end */
    assert_int_equal(kern_weight_new(t->k, &d, &w), -EINVAL);
    d.escapes = 1;
    d.experts = 2;
    assert_int_equal(kern_weight_new(t->k, &d, &w), -EINVAL);
    d.experts = 0;
    assert_int_equal(kern_weight_new(t->k, &d, &w), 0);
    kern_weight_free(t->k, w);
    kt_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern_under_every_base),
        cmocka_unit_test(test_ragged_rows),
        cmocka_unit_test(test_the_base_with_the_fewest_escapes),
        cmocka_unit_test(test_the_layout),
        cmocka_unit_test(test_linear_gives_the_same_bits),
        cmocka_unit_test(test_embed_gives_the_same_bits),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
        cmocka_unit_test(test_12_bits_a_weight_are_read),
        cmocka_unit_test(test_shapes_that_cannot_be),
    };

    return test_main(tests, NULL, NULL);
}
