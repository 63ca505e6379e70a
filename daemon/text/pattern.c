/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A regular expression is parsed to a tree (pattern_parse.c) and the tree is
 * laid into the grammar: here. Without a length limit a counted repetition is
 * one edge, whatever its count. With one, every node exists once for each
 * number of characters read, which is how an intersection with a length is
 * written; that is only done where the pattern's own lengths do not keep the
 * limit anyway.
 */
#include "daemon/text/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/pattern_priv.h"

/* A set of which the vocabulary may have many whole tokens. */
#define MANY_CHARS 20

void pattern_chars(struct gram *g, const struct charset *c,
                   enum charset_form form, uint32_t from, uint32_t min,
                   uint32_t max, uint32_t to)
{
    uint32_t rule, end;

    if (min == 1 && max == 1) {
        charset_edges(c, g, form, from, to);
        return;
    }
    rule = gram_rule(g);
    end = gram_node(g);
    gram_final(g, end);
    if (g->err == 0) {
        charset_edges(c, g, form, g->rule[rule].start, end);
        g->rule[rule].is_chars = charset_count(c) >= MANY_CHARS;
    }
    gram_repeat(g, from, rule, min, max, to);
}

/* ---- without a length limit ---------------------------------------------- */

static void put(const struct tree *t, int at, struct gram *g,
                enum charset_form form, uint32_t from, uint32_t to);

/* Something that can be empty is written out: a repetition must move on. */
static void put_copies(const struct tree *t, const struct branch *b,
                       struct gram *g, enum charset_form form, uint32_t from,
                       uint32_t to)
{
    uint32_t n = b->max == GRAM_NO_MAX ? b->min : b->max;
    uint32_t loop;

    for (uint32_t i = 0; i < n && g->err == 0; i++) {
        uint32_t next = gram_node(g);

        if (i >= b->min) {
            gram_eps(g, from, to);
        }
        put(t, b->left, g, form, from, next);
        from = next;
    }
    if (b->max == GRAM_NO_MAX) {
        loop = gram_node(g);
        gram_eps(g, from, loop);
        put(t, b->left, g, form, loop, loop);
        from = loop;
    }
    gram_eps(g, from, to);
}

static void put_repeat(const struct tree *t, const struct branch *b,
                       struct gram *g, enum charset_form form, uint32_t from,
                       uint32_t to)
{
    const struct branch *body = &t->branch[b->left];
    uint32_t rule, end;

    if (body->kind == BRANCH_SET) {
        pattern_chars(g, &t->set[body->left], form, from, b->min, b->max, to);
        return;
    }
    if (body->shortest == 0 || (b->min == 0 && b->max == 1)) {
        put_copies(t, b, g, form, from, to);
        return;
    }
    rule = gram_rule(g);
    end = gram_node(g);
    gram_final(g, end);
    if (g->err == 0) {
        put(t, b->left, g, form, g->rule[rule].start, end);
    }
    gram_repeat(g, from, rule, b->min, b->max, to);
}

static void put(const struct tree *t, int at, struct gram *g,
                enum charset_form form, uint32_t from, uint32_t to)
{
    const struct branch *b = &t->branch[at];
    uint32_t mid;

    if (g->err != 0) {
        return;
    }
    switch (b->kind) {
    case BRANCH_EMPTY:
        gram_eps(g, from, to);
        break;
    case BRANCH_SET:
        charset_edges(&t->set[b->left], g, form, from, to);
        break;
    case BRANCH_CAT:
        mid = gram_node(g);
        put(t, b->left, g, form, from, mid);
        put(t, b->right, g, form, mid, to);
        break;
    case BRANCH_ALT:
        put(t, b->left, g, form, from, to);
        put(t, b->right, g, form, from, to);
        break;
    case BRANCH_REPEAT:
        put_repeat(t, b, g, form, from, to);
        break;
    }
}

/* ---- with one ------------------------------------------------------------ */

struct layers {
    const struct tree *t;
    struct gram *g;
    enum charset_form form;
    uint32_t n;      /* characters that there may be */
    uint32_t budget; /* nodes left */
};

