/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_CLIENT_WIRE_H
#define STEPD_CLIENT_WIRE_H

/*
 * THE PROTOCOL between stepd and its clients, version 1. This comment is the
 * specification: a client can be written from it alone (tests/e2e/client.py
 * was). `describe` returns the same tables at run time.
 *
 * 1. FRAMES
 *
 * The transport is a Unix stream socket. Both directions carry frames:
 *
 *     u32 big-endian n, 1 <= n <= max_frame | n bytes: one msgpack map
 *
 * with string keys and nothing after the map. From client to daemon the limit
 * is max_frame_hello (4 KiB) until hello was answered, and max_frame (16 MiB)
 * from then on; from daemon to client it is always max_frame.
 *
 *   - str is valid UTF-8 (no surrogates, no overlong forms; NUL is fine). Raw
 *     bytes are bin.
 *   - Any integer encoding of a value is accepted, and an integer where a float
 *     is expected; never a float for an integer. float 32 and float 64 are
 *     both fine; NaN and the infinities are not.
 *   - nil means: this key is absent.
 *   - No ext types (timestamps included). No key twice in one map, at any
 *     depth. At most max_depth (32) containers inside each other, the frame's
 *     map being the first; at most max_values (2^20) values in a frame, keys
 *     counted.
 *
 * A length of 0 or over the limit, and a body that is not well-formed msgpack
 * (cut short, a count that the bytes left cannot hold, byte 0xc1) or not a map
 * is `bad_frame`: the daemon says so under id 0 and closes. Every other breach
 * is `bad_request`, under the request's id where that could be read and under
 * id 0 otherwise, and the connection goes on. Bytes of a frame that stays
 * unfinished count against a per-uid cap; frame_timeout after its first byte
 * the connection is closed with `bad_frame`.
 *
 * 2. HELLO
 *
 * The client speaks first:
 *
 *     {op: "hello", id: 1, version_min: 1, version_max: 1,
 *      client_name: "stepctl 0.1.0", features: []}
 *
 * and the daemon answers one event, which also ends the request:
 *
 *     {id: 1, event: "hello", version: 1, version_min: 1, version_max: 1,
 *      server_version: "0.1.0", served_model_name: "step-tiny",
 *      features: ["op.generate", "key.temperature", ...],
 *      limits: {max_frame: 16777216, ...}}
 *
 * version is the highest that both speak. Without one the daemon answers error
 * `version`, whose event has version_min and version_max too, and closes. That
 * is looked at before any other key of hello, so that an old daemon can answer
 * a new client. Any other op before hello is `bad_request` and the connection
 * is closed; a second hello is `bad_request` and it goes on.
 *
 * features says what this daemon takes: "op.NAME" for an op, "key.NAME" for a
 * request key, other words as they come (clients skip those they do not know).
 * A key of a later version is announced in this way and a client must not send
 * one that is not: the daemon would refuse it. limits has every limit by name,
 * those of section 8 and the configured ones.
 *
 * 3. REQUESTS
 *
 *     {op: "generate", id: 7, messages: [...], temperature: 0.6, ...}
 *
 * id is any u64 but 0, unique among the connection's requests in flight. One
 * that is in flight already is `bad_request` under id 0 with detail "id", and
 * the running request does not notice. An unknown, duplicate, wrongly typed or
 * out-of-range key, and one that the op does not take, is `bad_request` with
 * the key in detail: a typo must not quietly change an answer. Keys that begin
 * with x_ are ignored, at the top only. A key or op that this protocol names
 * but this daemon cannot serve yet is `unsupported`, an op that it does not
 * name is `unknown_op`.
 *
 * Several requests may be in flight (max_in_flight; more are `busy`). Their
 * events are interleaved; the order of events of one request is kept. End of
 * file on read means that the client is gone: all its requests are cancelled
 * (there is no half-close).
 *
 * The ops, with the keys that they need (*) or take beside op and id:
 *
 *   hello       *version_min *version_max client_name features
 *   ping        is answered at once, also while loading:
 *               done {state}
 *   describe    done {protocol, ops, keys, events, codes, limits}: section 7
 *   generate    one of *messages *prompt; tools tool_choice reasoning_effort
 *               thinking (these four with messages only); temperature top_p
 *               top_k min_p repetition_penalty presence_penalty
 *               frequency_penalty seed max_tokens stop logprobs want_ids
 *               drafts priority timeout_ms wait tenant; session append;
 *               min_tokens stop_ids ignore_eos include_stop logit_bias
 *               bad_words response_format max_reasoning_tokens logprobs_mode
 *               prompt_logprobs want_bytes
 *   cancel      one of *target *job; done {cancelled: n}. target is the id of
 *               an own request on this connection, job a number from
 *               `accepted` or status, of the own uid (admins: of anyone). The
 *               cancelled request ends with done, finish_reason "cancelled";
 *               a target or job that is not running, or is somebody else's,
 *               is `not_found`.
 *   tokenize    *prompt special; part {ids}..., done {count}
 *   detokenize  *ids; part {text}..., done {}
 *   render      *messages tools reasoning_effort thinking
 *               add_generation_prompt want_ids; part {text} or part {ids},
 *               done {}. Text is without BOS, ids have it once, first.
 *   score       *prompt special logprobs tenant priority timeout_ms wait;
 *               part {logprobs}..., done {count}: one for each token but the
 *               first, which is BOS unless the text begins with it
 *   status      done {state, cause (of failed), served_model_name,
 *               server_version, uptime_ms, load {done, total} (bytes), model
 *               {family, dialect, device, max_model_len, vocab, mtp_layers},
 *               scope: "all" | "own", queued, running, requests {total,
 *               finished, failed, cancelled}, tokens {prompt, cached,
 *               completion}, jobs: [{job, op, uid, tenant, state: "queued" |
 *               "running" | "paused" | "ending", prompt_tokens,
 *               cached_tokens, completion_tokens, first_token_ms, age_ms,
 *               cancelled}]} and, with scope "all", times_ms {queue,
 *               first_token, between_tokens, request, step: {count, p50, p95}}
 *               and counters of steps, drafts, pages, connections and memory,
 *               which clients print as they come. Admins and observers have
 *               scope "all"; for others all numbers are of their own uid. Jobs
 *               of others are for admins
 *   metrics     part {text}..., done {}: Prometheus text, section 9; scope as
 *               for status
 *   session_list  tenant wait; part {sessions: [{name, tokens, cached_tokens,
 *               pinned, saved, busy, file_bytes, idle_ms}]}..., done {count}:
 *               own sessions; section 6a says what the words mean
 *   session_pin *session, session_unpin *session, session_save *session,
 *   session_restore *session, session_drop *session, session_fork *session
 *               *to; all with tenant and wait; done {tokens, cached_tokens,
 *               pinned, saved, busy, file_bytes, idle_ms} of the session (drop:
 *               done {}), of the new one (fork)
 *   drain       off; admins only
 *   reload      done {changed: [key of stepd.conf...]}; admins only. A file
 *               that is wrong is `bad_request`, a changed key that takes a
 *               restart `unsupported`; message names key, file and line, and
 *               nothing was changed
 *
 * The keys (type, range, default, meaning) are the table in wire_table.c and
 * what describe prints:
 *
 *   op                  str
 *   id                  int 1..2^64-1
 *   version_min, _max   int 1..65535
 *   client_name         str, at most 128 bytes: for the log
 *   features            list of str: what the client knows; not used yet
 *   messages            list of maps, as in the OpenAI chat API: {role,
 *                       content, ...}; key order is kept into the prompt. No
 *                       bin inside, and at most max_long_floats floats of more
 *                       than 15 digits, or beyond 1e15 or 1e-22 (too_long)
 *   tools               list of maps, as there: {type: "function", function:
 *                       {name, description, parameters}}
 *   tool_choice         "auto" (with tools the default), "none" (the model sees
 *                       the tools and calls none), "required" (it calls one at
 *                       least), or {type: "function", function: {name}}. The
 *                       last two hold for certain: calls fit parameters (of a
 *                       str only enum is looked at, and the text null is null
 *                       as everywhere), and an answer without one was cut
 *                       short
 *   reasoning_effort    "low" | "medium" | "high"; absent: nothing in the
 *                       prompt
 *   thinking            bool, true: the answer begins with reasoning
 *   prompt              str or bin: raw text, BOS is put before it unless it
 *                       begins with it (not by tokenize)
 *   special             bool, false: names of control tokens in prompt are
 *                       those tokens
 *   add_generation_prompt  bool, true
 *   want_ids            bool, false: token ids in deltas and from render
 *   ids                 list of int 0..2^31-1
 *   temperature         float 0..100, 1; 0 is greedy
 *   top_p               float above 0, to 1; 1
 *   min_p               float 0..1, 0 (off)
 *   top_k               int 0..2^31-1, 0 (off)
 *   repetition_penalty  float 0.01..100, 1 (off)
 *   presence_penalty, frequency_penalty  float -2..2, 0 (off)
 *   seed                int 0..2^64-1; absent: drawn and reported in done
 *   max_tokens          int 1..2^31-1; absent, or more than fits: what fits
 *   stop                list of at most max_stops str of 1..max_stop_bytes
 *                       bytes: the answer ends before the first that occurs
 *                       in it, calls as the model writes them included. In
 *                       reasoning none is looked for
 *   logprobs            int 0..20: logprobs of the tokens drawn with so many
 *                       alternatives; absent: none
 *   drafts              int 0..3; absent: the engine's choice
 *   priority            int -10..10, 0; higher first
 *   timeout_ms          int 0..2^53, 0 (none): from acceptance, queueing
 *                       included
 *   wait                bool, true; false: `busy` instead of waiting for a
 *                       daemon that still loads
 *   target, job         int 1..2^64-1
 *   session, to, tenant name: 1..64 of A-Z a-z 0-9 . _ - without a leading dot
 *   append              bool, false: messages follow those of the session
 *   off                 bool, false: end the drain
 *   response_format     map: what the answer must fit, from its first byte or
 *                       from the end of reasoning on. {type: "text"};
 *                       {type: "json_object"}; {type: "json_schema", schema:
 *                       map, or json_schema: {schema: map}}; {type: "regex",
 *                       regex: str}, fitting the whole; {type: "choice",
 *                       choice: list of str}. A keyword of JSON Schema that
 *                       is not supported is refused by its name, and so is a
 *                       key that the type does not have. With tools only where
 *                       tool_choice is "none"
 *   logit_bias          map of token id (str, decimal) to float -100..100, at
 *                       most max_logit_bias of them: added to the token's logit
 *                       after the penalties, wherever a token is drawn. It
 *                       forbids nothing for certain: see bad_words
 *   bad_words           list of at most max_bad_words str of 1..
 *                       max_bad_word_bytes bytes: none of them occurs in the
 *                       answer, reasoning included. Not together with
 *                       response_format, nor with a tool_choice that calls
 *   stop_ids            list of at most max_stop_ids int: tokens that end the
 *                       answer beside the model's own
 *   min_tokens          int 0..2^31-1, 0: before so many no token that ends the
 *                       answer is drawn, and text that came before them is not
 *                       part of a stop string
 *   ignore_eos          bool, false: the model's own end tokens are ordinary
 *                       ones; stop_ids and stop still end the answer
 *   include_stop        bool, false: the stop string that ended the answer is
 *                       part of it
 *   want_bytes          bool, false: content and reasoning as bin, exactly the
 *                       bytes of the tokens. Otherwise they are str, with
 *                       U+FFFD for each byte that is no part of a character
 *   max_reasoning_tokens  int 0..2^31-1; absent: no limit. After so many
 *                       </think> is drawn, and the answer follows (with
 *                       messages only)
 *   logprobs_mode       "raw", or "sampled": the logprobs of the answer are of
 *                       the distribution that its tokens were drawn from: after
 *                       penalties, logit_bias, what a format or a limit
 *                       forbids, temperature, top_k, top_p and min_p (at
 *                       temperature 0 without these four). Alternatives are
 *                       among what these left. prompt_logprobs stay raw
 *   prompt_logprobs     int 0..20: as score, with so many alternatives, for the
 *                       tokens of the prompt, in parts before the answer;
 *                       nothing of the prompt comes out of a cache then.
 *                       Absent: none
 *
 * 4. EVENTS
 *
 *     {id: 7, event: "delta", kind: "content", text: "Hel"}
 *
 * id is that of the request, 0 when the event is about none. Exactly one `done`
 * or `error` ends each request (for hello: `hello` or `error`). Clients skip
 * unknown keys and unknown events.
 *
 *   hello     section 2
 *   accepted  {job, queue_position, prompt_tokens}: once, first, for generate
 *             and score; job is unique in this run of the daemon. The other
 *             ops may send it.
 *   progress  {done, total, cached}: prompt tokens; at most 4 a second while
 *             queued or in prefill
 *   delta     {kind: "content" | "reasoning" | "tool_call", text, ids,
 *             logprobs}: text is str (bin only with want_bytes) and may be
 *             absent or empty; ids (want_ids) is a list of int; the id that
 *             stopped the answer is in the last delta's ids and never in its
 *             text. Calls: see section 4a. logprobs (when asked) is a list of
 * {id, logprob, bytes (bin: the token's exact bytes), top: [{id, logprob,
 * bytes}]}, one for each token, not always in the delta that has its text. A
 *             logprob of nil is minus infinity.
 *   part      {text}, {ids}, {sessions} or {logprobs}: the next piece of a long
 *             result. text is str, or bin for all pieces where the whole is not
 *             UTF-8. No event exceeds max_frame.
 *   done      {finish_reason: "stop" | "length" | "tool_calls" | "cancelled" |
 *             "timeout", usage {prompt_tokens, cached_tokens,
 *             completion_tokens, reasoning_tokens, drafts, drafted, accepted,
 *             accepted_at, mean_acceptance_length}, seed, timings {queue_ms,
 *             prefill_ms, decode_ms}}; of the other ops as section 3 says.
 *             drafts counts verifications, drafted the tokens in them, accepted
 *             those that became part of the answer; where there were drafts,
 *             accepted_at is the latter by position [first, second, third] and
 *             mean_acceptance_length is 1 + accepted / drafts
 *   error     {code, message, detail, retry_ms}: code is a word of section 5,
 *             message is for people, detail (where it helps) the key or name
 *             in question, retry_ms (with busy) when to try again
 *
 * 4a. TOOL CALLS
 *
 * A delta of kind "tool_call" has no text but one of these maps; index counts
 * the calls of an answer from 0:
 *
 *   call          {index, id, name, arguments}: a call, whole. arguments is the
 *                 JSON text of an object; values have the types that the tool's
 *                 parameters give them, as far as what was written fits
 *   call_begin    {index, id, name}: a call that is being written
 *   call_args     {index, text}: the next piece of its arguments
 *   call_dropped  {index}: it was none after all; what it was made of follows
 *                 as content
 *
 * call_begin and call_args are there to be shown and may turn out wrong; each
 * call_begin is followed by call or call_dropped of its index, and a client
 * that knows these two alone misses nothing. An answer with a call ends with
 * finish_reason "tool_calls". id is a function of the request and the index.
 * Sent back in a message's tool_calls with the same name and arguments (keys in
 * any order), it stands for the exact text that the model wrote, as long as the
 * daemon remembers it.
 *
 * Without tools in the request no tag of a call means anything, but that
 * <tool_call> ends reasoning, as it always does.
 *
 * state is "loading", "ready", "draining", "failed" or "stopped".
 *
 * 5. CODES (clients treat unknown ones as `internal`)
 *
 *   bad_frame     framing or msgpack is broken; the connection is closed
 *   bad_request   the request is wrong: detail names the key
 *   unknown_op    no such op
 *   version       no common protocol version; the connection is closed
 *   denied        this user may not do that
 *   busy          a queue or quota is full; retry_ms
 *   too_long      the prompt has more tokens than the limit named. max_tokens
 *                 is never the cause: it is cut to what the context has room
 *                 for, and an answer that gets there ends with `length`
 *   not_found     no such job, session ...
 *   no_memory     memory for this request could not be had
 *   unsupported   a known key, value or op that this daemon does not have
 *   unavailable   the model is not there: failed to load, stopped
 *   draining      the daemon takes no new work
 *   corrupt       weights or a saved session changed under us
 *   internal      our fault; the log has more
 * (The library adds `disconnected`, which is never sent.)
 *
 * 6. FLOW
 *
 * A client that does not read slows itself only: over the soft output limit its
 * generations pause (cancel is still heard), over the hard one the daemon stops
 * reading from it too, and after slow_client_timeout closes it; one that takes
 * nothing at all while its generations are paused is closed after ten times as
 * long. While the model loads, hello, ping, describe, status, metrics and
 * cancel are answered; generate and the rest wait in the bounded queue, or get
 * `busy` with retry_ms when they carry wait: false. A failed load is
 * `unavailable`.
 *
 * 6a. SESSIONS
 *
 * generate with session keeps the conversation under that name: the messages,
 * the answer and the exact token ids. The next request with append: true sends
 * what is new only, and is the same request as one with the whole conversation
 * (tools that it does not name are those of the last turn). Without append the
 * whole conversation is given and replaces what was there; what both have in
 * common is not computed again. Names are the owner's: (uid, tenant). One
 * request at a time goes on with a session, others wait in order.
 *
 * The answer is added as an assistant message {content, reasoning_content,
 * tool_calls}, as its deltas told it. A request that is cancelled, times out or
 * whose client goes away leaves the answer as far as it was told, once its
 * first token was drawn; before that the session is as it was, and so it is
 * after a request that ends in an error.
 *
 * tokens is the length of the last turn, prompt and answer; cached_tokens how
 * many of these need not be computed again now. A session that loses its pages
 * to others loses time, nothing else; session_pin keeps them (no_memory when
 * too many pages would be pinned). pinned says that they are kept now; where
 * they could not be, after a turn that made the session too long or a pin that
 * came when they had gone, the next turn tries again. session_save writes the
 * session to the daemon's state folder (busy over the quota, no_memory where
 * the disk is full or would have less free than the floor), sessions that were
 * to be pinned are saved when the daemon stops, and those whose pin was taken
 * back since they were saved. What is on disk is found after
 * a restart, read when it is asked for, and checked: a file that is cut short,
 * damaged, or of another model is `corrupt`, message says what is wrong, and it
 * is left as it is until session_drop. append on a name that is not there is
 * `not_found`.
 *
 * Messages and tools are kept in memory, also what no prompt shows any more: a
 * turn or fork by which a user would have more than max_session_text_per_owner
 * of them is `busy`, one whose conversation alone has more `too_long`. Where
 * the daemon keeps nothing computed (prefix_cache = no) session_restore is
 * `unsupported`, and append computes the conversation again. A save whose
 * session is dropped meanwhile is `not_found`.
 *
 * 7. DESCRIBE
 *
 *   done {protocol: 1,
 *         ops:    [{name, supported, needs: [key...], takes: [key...], doc}],
 *         keys:   [{name, supported, type, min, max, above (exclusive min),
 *                   values: [str...], max_bytes, max_items, default, ops:
 *                   [op...], doc}],      absent where it has no meaning
 *         events: [{name, keys: [str...], doc}],
 *         codes:  [{name, doc}],
 *         limits: [{name, value, doc}]}
 *
 * 8. TO CHANGE THE PROTOCOL
 *
 * A new key: one row in wire_table.c, one field in struct wire_request, one
 * line above, a line in stepd-protocol(7). It is announced in hello by itself.
 * What old clients would misread: raise WIRE_VERSION_MAX, and WIRE_VERSION_MIN
 * only when the old way is gone.
 *
 * 9. METRICS
 *
 * Prometheus text, format 0.0.4. Times are in seconds; every histogram has the
 * buckets 0.0005, then 0.001, 0.0025, 0.005 and so on, 1, 2.5 and 5 of each
 * decade, to 250. Whoever has scope "own" gets those marked (o), of his own
 * uid.
 *
 *   stepd_info{version,model} (o)       1
 *   stepd_state{state} (o)              1 for the state that holds
 *   stepd_jobs{state} (o)               queued, running: now
 *   stepd_jobs_total{outcome} (o)       stop, length, tool_calls, answered (ops
 *                                       that generate nothing), cancelled,
 *                                       timeout, error
 *   stepd_tokens_total{kind} (o)        prompt, cached (of the prompt, not
 *                                       recomputed), completion
 *   stepd_uptime_seconds
 *   stepd_load_bytes{kind}              done, total
 *   stepd_memory_bytes{use}             weights, kv, resident
 *   stepd_open_fds
 *   stepd_connections, stepd_connections_total
 *   stepd_connections_refused_total     by limits and lists
 *   stepd_frame_timeouts_total          dropped: a frame did not arrive
 *   stepd_slow_clients_total            dropped: output was not read
 *   stepd_received_bytes_total, stepd_sent_bytes_total
 *   stepd_requests_total{op}            frames, also those refused
 *   stepd_errors_total{code}            error events
 *   stepd_queue_seconds                 histogram: acceptance to first row
 *   stepd_time_to_first_token_seconds   histogram: acceptance to first token
 *   stepd_time_between_tokens_seconds   histogram: between two deliveries of a
 *                                       request, divided by the tokens of the
 *                                       second, once for each token
 *   stepd_request_seconds               histogram: acceptance to the end
 *   stepd_step_seconds                  histogram: a step, delivery included
 *   stepd_steps_total, stepd_step_rows_total
 *   stepd_step_part_seconds_total{part} plan, forward, sample, draft, other (of
 *                                       the model), deliver
 *   stepd_preemptions_total             requests that gave up seat and pages
 *   stepd_major_faults_total            page faults in steps that read a disk
 *   stepd_weight_read_bytes_total, stepd_kv_read_bytes_total
 *   stepd_kv_pages{group}, stepd_kv_pages_free{group}    full, sliding
 *   stepd_kv_pages_cached{group}, stepd_kv_pages_evicted_total{group}
 *   stepd_checkpoints
 *   stepd_spec_decode_num_drafts        verifications
 *   stepd_spec_decode_num_draft_tokens, stepd_spec_decode_num_accepted_tokens
 *   stepd_spec_decode_num_accepted_tokens_per_pos{position}
 *   stepd_spec_decode_num_proposals_per_pos{position}
 *   stepd_spec_decode_depth             drafts a step, of the engine's choice
 *   stepd_spec_decode_switched_off      1: too few drafts were accepted
 *
 * This header is used by the daemon and by libstepclient; the code behind it is
 * linked into both and exported by neither. It is pure: no I/O, no logging, no
 * clock, no locale, any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION_MIN 1
#define WIRE_VERSION_MAX 1

/* Limits; hello reports every one of them. */
#define WIRE_HEADER_SIZE 4 /* the length before each body */
#define WIRE_MAX_FRAME (16u << 20)
#define WIRE_MAX_FRAME_HELLO 4096u /* client to daemon, before hello */
#define WIRE_MAX_DEPTH 32
#define WIRE_MAX_VALUES (1u << 20) /* msgpack-c takes 24 bytes for each */
#define WIRE_MAX_STOPS 16
#define WIRE_MAX_STOP_BYTES 256
#define WIRE_MAX_STOP_IDS 64
#define WIRE_MAX_BAD_WORDS 16
#define WIRE_MAX_BAD_WORD_BYTES 128
#define WIRE_MAX_LOGIT_BIAS 1024
#define WIRE_MAX_LOGPROBS 20
#define WIRE_MAX_DRAFTS 3
#define WIRE_MAX_SESSION 64
#define WIRE_MAX_TENANT 64
#define WIRE_MAX_CLIENT_NAME 128
#define WIRE_MAX_IN_FLIGHT 64       /* requests a connection */
#define WIRE_MAX_LONG_FLOATS 10000u /* of messages; each takes microseconds */
#define WIRE_PART_BYTES (1u << 20)  /* payload of one part, about */

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
const char *wire_code_name(
    int code); /* "bad_frame" ...; "internal" if unknown */
