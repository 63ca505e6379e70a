/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_QUANT_H
#define STEPD_DAEMON_MODEL_QUANT_H

/*
 * quantization_config of config.json, as a cross-check: what it says is held
 * against what is there. It decides nothing.
 */

#include <jansson.h>

#include "daemon/model/report.h"
#include "daemon/model/slots.h"

/* config may be NULL. Differences are notes; a method that no dialect has is a
 * problem. */
void quant_check(const json_t *config, const struct slots *s,
                 struct report *rep);

#endif
