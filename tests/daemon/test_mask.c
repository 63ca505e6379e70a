/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Masks against the definition: a token fits where its bytes, one by one, do.
 * Every schema of tests/data/schemas.jsonl with the small vocabulary, some
 * states with the published one.
 */
#include "daemon/text/mask.h"
#include "daemon/text/slice.h"
#include "daemon/text/toktrie.h"
#include "tests/daemon/grams.h"

#define REAL_VOCAB 128896

struct rig {
    struct tokenizer *tok;
    struct lexicon *lex;
    int32_t eos;
    int vocab;
    struct masker_conf conf;
    size_t n_words;
    uint32_t *words;
};

static void rig_init(struct rig *r, struct tokenizer *tok, int vocab)
{
    r->tok = tok;
    r->vocab = vocab;
    r->eos = tokenizer_id(tok, "<|im_end|>");
    assert_true(r->eos >= 0);
    assert_int_equal(lexicon_create(&r->lex, tok), 0);
    r->n_words = ((size_t)vocab + 31) / 32;
    r->conf = (struct masker_conf){vocab, &r->eos, 1};
    r->words = calloc(r->n_words, 4);
    assert_non_null(r->words);
}

static void rig_finish(struct rig *r)
{
    free(r->words);
    lexicon_destroy(r->lex);
    tokenizer_destroy(r->tok);
}

static bool bit(const struct rig *r, int32_t id)
{
    return r->words[id >> 5] >> (id & 31) & 1;
}

static struct masker *open_masker(const struct rig *r, const char *form,
                                  bool reasoning, struct compiled **ret_c)
{
    struct masker *m;

    assert_int_equal(
        compiled_create(ret_c, grams_compile(form, reasoning), r->lex), 0);
    assert_int_equal(masker_create(&m, *ret_c, &r->conf), 0);
    return m;
}

/* Every bit of the mask at position 0, by the definition. */
static void check_mask(const struct rig *r, struct masker *m, const char *name)
{
    bool wrong = false;

    masker_forget(m, false);
    assert_int_equal(masker_mask(m, 0, r->words), 0);
    for (int32_t id = 0; id < r->vocab; id++) {
        bool fits =
            id == r->eos ? masker_accepts(m) : masker_look(m, &id, 1) == 1;

        if (fits != bit(r, id)) {
            print_error("%s: token %d %s\n", name, (int)id,
                        fits ? "is missing" : "is too much");
            wrong = true;
        }
    }
    assert_false(wrong);
}

/* One of the tokens allowed, -1 where there is none but the end. */
static int32_t pick(const struct rig *r, uint64_t *seed)
{
    int32_t from = (int32_t)text_below(seed, (unsigned)r->vocab);

    for (int32_t i = 0; i < r->vocab; i++) {
        int32_t id = (from + i) % r->vocab;

        if (id != r->eos && bit(r, id)) {
            return id;
        }
    }
    return -1;
}

static void walk(const struct rig *r, const char *form, bool reasoning,
                 const char *name, int n_tokens, uint64_t seed)
{
    struct compiled *c;
    struct masker *m = open_masker(r, form, reasoning, &c);

    for (int i = 0; i < n_tokens; i++) {
        int32_t id;

        check_mask(r, m, name);
        id = pick(r, &seed);
        if (id < 0) {
            assert_true(bit(r, r->eos));
            break;
        }
        assert_int_equal(masker_advance(m, &id, 1), 0);
        if (masker_is_over(m)) {
            assert_true(masker_accepts(m));
            break;
        }
    }
    masker_destroy(m);
    compiled_destroy(c);
}

static void each_schema(const struct rig *r, int every, int n_tokens)
{
    FILE *f = fopen(test_data("schemas.jsonl"), "r");
    char *line = NULL;
    size_t cap = 0;
    int n = 0;

    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);
        char *schema, *form;

        assert_non_null(v);
        schema = json_dumps(json_object_get(v, "schema"), JSON_ENCODE_ANY);
        form = grams_form("json_schema", "schema", schema);
        if (n % every == 0) {
            walk(r, form, n % 7 == 0,
                 json_string_value(json_object_get(v, "name")), n_tokens,
                 (uint64_t)n);
        }
        n++;
        free(form);
        free(schema);
        json_decref(v);
    }
    assert_true(n >= 200);
    free(line);
    fclose(f);
}

