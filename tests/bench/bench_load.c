/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * How fast weights come into memory, cold (posix_fadvise DONTNEED on these
 * files) and warm, by each mode, next to a plain O_DIRECT read of the same
 * bytes by one thread.
 *
 *     bench_load [CHECKPOINT]     default: a synthetic one of 0.5 GB
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/model/checkpoint.h"
#include "daemon/model/load.h"
#include "daemon/model/weights.h"
#include "tests/synth.h"

#define BLOCK ((size_t)8 << 20)

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die_of(const char *what, int r)
{
    fprintf(stderr, "bench_load: %s: %s\n", what, strerror(-r));
    exit(1);
}

static struct checkpoint *open_dir(const char *dir, enum model_weights mode)
{
    struct model_conf c = {.path = dir, .drafts = -1, .weights = mode};
    struct checkpoint *ck;
    int r = checkpoint_open(&c, NULL, &ck);

    if (r < 0) {
        die_of(dir, r);
    }
    return ck;
}

/* Out of the page cache; written first, dirty pages stay. */
static void make_cold(const char *dir)
{
    struct checkpoint *ck = open_dir(dir, MODEL_MAP);

    for (int i = 0; i < ck->n_files; i++) {
        (void)fsync(ck->file[i].fd);
        (void)posix_fadvise(ck->file[i].fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    checkpoint_close(ck);
}

static void bench_mode(const char *dir, const char *name,
                       enum model_weights mode, bool cold)
{
    double start, opened, loaded;
    struct kern_open_args args = {0};
    struct checkpoint *ck;
    struct weights *w;
    struct kern *k;
    uint64_t bytes;
    int r;

    if (cold) {
        make_cold(dir);
    }
    r = kern_open(kern_find("cpu"), &args, &k);
    if (r < 0) {
        die_of("cpu", r);
    }
    start = now();
    ck = open_dir(dir, mode);
    opened = now();
    r = weights_load(ck, k, NULL, &w);
    loaded = now();
    bytes = load_total(ck);
    if (r < 0) {
        printf("%-14s %-5s %s\n", name, cold ? "cold" : "warm", strerror(-r));
    } else {
        printf("%-14s %-5s %8.3f s headers %8.3f s weights %8.2f GB/s\n", name,
               cold ? "cold" : "warm", opened - start, loaded - opened,
               (double)bytes / (loaded - opened) * 1e-9);
        weights_destroy(w);
    }
    checkpoint_close(ck);
    kern_close(k);
}

static void bench_plain(const char *dir)
{
    struct checkpoint *ck;
    void *buf;
    uint64_t bytes = 0;
    double start, s;

    make_cold(dir);
    ck = open_dir(dir, MODEL_MAP);
    if (posix_memalign(&buf, 4096, BLOCK) != 0) {
        die_of("buffer", -ENOMEM);
    }
    start = now();
    for (int i = 0; i < ck->n_files; i++) {
        int fd = ck->file[i].fd;
        ssize_t r;

        if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) < 0) {
            printf("%-14s       no O_DIRECT on this file system\n", "O_DIRECT");
            goto out;
        }
        for (off_t at = 0; (r = pread(fd, buf, BLOCK, at)) > 0; at += r) {
            bytes += (uint64_t)r;
        }
    }
    s = now() - start;
    printf("%-14s %-5s %29.3f s         %8.2f GB/s\n", "plain O_DIRECT", "cold",
           s, (double)bytes / s * 1e-9);
out:
    free(buf);
    checkpoint_close(ck);
}

static const char *make_synth(char *dir)
{
    struct synth s;
    int r;

    if (mkdtemp(dir) == NULL) {
        die_of(dir, -errno);
    }
    synth_preset(&s, "small");
    r = synth_write(&s, dir);
    if (r < 0) {
        die_of(dir, r);
    }
    return dir;
}

static int remove_synth(const char *dir)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum model_weights mode;
    } modes[] = {
        {"map", MODEL_MAP}, {"lock", MODEL_LOCK}, {"copy", MODEL_COPY}};
    char dir[] = "/tmp/stepd-bench-load-XXXXXX";
    const char *path = argc > 1 ? argv[1] : make_synth(dir);

    printf("load of %s\n", path);
    for (int i = 0; i < 3; i++) {
        bench_mode(path, modes[i].name, modes[i].mode, true);
        bench_mode(path, modes[i].name, modes[i].mode, false);
    }
    bench_plain(path);
    return argc > 1 ? 0 : remove_synth(dir);
}
