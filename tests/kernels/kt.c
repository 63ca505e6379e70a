/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See kt.h. The planes of a random weight outlive the test program: a backend
 * that maps them may read them until the weight is freed, and nobody counts.
 */

#include "tests/kernels/kt.h"

#include <errno.h>

#include "kernels/compact.h"
#include "kernels/quant.h"

const struct kt_backend kt_ref = {"ref", NULL, 1};

static const struct kt_backend candidates[] = {
    {"cpu", "portable", 1},   {"cpu", "portable", 2},   {"cpu", "avx2", 1},
    {"cpu", "avx2", 2},       {"cpu", "avx512", 1},     {"cpu", "avx512", 2},
    {"cpu", "avx512bf16", 1}, {"cpu", "avx512bf16", 2}, {"cpu", "neonbf16", 1},
    {"cpu", "neonbf16", 2},
};
enum { N_CANDIDATES = sizeof(candidates) / sizeof(candidates[0]) };

/* KT_BACKEND=cuda-emulated: the plugin over tests/cuemu instead, from
 * STEPD_PLUGIN_DIR, a schedule of the emulator a time: as many of these as
 * KT_SCHEDULES says, else one. KT_BACKEND=cuda: a GPU. */
static const struct kt_backend emulated[] = {
    {"cuda-emulated", "policy=2 cp=2 seed=3", 1},
    {"cuda-emulated", "policy=0 cp=0 seed=1", 1},
    {"cuda-emulated", "policy=1 cp=1 seed=2", 1},
    {"cuda-emulated", "policy=3 cp=1 seed=4", 1},
    {"cuda-emulated", "policy=2 cp=0 seed=5", 1},
    {"cuda-emulated", "policy=3 cp=2 seed=6", 1},
};
static const struct kt_backend gpu[] = {{"cuda", NULL, 1}};

static const struct kt_backend *asked(int *ret_n)
{
    const char *name = getenv("KT_BACKEND"), *n = getenv("KT_SCHEDULES");
    int all = sizeof(emulated) / sizeof(emulated[0]);

    if (name != NULL && strcmp(name, "cuda-emulated") == 0) {
        *ret_n = n != NULL && atoi(n) < all ? atoi(n) : n != NULL ? all : 1;
        return emulated;
    }
    *ret_n = name != NULL ? 1 : N_CANDIDATES;
    return name != NULL ? gpu : candidates;
}

static int open_backend(const struct kt_backend *b, bool exact,
                        struct kern **ret)
{
    struct kern_open_args a = {
        .n_threads = b->n_threads, .isa = b->isa, .exact = exact};

    if (strcmp(b->name, "ref") == 0) {
        /* by its address: that is what links it into the test */
        return kern_open(&kern_ref_ops, &a, ret);
    }
    if (strcmp(b->name, "cuda-emulated") == 0) {
        setenv("STEPD_CUEMU", b->isa, 1);
    }
    return kern_open_named(b->name, &a, ret);
}

/* Opens each candidate once, on first use, to see whether it can run. */
static const struct kt_backend *runnable(int i, int *ret_n)
{
    static const struct kt_backend *list[N_CANDIDATES];
    static int n = -1;

    if (n < 0) {
        int n_tried;
        const struct kt_backend *from = asked(&n_tried);

        n = 0;
        for (int j = 0; j < n_tried; j++) {
            struct kern *k;

            if (open_backend(&from[j], true, &k) == 0) {
                kern_close(k);
                list[n++] = &from[j];
            }
        }
    }
    *ret_n = n;
    return i < n ? list[i] : NULL;
}

int kt_n_backends(void)
{
    int n;

    runnable(0, &n);
    return n;
}

const struct kt_backend *kt_backend(int i)
{
    int n;

    return runnable(i, &n);
}

static struct kt *opened(const struct kt_backend *b, bool exact)
{
    struct kt *t = calloc(1, sizeof(*t));

