/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A digit that says what the rest is (0 a schema, 1 a response_format, 2 a list
 * of tools, 3 a regular expression), then the text. What compiles must run: a
 * walk led by the input's own bytes never comes to a state that may not end and
 * from which nothing leads on; and its masks for the vocabulary of step-tiny
 * are what the automaton says of each token alone.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/text/callgram.h"
#include "daemon/text/format.h"
#include "daemon/text/machine.h"
#include "daemon/text/mask.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

#define STEPS 300
#define MASKS 4 /* of one input */

static uint32_t any_step(struct machine *m, uint32_t s, uint8_t from)
{
    for (int i = 0; i < 256; i++) {
        uint32_t to = machine_step(m, s, (uint8_t)(from + i));

        if (to != MACHINE_DEAD || m->err < 0) {
            return to;
        }
    }
    return MACHINE_DEAD;
}

static void walk(const struct gram *g, const uint8_t *data, size_t n)
{
    struct machine m;
    uint32_t s;

    FUZZ_CHECK(machine_init(&m, g) == 0);
    s = machine_start(&m);
    FUZZ_CHECK(s != MACHINE_DEAD || m.err == -E2BIG);
    for (size_t i = 0; i < STEPS && s != MACHINE_DEAD && m.err == 0; i++) {
        bool ends = machine_accepts(&m, s);

        s = any_step(&m, s, n > 0 ? data[i % n] : 0);
        FUZZ_CHECK(s != MACHINE_DEAD || ends || m.err == -E2BIG);
        if (i % 64 == 63 && s != MACHINE_DEAD) {
            FUZZ_CHECK(machine_trim(&m, &s, 1, true) == 0);
        }
    }
    machine_finish(&m);
}

/* Made once. */
static const struct lexicon *lexicon(int *ret_vocab)
{
    static struct tokenizer *t;
    static struct lexicon *l;
    char why[256];

    if (l == NULL) {
        FUZZ_CHECK(tokenizer_load(&t, TEST_SRCDIR "/tests/data/step-tiny", why,
                                  sizeof(why)) == 0);
        FUZZ_CHECK(lexicon_create(&l, t) == 0);
    }
    *ret_vocab = tokenizer_vocab(t);
    return l;
}

/* -1: no token fits, or the grammar is too large to be followed. */
static int32_t check_mask(struct masker *m, int vocab, int32_t from)
{
    static uint32_t words[1024];
    int32_t next = -1;
    int r;

    FUZZ_CHECK((size_t)vocab <= 32 * sizeof(words) / sizeof(words[0]));
    r = masker_mask(m, 0, words);
    FUZZ_CHECK(r == 0 || r == -E2BIG);
    for (int32_t i = 0; i < vocab && r == 0; i++) {
        int32_t id = (from + i) % vocab;
        bool bit = (words[id >> 5] >> (id & 31) & 1) != 0;

        /* One token may make the automaton too large, and so all later ones. */
        if (masker_look(m, &id, 1) == 1) {
            FUZZ_CHECK(bit);
            next = next < 0 ? id : next;
        } else if (bit) {
            FUZZ_CHECK(masker_advance(m, &id, 1) == -E2BIG);
            return -1;
        }
    }
    return next;
}

/* Takes g over. */
static void masks(struct gram *g, const uint8_t *data, size_t n)
{
    struct masker_conf conf = {0};
    const struct lexicon *l = lexicon(&conf.vocab);
    struct compiled *c;
    struct masker *m = NULL;
    int32_t id = 0;
    int r;

    FUZZ_CHECK(compiled_create(&c, g, l) == 0);
    r = masker_create(&m, c, &conf);
    FUZZ_CHECK(r == 0 || r == -E2BIG);
    for (size_t i = 0; i < MASKS && r == 0 && id >= 0; i++) {
        id = check_mask(m, conf.vocab, data[(n - 1) * i / MASKS] * 4);
        r = id < 0 ? 0 : masker_advance(m, &id, 1);
        FUZZ_CHECK(r == 0 || r == -E2BIG);
    }
    masker_destroy(m);
    compiled_destroy(c);
}

static char *quoted(const char *type, const char *key, json_t *value)
{
    json_t *form = json_pack("{s:s,s:o}", "type", type, key, value);
    char *text = form != NULL ? json_dumps(form, 0) : NULL;

    json_decref(form);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char buf[256] = "";
    const struct why why = {buf, sizeof(buf)};
    struct gram *g = NULL;
    char *text = NULL;
    json_t *v;
    int r;

    if (n < 2 || n > 8192) {
        return 0;
    }
    switch (data[0]) {
    case '0':
        v = json_loadb((const char *)data + 1, n - 1, JSON_DECODE_ANY, NULL);
        text = v != NULL ? quoted("json_schema", "schema", v) : NULL;
        break;
    case '3':
        v = json_stringn((const char *)data + 1, n - 1);
        text = v != NULL ? quoted("regex", "regex", v) : NULL;
        break;
    default:
        text = strndup((const char *)data + 1, n - 1);
    }
    if (text == NULL) {
        return 0;
    }
    if (data[0] == '2') {
        const struct callgram_args a = {
            .tools = text, .n_tools = strlen(text), .reasoning = (n & 1) != 0};

        r = callgram_compile(&g, &a, &why);
    } else {
        const struct format_args a = {
            .text = text, .n = strlen(text), .reasoning = (n & 1) != 0};

        r = format_compile(&g, &a, &why);
    }
    FUZZ_CHECK(r == 0 || r == -EINVAL || r == -E2BIG);
    FUZZ_CHECK(r == 0 || buf[0] != '\0');
    if (g != NULL) {
        walk(g, data, n);
        masks(g, data, n);
    }
    free(text);
    return 0;
}
