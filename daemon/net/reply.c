/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Events of the engine to frames. The way back of request.c.
 *
 * Owns nothing. I/O thread. The invariant: one event becomes whole frames or
 * none (client/wire.c appends all or nothing), each below max_frame: long
 * results are cut into `part` events by wire_put_part_*.
 */

#include "daemon/net/reply.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/net/flight.h"
#include "daemon/sched/job.h"

_Static_assert(sizeof(((struct event_logprob *)NULL)->top_id) /
                       sizeof(int32_t) ==
                   WIRE_MAX_LOGPROBS,
               "alternatives of a logprob");

static const char *const kinds[] = {
    [EVENT_CONTENT] = "content",
    [EVENT_REASONING] = "reasoning",
    [EVENT_TOOL_CALL] = "tool_call",
};

static const char *const finishes[] = {
    [FINISH_STOP] = "stop",
    [FINISH_LENGTH] = "length",
    [FINISH_TOOL_CALLS] = "tool_calls",
    [FINISH_CANCELLED] = "cancelled",
    [FINISH_TIMEOUT] = "timeout",
};

const char *reply_finish_name(const struct event *e)
{
    BUG_ON((size_t)e->finish >= sizeof(finishes) / sizeof(finishes[0]));
    return finishes[e->finish];
}

bool reply_is_final(const struct event *e)
{
    return e->type == EVENT_DONE || e->type == EVENT_ERROR;
}

/* An id without text has no bytes: an empty string, for the key is promised. */
static struct wire_str bytes_of(const struct event_bytes *b)
{
    struct wire_str s = {b->p != NULL ? b->p : "", b->p != NULL ? b->n : 0};

    return s;
}

static void fill_logprob(struct wire_logprob *to, const struct event_logprob *l,
                         struct wire_str *top)
{
    struct wire_str own = bytes_of(&l->bytes);

    for (int i = 0; i < l->n_top; i++) {
        top[i] = bytes_of(&l->top_bytes[i]);
    }
    to->id = l->id;
    to->logprob = (double)l->logprob;
    to->bytes = own.p;
    to->n_bytes = own.n;
    to->n_top = l->n_top;
    to->top_id = l->top_id;
    to->top_logprob = l->top_logprob;
    to->top_bytes = top;
}

static const char *const calls[] = {
    [EVENT_CALL_BEGIN] = "call_begin",
    [EVENT_CALL_GROW] = "call_args",
    [EVENT_CALL_WHOLE] = "call",
    [EVENT_CALL_DROPPED] = "call_dropped",
};

static void put_call(struct wire_buf *b, const struct event *e, uint64_t id)
{
    const struct wire_call call = {
        .key = calls[e->call],
        .index = e->call_index,
        .id = e->call_id[0] != '\0' ? e->call_id : NULL,
        .name = {e->call_name.p, e->call_name.n},
        .text = {e->text.p, e->text.n},
    };
    const struct wire_delta d = {
        .kind = kinds[e->kind],
        .call = &call,
    };

    (void)wire_put_delta(b, id, &d);
}

/* The logprobs of an event as the wire's; free both. */
static struct wire_logprob *list_logprobs(const struct event *e,
                                          struct wire_str **ret_top)
{
    struct wire_logprob *list = xcalloc((size_t)e->n_logprobs, sizeof(*list));
    struct wire_str *top =
        xcalloc((size_t)e->n_logprobs * WIRE_MAX_LOGPROBS, sizeof(*top));

    for (int i = 0; i < e->n_logprobs; i++) {
        fill_logprob(&list[i], &e->logprobs[i],
                     top + (size_t)i * WIRE_MAX_LOGPROBS);
    }
    *ret_top = top;
    return list;
}

static void put_delta(struct wire_buf *b, const struct event *e, uint64_t id)
{
    struct wire_delta d = {
        .kind = kinds[e->kind],
        .text = e->text.p,
        .n = e->text.n,
        .bytes = e->text_is_bytes,
        .ids = e->ids,
        .n_ids = e->n_ids,
        .n_logprobs = e->n_logprobs,
    };
    struct wire_logprob *list = NULL;
    struct wire_str *top = NULL;

    if (e->n_logprobs > 0) {
        list = list_logprobs(e, &top);
        d.logprobs = list;
    }
    (void)wire_put_delta(b, id, &d);
    free(top);
    free(list);
}

