/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What a request may say: types, ranges, defaults, needed and forbidden keys,
 * versions. Each rule of client/wire.h section 3, once on either side.
 */

#include "client/wire_priv.h"
#include "tests/client/frames.h"

static void assert_str(struct wire_str s, const char *text)
{
    assert_non_null(s.p);
    assert_int_equal(s.n, strlen(text));
    assert_memory_equal(s.p, text, s.n + 1);
}

static void test_defaults(void **state)
{
    struct wire_request *r =
        accepted("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"\"}");

    (void)state;
    assert_int_equal(r->op, WIRE_GENERATE);
    assert_int_equal(r->id, 1);
    assert_str(r->prompt, "");
    assert_false(r->prompt_is_bin);
    assert_null(r->messages.p);
    assert_null(r->reasoning_effort.p);
    assert_true(r->thinking && r->wait && r->add_generation_prompt);
    assert_false(r->want_ids || r->special || r->append || r->off);
    assert_true(r->temperature == 1 && r->top_p == 1 && r->min_p == 0);
    assert_true(r->repetition_penalty == 1);
    assert_true(r->presence_penalty == 0 && r->frequency_penalty == 0);
    assert_int_equal(r->top_k, 0);
    assert_int_equal(r->max_tokens, 0);
    assert_int_equal(r->logprobs, -1);
    assert_int_equal(r->drafts, -1);
    assert_int_equal(r->priority, 0);
    assert_int_equal(r->timeout_ms, 0);
    assert_int_equal(r->n_stops, 0);
    assert_false(wire_has(r, WIRE_K_SEED));
    assert_true(wire_has(r, WIRE_K_PROMPT) && wire_has(r, WIRE_K_ID));
    wire_request_destroy(r);
}

static void test_every_key_of_generate(void **state)
{
    struct wire_request *r = accepted(
        "{\"op\": \"generate\", \"id\": 18446744073709551615,"
        " \"messages\": [{\"role\": \"user\", \"content\": \"\\u00fc\\n\"}],"
        " \"tools\": [{\"b\": 1, \"a\": 2.50}], \"reasoning_effort\": \"low\","
        " \"thinking\": false, \"temperature\": 0, \"top_p\": 0.25,"
        " \"min_p\": 1, \"top_k\": 2147483647, \"repetition_penalty\": 2,"
        " \"presence_penalty\": -2, \"frequency_penalty\": 1.5, \"seed\": 0,"
        " \"max_tokens\": 1, \"stop\": [\"x\", \"\\n\\n\"], \"logprobs\": 20,"
        " \"want_ids\": true, \"drafts\": 3, \"priority\": -10,"
        " \"stop_ids\": [0, 7], \"min_tokens\": 3, \"ignore_eos\": true,"
        " \"include_stop\": true, \"want_bytes\": true,"
        " \"max_reasoning_tokens\": 0, \"tool_choice\": \"none\","
        " \"timeout_ms\": 5000, \"wait\": false, \"x_trace\": \"t\"}");

    (void)state;
    assert_true(r->id == UINT64_MAX);
    assert_str(r->messages,
               "[{\"role\": \"user\", \"content\": \"\u00fc\\n\"}]");
    assert_str(r->tools, "[{\"b\": 1, \"a\": 2.5}]");
    assert_str(r->reasoning_effort, "low");
    assert_true(r->temperature == 0 && r->top_p == 0.25 && r->min_p == 1);
    assert_true(r->repetition_penalty == 2 && r->presence_penalty == -2 &&
                r->frequency_penalty == 1.5);
    assert_false(r->thinking || r->wait);
    assert_true(r->want_ids);
    assert_int_equal(r->top_k, INT32_MAX);
    assert_true(wire_has(r, WIRE_K_SEED));
    assert_int_equal(r->seed, 0);
    assert_int_equal(r->max_tokens, 1);
    assert_int_equal(r->n_stops, 2);
    assert_str(r->stop[0], "x");
    assert_str(r->stop[1], "\n\n");
    assert_int_equal(r->logprobs, 20);
    assert_int_equal(r->drafts, 3);
    assert_int_equal(r->priority, -10);
    assert_int_equal(r->timeout_ms, 5000);
    assert_int_equal(r->n_stop_ids, 2);
    assert_int_equal(r->stop_ids[1], 7);
    assert_int_equal(r->min_tokens, 3);
    assert_true(r->ignore_eos && r->include_stop && r->want_bytes);
    assert_int_equal(r->max_reasoning_tokens, 0);
    assert_str(r->tool_choice, "\"none\"");
    wire_request_destroy(r);
}

