/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What a body must be before anyone looks at its meaning: every truncation,
 * counts and depths that lie, forms that the protocol does not use.
 */

#include "tests/client/count_malloc.h"
#include "tests/client/frames.h"

static int decode(const void *p, size_t n, struct wire_error *err)
{
    struct wire_request *r = NULL;
    int code = wire_decode_request(p, n, &r, err);

    wire_request_destroy(r);
    return code;
}

#define decode_bytes(text, err) decode(text, sizeof(text) - 1, err)

static void test_every_truncation_is_bad_frame(void **state)
{
    struct wire_buf b;
    struct wire_error err;

    (void)state;
    body_of_json(&b, "{\"id\": 9, \"op\": \"generate\", \"messages\": "
                     "[{\"role\": \"user\", \"content\": \"h\\u00e9\"}], "
                     "\"temperature\": 0.5, \"seed\": 18446744073709551615, "
                     "\"stop\": [\"a\", \"b\"], \"top_k\": 70000}");
    assert_int_equal(decode(b.p, b.n, &err), 0);
    for (size_t n = 0; n < b.n; n++) {
        /* A copy of that size: reading past it is seen by a sanitizer. */
        uint8_t *cut = malloc(n > 0 ? n : 1);
        memcpy(cut, b.p, n);
        assert_int_equal(decode(cut, n, &err), WIRE_E_BAD_FRAME);
        free(cut);
    }
    wire_buf_finish(&b);
}

static void test_every_flipped_byte_is_survived(void **state)
{
    struct wire_buf b;
    struct wire_error err;
    size_t n_ok = 0;

    (void)state;
    body_of_json(&b, "{\"id\": 9, \"op\": \"generate\", \"prompt\": \"x\", "
                     "\"stop\": [\"a\"], \"x_a\": {\"b\": [1.5, null]}}");
    for (size_t i = 0; i < b.n; i++) {
        for (int v = 0; v < 256; v++) {
            uint8_t *copy = malloc(b.n);
            memcpy(copy, b.p, b.n);
            copy[i] = (uint8_t)v;
            n_ok += decode(copy, b.n, &err) == 0;
            free(copy);
        }
    }
    /* The unchanged byte is among the 256 each time. */
    assert_true(n_ok >= b.n);
    assert_true(n_ok < b.n * 256);
    wire_buf_finish(&b);
}

static void test_not_a_map_is_bad_frame(void **state)
{
    struct wire_error err;

    (void)state;
    assert_int_equal(decode("", 0, &err), WIRE_E_BAD_FRAME);
    assert_int_equal(decode_bytes("\x90", &err), WIRE_E_BAD_FRAME);
    assert_int_equal(decode_bytes("\x2a", &err), WIRE_E_BAD_FRAME);
    assert_int_equal(decode_bytes("\xa2hi", &err), WIRE_E_BAD_FRAME);
    assert_int_equal(decode_bytes("\xc0", &err), WIRE_E_BAD_FRAME);
    assert_int_equal(decode_bytes("\xc1", &err), WIRE_E_BAD_FRAME);
    assert_int_equal(decode_bytes("GET / HTTP/1.1\r\n", &err),
                     WIRE_E_BAD_FRAME);
}

/* Frames whose headers claim what never comes, each with at most 256 bytes. */
static void test_count_bombs_allocate_almost_nothing(void **state)
{
    static const char *const head[] = {
        "\xdd\xff\xff\xff\xff",
        "\xdf\xff\xff\xff\xff",
        "\xdc\xff\xff",
        "\xde\xff\xff",
        "\xdb\xff\xff\xff\xff",
        "\xc6\xff\xff\xff\xff",
        "\xc9\xff\xff\xff\xff\x01",
        "\xdd\x0f\xff\xff\xff",
        "\xda\xff\xff",
        "\xc5\xff\xff",
    };
    struct wire_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++) {
        uint8_t bomb[256] = "\x81\xa1"
                            "a";
        size_t n = 3, n_head = i == 2 || i == 3 || i > 7 ? 3 : i == 6 ? 6 : 5;
        for (int copies = 0; copies < 29; copies++, n += n_head) {
            memcpy(bomb + n, head[i], n_head);
        }
        count_malloc();
        assert_int_equal(decode(bomb, n, &err), WIRE_E_BAD_FRAME);
        assert_true(malloc_bytes < 64);
    }
}

