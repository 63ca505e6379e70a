/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_PATTERN_PRIV_H
#define STEPD_DAEMON_TEXT_PATTERN_PRIV_H

/* What pattern.c and pattern_parse.c share; nobody else's. */

#include "daemon/text/pattern.h"

enum branch_kind {
    BRANCH_EMPTY,
    BRANCH_SET, /* left: the set */
    BRANCH_CAT,
    BRANCH_ALT,
    BRANCH_REPEAT /* of left */
};

struct branch {
    enum branch_kind kind;
    int left, right;
    uint32_t min, max;
    uint32_t shortest, longest; /* characters; GRAM_NO_MAX: no end */
};

struct tree {
    struct branch *branch;
    int n, cap;
    struct charset *set;
    int n_sets, cap_sets;
    int root;
};

/* -EINVAL, -ENOMEM, -E2BIG; the tree is to be finished in any case. */
int pattern_parse(struct tree *t, const struct pattern_args *a,
                  const struct why *why);
void pattern_tree_finish(struct tree *t);

#endif
