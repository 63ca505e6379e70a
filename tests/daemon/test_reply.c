/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * reply.c: each kind of event as the frames that a client gets.
 */

#include "daemon/net/reply.h"

#include "daemon/net/flight.h"
#include "daemon/sched/job.h"
#include "tests/client/frames.h"
#include "tests/test.h"

static struct job about = {.id = 3, .conn = 9, .request = 7};
static struct flight flight;
static struct wire_buf buf;

static int setup(void **state)
{
    (void)state;
    flight = (struct flight){.job = 3, .request = 7, .op = WIRE_GENERATE};
    wire_buf_init(&buf, (size_t)8 * WIRE_MAX_FRAME);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wire_buf_finish(&buf);
    return 0;
}

/* Encodes and frees the event; what came must be this one frame. */
static void becomes(struct event *e, const char *json)
{
    struct wire_event *got;
    size_t at = 0;

    reply_event(&buf, e, &flight);
    event_destroy(e);
    assert_int_equal(buf.err, 0);
    got = next_event(&buf, &at);
    assert_event_json(got, "", json);
    assert_int_equal(at, buf.n);
    wire_event_destroy(got);
    buf.n = 0;
}

static struct job_text text_of(const char *s)
{
    struct job_text t = {strdup(s), strlen(s)};

    assert_non_null(t.p);
    return t;
}

static void test_accepted_and_progress(void **state)
{
    struct event *e = event_create(EVENT_ACCEPTED, &about);

    (void)state;
    e->queue_position = 2;
    e->prompt_tokens = 11;
    becomes(e, "{\"id\": 7, \"event\": \"accepted\", \"job\": 3, "
               "\"queue_position\": 2, \"prompt_tokens\": 11}");
    assert_int_equal(flight.prompt_tokens, 11);
    e = event_create(EVENT_PROGRESS, &about);
    e->done = 64;
    e->total = 100;
    e->cached = 10;
    becomes(e, "{\"id\": 7, \"event\": \"progress\", \"done\": 64, "
               "\"total\": 100, \"cached\": 10}");
}

static void test_delta_with_all_it_can_carry(void **state)
{
    struct event *e = event_create(EVENT_DELTA, &about);

    (void)state;
    e->kind = EVENT_REASONING;
    e->text = text_of("hm");
    e->ids = calloc(2, sizeof(e->ids[0]));
    e->ids[0] = 5;
    e->ids[1] = 6;
    e->n_ids = 2;
    e->logprobs = calloc(1, sizeof(e->logprobs[0]));
    e->n_logprobs = 1;
    e->logprobs[0] = (struct event_logprob){.id = 5,
                                            .logprob = -0.5F,
                                            .bytes = {"a\0", 2},
                                            .n_top = 2,
                                            .top_id = {8, 9},
                                            .top_logprob = {-0.25F, -4.0F},
                                            .top_bytes = {{"b", 1}}};
    becomes(e, "{\"id\": 7, \"event\": \"delta\", \"kind\": \"reasoning\", "
               "\"text\": \"hm\", \"ids\": [5, 6], \"logprobs\": [{\"id\": 5, "
               "\"logprob\": -0.5, \"bytes\": [97, 0], \"top\": [{\"id\": 8, "
               "\"logprob\": -0.25, \"bytes\": [98]}, {\"id\": 9, "
               "\"logprob\": -4.0, \"bytes\": []}]}]}");
    e = event_create(EVENT_DELTA, &about);
    e->kind = EVENT_CONTENT;
    e->text = text_of("ok");
    becomes(e, "{\"id\": 7, \"event\": \"delta\", \"kind\": \"content\", "
               "\"text\": \"ok\"}");
}

