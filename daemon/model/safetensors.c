/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Opens safetensors files and checks their headers. Owns the descriptor and the
 * list of tensors; knows nothing of models. One thread.
 *
 * The invariant that matters: where st_open leaves a file not bad, every
 * tensor's [begin, end) lies inside the file, holds exactly the bytes that its
 * shape and dtype need, and shares none with another. So no reader of a mapping
 * checks a bound again.
 */
#include "daemon/model/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/lfs.h"
#include "daemon/model/json.h"

static const struct {
    const char *name;
    int bits;
} dtypes[ST_N_DTYPES] = {
    [ST_BOOL] = {"BOOL", 8},       [ST_F4] = {"F4", 4},
    [ST_F8_E4M3] = {"F8_E4M3", 8}, [ST_F8_E5M2] = {"F8_E5M2", 8},
    [ST_F8_E8M0] = {"F8_E8M0", 8}, [ST_U8] = {"U8", 8},
    [ST_I8] = {"I8", 8},           [ST_BF16] = {"BF16", 16},
    [ST_F16] = {"F16", 16},        [ST_I16] = {"I16", 16},
    [ST_U16] = {"U16", 16},        [ST_F32] = {"F32", 32},
    [ST_I32] = {"I32", 32},        [ST_U32] = {"U32", 32},
    [ST_F64] = {"F64", 64},        [ST_I64] = {"I64", 64},
    [ST_U64] = {"U64", 64},
};

const char *st_dtype_name(enum st_dtype t)
{
    return dtypes[t].name;
}

int st_dtype_bits(enum st_dtype t)
{
    return dtypes[t].bits;
}

const char *st_shape_text(const uint64_t *dim, int n_dims, char *buf, size_t n)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; i < n_dims && at < n; i++) {
        at += (size_t)snprintf(buf + at, n - at, "%s%" PRIu64, i ? ", " : "[",
                               dim[i]);
    }
    if (at < n) {
        snprintf(buf + at, n - at, n_dims > 0 ? "]" : "[]");
    }
    return buf;
}

__attribute__((format(printf, 4, 5))) static void problem(struct st_file *f,
                                                          struct report *rep,
                                                          enum report_rank rank,
                                                          const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    report_problem(rep, rank, "%s: %s", f->name, text);
    f->bad = true;
}

static void no_memory(struct st_file *f, struct report *rep)
{
    report_no_memory(rep, f->name);
    f->bad = true;
}

int st_read(const struct st_file *f, uint64_t off, void *to, size_t n)
{
    char *at = to;

    while (n > 0) {
        ssize_t r = pread(f->fd, at, n, (off_t)off);

        if (r < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        if (r == 0) {
            return -EBADMSG;
        }
        at += r;
        off += (uint64_t)r;
        n -= (size_t)r;
    }
    return 0;
}

/* ---- the header ---------------------------------------------------------- */

static int dtype_by_name(const char *name)
{
    for (int i = 0; name != NULL && i < ST_N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Bytes of the shape, or false where the product leaves 64 bits or the last
 * byte is not full. */
static bool shape_bytes(const struct st_tensor *t, uint64_t *ret)
{
    uint64_t bits = (uint64_t)dtypes[t->dtype].bits;

    for (int i = 0; i < t->n_dims; i++) {
        if (__builtin_mul_overflow(bits, t->dim[i], &bits)) {
            return false;
        }
    }
    *ret = bits / 8;
    return bits % 8 == 0;
}

static bool parse_shape(const json_t *v, struct st_tensor *t)
{
    const json_t *item;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) > SAFETENSORS_MAX_DIMS) {
        return false;
    }
    t->n_dims = (int)json_array_size(v);
    json_array_foreach(v, i, item)
    {
        if (!json_is_integer(item) || json_integer_value(item) < 0) {
            return false;
        }
        t->dim[i] = (uint64_t)json_integer_value(item);
    }
    return true;
}

static bool parse_offsets(const json_t *v, struct st_tensor *t)
{
    const json_t *begin = json_array_get(v, 0);
    const json_t *end = json_array_get(v, 1);

    if (json_array_size(v) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin)) {
        return false;
    }
    t->begin = (uint64_t)json_integer_value(begin);
    t->end = (uint64_t)json_integer_value(end);
    return true;
}

/* One entry of the header; false: reported. */
static bool parse_tensor(struct st_file *f, const char *name, const json_t *v,
                         struct report *rep, struct st_tensor *t)
{
    const char *type = json_string_value(json_object_get(v, "dtype"));
    int dtype = dtype_by_name(type);
    uint64_t bytes = 0;
    char shape[160];

