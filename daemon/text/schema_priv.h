/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_SCHEMA_PRIV_H
#define STEPD_DAEMON_TEXT_SCHEMA_PRIV_H

/* What the files of the schema compiler share; nobody else's. */

#include <stdbool.h>

#include "daemon/text/schema.h"

/* Types as bits. A number that is no integer has a bit of its own, so that
 * "integer" and "number" meet in integers. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127
};

/* One schema that the value must fit. */
struct part {
    const json_t *schema;
    bool any_done, one_done; /* a choice of it has been made */
};

/* All that one value must fit. */
struct all {
    struct part part[SCHEMA_MAX_PARTS];
    int n;
    int n_resolved; /* of them: their $ref and allOf are among them */
};

/* What plain schemas say together. */
struct shape {
    unsigned types;
    json_t *values; /* of enum and const, a list; NULL: any */
    uint32_t min_length, max_length, min_items, max_items;
    const json_t *pattern; /* string */
    const char *format;
    bool has_lo, has_hi;
    int64_t lo, hi;       /* of integers; and of numbers, see fraction_limits */
    bool fraction_limits; /* a limit lies between two integers */
};

struct entry; /* a rule and what it is of */

struct schema {
    const json_t *root;
    struct jsongram *j;
    const struct why *why;
    int err;
    struct entry *entry; /* [n] */
    uint32_t n, cap, done;
    uint32_t *slot; /* hash heads: index + 1 */
    const char *path;
    int n_choices; /* left */
};

/* -EINVAL with the path in front; err sticks. */
int schema_refuse(struct schema *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A local reference; NULL: refused. */
const json_t *schema_find(struct schema *s, const char *ref);
/* The rule of a conjunction; path: of the new one, where it is new. */
uint32_t schema_rule_of(struct schema *s, const struct all *a,
                        const char *path);

/* schema_shape.c: what plain parts say together, without their inside. */
int schema_shape(struct schema *s, const struct all *a, struct shape *ret);
void schema_shape_finish(struct shape *x);
/* Refuses unless at most one of the choices can fit. */
int schema_one_of(struct schema *s, const json_t *choices);

/* schema_inside.c: the edges of one type, between two nodes. */
void schema_object(struct schema *s, const struct all *a, uint32_t from,
                   uint32_t to);
void schema_array(struct schema *s, const struct all *a, const struct shape *x,
                  uint32_t from, uint32_t to);
void schema_string(struct schema *s, const struct shape *x, uint32_t from,
                   uint32_t to);
void schema_number(struct schema *s, const struct shape *x, uint32_t from,
                   uint32_t to);

#endif
