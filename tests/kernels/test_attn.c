/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * attn, cpu against ref. Pass rule: BF16 results, so 4e-3 of the norm and one
 * rounding step (8e-3) of the largest.
 *
 * The cache of a test holds NaN wherever no slot was written: what a mask hides
 * must not show.
 */
#include "kernels/quant.h"
#include "tests/kernels/kx.h"

#define D KERN_HEAD_DIM

enum { N_SEQ = 3, MAX_PAGES = 6, N_PAGES = N_SEQ * MAX_PAGES };

struct shape {
    int n_head, n_kv, window;
    bool gate;
};

struct input {
    struct shape s;
    int n;
    const int32_t *slot, *seq; /* [n] */
    uint16_t *q;               /* [n][n_head][D] */
    float *gate;               /* [n][n_head] */
    uint16_t *pages;           /* [N_PAGES] K and V */
    int32_t table[N_PAGES], first_page[N_SEQ], low[N_SEQ];
};

static size_t page_elements(const struct input *in)
{
    return (size_t)in->s.n_kv * KERN_PAGE_TOK * D * 2;
}

/* Writes what rows of the sequences may look at, and nothing else: slots low ..
 * the newest. Page ids are scattered; sequence 1's table starts late. */
static void fill_cache(struct input *in, const int32_t *newest)
{
    size_t n = page_elements(in);
    uint64_t seed = 77;

    in->pages = malloc(sizeof(*in->pages) * n * N_PAGES);
    assert_non_null(in->pages);
    memset(in->pages, 0xff, sizeof(*in->pages) * n * N_PAGES);
    for (int s = 0; s < N_SEQ; s++) {
        in->first_page[s] = s == 1 ? 1 : 0;
        in->low[s] = s == 1 ? 70 : s == 2 ? 3 : 0;
        for (int c = 0; c < MAX_PAGES; c++) {
            in->table[s * MAX_PAGES + c] = (c * N_SEQ + s) * 5 % N_PAGES;
        }
        for (int u = in->low[s]; u <= newest[s]; u++) {
            int col = u / KERN_PAGE_TOK - in->first_page[s];
            uint16_t *page =
                in->pages + n * (size_t)in->table[s * MAX_PAGES + col];

            for (int g = 0; g < 2 * in->s.n_kv; g++) {
                kt_fill_bf16(page + ((size_t)g * KERN_PAGE_TOK +
                                     (size_t)(u % KERN_PAGE_TOK)) *
                                        D,
                             D, kt_random(&seed));
            }
        }
    }
}

static struct input input_make(const struct shape *s, int n,
                               const int32_t *slot, const int32_t *seq)
{
    struct input in = {.s = *s, .n = n, .slot = slot, .seq = seq};
    int32_t newest[N_SEQ] = {-1, -1, -1};
    size_t n_q = (size_t)n * (size_t)s->n_head;

    for (int i = 0; i < n; i++) {
        if (slot[i] > newest[seq[i]]) {
            newest[seq[i]] = slot[i];
        }
    }
    fill_cache(&in, newest);
    in.q = malloc(sizeof(*in.q) * n_q * D);
    in.gate = malloc(sizeof(*in.gate) * n_q);
    assert_non_null(in.q);
    assert_non_null(in.gate);
    kt_fill_bf16(in.q, n_q * D, 78);
    for (size_t i = 0; i < n_q * D; i++) { /* sharper than uniform weights */
        in.q[i] = quant_f32_to_bf16(quant_bf16_to_f32(in.q[i]) * 6);
    }
    kt_fill_f32(in.gate, n_q, 79);
    return in;
}

static void input_finish(struct input *in)
{
    free(in->q);
    free(in->gate);
    free(in->pages);
}

