/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Text in pieces. The invariant, which chat_tokenize() relies on: pieces cover
 * the text without a gap, neighbours differ in origin, none is empty. So a
 * control token that the template means lies inside one piece, and one that is
 * put together across an edge is never meant. One thread at a time.
 */
#include "daemon/text/prose.h"

#include <errno.h>
#include <stdlib.h>

void prose_finish(struct prose *p)
{
    str_finish(&p->text);
    free(p->piece);
    memset(p, 0, sizeof(*p));
}

static int grow(struct prose *p)
{
    int cap = p->cap_pieces != 0 ? 2 * p->cap_pieces : 16;
    struct chat_piece *piece = realloc(p->piece, (size_t)cap * sizeof(*piece));

    if (piece == NULL) {
        return -ENOMEM;
    }
    p->piece = piece;
    p->cap_pieces = cap;
    return 0;
}

void prose_add(struct prose *p, const char *text, size_t n, bool from_user)
{
    size_t off = p->text.n;
    struct chat_piece *last;

    str_add(&p->text, text, n);
    if (p->text.err != 0 || n == 0) {
        return;
    }
    last = p->n_pieces != 0 ? &p->piece[p->n_pieces - 1] : NULL;
    if (last != NULL && last->from_user == from_user) {
        last->n += n;
        return;
    }
    if (p->n_pieces == p->cap_pieces) {
        p->text.err = grow(p);
        if (p->text.err != 0) {
            return;
        }
    }
    p->piece[p->n_pieces++] =
        (struct chat_piece){.off = off, .n = n, .from_user = from_user};
}

void prose_add_slice(struct prose *p, const struct prose *q, size_t from,
                     size_t to)
{
    for (int i = 0; i < q->n_pieces; i++) {
        const struct chat_piece *x = &q->piece[i];
        size_t a = x->off > from ? x->off : from;
        size_t b = x->off + x->n < to ? x->off + x->n : to;

        if (a < b) {
            prose_add(p, q->text.p + a, b - a, x->from_user);
        }
    }
    if (q->text.err != 0) {
        p->text.err = q->text.err;
    }
}
