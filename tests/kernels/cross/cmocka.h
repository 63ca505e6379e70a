/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * As much of cmocka as the kernels' tests use, for a target that has none
 * (check_aarch64.sh): the first failure ends the program.
 */
#ifndef TESTS_KERNELS_CROSS_CMOCKA_H
#define TESTS_KERNELS_CROSS_CMOCKA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(f) \
    {                       \
#f, f               \
    }

#define print_error(...) fprintf(stderr, __VA_ARGS__)

_Noreturn static inline void _fail(const char *file, int line)
{
    fprintf(stderr, "%s:%d: failed\n", file, line);
    fflush(NULL);
    abort();
}

#define fail() _fail(__FILE__, __LINE__)
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), fail())

static int cmocka_skipped_;

#define skip()               \
    do {                     \
        cmocka_skipped_ = 1; \
        return;              \
    } while (0)

#define cmocka_check_(ok)                                \
    do {                                                 \
        if (!(ok)) {                                     \
            fail_msg("%s: expected: %s", __func__, #ok); \
        }                                                \
    } while (0)

#define assert_true(x) cmocka_check_(x)
#define assert_false(x) cmocka_check_(!(x))
#define assert_null(p) cmocka_check_((p) == NULL)
#define assert_non_null(p) cmocka_check_((p) != NULL)
#define assert_ptr_equal(a, b) cmocka_check_((a) == (b))
#define assert_string_equal(a, b) cmocka_check_(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) cmocka_check_(memcmp(a, b, n) == 0)
#define assert_int_equal(a, b)                                             \
    do {                                                                   \
        intmax_t a_ = (intmax_t)(a), b_ = (intmax_t)(b);                   \
                                                                           \
        if (a_ != b_) {                                                    \
            fail_msg("%s: %s is %jd, expected %jd", __func__, #a, a_, b_); \
        }                                                                  \
    } while (0)
#define assert_in_range(x, lo, hi)                     \
    cmocka_check_((uintmax_t)(x) >= (uintmax_t)(lo) && \
                  (uintmax_t)(x) <= (uintmax_t)(hi))

#define cmocka_run_group_tests(tests, setup, teardown)     \
    cmocka_run_(tests, sizeof(tests) / sizeof((tests)[0]), \
                (int (*)(void **))(setup), (int (*)(void **))(teardown))

static inline int cmocka_run_(const struct CMUnitTest *t, size_t n,
                              int (*setup)(void **), int (*teardown)(void **))
{
    void *state = NULL;

    if (setup != NULL && setup(&state) != 0) {
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        t[i].run(&state);
        printf("ok %s\n", t[i].name);
    }
    return teardown != NULL ? teardown(&state) : 0;
}

#endif
