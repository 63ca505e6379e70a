/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_REGEX_H
#define STEPD_DAEMON_TEXT_REGEX_H

/*
 * The patterns of tokenizer.json are written for Oniguruma; this turns one
 * into the PCRE2 pattern of the same meaning, or refuses it.
 */

#include <stddef.h>

#include "daemon/text/str.h"
#include "daemon/text/why.h"

/* Appends the translation. -EBADMSG: a construct whose meaning is not known
 * to be the same in both; why names it. -ENOMEM. */
int regex_translate(const char *pattern, size_t n, struct str *out,
                    const struct why *why);

#endif
