/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Maps, warms, locks or copies the shards. Owns the list of needed ranges and
 * the threads that walk it; the mappings belong to the checkpoint.
 *
 * The calling thread works too, and between its pieces tells the progress; so
 * there is no timer and no thread that only waits. Pieces are taken in file
 * order from one counter: reads stay sequential on a disk, whatever the number
 * of threads.
 *
 * What matters: a byte of weights is in memory once. map and lock use the page
 * cache's copy; copy reads past the page cache (O_DIRECT) into anonymous memory
 * laid out like the file, so that an offset in the file is one in the copy, and
 * parts of the file that nobody needs take no memory.
 */
#include "daemon/model/load.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/model/available.h"
#include "daemon/model/compact.h"
#include "daemon/model/watch.h"

/* One read: 8 MiB keeps an NVMe disk busy. */
#define PIECE ((uint64_t)8 << 20)
/* Of O_DIRECT, and of pages. */
#define ALIGN ((uint64_t)4096)
/* A hole worth reading over. */
#define MERGE ((uint64_t)64 << 10)
#define MAX_THREADS 16

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* A range of a shard, in whole blocks; the last one may end past the file. */
struct range {
    int file;
    uint64_t off, end;
};

struct load {
    struct checkpoint *ck;
    int n_ranges, max_ranges;
    struct range *range;
    uint64_t total;
    uint64_t before; /* bytes that count as done: read into compact weights */
    bool warm;       /* map: it fits, so read it in and map every page */
    atomic_uint_fast64_t next; /* first byte, over all ranges, not yet taken */
    atomic_uint_fast64_t done;
    atomic_int error; /* the first -errno of a piece */
    atomic_int error_file;
};

/* ---- what is needed ------------------------------------------------------ */

static int add_range(struct load *l, int file, uint64_t off, uint64_t end)
{
    if (l->n_ranges == l->max_ranges) {
        int max = l->max_ranges > 0 ? l->max_ranges * 2 : 256;
        struct range *grown =
            realloc(l->range, (size_t)max * sizeof(*l->range));

        if (grown == NULL) {
            return -ENOMEM;
        }
        l->range = grown;
        l->max_ranges = max;
    }
    l->range[l->n_ranges++] =
        (struct range){.file = file,
                       .off = off / ALIGN * ALIGN,
                       .end = (end + ALIGN - 1) / ALIGN * ALIGN};
    return 0;
}

static int add_parts(struct load *l, const struct slot_part *parts)
{
    int r = 0;

    for (int p = 0; p < N_PARTS && r == 0; p++) {
        if (parts[p].t != NULL && parts[p].t->end > parts[p].t->begin) {
            r = add_range(l, parts[p].file, parts[p].t->begin, parts[p].t->end);
        }
    }
    return r;
}

static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    if (x->file != y->file) {
        return x->file - y->file;
    }
    return x->off < y->off ? -1 : x->off > y->off;
}

static int list_ranges(struct load *l)
{
    const struct slots *s = &l->ck->slots;
    struct kern_weight_desc packed;
    const void *plane[3];
    int r = 0, n = 0;

    for (int i = 0; i < s->n && r == 0; i++) {
        const struct slot *slot = &s->slot[i];

        if (!checkpoint_wants(l->ck, slot) ||
            compact_find(l->ck->compact, slot, &packed, plane)) {
            continue;
        }
        r = add_parts(l, slot->whole);
        for (int e = 0; slot->each != NULL && e < slot->desc.experts && r == 0;
             e++) {
            r = add_parts(l, slot->each[e]);
        }
    }
    if (r < 0 || l->n_ranges == 0) {
        return r;
    }
    qsort(l->range, (size_t)l->n_ranges, sizeof(*l->range), by_place);
    for (int i = 1; i < l->n_ranges; i++) {
        struct range *last = &l->range[n], *at = &l->range[i];

        if (at->file == last->file && at->off <= last->end + MERGE) {
            last->end = at->end > last->end ? at->end : last->end;
        } else {
            l->range[++n] = *at;
        }
    }
    l->n_ranges = n + 1;
    for (int i = 0; i < l->n_ranges; i++) {
        l->total += l->range[i].end - l->range[i].off;
    }
    return 0;
}

uint64_t load_total(const struct checkpoint *ck)
{
    struct load l = {.ck = (struct checkpoint *)ck};

    if (list_ranges(&l) < 0) {
        l.total = 0;
    }
    free(l.range);
    return l.total + compact_source(ck->compact);
}

/* ---- mappings ------------------------------------------------------------ */

