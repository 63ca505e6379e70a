/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The wire code on any bytes, both directions. The first byte chooses what the
 * others are: a request's body (r), an event's body (e), JSON text (j). Beyond
 * not crashing, what is accepted must keep what wire.h promises of it.
 */

#include <string.h>

#include "client/wire_priv.h"
#include "tests/fuzz/fuzz.h"

/* The JSON text of a field reads back. */
static void check_json(struct wire_str s)
{
    struct wire_buf b;
    char why[128];

    if (s.p == NULL) {
        return;
    }
    FUZZ_CHECK(s.p[s.n] == '\0');
    wire_buf_init(&b, (size_t)4 * WIRE_MAX_FRAME);
    FUZZ_CHECK(wire_value_json(&b, s.p, s.n, why, sizeof(why)) == 0);
    wire_buf_finish(&b);
}

static void fuzz_request(const uint8_t *data, size_t n)
{
    struct wire_request *r = NULL;
    struct wire_error err;
    int code = wire_decode_request(data, n, &r, &err);

    if (code != 0) {
        FUZZ_CHECK(r == NULL && code < 0 && err.code == code);
        FUZZ_CHECK(wire_utf8_ok(err.message, strlen(err.message)));
        FUZZ_CHECK(wire_utf8_ok(err.detail, strlen(err.detail)));
        return;
    }
    FUZZ_CHECK(r->id != 0 && r->op < WIRE_N_OPS && !wire_ops[r->op].later);
    for (int k = 0; k < WIRE_N_KEYS; k++) {
        bool has = wire_has(r, (enum wire_key)k);
        FUZZ_CHECK(!has || (wire_keys[k].ops >> r->op & 1) != 0);
        FUZZ_CHECK(!has || (wire_keys[k].flags & WIRE_KEY_LATER) == 0);
        FUZZ_CHECK(has || (wire_keys[k].needs >> r->op & 1) == 0);
    }
    FUZZ_CHECK(r->temperature >= 0 && r->temperature <= 100);
    FUZZ_CHECK(r->top_p > 0 && r->top_p <= 1);
    FUZZ_CHECK(r->n_stops <= WIRE_MAX_STOPS);
    FUZZ_CHECK(r->logprobs >= -1 && r->logprobs <= WIRE_MAX_LOGPROBS);
    for (size_t i = 0; i < r->n_ids; i++) {
        FUZZ_CHECK(r->ids[i] >= 0);
    }
    check_json(r->messages);
    check_json(r->tools);
    check_json(r->tool_choice);
    wire_request_destroy(r);
}

static void fuzz_event(const uint8_t *data, size_t n)
{
    struct wire_event *e = NULL;
    struct wire_error err;
    struct wire_value v;
    struct wire_buf b;
    char why[128];

    if (wire_decode_event(data, n, &e, &err) != 0) {
        FUZZ_CHECK(e == NULL);
        return;
    }
    FUZZ_CHECK(wire_event_get(e, "event", &v) && v.type == WIRE_V_STR);
    FUZZ_CHECK(wire_event_get(e, "id", &v) && v.u == wire_event_id(e));
    wire_event_get(e, "usage.prompt_tokens", &v);
    wire_event_get(e, "logprobs.0.top.1.bytes", &v);
    wire_buf_init(&b, (size_t)8 * WIRE_MAX_FRAME);
    FUZZ_CHECK(wire_event_json(e, "", &b) == 0);
    struct wire_buf again;
    wire_buf_init(&again, (size_t)8 * WIRE_MAX_FRAME);
    /* Lists made of bytes may be one level deeper than JSON may be here. */
    int code = wire_value_json(&again, (char *)b.p, b.n, why, sizeof(why));
    FUZZ_CHECK(code == 0 || strstr(why, "too deep") != NULL);
    wire_buf_finish(&again);
    wire_buf_finish(&b);
    wire_event_destroy(e);
}

/* What reads as JSON is the same msgpack after a round trip. */
static void fuzz_json(const uint8_t *data, size_t n)
{
    struct wire_buf b, again;
    struct wire_map m;
    struct wire_event *e = NULL;
    struct wire_error err;
    char why[128];

    wire_buf_init(&b, WIRE_MAX_FRAME);
    wire_buf_init(&again, WIRE_MAX_FRAME);
    if (wire_value_json(&b, (const char *)data, n, why, sizeof(why)) != 0) {
        FUZZ_CHECK(b.n == 0);
        wire_buf_finish(&b);
        return;
    }
    struct wire_buf frame;
    wire_buf_init(&frame, (size_t)2 * WIRE_MAX_FRAME);
    wire_map_begin_event(&m, &frame, 1, "x");
    wire_map_raw(&m, "v", b.p, b.n);
    FUZZ_CHECK(wire_map_end(&m) == 0);
    /* Duplicate keys are the only thing that JSON has and frames have not. */
    if (wire_decode_event(frame.p + WIRE_HEADER_SIZE,
                          frame.n - WIRE_HEADER_SIZE, &e, &err) == 0) {
        struct wire_buf text;
        wire_buf_init(&text, (size_t)8 * WIRE_MAX_FRAME);
        FUZZ_CHECK(wire_event_json(e, "v", &text) == 0);
        FUZZ_CHECK(wire_value_json(&again, (char *)text.p, text.n, why,
                                   sizeof(why)) == 0);
        FUZZ_CHECK(again.n == b.n && memcmp(again.p, b.p, b.n) == 0);
        wire_buf_finish(&text);
        wire_event_destroy(e);
    } else {
        FUZZ_CHECK(strstr(err.message, "twice") != NULL);
    }
    wire_buf_finish(&frame);
    wire_buf_finish(&again);
    wire_buf_finish(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > 0 && data[0] == 'r') {
        fuzz_request(data + 1, n - 1);
    } else if (n > 0 && data[0] == 'e') {
        fuzz_event(data + 1, n - 1);
    } else if (n > 0 && data[0] == 'j') {
        fuzz_json(data + 1, n - 1);
    }
    return 0;
}
