/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_CHAT_H
#define STEPD_DAEMON_TEXT_CHAT_H

/*
 * The one chat template (model-spec 6.3): messages and tools to prompt text or
 * to tokens. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

struct chat_args {
    const char *messages; /* JSON list of messages */
    size_t n_messages;
    const char *tools; /* JSON list, NULL = none */
    size_t n_tools;
    const char *reasoning; /* "low" ...; NULL or "" = no line */
    bool thinking;         /* the generation prompt opens <think> */
    bool generate;         /* append the generation prompt */
};

/* A rendered prompt is a list of pieces: template pieces, whose control tokens
 * are meant, and text pieces that came from a message. */
struct chat_piece {
    size_t off, n;
    bool from_user; /* special tokens inside are plain text */
};
struct chat_prompt {
    char *text; /* without BOS */
    size_t n;
    struct chat_piece *piece;
    int n_pieces;
};

/* why: which message and key is wrong. -EINVAL. */
int chat_render(const struct chat_args *a, struct chat_prompt *ret, char *why,
                size_t n_why);
void chat_prompt_finish(struct chat_prompt *p);
/* Ids with BOS first, exactly once. */
int chat_tokenize(const struct tokenizer *t, const struct chat_prompt *p,
                  int max_ids, int32_t **ret_ids, int *ret_n);

#endif
