/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_CLIENT_WIRE_PRIV_H
#define STEPD_CLIENT_WIRE_PRIV_H

/*
 * What the files of the wire code share among themselves. Nobody else includes
 * this: the contract is wire.h.
 */

#include <msgpack.h>

#include "client/wire.h"

/* ---- wire_table.c: the tables that decode, describe and hello are made of */

enum wire_type {
    WIRE_T_INT,      /* int64_t field */
    WIRE_T_UINT,     /* uint64_t field */
    WIRE_T_REAL,     /* double field */
    WIRE_T_BOOL,     /* bool field */
    WIRE_T_STR,      /* struct wire_str field; one of values where given */
    WIRE_T_NAME,     /* likewise: a session, a tenant */
    WIRE_T_BYTES,    /* str or bin; count: a bool, set for bin */
    WIRE_T_MAPS,     /* list of maps, kept as JSON text in a struct wire_str */
    WIRE_T_CHOICE,   /* str or map, likewise */
    WIRE_T_MAP,      /* map, likewise */
    WIRE_T_STR_LIST, /* array of struct wire_str; count: a size_t */
    WIRE_T_INT_LIST, /* int32_t pointer; count: a size_t */
    WIRE_T_BIAS, /* map of str to float: struct wire_bias pointer; likewise */
    WIRE_N_TYPES
};
extern const char *const wire_type_name[WIRE_N_TYPES];

enum {
    WIRE_KEY_LATER = 1, /* known to the protocol, not to this daemon */
    WIRE_KEY_ABOVE = 2, /* rmin itself is not allowed */
    WIRE_KEY_DEFAULT =
        4,             /* absent means def; else the doc says what it means */
    WIRE_KEY_CHAT = 8, /* of generate: only together with messages */
    WIRE_KEY_UNSTORED = 16 /* checked, and not in struct wire_request */
};

struct wire_key_row {
    const char *name;
    uint32_t ops;   /* bit (1 << enum wire_op): taken by */
    uint32_t needs; /* likewise: must be there */
    enum wire_type type;
    unsigned flags;
    size_t offset, count; /* into struct wire_request */
    int64_t imin;
    uint64_t imax;
    double rmin, rmax;
    size_t min_bytes, max_bytes; /* of one string; 0: no limit of its own */
    size_t max_items;            /* of a list; 0: no limit of its own */
    const char *values;          /* "low medium high" */
    /* What the field holds when the key is absent. */
    int64_t def_int;
    double def_real;
    const char *doc;
};
extern const struct wire_key_row wire_keys[WIRE_N_KEYS];

struct wire_op_row {
    const char *name;
    bool later;
    const char *doc;
};
extern const struct wire_op_row wire_ops[WIRE_N_OPS];

struct wire_code_row {
    int code;
    const char *name, *doc;
};
extern const struct wire_code_row wire_codes[];
extern const size_t wire_n_codes;

struct wire_event_row {
    const char *name;
    const char *keys; /* "job queue_position prompt_tokens" */
    const char *doc;
};
extern const struct wire_event_row wire_events[];
extern const size_t wire_n_events;

extern const struct wire_limit wire_limits[];
extern const size_t wire_n_limits;

/* Index of a name, or -1. */
int wire_op_find(const char *s, size_t n);
int wire_key_find(const char *s, size_t n);

/* ---- wire.c ------------------------------------------------------------- */

/* Big-endian u32 at an offset of what was put: counts known at the end. */
void wire_patch_count(struct wire_buf *b, size_t at, uint32_t n);
/* For msgpack_packer: writes to b, always reports success (err sticks to b). */
void wire_packer_init(msgpack_packer *k, struct wire_buf *b);
bool wire_utf8_ok(const char *s, size_t n);
/* n, or less, so that no character of valid UTF-8 is cut. */
size_t wire_utf8_cut(const char *s, size_t n);
/* Fills err; a WIRE_E_ code comes back. The text of detail is made printable
 * and cut to fit. */
int wire_fail(struct wire_error *err, int code, const char *detail,
              size_t n_detail, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- wire_check.c ------------------------------------------------------- */

/* Walks a body once, before msgpack-c sees it, without allocating: sections 1
 * of wire.h except duplicate keys. Sets err->id where it could be read, also
 * on failure. */
int wire_check(const uint8_t *body, size_t n, struct wire_error *err);
/* The same key twice in a map at any depth; the body has passed wire_check. */
int wire_check_duplicates(const msgpack_object *o, struct wire_error *err);

/* ---- wire_take.c -------------------------------------------------------- */

struct wire_decode {
    struct wire_request *r;
    const struct wire_key_row *row; /* of the key that is being taken */
    struct wire_error *err;
};
/* bad_request about the key: its name and the text make the message. */
int wire_refuse(struct wire_decode *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int wire_wrong_type(struct wire_decode *d);
/* An integer within the row's range; the value comes back in both forms. */
int wire_take_integer(struct wire_decode *d, const msgpack_object *o,
                      int64_t *ret_i, uint64_t *ret_u);
/* Any value into its field. */
int wire_take_value(struct wire_decode *d, const msgpack_object *o);
void wire_set_defaults(struct wire_request *r);

/* ---- wire_json.c -------------------------------------------------------- */

/* JSON text of a checked value, order of keys kept. JSON has no bytes: bin is
 * -EINVAL, or with bin_as_list a list of byte values. -EOVERFLOW: more floats
 * of the kind that takes microseconds than allowed. Else b->err. */
int wire_json_text(struct wire_buf *b, const msgpack_object *o,
                   bool bin_as_list, unsigned max_long_floats);

#endif
