/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the log says of drafting, and when.
 */

#include "tests/test.h"

#include "daemon/sched/spec.h"

#define MINUTE UINT64_C(60000000)

static void test_a_line_a_minute_while_there_are_drafts(void **state)
{
    struct model_stats s = {.drafts = 7, .drafted = 21, .accepted = 9};
    struct spec_log l;
    char line[384] = "";

    (void)state;
    spec_log_init(&l, 5, &s);
    /* of the interval, not of what was before */
    s.drafts += 100;
    s.drafted += 300;
    s.accepted += 150;
    s.accepted_at[0] = 80;
    s.accepted_at[1] = 50;
    s.accepted_at[2] = 20;
    assert_int_equal(spec_log_line(&l, 4 + MINUTE, &s, line, sizeof(line)), 0);
    assert_int_equal(spec_log_line(&l, 5 + MINUTE, &s, line, sizeof(line)), 6);
    assert_string_equal(
        line, "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted "
              "throughput: 2.50 tokens/s, Drafted throughput: 5.00 tokens/s, "
              "Accepted: 150 tokens, Drafted: 300 tokens, Per-position "
              "acceptance rate: 0.800, 0.500, 0.200, Avg Draft acceptance "
              "rate: 50.0%");
    assert_int_equal(spec_log_line(&l, 6 + MINUTE, &s, line, sizeof(line)), 0);
    /* silence while nothing is drafted */
    assert_int_equal(spec_log_line(&l, 90 * MINUTE, &s, line, sizeof(line)), 0);
    s.drafts += 10;
    s.drafted += 10;
    assert_int_equal(spec_log_line(&l, 91 * MINUTE, &s, line, sizeof(line)), 6);
    assert_non_null(strstr(line, "Mean acceptance length: 1.00, "));
    assert_non_null(strstr(line, "rate: 0.000, 0.000, 0.000, "));
}

static void test_fr_44_the_warning_comes_once(void **state)
{
    struct model_stats s = {0};
    struct spec_log l;
    char line[384] = "";

    (void)state;
    spec_log_init(&l, 0, &s);
    assert_int_equal(spec_log_line(&l, 1, &s, line, sizeof(line)), 0);
    s.drafter_is_off = true;
    assert_int_equal(spec_log_line(&l, 2, &s, line, sizeof(line)), 4);
    assert_non_null(strstr(line, "switched off"));
    assert_int_equal(spec_log_line(&l, 3, &s, line, sizeof(line)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_a_minute_while_there_are_drafts),
        cmocka_unit_test(test_fr_44_the_warning_comes_once),
    };

    return test_main(tests, NULL, NULL);
}
