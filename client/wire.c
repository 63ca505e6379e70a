/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What both ends of the protocol stand on: the output buffer, the frame's
 * header, UTF-8, and the filling of a struct wire_error. The rest of wire.h is
 * in its neighbours: wire_table.c (every op, key, code, event, limit),
 * wire_check.c (is this body well-formed), wire_decode.c and wire_take.c (body
 * to request), wire_put.c (events to frames), wire_describe.c, wire_json.c,
 * wire_event.c (what the library reads and writes).
 *
 * All of it is pure and runs on whatever thread calls it. The invariant: a
 * buffer never holds a part of a frame when a call has returned.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/wire_priv.h"

void wire_buf_init(struct wire_buf *b, size_t max)
{
    *b = (struct wire_buf){.max = max};
}

void wire_buf_finish(struct wire_buf *b)
{
    free(b->p);
    *b = (struct wire_buf){.max = b->max};
}

bool wire_buf_reserve(struct wire_buf *b, size_t n)
{
    if (b->err != 0) {
        return false;
    }
    if (n > b->max - b->n) {
        b->err = -E2BIG;
        return false;
    }
    if (n <= b->cap - b->n) {
        return true;
    }
    size_t cap = b->cap > b->max / 2 ? b->max : b->cap * 2;
    if (cap < 256 && b->max >= 256) {
        cap = 256;
    }
    if (cap < b->n + n) {
        cap = b->n + n;
    }
    uint8_t *grown = realloc(b->p, cap);
    if (grown == NULL) {
        b->err = -ENOMEM;
        return false;
    }
    b->p = grown;
    b->cap = cap;
    return true;
}

void wire_buf_put(struct wire_buf *b, const void *p, size_t n)
{
    if (n > 0 && wire_buf_reserve(b, n)) {
        memcpy(b->p + b->n, p, n);
        b->n += n;
    }
}

void wire_patch_count(struct wire_buf *b, size_t at, uint32_t n)
{
    if (b->err == 0) {
        b->p[at] = (uint8_t)(n >> 24);
        b->p[at + 1] = (uint8_t)(n >> 16);
        b->p[at + 2] = (uint8_t)(n >> 8);
        b->p[at + 3] = (uint8_t)n;
    }
}

static int packer_write(void *data, const char *p, size_t n)
{
    wire_buf_put(data, p, n);
    return 0;
}

void wire_packer_init(msgpack_packer *k, struct wire_buf *b)
{
    msgpack_packer_init(k, b, packer_write);
}

/* Length of the character at s, 0 where it is not valid UTF-8. */
static size_t utf8_char(const unsigned char *s, size_t n)
{
    size_t len;
    uint32_t least, c;

    if (s[0] < 0x80) {
        return 1;
    } else if (s[0] >= 0xc2 && s[0] < 0xe0) {
        len = 2;
        least = 0x80;
        c = s[0] & 0x1f;
    } else if (s[0] >= 0xe0 && s[0] < 0xf0) {
        len = 3;
        least = 0x800;
        c = s[0] & 0x0f;
    } else if (s[0] >= 0xf0 && s[0] < 0xf5) {
        len = 4;
        least = 0x10000;
        c = s[0] & 0x07;
    } else {
        return 0;
    }
    if (len > n) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
        c = c << 6 | (s[i] & 0x3f);
    }
    if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        return 0;
    }
    return len;
}

bool wire_utf8_ok(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;

    for (size_t i = 0; i < n;) {
        /* Most text is ASCII: eight bytes at a time. */
        uint64_t word;
        while (n - i >= sizeof(word)) {
            memcpy(&word, p + i, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) != 0) {
                break;
            }
            i += sizeof(word);
        }
        if (i == n) {
            break;
        }
        size_t len = utf8_char(p + i, n - i);
        if (len == 0) {
            return false;
        }
        i += len;
    }
    return true;
}

size_t wire_utf8_cut(const char *s, size_t n)
{
    size_t back = 0;

    /* A character that is not whole ends in at most three bytes of it. */
    while (back < 3 && back < n) {
        unsigned char c = (unsigned char)s[n - 1 - back];
        back++;
        if (c < 0x80) {
            return n;
        }
        if (c >= 0xc0) {
            size_t len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
            return len > back ? n - back : n;
        }
    }
    return n;
}

int wire_fail(struct wire_error *err, int code, const char *detail,
              size_t n_detail, const char *fmt, ...)
{
    va_list ap;

    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof(err->message), fmt, ap);
    va_end(ap);

    err->detail[0] = '\0';
    if (detail != NULL) {
        if (n_detail >= sizeof(err->detail)) {
            n_detail = wire_utf8_cut(detail, sizeof(err->detail) - 1);
        }
        bool ok = wire_utf8_ok(detail, n_detail);
        for (size_t i = 0; i < n_detail; i++) {
            unsigned char c = (unsigned char)detail[i];
            bool plain = c >= 0x20 && c != 0x7f && (ok || c < 0x80);
            err->detail[i] = plain ? (char)c : '?';
        }
        err->detail[n_detail] = '\0';
    }
    return code;
}

int wire_frame_size(const uint8_t header[WIRE_HEADER_SIZE], uint32_t max,
                    struct wire_error *err)
{
    uint32_t n = (uint32_t)header[0] << 24 | (uint32_t)header[1] << 16 |
                 (uint32_t)header[2] << 8 | header[3];

    if (n == 0) {
        err->id = 0;
        return wire_fail(err, WIRE_E_BAD_FRAME, NULL, 0, "an empty frame");
    }
    if (n > max) {
        err->id = 0;
        return wire_fail(err, WIRE_E_BAD_FRAME, NULL, 0,
                         "a frame of %u bytes; the limit is %u", n, max);
    }
    return (int)n;
}
