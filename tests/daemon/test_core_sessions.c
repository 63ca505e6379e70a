/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Sessions that are saved and restored, over the fake model, which aborts when
 * a slot is read that does not hold what it should. Disks that are full or
 * stand still are made of limits and of fifos: nothing here waits for a time.
 */

#include "tests/test.h"

#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/daemon/sessions_rig.h"

/* fr_60: the checkpoint right after the open turn's `assistant\n` is saved too,
 * within a page, near the end and far behind the window; what is restored is
 * not computed again, and drafting goes on as if it had never stopped. */
static void test_fr_60_the_open_turn_is_restored(void **state)
{
    static const int open_at[] = {78, 130, 198};

    (void)state;
    fake.eos_one_in = 0;
    for (int k = 0; k < 3; k++) {
        int n_open = open_at[k], more = k == 1 ? 10 : 300;
        int accepted, drafted, len = n_open + 2;
        struct answer *a;
        struct rig r;

        open_rig(&r);
        make(&r, 1, "a", len, n_open, more);
        assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
        a = go_on(&r, 3, "b", len + 40, n_open);
        assert_int_equal(a->usage.cached_tokens, n_open);
        accepted = a->usage.accepted;
        drafted = a->usage.drafted;
        rig_finish(&r);

        open_rig(&r);
        assert_true(op_end(&r, 2, SESSION_RESTORE, "a")->done);
        /* All that was computed: everything but the newest token. */
        assert_int_equal(r.answer[0].session.cached, len + more - 1);
        a = go_on(&r, 3, "a", len + 40, n_open);
        assert_int_equal(a->usage.cached_tokens, n_open);
        assert_int_equal(a->usage.accepted, accepted);
        assert_int_equal(a->usage.drafted, drafted);
        assert_true(op_end(&r, 4, SESSION_DROP, "a")->done);
        rig_finish(&r);
    }
}

