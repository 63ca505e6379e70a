/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_PARSE_H
#define STEPD_DAEMON_TEXT_PARSE_H

/*
 * The streaming parser of generated text: reasoning, content, stop strings,
 * tool calls. A function of the byte stream: any cut into feeds gives the same
 * concatenated content and reasoning, and the same calls. Reasoning starts when
 * the caller says so (the prompt ended inside <think>), never by scanning
 * history.
 *
 * Stages, in this order, each fed by the one before:
 *
 *   reasoning   model-spec 7.1, classic, as of the whole text: <think> is
 *               dropped if it comes, </think> ends reasoning and takes one
 *               newline each side with it, <tool_call> ends it implicitly and
 *               stays. An answer that is to start in content and yet opens
 *               <think> reasons until </think>.
 *   stops       in content, tool calls included, and in raw text. Not in
 *               reasoning: a stop string is about the form of the answer, and
 *               one that happened to occur in a thought would leave none.
 *   tool calls  out of content, where the request has tools (tools.h). Without
 *               any the stage is not there: content is what was generated.
 *
 * Raw text has the stops stage only.
 *
 * What may still turn out to be part of a tag or a stop string is withheld, and
 * nothing else: at most the longest of them less one byte. Feeds of whole
 * characters give pieces of whole characters.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* job.h and the wire have their own names for this limit. */
#define PARSE_MAX_STOPS 16

/* "call_" and 24 hex digits. */
#define PARSE_ID 29

enum parse_kind {
    PARSE_CONTENT,
    PARSE_REASONING,
    /* Tool calls (tools.h). Provisional: */
    PARSE_CALL_BEGIN, /* id, name */
    PARSE_CALL_GROW,  /* text: the next piece of the arguments */
    /* The truth, once for each index: */
    PARSE_CALL,        /* id, name, text: the arguments */
    PARSE_CALL_DROPPED /* it was none; what it was made of is content */
};

struct parse_piece {
    enum parse_kind kind;
    const char *text; /* of content and reasoning never empty */
    size_t n;
    int index; /* of a call, in order of their beginnings */
    const char *id;
    const char *name;
    size_t n_name;
};

struct parse; /* one answer's state */

struct parse_args {
    bool reasoning;    /* generation starts inside reasoning */
    bool raw;          /* plain completion: no tags are looked for */
    bool include_stop; /* the stop string that ends the answer is part of it */
    const char *tools; /* JSON list; NULL: no tool calls are looked for */
    size_t n_tools;
    uint64_t salt[2]; /* what ids of calls are made from, beside the index */
    int n_stops;
    const char *const *stop; /* copied; looked for in content and raw text */
    const size_t *stop_len;
};

/* What comes out and can be sent now. Called zero or more times a feed.
 * Non-zero return stops the feed and is returned by it; the parser can then
 * only be destroyed. */
typedef int (*parse_emit)(void *ctx, const struct parse_piece *p);

/* -EINVAL: more than PARSE_MAX_STOPS, or an empty one; tools are not JSON.
 * -ENOMEM. */
int parse_create(struct parse **ret, const struct parse_args *a);
void parse_destroy(struct parse *p); /* NULL is fine */
/* The text of the next tokens. Returns 1 when a stop string was met (nothing of
 * it, unless it is included, nor after it is emitted, all that was withheld has
 * been; further feeds are ignored and return 1), 0, or
 * -errno. Of several stop strings the one whose end comes first counts, of
 * those that end together the longest. */
int parse_feed(struct parse *p, const char *text, size_t n, parse_emit emit,
               void *ctx);
/* The end of the answer: what was withheld comes out. Nothing after a stop.
 * Returns as parse_feed; 1 also where what a tag withheld completed a stop
 * string. */
int parse_flush(struct parse *p, parse_emit emit, void *ctx);
/* True while the stream is inside reasoning: for usage counts. */
bool parse_in_reasoning(const struct parse *p);
/* True where it would be, had this text been fed: for drafts. */
bool parse_would_reason(const struct parse *p, const char *text, size_t n);
/* From now on stop strings are not looked for, or are again: text fed before
 * that is not part of one. Nothing may be withheld for a stop. */
void parse_stops(struct parse *p, bool on);
int parse_calls(const struct parse *p); /* whole calls so far */

#endif
