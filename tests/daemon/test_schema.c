/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Schemas and the other forms of response_format: what fits, what does not,
 * what is refused. test_schema_valid.sh has the independent opinion.
 */
#include "tests/daemon/grams.h"

struct row {
    const char *schema;
    const char *fit[8];
    const char *unfit[8];
};

static const struct row rows[] = {
    {"{\"type\":\"null\"}", {"null"}, {"nul", "0", " null", "null "}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "1"}},
    {"{\"type\":\"integer\"}",
     {"0", "-1", "123456789012345678"},
     {"-0", "01", "1.0", "1234567890123456789", "+1"}},
    {"{\"type\":\"number\"}",
     {"0", "-1.5", "2e10", "1.25E-3"},
     {".5", "1.", "1e999", "01.5", "NaN"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a b\"", "\"\\\"\\\\\\/\\n\"", "\"\\u00e9\"",
      "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\""},
     {"\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\xff\"",
      "\"\xc0\x80\"", "a"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xe6\x97\xa5\xe6\x9c\xac\"", "\"\\u0041bc\"",
      "\"\\ud83d\\ude00ab\""},
     {"\"a\"", "\"abcd\"", "\"\\n\""}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
     {"-12", "-1", "0", "9", "10", "99", "105", "100"},
     {"-13", "106", "-0", "00", "1000", "-20", "110"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"maximum\":10.5}",
     {"10"},
     {"9", "11"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "1", "0.5", "0.001"},
     {"1.5", "-0.5", "2", "1.0"}},
    {"{\"type\":\"number\",\"minimum\":-2}",
     {"-2", "-1.5", "-0.5", "7.25", "0"},
     {"-2.5", "-3"}},
    {"{\"enum\":[\"a\",\"ab\",1,null,{\"k\":[]}]}",
     {"\"a\"", "\"ab\"", "1", "null", "{\"k\": []}"},
     {"\"b\"", "2", "\"abc\"", "{\"k\":[]}"}},
    {"{\"const\":\"q\\\"\\n\"}", {"\"q\\\"\\n\""}, {"\"q\"", "\"q\\\"\n\""}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
     "\"b\":{\"type\":\"boolean\"},\"c\":{\"type\":\"null\"}},"
     "\"required\":[\"b\"]}",
     {"{\"b\":true}", "{\"a\": 1, \"b\": false}", "{\n  \"b\": true\n}",
      "{ \"b\": true, \"c\": null }", "{\"a\":1,\"b\":true,\"c\":null}"},
     {"{}", "{\"a\":1}", "{\"b\":true,\"a\":1}", "{\"b\":true,}",
      "{\"b\":true,\"x\":1}", "{\"b\" :true}", "{\"b\":  true}",
      "{,\"b\":true}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":{\"type\":\"null\"}}",
     {"{}", "{\"ab\":1}", "{\"ab\":1,\"x\":null}", "{\"a\":null}",
      "{\"abc\":null}", "{\"\xe6\x97\xa5\":null,\"b\":null}"},
     {"{\"ab\":null}", "{\"x\":null,\"ab\":null}", "{\"\\u0061b\":null}",
      "{\"a\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,"
     "\"maxItems\":3}",
     {"[1]", "[1, 2]", "[1,2,3]", "[\n1]"},
     {"[]", "[1,2,3,4]", "[1,]", "[true]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},"
     "{\"type\":\"boolean\"}],\"items\":{\"type\":\"null\"},\"minItems\":1}",
     {"[1]", "[1,true]", "[1,true,null,null]"},
     {"[]", "[true]", "[1,null]", "[1,true,1]"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1},"
     "{\"type\":\"integer\",\"minimum\":3}]}",
     {"3", "\"a\"", "1"},
     {"\"ab\"", "true"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"integer\"}},"
     "\"required\":[\"k\"],\"anyOf\":[{\"required\":[\"x\"],\"properties\":"
     "{\"x\":{\"type\":\"null\"}}},{\"properties\":{\"y\":{\"type\":\"null\"}},"
     "\"required\":[\"y\"]}]}",
     {"{\"k\":1,\"x\":null}", "{\"k\":1,\"y\":null}"},
     {"{\"k\":1}", "{\"k\":1,\"x\":null,\"y\":null}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
     "\"integer\",\"minimum\":3}},\"required\":[\"a\"]},{\"properties\":{\"a\":"
     "{\"maximum\":4},\"b\":{\"type\":\"null\"}}}]}",
     {"{\"a\":3}", "{\"a\":4,\"b\":null}"},
     {"{\"a\":5}", "{\"a\":2}", "{}"}},
    {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\","
     "\"properties\":{\"n\":{\"$ref\":\"#/$defs/n\"}}}}}",
     {"{}", "{\"n\":{}}", "{\"n\":{\"n\":{\"n\":{}}}}"},
     {"{\"n\":1}", "{\"n\":{\"m\":{}}}"}},
    {"{\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-13-01\"", "\"2023-04-31\"",
      "\"0000-01-01\""}},
    {"{\"format\":\"time\"}",
     {"\"23:59:59Z\"", "\"00:00:00.5+02:00\""},
     {"\"24:00:00Z\"", "\"12:00:00\""}},
    {"{\"format\":\"date-time\"}",
     {"\"2024-02-29T12:00:00Z\""},
     {"\"2024-02-30T12:00:00Z\"", "\"2024-02-29 12:00:00Z\""}},
    {"{\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567e89b12d3a456426614174000\""}},
    {"true", {"{\"a\":[1,\"x\",null]}", "3", "[]"}, {"", "{", "nope"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
     {"\"a\"", "1"},
     {"null"}},
};

static void test_what_fits_a_schema(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *form = grams_form("json_schema", "schema", rows[i].schema);
        struct gram *g = grams_compile(form, false);

        for (int k = 0; k < 8; k++) {
            const char *p = rows[i].fit[k];

            if (p != NULL && grams_fit(g, p, strlen(p)) != FIT_WHOLE) {
                fail_msg("%s: %s does not fit", rows[i].schema, p);
            }
            p = rows[i].unfit[k];
            if (p != NULL && grams_fit(g, p, strlen(p)) == FIT_WHOLE) {
                fail_msg("%s: %s fits", rows[i].schema, p);
            }
        }
        gram_destroy(g);
        free(form);
    }
}

static const struct {
    const char *schema, *words;
} refused[] = {
    {"{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\""},
    {"{\"not\":{}}", "\"not\""},
    {"{\"if\":{}}", "\"if\""},
    {"{\"patternProperties\":{}}", "\"patternProperties\""},
    {"{\"multipleOf\":2}", "\"multipleOf\""},
    {"{\"properties\":{\"a\":{\"contains\":{}}}}", "/a: keyword \"contains\""},
    {"{\"tpye\":\"string\"}", "\"tpye\""},
    {"{\"type\":\"text\"}", "type must be"},
    {"{\"type\":3}", "type must be"},
    {"{\"format\":\"email\"}", "format \"email\""},
    {"{\"pattern\":\"(?=a)\"}", "look-ahead"},
    {"{\"pattern\":\"a\",\"format\":\"date\"}", "pattern together"},
    {"{\"$ref\":\"http://x/y\"}", "other documents"},
    {"{\"$ref\":\"#/nowhere\"}", "leads nowhere"},
    {"{\"$ref\":\"#\"}", "back to itself"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "itself"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
     "might both fit"},
    {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     "might both fit"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "exclusive"},
    {"{\"enum\":[]}", "no answer can fit"},
    {"{\"enum\":3}", "enum must be a list"},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}",
     "no answer can fit"},
    {"false", "no answer can fit"},
    {"3", "must be an object"},
    {"{\"properties\":{\"a\":3}}", "must be an object"},
    {"{\"required\":\"a\"}", "required must be a list"},
    {"{\"items\":[{}]}", "prefixItems"},
    {"{\"minItems\":-1}", "whole number"},
    {"{\"minimum\":\"a\"}", "must be a number"},
    {"{\"allOf\":{}}", "allOf must be a list"},
    {"{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":"
     "{\"$ref\":\"#\"}}}",
     "no answer can fit"},
};

static void test_what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        char *form = grams_form("json_schema", "schema", refused[i].schema);
        char why[256] = "";
        int r = grams_refusal(form, why, sizeof(why));

        if (r != -EINVAL || strstr(why, refused[i].words) == NULL) {
            fail_msg("%s: %d, %s", refused[i].schema, r, why);
        }
        free(form);
    }
}

