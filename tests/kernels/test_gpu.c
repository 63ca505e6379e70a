/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the CUDA backend has and the others lack: attention cut into splits,
 * equal to the bit whether splits are blocks or not; steps recorded as graphs
 * and replayed; a budget of device memory; escapes of compact weights that are
 * sorted on the host. Runs with KT_BACKEND=cuda-emulated or cuda
 * (tests/cuemu/test_ops.sh), else skips.
 */
#include <dlfcn.h>
#include <errno.h>

#include "kernels/compact.h"
#include "kernels/quant.h"
#include "tests/cuemu/cuemu_load.h"
#include "tests/kernels/kx.h"

#define D KERN_HEAD_DIM

static void each(void (*fn)(const struct kt_backend *b))
{
    int n = 0;

    for (int i = 0; i < kt_n_backends(); i++) {
        if (kt_is_gpu(kt_backend(i))) {
            fn(kt_backend(i));
            n++;
        }
    }
    if (n == 0) {
        test_skip("REQUIRE_GPU", "KT_BACKEND names no GPU backend, or it does "
                                 "not open");
    }
}

/* ---- attention over several splits ---- */

enum { PAGES = 21, LEN = 1300, HEADS = 6, KV = 2 };

/* Row i is slot LEN - n + i of the one sequence, whose table begins at page
 * `first`. */
static void attend(struct kt *t, int n, int window, int first, uint16_t *out)
{
    size_t page = (size_t)KV * KERN_PAGE_TOK * D * 2, n_q = (size_t)n * HEADS;
    uint16_t *pages = malloc(page * 2 * PAGES);
    uint16_t *q = malloc((size_t)LEN * HEADS * D * 2);
    int32_t *slot = malloc(sizeof(*slot) * (size_t)n * 2), table[PAGES];
    int32_t low = first * KERN_PAGE_TOK;
    struct kern_attn_args a = {.n_head = HEADS, .window = window};

    kt_fill_bf16(pages, page * PAGES, 3);
    /* what nobody has written yet */
    for (int s = LEN % KERN_PAGE_TOK; s < KERN_PAGE_TOK; s++) {
        for (int h = 0; h < 2 * KV; h++) {
            memset(pages + page * 20 + (size_t)(h * KERN_PAGE_TOK + s) * D,
                   0xff, D * 2);
        }
    }
    kt_fill_bf16(q, (size_t)LEN * HEADS * D, 4);
    for (int i = 0; i < n; i++) {
        slot[i] = LEN - n + i;
        slot[n + i] = 0;
    }
    for (int i = 0; i < PAGES; i++) {
        table[i] = i + first < PAGES ? i + first : -1;
    }
    a.rows = kt_rows(t, n, n);
    a.at.slot = kt_put(t, slot, sizeof(*slot) * (size_t)n);
    a.at.seq = kt_put(t, slot + n, sizeof(*slot) * (size_t)n);
    a.at.table = kt_put(t, table, sizeof(table));
    a.at.first_page = kt_put(t, &first, sizeof(first));
    a.at.low = kt_put(t, &low, sizeof(low));
    a.at.n_seq = 1;
    a.at.max_pages = PAGES;
    a.kv.dtype = KERN_BF16;
    a.kv.n_pages = PAGES;
    a.kv.n_kv_head = KV;
    a.kv.bytes_per_token = (size_t)KV * D * 4;
    a.kv.page_bytes = page * 2;
    a.kv.pages = kt_put(t, pages, page * 2 * PAGES);
    a.q = kt_put(t, q + (size_t)(LEN - n) * HEADS * D, n_q * D * 2);
    a.out = kt_put(t, NULL, n_q * D * 2);
    kt_ok(t, kern_attn(t->k, &a));
    /* again: counters between blocks must be as they were */
    kt_ok(t, kern_fill(t->k, a.out, 0xff, n_q * D * 2));
    kt_ok(t, kern_attn(t->k, &a));
    kt_get(t, out, a.out, n_q * D * 2);
    free(pages);
    free(q);
    free(slot);
}

