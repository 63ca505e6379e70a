/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_CALL_H
#define STEPD_DAEMON_TEXT_CALL_H

/*
 * A whole block of tool calls to names and arguments (model-spec 7.2, "Inside a
 * block", "Parameters", "Value"). The streaming parser (tools.c) says what a
 * block is. Pure.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/text/str.h"

/* More in one block make it content: no real one has so many. */
#define CALL_MAX 128

struct call {
    char *name;
    size_t n_name;
    char *arguments; /* JSON text, an object */
    size_t n_arguments;
};

struct calls {
    struct call *call;
    int n;
};

/* The calls of a block, of which the tags <tool_call> may be part. 0: there is
 * none, the block is content. -ENOMEM. tools: the request's list. */
int call_parse_block(const json_t *tools, const char *text, size_t n,
                     struct calls *ret);
void calls_finish(struct calls *c); /* zeroed or filled */

/* What stands between <function and >, to the name. False where there is no
 * name. Moves both ends. */
bool call_clean_name(const char **name, size_t *n);
/* One newline each side is not part of a value. */
void call_trim_value(const char **value, size_t *n);

#endif
