/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_TOOLS_H
#define STEPD_DAEMON_TEXT_TOOLS_H

/*
 * Tool calls out of content (model-spec 7.2, the whole-text result). A stage of
 * parse.c.
 *
 *   block      from <tool_call> to the nearest </tool_call>; or a bare
 *              <function=...></function> outside of one, with the </tool_call>
 *              that may follow it. Blanks between a block and the next are
 *              dropped.
 *   content    all else; a block without a call that can be made out, as it
 *              stands; and what the end leaves open, but for the functions in
 *              it that are whole.
 *
 * While a block grows its calls are told beforehand: begin, then pieces of the
 * arguments. That is provisional. When the block has ended, each call that it
 * has comes whole, and each begun one beyond these is dropped, before the
 * block's text comes as content.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/parse.h"
#include "daemon/text/scan.h"
#include "daemon/text/str.h"

enum tools_state {
    TOOLS_TEXT,
    TOOLS_BLOCK,     /* behind <tool_call> */
    TOOLS_BARE,      /* behind a bare <function= */
    TOOLS_BARE_BLOCK /* and then behind a <tool_call> */
};

enum tools_grow_state {
    GROW_SEEK, /* the next function */
    GROW_NAME,
    GROW_BODY, /* between parameters */
    GROW_KEY,
    GROW_VALUE,
    GROW_SKIP /* a function without a name */
};

/* Where the provisional calls have got to in the open block. Offsets are of
 * tools.held. */
struct tools_grow {
    enum tools_grow_state state;
    bool dead; /* it makes no sense any more: the end will tell */
    int n;     /* calls begun */
    size_t at; /* looked at up to here */
    size_t name, n_name;
    bool any;     /* an argument of this call has been told */
    int type;     /* of the argument at hand, enum coerce_type */
    size_t value; /* where it begins */
    size_t told;  /* of a string: up to here; 0 while it is not open */
};

struct tools {
    json_t *defs;
    uint64_t salt[2];
    struct scan scan;
    enum tools_state state;
    struct str held; /* blanks behind a block, then the open block */
    size_t n_blank;
    size_t n_whole;  /* of held in TEXT: blanks for certain */
    uint64_t looked; /* bytes looked at for blanks: each about once */
    size_t call_at;  /* BARE_BLOCK: of held, its <tool_call> */
    bool after;      /* nothing but blanks since the last block */
    bool absorb;     /* that was a bare one: its </tool_call> may follow */
    int n_calls;
    struct tools_grow grow;
    parse_emit emit; /* of the feed that is running */
    void *ctx;
};

/* defs: the request's tools, JSON text. salt: what ids are made from. 0,
 * -ENOMEM; -EINVAL: not JSON. */
int tools_init(struct tools *t, const char *defs, size_t n_defs,
               const uint64_t salt[2]);
void tools_finish(struct tools *t); /* zeroed or initialised */
int tools_feed(struct tools *t, const char *text, size_t n, parse_emit emit,
               void *ctx);
int tools_flush(struct tools *t, parse_emit emit, void *ctx);

#endif
