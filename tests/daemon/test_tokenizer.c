/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Text to ids and back with the published vocabulary and step-tiny's. The
 * expected ids come from elsewhere: cases.tsv from the published tokenizer's
 * public test corpus, random.tsv from the Hugging Face library run on random
 * text. How the files are read is test_tokfile.c's.
 */
#include <errno.h>
#include <pthread.h>

#include "tests/daemon/text.h"

#define IM_START 128006
#define IM_END 128007
#define THINK 128798

static struct tokenizer *real;
static struct tokenizer *tiny;

static int setup(void **state)
{
    (void)state;
    real = text_real();
    tiny = text_tiny();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_destroy(real);
    tokenizer_destroy(tiny);
    return 0;
}

/* "1,22,333" against ids. */
static void assert_ids(const char *name, const char *expected,
                       const struct text_ids *ids)
{
    const char *p = expected;
    char *end;
    int i = 0;

    for (; *p != '\0'; i++) {
        long id = strtol(p, &end, 10);

        assert_ptr_not_equal(p, end);
        if (i >= ids->n || ids->v[i] != id) {
            fail_msg("%s: id %d is %d, expected %ld", name, i,
                     i < ids->n ? ids->v[i] : -1, id);
        }
        p = *end == ',' ? end + 1 : end;
    }
    if (i != ids->n) {
        fail_msg("%s: %d ids, expected %d", name, ids->n, i);
    }
}

/* Lines of name TAB hex TAB ids, both ways; how many there were. */
static int run_cases(const char *path)
{
    size_t n_file;
    char *file = text_file(path, &n_file);
    char *rest = file;
    char *line;
    int n_cases = 0;

    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        char *name = strsep(&line, "\t");
        char *text = strsep(&line, "\t");
        char *expected = line;
        struct text_ids ids;
        size_t n;

        assert_non_null(expected);
        n = text_unhex(text);
        ids = text_encode(real, text, n, true);
        assert_ids(name, expected, &ids);
        text_assert_bytes(real, &ids, text, n);
        free(ids.v);
        n_cases++;
    }
    free(file);
    return n_cases;
}

static void test_public_cases_both_ways(void **state)
{
    (void)state;
    assert_int_equal(run_cases(test_data("real-tokenizer/cases.tsv")), 85);
}

static void test_random_text_as_the_published_library(void **state)
{
    (void)state;
    assert_int_equal(run_cases(test_data("real-tokenizer/random.tsv")), 400);
}

/* ---- added tokens ----------------------------------------------------- */

static const char ADDED_TEXT[] =
    "<|im_start|>user\n<think>x</think><tool_call></tool_call><|im_end|>";

static void test_added_tokens_count_only_when_asked(void **state)
{
    const size_t n = sizeof(ADDED_TEXT) - 1;
    struct text_ids ids = text_encode(real, ADDED_TEXT, n, true);

    (void)state;
    assert_int_equal(ids.n, 9);
    assert_int_equal(ids.v[0], IM_START);
    assert_int_equal(ids.v[3], THINK);
    assert_int_equal(ids.v[8], IM_END);
    free(ids.v);
    ids = text_encode(real, ADDED_TEXT, n, false);
    for (int i = 0; i < ids.n; i++) {
        /* Ids 3 to 127999 are the vocabulary proper. */
        assert_in_range(ids.v[i], 3, 127999);
    }
    text_assert_bytes(real, &ids, ADDED_TEXT, n);
    free(ids.v);
}

