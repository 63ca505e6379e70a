/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Walks what a device needs of the shards, and of the file of packed matrices
 * (compact.c), in the order of the files, in pieces
 * as large as a room of its backend (kern_load_room): a piece is read by
 * O_DIRECT into the room, and what lies in it is handed over from there; copies
 * and the repacking run on while the next piece is read. One thread, the
 * caller's.
 *
 * What matters: pieces begin and end at blocks of 4096 bytes, wherever tensors
 * do, and no block is read twice. The host never holds more of the weights than
 * the rooms: where O_DIRECT is refused, the page cache is told to forget what
 * was read.
 */
#include "daemon/model/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/model/compact.h"
#include "kernels/quant.h"

#define ALIGN ((uint64_t)4096)
/* A hole worth reading over: tensors of one run share a read. */
#define MERGE ((uint64_t)64 << 10)

/* A plane of a weight, and where it lies. */
struct plane {
    int file; /* n_files: that of the packed matrices */
    uint64_t off, end;
    const struct slot *packed;
    struct kern_weight *w;
    int expert, plane;
    unsigned char *narrow; /* BF16 that becomes F32: all of it, in memory */
};

struct source {
    int fd;
    const char *name;
    uint64_t size;
};

struct stream {
    struct checkpoint *ck;
    struct source *source; /* [n_files + 1] */
    struct kern *k;
    struct report *rep;
    int n, max;
    struct plane *plane;
    uint64_t before, done, total;
};

/* ---- what is needed ------------------------------------------------------ */

static int add(struct stream *s, struct slot_range g, struct kern_weight *w,
               int expert, int plane, bool narrow)
{
    struct plane p = {.file = g.file,
                      .off = g.off,
                      .end = g.off + g.bytes,
                      .w = w,
                      .expert = expert,
                      .plane = plane};

    if (s->n == s->max) {
        int max = s->max > 0 ? s->max * 2 : 1024;
        struct plane *grown = realloc(s->plane, (size_t)max * sizeof(*grown));

        if (grown == NULL) {
            return -ENOMEM;
        }
        s->plane = grown;
        s->max = max;
    }
    if (narrow && (p.narrow = malloc(g.bytes + 1)) == NULL) {
        return -ENOMEM;
    }
    s->total += g.bytes;
    s->plane[s->n++] = p;
    return 0;
}

static int add_slot(struct stream *s, const struct slot *slot,
                    struct kern_weight *w)
{
    int n = slot->desc.experts > 0 ? slot->desc.experts : 1, r = 0;
    bool narrow = slot->desc.dtype == KERN_F32 && slot->scheme == SCHEME_BF16;

    for (int e = 0; e < n; e++) {
        for (int p = 0; p < kern_weight_n_planes(slot->desc.dtype) && r == 0;
             p++) {
            r = add(s, slot_plane(slot, e, p), w, e, p, narrow);
        }
    }
    return r;
}

static int add_packed(struct stream *s, const struct slot *slot,
                      const struct kern_weight_desc *d, struct kern_weight *w)
{
    int r = 0;

    for (int p = 0; p < 3 && r == 0; p++) {
        struct slot_range g = {.file = s->ck->n_files,
                               .off = compact_plane_at(s->ck->compact, slot, p),
                               .bytes = kern_weight_plane_bytes(d, p)};

        r = add(s, g, w, 0, p, false);
        if (r == 0) {
            s->plane[s->n - 1].packed = slot;
        }
    }
    return r;
}

static int by_place(const void *a, const void *b)
{
    const struct plane *x = a, *y = b;

    if (x->file != y->file) {
        return x->file - y->file;
    }
    return x->off < y->off ? -1 : x->off > y->off;
}

/* ---- reading ------------------------------------------------------------- */

/* Said once, whatever the number of shards. */
static void say_indirect(struct stream *s)
{
    report_note(s->rep, "the file system of the shards refuses O_DIRECT: they "
                        "are read through the page cache");
}

static void set_direct(struct stream *s, int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 &&
        fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) < 0 &&
        on) {
        say_indirect(s);
    }
}

/* Where O_DIRECT was taken and then cannot read. False: it was off. */
static bool undirect(struct stream *s, int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || (flags & O_DIRECT) == 0 ||
        fcntl(fd, F_SETFL, flags & ~O_DIRECT) < 0) {
        return false;
    }
    say_indirect(s);
    return true;
}

