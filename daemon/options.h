/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_OPTIONS_H
#define STEPD_DAEMON_OPTIONS_H

#include <stdbool.h>

#include "daemon/model/model.h"

struct conf;

/* Reads command line and configuration; says everything that is wrong. Returns
 * EX_OK, or the status to end with (then ret is untouched). Ends the program
 * itself for --version, --help (0) and a wrong command line (EX_USAGE). */
int options_read(int argc, char **argv, struct conf *ret, bool *ret_check);
/* What the model is told; points into c. */
struct model_conf options_model(const struct conf *c);

#endif
