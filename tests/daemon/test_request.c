/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * request.c: what a decoded request becomes, and the limits that depend on
 * configuration and on who asks.
 */

#include "daemon/net/request.h"

#include "daemon/base/conf.h"
#include "daemon/sched/job.h"
#include "tests/client/frames.h"
#include "tests/test.h"

static struct conf conf;
static struct peer peer;

static int setup(void **state)
{
    (void)state;
    memset(&conf, 0, sizeof(conf));
    conf.drafts = CONF_DRAFTS_AUTO;
    peer = (struct peer){.uid = 1234, .may_generate = true};
    return 0;
}

static struct job *job_of(const char *json)
{
    struct wire_request *r = accepted(json);
    struct wire_error err;
    struct job *j = NULL;

    if (request_to_job(r, &conf, &peer, &j, &err) != 0) {
        fail_msg("%s is refused: %s", json, err.message);
    }
    wire_request_destroy(r); /* the job owns what it needs */
    return j;
}

static void refused_job(const char *json, int code, const char *detail,
                        const char *message)
{
    struct wire_request *r = accepted(json);
    struct wire_error err;
    struct job *j = NULL;

    assert_int_equal(request_to_job(r, &conf, &peer, &j, &err), code);
    assert_null(j);
    assert_int_equal(err.code, code);
    assert_int_equal(err.id, 7);
    assert_string_equal(err.detail, detail);
    assert_string_equal(err.message, message);
    wire_request_destroy(r);
}

static void assert_text(const struct job_text *t, const char *text)
{
    assert_int_equal(t->n, strlen(text));
    assert_string_equal(t->p, text);
}

static void test_every_key_of_generate_arrives(void **state)
{
    struct job *j = job_of(
        "{\"op\":\"generate\",\"id\":7,\"messages\":[{\"role\":\"user\","
        "\"content\":\"hi\"}],\"tools\":[{\"a\":1}],\"reasoning_effort\":"
        "\"low\",\"thinking\":false,\"temperature\":0.5,\"top_p\":0.25,"
        "\"min_p\":0.125,\"top_k\":5,\"repetition_penalty\":1.5,"
        "\"presence_penalty\":-1,\"frequency_penalty\":2,\"seed\":"
        "18446744073709551615,\"max_tokens\":9,\"stop\":[\"ab\",\"c\"],"
        "\"logprobs\":3,\"want_ids\":true,\"drafts\":2,\"priority\":-3,"
        "\"timeout_ms\":1500,\"logprobs_mode\":\"sampled\",\"logit_bias\":"
        "{\"0\":-100,\"128895\":2.5}}");

    (void)state;
    assert_int_equal(j->kind, JOB_GENERATE);
    assert_int_equal(j->request, 7);
    assert_int_equal(j->uid, 1234);
    assert_true(j->chat);
    assert_text(&j->messages, "[{\"role\": \"user\", \"content\": \"hi\"}]");
    assert_text(&j->tools, "[{\"a\": 1}]");
    assert_null(j->prompt.p);
    assert_string_equal(j->reasoning, "low");
    assert_false(j->thinking);
    assert_true(j->temperature == 0.5F && j->top_p == 0.25F &&
                j->min_p == 0.125F);
    assert_int_equal(j->top_k, 5);
    assert_true(j->repetition == 1.5F && j->presence == -1.0F &&
                j->frequency == 2.0F);
    assert_true(j->seed_given);
    assert_true(j->seed == UINT64_MAX);
    assert_int_equal(j->max_tokens, 9);
    assert_int_equal(j->n_stops, 2);
    assert_text(&j->stop[0], "ab");
    assert_text(&j->stop[1], "c");
    assert_int_equal(j->logprobs, 3);
    assert_true(j->want_ids);
    assert_int_equal(j->drafts, 2);
    assert_int_equal(j->priority, -3);
    assert_int_equal(j->timeout_ms, 1500);
    assert_true(j->logprobs_sampled);
    assert_int_equal(j->n_bias, 2);
    assert_int_equal(j->bias[0].id, 0);
    assert_true(j->bias[0].bias == -100);
    assert_int_equal(j->bias[1].id, 128895);
    assert_true(j->bias[1].bias == 2.5F);
    assert_string_equal(j->tenant, "");
    assert_string_equal(j->session, "");
    job_destroy(j);
}

static void test_absent_keys_are_the_defaults_of_the_design(void **state)
{
    struct job *j = job_of("{\"op\":\"generate\",\"id\":7,\"prompt\":\"\"}");

    (void)state;
    assert_false(j->chat);
    assert_text(&j->prompt, ""); /* empty, and present */
    assert_null(j->messages.p);
    assert_string_equal(j->reasoning, "");
    assert_true(j->thinking);
    assert_true(j->temperature == 1.0F && j->top_p == 1.0F && j->min_p == 0.0F);
    assert_int_equal(j->top_k, 0);
    assert_true(j->repetition == 1.0F && j->presence == 0.0F &&
                j->frequency == 0.0F);
    assert_false(j->seed_given);
    assert_int_equal(j->max_tokens, 0);
    assert_int_equal(j->n_stops, 0);
    assert_int_equal(j->logprobs, -1);
    assert_int_equal(j->drafts, -1);
    assert_int_equal(j->priority, 0);
    assert_int_equal(j->timeout_ms, 0);
    assert_false(j->logprobs_sampled);
    assert_int_equal(j->n_bias, 0);
    assert_null(j->bias);
    job_destroy(j);
}

