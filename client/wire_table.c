/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The tables of the protocol: every op, request key, event, code and limit, one
 * row each. wire_decode.c checks requests by them, wire_describe.c prints them,
 * hello announces from them; nothing about a key is written anywhere else but
 * in the text of wire.h and the manual.
 *
 * To add a key: a row here at the place of its enum wire_key, a field in
 * struct wire_request, a line in wire.h section 3 and in stepd-protocol(7).
 * WIRE_KEY_LATER says that the daemon cannot serve it yet: it is `unsupported`
 * and not announced. Whoever builds it removes the flag.
 */

#include <string.h>

#include "client/wire_priv.h"

#define OP(op) (UINT32_C(1) << WIRE_##op)
#define FIELD(f) offsetof(struct wire_request, f)
#define I32_MAX INT32_MAX
#define CHAT (OP(GENERATE) | OP(RENDER))
#define QUEUED (OP(GENERATE) | OP(SCORE))
#define ONE_NAMED                                             \
    (OP(SESSION_PIN) | OP(SESSION_UNPIN) | OP(SESSION_SAVE) | \
     OP(SESSION_RESTORE) | OP(SESSION_DROP) | OP(SESSION_FORK))
#define SESSIONS (ONE_NAMED | OP(SESSION_LIST))
#define ALL_OPS ((UINT32_C(1) << WIRE_N_OPS) - 1)

const struct wire_op_row wire_ops[WIRE_N_OPS] = {
    [WIRE_HELLO] = {"hello", false, "agree on a version; first of all"},
    [WIRE_PING] = {"ping", false, "answered at once, with the state"},
    [WIRE_DESCRIBE] = {"describe", false, "these tables"},
    [WIRE_GENERATE] = {"generate", false, "answer a chat or go on with a text"},
    [WIRE_CANCEL] = {"cancel", false, "end a request"},
    [WIRE_TOKENIZE] = {"tokenize", false, "text to token ids, without BOS"},
    [WIRE_DETOKENIZE] = {"detokenize", false, "token ids to text"},
    [WIRE_RENDER] = {"render", false, "messages to the prompt's text or ids"},
    [WIRE_SCORE] = {"score", false, "logprobs of a given text"},
    [WIRE_STATUS] = {"status", false, "state, model, own jobs, totals"},
    [WIRE_METRICS] = {"metrics", false, "Prometheus text"},
    [WIRE_SESSION_LIST] = {"session_list", false, "own sessions"},
    [WIRE_SESSION_PIN] = {"session_pin", false, "keep in memory"},
    [WIRE_SESSION_UNPIN] = {"session_unpin", false, "no longer keep in memory"},
    [WIRE_SESSION_SAVE] = {"session_save", false, "write to disk"},
    [WIRE_SESSION_RESTORE] = {"session_restore", false, "read from disk"},
    [WIRE_SESSION_DROP] = {"session_drop", false, "forget, on disk too"},
    [WIRE_SESSION_FORK] = {"session_fork", false, "a second one that goes on"},
    [WIRE_DRAIN] = {"drain", false, "take no new work (admins)"},
    [WIRE_RELOAD] = {"reload", false, "read the configuration again (admins)"},
};

const char *const wire_type_name[WIRE_N_TYPES] = {
    [WIRE_T_INT] = "int",
    [WIRE_T_UINT] = "int",
    [WIRE_T_REAL] = "float",
    [WIRE_T_BOOL] = "bool",
    [WIRE_T_STR] = "str",
    [WIRE_T_NAME] = "name",
    [WIRE_T_BYTES] = "str or bin",
    [WIRE_T_MAPS] = "list of map",
    [WIRE_T_CHOICE] = "str or map",
    [WIRE_T_MAP] = "map",
    [WIRE_T_STR_LIST] = "list of str",
    [WIRE_T_INT_LIST] = "list of int",
    [WIRE_T_BIAS] = "map of str to float",
};

