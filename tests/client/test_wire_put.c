/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Events out and in again: each kind whole, long results in parts, what happens
 * at the end of memory, and that describe and hello say all that the tables
 * hold.
 */

#include <errno.h>

#include "client/wire_priv.h"
#include "tests/client/frames.h"

static struct wire_buf buf;

static int setup(void **state)
{
    (void)state;
    wire_buf_init(&buf, (size_t)4 * WIRE_MAX_FRAME);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wire_buf_finish(&buf);
    return 0;
}

/* The one event in buf reads so. */
static void assert_only_event(const char *json)
{
    size_t at = 0;
    struct wire_event *e = next_event(&buf, &at);

    assert_int_equal(at, buf.n);
    assert_event_json(e, "", json);
    wire_event_destroy(e);
    buf.n = 0;
}

static void test_small_events(void **state)
{
    (void)state;
    assert_int_equal(wire_put_accepted(&buf, 7, UINT64_MAX, 3, 12), 0);
    assert_only_event("{\"id\": 7, \"event\": \"accepted\", \"job\": "
                      "18446744073709551615, \"queue_position\": 3, "
                      "\"prompt_tokens\": 12}");
    assert_int_equal(wire_put_progress(&buf, 7, 1, 2, 0), 0);
    assert_only_event("{\"id\": 7, \"event\": \"progress\", \"done\": 1, "
                      "\"total\": 2, \"cached\": 0}");
    assert_int_equal(
        wire_put_error(&buf, 0, WIRE_E_BUSY, "try later", NULL, 250), 0);
    assert_only_event("{\"id\": 0, \"event\": \"error\", \"code\": \"busy\", "
                      "\"message\": \"try later\", \"retry_ms\": 250}");
    assert_int_equal(
        wire_put_error(&buf, 1, WIRE_E_BAD_REQUEST, "no", "top_k", 0), 0);
    assert_only_event("{\"id\": 1, \"event\": \"error\", \"code\": "
                      "\"bad_request\", \"message\": \"no\", \"detail\": "
                      "\"top_k\"}");
    assert_int_equal(wire_put_error(&buf, 1, WIRE_E_VERSION, "no", "", 0), 0);
    assert_only_event("{\"id\": 1, \"event\": \"error\", \"code\": \"version\","
                      " \"message\": \"no\", \"version_min\": 1, "
                      "\"version_max\": 1}");
}

static void test_done(void **state)
{
    struct wire_done d = {.finish_reason = "stop",
                          .prompt_tokens = 1,
                          .cached_tokens = 2,
                          .completion_tokens = 3,
                          .reasoning_tokens = 4,
                          .drafts = 4,
                          .drafted = 5,
                          .accepted = 6,
                          .accepted_at = {3, 2, 1},
                          .seed = UINT64_MAX,
                          .queue_ms = 0.5,
                          .prefill_ms = 1.25,
                          .decode_ms = NAN};

    (void)state;
    assert_int_equal(wire_put_done(&buf, 9, &d), 0);
    assert_only_event(
        "{\"id\": 9, \"event\": \"done\", \"finish_reason\": \"stop\", "
        "\"usage\": {\"prompt_tokens\": 1, \"cached_tokens\": 2, "
        "\"completion_tokens\": 3, \"reasoning_tokens\": 4, \"drafts\": 4, "
        "\"drafted\": 5, \"accepted\": 6, \"accepted_at\": [3, 2, 1], "
        "\"mean_acceptance_length\": 2.5}, \"seed\": 18446744073709551615, \"timings\": "
        "{\"queue_ms\": 0.5, \"prefill_ms\": 1.25, \"decode_ms\": null}}");
    d.finish_reason = NULL;
    assert_int_equal(wire_put_done(&buf, 9, &d), 0);
    assert_only_event("{\"id\": 9, \"event\": \"done\"}");
}

