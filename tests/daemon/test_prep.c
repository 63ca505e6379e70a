/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/* What the preparation thread makes of each kind of job. */

#include "tests/test.h"

#include <errno.h>
#include <jansson.h>
#include <semaphore.h>

#include "daemon/sched/prep.h"
#include "tests/daemon/answers.h"

static struct tokenizer *tokenizer;

struct rig {
    struct tickets *tickets;
    struct prep_env env;
    struct answer a;
    struct event *last_part;
    size_t biggest_text;
    int biggest_ids;
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

static bool is_utf8(const char *p, size_t n)
{
    json_t *s = json_stringn(p, n);
    bool ok = s != NULL;

    json_decref(s);
    return ok;
}

static void on_emit(void *ctx, struct event *e)
{
    struct rig *r = ctx;

    if (e->type == EVENT_PART) {
        if (e->text.n > r->biggest_text) {
            r->biggest_text = e->text.n;
        }
        if (e->n_ids > r->biggest_ids) {
            r->biggest_ids = e->n_ids;
        }
        assert_true(e->text_is_bytes || e->text.n == 0 ||
                    is_utf8(e->text.p, e->text.n));
    }
    answer_take(&r->a, e);
}

static void rig_init(struct rig *r)
{
    memset(r, 0, sizeof(*r));
    assert_int_equal(tickets_create(&r->tickets, 2, 2), 0);
    r->env = (struct prep_env){
        .tokenizer = tokenizer,
        .tickets = r->tickets,
        .emit = on_emit,
        .ctx = r,
    };
    answer_init(&r->a, 1);
}

static void rig_finish(struct rig *r)
{
    answer_finish(&r->a);
    tickets_destroy(r->tickets);
}

static void set_n(struct job_text *t, const char *p, size_t n)
{
    t->p = malloc(n + 1);
    assert_non_null(t->p);
    memcpy(t->p, p, n);
    t->n = n;
}

static struct job *new_job(struct rig *r, enum job_kind kind, const char *text)
{
    struct job *j = job_create(kind);

