/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Where the bytes of a KV page lie: sizes by group, export and import, copies
 * that touch no other page.
 */

#include "daemon/model/kv.h"

#include <errno.h>

#include "tests/test.h"

/* Full, sliding, full; two MTP blocks; different numbers of KV heads. */
static const struct shape shape = {
    .hidden = 64,
    .vocab = 32,
    .n_layers = 3,
    .n_mtp = 2,
    .window = 16,
    .head_dim = 128,
    .layer = {{.n_head = 4, .n_kv_head = 2, .n_freq = 32},
              {.sliding = true, .n_head = 6, .n_kv_head = 1, .n_freq = 64},
              {.n_head = 4, .n_kv_head = 1, .n_freq = 32},
              {.sliding = true, .n_head = 6, .n_kv_head = 3, .n_freq = 64},
              {.sliding = true, .n_head = 6, .n_kv_head = 3, .n_freq = 64}},
};
enum { HEAD = 64 * 128 * 2 * 2 }; /* bytes of K and V of one KV head, a page */

struct fix {
    struct kern *k;
    struct kv kv;
};

static int setup(void **state)
{
    struct kern_open_args a = {.exact = true};
    static const int n_pages[] = {5, 3};
    static struct fix f;

    assert_int_equal(kern_open(&kern_ref_ops, &a, &f.k), 0);
    assert_int_equal(kv_init(&f.kv, f.k, &shape, 2, n_pages), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fix *f = *state;

    kv_finish(&f->kv);
    kern_close(f->k);
    return 0;
}

static void test_groups_and_sizes(void **state)
{
    struct fix *f = *state;

    assert_int_equal(f->kv.n_layers, 5);
    assert_int_equal(f->kv.page_bytes[MODEL_FULL], 3 * HEAD);
    assert_int_equal(f->kv.page_bytes[MODEL_SLIDING], 7 * HEAD);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        assert_int_equal(f->kv.page_bytes[g], shape_page_bytes(&shape, g));
    }
    assert_int_equal(f->kv.layer[3].page_bytes, 3 * HEAD);
    assert_int_equal(f->kv.layer[3].bytes_per_token, 3 * 128 * 2 * 2);
    assert_int_equal(f->kv.layer[1].n_pages, 3);
    assert_int_equal(f->kv.layer[2].n_pages, 5);
}

static void test_export_is_layer_after_layer(void **state)
{
    struct fix *f = *state;
    uint8_t *out = malloc(7 * HEAD), *one = malloc(3 * HEAD);
    static const int layer[] = {1, 3, 4};
    size_t off = 0;

    assert_true(out != NULL && one != NULL);
    for (int i = 0; i < 3; i++) {
        struct kern_kv *l = &f->kv.layer[layer[i]];
        struct kern_ptr at = l->pages;

        memset(one, 10 + layer[i], l->page_bytes);
        at.off += 2 * l->page_bytes;
        assert_int_equal(kern_upload(f->k, at, one, l->page_bytes), 0);
    }
    assert_int_equal(kv_export_page(&f->kv, MODEL_SLIDING, 2, out), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(out[off], 10 + layer[i]);
        off += f->kv.layer[layer[i]].page_bytes;
        assert_int_equal(out[off - 1], 10 + layer[i]);
    }
    assert_int_equal(off, 7 * HEAD);
    free(out);
    free(one);
}

static void test_copy_import_and_scrub_touch_one_page(void **state)
{
    struct fix *f = *state;

    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        size_t n = f->kv.page_bytes[g];
        uint8_t *in = malloc(n), *out = malloc(n);

        assert_true(in != NULL && out != NULL);
        for (int p = 0; p < f->kv.n_pages[g]; p++) {
            memset(in, p + 1, n);
            assert_int_equal(kv_import_page(&f->kv, g, p, in), 0);
        }
        assert_int_equal(kv_copy_page(&f->kv, g, 0, 1), 0);
        assert_int_equal(kv_scrub_page(&f->kv, g, 1), 0);
        for (int p = 0; p < f->kv.n_pages[g]; p++) {
            memset(in, p == 0 ? 2 : p == 1 ? 0xff : p + 1, n);
            assert_int_equal(kv_export_page(&f->kv, g, p, out), 0);
            assert_memory_equal(out, in, n);
        }
        free(in);
        free(out);
    }
}

static void test_no_such_page(void **state)
{
    struct fix *f = *state;
    char byte;

    assert_int_equal(kv_copy_page(&f->kv, MODEL_FULL, 5, 0), -EINVAL);
    assert_int_equal(kv_copy_page(&f->kv, MODEL_FULL, 0, -1), -EINVAL);
    assert_int_equal(kv_export_page(&f->kv, MODEL_SLIDING, 3, &byte), -EINVAL);
    assert_int_equal(kv_import_page(&f->kv, MODEL_SLIDING, -1, &byte), -EINVAL);
    assert_int_equal(kv_scrub_page(&f->kv, MODEL_SLIDING, 3), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_and_sizes),
        cmocka_unit_test(test_export_is_layer_after_layer),
        cmocka_unit_test(test_copy_import_and_scrub_touch_one_page),
        cmocka_unit_test(test_no_such_page),
    };

    return test_main(tests, setup, teardown);
}