static void run_attn(struct kt *t, const void *input, const int *row, int n,
                     uint8_t *out)
{
    const struct input *in = input;
    size_t head = (size_t)in->s.n_head * D;
    struct kern_attn_args a = {.n_head = in->s.n_head, .window = in->s.window};

    a.rows = kt_rows(t, n, n);
    a.at.slot = kx_put_rows(t, in->slot, 4, row, n);
    a.at.seq = kx_put_rows(t, in->seq, 4, row, n);
    a.at.table = kt_put(t, in->table, sizeof(in->table));
    a.at.first_page = kt_put(t, in->first_page, sizeof(in->first_page));
    a.at.low = kt_put(t, in->low, sizeof(in->low));
    a.at.n_seq = N_SEQ;
    a.at.max_pages = MAX_PAGES;
    a.kv.dtype = KERN_BF16;
    a.kv.n_pages = N_PAGES;
    a.kv.n_kv_head = in->s.n_kv;
    a.kv.bytes_per_token = (size_t)in->s.n_kv * D * 4;
    a.kv.page_bytes = page_elements(in) * 2;
    a.kv.pages = kt_put(t, in->pages, a.kv.page_bytes * N_PAGES);
    a.q = kx_put_rows(t, in->q, head * 2, row, n);
    if (in->s.gate) {
        a.gate = kx_put_rows(t, in->gate, (size_t)in->s.n_head * 4, row, n);
    }
    a.out = kt_put(t, NULL, head * 2 * (size_t)n);
    kt_ok(t, kern_attn(t->k, &a));
    kt_get(t, out, a.out, head * 2 * (size_t)n);
}

static void check(const struct kt_backend *b, const struct shape *s, int n,
                  const int32_t *slot, const int32_t *seq)
{
    struct input in = input_make(s, n, slot, seq);
    size_t n_out = (size_t)n * (size_t)s->n_head * D;
    uint16_t *bits = malloc(sizeof(*bits) * n_out);
    float *want = malloc(sizeof(*want) * n_out);
    float *got = malloc(sizeof(*got) * n_out);
    int row[512];
    struct kt *ref = kt_open(&kt_ref), *t = kt_open(b);

    for (int i = 0; i < n; i++) {
        row[i] = i;
    }
    for (int side = 0; side < 2; side++) {
        run_attn(side == 0 ? ref : t, &in, row, n, (uint8_t *)bits);
        for (size_t i = 0; i < n_out; i++) {
            (side == 0 ? want : got)[i] = quant_bf16_to_f32(bits[i]);
        }
    }
    assert_tensor_near(t->name, got, want, n_out, 4e-3, 8e-3);
    kt_close(t);
    kt_close(ref);
    input_finish(&in);
    free(bits);
    free(want);
    free(got);
}

/* Decode, verify and prefill rows of three sequences, at page borders. */
static const int32_t mixed_slot[KX_BATCH] = {
    0,   200, 201, 202, 63,  64,  65,  70,  71,  127, 128,
    129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 5,
    6,   191, 192, 193, 255, 256, 300, 319, 3,   4,   190};
static const int32_t mixed_seq[KX_BATCH] = {0, 0, 0, 0, 2, 2, 2, 1, 1, 1, 1,
                                            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2,
                                            2, 0, 0, 0, 2, 2, 1, 1, 2, 2, 0};

static void mixed(const struct kt_backend *b)
{
    static const struct shape shapes[] = {
        {4, 2, 0, true},    {6, 2, 16, true},  {8, 1, 64, false},
        {3, 3, 1, true},    {24, 2, 65, true}, {5, 1, 0, true},
        {2, 1, 127, false},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check(b, &shapes[i], KX_BATCH, mixed_slot, mixed_seq);
    }
}

static void test_rows_of_many_sequences(void **state)
{
    (void)state;
    kx_each_path(mixed);
}

