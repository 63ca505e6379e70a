/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_PYJSON_H
#define STEPD_DAEMON_TEXT_PYJSON_H

/*
 * JSON values as Python reads and writes them: the published template runs
 * there, and the model was trained on what it wrote.
 */

#include <jansson.h>

#include "daemon/text/str.h"
#include "daemon/text/why.h"

#define PYJSON_MAX_DEPTH 256
#define PYJSON_FLOAT 32 /* room for any float */

/* Parses JSON text, NUL in strings included. what: the path that a refusal
 * names; it never quotes the text, which the parser's own would. flags:
 * jansson's. -EINVAL, -ENOMEM. */
int pyjson_parse(const char *what, const char *text, size_t n, size_t flags,
                 json_t **ret, const struct why *why);
/* How often jansson was refused memory in this thread so far: it does not
 * always say so, and then goes on with less of a text, or of a value. Whoever
 * reads or makes values compares before and after. */
unsigned pyjson_refused(void);
/* json.dumps(v, ensure_ascii=False): ", " and ": ", keys in given order.
 * -EINVAL: deeper than PYJSON_MAX_DEPTH. An allocation failure is out's. */
int pyjson_dump(const json_t *v, struct str *out);
/* str(v) where v is no list or object: True, None, 1.0, strings as they are;
 * lists and objects as pyjson_dump() has them. */
int pyjson_str(const json_t *v, struct str *out);
/* A string in quotes, as json.dumps(ensure_ascii=False) has it. */
void pyjson_string(const char *text, size_t n, struct str *out);
/* repr() of a finite float; buf has PYJSON_FLOAT bytes. */
void pyjson_float(double x, char *buf);

#endif