static void test_delta(void **state)
{
    static const int32_t ids[] = {5, 128895};
    static const int32_t top_id[] = {5, 6};
    static const float top_logprob[] = {-0.5f, -INFINITY};
    static const struct wire_str top_bytes[] = {{"h", 1}, {"\xc3", 1}};
    const struct wire_logprob lp[] = {
        {.id = 5,
         .logprob = -0.5,
         .bytes = "h",
         .n_bytes = 1,
         .n_top = 2,
         .top_id = top_id,
         .top_logprob = top_logprob,
         .top_bytes = top_bytes},
        {.id = 6, .logprob = -2},
    };
    struct wire_delta d = {.kind = "content", .text = "h\u00e9", .n = 3};

    (void)state;
    assert_int_equal(wire_put_delta(&buf, 1, &d), 0);
    assert_only_event("{\"id\": 1, \"event\": \"delta\", \"kind\": \"content\","
                      " \"text\": \"h\u00e9\"}");
    d = (struct wire_delta){.kind = "reasoning",
                            .ids = ids,
                            .n_ids = 2,
                            .logprobs = lp,
                            .n_logprobs = 2};
    assert_int_equal(wire_put_delta(&buf, 1, &d), 0);
    assert_only_event(
        "{\"id\": 1, \"event\": \"delta\", \"kind\": \"reasoning\", \"ids\": "
        "[5, 128895], \"logprobs\": [{\"id\": 5, \"logprob\": -0.5, \"bytes\": "
        "[104], \"top\": [{\"id\": 5, \"logprob\": -0.5, \"bytes\": [104]}, "
        "{\"id\": 6, \"logprob\": null, \"bytes\": [195]}]}, {\"id\": 6, "
        "\"logprob\": -2.0, \"top\": []}]}");
    /* str is a promise: what is not UTF-8 goes out as bytes. */
    d = (struct wire_delta){.kind = "content", .text = "a\xff", .n = 2};
    assert_int_equal(wire_put_delta(&buf, 1, &d), 0);
    assert_only_event("{\"id\": 1, \"event\": \"delta\", \"kind\": \"content\","
                      " \"text\": [97, 255]}");
    d = (struct wire_delta){
        .kind = "content", .text = "a", .n = 1, .bytes = true};
    assert_int_equal(wire_put_delta(&buf, 1, &d), 0);
    assert_only_event("{\"id\": 1, \"event\": \"delta\", \"kind\": \"content\","
                      " \"text\": [97]}");
}

static void test_call(void **state)
{
    struct wire_call c = {.key = "call",
                          .index = 1,
                          .id = "call_0",
                          .name = {"f", 1},
                          .text = {"{}", 2}};
    const struct wire_delta d = {.kind = "tool_call", .call = &c};
    static const char head[] =
        "{\"id\": 1, \"event\": \"delta\", \"kind\": \"tool_call\", ";
    char text[256];

    (void)state;
    assert_int_equal(wire_put_delta(&buf, 1, &d), 0);
    snprintf(text, sizeof(text),
             "%s\"call\": {\"index\": 1, \"id\": \"call_0\", \"name\": \"f\", "
             "\"arguments\": \"{}\"}}",
             head);
    assert_only_event(text);
    c = (struct wire_call){.key = "call_args", .text = {"{\"a", 3}};
    assert_int_equal(wire_put_delta(&buf, 1, &d), 0);
    snprintf(text, sizeof(text),
             "%s\"call_args\": {\"index\": 0, \"text\": \"{\\\"a\"}}", head);
    assert_only_event(text);
    c = (struct wire_call){.key = "call_dropped", .index = 2};
    assert_int_equal(wire_put_delta(&buf, 1, &d), 0);
    snprintf(text, sizeof(text), "%s\"call_dropped\": {\"index\": 2}}", head);
    assert_only_event(text);
}

