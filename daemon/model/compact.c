/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The file of packed weights: a head, a line for each matrix, then the planes,
 * each where its line says; escapes, whose number is known last, at the end.
 * One file a checkpoint folder; its key is the identity of the shards (names,
 * sizes, times of change) and the order of the matrices. Threads: the caller's,
 * and some of its own while it packs or checks sums.
 *
 * What matters: a file is either whole, ours and of these shards, down to the
 * checksum of every matrix, or it is named in a note and made again. It is made
 * under another name, synced, and renamed. Without a place for it the same
 * bytes go to memory that only this process has.
 */
#include "daemon/model/compact.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "daemon/model/compact_priv.h"
#include "daemon/model/load.h"
#include "daemon/model/watch.h"
#include "kernels/compact.h"

#define MAGIC "stepd12\n"
#define VERSION 1u
#define PAGE ((uint64_t)4096)
#define CHUNK ((size_t)1 << 20) /* BF16 bytes that a thread packs at a time */
#define MAX_THREADS 16
/* More escapes than one weight in so many: 12 bits are no gain any more. */
#define ESCAPE_SHARE 64
/* For the plan, one in so many: six times what Gaussian weights have. */
#define ESCAPE_PLAN 1024

struct head {
    char magic[8];
    uint32_t version;
    uint32_t n; /* lines */
    uint64_t key;
    uint64_t bytes; /* of the file */
    uint64_t sum;   /* of the lines */
    uint64_t head_sum;
};

bool compact_takes(const struct checkpoint *ck, const struct slot *slot)
{
    const struct kern_weight_desc *d = &slot->desc;

    return checkpoint_wants(ck, slot) && d->dtype == KERN_BF16 &&
           d->experts == 0 && d->rows > 1 && d->cols <= COMPACT_MAX_COLS &&
           slot->role != ROLE_ROUTER && slot->role != ROLE_ROUTER_BIAS;
}

uint64_t compact_bytes(const struct kern_weight_desc *d)
{
    return (uint64_t)d->rows * (compact_row_bytes(d->cols) + 4) + 4;
}

void compact_desc(const struct checkpoint *ck, const struct slot *slot,
                  struct kern_weight_desc *d)
{
    const void *plane[3];

    if (ck->compact != NULL) {
        (void)compact_find(ck->compact, slot, d, plane);
    } else if (ck->conf.weights == MODEL_COMPACT && compact_takes(ck, slot)) {
        d->dtype = KERN_COMPACT;
        d->escapes =
            (int)((uint64_t)d->rows * (uint64_t)d->cols / ESCAPE_PLAN + 1);
    }
}

int compact_computes(struct kern *k)
{
    static const struct kern_weight_desc probe = {
        .dtype = KERN_COMPACT, .rows = 1, .cols = 1, .escapes = 1};
    struct kern_weight *w;
    int r = kern_weight_new(k, &probe, &w);

    if (r == 0) {
        kern_weight_free(k, w);
    }
    return r;
}

/* ---- the list of matrices ------------------------------------------------ */

static int list_matrices(const struct checkpoint *ck, struct compact *c)
{
    const struct slots *s = &ck->slots;

    c->line = calloc((size_t)s->n + 1, sizeof(*c->line));
    c->slot = calloc((size_t)s->n + 1, sizeof(*c->slot));
    if (c->line == NULL || c->slot == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < s->n; i++) {
        const struct slot *slot = &s->slot[i];

        if (compact_takes(ck, slot)) {
            c->slot[c->n] = slot;
            c->line[c->n++] = (struct line){.role = (int32_t)slot->role,
                                            .layer = slot->layer,
                                            .rows = slot->desc.rows,
                                            .cols = slot->desc.cols};
        }
    }
    return 0;
}

static uint64_t key_of(const struct checkpoint *ck, const struct compact *c)
{
    uint64_t key = ck->fingerprint;

    for (int i = 0; i < ck->n_files; i++) {
        const struct st_file *f = &ck->file[i];
        uint64_t id[3] = {f->size, (uint64_t)f->mtime.tv_sec,
                          (uint64_t)f->mtime.tv_nsec};

        key = XXH3_64bits_withSeed(f->name, strlen(f->name), key);
        key = XXH3_64bits_withSeed(id, sizeof(id), key);
    }
    for (int i = 0; i < c->n; i++) {
        const struct line *l = &c->line[i];
        int32_t id[4] = {l->role, l->layer, l->rows, l->cols};

        key = XXH3_64bits_withSeed(id, sizeof(id), key);
    }
    return key;
}