    j->id = 1;
    if (text != NULL) {
        set_n(&j->prompt, text, strlen(text));
    }
    assert_int_equal(ticket_open(r->tickets, j), 0);
    return j;
}

static bool run(struct rig *r, struct job *j)
{
    bool on = prep_job(&r->env, j);

    assert_int_equal(on, !answer_over(&r->a));
    return on;
}

static void done_with(struct rig *r, struct job *j)
{
    ticket_close(r->tickets, j->id);
    job_destroy(j);
    answer_finish(&r->a);
    answer_init(&r->a, 1);
}

/* ---- generate ------------------------------------------------------------ */

static json_t *golden(void)
{
    json_error_t err;
    json_t *g =
        json_load_file(test_data("step-tiny/golden-greedy.json"), 0, &err);

    assert_non_null(g);
    return g;
}

static void set_json(struct job_text *t, const json_t *value)
{
    char *s;

    if (!json_is_array(value)) {
        return;
    }
    s = json_dumps(value, JSON_COMPACT);
    assert_non_null(s);
    set_n(t, s, strlen(s));
    free(s);
}

static void test_messages_become_the_golden_ids(void **state)
{
    json_t *g = golden(), *c;
    size_t i;

    (void)state;
    json_array_foreach(json_object_get(g, "cases"), i, c)
    {
        const json_t *want = json_object_get(c, "prompt_ids");
        struct rig r;
        struct job *j;

        rig_init(&r);
        j = new_job(&r, JOB_GENERATE, NULL);
        j->chat = true;
        set_json(&j->messages, json_object_get(c, "messages"));
        set_json(&j->tools, json_object_get(c, "tools"));
        assert_true(run(&r, j));
        assert_int_equal(j->n_ids, json_array_size(want));
        for (int k = 0; k < j->n_ids; k++) {
            assert_int_equal(
                j->ids[k], json_integer_value(json_array_get(want, (size_t)k)));
        }
        done_with(&r, j);
        rig_finish(&r);
    }
    json_decref(g);
}

/* Field report 18: a control token's text in a message is text. */
static void test_fr_18_message_text_is_plain_text(void **state)
{
    const char *messages =
        "[{\"role\":\"user\",\"content\":\"x<|im_end|>y<think>\"}]";
    int32_t im_end = tokenizer_id(tokenizer, "<|im_end|>");
    int32_t think = tokenizer_id(tokenizer, "<think>");
    int n_end = 0, n_think = 0;
    struct rig r;
    struct job *j;

    (void)state;
    rig_init(&r);
    j = new_job(&r, JOB_GENERATE, NULL);
    j->chat = true;
    set_n(&j->messages, messages, strlen(messages));
    assert_true(run(&r, j));
    for (int i = 0; i < j->n_ids; i++) {
        n_end += j->ids[i] == im_end;
        n_think += j->ids[i] == think;
    }
    /* The turn's own end, and the generation prompt's think. */
    assert_int_equal(n_end, 1);
    assert_int_equal(n_think, 1);
    done_with(&r, j);
    rig_finish(&r);
}

static void test_bos_is_first_exactly_once(void **state)
{
    const char *texts[] = {"hello", "<｜begin▁of▁sentence｜>hello", "",
                           "<｜begin▁of▁sentence｜>"};
    struct rig r;

    (void)state;
    rig_init(&r);
    for (int i = 0; i < 4; i++) {
        struct job *j = new_job(&r, JOB_GENERATE, texts[i]);

        assert_true(run(&r, j));
        assert_true(j->n_ids >= 1);
        assert_int_equal(j->ids[0], 0);
        assert_true(i < 2 ? j->n_ids > 1 && j->ids[1] != 0 : j->n_ids == 1);
        done_with(&r, j);
    }
    rig_finish(&r);
}

static void test_raw_prompt_honours_control_tokens(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    rig_init(&r);
    j = new_job(&r, JOB_GENERATE, "<|im_start|>user\nhi<|im_end|>\n");
    assert_true(run(&r, j));
    assert_int_equal(j->ids[1], tokenizer_id(tokenizer, "<|im_start|>"));
    done_with(&r, j);
    rig_finish(&r);
}

static void test_prompt_may_hold_any_bytes(void **state)
{
    const char bytes[] = "a\0b\xff\xfe";
    struct rig r;
    struct job *j;
    size_t n, at = 0;

    (void)state;
    rig_init(&r);
    j = new_job(&r, JOB_GENERATE, NULL);
    set_n(&j->prompt, bytes, 5);
    assert_true(run(&r, j));
    for (int i = 1; i < j->n_ids; i++) {
        const char *b = tokenizer_bytes(tokenizer, j->ids[i], &n);

        assert_memory_equal(b, bytes + at, n);
        at += n;
    }
    assert_int_equal(at, 5);
    done_with(&r, j);
    rig_finish(&r);
}

static void test_too_long_names_both_numbers(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    rig_init(&r);
    r.env.max_prompt_tokens = 5;
    j = new_job(&r, JOB_GENERATE, "a a a a");
    assert_true(run(&r, j));
    assert_int_equal(j->n_ids, 5);
    done_with(&r, j);
    j = new_job(&r, JOB_GENERATE, "a a a a a a a a");
    assert_false(run(&r, j));
    assert_string_equal(r.a.code, "too_long");
    assert_non_null(strstr(r.a.message, "9 tokens"));
    assert_non_null(strstr(r.a.message, "at most 5"));
    done_with(&r, j);
    rig_finish(&r);
}

static void test_bad_messages_are_named(void **state)
{
    const char *bad[] = {"[{\"role\":\"user\",\"content\":7}]", "{}",
                         "[{\"content\":\"x\"}]"};
    struct rig r;

    (void)state;
    rig_init(&r);
    for (int i = 0; i < 3; i++) {
        struct job *j = new_job(&r, JOB_GENERATE, NULL);

        j->chat = true;
        set_n(&j->messages, bad[i], strlen(bad[i]));
        assert_false(run(&r, j));
        assert_string_equal(r.a.code, "bad_request");
        assert_string_equal(r.a.detail, "messages");
        assert_true(strlen(r.a.message) > 5);
        done_with(&r, j);
    }
    rig_finish(&r);
}

static void test_cancelled_job_is_dropped_in_silence(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r);
    for (int kind = 0; kind < JOB_N_KINDS; kind++) {
        struct job *j = new_job(&r, (enum job_kind)kind, "hello");

        assert_true(ticket_take(r.tickets, 1)); /* the engine has answered */
        assert_false(prep_job(&r.env, j));
        assert_false(answer_over(&r.a));
        done_with(&r, j);
    }
    rig_finish(&r);
}

/* ---- what is answered here ----------------------------------------------- */

static void test_tokenize_and_detokenize_round_trip(void **state)
{
    const char *texts[] = {"", "hello", "été 中文 \xf0\x9f\x98\x80\n\n  x",
                           "<|im_end|>"};
    struct rig r;

    (void)state;
    rig_init(&r);
    for (int i = 0; i < 4; i++) {
        struct job *j = new_job(&r, JOB_TOKENIZE, texts[i]), *k;

        assert_false(run(&r, j));
        assert_true(r.a.done && r.a.plain);
        assert_int_equal(r.a.usage.prompt_tokens, r.a.n_ids);
        k = job_create(JOB_DETOKENIZE);
        k->id = 1;
        k->ids = r.a.ids;
        k->n_ids = r.a.n_ids;
        r.a.ids = NULL;
        done_with(&r, j);
        assert_int_equal(ticket_open(r.tickets, k), 0);
        assert_false(run(&r, k));
        assert_string_equal(r.a.text[EVENT_CONTENT], texts[i]);
        done_with(&r, k);
    }
    rig_finish(&r);
}

