/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_OPTIONS_H
#define STEPD_DAEMON_OPTIONS_H

#include <stdbool.h>

#include "daemon/base/conf.h"
#include "daemon/model/model.h"

#define OPTIONS_MAX_SETS 64

struct options {
    struct conf conf;
    bool check;
    /* Where the configuration came from, for a reload. */
    struct conf_source source;
    const char *set[OPTIONS_MAX_SETS];
};

/* Reads command line and configuration; says everything that is wrong. Returns
 * EX_OK, or the status to end with: then there is no conf, and cause has the
 * first problem. Ends the program itself for --version, --help (0) and a wrong
 * command line (EX_USAGE). */
int options_read(int argc, char **argv, struct options *ret, char *cause,
                 size_t n_cause);
void options_finish(struct options *o);
/* What the model is told; points into c. */
struct model_conf options_model(const struct conf *c);

#endif
