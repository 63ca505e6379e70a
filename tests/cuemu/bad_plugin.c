/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Plugins that must be refused: one of another interface; with BAD_PLUGIN_SIZE
 * one whose table alone is of another size; with BAD_PLUGIN_NONE one that is
 * none.
 */

#include "kernels/plugin.h"

#ifdef BAD_PLUGIN_SIZE
extern const struct kern_plugin kern_plugin;
const struct kern_plugin kern_plugin = {.abi = KERN_PLUGIN_ABI, .op_bytes = 12};
#elif !defined(BAD_PLUGIN_NONE)
extern const struct kern_plugin kern_plugin;
const struct kern_plugin kern_plugin = {.abi = 0xffffffffu};
#else
extern const int something_else;
const int something_else = 1;
#endif
