/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_TOKTRIE_H
#define STEPD_DAEMON_TEXT_TOKTRIE_H

/*
 * The bytes of a vocabulary as a trie, its nodes in the order of a walk: a
 * subtree is a run of nodes, and skipping it is one addition. Control tokens
 * are not in it: no text stands for them. Immutable once made.
 */

#include <stdint.h>

#include "daemon/text/tokenizer.h"

/* Bytes of a token; longer ones are left out. */
#define TOKTRIE_MAX_DEPTH 1024

struct toktrie_node {
    uint32_t size : 24; /* nodes of the subtree, this one included */
    uint32_t byte : 8;
    int32_t token; /* -1: none ends here */
};

struct toktrie {
    struct toktrie_node *node; /* no root: its children follow each other */
    uint32_t n;
    uint32_t root[256]; /* the child of the root by byte; n: none */
    int32_t *twin;      /* [n_ids] the next token of the same bytes, -1 */
    int n_ids, n_tokens;
    int depth;
};

/* Of the tokens of t below n_ids; keep (may be NULL) says which. -ENOMEM. */
int toktrie_create(struct toktrie **ret, const struct tokenizer *t, int n_ids,
                   const uint8_t *keep);
void toktrie_destroy(struct toktrie *t); /* NULL is fine */

#endif
