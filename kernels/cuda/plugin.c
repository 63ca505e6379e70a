/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What stepd-cuda.so exports: one symbol.
 */

#include "kernels/plugin.h"

#include "kernels/cuda/gpu.h"

extern const struct kern_plugin kern_plugin;

__attribute__((visibility("default"))) const struct kern_plugin kern_plugin = {
    .abi = KERN_PLUGIN_ABI,
    .op_bytes = sizeof(struct kern_ops),
    .ops = &kern_cuda_ops,
};
