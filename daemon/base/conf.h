/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_BASE_CONF_H
#define STEPD_DAEMON_BASE_CONF_H

/*
 * stepd.conf: files and --set options into one struct, by one table.
 *
 * To add a key: a field here, a row in conf.c, a block in etc/stepd.conf
 * (test_conf.c compares the two) and stepd.conf(5).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of keys with a choice, in the order of the table's words. */
enum conf_weights {
    CONF_WEIGHTS_AUTO,
    CONF_WEIGHTS_MAP,
    CONF_WEIGHTS_LOCK,
    CONF_WEIGHTS_COPY,
    CONF_WEIGHTS_COMPACT
};
enum conf_drafts { CONF_DRAFTS_REQUIRE = -2, CONF_DRAFTS_AUTO = -1 };

/* Users or groups, resolved to numbers when the configuration is read. */
struct conf_ids {
    uint32_t *id;
    int n;
};

/* Field names are the keys. Sizes in bytes, times in milliseconds. */
struct conf {
    /* the model */
    char *model;                /* folder; "" = not given */
    char *served_model_name;    /* "" = the folder's name */
    const char *backend;        /* auto, cpu, cuda */
    const char *isa;            /* auto, or a name of kernels/cpu/isa.c */
    int threads;                /* 0 = all that we may use */
    int weights;                /* enum conf_weights */
    const char *state_dir;      /* "": $STATE_DIRECTORY, else none */
    int max_model_len;          /* tokens; 0 = as the checkpoint says */
    uint64_t kv_memory;         /* 0 = planned from what is free */
    uint64_t checkpoint_memory; /* 0 = what the plan leaves */
    bool prefix_cache, share_prefix_cache;
    int kv_ready;              /* tokens; 0 = none */
    double kv_share_per_owner; /* of the pages; 1 = all */
    double memory_utilization;
    bool cuda_graphs;
    bool exact;
    int drafts; /* 0..3 or enum conf_drafts */
    /* steps */
    int max_seqs;
    int max_batched_tokens;
    int step_target_ms;
    int prefill_chunk; /* 0 = by the time budget */
    /* the socket, and who may do what */
    char *socket;
    char *socket_group; /* "" = unchanged */
    int socket_mode;
    struct conf_ids allow_users, allow_groups;
    struct conf_ids observe_users, observe_groups;
    struct conf_ids admin_users, admin_groups;
    struct conf_ids delegate_users;
    /* limits on clients */
    int max_connections, max_connections_per_uid;
    int max_connections_per_tenant; /* with requests in flight */
    int max_in_flight;              /* requests of one connection */
    int max_in_flight_per_uid;
    uint64_t max_request_bytes_per_uid; /* in flight */
    int max_queued_tokens_per_uid;
    int max_queue;         /* jobs that wait, of all clients */
    int max_prompt_tokens; /* 0 = max_model_len - 1 */
    int max_priority;      /* of those who are not admins */
    uint64_t max_unfinished_per_uid;
    uint64_t max_output_soft, max_output_hard;
    uint64_t frame_timeout, slow_client_timeout;
    /* the process */
    int max_sessions, max_sessions_per_owner;
    uint64_t max_session_text_per_owner;
    uint64_t session_disk, session_disk_per_owner, session_disk_floor;
    uint64_t drain_timeout, idle_exit;
    int log_level; /* enum log_level */
    bool log_text;
    int oom_score_adj;
    bool test_hold_load, test_hold_steps;
};

enum conf_type {
    CONF_TEXT,   /* char *                                     */
    CONF_WORD,   /* const char *, one of choices               */
    CONF_CHOICE, /* int, index into choices + first            */
    CONF_INT,    /* int                                        */
    CONF_OCTAL,  /* int                                        */
    CONF_REAL,   /* double                                     */
    CONF_BYTES,  /* uint64_t; suffixes K M G T, powers of 1024 */
    CONF_TIME,   /* uint64_t ms; suffixes ms s min h           */
    CONF_BOOL,   /* bool: yes or no                            */
    CONF_USERS,  /* struct conf_ids                            */
    CONF_GROUPS
};

/* One row of the table. */
struct conf_key {
    const char *name;
    enum conf_type type;
    const char *def; /* as it would stand in the file */
    size_t offset;   /* in struct conf */
    double min, max; /* of numbers; CONF_TIME: ms */
    const char *const *choices;
    int first;        /* value of choices[0] */
    const char *unit; /* "" = none */
    const char *doc;  /* what it is; the first words in etc/stepd.conf */
    bool live;        /* may change without a restart */
};

const struct conf_key *conf_keys(int *ret_n);
/* "a whole number, 1 to 64", "one of auto, cpu, cuda" ... */
void conf_allowed(const struct conf_key *key, char *buf, size_t n);

/* Where values come from, the later over the earlier: the table's defaults,
 * the file, FILE.d (stepd.conf.d/ *.conf by name), then the KEY=VALUE texts. */
struct conf_source {
    const char *file; /* NULL: STEPD_CONFDIR/stepd.conf, which may be absent */
    const char *const *set;
    int n_set;
};

/* Everything that is wrong, one line each: "FILE:LINE: KEY ..." */
struct conf_report {
    char **line;
    int n;
};
void conf_report_finish(struct conf_report *r);

/* 0, or -EINVAL with all problems in the report; ret is then untouched. */
int conf_load(const struct conf_source *src, struct conf_report *rep,
              struct conf *ret);
void conf_finish(struct conf *c);

#define CONF_MAX_KEYS 128

/* Reads the sources again into a running daemon's c: all of it or nothing. 0:
 * what may change live was taken over; changed has the names of the keys that
 * differ, n_changed of them. -EINVAL: the report says what is wrong in the
 * files. -EPERM: it names each key that only a restart can change, with file
 * and line. c is untouched then. */
struct conf_changes {
    const char *key[CONF_MAX_KEYS];
    int n;
};
int conf_reload(const struct conf_source *src, struct conf_report *rep,
                struct conf *c, struct conf_changes *ret);

#endif