static void test_done_of_an_answer(void **state)
{
    static const struct {
        enum event_finish finish;
        const char *word;
    } finishes[] = {
        {FINISH_STOP, "stop"},
        {FINISH_LENGTH, "length"},
        {FINISH_TOOL_CALLS, "tool_calls"},
        {FINISH_CANCELLED, "cancelled"},
        {FINISH_TIMEOUT, "timeout"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(finishes) / sizeof(finishes[0]); i++) {
        struct event *e = event_create(EVENT_DONE, &about);
        char json[512];

        e->finish = finishes[i].finish;
        e->usage = (struct event_usage){11, 4, 30, 9, 4, 12, 8, {4, 3, 1}};
        e->seed = 99;
        e->timings = (struct event_timings){0.5, 1.5, 2.5};
        assert_true(reply_is_final(e));
        snprintf(json, sizeof(json),
                 "{\"id\": 7, \"event\": \"done\", \"finish_reason\": \"%s\", "
                 "\"usage\": {\"prompt_tokens\": 11, \"cached_tokens\": 4, "
                 "\"completion_tokens\": 30, \"reasoning_tokens\": 9, "
                 "\"drafts\": 4, \"drafted\": 12, \"accepted\": 8, "
                 "\"accepted_at\": [4, 3, 1], "
                 "\"mean_acceptance_length\": 3.0}, \"seed\": 99, "
                 "\"timings\": {\"queue_ms\": 0.5, \"prefill_ms\": 1.5, "
                 "\"decode_ms\": 2.5}}",
                 finishes[i].word);
        becomes(e, json);
    }
}

static void test_plain_done_counts_what_was_sent(void **state)
{
    struct event *e;

    (void)state;
    flight.op = WIRE_TOKENIZE;
    for (int i = 0; i < 3; i++) {
        e = event_create(EVENT_PART, &about);
        e->ids = calloc(2, sizeof(e->ids[0]));
        e->n_ids = 2;
        assert_false(reply_is_final(e));
        becomes(e, "{\"id\": 7, \"event\": \"part\", \"ids\": [0, 0]}");
    }
    e = event_create(EVENT_DONE, &about);
    e->plain = true;
    becomes(e, "{\"id\": 7, \"event\": \"done\", \"count\": 6}");
    flight.op = WIRE_RENDER;
    e = event_create(EVENT_PART, &about);
    e->text = text_of("<|im_start|>");
    becomes(e, "{\"id\": 7, \"event\": \"part\", \"text\": "
               "\"<|im_start|>\"}");
    e = event_create(EVENT_DONE, &about);
    e->plain = true;
    becomes(e, "{\"id\": 7, \"event\": \"done\"}");
}

/* A result that is longer than a frame comes in several, none too large, and
 * nothing is missing. */
static void test_long_parts_are_cut_into_frames(void **state)
{
    struct event *e = event_create(EVENT_PART, &about);
    size_t at = 0, n_ids = 0;
    int n_frames = 0;

    (void)state;
    e->n_ids = 4 << 20; /* 20 MB as msgpack */
    e->ids = malloc((size_t)e->n_ids * sizeof(e->ids[0]));
    assert_non_null(e->ids);
    for (int i = 0; i < e->n_ids; i++) {
        e->ids[i] = INT32_MAX - i;
    }
    reply_event(&buf, e, &flight);
    assert_int_equal(buf.err, 0);
    while (at < buf.n) {
        struct wire_event *part = next_event(&buf, &at);
        struct wire_value list, first;

        assert_string_equal(wire_event_name(part), "part");
        assert_true(wire_event_get(part, "ids", &list));
        assert_true(wire_event_get(part, "ids.0", &first));
        assert_int_equal(first.u, INT32_MAX - (int)n_ids);
        n_ids += list.n;
        n_frames++;
        wire_event_destroy(part);
    }
    assert_int_equal(n_ids, 4 << 20);
    assert_true(n_frames > 1);
    assert_int_equal(flight.n_ids, 4 << 20);
    event_destroy(e);
}

static void test_error_carries_code_and_detail(void **state)
{
    struct event *e = event_error(&about, "too_long", "%d tokens", 12);

    (void)state;
    strcpy(e->detail, "prompt");
    assert_true(reply_is_final(e));
    becomes(e, "{\"id\": 7, \"event\": \"error\", \"code\": \"too_long\", "
               "\"message\": \"12 tokens\", \"detail\": \"prompt\"}");
    e = event_error(&about, "busy", "later");
    e->retry_ms = 20;
    becomes(e, "{\"id\": 7, \"event\": \"error\", \"code\": \"busy\", "
               "\"message\": \"later\", \"retry_ms\": 20}");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_accepted_and_progress),
        CASE(test_delta_with_all_it_can_carry),
        CASE(test_done_of_an_answer),
        CASE(test_plain_done_counts_what_was_sent),
        CASE(test_long_parts_are_cut_into_frames),
        CASE(test_error_carries_code_and_detail),
    };

    return test_main(tests, NULL, NULL);
}
