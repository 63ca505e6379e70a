/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Which text is a block, decided as the stream goes: text passes through; from
 * a tag that opens a block on everything is held until the block has ended, and
 * then given to call.c as a whole. grow.c tells of its calls meanwhile.
 *
 * What the published parser does over the whole text comes out of one rule
 * here: a bare function counts only outside of complete blocks. So one that a
 * <tool_call> interrupts waits for the </tool_call>: if it comes, the function
 * was text; if the answer ends first, there was no block.
 *
 * The invariant: held and what was emitted are, put together, what came in, but
 * for blanks between blocks and an absorbed </tool_call>. State of one answer.
 */
#include "daemon/text/tools.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/text/call.h"
#include "daemon/text/grow.h"
#include "daemon/text/pyjson.h"
#include "daemon/text/pyvalue.h"

enum { TAG_CALL, TAG_CALL_END, TAG_FUNCTION, TAG_FUNCTION_END, N_TAGS };

static const char *const tags[N_TAGS] = {"<tool_call>", "</tool_call>",
                                         "<function=", "</function>"};

#define BIT(tag) (UINT32_C(1) << (tag))

static const uint32_t looked_for[] = {
    [TOOLS_TEXT] = BIT(TAG_CALL) | BIT(TAG_FUNCTION) | BIT(TAG_CALL_END),
    [TOOLS_BLOCK] = BIT(TAG_CALL_END),
    [TOOLS_BARE] = BIT(TAG_FUNCTION_END) | BIT(TAG_CALL) | BIT(TAG_CALL_END),
    [TOOLS_BARE_BLOCK] = BIT(TAG_CALL_END),
};

static void enter(struct tools *t, enum tools_state state)
{
    t->state = state;
    scan_restart(&t->scan, looked_for[state]);
}

int tools_init(struct tools *t, const char *defs, size_t n_defs,
               const uint64_t salt[2])
{
    const struct why nowhere = {0};
    size_t len[N_TAGS];
    int r;

    memset(t, 0, sizeof(*t));
    r = pyjson_parse("tools", defs, n_defs, 0, &t->defs, &nowhere);
    if (r < 0) {
        return r;
    }
    for (int i = 0; i < N_TAGS; i++) {
        len[i] = strlen(tags[i]);
    }
    r = scan_init(&t->scan, N_TAGS, tags, len);
    if (r < 0) {
        tools_finish(t);
        return r;
    }
    memcpy(t->salt, salt, sizeof(t->salt));
    enter(t, TOOLS_TEXT);
    return 0;
}

void tools_finish(struct tools *t)
{
    json_decref(t->defs);
    scan_finish(&t->scan);
    str_finish(&t->held);
    memset(t, 0, sizeof(*t));
}

/* ---- content ----------------------------------------------------------- */

static int put_text(struct tools *t, const char *text, size_t n)
{
    const struct parse_piece p = {.kind = PARSE_CONTENT, .text = text, .n = n};

    return n != 0 ? t->emit(t->ctx, &p) : 0;
}

static int hold(struct tools *t, const char *text, size_t n)
{
    str_add(&t->held, text, n);
    return t->held.err;
}

static void let_go(struct tools *t)
{
    t->held.n = t->n_blank = t->n_whole = 0;
}

/* What is held is content after all. */
static int put_held(struct tools *t)
{
    int r = put_text(t, t->held.p, t->held.n);

    let_go(t);
    t->after = t->absorb = false;
    return r;
}

/* The beginnings of blanks that are not ASCII. */
static bool is_cut_blank(const char *p, size_t n)
{
    return n == 1 ? strchr("\xc2\xe1\xe2\xe3", *p) != NULL && *p != '\0'
                  : n == 2 && (memcmp(p, "\xe1\x9a", 2) == 0 ||
                               memcmp(p, "\xe2\x80", 2) == 0 ||
                               memcmp(p, "\xe2\x81", 2) == 0 ||
                               memcmp(p, "\xe3\x80", 2) == 0);
}

/* Length of the blanks that p begins with. */
static size_t blanks(const char *p, size_t n)
{
    size_t i = 0, len;

    while ((len = pyvalue_space(p + i, n - i)) != 0) {
        i += len;
    }
    return i;
}

/* Text outside of blocks. Behind one blanks are held: another may follow. What
 * was looked at is not looked at again. */
