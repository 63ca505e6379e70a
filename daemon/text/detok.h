/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_DETOK_H
#define STEPD_DAEMON_TEXT_DETOK_H

/*
 * Bytes of tokens to complete UTF-8 pieces: an incomplete character is held
 * until the rest comes; invalid bytes become one U+FFFD each (each byte, not
 * each run of them: F0 9F 41 is two and an A). Concatenated pieces equal the
 * decoding of the whole, for every cut. Pure; state is the caller's.
 */

#include <stddef.h>
#include <stdint.h>

struct detok {
    uint8_t held[4]; /* the open character; at most 3 */
    int n_held;
};

void detok_init(struct detok *d);
/* Appends what is complete to out (cap bytes; 3 * (n + 4) always suffices);
 * returns the bytes written. out does not overlap bytes. */
size_t detok_feed(struct detok *d, const void *bytes, size_t n, char *out);
/* The end: what is held comes out as U+FFFD (at most 12 bytes). */
size_t detok_flush(struct detok *d, char *out);

#endif
