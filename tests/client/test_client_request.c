/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What goes into requests by setters and comes out of events by paths, and the
 * words of errors.
 */

#include "tests/client/played_daemon.h"

/* ---- requests and events --------------------------------------------------
 */

static void test_setters(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    struct step_request *r;

    assert_int_equal(step_request_create(&r, "generate"), 0);
    step_request_add_message(r, "system", STEP_STR("s"));
    step_request_add_message(r, "user", "u\0v", 3);
    step_request_add_json(r, "messages", STEP_STR("{\"role\": \"x\"}"));
    step_request_add_tool(r, "f", "does", "{\"z\": 1, \"a\": {}}");
    step_request_add_tool(r, "g", NULL, NULL);
    step_request_set_int(r, "priority", -3);
    step_request_set_uint(r, "seed", UINT64_MAX);
    step_request_set_real(r, "temperature", 0.25);
    step_request_set_real(r, "top_p", 0.1);
    step_request_set_int(r, "top_p", 1); /* replaces */
    step_request_set_bool(r, "thinking", false);
    step_request_add_str(r, "stop", STEP_STR("a"));
    step_request_add_str(r, "stop", STEP_STR("b"));
    step_request_set_int(r, "top_k", 5);
    step_request_unset(r, "top_k");
    step_request_unset(r, "never_set");
    assert_int_equal(step_request_error(r, NULL), 0);
    assert_int_equal(step_client_submit(c, r, NULL, NULL), 0);
    step_client_dispatch(c);
    struct wire_request *w = get_request(d->fd);
    assert_string_equal(w->messages.p,
                        "[{\"role\": \"system\", \"content\": \"s\"}, "
                        "{\"role\": \"user\", \"content\": \"u\\u0000v\"}, "
                        "{\"role\": \"x\"}]");
    assert_string_equal(
        w->tools.p, "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                    "\"description\": \"does\", \"parameters\": {\"z\": 1, "
                    "\"a\": {}}}}, {\"type\": \"function\", \"function\": "
                    "{\"name\": \"g\"}}]");
    assert_int_equal(w->priority, -3);
    assert_true(w->seed == UINT64_MAX);
    assert_true(w->temperature == 0.25 && w->top_p == 1);
    assert_false(w->thinking);
    assert_int_equal(w->n_stops, 2);
    assert_string_equal(w->stop[1].p, "b");
    assert_false(wire_has(w, WIRE_K_TOP_K));
    wire_request_destroy(w);
    step_request_destroy(r);

    static const int32_t ids[] = {0, 5, INT32_MAX};
    assert_int_equal(step_request_create(&r, "detokenize"), 0);
    step_request_set_ids(r, "ids", ids, 3);
    assert_int_equal(step_client_submit(c, r, NULL, NULL), 0);
    step_client_dispatch(c);
    w = get_request(d->fd);
    assert_int_equal(w->n_ids, 3);
    assert_memory_equal(w->ids, ids, sizeof(ids));
    wire_request_destroy(w);
    step_request_destroy(r);

    assert_int_equal(step_request_create(&r, "tokenize"), 0);
    step_request_set_bytes(r, "prompt", "\xff\0", 2);
    assert_int_equal(step_client_submit(c, r, NULL, NULL), 0);
    step_client_dispatch(c);
    w = get_request(d->fd);
    assert_true(w->prompt_is_bin);
    assert_int_equal(w->prompt.n, 2);
    wire_request_destroy(w);
    step_request_destroy(r);
    step_client_destroy(c);
}

static void test_the_first_wrong_setter_sticks(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    struct step_request *r;
    const char *why;

    assert_int_equal(step_request_create(&r, "generate"), 0);
    assert_int_equal(step_request_set_str(r, "prompt", "\xff", 1),
                     STEP_E_INVALID);
    assert_int_equal(step_request_set_real(r, "temperature", (double)INFINITY),
                     STEP_E_INVALID);
    assert_int_equal(step_request_set_str(r, "prompt", "fine", 4), 0);
    assert_int_equal(step_request_error(r, &why), STEP_E_INVALID);
    assert_string_equal(why, "prompt: the text is not UTF-8");
    assert_int_equal(step_client_submit(c, r, NULL, NULL), STEP_E_INVALID);
    step_client_dispatch(c);
    assert_true(nothing_to_read(d->fd));
    step_request_destroy(r);

    assert_int_equal(step_request_create(&r, "generate"), 0);
    assert_int_equal(step_request_add_json(r, "tools", STEP_STR("{}")), 0);
    assert_int_equal(step_request_add_json(r, "tools", STEP_STR("{1}")),
                     STEP_E_INVALID);
    assert_int_equal(step_request_error(r, &why), STEP_E_INVALID);
    assert_string_equal(why,
                        "tools: an object's key is not a string, at byte 1");
    step_request_destroy(r);

    assert_int_equal(step_request_create(&r, "generate"), 0);
    assert_int_equal(step_request_add_tool(r, "f", NULL, "{"), STEP_E_INVALID);
    assert_int_equal(step_request_add_message(r, "\xff", "", 0),
                     STEP_E_INVALID);
    assert_int_equal(step_request_set_json(r, "a", STEP_STR("[1")),
                     STEP_E_INVALID);
    step_request_destroy(r);
    step_request_destroy(NULL);
    step_client_destroy(NULL);
    step_client_destroy(c);
}

