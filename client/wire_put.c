/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Frames out: events of the daemon, and the map builder that requests of the
 * library are made with too. Each call appends one frame (of parts: all that it
 * takes) or, when memory or a limit runs out, nothing; the error sticks to the
 * buffer.
 *
 * Counts that are known at the end only (the frame's length, the number of
 * keys) are put in their widest form and patched.
 */

#include <errno.h>
#include <math.h>
#include <string.h>

#include "client/wire_priv.h"

/* ---- one value ---------------------------------------------------------- */

static void put_strn(struct wire_buf *b, const char *s, size_t n)
{
    msgpack_packer k;

    wire_packer_init(&k, b);
    msgpack_pack_str(&k, n);
    wire_buf_put(b, s, n);
}

static void put_bin(struct wire_buf *b, const void *p, size_t n)
{
    msgpack_packer k;

    wire_packer_init(&k, b);
    msgpack_pack_bin(&k, n);
    wire_buf_put(b, p, n);
}

/* str is a promise of UTF-8, so what is none goes out as bin. */
static void put_text(struct wire_buf *b, const char *s, size_t n)
{
    if (wire_utf8_ok(s, n)) {
        put_strn(b, s, n);
    } else {
        put_bin(b, s, n);
    }
}

static void put_key(struct wire_map *m, const char *key)
{
    put_strn(m->b, key, strlen(key));
    m->count++;
}

static void put_int(struct wire_buf *b, int64_t v)
{
    msgpack_packer k;

    wire_packer_init(&k, b);
    msgpack_pack_int64(&k, v);
}

static void put_uint(struct wire_buf *b, uint64_t v)
{
    msgpack_packer k;

    wire_packer_init(&k, b);
    msgpack_pack_uint64(&k, v);
}

/* The protocol has no infinities and no NaN; absent is the nearest. */
static void put_real(struct wire_buf *b, double v)
{
    msgpack_packer k;

    wire_packer_init(&k, b);
    if (isfinite(v)) {
        msgpack_pack_double(&k, v);
    } else {
        msgpack_pack_nil(&k);
    }
}

static void put_bool(struct wire_buf *b, bool v)
{
    uint8_t byte = v ? 0xc3 : 0xc2;

    wire_buf_put(b, &byte, 1);
}

/* A head whose count is patched at the end: array 32 or map 32. */
static void put_head(struct wire_map *m, struct wire_buf *b, uint8_t byte)
{
    uint8_t head[5] = {byte};

    m->b = b;
    m->count = 0;
    wire_buf_put(b, head, sizeof(head));
    m->count_at = b->n - sizeof(uint32_t);
}

/* ---- the map builder ---------------------------------------------------- */

static void begin_frame(struct wire_map *m, struct wire_buf *b)
{
    uint8_t length[WIRE_HEADER_SIZE] = {0};

    m->frame_at = b->n;
    wire_buf_put(b, length, sizeof(length));
    put_head(m, b, 0xdf);
}

int wire_map_end(struct wire_map *m)
{
    struct wire_buf *b = m->b;

    if (b->err == 0 && b->n - m->frame_at - WIRE_HEADER_SIZE > WIRE_MAX_FRAME) {
        b->err = -E2BIG;
    }
    if (b->err != 0) {
        b->n = m->frame_at;
        return b->err;
    }
    wire_patch_count(b, m->count_at, m->count);
    wire_patch_count(b, m->frame_at,
                     (uint32_t)(b->n - m->frame_at - WIRE_HEADER_SIZE));
    return 0;
}

void wire_map_begin_event(struct wire_map *m, struct wire_buf *b, uint64_t id,
                          const char *event)
{
    begin_frame(m, b);
    wire_map_uint(m, "id", id);
    wire_map_str(m, "event", event);
}

void wire_map_begin_done(struct wire_map *m, struct wire_buf *b, uint64_t id)
{
    wire_map_begin_event(m, b, id, "done");
}

void wire_map_begin_request(struct wire_map *m, struct wire_buf *b, uint64_t id,
                            const char *op)
{
    begin_frame(m, b);
    wire_map_uint(m, "id", id);
    wire_map_str(m, "op", op);
}

void wire_map_raw(struct wire_map *m, const char *key, const void *p, size_t n)
{
    put_key(m, key);
    wire_buf_put(m->b, p, n);
}

void wire_list_raw(struct wire_map *list, const void *p, size_t n,
                   uint32_t n_values)
{
    list->count += n_values;
    wire_buf_put(list->b, p, n);
}

void wire_map_strn(struct wire_map *m, const char *key, const char *s, size_t n)
{
    put_key(m, key);
    put_text(m->b, s, n);
}

void wire_map_str(struct wire_map *m, const char *key, const char *s)
{
    wire_map_strn(m, key, s, strlen(s));
}

