/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A shard: a file that is not refused has tensors that lie inside of it, one
 * beside the other, whose every byte can be read.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/model/names.h"
#include "daemon/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void check_tensors(const struct st_file *f)
{
    uint64_t sum = 0;

    for (int i = 0; i < f->n_tensors; i++) {
        const struct st_tensor *t = &f->tensor[i];
        struct tensor_name name;
        char shape[64];

        require(t->begin >= f->data && t->begin <= t->end && t->end <= f->size);
        sum += t->end - t->begin;
        for (int j = 0; j < i; j++) {
            const struct st_tensor *o = &f->tensor[j];

            require(t->end <= o->begin || o->end <= t->begin ||
                    t->begin == t->end || o->begin == o->end);
        }
        st_shape_text(t->dim, t->n_dims, shape, sizeof(shape));
        name_parse(t->name, &name);
        require(name.n_module <= strlen(t->name));
        require(name.n_prefix <= strlen(t->name));
        require(name.kind != NAME_TENSOR ||
                (name.role < N_ROLES && name.part < N_PARTS));
    }
    require(sum == f->size - f->data); /* nothing is left over */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    struct st_file f;
    struct report rep;
    char path[64];

    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        require(fd >= 0);
    }
    require(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    report_init(&rep);
    st_open(AT_FDCWD, path, &rep, &f);
    require(f.bad == (rep.n_problems > 0));
    if (!f.bad) {
        check_tensors(&f);
    }
    st_close(&f);
    report_finish(&rep, NULL);
    return 0;
}
