/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

/* A fuzz target: returns 0 for any input, or does not return. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An assertion that stays where NDEBUG is set. */
#define FUZZ_CHECK(truth) \
    do {                  \
        if (!(truth)) {   \
            abort();      \
        }                 \
    } while (0)

#endif