/* Rows of one kind, so that what differs stands out below. */
#define INT_ROW(field_, min_, max_, def_)                        \
    .type = WIRE_T_INT, .offset = FIELD(field_), .imin = (min_), \
    .imax = (max_), .def_int = (def_)
#define UINT_ROW(field_, min_, max_) \
    .type = WIRE_T_UINT, .offset = FIELD(field_), .imin = (min_), .imax = (max_)
#define REAL_ROW(field_, min_, max_, def_)                        \
    .type = WIRE_T_REAL, .offset = FIELD(field_), .rmin = (min_), \
    .rmax = (max_), .def_real = (def_)
#define BOOL_ROW(field_, def_) \
    .type = WIRE_T_BOOL, .offset = FIELD(field_), .def_int = (def_)
#define NAME_ROW(field_, max_)                                    \
    .type = WIRE_T_NAME, .offset = FIELD(field_), .min_bytes = 1, \
    .max_bytes = (max_)
#define UNSTORED_ROW(type_) .type = (type_), .flags = WIRE_KEY_UNSTORED

const struct wire_key_row wire_keys[WIRE_N_KEYS] = {
    /* op and id are read before the table is used. */
    [WIRE_K_OP] = {"op", ALL_OPS, ALL_OPS, UNSTORED_ROW(WIRE_T_STR),
                   .doc = "what is asked"},
    [WIRE_K_ID] = {"id", ALL_OPS, ALL_OPS, UINT_ROW(id, 1, UINT64_MAX),
                   .doc = "comes back in every event"},
    [WIRE_K_VERSION_MIN] = {"version_min", OP(HELLO), OP(HELLO),
                            UINT_ROW(version_min, 1, UINT16_MAX),
                            .doc = "lowest version that the client speaks"},
    [WIRE_K_VERSION_MAX] = {"version_max", OP(HELLO), OP(HELLO),
                            UINT_ROW(version_max, 1, UINT16_MAX),
                            .doc = "highest version that the client speaks"},
    [WIRE_K_CLIENT_NAME] = {"client_name", OP(HELLO), 0, .type = WIRE_T_STR,
                            .offset = FIELD(client_name),
                            .max_bytes = WIRE_MAX_CLIENT_NAME,
                            .doc = "name and version, for the log"},
    [WIRE_K_FEATURES] = {"features", OP(HELLO), 0,
                         UNSTORED_ROW(WIRE_T_STR_LIST),
                         .doc = "what the client knows; not used yet"},
    [WIRE_K_MESSAGES] = {"messages", CHAT, OP(RENDER), .type = WIRE_T_MAPS,
                         .offset = FIELD(messages),
                         .doc = "the conversation; generate takes this or "
                                "prompt"},
    [WIRE_K_TOOLS] = {"tools", CHAT, 0, .type = WIRE_T_MAPS,
                      .flags = WIRE_KEY_CHAT, .offset = FIELD(tools),
                      .doc = "functions that the model may call"},
    [WIRE_K_TOOL_CHOICE] = {"tool_choice", OP(GENERATE), 0,
                            .type = WIRE_T_CHOICE, .flags = WIRE_KEY_CHAT,
                            .offset = FIELD(tool_choice),
                            .doc = "auto, none, required or a named tool"},
    [WIRE_K_REASONING_EFFORT] = {"reasoning_effort", CHAT, 0,
                                 .type = WIRE_T_STR, .flags = WIRE_KEY_CHAT,
                                 .offset = FIELD(reasoning_effort),
                                 .values = "low medium high",
                                 .doc = "absent: nothing in the prompt"},
    [WIRE_K_THINKING] = {"thinking", CHAT, 0, BOOL_ROW(thinking, true),
                         .flags = WIRE_KEY_CHAT | WIRE_KEY_DEFAULT,
                         .doc = "the answer begins with reasoning"},
    [WIRE_K_PROMPT] = {"prompt", OP(GENERATE) | OP(TOKENIZE) | OP(SCORE),
                       OP(TOKENIZE) | OP(SCORE), .type = WIRE_T_BYTES,
                       .offset = FIELD(prompt), .count = FIELD(prompt_is_bin),
                       .doc = "raw text; generate takes this or messages"},
    [WIRE_K_SPECIAL] = {"special", OP(TOKENIZE) | OP(SCORE), 0,
                        BOOL_ROW(special, false), .flags = WIRE_KEY_DEFAULT,
                        .doc = "names of control tokens are those tokens"},
    [WIRE_K_ADD_GENERATION_PROMPT] = {"add_generation_prompt", OP(RENDER), 0,
                                      BOOL_ROW(add_generation_prompt, true),
                                      .flags = WIRE_KEY_DEFAULT,
                                      .doc = "end where the answer begins"},
    [WIRE_K_WANT_IDS] = {"want_ids", CHAT, 0, BOOL_ROW(want_ids, false),
                         .flags = WIRE_KEY_DEFAULT,
                         .doc = "token ids too (render: instead of text)"},
    [WIRE_K_IDS] = {"ids", OP(DETOKENIZE), OP(DETOKENIZE),
                    .type = WIRE_T_INT_LIST, .offset = FIELD(ids),
                    .count = FIELD(n_ids), .imin = 0, .imax = I32_MAX,
                    .doc = "token ids"},
    [WIRE_K_TEMPERATURE] = {"temperature", OP(GENERATE), 0,
                            REAL_ROW(temperature, 0, 100, 1),
                            .flags = WIRE_KEY_DEFAULT, .doc = "0 is greedy"},
    [WIRE_K_TOP_P] = {"top_p", OP(GENERATE), 0, REAL_ROW(top_p, 0, 1, 1),
                      .flags = WIRE_KEY_DEFAULT | WIRE_KEY_ABOVE,
                      .doc = "least set of tokens with this mass; 1 is off"},
    [WIRE_K_MIN_P] = {"min_p", OP(GENERATE), 0, REAL_ROW(min_p, 0, 1, 0),
                      .flags = WIRE_KEY_DEFAULT,
                      .doc = "least share of the best token's; 0 is off"},
    [WIRE_K_TOP_K] = {"top_k", OP(GENERATE), 0, INT_ROW(top_k, 0, I32_MAX, 0),
                      .flags = WIRE_KEY_DEFAULT,
                      .doc = "so many best tokens; 0 is off"},
    [WIRE_K_REPETITION_PENALTY] = {"repetition_penalty", OP(GENERATE), 0,
                                   REAL_ROW(repetition_penalty, 0.01, 100, 1),
                                   .flags = WIRE_KEY_DEFAULT,
                                   .doc = "divides logits of seen tokens"},
    [WIRE_K_PRESENCE_PENALTY] = {"presence_penalty", OP(GENERATE), 0,
                                 REAL_ROW(presence_penalty, -2, 2, 0),
                                 .flags = WIRE_KEY_DEFAULT,
                                 .doc = "off the logit of generated tokens"},
    [WIRE_K_FREQUENCY_PENALTY] = {"frequency_penalty", OP(GENERATE), 0,
                                  REAL_ROW(frequency_penalty, -2, 2, 0),
                                  .flags = WIRE_KEY_DEFAULT,
                                  .doc = "likewise, for each occurrence"},
    [WIRE_K_SEED] = {"seed", OP(GENERATE), 0, UINT_ROW(seed, 0, UINT64_MAX),
                     .doc = "absent: drawn, and reported in done"},
    [WIRE_K_MAX_TOKENS] = {"max_tokens", OP(GENERATE), 0,
                           INT_ROW(max_tokens, 1, I32_MAX, 0),
                           .doc = "absent: what fits"},
    [WIRE_K_STOP] = {"stop", OP(GENERATE), 0, .type = WIRE_T_STR_LIST,
                     .offset = FIELD(stop), .count = FIELD(n_stops),
                     .min_bytes = 1, .max_bytes = WIRE_MAX_STOP_BYTES,
                     .max_items = WIRE_MAX_STOPS,
                     .doc = "the answer ends before any of these"},
    [WIRE_K_LOGPROBS] = {"logprobs", OP(GENERATE) | OP(SCORE), 0,
                         INT_ROW(logprobs, 0, WIRE_MAX_LOGPROBS, -1),
                         .doc = "alternatives a token; absent: no logprobs"},
    [WIRE_K_DRAFTS] = {"drafts", OP(GENERATE), 0,
                       INT_ROW(drafts, 0, WIRE_MAX_DRAFTS, -1),
                       .doc = "drafts a step; absent: the engine's choice"},
    [WIRE_K_PRIORITY] = {"priority", QUEUED, 0, INT_ROW(priority, -10, 10, 0),
                         .flags = WIRE_KEY_DEFAULT, .doc = "higher first"},
    [WIRE_K_TIMEOUT_MS] = {"timeout_ms", QUEUED, 0,
                           UINT_ROW(timeout_ms, 0, UINT64_C(1) << 53),
                           .flags = WIRE_KEY_DEFAULT,
                           .doc = "from acceptance, waiting included; 0: none"},
    [WIRE_K_WAIT] = {"wait", QUEUED | SESSIONS, 0, BOOL_ROW(wait, true),
                     .flags = WIRE_KEY_DEFAULT,
                     .doc = "false: busy instead of waiting while it loads"},
    [WIRE_K_TARGET] = {"target", OP(CANCEL), 0, UINT_ROW(target, 1, UINT64_MAX),
                       .doc = "id of an own request on this connection"},
    [WIRE_K_JOB] = {"job", OP(CANCEL), 0, UINT_ROW(job, 1, UINT64_MAX),
                    .doc = "a job's number, from accepted or status"},
    [WIRE_K_SESSION] = {"session", OP(GENERATE) | ONE_NAMED, ONE_NAMED,
                        NAME_ROW(session, WIRE_MAX_SESSION),
                        .doc = "name of a session"},
    [WIRE_K_TO] = {"to", OP(SESSION_FORK), OP(SESSION_FORK),
                   NAME_ROW(to, WIRE_MAX_SESSION),
                   .doc = "name of the new session"},
    [WIRE_K_TENANT] = {"tenant", QUEUED | SESSIONS, 0,
                       NAME_ROW(tenant, WIRE_MAX_TENANT),
                       .doc = "on whose behalf (delegates)"},
    [WIRE_K_APPEND] = {"append", OP(GENERATE), 0, BOOL_ROW(append, false),
                       .flags = WIRE_KEY_DEFAULT,
                       .doc = "messages follow those of the session"},
    [WIRE_K_OFF] = {"off", OP(DRAIN), 0, BOOL_ROW(off, false),
                    .flags = WIRE_KEY_DEFAULT, .doc = "end the drain"},
    [WIRE_K_RESPONSE_FORMAT] = {"response_format", OP(GENERATE), 0,
                                .type = WIRE_T_MAP,
                                .offset = FIELD(response_format),
                                .doc = "what the answer must fit"},
    [WIRE_K_LOGIT_BIAS] = {"logit_bias", OP(GENERATE), 0, .type = WIRE_T_BIAS,
                           .offset = FIELD(logit_bias),
                           .count = FIELD(n_logit_bias), .rmin = -100,
                           .rmax = 100, .max_items = WIRE_MAX_LOGIT_BIAS,
                           .doc = "token id (as str) to what is added"},
    [WIRE_K_BAD_WORDS] = {"bad_words", OP(GENERATE), 0, .type = WIRE_T_STR_LIST,
                          .offset = FIELD(bad_words),
                          .count = FIELD(n_bad_words), .min_bytes = 1,
                          .max_bytes = WIRE_MAX_BAD_WORD_BYTES,
                          .max_items = WIRE_MAX_BAD_WORDS,
                          .doc = "texts that must not occur"},
    [WIRE_K_STOP_IDS] = {"stop_ids", OP(GENERATE), 0, .type = WIRE_T_INT_LIST,
                         .offset = FIELD(stop_ids), .count = FIELD(n_stop_ids),
                         .imin = 0, .imax = I32_MAX,
                         .max_items = WIRE_MAX_STOP_IDS,
                         .doc = "tokens that end the answer too"},
    [WIRE_K_MIN_TOKENS] = {"min_tokens", OP(GENERATE), 0,
                           INT_ROW(min_tokens, 0, I32_MAX, 0),
                           .flags = WIRE_KEY_DEFAULT,
                           .doc = "no end token and no stop before so many"},
    [WIRE_K_IGNORE_EOS] = {"ignore_eos", OP(GENERATE), 0,
                           BOOL_ROW(ignore_eos, false),
                           .flags = WIRE_KEY_DEFAULT,
                           .doc = "the model's end tokens are ordinary ones"},
    [WIRE_K_INCLUDE_STOP] = {"include_stop", OP(GENERATE), 0,
                             BOOL_ROW(include_stop, false),
                             .flags = WIRE_KEY_DEFAULT,
                             .doc = "the stop string is part of the answer"},
    [WIRE_K_WANT_BYTES] = {"want_bytes", OP(GENERATE), 0,
                           BOOL_ROW(want_bytes, false),
                           .flags = WIRE_KEY_DEFAULT,
                           .doc = "text as exact bytes (bin)"},
    [WIRE_K_MAX_REASONING_TOKENS] = {"max_reasoning_tokens", OP(GENERATE), 0,
                                     INT_ROW(max_reasoning_tokens, 0, I32_MAX,
                                             -1),
                                     .flags = WIRE_KEY_CHAT,
                                     .doc = "then reasoning is ended; absent: "
                                            "no limit"},
    [WIRE_K_LOGPROBS_MODE] = {"logprobs_mode", OP(GENERATE), 0,
                              .type = WIRE_T_STR,
                              .offset = FIELD(logprobs_mode),
                              .values = "raw sampled",
                              .doc = "before or after sampling parameters"},
    [WIRE_K_PROMPT_LOGPROBS] = {"prompt_logprobs", OP(GENERATE), 0,
                                INT_ROW(prompt_logprobs, 0, WIRE_MAX_LOGPROBS,
                                        -1),
                                .doc = "as logprobs, for the prompt"},
};

