/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_CLIENT_H
#define STEPD_CLIENT_H

/*
 * libstepclient: talk to stepd from a C program. (In prose it is called
 * libclient; link with `pkg-config --cflags --libs stepclient`.)
 *
 * The shortest program
 * --------------------
 *
 *     static void print(void *ctx, const struct step_event *e)
 *     {
 *         size_t n;
 *         const char *text = step_event_text(e, &n);
 *         if (text != NULL) {
 *             fwrite(text, 1, n, stdout);
 *         }
 *     }
 *
 *     struct step_client *c;
 *     struct step_request *r;
 *     int err = step_client_create(&c);
 *     if (err == 0) {
 *         err = step_client_connect(c, NULL);
 *     }
 *     if (err == 0) {
 *         err = step_request_create(&r, "generate");
 *     }
 *     if (err == 0) {
 *         step_request_add_message(r, "user", STEP_STR("Hello!"));
 *         step_request_set_real(r, "temperature", 0.6);
 *         err = step_client_call(c, r, print, NULL);
 *         step_request_destroy(r);
 *     }
 *     if (err < 0) {
 *         fprintf(stderr, "%s\n", step_strerror(err));
 *     }
 *     step_client_destroy(c);
 *
 * Three complete programs are installed beside this header's package, in
 * share/doc/stepd/examples: example_blocking.c is the above with every error
 * looked at, example_poll.c asks many questions at once and reads lines
 * meanwhile, example_ev.c is an application with a loop of its own.
 *
 * The model
 * ---------
 *
 * A client is one connection to the daemon. A request is a bag of keys with an
 * op ("generate", "tokenize", "status" ...); it is built once and may be
 * submitted any number of times, to any client. Each submitted request has an
 * id, several may be in flight, and each is answered by events. The last of
 * these, and only the last, is STEP_EVENT_DONE or STEP_EVENT_ERROR: every
 * submitted request gets exactly one of the two, whatever happens.
 *
 * Which ops, keys and events there are is the protocol's business, not this
 * library's: stepd-protocol(7), or what the op "describe" returns. New keys
 * need no new function here: setters take the key's name, getters a path such
 * as "usage.prompt_tokens".
 *
 * Reading an answer
 * -----------------
 *
 * A generation is answered by accepted, perhaps progress while a long prompt is
 * read, any number of deltas, and done:
 *
 *     accepted  {job: 17, queue_position: 0, prompt_tokens: 14}
 *     delta     {kind: "reasoning", text: "The user asks"}
 *     delta     {kind: "content", text: "Nairobi"}
 *     done      {finish_reason: "stop", usage: {completion_tokens: 41, ...},
 *                seed: 12345678901234567890, timings: {decode_ms: 812.5, ...}}
 *
 * step_event_text is the text of a delta; step_event_get_str(e, "kind", ...)
 * says what it is a piece of. Anything else is read by its path, and a path
 * that this daemon does not send is STEP_E_NOT_FOUND and leaves the variable as
 * it was: initialise it with what absence means. Long results of other ops come
 * as parts instead of deltas. The pieces of a text are cut at whole UTF-8
 * characters; joined they are the text.
 *
 * With tools in the request (step_request_add_tool) the model may call some.
 * Deltas of kind "tool_call" tell it: one that has "call.index" is a call, with
 * call.id, call.name and call.arguments (JSON text, an object). Send it back in
 * the assistant's message, with a message of role "tool" for each result:
 *
 *     step_request_add_json(r, "messages", STEP_STR(
 *         "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{"
 *         "\"id\": \"call_...\", \"type\": \"function\", \"function\": {"
 *         "\"name\": \"get_time\", \"arguments\": \"{...}\"}}]}"));
 *
 * The id lets the daemon find what the model wrote, byte for byte, so that it
 * need not read the conversation again. The other deltas of that kind
 * (call_begin, call_args, call_dropped) tell of calls while they grow and are
 * provisional: a program that skips them misses nothing.
 *
 * An answer that was cut is a done, not an error: look at finish_reason
 * ("stop", "length", "tool_calls", "cancelled", "timeout"). The seed in done
 * makes the same request give the same answer again on the same daemon.
 *
 * Event loops
 * -----------
 *
 * The library has no loop, no thread and no timer of its own and never blocks,
 * except in step_client_wait and step_client_call, which say so. With poll(2):
 *
 *     struct pollfd p = {.fd = step_client_get_fd(c),
 *                        .events = step_client_get_events(c)};
 *     poll(&p, 1, step_client_get_timeout(c));
 *     step_client_dispatch(c);
 *     while ((e = step_client_next(c)) != NULL) {
 *         ... step_event_request(e), step_event_userdata(e) ...
 *     }
 *
 * get_events changes while output waits (POLLOUT) and while too many events
 * wait to be taken (no POLLIN): ask again before each wait. Dispatch when the
 * fd is ready for anything, hang-up and error included, or when the timeout has
 * passed; extra calls do no harm. Take events until NULL each time.
 *
 * Connection and hello
 * --------------------
 *
 * step_client_connect opens the socket and queues the protocol's hello; it does
 * not wait. Requests may be submitted at once: they are held until the daemon's
 * hello has come, which says what this daemon knows. A request with an op or
 * key that it does not know is not sent but ends with STEP_E_UNSUPPORTED, for a
 * daemon that ignored a key would give another answer than the one asked for.
 * When the daemon refuses the hello (no common version, user not allowed),
 * held requests end with its code.
 *
 * When the daemon goes away, each pending request ends once with
 * STEP_E_DISCONNECTED. Nothing is sent again by itself: a generation may have
 * been half done. step_client_connect may be called again on the same handle.
 *
 * A program that takes its events late is slowed down and loses nothing: at
 * 1024 events or 32 MiB that wait the library stops reading, and the daemon
 * pauses the generation. A frame over the protocol's limit (16 MiB) ends the
 * connection, and so does anything else that is no protocol.
 *
 * There is no limit of time in here but that of step_client_wait: set the
 * request's "timeout_ms", which the daemon keeps, or cancel by a timer of your
 * own.
 *
 * Errors
 * ------
 *
 * Functions return 0 or a positive value, or a negative STEP_E_ code, for which
 * step_strerror has words. The same codes are in error events
 * (step_event_code), where step_event_get_str(e, "message", ...) says more.
 * Codes from -1 to -14 are the daemon's, the others are the library's own.
 * STEP_E_BUSY and STEP_E_DRAINING are worth another try later ("retry_ms",
 * where the event has it); the same request again will not do better with the
 * others.
 *
 * When memory runs out a function returns STEP_E_NO_MEMORY and has done
 * nothing. Where events can no longer be held the connection is given up, and
 * pending requests end with that code: memory for it was taken when they were
 * submitted.
 *
 * Strings and lifetimes
 * ---------------------
 *
 * Text goes in as pointer and length, may contain NUL, and is copied. Text is
 * UTF-8; raw bytes have their own setter. Strings that come out belong to the
 * event or handle they came from; an event lives until the next call of
 * step_client_next, step_client_call or step_client_destroy on its client. They
 * are not NUL-terminated where a length comes with them.
 *
 * Threads, signals, forks
 * -----------------------
 *
 * The library has no global state. Different handles may be used at the same
 * time by different threads. One handle, with its events, may be used by any
 * thread, but by one at a time: the lock, where several do, is the caller's.
 * This holds for cancel, too: from another thread, wake the one that waits and
 * let it cancel. A request that nobody changes may be submitted by several
 * threads at once. step_strerror and step_code_name are free for all.
 *
 * It raises no SIGPIPE, installs no handlers, reads no environment but in
 * step_client_connect with where NULL (which must not meet a setenv in another
 * thread), touches no locale, prints nothing and never exits. Its fd is
 * close-on-exec. A child of fork must not use the parent's handles, not even to
 * destroy them.
 *
 * Compatibility
 * -------------
 *
 * Handles are opaque, enums grow at the end, and treat values you do not know
 * as "something else": that is what lets an old program talk to a new daemon.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct step_client;
struct step_request;
struct step_event;

/* A string literal as pointer and length. */
#define STEP_STR(literal) (literal), (sizeof(literal) - 1)

