/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_CHARSET_H
#define STEPD_DAEMON_TEXT_CHARSET_H

/*
 * Sets of characters (code points, surrogates excluded), and how they become
 * byte edges of a grammar: as UTF-8, or as a JSON string writes them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/text/gram.h"

#define CHARSET_LAST 0x10ffffu

struct charset_range {
    uint32_t lo, hi;
};

struct charset {
    struct charset_range *range; /* sorted and apart once normalised */
    uint32_t n, cap;
    int err; /* sticks; -ENOMEM */
};

void charset_finish(struct charset *c); /* zeroed or used */
void charset_add(struct charset *c, uint32_t lo, uint32_t hi);
void charset_add_set(struct charset *c, const struct charset *from);
/* Sorts, joins, and takes surrogates out. */
void charset_normalise(struct charset *c);
void charset_invert(struct charset *c); /* normalises first */
/* What both have. */
void charset_keep(struct charset *c, const struct charset *also);
uint32_t charset_count(const struct charset *c);

/* How characters are written. */
enum charset_form {
    CHARSET_UTF8,
    CHARSET_JSON,    /* in a JSON string: ", \ and controls escaped */
    CHARSET_JSON_XML /* the same, and < escaped: inside of a tool call */
};

/* Edges from one node to another for one character of the set. */
void charset_edges(const struct charset *c, struct gram *g,
                   enum charset_form form, uint32_t from, uint32_t to);
/* Appends one character in that form; returns its bytes, at most 6. */
int charset_write(uint32_t ch, enum charset_form form, char ret[6]);

#endif