static uint64_t align(uint64_t off, uint64_t to)
{
    return (off + to - 1) / to * to;
}

static uint64_t lines_end(const struct compact *c)
{
    return sizeof(struct head) + (uint64_t)c->n * sizeof(*c->line);
}

/* Places planes 0 and 1; returns where the escapes begin. */
static uint64_t place_planes(struct compact *c)
{
    uint64_t off = lines_end(c);

    for (int i = 0; i < c->n; i++) {
        struct line *l = &c->line[i];

        l->off[0] = align(off, PAGE);
        l->off[1] = align(
            l->off[0] + (uint64_t)l->rows * compact_row_bytes(l->cols), 64);
        off = l->off[1] + ((uint64_t)l->rows + 1) * 4;
    }
    return align(off, PAGE);
}

struct kern_weight_desc compact_line_desc(const struct line *l)
{
    struct kern_weight_desc d = {.dtype = KERN_COMPACT,
                                 .rows = l->rows,
                                 .cols = l->cols,
                                 .escapes = (int)l->escapes};

    return d;
}

static uint64_t line_sum(const struct compact *c, const struct line *l)
{
    struct kern_weight_desc d = compact_line_desc(l);
    uint64_t sum = 0;

    for (int p = 0; p < 3; p++) {
        sum = XXH3_64bits_withSeed(c->at + l->off[p],
                                   kern_weight_plane_bytes(&d, p), sum);
    }
    return sum;
}

/* ---- work shared by threads ---------------------------------------------- */

struct work {
    struct checkpoint *ck;
    struct compact *c;
    int n; /* pieces */
    int (*piece)(struct work *w, int i);
    struct chunk *chunk;
    uint64_t total;
    atomic_int next;
    atomic_int error;          /* the first */
    atomic_int error_at;       /* its piece; -1: none */
    atomic_uint_fast64_t done; /* bytes, for progress */
};

static bool next_piece(struct work *w)
{
    int i = atomic_fetch_add(&w->next, 1), none = 0, r;

    if (i >= w->n || atomic_load(&w->error) < 0) {
        return false;
    }
    r = w->piece(w, i);
    if (r < 0 && atomic_compare_exchange_strong(&w->error, &none, r)) {
        atomic_store(&w->error_at, i);
    }
    return r == 0;
}

static void *worker(void *arg)
{
    while (next_piece(arg)) {
    }
    return NULL;
}

static int n_threads(const struct work *w)
{
    cpu_set_t set;
    int n = w->ck->conf.n_threads;

    if (n <= 0) {
        n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    n = n > MAX_THREADS ? MAX_THREADS : n;
    return n > w->n ? w->n : n;
}

static int tell(struct work *w)
{
    const struct model_conf *c = &w->ck->conf;

    return c->progress != NULL && w->total > 0
               ? c->progress(c->ctx, atomic_load(&w->done), w->total)
               : 0;
}

/* All pieces. 0, the first error of one, or what progress returned. */
static int run(struct work *w)
{
    pthread_t thread[MAX_THREADS];
    int n = n_threads(w) - 1, n_started = 0, none = 0, r = tell(w);

    while (r >= 0 && n_started < n &&
           pthread_create(&thread[n_started], NULL, worker, w) == 0) {
        n_started++;
    }
    while (r >= 0 && next_piece(w)) {
        r = tell(w);
    }
    if (r < 0) {
        (void)atomic_compare_exchange_strong(&w->error, &none, r);
    }
    for (int i = 0; i < n_started; i++) {
        pthread_join(thread[i], NULL);
    }
    return r < 0 ? r : atomic_load(&w->error);
}

/* ---- packing ------------------------------------------------------------- */

/* Some rows of a matrix, and what did not fit their codes. */
struct chunk {
    int line, row0, n_rows;
    uint32_t *escape;
    int n_escapes;
};

static int pack_rows(struct chunk *k, const struct compact *c,
                     const uint16_t *from)
{
    const struct line *l = &c->line[k->line];
    uint32_t *word = (uint32_t *)(void *)(c->at + l->off[1]) + k->row0;
    unsigned char *to =
        c->at + l->off[0] + (size_t)k->row0 * compact_row_bytes(l->cols);
    int room = 0;

    for (int r = 0; r < k->n_rows; r++, from += l->cols) {
        unsigned base = compact_choose(from, l->cols);
        int n;

        if (room - k->n_escapes < l->cols) {
            uint32_t *grown;

            room = 2 * room + l->cols;
            grown = realloc(k->escape, (size_t)room * sizeof(*grown));
            if (grown == NULL) {
                return -ENOMEM;
            }
            k->escape = grown;
        }
        n = compact_pack(to, from, l->cols, base, k->escape + k->n_escapes);
        word[r] = compact_word(base, (uint32_t)n); /* its number, for now */
        k->n_escapes += n;
        to += compact_row_bytes(l->cols);
    }
    return 0;
}

static int pack_chunk(struct work *w, int i)
{
    struct chunk *k = &w->chunk[i];
    const struct slot *slot = w->c->slot[k->line];
    struct slot_range g = slot_plane(slot, 0, 0);
    size_t row = (size_t)slot->desc.cols * 2, n = row * (size_t)k->n_rows;
    uint16_t *from = malloc(n);
    int r = -ENOMEM;

    if (from != NULL) {
        r = st_read(&w->ck->file[g.file], g.off + row * (uint64_t)k->row0, from,
                    n);
    }
    if (r == 0) {
        r = pack_rows(k, w->c, from);
        atomic_fetch_add(&w->done, n);
    }
    free(from);
    return r;
}

static int cut_chunks(struct work *w)
{
    int n = 0;

    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (int i = 0; i < w->c->n; i++) {
            const struct line *l = &w->c->line[i];
            int step = (int)(CHUNK / ((size_t)l->cols * 2)) + 1;

            for (int r = 0; r < l->rows; r += step, n++) {
                int left = l->rows - r;

                if (pass == 1) {
                    w->chunk[n].line = i;
                    w->chunk[n].row0 = r;
                    w->chunk[n].n_rows = left < step ? left : step;
                }
            }
        }
        if (pass == 0) {
            w->chunk = calloc((size_t)n + 1, sizeof(*w->chunk));
            if (w->chunk == NULL) {
                return -ENOMEM;
            }
        }
    }
    w->n = n;
    return 0;
}

