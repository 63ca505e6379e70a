/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Reasoning and tool calls against the cases of tests/data/parse/, which an
 * independent writing of the rules made or agreed to: each text whole, byte by
 * byte and at every cut in two. A case named fr_N is that field report.
 */
#include <errno.h>
#include <jansson.h>

#include "daemon/text/parse.h"
#include "daemon/text/tools.h"
#include "tests/daemon/text.h"

#define MAX_TEXT 8192
#define MAX_CALLS 16

struct text {
    char p[MAX_TEXT];
    size_t n;
};

/* What an answer came to. */
struct answer {
    struct text reasoning, content;
    struct {
        struct text name, arguments;
        struct text growing; /* what was told beforehand */
        char id[PARSE_ID + 1];
        bool begun, whole;
    } call[MAX_CALLS];
    int n_calls;
    int n_begun, n_dropped, n_grown;
};

static void append(struct text *t, const char *p, size_t n)
{
    assert_true(t->n + n < MAX_TEXT);
    memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = '\0';
}

static int collect(void *ctx, const struct parse_piece *p)
{
    struct answer *a = ctx;

    if (p->kind == PARSE_REASONING || p->kind == PARSE_CONTENT) {
        assert_true(p->n > 0);
        append(p->kind == PARSE_REASONING ? &a->reasoning : &a->content,
               p->text, p->n);
        return 0;
    }
    assert_in_range(p->index, 0, MAX_CALLS - 1);
    switch (p->kind) {
    case PARSE_CALL_BEGIN:
        assert_false(a->call[p->index].begun || a->call[p->index].whole);
        a->call[p->index].begun = true;
        a->call[p->index].growing.n = 0;
        a->n_begun++;
        break;
    case PARSE_CALL_GROW:
        assert_true(a->call[p->index].begun && p->n > 0);
        append(&a->call[p->index].growing, p->text, p->n);
        a->n_grown++;
        break;
    case PARSE_CALL:
        assert_int_equal(p->index, a->n_calls);
        a->call[p->index].whole = true;
        a->call[p->index].begun = false;
        append(&a->call[p->index].name, p->name, p->n_name);
        append(&a->call[p->index].arguments, p->text, p->n);
        assert_int_equal(strlen(p->id), PARSE_ID);
        memcpy(a->call[p->index].id, p->id, PARSE_ID + 1);
        a->n_calls++;
        break;
    default: /* dropped */
        assert_true(a->call[p->index].begun);
        a->call[p->index].begun = false;
        a->n_dropped++;
    }
    return 0;
}

static void feed(const struct parse_args *args, const char *text, size_t n,
                 size_t cut, size_t step, struct answer *a)
{
    struct parse *p = NULL;

    memset(a, 0, sizeof(*a));
    assert_int_equal(parse_create(&p, args), 0);
    for (size_t i = 0; i < n;) {
        size_t m = i < cut ? cut - i : step;

        m = m < n - i ? m : n - i;
        assert_int_equal(parse_feed(p, text + i, m, collect, a), 0);
        i += m;
    }
    assert_int_equal(parse_flush(p, collect, a), 0);
    assert_int_equal(parse_calls(p), a->n_calls);
    for (int i = 0; i < MAX_CALLS; i++) {
        assert_false(a->call[i].begun); /* each has its word in the end */
    }
    parse_destroy(p);
}

/* ---- the cases --------------------------------------------------------- */

static void assert_text(const char *name, const char *what,
                        const struct text *t, const json_t *expected)
{
    const char *s = json_string_value(expected);
    size_t n = json_string_length(expected);

    if (t->n != n || memcmp(t->p, s, n) != 0) {
        fail_msg("%s, %s:\n[%.*s]\nexpected\n[%s]", name, what, (int)t->n, t->p,
                 s);
    }
}

static void assert_case(const json_t *c, const struct answer *a)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *calls = json_object_get(c, "calls");

    assert_text(name, "reasoning", &a->reasoning,
                json_object_get(c, "reasoning"));
    assert_text(name, "content", &a->content, json_object_get(c, "content"));
    if (a->n_calls != (int)json_array_size(calls)) {
        fail_msg("%s: %d calls", name, a->n_calls);
    }
    for (int i = 0; i < a->n_calls; i++) {
        const json_t *call = json_array_get(calls, (size_t)i);

        assert_text(name, "name", &a->call[i].name,
                    json_object_get(call, "name"));
        assert_text(name, "arguments", &a->call[i].arguments,
                    json_object_get(call, "arguments"));
    }
}

static void assert_same(const struct answer *a, const struct answer *b)
{
    for (int i = 0; i < a->n_calls; i++) {
        assert_string_equal(a->call[i].id, b->call[i].id);
    }
}

/* Returns the calls in it; *ret_grown: what was told beforehand of a call was
 * the call. */