static void test_long_ids_come_in_parts(void **state)
{
    const size_t n = 500000;
    int32_t *ids = malloc(n * sizeof(*ids));
    size_t at = 0, seen = 0, n_parts = 0;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(i * 4001 & INT32_MAX);
    }
    assert_int_equal(wire_put_part_ids(&buf, 3, ids, n), 0);
    while (at < buf.n) {
        size_t from = at;
        struct wire_event *e = next_event(&buf, &at);
        struct wire_value v, item;
        char path[32];
        assert_true(at - from < WIRE_PART_BYTES + 100);
        assert_string_equal(wire_event_name(e), "part");
        assert_int_equal(wire_event_id(e), 3);
        assert_true(wire_event_get(e, "ids", &v));
        assert_int_equal(v.type, WIRE_V_LIST);
        for (size_t i = 0; i < v.n; i += 1 + (v.n - 1) / 7) {
            snprintf(path, sizeof(path), "ids.%zu", i);
            assert_true(wire_event_get(e, path, &item));
            assert_int_equal(item.u, ids[seen + i]);
        }
        snprintf(path, sizeof(path), "ids.%zu", v.n);
        assert_false(wire_event_get(e, path, &item));
        seen += v.n;
        n_parts++;
        wire_event_destroy(e);
    }
    assert_int_equal(seen, n);
    assert_true(n_parts > 1);
    buf.n = 0;
    assert_int_equal(wire_put_part_ids(&buf, 3, ids, 0), 0);
    assert_int_equal(buf.n, 0);
    free(ids);
}

/* Parts joined are the text, and no part cuts a character. */
static void assert_text_parts(const char *text, size_t n, bool bytes,
                              enum wire_value_type type)
{
    size_t at = 0, seen = 0;

    assert_int_equal(wire_put_part_text(&buf, 4, text, n, bytes), 0);
    while (at < buf.n) {
        struct wire_event *e = next_event(&buf, &at);
        struct wire_value v;
        assert_true(wire_event_get(e, "text", &v));
        assert_int_equal(v.type, type);
        assert_true(v.s.n > 0 && v.s.n <= WIRE_PART_BYTES);
        assert_memory_equal(v.s.p, text + seen, v.s.n);
        assert_true(type == WIRE_V_BIN || wire_utf8_ok(v.s.p, v.s.n));
        seen += v.s.n;
        wire_event_destroy(e);
    }
    assert_int_equal(seen, n);
    buf.n = 0;
}

static void test_long_text_comes_in_parts(void **state)
{
    const size_t n = 3 * (size_t)WIRE_PART_BYTES + 5;
    char *text = malloc(n);

    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        size_t i = shift;
        for (; i + 4 <= n; i += 4) {
            memcpy(text + i, "\U0001f600", 4);
        }
        assert_text_parts(text, i, false, WIRE_V_STR);
    }
    text[n / 2] = '\xff';
    assert_text_parts(text, n, false, WIRE_V_BIN);
    memset(text, 'b', n);
    assert_text_parts(text, n, true, WIRE_V_BIN);
    assert_text_parts(text, 0, false, WIRE_V_STR);
    free(text);
}

static void test_nested_maps_and_lists(void **state)
{
    struct wire_map m, inner, list;

    (void)state;
    wire_map_begin_done(&m, &buf, 2);
    wire_map_open(&m, "load", &inner);
    wire_map_uint(&inner, "done", 5);
    wire_map_close(&inner);
    wire_map_open_list(&m, "jobs", &list);
    for (int i = 0; i < 2; i++) {
        wire_list_open(&list, &inner);
        wire_map_int(&inner, "job", i - 1);
        wire_map_close(&inner);
    }
    wire_map_close(&list);
    wire_map_open_list(&m, "empty", &list);
    wire_map_close(&list);
    wire_map_bool(&m, "ok", true);
    wire_map_real(&m, "x", 0.5);
    wire_map_real(&m, "inf", INFINITY);
    wire_map_bin(&m, "raw", "\x01", 1);
    wire_map_str(&m, "s", "t");
    assert_int_equal(wire_map_end(&m), 0);
    assert_only_event("{\"id\": 2, \"event\": \"done\", \"load\": {\"done\": 5}"
                      ", \"jobs\": [{\"job\": -1}, {\"job\": 0}], \"empty\": "
                      "[], \"ok\": true, \"x\": 0.5, \"inf\": null, \"raw\": "
                      "[1], \"s\": \"t\"}");
}