static int read_error(struct stream *s, int file, uint64_t at, int error)
{
    const struct source *f = &s->source[file];

    if (error == 0) {
        report_problem(s->rep, REPORT_FILE,
                       "%s: ends at byte %" PRIu64
                       ": became shorter while it was read",
                       f->name, at);
    } else {
        report_problem(s->rep, REPORT_FILE,
                       "%s: cannot be read at byte %" PRIu64 ": %s", f->name,
                       at, strerror(error));
    }
    return -EBADMSG;
}

/* Bytes [off, end) of a file, whole blocks but for the end of the file. */
static int read_in(struct stream *s, int file, uint64_t off, uint64_t end,
                   unsigned char *to)
{
    const struct source *f = &s->source[file];
    uint64_t begin = off;

    while (off < end && off < f->size) {
        ssize_t r = pread(f->fd, to + (off - begin), end - off, (off_t)off);

        if (r < 0 &&
            (errno == EINTR || (errno == EINVAL && undirect(s, f->fd)))) {
            continue;
        }
        if (r < 0) {
            return read_error(s, file, off, errno);
        }
        off += (uint64_t)r;
        if (r == 0 || (off < f->size && off < end && off % ALIGN != 0)) {
            return read_error(s, file, off, 0);
        }
    }
    (void)posix_fadvise(f->fd, (off_t)begin, (off_t)(end - begin),
                        POSIX_FADV_DONTNEED);
    return 0;
}

/* ---- handing over -------------------------------------------------------- */

/* What of plane p lies in the room, which begins at byte `begin`. */
static int give(struct stream *s, const struct plane *p, uint64_t begin,
                uint64_t end, const unsigned char *room)
{
    uint64_t off = p->off > begin ? p->off : begin;
    size_t n = (size_t)((p->end < end ? p->end : end) - off);
    int r = 0;

    if (p->packed != NULL) {
        compact_pass(s->ck->compact, p->packed, p->plane, off - p->off,
                     room + (off - begin), n);
    }
    if (p->narrow != NULL) {
        memcpy(p->narrow + (off - p->off), room + (off - begin), n);
    } else {
        r = kern_weight_fill(s->k, p->w, p->expert, p->plane, off - p->off,
                             room + (off - begin), n);
    }
    if (r < 0) {
        report_problem(s->rep, REPORT_DEVICE, "%s: %s", s->source[p->file].name,
                       kern_error(s->k));
    }
    s->done += n;
    return r;
}

static int tell(const struct stream *s)
{
    const struct model_conf *c = &s->ck->conf;

    return c->progress != NULL
               ? c->progress(c->ctx, s->before + s->done, s->before + s->total)
               : 0;
}

/* Planes first .. last - 1 lie so close that they are read in one run. */
static int stream_run(struct stream *s, int first, int last, uint64_t end)
{
    int file = s->plane[first].file, r = tell(s);
    uint64_t at = s->plane[first].off / ALIGN * ALIGN;

    end = (end + ALIGN - 1) / ALIGN * ALIGN;
    while (r >= 0 && at < end) {
        void *room;
        size_t bytes;
        uint64_t stop;

        r = kern_load_room(s->k, &room, &bytes);
        if (r < 0) {
            report_problem(s->rep, REPORT_DEVICE, "%s", kern_error(s->k));
            return r;
        }
        stop = end - at > bytes ? at + bytes : end;
        r = read_in(s, file, at, stop, room);
        while (first < last && s->plane[first].end <= at) {
            first++;
        }
        for (int i = first; r == 0 && i < last && s->plane[i].off < stop; i++) {
            r = give(s, &s->plane[i], at, stop, room);
        }
        at = stop;
        r = r < 0 ? r : tell(s);
    }
    return r < 0 ? r : 0;
}

static int stream_from(struct stream *s, int first)
{
    int r = 0;

    for (int i = first, last; r == 0 && i < s->n; i = last) {
        uint64_t end = s->plane[i].end;

        for (last = i + 1;
             last < s->n && s->plane[last].file == s->plane[i].file &&
             s->plane[last].off <= end + MERGE;
             last++) {
            end = s->plane[last].end > end ? s->plane[last].end : end;
        }
        r = stream_run(s, i, last, end);
    }
    return r;
}