int wire_code_find(const char *word, size_t n); /* unknown: WIRE_E_INTERNAL */

/* The request keys, in the order of the table. */
enum wire_key {
    WIRE_K_OP,
    WIRE_K_ID,
    WIRE_K_VERSION_MIN,
    WIRE_K_VERSION_MAX,
    WIRE_K_CLIENT_NAME,
    WIRE_K_FEATURES,
    WIRE_K_MESSAGES,
    WIRE_K_TOOLS,
    WIRE_K_TOOL_CHOICE,
    WIRE_K_REASONING_EFFORT,
    WIRE_K_THINKING,
    WIRE_K_PROMPT,
    WIRE_K_SPECIAL,
    WIRE_K_ADD_GENERATION_PROMPT,
    WIRE_K_WANT_IDS,
    WIRE_K_IDS,
    WIRE_K_TEMPERATURE,
    WIRE_K_TOP_P,
    WIRE_K_MIN_P,
    WIRE_K_TOP_K,
    WIRE_K_REPETITION_PENALTY,
    WIRE_K_PRESENCE_PENALTY,
    WIRE_K_FREQUENCY_PENALTY,
    WIRE_K_SEED,
    WIRE_K_MAX_TOKENS,
    WIRE_K_STOP,
    WIRE_K_LOGPROBS,
    WIRE_K_DRAFTS,
    WIRE_K_PRIORITY,
    WIRE_K_TIMEOUT_MS,
    WIRE_K_WAIT,
    WIRE_K_TARGET,
    WIRE_K_JOB,
    WIRE_K_SESSION,
    WIRE_K_TO,
    WIRE_K_TENANT,
    WIRE_K_APPEND,
    WIRE_K_OFF,
    WIRE_K_RESPONSE_FORMAT,
    WIRE_K_LOGIT_BIAS,
    WIRE_K_BAD_WORDS,
    WIRE_K_STOP_IDS,
    WIRE_K_MIN_TOKENS,
    WIRE_K_IGNORE_EOS,
    WIRE_K_INCLUDE_STOP,
    WIRE_K_WANT_BYTES,
    WIRE_K_MAX_REASONING_TOKENS,
    WIRE_K_LOGPROBS_MODE,
    WIRE_K_PROMPT_LOGPROBS,
    WIRE_N_KEYS
};
const char *wire_key_name(enum wire_key key);

