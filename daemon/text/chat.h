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

/* An assistant's turn with tool calls as the model wrote it, to be put in place
 * of what its message would be rendered to: same bytes, same ids. */
struct chat_turn {
    bool thinking; /* it was generated behind <think> */
    const char *reasoning, *content;
    size_t n_reasoning, n_content;
    const struct chat_turn_call {
        const char *id, *name, *arguments; /* arguments: JSON text */
        size_t n_id, n_name, n_arguments;
    } * call;
    int n_calls;
    const char *text; /* all of it, from the generation prompt on */
    size_t n_text;
    const int32_t *ids; /* of text */
    int n_ids;
    /* Where what follows the reasoning begins, in both; -1: not at a token. */
    int answer_id;
    size_t answer;
};

/* The order of keys is kept, in tools and in arguments: it is text to the
 * model. A key twice in one object is refused, an integer beyond 64 bits too.
 */
struct chat_args {
    const char *messages; /* JSON list of messages, at least one */
    size_t n_messages;
    const char *tools; /* JSON list, NULL = none */
    size_t n_tools;
    const char *reasoning; /* low, medium, high; NULL or "" = no line */
    bool thinking;         /* the generation prompt opens <think>; without it no
                            * turn of the prompt has a <think> block */
    bool generate;         /* append the generation prompt */
    /* The turn of the call with this id, NULL: none is known. May be NULL. What
     * it returns is used until the next call, or release. A turn stands for a
     * message that says the same: content, ids, names, arguments (their keys in
     * any order); for its reasoning, where it says that too. */
    const struct chat_turn *(*find)(void *ctx, const char *id, size_t n);
    void (*release)(void *ctx);
    void *ctx;
};

/* A rendered prompt is a list of pieces: template pieces, whose control tokens
 * are meant, and text pieces that came from a message or a tool. Pieces cover
 * the text in order, alternate in kind and are never empty. */
struct chat_piece {
    size_t off, n;
    bool from_user; /* special tokens inside are plain text */
};
/* A stretch of the text whose ids are known: a turn that the model wrote. */
struct chat_exact {
    size_t off, n;
    int32_t *ids;
    int n_ids;
};
struct chat_prompt {
    char *text; /* without BOS; may hold NUL; a NUL follows */
    size_t n;
    struct chat_piece *piece;
    int n_pieces;
    struct chat_exact *exact; /* in order */
    int n_exact;
};

/* why: which message and key is wrong, never its text: "messages[2].role: ...".
 * -EINVAL, -ENOMEM. The text is at most a few times as long as the JSON. */
int chat_render(const struct chat_args *a, struct chat_prompt *ret, char *why,
                size_t n_why);
void chat_prompt_finish(struct chat_prompt *p); /* zeroed or rendered */
/* Ids with BOS first, exactly once (none where the tokenizer has none). A fresh
 * list, the caller's to free. Errors as tokenizer_encode's; BOS counts. */
int chat_tokenize(const struct tokenizer *t, const struct chat_prompt *p,
                  int max_ids, int32_t **ret_ids, int *ret_n);
/* Of the tokens of a prompt that ends with the generation prompt, those up to
 * `assistant\n`: what the next turn's prompt will begin with, which shows no
 * thoughts. 0: not to be told. */
int chat_open_turn(const struct tokenizer *t, bool thinking, const int32_t *ids,
                   int n);

#endif