    assert_non_null(t);
    snprintf(t->name, sizeof(t->name), "%s%s%s, %d threads", b->name,
             b->isa != NULL ? " " : "", b->isa != NULL ? b->isa : "",
             b->n_threads);
    assert_int_equal(open_backend(b, exact, &t->k), 0);
    return t;
}

struct kt *kt_open(const struct kt_backend *b)
{
    return opened(b, true);
}

struct kt *kt_open_inexact(const struct kt_backend *b)
{
    return opened(b, false);
}

void kt_close(struct kt *t)
{
    for (int i = 0; i < t->n_bufs; i++) {
        kern_buf_free(t->k, t->buf[i]);
    }
    for (int i = 0; i < t->n_weights; i++) {
        kern_weight_free(t->k, t->weight[i]);
    }
    kern_close(t->k);
    free(t->buf);
    free(t->weight);
    free(t);
}

void kt_ok_(const struct kt *t, int r, const char *file, int line)
{
    if (r < 0) {
        print_error("%s: %s\n", t->name, kern_error(t->k));
        _fail(file, line);
    }
}

struct kern_ptr kt_put(struct kt *t, const void *data, size_t bytes)
{
    struct kern_ptr p = {NULL, 0};
    struct kern_buf **all =
        realloc(t->buf, sizeof(*t->buf) * (size_t)(t->n_bufs + 1));

    assert_non_null(all);
    t->buf = all;
    kt_ok(t, kern_buf_new(t->k, bytes, &p.buf));
    t->buf[t->n_bufs++] = p.buf;
    kt_ok(t, data != NULL ? kern_upload(t->k, p, data, bytes)
                          : kern_fill(t->k, p, 0xff, bytes));
    return p;
}

void kt_get(struct kt *t, void *to, struct kern_ptr from, size_t bytes)
{
    kt_ok(t, kern_download(t->k, to, from, bytes));
}

struct kern_rows kt_rows(struct kt *t, int n, int max)
{
    int32_t live = n;
    struct kern_rows r = {max, kt_put(t, &live, sizeof(live))};

    return r;
}

/* ---- numbers ---- */

/* splitmix64 */
uint64_t kt_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float kt_uniform(uint64_t *state)
{
    return (float)(int32_t)(kt_random(state) >> 32) * 0x1p-31f;
}

void kt_fill_f32(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = kt_uniform(&seed);
    }
}

void kt_fill_bf16(uint16_t *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = quant_f32_to_bf16(kt_uniform(&seed));
    }
}

/* ---- weights ---- */

static void random_plane(enum kern_dtype dtype, int plane, uint8_t *to,
                         size_t bytes, uint64_t seed)
{
    bool e4m3 = (dtype == KERN_FP8_B128 && plane == 0) ||
                (plane == 1 && dtype != KERN_FP8_B128);

    if (dtype == KERN_BF16) {
        kt_fill_bf16((uint16_t *)to, bytes / 2, seed);
    } else if (dtype == KERN_F32 || plane == 2 ||
               (dtype == KERN_FP8_B128 && plane == 1)) {
        kt_fill_f32((float *)to, bytes / 4, seed);
    } else {
        for (size_t i = 0; i < bytes; i++) {
            to[i] = (uint8_t)(kt_random(&seed) >> 24);
            if (dtype == KERN_MXFP4 && plane == 1) {
                to[i] = (uint8_t)(124 + to[i] % 5); /* 2^-3 .. 2 */
            } else if (e4m3) {
                to[i] = (to[i] & 0x80) | (0x20 + to[i] % 0x20);
            }
        }
    }
}

static struct kern_weight *weight_new(struct kt *t,
                                      const struct kern_weight_desc *d)
{
    struct kern_weight *w;
    struct kern_weight **all =
        realloc(t->weight, sizeof(*t->weight) * (size_t)(t->n_weights + 1));

    assert_non_null(all);
    t->weight = all;
    kt_ok(t, kern_weight_new(t->k, d, &w));
    t->weight[t->n_weights++] = w;
    return w;
}

