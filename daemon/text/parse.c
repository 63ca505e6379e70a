/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The chain of stages behind a generated answer. Each stage keeps its own
 * state, withholds on its own account, and hands on by a callback; this file
 * only says who feeds whom:
 *
 *     parse_feed -> reason_feed -> after_reason -> scan_feed -> after_stops
 *                -> tools_feed -> the caller
 *
 * One thread at a time; the caller's emit is only kept for the length of a
 * feed.
 */
#include "daemon/text/parse.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/text/reason.h"
#include "daemon/text/scan.h"
#include "daemon/text/tools.h"

_Static_assert(PARSE_MAX_STOPS <= SCAN_MAX_NEEDLES, "stops fit a scan");

struct parse {
    bool raw, include_stop;
    bool has_tools;
    bool stopped;
    struct reason reason; /* unused when raw */
    struct scan stops;
    struct tools tools; /* unused without has_tools */
    parse_emit emit;    /* of the feed that is running */
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
    p->include_stop = a->include_stop;
    p->has_tools = !a->raw && a->tools != NULL;
    r = scan_init(&p->stops, a->n_stops, a->stop, a->stop_len);
    if (r == 0 && !p->raw) {
        r = reason_init(&p->reason, a->reasoning);
    }
    if (r == 0 && p->has_tools) {
        r = tools_init(&p->tools, a->tools, a->n_tools, a->salt);
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
    tools_finish(&p->tools);
    free(p);
}

static int after_stops(void *ctx, const char *text, size_t n)
{
    struct parse *p = ctx;
    const struct parse_piece piece = {
        .kind = PARSE_CONTENT, .text = text, .n = n};

    return p->has_tools ? tools_feed(&p->tools, text, n, p->emit, p->ctx)
                        : p->emit(p->ctx, &piece);
}

/* No content comes any more. */
static int end_content(struct parse *p)
{
    return p->has_tools ? tools_flush(&p->tools, p->emit, p->ctx) : 0;
}

/* Content or raw text. 1: a stop string was met. */
static int feed_stops(struct parse *p, const char *text, size_t n)
{
    size_t used;
    int found;
    int r = scan_feed(&p->stops, text, n, after_stops, p, &used, &found);

    if (r != 0 || found < 0) {
        return r;
    }
    p->stopped = true;
    if (p->include_stop) {
        r = after_stops(p, p->stops.needle[found].text,
                        p->stops.needle[found].n);
    }
    r = r != 0 ? r : end_content(p);
    return r != 0 ? r : 1;
}

static int after_reason(void *ctx, bool reasoning, const char *text, size_t n)
{
    struct parse *p = ctx;
    const struct parse_piece piece = {
        .kind = PARSE_REASONING, .text = text, .n = n};

    return reasoning ? p->emit(p->ctx, &piece) : feed_stops(p, text, n);
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
    r = n != 0 ? after_stops(p, held, n) : 0;
    return r != 0 ? r : end_content(p);
}

bool parse_in_reasoning(const struct parse *p)
{
    return !p->raw && reason_inside(&p->reason);
}

static int ignore(void *ctx, bool reasoning, const char *text, size_t n)
{
    (void)ctx;
    (void)reasoning;
    (void)text;
    (void)n;
    return 0;
}

bool parse_would_reason(const struct parse *p, const char *text, size_t n)
{
    /* The state is numbers; the strings looked for are shared. */
    struct reason ahead = p->reason;

    if (p->raw) {
        return false;
    }
    (void)reason_feed(&ahead, text, n, ignore, NULL);
    return reason_inside(&ahead);
}

void parse_stops(struct parse *p, bool on)
{
    scan_restart(&p->stops,
                 on ? (uint32_t)((UINT64_C(1) << p->stops.n_needles) - 1) : 0);
}

int parse_calls(const struct parse *p)
{
    return p->has_tools ? p->tools.n_calls : 0;
}
