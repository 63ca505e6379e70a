/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The merge loop against the definition of byte-pair encoding, written out as
 * a scan for the lowest rank, on random tables of merges; and the work it takes
 * on the words that are worst for it.
 */
#include "daemon/text/bpe.h"

#include <errno.h>

#include "tests/daemon/text.h"

#define N_LETTERS 4
#define N_MERGES 60
#define N_IDS (256 + N_MERGES)

/* rank_of[left][right], -1: the two do not merge. */
struct table {
    struct bpe bpe;
    int rank_of[N_IDS][N_IDS];
};

static void fill_table(struct table *t, uint64_t *rng)
{
    int n_ids = N_LETTERS;

    assert_int_equal(bpe_init(&t->bpe, N_MERGES), 0);
    memset(t->rank_of, 0xff, sizeof(t->rank_of));
    for (int i = 0; i < 256; i++) {
        t->bpe.byte_id[i] = i;
    }
    /* Only the letters occur in words; ids of merges follow them. */
    for (int rank = 0; rank < N_MERGES; rank++) {
        int left = (int)text_below(rng, (unsigned)n_ids);
        int right = (int)text_below(rng, (unsigned)n_ids);

        bpe_add(&t->bpe, left, right, n_ids);
        t->rank_of[left][right] = rank; /* a later one replaces the earlier */
        n_ids++;
    }
}

/* The definition: while some neighbours have a rank, merge the lowest, the
 * leftmost of equals. */
static int define(const struct table *t, int32_t *v, int n)
{
    for (;;) {
        int best = -1, at = 0;

        for (int i = 0; i + 1 < n; i++) {
            int rank = t->rank_of[v[i]][v[i + 1]];

            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0) {
            return n;
        }
        v[at] = N_LETTERS + best;
        memmove(v + at + 1, v + at + 2, sizeof(*v) * (size_t)(n - at - 2));
        n--;
    }
}

static void test_merges_as_defined(void **state)
{
    static struct table t;
    uint64_t rng = 11;
    struct bpe_scratch scratch = {0};
    struct bpe_ids ids = {.max = INT_MAX};
    uint8_t word[200];
    int32_t expected[200];

    (void)state;
    for (int k = 0; k < 3000; k++) {
        int n = (int)text_below(&rng, k % 10 == 0 ? 200 : 24);
        unsigned letters = 1 + text_below(&rng, N_LETTERS);

        if (k % 50 == 0) {
            bpe_finish(&t.bpe);
            fill_table(&t, &rng);
        }
        for (int i = 0; i < n; i++) {
            word[i] = (uint8_t)text_below(&rng, letters);
            expected[i] = word[i];
        }
        ids.n = 0;
        assert_int_equal(bpe_encode(&t.bpe, &scratch, word, (size_t)n, &ids),
                         0);
        n = define(&t, expected, n);
        assert_int_equal(ids.n, n);
        if (n != 0) {
            assert_memory_equal(ids.v, expected, sizeof(*expected) * (size_t)n);
        }
    }
    free(ids.v);
    bpe_scratch_finish(&scratch);
    bpe_finish(&t.bpe);
}

/* At most three candidates are taken from the heap for each byte, whatever the
 * word: n-1 at the start and two for each merge. */
static void test_work_is_linear_in_candidates(void **state)
{
    static struct table t;
    const size_t n = 1000000;
    uint64_t rng = 12;
    struct bpe_scratch scratch = {0};
    struct bpe_ids ids = {.max = INT_MAX};
    uint8_t *word = malloc(n);

    (void)state;
    assert_non_null(word);
    fill_table(&t, &rng);
    /* Letter 0 doubles again and again: the longest chain of merges. */
    bpe_finish(&t.bpe);
    assert_int_equal(bpe_init(&t.bpe, 16), 0);
    for (int i = 0; i < 256; i++) {
        t.bpe.byte_id[i] = i;
    }
    bpe_add(&t.bpe, 0, 0, 256);
    for (int i = 0; i < 15; i++) {
        bpe_add(&t.bpe, 256 + i, 256 + i, 257 + i);
    }
    memset(word, 0, n);
    assert_int_equal(bpe_encode(&t.bpe, &scratch, word, n, &ids), 0);
    /* 1000000 = 15 * 65536 + 16384 + 512 + 64. */
    assert_int_equal(ids.n, 15 + 3);
    assert_true(scratch.pops >= n);
    assert_true(scratch.pops <= 3 * n);
    free(ids.v);
    free(word);
    bpe_scratch_finish(&scratch);
    bpe_finish(&t.bpe);
}

static void test_a_word_of_the_vocabulary_is_not_merged_up(void **state)
{
    struct vocab vocab;
    struct bpe bpe;
    struct bpe_scratch scratch = {0};
    struct bpe_ids ids = {.max = INT_MAX};

    (void)state;
    assert_int_equal(vocab_init(&vocab, 0), 0);
    assert_int_equal(vocab_add(&vocab, 7, "abc", 3, true), 0);
    assert_int_equal(vocab_add(&vocab, 8, "abcd", 4, false), 0);
    assert_int_equal(bpe_init(&bpe, 0), 0);
    for (int i = 0; i < 256; i++) {
        bpe.byte_id[i] = 1000 + i;
    }
    bpe.whole = &vocab;
    assert_int_equal(
        bpe_encode(&bpe, &scratch, (const uint8_t *)"abc", 3, &ids), 0);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.v[0], 7);
    assert_int_equal(
        bpe_encode(&bpe, &scratch, (const uint8_t *)"abcd", 4, &ids), 0);
    assert_int_equal(ids.n, 5);
    assert_int_equal(ids.v[4], 1000 + 'd');
    free(ids.v);
    bpe_scratch_finish(&scratch);
    bpe_finish(&bpe);
    vocab_finish(&vocab);
}

/* The vocabulary keeps what it was given while its tables grow. */
static void test_vocabulary_grows(void **state)
{
    struct vocab v;
    char text[16];
    size_t n;

    (void)state;
    assert_int_equal(vocab_init(&v, 0), 0);
    for (int i = 0; i < 20000; i++) {
        n = (size_t)snprintf(text, sizeof(text), "t%d", i);
        assert_int_equal(vocab_add(&v, 3 * i, text, n, i % 2 == 0), 0);
    }
    assert_int_equal(v.n_ids, 3 * 19999 + 1);
    for (int i = 0; i < 20000; i++) {
        n = (size_t)snprintf(text, sizeof(text), "t%d", i);
        assert_int_equal(vocab_find(&v, text, n), i % 2 == 0 ? 3 * i : -1);
        assert_string_equal(vocab_bytes(&v, 3 * i, &n), text);
        assert_null(vocab_bytes(&v, 3 * i + 1, &n));
    }
    assert_int_equal(vocab_add(&v, 3, "new", 3, true), -EEXIST);
    assert_int_equal(vocab_add(&v, 1, "t0", 2, true), -EEXIST);
    assert_int_equal(vocab_add(&v, 1, "t0", 2, false), 0);
    vocab_finish(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_as_defined),
        cmocka_unit_test(test_work_is_linear_in_candidates),
        cmocka_unit_test(test_a_word_of_the_vocabulary_is_not_merged_up),
        cmocka_unit_test(test_vocabulary_grows),
    };

    return test_main(tests, NULL, NULL);
}
