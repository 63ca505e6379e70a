/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The main of a fuzz target where libFuzzer is not linked (make check): runs
 * the target over its corpus, over every beginning of each file, and over some
 * thousand mutations of it that are the same in every run. With files as
 * arguments it runs just those: what libFuzzer found, for example.
 *
 * fuzz_X takes corpus/X.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

#define MAX_BYTES 65536
#define MAX_PREFIXES 4096
#define MUTATIONS 3000

static unsigned long n_runs;

/* An allocation of its own, so that a sanitiser sees a byte read too far. */
static void run(const unsigned char *p, size_t n)
{
    unsigned char *own = malloc(n > 0 ? n : 1);

    if (own == NULL) {
        abort();
    }
    memcpy(own, p, n);
    LLVMFuzzerTestOneInput(own, n);
    free(own);
    n_runs++;
}

static uint32_t next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* One to four changes: a bit, a byte, a byte out, a byte twice. */
static void run_mutation(const unsigned char *p, size_t n, uint32_t seed)
{
    unsigned char buf[MAX_BYTES + 8];
    static const unsigned char telling[] = "\"{}[]:,-0e9.\\\xff";

    memcpy(buf, p, n);
    for (uint32_t i = next(&seed) % 4 + 1; i > 0 && n > 0; i--) {
        size_t at = next(&seed) % n;

        switch (next(&seed) % 5) {
        case 0:
            buf[at] ^= (unsigned char)(1u << next(&seed) % 8);
            break;
        case 1:
            buf[at] = (unsigned char)next(&seed);
            break;
        case 2:
            buf[at] = telling[next(&seed) % sizeof(telling)];
            break;
        case 3:
            memmove(buf + at, buf + at + 1, n - at - 1);
            n--;
            break;
        default:
            memmove(buf + at + 1, buf + at, n - at);
            n++;
            break;
        }
    }
    run(buf, n);
}

static int replay(const char *path, bool mutate)
{
    unsigned char buf[MAX_BYTES];
    FILE *f = fopen(path, "rb");
    size_t n;

    if (f == NULL) {
        perror(path);
        return 1;
    }
    n = fread(buf, 1, sizeof(buf), f);
    fclose(f);
    run(buf, n);
    for (size_t i = 0; mutate && i < n && i < MAX_PREFIXES; i++) {
        run(buf, i);
    }
    for (uint32_t i = 1; mutate && i <= MUTATIONS; i++) {
        run_mutation(buf, n, i * 2654435761u);
    }
    return 0;
}

static int replay_dir(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    char path[4096];
    int n = 0, r = 0;

    if (d == NULL) {
        perror(dir);
        return 1;
    }
    while ((e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
            r |= replay(path, true);
            n++;
        }
    }
    closedir(d);
    if (n == 0) {
        fprintf(stderr, "%s: an empty corpus\n", dir);
    }
    return n == 0 || r;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '_');
    const char *data = getenv("TEST_DATA");
    char dir[1024];
    int r = 0;

    for (int i = 1; i < argc; i++) {
        r |= replay(argv[i], false);
    }
    if (argc == 1) {
        snprintf(dir, sizeof(dir), "%s/../fuzz/corpus/%s",
                 data != NULL ? data : TEST_SRCDIR "/tests/data",
                 name != NULL ? name + 1 : "");
        r = replay_dir(dir);
    }
    printf("%lu runs\n", n_runs);
    return r;
}
