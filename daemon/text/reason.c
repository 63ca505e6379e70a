/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The states of an answer, and the tags that lead from one to the next:
 *
 *   OPEN    --<think>-->     INSIDE  (the answer was to start in content)
 *   OPEN    --<tool_call>--> PLAIN
 *   FIRST   --<think>-->     INSIDE  (the tag is dropped)
 *   FIRST, INSIDE --</think>--> ENDED --> PLAIN
 *   FIRST, INSIDE --<tool_call>--> CALL (an implicit end; the tag is content)
 *   CALL    --</tool_call>--> AFTER --<tool_call>--> CALL
 *   AFTER   --</think>-->    ENDED   (late, dropped: not content)
 *
 * One newline is trimmed each side of </think>, before an implicit end, and at
 * the end of reasoning that nothing ended. The one before is part of the string
 * that is looked for ("\n</think>" beats "</think>"), so it is held as long as
 * it can still be one, for every cut of the stream.
 *
 * Inside a tool call nothing but its end is looked for: a "</think>" in an
 * argument is an argument. Pure; state of one answer.
 */
#include "daemon/text/reason.h"

#include <string.h>

enum {
    TAG_END_LINE,  /* "\n</think>" */
    TAG_END,       /* "</think>" */
    TAG_CALL_LINE, /* "\n<tool_call>" */
    TAG_CALL,      /* "<tool_call>" */
    TAG_OPEN_LINE, /* "\n<think>" */
    TAG_OPEN,      /* "<think>" */
    TAG_CALL_END,  /* "</tool_call>" */
    N_TAGS
};

static const char *const tags[N_TAGS] = {
    "\n</think>", "</think>", "\n<tool_call>", "<tool_call>",
    "\n<think>",  "<think>",  "</tool_call>",
};

#define BIT(tag) (UINT32_C(1) << (tag))
#define ENDS \
    (BIT(TAG_END_LINE) | BIT(TAG_END) | BIT(TAG_CALL_LINE) | BIT(TAG_CALL))

static const uint32_t looked_for[] = {
    [REASON_OPEN] = BIT(TAG_OPEN) | BIT(TAG_CALL),
    [REASON_FIRST] = ENDS | BIT(TAG_OPEN_LINE) | BIT(TAG_OPEN),
    [REASON_INSIDE] = ENDS,
    [REASON_ENDED] = 0,
    [REASON_CALL] = BIT(TAG_CALL_END),
    [REASON_AFTER] = BIT(TAG_END_LINE) | BIT(TAG_END) | BIT(TAG_CALL),
    [REASON_PLAIN] = 0,
};

static void enter(struct reason *r, enum reason_state state)
{
    r->state = state;
    scan_restart(&r->scan, looked_for[state]);
}

int reason_init(struct reason *r, bool inside)
{
    size_t len[N_TAGS];
    int e;

    for (int i = 0; i < N_TAGS; i++) {
        len[i] = strlen(tags[i]);
    }
    e = scan_init(&r->scan, N_TAGS, tags, len);
    if (e < 0) {
        return e;
    }
    enter(r, inside ? REASON_FIRST : REASON_OPEN);
    return 0;
}

void reason_finish(struct reason *r)
{
    scan_finish(&r->scan);
}

/* What a scan emits is of the kind of the state it runs in. */
struct sink {
    bool reasoning;
    reason_emit emit;
    void *ctx;
};

static int sink_emit(void *ctx, const char *text, size_t n)
{
    const struct sink *s = ctx;

    return s->emit(s->ctx, s->reasoning, text, n);
}

static int emit_tag(const struct sink *s, int tag)
{
    return s->emit(s->ctx, false, tags[tag], strlen(tags[tag]));
}

/* A newline before a dropped tag is held on: </think> may follow at once. */
static int hold_newline(struct reason *r, struct sink *s)
{
    size_t used;
    int found;

    return scan_feed(&r->scan, "\n", 1, sink_emit, s, &used, &found);
}

static int found_tag(struct reason *r, int tag, struct sink *s)
{
    switch (tag) {
    case TAG_END_LINE:
    case TAG_END:
        enter(r, REASON_ENDED);
        return 0;
    case TAG_CALL_LINE:
    case TAG_CALL:
        enter(r, r->state == REASON_OPEN ? REASON_PLAIN : REASON_CALL);
        return emit_tag(s, TAG_CALL);
    case TAG_OPEN_LINE:
        enter(r, REASON_INSIDE);
        return hold_newline(r, s);
    case TAG_OPEN:
        enter(r, REASON_INSIDE);
        return 0;
    default: /* TAG_CALL_END */
        enter(r, REASON_AFTER);
        return emit_tag(s, TAG_CALL_END);
    }
}

int reason_feed(struct reason *r, const char *text, size_t n, reason_emit emit,
                void *ctx)
{
    struct sink s = {.emit = emit, .ctx = ctx};

    while (n > 0) {
        size_t used;
        int found, e;

        if (r->state == REASON_PLAIN) {
            return emit(ctx, false, text, n);
        }
        if (r->state == REASON_ENDED) {
            enter(r, REASON_PLAIN);
            if (*text == '\n') {
                text++;
                n--;
            }
            continue;
        }
        s.reasoning = reason_inside(r);
        e = scan_feed(&r->scan, text, n, sink_emit, &s, &used, &found);
        if (e == 0 && found >= 0) {
            e = found_tag(r, found, &s);
        }
        if (e != 0) {
            return e;
        }
        text += used;
        n -= used;
    }
    return 0;
}

int reason_flush(struct reason *r, reason_emit emit, void *ctx)
{
    bool reasoning = reason_inside(r);
    size_t n;
    const char *held = scan_held(&r->scan, &n);

    enter(r, REASON_PLAIN);
    if (n == 0 || (reasoning && n == 1 && held[0] == '\n')) {
        return 0;
    }
    return emit(ctx, reasoning, held, n);
}
