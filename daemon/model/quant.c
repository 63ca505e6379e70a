/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Cross-check of quantization_config.
 */
#include "daemon/model/quant.h"

void quant_check(const json_t *config, const struct slots *s,
                 struct report *rep)
{
    (void)config;
    (void)s;
    (void)rep;
}
