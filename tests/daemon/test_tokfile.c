/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What of tokenizer.json is taken and what is refused, and where bos and eos
 * come from. Each refused file is a good one with one value changed, and the
 * refusal must name that value.
 */
#include "daemon/text/tokfile.h"

#include <errno.h>
#include <sys/stat.h>

#include "tests/daemon/text.h"

static const char ADDED[] = "{\"id\":300,\"content\":\"<a>\",\"special\":true},"
                            "{\"id\":301,\"content\":\"<b>\"}";
static const char SPLITS[] =
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false}";
static const char VOCAB[] = ",\"ab\":256,\"abc\":257,\"bc\":258";
static const char MERGES[] = "\"a b\",\"ab c\"";

static struct tokenizer *load(const char *json)
{
    struct tokenizer *t = NULL;
    char why[256] = "";

    if (tokenizer_load_json(&t, json, strlen(json), why, sizeof(why)) < 0) {
        fail_msg("%s", why);
    }
    return t;
}

static void assert_encodes(const struct tokenizer *t, const char *text, int n,
                           const int32_t *expected)
{
    struct text_ids ids = text_encode(t, text, strlen(text), true);

    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.v, expected, sizeof(*expected) * (size_t)n);
    free(ids.v);
}

/* ---- taken ------------------------------------------------------------ */

static void test_both_spellings_of_merges(void **state)
{
    static const char *const merges[] = {MERGES,
                                         "[\"a\",\"b\"],[\"ab\",\"c\"]"};
    static const int32_t expected[] = {257, ' ', 256, 'a'};

    (void)state;
    for (int i = 0; i < 2; i++) {
        char *json = text_bytes_json(NULL, SPLITS, VOCAB, merges[i]);
        struct tokenizer *t = load(json);

        assert_encodes(t, "abc aba", 4, expected);
        tokenizer_destroy(t);
        free(json);
    }
}

/* Sets what the dotted path names (numbers are list indices) in a good file to
 * a JSON value, "" deletes it; the result is the caller's. */
static char *changed(const char *path, const char *value)
{
    char *json = text_bytes_json(ADDED, SPLITS, VOCAB, MERGES);
    json_t *root = json_loads(json, 0, NULL);
    json_t *new =
        *value != '\0' ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    char *copy = strdup(path);
    char *rest = copy;
    char *key = strsep(&rest, ".");
    json_t *o = root;

    assert_non_null(root);
    while (rest != NULL) {
        o = json_is_array(o) ? json_array_get(o, strtoul(key, NULL, 10))
                             : json_object_get(o, key);
        assert_non_null(o);
        key = strsep(&rest, ".");
    }
    if (json_is_array(o)) {
        json_array_set_new(o, strtoul(key, NULL, 10), new);
    } else if (new != NULL) {
        json_object_set_new(o, key, new);
    } else {
        json_object_del(o, key);
    }
    free(json);
    json = json_dumps(root, 0);
    free(copy);
    json_decref(root);
    return json;
}

static void test_harmless_variants_are_taken(void **state)
{
    static const char *const ok[][2] = {
        {"normalizer", "null"},
        {"normalizer", ""},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[]}"},
        {"post_processor", ""},
        {"post_processor", "{\"type\":\"ByteLevel\",\"use_regex\":true}"},
        {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}"},
        {"post_processor", "{\"type\":\"Sequence\",\"processors\":["
                           "{\"type\":\"ByteLevel\"},"
                           "{\"type\":\"TemplateProcessing\"}]}"},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":["
                    "{\"type\":\"ByteLevel\"}]}"},
        {"truncation", "null"},
        {"model.unk_token", "null"},
        {"model.dropout", "null"},
        {"model.fuse_unk", "false"},
        {"model.byte_fallback", "false"},
        {"model.continuing_subword_prefix", "\"\""},
        {"model.end_of_word_suffix", "null"},
        {"model.ignore_merges", "false"},
        {"added_tokens.0.lstrip", "false"},
    };
    static const int32_t expected[] = {257, ' ', 256, 300};

    (void)state;
    for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); i++) {
        char *json = changed(ok[i][0], ok[i][1]);
        struct tokenizer *t = load(json);

        assert_encodes(t, "abc ab<a>", 4, expected);
        tokenizer_destroy(t);
        free(json);
    }
}