/* ---- buffers ------------------------------------------------------------ */

/* A growing output buffer; err is sticky: check once at the end. A frame is
 * appended whole or not at all: after an error n is what it was before it. */
struct wire_buf {
    uint8_t *p;
    size_t n, cap, max;
    int err; /* 0 or -ENOMEM, -E2BIG (max or max_frame reached) */
};
void wire_buf_init(struct wire_buf *b, size_t max);
void wire_buf_finish(struct wire_buf *b);
/* Makes room for n bytes more at p + n, of which the caller then counts what it
 * wrote. False (and err): no memory or over max. */
bool wire_buf_reserve(struct wire_buf *b, size_t n);
/* Appends bytes as they are. */
void wire_buf_put(struct wire_buf *b, const void *p, size_t n);

/* A string out of a frame. */
struct wire_str {
    const char *p; /* NULL: absent */
    size_t n;
};

/* What is added to the logit of a token. */
struct wire_bias {
    int32_t id;
    float bias;
};

/* What is wrong with a frame, for the error event. */
struct wire_error {
    int code;
    uint64_t id; /* of the request when it could be read, else 0 */
    char message[256];
    char detail[128]; /* the key, or "" */
};

/* The length in a frame's header: the body size, 1..max, or WIRE_E_BAD_FRAME
 * with err filled. */
