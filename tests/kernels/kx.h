/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the tests of cpu against ref share, on top of kt.h: the paths that run
 * here, and the three promises every op keeps whatever it computes. An op under
 * test is a function that runs it for some rows of a fixed input and gives the
 * bytes of those rows' results back.
 */
#ifndef TESTS_KERNELS_KX_H
#define TESTS_KERNELS_KX_H

#include "tests/kernels/kt.h"

/* Rows row[0] .. row[n - 1] of the input, in this order, through one call;
 * row_bytes of result each to out. */
typedef void kx_run(struct kt *t, const void *input, const int *row, int n,
                    uint8_t *out);

/* cpu's paths, one thread each: calls fn for every one that runs here. */
static inline void kx_each_path(void (*fn)(const struct kt_backend *b))
{
    int n = 0;

    for (int i = 0; i < kt_n_backends(); i++) {
        if (kt_backend(i)->n_threads == 1) {
            fn(kt_backend(i));
            n++;
        }
    }
    if (n == 0) {
        test_skip(NULL, "no path of the cpu backend opens here");
    }
}

static inline struct kt *kx_open(const struct kt_backend *b, int n_threads)
{
    struct kt_backend with = *b;

    with.n_threads = n_threads;
    return kt_open(&with);
}

#define KX_BATCH 33

static inline void kx_same(const char *what, const uint8_t *a, const uint8_t *b,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (a[i] != b[i]) {
            print_error("%s: byte %zu of %zu is %02x, expected %02x\n", what, i,
                        n, a[i], b[i]);
            fail();
        }
    }
}

/* The same input twice, a row alone against the row among KX_BATCH, rows in
 * another order, and 1, 2 and 3 threads: all bit for bit. */
static inline void kx_promises(const struct kt_backend *b, kx_run *run,
                               const void *input, size_t row_bytes)
{
    size_t all = row_bytes * KX_BATCH;
    uint8_t *base = malloc(all), *other = malloc(all);
    int order[KX_BATCH], mixed[KX_BATCH];
    struct kt *t = kx_open(b, 1);

    assert_non_null(base);
    assert_non_null(other);
    for (int i = 0; i < KX_BATCH; i++) {
        order[i] = i;
        mixed[i] = i * 20 % KX_BATCH; /* 20 and 33 share no factor */
    }
    run(t, input, order, KX_BATCH, base);
    run(t, input, order, KX_BATCH, other);
    kx_same("again", other, base, all);
    for (int i = 0; i < KX_BATCH; i += 8) {
        run(t, input, &order[i], 1, other);
        kx_same("alone", other, base + row_bytes * (size_t)i, row_bytes);
    }
    for (int n = 2; n < KX_BATCH; n += n < 18 ? 1 : 7) {
        run(t, input, order, n, other);
        kx_same("in fewer", other, base, row_bytes * (size_t)n);
    }
    run(t, input, mixed, KX_BATCH, other);
    for (int i = 0; i < KX_BATCH; i++) {
        kx_same("in another order", other + row_bytes * (size_t)i,
                base + row_bytes * (size_t)mixed[i], row_bytes);
    }
    kt_close(t);
    for (int n_threads = 2; n_threads <= 3; n_threads++) {
        t = kx_open(b, n_threads);
        run(t, input, order, KX_BATCH, other);
        kx_same("more threads", other, base, all);
        kt_close(t);
    }
    free(base);
    free(other);
}

/* Rows of src, chosen. */
static inline void *kx_pick(const void *src, size_t row_bytes, const int *row,
                            int n)
{
    uint8_t *p = malloc(row_bytes * (size_t)n);

    assert_non_null(p);
    for (int i = 0; i < n; i++) {
        memcpy(p + row_bytes * (size_t)i,
               (const uint8_t *)src + row_bytes * (size_t)row[i], row_bytes);
    }
    return p;
}

/* kt_put of chosen rows. */
static inline struct kern_ptr kx_put_rows(struct kt *t, const void *src,
                                          size_t row_bytes, const int *row,
                                          int n)
{
    void *p = kx_pick(src, row_bytes, row, n);
    struct kern_ptr at = kt_put(t, p, row_bytes * (size_t)n);

    free(p);
    return at;
}

#endif
