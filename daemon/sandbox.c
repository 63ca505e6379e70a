/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Why a checkpoint cannot be seen from inside of the unit. The unit hides
 * /home, /root, /run/user, /tmp and /var/tmp (ProtectHome=, PrivateTmp=), and a
 * download folder of the Hugging Face cache is full of links
 * (snapshots/X/file -> ../../blobs/Y): "no such file" about a file that the
 * operator sees with his own eyes.
 *
 * Owns nothing. I/O thread, after a load has failed. The invariant: says
 * something only where a path really is missing here.
 */

#include "daemon/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const hidden[] = {"/home/", "/root/", "/run/user/", "/tmp/",
                                     "/var/tmp/"};

static bool is_hidden(const char *path)
{
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        if (strncmp(path, hidden[i], strlen(hidden[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The folder to open: of a Hugging Face cache all of the model's, for the
 * snapshot's files are links into the blobs beside it. */
static void folder_of(const char *path, char *to, size_t n)
{
    const char *at = strstr(path, "/snapshots/");

    if (at == NULL) {
        at = strstr(path, "/blobs/");
    }
    (void)snprintf(to, n, "%.*s",
                   at != NULL ? (int)(at - path) : (int)strlen(path), path);
}

static void put_hint(const char *missing, const char *link, const char *model,
                     char hint[SANDBOX_HINT])
{
    char open_it[1024];
    bool in_unit = getenv("INVOCATION_ID") != NULL;

    folder_of(missing, open_it, sizeof(open_it));
    if (in_unit && is_hidden(missing)) {
        (void)snprintf(hint, SANDBOX_HINT,
                       "%.1000s cannot be seen in the unit's sandbox%s%.1000s: "
                       "add BindReadOnlyPaths=%s to [Service] (systemctl edit)",
                       missing, link[0] != '\0' ? ", the target of " : "", link,
                       open_it);
    } else {
        (void)snprintf(hint, SANDBOX_HINT,
                       "%.1000s is not there%s%.1000s (model = %.500s)",
                       missing, link[0] != '\0' ? ", the target of " : "", link,
                       model);
    }
}

/* Where a link points, as an absolute path without "..". */
static void target_of(const char *folder, const char *link, char *to, size_t n)
{
    char text[PATH_MAX], *at;
    ssize_t k = readlink(link, text, sizeof(text) - 1);

    text[k > 0 ? k : 0] = '\0';
    (void)snprintf(to, n, "%s", text[0] == '/' ? "" : folder);
    for (char *word = strtok_r(text, "/", &at); word != NULL;
         word = strtok_r(NULL, "/", &at)) {
        size_t len = strlen(to);

        if (strcmp(word, "..") == 0) {
            char *slash = strrchr(to, '/');
            *(slash != NULL ? slash : to) = '\0';
        } else if (strcmp(word, ".") != 0) {
            (void)snprintf(to + len, n - len, "/%s", word);
        }
    }
}

static bool dangling_hint(const char *model, char hint[SANDBOX_HINT])
{
    char link[PATH_MAX], to[PATH_MAX];
    DIR *d = opendir(model);
    struct dirent *e;
    struct stat st;
    bool found = false;

    while (d != NULL && !found && (e = readdir(d)) != NULL) {
        (void)snprintf(link, sizeof(link), "%.3000s/%s", model, e->d_name);
        if (lstat(link, &st) == 0 && S_ISLNK(st.st_mode) &&
            access(link, R_OK) < 0) {
            target_of(model, link, to, sizeof(to));
            put_hint(to, link, model, hint);
            found = true;
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found;
}

bool sandbox_hint(const char *model, char hint[SANDBOX_HINT])
{
    if (access(model, R_OK | X_OK) < 0) {
        if (errno == EACCES && getenv("INVOCATION_ID") == NULL) {
            return false; /* a mode, and the cause says so */
        }
        put_hint(model, "", model, hint);
        return true;
    }
    return dangling_hint(model, hint);
}
