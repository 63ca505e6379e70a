/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The choice of a draft depth. Owns what a step of each depth costs, by number
 * of sequences, and decayed counts of acceptance, by position. No clock of its
 * own and no memory; engine thread.
 *
 * It begins at the greatest depth. What is unknown is probed at once; what is
 * known is probed again now and then, the neighbours in turn, for prompts
 * change. A depth replaces the one in use only when it promises DEPTH_GAIN
 * times as much.
 *
 * What matters: costs are relative. A probe is a few steps between a few of the
 * depth in use, and only these are compared: memory of a shared host gives half
 * as much again from one second to the next, contexts grow, and either would
 * make a depth that was measured earlier look better or worse than it is. Of
 * each few the median counts, for a step that was interrupted tells nothing.
 *
 * What a depth yields is computed from acceptance that was measured at whatever
 * depth (position i does not care how many come after it), so a probe serves to
 * learn what a step costs.
 *
 * A drafter is judged before it may be left unused, so that a broken one is
 * told from one that merely does not pay here.
 */

#include "daemon/model/depth.h"

#include <math.h>
#include <string.h>

/* Weight of the drafts before the newest one. */
#define KEEP_DRAFTS 0.99
/* Enough to measure a depth that was not in use before. */
#define DEPTH_STEADY_NEXT (DEPTH_SAMPLES + 2)
/* Steps before and after a probe that differ more tell nothing of it. */
#define STEADY_RATIO 1.15
/* An unknown position counts as this, worth as many drafts. */
#define PRIOR_RATE 0.7
#define PRIOR_DRAFTS 4.0

void depth_init(struct depth *d, int max)
{
    memset(d, 0, sizeof(*d));
    d->max = max;
    for (int i = 0; i < DEPTH_SIZES; i++) {
        d->size[i].now = max;
        d->size[i].cost[max] = 1;
        d->size[i].left = DEPTH_STEADY_NEXT;
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

static int in_use(const struct depth_size *s)
{
    return s->phase == DEPTH_PROBE ? s->probe : s->now;
}

void depth_add_step(struct depth *d, int n_seqs, int depth, double ms)
{
    struct depth_size *s = size_of(d, n_seqs);

    if (depth == in_use(s)) {
        s->last[s->n_last++ % DEPTH_SAMPLES] = ms / n_seqs;
    }
}

/* Of the newest steps of a phase; 0: too few tell. */
static double median(const struct depth_size *s)
{
    double a = s->last[0], b = s->last[1], c = s->last[2];

    if (s->n_last < DEPTH_SAMPLES) {
        return 0;
    }
    return fmax(fmin(a, b), fmin(fmax(a, b), c));
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
    double most = DEPTH_GAIN * depth_tokens(d, at);

    for (int n = d->judged ? 0 : 1; n <= d->max; n++) {
        if (n != s->now && s->cost[n] > 0 &&
            depth_tokens(d, n) / s->cost[n] > most) {
            most = depth_tokens(d, n) / s->cost[n];
            at = n;
        }
    }
    return at;
}

static void take_best(const struct depth *d, struct depth_size *s)
{
    int n = best(d, s);
    double unit = s->cost[n];

    if (n == s->now) {
        return;
    }
    s->now = n;
    s->n_last = 0;
    for (int i = 0; i <= d->max; i++) {
        s->cost[i] /= unit;
    }
}

/* The next depth to be probed: an unknown one, the greatest first, then one
 * that was probed only once, else the neighbours of the one in use in turn. */
static int next_probe(const struct depth *d, struct depth_size *s)
{
    for (int known = 0; known < 2; known++) {
        for (int n = d->max; n >= 0; n--) {
            if (n != s->now && s->probes[n] <= known &&
                (known > 0 || s->cost[n] <= 0)) {
                return n;
            }
        }
    }
    s->turn = s->turn > s->now ? s->now - 1 : s->now + 1;
    if (s->turn > d->max || s->turn < 0) {
        s->turn = s->now + (s->turn < 0 ? 1 : -1);
    }
    return s->turn;
}

/* Steps to the next probe. */
static int steady_steps(const struct depth *d, const struct depth_size *s)
{
    int least = DEPTH_STEADY_LATE;

    for (int n = 0; n <= d->max; n++) {
        if (n != s->now && s->cost[n] <= 0) {
            return DEPTH_STEADY_NEXT;
        }
        if (n != s->now && s->probes[n] < 2) {
            least = DEPTH_STEADY_SOON;
        }
    }
    return least;
}

static void learn(struct depth_size *s, double after)
{
    double *to = &s->cost[s->probe];
    double ratio;

    if (s->before <= 0 || s->during <= 0 || after <= 0 ||
        fmax(s->before, after) > STEADY_RATIO * fmin(s->before, after)) {
        return;
    }
    ratio = 2 * s->during / (s->before + after);
    *to = *to > 0 ? sqrt(*to * ratio) : ratio;
    s->probes[s->probe]++;
}

static void next_phase(const struct depth *d, struct depth_size *s)
{
    double ms = median(s);

    s->left = DEPTH_PHASE_STEPS;
    if (s->phase == DEPTH_STEADY) {
        s->before = ms;
        s->n_last = 0;
        s->probe = next_probe(d, s);
        s->phase = DEPTH_PROBE;
    } else if (s->phase == DEPTH_PROBE) {
        s->during = ms;
        s->n_last = 0;
        s->phase = DEPTH_AFTER;
    } else {
        learn(s, ms);
        take_best(d, s);
        s->phase = DEPTH_STEADY;
        s->left = steady_steps(d, s);
    }
}

int depth_pick(struct depth *d, int n_seqs)
{
    struct depth_size *s = size_of(d, n_seqs);

    if (d->off || d->max == 0) {
        return 0;
    }
    s->left--;
    if (s->phase == DEPTH_STEADY && s->left % DEPTH_LOOK_STEPS == 0) {
        take_best(d, s);
    }
    if (s->left <= 0 ||
        (s->phase != DEPTH_STEADY && s->n_last >= DEPTH_SAMPLES)) {
        next_phase(d, s);
    }
    return in_use(s);
}
