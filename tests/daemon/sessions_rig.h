/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_DAEMON_SESSIONS_RIG_H
#define TESTS_DAEMON_SESSIONS_RIG_H

/*
 * Named sessions over the rig of core_rig.h, saved below a folder that each
 * test finds empty (fresh) and that is gone after the last.
 */

#include "tests/test.h"

#include <semaphore.h>
#include <stdlib.h>

#include "tests/daemon/core_rig.h"

static char top_dir[] = "/tmp/stepd-sessions.XXXXXX";
static char state_dir[64];

struct queue {
    struct rig *r;
    struct job *job[16];
    int n;
};

static struct queue granted;

static inline void on_prepare(void *ctx, struct job *j)
{
    (void)ctx;
    assert_true(granted.n < 16);
    granted.job[granted.n++] = j;
}

static sem_t moved;

static inline void post_wake(void *ctx)
{
    (void)ctx;
    (void)sem_post(&moved);
}

static inline void no_wake(void *ctx)
{
    (void)ctx;
}

static inline void configure(struct rig *r)
{
    r->conf.named = (struct named_limits){16, 16, 1u << 30};
    r->conf.session_dir = state_dir;
    r->conf.session_disk = r->conf.session_disk_per_owner = 1u << 30;
    r->conf.prepare = on_prepare;
    r->conf.wake = no_wake;
    granted = (struct queue){.r = r};
}

static inline void open_rig(struct rig *r)
{
    rig_init(r);
    configure(r);
    rig_start(r);
}

/* What the engine's loop does, once. */
static inline int turn_once(struct rig *r)
{
    for (int i = 0; i < granted.n; i++) {
        core_add(r->core, granted.job[i]);
    }
    granted.n = 0;
    (void)core_tend(r->core);
    return core_step(r->core);
}

static inline struct answer *wait_for(struct rig *r, uint64_t id)
{
    struct answer *a = answer_of(r, id);

    while (!a->done && !a->failed) {
        (void)turn_once(r);
    }
    return a;
}

/* The whole prompt, into a session. n_open: where the next turn will differ. */
static inline struct job *turn(uint64_t id, const char *name, int n, int n_open,
                               int max_tokens)
{
    struct job *j = new_job(1, n);

    j->id = id;
    j->n_open = n_open;
    j->max_tokens = max_tokens;
    j->drafts = 3;
    strcpy(j->session, name);
    return j;
}

/* Has no token but BOS in common with the others. */
static inline struct job *other_turn(uint64_t id, const char *name, int n,
                                     int max_tokens)
{
    struct job *j = turn(id, name, n, 0, max_tokens);

    for (int i = 1; i < n; i++) {
        j->ids[i] = 100 + (j->ids[i] + 401) % 800;
    }
    return j;
}

static inline struct answer *op(struct rig *r, uint64_t id, enum session_op op,
                                const char *name, uint32_t uid)
{
    struct job *j = job_create(JOB_SESSION);

    j->id = id;
    j->op = op;
    j->uid = uid;
    strcpy(j->session, name);
    rig_add(r, j);
    return answer_of(r, id);
}

static inline struct answer *op_end(struct rig *r, uint64_t id,
                                    enum session_op o, const char *name)
{
    (void)op(r, id, o, name, 0);
    return wait_for(r, id);
}

static inline void path_of(char *buf, size_t n, const char *name)
{
    (void)snprintf(buf, n, "%s/0/%s", state_dir, name);
}

static inline void make(struct rig *r, uint64_t id, const char *name, int n,
                        int n_open, int max_tokens)
{
    rig_add(r, turn(id, name, n, n_open, max_tokens));
    assert_true(wait_for(r, id)->done);
}

/* The next turn's prompt: as the last one up to n_open, then other tokens. */
static inline struct answer *go_on(struct rig *r, uint64_t id, const char *name,
                                   int n, int n_open)
{
    struct job *j = turn(id, name, n, 0, 30);
    int32_t want[30];

    for (int i = n_open; i < n; i++) {
        j->ids[i] = 100 + (j->ids[i] + 7) % 800;
    }
    continuation(j, 30, want);
    rig_add(r, j);
    assert_true(wait_for(r, id)->done);
    assert_memory_equal(answer_of(r, id)->ids, want,
                        (size_t)answer_of(r, id)->n_ids * sizeof(*want));
    return answer_of(r, id);
}

static inline int fresh(void **state)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf %s", state_dir);
    return system(command) != 0 || setup(state) != 0 ? -1 : 0;
}

static inline int sessions_setup(void **state)
{
    (void)state;
    if (mkdtemp(top_dir) == NULL) {
        return -1;
    }
    (void)snprintf(state_dir, sizeof(state_dir), "%s/sessions", top_dir);
    return 0;
}

static inline int sessions_teardown(void **state)
{
    char command[64];

    (void)snprintf(command, sizeof(command), "rm -rf %s", top_dir);
    return system(command) != 0 ? -1 : teardown_group(state);
}

#endif
