/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_CALLGRAM_H
#define STEPD_DAEMON_TEXT_CALLGRAM_H

/*
 * tool_choice required, or a named tool, as a grammar: the format of
 * model-spec 7.2 with the names of the tools, their parameters in the order of
 * the schema, required ones present, values that coerce to what the schema
 * says. Of strings only enum is looked at, and the text null stays what
 * model-spec 7.2 makes of it. Text that fits it is parsed to calls and nothing
 * else.
 */

#include <stdbool.h>
#include <stddef.h>

#include "daemon/text/gram.h"
#include "daemon/text/why.h"

#define CALLGRAM_MAX_CALLS 16 /* of one answer */

struct callgram_args {
    const char *tools; /* JSON list */
    size_t n_tools;
    const char *name; /* one call of this tool; NULL: one or more of any */
    size_t n_name;
    bool reasoning; /* the answer starts inside reasoning */
};

/* -EINVAL: why names the tool and what of it is not supported; -E2BIG (why);
 * -ENOMEM. */
int callgram_compile(struct gram **ret, const struct callgram_args *a,
                     const struct why *why);

#endif
