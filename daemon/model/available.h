/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_AVAILABLE_H
#define STEPD_DAEMON_MODEL_AVAILABLE_H

/*
 * How much memory this process may still take: the least of what the machine
 * has free (page cache that can be dropped counts as free) and of what the
 * control groups above us still allow.
 */

#include <stdint.h>

/* root is "" but in tests, which bring their own /proc and /sys. 0: unknown. */
uint64_t available_memory(const char *root);

#endif
