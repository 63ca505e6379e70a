/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_UTF8_H
#define STEPD_DAEMON_TEXT_UTF8_H

/*
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above
 * U+10FFFF. One table of lead bytes, one rule for the second byte.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Length of the character that this byte opens, 0 where it opens none. */
static inline int utf8_length(uint8_t lead)
{
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4) {
        return 0;
    }
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* True where b may be byte i (1..3) of a character that opens with lead. */
static inline bool utf8_follows(uint8_t lead, int i, uint8_t b)
{
    if ((b & 0xc0) != 0x80) {
        return false;
    }
    if (i == 1) {
        switch (lead) {
        case 0xe0:
            return b >= 0xa0;
        case 0xed:
            return b < 0xa0;
        case 0xf0:
            return b >= 0x90;
        case 0xf4:
            return b < 0x90;
        default:
            return true;
        }
    }
    return true;
}

/* Length of the character at p, 0 where there is no whole valid one. */
static inline int utf8_char(const uint8_t *p, size_t n)
{
    int len = n != 0 ? utf8_length(p[0]) : 0;

    if ((size_t)len > n) {
        return 0;
    }
    for (int i = 1; i < len; i++) {
        if (!utf8_follows(p[0], i, p[i])) {
            return 0;
        }
    }
    return len;
}

/* Bytes of plain ASCII at the start of p, a word at a time. */
static inline size_t utf8_ascii(const uint8_t *p, size_t n)
{
    size_t i = 0;
    uint64_t w;

    for (; i + sizeof(w) <= n; i += sizeof(w)) {
        memcpy(&w, p + i, sizeof(w));
        if ((w & UINT64_C(0x8080808080808080)) != 0) {
            break;
        }
    }
    while (i < n && p[i] < 0x80) {
        i++;
    }
    return i;
}

/* Length of the longest prefix of p made of whole valid characters. */
static inline size_t utf8_valid(const uint8_t *p, size_t n)
{
    size_t i = 0;
    int len;

    for (;;) {
        i += utf8_ascii(p + i, n - i);
        len = utf8_char(p + i, n - i);
        if (len == 0) {
            return i;
        }
        i += (size_t)len;
    }
}

#endif