static void test_every_other_op(void **state)
{
    struct wire_request *r;

    (void)state;
    wire_request_destroy(accepted("{\"op\": \"ping\", \"id\": 2}"));
    wire_request_destroy(accepted("{\"op\": \"describe\", \"id\": 2}"));
    wire_request_destroy(accepted("{\"op\": \"status\", \"id\": 2}"));

    r = accepted("{\"op\": \"cancel\", \"id\": 2, \"target\": 1}");
    assert_int_equal(r->target, 1);
    assert_int_equal(r->job, 0);
    wire_request_destroy(r);
    r = accepted("{\"op\": \"cancel\", \"id\": 2, \"job\": 77}");
    assert_int_equal(r->job, 77);
    wire_request_destroy(r);

    r = accepted("{\"op\": \"tokenize\", \"id\": 2, \"prompt\": \"a\\u0000b\","
                 " \"special\": true}");
    assert_int_equal(r->prompt.n, 3);
    assert_memory_equal(r->prompt.p, "a\0b", 4);
    assert_true(r->special);
    wire_request_destroy(r);

    r = accepted("{\"op\": \"detokenize\", \"id\": 2, \"ids\": "
                 "[0, 5, 2147483647]}");
    assert_int_equal(r->n_ids, 3);
    assert_int_equal(r->ids[2], INT32_MAX);
    wire_request_destroy(r);
    r = accepted("{\"op\": \"detokenize\", \"id\": 2, \"ids\": []}");
    assert_int_equal(r->n_ids, 0);
    wire_request_destroy(r);

    r = accepted("{\"op\": \"render\", \"id\": 2, \"messages\": [], "
                 "\"add_generation_prompt\": false, \"want_ids\": true}");
    assert_str(r->messages, "[]");
    assert_false(r->add_generation_prompt);
    wire_request_destroy(r);
}

static void test_prompt_as_bytes(void **state)
{
    static const char body[] = "\x83\xa2id\x01\xa2op\xa8generate\xa6prompt"
                               "\xc4\x03\xff\x00\xfe";
    struct wire_request *r = NULL;
    struct wire_error err;

    (void)state;
    assert_int_equal(
        wire_decode_request((const uint8_t *)body, sizeof(body) - 1, &r, &err),
        0);
    assert_true(r->prompt_is_bin);
    assert_int_equal(r->prompt.n, 3);
    assert_memory_equal(r->prompt.p, "\xff\x00\xfe", 4);
    wire_request_destroy(r);
}

/* Each encoding that msgpack has for 5 and for -5. */
static void test_any_integer_encoding(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        int64_t value;
    } form[] = {
        {"\x05", 1, 5},
        {"\xcc\x05", 2, 5},
        {"\xcd\x00\x05", 3, 5},
        {"\xce\x00\x00\x00\x05", 5, 5},
        {"\xcf\x00\x00\x00\x00\x00\x00\x00\x05", 9, 5},
        {"\xd0\x05", 2, 5},
        {"\xd1\x00\x05", 3, 5},
        {"\xd2\x00\x00\x00\x05", 5, 5},
        {"\xd3\x00\x00\x00\x00\x00\x00\x00\x05", 9, 5},
        {"\xfb", 1, -5},
        {"\xd0\xfb", 2, -5},
        {"\xd1\xff\xfb", 3, -5},
        {"\xd2\xff\xff\xff\xfb", 5, -5},
        {"\xd3\xff\xff\xff\xff\xff\xff\xff\xfb", 9, -5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(form) / sizeof(form[0]); i++) {
        uint8_t body[64] = "\x84\xa2id\x01\xa2op\xa8generate\xa6prompt\xa0"
                           "\xa8priority";
        struct wire_request *r = NULL;
        struct wire_error err;
        size_t n = 34;
        assert_int_equal(strlen((char *)body), n);
        memcpy(body + n, form[i].bytes, form[i].n);
        assert_int_equal(wire_decode_request(body, n + form[i].n, &r, &err), 0);
        assert_int_equal(r->priority, form[i].value);
        wire_request_destroy(r);
        /* And as the request's id, where it is positive. */
        memcpy(body, "\x82\xa2op\xa4ping\xa2id", 12);
        memcpy(body + 12, form[i].bytes, form[i].n);
        int code = wire_decode_request(body, 12 + form[i].n, &r, &err);
        if (form[i].value > 0) {
            assert_int_equal(code, 0);
            assert_int_equal(r->id, 5);
            wire_request_destroy(r);
        } else {
            assert_int_equal(code, WIRE_E_BAD_REQUEST);
            assert_string_equal(err.detail, "id");
            assert_int_equal(err.id, 0);
        }
    }
}