enum {
    STEP_OK = 0,
    /* What the daemon says. */
    STEP_E_BAD_FRAME = -1,   /* one side broke the protocol */
    STEP_E_BAD_REQUEST = -2, /* a key is wrong; "detail" names it */
    STEP_E_UNKNOWN_OP = -3,
    STEP_E_VERSION = -4, /* no common protocol version */
    STEP_E_DENIED = -5,  /* this user may not; also: may not connect */
    STEP_E_BUSY = -6,    /* queue or quota full; also: EAGAIN on connect */
    STEP_E_TOO_LONG = -7,
    STEP_E_NOT_FOUND = -8, /* also: the event has nothing at that path */
    STEP_E_NO_MEMORY = -9, /* there or here */
    STEP_E_UNSUPPORTED = -10,
    STEP_E_UNAVAILABLE = -11, /* the model is not there */
    STEP_E_DRAINING = -12,    /* the daemon takes no new work */
    STEP_E_CORRUPT = -13,
    STEP_E_INTERNAL = -14, /* the daemon's fault, or a code not known here */
    /* What the library says. */
    STEP_E_DISCONNECTED = -15, /* the daemon went away, or no connection */
    STEP_E_NO_DAEMON = -16,    /* nobody listens at that path; see errno */
    STEP_E_INVALID = -17,      /* an argument that cannot be */
    STEP_E_TIMEOUT = -18,      /* step_client_wait: nothing came */
    STEP_E_SYSTEM = -19        /* a system call failed; see errno */
};

