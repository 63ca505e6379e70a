/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * weights = compact: every bit that a model computes is the one that mapped
 * weights give, on every backend; and the life of the file that keeps the
 * packed matrices: made, mapped, and named and made again where it is not what
 * it should be.
 */
#include "daemon/model/compact.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/compact.h"
#include "tests/ckpt.h"
#include "tests/daemon/mk.h"

static char *micro(enum synth_dialect d)
{
    struct synth s;

    assert_true(synth_preset(&s, "micro"));
    s.dialect = d;
    return ckpt_synth(&s);
}

/* The only file of the folder that ends in .bin. */
static const char *cache_file(const char *folder)
{
    static char path[512];
    char pattern[512];
    glob_t g;

    snprintf(pattern, sizeof(pattern), "%s/*", folder);
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_int_equal(g.gl_pathc, 1); /* no half of one is left */
    snprintf(path, sizeof(path), "%s", g.gl_pathv[0]);
    assert_non_null(strstr(path, ".bin"));
    globfree(&g);
    return path;
}

static void drop(char *dir, const char *folder)
{
    if (folder != NULL) {
        unlink(cache_file(folder));
        assert_int_equal(rmdir(folder), 0);
    }
    ckpt_remove(dir);
}

static bool on_device(void)
{
    return strncmp(mk_best()->name, "cuda", 4) == 0;
}

/* ---- the same bits ---- */

enum { N_PROMPT = 150, N_NEW = 20 };

struct answer {
    struct mk_req r;
    float *hidden, *logits;
    int n;
    uint64_t bytes; /* of weights, that were read */
};

static void ask(struct mk *k, struct answer *a)
{
    struct model_sampling p = mk_greedy;
    struct mk_req *r = &a->r;
    struct model_stats stats;
    int32_t prompt[N_PROMPT];
    size_t width = (size_t)k->info->hidden;

    for (int i = 0; i < N_PROMPT; i++) {
        prompt[i] = (i * 37 + 5) % k->info->vocab;
    }
    p.temperature = 0.8f;
    p.seed = 3;
    p.n_top = 0;
    p.max_drafts = MODEL_MAX_DRAFTS; /* not by what a step took here and now */
    mk_start(k, r, &p, prompt, N_PROMPT, N_NEW);
    mk_ok(k, model_trace(k->m, true));
    mk_run(k, &r, 1);
    a->hidden = malloc(sizeof(float) * MK_MAX * width);
    a->logits = malloc(sizeof(float) * MK_MAX * (size_t)k->info->vocab);
    assert_non_null(a->hidden);
    assert_non_null(a->logits);
    a->n = model_traced(k->m, 0, a->hidden, a->logits, MK_MAX);
    assert_true(a->n > 0);
    model_stats(k->m, &stats);
    a->bytes = stats.weight_bytes;
    mk_end(k, r);
}

static void compare(const char *what, const struct answer *a,
                    const struct answer *b, const struct model_info *info)
{
    print_message("%s\n", what);
    assert_int_equal(a->r.n_ids, b->r.n_ids);
    assert_memory_equal(a->r.ids, b->r.ids,
                        sizeof(int32_t) * (size_t)a->r.n_ids);
    assert_memory_equal(a->r.logprob + N_PROMPT, b->r.logprob + N_PROMPT,
                        sizeof(float) * (size_t)(a->r.n_ids - N_PROMPT));
    assert_int_equal(a->r.n_drafted, b->r.n_drafted);
    assert_int_equal(a->r.n_accepted, b->r.n_accepted);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->hidden, b->hidden,
                        sizeof(float) * (size_t)a->n * (size_t)info->hidden);
    assert_memory_equal(a->logits, b->logits,
                        sizeof(float) * (size_t)a->n * (size_t)info->vocab);
}

static void check_same(char *dir, const char *folder,
                       const struct mk_backend *b)
{
    static struct answer a[2];

    for (int i = 0; i < 2; i++) {
        struct mk *k = mk_open_as(dir, b, -1, 0, i ? MODEL_COMPACT : MODEL_MAP,
                                  folder, NULL);

        ask(k, &a[i]);
        if (i == 1) {
            compare(k->name, &a[0], &a[1], k->info);
        }
        mk_close(k);
    }
    for (int i = 0; i < 2; i++) {
        free(a[i].hidden);
        free(a[i].logits);
    }
}