/* A frame is appended whole or not at all. */
static void test_full_buffer_keeps_whole_frames(void **state)
{
    struct wire_buf small;
    size_t whole;

    (void)state;
    for (size_t max = 0; max < 400; max++) {
        wire_buf_init(&small, max);
        whole = 0;
        while (wire_put_accepted(&small, 1, 2, 3, 4) == 0) {
            whole = small.n;
        }
        assert_int_equal(small.err, -E2BIG);
        assert_int_equal(small.n, whole);
        /* The error sticks, so that it need not be asked each time. */
        assert_int_equal(wire_put_progress(&small, 1, 2, 3, 4), -E2BIG);
        assert_int_equal(small.n, whole);
        wire_buf_finish(&small);
    }
    wire_buf_init(&small, (size_t)2 * WIRE_PART_BYTES);
    char *text = calloc(1, (size_t)3 * WIRE_PART_BYTES);
    assert_int_equal(
        wire_put_part_text(&small, 1, text, (size_t)3 * WIRE_PART_BYTES, false),
        -E2BIG);
    assert_int_equal(small.n, 0);
    free(text);
    wire_buf_finish(&small);
}

static void test_no_event_exceeds_max_frame(void **state)
{
    char *text = calloc(1, WIRE_MAX_FRAME);
    struct wire_delta d = {
        .kind = "content", .text = text, .n = WIRE_MAX_FRAME};

    (void)state;
    assert_int_equal(wire_put_delta(&buf, 1, &d), -E2BIG);
    assert_int_equal(buf.n, 0);
    free(text);
}

