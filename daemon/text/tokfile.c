/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Reads tokenizer.json, and bos and eos from the files beside it. Strict: every
 * key of the parts that decide how text is cut must be known and have a value
 * that this program carries out, and what is not understood is refused by its
 * name. The one part that is known and not carried out is post_processor: it
 * adds BOS, which is the caller's here. The vocabulary is tokvocab.c's.
 *
 * Runs once, at load, on whatever thread loads.
 */
#include "daemon/text/tokfile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/lfs.h"
#include "daemon/text/pyjson.h"

#define FILE_NAME "tokenizer.json"

/* ---- files and JSON --------------------------------------------------- */

int tokfile_json(const char *name, const char *text, size_t n, json_t **ret,
                 const struct why *why)
{
    json_error_t error;
    unsigned refused = pyjson_refused();
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);

    if (pyjson_refused() != refused) {
        json_decref(root);
        return why_set(why, -ENOMEM, "%s: out of memory", name);
    }
    if (root == NULL) {
        int err = json_error_code(&error) == json_error_out_of_memory
                      ? -ENOMEM
                      : -EBADMSG;

        if (lfs_is_pointer(text, n)) {
            return why_set(why, -EBADMSG, "%s: " LFS_SAID, name);
        }
        return why_set(why, err, "%s: not valid JSON (line %d, column %d)",
                       name, error.line, error.column);
    }
    *ret = root;
    return 0;
}

static int read_all(int fd, const char *name, char **ret, size_t *ret_n,
                    const struct why *why)
{
    struct stat st;
    size_t n = 0;
    char *p;
    int r;

    if (fstat(fd, &st) < 0) {
        r = -errno;
        return why_set(why, r, "%s: %s", name, strerror(-r));
    }
    if (!S_ISREG(st.st_mode)) {
        return why_set(why, -EBADMSG, "%s: not a regular file", name);
    }
    if (st.st_size > TOKFILE_MAX_BYTES) {
        return why_set(why, -EBADMSG, "%s: larger than %u bytes", name,
                       TOKFILE_MAX_BYTES);
    }
    p = malloc((size_t)st.st_size + 1);
    if (p == NULL) {
        return why_set(why, -ENOMEM, "out of memory");
    }
    while (n < (size_t)st.st_size) {
        ssize_t got = read(fd, p + n, (size_t)st.st_size - n);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            r = -errno;
            free(p);
            return why_set(why, r, "%s: %s", name, strerror(-r));
        }
        if (got == 0) {
            break; /* it shrank: the JSON parser will say so */
        }
        n += (size_t)got;
    }
    *ret = p;
    *ret_n = n;
    return 0;
}

int tokfile_read(int dir, const char *name, json_t **ret, const struct why *why)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    size_t n = 0;
    int r;

    if (fd < 0) {
        r = -errno;
        return r == -ENOENT ? r : why_set(why, r, "%s: %s", name, strerror(-r));
    }
    r = read_all(fd, name, &text, &n, why);
    if (r == 0) {
        r = tokfile_json(name, text, n, ret, why);
    }
    free(text);
    close(fd);
    return r;
}

static bool is_word_of(const char *key, const char *words)
{
    size_t n = strlen(key);

    while (*words != '\0') {
        size_t n_word = strcspn(words, " ");

        if (n == n_word && memcmp(words, key, n) == 0) {
            return true;
        }
        words += n_word;
        words += strspn(words, " ");
    }
    return false;
}

int tokfile_known_keys(const json_t *o, const char *what, const char *known,
                       const struct why *why)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)o, key, value)
    {
        if (!is_word_of(key, known)) {
            return why_set(why, -EBADMSG, FILE_NAME ": %s: unknown key \"%s\"",
                           what, key);
        }
    }
    return 0;
}

/* Absent, null, false and "" are the ways to say no. */
static bool is_off(const json_t *v)
{
    return v == NULL || json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

int tokfile_must_be_off(const json_t *o, const char *what, const char *key,
                        const struct why *why)
{
    if (is_off(json_object_get(o, key))) {
        return 0;
    }
    return why_set(why, -EBADMSG, FILE_NAME ": %s.%s is not supported", what,
                   key);
}

const char *tokfile_type_of(const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));

    return type != NULL ? type : "";
}

