/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * One Knuth-Morris-Pratt automaton a needle, stepped side by side. Held bytes
 * are never stored: they are the first k bytes of the needle that has got
 * furthest. The cost of a byte does not depend on what was streamed before, and
 * no byte is looked at twice. State of one answer; one thread at a time.
 */
#include "daemon/text/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* fail[k]: the longest proper prefix of the needle that the first k bytes end
 * with. */
static void fill_fail(struct scan_needle *x)
{
    uint32_t k = 0;

    x->fail[0] = x->fail[1] = 0;
    for (uint32_t i = 1; i < x->n; i++) {
        while (k > 0 && x->text[k] != x->text[i]) {
            k = x->fail[k];
        }
        if (x->text[k] == x->text[i]) {
            k++;
        }
        x->fail[i + 1] = k;
    }
}

int scan_init(struct scan *s, int n, const char *const *needle,
              const size_t *len)
{
    memset(s, 0, sizeof(*s));
    if (n < 0 || n > SCAN_MAX_NEEDLES) {
        return -EINVAL;
    }
    for (int i = 0; i < n; i++) {
        if (len[i] == 0 || len[i] > UINT32_MAX / 8) {
            scan_finish(s);
            return -EINVAL;
        }
    }
    for (int i = 0; i < n; i++) {
        struct scan_needle *x = &s->needle[s->n_needles++];

        x->n = (uint32_t)len[i];
        x->text = malloc(x->n);
        x->fail = malloc((x->n + 1) * sizeof(*x->fail));
        if (x->text == NULL || x->fail == NULL) {
            scan_finish(s);
            return -ENOMEM;
        }
        memcpy(x->text, needle[i], x->n);
        fill_fail(x);
        s->first[(uint8_t)x->text[0]] = true;
    }
    s->active = (uint32_t)((UINT64_C(1) << n) - 1);
    return 0;
}

void scan_finish(struct scan *s)
{
    for (int i = 0; i < s->n_needles; i++) {
        free(s->needle[i].text);
        free(s->needle[i].fail);
    }
    memset(s, 0, sizeof(*s));
}

void scan_restart(struct scan *s, uint32_t active)
{
    s->active = active;
    for (int i = 0; i < s->n_needles; i++) {
        s->needle[i].k = 0;
    }
}

/* The needle that has got furthest, NULL where none has begun. */
static const struct scan_needle *furthest(const struct scan *s)
{
    const struct scan_needle *best = NULL;

    for (int i = 0; i < s->n_needles; i++) {
        const struct scan_needle *x = &s->needle[i];

        if (x->k > (best != NULL ? best->k : 0)) {
            best = x;
        }
    }
    return best;
}

const char *scan_held(const struct scan *s, size_t *ret_n)
{
    const struct scan_needle *x = furthest(s);

    *ret_n = x != NULL ? x->k : 0;
    return x != NULL ? x->text : "";
}

/* Takes a byte; the longest needle that ends with it, or -1. *ret_any: some
 * needle has begun. */
static int step(struct scan *s, char c, bool *ret_any)
{
    int found = -1;

    *ret_any = false;
    for (int i = 0; i < s->n_needles; i++) {
        struct scan_needle *x = &s->needle[i];

        if ((s->active >> i & 1) == 0) {
            continue;
        }
        s->steps++;
        while (x->k > 0 && x->text[x->k] != c) {
            x->k = x->fail[x->k];
            s->steps++;
        }
        if (x->text[x->k] == c) {
            x->k++;
            *ret_any = true;
        }
        if (x->k == x->n && (found < 0 || x->n > s->needle[found].n)) {
            found = i;
        }
    }
    return found;
}

/* Of the bytes held before this feed and the n taken from text, all but the
 * last `keep` go out. */
static int emit_all_but(size_t keep, const char *held, size_t n_held,
                        const char *text, size_t n, scan_emit emit, void *ctx)
{
    size_t n_out = n_held + n - keep;
    size_t n_first = n_out < n_held ? n_out : n_held;
    int r = n_first != 0 ? emit(ctx, held, n_first) : 0;

    if (r != 0 || n_out == n_first) {
        return r;
    }
    return emit(ctx, text, n_out - n_first);
}

int scan_feed(struct scan *s, const char *text, size_t n, scan_emit emit,
              void *ctx, size_t *ret_used, int *ret_found)
{
    size_t n_held, keep;
    const char *held = scan_held(s, &n_held);
    bool any = n_held != 0;
    int found = -1;
    size_t i = 0;

    while (i < n && found < 0) {
        if (!any) {
            while (i < n && !s->first[(uint8_t)text[i]]) {
                i++;
            }
            if (i == n) {
                break;
            }
        }
        found = step(s, text[i++], &any);
    }
    *ret_used = i;
    *ret_found = found;
    if (found >= 0) {
        keep = s->needle[found].n;
        scan_restart(s, s->active);
    } else {
        scan_held(s, &keep);
    }
    return emit_all_but(keep, held, n_held, text, i, emit, ctx);
}
