/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Packed matrices on their way to a device (stream.c reads, weights.c gives).
 * From the file, which is read once, past the page cache, its sums checked as
 * the bytes pass; or, without one, packed matrix by matrix. One thread.
 *
 * What matters: the host holds no second copy: nothing but the rooms of the
 * stream, or one matrix.
 */
#include "daemon/model/compact_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int compact_file(const struct compact *c, const char **ret_name,
                 uint64_t *ret_bytes)
{
    if (c == NULL || c->fd < 0) {
        return -1;
    }
    *ret_name = strrchr(c->path, '/') + 1;
    *ret_bytes = c->bytes;
    return c->fd;
}

uint64_t compact_plane_at(const struct compact *c, const struct slot *slot,
                          int plane)
{
    return c->line[compact_line_of(c, slot)].off[plane];
}

/* As line_sum, in pieces. */
void compact_pass(struct compact *c, const struct slot *slot, int plane,
                  size_t off, const void *from, size_t n)
{
    int i = compact_line_of(c, slot);
    struct kern_weight_desc d = compact_line_desc(&c->line[i]);

    if (off == 0) {
        XXH3_64bits_reset_withSeed(c->state, c->passed[i]);
    }
    XXH3_64bits_update(c->state, from, n);
    if (off + n == kern_weight_plane_bytes(&d, plane)) {
        c->passed[i] = XXH3_64bits_digest(c->state);
    }
}

bool compact_passed(struct compact *c)
{
    bool ok = true;

    for (int i = 0; i < c->n; i++) {
        const struct line *l = &c->line[i];

        ok = ok && (l->escapes == 0 || c->passed[i] == l->sum);
        c->passed[i] = 0;
    }
    return ok;
}

int compact_again(struct checkpoint *ck, struct report *rep)
{
    struct compact *c = ck->compact;
    size_t n = (size_t)c->n * sizeof(*c->line);
    struct line *before = malloc(n + 1);
    const char *shard = NULL;
    int r = before == NULL ? -ENOMEM : 0;

    if (r == 0) {
        memcpy(before, c->line, n);
        report_note(rep, "weights = compact: %s is damaged: made again",
                    c->path);
        compact_close_file(c);
        r = compact_make_file(ck, c, rep, &shard);
    }
    if (r < 0 && shard == NULL && r != -ENOMEM && r != -EINTR &&
        r != -ECANCELED) {
        report_problem(rep, REPORT_FILE, "%s: cannot be made again: %s",
                       c->path, strerror(-r));
        r = -EBADMSG;
    } else if (r == 0 && memcmp(before, c->line, n) != 0) {
        report_problem(rep, REPORT_FILE,
                       "%s: was of another stepd: the next start takes it",
                       c->path);
        r = -EBADMSG;
    }
    free(before);
    return compact_blame(rep, shard, r);
}

bool compact_is_late(const struct compact *c, const struct slot *slot)
{
    return c != NULL && c->late && compact_line_of(c, slot) >= 0;
}

/* Line i by itself: packed into memory, given, gone. */
static int pack_one(struct checkpoint *ck, struct compact *c, int i,
                    compact_give_fn *give, void *ctx, const char **ret_shard)
{
    struct compact one = {.n = 1,
                          .line = &c->line[i],
                          .slot = &c->slot[i],
                          .fd = -1,
                          .packed = c->packed};
    struct kern_weight_desc d = c->slot[i]->desc;
    const void *plane[3] = {NULL, NULL, NULL};
    int r = compact_pack_memory(ck, &one, ret_shard);

    (void)compact_find(&one, c->slot[i], &d, plane);
    r = r < 0 ? r : give(ctx, c->slot[i], &d, plane);
    compact_unmap(&one);
    c->packed += (uint64_t)c->line[i].rows * (uint64_t)c->line[i].cols * 2;
    return r;
}

int compact_each(struct checkpoint *ck, struct report *rep,
                 compact_give_fn *give, void *ctx)
{
    struct compact *c = ck->compact;
    const char *shard = NULL;
    int r = 0;

    for (int i = 0; c != NULL && c->late && r == 0 && i < c->n; i++) {
        r = pack_one(ck, c, i, give, ctx, &shard);
        if (r == 0) {
            compact_count_line(ck, c, i, rep);
        }
    }
    return compact_blame(rep, shard, r);
}
