/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Pre-tokenisation: the pieces of known texts, what of a pattern is refused,
 * and the work the published patterns take on the texts that are worst for
 * them. Work is counted, not timed: the same patterns are compiled with a
 * callout before every item, and each callout adds one and the distance that
 * the matcher travelled since the last one, greedy loops included.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "daemon/text/split.h"

#include <jansson.h>
#include <pcre2.h>

#include "tests/daemon/text.h"

static const struct why nobody = {0};

/* The published passes, from the published file. */
static void add_real(struct split *s, uint32_t options)
{
    json_error_t error;
    json_t *root = json_load_file(
        test_data_built("real-tokenizer/tokenizer.json"), 0, &error);
    json_t *list = json_object_get(json_object_get(root, "pre_tokenizer"),
                                   "pretokenizers");

    assert_int_equal(json_array_size(list), 4);
    for (size_t i = 0; i < 3; i++) {
        const json_t *pattern = json_object_get(
            json_object_get(json_array_get(list, i), "pattern"), "Regex");

        assert_int_equal(split_add(s, json_string_value(pattern),
                                   json_string_length(pattern), false, options,
                                   &nobody),
                         0);
    }
    json_decref(root);
}

/* Pieces joined by '|'. */
struct joined {
    char text[512];
    size_t n;
};

static int join(void *ctx, const uint8_t *piece, size_t n)
{
    struct joined *j = ctx;

    assert_true(n > 0);
    assert_true(j->n + n + 1 < sizeof(j->text));
    memcpy(j->text + j->n, piece, n);
    j->n += n;
    j->text[j->n++] = '|';
    j->text[j->n] = '\0';
    return 0;
}

static void assert_pieces(const struct split *s, const char *text,
                          const char *expected)
{
    struct split_scratch x;
    struct joined j = {.n = 0};

    assert_int_equal(split_scratch_init(&x, s), 0);
    assert_int_equal(
        split_run(s, &x, (const uint8_t *)text, strlen(text), join, &j), 0);
    assert_string_equal(j.text, expected);
    split_scratch_finish(&x);
}

static void test_published_passes(void **state)
{
    static const char *const c[][2] = {
        {"", ""},
        {"12345678901234", "123|456|789|012|34|"},
        {" 中文", " |中文|"},
        {"a-abc -abc", "a|-abc| -|abc|"},
        {"x  y", "x| | y|"},
        {"x  12", "x|  |12|"},
        {"end.\r\n\n  \n x", "end|.\r\n\n|  \n| x|"},
        {" ~ a", " ~| a|"},
        {"e\xcc\x81t\xc3\xa9", "e\xcc\x81t\xc3\xa9|"},
    };
    struct split s = {0};

    (void)state;
    add_real(&s, 0);
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        assert_pieces(&s, c[i][0], c[i][1]);
    }
    split_finish(&s);
}

static void test_no_pass_is_one_piece(void **state)
{
    const struct split s = {0};

    (void)state;
    assert_pieces(&s, "a b", "a b|");
    assert_pieces(&s, "", "");
}

static void test_empty_matches_cut_and_go_on(void **state)
{
    struct split s = {0};

    (void)state;
    assert_int_equal(split_add(&s, "x*", 2, false, 0, &nobody), 0);
    assert_pieces(&s, "axx\xc3\xa9zx", "a|xx|\xc3\xa9|z|x|");
    split_finish(&s);
}

static void test_literal_pattern(void **state)
{
    struct split s = {0};

    (void)state;
    assert_int_equal(split_add(&s, ".*", 2, true, 0, &nobody), 0);
    assert_pieces(&s, "ab.*c", "ab|.*|c|");
    split_finish(&s);
}

static int refuse_third(void *ctx, const uint8_t *piece, size_t n)
{
    int *count = ctx;

    (void)piece;
    (void)n;
    return ++*count == 3 ? -7 : 0;
}

static void test_emit_ends_the_split(void **state)
{
    struct split s = {0};
    struct split_scratch x;
    int count = 0;

    (void)state;
    add_real(&s, 0);
    assert_int_equal(split_scratch_init(&x, &s), 0);
    assert_int_equal(split_run(&s, &x, (const uint8_t *)"a b c d e", 9,
                               refuse_third, &count),
                     -7);
    assert_int_equal(count, 3);
    split_scratch_finish(&x);
    split_finish(&s);
}

/* ---- what a pattern may say ------------------------------------------- */

