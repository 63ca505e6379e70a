/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Events of libstepclient as their readers see them, and the words of errors.
 *
 * Events belong to the client that they came from (client.c). Those that the
 * library makes itself have no frame behind them and answer the paths that such
 * an event has.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_priv.h"

_Static_assert((int)STEP_E_BAD_FRAME == (int)WIRE_E_BAD_FRAME, "same numbers");
_Static_assert((int)STEP_E_INTERNAL == (int)WIRE_E_INTERNAL, "same numbers");
_Static_assert((int)STEP_E_DISCONNECTED == (int)WIRE_E_DISCONNECTED,
               "same numbers");

static const struct {
    int code;
    const char *name; /* NULL: as the protocol has it */
    const char *text;
} errors[] = {
    {STEP_OK, "ok", "success"},
    {STEP_E_BAD_FRAME, NULL, "the protocol was broken"},
    {STEP_E_BAD_REQUEST, NULL, "the request is wrong"},
    {STEP_E_UNKNOWN_OP, NULL, "the daemon does not know this operation"},
    {STEP_E_VERSION, NULL,
     "client and daemon have no protocol version in "
     "common"},
    {STEP_E_DENIED, NULL, "permission denied"},
    {STEP_E_BUSY, NULL, "the daemon is busy, try again"},
    {STEP_E_TOO_LONG, NULL, "over a limit of length"},
    {STEP_E_NOT_FOUND, NULL, "not found"},
    {STEP_E_NO_MEMORY, NULL, "out of memory"},
    {STEP_E_UNSUPPORTED, NULL, "not supported by this daemon"},
    {STEP_E_UNAVAILABLE, NULL, "the model is not available"},
    {STEP_E_DRAINING, NULL, "the daemon is about to stop"},
    {STEP_E_CORRUPT, NULL, "weights or session are damaged"},
    {STEP_E_INTERNAL, NULL, "an error inside the daemon"},
    {STEP_E_DISCONNECTED, NULL, "the connection to the daemon is gone"},
    {STEP_E_NO_DAEMON, "no_daemon", "no daemon listens there"},
    {STEP_E_INVALID, "invalid", "an invalid argument"},
    {STEP_E_TIMEOUT, "timeout", "nothing came in time"},
    {STEP_E_SYSTEM, "system", "a system call failed"},
};

const char *step_strerror(int code)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            return errors[i].text;
        }
    }
    return code > 0 ? errors[0].text : "an error that is not known here";
}

const char *step_code_name(int code)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code && errors[i].name != NULL) {
            return errors[i].name;
        }
    }
    return wire_code_name(code);
}

/* ---- the client's side -------------------------------------------------- */

struct step_event *client_event_new(struct wire_event *w)
{
    static const struct {
        const char *name;
        enum step_event_type type;
    } known[] = {
        {"accepted", STEP_EVENT_ACCEPTED}, {"progress", STEP_EVENT_PROGRESS},
        {"delta", STEP_EVENT_DELTA},       {"part", STEP_EVENT_PART},
        {"done", STEP_EVENT_DONE},         {"error", STEP_EVENT_ERROR},
    };
    struct step_event *e = calloc(1, sizeof(*e));
    struct wire_value v;

    if (e == NULL) {
        wire_event_destroy(w);
        return NULL;
    }
    e->w = w;
    e->id = wire_event_id(w);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(wire_event_name(w), known[i].name) == 0) {
            e->type = known[i].type;
        }
    }
    if (e->type == STEP_EVENT_ERROR) {
        e->code = STEP_E_INTERNAL;
        if (wire_event_get(w, "code", &v) && v.type == WIRE_V_STR) {
            e->code = wire_code_find(v.s.p, v.s.n);
        }
    }
    return e;
}

void client_event_free(struct step_event *e)
{
    if (e != NULL) {
        wire_event_destroy(e->w);
        free(e);
    }
}

/* ---- getters ------------------------------------------------------------ */

enum step_event_type step_event_type(const struct step_event *e)
{
    return e->type;
}

const char *step_event_name(const struct step_event *e)
{
    return e->w != NULL                 ? wire_event_name(e->w)
           : e->type == STEP_EVENT_DONE ? "done"
                                        : "error";
}

uint64_t step_event_request(const struct step_event *e)
{
    return e->id;
}

void *step_event_userdata(const struct step_event *e)
{
    return e->userdata;
}

int step_event_code(const struct step_event *e)
{
    return e->code;
}

/* The value at a path of an event without a frame. */
static bool own_value(const struct step_event *e, const char *path,
                      struct wire_value *v)
{
    bool error = e->type == STEP_EVENT_ERROR;
    const char *s = NULL;

    *v = (struct wire_value){.type = WIRE_V_STR};
    if (strcmp(path, "id") == 0) {
        *v = (struct wire_value){.type = WIRE_V_UINT, .u = e->id};
        return true;
    }
    if (strcmp(path, "event") == 0) {
        s = error ? "error" : "done";
    } else if (error && strcmp(path, "code") == 0) {
        s = step_code_name(e->code);
    } else if (error && strcmp(path, "message") == 0) {
        s = e->message;
    } else if (!error && strcmp(path, "finish_reason") == 0) {
        s = "cancelled";
    }
    if (s != NULL) {
        v->s = (struct wire_str){.p = s, .n = strlen(s)};
    }
    return s != NULL;
}