static void test_float_32_and_integer_for_a_float(void **state)
{
    static const char body[] =
        "\x85\xa2id\x01\xa2op\xa8generate\xa6prompt\xa0"
        "\xa5top_p\xca\x3e\x80\x00\x00\xbbtemperature\x02";
    struct wire_request *r = NULL;
    struct wire_error err;
    uint8_t fixed[sizeof(body)];

    (void)state;
    memcpy(fixed, body, sizeof(body));
    *(uint8_t *)memchr(fixed, 0xbb, sizeof(body)) = 0xab;
    assert_int_equal(wire_decode_request(fixed, sizeof(body) - 1, &r, &err), 0);
    assert_true(r->top_p == 0.25);
    assert_true(r->temperature == 2);
    wire_request_destroy(r);
}

static void test_nil_is_absent(void **state)
{
    struct wire_request *r = accepted(
        "{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", \"messages\": "
        "null, \"temperature\": null, \"tools\": null, \"session\": null, "
        "\"seed\": null}");

    (void)state;
    assert_true(r->temperature == 1);
    assert_false(wire_has(r, WIRE_K_TEMPERATURE) ||
                 wire_has(r, WIRE_K_MESSAGES) || wire_has(r, WIRE_K_SEED));
    wire_request_destroy(r);
    wire_request_destroy(
        accepted("{\"op\": \"ping\", \"id\": 1, \"prompt\": null}"));
    refused("{\"op\": \"ping\", \"id\": 1, \"promt\": null}",
            WIRE_E_BAD_REQUEST, "promt");
    refused("{\"op\": \"tokenize\", \"id\": 1, \"prompt\": null}",
            WIRE_E_BAD_REQUEST, "prompt");
    refused("{\"op\": \"ping\", \"id\": null}", WIRE_E_BAD_REQUEST, "id");
    refused("{\"op\": null, \"id\": 1}", WIRE_E_BAD_REQUEST, "op");
}

static void test_op_and_id(void **state)
{
    struct wire_error err;
    struct wire_request *r = NULL;

    (void)state;
    refused("{}", WIRE_E_BAD_REQUEST, "id");
    refused("{\"id\": 1}", WIRE_E_BAD_REQUEST, "op");
    refused("{\"op\": \"ping\"}", WIRE_E_BAD_REQUEST, "id");
    refused("{\"op\": \"ping\", \"id\": 0}", WIRE_E_BAD_REQUEST, "id");
    refused("{\"op\": \"ping\", \"id\": -1}", WIRE_E_BAD_REQUEST, "id");
    refused("{\"op\": \"ping\", \"id\": 1.0}", WIRE_E_BAD_REQUEST, "id");
    refused("{\"op\": \"ping\", \"id\": \"1\"}", WIRE_E_BAD_REQUEST, "id");
    refused("{\"op\": 1, \"id\": 1}", WIRE_E_BAD_REQUEST, "op");
    refused("{\"op\": \"Ping\", \"id\": 1}", WIRE_E_UNKNOWN_OP, "Ping");
    refused("{\"op\": \"\", \"id\": 1}", WIRE_E_UNKNOWN_OP, "");
    assert_int_equal(
        decode_json("{\"op\": \"sing\", \"id\": 44, \"song\": 1}", &r, &err),
        WIRE_E_UNKNOWN_OP);
    assert_int_equal(err.id, 44);
}