/* Another model, and the same one computed by other kernels. */
static void test_another_models_file_is_refused(void **state)
{
    static const struct {
        uint64_t fingerprint;
        const char *device, *words;
    } other[] = {
        {1, "cpu avx512, 2 threads", "another model: fingerprint"},
        {0, "cpu avx2, 2 threads",
         "with the kernels of cpu avx512, these are those of cpu avx2"},
        {0, "cpu avx512, 1 thread", NULL},
    };
    struct rig r;

    (void)state;
    fake.device = "cpu avx512, 2 threads";
    open_rig(&r);
    make(&r, 1, "a", 200, 150, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    rig_finish(&r);
    for (int i = 0; i < 3; i++) {
        struct answer *a;

        fake.fingerprint = other[i].fingerprint;
        fake.device = other[i].device;
        open_rig(&r);
        a = op_end(&r, 3, SESSION_RESTORE, "a");
        assert_int_equal(a->failed, other[i].words != NULL);
        if (other[i].words != NULL) {
            assert_string_equal(a->code, "corrupt");
            assert_non_null(strstr(a->message, other[i].words));
        }
        rig_finish(&r);
    }
}

/* The disk takes no more in the middle of a save. */
static void test_a_write_that_fails_in_the_middle(void **state)
{
    struct rlimit whole, little;
    struct stat before, after;
    char file[128], temp[128];
    struct answer *a;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    path_of(file, sizeof(file), "a");
    path_of(temp, sizeof(temp), ".a.new");
    open_rig(&r);
    make(&r, 1, "a", 200, 150, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    assert_int_equal(stat(file, &before), 0);
    make(&r, 3, "a", 300, 250, 20);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    little = whole;
    little.rlim_cur = (rlim_t)before.st_size / 2;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    a = op_end(&r, 4, SESSION_SAVE, "a");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_true(a->failed);
    assert_string_equal(a->code, "no_memory");
    assert_string_equal(a->message, "a: writing: File too large");
    /* The old file is whole, no other is left, the session is as it was. */
    assert_int_equal(stat(file, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_size, before.st_size);
    assert_int_equal(access(temp, F_OK), -1);
    assert_int_equal(go_on(&r, 5, "a", 310, 250)->usage.cached_tokens, 250);
    a = op_end(&r, 6, SESSION_SAVE, "a");
    assert_true(a->done);
    assert_true(a->session.saved);
    rig_finish(&r);
}

/* A disk that stands still: whoever else is there is served to the end. */
static void test_others_go_on_during_a_transfer(void **state)
{
    char file[128], temp[128], bytes[4096];
    struct answer *a;
    struct rig r;
    int fd;

    (void)state;
    fake.eos_one_in = 0;
    path_of(file, sizeof(file), "a");
    path_of(temp, sizeof(temp), ".a.new");
    open_rig(&r);
    make(&r, 1, "a", 800, 0, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    assert_int_equal(mkfifo(temp, 0600),
                     0); /* its opening waits for a reader */
    a = op(&r, 3, SESSION_SAVE, "a", 0);
    make(&r, 4, "b", 100, 0, 50);
    make(&r, 5, "a", 820, 0, 50); /* and the session itself goes on */
    assert_false(a->done || a->failed);
    fd = open(temp, O_RDONLY);
    assert_true(fd >= 0);
    while (!a->done && !a->failed) {
        (void)turn_once(&r);
        if (a->failed) {
            break;
        }
        assert_true(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        while (read(fd, bytes, sizeof(bytes)) > 0) {
        }
    }
    assert_int_equal(close(fd), 0);
    assert_true(a->failed); /* a fifo cannot be made durable */
    assert_non_null(strstr(a->message, "a: fsync: "));
    assert_int_equal(access(temp, F_OK), -1);
    rig_finish(&r);

    /* The same while one is read. */
    open_rig(&r);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    a = op(&r, 3, SESSION_RESTORE, "a", 0);
    make(&r, 4, "b", 100, 0, 50);
    assert_false(a->done || a->failed);
    fd = open(file, O_WRONLY);
    assert_true(fd >= 0);
    assert_true(wait_for(&r, 3)->failed);
    assert_string_equal(a->message, "a is no file");
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(file), 0);
    rig_finish(&r);
}

/* A look at this clock, and each chunk that is read in costs one, takes 1 ms.
 */
static uint64_t ticking(void *ctx)
{
    struct rig *r = ctx;

    return r->clock_us += 1000;
}

/* A long session is moved a few chunks at a time, and whoever runs makes a step
 * between two of these turns: none waits for the whole. A save moves four, a
 * load what comes in a quarter of the step's target. */
static void test_steps_between_the_chunks(void **state)
{
    enum { CHUNKS_A_STEP = 4, TARGET_MS = 4 * CHUNKS_A_STEP };
    struct answer *a, *b;
    int pages = 0;

    (void)state;
    fake.eos_one_in = 0;
    for (int load = 0; load < 2; load++) {
        struct rig r;
        int steps = 0;

        assert_int_equal(sem_init(&moved, 0, 0), 0);
        rig_init(&r);
        configure(&r);
        r.conf.wake = post_wake;
        rig_start(&r);
        /* A page is a chunk. */
        core_destroy(r.core);
        r.conf.store_chunk = model_page_bytes(r.model, MODEL_FULL);
        r.conf.step_target_ms = TARGET_MS;
        r.conf.now_us = ticking;
        assert_int_equal(core_create(&r.core, &r.conf), 0);
        if (load == 0) {
            make(&r, 1, "a", 900, 0, 20);
            pages = (919 + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK; /* full ones */
        }
        rig_add(&r, other_turn(2, "b", 100, 500));
        while (answer_of(&r, 2)->n_ids == 0) {
            assert_int_equal(turn_once(&r), 1);
        }
        a = op(&r, 3, load == 0 ? SESSION_SAVE : SESSION_RESTORE, "a", 0);
        b = answer_of(&r, 2);
        while (!a->done) {
            assert_false(a->failed || b->done);
            if (core_tend(r.core)) {
                assert_int_equal(core_step(r.core), 1);
                steps++;
            } else {
                (void)sem_wait(&moved);
            }
        }
        assert_true(steps >= pages / CHUNKS_A_STEP);
        if (load == 1) {
            assert_int_equal(a->session.cached, 919);
        }
        assert_true(wait_for(&r, 2)->done);
        rig_finish(&r);
        (void)sem_destroy(&moved);
    }
}

/* Pages that nobody uses give way to a restore; those in use do not, and it
 * says so: the session stays in its file and is there later. */
static void test_a_restore_into_a_full_pool(void **state)
{
    struct answer *a;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    open_rig(&r);
    make(&r, 1, "a", 600, 0, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    rig_finish(&r);

    fake.pages[MODEL_FULL] = 17;
    fake.pages[MODEL_SLIDING] = 20;
    open_rig(&r);
    rig_add(&r, other_turn(3, "b", 700, 60));
    while (answer_of(&r, 3)->n_ids == 0) {
        assert_int_equal(turn_once(&r), 1);
    }
    a = op(&r, 4, SESSION_RESTORE, "a", 0);
    while (!a->done && !a->failed) {
        (void)core_tend(r.core);
    }
    assert_true(a->failed);
    assert_string_equal(a->code, "busy");
    assert_non_null(strstr(a->message, "session a: its pages do not fit: 10"));
    assert_true(wait_for(&r, 3)->done);
    /* Now what b left is nobody's. */
    a = op_end(&r, 5, SESSION_RESTORE, "a");
    assert_true(a->done);
    assert_int_equal(a->session.cached, 619);
    rig_finish(&r);

    /* A turn takes it without its pages. */
    fake.pages[MODEL_FULL] = 17;
    open_rig(&r);
    rig_add(&r, other_turn(3, "b", 700, 60));
    while (answer_of(&r, 3)->n_ids == 0) {
        assert_int_equal(turn_once(&r), 1);
    }
    rig_add(&r, turn(4, "a", 640, 0, 30));
    while (granted.n == 0) {
        (void)core_tend(r.core);
    }
    assert_true(wait_for(&r, 4)->done);
    assert_int_equal(r.answer[1].usage.cached_tokens, 0);
    assert_true(wait_for(&r, 3)->done);
    rig_finish(&r);
}

/* Whoever waits for a file that turns out damaged is told, up to a drop among
 * them: that one works, and who comes after it finds no session. */
static void test_dropped_while_a_damaged_file_is_read(void **state)
{
    struct job *j;
    char file[128];
    struct rig r;
    int fd;

    (void)state;
    fake.eos_one_in = 0;
    path_of(file, sizeof(file), "a");
    open_rig(&r);
    make(&r, 1, "a", 600, 0, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    rig_finish(&r);
    fd = open(file, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "broken", 6, 8192), 6);
    close(fd);

    open_rig(&r);
    (void)op(&r, 1, SESSION_RESTORE, "a", 0);
    (void)op(&r, 2, SESSION_PIN, "a", 0);
    (void)op(&r, 3, SESSION_DROP, "a", 0);
    (void)op(&r, 4, SESSION_PIN, "a", 0);
    j = turn(5, "a", 100, 0, 10);
    j->append = true;
    rig_add(&r, j);
    rig_add(&r, turn(6, "a", 120, 0, 10)); /* begins another */
    assert_true(wait_for(&r, 6)->done);
    assert_string_equal(answer_of(&r, 1)->code, "corrupt");
    assert_string_equal(answer_of(&r, 2)->code, "corrupt");
    assert_true(answer_of(&r, 3)->done);
    assert_string_equal(answer_of(&r, 4)->code, "not_found");
    assert_string_equal(answer_of(&r, 5)->code, "not_found");
    assert_int_equal(access(file, F_OK), -1);
    rig_finish(&r);
}

/* Under kv_share_per_owner pins, requests and restores of one owner share what
 * he may hold, and whoever does not fit is told what is in the way. */
static void test_a_share_of_one_owner(void **state)
{
    struct answer *a;
    struct job *j;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = fake.pages[MODEL_SLIDING] = 64;
    rig_init(&r);
    configure(&r);
    r.conf.kv_share_per_owner = 0.25; /* 16 pages */
    r.conf.step_target_ms = 40;       /* 600 tokens take more than a step */
    rig_start(&r);
    make(&r, 1, "a", 300, 0, 10); /* 5 */
    rig_add(&r, other_turn(2, "b", 300, 10));
    assert_true(wait_for(&r, 2)->done);
    rig_add(&r, other_turn(3, "c", 70, 10)); /* 2 */
    assert_true(wait_for(&r, 3)->done);
    assert_true(op_end(&r, 4, SESSION_SAVE, "a")->done);
    assert_true(op_end(&r, 5, SESSION_PIN, "a")->done);
    a = op_end(&r, 6, SESSION_PIN, "b");
    assert_string_equal(a->code, "no_memory");
    assert_non_null(strstr(a->message, "counted for each, and may pin 8"));

    rig_add(&r, new_job(7, 800)); /* 13 */
    a = answer_of(&r, 7);
    assert_string_equal(a->code, "busy");
    assert_int_equal(a->retry_ms, CORE_RETRY_MS);
    assert_non_null(strstr(a->message, "one user may hold 16 of 64 "
                                       "(kv_share_per_owner), 5 of them pinned "
                                       "by sessions: unpin some"));
    rig_add(&r, new_job(8, 600)); /* 11 at most, with its answer */
    assert_int_equal(turn_once(&r), 1);
    a = op_end(&r, 9, SESSION_PIN, "c");
    assert_string_equal(a->code, "no_memory");
    assert_non_null(strstr(a->message, "7 pages would be pinned, one user may "
                                       "hold 16 (kv_share_per_owner), and a "
                                       "request of his may take 11"));
    assert_true(wait_for(&r, 8)->done);
    assert_int_equal(answer_of(&r, 8)->n_ids, 11 * 64 - 600);
    assert_true(op_end(&r, 10, SESSION_PIN, "c")->done);
    assert_true(op_end(&r, 11, SESSION_UNPIN, "a")->done);
    assert_true(op_end(&r, 12, SESSION_UNPIN, "c")->done);
    rig_finish(&r);

    rig_init(&r);
    configure(&r);
    r.conf.kv_share_per_owner = 0.25;
    rig_start(&r);
    rig_add(&r, other_turn(1, "d", 800, 60));
    while (answer_of(&r, 1)->n_ids == 0) {
        assert_int_equal(turn_once(&r), 1);
    }
    a = op(&r, 2, SESSION_RESTORE, "a", 0);
    while (!a->done && !a->failed) {
        (void)core_tend(r.core);
    }
    assert_string_equal(a->code, "busy");
    assert_non_null(strstr(a->message, "5 pages are needed beside 13 of this "
                                       "user's, who may hold 16 "
                                       "(kv_share_per_owner): try again"));
    /* Another one's room is his own. */
    j = other_turn(3, "d", 800, 60);
    j->uid = 7;
    rig_add(&r, j);
    assert_true(wait_for(&r, 3)->done);
    assert_true(wait_for(&r, 1)->done);
    a = op_end(&r, 4, SESSION_RESTORE, "a");
    assert_true(a->done);
    assert_int_equal(a->session.cached, 309);
    rig_finish(&r);
}

/* Saves that have not ended take of the quota as if they had. */
static void test_saves_at_once_share_the_quota(void **state)
{
    struct answer *a, *b;
    struct stat st;
    char file[128];
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    open_rig(&r);
    make(&r, 1, "a", 200, 150, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    rig_finish(&r);
    path_of(file, sizeof(file), "a");
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(unlink(file), 0);

    for (int i = 0; i < 2; i++) {
        uint64_t most = (uint64_t)st.st_size * 3 / 2;

        rig_init(&r);
        configure(&r);
        *(i == 0 ? &r.conf.session_disk : &r.conf.session_disk_per_owner) =
            most;
        rig_start(&r);
        make(&r, 1, "a", 200, 150, 20);
        make(&r, 2, "b", 200, 150, 20);
        a = op(&r, 3, SESSION_SAVE, "a", 0);
        b = op(&r, 4, SESSION_SAVE, "b", 0);
        assert_true(b->failed);
        assert_string_equal(b->code, "busy");
        /* Again the same one: its file is replaced. */
        (void)op(&r, 5, SESSION_SAVE, "a", 0);
        assert_true(wait_for(&r, 3)->done);
        assert_true(a->session.saved);
        assert_true(wait_for(&r, 5)->done);
        assert_true(op_end(&r, 6, SESSION_DROP, "a")->done);
        assert_true(op_end(&r, 7, SESSION_SAVE, "b")->done);
        assert_true(op_end(&r, 8, SESSION_DROP, "b")->done);
        rig_finish(&r);
    }
}

/* What was dropped does not come back by a save that was on its way, nor under
 * the next conversation of that name. */
static void test_dropped_while_it_is_saved(void **state)
{
    struct answer *a;
    char file[128];
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    path_of(file, sizeof(file), "a");
    open_rig(&r);
    make(&r, 1, "a", 800, 0, 20);
    (void)op(&r, 2, SESSION_SAVE, "a", 0);
    assert_true(op_end(&r, 3, SESSION_DROP, "a")->done);
    rig_add(&r, other_turn(4, "a", 100, 20));
    assert_true(wait_for(&r, 4)->done);
    a = wait_for(&r, 2); /* whether it was renamed in time or not */
    if (a->failed) {
        assert_string_equal(a->code, "not_found");
    }
    assert_int_equal(access(file, F_OK), -1);
    a = op_end(&r, 5, SESSION_UNPIN, "a"); /* shows it */
    assert_true(a->done);
    assert_false(a->session.saved);
    assert_int_equal(a->session.file_bytes, 0);
    /* Its own save is one. */
    a = op_end(&r, 6, SESSION_SAVE, "a");
    assert_true(a->session.saved);
    assert_int_equal(access(file, F_OK), 0);
    rig_finish(&r);
}

/* fr_60, where nothing computed is kept: no success that is none. */
static void test_fr_60_without_a_prefix_cache(void **state)
{
    struct answer *a;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    open_rig(&r);
    make(&r, 1, "a", 200, 150, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    rig_finish(&r);

    rig_init(&r);
    configure(&r);
    r.conf.no_prefix_cache = true;
    rig_start(&r);
    a = op_end(&r, 3, SESSION_RESTORE, "a");
    assert_true(a->failed);
    assert_string_equal(a->code, "unsupported");
    assert_non_null(strstr(a->message, "prefix_cache = no"));
    rig_add(&r, turn(4, "a", 240, 0, 30)); /* a turn finds it all the same */
    assert_true(wait_for(&r, 4)->done);
    assert_int_equal(r.answer[1].usage.cached_tokens, 0);
    rig_finish(&r);
}

/* Files that were there before a limit was lowered are seen, count, and are not
 * written over by a session that does not know of them. */
static void test_found_beyond_the_limit(void **state)
{
    struct answer *a;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    open_rig(&r);
    make(&r, 1, "a", 200, 150, 20);
    make(&r, 2, "b", 200, 150, 20);
    assert_true(op_end(&r, 3, SESSION_SAVE, "a")->done);
    assert_true(op_end(&r, 4, SESSION_SAVE, "b")->done);
    rig_finish(&r);

    rig_init(&r);
    configure(&r);
    r.conf.named.max = r.conf.named.max_per_owner = 1;
    rig_start(&r);
    rig_add(&r, turn(5, "c", 100, 0, 5));
    assert_string_equal(wait_for(&r, 5)->code, "busy");
    assert_true(op_end(&r, 6, SESSION_RESTORE, "a")->done);
    a = op_end(&r, 7, SESSION_RESTORE, "b");
    assert_true(a->done);
    assert_int_equal(a->session.cached, 219);
    assert_true(op_end(&r, 8, SESSION_DROP, "a")->done);
    assert_true(op_end(&r, 9, SESSION_DROP, "b")->done);
    make(&r, 10, "c", 100, 0, 5);
    rig_finish(&r);
}

/* Pages that a save has not copied yet are not free: a request that needs them
 * waits for the disk, and is neither refused nor a fault. */
static void test_a_save_stands_still_in_a_full_pool(void **state)
{
    char temp[128], bytes[4096];
    struct answer *a, *b;
    struct rig r;
    int fd;

    (void)state;
    fake.eos_one_in = 0;
    path_of(temp, sizeof(temp), ".a.new");
    fake.pages[MODEL_FULL] = 17;
    open_rig(&r);
    make(&r, 1, "a", 600, 0, 20);
    assert_true(op_end(&r, 2, SESSION_SAVE, "a")->done);
    assert_int_equal(mkfifo(temp, 0600), 0);
    a = op(&r, 3, SESSION_SAVE, "a", 0);
    rig_add(&r, other_turn(4, "b", 900, 60));
    b = answer_of(&r, 4);
    for (int i = 0; i < 100; i++) {
        (void)turn_once(&r);
    }
    assert_int_equal(turn_once(&r), 0);
    assert_false(a->done || a->failed || b->done || b->failed);
    fd = open(temp, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    while (!a->done && !a->failed) {
        (void)turn_once(&r);
        while (read(fd, bytes, sizeof(bytes)) > 0) {
        }
    }
    assert_true(wait_for(&r, 4)->done);
    assert_int_equal(b->n_ids, 60);
    assert_int_equal(close(fd), 0);
    rig_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_fr_60_the_open_turn_is_restored, fresh),
        cmocka_unit_test_setup(test_another_models_file_is_refused, fresh),
        cmocka_unit_test_setup(test_a_write_that_fails_in_the_middle, fresh),
        cmocka_unit_test_setup(test_others_go_on_during_a_transfer, fresh),
        cmocka_unit_test_setup(test_steps_between_the_chunks, fresh),
        cmocka_unit_test_setup(test_a_restore_into_a_full_pool, fresh),
        cmocka_unit_test_setup(test_dropped_while_a_damaged_file_is_read,
                               fresh),
        cmocka_unit_test_setup(test_a_share_of_one_owner, fresh),
        cmocka_unit_test_setup(test_saves_at_once_share_the_quota, fresh),
        cmocka_unit_test_setup(test_dropped_while_it_is_saved, fresh),
        cmocka_unit_test_setup(test_fr_60_without_a_prefix_cache, fresh),
        cmocka_unit_test_setup(test_found_beyond_the_limit, fresh),
        cmocka_unit_test_setup(test_a_save_stands_still_in_a_full_pool, fresh),
    };

    return test_main(tests, sessions_setup, sessions_teardown);
}
