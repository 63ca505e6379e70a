/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Why a checkpoint cannot be seen from inside of the unit. The unit hides
 * /home, /root, /run/user, /tmp and /var/tmp (ProtectHome=, PrivateTmp=), and a
 * download folder of the Hugging Face cache is full of links
 * (snapshots/X/file -> ../../blobs/Y): "no such file" about a file that the
 * operator sees with his own eyes. A link on the way there does the same, and a
 * folder that is closed to the service's user is told from one that is hidden.
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

#define MAX_LINKS 40 /* as the kernel */

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

/* The first folder on the way to path that this user may not enter, else path
 * itself, which he may not read. */
static void put_closed(const char *path, char hint[SANDBOX_HINT])
{
    char part[PATH_MAX];
    size_t n = 0;

    do {
        n += 1 + strcspn(path + n + 1, "/");
        (void)snprintf(part, sizeof(part), "%.*s", (int)n, path);
    } while (path[n] != '\0' && access(part, X_OK) == 0);
    (void)snprintf(hint, SANDBOX_HINT,
                   "%.2000s is closed to this service's user: let him in "
                   "(chmod o+rX, or setfacl -m u:%u:rX)",
                   part, (unsigned)geteuid());
}

/* path, absolute and without "..", ".", links, as far as it goes; what comes
 * after that as it was written. */
static void resolve(const char *path, char to[PATH_MAX])
{
    char rest[2 * PATH_MAX], link[PATH_MAX], next[2 * PATH_MAX];
    int n_links = 0;

    (void)snprintf(rest, sizeof(rest), "%.*s", PATH_MAX - 1, path);
    if (path[0] == '/' || getcwd(to, PATH_MAX) == NULL) {
        to[0] = '\0';
    }
    while (rest[strspn(rest, "/")] != '\0') {
        size_t end = strlen(to), skip = strspn(rest, "/");
        size_t len = strcspn(rest + skip, "/");
        const char *word = rest + skip, *tail = word + len;
        ssize_t k = -1;

        if (len == 2 && memcmp(word, "..", 2) == 0) {
            char *slash = strrchr(to, '/');
            *(slash != NULL ? slash : to) = '\0';
        } else if (len != 1 || word[0] != '.') {
            (void)snprintf(to + end, PATH_MAX - end, "/%.*s", (int)len, word);
            k = n_links < MAX_LINKS ? readlink(to, link, sizeof(link) - 1) : -1;
        }
        if (k > 0) {
            n_links++;
            to[link[0] == '/' ? 0 : end] = '\0';
        }
        (void)snprintf(next, sizeof(next), "%.*s%.*s", (int)(k > 0 ? k : 0),
                       link, PATH_MAX - 1, tail);
        memcpy(rest, next, strlen(next) + 1);
    }
}

/* Why path, which could not be opened with this error, could not be. */
static void explain(const char *path, int error, const char *model,
                    char hint[SANDBOX_HINT])
{
    char real[PATH_MAX];

    resolve(path, real);
    if (error == EACCES && !is_hidden(real)) {
        put_closed(real, hint);
    } else {
        put_hint(real, strcmp(real, path) != 0 ? path : "", model, hint);
    }
}

static bool dangling_hint(const char *model, char hint[SANDBOX_HINT])
{
    char link[PATH_MAX];
    DIR *d = opendir(model);
    struct dirent *e;
    struct stat st;
    bool found = false;

    while (d != NULL && !found && (e = readdir(d)) != NULL) {
        (void)snprintf(link, sizeof(link), "%.3000s/%s", model, e->d_name);
        if (lstat(link, &st) == 0 && S_ISLNK(st.st_mode) &&
            access(link, R_OK) < 0) {
            explain(link, errno, model, hint);
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
        explain(model, errno, model, hint);
        return true;
    }
    return dangling_hint(model, hint);
}
