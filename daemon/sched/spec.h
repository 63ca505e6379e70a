/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_SPEC_H
#define STEPD_DAEMON_SCHED_SPEC_H

/* What the log says of drafting: a line a minute while there is any, and one
 * warning when the model has given its drafter up. Engine thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/model/model.h"

#define SPEC_LOG_US 60000000

struct spec_log {
    uint64_t at_us; /* of the last line, or of the begin */
    struct model_stats last;
    bool warned;
};

void spec_log_init(struct spec_log *l, uint64_t now_us,
                   const struct model_stats *s);
/* The level of the line to be logged now, as syslog; 0: there is none. */
int spec_log_line(struct spec_log *l, uint64_t now_us,
                  const struct model_stats *s, char *line, size_t n);

#endif