static void test_added_tokens_count_inside_spans_only(void **state)
{
    static const char text[] = "<think><think><think>\n\nx";
    const struct tokenizer_span middle = {.off = 7, .n = 7};
    const struct tokenizer_span torn[] = {
        {.off = 0, .n = 3}, {.off = 3, .n = 4}, {.off = 15, .n = 9}};
    struct text_ids ids = {0};
    int n_think = 0;

    (void)state;
    assert_int_equal(tokenizer_encode_spans(real, text, sizeof(text) - 1,
                                            &middle, 1, 100, &ids.v, &ids.n,
                                            &ids.cap),
                     0);
    for (int i = 0; i < ids.n; i++) {
        n_think += ids.v[i] == THINK;
    }
    assert_int_equal(n_think, 1);
    text_assert_bytes(real, &ids, text, sizeof(text) - 1);
    /* Two neighbouring spans are not one: nothing lies wholly inside. */
    ids.n = 0;
    assert_int_equal(tokenizer_encode_spans(real, text, sizeof(text) - 1, torn,
                                            3, 100, &ids.v, &ids.n, &ids.cap),
                     0);
    for (int i = 0; i < ids.n; i++) {
        assert_int_not_equal(ids.v[i], THINK);
    }
    text_assert_bytes(real, &ids, text, sizeof(text) - 1);
    free(ids.v);
}

/* A span's edge is no edge of a word: "\n" of one and "\n" of the next are one
 * token, as in the text without spans. */
static void test_words_cross_the_edges_of_spans(void **state)
{
    static const char text[] = "user\n\nHello, world";
    const struct tokenizer_span front = {.off = 0, .n = 5};
    struct text_ids whole = text_encode(real, text, sizeof(text) - 1, false);
    struct text_ids ids = {0};

    (void)state;
    assert_int_equal(tokenizer_encode_spans(real, text, sizeof(text) - 1,
                                            &front, 1, 100, &ids.v, &ids.n,
                                            &ids.cap),
                     0);
    assert_int_equal(ids.n, whole.n);
    assert_memory_equal(ids.v, whole.v, sizeof(*ids.v) * (size_t)ids.n);
    free(ids.v);
    free(whole.v);
}

static void test_longest_added_token_wins(void **state)
{
    static const char added[] =
        "{\"id\":300,\"content\":\"<a>\"},{\"id\":301,\"content\":\"<a>b\"},"
        "{\"id\":302,\"content\":\"<a>bc!\"},"
        "{\"id\":303,\"content\":\"b!\",\"normalized\":true},"
        "{\"id\":304,\"content\":\">b!<\",\"normalized\":true}";
    static const char text[] = "<a>bc?<a>bc!b!<a>b!";
    static const int32_t expected[] = {301, 'c', '?', 302, 303, 301, '!'};
    char *json = text_bytes_json(added, NULL, NULL, NULL);
    struct tokenizer *t;
    struct text_ids ids;
    char why[256];

    (void)state;
    assert_int_equal(
        tokenizer_load_json(&t, json, strlen(json), why, sizeof(why)), 0);
    ids = text_encode(t, text, sizeof(text) - 1, true);
    assert_int_equal(ids.n, 7);
    assert_memory_equal(ids.v, expected, sizeof(expected));
    free(ids.v);
    free(json);
    tokenizer_destroy(t);
}

/* ---- any bytes -------------------------------------------------------- */

static void round_trip(const struct tokenizer *t, const char *text, size_t n)
{
    struct text_ids ids = text_encode(t, text, n, false);

    text_assert_bytes(t, &ids, text, n);
    free(ids.v);
    ids = text_encode(t, text, n, true);
    text_assert_bytes(t, &ids, text, n);
    free(ids.v);
}

static void test_random_bytes_round_trip(void **state)
{
    uint64_t rng = 1;
    char text[600];

    (void)state;
    for (int k = 0; k < 2000; k++) {
        size_t n = text_below(&rng, sizeof(text) + 1);

        for (size_t i = 0; i < n; i++) {
            text[i] = (char)text_random(&rng);
        }
        round_trip(k % 2 != 0 ? real : tiny, text, n);
    }
}

static void test_random_unicode_round_trips(void **state)
{
    uint64_t rng = 2;
    char text[600];

    (void)state;
    for (int k = 0; k < 2000; k++) {
        size_t n = text_unicode(&rng, text, text_below(&rng, sizeof(text)));

        round_trip(k % 2 != 0 ? real : tiny, text, n);
    }
}

