/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * exact = no of the CUDA backend: which products go to cuBLASLt, that exact
 * never loads it, and that without it all goes on. Runs over the emulator with
 * tests/cuemu/fake_lt.c in the library's place (tests/cuemu/test_exact.sh) or
 * on a device with the library itself, else skips.
 */
#include <dlfcn.h>
#include <errno.h>

#include "kernels/quant.h"
#include "tests/cuemu/fake_lt.h"
#include "tests/kernels/kt.h"

enum { ROWS = 200, FEW = 127, COLS = 96, OUTS = 40 };

/* The backend of the first schedule; the library may be the true one. */
static struct kt *open_one(bool inexact)
{
    if (kt_n_backends() == 0 || !kt_is_gpu(kt_backend(0))) {
        test_skip("REQUIRE_GPU", "KT_BACKEND names no GPU backend");
    }
    return inexact ? kt_open_inexact(kt_backend(0)) : kt_open(kt_backend(0));
}

/* The fake, as new; not loaded: loads it. */
static struct fake_lt *fake(void)
{
    void *so = dlopen(LT_SONAME, RTLD_NOW | RTLD_LOCAL);
    struct fake_lt *f = so != NULL ? dlsym(so, "fake_lt") : NULL;

    if (f == NULL) {
        test_skip(NULL, LT_SONAME " is not the fake");
    }
    assert_int_equal(f->live, 0); /* the last backend freed all */
    memset(f, 0, sizeof(*f));
    f->version = LT_OLDEST;
    return f;
}

struct result {
    float a[ROWS * OUTS], b[ROWS * (OUTS + 8)], packed[ROWS * OUTS];
};

/* Two BF16 weights, one of MXFP4, in one call on n rows, on top of ones. The
 * second has a wider pitch of its output. */
static int products(struct kt *t, int n, int x_stride, struct result *ret)
{
    static uint16_t x[ROWS * (COLS + 8)];
    static struct result ones;
    struct kern_linear_args a = {.cols = COLS, .n_parts = 3, .add = true};
    int r;

    for (size_t i = 0; i < sizeof(ones) / sizeof(float); i++) {
        ((float *)&ones)[i] = 1;
    }
    kt_fill_bf16(x, sizeof(x) / sizeof(*x), 5);
    a.rows = kt_rows(t, n, n);
    a.x = kt_put(t, x, sizeof(x));
    a.x_stride = x_stride;
    a.part[0].w = kt_weight(t, KERN_BF16, 0, OUTS, COLS, 8);
    a.part[1].w = kt_weight(t, KERN_BF16, 0, OUTS, COLS, 9);
    a.part[2].w = kt_weight(t, KERN_MXFP4, 0, OUTS, COLS, 10);
    a.part[0].out = kt_put(t, ones.a, sizeof(ones.a));
    a.part[1].out = kt_put(t, ones.b, sizeof(ones.b));
    a.part[2].out = kt_put(t, ones.packed, sizeof(ones.packed));
    a.part[0].out_stride = a.part[2].out_stride = OUTS;
    a.part[1].out_stride = OUTS + 8;
    r = kern_linear(t->k, &a);
    if (r < 0) {
        return r;
    }
    kt_get(t, ret->a, a.part[0].out, sizeof(ret->a));
    kt_get(t, ret->b, a.part[1].out, sizeof(ret->b));
    kt_get(t, ret->packed, a.part[2].out, sizeof(ret->packed));
    return 0;
}

static struct result exact, got;

static void run(bool inexact, int n, int x_stride, struct result *ret)
{
    struct kt *t = open_one(inexact);

    kt_ok(t, products(t, n, x_stride, ret));
    kt_close(t);
}

static void close_to(const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(fabsf(x[i] - y[i]) <= 1e-4f * (1 + fabsf(y[i])));
    }
}

/* The first test: nothing has loaded the library yet. */
static void test_exact_never_loads_it(void **state)
{
    (void)state;
    run(false, ROWS, COLS, &exact);
    assert_null(dlopen(LT_SONAME, RTLD_NOW | RTLD_NOLOAD));
}

