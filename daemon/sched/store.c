/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The store's thread and its files. Owns the folder and open descriptors; the
 * transfer is lent to the thread until its state says so. store.h has the
 * format.
 *
 * What is read is believed block by block, after its checksum; sizes are
 * believed after they were held against the model's and the file's. Whatever is
 * wrong is said with the file's name and what was found.
 *
 * The invariant: NAME is never written into. A save that fails, or whose
 * process dies, leaves at most .NAME.new, which the next start removes.
 */

#include "daemon/sched/store.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "daemon/base/die.h"

#define PIECE ((size_t)256 << 10)

static const char magic[8] = "stepdKV\n";
static char news_item;

struct store {
    struct store_conf conf;
    char *dir;
    struct mbox *orders, *news;
    int lock;           /* the folder, ours alone */
    XXH3_state_t *hash; /* the thread's */
    pthread_t thread;
    bool started;
};

/* One file on its way. */
struct file {
    struct store *s;
    struct store_transfer *t;
    int fd;
    uint64_t block; /* number of the next one */
};

static int fail(struct store_transfer *t, int r, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct store_transfer *t, int r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(t->why, sizeof(t->why), fmt, ap);
    va_end(ap);
    return r;
}

static void tell(struct store *s)
{
    (void)mbox_push(s->news, &news_item); /* full: he will look anyway */
    s->conf.wake(s->conf.ctx);
}

/* ---- bytes --------------------------------------------------------------- */