/* What a set is followed by decides which tokens of it are kept apart: one byte
 * always the same, several, a character of its own, more of the same, the end;
 * and how many characters are left. */
static void each_end(const struct rig *r, int n_tokens)
{
    static const char *const regex[] = {
        "[^-]{1,6}-",
        "[^-]{2,30}--",
        "([^-]{1,9}-){1,3}",
        "[^a-z]{1,7}(c|s)",
        "([^-12]{1,7}1|[^-12]{1,7}2)x",
        "[^-]{1,6}[-a]",
        "[^a]{1,6}b",
        "[^-]{1,6}[^-]{1,6}-",
        "[^-]{0,9}",
        "([^-]{1,9})*-",
        "[^-]{1,6}-|[^-]{1,8}!",
        "[^\\u00e9]{1,6}\\u00e9",
    };

    for (size_t i = 0; i < sizeof(regex) / sizeof(regex[0]); i++) {
        char form[128];

        (void)snprintf(form, sizeof(form),
                       "{\"type\":\"regex\",\"regex\":\"%s\"}", regex[i]);
        walk(r, form, false, regex[i], n_tokens, i + 1);
    }
}

static void test_masks_by_definition_small_vocabulary(void **state)
{
    struct rig r;
    struct tokenizer *t = text_tiny();

    (void)state;
    rig_init(&r, t, tokenizer_vocab(t) + 5); /* rows without a token */
    each_schema(&r, 1, 25);
    each_end(&r, 25);
    rig_finish(&r);
}

static void test_masks_by_definition_published_vocabulary(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r, text_real(), REAL_VOCAB);
    each_schema(&r, 24, 4);
    each_end(&r, 2);
    walk(&r, "{\"type\":\"regex\",\"regex\":\"[a-z ]{1,40}\\\\.\"}", false,
         "letters", 6, 1);
    rig_finish(&r);
}

static void test_the_published_vocabulary_in_numbers(void **state)
{
    struct tokenizer *tok = text_real();
    struct gram *g = gram_create();
    struct toktrie *t;
    struct slice *s;
    uint32_t rule, n = 0;

    (void)state;
    assert_int_equal(toktrie_create(&t, tok, REAL_VOCAB, NULL), 0);
    rule = jsongram_body(g, CHARSET_JSON);
    assert_int_equal(gram_finish(g, rule), 0);
    assert_int_equal(slice_create(&s, g, rule, t, tok, '"', true), 0);
    for (uint32_t i = 0; i < s->n_words; i++) {
        n += (uint32_t)__builtin_popcount(s->mask[i]);
    }
    print_message("%u nodes, %d tokens, %u inside a JSON string\n",
                  (unsigned)t->n, t->n_tokens, (unsigned)n);
    assert_true(t->n > 270000 && n > 125000);
    slice_destroy(s);
    toktrie_destroy(t);
    gram_destroy(g);
    tokenizer_destroy(tok);
}

static int32_t token(const struct rig *r, const char *text)
{
    for (int32_t id = 0; id < r->vocab; id++) {
        size_t n;
        const char *p = tokenizer_bytes(r->tok, id, &n);

        if (p != NULL && n == strlen(text) && memcmp(p, text, n) == 0) {
            return id;
        }
    }
    fail_msg("no token \"%s\"", text);
    return -1;
}

