/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * One answer on its way out: token -> bytes -> whole characters -> reasoning or
 * content -> delta events, and the finish reason. Engine thread only. Owns the
 * detokeniser's and the parser's state; sends through the caller's emit.
 *
 * A stop id is part of the ids and of the usage and never of the text. Tokens
 * behind the end are dropped, whatever the model has already computed.
 *
 * The invariant: the deltas' ids put together are the tokens that count in
 * usage, and their texts put together are what the parser makes of the bytes
 * of those tokens, however the steps cut them.
 */

#include "daemon/sched/deliver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/text/detok.h"
#include "daemon/text/parse.h"

struct deliver {
    const struct job *job;
    struct deliver_conf conf;
    struct detok detok;
    struct parse *parse;
    int n_drawn, n_reasoning;
    bool ended;
    enum event_finish finish;
    /* The delta being built; NULL when there is none. */
    struct event *delta;
    size_t cap_text;
    int cap_ids, cap_logprobs;
    /* Of the call that is running. */
    deliver_emit emit;
    void *ctx;
};

int deliver_create(struct deliver **ret, const struct job *j,
                   const struct deliver_conf *c)
{
    struct deliver *d = xcalloc(1, sizeof(*d));
    const char *stop[JOB_MAX_STOPS];
    size_t stop_len[JOB_MAX_STOPS];
    struct parse_args a = {
        .reasoning = j->chat && j->thinking,
        .raw = !j->chat,
        .n_stops = j->n_stops,
        .stop = stop,
        .stop_len = stop_len,
    };
    int r;

    BUG_ON(c->max_tokens < 1);
    d->job = j;
    d->conf = *c;
    detok_init(&d->detok);
    for (int i = 0; i < j->n_stops; i++) {
        stop[i] = j->stop[i].p;
        stop_len[i] = j->stop[i].n;
    }
    r = parse_create(&d->parse, &a);
    if (r < 0) {
        deliver_destroy(d);
        return r;
    }
    *ret = d;
    return 0;
}

void deliver_destroy(struct deliver *d)
{
    if (d == NULL) {
        return;
    }
    parse_destroy(d->parse);
    event_destroy(d->delta);
    free(d);
}

/* ---- the delta being built ----------------------------------------------- */

static enum event_kind kind_of(enum parse_kind k)
{
    switch (k) {
    case PARSE_REASONING:
        return EVENT_REASONING;
    case PARSE_TOOL_CALL:
        return EVENT_TOOL_CALL;
    case PARSE_CONTENT:
        break;
    }
    return EVENT_CONTENT;
}

static void close_delta(struct deliver *d)
{
    struct event *e = d->delta;

    d->delta = NULL;
    d->cap_text = 0;
    d->cap_ids = d->cap_logprobs = 0;
    if (e != NULL && (e->text.n > 0 || e->n_ids > 0 || e->n_logprobs > 0)) {
        e->usage.completion_tokens = d->n_drawn;
        d->emit(d->ctx, e);
    } else {
        event_destroy(e);
    }
}

static struct event *open_delta(struct deliver *d, enum event_kind kind)
{
    if (d->delta == NULL) {
        d->delta = event_create(EVENT_DELTA, d->job);
        d->delta->kind = kind;
    }
    return d->delta;
}

/* The parser's callback. A delta has one kind of text. */
static int on_text(void *ctx, enum parse_kind k, const char *text, size_t n)
{
    struct deliver *d = ctx;
    enum event_kind kind = kind_of(k);
    struct event *e;

    if (d->delta != NULL && d->delta->kind != kind) {
        if (d->delta->text.n > 0) {
            close_delta(d);
        } else {
            d->delta->kind = kind;
        }
    }
    e = open_delta(d, kind);
    if (e->text.n + n > d->cap_text) {
        size_t cap = e->text.n + n + d->cap_text;
        char *p = realloc(e->text.p, cap);

        if (p == NULL) {
            return -ENOMEM;
        }
        e->text.p = p;
        d->cap_text = cap;
    }
    memcpy(e->text.p + e->text.n, text, n);
    e->text.n += n;
    return 0;
}

/* The id goes where the token's text went, or would go. */
static int add_id(struct deliver *d, const struct model_token *t)
{
    struct event *e;

    if (!d->job->want_ids) {
        return 0;
    }
    e = open_delta(d, parse_in_reasoning(d->parse) ? EVENT_REASONING
                                                   : EVENT_CONTENT);
    if (e->n_ids == d->cap_ids) {
        int cap = d->cap_ids + MODEL_MAX_DRAFTS + 1;
        int32_t *p = realloc(e->ids, (size_t)cap * sizeof(*p));

        if (p == NULL) {
            return -ENOMEM;
        }
        e->ids = p;
        d->cap_ids = cap;
    }
    e->ids[e->n_ids++] = t->id;
    return 0;
}

static struct event_bytes bytes_of(const struct deliver *d, int32_t id)
{
    struct event_bytes b = {NULL, 0};

    b.p = tokenizer_bytes(d->conf.tokenizer, id, &b.n);
    return b;
}