static int run_case(const json_t *c, const char *tools, int *ret_grown)
{
    const struct parse_args args = {
        .reasoning = json_is_true(json_object_get(c, "thinking")),
        .tools = tools,
        .n_tools = tools != NULL ? strlen(tools) : 0,
        .salt = {3, 4},
    };
    const char *text = json_string_value(json_object_get(c, "text"));
    size_t n = json_string_length(json_object_get(c, "text"));
    struct answer *a = malloc(2 * sizeof(*a));
    int n_calls;

    assert_non_null(a);
    feed(&args, text, n, 0, n + 1, &a[0]);
    assert_case(c, &a[0]);
    feed(&args, text, n, 0, 1, &a[1]);
    assert_case(c, &a[1]);
    assert_same(&a[0], &a[1]);
    for (size_t cut = 1; cut < n; cut++) {
        feed(&args, text, n, cut, n, &a[1]);
        assert_case(c, &a[1]);
        assert_same(&a[0], &a[1]);
    }
    feed(&args, text, n, 0, 1, &a[1]);
    for (int i = 0; i < a[1].n_calls; i++) {
        *ret_grown += a[1].call[i].growing.n == a[1].call[i].arguments.n &&
                      memcmp(a[1].call[i].growing.p, a[1].call[i].arguments.p,
                             a[1].call[i].arguments.n) == 0;
    }
    n_calls = a->n_calls;
    free(a);
    return n_calls;
}

/* Returns how many cases there were. */
static int run_file(const char *path, int *ret_calls, int *ret_grown)
{
    json_error_t error;
    json_t *file = json_load_file(test_data(path), JSON_ALLOW_NUL, &error);
    const json_t *cases = json_object_get(file, "cases");
    json_t *tools = json_object_get(file, "tools");
    char *text = json_is_array(tools) ? json_dumps(tools, 0) : NULL;
    int n = (int)json_array_size(cases);

    if (file == NULL) {
        fail_msg("%s: %s", path, error.text);
    }
    *ret_calls = *ret_grown = 0;
    for (int i = 0; i < n; i++) {
        *ret_calls +=
            run_case(json_array_get(cases, (size_t)i), text, ret_grown);
    }
    free(text);
    json_decref(file);
    return n;
}

static void test_reasoning(void **state)
{
    int calls, grown;

    (void)state;
    assert_true(run_file("parse/reasoning.json", &calls, &grown) >= 28);
    assert_true(calls >= 10);
    assert_int_equal(grown, calls);
}

static void test_calls(void **state)
{
    int calls, grown;

    (void)state;
    assert_true(run_file("parse/calls.json", &calls, &grown) >= 50);
    assert_true(calls >= 50);
    /* Two in bad form, one that repeats a name. */
    assert_in_range(calls - grown, 1, 6);
}

static void test_values(void **state)
{
    int calls, grown;

    (void)state;
    assert_true(run_file("parse/values.json", &calls, &grown) >= 80);
    assert_true(calls >= 80);
    assert_int_equal(grown, calls); /* piece by piece, byte for byte */
}

static void test_without_tools_bytes_are_bytes(void **state)
{
    int calls, grown;

    (void)state;
    assert_true(run_file("parse/no-tools.json", &calls, &grown) >= 48);
    assert_int_equal(calls, 0);
}

static void test_random_texts(void **state)
{
    int calls, grown;

    (void)state;
    assert_int_equal(run_file("parse/random.json", &calls, &grown), 400);
    assert_true(calls >= 40);
}

static int ignore(void *ctx, const struct parse_piece *p)
{
    *(size_t *)ctx += p->kind == PARSE_CONTENT ? p->n : 0;
    return 0;
}

/* fr_72, fr_51: the cost of a token does not grow with the answer: blanks that
 * do not end, a block that does not end. */
static void fr_72_cost_per_token_is_flat(void **state)
{
    enum { N_TOKENS = 30000 };
    static const char call[] = "<tool_call><function=f></function></tool_call>";
    static const char *const token[] = {" \n \n", "<par"};
    const uint64_t salt[2] = {1, 2};

    (void)state;
    for (int k = 0; k < 2; k++) {
        uint64_t before = 0, now;
        struct tools t;
        size_t n = 0;

        assert_int_equal(tools_init(&t, "[]", 2, salt), 0);
        /* Of the block the last tag is left out. */
        assert_int_equal(tools_feed(&t, call,
                                    sizeof(call) - 1 - 12u * (unsigned)k,
                                    ignore, &n),
                         0);
        for (int i = 0; i < N_TOKENS; i++) {
            assert_int_equal(tools_feed(&t, token[k], 4, ignore, &n), 0);
            if ((i + 1) % (N_TOKENS / 10) == 0) {
                now = t.looked + t.scan.steps;
                assert_true(now - before <= 12ull * 4 * (N_TOKENS / 10));
                before = now;
                assert_true(k == 0 || t.held.n - t.grow.at < 16);
            }
        }
        assert_int_equal(n, 0);
        assert_int_equal(tools_flush(&t, ignore, &n), 0);
        assert_int_equal(n, 4 * N_TOKENS);
        tools_finish(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_without_tools_bytes_are_bytes),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(fr_72_cost_per_token_is_flat),
    };

    return test_main(tests, NULL, NULL);
}
