/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_STR_H
#define STEPD_DAEMON_TEXT_STR_H

/*
 * A growing run of bytes with a sticky error: append as often as you like,
 * look at err once at the end. After an error appending does nothing.
 */

#include <stddef.h>
#include <string.h>

struct str {
    char *p; /* not terminated; NULL while empty */
    size_t n, cap;
    int err; /* 0 or -ENOMEM */
};

void str_finish(struct str *s); /* ready for use again, empty */
void str_add(struct str *s, const void *p, size_t n);

static inline void str_puts(struct str *s, const char *text)
{
    str_add(s, text, strlen(text));
}

static inline void str_putc(struct str *s, char c)
{
    str_add(s, &c, 1);
}

#endif
