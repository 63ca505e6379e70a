/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CUEMU_CUEMU_READS_H
#define TESTS_CUEMU_CUEMU_READS_H

/*
 * How often kernels read each byte of device memory, as the race build sees it:
 * for tests, which take cuemu_reads_take from the plugin by name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuemu_reads {
    uint64_t bytes;       /* read, each as often as it was */
    unsigned least, most; /* reads of one byte */
};

/* Of the n bytes at p, which are counted from 0 again afterwards; false where
 * the build sees no accesses. */
typedef bool cuemu_reads_fn(const void *p, size_t n, struct cuemu_reads *ret);

#endif
