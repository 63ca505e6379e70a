/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The files of saved sessions: what was written comes back, and whatever else
 * lies there is named and refused. Caps per owner are core_save.c's
 * (test_core_sessions.c).
 */

#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "client/wire.h"
#include "daemon/sched/store.h"

enum { N_IDS = 300, N_COMMITTED = 299, FULL = 24, SLIDING = 40, AUX = 16 };

static char dir[64], file[128], temp[128];

/* ---- what the disk sees -------------------------------------------------- */

static _Atomic int n_calls, kill_at; /* 0: never */
static char order[64]; /* write, fsync of a File, of a Directory, Rename */

/* Before the call it dies, or a letter is put down, once for equal ones. */
static void on_call(char letter)
{
    size_t n = strlen(order);

    if (atomic_fetch_add(&n_calls, 1) + 1 == atomic_load(&kill_at)) {
        (void)raise(SIGKILL);
    }
    if (n + 1 < sizeof(order) && (n == 0 || order[n - 1] != letter)) {
        order[n] = letter;
    }
}

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b);

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    on_call('w');
    return __real_write(fd, p, n);
}

int __wrap_fsync(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    on_call(S_ISDIR(st.st_mode) ? 'D' : 'F');
    return __real_fsync(fd);
}

int __wrap_renameat(int from, const char *a, int to, const char *b)
{
    on_call('R');
    return __real_renameat(from, a, to, b);
}

static void no_wake(void *ctx)
{
    (void)ctx;
}

static struct store_conf conf_of(void)
{
    return (struct store_conf){
        .dir = dir,
        .fingerprint = 0xabcd,
        .kernels = "cpu avx2",
        .page_bytes = {FULL, SLIDING},
        .aux_bytes = AUX,
        .chunk_bytes = 2 * FULL, /* several chunks */
        .wake = no_wake,
    };
}

static struct store *open_store(const struct store_conf *c)
{
    struct store *s;

    assert_int_equal(store_create(&s, c), 0);
    return s;
}

/* ---- transfers ----------------------------------------------------------- */

static char byte_of(enum store_run run, int page, int i)
{
    return (char)(1 + (int)run * 101 + page * 7 + i);
}

static void *some(const char *what, size_t n)
{
    char *p = malloc(n + 1);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        p[i] = (char)(what[0] + (char)i);
    }
    return p;
}

static struct store_transfer *a_transfer(bool load)
{
    struct store_transfer *t;

    assert_int_equal(store_transfer_create(&t), 0);
    t->load = load;
    store_owner(7, "", t->owner, sizeof(t->owner));
    strcpy(t->name, "talk");
    return t;
}

static struct store_transfer *to_save(uint32_t n_ids)
{
    struct store_transfer *t = a_transfer(false);
    struct store_head *h = &t->head;

