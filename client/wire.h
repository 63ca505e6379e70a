/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_CLIENT_WIRE_H
#define STEPD_CLIENT_WIRE_H

/*
 * THE PROTOCOL. (The file-top specification of frames, hello, requests, events,
 * codes and limits belongs here: design.md section 3 in full.)
 *
 * This header is used by the daemon and by libstepclient; it is linked into
 * both and exported by neither. wire.c is pure: no I/O, no logging, no clock.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION_MIN 1
#define WIRE_VERSION_MAX 1

/* Limits; hello reports every one of them. */
#define WIRE_MAX_FRAME (16u << 20)
#define WIRE_MAX_FRAME_HELLO 4096u /* before hello */
#define WIRE_MAX_DEPTH 32
#define WIRE_MAX_STOPS 16
#define WIRE_MAX_STOP_BYTES 256
#define WIRE_MAX_LOGPROBS 20
#define WIRE_MAX_DRAFTS 3
#define WIRE_MAX_SESSION 64
#define WIRE_MAX_TENANT 64
#define WIRE_MAX_IN_FLIGHT 64 /* requests a connection */

enum wire_op {
    WIRE_HELLO,
    WIRE_PING,
    WIRE_DESCRIBE,
    WIRE_GENERATE,
    WIRE_CANCEL,
    WIRE_TOKENIZE,
    WIRE_DETOKENIZE,
    WIRE_RENDER,
    WIRE_SCORE,
    WIRE_STATUS,
    WIRE_METRICS,
    WIRE_SESSION_LIST,
    WIRE_SESSION_PIN,
    WIRE_SESSION_UNPIN,
    WIRE_SESSION_SAVE,
    WIRE_SESSION_RESTORE,
    WIRE_SESSION_DROP,
    WIRE_SESSION_FORK,
    WIRE_DRAIN,
    WIRE_RELOAD,
    WIRE_N_OPS
};
const char *wire_op_name(enum wire_op op);

/* Error codes are words on the wire. Negative, so that one int carries them
 * through the library: STEP_E_* in client.h are the same numbers. */
enum wire_code {
    WIRE_OK = 0,
    WIRE_E_BAD_FRAME = -1,
    WIRE_E_BAD_REQUEST = -2,
    WIRE_E_UNKNOWN_OP = -3,
    WIRE_E_VERSION = -4,
    WIRE_E_DENIED = -5,
    WIRE_E_BUSY = -6,
    WIRE_E_TOO_LONG = -7,
    WIRE_E_NOT_FOUND = -8,
    WIRE_E_NO_MEMORY = -9,
    WIRE_E_UNSUPPORTED = -10,
    WIRE_E_UNAVAILABLE = -11,
    WIRE_E_DRAINING = -12,
    WIRE_E_CORRUPT = -13,
    WIRE_E_INTERNAL = -14,
    WIRE_E_DISCONNECTED = -15 /* added by the library, never sent */
};
const char *wire_code_name(int code); /* "bad_frame" ...; "internal" if unknown */
int wire_code_find(const char *word, size_t n); /* unknown: WIRE_E_INTERNAL */

/* A growing output buffer; err is sticky: check once at the end. */
struct wire_buf {
    uint8_t *p;
    size_t n, cap, max;
    int err; /* 0 or -ENOMEM, -E2BIG (max reached) */
};
void wire_buf_init(struct wire_buf *b, size_t max);
void wire_buf_finish(struct wire_buf *b);

/* A value out of a checked frame: string, bytes, number ... */
struct wire_str {
    const char *p; /* NULL: absent */
    size_t n;
};

/* One decoded request. All pointers live as long as it does. Absent keys hold
 * the defaults of design.md section 2; `has` has bit (1 << key) set for each key
 * that was present. */
