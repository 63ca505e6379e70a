/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What cmocka lacks: near-equality of tensors, a skip that says why and that
 * the test driver sees, and the way to the test data. A test program is
 *
 *     static void test_short_frame_waits(void **state) { ... }
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest tests[] = {
 *             cmocka_unit_test(test_short_frame_waits),
 *         };
 *         return test_main(tests, NULL, NULL);
 *     }
 */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/paths.h"

/* ---- running and skipping ---------------------------------------------- */

/* Tests of this program that test_skip() ended. */
static size_t test_n_skipped;

/* Ends the running test as skipped and prints the reason. Where the variable
 * named by `require` (REQUIRE_GPU, REQUIRE_MODEL, or NULL) is set to 1, a
 * missing part is a failure: a lab machine cannot pass by skipping. */
#define test_skip(require, ...) test_skip_(require, __FILE__, __VA_ARGS__)

__attribute__((format(printf, 3, 4))) static inline void test_skip_(
    const char *require, const char *file, const char *fmt, ...)
{
    const char *must = require != NULL ? getenv(require) : NULL;
    char reason[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(reason, sizeof(reason), fmt, ap);
    va_end(ap);
    if (must != NULL && strcmp(must, "1") == 0) {
        fail_msg("%s is set, but: %s", require, reason);
    }
    printf("SKIP: %s: %s\n", file, reason);
    fflush(stdout);
    test_n_skipped++;
    skip();
}

/* Runs a group; returns what main returns: 1 where anything failed, 77 where
 * every test skipped itself (cmocka alone would call that success). */
#define test_main(tests, setup, teardown)                      \
    test_exit_(cmocka_run_group_tests(tests, setup, teardown), \
               sizeof(tests) / sizeof((tests)[0]))

static inline int test_exit_(int n_failed, size_t n_tests)
{
    if (n_failed != 0) {
        return 1;
    }
    return test_n_skipped == n_tests ? 77 : 0;
}

/* ---- paths --------------------------------------------------------------
 * Each returns a pointer into a small ring of static buffers: good until the
 * eighth call after it. Not for threads. */

static inline const char *test_path_(const char *env, const char *fallback,
                                     const char *name)
{
    static char ring[8][1024];
    static unsigned i_ring;
    char *path = ring[i_ring++ % 8];
    const char *root = getenv(env);
    int n;

    n = snprintf(path, sizeof(ring[0]), "%s/%s", root != NULL ? root : fallback,
                 name);
    assert_in_range(n, 1, sizeof(ring[0]) - 1);
    return path;
}

/* A file of tests/data in the source tree: test_data("step-tiny"). */
static inline const char *test_data(const char *name)
{
    return test_path_("TEST_DATA", TEST_SRCDIR "/tests/data", name);
}

/* A file unpacked from an archive of tests/data into the build tree:
 * test_data_built("micro/micro-mxfp4"), ("real-tokenizer/tokenizer.json").
 * They come from `make tests/data/unpacked.stamp`. */
static inline const char *test_data_built(const char *name)
{
    const char *path =
        test_path_("TEST_DATA_BUILT", TEST_BUILDDIR "/tests/data", name);

    if (access(path, R_OK) != 0) {
        fail_msg("%s is missing: make tests/data/unpacked.stamp", path);
    }
    return path;
}

/* A file of ../shared beside the source tree, which not every checkout has:
 * skips the running test where it is absent. */
static inline const char *test_shared(const char *name)
{
    const char *path =
        test_path_("TEST_SHARED", TEST_SRCDIR "/../shared", name);

    if (access(path, R_OK) != 0) {
        test_skip(NULL, "../shared/%s is not there", name);
    }
    return path;
}

/* ---- tensors ------------------------------------------------------------ */

/* The two errors of tests/data/oracle/README.md, over a whole tensor. */
struct test_error {
    double fro;   /* ||x - g||_F / ||g||_F                             */
    double max;   /* max |x - g| / max |g|                             */
    size_t i_max; /* where the largest |x - g| is                      */
    size_t i_bad; /* first place where one side is not finite and the  */
                  /* other differs from it; n where there is none      */
};

/* x and g hold n values. Where g is all zero, both errors are 0 for an all
 * zero x and infinite for any other. Infinities and NaNs must stand in the
 * same places on both sides and are left out of the errors. */
static inline struct test_error test_tensor_error(const float *x,
                                                  const float *g, size_t n)
{
    struct test_error e = {.i_bad = n};
    double sum_d = 0, sum_g = 0, max_d = 0, max_g = 0;

    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)g[i];

        if (!isfinite(x[i]) || !isfinite(g[i])) {
            int same = isnan(x[i]) ? isnan(g[i]) : x[i] == g[i];

            if (!same && e.i_bad == n) {
                e.i_bad = i;
            }
            continue;
        }
        sum_d += d * d;
        sum_g += (double)g[i] * (double)g[i];
        if (fabs(d) > max_d) {
            max_d = fabs(d);
            e.i_max = i;
        }
        if (fabs((double)g[i]) > max_g) {
            max_g = fabs((double)g[i]);
        }
    }
    e.fro = sum_d == 0 ? 0 : sum_g == 0 ? INFINITY : sqrt(sum_d / sum_g);
    e.max = max_d == 0 ? 0 : max_g == 0 ? INFINITY : max_d / max_g;
    return e;
}

/* Fails where x is further from g than the two tolerances allow. */
#define assert_tensor_near(name, x, g, n, tol_fro, tol_max) \
    test_tensor_near_(name, x, g, n, tol_fro, tol_max, __FILE__, __LINE__)

static inline void test_tensor_near_(const char *name, const float *x,
                                     const float *g, size_t n, double tol_fro,
                                     double tol_max, const char *file, int line)
{
    struct test_error e = test_tensor_error(x, g, n);

    if (e.i_bad != n) {
        print_error("%s: [%zu] is %g, expected %g\n", name, e.i_bad,
                    (double)x[e.i_bad], (double)g[e.i_bad]);
        _fail(file, line);
    }
    if (!(e.fro <= tol_fro) || !(e.max <= tol_max)) {
        print_error("%s: relative error %.3g (allowed %.3g), largest %.3g "
                    "(allowed %.3g) at [%zu]: %g, expected %g\n",
                    name, e.fro, tol_fro, e.max, tol_max, e.i_max,
                    n != 0 ? (double)x[e.i_max] : 0.0,
                    n != 0 ? (double)g[e.i_max] : 0.0);
        _fail(file, line);
    }
}

/* Fails where the bits of x and g differ anywhere (NaNs included). */
#define assert_tensor_same(name, x, g, n) \
    test_tensor_same_(name, x, g, n, __FILE__, __LINE__)

static inline void test_tensor_same_(const char *name, const float *x,
                                     const float *g, size_t n, const char *file,
                                     int line)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&x[i], &g[i], sizeof(x[i])) != 0) {
            print_error("%s: [%zu] is %a, expected %a\n", name, i, (double)x[i],
                        (double)g[i]);
            _fail(file, line);
        }
    }
}

#endif
