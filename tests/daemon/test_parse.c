/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The streaming parser against the whole-text rules (model-spec 7.1 and
 * parse.h), written out here with strstr and memmove; every text is fed whole,
 * byte by byte, at every cut in two, and in random pieces.
 */
#include "daemon/text/parse.h"

#include <errno.h>

#include "daemon/text/scan.h"
#include "tests/daemon/text.h"

#define MAX_TEXT 512

/* What an answer came to. */
struct answer {
    char reasoning[MAX_TEXT], content[MAX_TEXT];
    size_t n_reasoning, n_content;
    bool stopped;
};

static void append(struct answer *a, bool reasoning, const char *text, size_t n)
{
    if (reasoning) {
        assert_true(a->n_reasoning + n <= MAX_TEXT);
        memcpy(a->reasoning + a->n_reasoning, text, n);
        a->n_reasoning += n;
    } else {
        assert_true(a->n_content + n <= MAX_TEXT);
        memcpy(a->content + a->n_content, text, n);
        a->n_content += n;
    }
}

static int collect(void *ctx, const struct parse_piece *p)
{
    assert_true(p->n > 0);
    assert_true(p->kind == PARSE_REASONING || p->kind == PARSE_CONTENT);
    append(ctx, p->kind == PARSE_REASONING, p->text, p->n);
    return 0;
}

/* ---- the rules on whole text ------------------------------------------ */

static const char *find(const char *p, const char *end, const char *what)
{
    const char *at = memmem(p, (size_t)(end - p), what, strlen(what));

    return at != NULL ? at : end;
}

static void put(struct answer *a, bool reasoning, const char *p,
                const char *end)
{
    if (p < end) {
        append(a, reasoning, p, (size_t)(end - p));
    }
}

/* Content behind </think>. */
static void put_rest(struct answer *a, const char *p, const char *end)
{
    put(a, false, p + (p < end && *p == '\n'), end);
}

static void trim_one(char *text, size_t *n)
{
    if (*n > 0 && text[*n - 1] == '\n') {
        (*n)--;
    }
}

/* Content that begins with a tool call: a late </think> outside of calls goes,
 * with one newline each side. */
static void put_calls(struct answer *a, const char *p, const char *end)
{
    for (;;) {
        const char *call_end = find(p, end, "</tool_call>");
        const char *call, *late;

        if (call_end == end) {
            put(a, false, p, end);
            return;
        }
        put(a, false, p, call_end + strlen("</tool_call>"));
        p = call_end + strlen("</tool_call>");
        call = find(p, end, "<tool_call>");
        late = find(p, end, "</think>");
        if (late < call) {
            put(a, false, p, late - (late > p && late[-1] == '\n'));
            put_rest(a, late + strlen("</think>"), end);
            return;
        }
        put(a, false, p, call);
        if (call == end) {
            return;
        }
        p = call;
    }
}

/* Text that begins inside reasoning. */
static void put_reasoning(struct answer *a, const char *p, const char *end,
                          bool drop_start)
{
    const char *start = find(p, end, "<think>");
    const char *stop = find(p, end, "</think>");
    const char *call = find(p, end, "<tool_call>");

    if (drop_start && start < stop && start < call) {
        put(a, true, p, start);
        put_reasoning(a, start + strlen("<think>"), end, false);
        return;
    }
    put(a, true, p, stop < call ? stop : call);
    trim_one(a->reasoning, &a->n_reasoning);
    if (stop < call) {
        put_rest(a, stop + strlen("</think>"), end);
    } else if (call < end) {
        put_calls(a, call, end);
    }
}

/* first: content that came before any reasoning. */
static void cut_at_stop(struct answer *a, const struct parse_args *args,
                        size_t first)
{
    for (size_t i = 1; i <= a->n_content; i++) {
        size_t longest = 0;

        for (int k = 0; k < args->n_stops; k++) {
            size_t n = args->stop_len[k];

            if (n <= i && n > longest &&
                memcmp(a->content + i - n, args->stop[k], n) == 0) {
                longest = n;
            }
        }
        if (longest > 0) {
            a->n_content = i - longest;
            a->stopped = true;
            if (i <= first) {
                a->n_reasoning = 0;
            }
            return;
        }
    }
}

