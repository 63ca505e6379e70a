/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_REPORT_H
#define STEPD_DAEMON_MODEL_REPORT_H

/*
 * Collects everything that is wrong with a checkpoint, so that one look at the
 * log is enough to mend it: "file: tensor: what, expected, found", worst first,
 * the first MODEL_MAX_PROBLEMS of them and the number of the rest. Names come
 * from files that anybody may have written: what a terminal or a reader's eye
 * would take for something else than text is shown as \u202e, a byte that is
 * no UTF-8 as \xff.
 */

#include <stdbool.h>

#include "daemon/model/model.h"

/* Worst first: a cause stands before what follows from it. */
enum report_rank {
    REPORT_FOLDER,   /* the folder, or what kind of checkpoint this is */
    REPORT_CONFIG,   /* a field of config.json */
    REPORT_FILE,     /* a shard as a whole: absent, empty, cut, no header */
    REPORT_RANGE,    /* where tensors lie in a shard */
    REPORT_INDEX,    /* the index against the headers */
    REPORT_MISSING,  /* a tensor that the model needs */
    REPORT_MISMATCH, /* a tensor of the wrong shape or dtype */
    REPORT_TWICE,    /* a tensor given twice */
    REPORT_UNKNOWN,  /* a tensor that the model has no place for */
    REPORT_VALUE,    /* bytes that cannot be computed exactly */
    REPORT_MEMORY,   /* it does not fit */
    REPORT_DEVICE,   /* what was asked to compute is not there */
    REPORT_N_RANKS
};

#define REPORT_MAX_NOTES 50

struct report {
    int n_problems; /* all of them; the kept ones are the worst */
    int n_kept;
    bool no_memory; /* what is said of a file may be for want of memory */
    struct {
        enum report_rank rank;
        char *text;
    } kept[MODEL_MAX_PROBLEMS];
    int n_notes;
    char *note[REPORT_MAX_NOTES];
};

void report_init(struct report *r);
void report_problem(struct report *r, enum report_rank rank, const char *fmt,
                    ...) __attribute__((format(printf, 3, 4)));
/* A problem that is not the file's: the whole ends with -ENOMEM. */
void report_no_memory(struct report *r, const char *file);
/* The same text twice is one note. */
void report_note(struct report *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* What a step that reports comes to: -ENOMEM, -EBADMSG where r holds a problem,
 * else 0. */
int report_status(const struct report *r);
/* Appends all to to (frees nothing there) and empties r; to may be NULL.
 * Returns report_status. */
int report_finish(struct report *r, struct model_report *to);

#endif
