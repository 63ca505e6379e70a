/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_SAFETENSORS_H
#define STEPD_DAEMON_MODEL_SAFETENSORS_H

/*
 * The safetensors container:
 *
 *     u64 little-endian  N, bytes of the header
 *     N bytes            JSON {"name": {"dtype": "BF16", "shape": [..],
 *                        "data_offsets": [begin, end]}, .., "__metadata__": ..}
 *     the rest           the data; offsets count from its first byte
 *
 * The tensors cover the data exactly: no hole, no overlap, no byte left over.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "daemon/model/report.h"

#define SAFETENSORS_MAX_HEADER 100000000 /* as the reference library */
#define SAFETENSORS_MAX_DIMS 8

enum st_dtype {
    ST_BOOL,
    ST_F4,
    ST_F8_E4M3,
    ST_F8_E5M2,
    ST_F8_E8M0,
    ST_U8,
    ST_I8,
    ST_BF16,
    ST_F16,
    ST_I16,
    ST_U16,
    ST_F32,
    ST_I32,
    ST_U32,
    ST_F64,
    ST_I64,
    ST_U64,
    ST_N_DTYPES
};

struct st_tensor {
    char *name;
    enum st_dtype dtype;
    int n_dims;
    uint64_t dim[SAFETENSORS_MAX_DIMS];
    uint64_t begin, end; /* from the first byte of the file */
};

struct st_file {
    char *name; /* in its folder */
    int fd;     /* -1: not open */
    /* What was opened, to notice a change under us. */
    uint64_t size;
    struct timespec mtime;
    uint64_t data; /* where the data begins */
    int n_tensors;
    struct st_tensor *tensor; /* as in the header */
    bool read;                /* the header was: tensors are known */
    bool bad;                 /* a problem was reported for this file */
};

const char *st_dtype_name(enum st_dtype t);
int st_dtype_bits(enum st_dtype t);
/* "[288, 1280, 4096]"; returns buf. */
const char *st_shape_text(const uint64_t *dim, int n_dims, char *buf, size_t n);

/* Opens name in the folder dir (a descriptor) and reads its header. What is
 * wrong goes to rep and sets ret->bad; tensors that could be read are listed
 * all the same. ret is always valid for st_close. */
void st_open(int dir, const char *name, struct report *rep,
             struct st_file *ret);
/* The header alone: n bytes of JSON in a file of f->name that has data_bytes
 * after it. Sets tensors and bad. */
void st_parse(struct st_file *f, const char *json, size_t n,
              uint64_t data_bytes, struct report *rep);
void st_close(struct st_file *f);

/* Reads n bytes at off; -errno, -EBADMSG where the file ends before. */
int st_read(const struct st_file *f, uint64_t off, void *to, size_t n);

#endif
