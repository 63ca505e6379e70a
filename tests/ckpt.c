/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Damage to checkpoints, for tests. A shard is read into a list of tensors with
 * their bytes, changed, and laid out anew.
 */
#include "tests/ckpt.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <jansson.h>

#include "tests/test.h"

#define INDEX "model.safetensors.index.json"

struct tensor {
    char *name;
    char *dtype;
    json_t *shape;
    unsigned char *data;
    size_t n;
};

struct shard {
    int n;
    struct tensor tensor[4096];
};

const char *ckpt_path(const char *dir, const char *name)
{
    static char ring[8][512];
    static unsigned at;
    char *path = ring[at++ % 8];

    assert_true(snprintf(path, sizeof(ring[0]), "%s/%s", dir, name) <
                (int)sizeof(ring[0]));
    return path;
}

static unsigned char *read_all(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    unsigned char *p;

    if (f == NULL) {
        fail_msg("%s cannot be opened", path);
    }
    assert_int_equal(fstat(fileno(f), &st), 0);
    p = malloc((size_t)st.st_size + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)st.st_size, f), st.st_size);
    p[st.st_size] = '\0';
    fclose(f);
    *ret_n = (size_t)st.st_size;
    return p;
}

static void write_all(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- folders ------------------------------------------------------------- */

static char *new_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = malloc(256);

    assert_non_null(dir);
    snprintf(dir, 256, "%s/stepd-test-ckpt-XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    return dir;
}

char *ckpt_synth(const struct synth *s)
{
    char *dir = new_dir();

    assert_int_equal(synth_write(s, dir), 0);
    return dir;
}

static bool is_shard(const char *name)
{
    return strncmp(name, "model-", 6) == 0 &&
           strstr(name, ".safetensors") != NULL;
}

char *ckpt_copy(const char *from)
{
    char *dir = new_dir();
    DIR *d = opendir(from);
    struct dirent *e;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, "config.json") == 0 ||
            strcmp(e->d_name, INDEX) == 0 || is_shard(e->d_name)) {
            size_t n;
            unsigned char *p = read_all(ckpt_path(from, e->d_name), &n);

            write_all(ckpt_path(dir, e->d_name), p, n);
            free(p);
        }
    }
    closedir(d);
    return dir;
}

void ckpt_remove(char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.') {
            unlink(ckpt_path(dir, e->d_name));
        }
    }
    closedir(d);
    assert_int_equal(rmdir(dir), 0);
    free(dir);
}

char *ckpt_state_folder(const char *dir)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s-state", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

/* ---- shards -------------------------------------------------------------- */

static struct shard *load(const char *dir, const char *name)
{
    size_t n;
    unsigned char *file = read_all(ckpt_path(dir, name), &n);
    struct shard *s = calloc(1, sizeof(*s));
    uint64_t n_header;
    json_t *top, *v;
    const char *key;

    assert_non_null(s);
    memcpy(&n_header, file, 8);
    top = json_loadb((char *)file + 8, n_header, 0, NULL);
    assert_non_null(top);
    json_object_foreach(top, key, v)
    {
        struct tensor *t = &s->tensor[s->n];
        json_t *off = json_object_get(v, "data_offsets");
        size_t begin = (size_t)json_integer_value(json_array_get(off, 0));

        if (strcmp(key, "__metadata__") == 0) {
            continue;
        }
        assert_in_range(++s->n, 1, 4095);
        t->name = strdup(key);
        t->dtype = strdup(json_string_value(json_object_get(v, "dtype")));
        t->shape = json_incref(json_object_get(v, "shape"));
        t->n = (size_t)json_integer_value(json_array_get(off, 1)) - begin;
        t->data = malloc(t->n + 1);
        assert_non_null(t->data);
        memcpy(t->data, file + 8 + n_header + begin, t->n);
    }
    json_decref(top);
    free(file);
    return s;
}

static void free_tensor(struct tensor *t)
{
    free(t->name);
    free(t->dtype);
    json_decref(t->shape);
    free(t->data);
}

/* Writes the shard, with n_pad spaces more than it needs, and frees it. */
static void save(const char *dir, const char *name, struct shard *s,
                 size_t n_pad)
{
    FILE *f = fopen(ckpt_path(dir, name), "wb");
    json_t *top = json_object();
    uint64_t at = 0, n;
    char *text;

    assert_non_null(f);
    for (int i = 0; i < s->n; i++) {
        struct tensor *t = &s->tensor[i];

        json_object_set_new(top, t->name,
                            json_pack("{s:s s:O s:[II]}", "dtype", t->dtype,
                                      "shape", t->shape, "data_offsets",
                                      (json_int_t)at, (json_int_t)(at + t->n)));
        at += t->n;
    }
    text = json_dumps(top, JSON_COMPACT);
    assert_non_null(text);
    n = (strlen(text) + 7) / 8 * 8 + n_pad;
    assert_int_equal(fwrite(&n, 8, 1, f), 1);
    assert_int_equal(fprintf(f, "%-*s", (int)n, text), n);
    for (int i = 0; i < s->n; i++) {
        assert_int_equal(fwrite(s->tensor[i].data, 1, s->tensor[i].n, f),
                         s->tensor[i].n);
        free_tensor(&s->tensor[i]);
    }
    assert_int_equal(fclose(f), 0);
    json_decref(top);
    free(text);
    free(s);
}

static int find(const struct shard *s, const char *tensor)
{
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->tensor[i].name, tensor) == 0) {
            return i;
        }
    }
    return -1;
}

