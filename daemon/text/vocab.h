/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_VOCAB_H
#define STEPD_DAEMON_TEXT_VOCAB_H

/*
 * Token ids and the bytes they stand for, both ways. Ids may have gaps. A token
 * is found by its bytes only where it was added as findable: added tokens and
 * entries that no merge can make are not.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/str.h"

/* Ids index arrays: a file cannot ask for more than this. */
#define VOCAB_MAX_IDS (1 << 24)

struct vocab_entry {
    uint32_t off, n; /* in blob; n bytes and a NUL behind them */
    bool used;
    bool special; /* set by the owner; means nothing here */
};

struct vocab {
    struct str blob;
    struct vocab_entry *entry; /* [cap_ids] */
    int n_ids, cap_ids;        /* highest used id + 1; room */
    int32_t *slot;             /* [mask + 1] ids by hash of bytes, -1 free */
    uint32_t mask;
    int n_findable;
};

/* n: how many tokens to make room for; more may follow. 0 or -ENOMEM. */
int vocab_init(struct vocab *v, int n);
void vocab_finish(struct vocab *v); /* zeroed or initialised */
/* id is in [0, VOCAB_MAX_IDS). -EEXIST: the id, or for a findable token its
 * bytes, are taken; -ENOMEM. */
int vocab_add(struct vocab *v, int32_t id, const void *bytes, size_t n,
              bool findable);
/* Id of a findable token, -1 when there is none. */
int32_t vocab_find(const struct vocab *v, const void *bytes, size_t n);
/* NULL: no such id. Lives as long as no token is added. */
const char *vocab_bytes(const struct vocab *v, int32_t id, size_t *ret_n);

#endif