static bool list_has(const struct wire_event *e, const char *list,
                     const char *item, const char *name, size_t *ret)
{
    struct wire_value v;
    char path[128];

    assert_true(wire_event_get(e, list, &v));
    size_t n = v.n;
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s.%zu%s%s", list, i, *item ? "." : "",
                 item);
        assert_true(wire_event_get(e, path, &v));
        if (v.s.n == strlen(name) && memcmp(v.s.p, name, v.s.n) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

static void test_hello_announces_what_is_served(void **state)
{
    static const char *const extra[] = {"mtp"};
    static const struct wire_limit configured[] = {
        {"frame_timeout_ms", 30000, ""}};
    const struct wire_limits_now now = {.server_version = "0.1.0",
                                        .model = "step-tiny",
                                        .max_model_len = 4096,
                                        .max_in_flight = 8,
                                        .features = extra,
                                        .n_features = 1,
                                        .extra = configured,
                                        .n_extra = 1};
    struct wire_event *e;
    struct wire_value v;
    size_t at = 0, i;
    char word[64];

    (void)state;
    assert_int_equal(wire_put_hello(&buf, 1, &now), 0);
    e = next_event(&buf, &at);
    assert_string_equal(wire_event_name(e), "hello");
    assert_event_json(e, "version", "1");
    assert_event_json(e, "served_model_name", "\"step-tiny\"");
    assert_true(list_has(e, "features", "", "mtp", &i));
    for (int k = 0; k < WIRE_N_KEYS; k++) {
        snprintf(word, sizeof(word), "key.%s", wire_keys[k].name);
        assert_int_equal(list_has(e, "features", "", word, &i),
                         (wire_keys[k].flags & WIRE_KEY_LATER) == 0);
    }
    for (int k = 0; k < WIRE_N_OPS; k++) {
        snprintf(word, sizeof(word), "op.%s", wire_ops[k].name);
        assert_int_equal(list_has(e, "features", "", word, &i),
                         !wire_ops[k].later);
    }
    for (size_t k = 0; k < wire_n_limits; k++) {
        snprintf(word, sizeof(word), "limits.%s", wire_limits[k].name);
        assert_true(wire_event_get(e, word, &v));
        assert_int_equal(v.type, WIRE_V_UINT);
    }
    assert_event_json(e, "limits.max_in_flight", "8");
    assert_event_json(e, "limits.max_model_len", "4096");
    assert_event_json(e, "limits.frame_timeout_ms", "30000");
    assert_false(wire_event_get(e, "limits.max_prompt_bytes", &v));
    wire_event_destroy(e);
}

static void assert_key(const struct wire_event *e, const char *name,
                       const char *field, const char *json)
{
    char path[64];
    size_t i;

    assert_true(list_has(e, "keys", "name", name, &i));
    snprintf(path, sizeof(path), "keys.%zu.%s", i, field);
    assert_event_json(e, path, json);
}

static void test_describe_is_complete(void **state)
{
    struct wire_event *e;
    struct wire_value v;
    size_t at = 0, i;

    (void)state;
    assert_int_equal(wire_put_describe(&buf, 1), 0);
    e = next_event(&buf, &at);
    for (int k = 0; k < WIRE_N_OPS; k++) {
        assert_true(list_has(e, "ops", "name", wire_op_name(k), &i));
    }
    for (int k = 0; k < WIRE_N_KEYS; k++) {
        assert_true(list_has(e, "keys", "name", wire_key_name(k), &i));
    }
    for (int code = WIRE_E_BAD_FRAME; code >= WIRE_E_INTERNAL; code--) {
        assert_true(list_has(e, "codes", "name", wire_code_name(code), &i));
    }
    for (size_t k = 0; k < wire_n_limits; k++) {
        assert_true(list_has(e, "limits", "name", wire_limits[k].name, &i));
    }
    for (size_t k = 0; k < wire_n_events; k++) {
        assert_true(list_has(e, "events", "name", wire_events[k].name, &i));
    }
    assert_key(e, "temperature", "default", "1.0");
    assert_key(e, "temperature", "max", "100.0");
    assert_key(e, "top_p", "above", "true");
    assert_key(e, "top_k", "type", "\"int\"");
    assert_key(e, "seed", "max", "18446744073709551615");
    assert_key(e, "priority", "min", "-10");
    assert_key(e, "wait", "default", "true");
    assert_key(e, "reasoning_effort", "values",
               "[\"low\", \"medium\", \"high\"]");
    assert_key(e, "stop", "max_items", "16");
    assert_key(e, "stop", "max_bytes", "256");
    assert_key(e, "ids", "ops", "[\"detokenize\"]");
    assert_key(e, "session", "supported", "true");
    assert_key(e, "logit_bias", "supported", "true");
    assert_key(e, "logit_bias", "type", "\"map of str to float\"");
    assert_key(e, "logit_bias", "min", "-100.0");
    assert_key(e, "logit_bias", "max_items", "1024");
    assert_key(e, "logprobs_mode", "values", "[\"raw\", \"sampled\"]");
    assert_key(e, "prompt", "supported", "true");
    assert_true(list_has(e, "keys", "name", "max_tokens", &i));
    char path[64];
    snprintf(path, sizeof(path), "keys.%zu.default", i);
    assert_false(wire_event_get(e, path, &v));
    assert_true(list_has(e, "ops", "name", "tokenize", &i));
    snprintf(path, sizeof(path), "ops.%zu.needs", i);
    assert_event_json(e, path, "[\"op\", \"id\", \"prompt\"]");
    snprintf(path, sizeof(path), "ops.%zu.takes", i);
    assert_event_json(e, path, "[\"special\"]");
    wire_event_destroy(e);
}

static void test_events_that_are_none(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{\"id\": 1}",
        "{\"event\": \"done\"}",
        "{\"id\": -1, \"event\": \"done\"}",
        "{\"id\": \"1\", \"event\": \"done\"}",
        "{\"id\": 1, \"event\": 2}",
        "{\"id\": 1, \"id\": 1, \"event\": \"done\"}",
    };
    struct wire_event *e = NULL;
    struct wire_error err;
    struct wire_buf b;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        body_of_json(&b, bad[i]);
        assert_true(wire_decode_event(b.p, b.n, &e, &err) < 0);
        wire_buf_finish(&b);
    }
    /* What nobody knows yet is an event all the same. */
    body_of_json(&b, "{\"id\": 0, \"event\": \"a_name_longer_than_any_that_is_"
                     "known_today\", \"novelty\": {\"a.b\": 1}}");
    assert_int_equal(wire_decode_event(b.p, b.n, &e, &err), 0);
    wire_event_destroy(e);
    wire_buf_finish(&b);
}

