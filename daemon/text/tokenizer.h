/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_TOKENIZER_H
#define STEPD_DAEMON_TEXT_TOKENIZER_H

/*
 * Byte-level BPE of tokenizer.json. Immutable after load, so any number of
 * threads may use one tokenizer at once; scratch memory is the call's own.
 *
 * What tokenizer.json says decides; tokenizer_class is not looked at. Text is
 * never cleaned up, trimmed or normalised: the bytes of the ids of a text are
 * the text.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* A stretch of a text in which added tokens are recognised. */
struct tokenizer_span {
    size_t off, n;
};

/* dir: checkpoint folder with tokenizer.json; bos comes from config.json, else
 * tokenizer_config.json, eos from tokenizer_config.json. why: text for people
 * on failure. -EBADMSG: not a tokenizer this program understands; -errno of a
 * file that cannot be read; -ENOMEM. */
int tokenizer_load(struct tokenizer **ret, const char *dir, char *why,
                   size_t n_why);
/* The same from the bytes of a tokenizer.json alone: no bos, no eos. */
int tokenizer_load_json(struct tokenizer **ret, const char *json, size_t n,
                        char *why, size_t n_why);
void tokenizer_destroy(struct tokenizer *t); /* NULL is fine */

/* Text (any bytes; invalid UTF-8 is encoded byte for byte) to ids, appended to
 * *ids (realloc'ed, *n_ids entries in use, *cap allocated). special: every
 * added token in the text becomes its id, whatever its own `special` flag says;
 * without it none does and their text is plain text (a user's "<|im_end|>"
 * cannot end a turn, nor a user's "<think>" open one). No BOS is added.
 *
 * -ENOMEM; -E2BIG: *n_ids would exceed max_ids; -ELOOP: a pattern of the file
 * needs more steps on this text than it may (split.h). On failure *n_ids is
 * what it was. Memory: about 32 bytes for each byte of the longest word. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                     bool special, int max_ids, int32_t **ids, int *n_ids,
                     int *cap);
/* The same with added tokens recognised where they lie wholly inside one of
 * these stretches (in order, apart from each other, inside the text). */
int tokenizer_encode_spans(const struct tokenizer *t, const char *text,
                           size_t n, const struct tokenizer_span *span,
                           int n_spans, int max_ids, int32_t **ids, int *n_ids,
                           int *cap);

/* The bytes a token stands for (static, lives with t). Added tokens give their
 * text. NULL: no such id (padding rows of the embedding). */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id,
                            size_t *ret_n);
/* The token's own flag: <|im_end|> has it, <think> and <tool_call> have not. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* Id of an added token by content, -1 when there is none. */
int32_t tokenizer_id(const struct tokenizer *t, const char *content);
int tokenizer_vocab(const struct tokenizer *t);   /* highest id + 1 */
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
/* Stop ids of the tokenizer's own files (config.json's are the model's).
 * Returns how many there are; at most max are written. */
int tokenizer_eos(const struct tokenizer *t, int32_t *ret, int max);

#endif
