/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_ADDED_H
#define STEPD_DAEMON_TEXT_ADDED_H

/*
 * Added tokens: literal strings that are looked for in the raw text before
 * anything else, leftmost first, the longest of those that start at a place.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds the work at one place of the text. */
#define ADDED_MAX_BYTES 256

struct added_token {
    char *text; /* n bytes and a NUL */
    size_t n;
    int32_t id;
};

/* Immutable after added_sort. */
struct added {
    struct added_token *tok; /* ordered by text, bytewise */
    int n, cap;
    bool first[256]; /* some token starts with this byte */
};

struct added_match {
    size_t off, n;
    int32_t id;
};

void added_finish(struct added *a); /* zeroed or filled */
/* n is 1..ADDED_MAX_BYTES. 0 or -ENOMEM. */
int added_add(struct added *a, const char *text, size_t n, int32_t id);
/* After the last one. -EEXIST: two have the same text. */
int added_sort(struct added *a);
/* The first token in text[from..to); false: none. */
bool added_find(const struct added *a, const uint8_t *text, size_t from,
                size_t to, struct added_match *ret);
/* Id of the token that is exactly this text, -1: none. */
int32_t added_id(const struct added *a, const char *text, size_t n);

#endif
