/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

#include "tests/test.h"

#include "daemon/sched/faults.h"

/* A cold start faults in its first steps; a minute later that is no news. */
static void test_a_cold_start_is_not_warned_about(void **state)
{
    struct faults f = {0};
    char line[256];

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        assert_false(faults_add(&f, 1 + i * 100000, i < 4 ? 1000 : 0, line,
                                sizeof(line)));
    }
    assert_int_equal(f.total, 4000);
}

static void test_steady_faults_are_told_once_a_minute(void **state)
{
    struct faults f = {0};
    char line[256];
    int n = 0;

    (void)state;
    for (uint64_t i = 0; i <= 1800; i++) { /* three minutes */
        if (faults_add(&f, 1 + i * 100000, 10, line, sizeof(line))) {
            n++;
            assert_non_null(strstr(line, " major page faults in the last "));
            assert_non_null(strstr(line, "weights = lock"));
        }
    }
    assert_int_equal(n, 3);
    assert_int_equal(f.total, 18010);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cold_start_is_not_warned_about),
        cmocka_unit_test(test_steady_faults_are_told_once_a_minute),
    };

    return test_main(tests, NULL, NULL);
}