static void test_dense_products_of_many_rows_are_the_library_s(void **state)
{
    struct kt *t = open_one(true);
    struct fake_lt *f;

    (void)state;
    if (t->k->note[0] != '\0') {
        char note[sizeof(t->k->note)];

        memcpy(note, t->k->note, sizeof(note));
        kt_close(t);
        test_skip(NULL, "%s", note);
    }
    kt_ok(t, products(t, ROWS, COLS, &got));
    close_to(got.a, exact.a, ROWS * OUTS);
    close_to(got.b, exact.b, ROWS * (OUTS + 8));
    assert_memory_equal(got.packed, exact.packed, sizeof(got.packed));
    kt_close(t);

    f = fake();
    run(true, ROWS, COLS, &got);
    assert_int_equal(f->products, 2);
    assert_memory_not_equal(got.a, exact.a, sizeof(got.a));
    assert_memory_equal(got.packed, exact.packed, sizeof(got.packed));
    run(false, ROWS, COLS, &got);
    assert_int_equal(f->products, 2);
    assert_memory_equal(&got, &exact, sizeof(got));
}

/* Few rows, and rows that lie where the library would not take them: own
 * kernels, to the bit. */
static void test_the_rest_stays_exact(void **state)
{
    struct fake_lt *f = fake();

    (void)state;
    for (int i = 0; i < 2; i++) {
        int n = i == 0 ? FEW : ROWS, stride = i == 0 ? COLS : COLS + 4;

        run(false, n, stride, &exact);
        run(true, n, stride, &got);
        assert_memory_equal(&got, &exact, sizeof(got));
    }
    assert_int_equal(f->products, 0);
}

/* Each way in which it is not to be had is said, and changes nothing else. */
static void test_without_it_own_kernels_compute(void **state)
{
    static const char *const says[] = {"is version 120900, 130000 is needed",
                                       "status 1", NULL};
    struct fake_lt *f = fake();

    (void)state;
    run(false, ROWS, COLS, &exact);
    for (int i = 0; i < 3; i++) {
        struct kt *t;

        f->version = i == 0 ? 120900 : LT_OLDEST;
        f->no_device = i == 1;
        f->nothing = i == 2;
        t = open_one(true);
        if (says[i] != NULL) {
            assert_non_null(strstr(t->k->note, "exact = no: own kernels"));
            assert_non_null(strstr(t->k->note, says[i]));
        } else {
            assert_string_equal(t->k->note, "");
        }
        kt_ok(t, products(t, ROWS, COLS, &got));
        assert_memory_equal(&got, &exact, sizeof(got));
        kt_close(t);
        assert_int_equal(f->live, 0);
    }
    assert_int_equal(f->products, 0);
}

static void test_a_product_that_fails_is_an_error(void **state)
{
    struct fake_lt *f = fake();
    struct kt *t = open_one(true);

    (void)state;
    f->fails = true;
    assert_int_equal(products(t, ROWS, COLS, &got), -EIO);
    assert_string_equal(kern_error(t->k), "cublasLtMatmul: status 13");
    kt_close(t);
}

/* More shapes than are kept, each twice; then one as part of a graph. */
static void test_shapes_and_graphs(void **state)
{
    enum { SHAPES = 140 };
    struct fake_lt *f = fake();
    struct kt *t = open_one(true);
    struct kern_linear_args a = {.cols = 32, .x_stride = 32, .n_parts = 1};
    static uint16_t x[(128 + SHAPES) * 32];
    static float first[(128 + SHAPES) * 8], out[(128 + SHAPES) * 8];

    (void)state;
    kt_fill_bf16(x, sizeof(x) / sizeof(*x), 6);
    a.x = kt_put(t, x, sizeof(x));
    a.part[0].w = kt_weight(t, KERN_BF16, 0, 8, 32, 12);
    a.part[0].out = kt_put(t, NULL, sizeof(out));
    a.part[0].out_stride = 8;
    for (int i = 0; i < 2 * SHAPES; i++) {
        a.rows = kt_rows(t, 128 + i / 2, 128 + i / 2);
        kt_ok(t, kern_linear(t->k, &a));
    }
    assert_int_equal(f->choices, SHAPES);
    assert_int_equal(f->products, 2 * SHAPES);
    kt_get(t, first, a.part[0].out, sizeof(first));
    for (int i = 0; i < 5; i++) {
        kt_ok(t, kern_begin(t->k, 99));
        kt_ok(t, kern_fill(t->k, a.part[0].out, 0xff, sizeof(out)));
        kt_ok(t, kern_linear(t->k, &a));
        kt_ok(t, kern_end(t->k));
        kt_get(t, out, a.part[0].out, sizeof(out));
        assert_memory_equal(out, first, sizeof(float) * 8 * (127 + SHAPES));
    }
    assert_true(t->k->stats.graph_launches >= 4);
    assert_int_equal(f->choices, SHAPES);
    kt_close(t);
    assert_int_equal(f->live, 0);
}

