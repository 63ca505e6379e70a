/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/* Tokens to deltas, fed by hand in blocks of every size. */

#include "tests/test.h"

#include <errno.h>

#include "daemon/sched/deliver.h"
#include "tests/daemon/answers.h"

#define MAX_IDS 512

static struct tokenizer *tokenizer;
static const int32_t stop_ids[] = {1, 2, 1016};

struct rig {
    struct job *job;
    struct deliver *d;
    struct answer a;
    /* the deltas in order, ids as text */
    struct {
        enum event_kind kind;
        char text[256];
        int n_ids, n_logprobs;
    } delta[MAX_IDS];
    int n_deltas;
};

static int setup(void **state)
{
    char why[256];

    (void)state;
    return tokenizer_load(&tokenizer, test_data("step-tiny"), why, sizeof(why));
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

static void on_emit(void *ctx, struct event *e)
{
    struct rig *r = ctx;
    int i = r->n_deltas++;

    assert_int_equal(e->type, EVENT_DELTA);
    r->delta[i].kind = e->kind;
    r->delta[i].n_ids = e->n_ids;
    r->delta[i].n_logprobs = e->n_logprobs;
    assert_true(e->text.n < sizeof(r->delta[i].text));
    memcpy(r->delta[i].text, e->text.p != NULL ? e->text.p : "", e->text.n);
    answer_take(&r->a, e);
}

static void rig_init(struct rig *r, bool chat, bool thinking)
{
    memset(r, 0, sizeof(*r));
    r->job = job_create(JOB_GENERATE);
    r->job->id = 1;
    r->job->chat = chat;
    r->job->thinking = thinking;
    r->job->want_ids = true;
    answer_init(&r->a, 1);
    r->a.accepted = true;
}

static void add_stop(struct rig *r, const char *s)
{
    struct job_text *t = &r->job->stop[r->job->n_stops++];

    t->p = strdup(s);
    t->n = strlen(s);
}

static void rig_start(struct rig *r, int max_tokens)
{
    const struct deliver_conf c = {
        .tokenizer = tokenizer,
        .stop_ids = stop_ids,
        .n_stop_ids = 3,
        .max_tokens = max_tokens,
    };

    assert_int_equal(deliver_create(&r->d, r->job, &c), 0);
}

static void rig_finish(struct rig *r)
{
    deliver_destroy(r->d);
    deliver_destroy(NULL);
    answer_finish(&r->a);
    job_destroy(r->job);
}

static int tokens(const char *text, struct model_token *ret)
{
    int32_t *ids = NULL;
    int n = 0, cap = 0;

    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), true,
                                      MAX_IDS, &ids, &n, &cap),
                     0);
    for (int i = 0; i < n; i++) {
        ret[i] = (struct model_token){.id = ids[i], .logprob = (float)-i};
    }
    free(ids);
    return n;
}

/* In blocks of `block`; returns the tokens that counted. */
static int feed(struct rig *r, const struct model_token *t, int n, int block)
{
    enum event_finish why;
    int used = 0;

    for (int i = 0; i < n && !deliver_ended(r->d, &why); i += block) {
        int m = n - i < block ? n - i : block;
        int got = deliver_tokens(r->d, t + i, m, on_emit, r);

        assert_in_range(got, 1, m);
        used += got;
    }
    return used;
}

/* The id of a token that is this one byte. */
static int32_t byte_token(unsigned char c)
{
    for (int32_t id = 0; id < tokenizer_vocab(tokenizer); id++) {
        size_t n;
        const char *b = tokenizer_bytes(tokenizer, id, &n);

        if (b != NULL && n == 1 && (unsigned char)b[0] == c) {
            return id;
        }
    }
    fail_msg("no token for byte %02x", c);
    return -1;
}

