/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * attn at the real head counts (64 or 96 query heads, 8 KV heads): decode of
 * one row over contexts, GB/s of KV against the read probe; prefill of 512
 * rows, GFLOP/s against the multiplier's peak, all of one round.
 *
 *     bench_attn [ISA] [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/bench/probe.h"

enum { G = 8, H_MAX = 96, D = KERN_HEAD_DIM, PAGES = 512, MOST = 512 };

static struct kern *k;

static void die(const char *what)
{
    fprintf(stderr, "bench_attn: %s: %s\n", what,
            k != NULL ? kern_error(k) : "");
    exit(1);
}

static struct kern_ptr put(const void *from, size_t bytes, int byte)
{
    struct kern_ptr p = {NULL, 0};

    if (kern_buf_new(k, bytes, &p.buf) < 0 ||
        (from != NULL ? kern_upload(k, p, from, bytes)
                      : kern_fill(k, p, byte, bytes)) < 0) {
        die("buffer");
    }
    return p;
}

/* Products of scores and of values for n rows that end at slot last. */
static double flops(const struct kern_attn_args *a, int n, int last)
{
    double pairs = 0;

    for (int s = last - n + 1; s <= last; s++) {
        pairs += a->window > 0 && s + 1 > a->window ? a->window : s + 1;
    }
    return 4.0 * D * a->n_head * pairs;
}

static void run(struct probe *probe, struct kern_attn_args *a, int n_head,
                int window, int n, int last)
{
    double r[4][PROBE_ROUNDS];
    int32_t slot[MOST];

    for (int i = 0; i < n; i++) {
        slot[i] = last - n + 1 + i;
    }
    a->n_head = n_head;
    a->window = window;
    a->rows.max = n;
    kern_upload(k, a->rows.n, &(int32_t){n}, 4);
    kern_upload(k, a->at.slot, slot, sizeof(*slot) * (size_t)n);
    for (int i = 0; i < PROBE_ROUNDS; i++) {
        double read = probe_read(probe), peak = probe_peak(probe), t;

        kern_stats_reset(k);
        t = probe_now();
        if (kern_attn(k, a) < 0) {
            die("attn");
        }
        t = probe_now() - t;
        r[0][i] = (double)k->stats.kv_bytes / t / 1e9;
        r[1][i] = (double)k->stats.kv_bytes / t / read;
        r[2][i] = flops(a, n, last) / t / 1e9;
        r[3][i] = r[2][i] * 1e9 / peak;
    }
    printf("%5d %6d %5d %8d %8.1f %6.2f %9.1f %6.2f\n", n_head, window, n,
           last + 1, probe_median(r[0], PROBE_ROUNDS),
           probe_median(r[1], PROBE_ROUNDS), probe_median(r[2], PROBE_ROUNDS),
           probe_median(r[3], PROBE_ROUNDS));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct kern_open_args open = {.isa = argc > 1 ? argv[1] : NULL,
                                  .n_threads = argc > 2 ? atoi(argv[2]) : 0};
    struct kern_attn_args a = {0};
    int32_t table[PAGES], zero[MOST] = {0};
    struct probe *probe;
    char text[64];

    if (kern_open(kern_find("cpu"), &open, &k) < 0) {
        die("the cpu backend does not open");
    }
    probe = probe_create(open.n_threads, open.isa);
    if (probe == NULL) {
        die("no memory");
    }
    for (int i = 0; i < PAGES; i++) {
        table[i] = i * 37 % PAGES;
    }
    a.rows.n = put(NULL, 4, 0);
    a.at.slot = put(NULL, sizeof(zero), 0);
    a.at.seq = put(zero, sizeof(zero), 0);
    a.at.table = put(table, sizeof(table), 0);
    a.at.first_page = put(zero, sizeof(*zero), 0);
    a.at.low = put(zero, sizeof(*zero), 0);
    a.at.n_seq = 1;
    a.at.max_pages = PAGES;
    a.kv.dtype = KERN_BF16;
    a.kv.n_pages = PAGES;
    a.kv.n_kv_head = G;
    a.kv.bytes_per_token = G * D * 4;
    a.kv.page_bytes = a.kv.bytes_per_token * KERN_PAGE_TOK;
    a.kv.pages = put(NULL, a.kv.page_bytes * PAGES, 0x3c);
    a.q = put(NULL, (size_t)MOST * H_MAX * D * 2, 0x3c);
    a.gate = put(NULL, (size_t)MOST * H_MAX * 4, 0);
    a.out = put(NULL, (size_t)MOST * H_MAX * D * 2, 0);
    printf("attn, %s: read %.1f GB/s, peak %.0f GFLOP/s\n",
           kern_describe(k, text, sizeof(text)), probe_read(probe) / 1e9,
           probe_peak(probe) / 1e9);
    printf("heads window  rows  context     GB/s  /read   GFLOP/s  /peak\n");
    run(probe, &a, 64, 0, 1, 127);
    run(probe, &a, 64, 0, 1, 8191);
    run(probe, &a, 64, 0, 1, 32767);
    run(probe, &a, 96, 512, 1, 32767);
    run(probe, &a, 64, 0, 512, 511);
    run(probe, &a, 96, 512, 512, 511);
    run(probe, &a, 96, 512, 512, 8191);
    probe_destroy(probe);
    return 0;
}