enum { N_ROWS = 128, N_COLS = 32, N_OUTS = 8 };

struct change {
    struct kern_linear_args a;
    struct kern_ptr out[2];
};

/* One step: both outputs anew, and the product. */
static void change_step(struct kt *t, uint64_t key, const struct change *c,
                        float (*ret)[N_ROWS * N_OUTS])
{
    kt_ok(t, kern_begin(t->k, key));
    for (int i = 0; i < 2; i++) {
        kt_ok(t, kern_fill(t->k, c->out[i], 0x3c, sizeof(*ret)));
    }
    kt_ok(t, kern_linear(t->k, &c->a));
    kt_ok(t, kern_end(t->k));
    for (int i = 0; i < 2; i++) {
        kt_get(t, ret[i], c->out[i], sizeof(*ret));
    }
}

/* A step of a shape that is a graph already, with one argument of its product
 * changed: other rows of x, another weight, another output, on top of what is
 * there. It must be what such a step is without graphs. */
static void test_new_arguments_are_no_replay(void **state)
{
    static uint16_t x[2 * N_ROWS * N_COLS];
    static float want[2][N_ROWS * N_OUTS], now[2][N_ROWS * N_OUTS],
        base[2][N_ROWS * N_OUTS];
    struct fake_lt *f = fake();
    struct kt *t = open_one(true);
    struct change c[5];

    (void)state;
    memset(c, 0, sizeof(c));
    kt_fill_bf16(x, sizeof(x) / sizeof(*x), 6);
    c[0].a = (struct kern_linear_args){.rows = kt_rows(t, N_ROWS, N_ROWS),
                                       .cols = N_COLS,
                                       .x = kt_put(t, x, sizeof(x)),
                                       .x_stride = N_COLS,
                                       .n_parts = 1};
    c[0].out[0] = kt_put(t, NULL, sizeof(*want));
    c[0].out[1] = kt_put(t, NULL, sizeof(*want));
    c[0].a.part[0].w = kt_weight(t, KERN_BF16, 0, N_OUTS, N_COLS, 12);
    c[0].a.part[0].out = c[0].out[0];
    c[0].a.part[0].out_stride = N_OUTS;
    for (int i = 1; i < 5; i++) {
        c[i] = c[0];
    }
    c[1].a.x.off += sizeof(x) / 2;
    c[2].a.part[0].w = kt_weight(t, KERN_BF16, 0, N_OUTS, N_COLS, 13);
    c[3].a.part[0].out = c[0].out[1];
    c[4].a.add = true;
    change_step(t, 0, &c[0], base);
    for (int i = 1; i < 5; i++) {
        uint64_t eager;

        change_step(t, 0, &c[i], want);
        assert_memory_not_equal(want, base, sizeof(want));
        for (int j = 0; j < 3; j++) {
            change_step(t, (uint64_t)i, &c[0], now);
        }
        eager = t->k->stats.launches;
        change_step(t, (uint64_t)i, &c[0], now);
        assert_int_equal(t->k->stats.launches, eager); /* a replay */
        assert_memory_equal(now, base, sizeof(base));
        change_step(t, (uint64_t)i, &c[i], now);
        assert_memory_equal(now, want, sizeof(want));
        assert_true(t->k->stats.launches > eager);
    }
    assert_true(f->products > 0);
    kt_close(t);
    assert_int_equal(f->live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_never_loads_it),
        cmocka_unit_test(test_dense_products_of_many_rows_are_the_library_s),
        cmocka_unit_test(test_the_rest_stays_exact),
        cmocka_unit_test(test_without_it_own_kernels_compute),
        cmocka_unit_test(test_a_product_that_fails_is_an_error),
        cmocka_unit_test(test_shapes_and_graphs),
        cmocka_unit_test(test_new_arguments_are_no_replay),
    };

    return test_main(tests, NULL, NULL);
}