static void apply_rules(struct answer *a, const struct parse_args *args,
                        const char *p, size_t n)
{
    const char *end = p + n;
    const char *start = find(p, end, "<think>");
    size_t first = 0;

    memset(a, 0, sizeof(*a));
    if (args->raw) {
        put(a, false, p, end);
    } else if (args->reasoning) {
        put_reasoning(a, p, end, true);
    } else if (start < find(p, end, "<tool_call>")) {
        put(a, false, p, start);
        first = a->n_content;
        put_reasoning(a, start + strlen("<think>"), end, false);
    } else {
        put(a, false, p, end);
    }
    cut_at_stop(a, args, first);
}

/* ---- feeding ---------------------------------------------------------- */

static void assert_same(const struct answer *a, const struct answer *b,
                        const char *text, size_t n)
{
    if (a->n_reasoning != b->n_reasoning || a->n_content != b->n_content ||
        memcmp(a->reasoning, b->reasoning, a->n_reasoning) != 0 ||
        memcmp(a->content, b->content, a->n_content) != 0 ||
        a->stopped != b->stopped) {
        fail_msg("\"%.*s\": \"%.*s\" / \"%.*s\" / %d, expected \"%.*s\" / "
                 "\"%.*s\" / %d",
                 (int)n, text, (int)a->n_reasoning, a->reasoning,
                 (int)a->n_content, a->content, a->stopped, (int)b->n_reasoning,
                 b->reasoning, (int)b->n_content, b->content, b->stopped);
    }
}

/* Feeds pieces of at most `longest` bytes (random; 0: two, cut at `cut`). */
static void feed_in_pieces(const struct parse_args *args, const char *text,
                           size_t n, size_t cut, unsigned longest,
                           uint64_t *rng, struct answer *a)
{
    struct parse *p = NULL;
    size_t i = 0;
    int r;

    memset(a, 0, sizeof(*a));
    assert_int_equal(parse_create(&p, args), 0);
    while (i < n) {
        size_t m = longest == 0 ? (i == 0 && cut != 0 ? cut : n - i)
                                : 1 + text_below(rng, longest);

        m = m < n - i ? m : n - i;
        r = parse_feed(p, text + i, m, collect, a);
        assert_in_range(r, 0, 1);
        assert_false(a->stopped && r == 0);
        a->stopped = r == 1;
        i += m;
    }
    r = parse_flush(p, collect, a);
    assert_in_range(r, 0, 1);
    assert_false(a->stopped && r == 0);
    a->stopped = r == 1;
    parse_destroy(p);
}

static void all_cuts(const struct parse_args *args, const char *text, size_t n,
                     const struct answer *expected)
{
    uint64_t rng = 31;
    struct answer a;

    for (size_t cut = 0; cut <= n; cut++) {
        feed_in_pieces(args, text, n, cut, 0, &rng, &a);
        assert_same(&a, expected, text, n);
    }
    for (unsigned longest = 1; longest < 9; longest++) {
        feed_in_pieces(args, text, n, 0, longest, &rng, &a);
        assert_same(&a, expected, text, n);
    }
}

static void check(const struct parse_args *args, const char *text,
                  const char *reasoning, const char *content)
{
    struct answer expected, stated = {.n_reasoning = strlen(reasoning),
                                      .n_content = strlen(content)};

    memcpy(stated.reasoning, reasoning, stated.n_reasoning);
    memcpy(stated.content, content, stated.n_content);
    apply_rules(&expected, args, text, strlen(text));
    stated.stopped = expected.stopped;
    assert_same(&expected, &stated, text, strlen(text));
    all_cuts(args, text, strlen(text), &stated);
}

static const struct parse_args THINKING = {.reasoning = true};
static const struct parse_args DIRECT = {.reasoning = false};

/* ---- reasoning -------------------------------------------------------- */

