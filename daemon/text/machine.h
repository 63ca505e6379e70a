/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_MACHINE_H
#define STEPD_DAEMON_TEXT_MACHINE_H

/*
 * A grammar that runs. A configuration is a node and the stack of rules that
 * wait; a state is a set of them, numbered when it is first met: the automaton
 * is made deterministic as far as it is walked. State 0 is dead.
 *
 * One owner at a time. Memory is bounded: machine_trim forgets all states but
 * those that are held, and a walk that needs more than the hard limit fails.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/gram.h"

#define MACHINE_DEAD 0u
/* Configurations in one state. */
#define MACHINE_MAX_CONFIGS 2000u
/* Bytes that are kept between walks, and that one walk may reach. */
#define MACHINE_SOFT_BYTES (8u << 20)
#define MACHINE_HARD_BYTES (64u << 20)
#define MACHINE_MAX_HELD 8

struct machine_config {
    uint32_t node, stack;
};

struct machine_frame {
    uint32_t parent, edge; /* of the grammar; the CALL or REPEAT that waits */
    uint32_t count;        /* REPEAT: the round that runs, from 1 */
    uint32_t depth;        /* frames down to here, this one included */
    uint32_t next;         /* in the hash chain */
};

/* A state's bytes: seg[b] is 0 where b is dead, else an index into `to`, whose
 * entries are worked out when they are first taken. */
struct machine_state {
    uint32_t config, n; /* into machine.config */
    uint32_t seg, to;   /* into machine.seg and machine.to; seg NONE: not yet */
    uint32_t next;      /* in the hash chain */
    uint16_t n_seg;
    bool accepts;
    int16_t mask; /* mask.c's */
};

struct machine {
    const struct gram *g;
    int err; /* 0, -ENOMEM, -E2BIG: MACHINE_MAX_CONFIGS or _HARD_BYTES */
    struct machine_state *state;
    struct machine_frame *frame; /* 0 is the empty stack */
    struct machine_config *config;
    uint32_t *to;
    uint8_t *seg;
    uint32_t n_state, n_frame, n_config, n_to, n_seg;
    uint32_t cap_state, cap_frame, cap_config, cap_to, cap_seg;
    uint32_t *state_slot, *frame_slot; /* hash heads */
    uint32_t mask_state, mask_frame;
    size_t bytes;
    uint64_t generation; /* goes up with each trim: state numbers changed */
    /* Scratch of one closure. */
    struct machine_config *todo, *leaf;
    uint32_t n_todo, n_leaf, stamp;
    uint64_t *seen; /* stamp and configuration's hash */
    bool accepts;
};

/* g must outlive it. -ENOMEM. */
int machine_init(struct machine *m, const struct gram *g);
void machine_finish(struct machine *m); /* zeroed or initialised */

uint32_t machine_start(struct machine *m);
/* MACHINE_DEAD: the byte does not fit (or err). */
uint32_t machine_step(struct machine *m, uint32_t state, uint8_t byte);
uint32_t machine_bytes(struct machine *m, uint32_t state, const void *p,
                       size_t n);
/* The text may end here. */
static inline bool machine_accepts(const struct machine *m, uint32_t s)
{
    return m->state[s].accepts;
}
/* Nothing can follow. */
bool machine_is_over(struct machine *m, uint32_t state);
/* The state of a subset of another one's configurations. */
uint32_t machine_subset(struct machine *m, const struct machine_config *c,
                        uint32_t n, bool accepts);
/* Fills seg of a state: 0 or err. */
int machine_expand(struct machine *m, uint32_t state);
uint32_t machine_take(struct machine *m, uint32_t state, uint8_t byte);

/* Between walks: forgets, where it has grown past the soft limit, every state
 * but the n <= MACHINE_MAX_HELD given, whose numbers are rewritten. */
int machine_trim(struct machine *m, uint32_t *held, int n, bool force);

#endif