static void test_any_block_gives_the_same(void **state)
{
    const char *text = "The user asks.\n</think>\nParis is the capital, "
                       "été, 中文, \xf0\x9f\x98\x80.<|im_end|>";
    struct model_token t[MAX_IDS];
    int n = tokens(text, t);

    (void)state;
    for (int block = 1; block <= 9; block++) {
        enum event_finish why;
        struct event_usage u = {0};
        struct rig r;

        rig_init(&r, true, true);
        rig_start(&r, 500);
        assert_int_equal(feed(&r, t, n, block), n);
        assert_true(deliver_ended(r.d, &why));
        assert_int_equal(why, FINISH_STOP);
        assert_string_equal(r.a.text[EVENT_REASONING], "The user asks.");
        assert_string_equal(r.a.text[EVENT_CONTENT],
                            "Paris is the capital, été, 中文, "
                            "\xf0\x9f\x98\x80.");
        assert_int_equal(r.a.n_ids, n);
        for (int i = 0; i < n; i++) {
            assert_int_equal(r.a.ids[i], t[i].id);
        }
        deliver_usage(r.d, &u);
        assert_int_equal(u.completion_tokens, n);
        assert_true(u.reasoning_tokens > 3 && u.reasoning_tokens < n / 2);
        /* One delta a block, and one more where reasoning ends inside. */
        assert_true(r.n_deltas <= (n + block - 1) / block + 1);
        rig_finish(&r);
    }
}

static void test_reasoning_and_content_of_one_block_are_two_deltas(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("so\n</think>\nyes", t);
    struct rig r;

    (void)state;
    rig_init(&r, true, true);
    rig_start(&r, 500);
    assert_int_equal(feed(&r, t, n, n), n);
    assert_int_equal(r.n_deltas, 2);
    assert_int_equal(r.delta[0].kind, EVENT_REASONING);
    assert_string_equal(r.delta[0].text, "so");
    assert_int_equal(r.delta[1].kind, EVENT_CONTENT);
    assert_string_equal(r.delta[1].text, "yes");
    /* The ids of "yes" are with its text. */
    assert_true(r.delta[1].n_ids >= 1);
    assert_int_equal(r.delta[0].n_ids + r.delta[1].n_ids, n);
    rig_finish(&r);
}

/* Field report 66: an emoji over several tokens comes out once, whole. */
static void test_fr_66_a_character_is_never_split(void **state)
{
    const unsigned char bytes[] = {0xf0, 0x9f, 0x98, 0x80};
    struct model_token t = {0};
    struct rig r;

    (void)state;
    rig_init(&r, false, false);
    r.job->want_ids = false;
    rig_start(&r, 500);
    for (int i = 0; i < 4; i++) {
        t.id = byte_token(bytes[i]);
        assert_int_equal(deliver_tokens(r.d, &t, 1, on_emit, &r), 1);
        assert_int_equal(r.n_deltas, i == 3);
    }
    assert_string_equal(r.a.text[EVENT_CONTENT], "\xf0\x9f\x98\x80");
    rig_finish(&r);
}

static void test_half_a_character_at_the_end_is_replaced(void **state)
{
    struct model_token t[2] = {{.id = byte_token(0xf0)},
                               {.id = byte_token(0x9f)}};
    struct rig r;

    (void)state;
    rig_init(&r, false, false);
    rig_start(&r, 2);
    assert_int_equal(feed(&r, t, 2, 1), 2);
    assert_string_equal(r.a.text[EVENT_CONTENT], "\xef\xbf\xbd\xef\xbf\xbd");
    rig_finish(&r);
}

/* Field report 70: nothing of a stop string leaves, however it is cut. */
static void test_fr_70_nothing_of_a_stop_string_leaves(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("abc DEFGHIJ and more", t);

    (void)state;
    for (int block = 1; block <= n; block++) {
        enum event_finish why;
        struct rig r;
        int used;

        rig_init(&r, false, false);
        add_stop(&r, "DEFGHIJ");
        rig_start(&r, 500);
        used = feed(&r, t, n, block);
        assert_true(deliver_ended(r.d, &why));
        assert_int_equal(why, FINISH_STOP);
        assert_string_equal(r.a.text[EVENT_CONTENT], "abc ");
        /* ids and usage end with the token that completed it. */
        assert_true(used < n);
        assert_int_equal(r.a.n_ids, used);
        assert_int_equal(deliver_drawn(r.d), used);
        rig_finish(&r);
    }
}