    h->fingerprint = 0xabcd;
    strcpy(h->kernels, "cpu avx2");
    h->flags = STORE_PINNED;
    h->n_ids = n_ids;
    h->n_committed = n_ids - 1;
    h->n_open = 100;
    h->messages_bytes = 50;
    h->tools_bytes = 0;
    h->aux_bytes = h->open_aux_bytes = AUX;
    h->page_bytes[MODEL_FULL] = FULL;
    h->page_bytes[MODEL_SLIDING] = SLIDING;
    h->n_pages[STORE_FULL] =
        (h->n_committed + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK;
    h->n_pages[STORE_SLIDING] = 3;
    h->first_page[STORE_SLIDING] = h->n_pages[STORE_FULL] - 3;
    h->n_pages[STORE_OPEN] = 1;
    h->first_page[STORE_OPEN] = 1;
    store_head_finish(h);
    t->ids = some("i", (size_t)n_ids * 4);
    t->messages = some("m", 50);
    t->tools = some("t", 0);
    t->aux = some("a", AUX);
    t->open_aux = some("o", AUX);
    return t;
}

static void give_pages(struct store *s, struct store_transfer *t)
{
    for (int run = 0; run < STORE_N_RUNS; run++) {
        size_t bytes = t->head.page_bytes[store_group((enum store_run)run)];

        for (int i = 0; i < (int)t->head.n_pages[run]; i++) {
            struct store_chunk *k = malloc(sizeof(*k) + bytes);

            assert_non_null(k);
            *k = (struct store_chunk){(enum store_run)run, i, 1};
            for (size_t b = 0; b < bytes; b++) {
                k->data[b] = byte_of((enum store_run)run, i, (int)b);
            }
            while (mbox_push(t->chunk, k) < 0) {
                if (atomic_load(&t->state) != 0) {
                    free(k); /* it takes no more, and says why */
                    return;
                }
                store_wait(s);
            }
        }
    }
}

static int end_of(struct store *s, struct store_transfer *t)
{
    while (atomic_load(&t->state) == 0) {
        store_wait(s);
    }
    return atomic_load(&t->state);
}

/* 1, or -errno and why. */
static int save(const struct store_conf *c, uint32_t n_ids, char why[256])
{
    struct store *s = open_store(c);
    struct store_transfer *t = to_save(n_ids);
    int r;

    store_start(s, t);
    give_pages(s, t);
    r = end_of(s, t);
    strcpy(why, t->why);
    store_destroy(s);
    store_transfer_destroy(t);
    return r;
}

/* The pages of a load, as they come; all of them as they were saved. */
static int take_pages(struct store *s, struct store_transfer *t, int *ret_n)
{
    for (*ret_n = 0;;) {
        int state = atomic_load(&t->state);
        struct store_chunk *k = mbox_pop(t->chunk);

        if (k == NULL && state != 0) {
            return state;
        }
        if (k == NULL) {
            store_wait(s);
            continue;
        }
        for (int i = 0; i < k->n; i++) {
            size_t bytes = store_group(k->run) == MODEL_FULL ? FULL : SLIDING;

            for (size_t b = 0; b < bytes; b++) {
                assert_int_equal(k->data[(size_t)i * bytes + b],
                                 byte_of(k->run, k->first + i, (int)b));
            }
        }
        *ret_n += k->n;
        free(k);
    }
}

static int load(const struct store_conf *c, char why[256])
{
    struct store *s = open_store(c);
    struct store_transfer *t = a_transfer(true);
    int n, r;

    store_start(s, t);
    r = take_pages(s, t, &n);
    strcpy(why, t->why);
    if (r > 0) {
        struct store_transfer *was = to_save(t->head.n_ids);

        assert_memory_equal(&t->head, &was->head, sizeof(t->head));
        assert_memory_equal(t->ids, was->ids, (size_t)t->head.n_ids * 4);
        assert_memory_equal(t->messages, was->messages, 50);
        assert_memory_equal(t->aux, was->aux, AUX);
        assert_memory_equal(t->open_aux, was->open_aux, AUX);
        assert_int_equal(n, t->head.n_pages[0] + t->head.n_pages[1] +
                                t->head.n_pages[2]);
        store_transfer_destroy(was);
    }
    store_destroy(s);
    store_transfer_destroy(t);
    return r;
}

static void refused(const struct store_conf *c, int error, const char *words)
{
    char why[256];

    assert_int_equal(load(c, why), error);
    if (strstr(why, words) == NULL) {
        fail_msg("'%s' should say '%s'", why, words);
    }
    assert_non_null(strstr(why, "talk")); /* whatever it is, which file */
}

/* ---- bytes of the file ----------------------------------------------------
 */

static char *read_file(size_t *ret_n)
{
    struct stat st;
    int fd = open(file, O_RDONLY);
    char *p;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    p = malloc((size_t)st.st_size);
    assert_non_null(p);
    assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
    close(fd);
    *ret_n = (size_t)st.st_size;
    return p;
}

static void write_file(const void *p, size_t n)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

/* ---- tests --------------------------------------------------------------- */

static void test_what_was_written_comes_back(void **state)
{
    struct store_conf c = conf_of();
    struct stat st;
    char why[256];

    (void)state;
    assert_int_equal(save(&c, N_IDS, why), 1);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(access(temp, F_OK), -1);
    assert_int_equal(load(&c, why), 1);
    /* Over an older one. */
    assert_int_equal(save(&c, 400, why), 1);
    assert_int_equal(load(&c, why), 1);
}

static void test_any_flipped_byte_is_found(void **state)
{
    struct store_conf c = conf_of();
    char why[256], *p;
    size_t n;

    (void)state;
    assert_int_equal(save(&c, N_IDS, why), 1);
    p = read_file(&n);
    /* Of the head each, behind it each block and its sum several times. */
    for (size_t i = 0; i < n; i += i < sizeof(struct store_head) ? 1 : 7) {
        p[i] ^= (char)(1 << i % 8);
        write_file(p, n);
        refused(&c, -EBADMSG,
                i < sizeof(((struct store_head *)0)->magic) ? "no saved session"
                                                            : "");
        p[i] ^= (char)(1 << i % 8);
    }
    write_file(p, n);
    assert_int_equal(load(&c, why), 1);
    free(p);
}

static void test_any_other_length_is_found(void **state)
{
    struct store_conf c = conf_of();
    char why[256], *p;
    size_t n;

    (void)state;
    assert_int_equal(save(&c, N_IDS, why), 1);
    p = read_file(&n);
    for (size_t i = 0; i < n; i += 19) {
        write_file(p, i);
        refused(&c, -EBADMSG,
                i < sizeof(struct store_head) ? "ends too early"
                                              : "bytes long, its header says");
    }
    p = realloc(p, n + 1);
    assert_non_null(p);
    p[n] = 'x';
    write_file(p, n + 1);
    refused(&c, -EBADMSG, "bytes long, its header says");
    free(p);
}

/* Blocks in another order have right sums, but not in that place. */
static void test_blocks_that_changed_places(void **state)
{
    struct store_conf c = conf_of();
    size_t n, at = sizeof(struct store_head), one = FULL + 8;
    char why[256], *p, page[FULL + 8];

    (void)state;
    assert_int_equal(save(&c, N_IDS, why), 1);
    p = read_file(&n);
    at += N_IDS * 4 + 8 + 50 + 8 + 0 + 8 + 2 * (AUX + 8);
    memcpy(page, p + at, one);
    memcpy(p + at, p + at + one, one);
    memcpy(p + at + one, page, one);
    write_file(p, n);
    refused(&c, -EBADMSG, "damaged: block 5 (a full page)");
    free(p);
}

static void test_files_of_others(void **state)
{
    struct store_conf c = conf_of(), other = c;
    struct store_head h;
    char why[256], *p;
    size_t n;

    (void)state;
    assert_int_equal(save(&c, N_IDS, why), 1);
    other.fingerprint = 1;
    refused(&other, -EBADMSG, "another model: fingerprint 000000000000abcd");
    other = c;
    strcpy(other.kernels, "cpu avx512");
    refused(&other, -EBADMSG, "the kernels of cpu avx2, these are those of");
    other = c;
    other.page_bytes[MODEL_SLIDING] = SLIDING - 8;
    refused(&other, -EBADMSG, "set drafts as it was");
    other = c;
    other.aux_bytes = AUX + 1;
    refused(&other, -EBADMSG, "another shape");
    /* Of a later daemon, and right in itself. */
    p = read_file(&n);
    memcpy(&h, p, sizeof(h));
    h.version++;
    h.sum = 0;
    h.sum = XXH3_64bits(&h, sizeof(h));
    memcpy(p, &h, sizeof(h));
    write_file(p, n);
    refused(&c, -EBADMSG, "format");
    free(p);
    assert_int_equal(unlink(file), 0);
    refused(&c, -ENOENT, "No such file");
    assert_int_equal(mkdir(file, 0700), 0);
    refused(&c, -EBADMSG, "is no file");
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(symlink("/dev/zero", file), 0);
    refused(&c, -ELOOP, "symbolic links");
}

/* The floor, and a disk that takes no more in the middle: the old file stays,
 * and nothing else does. */
static void test_no_room(void **state)
{
    struct store_conf c = conf_of(), full = c;
    struct rlimit whole, little;
    char why[256];

    (void)state;
    assert_int_equal(save(&c, N_IDS, why), 1);
    full.floor = (uint64_t)1 << 60;
    assert_int_equal(save(&full, 400, why), -ENOSPC);
    assert_non_null(strstr(why, "1152921504606846976 must stay free"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    little = whole;
    little.rlim_cur = 1000;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(save(&c, 400, why), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_non_null(strstr(why, "talk: writing: "));
    assert_int_equal(access(temp, F_OK), -1);
    assert_int_equal(load(&c, why), 1); /* the old one, whole */
}

/* A daemon that stops, and a session that was dropped meanwhile. */
static void test_saves_that_are_given_up(void **state)
{
    struct store_conf c = conf_of();
    struct store_transfer *t;
    struct store *s;

    (void)state;
    for (int unwanted = 0; unwanted < 2; unwanted++) {
        s = open_store(&c);
        t = to_save(N_IDS);
        store_start(s, t);
        if (unwanted != 0) {
            atomic_store(&t->unwanted, true);
            give_pages(s, t);
        } else {
            mbox_close(t->chunk);
        }
        assert_int_equal(end_of(s, t), unwanted != 0 ? -ESTALE : -ECANCELED);
        assert_int_equal(access(temp, F_OK), -1);
        assert_int_equal(access(file, F_OK), -1);
        store_destroy(s);
        store_transfer_destroy(t);
    }
}

/* Nothing is renamed that is not on the disk yet, and the name is, too, when
 * the save is told to be done. */
static void test_a_save_is_durable(void **state)
{
    struct store_conf c = conf_of();
    char why[256];

    (void)state;
    memset(order, 0, sizeof(order));
    assert_int_equal(save(&c, N_IDS, why), 1);
    assert_string_equal(order, "DwFRD"); /* first the owner's folder */
}

static void test_a_folder_has_one_store(void **state)
{
    struct store_conf c = conf_of();
    struct store *first = open_store(&c), *second = NULL;

    (void)state;
    assert_int_equal(store_create(&second, &c), -EBUSY);
    assert_null(second);
    store_destroy(first);
    store_destroy(open_store(&c));
}

static void ignore(void *ctx, uint32_t uid, const char *tenant,
                   const char *name, uint64_t bytes,
                   const struct store_head *head)
{
    (void)ctx, (void)uid, (void)tenant, (void)name, (void)bytes, (void)head;
}

/* Killed before any of the calls that reach the disk: the file is the old one
 * or the new one, whole, and the next start removes what else there is. */
static void test_killed_at_any_moment(void **state)
{
    enum { OLD = N_IDS, NEW = 400 };
    struct store_conf c = conf_of();
    int at, status = 0, n_old = 0;
    struct stat st, old;
    char why[256];

    (void)state;
    for (at = 1; !WIFEXITED(status) || at == 1; at++) {
        struct store *s;
        pid_t pid;

        assert_int_equal(save(&c, OLD, why), 1);
        assert_int_equal(stat(file, &old), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            atomic_store(&n_calls, 0);
            atomic_store(&kill_at, at);
            _exit(save(&c, NEW, why) == 1 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        s = open_store(&c);
        store_scan(s, ignore, NULL);
        store_destroy(s);
        assert_int_equal(access(temp, F_OK), -1);
        assert_int_equal(load(&c, why), 1);
        assert_int_equal(stat(file, &st), 0);
        n_old += st.st_size == old.st_size;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    /* The last fsync, and whoever lived, have the new one. */
    assert_int_equal(n_old, at - 1 - 2);
    assert_true(n_old > 20);
}

static void on_found(void *ctx, uint32_t uid, const char *tenant,
                     const char *name, uint64_t bytes,
                     const struct store_head *head)
{
    char line[256];

    (void)bytes;
    (void)snprintf(line, sizeof(line), "%u %s %s %s;", uid, tenant, name,
                   head != NULL ? "good" : "bad");
    strcat(ctx, line);
}

/* What is found at the start: sessions, also damaged ones; nothing else. A save
 * that died is removed. */
static void test_what_a_start_finds(void **state)
{
    static const char *const make[] = {
        "7/.talk.new", "7/.hidden", "7/empty",       "x/a",
        "7x/a",        "7@t/b",     "99999999999/a",
    };
    struct store_conf c = conf_of();
    char why[256], path[256], found[1024] = "";
    struct store *s;

    (void)state;
    assert_int_equal(save(&c, N_IDS, why), 1);
    for (int i = 0; i < 7; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, make[i]);
        *strrchr(path, '/') = '\0';
        (void)mkdir(path, 0700);
        path[strlen(path)] = '/';
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    (void)snprintf(path, sizeof(path), "%s/7/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)snprintf(path, sizeof(path), "%s/7/link", dir);
    assert_int_equal(symlink(file, path), 0);
    s = open_store(&c);
    store_scan(s, on_found, found);
    assert_non_null(strstr(found, "7  talk good;"));
    assert_non_null(strstr(found, "7  empty bad;"));
    assert_non_null(strstr(found, "7 t b bad;"));
    assert_int_equal(strlen(found),
                     strlen("7  talk good;7  empty bad;7 t b bad;"));
    assert_int_equal(access(temp, F_OK), -1);
    assert_int_equal(store_unlink(s, "7", "talk"), 0);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(store_unlink(s, "7", "talk"), 0); /* gone is gone */
    store_destroy(s);
}

static void count(void *ctx, uint32_t uid, const char *tenant, const char *name,
                  uint64_t bytes, const struct store_head *head)
{
    (void)uid, (void)tenant, (void)name, (void)bytes, (void)head;
    ++*(int *)ctx;
}

/* Whether a client may ask for it. */
static bool may_be_sent(const char *name)
{
    struct wire_buf b, value;
    struct wire_map m;
    struct wire_request *r = NULL;
    struct wire_error err;
    int code;

    wire_buf_init(&b, WIRE_MAX_FRAME);
    wire_buf_init(&value, WIRE_MAX_FRAME);
    code = wire_value_str(&value, name, strlen(name));
    wire_map_begin_request(&m, &b, 1, "session_drop");
    wire_map_raw(&m, "session", value.p, value.n);
    if (code == 0) {
        assert_int_equal(wire_map_end(&m), 0);
        code = wire_decode_request(b.p + WIRE_HEADER_SIZE,
                                   b.n - WIRE_HEADER_SIZE, &r, &err);
    }
    wire_request_destroy(r);
    wire_buf_finish(&value);
    wire_buf_finish(&b);
    return code == 0;
}

/* A file is found where its name may be sent, and only there. */
static void scans_as_sent(struct store *s, const char *name)
{
    char path[512];
    int fd, n = 0;

    (void)snprintf(path, sizeof(path), "%s/7/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    store_scan(s, count, &n);
    if (n != may_be_sent(name)) {
        fail_msg("'%s' is found %d times", name, n);
    }
    assert_int_equal(unlink(path), 0); /* left as it was */
}

/* What no op accepts is no session: every byte at either end of a name, and the
 * lengths. */
static void test_names_that_nobody_may_send(void **state)
{
    struct store_conf c = conf_of();
    char name[128], path[128];
    struct store *s = open_store(&c);

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/7", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(may_be_sent("a.B_9-"));
    for (int b = 1; b < 256; b++) {
        if (b != '/') {
            (void)snprintf(name, sizeof(name), "%cx", b);
            scans_as_sent(s, name);
            (void)snprintf(name, sizeof(name), "x%c", b);
            scans_as_sent(s, name);
        }
    }
    for (int n = 1; n <= 80; n++) {
        memset(name, 'n', (size_t)n);
        name[n] = '\0';
        scans_as_sent(s, name);
    }
    store_destroy(s);
}

static int fresh(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_was_written_comes_back, fresh),
        cmocka_unit_test_setup(test_any_flipped_byte_is_found, fresh),
        cmocka_unit_test_setup(test_any_other_length_is_found, fresh),
        cmocka_unit_test_setup(test_blocks_that_changed_places, fresh),
        cmocka_unit_test_setup(test_files_of_others, fresh),
        cmocka_unit_test_setup(test_no_room, fresh),
        cmocka_unit_test_setup(test_saves_that_are_given_up, fresh),
        cmocka_unit_test_setup(test_a_save_is_durable, fresh),
        cmocka_unit_test_setup(test_a_folder_has_one_store, fresh),
        cmocka_unit_test_setup(test_killed_at_any_moment, fresh),
        cmocka_unit_test_setup(test_what_a_start_finds, fresh),
        cmocka_unit_test_setup(test_names_that_nobody_may_send, fresh),
    };
    char root[] = "/tmp/stepd-store.XXXXXX", command[64];
    int r;

    if (mkdtemp(root) == NULL) {
        return 1;
    }
    (void)snprintf(dir, sizeof(dir), "%s/sessions", root);
    (void)snprintf(file, sizeof(file), "%s/7/talk", dir);
    (void)snprintf(temp, sizeof(temp), "%s/7/.talk.new", dir);
    r = test_main(tests, NULL, NULL);
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command) != 0 ? 1 : r;
}