/* The 150 bytes that made msgpack-c reserve a gigabyte. */
static void test_nested_array_bomb_allocates_almost_nothing(void **state)
{
    uint8_t bomb[150] = "\x81\xa1"
                        "a";
    struct wire_error err;

    (void)state;
    for (size_t n = 3; n + 5 <= sizeof(bomb); n += 5) {
        memcpy(bomb + n, "\xdd\x00\x10\x00\x00", 5);
    }
    count_malloc();
    assert_int_equal(decode(bomb, sizeof(bomb), &err), WIRE_E_BAD_FRAME);
    assert_true(malloc_bytes < 64);
}

/* What honest headers make msgpack-c allocate is bounded by max_values. */
static void test_values_beyond_the_limit(void **state)
{
    const size_t n = WIRE_MAX_VALUES + 100;
    uint8_t *body = malloc(n);
    struct wire_error err;

    (void)state;
    memset(body, 0, n);
    memcpy(body, "\x82\xa2id\x07\xa3ids\xdd", 10);
    uint32_t count = (uint32_t)(n - 14);
    for (int i = 0; i < 4; i++) {
        body[10 + i] = (uint8_t)(count >> (24 - 8 * i));
    }
    count_malloc();
    assert_int_equal(decode(body, n, &err), WIRE_E_BAD_REQUEST);
    assert_string_equal(err.detail, "ids");
    assert_int_equal(err.id, 7);
    assert_true(malloc_bytes < 64);
    free(body);
}

static int decode_nested(int depth, uint8_t container, struct wire_error *err)
{
    /* {id: 1, op: "ping", x_a: <containers inside each other>}; a map inside
     * has one key, "k". */
    uint8_t body[512] = "\x83\xa2id\x01\xa2op\xa4ping\xa3x_a";
    size_t n = 17;

    for (int i = 1; i < depth; i++) {
        body[n++] = container;
        if (container == 0x81) {
            memcpy(body + n, "\xa1k", 2);
            n += 2;
        }
    }
    body[n++] = 0xc0;
    return decode(body, n, err);
}

static void test_depth_32_and_no_deeper(void **state)
{
    struct wire_error err;

    (void)state;
    assert_int_equal(decode_nested(WIRE_MAX_DEPTH, 0x91, &err), 0);
    assert_int_equal(decode_nested(WIRE_MAX_DEPTH, 0x81, &err), 0);
    assert_int_equal(decode_nested(WIRE_MAX_DEPTH + 1, 0x91, &err),
                     WIRE_E_BAD_REQUEST);
    assert_int_equal(err.id, 1);
    assert_string_equal(err.detail, "x_a");
    assert_int_equal(decode_nested(WIRE_MAX_DEPTH + 1, 0x81, &err),
                     WIRE_E_BAD_REQUEST);
    assert_int_equal(decode_nested(400 / 3, 0x81, &err), WIRE_E_BAD_REQUEST);
    assert_int_equal(decode_nested(400, 0x91, &err), WIRE_E_BAD_REQUEST);
}

struct form {
    const char *bytes;
    size_t n;
    int code;
    const char *detail;
};
#define FORM(bytes, code, detail)              \
    {                                          \
        bytes, sizeof(bytes) - 1, code, detail \
    }