int wire_frame_size(const uint8_t header[WIRE_HEADER_SIZE], uint32_t max,
                    struct wire_error *err);

/* ---- client to daemon --------------------------------------------------- */

/* One decoded request. All pointers live as long as it does. Absent keys hold
 * the defaults of section 3; ask wire_has where presence matters. Text is
 * followed by a NUL that n does not count. */
struct wire_request {
    enum wire_op op;
    uint64_t id;
    uint64_t has; /* bit (1 << enum wire_key) */
    /* hello */
    uint64_t version_min, version_max;
    uint64_t version; /* the one to speak: highest common */
    struct wire_str client_name;
    /* generate, tokenize, render, score */
    struct wire_str messages;    /* JSON text made from the msgpack list */
    struct wire_str tools;       /* JSON text */
    struct wire_str tool_choice; /* JSON text */
    struct wire_str prompt;      /* str or bin, NUL allowed */
    bool prompt_is_bin;
    int32_t *ids; /* detokenize */
    size_t n_ids;
    struct wire_str reasoning_effort; /* "low" ... or absent */
    bool thinking, add_generation_prompt, special, want_ids;
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;
    int64_t max_tokens;      /* 0: what fits */
    int64_t logprobs;        /* -1: none */
    int64_t prompt_logprobs; /* likewise */
    int64_t drafts;          /* -1: the engine's choice */
    int64_t priority;
    uint64_t seed; /* drawn by the daemon unless wire_has(r, WIRE_K_SEED) */
    uint64_t timeout_ms; /* 0: none */
    bool wait;           /* false: busy instead of queueing while not ready */
    struct wire_str stop[WIRE_MAX_STOPS];
    size_t n_stops;
    int32_t *stop_ids;
    size_t n_stop_ids;
    int64_t min_tokens;
    int64_t max_reasoning_tokens; /* -1: no limit */
    bool ignore_eos, include_stop, want_bytes;
    struct wire_str session;
    bool append;
    struct wire_str tenant;
    struct wire_str response_format; /* JSON text */
    struct wire_str bad_words[WIRE_MAX_BAD_WORDS];
    size_t n_bad_words;
    struct wire_bias *logit_bias; /* ids all different */
    size_t n_logit_bias;
    struct wire_str logprobs_mode; /* "raw", "sampled" or absent */
    /* cancel: exactly one of them is not 0 */
    uint64_t target; /* own request id */
    uint64_t job;
    /* session_fork, drain */
    struct wire_str to;
    bool off;
};

