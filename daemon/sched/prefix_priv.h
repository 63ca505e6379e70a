/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_SCHED_PREFIX_PRIV_H
#define STEPD_DAEMON_SCHED_PREFIX_PRIV_H

/* What prefix.c (the tree: finding and putting) and prefix_evict.c (going away,
 * pins) share; nobody else's. */

#include "daemon/sched/prefix.h"

#define PAGE MODEL_PAGE_TOK
/* Pages of which it is remembered that they were evicted. */
#define GHOSTS 4096

struct link {
    struct link *prev, *next;
};

struct mark {
    struct link use;
    struct node *node;
    struct mark *next; /* of the same node */
    int n_tok;         /* into the node's page, 1..64 */
    int pins;
    void *aux;
};

struct node {
    struct link use;
    struct node *parent;
    struct node **child; /* [n_child], sorted by tokens */
    int n_child, cap_child;
    int depth; /* which absolute page; -1 the root */
    int n_tok;
    int32_t tok[PAGE];
    int32_t page[MODEL_N_GROUPS]; /* -1 none (sliding only) */
    int n_slide;                  /* slots of the sliding page that are valid */
    bool mtp; /* its MTP half is that of a run from token 0 on */
    int need; /* checkpoints that need the sliding page */
    int pins, slide_pins;
    uint64_t salt; /* of its domain */
    uint64_t hash; /* of the tokens up to here: for ghosts only */
    struct mark *marks;
};

struct domain {
    uint64_t salt;
    struct node *root;
};

struct prefix {
    struct prefix_conf conf;
    struct domain *domain;
    int n_domains, cap_domains;
    struct node **of[MODEL_N_GROUPS]; /* [pages] the node that has it */
    struct link nodes, marks;         /* heads; the first was used last */
    struct prefix_counts counts;
    uint64_t ghost[GHOSTS];
    bool regret; /* evict what was used last */
};

struct prefix_pin {
    struct node *node;
    struct mark *mark;
    int pages[MODEL_N_GROUPS];
};

#define NODE_OF(l) ((struct node *)((char *)(l)-offsetof(struct node, use)))
#define MARK_OF(l) ((struct mark *)((char *)(l)-offsetof(struct mark, use)))

static inline void link_out(struct link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
}

static inline void link_first(struct link *head, struct link *l)
{
    l->next = head->next;
    l->prev = head;
    head->next->prev = l;
    head->next = l;
}

static inline bool prefix_slides(const struct prefix *p)
{
    return p->conf.geo.window > 0;
}

/* The first page of the window before n tokens. */
static inline int prefix_window_page(const struct prefix *p, int n)
{
    int first, end;

    session_span(&p->conf.geo, MODEL_SLIDING, n, n, &first, &end);
    return first;
}

/* ---- prefix.c ---- */

void prefix_remove_child(struct node *at, const struct node *c);

/* -1: gives the page up. */
void prefix_set_page(struct prefix *p, struct node *n, enum model_group g,
                     int32_t page);
struct mark *prefix_find_mark(const struct prefix *p, uint64_t salt,
                              const int32_t *ids, int n);
int prefix_mark_tokens(const struct mark *m);

/* ---- prefix_evict.c ---- */

/* `by` is added to the need for, pins to the pins of the sliding pages of m's
 * window. */
void prefix_add_need(const struct prefix *p, struct mark *m, int by, int pins);
void prefix_drop_mark(struct prefix *p, struct mark *m);
/* With all below it. */
void prefix_drop_node(struct prefix *p, struct node *n);
void prefix_drop_root(struct prefix *p, struct node *root);

#endif
