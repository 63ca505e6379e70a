/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_CHOICE_H
#define STEPD_DAEMON_TEXT_CHOICE_H

/*
 * What a request says about its tools: whether there are any, and which of them
 * may or must be called. Pure.
 */

#include <stdbool.h>
#include <stddef.h>

enum choice_kind {
    CHOICE_AUTO,
    CHOICE_NONE,
    CHOICE_REQUIRED,
    CHOICE_NAMED /* name */
};

struct choice {
    enum choice_kind kind;
    bool has_tools;
    char *name; /* the caller's to free; NULL unless named */
    size_t n_name;
};

/* Both are JSON text, NULL: absent (auto; none). why: which key is wrong and
 * how. -EINVAL, -ENOMEM. */
int choice_read(const char *choice, size_t n_choice, const char *tools,
                size_t n_tools, struct choice *ret, char *why, size_t n_why);

#endif