static void test_paths(void **state)
{
    struct wire_event *e = NULL;
    struct wire_error err;
    struct wire_value v;
    struct wire_buf b;

    (void)state;
    body_of_json(&b, "{\"id\": 4, \"event\": \"x\", \"a\": {\"b\": [10, {\"c\":"
                     " true}, null, -3, 0.5, \"s\"]}}");
    assert_int_equal(wire_decode_event(b.p, b.n, &e, &err), 0);
    wire_buf_finish(&b);
    assert_true(wire_event_get(e, "a.b", &v));
    assert_int_equal(v.n, 6);
    assert_true(wire_event_get(e, "a.b.0", &v) && v.u == 10);
    assert_true(wire_event_get(e, "a.b.1.c", &v) && v.b);
    assert_true(wire_event_get(e, "a.b.2", &v) && v.type == WIRE_V_NIL);
    assert_true(wire_event_get(e, "a.b.3", &v) && v.i == -3);
    assert_true(wire_event_get(e, "a.b.4", &v) && v.r == 0.5);
    assert_true(wire_event_get(e, "a.b.5", &v) && v.type == WIRE_V_STR);
    static const char *const none[] = {
        "b",     "a.c",     "a.b.6",
        "a.b.x", "a.b.1.d", "a.b..",
        "id.x",  "a.b.-1",  "a.b.99999999999999999999"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_false(wire_event_get(e, none[i], &v));
    }
    wire_event_destroy(e);
}

/* A request that the library would build decodes to what was put in. */
static void test_request_round_trip(void **state)
{
    struct wire_buf value;
    struct wire_map m;
    struct wire_request *r = NULL;
    struct wire_error err;

    (void)state;
    wire_buf_init(&value, 1000);
    assert_int_equal(wire_value_bin(&value, "\xff\x00", 2), 0);
    wire_map_begin_request(&m, &buf, 77, "tokenize");
    wire_map_raw(&m, "prompt", value.p, value.n);
    assert_int_equal(wire_map_end(&m), 0);
    int n = wire_frame_size(buf.p, WIRE_MAX_FRAME, &err);
    assert_int_equal(n, buf.n - WIRE_HEADER_SIZE);
    assert_int_equal(
        wire_decode_request(buf.p + WIRE_HEADER_SIZE, (size_t)n, &r, &err), 0);
    assert_int_equal(r->id, 77);
    assert_int_equal(r->op, WIRE_TOKENIZE);
    assert_int_equal(r->prompt.n, 2);
    wire_request_destroy(r);
    assert_int_equal(wire_value_str(&value, "\xff", 1), -EINVAL);
    assert_int_equal(wire_value_real(&value, NAN), -EINVAL);
    wire_buf_finish(&value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_small_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_done, setup, teardown),
        cmocka_unit_test_setup_teardown(test_delta, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_ids_come_in_parts, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_long_text_comes_in_parts, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_nested_maps_and_lists, setup,
                                        teardown),
        cmocka_unit_test(test_full_buffer_keeps_whole_frames),
        cmocka_unit_test_setup_teardown(test_no_event_exceeds_max_frame, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_hello_announces_what_is_served,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_describe_is_complete, setup,
                                        teardown),
        cmocka_unit_test(test_events_that_are_none),
        cmocka_unit_test(test_paths),
        cmocka_unit_test_setup_teardown(test_request_round_trip, setup,
                                        teardown),
    };
    return test_main(tests, NULL, NULL);
}