/* What a code means, in English. Static; also for codes not known here. */
const char *step_strerror(int code);
/* The code's word as the protocol has it: "bad_request". Static. */
const char *step_code_name(int code);

/* ---- the client --------------------------------------------------------- */

/* A client without a connection. */
int step_client_create(struct step_client **ret);
/* Closes the connection, which cancels its requests. NULL is fine. */
void step_client_destroy(struct step_client *c);
/* Name and version of the program, for the daemon's log: at most 128 bytes of
 * UTF-8. Before connect; default: "libstepclient" and its version. */
int step_client_set_name(struct step_client *c, const char *name);

/* Connects to a daemon's socket, without waiting. where is a path (it has a
 * slash or ends in .sock), the name of a system instance ("tiny" is
 * /run/stepd/tiny.sock), or NULL: $STEPD_SOCKET where that is set, else
 * $XDG_RUNTIME_DIR/stepd/stepd.sock, else /run/stepd/stepd.sock, where only "no
 * such file" moves on to the next.
 *
 * STEP_E_NO_DAEMON: no socket there, or nobody behind it. STEP_E_DENIED: the
 * socket's mode says no. STEP_E_BUSY: its queue is full, try again.
 * STEP_E_INVALID: connected already, or a path longer than a socket's. errno
 * holds the cause. */
int step_client_connect(struct step_client *c, const char *where);
/* The path that connect tried last, "" before it. Until the next connect. */
const char *step_client_path(const struct step_client *c);

/* For an event loop. fd: -1 without a connection; constant while it lasts.
 * events: POLLIN and POLLOUT bits. timeout: milliseconds as poll takes them, 0
 * while events wait to be taken, -1 for none. */
int step_client_get_fd(const struct step_client *c);
int step_client_get_events(const struct step_client *c);
int step_client_get_timeout(const struct step_client *c);
/* Writes and reads what can be written and read now. 0, or STEP_E_DISCONNECTED
 * without a connection (events of what it ended may still wait). */
int step_client_dispatch(struct step_client *c);
/* The next event, or NULL. It lives until the next call of this. */
const struct step_event *step_client_next(struct step_client *c);
/* Blocks until an event waits to be taken: polls and dispatches. timeout_ms -1:
 * without limit. 1 when there is one; STEP_E_TIMEOUT; STEP_E_DISCONNECTED when
 * there is neither event nor connection; STEP_E_SYSTEM with errno EINTR when a
 * signal handler ran, so that it can be looked at. */
int step_client_wait(struct step_client *c, int timeout_ms);

/* The daemon's hello (server_version, served_model_name, features, limits), or
 * NULL until it has come. Until the client is destroyed or connects again. */
const struct step_event *step_client_hello(const struct step_client *c);
/* True when the hello has this word: "op.score", "key.response_format". */
bool step_client_has_feature(const struct step_client *c, const char *word);

/* Submits a request. userdata comes back in its events and is not looked at;
 * ret_id (may be NULL) receives the id. The request stays the caller's. Fails,
 * without an event, with the error of an earlier setter (see
 * step_request_error), STEP_E_TOO_LONG over the protocol's frame limit,
 * STEP_E_BUSY while too much output waits, STEP_E_DISCONNECTED. */
int step_client_submit(struct step_client *c, const struct step_request *r,
                       void *userdata, uint64_t *ret_id);
/* Asks the daemon to end a request. Its final event still comes: done with
 * finish_reason "cancelled", or whatever was faster. STEP_E_NOT_FOUND when no
 * such request is pending. */
int step_client_cancel(struct step_client *c, uint64_t id);

/* Submits and blocks until the request has ended, calling fn (may be NULL) with
 * each of its events; events of other requests stay to be taken. 0 after done,
 * else the code of the error event or of submit. Signals do not end it: a
 * program that wants to stop early uses its own loop. fn must not call into the
 * same client, except for step_client_cancel. */
