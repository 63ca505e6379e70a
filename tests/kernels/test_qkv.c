/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * qkv, cpu against ref. Pass rule: BF16 results, so 4e-3 of the norm and one
 * rounding step (8e-3) of the largest; nothing but the rows' own slots of the
 * cache is written.
 */
#include "kernels/quant.h"
#include "tests/kernels/kx.h"

#define D KERN_HEAD_DIM

enum { N_SEQ = 2, MAX_PAGES = 3, N_PAGES = N_SEQ * MAX_PAGES };

struct shape {
    int n_head, n_kv, n_freq, pos_shift, first_page;
};

struct input {
    struct shape s;
    int32_t slot[KX_BATCH], seq[KX_BATCH]; /* slots within three pages */
    float *q, *k, *v;
    float freq[64];
};

static struct input input_make(const struct shape *s)
{
    struct input in = {.s = *s};
    size_t n_q = (size_t)KX_BATCH * (size_t)s->n_head * D;
    size_t n_k = (size_t)KX_BATCH * (size_t)s->n_kv * D;

    in.q = malloc(n_q * 4);
    in.k = malloc(n_k * 4);
    in.v = malloc(n_k * 4);
    assert_true(in.q && in.k && in.v);
    kt_fill_f32(in.q, n_q, 1);
    kt_fill_f32(in.k, n_k, 2);
    kt_fill_f32(in.v, n_k, 3);
    for (int i = 0; i < KX_BATCH; i++) {
        in.slot[i] = s->first_page * KERN_PAGE_TOK + i * 5 + 3;
        in.seq[i] = i % N_SEQ;
    }
    for (int i = 0; i < s->n_freq; i++) {
        in.freq[i] = powf(10000.0f, -(float)i / (float)s->n_freq);
    }
    return in;
}

static void input_finish(struct input *in)
{
    free(in->q);
    free(in->k);
    free(in->v);
}

/* q_out [n][n_head][D] and the whole cache. */
static void run(struct kt *t, const struct input *in, const int *row, int n,
                uint16_t *q_out, uint16_t *pages, size_t page_bytes)
{
    static const int32_t table[N_PAGES] = {3, 0, 4, 1, 5, 2};
    const struct shape *s = &in->s;
    int32_t first[N_SEQ] = {s->first_page, s->first_page}, low[N_SEQ] = {0};
    size_t q = (size_t)s->n_head * D, k = (size_t)s->n_kv * D;
    struct kern_qkv_args a = {.n_head = s->n_head,
                              .eps = 1e-5f,
                              .pos_shift = s->pos_shift,
                              .n_freq = s->n_freq};

    a.rows = kt_rows(t, n, n);
    a.at.slot = kx_put_rows(t, in->slot, 4, row, n);
    a.at.seq = kx_put_rows(t, in->seq, 4, row, n);
    a.at.table = kt_put(t, table, sizeof(table));
    a.at.first_page = kt_put(t, first, sizeof(first));
    a.at.low = kt_put(t, low, sizeof(low));
    a.at.n_seq = N_SEQ;
    a.at.max_pages = MAX_PAGES;
    a.kv.dtype = KERN_BF16;
    a.kv.n_pages = N_PAGES;
    a.kv.n_kv_head = s->n_kv;
    a.kv.bytes_per_token = k * 4;
    a.kv.page_bytes = page_bytes;
    a.kv.pages = kt_put(t, NULL, page_bytes * N_PAGES);
    a.freq = kt_put(t, in->freq, sizeof(float) * (size_t)s->n_freq);
    a.q_norm = kt_weight(t, KERN_BF16, 0, 1, D, 5);
    a.k_norm = kt_weight(t, KERN_F32, 0, 1, D, 6);
    a.q = kx_put_rows(t, in->q, q * 4, row, n);
    a.k = kx_put_rows(t, in->k, k * 4, row, n);
    a.v = kx_put_rows(t, in->v, k * 4, row, n);
    a.q_out = kt_put(t, NULL, q * 2 * (size_t)n);
    kt_ok(t, kern_qkv(t->k, &a));
    kt_get(t, q_out, a.q_out, q * 2 * (size_t)n);
    kt_get(t, pages, a.kv.pages, page_bytes * N_PAGES);
}