/* The value at a path that is neither missing nor nil. */
static int get(const struct step_event *e, const char *path,
               struct wire_value *v)
{
    bool found =
        e->w != NULL ? wire_event_get(e->w, path, v) : own_value(e, path, v);

    return found && v->type != WIRE_V_NIL ? 0 : STEP_E_NOT_FOUND;
}

int step_event_get_str(const struct step_event *e, const char *path,
                       const char **ret, size_t *ret_n)
{
    struct wire_value v;
    int err = get(e, path, &v);

    if (err == 0 && v.type != WIRE_V_STR && v.type != WIRE_V_BIN) {
        err = STEP_E_INVALID;
    }
    if (err == 0) {
        *ret = v.s.p;
        *ret_n = v.s.n;
    }
    return err;
}

int step_event_get_int(const struct step_event *e, const char *path,
                       int64_t *ret)
{
    struct wire_value v;
    int err = get(e, path, &v);

    if (err != 0) {
        return err;
    }
    if (v.type == WIRE_V_INT) {
        *ret = v.i;
    } else if (v.type == WIRE_V_UINT && v.u <= INT64_MAX) {
        *ret = (int64_t)v.u;
    } else {
        err = STEP_E_INVALID;
    }
    return err;
}

int step_event_get_uint(const struct step_event *e, const char *path,
                        uint64_t *ret)
{
    struct wire_value v;
    int err = get(e, path, &v);

    if (err == 0 && v.type != WIRE_V_UINT) {
        err = STEP_E_INVALID;
    }
    if (err == 0) {
        *ret = v.u;
    }
    return err;
}

int step_event_get_real(const struct step_event *e, const char *path,
                        double *ret)
{
    struct wire_value v;
    int err = get(e, path, &v);

    if (err != 0) {
        return err;
    }
    if (v.type == WIRE_V_REAL) {
        *ret = v.r;
    } else if (v.type == WIRE_V_UINT) {
        *ret = (double)v.u;
    } else if (v.type == WIRE_V_INT) {
        *ret = (double)v.i;
    } else {
        err = STEP_E_INVALID;
    }
    return err;
}

int step_event_get_bool(const struct step_event *e, const char *path, bool *ret)
{
    struct wire_value v;
    int err = get(e, path, &v);

    if (err == 0 && v.type != WIRE_V_BOOL) {
        err = STEP_E_INVALID;
    }
    if (err == 0) {
        *ret = v.b;
    }
    return err;
}

int step_event_get_count(const struct step_event *e, const char *path,
                         size_t *ret)
{
    struct wire_value v;
    int err = get(e, path, &v);

    if (err == 0 && v.type != WIRE_V_LIST && v.type != WIRE_V_MAP) {
        err = STEP_E_INVALID;
    }
    if (err == 0) {
        *ret = v.n;
    }
    return err;
}

const char *step_event_text(const struct step_event *e, size_t *ret_n)
{
    const char *text = NULL;
    size_t n = 0;

    if (e->type == STEP_EVENT_DELTA || e->type == STEP_EVENT_PART) {
        (void)step_event_get_str(e, "text", &text, &n);
    }
    *ret_n = n;
    return text;
}

/* An own event as a frame's body, so that JSON is made in one place. */
static int as_frame(const struct step_event *e, struct wire_event **ret)
{
    struct wire_buf b;
    struct wire_error err;
    struct wire_done done = {.finish_reason = "cancelled"};

    wire_buf_init(&b, WIRE_MAX_FRAME_HELLO);
    if (e->type == STEP_EVENT_ERROR) {
        struct wire_map m;
        wire_map_begin_event(&m, &b, e->id, "error");
        wire_map_str(&m, "code", step_code_name(e->code));
        wire_map_str(&m, "message", e->message);
        wire_map_end(&m);
    } else {
        wire_put_done(&b, e->id, &done);
    }
    int code = b.err;
    if (code == 0) {
        code = wire_decode_event(b.p + WIRE_HEADER_SIZE, b.n - WIRE_HEADER_SIZE,
                                 ret, &err);
    }
    wire_buf_finish(&b);
    return code;
}

int step_event_get_json(const struct step_event *e, const char *path,
                        char **ret)
{
    struct wire_event *made = NULL;
    struct wire_buf b;
    int err = 0;

    if (e->w == NULL && as_frame(e, &made) != 0) {
        return STEP_E_NO_MEMORY;
    }
    wire_buf_init(&b, SIZE_MAX / 2);
    err = wire_event_json(e->w != NULL ? e->w : made, path, &b);
    wire_buf_put(&b, "", 1);
    if (err == 0) {
        err = b.err;
    }
    wire_event_destroy(made);
    if (err != 0) {
        wire_buf_finish(&b);
        return err == -ENOENT ? STEP_E_NOT_FOUND : STEP_E_NO_MEMORY;
    }
    *ret = (char *)b.p;
    return 0;
}