static void test_every_bit_is_the_same(void **state)
{
    static const enum synth_dialect dialects[] = {SYNTH_BF16, SYNTH_MXFP4};

    (void)state;
    for (int d = 0; d < 2; d++) {
        char *dir = micro(dialects[d]);
        const char *folder = ckpt_state_folder(dir);

        for (int i = 0; i < mk_n_backends(); i++) {
            check_same(dir, folder, mk_backend(i));
        }
        drop(dir, folder); /* which has the packed file */
    }
}

/* ---- the file ---- */

/* Opens, answers, closes; notes as the report has them. */
static void start(char *dir, const char *folder, char *notes, struct answer *a)
{
    struct mk *k;

    notes[0] = '\0';
    k = mk_open_as(dir, mk_best(), -1, 0, MODEL_COMPACT, folder, notes);
    ask(k, a);
    mk_close(k);
}

struct life {
    char *dir;
    const char *folder;
    char notes[MK_NOTES];
    struct answer first, now;
};

static void begin(struct life *l)
{
    memset(l, 0, sizeof(*l));
    l->dir = micro(SYNTH_MXFP4);
    l->folder = ckpt_state_folder(l->dir);
    start(l->dir, l->folder, l->notes, &l->first);
    assert_non_null(strstr(l->notes, "weights = compact: made "));
}

static void end(struct life *l)
{
    free(l->first.hidden);
    free(l->first.logits);
    drop(l->dir, l->folder);
}

/* Starts again: the same answer, and the notes say what is expected (NULL:
 * nothing about compact weights). */
static void again(struct life *l, const char *expected)
{
    static const struct model_info none;

    start(l->dir, l->folder, l->notes, &l->now);
    compare(expected != NULL ? expected : "mapped", &l->first, &l->now, &none);
    if (expected == NULL) {
        assert_null(strstr(l->notes, "compact"));
    } else if (strstr(l->notes, expected) == NULL) {
        fail_msg("expected \"%s\", found:\n%s", expected, l->notes);
    }
    free(l->now.hidden);
    free(l->now.logits);
}

static void poke(const char *path, off_t at, size_t n, int byte)
{
    int fd = open(path, O_WRONLY);
    unsigned char bytes[64];

    assert_true(fd >= 0 && n <= sizeof(bytes));
    memset(bytes, byte, n);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
    close(fd);
}

static void test_a_second_start_maps_the_file(void **state)
{
    static struct life l;
    struct stat a, b;

    (void)state;
    begin(&l);
    assert_int_equal(stat(cache_file(l.folder), &a), 0);
    assert_int_equal(a.st_mode & 0777, 0600);
    again(&l, NULL);
    assert_int_equal(stat(cache_file(l.folder), &b), 0);
    assert_int_equal(a.st_ino, b.st_ino);
    end(&l);
}

/* Wherever it is damaged: in a matrix, a line, the head. */
static void test_a_damaged_file_is_named_and_made_again(void **state)
{
    static struct life l;
    static const off_t at[] = {4096 + 64, 48 + 4, 8 + 16};
    struct stat st;

    (void)state;
    begin(&l);
    for (int i = 0; i < 3; i++) {
        poke(cache_file(l.folder), at[i], 1, 0x5a);
        again(&l, "is damaged: made again");
        again(&l, NULL);
    }
    /* the last escape list, or its end */
    assert_int_equal(stat(cache_file(l.folder), &st), 0);
    poke(cache_file(l.folder), 0, 8, 'x');
    again(&l, "is damaged: made again");
    end(&l);
}

static void test_a_half_file_is_named_and_made_again(void **state)
{
    static struct life l;
    struct stat st;

    (void)state;
    begin(&l);
    assert_int_equal(stat(cache_file(l.folder), &st), 0);
    assert_int_equal(truncate(cache_file(l.folder), st.st_size / 2), 0);
    again(&l, "is cut short: made again");
    assert_int_equal(truncate(cache_file(l.folder), 10), 0);
    again(&l, "is cut short: made again");
    assert_int_equal(truncate(cache_file(l.folder), 0), 0);
    again(&l, "is cut short: made again");
    again(&l, NULL);
    end(&l);
}