static void test_beginning_of_a_stop_string_comes_out_at_the_end(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("abc DEF", t);
    enum event_finish why;
    struct rig r;

    (void)state;
    rig_init(&r, false, false);
    add_stop(&r, "DEFGHIJ");
    rig_start(&r, n);
    assert_int_equal(feed(&r, t, n, 1), n);
    assert_true(deliver_ended(r.d, &why));
    assert_int_equal(why, FINISH_LENGTH);
    assert_string_equal(r.a.text[EVENT_CONTENT], "abc DEF");
    rig_finish(&r);

    /* The same when it is cut short. */
    rig_init(&r, false, false);
    add_stop(&r, "DEFGHIJ");
    rig_start(&r, 500);
    assert_int_equal(feed(&r, t, n, 1), n);
    assert_false(deliver_ended(r.d, &why));
    assert_string_equal(r.a.text[EVENT_CONTENT], "abc ");
    assert_int_equal(deliver_cut(r.d, on_emit, &r), 0);
    assert_int_equal(deliver_cut(r.d, on_emit, &r), 0);
    assert_string_equal(r.a.text[EVENT_CONTENT], "abc DEF");
    rig_finish(&r);
}

static void test_stop_string_that_only_the_end_completes(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("<thi", t); /* withheld: it may become <think> */
    enum event_finish why;
    struct rig r;

    (void)state;
    rig_init(&r, true, false);
    add_stop(&r, "<thi");
    rig_start(&r, n);
    assert_int_equal(feed(&r, t, n, 1), n);
    assert_true(deliver_ended(r.d, &why));
    assert_int_equal(why, FINISH_STOP);
    assert_string_equal(r.a.text[EVENT_CONTENT], "");
    rig_finish(&r);
}

static void test_stop_id_is_in_the_ids_and_not_in_the_text(void **state)
{
    for (int k = 0; k < 3; k++) {
        struct model_token t[4];
        enum event_finish why;
        struct rig r;
        int n = tokens("hi", t);

        (void)state;
        t[n].id = stop_ids[k];
        t[n + 1].id = t[0].id; /* the rest of the block never was */
        rig_init(&r, false, false);
        r.job->logprobs = 0;
        rig_start(&r, 500);
        assert_int_equal(feed(&r, t, n + 2, n + 2), n + 1);
        assert_true(deliver_ended(r.d, &why));
        assert_int_equal(why, FINISH_STOP);
        assert_string_equal(r.a.text[EVENT_CONTENT], "hi");
        assert_int_equal(r.a.n_ids, n + 1);
        assert_int_equal(r.a.n_logprobs, n + 1);
        assert_int_equal(r.a.ids[n], stop_ids[k]);
        assert_int_equal(r.n_deltas, 1);
        rig_finish(&r);
    }
}

static void test_max_tokens_is_exact(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("one two three four five six", t);

    (void)state;
    for (int limit = 1; limit < n; limit++) {
        enum event_finish why;
        struct rig r;

        rig_init(&r, false, false);
        rig_start(&r, limit);
        assert_int_equal(deliver_left(r.d), limit);
        assert_int_equal(feed(&r, t, n, 4), limit);
        assert_true(deliver_ended(r.d, &why));
        assert_int_equal(why, FINISH_LENGTH);
        assert_int_equal(r.a.n_ids, limit);
        assert_int_equal(deliver_left(r.d), 0);
        rig_finish(&r);
    }
}

