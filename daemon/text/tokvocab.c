/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * model and added_tokens of tokenizer.json: vocabulary, merges, added tokens.
 * Tokens are kept as bytes: the letters that stand for bytes in the file
 * (GPT-2's alphabet) are undone here and exist nowhere else. A token whose
 * name is not written in that alphabet keeps its name as its bytes, and no
 * merge can reach it.
 *
 * Runs once, at load. The invariant: every byte has a token, so that every text
 * can be encoded.
 */
#include "daemon/text/tokfile.h"

#include <stdlib.h>
#include <string.h>

#define FILE_NAME "tokenizer.json"

/* ---- the alphabet of bytes -------------------------------------------- */

#define ALPHABET_END 0x144 /* 256 + the 68 bytes that are not printable */

struct alphabet {
    int16_t byte[ALPHABET_END]; /* by character, -1: not of the alphabet */
};

static void alphabet_init(struct alphabet *a)
{
    int next = 256;

    memset(a, 0xff, sizeof(*a));
    for (int b = 0; b < 256; b++) {
        bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

        a->byte[self ? b : next++] = (int16_t)b;
    }
}

/* Undoes the alphabet: token -> bytes, appended to out. False where some
 * character is not of it. token is valid UTF-8 (jansson saw to it). */
static bool to_bytes(const struct alphabet *a, const char *token, size_t n,
                     struct str *out)
{
    const uint8_t *p = (const uint8_t *)token;

    for (size_t i = 0; i < n;) {
        unsigned c = p[i++];

        if (c >= 0xe0) {
            return false;
        }
        if (c >= 0x80) {
            c = (c & 0x1f) << 6 | (p[i++] & 0x3f);
        }
        if (c >= ALPHABET_END || a->byte[c] < 0) {
            return false;
        }
        str_putc(out, (char)a->byte[c]);
    }
    return true;
}

/* ---- model ------------------------------------------------------------ */

/* What the functions below share. */
struct fill {
    struct tokenizer *t;
    struct alphabet alphabet;
    struct str tmp;
    const json_t *vocab;
    const struct why *why;
};

static int fill_token(struct fill *f, const char *key, const json_t *value)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    bool findable;
    int r;

    if (id < 0 || id >= VOCAB_MAX_IDS) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": model.vocab: \"%s\": not an id", key);
    }
    f->tmp.n = 0;
    findable = to_bytes(&f->alphabet, key, strlen(key), &f->tmp);
    if (!findable) {
        f->tmp.n = 0;
        str_puts(&f->tmp, key);
    }
    r = f->tmp.err;
    if (r == 0) {
        r = vocab_add(&f->t->vocab, (int32_t)id, f->tmp.n != 0 ? f->tmp.p : "",
                      f->tmp.n, findable && f->tmp.n != 0);
    }
    if (r == -EEXIST) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": model.vocab: two tokens have the id %d",
                       (int)id);
    }
    if (f->tmp.n > f->t->max_bytes) {
        f->t->max_bytes = f->tmp.n;
    }
    return r < 0 ? why_set(f->why, r, "out of memory") : 0;
}

static int fill_vocab(struct fill *f)
{
    const char *key;
    json_t *value;
    int r;

    if (!json_is_object(f->vocab)) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": model.vocab: expected an object");
    }
    r = vocab_init(&f->t->vocab, (int)json_object_size(f->vocab) + 1024);
    if (r < 0) {
        return why_set(f->why, r, "out of memory");
    }
    json_object_foreach((json_t *)f->vocab, key, value)
    {
        r = fill_token(f, key, value);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int fill_bytes(struct fill *f)
{
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        int32_t id = vocab_find(&f->t->vocab, &byte, 1);

        if (id < 0) {
            return why_set(f->why, -EBADMSG,
                           FILE_NAME ": model.vocab: no token for byte 0x%02x",
                           (unsigned)b);
        }
        f->t->bpe.byte_id[b] = id;
    }
    return 0;
}

/* The two sides of a merge, in either of its two spellings. */
static bool merge_sides(const json_t *merge, const char **left, size_t *n_left,
                        const char **right, size_t *n_right)
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        const char *blank = strchr(text, ' ');

        if (blank == NULL || strchr(blank + 1, ' ') != NULL) {
            return false;
        }
        *left = text;
        *n_left = (size_t)(blank - text);
        *right = blank + 1;
    } else {
        const json_t *l = json_array_get(merge, 0);
        const json_t *r = json_array_get(merge, 1);

        if (json_array_size(merge) != 2 || !json_is_string(l) ||
            !json_is_string(r)) {
            return false;
        }
        *left = json_string_value(l);
        *n_left = json_string_length(l);
        *right = json_string_value(r);
    }
    *n_right = strlen(*right);
    return *n_left != 0 && *n_right != 0;
}

static int fill_merge(struct fill *f, size_t i, const json_t *merge)
{
    const struct vocab *v = &f->t->vocab;
    const char *left, *right;
    size_t n_left, n_right, n;
    int32_t l = -1, r = -1, m = -1;

    if (!merge_sides(merge, &left, &n_left, &right, &n_right)) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": model.merges[%zu]: expected two tokens", i);
    }
    f->tmp.n = 0;
    if (to_bytes(&f->alphabet, left, n_left, &f->tmp)) {
        n = f->tmp.n;
        if (to_bytes(&f->alphabet, right, n_right, &f->tmp) &&
            f->tmp.err == 0) {
            l = vocab_find(v, f->tmp.p, n);
            r = vocab_find(v, f->tmp.p + n, f->tmp.n - n);
            m = vocab_find(v, f->tmp.p, f->tmp.n);
        }
    }
    if (f->tmp.err != 0) {
        return why_set(f->why, -ENOMEM, "out of memory");
    }
    if (l < 0 || r < 0 || m < 0) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": model.merges[%zu]: not in the vocabulary",
                       i);
    }
    bpe_add(&f->t->bpe, l, r, m);
    return 0;
}