/* ---- normaliser, pre-tokeniser, decoder ------------------------------- */

static int check_normalizer(const json_t *o, const struct why *why)
{
    if (o == NULL || json_is_null(o) ||
        (strcmp(tokfile_type_of(o), "Sequence") == 0 &&
         json_array_size(json_object_get(o, "normalizers")) == 0)) {
        return 0;
    }
    return why_set(why, -EBADMSG,
                   FILE_NAME ": normalizer: \"%s\" is not supported",
                   tokfile_type_of(o));
}

static int fill_split(struct tokenizer *t, const char *what, const json_t *o,
                      const struct why *why)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text =
        regex != NULL ? regex : json_object_get(pattern, "String");
    const char *behavior = json_string_value(json_object_get(o, "behavior"));
    char detail[128] = "";
    const struct why inner = {.p = detail, .n = sizeof(detail)};
    int r = tokfile_known_keys(o, what, "type pattern behavior invert", why);

    if (r == 0) {
        r = tokfile_must_be_off(o, what, "invert", why);
    }
    if (r < 0) {
        return r;
    }
    if (behavior == NULL || strcmp(behavior, "Isolated") != 0) {
        return why_set(why, -EBADMSG,
                       FILE_NAME ": %s.behavior: \"%s\" is not supported, only "
                                 "Isolated is",
                       what, behavior != NULL ? behavior : "");
    }
    if (!json_is_string(text) || json_object_size(pattern) != 1) {
        return why_set(why, -EBADMSG,
                       FILE_NAME ": %s.pattern: expected Regex or String",
                       what);
    }
    r = split_add(&t->split, json_string_value(text), json_string_length(text),
                  regex == NULL, 0, &inner);
    return r < 0 ? why_set(why, r, FILE_NAME ": %s.%s", what, detail) : 0;
}

static int check_byte_level(const char *what, const json_t *o,
                            const struct why *why)
{
    /* With use_regex absent the default is yes. */
    if (json_object_get(o, "use_regex") == NULL) {
        return why_set(why, -EBADMSG,
                       FILE_NAME ": %s.use_regex is not supported", what);
    }
    if (!json_is_false(json_object_get(o, "add_prefix_space"))) {
        return why_set(why, -EBADMSG,
                       FILE_NAME ": %s.add_prefix_space is not supported",
                       what);
    }
    return tokfile_must_be_off(o, what, "use_regex", why);
}

/* Splits, then ByteLevel, which must be the last. */
static int fill_pre_tokenizer(struct tokenizer *t, const json_t *o,
                              const struct why *why)
{
    const json_t *list = json_object_get(o, "pretokenizers");
    size_t n = json_array_size(list);
    char what[48];
    int r;

    if (strcmp(tokfile_type_of(o), "ByteLevel") == 0) {
        return check_byte_level("pre_tokenizer", o, why);
    }
    if (strcmp(tokfile_type_of(o), "Sequence") != 0 || n == 0) {
        return why_set(why, -EBADMSG,
                       FILE_NAME ": pre_tokenizer: \"%s\" is not supported",
                       tokfile_type_of(o));
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        bool last = i + 1 == n;

        snprintf(what, sizeof(what), "pre_tokenizer[%zu]", i);
        if (strcmp(tokfile_type_of(item), last ? "ByteLevel" : "Split") != 0) {
            return why_set(why, -EBADMSG,
                           FILE_NAME ": %s: \"%s\" is not supported here", what,
                           tokfile_type_of(item));
        }
        r = last ? check_byte_level(what, item, why)
                 : fill_split(t, what, item, why);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* It adds BOS and moves offsets; neither is used here. What is not known to do
 * only that is refused. */
static bool known_post_processor(const json_t *o)
{
    const char *type = tokfile_type_of(o);

    return strcmp(type, "ByteLevel") == 0 ||
           strcmp(type, "TemplateProcessing") == 0;
}

static int check_post_processor(const json_t *o, const struct why *why)
{
    const json_t *list = json_object_get(o, "processors");
    const json_t *unknown = NULL;

    if (o == NULL || json_is_null(o)) {
        return 0;
    }
    if (strcmp(tokfile_type_of(o), "Sequence") != 0) {
        unknown = known_post_processor(o) ? NULL : o;
    }
    for (size_t i = 0; unknown == NULL && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        unknown = known_post_processor(item) ? NULL : item;
    }
    return unknown == NULL
               ? 0
               : why_set(why, -EBADMSG,
                         FILE_NAME ": post_processor: \"%s\" is not supported",
                         tokfile_type_of(unknown));
}

static int check_decoder(const json_t *o, const struct why *why)
{
    const json_t *list = json_object_get(o, "decoders");

    if (strcmp(tokfile_type_of(o), "Sequence") == 0 &&
        json_array_size(list) == 1) {
        o = json_array_get(list, 0);
    }
    if (strcmp(tokfile_type_of(o), "ByteLevel") == 0) {
        return 0;
    }
    return why_set(why, -EBADMSG,
                   FILE_NAME ": decoder: \"%s\" is not supported",
                   tokfile_type_of(o));
}

int tokfile_fill(struct tokenizer *t, const json_t *root, const struct why *why)
{
    int r;

    t->bos = t->eos = -1;
    r = tokfile_known_keys(root, "top level",
                           "version truncation padding added_tokens normalizer "
                           "pre_tokenizer post_processor decoder model",
                           why);
    if (r == 0) {
        r = check_normalizer(json_object_get(root, "normalizer"), why);
    }
    if (r == 0) {
        r = fill_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), why);
    }
    if (r == 0) {
        r = check_post_processor(json_object_get(root, "post_processor"), why);
    }
    if (r == 0) {
        r = check_decoder(json_object_get(root, "decoder"), why);
    }
    if (r == 0) {
        r = tokvocab_fill(t, json_object_get(root, "model"),
                          json_object_get(root, "added_tokens"), why);
    }
    return r;
}

