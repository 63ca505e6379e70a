/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/* Page ids: all or nothing, no id twice, counts that add up. */

#include "tests/test.h"

#include <errno.h>
#include <stdbool.h>

#include "daemon/sched/kvpool.h"

static const int sizes[MODEL_N_GROUPS] = {7, 3};

static void test_every_page_once(void **state)
{
    struct kvpool *p;
    bool seen[7] = {false};
    int32_t page[7];

    (void)state;
    assert_int_equal(kvpool_create(&p, sizes), 0);
    assert_int_equal(kvpool_alloc(p, MODEL_FULL, 7, page), 0);
    for (int i = 0; i < 7; i++) {
        assert_in_range(page[i], 0, 6);
        assert_false(seen[page[i]]);
        seen[page[i]] = true;
        assert_int_equal(kvpool_refs(p, MODEL_FULL, page[i]), 1);
    }
    assert_int_equal(kvpool_free_pages(p, MODEL_FULL), 0);
    /* The other group is another pool. */
    assert_int_equal(kvpool_free_pages(p, MODEL_SLIDING), 3);
    assert_int_equal(kvpool_pages(p, MODEL_SLIDING), 3);
    for (int i = 0; i < 7; i++) {
        kvpool_drop(p, MODEL_FULL, page[i]);
    }
    assert_int_equal(kvpool_free_pages(p, MODEL_FULL), 7);
    kvpool_destroy(p);
    kvpool_destroy(NULL);
}

static void test_alloc_is_all_or_nothing(void **state)
{
    struct kvpool *p;
    int32_t page[4] = {-1, -1, -1, -1};

    (void)state;
    assert_int_equal(kvpool_create(&p, sizes), 0);
    assert_int_equal(kvpool_alloc(p, MODEL_SLIDING, 4, page), -ENOSPC);
    assert_int_equal(page[0], -1);
    assert_int_equal(kvpool_free_pages(p, MODEL_SLIDING), 3);
    assert_int_equal(kvpool_alloc(p, MODEL_SLIDING, 0, page), 0);
    kvpool_destroy(p);
}

static int n_freed;
static void on_freed(void *ctx, enum model_group g, int32_t page)
{
    struct kvpool *p = ctx;

    assert_int_equal(g, MODEL_FULL);
    assert_int_equal(kvpool_refs(p, g, page), 0);
    n_freed++;
}

static void test_shared_page_is_freed_by_the_last(void **state)
{
    struct kvpool *p;
    int32_t page;

    (void)state;
    n_freed = 0;
    assert_int_equal(kvpool_create(&p, sizes), 0);
    kvpool_on_free(p, on_freed, p);
    assert_int_equal(kvpool_alloc(p, MODEL_FULL, 1, &page), 0);
    kvpool_share(p, MODEL_FULL, page);
    kvpool_share(p, MODEL_FULL, page);
    assert_int_equal(kvpool_refs(p, MODEL_FULL, page), 3);
    kvpool_drop(p, MODEL_FULL, page);
    kvpool_drop(p, MODEL_FULL, page);
    assert_int_equal(n_freed, 0);
    assert_int_equal(kvpool_free_pages(p, MODEL_FULL), 6);
    kvpool_drop(p, MODEL_FULL, page);
    assert_int_equal(n_freed, 1);
    assert_int_equal(kvpool_free_pages(p, MODEL_FULL), 7);
    kvpool_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_page_once),
        cmocka_unit_test(test_alloc_is_all_or_nothing),
        cmocka_unit_test(test_shared_page_is_freed_by_the_last),
    };

    return test_main(tests, NULL, NULL);
}