/* fr_50: a block whose first draft ends reasoning. */
static void test_a_mask_for_each_position_of_a_block(void **state)
{
    struct rig r;
    struct compiled *c;
    struct masker *m;
    int32_t block[3];

    (void)state;
    rig_init(&r, text_real(), REAL_VOCAB);
    m = open_masker(&r,
                    "{\"type\":\"json_schema\",\"schema\":{\"type\":"
                    "\"object\",\"properties\":{\"city\":{\"type\":"
                    "\"string\"}},\"required\":[\"city\"]}}",
                    true, &c);
    block[0] = tokenizer_id(r.tok, "</think>");
    block[1] = token(&r, "{");
    block[2] = token(&r, "hello");
    assert_int_equal(masker_look(m, block, 3), 2);
    assert_int_equal(masker_mask(m, 0, r.words), 0);
    assert_true(bit(&r, block[2])); /* in reasoning anything goes */
    assert_false(bit(&r, r.eos));   /* but the end */
    assert_int_equal(masker_mask(m, 1, r.words), 0);
    assert_true(bit(&r, block[1]));
    assert_false(bit(&r, block[2]));
    assert_int_equal(masker_mask(m, 2, r.words), 0);
    assert_false(bit(&r, block[2]));
    assert_int_equal(masker_advance(m, block, 3), -EBADMSG);
    masker_destroy(m);
    compiled_destroy(c);
    rig_finish(&r);
}

/* What was forgotten is found again: the same masks after each trim. */
static void test_trimming_changes_nothing(void **state)
{
    static const char form[] = "{\"type\":\"json_object\"}";
    struct rig r;
    struct compiled *c;
    struct masker *m, *other;
    struct tokenizer *tok = text_tiny();
    uint32_t *again;
    uint64_t seed = 5;

    (void)state;
    rig_init(&r, tok, tokenizer_vocab(tok));
    again = calloc(r.n_words, 4);
    m = open_masker(&r, form, true, &c);
    assert_int_equal(masker_create(&other, c, &r.conf), 0);
    for (int i = 0; i < 60; i++) {
        int32_t id;

        assert_int_equal(masker_mask(m, 0, again), 0);
        masker_forget(m, true);
        assert_int_equal(masker_mask(other, 0, r.words), 0);
        assert_memory_equal(again, r.words, r.n_words * 4);
        assert_int_equal(masker_mask(m, 0, again), 0);
        assert_memory_equal(again, r.words, r.n_words * 4);
        id = i == 5 ? tokenizer_id(r.tok, "</think>") : pick(&r, &seed);
        if (id < 0) {
            break;
        }
        assert_int_equal(masker_advance(m, &id, 1), 0);
        assert_int_equal(masker_advance(other, &id, 1), 0);
    }
    free(again);
    masker_destroy(m);
    masker_destroy(other);
    compiled_destroy(c);
    rig_finish(&r);
}

/* A grammar that makes a new state of every byte ends in an error, not in all
 * of the memory. */
static void test_a_walk_is_bounded(void **state)
{
    struct rig r;
    struct compiled *c;
    struct masker *m;
    int n = 0, e = 0;

    (void)state;
    rig_init(&r, text_real(), REAL_VOCAB);
    m = open_masker(&r,
                    "{\"type\":\"regex\",\"regex\":\"((a|b|[a-z]{2}|.){1,500}"
                    "(.{1,3}|x){1,500}){1,500}y\"}",
                    false, &c);
    while (e == 0 && n++ < 3) {
        int32_t id = 65;

        e = masker_mask(m, 0, r.words);
        e = e < 0 ? e : masker_advance(m, &id, 1);
    }
    assert_true(e == 0 || e == -E2BIG || e == -EBADMSG);
    assert_true(masker_visits(m) < 4ul * MASK_MAX_VISITS);
    masker_destroy(m);
    compiled_destroy(c);
    rig_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_by_definition_small_vocabulary),
        cmocka_unit_test(test_masks_by_definition_published_vocabulary),
        cmocka_unit_test(test_the_published_vocabulary_in_numbers),
        cmocka_unit_test(test_a_mask_for_each_position_of_a_block),
        cmocka_unit_test(test_trimming_changes_nothing),
        cmocka_unit_test(test_a_walk_is_bounded),
    };

    return test_main(tests, NULL, NULL);
}
