/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Weights on their way to a device: every byte of a shard is read once, no more
 * is in flight than the rooms hold, copies run beside the repacking, and a read
 * that fails names file and byte and leaves nothing allocated. And the right
 * bytes arrive, wherever tensors begin, whatever reads return: the emulated
 * streams run as late as they may. Runs with KT_BACKEND=cuda-emulated, which
 * counts; linked with --wrap=pread.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/checkpoint.h"
#include "daemon/model/compact.h"
#include "daemon/model/stream.h"
#include "kernels/cuda/gpu.h"
#include "kernels/quant.h"
#include "tests/ckpt.h"
#include "tests/cuemu/cuemu_load.h"
#include "tests/test.h"

#define ROOMS ((size_t)4 * 65536) /* GPU_LOAD_PIECE of the emulator */
#define MAX_READS 100000

ssize_t __real_pread(int fd, void *to, size_t n, off_t off);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t off);

static struct read {
    ino_t file;
    uint64_t off, end;
} reads[MAX_READS];
static int n_reads, fail_at, fail_errno, n_calls;
static bool armed, cut_short;

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
    if (armed && cut_short && ++n_calls % 3 != 0 && n > 8192) {
        if (n_calls % 3 == 1) {
            errno = EINTR;
            return -1;
        }
        n = 8192; /* what O_DIRECT may do, too */
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

/* Bytes of mappings with that name, the most at any call of progress. */
static const char *watched;
static size_t most_mapped;

static void watch_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    unsigned long from, to;
    char line[600];
    size_t n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strstr(line, watched) != NULL &&
            sscanf(line, "%lx-%lx", &from, &to) == 2) {
            n += to - from;
        }
    }
    fclose(f);
    most_mapped = n > most_mapped ? n : most_mapped;
}