void wire_map_bin(struct wire_map *m, const char *key, const void *p, size_t n)
{
    put_key(m, key);
    put_bin(m->b, p, n);
}

void wire_map_uint(struct wire_map *m, const char *key, uint64_t v)
{
    put_key(m, key);
    put_uint(m->b, v);
}

void wire_map_int(struct wire_map *m, const char *key, int64_t v)
{
    put_key(m, key);
    put_int(m->b, v);
}

void wire_map_real(struct wire_map *m, const char *key, double v)
{
    put_key(m, key);
    put_real(m->b, v);
}

void wire_map_bool(struct wire_map *m, const char *key, bool v)
{
    put_key(m, key);
    put_bool(m->b, v);
}

void wire_map_open(struct wire_map *m, const char *key, struct wire_map *ret)
{
    put_key(m, key);
    put_head(ret, m->b, 0xdf);
}

void wire_map_open_list(struct wire_map *m, const char *key,
                        struct wire_map *ret)
{
    put_key(m, key);
    put_head(ret, m->b, 0xdd);
}

void wire_list_open(struct wire_map *list, struct wire_map *ret)
{
    list->count++;
    put_head(ret, list->b, 0xdf);
}

void wire_list_str(struct wire_map *list, const char *s)
{
    list->count++;
    put_text(list->b, s, strlen(s));
}

void wire_list_int(struct wire_map *list, int64_t v)
{
    list->count++;
    put_int(list->b, v);
}

void wire_list_real(struct wire_map *list, double v)
{
    list->count++;
    put_real(list->b, v);
}

void wire_map_close(struct wire_map *inner)
{
    wire_patch_count(inner->b, inner->count_at, inner->count);
}

/* ---- values of a request ------------------------------------------------ */

/* Ends a wire_value_*: what was put since start, or nothing. */
static int end_value(struct wire_buf *b, size_t start)
{
    if (b->err != 0) {
        b->n = start;
    }
    return b->err;
}

int wire_value_str(struct wire_buf *b, const char *s, size_t n)
{
    size_t start = b->n;

    if (n > WIRE_MAX_FRAME) {
        return -E2BIG;
    }
    if (!wire_utf8_ok(s, n)) {
        return -EINVAL;
    }
    put_strn(b, s, n);
    return end_value(b, start);
}

int wire_value_bin(struct wire_buf *b, const void *p, size_t n)
{
    size_t start = b->n;

    if (n > WIRE_MAX_FRAME) {
        return -E2BIG;
    }
    put_bin(b, p, n);
    return end_value(b, start);
}

int wire_value_int(struct wire_buf *b, int64_t v)
{
    size_t start = b->n;

    put_int(b, v);
    return end_value(b, start);
}

int wire_value_uint(struct wire_buf *b, uint64_t v)
{
    size_t start = b->n;

    put_uint(b, v);
    return end_value(b, start);
}

int wire_value_real(struct wire_buf *b, double v)
{
    size_t start = b->n;

    if (!isfinite(v)) {
        return -EINVAL;
    }
    put_real(b, v);
    return end_value(b, start);
}

int wire_value_bool(struct wire_buf *b, bool v)
{
    size_t start = b->n;

    put_bool(b, v);
    return end_value(b, start);
}

int wire_value_list(struct wire_buf *b, uint32_t n)
{
    size_t start = b->n;
    struct wire_map m;

    put_head(&m, b, 0xdd);
    wire_patch_count(b, m.count_at, n);
    return end_value(b, start);
}

int wire_value_map(struct wire_buf *b, uint32_t n)
{
    size_t start = b->n;
    struct wire_map m;

    put_head(&m, b, 0xdf);
    wire_patch_count(b, m.count_at, n);
    return end_value(b, start);
}

/* ---- events ------------------------------------------------------------- */

static void put_features(struct wire_map *m, const struct wire_limits_now *l)
{
    struct wire_map list;
    char word[64];

    wire_map_open_list(m, "features", &list);
    for (int i = 0; i < WIRE_N_OPS; i++) {
        if (!wire_ops[i].later) {
            snprintf(word, sizeof(word), "op.%s", wire_ops[i].name);
            wire_list_str(&list, word);
        }
    }
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        if ((wire_keys[i].flags & WIRE_KEY_LATER) == 0) {
            snprintf(word, sizeof(word), "key.%s", wire_keys[i].name);
            wire_list_str(&list, word);
        }
    }
    for (int i = 0; i < l->n_features; i++) {
        wire_list_str(&list, l->features[i]);
    }
    wire_map_close(&list);
}

