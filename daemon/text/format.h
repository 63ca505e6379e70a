/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_FORMAT_H
#define STEPD_DAEMON_TEXT_FORMAT_H

/*
 * What an answer must look like, as the wire says it, to a grammar:
 *
 *   {"type": "text"}                     anything
 *   {"type": "json_object"}              any JSON object
 *   {"type": "json_schema", "json_schema": {"schema": S, ...}}, or
 *   {"type": "json_schema", "schema": S} a value that fits S
 *   {"type": "regex", "regex": R}        a text that R fits from end to end
 *   {"type": "choice", "choice": [..]}   one of these texts
 */

#include <stdbool.h>
#include <stddef.h>

#include "daemon/text/gram.h"
#include "daemon/text/why.h"

#define FORMAT_MAX_CHOICES 10000

struct format_args {
    const char *text; /* JSON */
    size_t n;
    /* The answer starts inside reasoning: everything goes until </think>, then
     * one newline, which is no part of the content, may come. */
    bool reasoning;
};

/* 0: *ret is the grammar, NULL for "text". -EINVAL: why says what is wrong, or
 * which keyword is not supported; -E2BIG (why); -ENOMEM. */
int format_compile(struct gram **ret, const struct format_args *a,
                   const struct why *why);

/* For calls.c too: the way from `from`, inside reasoning, to the content.
 * call: where a <tool_call> leads that ends reasoning; 0: it may not. */
void format_reasoning(struct gram *g, uint32_t from, uint32_t content,
                      uint32_t call);
/* gram_finish, and its refusals in words. */
int format_finish(struct gram *g, uint32_t root, const struct why *why);

#endif