static void test_tokenize_special_only_when_asked(void **state)
{
    int32_t im_end = tokenizer_id(tokenizer, "<|im_end|>");
    struct rig r;

    (void)state;
    rig_init(&r);
    for (int special = 0; special < 2; special++) {
        struct job *j = new_job(&r, JOB_TOKENIZE, "<|im_end|>");

        j->parse_special = special;
        assert_false(run(&r, j));
        assert_int_equal(r.a.n_ids == 1 && r.a.ids[0] == im_end, special);
        done_with(&r, j);
    }
    rig_finish(&r);
}

static void test_long_results_come_in_parts(void **state)
{
    size_t n = 3 * 200000;
    char *text = malloc(n + 1);
    struct rig r;
    struct job *j, *k;
    int n_ids;

    (void)state;
    for (size_t i = 0; i < n; i += 3) {
        memcpy(text + i, "中", 3);
    }
    text[n] = '\0';
    rig_init(&r);
    j = new_job(&r, JOB_TOKENIZE, text);
    assert_false(run(&r, j));
    n_ids = r.a.n_ids;
    assert_true(n_ids > PREP_PART_IDS);
    assert_int_equal(r.a.n_parts, (n_ids + PREP_PART_IDS - 1) / PREP_PART_IDS);
    assert_int_equal(r.biggest_ids, PREP_PART_IDS);
    k = job_create(JOB_DETOKENIZE);
    k->id = 1;
    k->ids = r.a.ids;
    k->n_ids = n_ids;
    r.a.ids = NULL;
    done_with(&r, j);
    assert_int_equal(ticket_open(r.tickets, k), 0);
    assert_false(run(&r, k));
    assert_int_equal(r.a.n_parts, 3);
    assert_int_equal(r.biggest_text, PREP_PART_BYTES);
    assert_int_equal(r.a.n_text[EVENT_CONTENT], n);
    assert_memory_equal(r.a.text[EVENT_CONTENT], text, n);
    done_with(&r, k);
    rig_finish(&r);
    free(text);
}

static void test_detokenize_names_a_bad_id(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    rig_init(&r);
    j = new_job(&r, JOB_DETOKENIZE, NULL);
    j->ids = calloc(3, sizeof(*j->ids));
    j->n_ids = 3;
    j->ids[2] = 99999999;
    assert_false(run(&r, j));
    assert_string_equal(r.a.code, "bad_request");
    assert_string_equal(r.a.detail, "ids");
    assert_non_null(strstr(r.a.message, "ids[2]"));
    assert_non_null(strstr(r.a.message, "99999999"));
    done_with(&r, j);
    rig_finish(&r);
}

static void test_render_gives_text_or_ids(void **state)
{
    const char *messages = "[{\"role\":\"user\",\"content\":\"Hello\"}]";
    struct rig r;

    (void)state;
    rig_init(&r);
    for (int k = 0; k < 3; k++) {
        struct job *j = new_job(&r, JOB_RENDER, NULL);

        set_n(&j->messages, messages, strlen(messages));
        j->want_ids = k == 1;
        j->add_generation = k != 2;
        assert_false(run(&r, j));
        assert_true(r.a.done && r.a.plain);
        if (k == 1) {
            assert_int_equal(r.a.ids[0], 0);
            assert_int_equal(r.a.ids[1],
                             tokenizer_id(tokenizer, "<|im_start|>"));
        } else {
            assert_string_equal(r.a.text[EVENT_CONTENT],
                                k == 0 ? "<|im_start|>user\nHello<|im_end|>\n"
                                         "<|im_start|>assistant\n<think>\n"
                                       : "<|im_start|>user\nHello<|im_end|>\n");
        }
        done_with(&r, j);
    }
    rig_finish(&r);
}

static void test_render_parts_are_whole_characters(void **state)
{
    size_t n = 300000;
    char *messages = malloc(n + 64), *end;
    struct rig r;
    struct job *j;

    (void)state;
    /* An odd start, so that a blind cut would hit a character. */
    end = stpcpy(messages, "[{\"role\":\"user\",\"content\":\"xx");
    for (size_t i = 0; i < n; i += 3) {
        end = stpcpy(end, "中");
    }
    strcpy(end, "\"}]");
    rig_init(&r);
    j = new_job(&r, JOB_RENDER, NULL);
    set_n(&j->messages, messages, strlen(messages));
    assert_false(run(&r, j)); /* on_emit looks at every part */
    assert_int_equal(r.a.n_parts, 2);
    assert_true(r.a.n_text[EVENT_CONTENT] > n);
    done_with(&r, j);
    rig_finish(&r);
    free(messages);
}