static void near_bf16(const char *name, const uint16_t *got,
                      const uint16_t *want, size_t n)
{
    float *g = malloc(n * 4), *w = malloc(n * 4);

    assert_true(g && w);
    for (size_t i = 0; i < n; i++) {
        g[i] = quant_bf16_to_f32(got[i]);
        w[i] = quant_bf16_to_f32(want[i]);
    }
    assert_tensor_near(name, g, w, n, 4e-3, 8e-3);
    free(g);
    free(w);
}

static void shapes(const struct kt_backend *b)
{
    /* pages far out: positions to 262,144 */
    static const struct shape list[] = {
        {4, 2, 32, 0, 0},    {6, 2, 64, 0, 1}, {3, 1, 64, -2, 7},
        {8, 8, 5, 0, 0},     {2, 2, 1, -1, 3}, {24, 2, 32, 0, 4092},
        {2, 1, 64, 0, 4092},
    };

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        const struct shape *s = &list[i];
        size_t n_q = (size_t)KX_BATCH * (size_t)s->n_head * D;
        size_t page = (size_t)s->n_kv * KERN_PAGE_TOK * D * 4;
        uint16_t *q[2] = {malloc(n_q * 2), malloc(n_q * 2)};
        uint16_t *kv[2] = {malloc(page * N_PAGES), malloc(page * N_PAGES)};
        struct input in = input_make(s);
        struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);
        int row[KX_BATCH];

        for (int r = 0; r < KX_BATCH; r++) {
            row[r] = r;
        }
        run(ref, &in, row, KX_BATCH, q[0], kv[0], page);
        run(t, &in, row, KX_BATCH, q[1], kv[1], page);
        near_bf16(t->name, q[1], q[0], n_q);
        near_bf16(t->name, kv[1], kv[0], page / 2 * N_PAGES);
        kt_close(t);
        kt_close(ref);
        input_finish(&in);
        for (int side = 0; side < 2; side++) {
            free(q[side]);
            free(kv[side]);
        }
    }
}

static void test_shapes_and_far_positions(void **state)
{
    (void)state;
    kx_each_path(shapes);
}

/* A row's result: its queries, then K and V as the cache holds them. */
static void run_rows(struct kt *t, const void *input, const int *row, int n,
                     uint8_t *out)
{
    static const int page_of[N_SEQ][MAX_PAGES] = {{3, 0, 4}, {1, 5, 2}};
    const struct input *in = input;
    size_t q = (size_t)in->s.n_head * D * 2;
    size_t page = (size_t)in->s.n_kv * KERN_PAGE_TOK * D * 4;
    uint16_t *q_out = malloc(q * (size_t)n), *kv = malloc(page * N_PAGES);

    assert_true(q_out && kv);
    run(t, in, row, n, q_out, kv, page);
    for (int i = 0; i < n; i++) {
        int slot = in->slot[row[i]], p = slot / KERN_PAGE_TOK;
        const uint8_t *at =
            (const uint8_t *)kv +
            page * (size_t)page_of[in->seq[row[i]]][p - in->s.first_page];

        memcpy(out, (uint8_t *)q_out + q * (size_t)i, q);
        out += q;
        for (int g = 0; g < 2 * in->s.n_kv; g++) {
            memcpy(out,
                   at + ((size_t)g * KERN_PAGE_TOK +
                         (size_t)(slot % KERN_PAGE_TOK)) *
                            D * 2,
                   D * 2);
            out += D * 2;
        }
    }
    free(q_out);
    free(kv);
}

static void promises(const struct kt_backend *b)
{
    struct input in = input_make(&(struct shape){6, 2, 64, -1, 4});

    kx_promises(b, run_rows, &in, (6 + 2 * 2) * D * 2);
    input_finish(&in);
}

static void test_a_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_and_far_positions),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
    };

    return test_main(tests, NULL, NULL);
}