static void test_reasoning_examples_of_the_specification(void **state)
{
    (void)state;
    check(&THINKING, "r\n</think>\nAns", "r", "Ans");
    check(&THINKING, "<think>r</think>\n\nAns", "r", "\nAns");
    check(&THINKING, "r</think>", "r", "");
    check(&THINKING, "r\n", "r", "");
    check(&DIRECT, "\nIntro<think>reasoning</think>\nAnswer", "reasoning",
          "\nIntroAnswer");
    check(&THINKING, "\nThink\nmore\n</think>\nAns", "\nThink\nmore", "Ans");
    check(&THINKING, "a\n\n</think>\n\nx", "a\n", "\nx");
    check(&THINKING, "x</think>", "x", "");
}

static void test_reasoning_at_the_edges(void **state)
{
    (void)state;
    check(&THINKING, "", "", "");
    check(&THINKING, "\n", "", "");
    check(&THINKING, "\n\n", "\n", "");
    check(&THINKING, "</think>", "", "");
    check(&THINKING, "\n</think>\n", "", "");
    check(&THINKING, "\n</thin", "\n</thin", "");
    check(&THINKING, "a<", "a<", "");
    check(&THINKING, "a\n<", "a\n<", "");
    check(&THINKING, "a</think></think>b", "a", "</think>b");
    check(&THINKING, "a</think>b<think>c</think>", "a", "b<think>c</think>");
    check(&THINKING, "<think>a<think>b</think>c", "a<think>b", "c");
    check(&THINKING, "a\n<think></think>b", "a", "b");
    check(&THINKING, "a\n<think>\n</think>b", "a\n", "b");
    check(&THINKING, "<<</think>", "<<", "");
    check(&THINKING, "</think</think>x", "</think", "x");
}

static void test_answers_that_start_in_content(void **state)
{
    (void)state;
    check(&DIRECT, "plain", "", "plain");
    check(&DIRECT, "\nplain\n", "", "\nplain\n");
    check(&DIRECT, "a</think>b", "", "a</think>b");
    check(&DIRECT, "<think>\nr\n</think>\nx", "\nr", "x");
    check(&DIRECT, "<tool_call>\n<think>\n</tool_call>", "",
          "<tool_call>\n<think>\n</tool_call>");
    check(&DIRECT, "a <thin", "", "a <thin");
}

static void test_raw_text_has_no_tags(void **state)
{
    const struct parse_args raw = {.raw = true, .reasoning = true};

    (void)state;
    check(&raw, "a\n</think>\n<tool_call>b\n", "",
          "a\n</think>\n<tool_call>b\n");
}

/* ---- field reports ---------------------------------------------------- */

static void fr_1_history_does_not_end_reasoning(void **state)
{
    /* The prompt held "<think>x</think>hi"; the parser never sees a prompt. */
    (void)state;
    check(&THINKING, "plan\xe2\x80\xa6</think>ok", "plan\xe2\x80\xa6", "ok");
}

#define CALL                                                             \
    "<tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>" \
    "\n</tool_call>"

static void fr_2_tool_call_ends_reasoning(void **state)
{
    (void)state;
    check(&THINKING, "reason" CALL "</think>late", "reason", CALL "late");
    check(&THINKING, "reason\n" CALL "\n</think>\n\nlate", "reason",
          CALL "\nlate");
    check(&THINKING, "r" CALL CALL "</think>x</think>", "r",
          CALL CALL "x</think>");
    /* Text of an argument is an argument. */
    check(&THINKING, "r<tool_call></think></tool_call>x", "r",
          "<tool_call></think></tool_call>x");
    check(&THINKING, "r\n<tool_call>\n</think>\n", "r",
          "<tool_call>\n</think>\n");
    /* After a proper end nothing is implicit. */
    check(&THINKING, "r\n</think>\n" CALL "\n</think>x", "r",
          CALL "\n</think>x");
}

static void fr_6_no_start_tag(void **state)
{
    (void)state;
    check(&THINKING, "abc</think>def", "abc", "def");
}

