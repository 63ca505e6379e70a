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
 * the vectors of both checkpoints (each may be empty), then the pages, run by
 * run (enum store_run), each run in ascending order. After each block comes a
 * u64, XXH3 of its bytes with the block's number as seed, so that blocks cannot
 * change places either.
 *
 * Two checkpoints: after the last token that was computed, and right after the
 * last turn's `assistant\n`, where the next turn begins to differ once the
 * reasoning has left the prompt.
 *
 * There are no logits in it, and nothing of them is lost. The newest token is
 * never among the computed ones (model.h), so what follows a restore computes
 * one row at least: that one's logits are those of the token to be drawn, from
 * the same KV by the same kernels (the fingerprint sees to it), hence the same
 * bits as if they had been kept. Of the sampler there is the position, which is
 * n_ids: its noise is a function of seed, position and token (design.md 4.1).
 *
 * It is written under another name (.NAME.new), made durable and renamed, so
 * NAME is always a whole file: the old one or the new one.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/mbox.h"
#include "daemon/model/model.h"
#include "daemon/sched/job.h"

/* Raised with the format, and with any change of the kernels after which the
 * same rows may give other bits. */
#define STORE_VERSION 2
#define STORE_PINNED 1u
/* A chunk has so many bytes, or one page: small enough to be in a cache when it
 * is used. */
#define STORE_CHUNK_BYTES (4u << 20)
#define STORE_CHUNKS 5 /* on their way at once */

/* Pages in a file. The last: of the window before the open turn, those that the
 * window before the end has not. */
enum store_run { STORE_FULL, STORE_SLIDING, STORE_OPEN, STORE_N_RUNS };

struct store_head {
    char magic[8]; /* "stepdKV\n" */
    uint32_t version, head_bytes;
    uint64_t fingerprint; /* of the model */
    char kernels[48];     /* who computed the pages: backend, instruction set */
    uint32_t flags, page_tok;
    uint32_t n_ids; /* tokens known; the sampler goes on at this position */
    uint32_t n_committed; /* of them computed: those of the pages */
    uint32_t n_open; /* of them up to the open turn's checkpoint; 0: none */
    uint32_t messages_bytes, tools_bytes;
    uint32_t aux_bytes, open_aux_bytes; /* of the checkpoints' vectors, or 0 */
    uint32_t logits_bytes;              /* 0 */
    uint64_t page_bytes[MODEL_N_GROUPS];
    uint32_t n_pages[STORE_N_RUNS], first_page[STORE_N_RUNS];
    uint64_t file_bytes; /* the whole */
    uint64_t sum;        /* of the head, with 0 here */
};

/* Pages of one run, in order; n 0: the head and the small blocks are there. */
struct store_chunk {
    enum store_run run;
    int first, n;
    char data[];
};

struct store_transfer {
    bool load;
    char owner[JOB_MAX_TENANT + 16], name[JOB_MAX_SESSION + 1];
    struct store_head head;
    void *ids, *messages, *tools, *aux, *open_aux;
    struct mbox *chunk;    /* save: to the thread; load: from it */
    _Atomic bool unwanted; /* save: nothing is renamed any more, -ESTALE */
    _Atomic int state;     /* 0 running, 1 done, -errno */
    char why[256];         /* then */
};

struct store;

struct store_conf {
    const char *dir; /* copied; made where it is not there */
    uint64_t floor;  /* bytes that must stay free on the disk */
    uint64_t fingerprint;
    char kernels[48];
    uint64_t page_bytes[MODEL_N_GROUPS];
    size_t aux_bytes;
    size_t chunk_bytes;
    void (*wake)(void *ctx); /* from the thread: something has moved */
    void *ctx;
};

/* -EBUSY: another daemon has the folder; -errno: it cannot be made, opened. */
int store_create(struct store **ret, const struct store_conf *c);
void store_destroy(struct store *s); /* joins; NULL is fine */

int store_transfer_create(struct store_transfer **ret);
void store_transfer_destroy(struct store_transfer *t); /* not while it runs */
/* Hands it to the thread until state is not 0. One at a time. */
void store_start(struct store *s, struct store_transfer *t);
/* The engine thread waits until something has moved. */
void store_wait(struct store *s);
static inline enum model_group store_group(enum store_run run)
{
    return run == STORE_FULL ? MODEL_FULL : MODEL_SLIDING;
}

/* Fills in what the shape and the blocks' sizes say. */
void store_head_finish(struct store_head *h);

int store_unlink(struct store *s, const char *owner, const char *name);
void store_owner(uint32_t uid, const char *tenant, char *buf, size_t n);

/* Each session in the folder; head: NULL where it cannot be read. A file whose
 * name no client may send (wire.h 3) is none: it is left as it is, counts for
 * nothing, and nobody is told. */
typedef void (*store_found)(void *ctx, uint32_t uid, const char *tenant,
                            const char *name, uint64_t bytes,
                            const struct store_head *head);
void store_scan(struct store *s, store_found fn, void *ctx);

#endif
