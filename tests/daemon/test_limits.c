/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Limits of an answer and its tool calls, on the bundled model: what a request
 * may ask of reasoning, ends and tools, the same with every number of drafts;
 * and the turn after a call, whose prompt is found again.
 */

#include "tests/test.h"

#include <jansson.h>

#include "tests/daemon/engine_rig.h"

static json_t *golden;

static int setup(void **state)
{
    json_error_t err;

    (void)state;
    golden = json_load_file(test_data("step-tiny/golden-greedy.json"), 0, &err);
    return golden == NULL;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static void set_json(struct job_text *t, const json_t *value)
{
    char *s = json_dumps(value, JSON_COMPACT);

    assert_non_null(s);
    free(t->p);
    set(t, s);
    free(s);
}

/* The golden conversation in which the time is asked for: it calls a tool. */
static struct job *call_job(struct rig *r)
{
    const json_t *c = json_array_get(json_object_get(golden, "cases"), 9);
    struct job *j = new_job(r, "", 120);

    free(j->prompt.p);
    j->prompt = (struct job_text){0};
    j->chat = true;
    j->temperature = 0;
    set_json(&j->messages, json_object_get(c, "messages"));
    set_json(&j->tools, json_object_get(c, "tools"));
    return j;
}

/* Runs a job with 0 to 3 drafts; what it came to is the same. The answer is
 * good until the rig is finished. */
static struct answer *at_every_depth(struct rig *r, void (*with)(struct job *j))
{
    struct answer *a[4];

    for (int drafts = 0; drafts <= 3; drafts++) {
        struct job *j = call_job(r);

        j->seed = 5;
        j->drafts = drafts;
        with(j);
        a[drafts] = wait_over(r, submit(r, j));
        assert_true(a[drafts]->done);
        assert_same_answer(a[drafts], a[0]);
        assert_same_calls(a[drafts], a[0]);
    }
    assert_true(a[3]->usage.drafted > 0);
    return a[3];
}

static void greedy(struct job *j)
{
    (void)j;
}

static void test_a_call_comes_whole(void **state)
{
    static struct rig r;
    struct answer *a;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    a = at_every_depth(&r, greedy);
    assert_int_equal(a->finish, FINISH_TOOL_CALLS);
    assert_int_equal(a->n_calls, 1);
    assert_string_equal(a->call[0].name, "get_time");
    assert_string_equal(a->call[0].arguments, "{\"city\": \"Canberra\"}");
    assert_string_equal(a->call[0].growing, a->call[0].arguments);
    assert_true(a->n_grown > 1);
    assert_string_equal(a->text[EVENT_CONTENT], "");
    rig_finish(&r);
}

static void no_calls(struct job *j)
{
    set(&j->tool_choice, "\"none\"");
}

/* The tools are in the prompt, and no call can be drawn. */
static void test_tool_choice_none(void **state)
{
    static struct rig r;
    struct answer *a;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    a = at_every_depth(&r, no_calls);
    assert_int_equal(a->n_calls, 0);
    assert_null(strstr(a->text[EVENT_CONTENT], "<tool_call>"));
    assert_true(a->finish == FINISH_STOP || a->finish == FINISH_LENGTH);
    rig_finish(&r);
}

static int budget;

static void with_budget(struct job *j)
{
    j->max_reasoning = budget;
    j->max_tokens = 60;
}

static void warm_with_budget(struct job *j)
{
    with_budget(j);
    j->temperature = 1.2f;
}

/* At the limit </think> is drawn and the answer follows, also in the middle of
 * a block of drafts. */
static void test_reasoning_budget(void **state)
{
    static struct rig r;
    int full;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    full = at_every_depth(&r, greedy)->usage.reasoning_tokens;
    assert_true(full > 6);
    for (budget = 0; budget <= 6; budget++) {
        struct answer *a = at_every_depth(&r, with_budget);

        assert_int_equal(a->usage.reasoning_tokens, budget);
        a = at_every_depth(&r, warm_with_budget);
        assert_in_range(a->usage.reasoning_tokens, 0, budget);
    }
    budget = full + 10;
    assert_int_equal(at_every_depth(&r, with_budget)->usage.reasoning_tokens,
                     full);
    rig_finish(&r);
}

static void at_least_70(struct job *j)
{
    j->min_tokens = 70;
    j->max_tokens = 90;
}

static void never_by_itself(struct job *j)
{
    j->ignore_eos = true;
    j->max_tokens = 80;
}

static void test_ends(void **state)
{
    static struct rig r;
    int plain;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    plain = at_every_depth(&r, greedy)->usage.completion_tokens;
    assert_true(plain < 70);
    assert_true(at_every_depth(&r, at_least_70)->usage.completion_tokens >= 70);
    assert_int_equal(at_every_depth(&r, never_by_itself)->n_ids, 80);
    rig_finish(&r);
}

static int32_t stop_id;

static void with_stop_id(struct job *j)
{
    j->stop_ids = malloc(sizeof(*j->stop_ids));
    j->stop_ids[j->n_stop_ids++] = stop_id;
    j->max_reasoning = -1;
}

static void test_stop_ids(void **state)
{
    static struct rig r;
    struct answer *a;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    a = at_every_depth(&r, greedy);
    stop_id = a->ids[5];
    a = at_every_depth(&r, with_stop_id);
    assert_int_equal(a->finish, FINISH_STOP);
    assert_in_range(a->n_ids, 1, 6);
    assert_int_equal(a->ids[a->n_ids - 1], stop_id);
    rig_finish(&r);
}

/* ---- bias, and logprobs of what was drawn from -------------------------- */

static struct model_bias asked[2];

static void with_bias(struct job *j)
{
    j->bias = malloc(sizeof(asked));
    assert_non_null(j->bias);
    memcpy(j->bias, asked, sizeof(asked));
    j->n_bias = 2;
    j->max_tokens = 30;
}

static void warm_with_bias(struct job *j)
{
    with_bias(j);
    j->temperature = 1.2f;
    j->presence = 0.5f;
}

static bool has_id(const struct answer *a, int32_t id)
{
    for (int i = 0; i < a->n_ids; i++) {
        if (a->ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* A bias keeps a token out and brings one in, greedy and not, the same with
 * every number of drafts. */
static void test_logit_bias(void **state)
{
    static struct rig r;
    struct answer *a;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    a = at_every_depth(&r, greedy);
    asked[0] = (struct model_bias){a->ids[2], -100};
    asked[1] = (struct model_bias){'~', -100};
    a = at_every_depth(&r, with_bias);
    assert_false(has_id(a, asked[0].id));
    a = at_every_depth(&r, warm_with_bias);
    assert_false(has_id(a, asked[0].id));
    asked[1].bias = 100;
    a = at_every_depth(&r, with_bias);
    assert_int_equal(a->n_ids, 30);
    for (int i = 0; i < a->n_ids; i++) {
        assert_int_equal(a->ids[i], '~');
    }
    rig_finish(&r);
}

/* An id that the model has not is refused, and named. */
static void test_logit_bias_of_no_token(void **state)
{
    static struct rig r;
    static const int32_t bad[] = {-1, INT32_MAX};

    (void)state;
    rig_init(&r);
    rig_start(&r);
    for (int i = 0; i < 2; i++) {
        struct job *j = call_job(&r);
        char id[16];
        struct answer *a;

        asked[0] = (struct model_bias){5, 1};
        asked[1] = (struct model_bias){bad[i], 1};
        with_bias(j);
        a = wait_over(&r, submit(&r, j));
        assert_true(a->failed);
        assert_string_equal(a->code, "bad_request");
        snprintf(id, sizeof(id), "%d", (int)bad[i]);
        assert_non_null(strstr(a->message, "logit_bias"));
        assert_non_null(strstr(a->message, id));
    }
    rig_finish(&r);
}

static void raw_logprobs(struct job *j)
{
    j->max_tokens = 40;
    j->logprobs = 4;
}

static void sampled_logprobs(struct job *j)
{
    raw_logprobs(j);
    j->logprobs_sampled = true;
}

static void of_one_choice(struct job *j)
{
    sampled_logprobs(j);
    j->temperature = 1;
    j->top_k = 1;
}

static void warm_sampled(struct job *j)
{
    sampled_logprobs(j);
    j->temperature = 1.3f;
    j->top_p = 0.9f;
    j->frequency = 0.3f;
}

/* Greedy without penalties the two are the same where nothing is forbidden;
 * where one token is left its logprob is 0. Drafts change nothing. */
static void test_logprobs_sampled(void **state)
{
    static struct rig r;
    struct answer *raw, *a;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    raw = at_every_depth(&r, raw_logprobs);
    a = at_every_depth(&r, sampled_logprobs);
    assert_same_answer(a, raw);
    a = at_every_depth(&r, of_one_choice);
    assert_int_equal(a->n_logprobs, raw->n_logprobs);
    for (int i = 0; i < a->n_logprobs; i++) {
        assert_int_equal(a->ids[i], raw->ids[i]);
        assert_true(a->logprob[i] == 0 && raw->logprob[i] < 0);
        assert_int_equal(a->top_id[i], a->ids[i]);
    }
    a = at_every_depth(&r, warm_sampled);
    assert_true(a->n_logprobs > 0);
    rig_finish(&r);
}

/* ---- the turn after ---------------------------------------------------- */

/* The conversation goes on: the call comes back as the client has it, and its
 * result. */
static struct job *next_job(struct rig *r, const struct answer *a,
                            const char *arguments, bool reasoning)
{
    struct job *j = call_job(r);
    json_t *messages = json_loads(j->messages.p, 0, NULL);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", a->call[0].id,
                             "type", "function", "function", "name",
                             a->call[0].name, "arguments", arguments);
    json_t *m = json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content",
                          "", "tool_calls", call);

    assert_non_null(messages);
    if (reasoning) {
        json_object_set_new(m, "reasoning_content",
                            json_string(a->text[EVENT_REASONING]));
    }
    json_array_append_new(messages, m);
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "tool",
                                              "content", "It is 9 o'clock."));
    set_json(&j->messages, messages);
    json_decref(messages);
    j->max_tokens = 20;
    return j;
}

