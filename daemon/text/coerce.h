/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_COERCE_H
#define STEPD_DAEMON_TEXT_COERCE_H

/*
 * The text of an argument to a JSON value, by the type that the tool's schema
 * gives it (model-spec 7.2, "Coercion by schema"). Pure.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/text/str.h"

enum coerce_type {
    COERCE_STRING,
    COERCE_INTEGER,
    COERCE_NUMBER,
    COERCE_BOOLEAN,
    COERCE_JSON,   /* object, array */
    COERCE_LITERAL /* any other type, a list of types among them */
};

/* The schema of the parameters of a function, by name: of the first entry of
 * tools (NULL: none) that is one with this name. NULL: nothing is known. */
const json_t *coerce_schema(const json_t *tools, const char *name, size_t n);
/* The type of one parameter; string where the schema (may be NULL) does not
 * know it. */
enum coerce_type coerce_type_of(const json_t *schema, const char *name,
                                size_t n);
bool coerce_knows(const json_t *schema, const char *name, size_t n);
/* Appends the value as JSON text. What does not fit its type stays a string.
 * -EDOM: a number beyond all numbers, of which JSON has no form; nothing is
 * appended. */
int coerce_value(enum coerce_type type, const char *text, size_t n,
                 struct str *out);

#endif
