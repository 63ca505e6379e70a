/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Turns with calls, kept and put back: whose they are, how many, and what a
 * prompt looks like in which one stands for a message.
 */

#include "tests/test.h"

#include <errno.h>

#include "daemon/sched/turns.h"

static struct tokenizer *tokenizer;

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

/* A turn as the model may write it: nothing in it is as the template would
 * have it. */
#define ODD                                                         \
    "so</think>Hm<tool_call><function=f><parameter=a>1</parameter>" \
    "</function></tool_call>"

static void draft(struct turn_draft *d, const char *id, const char *text)
{
    int32_t *ids = NULL;
    int n = 0, cap = 0;

    memset(d, 0, sizeof(*d));
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), true, 4096,
                                      &ids, &n, &cap),
                     0);
    str_add(&d->ids, ids, (size_t)n * sizeof(*ids));
    str_puts(&d->reasoning, "so");
    str_puts(&d->content, "Hm");
    turn_draft_call(d, id, "f", 1, "{\"a\": 1, \"b\": 2}", 16);
    assert_int_equal(d->err, 0);
    free(ids);
}

static struct job *owner(uint32_t uid, const char *tenant)
{
    struct job *j = job_create(JOB_GENERATE);

    j->uid = uid;
    snprintf(j->tenant, sizeof(j->tenant), "%s", tenant);
    return j;
}

static void add(struct turns *t, struct job *j, const char *id,
                const char *text)
{
    struct turn_draft d;

    draft(&d, id, text);
    turns_add(t, j, tokenizer, &d);
    turn_draft_finish(&d);
}

static bool has(struct turns *t, const struct job *j, const char *id)
{
    const struct chat_turn *x =
        turns_find(t, j->uid, j->tenant, id, strlen(id));

    if (x != NULL) {
        turns_release(t);
    }
    return x != NULL;
}

static void test_a_turn_is_its_owners(void **state)
{
    struct job *a = owner(1, ""), *b = owner(1, "t"), *c = owner(2, "");
    struct turns *t;

    (void)state;
    assert_int_equal(turns_create(&t), 0);
    add(t, a, "call_1", ODD);
    add(t, a, "call_1", ODD); /* the same again takes its place */
    assert_true(has(t, a, "call_1"));
    assert_false(has(t, a, "call_2"));
    assert_false(has(t, b, "call_1"));
    assert_false(has(t, c, "call_1"));
    assert_in_range(turns_bytes(t), 1, 2 * strlen(ODD) + 1500);
    turns_destroy(t);
    turns_destroy(NULL);
    job_destroy(a);
    job_destroy(b);
    job_destroy(c);
}

static void test_what_is_kept_is_bounded(void **state)
{
    struct job *a = owner(1, ""), *b = owner(2, "");
    char *big = malloc((1 << 20) + 1), id[32];
    struct turns *t;

    (void)state;
    assert_non_null(big);
    assert_int_equal(turns_create(&t), 0);
    memset(big, 'a', 1 << 20);
    big[1 << 20] = '\0';
    for (int i = 0; i < 12; i++) {
        struct turn_draft d;

        snprintf(id, sizeof(id), "call_%d", i);
        draft(&d, id, ODD);
        str_add(&d.content, big, 1 << 20);
        turns_add(t, a, tokenizer, &d);
        if (i == 3) {
            add(t, b, "call_b", ODD);
        }
        turn_draft_finish(&d);
        assert_true(turns_bytes(t) <= TURNS_OWNER_BYTES + 4096);
        assert_true(has(t, a, "call_0") || i > 6); /* asked for: the newest */
    }
    assert_true(has(t, a, "call_11"));
    assert_false(has(t, a, "call_1"));
    assert_true(has(t, b, "call_b")); /* nobody else's room is taken */
    turns_destroy(t);
    job_destroy(a);
    job_destroy(b);
    free(big);
}

/* ---- in a prompt ------------------------------------------------------- */

struct found {
    struct turns *turns;
    bool held;
};

static const struct chat_turn *find(void *ctx, const char *id, size_t n)
{
    struct found *f = ctx;
    const struct chat_turn *x = turns_find(f->turns, 1, "", id, n);

    f->held = x != NULL;
    return x;
}

static void release(void *ctx)
{
    struct found *f = ctx;

    if (f->held) {
        turns_release(f->turns);
    }
    f->held = false;
}

static void render(struct turns *t, const char *messages,
                   struct chat_prompt *ret)
{
    struct found f = {.turns = t};
    const struct chat_args a = {
        .messages = messages,
        .n_messages = strlen(messages),
        .thinking = true,
        .generate = true,
        .find = t != NULL ? find : NULL,
        .release = release,
        .ctx = &f,
    };
    char why[128];

    assert_int_equal(chat_render(&a, ret, why, sizeof(why)), 0);
    assert_false(f.held);
}

#define USER "{\"role\":\"user\",\"content\":\"q\"}"
#define MESSAGE(reasoning, content, id, arguments)                         \
    "{\"role\":\"assistant\",\"reasoning_content\":\"" reasoning           \
    "\",\"content\":\"" content "\",\"tool_calls\":[{\"id\":\"" id         \
    "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" \
    "\"" arguments "\"}}]}"
