/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_PYVALUE_H
#define STEPD_DAEMON_TEXT_PYVALUE_H

/*
 * A value that the model wrote as text, read as Python reads it (json.loads,
 * ast.literal_eval, int, float) and written as json.dumps does with
 * ensure_ascii off: ", " and ": ", the order of keys kept, of a key that stands
 * twice the last value in the first place. Integers keep all their digits.
 *
 * What JSON has no word for (infinities, bytes, complex numbers, a set inside
 * of something, a lone surrogate) is refused, and so is nesting beyond
 * PYJSON_MAX_DEPTH. Pure.
 */

#include <stdbool.h>
#include <stddef.h>

#include "daemon/text/str.h"

enum pyvalue_type {
    PYVALUE_NULL,
    PYVALUE_BOOL,
    PYVALUE_INT,
    PYVALUE_FLOAT,
    PYVALUE_STR,
    PYVALUE_LIST, /* of a literal: tuples and a set too */
    PYVALUE_MAP
};

/* Digits that an integer may have, as in Python. */
#define PYVALUE_MAX_DIGITS 4300

/* Each appends JSON text to out. -EINVAL: it is not one such value, and out is
 * as before. An allocation failure is out's. */
int pyvalue_json(const char *text, size_t n, struct str *out);
int pyvalue_literal(const char *text, size_t n, struct str *out,
                    enum pyvalue_type *ret_type, double *ret_number);
int pyvalue_int(const char *text, size_t n, struct str *out);
/* float(): a number, an infinity or NaN. -EINVAL, -ENOMEM. */
int pyvalue_float(const char *text, size_t n, double *ret);
/* A finite number without a fraction as an integer, all digits. */
void pyvalue_put_whole(double x, struct str *out);

/* Members of an object or arguments of a call, in order. */
struct pyvalue_pair {
    size_t key, n_key;     /* JSON text in the same str */
    size_t value, n_value; /* likewise */
    bool gone;             /* a later one has its key */
};
/* Marks all but the first of each key as gone and gives the first the value of
 * the last. -ENOMEM. */
int pyvalue_unite(struct pyvalue_pair *pair, size_t n, const char *text);

/* Length of the whitespace character (str.isspace) at p, 0 where there is none.
 */
size_t pyvalue_space(const char *p, size_t n);
/* str.strip(): moves both ends. */
void pyvalue_strip(const char **p, size_t *n);

#endif