static const struct {
    const char *form, *words;
} bad_forms[] = {
    {"{}", "type must be"},
    {"[]", "type must be"},
    {"{\"type\":\"xml\"}", "type must be"},
    {"{\"type\":\"json_schema\"}", "needs a schema"},
    {"{\"type\":\"regex\"}", "regex must be a string"},
    {"{\"type\":\"choice\",\"choice\":[]}", "choice must be"},
    {"{\"type\":\"choice\",\"choice\":[\"a\",\"\"]}", "choice[1]"},
    {"{\"type\":\"regex\",\"regex\":\"(?i)a\"}", "only (?:"},
    /* Others enforce this schema: to pass it over would be a quiet change. */
    {"{\"type\":\"json_object\",\"schema\":{}}", "\"schema\" is no key"},
    {"{\"type\":\"text\",\"regex\":\"a\"}", "\"regex\" is no key"},
    {"{\"type\":\"regex\",\"regex\":\"a\",\"reg\":1}", "\"reg\" is no key"},
    {"{\"type\":\"choice\",\"choice\":[\"a\"],\"\":1}", "\"\" is no key"},
    {"{\"type\":\"json_schema\",\"schema\":{},\"strict\":true}",
     "\"strict\" is no key"},
    {"{\"type\":\"json_schema\",\"schema\":{},\"json_schema\":{\"schema\":{}}}",
     "\"schema\" is no key"},
    {"{\"type\":\"json_schema\",\"json_schema\":{\"shema\":{}}}",
     "response_format.json_schema: \"shema\" is no key"},
    {"{\"type\":", "response_format"},
};

