/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_REASON_H
#define STEPD_DAEMON_TEXT_REASON_H

/*
 * Splits generated text into reasoning and content (model-spec 7.1, the
 * classic parser's whole-text result). A stage of parse.c.
 */

#include <stdbool.h>
#include <stddef.h>

#include "daemon/text/scan.h"

enum reason_state {
    REASON_OPEN,   /* content that a first <think> may still interrupt */
    REASON_FIRST,  /* reasoning; one <think> would be dropped */
    REASON_INSIDE, /* reasoning; a <think> is text */
    REASON_ENDED,  /* just behind </think>: one newline is dropped */
    REASON_CALL,   /* ended by a tool call, inside of one */
    REASON_AFTER,  /* the same, behind it: one </think> is dropped */
    REASON_PLAIN   /* content, to the end */
};

struct reason {
    struct scan scan;
    enum reason_state state;
};

/* Non-zero ends the feed and is returned by it. Never with n = 0. */
typedef int (*reason_emit)(void *ctx, bool reasoning, const char *text,
                           size_t n);

/* inside: generation starts inside reasoning. 0 or -ENOMEM. */
int reason_init(struct reason *r, bool inside);
void reason_finish(struct reason *r); /* zeroed or initialised */
int reason_feed(struct reason *r, const char *text, size_t n, reason_emit emit,
                void *ctx);
int reason_flush(struct reason *r, reason_emit emit, void *ctx);

static inline bool reason_inside(const struct reason *r)
{
    return r->state == REASON_FIRST || r->state == REASON_INSIDE;
}

#endif