/* ---- bos and eos ------------------------------------------------------ */

/* A token of tokenizer_config.json: its text, or an object with the text in
 * content. Absent or null: *ret stays. */
static int named_token(const struct tokenizer *t, const json_t *config,
                       const char *key, int32_t *ret, const struct why *why)
{
    const json_t *o = json_object_get(config, key);
    const char *text;
    int32_t id;

    if (o == NULL || json_is_null(o)) {
        return 0;
    }
    if (json_is_object(o)) {
        o = json_object_get(o, "content");
    }
    text = json_string_value(o);
    id = text != NULL ? added_id(&t->raw, text, json_string_length(o)) : -1;
    if (id < 0 && text != NULL) {
        id = added_id(&t->normalized, text, json_string_length(o));
    }
    if (id < 0) {
        return why_set(why, -EBADMSG,
                       "tokenizer_config.json: %s: not an added token", key);
    }
    *ret = id;
    return 0;
}

/* bos_token_id of config.json, nested (3.7) or flat (3.5). */
static int config_bos(struct tokenizer *t, const json_t *config,
                      const struct why *why)
{
    const json_t *text = json_object_get(config, "text_config");
    const json_t *bos = json_object_get(text, "bos_token_id");
    size_t n;

    if (bos == NULL || json_is_null(bos)) {
        bos = json_object_get(config, "bos_token_id");
    }
    if (bos == NULL || json_is_null(bos)) {
        return 0;
    }
    if (!json_is_integer(bos) || json_integer_value(bos) < 0 ||
        json_integer_value(bos) > INT32_MAX ||
        vocab_bytes(&t->vocab, (int32_t)json_integer_value(bos), &n) == NULL) {
        return why_set(why, -EBADMSG,
                       "config.json: bos_token_id: no such token");
    }
    t->bos = (int32_t)json_integer_value(bos);
    return 0;
}

int tokfile_ends(struct tokenizer *t, int dir, const struct why *why)
{
    json_t *config = NULL;
    int r = tokfile_read(dir, "tokenizer_config.json", &config, why);

    if (r == 0) {
        r = named_token(t, config, "bos_token", &t->bos, why);
    }
    if (r == 0) {
        r = named_token(t, config, "eos_token", &t->eos, why);
    }
    json_decref(config);
    if (r < 0 && r != -ENOENT) {
        return r;
    }
    config = NULL;
    r = tokfile_read(dir, "config.json", &config, why);
    if (r == 0) {
        r = config_bos(t, config, why);
    }
    json_decref(config);
    return r == -ENOENT ? 0 : r;
}
