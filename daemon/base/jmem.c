/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Owns the count of a thread's refused allocations. Any thread.
 */
#include "daemon/base/jmem.h"

#include <stdlib.h>

static _Thread_local unsigned n_refused;

void *jmem_alloc(size_t n)
{
    void *p = malloc(n);

    if (p == NULL) {
        n_refused++;
    }
    return p;
}

unsigned jmem_refused(void)
{
    return n_refused;
}