/* Numbers of escapes become first ones; the last word is where they end. */
static void count_rows(const struct compact *c, struct line *l)
{
    uint32_t *word = (uint32_t *)(void *)(c->at + l->off[1]);
    uint32_t first = 0;

    for (int r = 0; r < l->rows; r++) {
        uint32_t n = compact_first(word[r]);

        word[r] = compact_word(compact_base(word[r]), first);
        first += n;
    }
    word[l->rows] = compact_word(0, first);
    l->escapes = first + 1;
}

static int write_all(int fd, const void *from, size_t n, uint64_t off)
{
    const char *p = from;

    while (n > 0) {
        ssize_t r = pwrite(fd, p, n, (off_t)off);

        if (r < 0 && errno != EINTR) {
            return -errno;
        }
        if (r > 0) {
            p += r;
            n -= (size_t)r;
            off += (uint64_t)r;
        }
    }
    return 0;
}

/* The escapes of all matrices from *off on, which becomes the file's length. */
static int write_escapes(struct work *w, int fd, uint64_t *ret_off)
{
    static const uint32_t end = COMPACT_END;
    struct compact *c = w->c;
    uint64_t off = *ret_off;
    int k = 0, r = 0;

    for (int i = 0; i < c->n && r == 0; i++) {
        struct line *l = &c->line[i];
        uint64_t n = 0, most = (uint64_t)l->rows * (uint64_t)l->cols;
        int k0 = k;

        for (; k < w->n && w->chunk[k].line == i; k++) {
            n += (uint64_t)w->chunk[k].n_escapes;
        }
        if (n > most / ESCAPE_SHARE || n >= COMPACT_MAX_ESCAPES) {
            (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            (off_t)l->off[0], (off_t)(l->off[1] - l->off[0]));
            continue; /* stays BF16 */
        }
        count_rows(c, l);
        l->off[2] = off;
        for (int j = k0; j < k && r == 0; j++) {
            size_t bytes = (size_t)w->chunk[j].n_escapes * sizeof(uint32_t);

            r = write_all(fd, w->chunk[j].escape, bytes, off);
            off += bytes;
        }
        r = r == 0 ? write_all(fd, &end, sizeof(end), off) : r;
        off = align(off + sizeof(end), 64);
    }
    *ret_off = align(off, PAGE);
    return r == 0 && ftruncate(fd, (off_t)*ret_off) < 0 ? -errno : r;
}

static int sum_line(struct work *w, int i)
{
    struct line *l = &w->c->line[i];

    if (l->escapes > 0) {
        l->sum = line_sum(w->c, l);
    }
    return 0;
}

