/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The choice of a draft depth. Owns decayed averages of step times, by number
 * of sequences and depth, and of acceptance, by position. No clock of its own
 * and no memory; engine thread.
 *
 * It begins at the greatest depth. What is unknown is probed soon; what is
 * known is probed again now and then, the neighbours in turn, for prompts
 * change. A depth replaces the one in use only when it promises DEPTH_GAIN
 * times as much, so that noise does not make it swing.
 *
 * A drafter is judged before it may be left unused, so that a broken one is
 * told from one that merely does not pay here.
 *
 * What matters: a depth's promise is computed from acceptance that was measured
 * at whatever depth (position i does not care how many come after it), so a
 * probe serves to learn what a step costs, not what it yields.
 */

#include "daemon/model/depth.h"

#include <string.h>

/* Weight of the newest step; the newest draft. */
#define KEEP_MS 0.8
#define KEEP_DRAFTS 0.99
/* An unknown position counts as this, worth as many drafts. */
#define PRIOR_RATE 0.7
#define PRIOR_DRAFTS 4.0

void depth_init(struct depth *d, int max)
{
    memset(d, 0, sizeof(*d));
    d->max = max;
    for (int i = 0; i < DEPTH_SIZES; i++) {
        d->size[i].now = max;
        d->size[i].probe = -1;
        d->size[i].left = DEPTH_PROBE_SOON;
        d->size[i].turn = max;
    }
}

static struct depth_size *size_of(struct depth *d, int n_seqs)
{
    int i = 0;

    while (i < DEPTH_SIZES - 1 && n_seqs > 1 << i) {
        i++;
    }
    return &d->size[i];
}

/* The window of the floor begins anew when it is full. */
static void watch_floor(struct depth *d, bool taken)
{
    d->first_tried++;
    d->first_taken += taken;
    if (d->first_tried < DEPTH_FLOOR_DRAFTS) {
        return;
    }
    d->off = d->off || d->first_taken < DEPTH_FLOOR * d->first_tried;
    d->first_tried = d->first_taken = 0;
    d->judged = true;
}

void depth_add_drafts(struct depth *d, int n_drafted, int n_accepted)
{
    if (n_drafted == 0) {
        return;
    }
    watch_floor(d, n_accepted > 0);
    for (int i = 0; i < n_drafted && i <= n_accepted; i++) {
        d->tried[i] = d->tried[i] * KEEP_DRAFTS + 1;
        d->taken[i] = d->taken[i] * KEEP_DRAFTS + (i < n_accepted);
    }
}

void depth_add_step(struct depth *d, int n_seqs, int depth, double ms)
{
    double *to = &size_of(d, n_seqs)->ms[depth];

    ms /= n_seqs;
    *to = *to > 0 ? *to * KEEP_MS + ms * (1 - KEEP_MS) : ms;
}

double depth_tokens(const struct depth *d, int n)
{
    double sum = 1, all = 1;

    for (int i = 0; i < n; i++) {
        all *= (d->taken[i] + PRIOR_RATE * PRIOR_DRAFTS) /
               (d->tried[i] + PRIOR_DRAFTS);
        sum += all;
    }
    return sum;
}

/* Among the depths whose cost is known; the one in use unless another is
 * clearly better. */
static int best(const struct depth *d, const struct depth_size *s)
{
    int at = s->now;
    double most;

    if (s->ms[at] <= 0) {
        return at;
    }
    most = DEPTH_GAIN * depth_tokens(d, at) / s->ms[at];
    for (int n = d->judged ? 0 : 1; n <= d->max; n++) {
        if (n != s->now && s->ms[n] > 0 &&
            depth_tokens(d, n) / s->ms[n] > most) {
            most = depth_tokens(d, n) / s->ms[n];
            at = n;
        }
    }
    return at;
}

/* The next depth to be probed: an unknown one, the greatest first, else the
 * neighbours of the one in use in turn. */
static int next_probe(const struct depth *d, struct depth_size *s)
{
    for (int n = d->max; n >= 0; n--) {
        if (s->ms[n] <= 0 && n != s->now) {
            return n;
        }
    }
    s->turn = s->turn > s->now ? s->now - 1 : s->now + 1;
    if (s->turn > d->max || s->turn < 0) {
        s->turn = s->now + (s->turn < 0 ? 1 : -1);
    }
    return s->turn;
}

static bool all_known(const struct depth *d, const struct depth_size *s)
{
    bool all = true;

    for (int n = 0; n <= d->max; n++) {
        all = all && s->ms[n] > 0;
    }
    return all;
}

int depth_pick(struct depth *d, int n_seqs)
{
    struct depth_size *s = size_of(d, n_seqs);

    if (d->off || d->max == 0) {
        return 0;
    }
    if (--s->left > 0) {
        return s->probe >= 0 ? s->probe : s->now;
    }
    if (s->probe < 0) {
        s->now = best(d, s);
        s->probe = next_probe(d, s);
        s->left = DEPTH_PROBE_STEPS;
        return s->probe;
    }
    s->probe = -1;
    s->now = best(d, s);
    s->left = all_known(d, s) ? DEPTH_PROBE_LATE : DEPTH_PROBE_SOON;
    return s->now;
}