static void test_forms(void **state)
{
    /* The value of x_a in {id: 5, op: "ping", x_a: ...}. */
    static const struct form form[] = {
        FORM("\xc0", 0, ""),
        FORM("\xc2", 0, ""),
        FORM("\xc3", 0, ""),
        FORM("\xcc\xff", 0, ""),
        FORM("\xd3\x80\x00\x00\x00\x00\x00\x00\x00", 0, ""),
        FORM("\xe0", 0, ""),
        FORM("\xc4\x02\xff\xfe", 0, ""),
        FORM("\xc5\x00\x01\xff", 0, ""),
        FORM("\xc6\x00\x00\x00\x01\xff", 0, ""),
        FORM("\xd9\x01z", 0, ""),
        FORM("\xda\x00\x01z", 0, ""),
        FORM("\xdb\x00\x00\x00\x01z", 0, ""),
        FORM("\xdc\x00\x01\x01", 0, ""),
        FORM("\xdd\x00\x00\x00\x01\x01", 0, ""),
        FORM("\xde\x00\x01\xa1k\x01", 0, ""),
        FORM("\xdf\x00\x00\x00\x01\xa1k\x01", 0, ""),
        FORM("\xca\x3f\x80\x00\x00", 0, ""),
        FORM("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", 0, ""),
        /* infinities and NaNs, both sizes and signs */
        FORM("\xca\x7f\x80\x00\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xca\xff\x80\x00\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xca\x7f\xc0\x00\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xcb\xff\xf0\x00\x00\x00\x00\x00\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\x91\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01", WIRE_E_BAD_REQUEST,
             "x_a"),
        /* ext: every form, the timestamp among them */
        FORM("\xd4\x01\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xd5\x01\x00\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xd6\xff\x00\x00\x00\x00", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xd7\xff\x00\x00\x00\x00\x00\x00\x00\x00", WIRE_E_BAD_REQUEST,
             "x_a"),
        FORM("\xd8\x01"
             "0123456789abcdef",
             WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xc7\x00\x01", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xc8\x00\x01\x01z", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xc9\x00\x00\x00\x01\x01z", WIRE_E_BAD_REQUEST, "x_a"),
        /* str that is not UTF-8: lone byte, cut, overlong, surrogate, too big
         */
        FORM("\xa1\xff", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa1\x80", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa1\xc3", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa2\xc0\xaf", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa3\xe0\x80\xaf", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa3\xed\xa0\x80", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa4\xf0\x80\x80\x80", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa4\xf4\x90\x80\x80", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa9"
             "12345678\xff",
             WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\xa4\xf0\x9f\x98\x80", 0, ""),
        FORM("\xa3\xef\xbf\xbf", 0, ""),
        FORM("\xa3\x61\x00\x62", 0, ""),
        /* keys inside: not a str, a list, twice */
        FORM("\x81\x01\x02", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\x81\xc4\x01k\x02", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\x81\x90\x02", WIRE_E_BAD_REQUEST, "x_a"),
        FORM("\x82\xa1k\x01\xa1k\x02", WIRE_E_BAD_REQUEST, "k"),
        FORM("\x82\xa1k\x01\xd9\x01k\x02", WIRE_E_BAD_REQUEST, "k"),
        FORM("\x91\x82\xa1k\x01\xa1k\x02", WIRE_E_BAD_REQUEST, "k"),
        FORM("\xc1", WIRE_E_BAD_FRAME, ""),
        FORM("\x91\xc1", WIRE_E_BAD_FRAME, ""),
        /* bytes behind the map */
        FORM("\x01\x01", WIRE_E_BAD_REQUEST, ""),
        FORM("\x01\xc1", WIRE_E_BAD_REQUEST, ""),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(form) / sizeof(form[0]); i++) {
        uint8_t body[64] = "\x83\xa2id\x05\xa2op\xa4ping\xa3x_a";
        struct wire_error err;
        memcpy(body + 17, form[i].bytes, form[i].n);
        int code = decode(body, 17 + form[i].n, &err);
        if (code != form[i].code || strcmp(err.detail, form[i].detail) != 0 ||
            (code != WIRE_E_BAD_FRAME && code != 0 && err.id != 5)) {
            fail_msg("form %zu: %s, '%s' (%s)", i, wire_code_name(code),
                     err.detail, err.message);
        }
    }
}

static void test_id_is_found_behind_the_mistake(void **state)
{
    struct wire_error err;

    (void)state;
    assert_int_equal(decode_bytes("\x83\xa3x_a\xd4\x01\x00\xa2op\xa4ping"
                                  "\xa2id\xcf\x00\x00\x00\x01\x00\x00\x00\x02",
                                  &err),
                     WIRE_E_BAD_REQUEST);
    assert_int_equal(err.id, UINT64_C(0x100000002));
    /* An id of a nested map is not the request's. */
    assert_int_equal(
        decode_bytes("\x82\xa3x_a\x81\xa2id\x07\xa2op\xa1\xff", &err),
        WIRE_E_BAD_REQUEST);
    assert_int_equal(err.id, 0);
    assert_int_equal(decode_bytes("\x82\xa2id\x91\x07\xa2op\xa1\xff", &err),
                     WIRE_E_BAD_REQUEST);
    assert_int_equal(err.id, 0);
    assert_int_equal(decode_bytes("\x82\xa2id\xff\xa2op\xa1\xff", &err),
                     WIRE_E_BAD_REQUEST);
    assert_int_equal(err.id, 0);
}

static void test_many_keys_are_checked_in_n_log_n(void **state)
{
    const uint32_t n_keys = 100000;
    struct wire_buf b;
    struct wire_error err;

    (void)state;
    wire_buf_init(&b, WIRE_MAX_FRAME);
    wire_value_map(&b, 3);
    wire_value_str(&b, "id", 2);
    wire_value_uint(&b, 1);
    wire_value_str(&b, "op", 2);
    wire_value_str(&b, "ping", 4);
    wire_value_str(&b, "x_a", 3);
    wire_value_map(&b, n_keys);
    for (uint32_t i = 0; i < n_keys; i++) {
        char key[16];
        int n = snprintf(key, sizeof(key), "key%u", i == n_keys - 1 ? 17 : i);
        wire_value_str(&b, key, (size_t)n);
        wire_value_uint(&b, i);
    }
    assert_int_equal(b.err, 0);
    assert_int_equal(decode(b.p, b.n, &err), WIRE_E_BAD_REQUEST);
    assert_string_equal(err.detail, "key17");
    wire_buf_finish(&b);
}

static void test_frame_size(void **state)
{
    struct wire_error err = {.id = 3};

    (void)state;
    assert_int_equal(wire_frame_size((const uint8_t *)"\0\0\1\2", 1000, &err),
                     258);
    assert_int_equal(wire_frame_size((const uint8_t *)"\0\0\0\0", 1000, &err),
                     WIRE_E_BAD_FRAME);
    assert_int_equal(err.id, 0);
    assert_int_equal(wire_frame_size((const uint8_t *)"\0\0\3\xe8", 1000, &err),
                     1000);
    assert_int_equal(wire_frame_size((const uint8_t *)"\0\0\3\xe9", 1000, &err),
                     WIRE_E_BAD_FRAME);
    assert_int_equal(wire_frame_size((const uint8_t *)"\xff\xff\xff\xff",
                                     WIRE_MAX_FRAME, &err),
                     WIRE_E_BAD_FRAME);
    assert_int_equal(
        wire_frame_size((const uint8_t *)"\1\0\0\0", WIRE_MAX_FRAME, &err),
        WIRE_MAX_FRAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_truncation_is_bad_frame),
        cmocka_unit_test(test_every_flipped_byte_is_survived),
        cmocka_unit_test(test_not_a_map_is_bad_frame),
        cmocka_unit_test(test_count_bombs_allocate_almost_nothing),
        cmocka_unit_test(test_nested_array_bomb_allocates_almost_nothing),
        cmocka_unit_test(test_values_beyond_the_limit),
        cmocka_unit_test(test_depth_32_and_no_deeper),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_id_is_found_behind_the_mistake),
        cmocka_unit_test(test_many_keys_are_checked_in_n_log_n),
        cmocka_unit_test(test_frame_size),
    };
    return test_main(tests, NULL, NULL);
}
