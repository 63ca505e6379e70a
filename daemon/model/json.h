/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_JSON_H
#define STEPD_DAEMON_MODEL_JSON_H

/* The JSON of a checkpoint's files: keys are unique. */

#include <jansson.h>
#include <stddef.h>

/* 0 with a reference in ret; -ENOMEM, whatever the text is; -EBADMSG with what
 * is wrong with it in error. ret is NULL then. */
int model_json(const char *text, size_t n, json_t **ret, json_error_t *error);

#endif