/* \s is White_Space and nothing else, in and out of a class. */
static void test_white_space_is_unicodes(void **state)
{
    static const uint32_t white[] = {
        0x9,    0xa,    0xb,    0xc,    0xd,    0x20,   0x85,   0xa0,   0x1680,
        0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
        0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
    static const char *const pattern[] = {"\\s", "[\\s]", "(?!\\S)(?:.|\n)"};
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct split s = {0};
        unsigned n_white = 0;

        assert_int_equal(
            split_add(&s, pattern[k], strlen(pattern[k]), false, 0, &nobody),
            0);
        for (uint32_t c = 0; c < 0x110000; c++) {
            uint8_t text[4];
            size_t n;

            if (c >= 0xd800 && c < 0xe000) {
                continue;
            }
            n = text_put((char *)text, c);
            if (pcre2_match(s.pass[0], text, n, 0, 0, data, NULL) >= 0) {
                assert_true(n_white < sizeof(white) / sizeof(white[0]));
                assert_int_equal(c, white[n_white]);
                n_white++;
            }
        }
        assert_int_equal(n_white, sizeof(white) / sizeof(white[0]));
        split_finish(&s);
    }
    pcre2_match_data_free(data);
}

static void test_what_engines_read_differently_is_refused(void **state)
{
    static const char *const bad[] = {
        "\\w",   "\\W",    "\\b",   "\\h",       "\\R",    "\\K",
        "\\1",   "^a",     "a$",    "[a[b]]",    "[a&&b]", "a{,3}",
        "a{2}+", "(?i:a)", "(?i)a", "(?<n>a)",   "(*UTF)", "[\\S]",
        "[]a]",  "\\",     "a{x}",  "a{2",       "\\p",    "\\p{L",
        "\\x41", "[a",     "(a",    "\\p{Nope}", "a{3,2}"};
    char text[128];
    const struct why why = {.p = text, .n = sizeof(text)};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct split s = {0};

        text[0] = '\0';
        if (split_add(&s, bad[i], strlen(bad[i]), false, 0, &why) != -EBADMSG) {
            fail_msg("%s was taken", bad[i]);
        }
        if (strncmp(text, "pattern: ", 9) != 0) {
            fail_msg("%s: \"%s\" does not say why", bad[i], text);
        }
        assert_int_equal(s.n_passes, 0);
    }
}

static void test_passes_have_a_limit(void **state)
{
    struct split s = {0};

    (void)state;
    for (int i = 0; i < SPLIT_MAX_PASSES; i++) {
        assert_int_equal(split_add(&s, "a", 1, false, 0, &nobody), 0);
    }
    assert_int_equal(split_add(&s, "a", 1, false, 0, &nobody), -EBADMSG);
    split_finish(&s);
}

/* A pattern that would take exponential time fails the split, by steps; it is
 * not taken for "no match", which would be another cut. */
static void test_too_many_steps_are_an_error(void **state)
{
    static const char slow[] = "(?:a+)+[bc]";
    struct split s = {0};
    struct split_scratch x;
    struct joined j = {.n = 0};
    uint8_t text[200];

    (void)state;
    memset(text, 'a', sizeof(text));
    assert_int_equal(split_add(&s, slow, sizeof(slow) - 1, false, 0, &nobody),
                     0);
    assert_int_equal(split_scratch_init(&x, &s), 0);
    assert_int_equal(split_run(&s, &x, text, sizeof(text), join, &j), -ELOOP);
    assert_int_equal(j.n, 0);
    split_scratch_finish(&x);
    split_finish(&s);
}

/* A pattern that needs memory in proportion to the text gets it from the heap,
 * up to the limit, and never from the stack. */
static void test_backtracking_memory_is_limited(void **state)
{
    static const char deep[] = "(?:a|ab)+c";
    const size_t n = 4u << 20;
    struct split s = {0};
    struct split_scratch x;
    uint8_t *text = malloc(n + 1);
    int n_pieces = 0;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', n);
    text[n] = 'c';
    assert_int_equal(split_add(&s, deep, sizeof(deep) - 1, false, 0, &nobody),
                     0);
    assert_int_equal(split_scratch_init(&x, &s), 0);
    assert_int_equal(split_run(&s, &x, text, n + 1, refuse_third, &n_pieces),
                     -ELOOP);
    assert_int_equal(n_pieces, 0);
    split_scratch_finish(&x);
    split_finish(&s);
    free(text);
}

/* ---- work ------------------------------------------------------------- */

struct work {
    uint64_t steps;
    const uint8_t *last; /* where the matcher was, in the whole text */
};

static int count_step(pcre2_callout_block *block, void *ctx)
{
    struct work *w = ctx;
    const uint8_t *at = block->subject + block->current_position;

    w->steps += 1 + (uint64_t)(at > w->last ? at - w->last : w->last - at);
    w->last = at;
    return 0;
}

static int ignore(void *ctx, const uint8_t *piece, size_t n)
{
    (void)ctx;
    (void)piece;
    (void)n;
    return 0;
}