static void test_unknown_and_duplicate_keys(void **state)
{
    (void)state;
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", "
            "\"temprature\": 0.5}",
            WIRE_E_BAD_REQUEST, "temprature");
    refused("{\"op\": \"ping\", \"id\": 1, \"\": 0}", WIRE_E_BAD_REQUEST, "");
    refused("{\"op\": \"ping\", \"id\": 1, \"x\": 0}", WIRE_E_BAD_REQUEST, "x");
    /* Control characters do not reach a log or a terminal. */
    refused("{\"op\": \"ping\", \"id\": 1, \"a\\u001b[2J\": 0}",
            WIRE_E_BAD_REQUEST, "a?[2J");
    refused("{\"op\": \"ping\", \"id\": 1, \"x_a\": 0, \"x_a\": 0}",
            WIRE_E_BAD_REQUEST, "x_a");
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", \"top_k\": 1,"
            " \"top_k\": 1}",
            WIRE_E_BAD_REQUEST, "top_k");
    refused("{\"op\": \"ping\", \"id\": 1, \"id\": 1}", WIRE_E_BAD_REQUEST,
            "id");
    refused("{\"op\": \"render\", \"id\": 1, \"messages\": [{\"role\": \"user\""
            ", \"role\": \"system\"}]}",
            WIRE_E_BAD_REQUEST, "role");
    /* x_ at the top only, and any value there. */
    wire_request_destroy(accepted("{\"op\": \"ping\", \"id\": 1, \"x_\": 1, "
                                  "\"x_b\": {\"x_b\": [null]}}"));
}

static void test_long_unknown_key_is_cut_at_a_character(void **state)
{
    struct wire_request *r = NULL;
    struct wire_error err;
    char json[512] = "{\"op\": \"ping\", \"id\": 1, \"";

    (void)state;
    for (int i = 0; i < 100; i++) {
        strcat(json, "\u00e9");
    }
    strcat(json, "\": 1}");
    assert_int_equal(decode_json(json, &r, &err), WIRE_E_BAD_REQUEST);
    assert_int_equal(strlen(err.detail), 126);
    assert_true(wire_utf8_ok(err.detail, strlen(err.detail)));
}

static void test_keys_of_another_op(void **state)
{
    (void)state;
    refused("{\"op\": \"ping\", \"id\": 1, \"prompt\": \"a\"}",
            WIRE_E_BAD_REQUEST, "prompt");
    refused("{\"op\": \"tokenize\", \"id\": 1, \"prompt\": \"a\", "
            "\"temperature\": 1}",
            WIRE_E_BAD_REQUEST, "temperature");
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", "
            "\"target\": 1}",
            WIRE_E_BAD_REQUEST, "target");
}

static void test_needed_keys_and_pairs(void **state)
{
    (void)state;
    refused("{\"op\": \"tokenize\", \"id\": 1}", WIRE_E_BAD_REQUEST, "prompt");
    refused("{\"op\": \"detokenize\", \"id\": 1}", WIRE_E_BAD_REQUEST, "ids");
    refused("{\"op\": \"render\", \"id\": 1}", WIRE_E_BAD_REQUEST, "messages");
    refused("{\"op\": \"generate\", \"id\": 1}", WIRE_E_BAD_REQUEST,
            "messages");
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", "
            "\"messages\": []}",
            WIRE_E_BAD_REQUEST, "messages");
    refused("{\"op\": \"cancel\", \"id\": 1}", WIRE_E_BAD_REQUEST, "target");
    refused("{\"op\": \"cancel\", \"id\": 1, \"job\": 1, \"target\": 1}",
            WIRE_E_BAD_REQUEST, "target");
    /* What a raw prompt would quietly ignore is refused. */
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", "
            "\"tools\": []}",
            WIRE_E_BAD_REQUEST, "tools");
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", "
            "\"thinking\": true}",
            WIRE_E_BAD_REQUEST, "thinking");
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"a\", "
            "\"reasoning_effort\": \"low\"}",
            WIRE_E_BAD_REQUEST, "reasoning_effort");
}

