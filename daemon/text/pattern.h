/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_PATTERN_H
#define STEPD_DAEMON_TEXT_PATTERN_H

/*
 * Regular expressions to grammars: the part of ECMA 262 that is regular.
 * Literals, classes, \d \w \s and their opposites, dot, groups, alternation,
 * all quantifiers, ^ and $ at the ends. Look-around, back references, \b, \p
 * and named groups are refused by name. Where dialects differ about a class (\D
 * and \W beyond ASCII) only what all agree on is generated.
 */

#include <stdbool.h>
#include <stddef.h>

#include "daemon/text/charset.h"
#include "daemon/text/gram.h"
#include "daemon/text/why.h"

#define PATTERN_MAX_BYTES 4096
#define PATTERN_MAX_DEPTH 64
#define PATTERN_MAX_REPEAT 100000u
/* Nodes that a pattern together with a length limit may take. */
#define PATTERN_MAX_LAYERS 50000u

struct pattern_args {
    const char *text; /* UTF-8 */
    size_t n;
    bool whole; /* fits from end to end; else ^ and $ say so, as in schemas */
    enum charset_form form;
    uint32_t min_chars, max_chars; /* of the whole; 0, GRAM_NO_MAX */
};

/* Puts it between two nodes. -EINVAL: why says what is wrong or unsupported;
 * -ENOMEM; -E2BIG. */
int pattern_build(const struct pattern_args *a, struct gram *g, uint32_t from,
                  uint32_t to, const struct why *why);

/* One or more characters of a set, with the vocabulary's slice behind it where
 * the set is large. */
void pattern_chars(struct gram *g, const struct charset *c,
                   enum charset_form form, uint32_t from, uint32_t min,
                   uint32_t max, uint32_t to);

#endif