/* After the rooms: these come from other memory. */
static int widen(struct stream *s)
{
    int r = 0;

    for (int i = 0; i < s->n && r == 0; i++) {
        const struct plane *p = &s->plane[i];
        size_t n = p->narrow != NULL ? (size_t)(p->end - p->off) / 2 : 0;
        float *wide = n > 0 ? malloc(n * sizeof(*wide)) : NULL;

        if (n > 0 && wide == NULL) {
            return -ENOMEM;
        }
        for (size_t j = 0; j < n; j++) {
            uint16_t b;

            memcpy(&b, p->narrow + 2 * j, sizeof(b));
            wide[j] = quant_bf16_to_f32(b);
        }
        if (n > 0) {
            r = kern_weight_fill(s->k, p->w, p->expert, p->plane, 0, wide,
                                 n * sizeof(*wide));
        }
        free(wide);
    }
    return r;
}

static void set_all_direct(struct stream *s, bool on)
{
    for (int i = 0; i <= s->ck->n_files; i++) {
        set_direct(s, s->source[i].fd, on);
    }
}

/* The packed matrices once more, from a file made again. */
static int stream_again(struct stream *s)
{
    struct source *f = &s->source[s->ck->n_files];
    int first = s->n, r;

    set_all_direct(s, false); /* packing reads rows, not blocks */
    r = compact_again(s->ck, s->rep);
    while (first > 0 && s->plane[first - 1].packed != NULL) {
        first--;
        s->done -= s->plane[first].end - s->plane[first].off;
    }
    f->fd = compact_file(s->ck->compact, &f->name, &f->size);
    if (r == 0) {
        set_direct(s, f->fd, true);
        r = stream_from(s, first);
    }
    if (r == 0 && !compact_passed(s->ck->compact)) {
        report_problem(s->rep, REPORT_FILE,
                       "%s: was just made, and reads otherwise", f->name);
        r = -EBADMSG;
    }
    return r;
}

static int stream_all(struct stream *s)
{
    int r;

    qsort(s->plane, (size_t)s->n, sizeof(*s->plane), by_place);
    set_all_direct(s, true);
    r = stream_from(s, 0);
    if (r == 0 && s->ck->compact != NULL && s->plane[s->n - 1].packed != NULL &&
        !compact_passed(s->ck->compact)) {
        r = stream_again(s);
    }
    set_all_direct(s, false);
    return r;
}

/* The shards, and the file of the packed matrices where there is one. */
static int list_sources(struct stream *s)
{
    int n = s->ck->n_files;

    s->source = calloc((size_t)n + 1, sizeof(*s->source));
    if (s->source == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < n; i++) {
        const struct st_file *f = &s->ck->file[i];

        s->source[i] = (struct source){f->fd, f->name, f->size};
    }
    s->source[n].fd =
        compact_file(s->ck->compact, &s->source[n].name, &s->source[n].size);
    if (s->source[n].fd < 0) { /* packed on the way: read already */
        s->before = compact_source(s->ck->compact);
    }
    return 0;
}

static int list_planes(struct stream *s,
                       struct kern_weight *(*of)(void *ctx,
                                                 const struct slot *slot),
                       void *ctx)
{
    struct checkpoint *ck = s->ck;
    int r = 0;

    for (int i = 0; i < ck->slots.n && r == 0; i++) {
        const struct slot *slot = &ck->slots.slot[i];
        struct kern_weight_desc d;
        const void *plane[3];

        if (!checkpoint_wants(ck, slot)) {
            continue;
        }
        if (!compact_find(ck->compact, slot, &d, plane)) {
            r = add_slot(s, slot, of(ctx, slot));
        } else if (s->source[ck->n_files].fd >= 0) {
            r = add_packed(s, slot, &d, of(ctx, slot));
        }
    }
    return r;
}

int stream_weights(struct checkpoint *ck, struct kern *k,
                   struct kern_weight *(*of)(void *ctx,
                                             const struct slot *slot),
                   void *ctx, struct report *rep)
{
    struct stream s = {.ck = ck, .k = k, .rep = rep};
    int r = list_sources(&s);

    r = r < 0 ? r : list_planes(&s, of, ctx);
    if (r == 0 && s.n > 0) {
        r = stream_all(&s);
    }
    r = r < 0 ? r : widen(&s);
    for (int i = 0; i < s.n; i++) {
        free(s.plane[i].narrow);
    }
    free(s.plane);
    free(s.source);
    return r;
}