static int put(struct file *f, const void *p, size_t n)
{
    const char *at = p;

    while (n > 0) {
        ssize_t k = write(f->fd, at, n);

        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return fail(f->t, k < 0 ? -errno : -EIO, "%s: writing: %s",
                        f->t->name, strerror(k < 0 ? errno : EIO));
        }
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

static int get(struct file *f, void *p, size_t n)
{
    char *at = p;

    while (n > 0) {
        ssize_t k = read(f->fd, at, n);

        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return fail(f->t, -EIO, "%s: reading: %s", f->t->name,
                        strerror(errno));
        }
        if (k == 0) {
            return fail(f->t, -EBADMSG, "%s ends too early", f->t->name);
        }
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

static int put_block(struct file *f, const void *p, size_t n)
{
    uint64_t sum = XXH3_64bits_withSeed(p, n, f->block++);
    int r = put(f, p, n);

    return r < 0 ? r : put(f, &sum, sizeof(sum));
}

/* Each piece is summed while it is in the nearest cache. */
static int get_block(struct file *f, const char *what, void *p, size_t n)
{
    uint64_t sum = 0, found;
    XXH3_state_t *s = f->s->hash;
    int r = 0;

    (void)XXH3_64bits_reset_withSeed(s, f->block++);
    for (size_t at = 0; r == 0 && at < n;) {
        size_t piece = n - at < PIECE ? n - at : PIECE;

        r = get(f, (char *)p + at, piece);
        if (r == 0) {
            (void)XXH3_64bits_update(s, (char *)p + at, piece);
        }
        at += piece;
    }
    r = r < 0 ? r : get(f, &sum, sizeof(sum));
    if (r < 0) {
        return r;
    }
    found = XXH3_64bits_digest(s);
    if (sum != found) {
        return fail(f->t, -EBADMSG,
                    "%s is damaged: block %" PRIu64
                    " (%s): checksum %016" PRIx64
                    ", its bytes have %016" PRIx64,
                    f->t->name, f->block - 1, what, sum, found);
    }
    return 0;
}

/* ---- the head ------------------------------------------------------------ */

static uint64_t head_sum(const struct store_head *h)
{
    struct store_head copy = *h;

    copy.sum = 0;
    return XXH3_64bits(&copy, sizeof(copy));
}

static uint64_t bytes_of(const struct store_head *h)
{
    uint64_t n = sizeof(*h) + (uint64_t)h->n_ids * 4 + 8 + h->messages_bytes +
                 8 + h->tools_bytes + 8 + h->aux_bytes + 8 + h->open_aux_bytes +
                 8;

    for (int i = 0; i < STORE_N_RUNS; i++) {
        n +=
            h->n_pages[i] * (h->page_bytes[store_group((enum store_run)i)] + 8);
    }
    return n;
}

void store_head_finish(struct store_head *h)
{
    memcpy(h->magic, magic, sizeof(magic));
    h->version = STORE_VERSION;
    h->head_bytes = sizeof(*h);
    h->page_tok = MODEL_PAGE_TOK;
    h->file_bytes = bytes_of(h);
    h->sum = head_sum(h);
}

/* What enters the prefix index is asserted there: a file is held against it
 * before. */
static bool runs_fit(const struct store_head *h)
{
    uint64_t end =
        ((uint64_t)h->n_committed + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK;

    return h->n_pages[STORE_FULL] == end && h->first_page[STORE_FULL] == 0 &&
           (uint64_t)h->first_page[STORE_SLIDING] + h->n_pages[STORE_SLIDING] ==
               end &&
           (uint64_t)h->first_page[STORE_OPEN] + h->n_pages[STORE_OPEN] <=
               h->first_page[STORE_SLIDING] &&
           h->n_open <= h->n_committed;
}

static int check_head(struct file *f, uint64_t size)
{
    const struct store_conf *c = &f->s->conf;
    const struct store_head *h = &f->t->head;
    const char *name = f->t->name;

    if (memcmp(h->magic, magic, sizeof(magic)) != 0) {
        return fail(f->t, -EBADMSG, "%s is no saved session", name);
    }
    if (h->version != STORE_VERSION || h->head_bytes != sizeof(*h)) {
        return fail(f->t, -EBADMSG, "%s has format %u, this daemon reads %d",
                    name, h->version, STORE_VERSION);
    }
    if (h->sum != head_sum(h)) {
        return fail(f->t, -EBADMSG, "%s is damaged: the header's checksum",
                    name);
    }
    if (h->fingerprint != c->fingerprint) {
        return fail(f->t, -EBADMSG,
                    "%s was saved with another model: fingerprint %016" PRIx64
                    ", this one has %016" PRIx64,
                    name, h->fingerprint, c->fingerprint);
    }
    if (memcmp(h->kernels, c->kernels, sizeof(h->kernels)) != 0) {
        return fail(f->t, -EBADMSG,
                    "%s was saved with the kernels of %.47s, these are those "
                    "of %.47s, whose bits may differ: choose them (backend, "
                    "isa) as they were, or drop it",
                    name, h->kernels, c->kernels);
    }
    if (h->file_bytes != bytes_of(h) || size != h->file_bytes) {
        return fail(f->t, -EBADMSG,
                    "%s is %" PRIu64 " bytes long, its header says %" PRIu64,
                    name, size, h->file_bytes);
    }
    if (memcmp(h->page_bytes, c->page_bytes, sizeof(h->page_bytes)) != 0) {
        return fail(f->t, -EBADMSG,
                    "%s has pages of %" PRIu64 " and %" PRIu64
                    " bytes, this daemon's have %" PRIu64 " and %" PRIu64
                    ": set drafts as it was (with 0 the pages lack the "
                    "drafting layers), or drop it",
                    name, h->page_bytes[MODEL_FULL],
                    h->page_bytes[MODEL_SLIDING], c->page_bytes[MODEL_FULL],
                    c->page_bytes[MODEL_SLIDING]);
    }
    if (h->page_tok != MODEL_PAGE_TOK || h->n_committed > h->n_ids ||
        (h->aux_bytes != 0 && h->aux_bytes != c->aux_bytes) ||
        (h->open_aux_bytes != 0 && h->open_aux_bytes != c->aux_bytes) ||
        !runs_fit(h)) {
        return fail(f->t, -EBADMSG, "%s has pages of another shape", name);
    }
    return 0;
}

/* ---- saving -------------------------------------------------------------- */

static int put_pages(struct file *f)
{
    const struct store_head *h = &f->t->head;
    uint64_t left = 0;
    int r = 0;

    for (int i = 0; i < STORE_N_RUNS; i++) {
        left += h->n_pages[i];
    }
    while (r == 0 && left > 0) {
        struct store_chunk *k = mbox_pop_wait(f->t->chunk, -1);

        if (k == NULL) {
            return fail(f->t, -ECANCELED, "%s: the daemon stops", f->t->name);
        }
        for (int i = 0; r == 0 && i < k->n; i++) {
            size_t n = h->page_bytes[store_group(k->run)];

            r = put_block(f, k->data + (size_t)i * n, n);
        }
        left -= (uint64_t)k->n;
        free(k);
        tell(f->s);
    }
    return r;
}

static int put_file(struct file *f)
{
    const struct store_transfer *t = f->t;
    const struct store_head *h = &t->head;
    int r = put(f, h, sizeof(*h));

    r = r < 0 ? r : put_block(f, t->ids, (size_t)h->n_ids * 4);
    r = r < 0 ? r : put_block(f, t->messages, h->messages_bytes);
    r = r < 0 ? r : put_block(f, t->tools, h->tools_bytes);
    r = r < 0 ? r : put_block(f, t->aux, h->aux_bytes);
    r = r < 0 ? r : put_block(f, t->open_aux, h->open_aux_bytes);
    r = r < 0 ? r : put_pages(f);
    if (r == 0 && fsync(f->fd) < 0) {
        r = fail(f->t, -errno, "%s: fsync: %s", t->name, strerror(errno));
    }
    return r;
}

static int check_room(struct file *f, int dir)
{
    struct statvfs v;
    uint64_t left;

    if (fstatvfs(dir, &v) < 0) {
        return fail(f->t, -errno, "%s: %s", f->s->dir, strerror(errno));
    }
    left = (uint64_t)v.f_bavail * v.f_frsize;
    if (left < f->t->head.file_bytes + f->s->conf.floor) {
        return fail(f->t, -ENOSPC,
                    "%s takes %" PRIu64 " bytes, the disk has %" PRIu64
                    " of which %" PRIu64 " must stay free",
                    f->t->name, f->t->head.file_bytes, left, f->s->conf.floor);
    }
    return 0;
}

static int open_owner(struct file *f, bool make)
{
    int top = open(f->s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;

    if (top >= 0) {
        if (make && mkdirat(top, f->t->owner, 0700) < 0 && errno != EEXIST) {
            close(top);
            return fail(f->t, -errno, "%s/%s: %s", f->s->dir, f->t->owner,
                        strerror(errno));
        }
        fd = openat(top, f->t->owner,
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (make && fd >= 0) {
            (void)fsync(top);
        }
        close(top);
    }
    return fd >= 0 ? fd
                   : fail(f->t, -errno, "%s/%s: %s", f->s->dir, f->t->owner,
                          strerror(errno));
}

static int save(struct file *f)
{
    char temp[JOB_MAX_SESSION + 16];
    int dir = open_owner(f, true), r;

    if (dir < 0) {
        return dir;
    }
    (void)snprintf(temp, sizeof(temp), ".%s.new", f->t->name);
    r = check_room(f, dir);
    if (r == 0) {
        f->fd =
            openat(dir, temp,
                   O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        r = f->fd < 0 ? fail(f->t, -errno, "%s: %s", temp, strerror(errno))
                      : put_file(f);
        if (f->fd >= 0 && close(f->fd) < 0 && r == 0) {
            r = fail(f->t, -errno, "%s: %s", temp, strerror(errno));
        }
        if (r == 0 && atomic_load(&f->t->unwanted)) {
            r = fail(f->t, -ESTALE, "%s was dropped while it was saved",
                     f->t->name);
        }
        if (r == 0 && renameat(dir, temp, dir, f->t->name) < 0) {
            r = fail(f->t, -errno, "%s: rename: %s", temp, strerror(errno));
        }
        if (r == 0 && fsync(dir) < 0) {
            r = fail(f->t, -errno, "%s: fsync: %s", f->t->owner,
                     strerror(errno));
        }
        if (r < 0) {
            (void)unlinkat(dir, temp, 0);
        }
    }
    close(dir);
    return r;
}

/* ---- loading ------------------------------------------------------------- */

static int get_text(struct file *f, const char *what, size_t n, void **ret)
{
    char *p = malloc(n + 1);

    if (p == NULL) {
        return fail(f->t, -ENOMEM, "no memory to read %s", f->t->name);
    }
    p[n] = '\0';
    *ret = p;
    return get_block(f, what, p, n);
}

static struct store_chunk *new_chunk(enum store_run run, int first, int n,
                                     size_t bytes)
{
    struct store_chunk *k = malloc(sizeof(*k) + (size_t)n * bytes);

    if (k != NULL) {
        k->run = run;
        k->first = first;
        k->n = n;
    }
    return k;
}

static int hand_over(struct file *f, struct store_chunk *k)
{
    if (mbox_push_wait(f->t->chunk, k) < 0) {
        free(k);
        return fail(f->t, -ECANCELED, "%s: the daemon stops", f->t->name);
    }
    tell(f->s);
    return 0;
}

static int get_pages(struct file *f, enum store_run run)
{
    static const char *const what[STORE_N_RUNS] = {
        "a full page", "a sliding page", "a sliding page of the open turn"};
    const struct store_head *h = &f->t->head;
    size_t bytes = h->page_bytes[store_group(run)];
    int all = (int)h->n_pages[run], most, r = 0;

    most = bytes > f->s->conf.chunk_bytes || bytes == 0
               ? 1
               : (int)(f->s->conf.chunk_bytes / bytes);
    for (int at = 0; r == 0 && at < all;) {
        int n = all - at < most ? all - at : most;
        struct store_chunk *k = new_chunk(run, at, n, bytes);

        if (k == NULL) {
            return fail(f->t, -ENOMEM, "no memory to read %s", f->t->name);
        }
        for (int i = 0; r == 0 && i < n; i++) {
            r = get_block(f, what[run], k->data + (size_t)i * bytes, bytes);
        }
        if (r < 0) {
            free(k);
            return r;
        }
        r = hand_over(f, k);
        at += n;
    }
    return r;
}

static int load_small(struct file *f)
{
    struct store_transfer *t = f->t;
    struct store_head *h = &t->head;
    struct store_chunk *k;
    struct stat st;
    int r;

    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return fail(t, -EBADMSG, "%s is no file", t->name);
    }
    r = get(f, h, sizeof(*h));
    r = r < 0 ? r : check_head(f, (uint64_t)st.st_size);
    r = r < 0 ? r : get_text(f, "ids", (size_t)h->n_ids * 4, &t->ids);
    r = r < 0 ? r : get_text(f, "messages", h->messages_bytes, &t->messages);
    r = r < 0 ? r : get_text(f, "tools", h->tools_bytes, &t->tools);
    r = r < 0 ? r : get_text(f, "vectors", h->aux_bytes, &t->aux);
    r = r < 0 ? r
              : get_text(f, "vectors of the open turn", h->open_aux_bytes,
                         &t->open_aux);
    if (r < 0) {
        return r;
    }
    k = new_chunk(STORE_FULL, 0, 0, 0);
    return k == NULL ? fail(t, -ENOMEM, "no memory to read %s", t->name)
                     : hand_over(f, k);
}

static int load(struct file *f)
{
    int dir = open_owner(f, false), r;

    if (dir < 0) {
        return dir;
    }
    f->fd = openat(dir, f->t->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    close(dir);
    if (f->fd < 0) {
        return fail(f->t, -errno, "%s: %s", f->t->name, strerror(errno));
    }
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    r = load_small(f);
    for (int i = 0; r == 0 && i < STORE_N_RUNS; i++) {
        r = get_pages(f, (enum store_run)i);
    }
    close(f->fd);
    return r;
}

/* ---- the thread ---------------------------------------------------------- */

static void *store_main(void *arg)
{
    struct store *s = arg;
    struct store_transfer *t;

    while ((t = mbox_pop_wait(s->orders, -1)) != NULL) {
        struct file f = {.s = s, .t = t, .fd = -1};
        int r = t->load ? load(&f) : save(&f);

        atomic_store(&t->state, r < 0 ? r : 1);
        tell(s);
    }
    return NULL;
}

/* Two daemons over one folder would write and drop each other's files. */
static int lock_folder(struct store *s)
{
    if (mkdir(s->dir, 0700) < 0 && errno != EEXIST) {
        return -errno;
    }
    s->lock = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock < 0) {
        return -errno;
    }
    if (flock(s->lock, LOCK_EX | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    }
    return 0;
}

int store_create(struct store **ret, const struct store_conf *c)
{
    struct store *s = xcalloc(1, sizeof(*s));
    int r;

    s->conf = *c;
    s->dir = xstrdup(c->dir);
    s->lock = -1;
    r = lock_folder(s);
    s->hash = XXH3_createState();
    r = r < 0 || s->hash != NULL ? r : -ENOMEM;
    r = r < 0 ? r : mbox_create(&s->orders, 1);
    r = r < 0 ? r : mbox_create(&s->news, 1);
    r = r < 0 ? r : -pthread_create(&s->thread, NULL, store_main, s);
    s->started = r == 0;
    if (r < 0) {
        store_destroy(s);
        return r;
    }
    *ret = s;
    return 0;
}

void store_destroy(struct store *s)
{
    if (s == NULL) {
        return;
    }
    if (s->started) {
        mbox_close(s->orders);
        (void)pthread_join(s->thread, NULL);
    }
    mbox_destroy(s->orders);
    mbox_destroy(s->news);
    (void)XXH3_freeState(s->hash);
    if (s->lock >= 0) {
        close(s->lock);
    }
    free(s->dir);
    free(s);
}

int store_transfer_create(struct store_transfer **ret)
{
    struct store_transfer *t = xcalloc(1, sizeof(*t));
    int r = mbox_create(&t->chunk, STORE_CHUNKS);

    if (r < 0) {
        free(t);
        return r;
    }
    atomic_init(&t->unwanted, false);
    atomic_init(&t->state, 0);
    *ret = t;
    return 0;
}

void store_transfer_destroy(struct store_transfer *t)
{
    void *k;

    if (t == NULL) {
        return;
    }
    while ((k = mbox_pop(t->chunk)) != NULL) {
        free(k);
    }
    mbox_destroy(t->chunk);
    free(t->ids);
    free(t->messages);
    free(t->tools);
    free(t->aux);
    free(t->open_aux);
    free(t);
}

void store_start(struct store *s, struct store_transfer *t)
{
    BUG_ON(mbox_push(s->orders, t) < 0);
}

void store_wait(struct store *s)
{
    (void)mbox_pop_wait(s->news, -1);
}

/* ---- names --------------------------------------------------------------- */

void store_owner(uint32_t uid, const char *tenant, char *buf, size_t n)
{
    (void)snprintf(buf, n, "%" PRIu32 "%s%s", uid, *tenant != '\0' ? "@" : "",
                   tenant);
}

int store_unlink(struct store *s, const char *owner, const char *name)
{
    char path[4096];

    if (snprintf(path, sizeof(path), "%s/%s/%s", s->dir, owner, name) >=
        (int)sizeof(path)) {
        return -ENAMETOOLONG;
    }
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static bool is_owner(const char *s, uint32_t *ret_uid, const char **ret_tenant)
{
    char *end;
    unsigned long uid;

    if (!isdigit((unsigned char)*s)) {
        return false;
    }
    errno = 0;
    uid = strtoul(s, &end, 10);
    *ret_uid = (uint32_t)uid;
    *ret_tenant = *end == '@' ? end + 1 : end;
    return errno == 0 && uid <= UINT32_MAX && (*end == '\0' || *end == '@') &&
           strlen(*ret_tenant) <= JOB_MAX_TENANT;
}

/* What a client may call a session: the protocol's rule (client/wire.h 3),
 * which this folder does not see; test_store.c holds the two against each
 * other. */
static bool is_name(const char *s)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strspn(s, letters);

    return n >= 1 && n <= JOB_MAX_SESSION && s[n] == '\0' && s[0] != '.';
}

static void scan_owner(const char *path, uint32_t uid, const char *tenant,
                       store_found fn, void *ctx)
{
    DIR *d = opendir(path);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL) {
        struct store_head h;
        struct stat st;
        int fd;

        if (e->d_name[0] == '.') {
            size_t n = strlen(e->d_name);

            if (n > 5 && strcmp(e->d_name + n - 4, ".new") == 0) {
                (void)unlinkat(dirfd(d), e->d_name, 0);
            }
            continue;
        }
        if (!is_name(e->d_name)) {
            continue;
        }
        fd = openat(dirfd(d), e->d_name,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
            if (fd >= 0) {
                close(fd);
            }
            continue;
        }
        fn(ctx, uid, tenant, e->d_name, (uint64_t)st.st_size,
           read(fd, &h, sizeof(h)) == (ssize_t)sizeof(h) &&
                   memcmp(h.magic, magic, sizeof(magic)) == 0 &&
                   h.sum == head_sum(&h)
               ? &h
               : NULL);
        close(fd);
    }
    if (d != NULL) {
        closedir(d);
    }
}

void store_scan(struct store *s, store_found fn, void *ctx)
{
    DIR *d = opendir(s->dir);
    struct dirent *e;
    char path[4096];

    while (d != NULL && (e = readdir(d)) != NULL) {
        const char *tenant;
        uint32_t uid;

        if (is_owner(e->d_name, &uid, &tenant) &&
            snprintf(path, sizeof(path), "%s/%s", s->dir, e->d_name) <
                (int)sizeof(path)) {
            scan_owner(path, uid, tenant, fn, ctx);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}
