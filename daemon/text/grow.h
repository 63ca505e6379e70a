/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_GROW_H
#define STEPD_DAEMON_TEXT_GROW_H

/* Tool calls while they grow: the part of tools.c that tells what may yet turn
 * out otherwise. Of a call in good form its pieces are the arguments that come
 * whole in the end, byte for byte. */

#include "daemon/text/tools.h"

/* A block opens; what belongs to it stands in held from n_blank on. */
void grow_begin(struct tools *t);
/* Tells what is new. 0, or what the emit returned. */
int grow_run(struct tools *t);
/* The id of a call: a function of the request, so that an answer is one. */
void grow_id(const struct tools *t, int index, char ret[PARSE_ID + 1]);

#endif
