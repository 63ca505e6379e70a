/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Several devices of the CUDA backend: NCCL is loaded for them and never else,
 * the ops that need whole rows join them, exact in rank order. Runs over the
 * emulator with tests/cuemu/fake_nccl.c in the library's place (test_ops.sh),
 * else skips. What is said where the library is none: test_plugin.sh.
 */
#include <dlfcn.h>
#include <errno.h>

#include "tests/cuemu/fake_nccl.h"
#include "tests/kernels/kt.h"

/* W: 17 columns of each of 3 ranks, 16 of the last one. */
enum { N_ROWS = 4, LIVE = 3, W = 50, PART = 17, RANKS = 3 };

static const struct kt_backend *emulated(void)
{
    if (kt_n_backends() == 0 ||
        strcmp(kt_backend(0)->name, "cuda-emulated") != 0) {
        test_skip(NULL, "the emulator alone has a second device");
    }
    return kt_backend(0);
}

/* The fake, as new: what ranks hold is such that sums depend on their order. */
static struct fake_nccl *fake(void)
{
    void *so = dlopen(NCCL_SONAME, RTLD_NOW | RTLD_LOCAL);
    struct fake_nccl *f = so != NULL ? dlsym(so, "fake_nccl") : NULL;

    if (f == NULL) {
        test_skip(NULL, NCCL_SONAME " is not the fake");
    }
    assert_int_equal(f->live, 0); /* the last backend closed its own */
    memset(f, 0, sizeof(*f));
    f->version = NCCL_OLDEST;
    f->scale[0] = 3.7f;
    f->scale[1] = 1.3e3f;
    f->scale[2] = -1.2e3f;
    return f;
}

static struct kt *open_rank(const struct kt_backend *b, int rank, bool exact)
{
    char ranks[16];
    struct kt *t;

    snprintf(ranks, sizeof(ranks), "%d/%d", rank, RANKS);
    setenv("STEPD_CUEMU_RANKS", ranks, 1);
    t = exact ? kt_open(b) : kt_open_inexact(b);
    unsetenv("STEPD_CUEMU_RANKS");
    return t;
}

/* The first test: nothing has loaded the library yet. */
static void test_one_device_never_loads_it(void **state)
{
    struct kt *t;

    (void)state;
    emulated();
    t = kt_open(kt_backend(0));
    kt_close(t);
    t = kt_open_inexact(kt_backend(0));
    kt_close(t);
    assert_null(dlopen(NCCL_SONAME, RTLD_NOW | RTLD_NOLOAD));
}

static struct in {
    float x[N_ROWS * W], delta[N_ROWS * W], logits[N_ROWS * W];
} in;

struct step {
    struct kern_norm_args norm;
    struct kern_sample_args draw;
};

static struct step step_of(struct kt *t)
{
    struct kern_sample_row row[N_ROWS] = {{0}};
    int32_t pos[N_ROWS] = {1, 2, 3, 4};
    struct step s = {.norm = {.width = W, .eps = 1e-5f},
                     .draw = {.vocab = W, .stride = W}};

    kt_fill_f32(in.x, N_ROWS * W, 2);
    kt_fill_f32(in.delta, N_ROWS * W, 3);
    kt_fill_f32(in.logits, N_ROWS * W, 4);
    for (int r = 0; r < N_ROWS; r++) {
        row[r].n_top = -1;
        row[r].mask = row[r].given = -1;
    }
    s.norm.rows = s.draw.rows = kt_rows(t, LIVE, N_ROWS);
    s.norm.x = kt_put(t, NULL, sizeof(in.x));
    s.norm.delta = kt_put(t, NULL, sizeof(in.delta));
    s.draw.logits = kt_put(t, NULL, sizeof(in.logits));
    s.draw.params = kt_put(t, row, sizeof(row));
    s.draw.pos = kt_put(t, pos, sizeof(pos));
    s.draw.out =
        kt_put(t, NULL, sizeof(struct kern_sample_out) * (size_t)N_ROWS);
    return s;
}

/* What of them it made: x, whole rows of logits. Its end's result. */
static int run(struct kt *t, const struct step *s, uint64_t key, struct in *ret)
{
    int r;

    kt_ok(t, kern_upload(t->k, s->norm.x, in.x, sizeof(in.x)));
    kt_ok(t, kern_upload(t->k, s->norm.delta, in.delta, sizeof(in.delta)));
    kt_ok(t, kern_upload(t->k, s->draw.logits, in.logits, sizeof(in.logits)));
    kt_ok(t, kern_begin(t->k, key));
    r = kern_norm(t->k, &s->norm);
    r = r < 0 ? r : kern_sample(t->k, &s->draw);
    if (r < 0) {
        return r;
    }
    r = kern_end(t->k);
    if (r == 0) {
        kt_get(t, ret->x, s->norm.x, sizeof(ret->x));
        kt_get(t, ret->logits, s->draw.logits, sizeof(ret->logits));
    }
    return r;
}

static float held_by(const struct fake_nccl *f, int rank, float own)
{
    return rank == f->rank ? own : own * f->scale[rank];
}

static float sum_in_order(const struct fake_nccl *f, float own, bool ascending)
{
    float sum = held_by(f, ascending ? 0 : RANKS - 1, own);

    for (int i = 1; i < RANKS; i++) {
        sum += held_by(f, ascending ? i : RANKS - 1 - i, own);
    }
    return sum;
}

