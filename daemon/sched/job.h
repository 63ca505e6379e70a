/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_JOB_H
#define STEPD_DAEMON_SCHED_JOB_H

/*
 * What crosses threads, and nothing else does: a struct job on its way in
 * (I/O -> preparation -> engine) and a struct event on its way out (either ->
 * I/O). Each has one owner at a time; handing it over gives it away. Everything
 * else that one thread tells another is a job id in a message.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/model/model.h"

#define JOB_MAX_STOPS 16
#define JOB_MAX_BAD_WORDS 16
#define JOB_MAX_TENANT 64
#define JOB_MAX_SESSION 64
#define JOB_MAX_STOP_IDS 64
#define JOB_CALL_ID 29 /* as text/parse.h has them */

struct compiled; /* text/mask.h */

enum job_kind {
    JOB_GENERATE,   /* messages or prompt -> tokens */
    JOB_TOKENIZE,   /* text -> ids; answered by the preparation thread */
    JOB_DETOKENIZE, /* ids -> bytes; likewise */
    JOB_RENDER,     /* messages -> prompt text or ids; likewise */
    JOB_SESSION,    /* an op on a named session */
    JOB_SCORE,      /* text -> the logprob of each of its tokens */
    JOB_N_KINDS
};

/* What the model may do about its tools. */
enum job_choice {
    JOB_CHOICE_AUTO,
    JOB_CHOICE_NONE,     /* it sees them and calls none */
    JOB_CHOICE_REQUIRED, /* it calls one at least */
    JOB_CHOICE_NAMED     /* this one: choice_name */
};

enum session_op {
    SESSION_LIST,
    SESSION_PIN,
    SESSION_UNPIN,
    SESSION_SAVE,
    SESSION_RESTORE,
    SESSION_DROP,
    SESSION_FORK
};

/* Bytes with a length; NUL may occur inside. p NULL: absent. */
struct job_text {
    char *p;
    size_t n;
};

struct job {
    struct job *next; /* for the queue that owns it at the moment */
    uint64_t id;      /* unique in this daemon run: the wire's `job` */
    uint64_t conn;    /* the connection, and its request id: for replies */
    uint64_t request;
    uint32_t uid;
    char tenant[JOB_MAX_TENANT + 1];
    enum job_kind kind;
    uint64_t born_us; /* monotonic, at acceptance */
    bool paused;      /* from the start: its connection is a slow reader */

    /* The prompt: exactly one of messages (JSON list) and prompt is present
     * for generate; text for tokenize; ids for detokenize. */
    struct job_text messages;    /* JSON, order of keys kept */
    struct job_text tools;       /* JSON list or absent */
    struct job_text tool_choice; /* JSON or absent */
    enum job_choice choice;      /* of tool_choice, by the preparation thread */
    struct job_text choice_name; /* of a named one */
    bool has_tools;              /* likewise: the list is not empty */
    struct job_text prompt;      /* raw bytes */
    int32_t *ids; /* filled by the preparation thread, BOS first */
    int n_ids;
    int n_open; /* chat: of them up to the open turn's `assistant\n`; 0: not
                 * known */
    char reasoning[16];  /* "", low, medium, high */
    bool thinking;       /* chat: the prompt ends inside <think> */
    bool add_generation; /* render: the generation prompt */
    bool parse_special;  /* tokenize: control tokens in text are honoured */
    bool want_ids;       /* deltas, render: ids too */
    bool chat;           /* messages were given: output is parsed */

    /* Generation. */
    float temperature, top_p, min_p;
    float repetition, presence, frequency;
    int top_k;
    uint64_t seed;
    bool seed_given;
    int max_tokens;          /* 0 = what fits, which is also the most */
    int logprobs;            /* -1 none, 0..20 alternatives */
    int prompt_logprobs;     /* likewise, of the prompt's tokens */
    bool logprobs_sampled;   /* of what was drawn from, not raw */
    struct model_bias *bias; /* ids all different */
    int n_bias;
    int drafts;                      /* 0..3, -1 = the engine's choice */
    int priority;                    /* -10..10 */
    uint64_t timeout_ms;             /* 0 none */
    struct job_text response_format; /* JSON or absent */
    struct job_text bad_word[JOB_MAX_BAD_WORDS];
    int n_bad_words;
    struct compiled *grammar; /* made of it by the preparation thread */
    int n_stops;
    struct job_text stop[JOB_MAX_STOPS];
    bool include_stop; /* a stop string is part of the answer */
    int32_t *stop_ids; /* end it, beside those of the model */
    int n_stop_ids;
    bool ignore_eos;   /* those of the model do not */
    int min_tokens;    /* nothing ends it before so many */
    int max_reasoning; /* tokens, then </think> is drawn; -1: no limit */
    bool want_bytes;   /* text as exact bytes */
    char session[JOB_MAX_SESSION + 1];
    bool append;
    bool granted; /* the session is this job's: set by the engine thread */
    enum session_op op; /* of kind session */
    char to[JOB_MAX_SESSION + 1];
};

