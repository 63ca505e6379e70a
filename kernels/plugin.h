/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_PLUGIN_H
#define STEPD_KERNELS_PLUGIN_H

/*
 * A backend in a shared object of its own, stepd-NAME.so in the folder of
 * plugins, so that the daemon stays a program for CPUs and a broken CUDA cannot
 * keep it from starting. The object exports one symbol, kern_plugin, of the
 * type below. A plugin is never unloaded.
 */

#include "kernels/kernels.h"

/* Counts up with every change of kernels.h that a backend can see. */
#define KERN_PLUGIN_ABI 4u
#define KERN_PLUGIN_SYMBOL "kern_plugin"

struct kern_plugin {
    uint32_t abi;      /* KERN_PLUGIN_ABI, first for ever */
    uint32_t op_bytes; /* sizeof(struct kern_ops) */
    const struct kern_ops *ops;
};

/* The backend of stepd-NAME.so, or NULL with a sentence in why. dir NULL: the
 * folder it is installed in, or $STEPD_PLUGIN_DIR of a program that runs with
 * nobody's privileges but its user's. */
const struct kern_ops *kern_plugin_load(const char *name, const char *dir,
                                        char *why, size_t why_n);

#endif
