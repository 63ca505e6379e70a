/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepd.conf, and --set. The first byte chooses what the others are: a file
 * (f) or one KEY=VALUE (s). Whatever they say, it is refused with a reason for
 * each problem, or every number is in its key's range.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/conf.h"
#include "tests/fuzz/fuzz.h"

static void check_number(const struct conf_key *k, double v)
{
    FUZZ_CHECK(v >= k->min && v <= k->max);
}

static void check_ids(const struct conf_ids *ids)
{
    FUZZ_CHECK(ids->n >= 0 && (ids->n == 0 || ids->id != NULL));
}

static void check_value(const struct conf_key *k, const void *v)
{
    switch (k->type) {
    case CONF_TEXT:
        FUZZ_CHECK(*(char *const *)v != NULL);
        break;
    case CONF_WORD:
    case CONF_CHOICE: {
        bool found = false;
        for (int i = 0; k->choices[i] != NULL; i++) {
            found |= k->type == CONF_WORD
                         ? strcmp(*(char *const *)v, k->choices[i]) == 0
                         : *(const int *)v == k->first + i;
        }
        FUZZ_CHECK(found);
        break;
    }
    case CONF_INT:
    case CONF_OCTAL:
        check_number(k, *(const int *)v);
        break;
    case CONF_REAL:
        check_number(k, *(const double *)v);
        break;
    case CONF_BYTES:
    case CONF_TIME:
        check_number(k, (double)*(const uint64_t *)v);
        break;
    case CONF_BOOL:
        FUZZ_CHECK(*(const unsigned char *)v <= 1);
        break;
    case CONF_USERS:
    case CONF_GROUPS:
        check_ids(v);
        break;
    }
}

static void load(const struct conf_source *src)
{
    struct conf_report rep = {0};
    struct conf c;
    int n;
    const struct conf_key *keys = conf_keys(&n);

    if (conf_load(src, &rep, &c) == 0) {
        FUZZ_CHECK(rep.n == 0);
        for (int i = 0; i < n; i++) {
            check_value(&keys[i], (const char *)&c + keys[i].offset);
        }
        FUZZ_CHECK(c.max_output_soft <= c.max_output_hard);
        conf_finish(&c);
    } else {
        FUZZ_CHECK(rep.n > 0);
    }
    for (int i = 0; i < rep.n; i++) {
        FUZZ_CHECK(rep.line[i][0] != '\0');
    }
    conf_report_finish(&rep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    char path[64], *set;
    struct conf_source src = {path, NULL, 0};

    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
    }
    if (n == 0 || (data[0] != 'f' && data[0] != 's')) {
        return 0;
    }
    bool file = data[0] == 'f';
    size_t n_file = file ? n - 1 : 0;
    FUZZ_CHECK(ftruncate(fd, 0) == 0 &&
               pwrite(fd, data + 1, n_file, 0) == (ssize_t)n_file);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    set = malloc(n);
    FUZZ_CHECK(set != NULL);
    memcpy(set, data + 1, n - 1);
    set[n - 1] = '\0';
    if (!file) {
        src.set = (const char *const *)&set;
        src.n_set = 1;
    }
    load(&src);
    free(set);
    return 0;
}
