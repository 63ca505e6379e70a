/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CUEMU_FAKE_LT_H
#define TESTS_CUEMU_FAKE_LT_H

#include <stdbool.h>

#include "kernels/cuda/lt.h"

/* What fake_lt.c is to do, and what it did: its symbol fake_lt. */
struct fake_lt {
    size_t version; /* what it says that it is */
    bool no_device; /* it cannot be opened */
    bool nothing;   /* it has nothing for any shape */
    bool fails;     /* products do */
    int products, choices;
    int live; /* handles, descriptors: made and not freed */
};

#endif