    if (!json_is_object(v)) {
        problem(f, rep, REPORT_RANGE, "%.200s: expected an object", name);
        return false;
    }
    if (dtype < 0) {
        problem(f, rep, REPORT_RANGE, "%.200s: unknown dtype: found %.40s",
                name, type != NULL ? type : "nothing");
        return false;
    }
    t->dtype = (enum st_dtype)dtype;
    if (!parse_shape(json_object_get(v, "shape"), t)) {
        problem(f, rep, REPORT_RANGE,
                "%.200s: bad shape: expected a list of at most %d sizes", name,
                SAFETENSORS_MAX_DIMS);
        return false;
    }
    if (!parse_offsets(json_object_get(v, "data_offsets"), t)) {
        problem(f, rep, REPORT_RANGE,
                "%.200s: bad data_offsets: expected [begin, end], begin <= end",
                name);
        return false;
    }
    if (!shape_bytes(t, &bytes)) {
        problem(f, rep, REPORT_RANGE,
                "%.200s: shape overflow: %s %s is not a number of bytes", name,
                dtypes[t->dtype].name,
                st_shape_text(t->dim, t->n_dims, shape, sizeof(shape)));
        return false;
    }
    if (bytes != t->end - t->begin) {
        problem(f, rep, REPORT_RANGE,
                "%.200s: wrong length: expected %" PRIu64
                " bytes for %s %s, found %" PRIu64,
                name, bytes, dtypes[t->dtype].name,
                st_shape_text(t->dim, t->n_dims, shape, sizeof(shape)),
                t->end - t->begin);
        return false;
    }
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const struct st_tensor *x = *(struct st_tensor *const *)a;
    const struct st_tensor *y = *(struct st_tensor *const *)b;

    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors must tile the data. data_bytes is what the file has. */
static void check_ranges(struct st_file *f, uint64_t data_bytes,
                         struct report *rep)
{
    struct st_tensor **sorted =
        calloc((size_t)f->n_tensors + 1, sizeof(*sorted));
    const struct st_tensor *last = NULL, *cut = NULL;
    uint64_t pos = 0;
    int n_cut = 0;

