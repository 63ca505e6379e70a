/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_JMEM_H
#define STEPD_DAEMON_BASE_JMEM_H

/*
 * The allocator of the JSON parser, which counts what it was refused: the
 * parser does not always say so, and then blames the text or goes on with less
 * of it. Who reads or makes values compares jmem_refused before and after.
 */

#include <stddef.h>

/* Each file that uses the parser hands this to it, in a constructor. */
void *jmem_alloc(size_t n);
/* How often it returned NULL in this thread. */
unsigned jmem_refused(void);

#endif
