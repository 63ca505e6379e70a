/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_BADWORDS_H
#define STEPD_DAEMON_TEXT_BADWORDS_H

/*
 * Texts that must not occur, as a grammar: all bytes go, in any order, but for
 * the last one of such a text. It may end anywhere.
 */

#include <stddef.h>

#include "daemon/text/gram.h"

struct badwords_word {
    const char *p; /* n bytes, not empty */
    size_t n;
};

/* -ENOMEM, -E2BIG. */
int badwords_compile(struct gram **ret, const struct badwords_word *word,
                     int n_words);

#endif