#define RESULT "{\"role\":\"tool\",\"content\":\"r\"}"
#define ARGUMENTS "{\\\"b\\\":2,\\\"a\\\":1}"

static void check(struct turns *t, const char *messages, const char *has_text)
{
    struct chat_prompt p;
    int32_t *ids;
    int n;

    render(t, messages, &p);
    if (strstr(p.text, has_text) == NULL) {
        fail_msg("[%s]\nis not in\n[%s]", has_text, p.text);
    }
    assert_int_equal(chat_tokenize(tokenizer, &p, 4096, &ids, &n), 0);
    chat_prompt_finish(&p);
    free(ids);
}

static void test_a_message_that_says_the_same_is_the_turn(void **state)
{
    struct job *j = owner(1, "");
    struct turns *t;

    (void)state;
    assert_int_equal(turns_create(&t), 0);
    add(t, j, "call_1", ODD);
    check(t,
          "[" USER "," MESSAGE("so", "Hm", "call_1", ARGUMENTS) "," RESULT "]",
          "assistant\n<think>\n" ODD "<|im_end|>\n");
    /* After the next question the reasoning is gone, by the template. */
    check(t,
          "[" USER "," MESSAGE("so", "Hm", "call_1", ARGUMENTS) "," RESULT
                                                                "," USER "]",
          "assistant\nHm<tool_call><function=f><parameter=a>1</parameter>"
          "</function></tool_call><|im_end|>\n");
    /* Whatever differs, it is the client's word that counts. */
    check(t, "[" USER "," MESSAGE("so", "Hm", "call_2", ARGUMENTS) "]",
          "<think>\nso\n</think>\nHm<tool_call>\n<function=f>\n");
    check(t, "[" USER "," MESSAGE("so", "No", "call_1", ARGUMENTS) "]",
          "<think>\nso\n</think>\nNo<tool_call>\n<function=f>\n");
    check(t, "[" USER "," MESSAGE("so", "Hm", "call_1", "{\\\"a\\\":1}") "]",
          "<think>\nso\n</think>\nHm<tool_call>\n<function=f>\n");
    check(t, "[" USER "," MESSAGE("", "Hm", "call_1", ARGUMENTS) "]",
          "<think>\n\n</think>\nHm<tool_call>\n<function=f>\n");
    turns_destroy(t);
    job_destroy(j);
}

/* fr_65: not only the bytes, the ids are those that were drawn, also where the
 * tokenizer would cut the text another way. */
static void fr_65_ids_come_back_as_drawn(void **state)
{
    static const char text[] = "so\n</think>\nHm" ODD;
    struct job *j = owner(1, "");
    struct chat_prompt p;
    struct turn_draft d;
    struct turns *t;
    int32_t *ids, drawn[sizeof(text)];
    int n, n_drawn = 0, at = 0;

    (void)state;
    draft(&d, "call_1", "");
    /* A token for each byte, tags apart. */
    for (size_t i = 0; i < sizeof(text) - 1;) {
        size_t m = text[i] == '<' ? strcspn(text + i, ">") + 1 : 1;
        char piece[64];

        snprintf(piece, sizeof(piece), "%.*s", (int)m, text + i);
        drawn[n_drawn] = tokenizer_id(tokenizer, piece);
        for (int32_t id = 0; drawn[n_drawn] < 0; id++) {
            size_t len;
            const char *b = tokenizer_bytes(tokenizer, id, &len);

            m = 1;
            if (b != NULL && len == 1 && b[0] == text[i]) {
                drawn[n_drawn] = id;
            }
        }
        n_drawn++;
        i += m;
    }
    d.ids.n = 0;
    str_add(&d.ids, drawn, (size_t)n_drawn * sizeof(*drawn));
    assert_int_equal(turns_create(&t), 0);
    turns_add(t, j, tokenizer, &d);
    render(t,
           "[" USER "," MESSAGE("so", "Hm", "call_1", ARGUMENTS) "," RESULT "]",
           &p);
    assert_int_equal(p.n_exact, 1);
    assert_int_equal(p.exact[0].n, sizeof(text) - 1);
    assert_int_equal(chat_tokenize(tokenizer, &p, 4096, &ids, &n), 0);
    while (at + n_drawn <= n &&
           memcmp(ids + at, drawn, (size_t)n_drawn * sizeof(*drawn)) != 0) {
        at++;
    }
    assert_true(at + n_drawn < n);
    assert_int_equal(ids[at + n_drawn], tokenizer_id(tokenizer, "<|im_end|>"));
    assert_int_equal(chat_tokenize(tokenizer, &p, n - 1, &ids, &n), -E2BIG);
    free(ids);
    chat_prompt_finish(&p);
    turn_draft_finish(&d);
    turns_destroy(t);
    job_destroy(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_is_its_owners),
        cmocka_unit_test(test_what_is_kept_is_bounded),
        cmocka_unit_test(test_a_message_that_says_the_same_is_the_turn),
        cmocka_unit_test(fr_65_ids_come_back_as_drawn),
    };

    return test_main(tests, setup, teardown);
}
