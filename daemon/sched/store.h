/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_STORE_H
#define STEPD_DAEMON_SCHED_STORE_H

/*
 * Sessions on disk: the file format, and the thread that reads and writes, so
 * that the engine thread never waits for a disk. Pages go between the two in
 * chunks, a few at a time; only the engine thread touches the model.
 *
 * The file DIR/OWNER/NAME, where OWNER is the uid, or uid@tenant. Numbers are
 * little-endian. A struct store_head, then blocks: token ids, messages, tools,
 * vectors (each may be empty), then the pages of the full and of the sliding
 * group in ascending order. After each block comes a u64, XXH3 of its bytes
 * with the block's number as seed, so that blocks cannot change places either.
 *
 * It is written under another name (.NAME.new), made durable and renamed, so
 * NAME is always a whole file: the old one or the new one.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/mbox.h"
#include "daemon/model/model.h"
#include "daemon/sched/job.h"

#define STORE_VERSION 1
#define STORE_PINNED 1u
#define STORE_CHUNK_BYTES (16u << 20)
#define STORE_CHUNKS 3 /* on their way at once */

struct store_head {
    char magic[8]; /* "stepdKV\n" */
    uint32_t version, head_bytes;
    uint64_t fingerprint; /* of the model */
    uint32_t flags, page_tok;
    uint32_t n_ids; /* tokens known; the sampler goes on at this position */
    uint32_t n_committed; /* of them computed: those of the pages */
    uint32_t messages_bytes, tools_bytes, aux_bytes;
    uint32_t logits_bytes; /* 0: the newest token is never among the computed
                            * ones, so its row yields the logits again */
    uint64_t page_bytes[MODEL_N_GROUPS];
    uint32_t n_pages[MODEL_N_GROUPS], first_page[MODEL_N_GROUPS];
    uint64_t file_bytes; /* the whole */
    uint64_t sum;        /* of the head, with 0 here */
};

/* Pages of one group, in order; n 0: the head and the small blocks are there.
 */
struct store_chunk {
    enum model_group group;
    int first, n;
    char data[];
};

struct store_transfer {
    bool load;
    char owner[JOB_MAX_TENANT + 16], name[JOB_MAX_SESSION + 1];
    struct store_head head;
    void *ids, *messages, *tools, *aux;
    struct mbox *chunk; /* save: to the thread; load: from it */
    _Atomic int state;  /* 0 running, 1 done, -errno */
    char why[256];      /* then */
};

struct store;

struct store_conf {
    const char *dir; /* copied; made where it is not there */
    uint64_t floor;  /* bytes that must stay free on the disk */
    uint64_t fingerprint;
    uint64_t page_bytes[MODEL_N_GROUPS];
    size_t aux_bytes;
    void (*wake)(void *ctx); /* from the thread: something has moved */
    void *ctx;
};

/* -errno: the folder cannot be made. */
int store_create(struct store **ret, const struct store_conf *c);
void store_destroy(struct store *s); /* joins; NULL is fine */

int store_transfer_create(struct store_transfer **ret);
void store_transfer_destroy(struct store_transfer *t); /* not while it runs */
/* Hands it to the thread until state is not 0. One at a time. */
void store_start(struct store *s, struct store_transfer *t);
/* The engine thread waits until something has moved. */
void store_wait(struct store *s);
/* Fills in what the shape and the blocks' sizes say. */
void store_head_finish(struct store_head *h);

int store_unlink(struct store *s, const char *owner, const char *name);
void store_owner(uint32_t uid, const char *tenant, char *buf, size_t n);

/* Each file in the folder. head: NULL where it cannot be read. */
typedef void (*store_found)(void *ctx, uint32_t uid, const char *tenant,
                            const char *name, uint64_t bytes,
                            const struct store_head *head);
void store_scan(struct store *s, store_found fn, void *ctx);

#endif
