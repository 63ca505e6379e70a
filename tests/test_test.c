/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The helpers of test.h themselves: a comparison that could not fail would
 * make every golden test worthless. One thread. Where a helper must fail, it
 * is run in a child process and its exit is read.
 */
#include "tests/test.h"

#include <sys/wait.h>

static void test_errors_are_relative_to_the_whole_tensor(void **state)
{
    const float g[4] = {3, 0, -4, 0};
    const float x[4] = {3, 0.5f, -4, 0};
    struct test_error e = test_tensor_error(x, g, 4);

    (void)state;
    assert_true(fabs(e.fro - 0.1) < 1e-12);
    assert_true(fabs(e.max - 0.125) < 1e-12);
    assert_int_equal(e.i_max, 1);
    assert_int_equal(e.i_bad, 4);
}

static void test_zero_reference_allows_only_zero(void **state)
{
    const float g[2] = {0, 0};
    const float x[2] = {0, 1e-30f};

    (void)state;
    assert_true(test_tensor_error(g, g, 2).fro == 0);
    assert_true(isinf(test_tensor_error(x, g, 2).fro));
    assert_true(isinf(test_tensor_error(x, g, 2).max));
}

static void test_nan_and_infinity_must_match(void **state)
{
    const float g[3] = {1, NAN, INFINITY};
    const float nan_lost[3] = {1, 2, INFINITY};
    const float nan_new[3] = {NAN, NAN, INFINITY};
    const float sign[3] = {1, NAN, -INFINITY};

    (void)state;
    assert_int_equal(test_tensor_error(g, g, 3).i_bad, 3);
    assert_int_equal(test_tensor_error(nan_lost, g, 3).i_bad, 1);
    assert_int_equal(test_tensor_error(nan_new, g, 3).i_bad, 0);
    assert_int_equal(test_tensor_error(sign, g, 3).i_bad, 2);
}

static void fails_outside_tolerance(void **state)
{
    const float g[2] = {1, 1};
    const float x[2] = {1, 1.01f};

    (void)state;
    assert_tensor_near("planted", x, g, 2, 1e-3, 1);
}

static void fails_outside_largest(void **state)
{
    const float g[2] = {1, 1};
    const float x[2] = {1, 1.01f};

    (void)state;
    assert_tensor_near("planted", x, g, 2, 1, 1e-3);
}

static void fails_on_new_nan(void **state)
{
    const float g[2] = {1, 1};
    const float x[2] = {1, NAN};

    (void)state;
    assert_tensor_near("planted", x, g, 2, 1, 1);
}

static void fails_on_one_bit(void **state)
{
    const float g[2] = {1, 0.0f};
    const float x[2] = {1, -0.0f};

    (void)state;
    assert_tensor_same("planted", x, g, 2);
}

static void passes_inside_tolerance(void **state)
{
    const float g[2] = {1, 1};
    const float x[2] = {1, 1.01f};

    (void)state;
    assert_tensor_near("near", x, g, 2, 8e-3, 2e-2);
    assert_tensor_same("same", g, g, 2);
}

static void skips(void **state)
{
    (void)state;
    test_skip("REQUIRE_NOTHING", "planted");
}

static void skips_unless_required(void **state)
{
    (void)state;
    setenv("REQUIRE_NOTHING", "1", 1);
    test_skip("REQUIRE_NOTHING", "planted");
}

/* Exit status of a program made of one test, its output thrown away. */
static int run_alone(void (*fn)(void **))
{
    const struct CMUnitTest tests[] = {{"planted", fn, NULL, NULL, NULL}};
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL ||
            freopen("/dev/null", "w", stderr) == NULL) {
            _exit(99);
        }
        test_n_skipped = 0;
        _exit(test_main(tests, NULL, NULL));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_assertions_fail_when_they_should(void **state)
{
    (void)state;
    assert_int_equal(run_alone(fails_outside_tolerance), 1);
    assert_int_equal(run_alone(fails_outside_largest), 1);
    assert_int_equal(run_alone(fails_on_new_nan), 1);
    assert_int_equal(run_alone(fails_on_one_bit), 1);
    assert_int_equal(run_alone(passes_inside_tolerance), 0);
}

static void test_program_of_skips_is_no_success(void **state)
{
    (void)state;
    assert_int_equal(run_alone(skips), 77);
    assert_int_equal(run_alone(skips_unless_required), 1);
}

static void test_bundled_data_is_found(void **state)
{
    (void)state;
    assert_int_equal(access(test_data("step-tiny/config.json"), R_OK), 0);
    assert_int_equal(
        access(test_data_built("micro/micro-mxfp4/config.json"), R_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_are_relative_to_the_whole_tensor),
        cmocka_unit_test(test_zero_reference_allows_only_zero),
        cmocka_unit_test(test_nan_and_infinity_must_match),
        cmocka_unit_test(test_assertions_fail_when_they_should),
        cmocka_unit_test(test_program_of_skips_is_no_success),
        cmocka_unit_test(test_bundled_data_is_found),
    };

    return test_main(tests, NULL, NULL);
}
