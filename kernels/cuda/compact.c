/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Escapes of compact weights, from the order of the file (by row) into that of
 * the kernels (by tile of 16 rows, then by group of 128 columns), so that a warp
 * sees those of its part of a matrix at once. They are about one weight in 6,000:
 * the host sorts them while the planes are on their way. Pure, any thread.
 *
 * What matters: these words become addresses on the device, so nothing in them is
 * believed.
 */

#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <stdio.h>

#include "kernels/compact.h"

/* Row r's escapes are words first .. end - 1 of plane 2, ascending by column. */
static bool row_is_sound(const struct kern_weight_desc *d, const uint32_t *words, int r)
{
    const uint32_t *escape = words + d->rows + 1;
    uint32_t first = compact_first(words[r]), end = compact_first(words[r + 1]);
    int last = -1;

    if (first > end || end >= (uint32_t)d->escapes || compact_base(words[r]) > 240) {
        return false;
    }
    for (uint32_t i = first; i < end; i++) {
        int col = compact_col(escape[i]);

        if (col <= last || col >= d->cols) {
            return false;
        }
        last = col;
    }
    return true;
}

int gpu_compact_sort(const struct kern_weight_desc *d, const struct gpu_mat *m,
                     const uint32_t *words, unsigned char *bases, uint32_t *f, char *why, size_t n)
{
    const uint32_t *escape = words + d->rows + 1;
    int tiles = gpu_ceil(d->rows, GPU_TILE);
    uint32_t *index = f, at = (uint32_t)tiles * (uint32_t)m->groups + 1;

    for (int r = 0; r < d->rows; r++) {
        if (!row_is_sound(d, words, r)) {
            snprintf(why, n, "compact plane 1: row %d does not fit its escapes", r);
            return -EINVAL;
        }
        bases[r] = (unsigned char)compact_base(words[r]);
    }
    for (int t = 0; t < tiles; t++) {
        uint32_t next[GPU_TILE]; /* not yet taken, of each row */
        int rows = gpu_min(GPU_TILE, d->rows - t * GPU_TILE);
        const uint32_t *row = words + t * GPU_TILE;

        for (int r = 0; r < rows; r++) {
            next[r] = compact_first(row[r]);
        }
        for (int g = 0; g < m->groups; g++) {
            *index++ = at;
            for (int r = 0; r < rows; r++) {
                while (next[r] < compact_first(row[r + 1]) &&
                       compact_col(escape[next[r]]) / GPU_GROUP == g) {
                    uint32_t e = escape[next[r]++];

                    f[at++] = GPU_ESCAPE(r, compact_col(e) % GPU_GROUP, e & 0xffffu);
                }
            }
        }
    }
    *index = at;
    return 0;
}
