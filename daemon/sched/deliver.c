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
    int32_t stop_id[DELIVER_MAX_STOP_IDS]; /* that end this answer */
    int n_stop_ids;
    struct detok detok;
    struct detok grow; /* want_bytes: of a call's arguments as they come */
    struct parse *parse;
    bool has_calls; /* there may be some: the turn is kept in mind */
    struct turn_draft turn;
    int n_drawn, n_reasoning;
    bool stopped; /* by a token of the model's or the request's */
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

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 33;
}

/* What ids of calls are made from: the request, as far as the answer hangs on
 * it, so that two answers that differ have different ids. */
static void salt(const struct job *j, uint64_t ret[2])
{
    const float f[] = {j->temperature, j->top_p,    j->min_p,
                       j->repetition,  j->presence, j->frequency};
    uint32_t bits[sizeof(f) / sizeof(f[0])];

    memcpy(bits, f, sizeof(f));
    for (unsigned i = 0; i < 2; i++) {
        uint64_t h = mix(UINT64_C(0x9e3779b97f4a7c15) + i, j->seed);

        for (size_t k = 0; k < sizeof(bits) / sizeof(bits[0]); k++) {
            h = mix(h, bits[k]);
        }
        h = mix(h, (uint64_t)j->top_k);
        h = mix(h, (uint64_t)(j->max_reasoning + 1));
        for (int k = 0; k < j->n_bias; k++) {
            uint32_t b;

            memcpy(&b, &j->bias[k].bias, sizeof(b));
            h = mix(h, (uint64_t)j->bias[k].id << 32 | b);
        }
        for (int k = 0; k < j->n_ids; k++) {
            h = mix(h, (uint64_t)j->ids[k]);
        }
        ret[i] = h;
    }
}

static void set_stop_ids(struct deliver *d)
{
    const struct job *j = d->job;
    const struct deliver_conf *c = &d->conf;

    BUG_ON(c->n_stop_ids + j->n_stop_ids > DELIVER_MAX_STOP_IDS);
    for (int i = 0; !j->ignore_eos && i < c->n_stop_ids; i++) {
        d->stop_id[d->n_stop_ids++] = c->stop_ids[i];
    }
    for (int i = 0; i < j->n_stop_ids; i++) {
        d->stop_id[d->n_stop_ids++] = j->stop_ids[i];
    }
}

int deliver_create(struct deliver **ret, const struct job *j,
                   const struct deliver_conf *c)
{
    struct deliver *d = xcalloc(1, sizeof(*d));
    const char *stop[JOB_MAX_STOPS];
    size_t stop_len[JOB_MAX_STOPS];
    struct parse_args a = {
        .reasoning = j->chat && j->thinking,
        /* An answer that is to fit a format has no tags but those of its
         * reasoning. */
        .raw = !j->chat || (job_has_format(j) && !j->thinking),
        .include_stop = j->include_stop,
        .n_stops = j->n_stops,
        .stop = stop,
        .stop_len = stop_len,
    };
    int r;

    BUG_ON(c->max_tokens < 1);
    d->job = j;
    d->conf = *c;
    set_stop_ids(d);
    detok_init(&d->detok);
    if (j->has_tools && j->choice != JOB_CHOICE_NONE) {
        a.tools = j->tools.p;
        a.n_tools = j->tools.n;
        salt(j, a.salt);
        d->has_calls = true;
    }
    for (int i = 0; i < j->n_stops; i++) {
        stop[i] = j->stop[i].p;
        stop_len[i] = j->stop[i].n;
    }
    r = parse_create(&d->parse, &a);
    if (r < 0) {
        deliver_destroy(d);
        return r;
    }
    parse_stops(d->parse, j->min_tokens == 0);
    *ret = d;
    return 0;
}

void deliver_destroy(struct deliver *d)
{
    if (d == NULL) {
        return;
    }
    parse_destroy(d->parse);
    turn_draft_finish(&d->turn);
    event_destroy(d->delta);
    free(d);
}

/* ---- the delta being built ----------------------------------------------- */

static void close_delta(struct deliver *d)
{
    struct event *e = d->delta;

    d->delta = NULL;
    d->cap_text = 0;
    d->cap_ids = d->cap_logprobs = 0;
    if (e != NULL && (e->text.n > 0 || e->n_ids > 0 || e->n_logprobs > 0 ||
                      e->kind == EVENT_TOOL_CALL)) {
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
        d->delta->text_is_bytes = d->job->want_bytes;
    }
    return d->delta;
}

