/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * JSON text to msgpack and back: order of keys, exact numbers, every kind of
 * text that is no JSON.
 */

#include <errno.h>
#include <locale.h>

#include "client/wire_priv.h"
#include "tests/client/frames.h"

/* text -> msgpack -> text. */
static void assert_becomes(const char *text, const char *want)
{
    struct wire_buf packed, out;
    msgpack_unpacked u;
    size_t off = 0;

    body_of_json(&packed, text);
    msgpack_unpacked_init(&u);
    assert_int_equal(msgpack_unpack_next(&u, (char *)packed.p, packed.n, &off),
                     MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(off, packed.n);
    wire_buf_init(&out, WIRE_MAX_FRAME);
    assert_int_equal(wire_json_text(&out, &u.data, false, 100), 0);
    wire_buf_put(&out, "", 1);
    assert_string_equal((char *)out.p, want);
    wire_buf_finish(&out);
    msgpack_unpacked_destroy(&u);
    wire_buf_finish(&packed);
}

static void test_values_come_back(void **state)
{
    static const char *const same[] = {
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "127",
        "128",
        "255",
        "65536",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "-9223372036854775808",
        "0.0",
        "-0.0",
        "0.1",
        "1.5",
        "1e-05",
        "0.0001",
        "1e+16",
        "1.7976931348623157e+308",
        "5e-324",
        "2.2250738585072014e-308",
        "123456789.12345679",
        "9007199254740993.0",
        "3.141592653589793",
        "\"\"",
        "\"a\\\"b\\\\c/d\"",
        "\"\\b\\f\\n\\r\\t\\u0000\\u001f\"",
        "\"h\u00e9\u4e2d\U0001f600\"",
        "[]",
        "{}",
        "[1, [2, [3]], {}]",
        "{\"z\": 1, \"a\": 2, \"m\": {\"y\": [], \"b\": null}}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        if (strcmp(same[i], "9007199254740993.0") == 0) {
            assert_becomes(same[i], "9007199254740992.0");
        } else {
            assert_becomes(same[i], same[i]);
        }
    }
}

static void test_other_spellings(void **state)
{
    (void)state;
    assert_becomes(" [ 1 ,\n2\t,\r3 ] ", "[1, 2, 3]");
    assert_becomes("{ \"a\" : 1 }", "{\"a\": 1}");
    assert_becomes("-0", "0");
    assert_becomes("1E2", "100.0");
    assert_becomes("1e+2", "100.0");
    assert_becomes("10.50", "10.5");
    assert_becomes("1.0e-5", "1e-05");
    assert_becomes("0.00001234", "1.234e-05");
    assert_becomes("123456789012345.25", "123456789012345.25");
    assert_becomes("\"\\/\\u0041\\u00e9\\u4E2D\"", "\"/A\u00e9\u4e2d\"");
    assert_becomes("\"\\ud83d\\ude00\"", "\"\U0001f600\"");
    assert_becomes("\"\x7f\"", "\"\x7f\"");
}

static void test_what_is_no_json(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "nul",
        "True",
        "[1,]",
        "[1 2]",
        "[",
        "]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{1:2}",
        "{a:1}",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\\",
        "\"\\u12\"",
        "\"\n\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\xff\"",
        "1 2",
        "[] []",
        "18446744073709551616",
        "-9223372036854775809",
        "99999999999999999999999999",
        "nullx",
        "\"\\ud83d\\ud83d\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct wire_buf b;
        char why[128];
        wire_buf_init(&b, 1000);
        int r = wire_value_json(&b, bad[i], strlen(bad[i]), why, sizeof(why));
        if (r != -EINVAL || why[0] == '\0' || b.n != 0) {
            fail_msg("%s: %d, '%s'", bad[i], r, why);
        }
        wire_buf_finish(&b);
    }
}

static void test_depth(void **state)
{
    char text[80];
    struct wire_buf b;
    char why[128];

    (void)state;
    /* The frame's map is the first of max_depth. */
    for (int depth = WIRE_MAX_DEPTH - 1; depth <= WIRE_MAX_DEPTH; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        wire_buf_init(&b, 1000);
        assert_int_equal(
            wire_value_json(&b, text, (size_t)depth * 2, why, sizeof(why)),
            depth < WIRE_MAX_DEPTH ? 0 : -EINVAL);
        wire_buf_finish(&b);
    }
}

/* 40,000 doubles of all sizes: the text reads back to the same bits. */
static void test_doubles_are_exact(void **state)
{
    uint64_t x = 88172645463325252u;

    (void)state;
    for (int i = 0; i < 40000; i++) {
        union {
            uint64_t u;
            double d;
        } in, out;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        in.u = i % 4 == 0 ? x & UINT64_C(0x800fffffffffffff) : x;
        if (!isfinite(in.d)) {
            continue;
        }
        msgpack_object o = {.type = MSGPACK_OBJECT_FLOAT64, .via.f64 = in.d};
        struct wire_buf b;
        wire_buf_init(&b, 100);
        assert_int_equal(wire_json_text(&b, &o, false, 100), 0);
        wire_buf_put(&b, "", 1);
        out.d = strtod((char *)b.p, NULL);
        if (in.u != out.u || strpbrk((char *)b.p, ".e") == NULL) {
            fail_msg("%a became %s", in.d, (char *)b.p);
        }
        wire_buf_finish(&b);
    }
}

