/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Regular expressions as byte automata: which texts fit, from end to end and as
 * a schema's pattern, and what is refused in which words.
 */
#include "tests/daemon/grams.h"

struct row {
    const char *pattern; /* as JSON text, quotes included */
    const char *fit[6];
    const char *unfit[6];
};

static const struct row whole[] = {
    {"\"abc\"", {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"\"a|bc|\"", {"a", "bc", ""}, {"b", "abc"}},
    {"\"a*\"", {"", "a", "aaaaaaaa"}, {"b", "aab"}},
    {"\"a+b?\"", {"a", "ab", "aaab"}, {"b", "abb"}},
    {"\"a{3}\"", {"aaa"}, {"aa", "aaaa"}},
    {"\"a{2,}\"", {"aa", "aaaaa"}, {"a"}},
    {"\"a{1,3}\"", {"a", "aa", "aaa"}, {"", "aaaa"}},
    {"\"a{0,2}b{0}\"", {"", "a", "aa"}, {"aaa", "ab"}},
    {"\"(ab){2,3}\"", {"abab", "ababab"}, {"ab", "abababab", "aba"}},
    {"\"(a?){2,3}b\"", {"b", "ab", "aaab"}, {"aaaab"}},
    {"\"(a*)*b\"", {"b", "aaab"}, {"a"}},
    {"\"(a|b)*c\"", {"c", "abbac"}, {"ab"}},
    {"\"(?:x|(y|z)+)\"", {"x", "yzy"}, {"xy"}},
    {"\"[a-c]\"", {"a", "b", "c"}, {"d", "", "ab"}},
    {"\"[^a-c]\"", {"d", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80"}, {"a", "c"}},
    {"\"[-a]+\"", {"-a-"}, {"b"}},
    {"\"[a-]+\"", {"-a-"}, {"b"}},
    {"\"[\\\\]x]+\"", {"]x"}, {"\\"}},
    {"\"[\\\\d_]+\"", {"1_2"}, {"a"}},
    {"\"\\\\d\\\\w\\\\s\"", {"1a ", "0_\n"}, {"aa ", "1- "}},
    {"\"\\\\D\"", {"a", "-"}, {"1"}},
    {"\"\\\\S+\"", {"a-\xc3\xa9"}, {" ", "\xc2\xa0"}},
    {"\".\"", {"a", "\xe6\x97\xa5"}, {"\n", "\r", "", "ab"}},
    {"\"\\\\.\\\\*\\\\/\"", {".*/"}, {"a*/"}},
    {"\"\\\\x41\\\\u00e9\\\\u{1F600}\"", {"A\xc3\xa9\xf0\x9f\x98\x80"}, {"A"}},
    {"\"\\\\t\\\\n\\\\r\"", {"\t\n\r"}, {"tnr"}},
    {"\"a*?b+?\"", {"b", "aab"}, {"a"}},
    {"\"^a$\"", {"a"}, {"aa"}},
    {"\"^a|b$\"", {"a", "b"}, {"ab"}},
    {"\"a{,3}\"", {"a{,3}"}, {"aaa"}},
    {"\"[\xc3\xa9-\xc3\xb6]\"", {"\xc3\xa9", "\xc3\xb0"}, {"\xc3\xb8"}},
    {"\"[\\\\u0400-\\\\u0410\\\\u0500-\\\\uffff]\"",
     {"\xd0\x80", "\xd4\x80", "\xef\xbf\xbf"},
     {"\xd0\x91", "\xd0", "\xed\xa0\x80"}},
    {"\"(a{2}){2}\"", {"aaaa"}, {"aaa", "aaaaa"}},
    {"\"((a|bc){1,2}d){2}\"", {"adbcad", "aadbcd"}, {"ad", "aaadad"}},
};

static void check(const struct row *r, const char *type, const char *key,
                  bool quoted)
{
    char *form = quoted ? NULL : grams_form(type, key, r->pattern);
    char schema[512], text[256];
    struct gram *g;

    if (quoted) {
        snprintf(schema, sizeof(schema), "{\"pattern\":%s}", r->pattern);
        form = grams_form(type, key, schema);
    }
    g = grams_compile(form, false);
    for (int i = 0; i < 6; i++) {
        for (int bad = 0; bad < 2; bad++) {
            const char *p = bad ? r->unfit[i] : r->fit[i];

            if (p == NULL) {
                continue;
            }
            snprintf(text, sizeof(text), quoted ? "\"%s\"" : "%s", p);
            if ((grams_fit(g, text, strlen(text)) == FIT_WHOLE) == bad) {
                fail_msg("%s %s %s", r->pattern, bad ? "fits" : "does not fit",
                         text);
            }
        }
    }
    gram_destroy(g);
    free(form);
}

static void test_a_regex_fits_from_end_to_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        check(&whole[i], "regex", "regex", false);
    }
}

static const struct row parts[] = {
    {"\"b\"", {"b", "abc", "bbb"}, {"", "ac"}},
    {"\"^b\"", {"b", "bc"}, {"ab"}},
    {"\"b$\"", {"b", "ab"}, {"ba"}},
    {"\"^(a|b)$\"", {"a", "b"}, {"ab", ""}},
    {"\"^a|b$\"", {"ax", "xb"}, {"xa", "bx"}},
    {"\"^x\\\\ny$\"", {"x\\ny"}, {"x\ny", "xny"}},
    {"\"^[^a]$\"", {"\\\"", "\\\\", "\\u0001", "\\n", "b"}, {"a", "\"", "\\"}},
    {"\"^\\\"\\\\\\\\$\"", {"\\\"\\\\"}, {"\"\\"}},
    {"\"\"", {"", "anything"}, {}},
};

static void test_a_pattern_is_searched_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        check(&parts[i], "json_schema", "schema", true);
    }
}

