/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_CONF_VALUE_H
#define STEPD_DAEMON_BASE_CONF_VALUE_H

/* One value's text into its field of struct conf. For conf.c. */

#include "daemon/base/conf.h"

/* Replaces the field. -EINVAL: not allowed; why may hold more than "not one of
 * the allowed values", and is left alone otherwise. */
int conf_value_set(struct conf *c, const struct conf_key *key, const char *text,
                   char *why, size_t n_why);
bool conf_value_same(const struct conf *a, const struct conf *b,
                     const struct conf_key *key);
/* Exchanges the two fields, and with them what they own. */
void conf_value_swap(struct conf *a, struct conf *b,
                     const struct conf_key *key);
/* Frees what the field owns and zeroes it. */
void conf_value_clear(struct conf *c, const struct conf_key *key);

#endif