/* Field report 65: keys and blanks of the client's own making do not change
 * the prompt: it goes on from the answer's last token. */
static void fr_65_a_call_comes_back_as_it_was_written(void **state)
{
    static struct rig r;
    struct answer *a, *exact, *own, *other;

    (void)state;
    rig_init(&r);
    rig_start(&r);
    a = wait_over(&r, submit(&r, call_job(&r)));
    assert_int_equal(a->n_calls, 1);
    exact =
        wait_over(&r, submit(&r, next_job(&r, a, a->call[0].arguments, true)));
    own = wait_over(
        &r, submit(&r, next_job(&r, a, "{ \"city\":\"Canberra\" }", true)));
    other = wait_over(
        &r, submit(&r, next_job(&r, a, "{\"city\": \"Oslo\"}", true)));
    assert_true(exact->done && own->done && other->done);
    assert_int_equal(own->prompt_tokens, exact->prompt_tokens);
    /* Prompt and answer, the stop id left out, are the beginning. */
    assert_true(exact->usage.cached_tokens >=
                a->prompt_tokens + a->n_ids - 1 - MODEL_PAGE_TOK);
    assert_true(exact->prompt_tokens > a->prompt_tokens + a->n_ids);
    rig_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call_comes_whole),
        cmocka_unit_test(test_tool_choice_none),
        cmocka_unit_test(test_reasoning_budget),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_logit_bias_of_no_token),
        cmocka_unit_test(test_logprobs_sampled),
        cmocka_unit_test(fr_65_a_call_comes_back_as_it_was_written),
    };

    return test_main(tests, setup, teardown);
}