static int take_text(struct tools *t, const char *text, size_t n)
{
    int r;

    if (!t->after) {
        return put_text(t, text, n);
    }
    r = hold(t, text, n);
    if (r != 0) {
        return r;
    }
    t->looked += t->held.n - t->n_whole;
    t->n_whole += blanks(t->held.p + t->n_whole, t->held.n - t->n_whole);
    n = t->held.n - t->n_whole;
    return n != 0 && !is_cut_blank(t->held.p + t->n_whole, n) ? put_held(t) : 0;
}

/* ---- blocks ------------------------------------------------------------ */

static int put_calls(struct tools *t, const struct calls *c)
{
    char id[PARSE_ID + 1];
    int r = 0;

    for (int i = 0; r == 0 && i < c->n; i++) {
        const struct call *call = &c->call[i];
        struct parse_piece p = {
            .kind = PARSE_CALL,
            .text = call->arguments,
            .n = call->n_arguments,
            .index = t->n_calls + i,
            .id = id,
            .name = call->name,
            .n_name = call->n_name,
        };

        grow_id(t, p.index, id);
        r = t->emit(t->ctx, &p);
    }
    return r;
}

/* Begun calls from the first-th on are none. */
static int drop_begun(struct tools *t, int first)
{
    int r = 0;

    for (int i = first; r == 0 && i < t->grow.n; i++) {
        const struct parse_piece p = {.kind = PARSE_CALL_DROPPED,
                                      .index = t->n_calls + i};

        r = t->emit(t->ctx, &p);
    }
    return r;
}

/* A block has ended. Returns its calls, 0: it is content, and has not been
 * emitted. last: no other block comes out of what is held. */
static int take_block(struct tools *t, const char *text, size_t n, bool last)
{
    struct calls c = {0};
    int n_calls = call_parse_block(t->defs, text, n, &c);
    int r;

    if (n_calls < 0) {
        return n_calls;
    }
    r = put_calls(t, &c);
    calls_finish(&c);
    if (r == 0 && (last || n_calls == 0)) {
        r = drop_begun(t, n_calls);
        t->grow.n = 0;
    } else {
        t->grow.n = t->grow.n > n_calls ? t->grow.n - n_calls : 0;
    }
    t->n_calls += n_calls;
    return r != 0 ? r : n_calls;
}

/* What is held in TEXT is blanks, and whole ones. */
static bool blank_before(const struct tools *t)
{
    return t->after && t->n_whole == t->held.n;
}

/* Held: blanks, then a block from <tool_call> on to its end. */
static int end_block(struct tools *t)
{
    int n = take_block(t, t->held.p + t->n_blank, t->held.n - t->n_blank, true);
    int r = n < 0 ? n : 0;

    if (n == 0) {
        r = put_text(t, t->held.p + t->n_blank, t->held.n - t->n_blank);
    }
    let_go(t);
    t->after = true;
    t->absorb = false;
    enter(t, TOOLS_TEXT);
    return r;
}

/* Held: blanks, then a bare function. */
static int end_bare(struct tools *t)
{
    int n = take_block(t, t->held.p + t->n_blank, t->held.n - t->n_blank, true);
    int r = n < 0 ? n : 0;

    if (n == 0) {
        r = put_held(t);
    } else {
        let_go(t);
        t->after = t->absorb = true;
    }
    enter(t, TOOLS_TEXT);
    return r;
}

/* The bare function was text: a block that is whole follows inside. */
static int end_bare_block(struct tools *t)
{
    int r = drop_begun(t, 0);

    t->grow.n = 0;
    if (r == 0) {
        r = put_text(t, t->held.p, t->call_at);
    }
    t->n_blank = t->call_at;
    return r != 0 ? r : end_block(t);
}

/* A tag that opens a block. Blanks before a <tool_call> are dropped whatever
 * becomes of it; before a bare function they are kept until that is known. */
static int open_block(struct tools *t, int tag)
{
    int r = 0;

    if (t->held.n != 0 && !blank_before(t)) {
        r = put_held(t);
    }
    if (tag == TAG_CALL) {
        let_go(t);
    }
    t->n_blank = t->held.n;
    enter(t, tag == TAG_CALL ? TOOLS_BLOCK : TOOLS_BARE);
    grow_begin(t);
    return r != 0 ? r : hold(t, tags[tag], strlen(tags[tag]));
}

static int found_in_text(struct tools *t, int tag)
{
    if (tag != TAG_CALL_END) {
        return open_block(t, tag);
    }
    if (t->absorb && blank_before(t)) {
        t->absorb = false;
        return 0;
    }
    return take_text(t, tags[tag], strlen(tags[tag]));
}

