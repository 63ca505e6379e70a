/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the tests of daemon/text share: a repeatable random source, files of
 * cases, the two tokenizers, random texts of the kinds that break text code.
 */
#ifndef TESTS_DAEMON_TEXT_H
#define TESTS_DAEMON_TEXT_H

#include <limits.h>
#include <stdbool.h>

#include "daemon/text/tokenizer.h"
#include "tests/test.h"

/* ---- random numbers: splitmix64 --------------------------------------- */

static inline uint64_t text_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* In [0, n). */
static inline unsigned text_below(uint64_t *state, unsigned n)
{
    return (unsigned)(text_random(state) % n);
}

/* ---- files ------------------------------------------------------------ */

static inline char *text_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    char *p;
    long n;

    if (f == NULL) {
        fail_msg("%s: cannot be opened", path);
    }
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    n = ftell(f);
    assert_true(n >= 0);
    rewind(f);
    p = malloc((size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)n, f), n);
    p[n] = '\0';
    *ret_n = (size_t)n;
    fclose(f);
    return p;
}

/* Decodes hex in place; the number of bytes. */
static inline size_t text_unhex(char *p)
{
    size_t n = strlen(p) / 2;

    for (size_t i = 0; i < n; i++) {
        unsigned b;

        assert_int_equal(sscanf(p + 2 * i, "%2x", &b), 1);
        p[i] = (char)b;
    }
    return n;
}

/* ---- tokenizers ------------------------------------------------------- */

static inline struct tokenizer *text_tokenizer(const char *dir)
{
    struct tokenizer *t = NULL;
    char why[256] = "";

    if (tokenizer_load(&t, dir, why, sizeof(why)) < 0) {
        fail_msg("%s: %s", dir, why);
    }
    return t;
}

/* The published one, from the build tree: no bos, no eos. */
static inline struct tokenizer *text_real(void)
{
    return text_tokenizer((test_data_built("real-tokenizer/tokenizer.json"),
                           test_data_built("real-tokenizer")));
}

static inline struct tokenizer *text_tiny(void)
{
    return text_tokenizer(test_data("step-tiny"));
}

/* A tokenizer.json whose ids 0..255 are the bytes, from the values of four keys
 * (NULL: an empty list, no splits, nothing). more_vocab is ",\"ab\":256..". */
static inline char *text_bytes_json(const char *added, const char *splits,
                                    const char *more_vocab, const char *merges)
{
    char *p = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&p, &n);
    unsigned next = 256;

    assert_non_null(f);
    fprintf(f,
            "{\"added_tokens\":[%s],\"normalizer\":null,"
            "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":"
            "[%s%s{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
            "\"use_regex\":false}]},\"post_processor\":null,"
            "\"decoder\":{\"type\":\"ByteLevel\"},"
            "\"model\":{\"type\":\"BPE\",\"vocab\":{",
            added != NULL ? added : "", splits != NULL ? splits : "",
            splits != NULL ? "," : "");
    for (unsigned b = 0; b < 256; b++) {
        bool self = (b > 32 && b < 127) || (b > 160 && b != 173);

        fprintf(f, "%s\"\\u%04x\":%u", b != 0 ? "," : "", self ? b : next, b);
        next += !self;
    }
    fprintf(f, "%s},\"merges\":[%s]}}", more_vocab != NULL ? more_vocab : "",
            merges != NULL ? merges : "");
    assert_int_equal(fclose(f), 0);
    return p;
}

struct text_ids {
    int32_t *v;
    int n, cap;
};

static inline struct text_ids text_encode(const struct tokenizer *t,
                                          const char *text, size_t n,
                                          bool special)
{
    struct text_ids ids = {0};

    assert_int_equal(tokenizer_encode(t, text, n, special, INT_MAX, &ids.v,
                                      &ids.n, &ids.cap),
                     0);
    return ids;
}

/* Fails unless the bytes of the ids, put together, are the text. */
static inline void text_assert_bytes(const struct tokenizer *t,
                                     const struct text_ids *ids,
                                     const char *text, size_t n)
{
    size_t off = 0;

    for (int i = 0; i < ids->n; i++) {
        size_t len;
        const char *p = tokenizer_bytes(t, ids->v[i], &len);

        assert_non_null(p);
        assert_true(len <= n - off);
        assert_memory_equal(p, text + off, len);
        off += len;
    }
    assert_int_equal(off, n);
}

/* ---- texts ------------------------------------------------------------ */

/* Writes the character c (not a surrogate) as UTF-8; its length, <= 4. */
static inline size_t text_put(char *p, uint32_t c)
{
    if (c < 0x80) {
        p[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (char)(0xc0 | c >> 6);
        p[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (char)(0xe0 | c >> 12);
        p[1] = (char)(0x80 | (c >> 6 & 0x3f));
        p[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    p[0] = (char)(0xf0 | c >> 18);
    p[1] = (char)(0x80 | (c >> 12 & 0x3f));
    p[2] = (char)(0x80 | (c >> 6 & 0x3f));
    p[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Writes one character of the kinds that break text code; its length, <= 4. */
static inline size_t text_char(uint64_t *rng, char *p)
{
    static const uint32_t range[][2] = {
        {0x20, 0x7e},       {0x09, 0x0d},     {0x00, 0xff},
        {0x0300, 0x036f},   {0x4e00, 0x9fff}, {0xac00, 0xd7a3},
        {0x3040, 0x30ff},   {0x2000, 0x206f}, {0x1f300, 0x1faff},
        {0x1f1e6, 0x1f1ff}, {0x0100, 0xd7ff}, {0xe000, 0x10ffff},
        {0x20, 0x20},       {0x0a, 0x0a},     {0x30, 0x39},
    };
    unsigned i = text_below(rng, sizeof(range) / sizeof(range[0]));

    return text_put(p, range[i][0] +
                           text_below(rng, range[i][1] - range[i][0] + 1));
}

/* Valid UTF-8 of at most cap bytes; its length. */
static inline size_t text_unicode(uint64_t *rng, char *p, size_t cap)
{
    size_t n = 0;

    while (n + 4 <= cap) {
        n += text_char(rng, p + n);
    }
    return n;
}

#endif