static inline bool wire_has(const struct wire_request *r, enum wire_key k)
{
    return (r->has >> k) & 1;
}

/* Body of one frame (without the length) to a request. Checks everything that
 * sections 1-3 demand of one frame: form, types, unknown and duplicate keys,
 * ranges, needed keys, overlap of versions. 0 or a WIRE_E_ code with err
 * filled. The caller closes the connection after WIRE_E_BAD_FRAME and
 * WIRE_E_VERSION, answers under err.id, and knows what one frame does not tell:
 * an err.id that is in flight on this connection must be answered under id 0,
 * or the running request would look ended. */
int wire_decode_request(const uint8_t *body, size_t n,
                        struct wire_request **ret, struct wire_error *err);
void wire_request_destroy(struct wire_request *r); /* NULL is fine */

/* ---- daemon to client: each appends one whole frame to b ----------------
 * All return 0 or -errno, which b->err holds too. Text that is not UTF-8 goes
 * out as bin whatever the flag says: str is a promise. */

struct wire_limit {
    const char *name;
    uint64_t value;
    const char *doc;
};

struct wire_limits_now { /* what hello reports beside the constants */
    uint64_t version;    /* of the request; 0: WIRE_VERSION_MAX */
    const char *server_version;
    const char *model; /* served_model_name; NULL while unknown */
    int max_model_len; /* 0 while loading */
    uint64_t max_prompt_bytes, max_in_flight; /* 0: not reported / constant */
    const char *const *features; /* beside the ops and keys of the tables */
    int n_features;
    const struct wire_limit *extra; /* configured ones: frame_timeout_ms ... */
    int n_extra;
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
    const char *bytes; /* NULL: not sent */
    size_t n_bytes;
    int n_top;
    const int32_t *top_id;
    const float *top_logprob;
    const struct wire_str *top_bytes; /* NULL: not sent */
};
/* Of a tool call: the key that the map goes under, and what is in it. */
struct wire_call {
    const char *key; /* call, call_begin, call_args, call_dropped */
    int index;
    const char *id; /* NULL: not sent, with the name */
    struct wire_str name;
    struct wire_str text; /* arguments, whole or the next piece; p NULL: none */
};
struct wire_delta {
    const char *kind;             /* content, reasoning, tool_call */
    const struct wire_call *call; /* NULL: none */
    const char *text;
    size_t n;
    bool bytes; /* goes out as bin */
    const int32_t *ids;
    int n_ids;
    const struct wire_logprob *logprobs;
    int n_logprobs;
};
int wire_put_delta(struct wire_buf *b, uint64_t id, const struct wire_delta *d);
/* Long results: as many `part` events as it takes, none for n = 0. All or none
 * of them are appended. */
