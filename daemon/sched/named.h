/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_NAMED_H
#define STEPD_DAEMON_SCHED_NAMED_H

/*
 * Named sessions: conversations that requests go on with. A session is its
 * messages and token ids; its KV is in the prefix index like everybody's, so a
 * session whose pages were needed elsewhere is computed again, never lost.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sched/job.h"
#include "daemon/sched/prefix.h"
#include "daemon/text/str.h"

struct named {
    struct named *next;
    uint32_t uid;
    char tenant[JOB_MAX_TENANT + 1];
    char name[JOB_MAX_SESSION + 1];
    uint64_t salt;
    /* What it is now; messages empty: it holds a raw prompt. */
    struct job_text messages, tools;
    int32_t *ids; /* prompt and answer of the last turn */
    int n_ids;
    int n_committed; /* of them computed; the index may have their pages */
    int n_open;      /* of them up to the last turn's `assistant\n`; 0: none */
    bool pinned;
    struct prefix_pin *pin;       /* at n_committed; NULL: not now */
    struct prefix_pin *open_pin;  /* at n_open, or NULL */
    uint64_t writer;              /* the job that goes on with it; 0: none */
    struct job *wait, **wait_end; /* jobs that want to, in order */
    uint64_t used_us;
    /* The file. */
    bool loaded;         /* messages and ids are here; else in the file only */
    bool moving;         /* it is being read */
    bool changed;        /* since it was saved last */
    uint64_t file_bytes; /* 0: none */
    bool file_pinned;    /* what the file says of pinned */
    int n_saving;        /* saves that have not ended */
    uint64_t saving_bytes; /* of the largest of them */
};

struct named_limits {
    int max, max_per_owner;
    uint64_t text_per_owner; /* bytes of messages and tools */
};

struct named_table {
    struct named *first;
    int n;
    struct named_limits limits;
};

struct named *named_find(const struct named_table *t, uint32_t uid,
                         const char *tenant, const char *name);
struct named *named_by_writer(const struct named_table *t, uint64_t job);
int named_count(const struct named_table *t, uint32_t uid, const char *tenant);
/* NULL: a limit is reached. */
struct named *named_make(struct named_table *t, uint32_t uid,
                         const char *tenant, const char *name);
/* One that is there already, as a file: limits or not, so that it can be seen,
 * dropped, and is not written over. */
struct named *named_found(struct named_table *t, uint32_t uid,
                          const char *tenant, const char *name);
/* Whether the owner's sessions may have texts of so many bytes with this one
 * (NULL: a new one). *ret_others: what the others have. */
bool named_has_room(const struct named_table *t, uint32_t uid,
                    const char *tenant, const struct named *but, uint64_t bytes,
                    uint64_t *ret_others);
/* Nobody writes it, waits for it or pins it. */
void named_destroy(struct named_table *t, struct named *n);
/* The state of one into another, which has none. -ENOMEM. */
int named_copy(struct named *to, const struct named *from);
void named_wait(struct named *n, struct job *j);
struct job *named_next(struct named *n); /* out of the queue, or NULL */
/* That job out of whichever queue it waits in, or NULL. */
struct job *named_take(struct named_table *t, uint64_t job);

/* What an answer has said so far, for the session's messages. */
struct said {
    struct str reasoning, content, calls;
};
void said_take(struct said *s, const struct event *e);
void said_finish(struct said *s);

/* A turn that has ended: the conversation with its answer (none: a raw prompt)
 * and its ids. */
struct turn {
    struct job_text messages;
    int32_t *ids; /* NULL: not made */
    int n_ids;
};
int turn_make(struct turn *t, const struct job *j, const struct said *said,
              const int32_t *ids, int n_ids); /* -ENOMEM */
void turn_finish(struct turn *t);
/* It becomes the session's state; it and the job's tools are taken. */
void named_turn(struct named *n, struct job *j, struct turn *t,
                int n_committed);
/* The job's messages follow the session's; tools that it does not name are the
 * session's. -ENOMEM. */
int named_append(const struct named *n, struct job *j);

#endif
