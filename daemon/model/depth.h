/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_DEPTH_H
#define STEPD_DAEMON_MODEL_DEPTH_H

/*
 * How many drafts to make where the request leaves that to the engine: the
 * depth with the most tokens a second, from what steps took and how often each
 * position was accepted. Pure bookkeeping, fed by step.c; drafting is lossless,
 * so whatever is picked here the answers are the same.
 */

#include <stdbool.h>

#include "daemon/model/model.h"

/* Steps by number of sequences: 1, 2, 3-4, 5-8, 9-16, 17-32, more. */
#define DEPTH_SIZES 7

/* Steps of a phase are measured until there are so many, */
#define DEPTH_SAMPLES 3
/* or for so many steps, where few of them tell what a depth costs. */
#define DEPTH_PHASE_STEPS 12
/* A probe begins after so many steps of the depth in use: soon where a depth
 * was probed only once, else late; at once where one is unknown. */
#define DEPTH_STEADY_SOON 16
#define DEPTH_STEADY_LATE 256
/* So often the yields are compared between probes: prompts change. */
#define DEPTH_LOOK_STEPS 32
/* Another depth must promise so much more before it is taken. */
#define DEPTH_GAIN 1.02
/* Less than this share of the first drafts accepted, over so many of them: the
 * drafter is broken (field report 44: 2.4 %, where 60 to 80 % are healthy). */
#define DEPTH_FLOOR 0.1
#define DEPTH_FLOOR_DRAFTS 256

/* The depth in use, a probe of another one, the depth in use again: what they
 * took side by side is compared. */
enum depth_phase { DEPTH_STEADY, DEPTH_PROBE, DEPTH_AFTER };

struct depth_size {
    double cost[MODEL_MAX_DRAFTS + 1]; /* of a step at depth 0 .., by that of
                                        * the depth in use; 0: unknown */
    int probes[MODEL_MAX_DRAFTS + 1];  /* that told something */
    double last[DEPTH_SAMPLES];        /* ms of the newest steps of the phase */
    int n_last;
    double before, during; /* ms of the depth in use, of the one probed */
    enum depth_phase phase;
    int now;   /* the depth in use */
    int probe; /* the one being probed */
    int left;  /* steps to the end of the phase */
    int turn;  /* whose turn it was last */
};

struct depth {
    int max;
    struct depth_size size[DEPTH_SIZES];
    /* Of position i where i drafts before it were accepted; decayed counts. */
    double tried[MODEL_MAX_DRAFTS], taken[MODEL_MAX_DRAFTS];
    double first_tried, first_taken; /* in the running window of the floor */
    bool judged; /* the window was full once: until then 1 is the least */
    bool off;    /* below the floor: 0 from now on */
};

void depth_init(struct depth *d, int max);
/* One verification. */
void depth_add_drafts(struct depth *d, int n_drafted, int n_accepted);
/* A step of n sequences, each verifying and making `depth` drafts and nothing
 * else, took ms. */
void depth_add_step(struct depth *d, int n_seqs, int depth, double ms);
/* The depth for the next step of n sequences. */
int depth_pick(struct depth *d, int n_seqs);
/* Tokens a step and sequence that depth n promises. */
double depth_tokens(const struct depth *d, int n);

#endif