static void splits(const struct kt_backend *b)
{
    static const struct {
        int window, first;
    } cases[] = {{0, 0}, {600, 5}, {0, 7}};
    enum { MANY = 70, ONE = HEADS * D };
    static uint16_t few[3 * ONE], many[MANY * ONE], want[3 * ONE];
    float x[3 * ONE], g[3 * ONE];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kt *t = kt_open(b), *ref = kt_open(&kt_ref);

        attend(t, 3, cases[i].window, cases[i].first, few);
        attend(t, MANY, cases[i].window, cases[i].first, many);
        attend(ref, 3, cases[i].window, cases[i].first, want);
        for (int j = 0; j < 3 * ONE; j++) {
            x[j] = quant_bf16_to_f32(few[j]);
            g[j] = quant_bf16_to_f32(want[j]);
        }
        assert_tensor_near(t->name, x, g, 3 * ONE, 4e-3, 1e-2);
        kx_same("few rows and many", (const uint8_t *)few,
                (const uint8_t *)(many + (MANY - 3) * ONE), sizeof(few));
        kt_close(t);
        kt_close(ref);
    }
}

static void test_splits_add_as_one_block_does(void **state)
{
    (void)state;
    each(splits);
}

/* ---- steps ---- */

static bool is_emulated(const struct kt_backend *b)
{
    return strcmp(b->name, "cuda-emulated") == 0;
}

/* What the emulator counts; zeros where nobody does. */
static struct cuemu_load counted(const struct kt_backend *b)
{
    const char *dir = getenv("STEPD_PLUGIN_DIR");
    struct cuemu_load l = {0};
    char so[600];
    void *lib;

    if (!is_emulated(b)) {
        return l;
    }
    snprintf(so, sizeof(so), "%s/stepd-cuda-emulated.so", dir);
    lib = dlopen(so, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    l = *((cuemu_load_stats_fn *)dlsym(lib, "cuemu_load_stats"))();
    dlclose(lib);
    return l;
}

static uint64_t n_captured(const struct kt_backend *b)
{
    return counted(b).captured;
}

enum { ROWS = 3, WIDTH = 64 };

struct step {
    struct kern_rows rows;
    struct kern_ptr x, delta, out, src, picked;
    const struct kern_weight *w;
};

static struct step step_make(struct kt *t)
{
    struct step s;

