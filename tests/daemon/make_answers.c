/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Random answers to each schema of a file, drawn under its masks with the small
 * vocabulary: a line {"name", "schema", "text"} each. test_schema_valid.sh
 * gives them to an independent validator.
 *
 *     make_answers SCHEMAS TOKENIZER_DIR N
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/format.h"
#include "daemon/text/mask.h"
#include "daemon/text/tokenizer.h"

#define FREE_TOKENS 40 /* drawn at random; then what tends to end is tried */
#define MAX_TOKENS 4000

static uint64_t seed = 1;

static uint32_t draw(uint32_t n)
{
    uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) % n);
}

static void die(const char *what)
{
    fprintf(stderr, "make_answers: %s\n", what);
    exit(1);
}

struct rig {
    struct tokenizer *tok;
    struct lexicon *lex;
    int vocab;
    uint32_t *words;
    int32_t single[256]; /* tokens of one byte, -1 */
};

static bool allowed(const struct rig *r, int32_t id)
{
    return id >= 0 && (r->words[id >> 5] >> (id & 31) & 1);
}

static int32_t pick(const struct rig *r, int n)
{
    int32_t from = (int32_t)draw((uint32_t)r->vocab);

    if (n > FREE_TOKENS || draw(4) == 0) {
        static const char *const ends[] = {"\"]}:,.n0e1aZ", "]}\"0nea1Z.:,",
                                           "}]\".,a1nZ:e0"};

        for (const char *p = ends[draw(3)]; *p != '\0'; p++) {
            if (allowed(r, r->single[(uint8_t)*p])) {
                return r->single[(uint8_t)*p];
            }
        }
    }
    for (int32_t i = 0; i < r->vocab; i++) {
        if (allowed(r, (from + i) % r->vocab)) {
            return (from + i) % r->vocab;
        }
    }
    return -1;
}

/* One answer; NULL: it did not end. */
static char *answer(struct rig *r, const struct compiled *c)
{
    const struct masker_conf conf = {r->vocab, NULL, 0};
    struct masker *m;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    bool over = false;

    if (f == NULL || masker_create(&m, c, &conf) < 0) {
        die("no memory");
    }
    for (int i = 0; i < MAX_TOKENS && !over; i++) {
        size_t len;
        const char *p;
        int32_t id;

        if (masker_mask(m, 0, r->words) < 0) {
            die("a mask failed");
        }
        /* No stop ids: where the text may end it does, more often than not. */
        if (masker_accepts(m) && (i > FREE_TOKENS || draw(3) == 0)) {
            over = true;
            break;
        }
        id = pick(r, i);
        if (id < 0 || masker_advance(m, &id, 1) < 0) {
            die("a mask allows nothing, or something that does not fit");
        }
        p = tokenizer_bytes(r->tok, id, &len);
        fwrite(p, 1, len, f);
        over = masker_is_over(m);
    }
    fclose(f);
    masker_destroy(m);
    if (!over) {
        free(text);
        return NULL;
    }
    return text;
}

static void one(struct rig *r, const json_t *line, int n)
{
    json_t *schema = json_object_get(line, "schema");
    json_t *form =
        json_pack("{s:s,s:O}", "type", "json_schema", "schema", schema);
    char *text = json_dumps(form, 0);
    struct format_args a = {.text = text, .n = strlen(text)};
    char buf[256] = "";
    struct why why = {buf, sizeof(buf)};
    struct compiled *c;
    struct gram *g;

    if (format_compile(&g, &a, &why) < 0 ||
        compiled_create(&c, g, r->lex) < 0) {
        die(buf);
    }
    for (int i = 0; i < n; i++) {
        char *p = answer(r, c);
        json_t *out;

        if (p == NULL) {
            fprintf(stderr, "%s: an answer that did not end\n",
                    json_string_value(json_object_get(line, "name")));
            continue;
        }
        out = json_pack("{s:O,s:O,s:s}", "name", json_object_get(line, "name"),
                        "schema", schema, "text", p);
        if (out == NULL) {
            die("an answer that is not UTF-8");
        }
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(out);
        free(p);
    }
    compiled_destroy(c);
    json_decref(form);
    free(text);
}

int main(int argc, char **argv)
{
    struct rig r;
    FILE *f = argc == 4 ? fopen(argv[1], "r") : NULL;
    char why[256], *line = NULL;
    size_t cap = 0;

    if (f == NULL || tokenizer_load(&r.tok, argv[2], why, sizeof(why)) < 0) {
        die("usage: make_answers SCHEMAS TOKENIZER_DIR N");
    }
    r.vocab = tokenizer_vocab(r.tok);
    if (lexicon_create(&r.lex, r.tok) < 0) {
        die("no memory");
    }
    r.words = calloc((size_t)r.vocab / 32 + 1, 4);
    memset(r.single, 0xff, sizeof(r.single));
    for (int32_t id = 0; id < r.vocab; id++) {
        size_t n;
        const char *p = tokenizer_bytes(r.tok, id, &n);

        if (p != NULL && n == 1) {
            r.single[(uint8_t)*p] = id;
        }
    }
    while (getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);

        one(&r, v, atoi(argv[3]));
        json_decref(v);
    }
    free(line);
    fclose(f);
    free(r.words);
    lexicon_destroy(r.lex);
    tokenizer_destroy(r.tok);
    return 0;
}