struct wire_request {
    enum wire_op op;
    uint64_t id;
    uint64_t has; /* enum wire_key bits */
    /* hello */
    uint64_t version_min, version_max;
    struct wire_str client_name;
    /* generate, tokenize, render, score */
    struct wire_str messages; /* JSON text made from the msgpack list */
    struct wire_str tools;    /* JSON text */
    struct wire_str tool_choice;
    struct wire_str prompt; /* str or bin, NUL allowed */
    bool prompt_is_bin;
    int32_t *ids; /* detokenize */
    size_t n_ids;
    struct wire_str reasoning_effort; /* "low"... or absent */
    bool thinking, add_generation_prompt, special, want_ids;
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, max_tokens, logprobs, drafts, priority;
    uint64_t seed, timeout_ms;
    bool wait; /* false: busy instead of queueing while not ready */
    struct wire_str stop[WIRE_MAX_STOPS];
    int n_stops;
    struct wire_str session;
    bool append;
    struct wire_str tenant;
    /* cancel: exactly one of them */
    uint64_t target; /* own request id */
    uint64_t job;
    /* session_fork, drain, status ... */
    struct wire_str to;
    bool off;
};

/* What is wrong with a frame, for the error event. */
struct wire_error {
    int code;
    uint64_t id; /* of the request when it could be read, else 0 */
    char message[256];
    char detail[128]; /* the key */
};

/* Body of one frame (without the length) to a request. Checks everything that
 * design.md section 3 demands of frames, types, unknown and duplicate keys
 * and ranges. 0 or a WIRE_E_ code with err filled; WIRE_E_BAD_FRAME means the
 * connection cannot go on. */
int wire_decode_request(const uint8_t *body, size_t n,
                        struct wire_request **ret, struct wire_error *err);
void wire_request_destroy(struct wire_request *r);

/* ---- daemon to client: each appends one whole frame to b ---- */

struct wire_limits_now { /* what hello reports beside the constants */
    const char *server_version, *model;
    int max_model_len; /* 0 while loading */
    uint64_t max_prompt_bytes, max_in_flight;
    const char *const *features;
    int n_features;
};
int wire_put_hello(struct wire_buf *b, uint64_t id,
                   const struct wire_limits_now *l);
int wire_put_describe(struct wire_buf *b, uint64_t id);
int wire_put_accepted(struct wire_buf *b, uint64_t id, uint64_t job,
                      int queue_position, int prompt_tokens);
int wire_put_progress(struct wire_buf *b, uint64_t id, int done, int total,
                      int cached);
struct wire_logprob {
    int32_t id;
    double logprob;
    const char *bytes;
    size_t n_bytes;
    int n_top;
    const int32_t *top_id;
    const float *top_logprob;
};
struct wire_delta {
    const char *kind; /* content, reasoning, tool_call */
    const char *text;
    size_t n;
    bool bytes; /* goes out as bin */
    const int32_t *ids;
    int n_ids;
    const struct wire_logprob *logprobs;
    int n_logprobs;
};
int wire_put_delta(struct wire_buf *b, uint64_t id, const struct wire_delta *d);
/* Long results: `part` events, each under max_frame. key: "ids" or "text". */
int wire_put_part_ids(struct wire_buf *b, uint64_t id, const int32_t *ids,
                      int n);
int wire_put_part_text(struct wire_buf *b, uint64_t id, const char *text,
                       size_t n, bool bytes);
struct wire_done {
    const char *finish_reason; /* NULL: an op that generates nothing */
    int prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
    int drafted, accepted;
    uint64_t seed;
    double queue_ms, prefill_ms, decode_ms;
};
int wire_put_done(struct wire_buf *b, uint64_t id, const struct wire_done *d);
int wire_put_error(struct wire_buf *b, uint64_t id, int code,
                   const char *message, const char *detail, uint64_t retry_ms);

/* A flat or nested map built key by key, for status and the like:
 * wire_map_begin, wire_map_*..., wire_map_end; counts are patched at the end. */
struct wire_map {
    struct wire_buf *b;
    size_t frame_at, count_at;
    uint32_t count;
};
void wire_map_begin_done(struct wire_map *m, struct wire_buf *b, uint64_t id);
void wire_map_end(struct wire_map *m);
void wire_map_str(struct wire_map *m, const char *key, const char *s);
void wire_map_uint(struct wire_map *m, const char *key, uint64_t v);
void wire_map_int(struct wire_map *m, const char *key, int64_t v);
void wire_map_real(struct wire_map *m, const char *key, double v);
void wire_map_bool(struct wire_map *m, const char *key, bool v);
void wire_map_open(struct wire_map *m, const char *key, struct wire_map *ret);
void wire_map_close(struct wire_map *inner);

#endif