_Static_assert(WIRE_N_KEYS <= 64, "struct wire_request.has is one u64");
_Static_assert(WIRE_N_OPS < 32, "sets of ops are u32");

const struct wire_event_row wire_events[] = {
    {"hello",
     "version version_min version_max server_version served_model_name features "
     "limits",
     "answer to hello"},
    {"accepted", "job queue_position prompt_tokens", "the request is queued"},
    {"progress", "done total cached", "prompt tokens worked off"},
    {"delta", "kind text ids logprobs call_begin call_args call call_dropped",
     "the next piece of an answer"},
    {"part", "text ids sessions logprobs", "the next piece of a long result"},
    {"done", "finish_reason usage seed timings", "the end, or a short result"},
    {"error", "code message detail retry_ms", "the end of what went wrong"},
};
const size_t wire_n_events = sizeof(wire_events) / sizeof(wire_events[0]);

const struct wire_code_row wire_codes[] = {
    {WIRE_E_BAD_FRAME, "bad_frame", "framing or msgpack is broken; closed"},
    {WIRE_E_BAD_REQUEST, "bad_request",
     "the request is wrong; detail: the key"},
    {WIRE_E_UNKNOWN_OP, "unknown_op", "no such op"},
    {WIRE_E_VERSION, "version", "no common protocol version; closed"},
    {WIRE_E_DENIED, "denied", "this user may not do that"},
    {WIRE_E_BUSY, "busy", "a queue or quota is full; retry_ms"},
    {WIRE_E_TOO_LONG, "too_long", "over the limit named"},
    {WIRE_E_NOT_FOUND, "not_found", "no such job or session"},
    {WIRE_E_NO_MEMORY, "no_memory", "no memory for this request"},
    {WIRE_E_UNSUPPORTED, "unsupported", "known, and not here"},
    {WIRE_E_UNAVAILABLE, "unavailable", "the model is not there"},
    {WIRE_E_DRAINING, "draining", "no new work is taken"},
    {WIRE_E_CORRUPT, "corrupt", "weights or session changed under us"},
    {WIRE_E_INTERNAL, "internal", "the daemon's fault; the log has more"},
};
const size_t wire_n_codes = sizeof(wire_codes) / sizeof(wire_codes[0]);

