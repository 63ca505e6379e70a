/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The added tokens as one ordered list. A place of the text is looked at only
 * where its byte opens some token (in practice '<'); then the list is narrowed
 * byte by byte, which finds the longest match within ADDED_MAX_BYTES steps.
 * Built once at load, then read by any thread.
 */
#include "daemon/text/added.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void added_finish(struct added *a)
{
    for (int i = 0; i < a->n; i++) {
        free(a->tok[i].text);
    }
    free(a->tok);
    memset(a, 0, sizeof(*a));
}

int added_add(struct added *a, const char *text, size_t n, int32_t id)
{
    struct added_token *t;

    if (a->n == a->cap) {
        int cap = a->cap != 0 ? 2 * a->cap : 64;
        struct added_token *tok = realloc(a->tok, (size_t)cap * sizeof(*tok));

        if (tok == NULL) {
            return -ENOMEM;
        }
        a->tok = tok;
        a->cap = cap;
    }
    t = &a->tok[a->n];
    t->text = malloc(n + 1);
    if (t->text == NULL) {
        return -ENOMEM;
    }
    memcpy(t->text, text, n);
    t->text[n] = '\0';
    t->n = n;
    t->id = id;
    a->n++;
    a->first[(uint8_t)text[0]] = true;
    return 0;
}

static int compare(const void *va, const void *vb)
{
    const struct added_token *a = va, *b = vb;
    size_t n = a->n < b->n ? a->n : b->n;
    int c = memcmp(a->text, b->text, n);

    return c != 0 ? c : (a->n > b->n) - (a->n < b->n);
}

int added_sort(struct added *a)
{
    if (a->n == 0) {
        return 0;
    }
    qsort(a->tok, (size_t)a->n, sizeof(*a->tok), compare);
    for (int i = 1; i < a->n; i++) {
        if (compare(&a->tok[i - 1], &a->tok[i]) == 0) {
            return -EEXIST;
        }
    }
    return 0;
}

/* First token of [lo, hi), which agree on the first k bytes, whose byte k is at
 * least b. Tokens that end there come before all others. */
static int lower(const struct added *a, int lo, int hi, size_t k, int b)
{
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        const struct added_token *t = &a->tok[mid];

        if (t->n <= k || (uint8_t)t->text[k] < b) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* The longest token at text[0..n), or NULL. */
static const struct added_token *longest(const struct added *a,
                                         const uint8_t *text, size_t n)
{
    const struct added_token *best = NULL;
    int lo = 0, hi = a->n;

    for (size_t k = 0; k < n && lo < hi; k++) {
        hi = lower(a, lo, hi, k, text[k] + 1);
        lo = lower(a, lo, hi, k, text[k]);
        if (lo < hi && a->tok[lo].n == k + 1) {
            best = &a->tok[lo];
        }
    }
    return best;
}

bool added_find(const struct added *a, const uint8_t *text, size_t from,
                size_t to, struct added_match *ret)
{
    const struct added_token *t;

    for (size_t i = from; i < to; i++) {
        if (!a->first[text[i]]) {
            continue;
        }
        t = longest(a, text + i, to - i);
        if (t != NULL) {
            ret->off = i;
            ret->n = t->n;
            ret->id = t->id;
            return true;
        }
    }
    return false;
}

int32_t added_id(const struct added *a, const char *text, size_t n)
{
    const struct added_token *t = longest(a, (const uint8_t *)text, n);

    return t != NULL && t->n == n ? t->id : -1;
}
