/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Tool calls as grammar: which texts fit, and that every text that fits is what
 * the parser makes calls of, with no content left.
 */
#include "daemon/text/callgram.h"
#include "daemon/text/parse.h"
#include "tests/daemon/grams.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"},"
    "\"s\":{\"type\":\"string\"},\"e\":{\"type\":\"string\",\"enum\":[\"x\","
    "\"yy\"]},\"o\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":"
    "\"string\"}},\"required\":[\"k\"]}},\"required\":[\"n\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"ping\"}}]";

static struct gram *compile(const char *list, const char *name, bool reasoning)
{
    const struct callgram_args a = {
        .tools = list,
        .n_tools = strlen(list),
        .name = name,
        .n_name = name != NULL ? strlen(name) : 0,
        .reasoning = reasoning,
    };
    char text[256] = "";
    const struct why why = {text, sizeof(text)};
    struct gram *g = NULL;
    int r = callgram_compile(&g, &a, &why);

    if (r < 0) {
        fail_msg("%d, %s", r, text);
    }
    return g;
}

#define CALL(params) \
    "<tool_call>\n<function=get>\n" params "</function>\n</tool_call>"
#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
#define PING "<tool_call>\n<function=ping>\n</function>\n</tool_call>"

static void test_what_fits(void **state)
{
    static const char *const fit[] = {
        CALL(P("n", "3")),
        CALL(P("n", "-3") P("s", "")),
        CALL(P("n", "3") P("s", "a\nb < c </div>\n\n</para")),
        CALL(P("n", "3") P("e", "yy") P("o", "{\"k\": \"\\u003c/x>\"}")),
        PING,
        PING PING CALL(P("n", "1")),
    };
    static const char *const unfit[] = {
        "hello",
        "<tool_call>\n<function=invalid>",
        CALL(""),
        CALL(P("n", "x")),
        CALL(P("s", "a") P("n", "3")),
        CALL(P("n", "3") P("s", "a</parameter>b")),
        CALL(P("n", "3") P("s", "<parameter=e>")),
        CALL(P("n", "3") P("s", "</function>")),
        CALL(P("n", "3") P("s", "</tool_call>")),
        CALL(P("n", "3") P("s", "\xff")),
        CALL(P("n", "3") P("o", "{\"k\": \"</x>\"}")),
        CALL(P("n", "3") P("e", "z")),
        PING "\n" PING,
        PING " ",
    };
    struct gram *g = compile(tools, NULL, false);

    (void)state;
    for (size_t i = 0; i < sizeof(fit) / sizeof(fit[0]); i++) {
        if (grams_fit(g, fit[i], strlen(fit[i])) != FIT_WHOLE) {
            fail_msg("does not fit: %s", fit[i]);
        }
    }
    for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
        if (grams_fit(g, unfit[i], strlen(unfit[i])) == FIT_WHOLE) {
            fail_msg("fits: %s", unfit[i]);
        }
    }
    gram_destroy(g);
    g = compile(tools, "ping", false);
    assert_int_equal(grams_fit(g, PING, strlen(PING)), FIT_WHOLE);
    assert_int_equal(grams_fit(g, PING PING, 2 * strlen(PING)), FIT_NOT);
    assert_int_equal(grams_fit(g, CALL(""), strlen(CALL(""))), FIT_NOT);
    gram_destroy(g);
    g = compile(tools, NULL, true);
    assert_int_equal(grams_fit(g, "I think\n</think>\n" PING,
                               strlen("I think\n</think>\n" PING)),
                     FIT_WHOLE);
    assert_int_equal(grams_fit(g, "I think" PING, strlen("I think" PING)),
                     FIT_WHOLE);
    gram_destroy(g);
}

struct seen {
    size_t content;
    int calls, dropped;
};

static int on_piece(void *ctx, const struct parse_piece *p)
{
    struct seen *s = ctx;

    s->content += p->kind == PARSE_CONTENT ? p->n : 0;
    s->calls += p->kind == PARSE_CALL;
    s->dropped += p->kind == PARSE_CALL_DROPPED;
    return 0;
}

/* A random text that fits, byte by byte. */
static size_t random_text(const struct gram *g, uint64_t *seed, char *text,
                          size_t cap)
{
    static const char likely[] = "\n</parameter>function=tool_call\"{}1x";
    struct machine m;
    uint32_t s;
    size_t n = 0;

    assert_int_equal(machine_init(&m, g), 0);
    s = machine_start(&m);
    while (n < cap && !(machine_accepts(&m, s) && text_below(seed, 3) == 0) &&
           !machine_is_over(&m, s)) {
        uint8_t b = (uint8_t)(text_below(seed, 3) > 0
                                  ? likely[text_below(seed, sizeof(likely) - 1)]
                                  : (char)text_below(seed, 256));
        uint32_t to = machine_step(&m, s, b);

        if (to != MACHINE_DEAD) {
            text[n++] = (char)b;
            s = to;
        }
    }
    machine_finish(&m);
    return n < cap ? n : 0;
}

static void test_what_fits_is_parsed_to_calls(void **state)
{
    const struct parse_args args = {.tools = tools, .n_tools = strlen(tools)};
    struct gram *g = compile(tools, NULL, false);
    uint64_t seed = 7;
    int ended = 0;

    (void)state;
    for (int i = 0; i < 300; i++) {
        static char text[4096];
        size_t n = random_text(g, &seed, text, sizeof(text));
        struct seen seen = {0};
        struct parse *p;

        if (n == 0) {
            continue;
        }
        ended++;
        assert_int_equal(parse_create(&p, &args), 0);
        assert_int_equal(parse_feed(p, text, n, on_piece, &seen), 0);
        assert_int_equal(parse_flush(p, on_piece, &seen), 0);
        if (seen.calls == 0 || seen.dropped != 0 || seen.content != 0) {
            fail_msg("%d calls, %d dropped, %zu bytes of content: %.*s",
                     seen.calls, seen.dropped, seen.content, (int)n, text);
        }
        parse_destroy(p);
    }
    assert_true(ended > 100);
    gram_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits),
        cmocka_unit_test(test_what_fits_is_parsed_to_calls),
    };

    return test_main(tests, NULL, NULL);
}