/* Valid text with bytes knocked out: the valid runs between them are words as
 * if they stood alone, an invalid byte is its own token. */
static void test_invalid_bytes_stand_alone(void **state)
{
    static const char text[] = "Hello\xff, world\xf0\x9f\x98 the\xed\xa0\x80";
    static const struct {
        const char *p;
        size_t n;
    } part[] = {{"Hello", 5}, {"\xff", 1}, {", world", 7}, {"\xf0", 1},
                {"\x9f", 1},  {"\x98", 1}, {" the", 4},    {"\xed", 1},
                {"\xa0", 1},  {"\x80", 1}};
    struct text_ids ids = text_encode(real, text, sizeof(text) - 1, false);
    int n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        struct text_ids one = text_encode(real, part[i].p, part[i].n, false);

        assert_true(n + one.n <= ids.n);
        assert_memory_equal(ids.v + n, one.v, sizeof(*one.v) * (size_t)one.n);
        n += one.n;
        free(one.v);
    }
    assert_int_equal(n, ids.n);
    free(ids.v);
}

/* ---- field reports ---------------------------------------------------- */

static void fr_16_spaces_survive_whatever_the_class_is_called(void **state)
{
    static const char text[] = "a  b\n c";

    /* step-tiny's tokenizer_config.json names LlamaTokenizerFast. */
    (void)state;
    round_trip(tiny, text, sizeof(text) - 1);
    round_trip(real, text, sizeof(text) - 1);
}

static void fr_18_no_byte_around_special_tokens(void **state)
{
    static const char text[] = "x<|im_end|>y";
    struct text_ids ids = text_encode(real, text, sizeof(text) - 1, true);

    (void)state;
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.v[1], IM_END);
    text_assert_bytes(real, &ids, text, sizeof(text) - 1);
    free(ids.v);
    ids = text_encode(real, text, sizeof(text) - 1, false);
    for (int i = 0; i < ids.n; i++) {
        assert_false(tokenizer_is_special(real, ids.v[i]));
    }
    text_assert_bytes(real, &ids, text, sizeof(text) - 1);
    free(ids.v);
}

/* ---- the calling convention ------------------------------------------- */

static void test_ids_are_appended(void **state)
{
    struct text_ids ids = text_encode(real, "Hello", 5, false);

    (void)state;
    assert_int_equal(tokenizer_encode(real, ", world!", 8, false, 100, &ids.v,
                                      &ids.n, &ids.cap),
                     0);
    assert_ids("appended", "19923,14,2058,3", &ids);
    free(ids.v);
}

static void test_too_many_ids_are_refused_and_nothing_is_added(void **state)
{
    struct text_ids ids = text_encode(real, "Hello", 5, false);
    char *big = malloc(1 << 20);

    (void)state;
    assert_int_equal(tokenizer_encode(real, ", world!", 8, false, 3, &ids.v,
                                      &ids.n, &ids.cap),
                     -E2BIG);
    assert_int_equal(ids.n, 1);
    assert_int_equal(tokenizer_encode(real, ", world!", 8, false, 4, &ids.v,
                                      &ids.n, &ids.cap),
                     0);
    assert_int_equal(ids.n, 4);
    /* No room at all, and more bytes than any ids could hold. */
    assert_int_equal(
        tokenizer_encode(real, "x", 1, false, 4, &ids.v, &ids.n, &ids.cap),
        -E2BIG);
    assert_int_equal(
        tokenizer_encode(real, "", 0, false, 4, &ids.v, &ids.n, &ids.cap), 0);
    assert_non_null(big);
    memset(big, 'a', 1 << 20);
    assert_int_equal(tokenizer_encode(real, big, 1 << 20, false, 4 + 8191,
                                      &ids.v, &ids.n, &ids.cap),
                     -E2BIG);
    assert_int_equal(ids.n, 4);
    free(big);
    free(ids.v);
}