static void test_ignore_merges_takes_whole_words(void **state)
{
    static const int32_t merged[] = {'b', 'c'};
    static const int32_t whole[] = {258};
    char *json = changed("model.ignore_merges", "false");
    struct tokenizer *t = load(json);

    /* No merge makes "bc". */
    (void)state;
    assert_encodes(t, "bc", 2, merged);
    tokenizer_destroy(t);
    free(json);
    json = changed("model.ignore_merges", "true");
    t = load(json);
    assert_encodes(t, "bc", 1, whole);
    tokenizer_destroy(t);
    free(json);
}

static void test_a_lone_byte_level_is_one_word(void **state)
{
    static const int32_t expected[] = {256, ' ', 257};
    char *json =
        changed("pre_tokenizer", "{\"type\":\"ByteLevel\",\"use_regex\":false,"
                                 "\"add_prefix_space\":false}");
    struct tokenizer *t = load(json);

    (void)state;
    assert_encodes(t, "ab abc", 3, expected);
    tokenizer_destroy(t);
    free(json);
}

static void test_special_is_the_tokens_own_flag(void **state)
{
    char *json = changed("truncation", "null");
    struct tokenizer *t = load(json);

    (void)state;
    assert_true(tokenizer_is_special(t, 300));
    assert_false(tokenizer_is_special(t, 301));
    assert_int_equal(tokenizer_id(t, "<b>"), 301);
    assert_int_equal(tokenizer_vocab(t), 302);
    tokenizer_destroy(t);
    free(json);
}

/* ---- refused ---------------------------------------------------------- */