static void put_session(struct wire_map *m, const struct event_session *s)
{
    wire_map_int(m, "tokens", s->tokens);
    wire_map_int(m, "cached_tokens", s->cached);
    wire_map_bool(m, "pinned", s->pinned);
    wire_map_bool(m, "saved", s->saved);
    wire_map_bool(m, "busy", s->busy);
    wire_map_uint(m, "file_bytes", s->file_bytes);
    wire_map_uint(m, "idle_ms", s->idle_ms);
}

static void put_sessions(struct wire_buf *b, const struct event *e,
                         struct flight *f)
{
    struct wire_map m, list, one;

    f->n_ids += (uint64_t)e->n_sessions;
    wire_map_begin_event(&m, b, f->request, "part");
    wire_map_open_list(&m, "sessions", &list);
    for (int i = 0; i < e->n_sessions; i++) {
        wire_list_open(&list, &one);
        wire_map_str(&one, "name", e->sessions[i].name);
        put_session(&one, &e->sessions[i]);
        wire_map_close(&one);
    }
    wire_map_close(&list);
    (void)wire_map_end(&m);
}

static void put_part(struct wire_buf *b, const struct event *e,
                     struct flight *f)
{
    if (e->n_sessions > 0) {
        put_sessions(b, e, f);
    }
    if (e->n_ids > 0) {
        f->n_ids += (uint64_t)e->n_ids;
        (void)wire_put_part_ids(b, f->request, e->ids, (size_t)e->n_ids);
    }
    if (e->text.n > 0) {
        (void)wire_put_part_text(b, f->request, e->text.p, e->text.n,
                                 e->text_is_bytes);
    }
    if (e->n_logprobs > 0) {
        struct wire_str *top;
        struct wire_logprob *list = list_logprobs(e, &top);

        (void)wire_put_part_logprobs(b, f->request, list, e->n_logprobs);
        free(top);
        free(list);
    }
}

static void put_done(struct wire_buf *b, const struct event *e,
                     const struct flight *f)
{
    struct wire_done d = {
        .finish_reason = reply_finish_name(e),
        .prompt_tokens = e->usage.prompt_tokens,
        .cached_tokens = e->usage.cached_tokens,
        .completion_tokens = e->usage.completion_tokens,
        .reasoning_tokens = e->usage.reasoning_tokens,
        .drafts = e->usage.drafts,
        .drafted = e->usage.drafted,
        .accepted = e->usage.accepted,
        .seed = e->seed,
        .queue_ms = e->timings.queue_ms,
        .prefill_ms = e->timings.prefill_ms,
        .decode_ms = e->timings.decode_ms,
    };
    struct wire_map m;

    memcpy(d.accepted_at, e->usage.accepted_at, sizeof(d.accepted_at));
    if (!e->plain) {
        (void)wire_put_done(b, f->request, &d);
        return;
    }
    wire_map_begin_done(&m, b, f->request);
    if (e->n_sessions > 0) {
        put_session(&m, e->sessions);
    }
    if (f->op == WIRE_TOKENIZE || f->op == WIRE_SESSION_LIST) {
        wire_map_uint(&m, "count", f->n_ids);
    } else if (f->op == WIRE_SCORE) {
        wire_map_uint(&m, "count", (uint64_t)e->usage.prompt_tokens - 1);
    }
    (void)wire_map_end(&m);
}

void reply_event(struct wire_buf *b, const struct event *e, struct flight *f)
{
    switch (e->type) {
    case EVENT_ACCEPTED:
        f->prompt_tokens = e->prompt_tokens;
        (void)wire_put_accepted(b, f->request, f->job, e->queue_position,
                                e->prompt_tokens);
        break;
    case EVENT_PROGRESS:
        (void)wire_put_progress(b, f->request, e->done, e->total, e->cached);
        break;
    case EVENT_DELTA:
        if (e->kind == EVENT_TOOL_CALL) {
            put_call(b, e, f->request);
        } else {
            put_delta(b, e, f->request);
        }
        break;
    case EVENT_PART:
        put_part(b, e, f);
        break;
    case EVENT_DONE:
        put_done(b, e, f);
        break;
    case EVENT_ERROR:
        (void)wire_put_error(b, f->request,
                             wire_code_find(e->code, strlen(e->code)),
                             e->message, e->detail, e->retry_ms);
        break;
    }
}
