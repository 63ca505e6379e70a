/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Weights on their way to a device: every byte of a shard is read once, no more
 * is in flight than the rooms hold, copies run beside the repacking, and a read
 * that fails names file and byte and leaves nothing allocated. (That the right
 * bytes arrive, tests of the forward pass show: the emulated streams run as
 * late as they may.) Runs with KT_BACKEND=cuda-emulated, which counts; linked
 * with
 * --wrap=pread.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/checkpoint.h"
#include "tests/ckpt.h"
#include "tests/cuemu/cuemu_load.h"
#include "tests/daemon/mk.h"
#include "tests/test.h"

#define ROOMS ((size_t)4 * 65536) /* GPU_LOAD_PIECE of the emulator */
#define MAX_READS 100000

ssize_t __real_pread(int fd, void *to, size_t n, off_t off);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t off);

static struct read {
    ino_t file;
    uint64_t off, end;
} reads[MAX_READS];
static int n_reads, fail_at, fail_errno;
static bool armed;

/* Read number fail_at, from 0, fails; with fail_errno 0 the file ends there. */
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t off)
{
    struct stat st;
    ssize_t r;

    if (armed && n_reads == fail_at) {
        errno = fail_errno;
        fail_at = fail_errno == EINVAL ? -1 : fail_at; /* once */
        return fail_errno != 0 ? -1 : 0;
    }
    r = __real_pread(fd, to, n, off);
    if (armed && r > 0) {
        assert_int_equal(fstat(fd, &st), 0);
        assert_true(n_reads < MAX_READS);
        reads[n_reads++] = (struct read){.file = st.st_ino,
                                         .off = (uint64_t)off,
                                         .end = (uint64_t)(off + r)};
    }
    return r;
}

static struct cuemu_load *stats;
static uint64_t told, total;

static int n_plans;

/* The plan comes first: by then headers were read, and no weights. */
static void planned(void *ctx, const struct model_info *info)
{
    uint64_t bytes = 0;

    (void)ctx;
    for (int i = 0; i < n_reads; i++) {
        bytes += reads[i].end - reads[i].off;
    }
    assert_true(bytes < info->memory.weights_experts / 2);
    n_plans++;
}

static int progress(void *ctx, uint64_t done, uint64_t all)
{
    (void)ctx;
    told = done;
    total = all;
    return 0;
}

struct loaded {
    char *dir;
    struct kern *k;
    struct checkpoint *ck;
    struct weights *w;
    struct model_report rep;
    int64_t live; /* before the load */
};

static void want_emulator(void)
{
    const char *name = getenv("KT_BACKEND");

    if (name == NULL || strcmp(name, "cuda-emulated") != 0) {
        test_skip("REQUIRE_CUEMU",
                  "KT_BACKEND is not cuda-emulated, which counts");
    }
}