int wire_put_part_ids(struct wire_buf *b, uint64_t id, const int32_t *ids,
                      size_t n);
/* One part; the caller cuts. */
int wire_put_part_logprobs(struct wire_buf *b, uint64_t id,
                           const struct wire_logprob *l, int n);
int wire_put_part_text(struct wire_buf *b, uint64_t id, const char *text,
                       size_t n, bool bytes);
struct wire_done {
    const char *finish_reason; /* NULL: an op that generates nothing */
    int prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
    int drafts, drafted, accepted, accepted_at[WIRE_MAX_DRAFTS];
    uint64_t seed;
    double queue_ms, prefill_ms, decode_ms;
};
int wire_put_done(struct wire_buf *b, uint64_t id, const struct wire_done *d);
/* detail may be NULL or ""; retry_ms 0: not sent. */
int wire_put_error(struct wire_buf *b, uint64_t id, int code,
                   const char *message, const char *detail, uint64_t retry_ms);

/* A map built key by key, for status and the like: begin, keys, end; counts are
 * patched at the end. Inner maps and lists are opened, filled and closed before
 * the outer one goes on. Errors stick to b; end returns them. */
struct wire_map {
    struct wire_buf *b;
    size_t frame_at, count_at;
    uint32_t count;
};
void wire_map_begin_event(struct wire_map *m, struct wire_buf *b, uint64_t id,
                          const char *event);