/* ---- the thread ---------------------------------------------------------- */

struct threaded {
    sem_t loaded, forwarded, ended;
    struct job *job[4];
    int n;
};

static void on_loaded(void *ctx)
{
    struct threaded *t = ctx;

    (void)sem_post(&t->loaded);
}

static void on_ended(void *ctx)
{
    struct threaded *t = ctx;

    (void)sem_post(&t->ended);
}

static void on_forward(void *ctx, struct job *j)
{
    struct threaded *t = ctx;

    t->job[t->n++] = j;
    (void)sem_post(&t->forwarded);
}

static void on_threaded_emit(void *ctx, struct event *e)
{
    (void)ctx;
    event_destroy(e);
    fail_msg("nothing is to be answered here");
}

static void test_thread_hands_on_in_order_and_ends(void **state)
{
    const struct tokenizer *tok = NULL;
    struct tickets *tickets;
    struct threaded t = {0};
    struct prep_conf c = {
        .dir = test_data("step-tiny"),
        .max_queue = 4,
        .forward = on_forward,
        .emit = on_threaded_emit,
        .loaded = on_loaded,
        .ended = on_ended,
        .ctx = &t,
    };
    struct prep *p;
    char why[64];

    (void)state;
    (void)sem_init(&t.loaded, 0, 0);
    (void)sem_init(&t.forwarded, 0, 0);
    (void)sem_init(&t.ended, 0, 0);
    assert_int_equal(tickets_create(&tickets, 4, 4), 0);
    c.tickets = tickets;
    assert_int_equal(prep_create(&p, &c), 0);
    (void)sem_wait(&t.loaded);
    assert_int_equal(prep_tokenizer(p, &tok, why, sizeof(why)), 1);
    assert_non_null(tok);
    for (uint64_t id = 1; id <= 3; id++) {
        struct job *j = job_create(JOB_GENERATE);

        j->id = id;
        set_n(&j->prompt, "x", 1);
        assert_int_equal(ticket_open(tickets, j), 0);
        assert_int_equal(prep_submit(p, j), 0);
    }
    for (int i = 0; i < 3; i++) {
        (void)sem_wait(&t.forwarded);
    }
    prep_stop(p);
    (void)sem_wait(&t.ended);
    prep_join(p);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t.job[i]->id, i + 1);
        assert_int_equal(t.job[i]->n_ids, 2);
        ticket_close(tickets, t.job[i]->id);
        job_destroy(t.job[i]);
    }
    prep_destroy(p);
    prep_destroy(NULL);
    tickets_destroy(tickets);
}

static void test_thread_says_why_it_has_no_tokenizer(void **state)
{
    const struct tokenizer *tok = NULL;
    struct threaded t = {0};
    const struct prep_conf c = {
        .dir = "/nonexistent",
        .max_queue = 1,
        .forward = on_forward,
        .emit = on_threaded_emit,
        .loaded = on_loaded,
        .ended = on_ended,
        .ctx = &t,
    };
    struct prep *p;
    char why[256] = "";

    (void)state;
    (void)sem_init(&t.loaded, 0, 0);
    (void)sem_init(&t.ended, 0, 0);
    assert_int_equal(prep_create(&p, &c), 0);
    (void)sem_wait(&t.loaded);
    assert_true(prep_tokenizer(p, &tok, why, sizeof(why)) < 0);
    assert_non_null(strstr(why, "No such file"));
    assert_null(tok);
    prep_stop(p);
    prep_join(p);
    prep_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_become_the_golden_ids),
        cmocka_unit_test(test_fr_18_message_text_is_plain_text),
        cmocka_unit_test(test_bos_is_first_exactly_once),
        cmocka_unit_test(test_raw_prompt_honours_control_tokens),
        cmocka_unit_test(test_prompt_may_hold_any_bytes),
        cmocka_unit_test(test_too_long_names_both_numbers),
        cmocka_unit_test(test_bad_messages_are_named),
        cmocka_unit_test(test_cancelled_job_is_dropped_in_silence),
        cmocka_unit_test(test_tokenize_and_detokenize_round_trip),
        cmocka_unit_test(test_tokenize_special_only_when_asked),
        cmocka_unit_test(test_long_results_come_in_parts),
        cmocka_unit_test(test_detokenize_names_a_bad_id),
        cmocka_unit_test(test_render_gives_text_or_ids),
        cmocka_unit_test(test_render_parts_are_whole_characters),
        cmocka_unit_test(test_thread_hands_on_in_order_and_ends),
        cmocka_unit_test(test_thread_says_why_it_has_no_tokenizer),
    };

    return test_main(tests, setup, teardown);
}
