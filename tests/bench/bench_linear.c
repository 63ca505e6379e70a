/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * linear on the sizes of a real layer: GB/s of weights against the read probe
 * and GFLOP/s against the peak of the multiplying instruction, both taken in
 * the same round; the median of the rounds' ratios.
 *
 *     bench_linear [ISA] [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/compact.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"
#include "tests/bench/probe.h"

struct bench {
    struct kern *k;
    struct probe *probe;
};

static void die(struct kern *k, const char *what)
{
    fprintf(stderr, "bench_linear: %s: %s\n", what,
            k != NULL ? kern_error(k) : "");
    exit(1);
}

static struct kern_ptr put(struct kern *k, size_t bytes, int byte)
{
    struct kern_ptr p = {NULL, 0};

    if (kern_buf_new(k, bytes, &p.buf) < 0 ||
        kern_fill(k, p, byte, bytes) < 0) {
        die(k, "buffer");
    }
    return p;
}

/* BF16 of about a bell curve, as trained weights are. */
static void bell(uint16_t *to, size_t n)
{
    uint64_t s = 1;

    for (size_t i = 0; i < n; i++) {
        float sum = 0;

        for (int k = 0; k < 4; k++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(int32_t)(s >> 32) * 0x1p-36f;
        }
        to[i] = quant_f32_to_bf16(sum);
    }
}

/* The planes of a compact weight; its escapes are counted in d. */
static void pack(struct kern_weight_desc *d, uint8_t **plane)
{
    size_t n = (size_t)d->rows * (size_t)d->cols;
    uint16_t *w = malloc(n * 2);
    uint32_t *row, *escape;

    plane[0] = malloc(kern_weight_plane_bytes(d, 0));
    plane[1] = malloc(kern_weight_plane_bytes(d, 1));
    plane[2] = malloc((n / 16 + 1) * 4);
    if (w == NULL || plane[0] == NULL || plane[1] == NULL || plane[2] == NULL) {
        die(NULL, "no memory");
    }
    bell(w, n);
    row = (uint32_t *)(void *)plane[1];
    escape = (uint32_t *)(void *)plane[2];
    for (int r = 0; r < d->rows; r++) {
        const uint16_t *from = w + (size_t)r * (size_t)d->cols;
        unsigned base = compact_choose(from, d->cols);

        row[r] = compact_word(base, (uint32_t)d->escapes);
        d->escapes +=
            compact_pack(plane[0] + (size_t)r * compact_row_bytes(d->cols),
                         from, d->cols, base, escape + d->escapes);
    }
    row[d->rows] = compact_word(0, (uint32_t)d->escapes);
    escape[d->escapes++] = COMPACT_END;
    free(w);
}

static struct kern_weight *weight(struct kern *k, enum kern_dtype dtype,
                                  int rows, int cols)
{
    struct kern_weight_desc d = {dtype, rows, cols, 0, KERN_SHARD_NONE, 0};
    struct kern_weight *w;
    uint8_t *plane[3] = {NULL, NULL, NULL};

    if (dtype == KERN_COMPACT) {
        pack(&d, plane);
    }
    if (kern_weight_new(k, &d, &w) < 0) {
        die(k, "weight");
    }
    for (int p = 0; p < kern_weight_n_planes(dtype); p++) {
        size_t n = kern_weight_plane_bytes(&d, p);

        if (plane[p] == NULL) {
            plane[p] = malloc(n);
        }
        if (plane[p] == NULL) {
            die(NULL, "no memory");
        }
        if (dtype == KERN_BF16) {
            bell((uint16_t *)(void *)plane[p], n / 2);
        }
        for (size_t i = 0; dtype == KERN_MXFP4 && i < n; i++) {
            /* nibbles of all kinds; scales near 1 */
            plane[p][i] = (uint8_t)(p == 0 ? i * 37 : 120 + i % 8);
        }
        if (kern_weight_fill(k, w, 0, p, 0, plane[p], n) < 0) {
            die(k, "weight");
        }
        free(plane[p]);
    }
    if (kern_weight_ready(k, w) < 0) {
        die(k, "weight");
    }
    return w;
}

static double seconds(struct kern *k, const struct kern_linear_args *a)
{
    double t = probe_now();

    if (kern_linear(k, a) < 0) {
        die(k, "linear");
    }
    return probe_now() - t;
}

static void run(struct bench *b, enum kern_dtype dtype, int rows, int cols)
{
    static const int n_rows[] = {1, 2, 3, 4, 8, 16, 512};
    struct kern *k = b->k;
    struct kern_linear_args a = {.cols = cols, .x_stride = cols, .n_parts = 1};
    struct kern_weight *w = weight(k, dtype, rows, cols);
    const char *name = dtype == KERN_BF16    ? "bf16"
                       : dtype == KERN_MXFP4 ? "mxfp4"
                                             : "compact";
    double bytes = 0;

    for (int p = 0; p < kern_weight_n_planes(dtype); p++) {
        bytes += (double)kern_weight_plane_bytes(&w->desc, p);
    }
    a.x = put(k, (size_t)512 * (size_t)cols * 2, 0x3f);
    a.part[0].w = w;
    a.part[0].out = put(k, (size_t)512 * (size_t)rows * 4, 0);
    a.part[0].out_stride = rows;
    a.rows.n = put(k, 4, 0);
    for (size_t i = 0; i < sizeof(n_rows) / sizeof(n_rows[0]); i++) {
        double gbs[PROBE_ROUNDS], flops[PROBE_ROUNDS], of_read[PROBE_ROUNDS],
            of_peak[PROBE_ROUNDS];
        int32_t n = n_rows[i];
        int rounds = n > 16 ? 5 : PROBE_ROUNDS;

        a.rows.max = n;
        kern_upload(k, a.rows.n, &n, sizeof(n));
        seconds(k, &a);
        for (int r = 0; r < rounds; r++) {
            double read = probe_read(b->probe), peak = probe_peak(b->probe);
            double t = seconds(k, &a);

            gbs[r] = bytes / t;
            flops[r] = 2.0 * rows * cols * n / t;
            of_read[r] = gbs[r] / read;
            of_peak[r] = flops[r] / peak;
        }
        printf("%-7s %6d x %5d %5d %8.1f %6.2f %9.1f %6.2f\n", name, rows, cols,
               n, probe_median(gbs, rounds) / 1e9,
               probe_median(of_read, rounds), probe_median(flops, rounds) / 1e9,
               probe_median(of_peak, rounds));
        fflush(stdout);
    }
    kern_buf_free(k, a.x.buf);
    kern_buf_free(k, a.part[0].out.buf);
    kern_buf_free(k, a.rows.n.buf);
    kern_weight_free(k, w);
}

int main(int argc, char **argv)
{
    struct kern_open_args open = {.isa = argc > 1 ? argv[1] : NULL,
                                  .n_threads = argc > 2 ? atoi(argv[2]) : 0};
    struct bench b;
    char text[64];

    if (kern_open(kern_find("cpu"), &open, &b.k) < 0) {
        die(NULL, "the cpu backend does not open");
    }
    b.probe = probe_create(open.n_threads, open.isa);
    if (b.probe == NULL) {
        die(NULL, "no memory");
    }
    printf("linear, %s: read %.1f GB/s, peak %.0f GFLOP/s\n",
           kern_describe(b.k, text, sizeof(text)), probe_read(b.probe) / 1e9,
           probe_peak(b.probe) / 1e9);
    printf("type      weight       rows     GB/s  /read   GFLOP/s  /peak\n");
    run(&b, KERN_BF16, 12288, 4096);
    run(&b, KERN_COMPACT, 12288, 4096);
    run(&b, KERN_BF16, 4096, 11264);
    run(&b, KERN_COMPACT, 4096, 11264);
    run(&b, KERN_MXFP4, 49152, 4096);
    probe_destroy(b.probe);
    kern_close(b.k);
    return 0;
}