static void test_forms_that_are_none_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_forms) / sizeof(bad_forms[0]); i++) {
        char why[256] = "";

        assert_int_equal(grams_refusal(bad_forms[i].form, why, sizeof(why)),
                         -EINVAL);
        if (strstr(why, bad_forms[i].words) == NULL) {
            fail_msg("%s: %s", bad_forms[i].form, why);
        }
    }
}

static void fits(const char *form, bool reasoning, const char *text,
                 enum fit want)
{
    struct gram *g = grams_compile(form, reasoning);

    if (grams_fit(g, text, strlen(text)) != want) {
        fail_msg("%s and %s: not %d", form, text, (int)want);
    }
    gram_destroy(g);
}

static void test_the_other_forms(void **state)
{
    static const char choice[] =
        "{\"type\":\"choice\",\"choice\":[\"yes\",\"yes!\",\"no\"]}";
    static const char object[] = "{\"type\":\"json_object\"}";
    static const char wrapped[] =
        "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":"
        "true,\"schema\":{\"type\":\"null\"}}}";

    (void)state;
    fits(choice, false, "yes", FIT_WHOLE);
    fits(choice, false, "yes!", FIT_WHOLE);
    fits(choice, false, "ye", FIT_PREFIX);
    fits(choice, false, "maybe", FIT_NOT);
    fits(object, false, "{\"a\": {\"b\": [1, 2, {}]}}", FIT_WHOLE);
    fits(object, false, "[1]", FIT_NOT);
    fits(wrapped, false, "null", FIT_WHOLE);
}

