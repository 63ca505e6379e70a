/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The streaming detokeniser against a decoder of whole texts written for this
 * test, over cuts at every place and at random ones, on valid text of all
 * kinds and on noise; and on the tokens of real text, one by one.
 */
#include "daemon/text/detok.h"

#include "tests/daemon/text.h"

#define MAX_TEXT 300
#define MAX_OUT (3 * MAX_TEXT + 64)

/* Valid characters as they are, every other byte a U+FFFD: by code point, with
 * none of the tables of daemon/text/utf8.h. */
static size_t decode(const uint8_t *p, size_t n, char *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n_out = 0;

    for (size_t i = 0; i < n;) {
        unsigned len = p[i] < 0x80             ? 1
                       : (p[i] & 0xe0) == 0xc0 ? 2
                       : (p[i] & 0xf0) == 0xe0 ? 3
                       : (p[i] & 0xf8) == 0xf0 ? 4
                                               : 0;
        uint32_t c = len == 1 ? p[i] : p[i] & (0x7fu >> len);
        bool ok = len != 0 && i + len <= n;

        for (unsigned k = 1; ok && k < len; k++) {
            ok = (p[i + k] & 0xc0) == 0x80;
            c = c << 6 | (p[i + k] & 0x3f);
        }
        if (ok && c >= least[len] && c < 0x110000 &&
            !(c >= 0xd800 && c < 0xe000)) {
            memcpy(out + n_out, p + i, len);
            n_out += len;
            i += len;
        } else {
            memcpy(out + n_out, "\xef\xbf\xbd", 3);
            n_out += 3;
            i++;
        }
    }
    return n_out;
}

static bool is_utf8(const char *p, size_t n)
{
    char out[MAX_OUT];

    return decode((const uint8_t *)p, n, out) == n && memcmp(out, p, n) == 0;
}

struct sink {
    struct detok d;
    char out[MAX_OUT];
    size_t n;
};

/* Feeds a piece; what comes out must be whole characters. */
static void feed(struct sink *s, const uint8_t *p, size_t n)
{
    size_t got = detok_feed(&s->d, p, n, s->out + s->n);

    assert_true(got <= 3 * (n + 4));
    assert_true(is_utf8(s->out + s->n, got));
    s->n += got;
}

static void end(struct sink *s, const char *expected, size_t n_expected)
{
    size_t got = detok_flush(&s->d, s->out + s->n);

    assert_true(got <= 12);
    s->n += got;
    assert_int_equal(s->n, n_expected);
    assert_memory_equal(s->out, expected, n_expected);
    assert_int_equal(detok_flush(&s->d, s->out), 0);
}

static void all_cuts(const uint8_t *p, size_t n, uint64_t *rng)
{
    char expected[MAX_OUT];
    size_t n_expected = decode(p, n, expected);
    struct sink s;

    for (size_t cut = 0; cut <= n; cut++) {
        detok_init(&s.d);
        s.n = 0;
        feed(&s, p, cut);
        feed(&s, p + cut, n - cut);
        end(&s, expected, n_expected);
    }
    for (int k = 0; k < 8; k++) {
        unsigned longest = k == 0 ? 1 : 1 + text_below(rng, 7);

        detok_init(&s.d);
        s.n = 0;
        for (size_t i = 0; i < n;) {
            size_t m = 1 + text_below(rng, longest);

            m = m < n - i ? m : n - i;
            feed(&s, p + i, m);
            i += m;
        }
        end(&s, expected, n_expected);
    }
}

static void test_every_cut_of_text(void **state)
{
    uint64_t rng = 21;
    char text[MAX_TEXT];

    (void)state;
    for (int k = 0; k < 200; k++) {
        size_t n = text_unicode(&rng, text, text_below(&rng, MAX_TEXT));

        all_cuts((const uint8_t *)text, n, &rng);
    }
}

static void test_every_cut_of_noise(void **state)
{
    /* Bytes that begin, continue and break characters. */
    static const uint8_t hard[] = {0x41, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                   0xc1, 0xc2, 0xdf, 0xe0, 0xe4, 0xed, 0xef,
                                   0xf0, 0xf1, 0xf4, 0xf5, 0xff, 0x00, 0x7f};
    uint64_t rng = 22;
    uint8_t text[120];

    (void)state;
    for (int k = 0; k < 1000; k++) {
        size_t n = text_below(&rng, sizeof(text));

        for (size_t i = 0; i < n; i++) {
            text[i] = k % 2 != 0 ? hard[text_below(&rng, sizeof(hard))]
                                 : (uint8_t)text_random(&rng);
        }
        all_cuts(text, n, &rng);
    }
}

static void assert_decodes(const char *bytes, size_t n, const char *expected,
                           size_t n_expected)
{
    uint64_t rng = 23;
    char out[MAX_OUT];

    assert_int_equal(decode((const uint8_t *)bytes, n, out), n_expected);
    assert_memory_equal(out, expected, n_expected);
    all_cuts((const uint8_t *)bytes, n, &rng);
}

#define FFFD "\xef\xbf\xbd"

