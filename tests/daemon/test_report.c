/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What a report shows of names that somebody else has written: text stays text,
 * and nothing else gets to the operator's terminal.
 */
#include "daemon/model/report.h"

#include <errno.h>

#include "tests/test.h"

static void assert_shown(const char *name, const char *shown)
{
    struct report rep;
    struct model_report out = {0};

    report_init(&rep);
    report_problem(&rep, REPORT_FILE, "%s", name);
    report_note(&rep, "%s", name);
    assert_int_equal(report_finish(&rep, &out), -EBADMSG);
    assert_string_equal(out.problem[0], shown);
    assert_string_equal(out.note[0], shown);
    model_report_finish(&out);
}

static void test_text_stays_as_it_is(void **state)
{
    static const char *const names[] = {
        "",
        "model.layers.0.self_attn.q_proj.weight",
        "\"{}\\ %s",
        "/srv/modèles/Schrittmodell/模型/نموذج/e\u0301/🦘",
        "\u00a0\u00ae\u2027\u202f\u205f\u2070\ufefe\uffff\U000effff\U0010ffff",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_shown(names[i], names[i]);
    }
}

static void test_what_is_not_seen_is_written_out(void **state)
{
    (void)state;
    assert_shown("a\nb\tc\x1b[31m\x7f", "a\\x0ab\\x09c\\x1b[31m\\x7f");
    assert_shown("\xc2\x80 \xc2\x9b \xc2\xad", "\\u0080 \\u009b \\u00ad");
    /* U+202E turns around what follows, U+200B hides a difference. */
    assert_shown("w\u202e.thgie\u202c", "w\\u202e.thgie\\u202c");
    assert_shown("wei\u200bght \u2066x\u2069 \ufeff",
                 "wei\\u200bght \\u2066x\\u2069 \\ufeff");
    assert_shown("\u2028\u2029\u061c", "\\u2028\\u2029\\u061c");
    assert_shown("\U000e0041\U0001d173", "\\U000e0041\\U0001d173");
}

static void test_bytes_that_are_no_characters(void **state)
{
    (void)state;
    assert_shown("\x80 \xbf \xff \xfe", "\\x80 \\xbf \\xff \\xfe");
    assert_shown("\xc3", "\\xc3"); /* cut */
    assert_shown("\xe2\x80", "\\xe2\\x80");
    assert_shown("\xe2\x80z\xf0\x9f\xa6", "\\xe2\\x80z\\xf0\\x9f\\xa6");
    assert_shown("\xc0\x8a", "\\xc0\\x8a"); /* overlong */
    assert_shown("\xe0\x80\x8a", "\\xe0\\x80\\x8a");
    assert_shown("\xed\xa0\x80", "\\xed\\xa0\\x80");          /* a surrogate */
    assert_shown("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* too large */
    assert_shown("\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_stays_as_it_is),
        cmocka_unit_test(test_what_is_not_seen_is_written_out),
        cmocka_unit_test(test_bytes_that_are_no_characters),
    };

    return test_main(tests, NULL, NULL);
}
