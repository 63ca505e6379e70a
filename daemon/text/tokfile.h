/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_TOKFILE_H
#define STEPD_DAEMON_TEXT_TOKFILE_H

/*
 * tokenizer.json and its neighbours -> struct tokenizer. Inside of
 * tokenizer.c's module: nobody else includes this, tests aside.
 */

#include <jansson.h>

#include "daemon/text/added.h"
#include "daemon/text/bpe.h"
#include "daemon/text/split.h"
#include "daemon/text/vocab.h"
#include "daemon/text/why.h"

/* The real file has 10 MB. */
#define TOKFILE_MAX_BYTES (256u << 20)

struct tokenizer {
    struct vocab vocab;
    struct bpe bpe;
    struct split split;
    /* Those marked "normalized" are looked for after the others, in what they
     * left; with no normaliser to run in between, that is all it means. */
    struct added raw, normalized;
    size_t max_bytes; /* of any token */
    int32_t bos;      /* -1: none */
    int32_t eos;      /* -1: none */
};

/* Parses JSON; a failure names the place, not the text. -EBADMSG, -ENOMEM. */
int tokfile_json(const char *name, const char *text, size_t n, json_t **ret,
                 const struct why *why);
/* Reads and parses a file of the folder. -ENOENT without a message. */
int tokfile_read(int dir, const char *name, json_t **ret,
                 const struct why *why);
/* Fills a zeroed t from tokenizer.json. What is there already on failure is
 * the caller's to release. */
int tokfile_fill(struct tokenizer *t, const json_t *root,
                 const struct why *why);
/* bos and eos from the neighbours, where they exist. */
int tokfile_ends(struct tokenizer *t, int dir, const struct why *why);

/* Every key of the object o, which is called what, must be in known, a list of
 * words between blanks. */
int tokfile_known_keys(const json_t *o, const char *what, const char *known,
                       const struct why *why);
/* The value of key, if there is one, must say no. */
int tokfile_must_be_off(const json_t *o, const char *what, const char *key,
                        const struct why *why);
/* The "type" of an object, "" where there is none. */
const char *tokfile_type_of(const json_t *o);

/* tokvocab.c: model and added_tokens. */
int tokvocab_fill(struct tokenizer *t, const json_t *model, const json_t *added,
                  const struct why *why);

#endif
