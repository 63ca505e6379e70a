/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SANDBOX_H
#define STEPD_DAEMON_SANDBOX_H

#include <stdbool.h>

#define SANDBOX_HINT 4096

/* Where the model's folder, or a file that it links to, cannot be seen: true,
 * and the way out in hint. Under systemd that is usually the unit's sandbox,
 * and the way out the line that opens it; a folder that
 * this user may not enter is named. */
bool sandbox_hint(const char *model, char hint[SANDBOX_HINT]);

#endif