static int write_head(const struct compact *c, int fd)
{
    struct head h = {.version = VERSION,
                     .n = (uint32_t)c->n,
                     .key = c->key,
                     .bytes = c->bytes};
    size_t n = (size_t)c->n * sizeof(*c->line);
    int r;

    memcpy(h.magic, MAGIC, sizeof(h.magic));
    h.sum = XXH3_64bits(c->line, n);
    h.head_sum = XXH3_64bits(&h, offsetof(struct head, head_sum));
    r = write_all(fd, c->line, n, sizeof(h));
    return r < 0 ? r : write_all(fd, &h, sizeof(h), 0);
}

void compact_unmap(struct compact *c)
{
    if (c->at != NULL) {
        watch_remove(c->at);
        munmap(c->at, c->bytes);
        c->at = NULL;
    }
}

static int map_fd(struct compact *c, int fd, size_t bytes, int prot)
{
    void *at = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        return -errno;
    }
    compact_unmap(c);
    c->at = at;
    c->bytes = bytes;
    (void)madvise(at, bytes, MADV_DONTDUMP);
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    return 0;
}

/* Packs all into an empty file. Where a shard cannot be read, *ret_shard names
 * it: then it is of no use to try elsewhere. */
static int build(struct checkpoint *ck, struct compact *c, int fd,
                 const char **ret_shard)
{
    struct work w = {
        .ck = ck, .c = c, .piece = pack_chunk, .total = load_total(ck)};
    struct work sums = {.ck = ck, .c = c, .n = c->n, .piece = sum_line};
    uint64_t end = place_planes(c);
    int r = -posix_fallocate(fd, 0, (off_t)end);

    atomic_store(&w.error_at, -1);
    atomic_store(&w.done, c->packed);
    for (int i = 0; i < c->n; i++) {
        c->line[i].escapes = 0;
    }
    r = r < 0 ? r : map_fd(c, fd, (size_t)end, PROT_READ | PROT_WRITE);
    r = r < 0 ? r : cut_chunks(&w);
    r = r < 0 ? r : run(&w);
    if (atomic_load(&w.error_at) >= 0 && r != -ENOMEM) {
        int line = w.chunk[atomic_load(&w.error_at)].line;

        *ret_shard = ck->file[slot_plane(c->slot[line], 0, 0).file].name;
    }
    r = r < 0 ? r : write_escapes(&w, fd, &end);
    r = r < 0 ? r : map_fd(c, fd, (size_t)end, PROT_READ);
    r = r < 0 ? r : run(&sums);
    for (int i = 0; i < w.n && w.chunk != NULL; i++) {
        free(w.chunk[i].escape);
    }
    free(w.chunk);
    return r < 0 ? r : write_head(c, fd);
}

/* ---- the file ------------------------------------------------------------ */

static int check_line(struct work *w, int i)
{
    const struct line *l = &w->c->line[i];

    return l->escapes == 0 || line_sum(w->c, l) == l->sum ? 0 : -EBADMSG;
}

/* The lines of a file, where they are those of c and lie inside of it. */
static bool read_lines(struct compact *c, int fd, const struct head *h)
{
    size_t n = (size_t)c->n * sizeof(*c->line);
    struct line *line = malloc(n + 1);
    bool ok = line != NULL && h->n == (uint32_t)c->n &&
              pread(fd, line, n, sizeof(*h)) == (ssize_t)n &&
              XXH3_64bits(line, n) == h->sum;

    for (int i = 0; ok && i < c->n; i++) {
        const struct line *l = &line[i], *mine = &c->line[i];
        struct kern_weight_desc d = compact_line_desc(l);

        ok = l->role == mine->role && l->layer == mine->layer &&
             l->rows == mine->rows && l->cols == mine->cols &&
             l->escapes <= COMPACT_MAX_ESCAPES;
        for (int p = 0; ok && l->escapes > 0 && p < 3; p++) {
            uint64_t bytes = kern_weight_plane_bytes(&d, p);

            ok = l->off[p] % 64 == 0 && bytes <= h->bytes &&
                 l->off[p] <= h->bytes - bytes;
        }
    }
    if (ok) {
        memcpy(c->line, line, n);
    }
    free(line);
    return ok;
}

/* Maps the file, or takes its lines where a device will read it; NULL, or what
 * is wrong with it. */