static int add_logprob(struct deliver *d, const struct model_token *t)
{
    struct event_logprob *l;
    struct event *e;

    if (d->job->logprobs < 0) {
        return 0;
    }
    e = open_delta(d, parse_in_reasoning(d->parse) ? EVENT_REASONING
                                                   : EVENT_CONTENT);
    if (e->n_logprobs == d->cap_logprobs) {
        int cap = d->cap_logprobs + MODEL_MAX_DRAFTS + 1;

        l = realloc(e->logprobs, (size_t)cap * sizeof(*l));
        if (l == NULL) {
            return -ENOMEM;
        }
        e->logprobs = l;
        d->cap_logprobs = cap;
    }
    l = &e->logprobs[e->n_logprobs++];
    memset(l, 0, sizeof(*l));
    l->id = t->id;
    l->logprob = t->logprob;
    l->bytes = bytes_of(d, t->id);
    l->n_top = t->n_top < d->job->logprobs ? t->n_top : d->job->logprobs;
    for (int i = 0; i < l->n_top; i++) {
        l->top_id[i] = t->top_id[i];
        l->top_logprob[i] = t->top_logprob[i];
        l->top_bytes[i] = bytes_of(d, t->top_id[i]);
    }
    return 0;
}

/* ---- tokens -------------------------------------------------------------- */

static bool is_stop(const struct deliver *d, int32_t id)
{
    for (int i = 0; i < d->conf.n_stop_ids; i++) {
        if (d->conf.stop_ids[i] == id) {
            return true;
        }
    }
    return false;
}

static void end(struct deliver *d, enum event_finish why)
{
    d->ended = true;
    d->finish = why;
}

/* Bytes of one token through the detokeniser and the parser; 1: a stop string
 * was met. */
static int feed_bytes(struct deliver *d, const char *bytes, size_t n)
{
    char small[512], *out = small;
    int r;

    if (3 * (n + 4) > sizeof(small)) {
        out = malloc(3 * (n + 4));
        if (out == NULL) {
            return -ENOMEM;
        }
    }
    n = detok_feed(&d->detok, bytes, n, out);
    r = n > 0 ? parse_feed(d->parse, out, n, on_text, d) : 0;
    if (out != small) {
        free(out);
    }
    return r;
}

/* No more tokens come: what was held back for them comes out. 1: it turned out
 * to be the end of a stop string. */
static int flush(struct deliver *d)
{
    char out[16];
    size_t n = detok_flush(&d->detok, out);
    int r = n > 0 ? parse_feed(d->parse, out, n, on_text, d) : 0;

    if (r == 0) {
        r = parse_flush(d->parse, on_text, d);
    }
    return r;
}

static int one_token(struct deliver *d, const struct model_token *t)
{
    const char *bytes;
    size_t n = 0;
    bool stop = is_stop(d, t->id);
    int r = 0;

    d->n_drawn++;
    d->n_reasoning += parse_in_reasoning(d->parse);
    if (!stop) {
        bytes = tokenizer_bytes(d->conf.tokenizer, t->id, &n);
        r = bytes == NULL || n == 0 ? 0 : feed_bytes(d, bytes, n);
        if (r < 0) {
            return r;
        }
    }
    if (stop || r > 0) {
        end(d, FINISH_STOP);
    } else if (d->n_drawn >= d->conf.max_tokens) {
        end(d, FINISH_LENGTH);
    }
    if (d->ended && r == 0) {
        r = flush(d);
        if (r < 0) {
            return r;
        }
        if (r > 0) {
            end(d, FINISH_STOP);
        }
    }
    r = add_id(d, t);
    return r < 0 ? r : add_logprob(d, t);
}

int deliver_tokens(struct deliver *d, const struct model_token *t, int n,
                   deliver_emit emit, void *ctx)
{
    int used = 0, r = 0;

    BUG_ON(d->ended);
    d->emit = emit;
    d->ctx = ctx;
    while (used < n && !d->ended && r >= 0) {
        r = one_token(d, &t[used++]);
    }
    if (r < 0) {
        end(d, FINISH_LENGTH);
        event_destroy(d->delta);
        d->delta = NULL;
        return r;
    }
    close_delta(d);
    return used;
}

bool deliver_ended(const struct deliver *d, enum event_finish *ret)
{
    if (d->ended) {
        *ret = d->finish;
    }
    return d->ended;
}

int deliver_cut(struct deliver *d, deliver_emit emit, void *ctx)
{
    int r;

    if (d->ended) {
        return 0;
    }
    d->ended = true;
    d->emit = emit;
    d->ctx = ctx;
    r = flush(d);
    close_delta(d);
    return r < 0 ? r : 0;
}

int deliver_drawn(const struct deliver *d)
{
    return d->n_drawn;
}

int deliver_left(const struct deliver *d)
{
    return d->conf.max_tokens - d->n_drawn;
}

void deliver_usage(const struct deliver *d, struct event_usage *ret)
{
    ret->completion_tokens = d->n_drawn;
    ret->reasoning_tokens = d->n_reasoning;
}