    if (sorted == NULL) {
        no_memory(f, rep);
        return;
    }
    for (int i = 0; i < f->n_tensors; i++) {
        sorted[i] = &f->tensor[i];
    }
    qsort(sorted, (size_t)f->n_tensors, sizeof(*sorted), by_begin);
    for (int i = 0; i < f->n_tensors; i++) {
        const struct st_tensor *t = sorted[i];

        if (t->begin < pos && t->end > t->begin) {
            problem(f, rep, REPORT_RANGE,
                    "%.200s: overlaps %.200s by %" PRIu64 " bytes", t->name,
                    last->name, (t->end < pos ? t->end : pos) - t->begin);
        } else if (t->begin > pos) {
            problem(f, rep, REPORT_RANGE,
                    "%.200s: a hole of %" PRIu64
                    " bytes before it: expected begin %" PRIu64
                    ", found %" PRIu64,
                    t->name, t->begin - pos, pos, t->begin);
        }
        if (t->end > data_bytes) {
            cut = cut != NULL ? cut : t;
            n_cut++;
        }
        if (t->end >= pos) {
            pos = t->end;
            last = t;
        }
    }
    if (pos > data_bytes) {
        problem(f, rep, REPORT_FILE,
                "truncated: %" PRIu64 " bytes are missing: expected %" PRIu64
                ", found %" PRIu64 "; %d tensors are cut, the first is %.200s",
                pos - data_bytes, f->data + pos, f->data + data_bytes, n_cut,
                cut->name);
    } else if (pos < data_bytes) {
        problem(f, rep, REPORT_FILE,
                "%" PRIu64 " bytes after the last tensor: expected %" PRIu64
                ", found %" PRIu64,
                data_bytes - pos, f->data + pos, f->data + data_bytes);
    }
    free(sorted);
}

void st_parse(struct st_file *f, const char *json, size_t n,
              uint64_t data_bytes, struct report *rep)
{
    json_error_t error;
    json_t *top = NULL, *v;
    const char *name;
    int r;

    if (n == 0 || json[0] != '{') {
        problem(f, rep, REPORT_FILE,
                "bad header: it does not begin with a brace");
        return;
    }
    r = model_json(json, n, &top, &error);
    if (r == -ENOMEM) {
        no_memory(f, rep);
        return;
    }
    if (r < 0) {
        problem(f, rep, REPORT_FILE, "bad header: %.200s (byte %d)", error.text,
                error.position);
        return;
    }
    f->tensor = calloc(json_object_size(top) + 1, sizeof(*f->tensor));
    if (f->tensor == NULL) {
        no_memory(f, rep);
        goto out;
    }
    f->read = true;
    json_object_foreach(top, name, v)
    {
        struct st_tensor *t = &f->tensor[f->n_tensors];

        if (strcmp(name, "__metadata__") == 0) {
            continue;
        }
        memset(t, 0, sizeof(*t));
        if (parse_tensor(f, name, v, rep, t)) {
            t->name = strdup(name);
            if (t->name == NULL) {
                no_memory(f, rep);
                goto out;
            }
            f->n_tensors++;
        }
    }
    if (!f->bad) { /* a tensor left out would show as a hole */
        check_ranges(f, data_bytes, rep);
    }
    for (int i = 0; i < f->n_tensors; i++) {
        f->tensor[i].begin += f->data;
        f->tensor[i].end += f->data;
    }
out:
    json_decref(top);
}

/* ---- the file ------------------------------------------------------------ */

/* Size, kind and length word; 0 with the header's length where it may be read.
 */
static int check_head(struct st_file *f, struct report *rep, uint64_t *ret_n)
{
    char head[64];
    uint64_t n;
    size_t want = f->size < sizeof(head) ? (size_t)f->size : sizeof(head);
    int r = st_read(f, 0, head, want);

    if (r < 0) {
        problem(f, rep, REPORT_FILE, "cannot be read: %s", strerror(-r));
        return r;
    }
    if (f->size == 0) {
        problem(f, rep, REPORT_FILE, "empty file");
        return -EBADMSG;
    }
    if (lfs_is_pointer(head, want)) {
        problem(f, rep, REPORT_FILE, LFS_SAID);
        return -EBADMSG;
    }
    if (f->size < 8) {
        problem(f, rep, REPORT_FILE,
                "header too small: expected at least 8 bytes, found %" PRIu64,
                f->size);
        return -EBADMSG;
    }
    memcpy(&n, head, 8);
    n = le64toh(n);
    if (n > SAFETENSORS_MAX_HEADER) {
        problem(f, rep, REPORT_FILE,
                "header too large: expected at most %d bytes, found %" PRIu64,
                SAFETENSORS_MAX_HEADER, n);
        return -EBADMSG;
    }
    if (n > f->size - 8) {
        problem(f, rep, REPORT_FILE,
                "truncated: %" PRIu64 " bytes of its header are missing",
                n - (f->size - 8));
        return -EBADMSG;
    }
    if (n < 2) {
        problem(f, rep, REPORT_FILE,
                "header too small: expected at least 2 bytes, found %" PRIu64,
                n);
        return -EBADMSG;
    }
    *ret_n = n;
    return 0;
}

static int open_regular(int dir, struct st_file *f, struct report *rep)
{
    struct stat st;

    /* Without O_NONBLOCK a FIFO in the folder would hold us for ever. */
    f->fd = openat(dir, f->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0) {
        problem(f, rep, REPORT_FILE, "cannot be opened: %s", strerror(errno));
        return -EBADMSG;
    }
    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        problem(f, rep, REPORT_FILE, "not a regular file");
        return -EBADMSG;
    }
    f->size = (uint64_t)st.st_size;
    f->mtime = st.st_mtim;
    return 0;
}

void st_open(int dir, const char *name, struct report *rep, struct st_file *ret)
{
    char *json = NULL;
    uint64_t n = 0;
    int r;

    memset(ret, 0, sizeof(*ret));
    ret->fd = -1;
    ret->name = strdup(name);
    if (ret->name == NULL) {
        report_no_memory(rep, name);
        ret->bad = true;
        return;
    }
    if (open_regular(dir, ret, rep) < 0 || check_head(ret, rep, &n) < 0) {
        return;
    }
    json = malloc(n);
    if (json == NULL) {
        no_memory(ret, rep);
        return;
    }
    r = st_read(ret, 8, json, n);
    if (r < 0) {
        problem(ret, rep, REPORT_FILE, "cannot be read: %s", strerror(-r));
    } else {
        ret->data = 8 + n;
        st_parse(ret, json, n, ret->size - ret->data, rep);
    }
    free(json);
}

void st_close(struct st_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    for (int i = 0; i < f->n_tensors; i++) {
        free(f->tensor[i].name);
    }
    free(f->tensor);
    free(f->name);
    memset(f, 0, sizeof(*f));
    f->fd = -1;
}