static void test_what_is_not_understood_is_named(void **state)
{
    static const char *const bad[][3] = {
        {"nonsense", "1", "nonsense"},
        {"normalizer", "{\"type\":\"NFC\"}", "NFC"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[1]}",
         "normalizer"},
        {"pre_tokenizer", "", "pre_tokenizer"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\"}", "Metaspace"},
        {"pre_tokenizer.pretokenizers", "[]", "pre_tokenizer"},
        {"pre_tokenizer.pretokenizers.0.type", "\"Digits\"", "Digits"},
        {"pre_tokenizer.pretokenizers.0.behavior", "\"Removed\"", "Removed"},
        {"pre_tokenizer.pretokenizers.0.behavior", "", "behavior"},
        {"pre_tokenizer.pretokenizers.0.invert", "true", "invert"},
        {"pre_tokenizer.pretokenizers.0.more", "1", "more"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{}", "pattern"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"(\"", "pattern"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"\\\\w+\"", "\\w"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "3", "pattern"},
        {"pre_tokenizer.pretokenizers.1", "{\"type\":\"Split\"}", "Split"},
        {"pre_tokenizer.pretokenizers.1.use_regex", "true", "use_regex"},
        {"pre_tokenizer.pretokenizers.1.use_regex", "", "use_regex"},
        {"pre_tokenizer.pretokenizers.1.add_prefix_space", "true",
         "add_prefix_space"},
        {"pre_tokenizer.pretokenizers.1.add_prefix_space", "",
         "add_prefix_space"},
        {"post_processor", "{\"type\":\"BertProcessing\"}", "BertProcessing"},
        {"post_processor",
         "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"Roberta\"}]}",
         "Roberta"},
        {"decoder", "", "decoder"},
        {"decoder", "{\"type\":\"Metaspace\"}", "Metaspace"},
        {"decoder",
         "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},"
         "{\"type\":\"Strip\"}]}",
         "Sequence"},
        {"model", "", "model.type"},
        {"model.type", "\"Unigram\"", "Unigram"},
        {"model.more", "1", "more"},
        {"model.", "1", "\"\""},
        {"model.type dropout", "1", "type dropout"},
        {"model.dropout", "0.1", "dropout"},
        {"model.continuing_subword_prefix", "\"##\"",
         "continuing_subword_prefix"},
        {"model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
        {"model.vocab", "[]", "model.vocab"},
        {"model.vocab", "{}", "merges[0]"},
        {"model.vocab.A", "", "0x41"},
        {"model.vocab.A", "66", "id 66"},
        {"model.vocab.A", "-1", "\"A\""},
        {"model.vocab.A", "\"65\"", "\"A\""},
        {"model.vocab.A", "16777216", "\"A\""},
        {"model.vocab.A", "99999999999", "\"A\""},
        {"model.vocab.abc", "", "merges[1]"},
        {"model.merges", "{}", "merges"},
        {"model.merges", "", "merges"},
        {"model.merges.1", "\"ab\"", "merges[1]"},
        {"model.merges.1", "\"a b c\"", "merges[1]"},
        {"model.merges.1", "\" b\"", "merges[1]"},
        {"model.merges.1", "[\"a\"]", "merges[1]"},
        {"model.merges.1", "[\"a\",\"b\",\"c\"]", "merges[1]"},
        {"model.merges.1", "[\"a\",1]", "merges[1]"},
        {"model.merges.1", "7", "merges[1]"},
        {"model.merges.1", "\"a \\u4e2d\"", "merges[1]"},
        {"added_tokens", "{}", "added_tokens"},
        {"added_tokens.1.content", "\"\"", "added_tokens[1]"},
        {"added_tokens.1.content", "\"<a>\"", "added_tokens"},
        {"added_tokens.1.content", "\"abc\"", "id 301"},
        {"added_tokens.1.content", "7", "added_tokens[1]"},
        {"added_tokens.1.id", "300", "id 300"},
        {"added_tokens.1.id", "65", "id 65"},
        {"added_tokens.1.id", "-1", "added_tokens[1]"},
        {"added_tokens.1.id", "", "added_tokens[1]"},
        {"added_tokens.1.lstrip", "true", "lstrip"},
        {"added_tokens.1.rstrip", "true", "rstrip"},
        {"added_tokens.1.single_word", "true", "single_word"},
        {"added_tokens.1.more", "1", "more"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *json = changed(bad[i][0], bad[i][1]);
        struct tokenizer *t = NULL;
        char why[256] = "";

        if (tokenizer_load_json(&t, json, strlen(json), why, sizeof(why)) !=
                -EBADMSG ||
            t != NULL) {
            fail_msg("%s = %s was taken", bad[i][0], bad[i][1]);
        }
        if (strstr(why, bad[i][2]) == NULL) {
            fail_msg("%s = %s: \"%s\" does not name %s", bad[i][0], bad[i][1],
                     why, bad[i][2]);
        }
        free(json);
    }
}

static void test_broken_json_says_where(void **state)
{
    static const char *const bad[] = {"",    "{",    "[1]", "{\"a\":1,\"a\":2}",
                                      "{}x", "\xff", "3"};
    struct tokenizer *t = NULL;
    char why[256];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why[0] = '\0';
        assert_int_equal(
            tokenizer_load_json(&t, bad[i], strlen(bad[i]), why, sizeof(why)),
            -EBADMSG);
        assert_non_null(strstr(why, "tokenizer.json"));
    }
    /* Nobody asks why. */
    assert_int_equal(tokenizer_load_json(&t, "{", 1, NULL, 0), -EBADMSG);
    assert_null(t);
}

static void test_an_lfs_pointer_is_named(void **state)
{
    static const char text[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:1\n";
    struct tokenizer *t = NULL;
    char why[256] = "";

    (void)state;
    assert_int_equal(
        tokenizer_load_json(&t, text, strlen(text), why, sizeof(why)),
        -EBADMSG);
    assert_string_equal(why, "tokenizer.json: a Git LFS pointer, not the file "
                             "itself: run git lfs pull");
}

/* Every truncation of a good file, and every byte of it turned over, either
 * loads or is refused. */
static void test_damage_never_crashes(void **state)
{
    char *json = text_bytes_json(ADDED, SPLITS, VOCAB, MERGES);
    size_t n = strlen(json);
    struct tokenizer *t;
    char why[256];
    int r;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tokenizer_load_json(&t, json, i, why, sizeof(why)),
                         -EBADMSG);
        for (int bit = 0; bit < 8; bit += 3) {
            json[i] = (char)(json[i] ^ 1 << bit);
            r = tokenizer_load_json(&t, json, n, why, sizeof(why));
            json[i] = (char)(json[i] ^ 1 << bit);
            if (r == 0) {
                tokenizer_destroy(t);
            } else {
                assert_int_equal(r, -EBADMSG);
            }
        }
    }
    free(json);
}

/* ---- the folder ------------------------------------------------------- */

static char dir[] = "/tmp/test_tokfile.XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_dir(void **state)
{
    char *json = text_bytes_json(ADDED, SPLITS, VOCAB, MERGES);

    (void)state;
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    put("tokenizer.json", json);
    free(json);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(in_dir("tokenizer.json"));
    unlink(in_dir("tokenizer_config.json"));
    unlink(in_dir("config.json"));
    return rmdir(dir);
}

