/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The files of a checkpoint folder: config.json, the index, which shards there
 * are. Opens them and reads their headers; what the tensors mean is
 * checkpoint.c's work. One thread.
 *
 * What matters: names come from a file that anybody may have written, so a
 * shard is a plain name in this folder. Links are followed: the Hugging Face
 * cache is made of them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/lfs.h"
#include "daemon/model/config.h"
#include "daemon/model/json.h"
#include "daemon/model/opening.h"

/* Reads a file of the folder, at most max bytes. -errno; -EFBIG. */
static int read_file(int dir, const char *name, size_t max, char **ret,
                     size_t *ret_n)
{
    struct st_file f = {
        .fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat st;
    char *text = NULL;
    int r = 0;

    if (f.fd < 0) {
        return -errno;
    }
    if (fstat(f.fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        r = -EINVAL;
    } else if ((uint64_t)st.st_size > max) {
        r = -EFBIG;
    } else {
        text = malloc((size_t)st.st_size + 1);
        r = text == NULL ? -ENOMEM : st_read(&f, 0, text, (size_t)st.st_size);
    }
    close(f.fd);
    if (r < 0) {
        free(text);
        return r;
    }
    *ret = text;
    *ret_n = (size_t)st.st_size;
    return 0;
}

int folder_open(struct opening *o)
{
    const char *path = o->ck->conf.path;
    int r;

    o->ck->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->ck->dir < 0) {
        r = -errno;
        report_problem(&o->rep, REPORT_FOLDER, "%s: %s", path, strerror(-r));
        return r;
    }
    r = read_file(o->ck->dir, "config.json", CONFIG_MAX_BYTES, &o->config,
                  &o->n_config);
    if (r < 0) {
        report_problem(&o->rep, REPORT_FOLDER, "%s/config.json: %s", path,
                       strerror(-r));
        return r;
    }
    return config_parse(o->config, o->n_config, &o->rep, &o->ck->shape,
                        &o->ck->quant);
}

static int add_name(struct opening *o, const char *name)
{
    char **grown;

    for (int i = o->n_names - 1; i >= 0; i--) {
        if (strcmp(o->name[i], name) == 0) {
            return 0;
        }
    }
    if (o->n_names == CHECKPOINT_MAX_FILES) {
        report_problem(&o->rep, REPORT_FOLDER,
                       "%s: expected at most %d shards, found more",
                       o->ck->conf.path, CHECKPOINT_MAX_FILES);
        return -EBADMSG;
    }
    grown = realloc(o->name, (size_t)(o->n_names + 1) * sizeof(*grown));
    if (grown == NULL) {
        return -ENOMEM;
    }
    o->name = grown;
    grown[o->n_names] = strdup(name);
    return grown[o->n_names] == NULL ? -ENOMEM : (o->n_names++, 0);
}

/* The index, where there is one: its weight_map. */
static int read_index(struct opening *o)
{
    struct checkpoint *ck = o->ck;
    json_error_t error;
    char *text;
    size_t n;
    int r =
        read_file(ck->dir, CHECKPOINT_INDEX, CHECKPOINT_MAX_INDEX, &text, &n);

    if (r == -ENOENT) {
        return 0;
    }
    if (r == -ENOMEM) {
        return r;
    }
    if (r < 0) {
        report_problem(&o->rep, REPORT_INDEX, CHECKPOINT_INDEX ": %s",
                       strerror(-r));
        return -EBADMSG;
    }
    if (lfs_is_pointer(text, n)) {
        free(text);
        report_problem(&o->rep, REPORT_INDEX, CHECKPOINT_INDEX ": " LFS_SAID);
        return -EBADMSG;
    }
    r = model_json(text, n, &ck->index, &error);
    free(text);
    if (r == -ENOMEM) {
        return r;
    }
    ck->weight_map = json_object_get(ck->index, "weight_map");
    if (ck->index == NULL) {
        report_problem(&o->rep, REPORT_INDEX,
                       CHECKPOINT_INDEX ": line %d column %d: %s", error.line,
                       error.column, error.text);
        return -EBADMSG;
    }
    if (!json_is_object(ck->weight_map)) {
        report_problem(&o->rep, REPORT_INDEX,
                       CHECKPOINT_INDEX
                       ": weight_map: expected an object, found nothing");
        return -EBADMSG;
    }
    return 0;
}

bool folder_is_shard(const char *name)
{
    size_t n = strlen(name), m = strlen(".safetensors");

    return n > m && name[0] != '.' && strchr(name, '/') == NULL &&
           strcmp(name + n - m, ".safetensors") == 0;
}

static int names_from_index(struct opening *o)
{
    const char *tensor, *last = "";
    json_t *v;

    json_object_foreach((json_t *)o->ck->weight_map, tensor, v)
    {
        const char *file = json_string_value(v);
        int r;

        if (file == NULL || !folder_is_shard(file)) {
            report_problem(&o->rep, REPORT_INDEX,
                           CHECKPOINT_INDEX
                           ": %s: expected the name of a shard, found \"%s\"",
                           tensor, file != NULL ? file : "");
            continue;
        }
        r = strcmp(file, last) == 0 ? 0 : add_name(o, file);
        if (r < 0) {
            return r;
        }
        last = file;
    }
    return 0;
}

/* The folder's own list: all shards where there is no index; where there is
 * one, those it does not name are said to be left alone. */
static int names_from_folder(struct opening *o)
{
    int fd = openat(o->ck->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int n_listed = o->n_names, n_gguf = 0, r = 0;
    struct dirent *e;

    if (d == NULL) {
        r = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return r;
    }
    while (r == 0 && (e = readdir(d)) != NULL) {
        size_t n = strlen(e->d_name);
        int i = 0;

        n_gguf += n > 5 && strcmp(e->d_name + n - 5, ".gguf") == 0;
        if (!folder_is_shard(e->d_name)) {
            continue;
        }
        while (i < n_listed && strcmp(o->name[i], e->d_name) != 0) {
            i++;
        }
        if (o->ck->weight_map == NULL) {
            r = add_name(o, e->d_name);
        } else if (i == n_listed) {
            report_note(&o->rep, "%s: not in the index, not read", e->d_name);
        }
    }
    closedir(d);
    if (r == 0 && o->n_names == 0) {
        report_problem(&o->rep, REPORT_FOLDER,
                       "%s: expected *.safetensors, found %s", o->ck->conf.path,
                       n_gguf > 0 ? "GGUF files" : "none");
        r = -EBADMSG;
    }
    return r;
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int folder_open_shards(struct opening *o)
{
    struct checkpoint *ck = o->ck;
    int r = read_index(o);

    if (r == 0 && ck->weight_map != NULL) {
        r = names_from_index(o);
    }
    if (r == 0) {
        r = names_from_folder(o);
    }
    if (r < 0) {
        return r;
    }
    qsort(o->name, (size_t)o->n_names, sizeof(*o->name), by_string);
    ck->file = calloc((size_t)o->n_names, sizeof(*ck->file));
    ck->map = calloc((size_t)o->n_names, sizeof(*ck->map));
    if (ck->file == NULL || ck->map == NULL) {
        return -ENOMEM;
    }
    for (; ck->n_files < o->n_names; ck->n_files++) {
        st_open(ck->dir, o->name[ck->n_files], &o->rep, &ck->file[ck->n_files]);
    }
    return o->rep.no_memory ? -ENOMEM : 0;
}
