/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * daemon/text when memory runs out: each allocation of each operation fails in
 * turn, and each time the operation says -ENOMEM, gives back what it had taken,
 * and leaves its results untouched. The allocator is wrapped by the linker
 * (--wrap), so only text's own calls are counted and failed.
 */
#include <errno.h>

#include "daemon/text/chat.h"
#include "daemon/text/choice.h"
#include "daemon/text/parse.h"
#include "tests/daemon/text.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static int n_allocations; /* so far in this operation */
static int fail_at = -1;  /* the one that fails */
static int n_live;

static bool fails(void)
{
    return n_allocations++ == fail_at;
}

void *__wrap_malloc(size_t n)
{
    void *p = fails() ? NULL : __real_malloc(n);

    n_live += p != NULL;
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p = fails() ? NULL : __real_calloc(n, size);

    n_live += p != NULL;
    return p;
}

void *__wrap_realloc(void *old, size_t n)
{
    void *p = fails() ? NULL : __real_realloc(old, n);

    n_live += old == NULL && p != NULL;
    return p;
}

void __wrap_free(void *p)
{
    n_live -= p != NULL;
    __real_free(p);
}

/* Runs op with each of its allocations failing, one a run. */
static void exhaust(int (*op)(void))
{
    int live, n;

    fail_at = -1;
    n_allocations = 0;
    live = n_live;
    assert_int_equal(op(), 0);
    assert_int_equal(n_live, live);
    n = n_allocations;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        fail_at = i;
        n_allocations = 0;
        assert_int_equal(op(), -ENOMEM);
        assert_int_equal(n_live, live);
    }
    fail_at = -1;
}

static char *json;
static struct tokenizer *bytes;

static int op_load(void)
{
    struct tokenizer *t = NULL;
    char why[128];
    int r = tokenizer_load_json(&t, json, strlen(json), why, sizeof(why));

    assert_true((r == 0) == (t != NULL));
    tokenizer_destroy(t);
    return r;
}

static void test_load(void **state)
{
    (void)state;
    exhaust(op_load);
}

static int op_encode(void)
{
    static const char text[] = "abc <a>ab</a> \xff abcabcabcabcabcabcabcabc";
    int32_t *ids = NULL;
    int n = 0, cap = 0;
    int r = tokenizer_encode(bytes, text, sizeof(text) - 1, true, 1000, &ids,
                             &n, &cap);

    assert_true((r == 0) == (n != 0));
    free(ids);
    return r;
}

static void test_encode(void **state)
{
    (void)state;
    exhaust(op_encode);
}

static int op_chat(void)
{
    static const char messages[] =
        "[{\"role\":\"system\",\"content\":\"s\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"t\"},"
        "{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"u\"}]},"
        "{\"role\":\"assistant\",\"content\":\"<think>r</think>a\","
        "\"tool_calls\":[{\"name\":\"f\",\"arguments\":{\"k\":[1,2.5,null],"
        "\"l\":\"v\",\"m\":{},\"n\":1,\"o\":2}}]},"
        "{\"role\":\"tool\",\"content\":\"x\"}]";
    static const char tools[] = "[{\"a\":\"b\"},{\"c\":[]}]";
    const struct chat_args a = {
        .messages = messages,
        .n_messages = sizeof(messages) - 1,
        .tools = tools,
        .n_tools = sizeof(tools) - 1,
        .thinking = true,
        .generate = true,
    };
    struct chat_prompt p = {0};
    int32_t *ids = NULL;
    char why[128];
    int n = 0;
    int r = chat_render(&a, &p, why, sizeof(why));

    if (r == 0) {
        r = chat_tokenize(bytes, &p, 10000, &ids, &n);
    } else {
        assert_null(p.text);
    }
    assert_true((r == 0) == (ids != NULL));
    free(ids);
    chat_prompt_finish(&p);
    return r;
}

static void test_chat(void **state)
{
    (void)state;
    exhaust(op_chat);
}