static void test_bos_and_eos_come_from_the_neighbours(void **state)
{
    static const struct {
        const char *tokenizer_config, *config;
        int bos, eos;
    } c[] = {
        {NULL, NULL, -1, -1},
        {"{}", "{}", -1, -1},
        {"{\"bos_token\":\"<a>\",\"eos_token\":\"<b>\"}", NULL, 300, 301},
        {"{\"bos_token\":{\"content\":\"<b>\"},\"eos_token\":null}", NULL, 301,
         -1},
        {NULL, "{\"bos_token_id\":65}", 65, -1},
        {"{\"bos_token\":\"<a>\"}", "{\"bos_token_id\":null}", 300, -1},
        {"{\"bos_token\":\"<a>\"}", "{\"bos_token_id\":66}", 66, -1},
        {"{}", "{\"text_config\":{\"bos_token_id\":67},\"bos_token_id\":68}",
         67, -1},
        /* Whatever class it claims to be (fr_16). */
        {"{\"tokenizer_class\":\"T5Tokenizer\",\"bos_token\":\"<a>\"}", "{}",
         300, -1},
    };
    static const int32_t expected[] = {257, ' ', ' ', 256};

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        struct tokenizer *t;
        int32_t eos = -1;

        unlink(in_dir("tokenizer_config.json"));
        unlink(in_dir("config.json"));
        if (c[i].tokenizer_config != NULL) {
            put("tokenizer_config.json", c[i].tokenizer_config);
        }
        if (c[i].config != NULL) {
            put("config.json", c[i].config);
        }
        t = text_tokenizer(dir);
        assert_int_equal(tokenizer_bos(t), c[i].bos);
        assert_int_equal(tokenizer_eos(t, &eos, 1), c[i].eos >= 0);
        assert_int_equal(eos, c[i].eos);
        assert_encodes(t, "abc  ab", 4, expected);
        tokenizer_destroy(t);
    }
}

static void test_bad_neighbours_are_named(void **state)
{
    static const char *const bad[][2] = {
        {"tokenizer_config.json", "{"},
        {"tokenizer_config.json", "{\"bos_token\":\"<none>\"}"},
        {"tokenizer_config.json", "{\"eos_token\":\"a\"}"},
        {"tokenizer_config.json", "{\"bos_token\":3}"},
        {"config.json", "nonsense"},
        {"config.json", "{\"bos_token_id\":-1}"},
        {"config.json", "{\"bos_token_id\":4096}"},
        {"config.json", "{\"bos_token_id\":\"0\"}"},
        {"config.json", "{\"bos_token_id\":4294967296}"},
    };
    struct tokenizer *t = NULL;
    char why[256];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put("tokenizer_config.json", "{}");
        put("config.json", "{}");
        put(bad[i][0], bad[i][1]);
        why[0] = '\0';
        assert_int_equal(tokenizer_load(&t, dir, why, sizeof(why)), -EBADMSG);
        assert_ptr_equal(strstr(why, bad[i][0]), why);
        assert_null(t);
    }
    put("tokenizer_config.json", "{}");
    put("config.json", "{}");
}

static void test_missing_and_odd_files(void **state)
{
    struct tokenizer *t = NULL;
    char why[256] = "";

    (void)state;
    assert_int_equal(tokenizer_load(&t, "/nowhere", why, sizeof(why)), -ENOENT);
    assert_non_null(strstr(why, "/nowhere"));
    assert_int_equal(
        tokenizer_load(&t, in_dir("tokenizer.json"), why, sizeof(why)),
        -ENOTDIR);
    unlink(in_dir("config.json"));
    assert_int_equal(mkfifo(in_dir("config.json"), 0600), 0);
    assert_int_equal(tokenizer_load(&t, dir, why, sizeof(why)), -EBADMSG);
    assert_non_null(strstr(why, "not a regular file"));
    unlink(in_dir("config.json"));
    unlink(in_dir("tokenizer.json"));
    assert_int_equal(tokenizer_load(&t, dir, why, sizeof(why)), -ENOENT);
    assert_non_null(strstr(why, "tokenizer.json"));
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_spellings_of_merges),
        cmocka_unit_test(test_harmless_variants_are_taken),
        cmocka_unit_test(test_ignore_merges_takes_whole_words),
        cmocka_unit_test(test_a_lone_byte_level_is_one_word),
        cmocka_unit_test(test_special_is_the_tokens_own_flag),
        cmocka_unit_test(test_what_is_not_understood_is_named),
        cmocka_unit_test(test_broken_json_says_where),
        cmocka_unit_test(test_an_lfs_pointer_is_named),
        cmocka_unit_test(test_damage_never_crashes),
        cmocka_unit_test(test_bos_and_eos_come_from_the_neighbours),
        cmocka_unit_test(test_bad_neighbours_are_named),
        cmocka_unit_test(test_missing_and_odd_files),
    };

    return test_main(tests, make_dir, remove_dir);
}