static const char *take_file(struct checkpoint *ck, struct compact *c, int fd)
{
    struct work sums = {.ck = ck, .c = c, .n = c->n, .piece = check_line};
    struct head h;
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        return "is not our file";
    }
    if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h)) {
        return "is cut short";
    }
    if (memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 ||
        h.head_sum != XXH3_64bits(&h, offsetof(struct head, head_sum))) {
        return "is damaged";
    }
    if (h.version != VERSION) {
        return "is of another version";
    }
    if (h.key != c->key) {
        return "is of other shards";
    }
    if (h.bytes != (uint64_t)st.st_size) {
        return "is cut short";
    }
    if (!read_lines(c, fd, &h)) {
        return "is damaged";
    }
    if (c->device) {
        c->bytes = (size_t)h.bytes;
        return NULL;
    }
    if (map_fd(c, fd, (size_t)h.bytes, PROT_READ) < 0) {
        return "cannot be mapped";
    }
    return run(&sums) < 0 ? "is damaged" : NULL;
}

/* PATH.tmp, ours alone, empty; -EBUSY while another process packs. */
static int open_temp(const char *path)
{
    struct stat a, b;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = 0;

    if (fd < 0) {
        return -errno;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        r = -EBUSY;
    } else if (fstat(fd, &a) < 0 || stat(path, &b) < 0 ||
               a.st_ino != b.st_ino) {
        r = -EBUSY; /* it was renamed between the two calls */
    } else if (ftruncate(fd, 0) < 0) {
        r = -errno;
    }
    if (r < 0) {
        close(fd);
    }
    return r < 0 ? r : fd;
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

    if (fd < 0) {
        return -errno;
    }
    if (fsync(fd) < 0) {
        r = -errno;
    }
    close(fd);
    return r;
}

static int build_file(struct checkpoint *ck, struct compact *c,
                      const char *path, const char **ret_shard)
{
    char temp[COMPACT_MAX_PATH + 4];
    int fd, r;

    snprintf(temp, sizeof(temp), "%s.tmp", path);
    fd = open_temp(temp);
    if (fd < 0) {
        return fd;
    }
    r = build(ck, c, fd, ret_shard);
    if (r == 0 && fsync(fd) < 0) {
        r = -errno;
    }
    if (r == 0 && rename(temp, path) < 0) {
        r = -errno;
    }
    if (r < 0) {
        compact_unmap(c);
        unlink(temp);
    }
    if (r == 0 && c->device) {
        compact_unmap(c);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        c->fd = fd;
    } else {
        close(fd);
    }
    return r < 0 ? r : sync_folder(ck->conf.state_dir);
}

void compact_close_file(struct compact *c)
{
    if (c->fd >= 0) {
        close(c->fd);
    }
    c->fd = -1;
}

/* Ours now: mapped, or open. */
static void keep_file(struct compact *c)
{
    if (!c->device) {
        watch_add(c->at, c->bytes, strrchr(c->path, '/') + 1);
    }
}

int compact_path(const struct checkpoint *ck, char *ret, size_t n)
{
    char *real = realpath(ck->conf.path, NULL);
    int len;

    if (real == NULL) {
        return -errno;
    }
    len = snprintf(ret, n, "%s/compact-%016" PRIx64 ".bin", ck->conf.state_dir,
                   (uint64_t)XXH3_64bits(real, strlen(real)));
    free(real);
    return len < 0 || (size_t)len >= n ? -ENAMETOOLONG : 0;
}

int compact_make_file(struct checkpoint *ck, struct compact *c,
                      struct report *rep, const char **ret_shard)
{
    int r = build_file(ck, c, c->path, ret_shard);

    if (r == 0) {
        keep_file(c);
        report_note(rep, "weights = compact: made %s, %.0f MiB", c->path,
                    (double)c->bytes / (1 << 20));
    } else {
        compact_close_file(c);
    }
    return r;
}

/* 0: c is of the file. Positive: there is no file, and none could be made. */
static int open_file(struct checkpoint *ck, struct compact *c,
                     struct report *rep, const char **ret_shard)
{
    int r = compact_path(ck, c->path, sizeof(c->path));
    const char *why;