const struct wire_limit wire_limits[] = {
    {"max_frame", WIRE_MAX_FRAME, "bytes of a frame's body"},
    {"max_frame_hello", WIRE_MAX_FRAME_HELLO, "likewise, before hello"},
    {"max_depth", WIRE_MAX_DEPTH, "lists and maps inside each other"},
    {"max_values", WIRE_MAX_VALUES, "values in a frame, keys counted"},
    {"max_long_floats", WIRE_MAX_LONG_FLOATS,
     "floats in messages that take more than 15 digits"},
    {"max_stops", WIRE_MAX_STOPS, "stop strings of a request"},
    {"max_stop_ids", WIRE_MAX_STOP_IDS, "stop_ids of a request"},
    {"max_stop_bytes", WIRE_MAX_STOP_BYTES, "bytes of a stop string"},
    {"max_bad_words", WIRE_MAX_BAD_WORDS, "texts that must not occur"},
    {"max_bad_word_bytes", WIRE_MAX_BAD_WORD_BYTES, "bytes of one"},
    {"max_logit_bias", WIRE_MAX_LOGIT_BIAS, "tokens in logit_bias"},
    {"max_logprobs", WIRE_MAX_LOGPROBS, "alternatives a token"},
    {"max_drafts", WIRE_MAX_DRAFTS, "drafts a step"},
    {"max_session", WIRE_MAX_SESSION, "bytes of a session's name"},
    {"max_tenant", WIRE_MAX_TENANT, "bytes of a tenant's name"},
    {"max_client_name", WIRE_MAX_CLIENT_NAME, "bytes of client_name"},
    {"max_in_flight", WIRE_MAX_IN_FLIGHT, "requests of a connection"},
};
const size_t wire_n_limits = sizeof(wire_limits) / sizeof(wire_limits[0]);

static bool same(const char *name, const char *s, size_t n)
{
    return strlen(name) == n && memcmp(name, s, n) == 0;
}

const char *wire_op_name(enum wire_op op)
{
    return wire_ops[op].name;
}

int wire_op_find(const char *s, size_t n)
{
    for (int i = 0; i < WIRE_N_OPS; i++) {
        if (same(wire_ops[i].name, s, n)) {
            return i;
        }
    }
    return -1;
}

const char *wire_key_name(enum wire_key key)
{
    return wire_keys[key].name;
}

int wire_key_find(const char *s, size_t n)
{
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        if (same(wire_keys[i].name, s, n)) {
            return i;
        }
    }
    return -1;
}

const char *wire_code_name(int code)
{
    for (size_t i = 0; i < wire_n_codes; i++) {
        if (wire_codes[i].code == code) {
            return wire_codes[i].name;
        }
    }
    return code == WIRE_E_DISCONNECTED ? "disconnected" : "internal";
}

int wire_code_find(const char *word, size_t n)
{
    for (size_t i = 0; i < wire_n_codes; i++) {
        if (same(wire_codes[i].name, word, n)) {
            return wire_codes[i].code;
        }
    }
    return WIRE_E_INTERNAL;
}