/* Values just inside and just outside, and of a wrong type, key by key. */
static void test_types_and_ranges(void **state)
{
    static const struct {
        const char *key, *good, *bad; /* lists of JSON values, by ; */
    } row[] = {
        {"temperature", "0;100;0.7;1", "-0.001;100.5;\"1\";true;[1];{}"},
        {"top_p", "1;0.0001", "0;0.0;-0.5;1.01;\"1\""},
        {"min_p", "0;1;0.5", "-1;1.5"},
        {"top_k", "0;1;2147483647", "-1;2147483648;1.0;\"1\";true"},
        {"repetition_penalty", "0.01;1;100", "0;0.009;101;\"1\""},
        {"presence_penalty", "-2;0;2", "-2.1;2.1"},
        {"frequency_penalty", "-2;0;2", "-2.1;2.1"},
        {"seed", "0;18446744073709551615", "-1;1.5;\"a\""},
        {"max_tokens", "1;2147483647", "0;-1;2147483648;1.5"},
        {"stop", "[];[\"a\"];[\"a\", \"b\"]",
         "\"a\";[\"\"];[1];[null];[[\"a\"]];{}"},
        {"logprobs", "0;20", "-1;21;true"},
        {"want_ids", "true;false", "0;1;\"true\";[]"},
        {"drafts", "0;3", "-1;4"},
        {"priority", "-10;0;10", "-11;11;0.5"},
        {"timeout_ms", "0;1;9007199254740992", "-1;9007199254740993;1.5"},
        {"wait", "true;false", "1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        for (int good = 0; good < 2; good++) {
            char values[128], json[256], *save = NULL;
            snprintf(values, sizeof(values), "%s",
                     good ? row[i].good : row[i].bad);
            for (char *v = strtok_r(values, ";", &save); v != NULL;
                 v = strtok_r(NULL, ";", &save)) {
                snprintf(json, sizeof(json),
                         "{\"op\": \"generate\", \"id\": 1, \"prompt\": \"p\","
                         " \"%s\": %s}",
                         row[i].key, v);
                if (good) {
                    wire_request_destroy(accepted(json));
                } else {
                    refused(json, WIRE_E_BAD_REQUEST, row[i].key);
                }
            }
        }
    }
}

static void test_types_of_other_ops(void **state)
{
    (void)state;
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": 1}",
            WIRE_E_BAD_REQUEST, "prompt");
    refused("{\"op\": \"render\", \"id\": 1, \"messages\": {}}",
            WIRE_E_BAD_REQUEST, "messages");
    refused("{\"op\": \"render\", \"id\": 1, \"messages\": [1]}",
            WIRE_E_BAD_REQUEST, "messages");
    refused("{\"op\": \"render\", \"id\": 1, \"messages\": [], "
            "\"reasoning_effort\": \"max\"}",
            WIRE_E_BAD_REQUEST, "reasoning_effort");
    refused("{\"op\": \"render\", \"id\": 1, \"messages\": [], "
            "\"reasoning_effort\": \"\"}",
            WIRE_E_BAD_REQUEST, "reasoning_effort");
    refused("{\"op\": \"detokenize\", \"id\": 1, \"ids\": [-1]}",
            WIRE_E_BAD_REQUEST, "ids");
    refused("{\"op\": \"detokenize\", \"id\": 1, \"ids\": [2147483648]}",
            WIRE_E_BAD_REQUEST, "ids");
    refused("{\"op\": \"detokenize\", \"id\": 1, \"ids\": [\"1\"]}",
            WIRE_E_BAD_REQUEST, "ids");
    refused("{\"op\": \"cancel\", \"id\": 1, \"job\": 0}", WIRE_E_BAD_REQUEST,
            "job");
}

static void test_bin_inside_messages_is_refused(void **state)
{
    static const char body[] = "\x83\xa2id\x01\xa2op\xa6render\xa8messages"
                               "\x91\x81\xa7"
                               "content\xc4\x01z";
    struct wire_request *r = NULL;
    struct wire_error err;

    (void)state;
    assert_int_equal(
        wire_decode_request((const uint8_t *)body, sizeof(body) - 1, &r, &err),
        WIRE_E_BAD_REQUEST);
    assert_string_equal(err.detail, "messages");
}

static void test_stop_limits(void **state)
{
    char json[WIRE_MAX_STOP_BYTES + 200], items[256] = "";
    char text[WIRE_MAX_STOP_BYTES + 2];
    struct wire_request *r;

    (void)state;
    for (int i = 0; i < WIRE_MAX_STOPS; i++) {
        strcat(items, i > 0 ? ", \"s\"" : "\"s\"");
    }
    snprintf(json, sizeof(json),
             "{\"op\": \"generate\", \"id\": 1, \"prompt\": \"\", "
             "\"stop\": [%s]}",
             items);
    r = accepted(json);
    assert_int_equal(r->n_stops, WIRE_MAX_STOPS);
    wire_request_destroy(r);
    strcat(items, ", \"s\"");
    snprintf(json, sizeof(json),
             "{\"op\": \"generate\", \"id\": 1, \"prompt\": \"\", "
             "\"stop\": [%s]}",
             items);
    refused(json, WIRE_E_BAD_REQUEST, "stop");

    memset(text, 'a', sizeof(text));
    for (int n = WIRE_MAX_STOP_BYTES; n <= WIRE_MAX_STOP_BYTES + 1; n++) {
        snprintf(json, sizeof(json),
                 "{\"op\": \"generate\", \"id\": 1, \"prompt\": \"\", "
                 "\"stop\": [\"b\", \"%.*s\"]}",
                 n, text);
        if (n == WIRE_MAX_STOP_BYTES) {
            wire_request_destroy(accepted(json));
        } else {
            refused(json, WIRE_E_BAD_REQUEST, "stop");
        }
    }
}

