/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_PARSE_H
#define STEPD_DAEMON_TEXT_PARSE_H

/*
 * The streaming parser of generated text: reasoning, content, stop strings
 * (and, with the text issue, tool calls). A function of the byte stream: any
 * cut into feeds gives the same concatenated result. Reasoning starts when the
 * caller says so (the prompt ended inside <think>), never by scanning history.
 */

#include <stdbool.h>
#include <stddef.h>

enum parse_kind { PARSE_CONTENT, PARSE_REASONING, PARSE_TOOL_CALL };

struct parse; /* one answer's state */

struct parse_args {
    bool reasoning; /* generation starts inside reasoning */
    bool raw;       /* plain completion: no tags are looked for */
    int n_stops;
    const char *const *stop; /* copied; looked for in content, raw and
                              * reasoning text alike */
    const size_t *stop_len;
};

/* What comes out: text that can be sent now. Called zero or more times a feed,
 * never with n = 0. Non-zero return stops the feed and is returned by it. */
typedef int (*parse_emit)(void *ctx, enum parse_kind kind, const char *text,
                          size_t n);

int parse_create(struct parse **ret, const struct parse_args *a);
void parse_destroy(struct parse *p);
/* UTF-8 text of the next tokens. Returns 1 when a stop string was met (nothing
 * of it nor after it is emitted; further feeds are ignored), 0, or -errno. */
int parse_feed(struct parse *p, const char *text, size_t n, parse_emit emit,
               void *ctx);
/* The end of the answer: what was withheld comes out. */
int parse_flush(struct parse *p, parse_emit emit, void *ctx);
/* True while the stream is inside reasoning: for usage counts. */
bool parse_in_reasoning(const struct parse *p);

#endif