/* The shard itself, or anonymous memory of its size. */
static int map_file(struct checkpoint *ck, int i, struct report *rep)
{
    struct st_file *f = &ck->file[i];
    size_t bytes = (size_t)((f->size + ALIGN - 1) / ALIGN * ALIGN);
    bool copy = ck->conf.weights == MODEL_COPY;
    void *at;

    if (ck->map[i].at != NULL) {
        return 0;
    }
    at = copy ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
              : mmap(NULL, bytes, PROT_READ, MAP_SHARED, f->fd, 0);
    if (at == MAP_FAILED) {
        report_problem(rep, REPORT_MEMORY, "%s: cannot be mapped: %s", f->name,
                       strerror(errno));
        return -EBADMSG;
    }
    ck->map[i].at = at;
    ck->map[i].bytes = bytes;
    /* Advice: where the kernel has no huge pages, small ones do. What is read
     * in by way of a mapping with it lies in huge pages of the page cache,
     * where the file system has them (ext4 since Linux 6.16, xfs). */
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    if (copy) {
        (void)madvise(at, bytes, MADV_DONTDUMP);
    } else {
        watch_add(at, bytes, f->name);
    }
    return 0;
}

/* ---- one piece, by mode -------------------------------------------------- */

/* Reads in what is not in the page cache, and maps what is: a step touches
 * other experts each time, and the first touch of one would be a fault for
 * every few pages of it. 0.03 s a GB from the page cache, by two threads. */
static int warm(struct checkpoint *ck, int file, uint64_t off, uint64_t end)
{
    const struct st_file *f = &ck->file[file];
    uint64_t bytes =
        (end > ck->map[file].bytes ? ck->map[file].bytes : end) - off;

    if (madvise(ck->map[file].at + off, bytes, MADV_POPULATE_READ) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return -errno;
    }
    /* Linux before 5.14: readahead blocks until the pages are there. */
    return readahead(f->fd, (off_t)off, bytes) == 0 ? 0 : -errno;
}

/* Where O_DIRECT was taken and then cannot read (a file system that stores the
 * file inline, a coarser disk), the page cache has to do. False: it was off. */
static bool undirect(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DIRECT) != 0 &&
           fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

/* Into the copy, in whole blocks as O_DIRECT wants them; the last block ends at
 * the end of the file. */
static int copy_in(struct checkpoint *ck, int file, uint64_t off, uint64_t end)
{
    const struct st_file *f = &ck->file[file];

    while (off < end && off < f->size) {
        ssize_t r = pread(f->fd, ck->map[file].at + off, end - off, (off_t)off);

        if (r < 0 && (errno == EINTR || (errno == EINVAL && undirect(f->fd)))) {
            continue;
        }
        if (r < 0) {
            return -errno;
        }
        if (r == 0 || (off + (uint64_t)r < f->size && r % ALIGN != 0)) {
            return -ESTALE; /* shorter than it was a moment ago */
        }
        off += (uint64_t)r;
    }
    return 0;
}

static int do_piece(struct load *l, int file, uint64_t off, uint64_t end)
{
    switch (l->ck->conf.weights) {
    case MODEL_COPY:
        return copy_in(l->ck, file, off, end);
    case MODEL_LOCK:
        if (end > l->ck->map[file].bytes) {
            end = l->ck->map[file].bytes;
        }
        return mlock(l->ck->map[file].at + off, end - off) == 0 ? 0 : -errno;
    case MODEL_MAP:
    case MODEL_COMPACT:
    case MODEL_AUTO:
        return l->warm ? warm(l->ck, file, off, end) : 0;
    }
    return -EINVAL;
}

/* ---- walking the list ---------------------------------------------------- */

/* Takes and does the next piece. False: none is left, or one failed. */
static bool next_piece(struct load *l)
{
    uint64_t at = atomic_fetch_add(&l->next, PIECE);
    uint64_t stop = at + PIECE, begin = 0;

    if (at >= l->total || atomic_load(&l->error) < 0) {
        return false;
    }
    for (int i = 0; i < l->n_ranges && begin < stop; i++) {
        const struct range *g = &l->range[i];
        uint64_t n = g->end - g->off;
        uint64_t from = at > begin ? at - begin : 0;
        uint64_t to = stop - begin < n ? stop - begin : n;

        if (from < to) {
            int r = do_piece(l, g->file, g->off + from, g->off + to);
            int none = 0;

            if (r < 0) {
                if (atomic_compare_exchange_strong(&l->error, &none, r)) {
                    atomic_store(&l->error_file, g->file);
                }
                return false;
            }
        }
        begin += n;
    }
    atomic_fetch_add(&l->done, (stop < l->total ? stop : l->total) - at);
    return true;
}