static void test_a_pattern_keeps_a_length_limit(void **state)
{
    char *form = grams_form("json_schema", "schema",
                            "{\"pattern\":\"^[a-z]+(-[a-z]+)*$\","
                            "\"minLength\":3,\"maxLength\":5}");
    struct gram *g = grams_compile(form, false);

    (void)state;
    assert_int_equal(grams_fit(g, "\"abc\"", 5), FIT_WHOLE);
    assert_int_equal(grams_fit(g, "\"a-b-c\"", 7), FIT_WHOLE);
    assert_int_equal(grams_fit(g, "\"ab\"", 4), FIT_NOT);
    assert_int_equal(grams_fit(g, "\"abcdef", 7), FIT_NOT);
    assert_int_equal(grams_fit(g, "\"ab-c-", 6), FIT_NOT);
    gram_destroy(g);
    free(form);
}

static const struct {
    const char *pattern, *words;
} refused[] = {
    {"\"a(\"", "( without )"},
    {"\"a)\"", ") without ("},
    {"\"[a\"", "[ without ]"},
    {"\"*a\"", "quantifier"},
    {"\"a**\"", "quantifier"},
    {"\"a*+\"", "possessive"},
    {"\"(?=a)\"", "look-ahead"},
    {"\"(?<n>a)\"", "named groups"},
    {"\"(a)\\\\1\"", "back references"},
    {"\"\\\\bword\"", "\\b is not supported"},
    {"\"\\\\p{L}\"", "\\p is not supported"},
    {"\"a^b\"", "ends only"},
    {"\"(a$)b\"", "ends only"},
    {"\"[z-a]\"", "ends before it begins"},
    {"\"a{3,2}\"", "ends before it begins"},
    {"\"a{100001}\"", "more than 100000"},
    {"\"\\\\\"", "backslash at the end"},
    {"\"\\\\xg1\"", "hexadecimal"},
    {"\"\\\\u{110000}\"", "no such character"},
    {"\"[^\\\\u0000-\\\\u{10ffff}]\"", "no character"},
    {"\"(((a?){1000}){1000}){1000}\"", "too large"},
};

static void test_what_is_not_regular_is_refused_in_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        char *form = grams_form("regex", "regex", refused[i].pattern);
        char why[256] = "";
        int r = grams_refusal(form, why, sizeof(why));

        if ((r != -EINVAL && r != -E2BIG) ||
            strstr(why, refused[i].words) == NULL) {
            fail_msg("%s: %d, %s", refused[i].pattern, r, why);
        }
        free(form);
    }
}

static void test_groups_too_deep_are_refused(void **state)
{
    char pattern[300], why[256] = "";
    char *form;

    (void)state;
    memset(pattern, 0, sizeof(pattern));
    pattern[0] = '"';
    memset(pattern + 1, '(', 70);
    pattern[71] = 'a';
    memset(pattern + 72, ')', 70);
    pattern[142] = '"';
    form = grams_form("regex", "regex", pattern);
    assert_int_equal(grams_refusal(form, why, sizeof(why)), -EINVAL);
    assert_non_null(strstr(why, "too deep"));
    free(form);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_regex_fits_from_end_to_end),
        cmocka_unit_test(test_a_pattern_is_searched_for),
        cmocka_unit_test(test_a_pattern_keeps_a_length_limit),
        cmocka_unit_test(test_what_is_not_regular_is_refused_in_words),
        cmocka_unit_test(test_groups_too_deep_are_refused),
    };

    return test_main(tests, NULL, NULL);
}