static void test_ids_and_logprobs_only_when_asked(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("some words", t);

    (void)state;
    for (int i = 0; i < n; i++) {
        t[i].n_top = 5;
        t[i].top_id[0] = 40 + i;
    }
    for (int k = 0; k < 4; k++) {
        struct rig r;

        rig_init(&r, false, false);
        r.job->want_ids = k & 1;
        r.job->logprobs = k & 2 ? 3 : -1;
        rig_start(&r, 500);
        feed(&r, t, n, 2);
        assert_int_equal(r.a.n_ids, k & 1 ? n : 0);
        assert_int_equal(r.a.n_logprobs, k & 2 ? n : 0);
        if (k & 2) {
            assert_true(r.a.logprob[1] == -1.0f);
            assert_int_equal(r.a.top_id[1], 41);
        }
        rig_finish(&r);
    }
}

static void test_tags_are_for_chat_only(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("a</think>b<tool_call>c", t);
    struct rig r;

    (void)state;
    rig_init(&r, false, true);
    rig_start(&r, 500);
    feed(&r, t, n, 3);
    assert_int_equal(deliver_cut(r.d, on_emit, &r), 0);
    assert_string_equal(r.a.text[EVENT_CONTENT], "a</think>b<tool_call>c");
    assert_string_equal(r.a.text[EVENT_REASONING], "");
    rig_finish(&r);
}

/* Field report 1: where reasoning starts is said by the request, not found in
 * the text. */
static void test_fr_01_reasoning_starts_with_the_request(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("plan</think>ok", t);

    (void)state;
    for (int thinking = 0; thinking < 2; thinking++) {
        struct event_usage u;
        struct rig r;

        rig_init(&r, true, thinking);
        rig_start(&r, 500);
        feed(&r, t, n, 1);
        assert_int_equal(deliver_cut(r.d, on_emit, &r), 0);
        assert_string_equal(r.a.text[EVENT_REASONING], thinking ? "plan" : "");
        deliver_usage(r.d, &u);
        assert_int_equal(u.reasoning_tokens > 0, thinking);
        rig_finish(&r);
    }
}

static void test_include_stop(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("abc DEFGHIJ and more", t);

    (void)state;
    for (int block = 1; block <= n; block++) {
        struct rig r;

        rig_init(&r, false, false);
        r.job->include_stop = true;
        add_stop(&r, "DEFGHIJ");
        rig_start(&r, 500);
        assert_true(feed(&r, t, n, block) < n);
        assert_string_equal(r.a.text[EVENT_CONTENT], "abc DEFGHIJ");
        rig_finish(&r);
    }
}

/* A stop string counts only in what comes after min_tokens. */
static void test_min_tokens_and_stop_strings(void **state)
{
    struct model_token t[MAX_IDS];
    int n = tokens("a. b. c. d.", t);

    (void)state;
    for (int min = 0; min <= n; min++) {
        enum event_finish why;
        struct rig r;
        int used;

        rig_init(&r, false, false);
        r.job->min_tokens = min;
        add_stop(&r, ".");
        rig_start(&r, 500);
        used = feed(&r, t, n, 2);
        assert_true(used > min || used == n);
        assert_int_equal(deliver_ended(r.d, &why), min < n);
        rig_finish(&r);
    }
}

static void test_exact_bytes(void **state)
{
    static const unsigned char bytes[] = {'a', 0xf0, 0x9f, 'b', 0xff, 0xc3};
    struct model_token t[6];
    struct rig r;

    (void)state;
    for (int i = 0; i < 6; i++) {
        t[i] = (struct model_token){.id = byte_token(bytes[i])};
    }
    for (int block = 1; block <= 6; block++) {
        for (int exact = 0; exact < 2; exact++) {
            rig_init(&r, false, false);
            r.job->want_bytes = exact;
            rig_start(&r, 6);
            assert_int_equal(feed(&r, t, 6, block), 6);
            if (exact) {
                assert_int_equal(r.a.n_text[EVENT_CONTENT], 6);
                assert_memory_equal(r.a.text[EVENT_CONTENT], bytes, 6);
            } else {
                assert_string_equal(r.a.text[EVENT_CONTENT],
                                    "a\xef\xbf\xbd\xef\xbf\xbd"
                                    "b\xef\xbf\xbd\xef\xbf\xbd");
            }
            rig_finish(&r);
        }
    }
}