static int found_tag(struct tools *t, int tag)
{
    int r;

    if (t->state == TOOLS_TEXT) {
        return found_in_text(t, tag);
    }
    r = hold(t, tags[tag], strlen(tags[tag]));
    if (r == 0) {
        r = grow_run(t);
    }
    if (r != 0) {
        return r;
    }
    switch (t->state) {
    case TOOLS_BLOCK:
        return end_block(t);
    case TOOLS_BARE_BLOCK:
        return end_bare_block(t);
    case TOOLS_BARE:
    case TOOLS_TEXT:
        break;
    }
    if (tag == TAG_FUNCTION_END) {
        return end_bare(t);
    }
    if (tag == TAG_CALL) {
        t->call_at = t->held.n - strlen(tags[tag]);
        enter(t, TOOLS_BARE_BLOCK);
        return 0;
    }
    /* A </tool_call> in a bare function: it is none. */
    r = drop_begun(t, 0);
    t->grow.n = 0;
    if (r == 0) {
        r = put_held(t);
    }
    enter(t, TOOLS_TEXT);
    return r;
}

/* What a scan lets pass. */
static int pass(void *ctx, const char *text, size_t n)
{
    struct tools *t = ctx;

    return t->state == TOOLS_TEXT ? take_text(t, text, n) : hold(t, text, n);
}

int tools_feed(struct tools *t, const char *text, size_t n, parse_emit emit,
               void *ctx)
{
    t->emit = emit;
    t->ctx = ctx;
    while (n > 0) {
        size_t used;
        int found;
        int r = scan_feed(&t->scan, text, n, pass, t, &used, &found);

        if (r == 0 && found >= 0) {
            r = found_tag(t, found);
        }
        if (r != 0) {
            return r;
        }
        text += used;
        n -= used;
    }
    return t->state != TOOLS_TEXT ? grow_run(t) : 0;
}

/* ---- the end ----------------------------------------------------------- */

static const char *find(const char *p, const char *end, const char *what)
{
    return memmem(p, (size_t)(end - p), what, strlen(what));
}

/* The next block in what the end leaves open: from a <tool_call> or a bare
 * function to the end of the first whole function. False: none is whole. */
static bool next_open(const char *p, const char *end, const char **ret_from,
                      const char **ret_stop)
{
    const char *call = find(p, end, tags[TAG_CALL]);
    const char *function = find(p, end, tags[TAG_FUNCTION]);
    const char *stop =
        function != NULL ? find(function, end, tags[TAG_FUNCTION_END]) : NULL;
    bool called = call != NULL && (stop == NULL || call < function);

    *ret_from = called ? call : stop != NULL ? function : end;
    if (stop == NULL) {
        return false;
    }
    *ret_stop = stop + strlen(tags[TAG_FUNCTION_END]);
    return true;
}

/* Text before a block, or before the last <tool_call>, left open. */
static int put_between(struct tools *t, const char *p, const char *from,
                       const char *end)
{
    size_t n = (size_t)(from - p);

    return t->after && from != end && blanks(p, n) == n ? 0 : put_text(t, p, n);
}

static int take_open(struct tools *t, const char *p, const char *end)
{
    const char *from, *stop;
    int n, r;

    while (next_open(p, end, &from, &stop)) {
        r = put_between(t, p, from, end);
        n = r == 0 ? take_block(t, from, (size_t)(stop - from), false) : r;
        if (n == 0) {
            r = put_text(t, from, (size_t)(stop - from));
        }
        if (n < 0 || r != 0) {
            return n < 0 ? n : r;
        }
        /* A bare function that is none is no block. */
        t->after = n > 0 || memcmp(from, tags[TAG_CALL], 6) == 0;
        p = stop;
    }
    r = drop_begun(t, 0);
    if (r == 0) {
        r = put_between(t, p, from, end);
    }
    return r != 0 ? r : put_text(t, from, (size_t)(end - from));
}

int tools_flush(struct tools *t, parse_emit emit, void *ctx)
{
    size_t n;
    const char *tail = scan_held(&t->scan, &n);
    bool open = t->state != TOOLS_TEXT;
    int r;

    t->emit = emit;
    t->ctx = ctx;
    r = hold(t, tail, n);
    enter(t, TOOLS_TEXT);
    if (r == 0 && t->held.n != 0) {
        r = open ? take_open(t, t->held.p, t->held.p + t->held.n)
                 : put_text(t, t->held.p, t->held.n);
    }
    let_go(t);
    t->after = t->absorb = false;
    return r;
}
