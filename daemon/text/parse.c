/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The chain of stages behind a generated answer. Each stage keeps its own
 * state, withholds on its own account, and hands on by a callback; this file
 * only says who feeds whom:
 *
 *     parse_feed -> reason_feed -> after_reason -> scan_feed -> after_stops
 *
 * A further stage (tool calls) goes between after_stops and the caller: it gets
 * content, and emits PARSE_CONTENT and PARSE_TOOL_CALL. One thread at a time;
 * the caller's emit is only kept for the length of a feed.
 */
#include "daemon/text/parse.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/text/reason.h"
#include "daemon/text/scan.h"

_Static_assert(PARSE_MAX_STOPS <= SCAN_MAX_NEEDLES, "stops fit a scan");

struct parse {
    bool raw;
    bool stopped;
    struct reason reason; /* unused when raw */
    struct scan stops;
    parse_emit emit; /* of the feed that is running */
    void *ctx;
};

int parse_create(struct parse **ret, const struct parse_args *a)
{
    struct parse *p;
    int r;

    if (a->n_stops < 0 || a->n_stops > PARSE_MAX_STOPS) {
        return -EINVAL;
    }
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return -ENOMEM;
    }
    p->raw = a->raw;
    r = scan_init(&p->stops, a->n_stops, a->stop, a->stop_len);
    if (r == 0 && !p->raw) {
        r = reason_init(&p->reason, a->reasoning);
    }
    if (r < 0) {
        parse_destroy(p);
        return r;
    }
    *ret = p;
    return 0;
}

void parse_destroy(struct parse *p)
{
    if (p == NULL) {
        return;
    }
    scan_finish(&p->stops);
    reason_finish(&p->reason);
    free(p);
}

static int after_stops(void *ctx, const char *text, size_t n)
{
    const struct parse *p = ctx;

    return p->emit(p->ctx, PARSE_CONTENT, text, n);
}

/* Content or raw text. 1: a stop string was met. */
static int feed_stops(struct parse *p, const char *text, size_t n)
{
    size_t used;
    int found;
    int r = scan_feed(&p->stops, text, n, after_stops, p, &used, &found);

    if (r == 0 && found >= 0) {
        p->stopped = true;
        return 1;
    }
    return r;
}

static int after_reason(void *ctx, bool reasoning, const char *text, size_t n)
{
    struct parse *p = ctx;

    return reasoning ? p->emit(p->ctx, PARSE_REASONING, text, n)
                     : feed_stops(p, text, n);
}

int parse_feed(struct parse *p, const char *text, size_t n, parse_emit emit,
               void *ctx)
{
    if (p->stopped) {
        return 1;
    }
    p->emit = emit;
    p->ctx = ctx;
    return p->raw ? feed_stops(p, text, n)
                  : reason_feed(&p->reason, text, n, after_reason, p);
}

int parse_flush(struct parse *p, parse_emit emit, void *ctx)
{
    const char *held;
    size_t n;
    int r = 0;

    if (p->stopped) {
        return 1;
    }
    p->emit = emit;
    p->ctx = ctx;
    if (!p->raw) {
        r = reason_flush(&p->reason, after_reason, p);
    }
    if (r != 0) {
        return r;
    }
    held = scan_held(&p->stops, &n);
    scan_restart(&p->stops, p->stops.active);
    return n != 0 ? after_stops(p, held, n) : 0;
}

bool parse_in_reasoning(const struct parse *p)
{
    return !p->raw && reason_inside(&p->reason);
}