/* Planes of all weights, kept to the end of the program. */
static void *plane_memory(size_t bytes)
{
    static void **all;
    static int n;
    void **more = realloc(all, sizeof(*all) * (size_t)(n + 1));

    assert_non_null(more);
    all = more;
    /* as mapped files are: on a boundary of 8 bytes */
    all[n] = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(all[n]);
    return (char *)all[n++] + 8;
}

static struct kern_weight *kt_weight_planes(struct kt *t,
                                            const struct kern_weight_desc *d,
                                            const void *const *plane)
{
    struct kern_weight *w = weight_new(t, d);

    for (int p = 0; p < kern_weight_n_planes(d->dtype); p++) {
        size_t n = kern_weight_plane_bytes(d, p);

        kt_ok(t, kern_weight_fill(t->k, w, 0, p, 0, plane[p], n));
    }
    kt_ok(t, kern_weight_ready(t->k, w));
    return w;
}

struct kern_weight *kt_compact(struct kt *t, int rows, int cols,
                               const uint16_t *w)
{
    struct kern_weight_desc d = {
        .dtype = KERN_COMPACT, .rows = rows, .cols = cols};
    uint32_t *row = plane_memory(kern_weight_plane_bytes(&d, 1));
    uint32_t *escape =
        plane_memory(sizeof(*escape) * ((size_t)rows * (size_t)cols + 1));
    uint8_t *block = plane_memory(kern_weight_plane_bytes(&d, 0));
    const void *plane[] = {block, row, escape};

    for (int r = 0; r < rows; r++, w += cols) {
        unsigned base = compact_choose(w, cols);

        row[r] = compact_word(base, (uint32_t)d.escapes);
        d.escapes += compact_pack(block + (size_t)r * compact_row_bytes(cols),
                                  w, cols, base, escape + d.escapes);
    }
    row[rows] = compact_word(0, (uint32_t)d.escapes);
    escape[d.escapes++] = COMPACT_END;
    return kt_weight_planes(t, &d, plane);
}

struct kern_weight *kt_weight(struct kt *t, enum kern_dtype dtype, int experts,
                              int rows, int cols, uint64_t seed)
{
    struct kern_weight_desc d = {dtype,           rows, cols, experts,
                                 KERN_SHARD_NONE, 0};
    struct kern_weight *w;

    if (dtype == KERN_COMPACT) {
        size_t n = (size_t)rows * (size_t)cols;
        uint16_t *bf16 = plane_memory(n * sizeof(*bf16));

        kt_fill_bf16(bf16, n, seed * 1000003u); /* as KERN_BF16 */
        return kt_compact(t, rows, cols, bf16);
    }
    w = weight_new(t, &d);

    for (int e = 0; e < (experts > 0 ? experts : 1); e++) {
        for (int p = 0; p < kern_weight_n_planes(dtype); p++) {
            size_t n = kern_weight_plane_bytes(&d, p), half = n / 2;
            uint8_t *at = plane_memory(n);

            random_plane(dtype, p, at, n,
                         seed * 1000003u + (uint64_t)e * 7u + (uint64_t)p);
            if (seed % 2 != 0) {
                kt_ok(t, kern_weight_map(t->k, w, e, p, at, n));
            } else {
                kt_ok(t, kern_weight_fill(t->k, w, e, p, half, at + half,
                                          n - half));
                kt_ok(t, kern_weight_fill(t->k, w, e, p, 0, at, half));
            }
        }
    }
    kt_ok(t, kern_weight_ready(t->k, w));
    return w;
}

struct kern_weight *kt_weight_of(struct kt *t, enum kern_dtype dtype, int rows,
                                 int cols, const void *const *plane)
{
    struct kern_weight_desc d = {dtype, rows, cols, 0, KERN_SHARD_NONE, 0};

    return kt_weight_planes(t, &d, plane);
}