static void put_limits(struct wire_map *m, const struct wire_limits_now *l)
{
    struct wire_map limits;

    wire_map_open(m, "limits", &limits);
    for (size_t i = 0; i < wire_n_limits; i++) {
        uint64_t value = wire_limits[i].value;
        if (l->max_in_flight > 0 &&
            strcmp(wire_limits[i].name, "max_in_flight") == 0) {
            value = l->max_in_flight;
        }
        wire_map_uint(&limits, wire_limits[i].name, value);
    }
    if (l->max_model_len > 0) {
        wire_map_int(&limits, "max_model_len", l->max_model_len);
    }
    if (l->max_prompt_bytes > 0) {
        wire_map_uint(&limits, "max_prompt_bytes", l->max_prompt_bytes);
    }
    for (int i = 0; i < l->n_extra; i++) {
        wire_map_uint(&limits, l->extra[i].name, l->extra[i].value);
    }
    wire_map_close(&limits);
}

int wire_put_hello(struct wire_buf *b, uint64_t id,
                   const struct wire_limits_now *l)
{
    struct wire_map m;

    wire_map_begin_event(&m, b, id, "hello");
    wire_map_uint(&m, "version",
                  l->version > 0 ? l->version : WIRE_VERSION_MAX);
    wire_map_uint(&m, "version_min", WIRE_VERSION_MIN);
    wire_map_uint(&m, "version_max", WIRE_VERSION_MAX);
    if (l->server_version != NULL) {
        wire_map_str(&m, "server_version", l->server_version);
    }
    if (l->model != NULL) {
        wire_map_str(&m, "served_model_name", l->model);
    }
    put_features(&m, l);
    put_limits(&m, l);
    return wire_map_end(&m);
}

int wire_put_accepted(struct wire_buf *b, uint64_t id, uint64_t job,
                      int queue_position, int prompt_tokens)
{
    struct wire_map m;

    wire_map_begin_event(&m, b, id, "accepted");
    wire_map_uint(&m, "job", job);
    wire_map_int(&m, "queue_position", queue_position);
    wire_map_int(&m, "prompt_tokens", prompt_tokens);
    return wire_map_end(&m);
}

int wire_put_progress(struct wire_buf *b, uint64_t id, int done, int total,
                      int cached)
{
    struct wire_map m;

    wire_map_begin_event(&m, b, id, "progress");
    wire_map_int(&m, "done", done);
    wire_map_int(&m, "total", total);
    wire_map_int(&m, "cached", cached);
    return wire_map_end(&m);
}

static void put_ids(struct wire_map *m, const int32_t *ids, size_t n)
{
    struct wire_map list;

    wire_map_open_list(m, "ids", &list);
    for (size_t i = 0; i < n; i++) {
        wire_list_int(&list, ids[i]);
    }
    wire_map_close(&list);
}

static void put_logprob(struct wire_map *list, const struct wire_logprob *p)
{
    struct wire_map m, top, t;

    wire_list_open(list, &m);
    wire_map_int(&m, "id", p->id);
    wire_map_real(&m, "logprob", p->logprob);
    if (p->bytes != NULL) {
        wire_map_bin(&m, "bytes", p->bytes, p->n_bytes);
    }
    wire_map_open_list(&m, "top", &top);
    for (int i = 0; i < p->n_top; i++) {
        wire_list_open(&top, &t);
        wire_map_int(&t, "id", p->top_id[i]);
        wire_map_real(&t, "logprob", (double)p->top_logprob[i]);
        if (p->top_bytes != NULL) {
            wire_map_bin(&t, "bytes", p->top_bytes[i].p, p->top_bytes[i].n);
        }
        wire_map_close(&t);
    }
    wire_map_close(&top);
    wire_map_close(&m);
}

static void put_call(struct wire_map *m, const struct wire_call *c)
{
    bool piece = strcmp(c->key, "call_args") == 0;
    struct wire_map call;

    wire_map_open(m, c->key, &call);
    wire_map_uint(&call, "index", (uint64_t)c->index);
    if (c->id != NULL) {
        wire_map_str(&call, "id", c->id);
        wire_map_strn(&call, "name", c->name.p, c->name.n);
    }
    if (c->text.p != NULL) {
        wire_map_strn(&call, piece ? "text" : "arguments", c->text.p,
                      c->text.n);
    }
    wire_map_close(&call);
}

int wire_put_delta(struct wire_buf *b, uint64_t id, const struct wire_delta *d)
{
    struct wire_map m, list;

    wire_map_begin_event(&m, b, id, "delta");
    wire_map_str(&m, "kind", d->kind);
    if (d->call != NULL) {
        put_call(&m, d->call);
    }
    if (d->bytes && d->text != NULL) {
        wire_map_bin(&m, "text", d->text, d->n);
    } else if (d->text != NULL) {
        wire_map_strn(&m, "text", d->text, d->n);
    }
    if (d->ids != NULL) {
        put_ids(&m, d->ids, (size_t)d->n_ids);
    }
    if (d->logprobs != NULL) {
        wire_map_open_list(&m, "logprobs", &list);
        for (int i = 0; i < d->n_logprobs; i++) {
            put_logprob(&list, &d->logprobs[i]);
        }
        wire_map_close(&list);
    }
    return wire_map_end(&m);
}

