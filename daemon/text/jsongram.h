/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_JSONGRAM_H
#define STEPD_DAEMON_TEXT_JSONGRAM_H

/*
 * The pieces of JSON as grammar: what schemas are built from. All text that
 * fits them is JSON that every parser reads: numbers within 64 bits, no lone
 * surrogates, bounded white space.
 */

#include <jansson.h>
#include <stdbool.h>

#include "daemon/text/charset.h"
#include "daemon/text/gram.h"

/* White space, where there may be any: nothing, a space, or a newline and so
 * many spaces or tabs. */
#define JSONGRAM_MAX_INDENT 32
/* Digits of an integer without limits, and of a fraction. */
#define JSONGRAM_MAX_DIGITS 18

struct jsongram {
    struct gram *g;
    enum charset_form form;
    bool has_ws, has_body, has_any, has_indent;
    uint32_t ws, body, any, indent; /* rules, made when first used */
};

void jsongram_init(struct jsongram *j, struct gram *g, enum charset_form form);
/* A rule: one character of a string's body, escapes included. */
uint32_t jsongram_body(struct gram *g, enum charset_form form);

void jsongram_ws(struct jsongram *j, uint32_t from, uint32_t to);
/* A string of so many characters, quotes included. */
void jsongram_string(struct jsongram *j, uint32_t from, uint32_t min,
                     uint32_t max, uint32_t to);
void jsongram_integer(struct jsongram *j, uint32_t from, uint32_t to);
void jsongram_number(struct jsongram *j, uint32_t from, uint32_t to);
/* Any value at all; objects and arrays nest as deep as the stack allows. */
uint32_t jsongram_any(struct jsongram *j);
/* Any object, any array. */
void jsongram_object(struct jsongram *j, uint32_t from, uint32_t to);
void jsongram_array(struct jsongram *j, uint32_t from, uint32_t item,
                    uint32_t min, uint32_t max, uint32_t to);
/* item { "," item }, of one rule, min >= 1: without the brackets. */
void jsongram_list(struct jsongram *j, uint32_t from, uint32_t item,
                   uint32_t min, uint32_t max, uint32_t to);

/* One of a set of texts: a trie, so that it stays deterministic. */
struct jsongram_texts {
    struct jsongram_text {
        char *p;
        size_t n;
    } * text;
    uint32_t n, cap;
    int err; /* sticks */
};
void jsongram_texts_finish(struct jsongram_texts *t);
/* Copies. */
void jsongram_texts_add(struct jsongram_texts *t, const char *p, size_t n);
void jsongram_texts_sort(struct jsongram_texts *t);
/* Sorts; the same text twice counts once. */
void jsongram_texts_put(struct jsongram_texts *t, struct gram *g, uint32_t from,
                        uint32_t to);
/* The text of a JSON value, as these grammars write it. -ENOMEM. */
int jsongram_write(const json_t *v, enum charset_form form, char **ret,
                   size_t *ret_n);

/* Integers from lo to hi, both included; NULL bounds: none on that side. */
void jsongram_range(struct gram *g, uint32_t from, const int64_t *lo,
                    const int64_t *hi, uint32_t to);

#endif
