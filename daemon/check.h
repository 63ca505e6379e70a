/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_CHECK_H
#define STEPD_DAEMON_CHECK_H

struct model_conf;

/* stepd --check: the memory plan and every problem of the checkpoint on stdout;
 * loads no weights. Returns the status that a start would end with, 0 for one
 * that would serve. */
int check_run(const struct model_conf *c);

#endif