static int load(struct loaded *l, int fails_at, int error)
{
    struct kern_open_args a = {.exact = true};
    static struct model_conf c;
    struct synth s;
    char so[600];
    void *lib;
    int r;

    want_emulator();
    memset(l, 0, sizeof(*l));
    assert_true(synth_preset(&s, "micro"));
    s.dialect = SYNTH_MXFP4;
    l->dir = ckpt_synth(&s);
    c = (struct model_conf){.path = l->dir, .drafts = -1, .progress = progress};
    assert_int_equal(kern_open_named("cuda-emulated", &a, &l->k), 0);
    snprintf(so, sizeof(so), "%s/stepd-cuda-emulated.so",
             getenv("STEPD_PLUGIN_DIR"));
    lib = dlopen(so, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    stats = ((cuemu_load_stats_fn *)dlsym(lib, "cuemu_load_stats"))();
    assert_int_equal(checkpoint_open(&c, &l->rep, &l->ck), 0);
    l->live = stats->live;
    stats->bytes = stats->packs = stats->overlapped = stats->max_in_flight = 0;
    n_reads = 0;
    fail_at = fails_at;
    fail_errno = error;
    armed = true;
    r = weights_load(l->ck, l->k, &l->rep, &l->w);
    armed = false;
    return r;
}

static void unload(struct loaded *l)
{
    weights_destroy(l->w);
    checkpoint_close(l->ck);
    kern_close(l->k);
    model_report_finish(&l->rep);
    ckpt_remove(l->dir);
    assert_int_equal(stats->live, 0);
}

static void test_the_plan_comes_first(void **state)
{
    struct model_conf c = {.backend = "cuda-emulated",
                           .drafts = -1,
                           .max_model_len = 256,
                           .kv_bytes = 40 << 20,
                           .planned = planned};
    struct model_report rep = {0};
    struct model *m;
    struct loaded l;

    (void)state;
    assert_int_equal(load(&l, -1, 0), 0);
    n_reads = n_plans = 0;
    c.path = l.dir;
    armed = true;
    assert_int_equal(model_open(&m, &c, &rep), 0);
    armed = false;
    assert_true(n_reads > 8);
    assert_int_equal(n_plans, 1);
    model_close(m);
    model_report_finish(&rep);
    unload(&l);
}

static int by_place(const void *a, const void *b)
{
    const struct read *x = a, *y = b;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->off < y->off ? -1 : x->off > y->off;
}

static void test_every_byte_is_read_once(void **state)
{
    struct loaded l;

    (void)state;
    assert_int_equal(load(&l, -1, 0), 0);
    assert_in_range(n_reads, 8, MAX_READS);
    qsort(reads, (size_t)n_reads, sizeof(*reads), by_place);
    for (int i = 0; i < n_reads; i++) {
        assert_int_equal(reads[i].off % 4096, 0); /* wherever tensors begin */
        assert_true(i == 0 || reads[i].file != reads[i - 1].file ||
                    reads[i].off >= reads[i - 1].end);
    }
    assert_true(total > 0);
    assert_int_equal(told, total);
    assert_true(stats->bytes >= total); /* F32 of BF16 comes on top */
    assert_true(stats->bytes < total + total / 50);
    unload(&l);
}

static void test_rooms_bound_what_is_in_flight(void **state)
{
    struct loaded l;

    (void)state;
    assert_int_equal(load(&l, -1, 0), 0);
    assert_in_range(stats->max_in_flight, ROOMS / 4 + 1, ROOMS);
    assert_int_equal(stats->in_flight, 0);
    /* nearly all: not those at the end, nor the last of a room */
    assert_true(stats->packs > 8);
    assert_true(stats->overlapped > stats->packs * 3 / 4);
    unload(&l);
}

static void test_a_read_that_fails_leaves_nothing(void **state)
{
    static const struct {
        int at, error;
        const char *text;
    } cases[] = {{0, EIO, "cannot be read at byte "},
                 {5, EIO, "cannot be read at byte "},
                 {7, 0, "ends at byte "}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct loaded l;

        assert_int_equal(load(&l, cases[i].at, cases[i].error), -EBADMSG);
        assert_null(l.w);
        assert_int_equal(l.rep.n_problems, 1);
        assert_non_null(strstr(l.rep.problem[0], ".safetensors: "));
        if (strstr(l.rep.problem[0], cases[i].text) == NULL) {
            fail_msg("%s", l.rep.problem[0]);
        }
        assert_int_equal(stats->live, l.live); /* rooms and all */
        unload(&l);
    }
}

/* O_DIRECT taken and then refused: once, and the rest by the page cache. */
static void test_a_file_system_without_o_direct(void **state)
{
    struct loaded l;
    int n = 0, r;

    (void)state;
    r = load(&l, 3, EINVAL);
    if (r != 0) { /* refused at once here: then EINVAL is a plain error */
        assert_int_equal(r, -EBADMSG);
    }
    for (int i = 0; i < l.rep.n_notes; i++) {
        n += strstr(l.rep.note[i], "refuses O_DIRECT") != NULL;
    }
    assert_int_equal(n, 1);
    unload(&l);
}

/* Tensors at odd bytes of their files, so that none begins where a block does,
 * and the last block of each is not whole: the same answer. */
static void test_tensors_at_odd_bytes(void **state)
{
    static struct mk_req r[2];
    struct synth s;
    char *dir[2];

    (void)state;
    want_emulator();
    assert_true(synth_preset(&s, "micro"));
    s.dialect = SYNTH_MXFP4;
    dir[0] = ckpt_synth(&s);
    dir[1] = ckpt_copy(dir[0]);
    ckpt_pad(dir[1], "model-00001.safetensors", 1);
    ckpt_pad(dir[1], "model-00002.safetensors", 3);
    for (int i = 0; i < 2; i++) {
        struct mk *k = mk_open(dir[i], mk_best(), -1, 0);
        struct mk_req *one = &r[i];
        int32_t prompt[70];

        for (int t = 0; t < 70; t++) {
            prompt[t] = (t * 37 + 5) % k->info->vocab;
        }
        mk_start(k, one, &mk_greedy, prompt, 70, 10);
        mk_run(k, &one, 1);
        mk_end(k, one);
        mk_close(k);
        ckpt_remove(dir[i]);
    }
    mk_assert_same("odd bytes", 0, &r[1], &r[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_plan_comes_first),
        cmocka_unit_test(test_every_byte_is_read_once),
        cmocka_unit_test(test_rooms_bound_what_is_in_flight),
        cmocka_unit_test(test_a_read_that_fails_leaves_nothing),
        cmocka_unit_test(test_a_file_system_without_o_direct),
        cmocka_unit_test(test_tensors_at_odd_bytes),
    };

    return test_main(tests, NULL, NULL);
}
