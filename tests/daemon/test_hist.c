/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

#include "tests/test.h"

#include <math.h>

#include "daemon/base/hist.h"

/* As stepd(8) says: 0.0005 s, then 1, 2.5 and 5 of each decade, to 250 s. */
static void test_bounds_are_those_of_the_manual(void **state)
{
    static const double of_decade[] = {1, 2.5, 5};
    double decade = 0.001;

    (void)state;
    assert_true(hist_bound[0] == 0.0005);
    for (int i = 1; i < HIST_N_BOUNDS; i++) {
        double want = decade * of_decade[(i - 1) % 3];

        assert_true(fabs(hist_bound[i] / want - 1) < 1e-9);
        decade *= i % 3 == 0 ? 10 : 1;
    }
    assert_true(hist_bound[HIST_N_BOUNDS - 1] == 250);
}

/* A bound belongs to the bucket below it, as Prometheus' `le` says. */
static void test_times_fall_into_their_buckets(void **state)
{
    struct hist h = {0};

    (void)state;
    for (int i = 0; i < HIST_N_BOUNDS; i++) {
        hist_add(&h, hist_bound[i], 1);
        assert_int_equal(h.n[i], 1);
        hist_add(&h, nextafter(hist_bound[i], 1e9), 1);
        assert_int_equal(h.n[i + 1], 1);
        h.n[i + 1] = 0;
    }
    memset(&h, 0, sizeof(h));
    hist_add(&h, -1, 2);
    hist_add(&h, NAN, 1);
    assert_int_equal(h.n[0], 3);
    hist_add(&h, 0.5, 4);
    assert_int_equal(h.count, 7);
    assert_true(fabs(h.sum - 2) < 1e-12);
}

static void test_quantiles(void **state)
{
    struct hist h = {0};

    (void)state;
    assert_true(hist_quantile(&h, 0.5) == 0);
    hist_add(&h, 0.2, 90); /* 0.1 .. 0.25 */
    hist_add(&h, 7, 10);   /* 5 .. 10 */
    assert_true(fabs(hist_quantile(&h, 0.45) - 0.175) < 1e-9);
    assert_true(fabs(hist_quantile(&h, 0.9) - 0.25) < 1e-9);
    assert_true(fabs(hist_quantile(&h, 0.95) - 7.5) < 1e-9);
    hist_add(&h, 1e6, 1000);
    assert_true(hist_quantile(&h, 0.99) == hist_bound[HIST_N_BOUNDS - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_are_those_of_the_manual),
        cmocka_unit_test(test_times_fall_into_their_buckets),
        cmocka_unit_test(test_quantiles),
    };

    return test_main(tests, NULL, NULL);
}