void wire_map_begin_done(struct wire_map *m, struct wire_buf *b, uint64_t id);
int wire_map_end(struct wire_map *m);
void wire_map_str(struct wire_map *m, const char *key, const char *s);
void wire_map_strn(struct wire_map *m, const char *key, const char *s,
                   size_t n); /* bin where s is not UTF-8 */
void wire_map_bin(struct wire_map *m, const char *key, const void *p, size_t n);
void wire_map_uint(struct wire_map *m, const char *key, uint64_t v);
void wire_map_int(struct wire_map *m, const char *key, int64_t v);
void wire_map_real(struct wire_map *m, const char *key, double v);
void wire_map_bool(struct wire_map *m, const char *key, bool v);
void wire_map_open(struct wire_map *m, const char *key, struct wire_map *ret);
void wire_map_open_list(struct wire_map *m, const char *key,
                        struct wire_map *ret);
void wire_list_open(struct wire_map *list, struct wire_map *ret); /* a map */
void wire_list_str(struct wire_map *list, const char *s);
void wire_list_int(struct wire_map *list, int64_t v);
void wire_list_real(struct wire_map *list, double v);
void wire_map_close(struct wire_map *inner);

/* ---- the library's side ----------------------------------------------------
 * A request is built from values that were encoded one by one: begin_request,
 * wire_map_raw for each key, wire_map_end. Each returns 0 or -errno; on failure
 * b is as before, -EINVAL means that the protocol has no such value. */