static int progress(void *ctx, uint64_t done, uint64_t all)
{
    (void)ctx;
    if (watched != NULL) {
        watch_maps();
    }
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

/* The checkpoint of every test, where the emulator is. */
static char *micro(void)
{
    const char *name = getenv("KT_BACKEND");
    struct synth s;

    if (name == NULL || strcmp(name, "cuda-emulated") != 0) {
        test_skip("REQUIRE_CUEMU",
                  "KT_BACKEND is not cuda-emulated, which counts");
    }
    assert_true(synth_preset(&s, "micro"));
    s.dialect = SYNTH_MXFP4;
    return ckpt_synth(&s);
}

static struct model_conf conf;

/* A checkpoint, opened; nothing is loaded yet. */
static void begin(struct loaded *l, enum model_weights weights,
                  const char *state_dir, char *dir)
{
    struct kern_open_args a = {.exact = true};
    char so[600];
    void *lib;

    memset(l, 0, sizeof(*l));
    l->dir = dir;
    conf = (struct model_conf){.path = l->dir,
                               .drafts = -1,
                               .progress = progress,
                               .weights = weights,
                               .state_dir = state_dir};
    assert_int_equal(kern_open_named("cuda-emulated", &a, &l->k), 0);
    snprintf(so, sizeof(so), "%s/stepd-cuda-emulated.so",
             getenv("STEPD_PLUGIN_DIR"));
    lib = dlopen(so, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    stats = ((cuemu_load_stats_fn *)dlsym(lib, "cuemu_load_stats"))();
    assert_int_equal(checkpoint_open(&conf, &l->rep, &l->ck), 0);
    l->live = stats->live;
    stats->bytes = stats->packs = stats->overlapped = stats->max_in_flight = 0;
    n_reads = 0;
    most_mapped = 0;
}

static int load_it(struct loaded *l)
{
    int r;

    armed = true;
    r = weights_load(l->ck, l->k, &l->rep, &l->w);
    armed = false;
    return r;
}

static int load(struct loaded *l, int fails_at, int error)
{
    begin(l, MODEL_MAP, NULL, micro());
    fail_at = fails_at;
    fail_errno = error;
    return load_it(l);
}

/* All but the folder. */
static void finish(struct loaded *l)
{
    weights_destroy(l->w);
    checkpoint_close(l->ck);
    kern_close(l->k);
    model_report_finish(&l->rep);
    assert_int_equal(stats->live, 0);
}

static void unload(struct loaded *l)
{
    finish(l);
    ckpt_remove(l->dir);
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

/* In whole blocks, wherever tensors begin, and none twice. */
static void check_reads(void)
{
    assert_in_range(n_reads, 8, MAX_READS);
    qsort(reads, (size_t)n_reads, sizeof(*reads), by_place);
    for (int i = 0; i < n_reads; i++) {
        assert_int_equal(reads[i].off % 4096, 0);
        assert_true(i == 0 || reads[i].file != reads[i - 1].file ||
                    reads[i].off >= reads[i - 1].end);
    }
    assert_true(total > 0);
    assert_int_equal(told, total);
}

static void test_every_byte_is_read_once(void **state)
{
    struct loaded l;

    (void)state;
    assert_int_equal(load(&l, -1, 0), 0);
    check_reads();
    assert_true(stats->bytes >= total); /* F32 of BF16 comes on top */
    assert_true(stats->bytes < total + total / 50);
    unload(&l);
}

/* The head of a packed file and its lines are no blocks: taken off the list. */
static void check_head_reads(ino_t file)
{
    int n = 0, head = 0;

    for (int i = 0; i < n_reads; i++) {
        if (reads[i].file == file && head < 2) {
            head++;
        } else {
            reads[n++] = reads[i];
        }
    }
    assert_int_equal(head, 2);
    n_reads = n;
}

/* Packed matrices too, from their file: it is never mapped. */
static void test_packed_matrices_come_by_the_rooms(void **state)
{
    char *dir = micro(), path[COMPACT_MAX_PATH];
    const char *folder = ckpt_state_folder(dir);
    struct loaded l;
    struct stat st;
    uint64_t from_it = 0;

    (void)state;
    fail_at = -1;
    begin(&l, MODEL_COMPACT, folder, dir); /* makes the file */
    assert_int_equal(compact_path(l.ck, path, sizeof(path)), 0);
    assert_int_equal(load_it(&l), 0);
    finish(&l);
    watched = "/compact-";
    begin(&l, MODEL_COMPACT, folder, dir);
    assert_int_equal(load_it(&l), 0);
    assert_int_equal(most_mapped, 0);
    assert_int_equal(stat(path, &st), 0);
    check_head_reads(st.st_ino);
    check_reads();
    for (int i = 0; i < n_reads; i++) {
        from_it += reads[i].file == st.st_ino ? reads[i].end - reads[i].off : 0;
    }
    assert_in_range(from_it, (size_t)st.st_size * 9 / 10, st.st_size);
    assert_in_range(stats->max_in_flight, ROOMS / 4 + 1, ROOMS);
    assert_int_equal(stats->in_flight, 0);
    finish(&l);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    ckpt_remove(dir);
}

/* Without a file the host holds one of them at a time. */
static void test_packed_without_a_file_one_at_a_time(void **state)
{
    struct loaded l;
    uint64_t largest = 0, all = 0;

    (void)state;
    fail_at = -1;
    watched = "stepd-compact";
    begin(&l, MODEL_COMPACT, NULL, micro());
    assert_int_equal(load_it(&l), 0);
    for (int i = 0; i < l.ck->slots.n; i++) {
        const struct slot *slot = &l.ck->slots.slot[i];
        uint64_t n = compact_takes(l.ck, slot) ? compact_bytes(&slot->desc) : 0;

        all += n;
        largest = n > largest ? n : largest;
    }
    assert_true(largest * 3 < all);
    assert_in_range(most_mapped, 4096, largest + 4 * 4096);
    assert_int_equal(told, total);
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

/* ---- the right bytes ---- */

enum { MAX_SLOTS = 600 };

struct all {
    struct loaded l;
    struct kern_weight *w[MAX_SLOTS];
};

static struct kern_weight *of(void *ctx, const struct slot *slot)
{
    struct all *a = ctx;

    return a->w[slot - a->l.ck->slots.slot];
}

static int take(void *ctx, const struct slot *slot,
                const struct kern_weight_desc *d, const void *const plane[3])
{
    struct all *a = ctx;
    struct kern_weight **w = &a->w[slot - a->l.ck->slots.slot];

    assert_int_equal(kern_weight_new(a->l.k, d, w), 0);
    for (int p = 0; p < 3 && plane[p] != NULL; p++) {
        assert_int_equal(kern_weight_fill(a->l.k, *w, 0, p, 0, plane[p],
                                          kern_weight_plane_bytes(d, p)),
                         0);
    }
    return 0;
}

/* By the rooms. */
static void by_stream(struct all *a, struct report *rep)
{
    struct checkpoint *ck = a->l.ck;
    struct kern_weight_desc d;
    const void *plane[3];

    assert_in_range(ck->slots.n, 10, MAX_SLOTS);
    if (ck->conf.weights == MODEL_COMPACT) {
        assert_int_equal(compact_open(ck, rep, true, &ck->compact), 0);
    }
    for (int i = 0; i < ck->slots.n; i++) {
        const struct slot *slot = &ck->slots.slot[i];

        if (!compact_is_late(ck->compact, slot)) {
            d = slot->desc;
            (void)compact_find(ck->compact, slot, &d, plane);
            assert_int_equal(kern_weight_new(a->l.k, &d, &a->w[i]), 0);
        }
    }
    assert_int_equal(compact_each(ck, rep, take, a), 0);
    armed = true;
    assert_int_equal(stream_weights(ck, a->l.k, of, a, rep), 0);
    armed = false;
}

/* A tensor that is read in one piece, at its odd place; *ret_n bytes. */
static unsigned char *plane_of(const struct checkpoint *ck,
                               const struct slot *slot, int e, int p,
                               size_t *ret_n)
{
    struct slot_range g = slot_plane(slot, e, p);
    unsigned char *from = malloc(g.bytes * 2 + 4);
    bool narrow = slot->desc.dtype == KERN_F32 && slot->scheme == SCHEME_BF16;

    assert_non_null(from);
    assert_int_equal(st_read(&ck->file[g.file], g.off, from, g.bytes), 0);
    for (size_t i = g.bytes / 2; narrow && i-- > 0;) {
        uint16_t b;
        float f;

        memcpy(&b, from + 2 * i, 2);
        f = quant_bf16_to_f32(b);
        memcpy(from + 4 * i, &f, 4);
    }
    *ret_n = narrow ? g.bytes * 2 : g.bytes;
    return from;
}

/* Without the rooms: every plane as one piece of memory. */
static void by_hand(struct all *a, struct report *rep)
{
    struct checkpoint *ck = a->l.ck;
    struct compact *c = NULL;

    if (ck->conf.weights == MODEL_COMPACT) {
        assert_int_equal(compact_open(ck, rep, false, &c), 0);
    }
    for (int i = 0; i < ck->slots.n; i++) {
        const struct slot *slot = &ck->slots.slot[i];
        struct kern_weight_desc d = slot->desc;
        const void *plane[3] = {NULL, NULL, NULL};

        (void)compact_find(c, slot, &d, plane);
        assert_int_equal(take(a, slot, &d, plane), 0);
        for (int e = 0; plane[0] == NULL && e < (d.experts > 0 ? d.experts : 1);
             e++) {
            for (int p = 0; p < kern_weight_n_planes(d.dtype); p++) {
                size_t n;
                unsigned char *from = plane_of(ck, slot, e, p, &n);

                assert_int_equal(
                    kern_weight_fill(a->l.k, a->w[i], e, p, 0, from, n), 0);
                free(from);
            }
        }
    }
    compact_close(c);
}

/* Loads both ways; what lies on the device must be the same. ahead: copies run
 * as soon as they are queued, repacking as late as it may; else both do. */
static void check_bytes(enum model_weights weights, const char *folder,
                        char *dir, bool ahead)
{
    static struct all a[2];
    struct report rep;

    report_init(&rep);
    fail_at = -1;
    watched = NULL;
    for (int j = 0; j < 2; j++) {
        memset(&a[j], 0, sizeof(a[j]));
        setenv("STEPD_CUEMU", ahead && j == 0 ? "ahead=1" : "", 1);
        begin(&a[j].l, weights, folder, dir);
        (j == 0 ? by_stream : by_hand)(&a[j], &rep);
        for (int i = 0; i < a[j].l.ck->slots.n; i++) {
            assert_int_equal(kern_weight_ready(a[j].l.k, a[j].w[i]), 0);
        }
        assert_int_equal(kern_load_end(a[j].l.k), 0);
    }
    for (int i = 0; i < a[0].l.ck->slots.n; i++) {
        const struct gpu_weight *x = (struct gpu_weight *)a[0].w[i];
        const struct gpu_weight *y = (struct gpu_weight *)a[1].w[i];

        assert_true(x->mem_bytes > 0);
        assert_int_equal(x->mem_bytes, y->mem_bytes);
        assert_memory_equal(x->mem, y->mem, x->mem_bytes);
    }
    for (int j = 0; j < 2; j++) {
        for (int i = 0; i < a[j].l.ck->slots.n; i++) {
            kern_weight_free(a[j].l.k, a[j].w[i]);
        }
    }
    /* the counters are of both */
    checkpoint_close(a[0].l.ck);
    kern_close(a[0].l.k);
    model_report_finish(&a[0].l.rep);
    finish(&a[1].l);
    assert_int_equal(report_finish(&rep, NULL), 0);
}

/* Tensors at odd offsets, at any distance from the blocks of O_DIRECT, whose
 * reads end early or are interrupted. */
static void test_the_right_bytes_arrive(void **state)
{
    static const size_t pad[] = {1, 510, 4095};
    int n_odd = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(pad) / sizeof(*pad); i++) {
        char *dir = micro(), name[64];
        struct loaded l;

        begin(&l, MODEL_MAP, NULL, dir);
        for (int f = 0; f < l.ck->n_files; f++) {
            snprintf(name, sizeof(name), "%s", l.ck->file[f].name);
            ckpt_pad(dir, name, pad[i]);
        }
        finish(&l);
        begin(&l, MODEL_MAP, NULL, dir);
        for (int s = 0; s < l.ck->slots.n; s++) {
            n_odd += slot_plane(&l.ck->slots.slot[s], 0, 0).off % 2 != 0;
        }
        finish(&l);
        check_bytes(MODEL_MAP, NULL, dir, false);
        cut_short = true;
        check_bytes(MODEL_MAP, NULL, dir, true);
        cut_short = false;
        ckpt_remove(dir);
    }
    assert_true(n_odd > 20);
}

static void test_the_right_packed_bytes_arrive(void **state)
{
    char *dir = micro(), path[COMPACT_MAX_PATH];
    const char *folder = ckpt_state_folder(dir);
    struct loaded l;

    (void)state;
    check_bytes(MODEL_COMPACT, NULL, dir, true);
    for (int i = 0; i < 2; i++) { /* made; there, and read in small pieces */
        cut_short = i == 1;
        check_bytes(MODEL_COMPACT, folder, dir, i == 1);
    }
    cut_short = false;
    begin(&l, MODEL_COMPACT, folder, dir);
    assert_int_equal(compact_path(l.ck, path, sizeof(path)), 0);
    finish(&l);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    ckpt_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_plan_comes_first),
        cmocka_unit_test(test_every_byte_is_read_once),
        cmocka_unit_test(test_packed_matrices_come_by_the_rooms),
        cmocka_unit_test(test_packed_without_a_file_one_at_a_time),
        cmocka_unit_test(test_the_right_bytes_arrive),
        cmocka_unit_test(test_the_right_packed_bytes_arrive),
        cmocka_unit_test(test_rooms_bound_what_is_in_flight),
        cmocka_unit_test(test_a_read_that_fails_leaves_nothing),
        cmocka_unit_test(test_a_file_system_without_o_direct),
    };

    return test_main(tests, NULL, NULL);
}