/* What anybody may know of a job without holding it. */
struct job_view {
    uint64_t job;
    uint32_t uid;
    bool started; /* has had rows */
    bool paused;  /* its reader is slow */
};

enum event_type {
    EVENT_ACCEPTED,
    EVENT_PROGRESS,
    EVENT_DELTA,
    EVENT_PART, /* a slice of a long result (ids, text) */
    EVENT_DONE,
    EVENT_ERROR
};

enum event_kind { EVENT_CONTENT, EVENT_REASONING, EVENT_TOOL_CALL };

/* What a delta of kind tool_call tells of a call. The first two are
 * provisional. */
enum event_call {
    EVENT_CALL_BEGIN,  /* id, name */
    EVENT_CALL_GROW,   /* text: a piece of the arguments */
    EVENT_CALL_WHOLE,  /* id, name, text: the arguments */
    EVENT_CALL_DROPPED /* there is none: what it was made of is content */
};

enum event_finish {
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_TOOL_CALLS,
    FINISH_CANCELLED,
    FINISH_TIMEOUT
};

/* Exact bytes of a token: the tokenizer's own, which never change and live as
 * long as the engine. p NULL: an id without text (padding rows). */
struct event_bytes {
    const char *p;
    size_t n;
};

/* Logprob of one token, with its exact bytes. */
struct event_logprob {
    int32_t id;
    float logprob;
    struct event_bytes bytes;
    int n_top;
    int32_t top_id[20];
    float top_logprob[20];
    struct event_bytes top_bytes[20];
};

struct event_usage {
    int prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
    /* Verifications, drafts in them, those that became part of the answer; of
     * these the ones at each position. */
    int drafts, drafted, accepted, accepted_at[3];
};

struct event_timings {
    double queue_ms, prefill_ms, decode_ms;
};

/* What is known of a session. */
struct event_session {
    char name[JOB_MAX_SESSION + 1];
    int tokens; /* prompt and answer of its last turn */
    int cached; /* of them those that need not be computed again now */
    bool pinned, saved, busy;
    uint64_t file_bytes, idle_ms;
};

struct event {
    struct event *next;
    enum event_type type;
    uint64_t job, conn, request;
    /* accepted, progress */
    int queue_position, prompt_tokens;
    int done, total, cached;
    /* delta, part: text and ids */
    enum event_kind kind;
    struct job_text text;
    bool text_is_bytes;   /* not UTF-8 by promise: goes out as bin */
    enum event_call call; /* of kind tool_call; text is not the answer's then */
    int call_index;
    char call_id[JOB_CALL_ID + 1];
    struct job_text call_name;
    int32_t *ids;
    int n_ids;
    struct event_logprob *logprobs;
    int n_logprobs;
    struct event_session *sessions; /* part of a list; done of an op on one */
    int n_sessions;
    /* done; of tokenize, detokenize, render: only seed and finish unset */
    enum event_finish finish;
    struct event_usage usage; /* delta: completion_tokens so far */
    struct event_timings timings;
    uint64_t seed;
    bool plain; /* done of an op that generates nothing */
    /* error: a code word of the wire, text for people, detail or "" */
    const char *code; /* static string, see client/wire.h */
    char message[256];
    char detail[128];
    uint64_t retry_ms; /* with busy; 0 none */
};

/* job.c: defaults of design.md section 2 */
struct job *job_create(enum job_kind kind);
/* The request key that the grammar was made of. */
const char *job_grammar_key(const struct job *j);
/* The answer is to fit a response_format. */
bool job_has_format(const struct job *j);
void job_destroy(struct job *j); /* NULL is fine */
/* Of what a client sent and the job keeps: texts and ids. */
size_t job_bytes(const struct job *j);
struct event *event_create(enum event_type type, const struct job *about);
void event_destroy(struct event *e);
/* printf-style; code is a static word. NULL on -ENOMEM never happens: an error
 * event is a small fixed size. */
struct event *event_error(const struct job *about, const char *code,
                          const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