static void *worker(void *arg)
{
    while (next_piece(arg)) {
    }
    return NULL;
}

static int n_threads(const struct load *l)
{
    cpu_set_t set;
    uint64_t pieces = (l->total + PIECE - 1) / PIECE;
    int n = l->ck->conf.n_threads;

    if (n <= 0) {
        n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    n = n > MAX_THREADS ? MAX_THREADS : n;
    return pieces < (uint64_t)n ? (int)pieces : n;
}

static int tell(struct load *l)
{
    const struct model_conf *c = &l->ck->conf;

    return c->progress != NULL
               ? c->progress(c->ctx, l->before + atomic_load(&l->done),
                             l->before + l->total)
               : 0;
}

static int walk(struct load *l)
{
    pthread_t thread[MAX_THREADS];
    int n = n_threads(l) - 1, n_started = 0;
    int r = tell(l);

    while (r >= 0 && n_started < n &&
           pthread_create(&thread[n_started], NULL, worker, l) == 0) {
        n_started++;
    }
    while (r >= 0 && next_piece(l)) {
        r = tell(l);
    }
    if (r < 0) {
        int none = 0;

        (void)atomic_compare_exchange_strong(&l->error, &none, -ECANCELED);
    }
    for (int i = 0; i < n_started; i++) {
        pthread_join(thread[i], NULL);
    }
    return r < 0 ? r : atomic_load(&l->error) < 0 ? 0 : tell(l);
}

/* ---- the whole ----------------------------------------------------------- */

/* What the load returns for the error, which it names. A lock that is refused
 * is no damage to the checkpoint: it was asked for. */
static int say_error(struct load *l, int error, struct report *rep)
{
    const char *name = l->ck->file[atomic_load(&l->error_file)].name;
    struct rlimit lim = {0};

    if (l->ck->conf.weights == MODEL_LOCK &&
        (error == -ENOMEM || error == -EPERM || error == -EAGAIN)) {
        getrlimit(RLIMIT_MEMLOCK, &lim);
        report_problem(rep, REPORT_MEMORY,
                       "%s: cannot be locked in memory: expected "
                       "RLIMIT_MEMLOCK of %llu bytes, found %llu: %s; set "
                       "LimitMEMLOCK=infinity in the unit, or weights = map",
                       name, (unsigned long long)l->total,
                       (unsigned long long)lim.rlim_cur, strerror(-error));
        return -E2BIG;
    }
    if (error == -ESTALE || error == -EFAULT) {
        report_problem(rep, REPORT_FILE, "%s: became shorter while it was read",
                       name);
    } else {
        report_problem(rep, REPORT_FILE, "%s: cannot be read: %s", name,
                       strerror(-error));
    }
    return -EBADMSG;
}

/* O_DIRECT on or off for every shard that is copied; a file system without it
 * (tmpfs) reads through the page cache instead. */
static void set_direct(struct load *l, bool on)
{
    for (int i = 0; i < l->ck->n_files; i++) {
        int flags = fcntl(l->ck->file[i].fd, F_GETFL);

        if (l->ck->map[i].at != NULL && flags >= 0) {
            (void)fcntl(l->ck->file[i].fd, F_SETFL,
                        on ? flags | O_DIRECT : flags & ~O_DIRECT);
        }
    }
}

int load_bytes(struct checkpoint *ck, struct report *rep)
{
    struct load l = {.ck = ck, .before = compact_source(ck->compact)};
    int r = list_ranges(&l);
    int error;

    for (int i = 0; r == 0 && i < l.n_ranges; i++) {
        r = map_file(ck, l.range[i].file, rep);
    }
    l.warm = l.total <= available_memory("");
    if (r == 0) {
        if (ck->conf.weights == MODEL_COPY) {
            set_direct(&l, true);
        }
        r = walk(&l);
        if (ck->conf.weights == MODEL_COPY) {
            set_direct(&l, false);
        }
        error = atomic_load(&l.error);
        if (r >= 0 && error < 0) {
            r = say_error(&l, error, rep);
        }
    }
    for (int i = 0; r == 0 && ck->conf.weights == MODEL_COPY && i < ck->n_files;
         i++) {
        if (ck->map[i].at != NULL) {
            (void)mprotect(ck->map[i].at, ck->map[i].bytes, PROT_READ);
        }
    }
    free(l.range);
    return r < 0 ? r : 0;
}