/* Live rows alone are looked at. */
static void check_sums(const struct fake_nccl *f, const struct in *got,
                       bool ascending)
{
    int differ = 0;

    for (int i = 0; i < LIVE * W; i++) {
        float want = in.x[i] + sum_in_order(f, in.delta[i], ascending);

        assert_memory_equal(&got->x[i], &want, sizeof(want));
        differ += want != in.x[i] + sum_in_order(f, in.delta[i], !ascending);
    }
    assert_true(differ > 0); /* the orders can be told apart */
}

static void check_rows(const struct fake_nccl *f, const struct in *got)
{
    for (int i = 0; i < LIVE * W; i++) {
        int rank = i % W / PART;
        int col = f->rank * PART + i % W % PART; /* of the caller's part */
        float own = col < W ? in.logits[i / W * W + col] : 0;
        float want = held_by(f, rank, own);

        assert_memory_equal(&got->logits[i], &want, sizeof(want));
    }
}

/* Of every rank; from the third step on in a graph. */
static void test_rows_are_joined_in_rank_order(void **state)
{
    const struct kt_backend *b = emulated();

    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        struct fake_nccl *f = fake();
        struct kt *t = open_rank(b, rank, true);
        struct step s = step_of(t);
        struct in got;

        assert_int_equal(f->n, RANKS);
        assert_int_equal(f->rank, rank);
        assert_string_equal(f->id.bytes,
                            rank == 0 ? "the fake's" : "the emulator's");
        for (int i = 0; i < 4; i++) {
            kt_ok(t, run(t, &s, 5, &got));
            check_sums(f, &got, true);
            check_rows(f, &got);
        }
        assert_true(t->k->stats.graph_launches >= 8);
        assert_int_equal(f->n_log, 8);
        for (int i = 0; i < 8; i++) {
            assert_false(f->log[i].sum);
            assert_int_equal(f->log[i].count, N_ROWS * (i % 2 ? PART : W));
        }
        kt_close(t);
        assert_int_equal(f->live, 0);
    }
}

/* exact = no: sums are the library's, in whatever order. */
static void test_inexact_sums_are_the_library_s(void **state)
{
    const struct kt_backend *b = emulated();
    struct fake_nccl *f = fake();
    struct kt *t = open_rank(b, 1, false);
    struct step s = step_of(t);
    struct in got;

    (void)state;
    for (int i = 0; i < 4; i++) {
        kt_ok(t, run(t, &s, 5, &got));
        check_sums(f, &got, false);
        check_rows(f, &got);
    }
    assert_int_equal(f->n_log, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(f->log[i].sum, i % 2 == 0);
        assert_int_equal(f->log[i].count, N_ROWS * (i % 2 ? PART : W));
    }
    kt_close(t);
    assert_int_equal(f->live, 0);
}

/* Several devices that cannot talk do not open, and say why. */
static void test_what_stops_an_opening_is_said(void **state)
{
    static const struct {
        int version;
        const char *fails, *says;
    } cases[] = {
        {22709, NULL, "libnccl.so.2 is version 22709, 22800 is needed"},
        {NCCL_OLDEST, "ncclGetVersion", "ncclGetVersion: it was told to fail"},
        {NCCL_OLDEST, "ncclGetUniqueId",
         "ncclGetUniqueId: it was told to fail"},
        {NCCL_OLDEST, "ncclCommInitRank",
         "ncclCommInitRank: it was told to fail"},
    };
    const struct kt_backend *b = emulated();
    struct fake_nccl *f = fake();

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char why[256] = "";
        struct kern_open_args a = {
            .exact = true, .why = why, .why_n = sizeof(why)};
        struct kern *k;

        f->version = cases[i].version;
        f->fails = cases[i].fails;
        setenv("STEPD_CUEMU_RANKS", "0/2", 1);
        assert_true(kern_open_named(b->name, &a, &k) < 0);
        unsetenv("STEPD_CUEMU_RANKS");
        assert_non_null(strstr(why, cases[i].says));
        assert_int_equal(f->live, 0);
    }
}

/* One that fails as it is queued fails the op; one that fails later, the end.
 */
static void test_a_collective_that_fails_is_an_error(void **state)
{
    static const struct {
        bool exact;
        const char *fails, *says;
    } cases[] = {
        {true, "ncclAllGather", "ncclAllGather: it was told to fail"},
        {false, "ncclAllReduce", "ncclAllReduce: it was told to fail"},
        {true, NULL, "NCCL: another rank failed"},
    };
    const struct kt_backend *b = emulated();
    struct fake_nccl *f = fake();

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kt *t = open_rank(b, 0, cases[i].exact);
        struct step s = step_of(t);
        struct in got;

        kt_ok(t, run(t, &s, 0, &got));
        f->fails = cases[i].fails;
        f->late = f->fails == NULL;
        assert_int_equal(run(t, &s, 0, &got), -EIO);
        assert_string_equal(kern_error(t->k), cases[i].says);
        f->fails = NULL;
        kt_close(t);
        assert_int_equal(f->live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device_never_loads_it),
        cmocka_unit_test(test_rows_are_joined_in_rank_order),
        cmocka_unit_test(test_inexact_sums_are_the_library_s),
        cmocka_unit_test(test_what_stops_an_opening_is_said),
        cmocka_unit_test(test_a_collective_that_fails_is_an_error),
    };

    return test_main(tests, NULL, NULL);
}