int wire_put_part_ids(struct wire_buf *b, uint64_t id, const int32_t *ids,
                      size_t n)
{
    /* Five bytes an id at most. */
    const size_t most = WIRE_PART_BYTES / 5;
    size_t start = b->n;

    for (size_t done = 0; done < n && b->err == 0;) {
        struct wire_map m;
        size_t now = n - done < most ? n - done : most;
        wire_map_begin_event(&m, b, id, "part");
        put_ids(&m, ids + done, now);
        wire_map_end(&m);
        done += now;
    }
    return end_value(b, start);
}

int wire_put_part_logprobs(struct wire_buf *b, uint64_t id,
                           const struct wire_logprob *l, int n)
{
    struct wire_map m, list;

    wire_map_begin_event(&m, b, id, "part");
    wire_map_open_list(&m, "logprobs", &list);
    for (int i = 0; i < n; i++) {
        put_logprob(&list, &l[i]);
    }
    wire_map_close(&list);
    return wire_map_end(&m);
}

int wire_put_part_text(struct wire_buf *b, uint64_t id, const char *text,
                       size_t n, bool bytes)
{
    size_t start = b->n;

    bytes = bytes || !wire_utf8_ok(text, n);
    for (size_t done = 0; done < n && b->err == 0;) {
        struct wire_map m;
        size_t now = n - done;
        if (now > WIRE_PART_BYTES) {
            now = bytes ? WIRE_PART_BYTES
                        : wire_utf8_cut(text + done, WIRE_PART_BYTES);
        }
        wire_map_begin_event(&m, b, id, "part");
        if (bytes) {
            wire_map_bin(&m, "text", text + done, now);
        } else {
            wire_map_strn(&m, "text", text + done, now);
        }
        wire_map_end(&m);
        done += now;
    }
    return end_value(b, start);
}

static void put_drafts(struct wire_map *m, const struct wire_done *d)
{
    struct wire_map list;

    wire_map_int(m, "drafts", d->drafts);
    wire_map_int(m, "drafted", d->drafted);
    wire_map_int(m, "accepted", d->accepted);
    if (d->drafts == 0) {
        return;
    }
    wire_map_open_list(m, "accepted_at", &list);
    for (int i = 0; i < WIRE_MAX_DRAFTS; i++) {
        wire_list_int(&list, d->accepted_at[i]);
    }
    wire_map_close(&list);
    wire_map_real(m, "mean_acceptance_length",
                  1 + (double)d->accepted / d->drafts);
}

int wire_put_done(struct wire_buf *b, uint64_t id, const struct wire_done *d)
{
    struct wire_map m, inner;

    wire_map_begin_done(&m, b, id);
    if (d->finish_reason == NULL) {
        return wire_map_end(&m);
    }
    wire_map_str(&m, "finish_reason", d->finish_reason);
    wire_map_open(&m, "usage", &inner);
    wire_map_int(&inner, "prompt_tokens", d->prompt_tokens);
    wire_map_int(&inner, "cached_tokens", d->cached_tokens);
    wire_map_int(&inner, "completion_tokens", d->completion_tokens);
    wire_map_int(&inner, "reasoning_tokens", d->reasoning_tokens);
    put_drafts(&inner, d);
    wire_map_close(&inner);
    wire_map_uint(&m, "seed", d->seed);
    wire_map_open(&m, "timings", &inner);
    wire_map_real(&inner, "queue_ms", d->queue_ms);
    wire_map_real(&inner, "prefill_ms", d->prefill_ms);
    wire_map_real(&inner, "decode_ms", d->decode_ms);
    wire_map_close(&inner);
    return wire_map_end(&m);
}

int wire_put_error(struct wire_buf *b, uint64_t id, int code,
                   const char *message, const char *detail, uint64_t retry_ms)
{
    struct wire_map m;

    wire_map_begin_event(&m, b, id, "error");
    wire_map_str(&m, "code", wire_code_name(code));
    wire_map_str(&m, "message", message);
    if (detail != NULL && detail[0] != '\0') {
        wire_map_str(&m, "detail", detail);
    }
    if (retry_ms > 0) {
        wire_map_uint(&m, "retry_ms", retry_ms);
    }
    if (code == WIRE_E_VERSION) {
        wire_map_uint(&m, "version_min", WIRE_VERSION_MIN);
        wire_map_uint(&m, "version_max", WIRE_VERSION_MAX);
    }
    return wire_map_end(&m);
}