/* A whole prompt at once. */
static void prefill(const struct kt_backend *b)
{
    int32_t slot[200], seq[200];

    for (int i = 0; i < 200; i++) {
        slot[i] = i;
        seq[i] = 0;
    }
    for (int n = 1; n <= 200; n += n == 1 ? 63 : n == 64 ? 1 : 45) {
        check(b, &(struct shape){4, 2, 0, true}, n, slot, seq);
        check(b, &(struct shape){6, 2, 16, true}, n, slot, seq);
    }
}

static void test_prefill(void **state)
{
    (void)state;
    kx_each_path(prefill);
}

static void promises(const struct kt_backend *b)
{
    static const struct shape shapes[] = {
        {4, 2, 0, true}, {6, 2, 16, true}, {16, 2, 100, true}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct input in =
            input_make(&shapes[i], KX_BATCH, mixed_slot, mixed_seq);

        kx_promises(b, run_attn, &in,
                    sizeof(uint16_t) * (size_t)shapes[i].n_head * D);
        input_finish(&in);
    }
}

static void test_a_row_does_not_see_its_neighbours(void **state)
{
    (void)state;
    kx_each_path(promises);
}

/* A sliding layer reads its window, not the sequence. */
static void bytes_read(const struct kt_backend *b)
{
    static const int32_t slot[1] = {300}, seq[1] = {0};
    static const int row[1] = {0};
    struct shape s = {4, 2, 0, false};
    uint16_t out[4 * D];

    for (int pass = 0; pass < 2; pass++) {
        struct input in;
        struct kt *t = kt_open(b);

        s.window = pass == 0 ? 0 : 16;
        in = input_make(&s, 1, slot, seq);
        run_attn(t, &in, row, 1, (uint8_t *)out);
        assert_int_equal(t->k->stats.kv_bytes,
                         (pass == 0 ? 301 : 16) * 2 * D * 4);
        kt_close(t);
        input_finish(&in);
    }
}

static void test_only_the_window_is_read(void **state)
{
    (void)state;
    kx_each_path(bytes_read);
}

/* A table without the page that a row needs is an error and not an answer. */
static void page_missing(const struct kt_backend *b)
{
    static const int32_t slot[1] = {100}, seq[1] = {0};
    struct shape s = {2, 1, 0, false};
    struct input in = input_make(&s, 1, slot, seq);
    struct kt *t = kt_open(b);
    struct kern_attn_args a = {.n_head = 2};
    int r;

    in.table[1] = -1;
    a.rows = kt_rows(t, 1, 1);
    a.at.slot = kt_put(t, slot, sizeof(slot));
    a.at.seq = kt_put(t, seq, sizeof(seq));
    a.at.table = kt_put(t, in.table, sizeof(in.table));
    a.at.first_page = kt_put(t, in.first_page, sizeof(in.first_page));
    a.at.low = kt_put(t, in.low, sizeof(in.low));
    a.at.n_seq = N_SEQ;
    a.at.max_pages = MAX_PAGES;
    a.kv.dtype = KERN_BF16;
    a.kv.n_pages = N_PAGES;
    a.kv.n_kv_head = 1;
    a.kv.bytes_per_token = D * 4;
    a.kv.page_bytes = page_elements(&in) * 2;
    a.kv.pages = kt_put(t, in.pages, a.kv.page_bytes * N_PAGES);
    a.q = kt_put(t, in.q, sizeof(uint16_t) * 2 * D);
    a.out = kt_put(t, NULL, sizeof(uint16_t) * 2 * D);
    r = kern_attn(t->k, &a);
    /* what only the device can see comes with the next wait */
    assert_int_equal(r < 0 ? r : kern_end(t->k), -5 /* -EIO */);
    assert_non_null(strstr(kern_error(t->k), "page 1"));
    kt_close(t);
    input_finish(&in);
}

static void test_a_missing_page_is_an_error(void **state)
{
    (void)state;
    kx_each_path(page_missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_many_sequences),
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
        cmocka_unit_test(test_only_the_window_is_read),
        cmocka_unit_test(test_a_missing_page_is_an_error),
    };

    return test_main(tests, NULL, NULL);
}
