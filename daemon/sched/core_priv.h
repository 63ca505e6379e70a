/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_CORE_PRIV_H
#define STEPD_DAEMON_SCHED_CORE_PRIV_H

/* What core.c (tasks), core_step.c (the step), core_cache.c (the prefix index)
 * and their like share; nobody else's. */

#include "daemon/sched/admit.h"
#include "daemon/sched/batch.h"
#include "daemon/sched/core.h"
#include "daemon/sched/kvpool.h"
#include "daemon/sched/masks.h"
#include "daemon/sched/prefix.h"
#include "daemon/sched/session.h"
#include "daemon/sched/share.h"
#include "daemon/sched/store.h"

/* Of the pages that may be pinned, one (uid, tenant) gets this part at most: a
 * half. */
#define CORE_PINS_PER_OWNER 2

/* Stop ids of config.json and of the tokenizer's files together. */
#define CORE_MAX_STOP_IDS 16

struct core {
    struct core_conf conf;
    const struct model_info *info;
    struct session_geometry geo;
    struct kvpool *pool;
    struct prefix *prefix;
    struct named_table named;
    struct store *store;   /* NULL: sessions are not saved */
    struct saving *saving; /* the transfers, the first of them runs */
    uint64_t salt_seed;    /* drawn at the start: domains cannot be aimed at */
    void *aux;             /* scratch for one checkpoint's vectors */
    int32_t stop_ids[CORE_MAX_STOP_IDS];
    int n_stop_ids;
    int32_t think_end, tool_call; /* -1: the tokenizer has none */

    struct task **task; /* [max_live] in order of arrival */
    int n_tasks;
    uint64_t arrivals;
    uint64_t calls; /* of core_step */
    struct shares *shares;

    /* One step's arrays, [max_live]. */
    struct batch_req *req;
    struct batch_plan *plan;
    struct model_span *span;
    struct model_out *out;
    struct task **stepping; /* whose span[i] is */
    int n_spans;
    bool in_step;
    int room[MODEL_N_GROUPS];    /* pages that are free or can be */
    int touched[MODEL_N_GROUPS]; /* by core_touch: the first so many */
    int pinned[MODEL_N_GROUPS];  /* pages that never are */
    int spare[MODEL_N_GROUPS];   /* room beyond what the plan takes */

    /* core_owner.c: what one owner may hold; own NULL: all. */
    int cap[MODEL_N_GROUPS];
    struct batch_own *own;          /* [owners] */
    uint64_t *seen[MODEL_N_GROUPS]; /* [pages] the count that met it last */
    uint64_t look;                  /* which count this is */
    int32_t *list;                  /* [pages] of a pin */

    struct masks *masks;
    struct masks_item *mask_item; /* [max_live]: of this step */
    int n_mask_items;

    struct batch_rate rate;
    struct core_counts counts;
};

