/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Two plugins that must be refused: one of another interface, and, with
 * BAD_PLUGIN_NONE, one that is none.
 */

#include "kernels/plugin.h"

#ifndef BAD_PLUGIN_NONE
extern const struct kern_plugin kern_plugin;
const struct kern_plugin kern_plugin = {.abi = 0xffffffffu};
#else
extern const int something_else;
const int something_else = 1;
#endif
