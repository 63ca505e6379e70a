/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The automaton of Aho and Corasick with its ends cut off. Nodes are the
 * prefixes of the words; from each, a byte leads to the longest prefix that the
 * bytes so far end with, and where that has a word at its end, nowhere. Pure.
 */
#include "daemon/text/badwords.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct prefix {
    int to[256]; /* 0: the root, where no word begins so */
    int fail;
    bool bad;
    uint32_t node;
};

static int add_words(struct prefix *p, const struct badwords_word *word,
                     int n_words)
{
    int n = 1;

    for (int i = 0; i < n_words; i++) {
        int at = 0;

        for (size_t k = 0; k < word[i].n; k++) {
            int *to = &p[at].to[(uint8_t)word[i].p[k]];

            if (*to == 0) {
                *to = n++;
            }
            at = *to;
        }
        p[at].bad = true;
    }
    return n;
}

/* Shorter prefixes first, so that a fail is whole when it is asked. */
static void complete(struct prefix *p, int n, int *queue)
{
    int head = 0, tail = 0;

    for (int b = 0; b < 256; b++) {
        if (p[0].to[b] != 0) {
            queue[tail++] = p[0].to[b];
        }
    }
    while (head < tail && tail <= n) {
        struct prefix *x = &p[queue[head++]];

        x->bad = x->bad || p[x->fail].bad;
        for (int b = 0; b < 256; b++) {
            int to = x->to[b], other = p[x->fail].to[b];

            if (to == 0) {
                x->to[b] = other;
            } else {
                p[to].fail = other;
                queue[tail++] = to;
            }
        }
    }
}

static void put_node(struct gram *g, const struct prefix *p,
                     const struct prefix *x)
{
    for (int b = 0; b < 256;) {
        int to = x->to[b], first = b;

        while (b < 256 && x->to[b] == to) {
            b++;
        }
        if (!p[to].bad) {
            gram_bytes(g, x->node, (uint8_t)first, (uint8_t)(b - 1),
                       p[to].node);
        }
    }
}

int badwords_compile(struct gram **ret, const struct badwords_word *word,
                     int n_words)
{
    struct gram *g = gram_create();
    struct prefix *p;
    uint32_t root;
    size_t most = 1;
    int *queue, n, r = -ENOMEM;

    for (int i = 0; i < n_words; i++) {
        most += word[i].n;
    }
    p = calloc(most, sizeof(*p));
    queue = calloc(most, sizeof(*queue));
    if (g == NULL || p == NULL || queue == NULL) {
        goto out;
    }
    n = add_words(p, word, n_words);
    complete(p, n, queue);
    root = gram_rule(g);
    for (int i = 0; i < n; i++) {
        p[i].node = i == 0 && g->err == 0 ? g->rule[root].start : gram_node(g);
        gram_final(g, p[i].node);
    }
    for (int i = 0; i < n; i++) {
        if (!p[i].bad) {
            put_node(g, p, &p[i]);
        }
    }
    r = gram_finish(g, root);
out:
    free(p);
    free(queue);
    if (r < 0) {
        gram_destroy(g);
        return r;
    }
    *ret = g;
    return 0;
}
