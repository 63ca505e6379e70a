/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Bodies of frames for the tests of client/wire*.c: from JSON text where the
 * meaning matters, from bytes where the form does.
 */
#ifndef TESTS_CLIENT_FRAMES_H
#define TESTS_CLIENT_FRAMES_H

#include "client/wire.h"
#include "tests/test.h"

/* The body that says what the JSON text says. */
static inline void body_of_json(struct wire_buf *b, const char *json)
{
    char why[128];

    wire_buf_init(b, (size_t)2 * WIRE_MAX_FRAME);
    if (wire_value_json(b, json, strlen(json), why, sizeof(why)) != 0) {
        fail_msg("the test's own JSON: %s: %s", why, json);
    }
}

/* Decodes the request that the JSON text says. */
static inline int decode_json(const char *json, struct wire_request **ret,
                              struct wire_error *err)
{
    struct wire_buf b;

    body_of_json(&b, json);
    int code = wire_decode_request(b.p, b.n, ret, err);
    wire_buf_finish(&b);
    return code;
}

/* The request must be refused with this code and detail. */
#define refused(json, code, detail) \
    refused_(json, code, detail, __FILE__, __LINE__)

static inline void refused_(const char *json, int code, const char *detail,
                            const char *file, int line)
{
    struct wire_request *r = NULL;
    struct wire_error err;
    int got = decode_json(json, &r, &err);

    if (got != code || err.code != code || strcmp(err.detail, detail) != 0) {
        print_error("%s\n is %s, detail '%s' (%s); expected %s, '%s'\n", json,
                    got == 0 ? "accepted" : wire_code_name(got), err.detail,
                    err.message, wire_code_name(code), detail);
        wire_request_destroy(r);
        _fail(file, line);
    }
    assert_null(r);
}

/* The request must be accepted; the caller destroys it. */
#define accepted(json) accepted_(json, __FILE__, __LINE__)

static inline struct wire_request *accepted_(const char *json, const char *file,
                                             int line)
{
    struct wire_request *r = NULL;
    struct wire_error err;

    if (decode_json(json, &r, &err) != 0) {
        print_error("%s\n is refused: %s: %s\n", json, wire_code_name(err.code),
                    err.message);
        _fail(file, line);
    }
    return r;
}

/* The next frame of b from *at on, decoded; the caller destroys it. */
static inline struct wire_event *next_event(const struct wire_buf *b,
                                            size_t *at)
{
    struct wire_event *e = NULL;
    struct wire_error err;

    assert_true(b->n >= *at + WIRE_HEADER_SIZE);
    int n = wire_frame_size(b->p + *at, WIRE_MAX_FRAME, &err);
    assert_true(n > 0);
    assert_true(b->n >= *at + WIRE_HEADER_SIZE + (size_t)n);
    if (wire_decode_event(b->p + *at + WIRE_HEADER_SIZE, (size_t)n, &e, &err) !=
        0) {
        fail_msg("an own event is refused: %s", err.message);
    }
    *at += WIRE_HEADER_SIZE + (size_t)n;
    return e;
}

/* The event's JSON text equals this. */
static inline void assert_event_json(const struct wire_event *e,
                                     const char *path, const char *json)
{
    struct wire_buf b;

    wire_buf_init(&b, WIRE_MAX_FRAME);
    assert_int_equal(wire_event_json(e, path, &b), 0);
    if (b.n != strlen(json) || memcmp(b.p, json, b.n) != 0) {
        print_error("%.*s\n expected\n%s\n", (int)b.n, (char *)b.p, json);
        wire_buf_finish(&b);
        fail();
    }
    wire_buf_finish(&b);
}

#endif
