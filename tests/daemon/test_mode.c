/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * weights = auto: what it means where, and what a start reads and holds in each
 * mode, counted by the kernel.
 */
#include "daemon/model/mode.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/compact.h"
#include "daemon/model/weights.h"
#include "kernels/ref/ref.h"
#include "tests/ckpt.h"
#include "tests/test.h"

struct opened {
    struct kern *kern;
    struct checkpoint *ck;
    struct weights *w;
    struct model_report rep;
};

static struct kern *open_kern(void)
{
    struct kern_open_args args = {0};
    struct kern *k;

    assert_int_equal(kern_open(&kern_ref_ops, &args, &k), 0);
    k->compact_pays = true;
    return k;
}

static void begin(struct opened *o, const char *dir, const char *state_dir,
                  enum model_weights mode)
{
    struct model_conf c = {
        .path = dir, .state_dir = state_dir, .drafts = -1, .weights = mode};

    memset(o, 0, sizeof(*o));
    o->kern = open_kern();
    assert_int_equal(checkpoint_open(&c, &o->rep, &o->ck), 0);
}

static void end(struct opened *o)
{
    weights_destroy(o->w);
    checkpoint_close(o->ck);
    kern_close(o->kern);
    model_report_finish(&o->rep);
}

/* The mode that auto becomes, and the note's reason. */
static void choose(struct opened *o, uint64_t least, enum model_weights mode,
                   const char *note)
{
    struct report rep;

    report_init(&rep);
    assert_int_equal(mode_choose(o->ck, o->kern, least, &rep), 0);
    assert_int_equal(report_finish(&rep, &o->rep), 0);
    assert_int_equal(o->ck->conf.weights, mode);
    if (note == NULL) {
        assert_int_equal(o->rep.n_notes, 0);
        return;
    }
    assert_true(o->rep.n_notes > 0);
    if (strstr(o->rep.note[o->rep.n_notes - 1], note) == NULL) {
        fail_msg("expected \"%s\", found \"%s\"", note,
                 o->rep.note[o->rep.n_notes - 1]);
    }
}

/* Mostly BF16 matrices; some 50 MB, so that huge pages at their ends, which
 * belong to what is packed, too, do not count. */
static char *mostly_bf16(void)
{
    struct synth s;

    assert_true(synth_preset(&s, "micro"));
    s.hidden = 512;
    s.vocab = 24576;
    s.n_mtp = 0;
    return ckpt_synth(&s);
}

static void drop(char *dir, const char *state, const struct checkpoint *ck)
{
    char path[COMPACT_MAX_PATH];

    if (ck != NULL && compact_path(ck, path, sizeof(path)) == 0) {
        unlink(path);
    }
    assert_int_equal(rmdir(state), 0);
    ckpt_remove(dir);
}

static void test_auto_says_what_it_means_and_why(void **state)
{
    char *dir = mostly_bf16(), none[600];
    const char *folder = ckpt_state_folder(dir);
    struct opened o;

    (void)state;
    snprintf(none, sizeof(none), "%s/none", folder);
    begin(&o, dir, NULL, MODEL_AUTO);
    choose(&o, 1, MODEL_MAP, "weights = auto: map: ");
    choose(&o, 1, MODEL_MAP, "no state_dir to keep them in"); /* decided */
    end(&o);
    begin(&o, dir, "", MODEL_AUTO);
    choose(&o, 1, MODEL_MAP, "no state_dir to keep them in");
    end(&o);
    begin(&o, dir, none, MODEL_AUTO);
    choose(&o, 1, MODEL_MAP, "state_dir cannot be written");
    end(&o);
    begin(&o, dir, folder, MODEL_AUTO);
    choose(&o, MODE_LEAST_BYTES, MODEL_MAP, "too few to matter");
    end(&o);
    begin(&o, dir, folder, MODEL_AUTO);
    o.kern->compact_pays = false;
    choose(&o, 1, MODEL_MAP, "on this instruction set it would not be faster");
    end(&o);
    begin(&o, dir, folder, MODEL_AUTO);
    choose(&o, 1, MODEL_COMPACT, "weights = auto: compact: ");
    end(&o);
    for (int mode = MODEL_MAP; mode < MODEL_AUTO; mode++) {
        begin(&o, dir, folder, (enum model_weights)mode);
        choose(&o, 1, (enum model_weights)mode, NULL);
        end(&o);
    }
    drop(dir, folder, NULL);
}