static int fill_merges(struct fill *f, const json_t *merges)
{
    size_t n = json_array_size(merges);
    int r;

    if (!json_is_array(merges) || n > VOCAB_MAX_IDS) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": model.merges: expected a list");
    }
    r = bpe_init(&f->t->bpe, (uint32_t)n);
    if (r < 0) {
        return why_set(f->why, r, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        r = fill_merge(f, i, json_array_get(merges, i));
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* unk_token, fuse_unk and byte_fallback say what happens to a byte without a
 * token: there is none, fill_bytes() makes sure. */
static int fill_model(struct fill *f, const json_t *model)
{
    static const char *const off[] = {"dropout", "continuing_subword_prefix",
                                      "end_of_word_suffix"};
    int r;

    if (strcmp(tokfile_type_of(model), "BPE") != 0) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": model.type: \"%s\" is not supported, only "
                                 "BPE is",
                       tokfile_type_of(model));
    }
    r = tokfile_known_keys(
        model, "model",
        "type dropout unk_token continuing_subword_prefix "
        "end_of_word_suffix fuse_unk byte_fallback ignore_merges "
        "vocab merges",
        f->why);
    for (size_t i = 0; r == 0 && i < sizeof(off) / sizeof(off[0]); i++) {
        r = tokfile_must_be_off(model, "model", off[i], f->why);
    }
    if (r < 0) {
        return r;
    }
    f->vocab = json_object_get(model, "vocab");
    r = fill_vocab(f);
    if (r < 0) {
        return r;
    }
    r = fill_merges(f, json_object_get(model, "merges"));
    if (r < 0) {
        return r;
    }
    if (json_is_true(json_object_get(model, "ignore_merges"))) {
        f->t->bpe.whole = &f->t->vocab;
    }
    return fill_bytes(f);
}

/* ---- added tokens ----------------------------------------------------- */

/* An added token is one of the vocabulary, by the same text and id, or a new
 * one. */
static int add_to_vocab(struct fill *f, const char *text, size_t n, int32_t id)
{
    const json_t *known = json_object_get(f->vocab, text);
    const char *bytes;
    size_t n_bytes;
    int r;

    if (known == NULL) {
        r = vocab_add(&f->t->vocab, id, text, n, false);
        if (r == -EEXIST) {
            return why_set(f->why, -EBADMSG,
                           FILE_NAME ": added_tokens: id %d is taken", (int)id);
        }
        return r < 0 ? why_set(f->why, r, "out of memory") : 0;
    }
    bytes = vocab_bytes(&f->t->vocab, id, &n_bytes);
    if (json_integer_value(known) != id || n_bytes != n ||
        memcmp(bytes, text, n) != 0) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": added_tokens: id %d: the vocabulary says "
                                 "otherwise",
                       (int)id);
    }
    return 0;
}

static int fill_added(struct fill *f, size_t i, const json_t *token)
{
    static const char *const off[] = {"single_word", "lstrip", "rstrip"};
    const json_t *content = json_object_get(token, "content");
    json_t *number = json_object_get(token, "id");
    json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
    size_t n = json_string_length(content);
    struct added *list;
    char what[48];
    int r;

    snprintf(what, sizeof(what), "added_tokens[%zu]", i);
    if (n == 0 || n > ADDED_MAX_BYTES || id < 0 || id >= VOCAB_MAX_IDS) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": %s: expected an id and a content of at "
                                 "most %d bytes",
                       what, ADDED_MAX_BYTES);
    }
    r = tokfile_known_keys(
        token, what, "id content single_word lstrip rstrip normalized special",
        f->why);
    for (size_t k = 0; r == 0 && k < sizeof(off) / sizeof(off[0]); k++) {
        r = tokfile_must_be_off(token, what, off[k], f->why);
    }
    if (r == 0) {
        r = add_to_vocab(f, json_string_value(content), n, (int32_t)id);
    }
    if (r < 0) {
        return r;
    }
    f->t->vocab.entry[id].special =
        json_is_true(json_object_get(token, "special"));
    if (n > f->t->max_bytes) {
        f->t->max_bytes = n;
    }
    list = json_is_true(json_object_get(token, "normalized"))
               ? &f->t->normalized
               : &f->t->raw;
    r = added_add(list, json_string_value(content), n, (int32_t)id);
    return r < 0 ? why_set(f->why, r, "out of memory") : 0;
}

static int fill_added_all(struct fill *f, const json_t *tokens)
{
    int r;

    if (tokens != NULL && !json_is_array(tokens) && !json_is_null(tokens)) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": added_tokens: expected a list");
    }
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        r = fill_added(f, i, json_array_get(tokens, i));
        if (r < 0) {
            return r;
        }
    }
    if (added_sort(&f->t->raw) < 0 || added_sort(&f->t->normalized) < 0) {
        return why_set(f->why, -EBADMSG,
                       FILE_NAME ": added_tokens: the same text twice");
    }
    return 0;
}

int tokvocab_fill(struct tokenizer *t, const json_t *model, const json_t *added,
                  const struct why *why)
{
    struct fill f = {.t = t, .why = why};
    int r;

    alphabet_init(&f.alphabet);
    r = fill_model(&f, model);
    if (r == 0) {
        r = fill_added_all(&f, added);
    }
    str_finish(&f.tmp);
    return r;
}
