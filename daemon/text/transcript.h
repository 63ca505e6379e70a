/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_TRANSCRIPT_H
#define STEPD_DAEMON_TEXT_TRANSCRIPT_H

/*
 * The messages of a conversation as JSON text: lists put together and answers
 * added, without reading what is in them, so that not a byte of an earlier
 * message ever changes. Pure.
 */

#include <stddef.h>

#include "daemon/text/str.h"

/* out is empty: the entries of list a, then those of list b; both are JSON
 * lists, a may be empty (n 0). An allocation failure is out's. */
void transcript_join(const char *a, size_t n_a, const char *b, size_t n_b,
                     struct str *out);
/* One more of an assistant's calls onto a list without its brackets; arguments
 * is JSON text. */
void transcript_call(const char *id, const char *name, size_t n_name,
                     const char *arguments, size_t n_arguments,
                     struct str *calls);
/* An assistant's message as a list of one; reasoning and calls only where there
 * are any. Texts may hold NUL; a byte that is no part of a character becomes
 * U+FFFD. */
void transcript_answer(const struct str *reasoning, const struct str *content,
                       const struct str *calls, struct str *out);

#endif