static void test_ids_and_their_bytes(void **state)
{
    size_t n;
    int32_t eos[2] = {-2, -2};

    (void)state;
    assert_int_equal(tokenizer_vocab(real), 128815);
    assert_int_equal(tokenizer_id(real, "<|im_end|>"), IM_END);
    assert_int_equal(tokenizer_id(real, "<think>"), THINK);
    assert_int_equal(tokenizer_id(real, "</think>"), 128799);
    assert_int_equal(tokenizer_id(real, "<think"), -1);
    assert_int_equal(tokenizer_id(real, ""), -1);
    assert_int_equal(tokenizer_id(real, "Hello"), -1);
    assert_true(tokenizer_is_special(real, IM_END));
    assert_false(tokenizer_is_special(real, THINK));
    assert_false(tokenizer_is_special(real, -1));
    assert_false(tokenizer_is_special(real, 128815));
    assert_null(tokenizer_bytes(real, -1, &n));
    assert_null(tokenizer_bytes(real, 128815, &n));
    assert_string_equal(tokenizer_bytes(real, 271, &n), "\n\n");
    assert_int_equal(n, 2);
    assert_string_equal(tokenizer_bytes(real, 0, &n),
                        "<｜begin▁of▁sentence｜>");
    /* No neighbouring files: no ends. */
    assert_int_equal(tokenizer_bos(real), -1);
    assert_int_equal(tokenizer_eos(real, eos, 2), 0);
    assert_int_equal(tokenizer_bos(tiny), 0);
    assert_int_equal(tokenizer_eos(tiny, eos, 0), 1);
    assert_int_equal(eos[0], -2);
    assert_int_equal(tokenizer_eos(tiny, eos, 2), 1);
    assert_int_equal(eos[0], tokenizer_id(tiny, "<|im_end|>"));
    tokenizer_destroy(NULL);
}

static void *encode_much(void *arg)
{
    const struct text_ids *expected = arg;

    for (int k = 0; k < 200; k++) {
        struct text_ids ids =
            text_encode(real, ADDED_TEXT, sizeof(ADDED_TEXT) - 1, true);

        if (ids.n != expected->n ||
            memcmp(ids.v, expected->v, sizeof(*ids.v) * (size_t)ids.n) != 0) {
            free(ids.v);
            return NULL;
        }
        free(ids.v);
    }
    return arg;
}

static void test_threads_share_one_tokenizer(void **state)
{
    struct text_ids ids =
        text_encode(real, ADDED_TEXT, sizeof(ADDED_TEXT) - 1, true);
    pthread_t thread[3];
    void *result;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, encode_much, &ids),
                         0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_ptr_equal(result, &ids);
    }
    free(ids.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public_cases_both_ways),
        cmocka_unit_test(test_random_text_as_the_published_library),
        cmocka_unit_test(test_added_tokens_count_only_when_asked),
        cmocka_unit_test(test_added_tokens_count_inside_spans_only),
        cmocka_unit_test(test_words_cross_the_edges_of_spans),
        cmocka_unit_test(test_longest_added_token_wins),
        cmocka_unit_test(test_random_bytes_round_trip),
        cmocka_unit_test(test_random_unicode_round_trips),
        cmocka_unit_test(test_invalid_bytes_stand_alone),
        cmocka_unit_test(fr_16_spaces_survive_whatever_the_class_is_called),
        cmocka_unit_test(fr_18_no_byte_around_special_tokens),
        cmocka_unit_test(test_ids_are_appended),
        cmocka_unit_test(test_too_many_ids_are_refused_and_nothing_is_added),
        cmocka_unit_test(test_ids_and_their_bytes),
        cmocka_unit_test(test_threads_share_one_tokenizer),
    };

    return test_main(tests, setup, teardown);
}
