/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The streaming detokeniser. It knows bytes, not tokens: where a token ends
 * means nothing, so nothing is ever decoded twice and nothing depends on how
 * the bytes arrive. The invariant: held is the beginning of a valid character
 * and not a whole one. Pure.
 */
#include "daemon/text/detok.h"

#include <string.h>

#include "daemon/text/utf8.h"

static const char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */

#define N_REPLACEMENT (sizeof(REPLACEMENT) - 1)

void detok_init(struct detok *d)
{
    memset(d, 0, sizeof(*d));
}

size_t detok_flush(struct detok *d, char *out)
{
    size_t n = 0;

    for (int i = 0; i < d->n_held; i++) {
        memcpy(out + n, REPLACEMENT, N_REPLACEMENT);
        n += N_REPLACEMENT;
    }
    d->n_held = 0;
    return n;
}

/* One byte that is not the start of a whole character in sight. */
static size_t feed_byte(struct detok *d, uint8_t b, char *out)
{
    size_t n = 0;

    if (d->n_held > 0) {
        if (utf8_follows(d->held[0], d->n_held, b)) {
            d->held[d->n_held++] = b;
            if (d->n_held == utf8_length(d->held[0])) {
                n = (size_t)d->n_held;
                memcpy(out, d->held, n);
                d->n_held = 0;
            }
            return n;
        }
        n = detok_flush(d, out);
    }
    switch (utf8_length(b)) {
    case 0:
        memcpy(out + n, REPLACEMENT, N_REPLACEMENT);
        return n + N_REPLACEMENT;
    case 1:
        out[n] = (char)b;
        return n + 1;
    default:
        d->held[d->n_held++] = b;
        return n;
    }
}

size_t detok_feed(struct detok *d, const void *bytes, size_t n, char *out)
{
    const uint8_t *p = bytes;
    size_t n_out = 0;

    for (size_t i = 0; i < n;) {
        if (d->n_held == 0) {
            size_t valid = utf8_valid(p + i, n - i);

            memcpy(out + n_out, p + i, valid);
            n_out += valid;
            i += valid;
            if (i == n) {
                break;
            }
        }
        n_out += feed_byte(d, p[i++], out + n_out);
    }
    return n_out;
}