static void test_getters(void **state)
{
    struct daemon *d = *state;
    struct step_client *c = connected(d);
    uint64_t id = submit(c, "a", NULL), u = 1;
    int64_t i = 1;
    double x = 1;
    bool b;
    size_t n;
    const char *s;
    char *json;

    put_end(d, id, "stop");
    flush(d);
    step_client_dispatch(c);
    const struct step_event *e = step_client_next(c);
    assert_int_equal(step_event_code(e), 0);
    assert_null(step_event_text(e, &n));
    assert_int_equal(n, 0);
    assert_int_equal(step_event_get_int(e, "usage.prompt_tokens", &i), 0);
    assert_int_equal(i, 7);
    assert_int_equal(step_event_get_uint(e, "usage.prompt_tokens", &u), 0);
    assert_int_equal(u, 7);
    assert_int_equal(step_event_get_real(e, "usage.prompt_tokens", &x), 0);
    assert_true(x == 7);
    assert_int_equal(step_event_get_real(e, "timings.decode_ms", &x), 0);
    assert_true(x == 1.5);
    assert_int_equal(step_event_get_uint(e, "seed", &u), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(step_event_get_int(e, "seed", &i), STEP_E_INVALID);
    assert_int_equal(step_event_get_int(e, "timings.decode_ms", &i),
                     STEP_E_INVALID);
    assert_int_equal(step_event_get_uint(e, "finish_reason", &u),
                     STEP_E_INVALID);
    assert_int_equal(step_event_get_str(e, "seed", &s, &n), STEP_E_INVALID);
    assert_int_equal(step_event_get_bool(e, "seed", &b), STEP_E_INVALID);
    assert_int_equal(step_event_get_int(e, "usage.none", &i), STEP_E_NOT_FOUND);
    assert_int_equal(step_event_get_count(e, "usage", &n), 0);
    assert_int_equal(n, 7);
    assert_int_equal(step_event_get_count(e, "seed", &n), STEP_E_INVALID);
    assert_int_equal(step_event_get_json(e, "none", &json), STEP_E_NOT_FOUND);
    assert_int_equal(step_event_get_json(e, "usage.prompt_tokens", &json), 0);
    assert_string_equal(json, "7");
    free(json);
    assert_int_equal(i, 7);

    e = step_client_hello(c);
    assert_int_equal(step_event_get_str(e, "served_model_name", &s, &n), 0);
    assert_memory_equal(s, "m", n);
    assert_int_equal(step_event_get_uint(e, "limits.max_frame", &u), 0);
    assert_int_equal(u, WIRE_MAX_FRAME);
    step_client_destroy(c);
}

static void test_every_code_has_words(void **state)
{
    (void)state;
    for (int code = STEP_E_SYSTEM; code <= STEP_OK; code++) {
        assert_non_null(step_strerror(code));
        assert_string_not_equal(step_strerror(code), step_strerror(-1000));
        for (int other = STEP_E_SYSTEM; other < code; other++) {
            assert_string_not_equal(step_strerror(code), step_strerror(other));
            assert_string_not_equal(step_code_name(code),
                                    step_code_name(other));
        }
    }
    assert_string_equal(step_code_name(STEP_E_BAD_REQUEST), "bad_request");
    assert_string_equal(step_code_name(STEP_E_DISCONNECTED), "disconnected");
    assert_string_equal(step_code_name(-1000), "internal");
}

/* Compiled into programs: they never change, new ones come behind. */
static void test_the_numbers_of_the_interface(void **state)
{
    static const int codes[] = {STEP_OK,
                                STEP_E_BAD_FRAME,
                                STEP_E_BAD_REQUEST,
                                STEP_E_UNKNOWN_OP,
                                STEP_E_VERSION,
                                STEP_E_DENIED,
                                STEP_E_BUSY,
                                STEP_E_TOO_LONG,
                                STEP_E_NOT_FOUND,
                                STEP_E_NO_MEMORY,
                                STEP_E_UNSUPPORTED,
                                STEP_E_UNAVAILABLE,
                                STEP_E_DRAINING,
                                STEP_E_CORRUPT,
                                STEP_E_INTERNAL,
                                STEP_E_DISCONNECTED,
                                STEP_E_NO_DAEMON,
                                STEP_E_INVALID,
                                STEP_E_TIMEOUT,
                                STEP_E_SYSTEM};
    static const int types[] = {STEP_EVENT_OTHER,    STEP_EVENT_ACCEPTED,
                                STEP_EVENT_PROGRESS, STEP_EVENT_DELTA,
                                STEP_EVENT_PART,     STEP_EVENT_DONE,
                                STEP_EVENT_ERROR};

    (void)state;
    for (int i = 0; i < (int)(sizeof(codes) / sizeof(codes[0])); i++) {
        assert_int_equal(codes[i], -i);
    }
    for (int i = 0; i < (int)(sizeof(types) / sizeof(types[0])); i++) {
        assert_int_equal(types[i], i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_setters),
        TEST(test_the_first_wrong_setter_sticks),
        TEST(test_getters),
        TEST(test_every_code_has_words),
        TEST(test_the_numbers_of_the_interface),
    };
    return test_main(tests, NULL, NULL);
}