static void fr_12_no_thinking_at_all(void **state)
{
    (void)state;
    check(&THINKING, CALL, "", CALL);
    check(&THINKING, "\n" CALL "\n", "", CALL "\n");
    check(&DIRECT, CALL, "", CALL);
}

/* ---- stop strings ----------------------------------------------------- */

static void check_stops(bool raw, const char *text, const char *content,
                        bool stopped, int n, const char *const *stop)
{
    size_t len[PARSE_MAX_STOPS];
    const struct parse_args args = {
        .raw = raw, .n_stops = n, .stop = stop, .stop_len = len};
    struct answer expected = {.n_content = strlen(content), .stopped = stopped};

    for (int i = 0; i < n; i++) {
        len[i] = strlen(stop[i]);
    }
    memcpy(expected.content, content, expected.n_content);
    all_cuts(&args, text, strlen(text), &expected);
}

#define CHECK_STOPS(raw, text, content, stopped, ...)                   \
    check_stops(raw, text, content, stopped,                            \
                sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), \
                (const char *const[]){__VA_ARGS__})

static void fr_70_nothing_of_a_stop_leaves(void **state)
{
    (void)state;
    CHECK_STOPS(true, "ABCDEFGHIJKL", "ABC", true, "DEFGHIJ");
    CHECK_STOPS(false, "ABCDEFGHIJKL", "ABC", true, "DEFGHIJ");
    CHECK_STOPS(true, "ABCDEFGHI", "ABCDEFGHI", false, "DEFGHIJ");
    CHECK_STOPS(true, "DEFDEFGHIJ", "DEF", true, "DEFGHIJ");
    CHECK_STOPS(true, "aabaabaaa", "aabaa", true, "baaa");
    CHECK_STOPS(true, "x\n\ny", "x", true, "\n\n");
    CHECK_STOPS(true, "x", "", true, "x");
    CHECK_STOPS(true, "\xf0\x9f\x98\x80\xf0\x9f\x98\x81", "\xf0\x9f\x98\x80",
                true, "\xf0\x9f\x98\x81");
}

static void test_first_end_wins_then_the_longest(void **state)
{
    (void)state;
    CHECK_STOPS(true, "xabcd", "x", true, "abcd", "abc");
    CHECK_STOPS(true, "xabcd", "x", true, "bc", "abc", "c");
    CHECK_STOPS(true, "xabcd", "xa", true, "abcd", "b");
    CHECK_STOPS(true, "xabd", "xabd", false, "abcd", "abc");
}

static void test_stops_are_not_for_reasoning(void **state)
{
    static const char *const stop[] = {"END", "\n\n"};
    static const size_t len[] = {3, 2};
    const struct parse_args args = {
        .reasoning = true, .n_stops = 2, .stop = stop, .stop_len = len};

    (void)state;
    check(&args, "a END\n\nb\n</think>\nx END y", "a END\n\nb", "x ");
    check(&args, "a EN</think>D", "a EN", "D");
    check(&args, "a<tool_call>x END</tool_call>", "a", "<tool_call>x ");
    /* The newline that goes with </think> is not content. */
    check(&args, "a</think>\n\nb\n\nc", "a", "\nb");
}

/* A stop that only the end completes: "<" waits for a tag until then. */
static void test_a_stop_completed_by_the_end(void **state)
{
    (void)state;
    CHECK_STOPS(false, "a<", "a", true, "<");
    CHECK_STOPS(false, "a<thin", "a", true, "<");
}

static void test_nothing_after_a_stop(void **state)
{
    static const char *const stop[] = {"!"};
    static const size_t len[] = {1};
    const struct parse_args args = {
        .n_stops = 1, .stop = stop, .stop_len = len};
    struct answer a = {0};
    struct parse *p;

    (void)state;
    assert_int_equal(parse_create(&p, &args), 0);
    assert_int_equal(parse_feed(p, "a!b", 3, collect, &a), 1);
    assert_int_equal(parse_feed(p, "c", 1, collect, &a), 1);
    assert_int_equal(parse_flush(p, collect, &a), 1);
    assert_int_equal(a.n_content, 1);
    parse_destroy(p);
}