/* Numbers of few digits take the fast way; they must not look different. */
static void test_short_decimals_are_shortest(void **state)
{
    static const char *const same[] = {"0.3",
                                       "0.7",
                                       "2.675",
                                       "1234.5678",
                                       "999999999999999.0",
                                       "1e+15",
                                       "1e+22",
                                       "1e+23",
                                       "1e-22",
                                       "1e-23",
                                       "123456789012345.6",
                                       "0.000123456789012345",
                                       "9007199254740991.0",
                                       "0.1234567890123456",
                                       "8.41",
                                       "4.35",
                                       "1.005",
                                       "100.0",
                                       "1200.0",
                                       "5e-05",
                                       "0.00015"};

    (void)state;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        const char *want = same[i];
        if (strcmp(want, "1e+15") == 0) {
            want = "1000000000000000.0";
        }
        assert_becomes(same[i], want);
    }
    for (int i = 0; i < 100000; i++) {
        char text[32], *end;
        snprintf(text, sizeof(text), "%d.%02d5", i / 100, i % 100);
        msgpack_object o = {.type = MSGPACK_OBJECT_FLOAT64,
                            .via.f64 = strtod(text, &end)};
        struct wire_buf b;
        wire_buf_init(&b, 100);
        assert_int_equal(wire_json_text(&b, &o, false, 0), 0);
        wire_buf_put(&b, "", 1);
        assert_string_equal((char *)b.p, text);
        wire_buf_finish(&b);
    }
}

/* What takes long is bounded, so that no frame can hold up the I/O thread. */
static void test_long_floats_are_bounded(void **state)
{
    msgpack_object item[3] = {
        {.type = MSGPACK_OBJECT_FLOAT64, .via.f64 = 1.0 / 3},
        {.type = MSGPACK_OBJECT_FLOAT64, .via.f64 = 0.25},
        {.type = MSGPACK_OBJECT_FLOAT64, .via.f64 = 2.0 / 3},
    };
    msgpack_object o = {.type = MSGPACK_OBJECT_ARRAY,
                        .via.array = {.size = 3, .ptr = item}};
    struct wire_request *r = NULL;
    struct wire_error err;
    struct wire_buf b;

    (void)state;
    wire_buf_init(&b, 1000);
    assert_int_equal(wire_json_text(&b, &o, false, 2), 0);
    assert_int_equal(wire_json_text(&b, &o, false, 1), -EOVERFLOW);
    wire_buf_finish(&b);

    wire_buf_init(&b, WIRE_MAX_FRAME);
    wire_value_map(&b, 3);
    wire_value_str(&b, "id", 2);
    wire_value_uint(&b, 1);
    wire_value_str(&b, "op", 2);
    wire_value_str(&b, "render", 6);
    wire_value_str(&b, "messages", 8);
    wire_value_list(&b, 1);
    wire_value_map(&b, 1);
    wire_value_str(&b, "a", 1);
    wire_value_list(&b, WIRE_MAX_LONG_FLOATS + 1);
    for (unsigned i = 0; i <= WIRE_MAX_LONG_FLOATS; i++) {
        wire_value_real(&b, 1.0 / 3);
    }
    assert_int_equal(wire_decode_request(b.p, b.n, &r, &err), WIRE_E_TOO_LONG);
    assert_string_equal(err.detail, "messages");
    wire_buf_finish(&b);
}

static void test_a_locale_with_a_comma_changes_nothing(void **state)
{
    static const char *const name[] = {"de_DE.UTF-8", "de_DE.utf8",
                                       "fr_FR.UTF-8", "ru_RU.UTF-8",
                                       "es_ES.UTF-8", "de_DE"};
    const char *set = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]) && set == NULL; i++) {
        set = setlocale(LC_NUMERIC, name[i]);
    }
    if (set == NULL) {
        test_skip(NULL, "no locale with a decimal comma is installed");
    }
    char probe[8];
    snprintf(probe, sizeof(probe), "%.1f", 0.5);
    assert_string_equal(probe, "0,5");
    assert_becomes("[0.5, 1e-07, 123.25]", "[0.5, 1e-07, 123.25]");
    setlocale(LC_NUMERIC, "C");
}

static void test_bin_is_a_list_of_bytes_or_refused(void **state)
{
    msgpack_object o = {.type = MSGPACK_OBJECT_BIN,
                        .via.bin = {.ptr = "\xff\x00", .size = 2}};
    struct wire_buf b;

    (void)state;
    wire_buf_init(&b, 100);
    assert_int_equal(wire_json_text(&b, &o, false, 100), -EINVAL);
    assert_int_equal(wire_json_text(&b, &o, true, 100), 0);
    assert_int_equal(b.n, 8);
    assert_memory_equal(b.p, "[255, 0]", 8);
    wire_buf_finish(&b);
}

static void test_the_buffer_has_a_cap(void **state)
{
    struct wire_buf b;
    char why[64];

    (void)state;
    wire_buf_init(&b, 20);
    assert_int_equal(wire_value_json(&b, "[1, 2, \"abcdefghijklmnopqrst\"]", 30,
                                     why, sizeof(why)),
                     -E2BIG);
    assert_int_equal(b.n, 0);
    wire_buf_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_come_back),
        cmocka_unit_test(test_other_spellings),
        cmocka_unit_test(test_what_is_no_json),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_doubles_are_exact),
        cmocka_unit_test(test_short_decimals_are_shortest),
        cmocka_unit_test(test_long_floats_are_bounded),
        cmocka_unit_test(test_a_locale_with_a_comma_changes_nothing),
        cmocka_unit_test(test_bin_is_a_list_of_bytes_or_refused),
        cmocka_unit_test(test_the_buffer_has_a_cap),
    };
    return test_main(tests, NULL, NULL);
}
