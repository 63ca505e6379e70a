/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Opening a checkpoint when memory runs out: each allocation fails in turn, and
 * each time it is -ENOMEM (the start ends with 70 and is tried again) and never
 * a damaged file (65, which is not). The allocator is wrapped by the linker
 * (--wrap), the parser's by jansson's own hook, which is ours.
 */
#include "tests/daemon/failing.h"
#include "tests/daemon/opened.h"

static void exhaust(enum synth_dialect dialect)
{
    char *dir = make(dialect);
    struct opened o;
    int n;

    armed = true;
    n_allocations = 0;
    o = open_dir(dir);
    n = n_allocations;
    assert_int_equal(o.r, 0);
    assert_int_equal(o.rep.n_notes, 0); /* a note that fails ends the process */
    model_report_finish(&o.rep);
    assert_true(n > 500); /* the parser's are among them */
    for (int i = 0; i < n; i++) {
        fail_at = i;
        n_allocations = 0;
        o = open_dir(dir);
        fail_at = -1;
        if (o.r != -ENOMEM) {
            fail_msg("allocation %d of %d: %d, %s", i, n, o.r,
                     o.rep.n_problems > 0 ? o.rep.problem[0] : "no problem");
        }
        model_report_finish(&o.rep);
    }
    ckpt_remove(dir);
}

static void test_every_allocation_of_bf16(void **state)
{
    (void)state;
    exhaust(SYNTH_BF16);
}

static void test_every_allocation_of_mxfp4(void **state)
{
    (void)state;
    exhaust(SYNTH_MXFP4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_of_bf16),
        cmocka_unit_test(test_every_allocation_of_mxfp4),
    };

    return test_main(tests, NULL, NULL);
}