/* ---- at once what can go ---------------------------------------------- */

static void test_only_what_may_be_a_tag_is_withheld(void **state)
{
    static const char *const stop[] = {"STOP"};
    static const size_t len[] = {4};
    const struct parse_args args = {
        .reasoning = true, .n_stops = 1, .stop = stop, .stop_len = len};
    static const struct {
        const char *feed;
        size_t n_reasoning, n_content; /* out after this feed */
        bool reasoning;
    } c[] = {
        {"think", 5, 0, true},       {"\n", 5, 0, true},
        {"on\n", 8, 0, true},        {"</", 8, 0, true},
        {"b>", 13, 0, true},         {"<thin", 13, 0, true},
        {"k>", 13, 0, true},         {"<think", 19, 0, true},
        {"\n", 19, 0, true},         {"</think>", 19, 0, false},
        {"\n", 19, 0, false},        {"ans", 19, 3, false},
        {"ST", 19, 3, false},        {"ORM", 19, 8, false},
        {"</think>", 19, 16, false},
    };
    struct answer a = {0};
    struct parse *p;

    (void)state;
    assert_int_equal(parse_create(&p, &args), 0);
    assert_true(parse_in_reasoning(p));
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        assert_int_equal(
            parse_feed(p, c[i].feed, strlen(c[i].feed), collect, &a), 0);
        if (a.n_reasoning != c[i].n_reasoning ||
            a.n_content != c[i].n_content ||
            parse_in_reasoning(p) != c[i].reasoning) {
            fail_msg("feed %zu (%s): %zu, %zu, %d", i, c[i].feed, a.n_reasoning,
                     a.n_content, parse_in_reasoning(p));
        }
    }
    parse_destroy(p);
}

/* ---- random texts ----------------------------------------------------- */

static void test_random_texts_follow_the_rules(void **state)
{
    static const char *const part[] = {
        "<think>",  "</think>", "<tool_call>", "</tool_call>",
        "\n",       "\n",       "a",           "b",
        "<",        "</",       "think>",      "</thi",
        "\xc3\xa9", "<tool_",   "ab",          "\n\n"};
    static const char *const some[] = {"ab",   "b\n", "aab",     "<tool_call>",
                                       "\n\n", "bbb", "\xc3\xa9"};
    uint64_t rng = 33;

    (void)state;
    for (int k = 0; k < 4000; k++) {
        const char *stop[3];
        size_t len[3];
        struct parse_args args = {.reasoning = k % 3 != 0,
                                  .raw = k % 16 == 0,
                                  .n_stops = (int)text_below(&rng, 4),
                                  .stop = stop,
                                  .stop_len = len};
        char text[MAX_TEXT];
        size_t n = 0;
        struct answer expected;

        for (int i = 0; i < args.n_stops; i++) {
            stop[i] = some[text_below(&rng, sizeof(some) / sizeof(some[0]))];
            len[i] = strlen(stop[i]);
        }
        for (unsigned i = text_below(&rng, 12); i > 0; i--) {
            const char *s =
                part[text_below(&rng, sizeof(part) / sizeof(part[0]))];

            memcpy(text + n, s, strlen(s));
            n += strlen(s);
        }
        apply_rules(&expected, &args, text, n);
        all_cuts(&args, text, n, &expected);
    }
}

/* ---- calls and cost --------------------------------------------------- */

static int refuse(void *ctx, const struct parse_piece *p)
{
    int *count = ctx;

    (void)p;
    ++*count;
    return -EPIPE;
}

static void test_emit_ends_the_feed(void **state)
{
    struct parse *p;
    int count = 0;

    (void)state;
    assert_int_equal(parse_create(&p, &THINKING), 0);
    assert_int_equal(parse_feed(p, "a</think>b", 10, refuse, &count), -EPIPE);
    assert_int_equal(count, 1);
    parse_destroy(p);
}