/* A node for each count, all in a row. */
static uint32_t layer_nodes(struct layers *l)
{
    uint32_t first = gram_node(l->g);

    for (uint32_t i = 0; i < l->n; i++) {
        (void)gram_node(l->g);
    }
    if (l->budget < l->n + 1) {
        if (l->g->err == 0) {
            l->g->err = -E2BIG;
        }
    } else {
        l->budget -= l->n + 1;
    }
    return first;
}

static void layer_eps(struct layers *l, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i <= l->n; i++) {
        gram_eps(l->g, from + i, to + i);
    }
}

static void layer(struct layers *l, int at, uint32_t from, uint32_t to);

static void layer_repeat(struct layers *l, const struct branch *b,
                         uint32_t from, uint32_t to)
{
    uint32_t n = b->max == GRAM_NO_MAX ? b->min : b->max;

    for (uint32_t i = 0; i < n && l->g->err == 0; i++) {
        uint32_t next = layer_nodes(l);

        if (i >= b->min) {
            layer_eps(l, from, to);
        }
        layer(l, b->left, from, next);
        from = next;
    }
    if (b->max == GRAM_NO_MAX) {
        uint32_t loop = layer_nodes(l);

        layer_eps(l, from, loop);
        layer(l, b->left, loop, loop);
        from = loop;
    }
    layer_eps(l, from, to);
}

static void layer(struct layers *l, int at, uint32_t from, uint32_t to)
{
    const struct branch *b = &l->t->branch[at];
    uint32_t mid;

    if (l->g->err != 0) {
        return;
    }
    switch (b->kind) {
    case BRANCH_EMPTY:
        layer_eps(l, from, to);
        break;
    case BRANCH_SET:
        for (uint32_t i = 0; i < l->n; i++) {
            charset_edges(&l->t->set[b->left], l->g, l->form, from + i,
                          to + i + 1);
        }
        break;
    case BRANCH_CAT:
        mid = layer_nodes(l);
        layer(l, b->left, from, mid);
        layer(l, b->right, mid, to);
        break;
    case BRANCH_ALT:
        layer(l, b->left, from, to);
        layer(l, b->right, from, to);
        break;
    case BRANCH_REPEAT:
        layer_repeat(l, b, from, to);
        break;
    }
}

static int build_layers(const struct pattern_args *a, const struct tree *t,
                        struct gram *g, uint32_t from, uint32_t to,
                        const struct why *why)
{
    uint32_t longest = t->branch[t->root].longest;
    struct layers l = {
        .t = t,
        .g = g,
        .form = a->form,
        .n = a->max_chars < longest ? a->max_chars : longest,
        .budget = PATTERN_MAX_LAYERS,
    };
    uint32_t first, last;

    if (l.n == GRAM_NO_MAX) {
        /* Only a lower limit: counted as far as it goes. */
        return why_set(why, -EINVAL,
                       "minLength together with a pattern without an end is "
                       "not supported: add maxLength");
    }
    if (l.n >= PATTERN_MAX_LAYERS) {
        g->err = -E2BIG;
    }
    if (g->err != 0) {
        return g->err;
    }
    first = layer_nodes(&l);
    last = layer_nodes(&l);
    gram_eps(g, from, first);
    layer(&l, t->root, first, last);
    for (uint32_t i = a->min_chars; i <= l.n && g->err == 0; i++) {
        gram_eps(g, last + i, to);
    }
    return g->err;
}

int pattern_build(const struct pattern_args *a, struct gram *g, uint32_t from,
                  uint32_t to, const struct why *why)
{
    struct tree t = {0};
    int r = g->err != 0 ? g->err : pattern_parse(&t, a, why);

    if (r == 0) {
        const struct branch *b = &t.branch[t.root];

        if (b->shortest >= a->min_chars && b->longest <= a->max_chars) {
            put(&t, t.root, g, a->form, from, to);
            r = g->err;
        } else {
            r = build_layers(a, &t, g, from, to, why);
        }
        if (r == -E2BIG) {
            why_set(why, r, "the pattern is too large%s",
                    b->longest > a->max_chars ? " with this maxLength" : "");
        }
    }
    pattern_tree_finish(&t);
    return r;
}