/* What a start that was killed leaves behind is written over. */
static void test_a_temporary_file_is_in_nobodys_way(void **state)
{
    static struct life l;
    char temp[600];
    int fd;

    (void)state;
    begin(&l);
    snprintf(temp, sizeof(temp), "%s.tmp", cache_file(l.folder));
    unlink(cache_file(l.folder));
    fd = open(temp, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    again(&l, "made ");
    again(&l, NULL);
    end(&l);
}

static void test_a_file_of_other_shards_is_made_again(void **state)
{
    static struct life l;
    struct timespec t[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

    (void)state;
    begin(&l);
    assert_int_equal(
        utimensat(AT_FDCWD, ckpt_path(l.dir, "model-00001.safetensors"), t, 0),
        0);
    again(&l, "is of other shards: made again");
    again(&l, NULL);
    end(&l);
}

static void test_nowhere_to_keep_it(void **state)
{
    static struct life l;
    const char *folder;

    (void)state;
    begin(&l);
    folder = l.folder;
    l.folder = NULL; /* no state directory: nothing to say */
    again(&l, NULL);
    l.folder = "/nonexistent/folder";
    again(&l, on_device() ? "cannot be made: No such file or directory: packed "
                            "on the way"
                          : "cannot be made: No such file or directory: kept "
                            "in memory");
    l.folder = folder;
    end(&l);
}

/* A row of wild exponents: the matrix stays BF16, the note names it. */
static void test_a_matrix_that_does_not_pack(void **state)
{
    char *dir = micro(SYNTH_BF16), notes[MK_NOTES] = "";
    unsigned char high[96 * 64];
    struct answer a;
    struct mk *k;

    (void)state;
    for (size_t i = 0; i < sizeof(high); i++) { /* exponents 96 .. 127 */
        high[i] = (unsigned char)(0x30 + i * 7 % 16);
    }
    ckpt_poke_many(dir, "lm_head.weight", 1, 2, high, sizeof(high));
    k = mk_open_as(dir, mk_best(), -1, 0, MODEL_COMPACT, NULL, notes);
    assert_non_null(strstr(notes, "stays BF16"));
    ask(k, &a);
    free(a.hidden);
    free(a.logits);
    mk_close(k);
    drop(dir, NULL);
}

/* ---- what is read, what is planned ---- */

static void test_fewer_bytes_are_read_and_planned(void **state)
{
    char *dir = micro(SYNTH_MXFP4);
    const char *folder = ckpt_state_folder(dir);
    uint64_t bytes[2], planned[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct answer a;
        struct mk *k = mk_open_as(dir, mk_best(), 0, 0,
                                  i ? MODEL_COMPACT : MODEL_MAP, folder, NULL);

        ask(k, &a);
        bytes[i] = a.bytes;
        planned[i] = k->info->memory.weights_bf16;
        free(a.hidden);
        free(a.logits);
        mk_close(k);
    }
    /* micro's rows are short of whole blocks: 96 columns take 192 bytes */
    assert_true(bytes[1] != bytes[0]);
    assert_true(planned[1] != planned[0]);
    drop(dir, folder);
}

int main(void)
{
    const struct CMUnitTest bits[] = {
        cmocka_unit_test(test_every_bit_is_the_same),
        cmocka_unit_test(test_fewer_bytes_are_read_and_planned),
    };
    const struct CMUnitTest file[] = {
        cmocka_unit_test(test_a_second_start_maps_the_file),
        cmocka_unit_test(test_a_damaged_file_is_named_and_made_again),
        cmocka_unit_test(test_a_half_file_is_named_and_made_again),
        cmocka_unit_test(test_a_temporary_file_is_in_nobodys_way),
        cmocka_unit_test(test_a_file_of_other_shards_is_made_again),
        cmocka_unit_test(test_nowhere_to_keep_it),
        cmocka_unit_test(test_a_matrix_that_does_not_pack),
    };
    /* An emulator is slow: what differs with it. */
    const struct CMUnitTest device[] = {
        cmocka_unit_test(test_a_second_start_maps_the_file),
        cmocka_unit_test(test_a_damaged_file_is_named_and_made_again),
        cmocka_unit_test(test_nowhere_to_keep_it),
        cmocka_unit_test(test_a_matrix_that_does_not_pack),
    };
    int r = cmocka_run_group_tests(bits, NULL, NULL);

    if (r == 0 && on_device()) {
        r = cmocka_run_group_tests(device, NULL, NULL);
    } else if (r == 0 && getenv("KT_BACKEND") == NULL) {
        r = cmocka_run_group_tests(file, NULL, NULL);
    }
    return r;
}