static void test_bad_stops_are_refused(void **state)
{
    const char *stop[PARSE_MAX_STOPS + 1];
    size_t len[PARSE_MAX_STOPS + 1];
    struct parse_args args = {
        .n_stops = PARSE_MAX_STOPS + 1, .stop = stop, .stop_len = len};
    struct parse *p = NULL;

    (void)state;
    for (int i = 0; i <= PARSE_MAX_STOPS; i++) {
        stop[i] = "x";
        len[i] = 1;
    }
    assert_int_equal(parse_create(&p, &args), -EINVAL);
    args.n_stops = -1;
    assert_int_equal(parse_create(&p, &args), -EINVAL);
    args.n_stops = 2;
    len[1] = 0;
    assert_int_equal(parse_create(&p, &args), -EINVAL);
    assert_null(p);
    args.n_stops = PARSE_MAX_STOPS;
    len[1] = 1;
    assert_int_equal(parse_create(&p, &args), 0);
    parse_destroy(p);
    parse_destroy(NULL);
}

static int count_bytes(void *ctx, const char *text, size_t n)
{
    (void)text;
    *(size_t *)ctx += n;
    return 0;
}

/* 30,000 tokens against 16 stops that keep almost matching: the comparisons of
 * each tenth of the stream are bounded alike, by bytes and stops. */
static void fr_72_cost_per_token_is_flat(void **state)
{
    enum { N_TOKENS = 30000, N_BYTES = 4 };
    char text[SCAN_MAX_NEEDLES][64];
    const char *stop[SCAN_MAX_NEEDLES];
    size_t len[SCAN_MAX_NEEDLES];
    struct scan s;
    size_t n_out = 0, used;
    uint64_t before = 0;
    int found;

    (void)state;
    for (int i = 0; i < SCAN_MAX_NEEDLES; i++) {
        memset(text[i], 'a', sizeof(text[i]));
        text[i][40 + i] = (char)('A' + i);
        stop[i] = text[i];
        len[i] = sizeof(text[i]);
    }
    assert_int_equal(scan_init(&s, SCAN_MAX_NEEDLES, stop, len), 0);
    for (int i = 0; i < N_TOKENS; i++) {
        assert_int_equal(
            scan_feed(&s, "aaaa", N_BYTES, count_bytes, &n_out, &used, &found),
            0);
        assert_int_equal(found, -1);
        assert_int_equal(used, N_BYTES);
        if ((i + 1) % (N_TOKENS / 10) == 0) {
            assert_true(s.steps - before <=
                        2ull * N_BYTES * SCAN_MAX_NEEDLES * (N_TOKENS / 10));
            before = s.steps;
        }
    }
    /* At most the longest beginning of a stop is held. */
    assert_int_equal(n_out, N_TOKENS * N_BYTES - 55);
    scan_finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasoning_examples_of_the_specification),
        cmocka_unit_test(test_reasoning_at_the_edges),
        cmocka_unit_test(test_answers_that_start_in_content),
        cmocka_unit_test(test_raw_text_has_no_tags),
        cmocka_unit_test(fr_1_history_does_not_end_reasoning),
        cmocka_unit_test(fr_2_tool_call_ends_reasoning),
        cmocka_unit_test(fr_6_no_start_tag),
        cmocka_unit_test(fr_12_no_thinking_at_all),
        cmocka_unit_test(fr_70_nothing_of_a_stop_leaves),
        cmocka_unit_test(test_first_end_wins_then_the_longest),
        cmocka_unit_test(test_stops_are_not_for_reasoning),
        cmocka_unit_test(test_a_stop_completed_by_the_end),
        cmocka_unit_test(test_nothing_after_a_stop),
        cmocka_unit_test(test_only_what_may_be_a_tag_is_withheld),
        cmocka_unit_test(test_random_texts_follow_the_rules),
        cmocka_unit_test(test_emit_ends_the_feed),
        cmocka_unit_test(test_bad_stops_are_refused),
        cmocka_unit_test(fr_72_cost_per_token_is_flat),
    };

    return test_main(tests, NULL, NULL);
}