static void test_invalid_bytes_are_one_replacement_each(void **state)
{
    (void)state;
    assert_decodes("\xf0\x9f\x98", 3, FFFD FFFD FFFD, 9);
    assert_decodes("\xf0\x9f"
                   "A",
                   3, FFFD FFFD "A", 7);
    assert_decodes("\xe4\xb8\xf0\x9f\x98\x80", 6, FFFD FFFD "\xf0\x9f\x98\x80",
                   10);
    assert_decodes("\xc0\xaf", 2, FFFD FFFD, 6);
    assert_decodes("\xed\xa0\x80", 3, FFFD FFFD FFFD, 9);
    assert_decodes("\xf4\x90\x80\x80", 4, FFFD FFFD FFFD FFFD, 12);
    assert_decodes("a\0b\xff", 4, "a\0b" FFFD, 6);
}

/* Feeds token by token; nothing that is not whole may come out on the way. */
static void by_token(const struct tokenizer *t, const char *text)
{
    struct text_ids ids = text_encode(t, text, strlen(text), false);
    struct sink s;

    detok_init(&s.d);
    s.n = 0;
    for (int i = 0; i < ids.n; i++) {
        size_t n;
        const char *p = tokenizer_bytes(t, ids.v[i], &n);

        feed(&s, (const uint8_t *)p, n);
    }
    end(&s, text, strlen(text));
    free(ids.v);
}

static void fr_66_split_emoji_comes_out_once(void **state)
{
    struct sink s;

    (void)state;
    detok_init(&s.d);
    s.n = 0;
    feed(&s, (const uint8_t *)"\xf0\x9f", 2);
    assert_int_equal(s.n, 0);
    feed(&s, (const uint8_t *)"\x98\x80", 2);
    assert_int_equal(s.n, 4);
    end(&s, "\xf0\x9f\x98\x80", 4);
}

/* step-tiny's vocabulary splits every character outside ASCII into bytes. */
static void fr_69_hangul_survives_token_by_token(void **state)
{
    static const char *const text[] = {
        "안녕하세요, 세계! 한국어 텍스트를 바이트로 나눕니다.",
        "日本語と中文、émoji 👨‍👩‍👧‍👦 🇩🇪 e\u0301 a\u0308\u0323",
    };
    struct tokenizer *tiny = text_tiny();
    struct tokenizer *real = text_real();

    (void)state;
    for (int i = 0; i < 2; i++) {
        by_token(tiny, text[i]);
        by_token(real, text[i]);
    }
    tokenizer_destroy(tiny);
    tokenizer_destroy(real);
}

/* A base and up to six marks that combine with it, of scripts in which text
 * without them is another text; vowels of Hangul, joiners and selectors of
 * emoji among them. Its length. */
static size_t cluster(uint64_t *rng, char *p)
{
    static const uint32_t bases[] = {'e',    0x05d0, 0x0915,  0x0e01,
                                     0x1100, 0x2764, 0x1f468, 0x11013};
    static const uint32_t marks[][2] = {
        {0x0300, 0x036f}, {0x0591, 0x05bd},   {0x093e, 0x094d},
        {0x0e31, 0x0e4e}, {0x1161, 0x1175},   {0x11a8, 0x11c2},
        {0x1ab0, 0x1abe}, {0x200d, 0x200d},   {0x20d0, 0x20f0},
        {0xfe00, 0xfe0f}, {0x1f3fb, 0x1f3ff}, {0x11038, 0x11046},
    };
    size_t n =
        text_put(p, bases[text_below(rng, sizeof(bases) / sizeof(bases[0]))]);

    for (unsigned k = text_below(rng, 7); k > 0; k--) {
        const uint32_t *m =
            marks[text_below(rng, sizeof(marks) / sizeof(marks[0]))];

        n += text_put(p + n, m[0] + text_below(rng, m[1] - m[0] + 1));
    }
    return n;
}

/* Marks come out as they went in, whatever the cut: nothing composes, reorders,
 * drops or doubles them, from the text to tokens and back. */
static void test_combining_marks_at_every_cut(void **state)
{
    struct tokenizer *tiny = text_tiny();
    struct tokenizer *real = text_real();
    uint64_t rng = 24;
    char text[MAX_TEXT];

    (void)state;
    for (int k = 0; k < 200; k++) {
        size_t n = 0;

        for (unsigned i = 1 + text_below(&rng, 8); i > 0; i--) {
            n += cluster(&rng, text + n);
        }
        assert_true(n < sizeof(text));
        text[n] = '\0';
        assert_true(is_utf8(text, n));
        all_cuts((const uint8_t *)text, n, &rng);
        by_token(tiny, text);
        by_token(real, text);
    }
    tokenizer_destroy(tiny);
    tokenizer_destroy(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut_of_text),
        cmocka_unit_test(test_every_cut_of_noise),
        cmocka_unit_test(test_invalid_bytes_are_one_replacement_each),
        cmocka_unit_test(fr_66_split_emoji_comes_out_once),
        cmocka_unit_test(fr_69_hangul_survives_token_by_token),
        cmocka_unit_test(test_combining_marks_at_every_cut),
    };

    return test_main(tests, NULL, NULL);
}