static void test_hello_and_versions(void **state)
{
    struct wire_request *r = accepted(
        "{\"op\": \"hello\", \"id\": 1, \"version_min\": 1, \"version_max\": 9,"
        " \"client_name\": \"t 1\", \"features\": [\"a\", \"b\"]}");

    (void)state;
    assert_int_equal(r->version, 1);
    assert_int_equal(r->version_max, 9);
    assert_str(r->client_name, "t 1");
    wire_request_destroy(r);
    refused("{\"op\": \"hello\", \"id\": 1, \"version_min\": 1}",
            WIRE_E_BAD_REQUEST, "version_max");
    refused("{\"op\": \"hello\", \"id\": 1, \"version_max\": 1}",
            WIRE_E_BAD_REQUEST, "version_min");
    refused("{\"op\": \"hello\", \"id\": 1, \"version_min\": 2, "
            "\"version_max\": 1}",
            WIRE_E_BAD_REQUEST, "version_max");
    refused("{\"op\": \"hello\", \"id\": 1, \"version_min\": 0, "
            "\"version_max\": 1}",
            WIRE_E_BAD_REQUEST, "version_min");
    refused("{\"op\": \"hello\", \"id\": 1, \"version_min\": 1, "
            "\"version_max\": 1, \"features\": [1]}",
            WIRE_E_BAD_REQUEST, "features");
    refused("{\"op\": \"hello\", \"id\": 1, \"version_min\": 1, "
            "\"version_max\": 1, \"novelty\": 1}",
            WIRE_E_BAD_REQUEST, "novelty");
    /* A client from the future is told so, whatever else it says. */
    refused("{\"op\": \"hello\", \"id\": 1, \"novelty\": {}, "
            "\"version_min\": 2, \"version_max\": 3}",
            WIRE_E_VERSION, "");
}

/* What the protocol names and this daemon has not got. */
static void refused_bias(const char *bias)
{
    char json[256];

    snprintf(json, sizeof(json),
             "{\"op\": \"generate\", \"id\": 1, \"prompt\": \"\", "
             "\"logit_bias\": %s}",
             bias);
    refused(json, WIRE_E_BAD_REQUEST, "logit_bias");
}

static void test_logit_bias(void **state)
{
    struct wire_request *r = NULL;
    struct wire_error err;
    char json[32 * (WIRE_MAX_LOGIT_BIAS + 8)];
    size_t n;

    (void)state;
    assert_int_equal(decode_json("{\"op\": \"generate\", \"id\": 1, "
                                 "\"prompt\": \"\", \"logit_bias\": "
                                 "{\"0\": -100, \"2147483647\": 0.5}}",
                                 &r, &err),
                     0);
    assert_int_equal(r->n_logit_bias, 2);
    assert_int_equal(r->logit_bias[0].id, 0);
    assert_true(r->logit_bias[0].bias == -100);
    assert_int_equal(r->logit_bias[1].id, INT32_MAX);
    assert_true(r->logit_bias[1].bias == 0.5F);
    wire_request_destroy(r);
    r = NULL;
    refused_bias("[]");
    refused_bias("{\"\": 1}");
    refused_bias("{\"a\": 1}");
    refused_bias("{\"-1\": 1}");
    refused_bias("{\"07\": 1}");
    refused_bias("{\"2147483648\": 1}");
    refused_bias("{\"99999999999\": 1}");
    refused_bias("{\"1\": \"1\"}");
    refused_bias("{\"1\": 100.5}");
    refused_bias("{\"1\": -101}");
    for (int more = 0; more < 2; more++) {
        n = (size_t)snprintf(json, sizeof(json),
                             "{\"op\": \"generate\", \"id\": 1, "
                             "\"prompt\": \"\", \"logit_bias\": {");
        for (int i = 0; i < WIRE_MAX_LOGIT_BIAS + more; i++) {
            n += (size_t)snprintf(json + n, sizeof(json) - n, "%s\"%d\": 1",
                                  i > 0 ? ", " : "", i);
        }
        (void)snprintf(json + n, sizeof(json) - n, "}}");
        if (more == 0) {
            assert_int_equal(decode_json(json, &r, &err), 0);
            assert_int_equal(r->n_logit_bias, WIRE_MAX_LOGIT_BIAS);
            wire_request_destroy(r);
        } else {
            refused(json, WIRE_E_BAD_REQUEST, "logit_bias");
        }
    }
}