uint64_t core_now_us(const struct core *c);
double core_ms(uint64_t from_us, uint64_t to_us); /* 0 where it went back */
void core_time(struct hist *h, uint64_t from_us, uint64_t to_us);
int core_soft_rows(const struct core *c);   /* of step_target_ms */
void core_send(void *ctx, struct event *e); /* ctx is the core */
void core_tell(void *ctx, struct event *e); /* ctx is a task: deliver_emit */
void core_say(struct core *c, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Ends a task: its final event, once; nothing where it has ended before. */
void core_done(struct core *c, struct task *t, enum event_finish why);
void core_fail(struct core *c, struct task *t, const char *code,
               const char *why);
/* Takes its sequence and pages; the tokens stay. */
void core_unseat(struct core *c, struct task *t);
/* Frees what has ended and is in no step. */
void core_sweep(struct core *c);
int core_draft_depth(const struct core *c, const struct job *j);

/* ---- core_named.c ---- */

/* The job's end, where it never became a task. */
void core_refuse(struct core *c, struct job *j, const char *code,
                 const char *detail, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* A request for a session that has not been granted; an op. */
void core_named_add(struct core *c, struct job *j);
void core_session_op(struct core *c, struct job *j);
void core_session_done(struct core *c, struct job *j, const struct named *n);
/* What the session of the request becomes, so that its end can be told: 0 also
 * where it becomes nothing new, or -ENOMEM. */
int core_make_turn(struct task *t);
/* The request has ended: its session's next state, and the next writer. */
void core_named_end(struct core *c, struct task *t, int committed);
/* Out of a session's queue, answered; false: it waits in none. */
bool core_named_cancel(struct core *c, const struct ticket_call *call);
void core_named_free(struct core *c, uint64_t job);
void core_named_next(struct core *c, struct named *n);
/* Its file cannot be read: who waits for it is told, who drops it does. */
void core_named_unread(struct core *c, struct named *n, const char *code,
                       const char *why);
/* The checkpoint of its open turn is there, before len tokens. */
bool core_has_open(const struct core *c, const struct named *n, int len);
int core_pin(struct core *c, struct named *n, char *why, size_t n_why);
void core_named_finish(struct core *c);

/* ---- core_save.c ---- */

void core_open_store(struct core *c);
void core_close_store(struct core *c);
/* j NULL: nobody asked. */
void core_save(struct core *c, struct named *n, struct job *j);
void core_load(struct core *c, struct named *n);
/* The session goes: none of its saves leaves a file. */
void core_drop_saves(struct core *c, struct named *n);
int core_unlink(struct core *c, const struct named *n, char *why, size_t n_why);
/* The pages of saves and restores that run, as core_see. */
struct core_owner;
void core_see_saves(struct core *c, const struct core_owner *o,
                    int sum[MODEL_N_GROUPS]);

/* ---- core_cache.c ---- */

uint64_t core_salt(const struct core *c, uint32_t uid, const char *tenant);
/* A task that has just got its sequence takes up where it can: the tokens that
 * need not be computed, 0, -ENOMEM. */
int core_take_up(struct core *c, struct task *t);
/* After a step, before session_commit: its new whole pages enter the index. */
void core_keep(struct core *c, struct task *t, int committed);
/* A token was drawn and is not among the session's yet: if it is the first, the
 * prompt is in the index from now on. */
void core_keep_prompt(struct core *c, struct task *t);
/* A sequence is about to be closed: all that it computed. */
void core_keep_all(struct core *c, struct task *t);
/* Pages that the session can go on with, and how many of them somebody else
 * would still have if it gave them up. */
int core_pages_held(const struct core *c, const struct session *s,
                    enum model_group g, int *ret_shared);
void core_count_room(struct core *c);  /* room, pinned */
void core_count_spare(struct core *c); /* of the plan */
/* Pages that a pick's rows take; *ret_copy: and one more, where there is room,
 * for a page that the index has as well. */
int core_pick_takes(const struct core *c, const struct batch_pick *k,
                    enum model_group g, bool *ret_copy);
/* The pages that session_reserve will ask for are free. */
void core_make_room(struct core *c, const struct task *t, int upto);

/* ---- core_owner.c ---- */

struct core_owner {
    uint32_t uid;
    const char *tenant;
};

int core_owner_create(struct core *c, int n_owners); /* -ENOMEM */
void core_owner_destroy(struct core *c);
bool core_is_of(const struct core_owner *o, uint32_t uid, const char *tenant);
/* Adds to sum those that this count has not met. */
void core_see(struct core *c, enum model_group g, const int32_t *page, int n,
              int *sum);
void core_see_pin(struct core *c, const struct prefix_pin *pin,
                  int sum[MODEL_N_GROUPS]);
/* Pages that are his and cannot be evicted; fixed: whatever becomes of his
 * requests. */
void core_owner_holds(struct core *c, const struct core_owner *o,
                      int ret_fixed[MODEL_N_GROUPS], int ret[MODEL_N_GROUPS]);
void core_count_owners(struct core *c); /* for the planner */
/* Cached pages give way to the plan's. After core_count_owners. */
void core_trim_owners(struct core *c);
/* A page that the index has too may be copied; counted then. */
bool core_owner_may_copy(struct core *c, const struct task *t,
                         enum model_group g);
/* Tokens that a sequence of his may have, prompt and answer. */
int core_owner_longest(struct core *c, const struct job *j);
/* The prompt alone has as many. */
struct event *core_owner_refusal(struct core *c, const struct job *j);
/* Whether his requests still fit beside what is pinned now. -ENOSPC: why. */
int core_owner_pin(struct core *c, const struct named *n, char *why,
                   size_t n_why);
/* Whether he may have so many pages more now, his cached ones evicted for them;
 * else why, and *ret_never: pins are in the way. */
bool core_owner_room(struct core *c, const struct core_owner *o,
                     const uint32_t want[MODEL_N_GROUPS], bool *ret_never,
                     char *why, size_t n_why);

#endif