/* Steps for n bytes of the unit, repeated; *ret_calls: calls of the matcher. */
static uint64_t work_of(const struct split *s, const char *unit, size_t n_unit,
                        size_t n, uint64_t *ret_calls)
{
    struct split_scratch x;
    uint8_t *text = malloc(n + n_unit);
    struct work w = {.last = text};

    assert_non_null(text);
    for (size_t i = 0; i < n; i += n_unit) {
        memcpy(text + i, unit, n_unit);
    }
    n -= n % n_unit;
    assert_int_equal(split_scratch_init(&x, s), 0);
    pcre2_set_callout(x.context, count_step, &w);
    assert_int_equal(split_run(s, &x, text, n, ignore, NULL), 0);
    *ret_calls = x.n_calls;
    split_scratch_finish(&x);
    free(text);
    return w.steps;
}

static void test_work_is_linear_on_the_worst_texts(void **state)
{
    static const struct {
        const char *p;
        size_t n;
    } unit[] = {
        {"a", 1},
        {" ", 1},
        {"\n", 1},
        {" \n", 2},
        {"\n ", 2},
        {"\t ", 2},
        {"1", 1},
        {"!", 1},
        {"a ", 2},
        {" a", 2},
        {"a\n", 2},
        {"\0", 1},
        {"\0 ", 2},
        {"\0a", 2},
        {"<", 1},
        {" !", 2},
        {"!\n ", 3},
        {"\xe4\xb8\xad", 3},
        {"\xcc\x81", 2},
        {"  1", 3},
        {"\xe2\x80\x8b", 3},
        {" \xe2\x80\x8b", 4},
        {"-a", 2},
        {"a1\xe4\xb8\xad", 5},
    };
    const size_t n = 60000;
    struct split s = {0};

    (void)state;
    add_real(&s, PCRE2_AUTO_CALLOUT);
    for (size_t i = 0; i < sizeof(unit) / sizeof(unit[0]); i++) {
        uint64_t calls, calls_twice;
        uint64_t steps = work_of(&s, unit[i].p, unit[i].n, n, &calls);
        uint64_t twice = work_of(&s, unit[i].p, unit[i].n, 2 * n, &calls_twice);

        if (steps > 100 * n || twice > 2 * steps + 1000 || calls > 2 * n + 10 ||
            calls_twice > 2 * calls + 10) {
            fail_msg("unit %zu: %lu steps and %lu calls for %zu bytes, %lu and "
                     "%lu for twice as many",
                     i, (unsigned long)steps, (unsigned long)calls, n,
                     (unsigned long)twice, (unsigned long)calls_twice);
        }
    }
    split_finish(&s);
}

/* The count itself: a pattern that rescans is seen to be quadratic. */
static void test_the_count_sees_rescans(void **state)
{
    static const char rescans[] = "\\s++x|\\s";
    struct split s = {0};
    uint64_t calls;
    uint64_t steps, twice;

    (void)state;
    assert_int_equal(split_add(&s, rescans, sizeof(rescans) - 1, false,
                               PCRE2_AUTO_CALLOUT, &nobody),
                     0);
    steps = work_of(&s, " ", 1, 2000, &calls);
    twice = work_of(&s, " ", 1, 4000, &calls);
    assert_true(twice > 3 * steps);
    split_finish(&s);
}

/* A million spaces are one piece: three passes look at them, once each. */
static void test_a_million_spaces_take_few_calls(void **state)
{
    struct split s = {0};
    uint64_t calls;

    (void)state;
    add_real(&s, PCRE2_AUTO_CALLOUT);
    assert_true(work_of(&s, " ", 1, 1000000, &calls) < 20000000);
    assert_int_equal(calls, 3);
    assert_true(work_of(&s, "a", 1, 1000000, &calls) < 20000000);
    assert_int_equal(calls, 3);
    split_finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_passes),
        cmocka_unit_test(test_no_pass_is_one_piece),
        cmocka_unit_test(test_empty_matches_cut_and_go_on),
        cmocka_unit_test(test_literal_pattern),
        cmocka_unit_test(test_emit_ends_the_split),
        cmocka_unit_test(test_white_space_is_unicodes),
        cmocka_unit_test(test_what_engines_read_differently_is_refused),
        cmocka_unit_test(test_passes_have_a_limit),
        cmocka_unit_test(test_too_many_steps_are_an_error),
        cmocka_unit_test(test_backtracking_memory_is_limited),
        cmocka_unit_test(test_work_is_linear_on_the_worst_texts),
        cmocka_unit_test(test_the_count_sees_rescans),
        cmocka_unit_test(test_a_million_spaces_take_few_calls),
    };

    return test_main(tests, NULL, NULL);
}
