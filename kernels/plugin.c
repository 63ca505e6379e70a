/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Loads a backend from a shared object. Every way in which that can fail is a
 * sentence for the log, and none of them ends the program: with backend = auto
 * the CPU goes on.
 */

#include "kernels/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef KERN_PLUGIN_DIR
#define KERN_PLUGIN_DIR "/usr/local/lib/stepd"
#endif

static int open_plugin(const char *name, const struct kern_open_args *a,
                       struct kern **ret)
{
    char why[512] = "";
    const struct kern_ops *ops = kern_plugin_load(name, NULL, why, sizeof(why));
    struct kern_open_args mine = *a;
    int r = -ENODEV;

    if (ops != NULL) {
        mine.why = why;
        mine.why_n = sizeof(why);
        r = kern_open(ops, &mine, ret);
    }
    if (r < 0 && a->why != NULL) {
        snprintf(a->why, a->why_n, "%s: %s", name,
                 why[0] != '\0' ? why : strerror(-r));
    }
    return r;
}

int kern_open_named(const char *name, const struct kern_open_args *a,
                    struct kern **ret)
{
    bool any = strcmp(name, "auto") == 0;
    const struct kern_ops *ops = any ? NULL : kern_find(name);
    int r;

    if (ops != NULL) {
        return kern_open(ops, a, ret);
    }
    r = open_plugin(any ? "cuda" : name, a, ret);
    if (r < 0 && any) { /* why keeps what kept CUDA from it */
        struct kern_open_args mine = *a;

        mine.why = NULL;
        r = kern_open(kern_find("cpu"), &mine, ret);
        if (r < 0 && a->why != NULL && a->why_n > 0) {
            a->why[0] = '\0'; /* it is the CPU that cannot */
        }
    }
    return r;
}

const struct kern_ops *kern_plugin_load(const char *name, const char *dir,
                                        char *why, size_t why_n)
{
    char path[1024];
    void *so;
    const struct kern_plugin *p;

    if (dir == NULL) {
        dir = secure_getenv("STEPD_PLUGIN_DIR");
    }
    if ((size_t)snprintf(path, sizeof(path), "%s/stepd-%s.so",
                         dir != NULL ? dir : KERN_PLUGIN_DIR,
                         name) >= sizeof(path)) {
        snprintf(why, why_n, "the path of the plugin is too long");
        return NULL;
    }
    if (access(path, R_OK) != 0) {
        snprintf(why, why_n, "%s: %s", path,
                 errno == ENOENT ? "not installed" : strerror(errno));
        return NULL;
    }
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        snprintf(why, why_n, "%s", dlerror());
        return NULL;
    }
    p = dlsym(so, KERN_PLUGIN_SYMBOL);
    if (p == NULL) {
        snprintf(why, why_n, "%s is no plugin: it lacks %s", path,
                 KERN_PLUGIN_SYMBOL);
    } else if (p->abi != KERN_PLUGIN_ABI ||
               p->op_bytes != sizeof(struct kern_ops)) {
        snprintf(why, why_n,
                 "%s was built for another stepd: interface %u with tables of "
                 "%u bytes, not %u with %zu",
                 path, p->abi, p->op_bytes, KERN_PLUGIN_ABI,
                 sizeof(struct kern_ops));
        p = NULL;
    }
    if (p == NULL) {
        dlclose(so);
        return NULL;
    }
    return p->ops;
}