typedef void (*step_event_fn)(void *ctx, const struct step_event *e);
int step_client_call(struct step_client *c, const struct step_request *r,
                     step_event_fn fn, void *ctx);

/* ---- requests -------------------------------------------------------------
 * Setters copy, replace an earlier value of the key, and return 0,
 * STEP_E_INVALID or STEP_E_NO_MEMORY. The first failure sticks to the request,
 * so that it may be left unchecked until submit, which then returns it. */

int step_request_create(struct step_request **ret, const char *op);
void step_request_destroy(struct step_request *r); /* NULL is fine */

/* Text must be UTF-8. */
int step_request_set_str(struct step_request *r, const char *key,
                         const char *text, size_t n);
int step_request_set_bytes(struct step_request *r, const char *key,
                           const void *bytes, size_t n);
int step_request_set_int(struct step_request *r, const char *key, int64_t v);
int step_request_set_uint(struct step_request *r, const char *key, uint64_t v);
int step_request_set_real(struct step_request *r, const char *key, double v);
int step_request_set_bool(struct step_request *r, const char *key, bool v);
/* Any value, as JSON text; the order of keys is kept. */
int step_request_set_json(struct step_request *r, const char *key,
                          const char *json, size_t n);
/* A list of token ids. */
int step_request_set_ids(struct step_request *r, const char *key,
                         const int32_t *ids, size_t n);
/* Appends to a list: stop strings, say. */
int step_request_add_str(struct step_request *r, const char *key,
                         const char *text, size_t n);
int step_request_add_json(struct step_request *r, const char *key,
                          const char *json, size_t n);
/* Appends {role, content} to "messages". */
int step_request_add_message(struct step_request *r, const char *role,
                             const char *text, size_t n);
/* Appends a function to "tools". description may be NULL; parameters is a JSON
 * Schema as JSON text, NULL for a function without any. */
int step_request_add_tool(struct step_request *r, const char *name,
                          const char *description, const char *parameters);
/* Forgets a key. */
void step_request_unset(struct step_request *r, const char *key);
/* The first failure of a setter, or 0; ret_why (may be NULL) receives words
 * for it ("tools: a malformed number, at byte 7"), good as long as r. */
int step_request_error(const struct step_request *r, const char **ret_why);

/* ---- events ------------------------------------------------------------- */

enum step_event_type {
    STEP_EVENT_OTHER,    /* one that is not known here; step_event_name */
    STEP_EVENT_ACCEPTED, /* queued: job, queue_position, prompt_tokens */
    STEP_EVENT_PROGRESS, /* prompt tokens: done, total, cached */
    STEP_EVENT_DELTA,    /* a piece of the answer: kind, text, ids, logprobs */
    STEP_EVENT_PART,     /* a piece of a long result: text or ids */
    STEP_EVENT_DONE,     /* the end: finish_reason, usage, seed, timings */
    STEP_EVENT_ERROR     /* the end: code, message, detail, retry_ms */
};
enum step_event_type step_event_type(const struct step_event *e);
const char *step_event_name(const struct step_event *e); /* "delta" ... */
/* The request's id and userdata; 0 and NULL for an event about none. */
uint64_t step_event_request(const struct step_event *e);
void *step_event_userdata(const struct step_event *e);
/* Of an error: its STEP_E_ code. Else 0. */
int step_event_code(const struct step_event *e);
/* "text" of a delta or part, bytes or str; NULL where it has none. */
const char *step_event_text(const struct step_event *e, size_t *ret_n);

/* The value at a path: keys and list indices joined by dots, as in
 * "usage.prompt_tokens" or "logprobs.0.id". STEP_E_NOT_FOUND where there is
 * none or nil, STEP_E_INVALID where it has another type; ret untouched. Bytes
 * are strings here; get_real takes integers too. */
int step_event_get_str(const struct step_event *e, const char *path,
                       const char **ret, size_t *ret_n);
int step_event_get_int(const struct step_event *e, const char *path,
                       int64_t *ret);
int step_event_get_uint(const struct step_event *e, const char *path,
                        uint64_t *ret);
int step_event_get_real(const struct step_event *e, const char *path,
                        double *ret);
int step_event_get_bool(const struct step_event *e, const char *path,
                        bool *ret);
/* Entries of the list or map at a path. */
int step_event_get_count(const struct step_event *e, const char *path,
                         size_t *ret);
/* The value at a path as JSON text on one line ("" is the whole event); bytes
 * become a list of numbers. The caller frees ret. */
int step_event_get_json(const struct step_event *e, const char *path,
                        char **ret);

#ifdef __cplusplus
}
#endif

#endif