/* Chosen, and then the file cannot be made after all: mapped, and said so. */
static void test_auto_maps_where_the_file_cannot_be_made(void **state)
{
    char *dir = mostly_bf16();
    const char *folder = ckpt_state_folder(dir);
    struct opened o;

    (void)state;
    begin(&o, dir, folder, MODEL_AUTO);
    choose(&o, 1, MODEL_COMPACT, "compact");
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(weights_load(o.ck, o.kern, &o.rep, &o.w), 0);
    assert_null(o.ck->compact);
    assert_int_equal(o.ck->conf.weights, MODEL_MAP);
    assert_non_null(strstr(o.rep.note[o.rep.n_notes - 1],
                           "cannot be made: No such file or directory: mapped "
                           "as they are"));
    end(&o);
    ckpt_remove(dir);
}

/* ---- what the kernel counts ---------------------------------------------- */

/* Bytes that read and pread gave this process so far. */
static uint64_t bytes_read(void)
{
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");

    if (f == NULL) {
        test_skip(NULL, "no /proc/self/io");
    }
    assert_int_equal(fscanf(f, "rchar: %llu", &n), 1);
    fclose(f);
    return n;
}

/* Resident bytes of mappings whose path holds `what`. */
static uint64_t resident(const char *what)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[1024];
    uint64_t sum = 0;
    bool ours = false;
    unsigned long long kb;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strchr(line, '/') != NULL || strchr(line, '-') != NULL) {
            ours = strstr(line, what) != NULL;
        } else if (ours && sscanf(line, "Rss: %llu kB", &kb) == 1) {
            sum += kb * 1024;
        }
    }
    fclose(f);
    return sum;
}

struct held {
    uint64_t read;   /* by a start */
    uint64_t files;  /* bytes of the shards */
    uint64_t shards; /* resident of them */
    uint64_t packed; /* resident of the packed file */
};

static struct held start(const char *dir, const char *folder,
                         enum model_weights mode)
{
    struct held h = {0};
    struct opened o;

    begin(&o, dir, folder, mode);
    h.read = bytes_read();
    assert_int_equal(weights_load(o.ck, o.kern, &o.rep, &o.w), 0);
    h.read = bytes_read() - h.read;
    for (int i = 0; i < o.ck->n_files; i++) {
        h.files += o.ck->file[i].size;
    }
    h.shards = resident(".safetensors");
    h.packed = resident("/compact-");
    end(&o);
    return h;
}

/* When a start is over, mapped weights are in memory and mapped: nothing was
 * read into memory of our own, and steps need not wait for pages. */
static void test_a_start_maps_and_does_not_read(void **state)
{
    char *dir = mostly_bf16();
    const char *folder = ckpt_state_folder(dir);
    struct held map, made, mapped, copied;
    struct opened o;

    (void)state;
    map = start(dir, folder, MODEL_MAP);
    assert_true(map.read < map.files / 16);
    assert_true(map.shards > map.files / 16 * 15);
    assert_int_equal(map.packed, 0);
    copied = start(dir, folder, MODEL_COPY); /* that reading is seen */
    assert_true(copied.read > copied.files / 16 * 15);
    assert_int_equal(copied.shards, 0);
    made = start(dir, folder, MODEL_COMPACT);
    assert_true(made.read > made.files / 2);
    mapped = start(dir, folder, MODEL_COMPACT);
    assert_true(mapped.read < mapped.files / 16);
    assert_true(mapped.packed > 0);
    begin(&o, dir, folder, MODEL_COMPACT);
    drop(dir, folder, o.ck);
    end(&o);
}

/* Packed weights take less memory than the files: the BF16 that they came from
 * is not mapped beside them. */
static void test_compact_holds_less_than_the_files(void **state)
{
    char *dir = mostly_bf16();
    const char *folder = ckpt_state_folder(dir);
    struct opened o;

    (void)state;
    for (int i = 0; i < 2; i++) { /* that makes the file; that maps it */
        struct held h = start(dir, folder, MODEL_COMPACT);

        assert_true(h.packed > h.files / 2);
        assert_true(h.packed + h.shards < h.files);
    }
    begin(&o, dir, folder, MODEL_COMPACT);
    drop(dir, folder, o.ck);
    end(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_says_what_it_means_and_why),
        cmocka_unit_test(test_auto_maps_where_the_file_cannot_be_made),
        cmocka_unit_test(test_a_start_maps_and_does_not_read),
        cmocka_unit_test(test_compact_holds_less_than_the_files),
    };

    return test_main(tests, NULL, NULL);
}