    if (r < 0) {
        report_note(rep, "weights = compact: %s: %s", ck->conf.state_dir,
                    strerror(-r));
        return 1;
    }
    c->fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (c->fd >= 0) {
        why = take_file(ck, c, c->fd);
        if (why != NULL || !c->device) {
            compact_close_file(c);
        }
        if (why == NULL) {
            keep_file(c);
            return 0;
        }
        compact_unmap(c);
        report_note(rep, "weights = compact: %s %s: made again", c->path, why);
    }
    r = compact_make_file(ck, c, rep, ret_shard);
    if (r == 0 || *ret_shard != NULL || r == -ENOMEM || r == -EINTR ||
        r == -ECANCELED) {
        return r;
    }
    report_note(rep, "weights = compact: %s cannot be made: %s: %s", c->path,
                strerror(-r),
                ck->may_map ? "mapped as they are"
                : c->device ? "packed on the way, and again by the next start"
                            : "kept in memory, and made again by the next "
                              "start");
    return 1;
}

int compact_pack_memory(struct checkpoint *ck, struct compact *c,
                        const char **ret_shard)
{
    int fd = memfd_create("stepd-compact", MFD_CLOEXEC), r;

    if (fd < 0) {
        return -errno;
    }
    r = build(ck, c, fd, ret_shard);
    close(fd);
    return r;
}

/* ---- the whole ----------------------------------------------------------- */

void compact_count_line(const struct checkpoint *ck, struct compact *c, int i,
                        struct report *rep)
{
    const struct line *l = &c->line[i];
    char name[SLOT_MAX_NAME];

    if (l->escapes > 0) {
        c->source += (uint64_t)l->rows * (uint64_t)l->cols * 2;
    } else {
        report_note(rep,
                    "weights = compact: %s stays BF16: too many of its weights "
                    "lie outside of 15 exponents",
                    slot_text(&ck->slots, c->slot[i], name, sizeof(name)));
    }
}

/* -EBADMSG with a problem where a shard is to blame, else r. */
int compact_blame(struct report *rep, const char *shard, int r)
{
    if (r == 0 || shard == NULL) {
        return r;
    }
    report_problem(rep, REPORT_FILE, "%s: cannot be read: %s", shard,
                   strerror(-r));
    return -EBADMSG;
}

int compact_open(struct checkpoint *ck, struct report *rep, bool device,
                 struct compact **ret)
{
    struct compact *c = calloc(1, sizeof(*c));
    const char *shard = NULL;
    int r = c == NULL ? -ENOMEM : list_matrices(ck, c);

    if (c != NULL) {
        c->fd = -1;
        c->device = device;
    }
    if (r == 0 && device) {
        c->state = XXH3_createState();
        c->passed = calloc((size_t)c->n + 1, sizeof(*c->passed));
        r = c->state == NULL || c->passed == NULL ? -ENOMEM : 0;
    }
    if (r == 0 && c->n > 0) {
        c->key = key_of(ck, c);
        r = ck->conf.state_dir != NULL && ck->conf.state_dir[0] != '\0'
                ? open_file(ck, c, rep, &shard)
                : 1;
        if (r > 0 && ck->may_map) {
            compact_close(c);
            ck->conf.weights = MODEL_MAP;
            *ret = NULL;
            return 0;
        }
        if (r > 0 && device) {
            c->late = true;
            r = 0;
        } else if (r > 0) {
            r = compact_pack_memory(ck, c, &shard);
        }
    }
    for (int i = 0; r == 0 && !c->late && i < c->n; i++) {
        compact_count_line(ck, c, i, rep);
    }
    if (r < 0) {
        compact_close(c);
        return compact_blame(rep, shard, r);
    }
    *ret = c;
    return 0;
}

void compact_close(struct compact *c)
{
    if (c == NULL) {
        return;
    }
    compact_unmap(c);
    compact_close_file(c);
    XXH3_freeState(c->state);
    free(c->passed);
    free(c->line);
    free(c->slot);
    free(c);
}

void compact_release(struct compact *c)
{
    if (c != NULL) {
        compact_unmap(c);
        compact_close_file(c);
    }
}

int compact_line_of(const struct compact *c, const struct slot *slot)
{
    for (int i = 0; c != NULL && i < c->n; i++) {
        if (c->slot[i] == slot) {
            return i;
        }
    }
    return -1;
}

bool compact_find(const struct compact *c, const struct slot *slot,
                  struct kern_weight_desc *d, const void *plane[3])
{
    int i = compact_line_of(c, slot);

    if (i < 0 || c->line[i].escapes == 0) {
        return false;
    }
    *d = compact_line_desc(&c->line[i]);
    d->shard = slot->desc.shard;
    for (int p = 0; p < 3; p++) {
        plane[p] = c->at != NULL ? c->at + c->line[i].off[p] : NULL;
    }
    return true;
}

uint64_t compact_source(const struct compact *c)
{
    return c == NULL ? 0 : c->source;
}