    s.rows = kt_rows(t, ROWS, ROWS);
    s.x = kt_put(t, NULL, ROWS * WIDTH * 4);
    s.delta = kt_put(t, NULL, ROWS * WIDTH * 4);
    s.out = kt_put(t, NULL, ROWS * WIDTH * 4);
    s.src = kt_put(t, NULL, ROWS * 4);
    s.picked = kt_put(t, NULL, ROWS * WIDTH * 4);
    s.w = kt_weight(t, KERN_F32, 0, 1, WIDTH, 2);
    return s;
}

/* Uploads, two ops, an upload in the middle, a third op; `wide` launches
 * another shape under the same key. */
static void step_run(struct kt *t, const struct step *s, int i, bool wide,
                     float *ret)
{
    float x[ROWS * WIDTH], d[ROWS * WIDTH];
    int32_t src[ROWS] = {i % ROWS, 0, (i + 1) % ROWS};
    struct kern_norm_args n = {.rows = s->rows, .width = WIDTH, .eps = 1e-5f};
    struct kern_gather_args g = {.rows = s->rows, .width = WIDTH};

    kt_fill_f32(x, ROWS * WIDTH, (uint64_t)i);
    kt_fill_f32(d, ROWS * WIDTH, (uint64_t)i + 100);
    kt_ok(t, kern_begin(t->k, 77));
    kt_ok(t, kern_upload(t->k, s->x, x, sizeof(x)));
    kt_ok(t, kern_upload(t->k, s->delta, d, sizeof(d)));
    n.x = s->x;
    n.delta = s->delta;
    n.out_f32 = s->out;
    n.w = s->w;
    n.eps = wide ? 1e-3f : 1e-5f;
    kt_ok(t, kern_norm(t->k, &n));
    kt_ok(t, kern_copy(t->k, s->delta, s->out, ROWS * WIDTH * 4));
    kt_ok(t, kern_upload(t->k, s->src, src, sizeof(src)));
    g.x = s->delta;
    g.src = s->src;
    g.out = s->picked;
    kt_ok(t, kern_gather(t->k, &g));
    kt_ok(t, kern_end(t->k));
    kt_get(t, ret, s->picked, ROWS * WIDTH * 4);
}

static void graphs(const struct kt_backend *b)
{
    struct kt *t = kt_open(b), *ref = kt_open(&kt_ref);
    struct step s = step_make(t), want_s = step_make(ref);
    float got[ROWS * WIDTH], want[ROWS * WIDTH];

    for (int i = 0; i < 9; i++) {
        bool wide = i == 5; /* once, in the middle of replays */
        uint64_t replays = t->k->stats.graph_launches;
        uint64_t alone = t->k->stats.launches, captured = n_captured(b);

        step_run(t, &s, i, wide, got);
        step_run(ref, &want_s, i, wide, want);
        assert_tensor_near(t->name, got, want, ROWS * WIDTH, 1e-6, 1e-6);
        replays = t->k->stats.graph_launches - replays;
        alone = t->k->stats.launches - alone;
        /* captured, replayed ..., a surprise, captured, replayed ... */
        assert_int_equal(replays, wide ? 0 : 3);
        assert_int_equal(alone, wide ? 3 : 0);
        captured = n_captured(b) - captured;
        if (is_emulated(b)) { /* the upload in the middle cuts it in two */
            assert_int_equal(captured, i == 0 || i == 6 ? 2 : 0);
        }
    }
    kt_close(t);
    kt_close(ref);
}

static void test_a_step_is_replayed_and_surprises_are_not(void **state)
{
    (void)state;
    each(graphs);
}

/* A step of one launch; how many of its launches a graph made. */
static uint64_t one_step(struct kern *k, struct kern_ptr p, uint64_t shape)
{
    uint64_t n = k->stats.graph_launches;

    assert_int_equal(kern_begin(k, shape), 0);
    assert_int_equal(kern_fill(k, p, (int)shape, 64), 0);
    assert_int_equal(kern_end(k), 0);
    return k->stats.graph_launches - n;
}

/* A shape is captured as it comes first. Of more than are kept (64) the one
 * that went is a new one when it comes again, and its graph has gone with it.
 */
static void shapes(const struct kt_backend *b)
{
    enum { KEPT = 64, N = 70 };
    struct kt *t = kt_open(b);
    struct kern_ptr p = kt_put(t, NULL, 64);
    uint64_t captured = n_captured(b);

    for (uint64_t i = 1; i <= N; i++) {
        assert_int_equal(one_step(t->k, p, i), 1); /* captured */
        assert_int_equal(one_step(t->k, p, i), 1);
        if (is_emulated(b)) {
            assert_int_equal(counted(b).kept, i < KEPT ? i : KEPT);
            assert_int_equal(n_captured(b) - captured, i);
        }
    }
    for (int i = 0; i < 3; i++) { /* 1 is long gone */
        assert_int_equal(one_step(t->k, p, N), 1);
        assert_int_equal(one_step(t->k, p, 1), 1);
    }
    if (is_emulated(b)) {
        assert_int_equal(n_captured(b) - captured, N + 1);
    }
    kt_close(t);
    assert_int_equal(counted(b).kept, 0);
}

static void test_a_shape_is_captured_when_it_first_comes(void **state)
{
    (void)state;
    each(shapes);
}

/* A step that differs where a graph of its shape runs already. */
static void late_surprise(const struct kt_backend *b)
{
    struct kt *t = kt_open(b);
    struct kern_ptr p = kt_put(t, NULL, 64), q = kt_put(t, NULL, 64);
    unsigned char mine[64], got[64];

    for (int i = 0; i < 6; i++) {
        uint64_t graphed = t->k->stats.graph_launches;

        memset(mine, i, sizeof(mine));
        kt_ok(t, kern_begin(t->k, 5));
        kt_ok(t, kern_fill(t->k, p, 1, 64));
        kt_ok(t, kern_upload(t->k, q, mine, sizeof(mine)));
        kt_ok(t, kern_copy(t->k, p, q, i < 3 ? 64 : 32));
        kt_ok(t, kern_end(t->k));
        kt_get(t, got, p, sizeof(got));
        assert_int_equal(got[31], i);
        assert_int_equal(got[32], i < 3 ? i : 1);
        graphed = t->k->stats.graph_launches - graphed;
        assert_int_equal(graphed, i == 3 ? 1 : 2);
    }
    kt_close(t); /* what the emulator found ends it here */
}

static void test_a_surprise_beside_a_graph_that_runs(void **state)
{
    (void)state;
    each(late_surprise);
}

/* Graphs take memory that no plan counts. Where there is none for one more,
 * steps are as right, and as many shapes as there is room for are replayed. */
static void few_graphs(const struct kt_backend *b)
{
    static const char *const room[] = {"graphs=0", "graphs=3", "running=0",
                                       "running=3"};

    for (size_t i = 0; i < sizeof(room) / sizeof(room[0]); i++) {
        int most = i % 2 == 0 ? 0 : 3;
        struct kt *t = kt_open(b);
        struct kern_ptr p = kt_put(t, NULL, 64);
        unsigned char got[64];

        setenv("STEPD_CUEMU", room[i], 1);
        for (uint64_t j = 0; j < 60; j++) {
            uint64_t shape = 1 + j % 9, graphed = one_step(t->k, p, shape);

            if (j >= 20) { /* by then it knows how many there may be */
                assert_int_equal(graphed, most > 0 ? 1 : 0);
            }
            kt_get(t, got, p, sizeof(got));
            assert_int_equal(got[0], shape);
            assert_in_range(counted(b).kept, 0, most + 1);
        }
        unsetenv("STEPD_CUEMU");
        kt_close(t);
        assert_int_equal(counted(b).kept, 0);
    }
}

static void test_where_memory_for_graphs_ends_steps_do_not(void **state)
{
    (void)state;
    if (kt_n_backends() > 0 && !is_emulated(kt_backend(0))) {
        test_skip(NULL, "the emulator alone has no room for graphs when asked");
    }
    each(few_graphs);
}

/* cuda_graphs = no: the same step, never recorded. */
static void no_graphs(const struct kt_backend *b)
{
    struct kern_open_args a = {.exact = true, .no_graphs = true};
    struct kern_ptr p = {NULL, 0};
    struct kern *k;
    unsigned char got[64];

    assert_int_equal(kern_open_named(b->name, &a, &k), 0);
    assert_int_equal(kern_buf_new(k, sizeof(got), &p.buf), 0);
    for (int i = 1; i <= 4; i++) {
        assert_int_equal(kern_begin(k, 77), 0);
        assert_int_equal(kern_fill(k, p, i, sizeof(got)), 0);
        assert_int_equal(kern_fetch(k, got, p, sizeof(got)), 0);
        assert_int_equal(kern_end(k), 0);
        assert_int_equal(got[63], i);
        assert_int_equal(k->stats.launches, 2 * i);
        assert_int_equal(k->stats.graph_launches, 0);
        assert_int_equal(k->stats.waits, i);
    }
    kern_buf_free(k, p.buf);
    kern_close(k);
}

static void test_without_graphs_every_launch_is_eager(void **state)
{
    (void)state;
    each(no_graphs);
}

static void several(const struct kt_backend *b)
{
    static const int both[] = {0, 1};
    char why[128] = "";
    struct kern_open_args a = {.devices = both,
                               .n_devices = 2,
                               .exact = true,
                               .why = why,
                               .why_n = sizeof(why)};
    struct kern *k;

    assert_int_equal(kern_open_named(b->name, &a, &k), -ENODEV);
    assert_non_null(strstr(why, "2 GPUs: one is what it can use"));
}

static void test_several_devices_are_refused(void **state)
{
    (void)state;
    each(several);
}

/* What is fetched is what was there at that point of the step, however much of
 * it there is; small uploads of a step share a piece of the ring. */
static void fetches(const struct kt_backend *b)
{
    enum { N = 40, LONG = 700000 };
    struct kt *t = kt_open(b);
    struct kern_ptr p = kt_put(t, NULL, LONG);
    unsigned char *got = malloc((size_t)N * LONG), mine[64];

    assert_non_null(got);
    kt_ok(t, kern_begin(t->k, 0));
    for (int i = 0; i < N; i++) { /* more bytes, and more of them, than fit */
        kt_ok(t, kern_fill(t->k, p, i, LONG));
        memset(mine, 100 + i, sizeof(mine));
        kt_ok(t, kern_upload(t->k, p, mine, sizeof(mine)));
        kt_ok(t, kern_fetch(t->k, got + (size_t)i * LONG, p,
                            i % 3 == 0 ? LONG : 65));
    }
    kt_ok(t, kern_end(t->k));
    for (int i = 0; i < N; i++) {
        assert_int_equal(got[(size_t)i * LONG + 63], 100 + i);
        assert_int_equal(got[(size_t)i * LONG + 64], i);
        if (i % 3 == 0) {
            assert_int_equal(got[(size_t)i * LONG + LONG - 1], i);
        }
    }
    free(got);
    kt_close(t);
}

static void test_end_delivers_what_was_fetched(void **state)
{
    (void)state;
    each(fetches);
}

/* More is uploaded in one step than the pinned ring holds, and nothing waits: a
 * piece is written again only when its copies have been made. */
static void uploads(const struct kt_backend *b)
{
    enum { N = 40, LONG = 512 << 10, SAMPLE = 64 };
    struct kt *t = kt_open(b);
    struct kern_ptr p = kt_put(t, NULL, LONG);
    struct kern_ptr kept = kt_put(t, NULL, (size_t)N * SAMPLE), to = kept;
    unsigned char *mine = malloc(LONG), got[N * SAMPLE];

    assert_non_null(mine);
    kt_ok(t, kern_begin(t->k, 0));
    for (int i = 0; i < N; i++) {
        memset(mine, i, LONG);
        kt_ok(t, kern_upload(t->k, p, mine, LONG));
        to.off = kept.off + (size_t)i * SAMPLE;
        kt_ok(t, kern_copy(t->k, to, p, SAMPLE));
    }
    kt_ok(t, kern_end(t->k));
    kt_get(t, got, kept, sizeof(got));
    for (int i = 0; i < N * SAMPLE; i++) {
        assert_int_equal(got[i], i / SAMPLE);
    }
    free(mine);
    kt_close(t);
}

static void test_a_step_uploads_more_than_the_ring_holds(void **state)
{
    (void)state;
    each(uploads);
}

/* ---- memory ---- */

static void budget(const struct kt_backend *b)
{
    struct kt *t = kt_open(b);
    struct kern_buf *buf;

    assert_int_equal(kern_buf_new(t->k, (size_t)1 << 60, &buf), -ENOMEM);
    assert_non_null(strstr(kern_error(t->k), "budget"));
    kt_close(t);
}

static void test_more_than_the_budget_is_refused(void **state)
{
    (void)state;
    each(budget);
}

/* The share is one of the whole device, less what others hold; what it leaves
 * stays free. */
static void shares(const struct kt_backend *b)
{
    static const struct {
        const char *device; /* MiB */
        double share;
        double mib; /* the budget, 0: none */
    } cases[] = {{"mem=100", 0, 97},           {"mem=100 held=10", 0, 87},
                 {"mem=100 held=1", 0.5, 49},  {"mem=100 held=30", 0.5, 20},
                 {"mem=100 held=50", 0.5, 0},  {"mem=100 held=98", 0, 0},
                 {"mem=100 held=100", 0.99, 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char why[256] = "";
        struct kern_open_args a = {.exact = true,
                                   .memory_utilization = cases[i].share,
                                   .why = why,
                                   .why_n = sizeof(why)};
        uint64_t want = (uint64_t)(cases[i].mib * 1048576);
        struct kern_buf *buf, *more;
        struct kern *k;

        setenv("STEPD_CUEMU", cases[i].device, 1);
        if (want == 0) {
            assert_int_equal(kern_open_named(b->name, &a, &k), -ENOMEM);
            assert_non_null(strstr(why, "of 100 MiB, and memory_utilization"));
            continue;
        }
        assert_int_equal(kern_open_named(b->name, &a, &k), 0);
        assert_in_range(k->memory, want - 1, want); /* 0.97 is rounded */
        assert_int_equal(kern_buf_new(k, k->memory + 1, &buf), -ENOMEM);
        assert_int_equal(kern_buf_new(k, k->memory, &buf), 0);
        assert_int_equal(kern_buf_new(k, 1, &more), -ENOMEM);
        kern_buf_free(k, buf);
        kern_close(k);
    }
}

static void test_the_budget_is_a_share_less_what_others_hold(void **state)
{
    (void)state;
    if (kt_n_backends() > 0 && !is_emulated(kt_backend(0))) {
        test_skip(NULL, "the emulator alone has memory that others hold");
    }
    each(shares);
}

/* ---- compact weights ---- */

enum { C_ROWS = 3, C_COLS = 200, ESCAPES = 4 };

/* Rows of 2, 1 and 0 escapes, a number changed: word `at` of the rows' and the
 * escapes' words becomes `word`. */
static int compact_ready(struct kern *k, int at, uint32_t word)
{
    uint32_t words[C_ROWS + 1 + ESCAPES] = {
        compact_word(240, 0), compact_word(0, 2), compact_word(7, 3),
        compact_word(0, 3),   3u << 16,           199u << 16,
        150u << 16,           COMPACT_END};
    struct kern_weight_desc d = {.dtype = KERN_COMPACT,
                                 .rows = C_ROWS,
                                 .cols = C_COLS,
                                 .escapes = ESCAPES};
    size_t n = kern_weight_plane_bytes(&d, 0);
    uint8_t *blocks = calloc(1, n);
    struct kern_weight *w;
    int r;

    assert_non_null(blocks);
    if (at >= 0) {
        words[at] = word;
    }
    assert_int_equal(kern_weight_new(k, &d, &w), 0);
    assert_int_equal(kern_weight_fill(k, w, 0, 0, 0, blocks, n), 0);
    assert_int_equal(
        kern_weight_fill(k, w, 0, 1, 0, words, sizeof(*words) * (C_ROWS + 1)),
        0);
    assert_int_equal(kern_weight_fill(k, w, 0, 2, 0, words + C_ROWS + 1,
                                      sizeof(*words) * ESCAPES),
                     0);
    r = kern_weight_ready(k, w);
    kern_weight_free(k, w);
    free(blocks);
    return r;
}

/* What a file says becomes addresses on the device: none of it is believed. */
static void escapes(const struct kt_backend *b)
{
    const struct {
        int at;
        uint32_t word;
        int row; /* that is refused */
    } cases[] = {
        {0, compact_word(240, 3), 0},      /* its first behind its end */
        {1, compact_word(0, ESCAPES), 0},  /* its end beyond all of them */
        {3, compact_word(0, 2), 2},        /* as the first */
        {3, compact_word(0, 0xffffff), 2}, /* as the second */
        {0, compact_word(241, 0), 0},      /* exponents past 255 */
        {2, compact_word(255, 3), 2},      /* as that */
        {5, 3u << 16, 0},                  /* a column twice */
        {5, 2u << 16, 0},                  /* columns that descend */
        {5, (uint32_t)C_COLS << 16, 0},    /* no column of the matrix */
        {6, 0xffff0000u, 1},               /* as that */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kt *t = kt_open(b);
        char want[80];

        kt_ok(t, compact_ready(t->k, -1, 0));
        assert_int_equal(compact_ready(t->k, cases[i].at, cases[i].word),
                         -EINVAL);
        snprintf(want, sizeof(want),
                 "compact plane 1: row %d does not fit its escapes",
                 cases[i].row);
        assert_string_equal(kern_error(t->k), want);
        kt_close(t);
    }
}

static void test_escapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    each(escapes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits_add_as_one_block_does),
        cmocka_unit_test(test_a_step_is_replayed_and_surprises_are_not),
        cmocka_unit_test(test_a_shape_is_captured_when_it_first_comes),
        cmocka_unit_test(test_a_surprise_beside_a_graph_that_runs),
        cmocka_unit_test(test_where_memory_for_graphs_ends_steps_do_not),
        cmocka_unit_test(test_without_graphs_every_launch_is_eager),
        cmocka_unit_test(test_several_devices_are_refused),
        cmocka_unit_test(test_end_delivers_what_was_fetched),
        cmocka_unit_test(test_a_step_uploads_more_than_the_ring_holds),
        cmocka_unit_test(test_more_than_the_budget_is_refused),
        cmocka_unit_test(test_the_budget_is_a_share_less_what_others_hold),
        cmocka_unit_test(test_escapes_that_do_not_fit_are_refused),
    };

    return test_main(tests, NULL, NULL);
}