static int add_text(struct deliver *d, const char *text, size_t n)
{
    struct event *e = d->delta;

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

static int take_text(struct deliver *d, enum event_kind kind, const char *text,
                     size_t n)
{
    if (d->delta != NULL && d->delta->kind != kind) {
        if (d->delta->text.n > 0) {
            close_delta(d);
        } else {
            d->delta->kind = kind;
        }
    }
    (void)open_delta(d, kind);
    return add_text(d, text, n);
}

/* Text of a call is UTF-8 also where the answer goes out as bytes. */
static int add_call_text(struct deliver *d, struct detok *detok,
                         const char *text, size_t n)
{
    char *clean;
    int r;

    if (!d->job->want_bytes) {
        return add_text(d, text, n);
    }
    clean = malloc(3 * (n + 4));
    if (clean == NULL) {
        return -ENOMEM;
    }
    n = detok_feed(detok, text, n, clean);
    r = n != 0 ? add_text(d, clean, n) : 0;
    free(clean);
    return r;
}

static int set_name(struct event *e, const char *name, size_t n)
{
    struct detok detok;

    detok_init(&detok);
    e->call_name.p = malloc(3 * (n + 4));
    if (e->call_name.p == NULL) {
        return -ENOMEM;
    }
    e->call_name.n = detok_feed(&detok, name, n, e->call_name.p);
    e->call_name.n += detok_flush(&detok, e->call_name.p + e->call_name.n);
    return 0;
}

/* Of calls only pieces of arguments are put together in one delta. */
static int take_call(struct deliver *d, enum event_call what,
                     const struct parse_piece *p)
{
    struct event *e = d->delta;
    struct detok whole;
    int r = 0;

    if (what != EVENT_CALL_GROW || e == NULL || e->kind != EVENT_TOOL_CALL ||
        e->call_index != p->index) {
        close_delta(d);
        e = open_delta(d, EVENT_TOOL_CALL);
        e->text_is_bytes = false;
        e->call = what;
        e->call_index = p->index;
    }
    detok_init(&whole);
    if (what == EVENT_CALL_BEGIN) {
        detok_init(&d->grow);
    }
    if (p->id != NULL) {
        memcpy(e->call_id, p->id, sizeof(e->call_id));
        r = set_name(e, p->name, p->n_name);
    }
    if (r == 0 && p->n > 0) {
        r = add_call_text(d, what == EVENT_CALL_GROW ? &d->grow : &whole,
                          p->text, p->n);
    }
    if (what != EVENT_CALL_GROW) {
        close_delta(d);
    }
    return r;
}

_Static_assert(JOB_CALL_ID == PARSE_ID, "ids of calls");

static void keep_in_mind(struct turn_draft *t, const struct parse_piece *p)
{
    switch (p->kind) {
    case PARSE_CONTENT:
        str_add(&t->content, p->text, p->n);
        break;
    case PARSE_REASONING:
        str_add(&t->reasoning, p->text, p->n);
        break;
    case PARSE_CALL:
        turn_draft_call(t, p->id, p->name, p->n_name, p->text, p->n);
        break;
    case PARSE_CALL_BEGIN:
    case PARSE_CALL_GROW:
    case PARSE_CALL_DROPPED:
        break;
    }
}

/* The parser's callback. A delta has one kind of text. */
static int on_piece(void *ctx, const struct parse_piece *p)
{
    struct deliver *d = ctx;

    if (d->has_calls) {
        keep_in_mind(&d->turn, p);
    }

    switch (p->kind) {
    case PARSE_CONTENT:
        return take_text(d, EVENT_CONTENT, p->text, p->n);
    case PARSE_REASONING:
        return take_text(d, EVENT_REASONING, p->text, p->n);
    case PARSE_CALL_BEGIN:
        return take_call(d, EVENT_CALL_BEGIN, p);
    case PARSE_CALL_GROW:
        return take_call(d, EVENT_CALL_GROW, p);
    case PARSE_CALL:
        return take_call(d, EVENT_CALL_WHOLE, p);
    case PARSE_CALL_DROPPED:
        return take_call(d, EVENT_CALL_DROPPED, p);
    }
    return 0;
}

/* The delta that takes a token's id and logprob: that of its text, where it has
 * some. One that tells of a call takes none. */
static struct event *open_for_token(struct deliver *d)
{
    if (d->delta != NULL && d->delta->kind == EVENT_TOOL_CALL) {
        close_delta(d);
    }
    return open_delta(d, parse_in_reasoning(d->parse) ? EVENT_REASONING
                                                      : EVENT_CONTENT);
}

static int add_id(struct deliver *d, const struct model_token *t)
{
    struct event *e;

    if (!d->job->want_ids) {
        return 0;
    }
    e = open_for_token(d);
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
    e = open_for_token(d);
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
    for (int i = 0; i < d->n_stop_ids; i++) {
        if (d->stop_id[i] == id) {
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

    if (d->job->want_bytes) {
        return parse_feed(d->parse, bytes, n, on_piece, d);
    }
    if (3 * (n + 4) > sizeof(small)) {
        out = malloc(3 * (n + 4));
        if (out == NULL) {
            return -ENOMEM;
        }
    }
    n = detok_feed(&d->detok, bytes, n, out);
    r = n > 0 ? parse_feed(d->parse, out, n, on_piece, d) : 0;
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
    int r = n > 0 ? parse_feed(d->parse, out, n, on_piece, d) : 0;

    if (r == 0) {
        r = parse_flush(d->parse, on_piece, d);
    }
    return r;
}

static int one_token(struct deliver *d, const struct model_token *t)
{
    const char *bytes;
    size_t n = 0;
    bool stop = is_stop(d, t->id);
    int r = 0;

    if (d->n_drawn == d->job->min_tokens && d->n_drawn > 0) {
        parse_stops(d->parse, true);
    }
    d->n_drawn++;
    d->stopped = stop;
    if (!stop && d->has_calls) {
        str_add(&d->turn.ids, &t->id, sizeof(t->id));
    }
    if (!stop) {
        bytes = tokenizer_bytes(d->conf.tokenizer, t->id, &n);
        r = bytes == NULL || n == 0 ? 0 : feed_bytes(d, bytes, n);
        if (r < 0) {
            return r;
        }
    }
    d->n_reasoning += parse_in_reasoning(d->parse);
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
    if (d->ended && parse_calls(d->parse) > 0) {
        end(d, FINISH_TOOL_CALLS);
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

int deliver_over(struct deliver *d, deliver_emit emit, void *ctx)
{
    int r;

    d->emit = emit;
    d->ctx = ctx;
    r = flush(d);
    end(d, parse_calls(d->parse) > 0 ? FINISH_TOOL_CALLS : FINISH_STOP);
    close_delta(d);
    return r < 0 ? r : 0;
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

const struct turn_draft *deliver_turn(const struct deliver *d)
{
    return d->stopped && d->turn.n_calls > 0 ? &d->turn : NULL;
}

/* ---- what may be drawn --------------------------------------------------- */

/* Whether the answer would be in reasoning after the first 0, 1, .. n drafts,
 * and how many tokens of it it would have by then. */
static void look_ahead(const struct deliver *d, const int32_t *draft, int n,
                       bool *ret_inside, int *ret_count)
{
    struct detok detok = d->detok;
    char text[3 * (DELIVER_AHEAD_BYTES + 4)];
    size_t at = 0;

    ret_inside[0] = parse_in_reasoning(d->parse);
    ret_count[0] = d->n_reasoning;
    for (int i = 0; i < n; i++) {
        size_t m;
        const char *bytes = tokenizer_bytes(d->conf.tokenizer, draft[i], &m);

        if (bytes != NULL && 3 * (m + 4) <= sizeof(text) - at) {
            at += detok_feed(&detok, bytes, m, text + at);
        }
        ret_inside[i + 1] = parse_would_reason(d->parse, text, at);
        ret_count[i + 1] = ret_count[i] + ret_inside[i + 1];
    }
}

bool deliver_limits(const struct deliver *d, const int32_t *draft, int n,
                    uint8_t ret[MODEL_MAX_DRAFTS + 1])
{
    const struct job *j = d->job;
    bool inside[MODEL_MAX_DRAFTS + 1] = {false}, any = false;
    int count[MODEL_MAX_DRAFTS + 1] = {0};

    if (j->max_reasoning >= 0) {
        look_ahead(d, draft, n, inside, count);
    }
    for (int i = 0; i <= n; i++) {
        ret[i] = 0;
        if (d->n_drawn + i < j->min_tokens) {
            ret[i] |= DELIVER_NO_STOP;
        }
        if (j->has_tools && j->choice == JOB_CHOICE_NONE) {
            ret[i] |= DELIVER_NO_CALL;
        }
        if (inside[i] && count[i] >= j->max_reasoning) {
            ret[i] = DELIVER_END_REASONING;
        }
        any = any || ret[i] != 0;
    }
    return any;
}

bool deliver_allows(const struct deliver *d, uint8_t limits, int32_t id)
{
    if ((limits & DELIVER_END_REASONING) != 0) {
        return id == d->conf.think_end;
    }
    return !((limits & DELIVER_NO_STOP) != 0 && is_stop(d, id)) &&
           !((limits & DELIVER_NO_CALL) != 0 && id == d->conf.tool_call);
}

static void forbid(uint32_t *words, int n_words, int32_t id)
{
    if (id >= 0 && id / 32 < n_words) {
        words[id / 32] &= ~(UINT32_C(1) << id % 32);
    }
}

void deliver_mask(const struct deliver *d, uint8_t limits, uint32_t *words,
                  int n_words)
{
    int32_t end = d->conf.think_end;

    if ((limits & DELIVER_END_REASONING) != 0) {
        memset(words, 0, (size_t)n_words * sizeof(*words));
        words[end / 32] = UINT32_C(1) << end % 32;
        return;
    }
    memset(words, 0xff, (size_t)n_words * sizeof(*words));
    for (int i = 0; (limits & DELIVER_NO_STOP) != 0 && i < d->n_stop_ids; i++) {
        forbid(words, n_words, d->stop_id[i]);
    }
    if ((limits & DELIVER_NO_CALL) != 0) {
        forbid(words, n_words, d->conf.tool_call);
    }
}
