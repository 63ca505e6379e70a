/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * sample over the real vocabulary: microseconds a row, for one row and for
 * sixteen. Logits as a model's are: a few high, a long tail.
 *
 *     bench_sample [ISA] [THREADS]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/bench/probe.h"

enum { VOCAB = 128896, ROWS = 16, ROUNDS = 15 };

static struct kern *k;

static struct kern_ptr put(const void *from, size_t bytes)
{
    struct kern_ptr p = {NULL, 0};

    if (kern_buf_new(k, bytes, &p.buf) < 0 ||
        (from != NULL && kern_upload(k, p, from, bytes) < 0)) {
        fprintf(stderr, "bench_sample: %s\n", kern_error(k));
        exit(1);
    }
    return p;
}

static struct kern_ptr put_logits(void)
{
    size_t n = (size_t)VOCAB * ROWS;
    float *l = malloc(n * sizeof(*l));
    uint64_t s = 1;
    struct kern_ptr p;

    if (l == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        /* a tail of width 3, and one in 3000 far above it */
        l[i] = (float)(s >> 40) * 0x1p-22f - 2 + (i % 2999 == 7 ? 9 : 0);
    }
    p = put(l, n * sizeof(*l));
    free(l);
    return p;
}

static void run(const char *what, struct kern_sample_args *a,
                const struct kern_sample_row *row)
{
    struct kern_sample_row rows[ROWS];
    double us[2];

    for (int i = 0; i < ROWS; i++) {
        rows[i] = *row;
    }
    kern_upload(k, a->params, rows, sizeof(rows));
    for (int many = 0; many < 2; many++) {
        int32_t n = many ? ROWS : 1;
        double t[ROUNDS];

        kern_upload(k, a->rows.n, &n, sizeof(n));
        for (int r = 0; r < ROUNDS; r++) {
            double begin = probe_now();

            kern_sample(k, a);
            t[r] = (probe_now() - begin) * 1e6 / n;
        }
        us[many] = probe_median(t, ROUNDS);
    }
    printf("%-28s %9.0f %9.0f\n", what, us[0], us[1]);
}

int main(int argc, char **argv)
{
    struct kern_open_args open = {.isa = argc > 1 ? argv[1] : NULL,
                                  .n_threads = argc > 2 ? atoi(argv[2]) : 0};
    struct kern_sample_row row = {.temperature = 1,
                                  .top_p = 1,
                                  .beta = 1,
                                  .n_top = -1,
                                  .seed = 5,
                                  .repetition = 1,
                                  .mask = -1,
                                  .given = -1};
    struct kern_sample_args a = {.vocab = VOCAB, .stride = VOCAB};
    int32_t pos[ROWS] = {0};
    char text[64];

    if (kern_open(kern_find("cpu"), &open, &k) < 0) {
        fprintf(stderr, "bench_sample: the cpu backend does not open\n");
        return 1;
    }
    a.rows.max = ROWS;
    a.rows.n = put(NULL, 4);
    a.logits = put_logits();
    a.params = put(NULL, sizeof(row) * ROWS);
    a.pos = put(pos, sizeof(pos));
    a.out = put(NULL, sizeof(struct kern_sample_out) * ROWS);
    printf("sample of %d, %s\n", VOCAB, kern_describe(k, text, sizeof(text)));
    printf("us a row                        1 row   16 rows\n");
    run("temperature 1", &a, &row);
    row.n_top = 0;
    run("with logprob", &a, &row);
    row.n_top = 20;
    run("with 20 alternatives", &a, &row);
    row.n_top = -1;
    row.top_p = 0.95f;
    run("top-p 0.95", &a, &row);
    row.top_k = 50;
    run("top-p 0.95, top-k 50", &a, &row);
    row.top_p = 1;
    run("top-k 50", &a, &row);
    row.top_k = 0;
    row.min_p = 0.05f;
    run("min-p 0.05", &a, &row);
    row.min_p = 0;
    row.temperature = 0;
    run("greedy", &a, &row);
    kern_close(k);
    return 0;
}
