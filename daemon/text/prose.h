/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_PROSE_H
#define STEPD_DAEMON_TEXT_PROSE_H

/*
 * Text that remembers where it came from: the template's own words and those of
 * a message, as the pieces of chat.h. Sticky error like struct str's.
 */

#include "daemon/text/chat.h"
#include "daemon/text/str.h"

struct prose {
    struct str text;
    struct chat_piece *piece;
    int n_pieces, cap_pieces;
};

void prose_finish(struct prose *p); /* ready for use again, empty */
void prose_add(struct prose *p, const char *text, size_t n, bool from_user);
/* Bytes [from, to) of another prose, with their origin. */
void prose_add_slice(struct prose *p, const struct prose *q, size_t from,
                     size_t to);

/* Words of the template. */
static inline void prose_puts(struct prose *p, const char *text)
{
    prose_add(p, text, strlen(text), false);
}

#endif