void wire_map_begin_request(struct wire_map *m, struct wire_buf *b, uint64_t id,
                            const char *op);
/* p: one encoded value. */
void wire_map_raw(struct wire_map *m, const char *key, const void *p, size_t n);
/* p: so many encoded values. */
void wire_list_raw(struct wire_map *list, const void *p, size_t n,
                   uint32_t n_values);

int wire_value_str(struct wire_buf *b, const char *s, size_t n); /* UTF-8 */
int wire_value_bin(struct wire_buf *b, const void *p, size_t n);
int wire_value_int(struct wire_buf *b, int64_t v);
int wire_value_uint(struct wire_buf *b, uint64_t v);
int wire_value_real(struct wire_buf *b, double v); /* finite */
int wire_value_bool(struct wire_buf *b, bool v);
/* The head of a list or map; its values (keys and values) follow. */
int wire_value_list(struct wire_buf *b, uint32_t n);
int wire_value_map(struct wire_buf *b, uint32_t n);
/* JSON text, order of keys kept. -EINVAL: why says what and where. */
int wire_value_json(struct wire_buf *b, const char *text, size_t n, char *why,
                    size_t n_why);

/* One decoded event; holds a copy of the body. */
struct wire_event;
int wire_decode_event(const uint8_t *body, size_t n, struct wire_event **ret,
                      struct wire_error *err);
void wire_event_destroy(struct wire_event *e); /* NULL is fine */
uint64_t wire_event_id(const struct wire_event *e);
const char *wire_event_name(const struct wire_event *e); /* "delta" ... */

enum wire_value_type {
    WIRE_V_NIL,
    WIRE_V_BOOL,
    WIRE_V_UINT,
    WIRE_V_INT, /* below 0 */
    WIRE_V_REAL,
    WIRE_V_STR,
    WIRE_V_BIN,
    WIRE_V_LIST,
    WIRE_V_MAP
};
struct wire_value {
    enum wire_value_type type;
    bool b;
    uint64_t u;
    int64_t i;
    double r;
    struct wire_str s; /* str, bin; lives as long as the event */
    size_t n;          /* list, map: entries */
};
/* The value at a path: keys and list indices joined by dots, as in
 * "usage.prompt_tokens" or "logprobs.0.id"; "" is the whole event. False where
 * there is none. */
bool wire_event_get(const struct wire_event *e, const char *path,
                    struct wire_value *ret);
/* JSON text of the value at a path; bin becomes a list of byte values. -ENOENT
 * where there is none. */
int wire_event_json(const struct wire_event *e, const char *path,
                    struct wire_buf *b);

#endif
