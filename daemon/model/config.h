/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_CONFIG_H
#define STEPD_DAEMON_MODEL_CONFIG_H

/*
 * config.json -> struct shape, flat (3.5) or nested under text_config (3.7).
 */

#include <stddef.h>

#include <jansson.h>

#include "daemon/model/report.h"
#include "daemon/model/shape.h"

#define CONFIG_MAX_BYTES (16 << 20)

/* Reads text as config.json: every wrong field is one problem in rep. Returns
 * 0 with the shape where there was none, else -EBADMSG. ret_quant, if not NULL,
 * is the quantization_config: a new reference, NULL where there is none. */
int config_parse(const char *text, size_t n, struct report *rep,
                 struct shape *ret, json_t **ret_quant);

#endif
