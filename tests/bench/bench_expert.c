/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * expert_up and expert_down at the real widths (hidden 4096, width 1280, MXFP4,
 * 8 of 64 experts a row, drawn evenly; with 112 rows an expert has as many as
 * with 512 where there are 288): GB/s of the weights read against the
 * read probe, GFLOP/s against the multiplier's peak, all of one round.
 *
 *     bench_expert [ISA] [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/bench/probe.h"

enum { E = 64, T = 8, HIDDEN = 4096, WIDTH = 1280, MOST = 512 };

static struct kern *k;

static void die(const char *what)
{
    fprintf(stderr, "bench_expert: %s: %s\n", what,
            k != NULL ? kern_error(k) : "");
    exit(1);
}

static struct kern_ptr put(size_t bytes, int byte)
{
    struct kern_ptr p = {NULL, 0};

    if (kern_buf_new(k, bytes, &p.buf) < 0 ||
        kern_fill(k, p, byte, bytes) < 0) {
        die("buffer");
    }
    return p;
}

static struct kern_weight *weight(int rows, int cols)
{
    struct kern_weight_desc d = {KERN_MXFP4, rows, cols, E, KERN_SHARD_NONE, 0};
    size_t n[2] = {kern_weight_plane_bytes(&d, 0),
                   kern_weight_plane_bytes(&d, 1)};
    uint8_t *bytes = malloc(n[0]);
    struct kern_weight *w;

    if (bytes == NULL || kern_weight_new(k, &d, &w) < 0) {
        die("weight");
    }
    for (int p = 0; p < 2; p++) {
        for (size_t i = 0; i < n[p]; i++) {
            bytes[i] = (uint8_t)(p == 0 ? i * 37 : 116 + i % 5);
        }
        for (int e = 0; e < E; e++) {
            if (kern_weight_fill(k, w, e, p, 0, bytes, n[p]) < 0) {
                die("weight");
            }
        }
    }
    free(bytes);
    if (kern_weight_ready(k, w) < 0) {
        die("weight");
    }
    return w;
}

/* T different experts a row, evenly. */
static void put_groups(const struct kern_groups *g, int n, uint64_t *s)
{
    static int32_t sel[MOST * T];
    int32_t off[E + 1], pair[MOST * T], at = 0;

    for (int i = 0; i < n * T; i++) {
        bool taken = true;

        while (taken) {
            *s = *s * 6364136223846793005u + 1442695040888963407u;
            sel[i] = (int32_t)(*s >> 33) % E;
            taken = false;
            for (int j = i - i % T; j < i; j++) {
                taken = taken || sel[j] == sel[i];
            }
        }
    }
    for (int e = 0; e < E; e++) {
        off[e] = at;
        for (int i = 0; i < n * T; i++) {
            if (sel[i] == e) {
                pair[at++] = i;
            }
        }
    }
    off[E] = at;
    kern_upload(k, g->off, off, sizeof(off));
    kern_upload(k, g->pair, pair, sizeof(int32_t) * (size_t)(n * T));
}

static void run(struct probe *probe, struct kern_expert_up_args *up,
                struct kern_expert_down_args *down, int n)
{
    double r[4][PROBE_ROUNDS];
    int rounds = n > 16 ? 5 : PROBE_ROUNDS;
    uint64_t s = 7;

    up->rows.max = down->rows.max = n;
    kern_upload(k, up->rows.n, &(int32_t){n}, 4);
    for (int i = 0; i < rounds; i++) {
        double read = probe_read(probe), peak = probe_peak(probe), t, bytes;

        put_groups(&up->groups, n, &s);
        kern_stats_reset(k);
        t = probe_now();
        if (kern_expert_up(k, up) < 0 || kern_expert_down(k, down) < 0) {
            die("op");
        }
        t = probe_now() - t;
        bytes = (double)k->stats.weight_bytes;
        r[0][i] = bytes / t / 1e9;
        r[1][i] = bytes / t / read;
        r[2][i] = 6.0 * HIDDEN * WIDTH * n * T / t / 1e9;
        r[3][i] = r[2][i] * 1e9 / peak;
    }
    printf("%5d %8.1f %6.2f %9.1f %6.2f\n", n, probe_median(r[0], rounds),
           probe_median(r[1], rounds), probe_median(r[2], rounds),
           probe_median(r[3], rounds));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int n_rows[] = {1, 2, 4, 8, 16, 112, 512};
    struct kern_open_args open = {.isa = argc > 1 ? argv[1] : NULL,
                                  .n_threads = argc > 2 ? atoi(argv[2]) : 0};
    struct kern_expert_up_args up = {.top_k = T, .limit = 7};
    struct kern_expert_down_args down = {.top_k = T};
    struct probe *probe;
    char text[64];

    if (kern_open(kern_find("cpu"), &open, &k) < 0) {
        die("the cpu backend does not open");
    }
    probe = probe_create(open.n_threads, open.isa);
    if (probe == NULL) {
        die("no memory");
    }
    up.rows.n = down.rows.n = put(4, 0);
    up.x = put((size_t)MOST * HIDDEN * 2, 0x3c);
    up.gate = weight(WIDTH, HIDDEN);
    up.up = weight(WIDTH, HIDDEN);
    up.groups.off = put(sizeof(int32_t) * (E + 1), 0);
    up.groups.pair = put(sizeof(int32_t) * MOST * T, 0);
    up.h = put((size_t)MOST * T * WIDTH * 2, 0);
    down.h = up.h;
    down.down = weight(HIDDEN, WIDTH);
    down.groups = up.groups;
    down.wt = put((size_t)MOST * T * 4, 0x3c);
    down.out = put((size_t)MOST * HIDDEN * 4, 0);
    printf("experts, %s: read %.1f GB/s, peak %.0f GFLOP/s\n",
           kern_describe(k, text, sizeof(text)), probe_read(probe) / 1e9,
           probe_peak(probe) / 1e9);
    printf(" rows     GB/s  /read   GFLOP/s  /peak\n");
    for (size_t i = 0; i < sizeof(n_rows) / sizeof(n_rows[0]); i++) {
        run(probe, &up, &down, n_rows[i]);
    }
    probe_destroy(probe);
    return 0;
}
