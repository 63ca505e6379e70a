/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_LFS_H
#define STEPD_DAEMON_BASE_LFS_H

/*
 * What a checkout without Git LFS leaves in place of a large file: a few lines
 * of text, whatever the file's name says. Shards, their index and
 * tokenizer.json are published that way.
 */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LFS_SAID "a Git LFS pointer, not the file itself: run git lfs pull"

static inline bool lfs_is_pointer(const char *text, size_t n)
{
    static const char sign[] = "version https://git-lfs.github.com/spec/";

    return n >= sizeof(sign) - 1 && memcmp(text, sign, sizeof(sign) - 1) == 0;
}

#endif