const char *ckpt_shard_of(const char *dir, const char *tensor)
{
    static char found[256];
    DIR *d = opendir(dir);
    struct dirent *e;

    assert_non_null(d);
    found[0] = '\0';
    while (found[0] == '\0' && (e = readdir(d)) != NULL) {
        if (is_shard(e->d_name)) {
            struct shard *s = load(dir, e->d_name);

            if (find(s, tensor) >= 0) {
                snprintf(found, sizeof(found), "%s", e->d_name);
            }
            for (int i = 0; i < s->n; i++) {
                free_tensor(&s->tensor[i]);
            }
            free(s);
        }
    }
    closedir(d);
    if (found[0] == '\0') {
        fail_msg("no shard holds %s", tensor);
    }
    return found;
}

/* Opens the shard of a tensor; its name goes to name. */
static struct tensor *open_tensor(const char *dir, const char *tensor,
                                  struct shard **ret, char name[256])
{
    snprintf(name, 256, "%s", ckpt_shard_of(dir, tensor));
    *ret = load(dir, name);
    return &(*ret)->tensor[find(*ret, tensor)];
}

void ckpt_drop(const char *dir, const char *tensor)
{
    struct shard *s;
    char name[256];
    struct tensor *t = open_tensor(dir, tensor, &s, name);

    free_tensor(t);
    memmove(t, t + 1, (size_t)(&s->tensor[s->n] - (t + 1)) * sizeof(*t));
    s->n--;
    save(dir, name, s, 0);
}

void ckpt_rename(const char *dir, const char *tensor, const char *to)
{
    struct shard *s;
    char name[256];
    struct tensor *t = open_tensor(dir, tensor, &s, name);

    free(t->name);
    t->name = strdup(to);
    save(dir, name, s, 0);
}

void ckpt_retype(const char *dir, const char *tensor, const char *dtype)
{
    struct shard *s;
    char name[256];
    struct tensor *t = open_tensor(dir, tensor, &s, name);

    free(t->dtype);
    t->dtype = strdup(dtype);
    save(dir, name, s, 0);
}

void ckpt_reshape(const char *dir, const char *tensor, const char *shape)
{
    struct shard *s;
    char name[256];
    struct tensor *t = open_tensor(dir, tensor, &s, name);

    json_decref(t->shape);
    t->shape = json_loads(shape, 0, NULL);
    assert_non_null(t->shape);
    save(dir, name, s, 0);
}

void ckpt_add(const char *dir, const char *shard, const char *tensor,
              const char *dtype, const char *shape, size_t n, int fill)
{
    struct shard *s = access(ckpt_path(dir, shard), F_OK) == 0
                          ? load(dir, shard)
                          : calloc(1, sizeof(*s));
    struct tensor *t = &s->tensor[s->n++];

    assert_in_range(s->n, 1, 4095);
    t->name = strdup(tensor);
    t->dtype = strdup(dtype);
    t->shape = json_loads(shape, 0, NULL);
    assert_non_null(t->shape);
    t->n = n;
    t->data = malloc(n + 1);
    assert_non_null(t->data);
    memset(t->data, fill, n);
    save(dir, shard, s, 0);
}

void ckpt_move(const char *dir, const char *tensor, const char *shard)
{
    struct shard *s, *to = load(dir, shard);
    char name[256];
    struct tensor *t = open_tensor(dir, tensor, &s, name);

    assert_string_not_equal(name, shard);
    to->tensor[to->n++] = *t;
    memmove(t, t + 1, (size_t)(&s->tensor[s->n] - (t + 1)) * sizeof(*t));
    s->n--;
    save(dir, name, s, 0);
    save(dir, shard, to, 0);
}

void ckpt_poke_many(const char *dir, const char *tensor, size_t at, size_t step,
                    const unsigned char *bytes, size_t n)
{
    struct shard *s;
    char name[256];
    struct tensor *t = open_tensor(dir, tensor, &s, name);

    for (size_t i = 0; i < n; i++) {
        assert_true(at + i * step < t->n);
        t->data[at + i * step] = bytes[i];
    }
    save(dir, name, s, 0);
}

void ckpt_poke(const char *dir, const char *tensor, size_t at, int byte)
{
    const unsigned char b = (unsigned char)byte;

    ckpt_poke_many(dir, tensor, at, 1, &b, 1);
}

void ckpt_pad(const char *dir, const char *shard, size_t n)
{
    save(dir, shard, load(dir, shard), n);
}

/* ---- JSON files ---------------------------------------------------------- */

void ckpt_index(const char *dir, const char *tensor, const char *file)
{
    const char *path = ckpt_path(dir, INDEX);
    json_t *top = json_load_file(path, 0, NULL);
    json_t *map = json_object_get(top, "weight_map");

    assert_non_null(map);
    if (file == NULL) {
        assert_int_equal(json_object_del(map, tensor), 0);
    } else {
        json_object_set_new(map, tensor, json_string(file));
    }
    assert_int_equal(json_dump_file(top, path, 0), 0);
    json_decref(top);
}

void ckpt_config(const char *dir, const char *path, const char *value)
{
    const char *file = ckpt_path(dir, "config.json");
    json_t *top = json_load_file(file, 0, NULL), *at = top, *v;
    char key[128];
    const char *dot;

    assert_non_null(top);
    while ((dot = strchr(path, '.')) != NULL) {
        snprintf(key, sizeof(key), "%.*s", (int)(dot - path), path);
        at = json_object_get(at, key);
        assert_non_null(at);
        path = dot + 1;
    }
    if (value == NULL) {
        assert_int_equal(json_object_del(at, path), 0);
    } else {
        v = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        json_object_set_new(at, path, v);
    }
    assert_int_equal(json_dump_file(top, file, 0), 0);
    json_decref(top);
}
