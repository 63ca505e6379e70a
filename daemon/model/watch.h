/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_WATCH_H
#define STEPD_DAEMON_MODEL_WATCH_H

/*
 * Which addresses are which shard, for the handler of SIGBUS: reading a mapped
 * page that the file no longer has, or that the disk cannot deliver, ends the
 * process, and then it must be known which file it was.
 */

#include <stddef.h>

/* The oldest WATCH_MAX mappings are known by name; any thread. */
#define WATCH_MAX 1024
#define WATCH_NAME 96

void watch_add(const void *at, size_t bytes, const char *name);
void watch_remove(const void *at);

#endif