/* fr_50: the grammar begins where reasoning ends, wherever that is. */
static void test_reasoning_comes_before_the_form(void **state)
{
    static const char form[] = "{\"type\":\"regex\",\"regex\":\"ab\"}";

    (void)state;
    fits(form, true, "I think <b>, </thin, </</think>ab", FIT_WHOLE);
    fits(form, true, "</think>\nab", FIT_WHOLE);
    fits(form, true, "\xff any bytes <<</think>a", FIT_PREFIX);
    fits(form, true, "</think>\n\nab", FIT_NOT);
    fits(form, true, "x</think>b", FIT_NOT);
    fits(form, true, "ab", FIT_PREFIX);
    fits(form, true, "x<tool_call>", FIT_NOT);
    fits(form, true, "x<tool_cal", FIT_PREFIX);
    fits(form, true, "<tool_</think>ab", FIT_WHOLE);
}

/* fr_51: white space is bounded. */
static void test_white_space_is_bounded(void **state)
{
    char text[200] = "{";
    size_t n = 2;

    (void)state;
    text[1] = '\n';
    memset(text + n, ' ', 150);
    text[n + JSONGRAM_MAX_INDENT] = '}';
    fits("{\"type\":\"json_object\"}", false, text, FIT_NOT);
    text[n + JSONGRAM_MAX_INDENT] = '\0';
    fits("{\"type\":\"json_object\"}", false, text, FIT_PREFIX);
    fits("{\"type\":\"json_object\"}", false, "{}\n", FIT_NOT);
    fits("{\"type\":\"json_object\"}", false, " {}", FIT_NOT);
}

/* At the depth limit containers can be closed and no more opened. */
static void test_nesting_is_bounded_and_can_always_be_closed(void **state)
{
    struct gram *g = grams_compile("{\"type\":\"json_schema\",\"schema\":"
                                   "{\"type\":\"array\"}}",
                                   false);
    struct machine m;
    uint32_t s, depth = 0;

    (void)state;
    assert_int_equal(machine_init(&m, g), 0);
    s = machine_start(&m);
    while (machine_step(&m, s, '[') != MACHINE_DEAD) {
        s = machine_step(&m, s, '[');
        assert_true(++depth <= GRAM_MAX_DEPTH);
    }
    assert_true(depth > 30);
    for (uint32_t i = 0; i < depth; i++) {
        s = machine_step(&m, s, ']');
        assert_int_not_equal(s, MACHINE_DEAD);
    }
    assert_true(machine_accepts(&m, s));
    assert_true(machine_is_over(&m, s));
    machine_finish(&m);
    gram_destroy(g);
}

/* What a client may send costs no more than the limits. */
static void test_a_schema_that_explodes_is_refused(void **state)
{
    char *p = NULL, why[256] = "";
    size_t n = 0;
    FILE *f = open_memstream(&p, &n);

    (void)state;
    fprintf(f, "{\"type\":\"json_schema\",\"schema\":{\"allOf\":[");
    for (int i = 0; i < 20; i++) {
        fprintf(f,
                "%s{\"anyOf\":[{\"properties\":{\"a%d\":{}}},"
                "{\"properties\":{\"b%d\":{}}}]}",
                i > 0 ? "," : "", i, i);
    }
    fprintf(f, "]}}");
    fclose(f);
    assert_int_equal(grams_refusal(p, why, sizeof(why)), -EINVAL);
    assert_non_null(strstr(why, "more than 512 choices"));
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_a_schema),
        cmocka_unit_test(test_what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(test_forms_that_are_none_are_refused),
        cmocka_unit_test(test_the_other_forms),
        cmocka_unit_test(test_reasoning_comes_before_the_form),
        cmocka_unit_test(test_white_space_is_bounded),
        cmocka_unit_test(test_nesting_is_bounded_and_can_always_be_closed),
        cmocka_unit_test(test_a_schema_that_explodes_is_refused),
    };

    return test_main(tests, NULL, NULL);
}