/* Field reports 3, 4 and 10: a call in whatever blocks, and a broken one, which
 * is content and a usual end. */
static void test_fr_10_calls_in_blocks(void **state)
{
    static const struct {
        const char *text, *content, *name, *arguments;
        enum event_finish finish;
    } c[] = {
        {"so\n</think>\n<tool_call>\n<function=f>\n<parameter=a>\n1\n"
         "</parameter>\n</function>\n</tool_call><|im_end|>",
         "", "f", "{\"a\": 1}", FINISH_TOOL_CALLS},
        {"so<tool_call><function=f></function></tool_call>x<|im_end|>", "x",
         "f", "{}", FINISH_TOOL_CALLS},
        {"so\n</think>\n<tool_call>\n<function=invalid\n</tool_call>"
         "<|im_end|>",
         "<tool_call>\n<function=invalid\n</tool_call>", NULL, NULL,
         FINISH_STOP},
        {"so\n</think>\n<tool_call>\n<function=f>\n<|im_end|>",
         "<tool_call>\n<function=f>\n", NULL, NULL, FINISH_STOP},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        struct model_token t[MAX_IDS];
        int n = tokens(c[i].text, t);

        for (int block = 1; block <= 9; block++) {
            enum event_finish why;
            struct rig r;

            rig_init(&r, true, true);
            r.job->has_tools = true;
            r.job->tools.p =
                strdup("[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                       "\"parameters\":{\"a\":{\"type\":\"integer\"}}}}]");
            r.job->tools.n = strlen(r.job->tools.p);
            rig_start(&r, 500);
            assert_int_equal(feed(&r, t, n, block), n);
            assert_true(deliver_ended(r.d, &why));
            assert_int_equal(why, c[i].finish);
            assert_string_equal(r.a.text[EVENT_REASONING], "so");
            assert_string_equal(r.a.text[EVENT_CONTENT], c[i].content);
            assert_int_equal(r.a.n_calls, c[i].name != NULL);
            assert_int_equal(r.a.n_ids, n);
            if (c[i].name != NULL) {
                assert_string_equal(r.a.call[0].name, c[i].name);
                assert_string_equal(r.a.call[0].arguments, c[i].arguments);
            }
            rig_finish(&r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_block_gives_the_same),
        cmocka_unit_test(
            test_reasoning_and_content_of_one_block_are_two_deltas),
        cmocka_unit_test(test_fr_66_a_character_is_never_split),
        cmocka_unit_test(test_half_a_character_at_the_end_is_replaced),
        cmocka_unit_test(test_fr_70_nothing_of_a_stop_string_leaves),
        cmocka_unit_test(test_beginning_of_a_stop_string_comes_out_at_the_end),
        cmocka_unit_test(test_stop_string_that_only_the_end_completes),
        cmocka_unit_test(test_stop_id_is_in_the_ids_and_not_in_the_text),
        cmocka_unit_test(test_max_tokens_is_exact),
        cmocka_unit_test(test_ids_and_logprobs_only_when_asked),
        cmocka_unit_test(test_tags_are_for_chat_only),
        cmocka_unit_test(test_fr_01_reasoning_starts_with_the_request),
        cmocka_unit_test(test_include_stop),
        cmocka_unit_test(test_min_tokens_and_stop_strings),
        cmocka_unit_test(test_exact_bytes),
        cmocka_unit_test(test_fr_10_calls_in_blocks),
    };

    return test_main(tests, setup, teardown);
}