static int swallow(void *ctx, const struct parse_piece *p)
{
    (void)ctx;
    (void)p;
    return 0;
}

static int op_parse(void)
{
    static const char *const stop[] = {"one", "two"};
    static const size_t len[] = {3, 3};
    const struct parse_args a = {
        .reasoning = true, .n_stops = 2, .stop = stop, .stop_len = len};
    struct parse *p = NULL;
    int r = parse_create(&p, &a);

    assert_true((r == 0) == (p != NULL));
    if (r == 0) {
        /* Nothing after creation allocates. */
        int n = n_allocations;

        r = parse_feed(p, "r</think>on two", 15, swallow, NULL);
        assert_int_equal(r, 1);
        assert_int_equal(n_allocations, n);
        r = 0;
    }
    parse_destroy(p);
    return r;
}

static void test_parse(void **state)
{
    (void)state;
    exhaust(op_parse);
}

/* Calls of every kind, whole and left open. */
static int op_tools(void)
{
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
        "{\"properties\":{\"o\":{\"type\":\"object\"},\"i\":{\"type\":"
        "\"integer\"},\"n\":{\"type\":\"number\"},\"s\":{\"type\":"
        "\"string\"},\"x\":{\"type\":[]}}}}}]";
    static const char text[] =
        "a<tool_call>\n<function=f>\n<parameter=o>{\"a\":[1,{\"b\":\"c\"}],"
        "\"a\":2}</parameter><parameter=o>{'a': (1, 'x'), 2: {3}}</parameter>"
        "<parameter=i>True</parameter><parameter=n>2.5</parameter>"
        "<parameter=s>text</parameter><parameter=x>(1), 'a' 'b'</parameter>"
        "</function>\n</tool_call> \n<tool_call>none</tool_call>"
        "<function=f><parameter=s>x<parameter=i>3</function> </tool_call>b"
        "<tool_call><function=f></function><function=f></function>";
    const struct parse_args a = {
        .tools = tools,
        .n_tools = sizeof(tools) - 1,
    };
    struct parse *p = NULL;
    int r = parse_create(&p, &a);

    for (size_t i = 0; r == 0 && i < sizeof(text) - 1; i += 7) {
        size_t left = sizeof(text) - 1 - i;

        r = parse_feed(p, text + i, left < 7 ? left : 7, swallow, NULL);
    }
    if (r == 0) {
        r = parse_flush(p, swallow, NULL);
    }
    assert_true(r != 0 || parse_calls(p) == 4);
    parse_destroy(p);
    return r;
}

static void test_tools(void **state)
{
    (void)state;
    exhaust(op_tools);
}

static int op_choice(void)
{
    static const char tools[] = "[{\"function\":{\"name\":\"f\"}}]";
    static const char choice[] =
        "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}";
    struct choice c = {0};
    char why[128];
    int r = choice_read(choice, sizeof(choice) - 1, tools, sizeof(tools) - 1,
                        &c, why, sizeof(why));

    assert_true((r == 0) == (c.name != NULL));
    free(c.name);
    return r;
}

static void test_choice(void **state)
{
    (void)state;
    exhaust(op_choice);
}

static int setup(void **state)
{
    char why[128];

    (void)state;
    json = text_bytes_json(
        "{\"id\":300,\"content\":\"<a>\"},"
        "{\"id\":301,\"content\":\"</a>\",\"normalized\":true}",
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+\"},"
        "\"behavior\":\"Isolated\"}",
        ",\"ab\":256,\"abc\":257", "\"a b\",\"ab c\"");
    return tokenizer_load_json(&bytes, json, strlen(json), why, sizeof(why));
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_destroy(bytes);
    free(json);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),  cmocka_unit_test(test_encode),
        cmocka_unit_test(test_chat),  cmocka_unit_test(test_parse),
        cmocka_unit_test(test_tools), cmocka_unit_test(test_choice),
    };

    return test_main(tests, setup, teardown);
}
