/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Conversations as JSON text. Owns nothing. Pure, any thread.
 *
 * What matters: text that was stored comes out byte for byte, so the prompt of
 * the next turn begins as the last one did, whatever a client would have made
 * of the keys' order in between.
 */

#include "daemon/text/transcript.h"

#include <stdio.h>
#include <string.h>

#include "daemon/text/utf8.h"

/* What stands between the brackets. */
static const char *inside(const char *list, size_t *n)
{
    const char *end = list + *n;

    while (*n > 0 && *list != '[') {
        list++;
        (*n)--;
    }
    while (end > list && end[-1] != ']') {
        end--;
    }
    if (end - list < 2) {
        *n = 0;
        return list;
    }
    list++;
    end--;
    while (end > list && strchr(" \n\r\t", end[-1]) != NULL) {
        end--;
    }
    *n = (size_t)(end - list);
    return list;
}

void transcript_join(const char *a, size_t n_a, const char *b, size_t n_b,
                     struct str *out)
{
    a = inside(a, &n_a);
    b = inside(b, &n_b);
    str_putc(out, '[');
    str_add(out, a, n_a);
    if (n_a > 0 && n_b > 0) {
        str_putc(out, ',');
    }
    str_add(out, b, n_b);
    str_putc(out, ']');
}

/* Text of which a client had the exact bytes may be no UTF-8; JSON is, so what
 * is no part of a character becomes U+FFFD, as for everybody else (wire.h). */
static void put_string(struct str *out, const char *s, size_t n)
{
    char esc[8];

    str_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        int len = c < 0x80 ? 1 : utf8_char((const uint8_t *)s + i, n - i);

        if (c == '"' || c == '\\') {
            str_putc(out, '\\');
            str_putc(out, (char)c);
        } else if (c < 0x20) {
            (void)snprintf(esc, sizeof(esc), "\\u%04x", c);
            str_add(out, esc, 6);
        } else if (len == 0) {
            str_puts(out, "\xef\xbf\xbd");
        } else {
            str_add(out, s + i, (size_t)len);
            i += (size_t)len - 1;
        }
    }
    str_putc(out, '"');
}

void transcript_call(const char *id, const char *name, size_t n_name,
                     const char *arguments, size_t n_arguments,
                     struct str *calls)
{
    str_puts(calls, calls->n > 0 ? ",{\"id\":" : "{\"id\":");
    put_string(calls, id, strlen(id));
    str_puts(calls, ",\"type\":\"function\",\"function\":{\"name\":");
    put_string(calls, name, n_name);
    str_puts(calls, ",\"arguments\":");
    if (n_arguments > 0) {
        str_add(calls, arguments, n_arguments);
    } else {
        str_puts(calls, "{}");
    }
    str_puts(calls, "}}");
}

void transcript_answer(const struct str *reasoning, const struct str *content,
                       const struct str *calls, struct str *out)
{
    str_puts(out, "[{\"role\":\"assistant\",");
    if (reasoning->n > 0) {
        str_puts(out, "\"reasoning_content\":");
        put_string(out, reasoning->p, reasoning->n);
        str_putc(out, ',');
    }
    str_puts(out, "\"content\":");
    put_string(out, content->p, content->n);
    if (calls->n > 0) {
        str_puts(out, ",\"tool_calls\":[");
        str_add(out, calls->p, calls->n);
        str_putc(out, ']');
    }
    str_puts(out, "}]");
}
