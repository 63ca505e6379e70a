/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_GRAM_H
#define STEPD_DAEMON_TEXT_GRAM_H

/*
 * A grammar over bytes: rules, each a small automaton, whose edges take a byte
 * of a range, nothing, a whole other rule, or a rule so many times. What a
 * JSON Schema, a regex, a choice list and a tool call are compiled to;
 * machine.h runs it.
 *
 * Built once, then immutable: any number of threads may read it. While it is
 * built errors stick to `err`, so that a builder is a run of calls.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one grammar may cost: about 6 MiB at the most. */
#define GRAM_MAX_NODES 100000u
#define GRAM_MAX_EDGES 200000u
#define GRAM_MAX_RULES 50000u
/* Frames on the stack of a running grammar: a JSON container takes two or
 * three. What is nested deeper is never begun, so it can always be ended. */
#define GRAM_MAX_DEPTH 96
#define GRAM_NO_MAX UINT32_MAX

enum gram_kind { GRAM_BYTES, GRAM_EPS, GRAM_CALL, GRAM_REPEAT };

struct gram_edge {
    uint32_t to;
    uint32_t rule;     /* CALL, REPEAT */
    uint32_t min, max; /* REPEAT; max GRAM_NO_MAX: no end */
    uint32_t next;     /* while building: the node's next edge */
    uint8_t kind, lo, hi;
};

struct gram_node {
    uint32_t first, n; /* edges; the bytes' ones come first */
    uint32_t n_bytes;
    uint16_t height; /* frames that the cheapest way to the rule's end takes */
    bool final;      /* the rule may end here */
};

struct gram_rule {
    uint32_t start;
    /* A rule that is one character of a large set: a slice of the vocabulary
     * answers for its repetitions (slice.h). json: of a JSON string's body. */
    bool is_chars, is_json_body;
};

struct gram {
    int err; /* 0, -ENOMEM, -E2BIG: a limit above */
    struct gram_node *node;
    struct gram_edge *edge;
    struct gram_rule *rule;
    uint32_t n_nodes, n_edges, n_rules;
    uint32_t cap_nodes, cap_edges, cap_rules;
    uint32_t root; /* rule */
};

struct gram *gram_create(void); /* NULL: no memory */
void gram_destroy(struct gram *g);

uint32_t gram_node(struct gram *g);
/* A rule that begins at a new node. */
uint32_t gram_rule(struct gram *g);
void gram_final(struct gram *g, uint32_t node);
void gram_bytes(struct gram *g, uint32_t from, uint8_t lo, uint8_t hi,
                uint32_t to);
void gram_eps(struct gram *g, uint32_t from, uint32_t to);
void gram_call(struct gram *g, uint32_t from, uint32_t rule, uint32_t to);
/* The rule must take at least one byte. */
void gram_repeat(struct gram *g, uint32_t from, uint32_t rule, uint32_t min,
                 uint32_t max, uint32_t to);
/* The bytes of a text one after another; returns the node behind them. */
uint32_t gram_text(struct gram *g, uint32_t from, const char *text, size_t n);
uint32_t gram_puts(struct gram *g, uint32_t from, const char *text);

/* Makes it ready to run. -ENOENT: nothing fits it; -ELOOP: a rule begins with
 * itself; or err. */
int gram_finish(struct gram *g, uint32_t root);

#endif
