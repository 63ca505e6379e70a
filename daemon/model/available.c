/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Reads how much memory is free: /proc/meminfo, else sysinfo, and memory.max of
 * every control group from ours to the root (version 2; version 1 where only
 * that is mounted). Pure but for the files it reads; any thread.
 *
 * What matters: page cache is not memory in use. The shards that a previous run
 * read are in it, and a start that counted them twice would refuse itself.
 */
#include "daemon/model/available.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#define NO_LIMIT UINT64_MAX
#define PATH_BYTES 4096

/* "key  number" in a file of such lines; false where there is none. */
static bool find_number(const char *path, const char *key, uint64_t *ret)
{
    FILE *f = fopen(path, "re");
    size_t n = strlen(key);
    char line[256];
    bool found = false;

    if (f == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, key, n) == 0 &&
            (line[n] == ' ' || line[n] == ':' || line[n] == '\t')) {
            found = sscanf(line + n + 1, "%" SCNu64, ret) == 1;
        }
    }
    fclose(f);
    return found;
}

/* A file with one number; "max" is NO_LIMIT. */
static bool read_number(const char *path, uint64_t *ret)
{
    FILE *f = fopen(path, "re");
    char line[64] = "";
    bool ok = f != NULL && fgets(line, sizeof(line), f) != NULL;

    if (f != NULL) {
        fclose(f);
    }
    if (ok && strncmp(line, "max", 3) == 0) {
        *ret = NO_LIMIT;
        return true;
    }
    return ok && sscanf(line, "%" SCNu64, ret) == 1;
}

static uint64_t machine(const char *root)
{
    char path[PATH_BYTES];
    struct sysinfo info;
    uint64_t kib;

    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (find_number(path, "MemAvailable", &kib)) {
        return kib * 1024;
    }
    if (sysinfo(&info) == 0) {
        return ((uint64_t)info.freeram + info.bufferram) * info.mem_unit;
    }
    return 0;
}

/* What one group leaves. Version 1 calls its files otherwise. */
static uint64_t group_room(const char *dir, bool v1)
{
    char path[PATH_BYTES + 64];
    uint64_t max, used = 0, active = 0, inactive = 0;

    snprintf(path, sizeof(path), "%s/memory.%s", dir,
             v1 ? "limit_in_bytes" : "max");
    if (!read_number(path, &max) || max >= (uint64_t)1 << 62) {
        return NO_LIMIT;
    }
    snprintf(path, sizeof(path), "%s/memory.%s", dir,
             v1 ? "usage_in_bytes" : "current");
    (void)read_number(path, &used);
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    (void)find_number(path, v1 ? "total_active_file" : "active_file", &active);
    (void)find_number(path, v1 ? "total_inactive_file" : "inactive_file",
                      &inactive);
    used -= active + inactive < used ? active + inactive : used;
    return max > used ? max - used : 0;
}

/* The least over a group and all above it. */
static uint64_t groups_room(const char *mount, char *group, bool v1)
{
    uint64_t room = NO_LIMIT, here;
    char dir[PATH_BYTES];

    for (;;) {
        char *slash = strrchr(group, '/');

        snprintf(dir, sizeof(dir), "%s%s", mount, group);
        here = group_room(dir, v1);
        room = here < room ? here : room;
        if (slash == NULL || group[0] == '\0') {
            return room;
        }
        *slash = '\0';
    }
}

/* Our group, from a line "0::/a/b" or "7:memory:/a/b". */
static uint64_t control_groups(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES], mount[PATH_BYTES];
    uint64_t room = NO_LIMIT;
    FILE *f;

    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        bool v1;
        uint64_t here;

        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        v1 = strcmp(names + 1, "memory") == 0;
        if (!v1 && names[1] != '\0') {
            continue;
        }
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root,
                 v1 ? "/memory" : "");
        here = groups_room(mount, group, v1);
        room = here < room ? here : room;
    }
    if (f != NULL) {
        fclose(f);
    }
    return room;
}

uint64_t available_memory(const char *root)
{
    uint64_t free = machine(root), room = control_groups(root);

    return room < free ? room : free;
}
