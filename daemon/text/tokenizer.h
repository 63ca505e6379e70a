/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_TOKENIZER_H
#define STEPD_DAEMON_TEXT_TOKENIZER_H

/*
 * Byte-level BPE of tokenizer.json. Immutable after load, so any number of
 * threads may use one tokenizer at once; scratch memory is the call's own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* dir: checkpoint folder with tokenizer.json (tokenizer_config.json and
 * config.json may add bos/eos). why: text for people on failure. -EBADMSG:
 * not a tokenizer this program understands. */
int tokenizer_load(struct tokenizer **ret, const char *dir, char *why,
                   size_t n_why);
void tokenizer_destroy(struct tokenizer *t); /* NULL is fine */

/* Text (any bytes; invalid UTF-8 is encoded byte for byte) to ids, appended to
 * *ids (realloc'ed, *n entries in use, *cap allocated). special: added tokens
 * marked special in the text become their ids; without it their text is plain
 * text (a user's "<|im_end|>" cannot end a turn). No BOS is added. -ENOMEM,
 * -E2BIG: more than max_ids. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                     bool special, int max_ids, int32_t **ids, int *n_ids,
                     int *cap);

/* The bytes a token stands for (static, lives with t). Added tokens give their
 * text. NULL: no such id (padding rows of the embedding). */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_n);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* Id of an added token by content, -1 when there is none. */
int32_t tokenizer_id(const struct tokenizer *t, const char *content);
int tokenizer_vocab(const struct tokenizer *t); /* highest id + 1 */
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
/* Stop ids of the tokenizer's own files (config.json's are the model's). */
int tokenizer_eos(const struct tokenizer *t, int32_t *ret, int max);

#endif