static void test_bytes_with_nul_arrive_whole(void **state)
{
    struct wire_request *r =
        accepted("{\"op\":\"tokenize\",\"id\":7,\"prompt\":\"a\\u0000b\"}");
    struct wire_error err;
    struct job *j;

    (void)state;
    assert_int_equal(request_to_job(r, &conf, &peer, &j, &err), 0);
    assert_int_equal(j->kind, JOB_TOKENIZE);
    assert_false(j->parse_special);
    assert_int_equal(j->prompt.n, 3);
    assert_memory_equal(j->prompt.p, "a\0b", 4);
    job_destroy(j);
    wire_request_destroy(r);
}

static void test_detokenize_and_render(void **state)
{
    struct job *j =
        job_of("{\"op\":\"detokenize\",\"id\":7,\"ids\":[3,1,2147483647]}");

    (void)state;
    assert_int_equal(j->kind, JOB_DETOKENIZE);
    assert_int_equal(j->n_ids, 3);
    assert_int_equal(j->ids[0], 3);
    assert_int_equal(j->ids[2], INT32_MAX);
    job_destroy(j);

    j = job_of("{\"op\":\"render\",\"id\":7,\"messages\":[],"
               "\"add_generation_prompt\":false,\"want_ids\":true}");
    assert_int_equal(j->kind, JOB_RENDER);
    assert_text(&j->messages, "[]");
    assert_false(j->add_generation);
    assert_true(j->want_ids);
    job_destroy(j);
}

static void test_only_delegates_name_tenants(void **state)
{
    struct wire_request *r =
        accepted("{\"op\":\"generate\",\"id\":7,\"prompt\":\"x\"}");
    struct wire_error err;
    struct job *j = NULL;

    (void)state;
    r->tenant = (struct wire_str){strdup("ann"), 3};
    assert_int_equal(request_to_job(r, &conf, &peer, &j, &err), WIRE_E_DENIED);
    assert_string_equal(err.detail, "tenant");
    peer.is_admin = true; /* is not the same as being a gateway */
    assert_int_equal(request_to_job(r, &conf, &peer, &j, &err), WIRE_E_DENIED);
    assert_null(j);
    peer.may_delegate = true;
    assert_int_equal(request_to_job(r, &conf, &peer, &j, &err), 0);
    assert_string_equal(j->tenant, "ann");
    job_destroy(j);
    wire_request_destroy(r);
}

static void test_priority_has_a_ceiling_but_for_admins(void **state)
{
    static const char json[] =
        "{\"op\":\"generate\",\"id\":7,\"prompt\":\"x\",\"priority\":4}";
    struct job *j;

    (void)state;
    refused_job(json, WIRE_E_DENIED, "priority",
                "priority may be 0 at most here");
    conf.max_priority = 3;
    refused_job(json, WIRE_E_DENIED, "priority",
                "priority may be 3 at most here");
    conf.max_priority = 4;
    j = job_of(json);
    assert_int_equal(j->priority, 4);
    job_destroy(j);
    conf.max_priority = 0;
    peer.is_admin = true;
    j = job_of(json);
    assert_int_equal(j->priority, 4);
    job_destroy(j);
}

static void test_drafts_have_the_configured_ceiling(void **state)
{
    (void)state;
    conf.drafts = 1;
    refused_job("{\"op\":\"generate\",\"id\":7,\"prompt\":\"x\",\"drafts\":2}",
                WIRE_E_BAD_REQUEST, "drafts", "drafts may be 1 at most here");
    job_destroy(job_of("{\"op\":\"generate\",\"id\":7,\"prompt\":\"x\","
                       "\"drafts\":1}"));
}

static void test_sessions(void **state)
{
    struct job *j;

    (void)state;
    j = job_of(
        "{\"op\":\"session_fork\",\"id\":7,\"session\":\"a\",\"to\":\"b\"}");
    assert_int_equal(j->kind, JOB_SESSION);
    assert_int_equal(j->op, SESSION_FORK);
    assert_string_equal(j->session, "a");
    assert_string_equal(j->to, "b");
    job_destroy(j);
    refused_job(
        "{\"op\":\"generate\",\"id\":7,\"messages\":[],\"append\":true}",
        WIRE_E_BAD_REQUEST, "append", "append goes with a session");
    refused_job(
        "{\"op\":\"generate\",\"id\":7,\"prompt\":\"x\",\"append\":true,"
        "\"session\":\"a\"}",
        WIRE_E_BAD_REQUEST, "append", "append goes with messages");
}

static void test_ops_that_make_jobs(void **state)
{
    int n = 0;

    (void)state;
    for (int op = 0; op < WIRE_N_OPS; op++) {
        n += request_kind((enum wire_op)op) >= 0;
    }
    assert_int_equal(n, 12);
    for (int op = WIRE_SESSION_LIST; op <= WIRE_SESSION_FORK; op++) {
        assert_int_equal(request_kind((enum wire_op)op), JOB_SESSION);
    }
    assert_int_equal(request_kind(WIRE_RENDER), JOB_RENDER);
    assert_int_equal(request_kind(WIRE_STATUS), -1);
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_every_key_of_generate_arrives),
        CASE(test_absent_keys_are_the_defaults_of_the_design),
        CASE(test_bytes_with_nul_arrive_whole),
        CASE(test_detokenize_and_render),
        CASE(test_only_delegates_name_tenants),
        CASE(test_priority_has_a_ceiling_but_for_admins),
        CASE(test_drafts_have_the_configured_ceiling),
        CASE(test_sessions),
        CASE(test_ops_that_make_jobs),
    };

    return test_main(tests, NULL, NULL);
}
