/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * ref behind closed doors: every buffer is PROT_NONE except inside an op. A
 * model that looks at device memory from the host between ops dies of it.
 */
#ifndef TESTS_DAEMON_GUARD_H
#define TESTS_DAEMON_GUARD_H

#include "kernels/kernels.h"

extern const struct kern_ops guard_ops;

#endif