static void test_later_is_unsupported_and_named(void **state)
{
    char json[256];
    struct wire_request *r = NULL;
    struct wire_error err;

    (void)state;
    for (int i = 0; i < WIRE_N_OPS; i++) {
        if (wire_ops[i].later) {
            snprintf(json, sizeof(json), "{\"op\": \"%s\", \"id\": 12}",
                     wire_ops[i].name);
            assert_int_equal(decode_json(json, &r, &err), WIRE_E_UNSUPPORTED);
            assert_string_equal(err.detail, wire_ops[i].name);
            assert_int_equal(err.id, 12);
        }
    }
    /* A mistake is a mistake first. */
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"\", "
            "\"ignore_eos\": 1}",
            WIRE_E_BAD_REQUEST, "ignore_eos");
    refused("{\"op\": \"generate\", \"id\": 1, \"messages\": [], "
            "\"session\": \".hidden\"}",
            WIRE_E_BAD_REQUEST, "session");
    refused("{\"op\": \"generate\", \"id\": 1, \"messages\": [], "
            "\"session\": \"a/b\"}",
            WIRE_E_BAD_REQUEST, "session");
    refused("{\"op\": \"generate\", \"id\": 1, \"messages\": [], "
            "\"session\": \"\"}",
            WIRE_E_BAD_REQUEST, "session");
    refused("{\"op\": \"generate\", \"id\": 1, \"prompt\": \"\", "
            "\"ignore_eos\": true, \"typo\": 1}",
            WIRE_E_BAD_REQUEST, "typo");
}

static void test_codes_are_words_both_ways(void **state)
{
    (void)state;
    for (int code = WIRE_E_BAD_FRAME; code >= WIRE_E_INTERNAL; code--) {
        const char *word = wire_code_name(code);
        assert_int_equal(wire_code_find(word, strlen(word)), code);
    }
    assert_string_equal(wire_code_name(WIRE_E_DISCONNECTED), "disconnected");
    assert_string_equal(wire_code_name(-99), "internal");
    assert_int_equal(wire_code_find("from_the_future", 15), WIRE_E_INTERNAL);
    assert_int_equal(wire_code_find("busyness", 4), WIRE_E_BUSY);
}

/* Rows that nobody filled would be silent holes in every table. */
static void test_tables_are_whole(void **state)
{
    (void)state;
    for (int i = 0; i < WIRE_N_OPS; i++) {
        assert_non_null(wire_ops[i].name);
        assert_int_equal(
            wire_op_find(wire_ops[i].name, strlen(wire_ops[i].name)), i);
    }
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *row = &wire_keys[i];
        assert_non_null(row->name);
        assert_non_null(row->doc);
        assert_int_equal(wire_key_find(row->name, strlen(row->name)), i);
        assert_int_not_equal(row->ops, 0);
        assert_int_equal(row->needs & ~row->ops, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_key_of_generate),
        cmocka_unit_test(test_every_other_op),
        cmocka_unit_test(test_prompt_as_bytes),
        cmocka_unit_test(test_any_integer_encoding),
        cmocka_unit_test(test_float_32_and_integer_for_a_float),
        cmocka_unit_test(test_nil_is_absent),
        cmocka_unit_test(test_op_and_id),
        cmocka_unit_test(test_unknown_and_duplicate_keys),
        cmocka_unit_test(test_long_unknown_key_is_cut_at_a_character),
        cmocka_unit_test(test_keys_of_another_op),
        cmocka_unit_test(test_needed_keys_and_pairs),
        cmocka_unit_test(test_types_and_ranges),
        cmocka_unit_test(test_types_of_other_ops),
        cmocka_unit_test(test_bin_inside_messages_is_refused),
        cmocka_unit_test(test_stop_limits),
        cmocka_unit_test(test_hello_and_versions),
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_later_is_unsupported_and_named),
        cmocka_unit_test(test_codes_are_words_both_ways),
        cmocka_unit_test(test_tables_are_whole),
    };
    return test_main(tests, NULL, NULL);
}
