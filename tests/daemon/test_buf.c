/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * buf.c: a byte queue, compared with a plain array under random use.
 */

#include "daemon/base/buf.h"

#include <errno.h>

#include "tests/test.h"

static void test_first_in_first_out(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(buf_put(&b, "hello", 5), 0);
    assert_int_equal(buf_put(&b, " world", 6), 0);
    assert_int_equal(b.n, 11);
    assert_memory_equal(buf_data(&b), "hello world", 11);
    buf_consume(&b, 6);
    assert_int_equal(b.n, 5);
    assert_memory_equal(buf_data(&b), "world", 5);
    buf_finish(&b);
}

static void test_the_cap_is_exact(void **state)
{
    uint8_t bytes[100] = {0}, *p;
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(buf_put(&b, bytes, 100), 0);
    assert_int_equal(buf_put(&b, bytes, 1), -ENOBUFS);
    assert_int_equal(buf_room(&b, SIZE_MAX, &p), -ENOBUFS);
    buf_consume(&b, 1);
    assert_int_equal(buf_put(&b, bytes, 1), 0);
    assert_int_equal(b.n, 100);
    buf_finish(&b);
}

static void test_nothing_is_allocated_ahead(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 16 << 20);
    assert_null(b.p);
    assert_int_equal(buf_put(&b, "x", 1), 0);
    assert_true(b.cap <= 4096);
    buf_finish(&b);
    assert_null(b.p);
    buf_finish(&b); /* twice is fine */
}

static void test_empty_gives_memory_back(void **state)
{
    static uint8_t bytes[1 << 20];
    struct buf b;

    (void)state;
    buf_init(&b, 16 << 20);
    assert_int_equal(buf_put(&b, bytes, sizeof(bytes)), 0);
    assert_true(b.cap >= sizeof(bytes));
    buf_consume(&b, sizeof(bytes) - 1);
    assert_int_equal(b.n, 1);
    buf_consume(&b, 1);
    assert_int_equal(b.cap, 0);
    assert_null(buf_data(&b));
    buf_finish(&b);
}

/* Puts and consumes in random pieces: the content is that of an array, and the
 * memory stays within a small factor of what was ever inside at once. */
static void test_random_use_equals_an_array(void **state)
{
    static uint8_t model[1 << 16], piece[700];
    size_t first = 0, last = 0, most = 0, most_cap = 0;
    uint32_t rng = 1;
    struct buf b;

    (void)state;
    buf_init(&b, 4000);
    for (int i = 0; i < 100000; i++) {
        size_t n;
        int r;

        rng = rng * 1664525 + 1013904223;
        n = (rng >> 16) % sizeof(piece);
        if ((rng >> 8) % 2 == 0) {
            for (size_t k = 0; k < n; k++) {
                piece[k] = (uint8_t)(rng + k * 31);
            }
            r = buf_put(&b, piece, n);
            if (last - first + n > 4000) {
                assert_int_equal(r, -ENOBUFS);
            } else {
                assert_int_equal(r, 0);
                for (size_t k = 0; k < n; k++) {
                    model[last++ % sizeof(model)] = piece[k];
                }
            }
        } else {
            n = n < b.n ? n : b.n;
            buf_consume(&b, n);
            first += n;
        }
        assert_int_equal(b.n, last - first);
        for (size_t k = 0; k < b.n; k++) {
            if (buf_data(&b)[k] != model[(first + k) % sizeof(model)]) {
                fail_msg("byte %zu differs in round %d", k, i);
            }
        }
        most = b.n > most ? b.n : most;
        most_cap = b.cap > most_cap ? b.cap : most_cap;
    }
    assert_true(most > 3000);
    assert_true(most_cap <= 4 * most);
    buf_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_in_first_out),
        cmocka_unit_test(test_the_cap_is_exact),
        cmocka_unit_test(test_nothing_is_allocated_ahead),
        cmocka_unit_test(test_empty_gives_memory_back),
        cmocka_unit_test(test_random_use_equals_an_array),
    };

    return test_main(tests, NULL, NULL);
}
