/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The prefix index, what leaves it: eviction, checkpoints that go, pins. Engine
 * thread only; the tree itself is prefix.c's.
 *
 * Nodes and checkpoints stand in lists by last use. A use of a node is a use of
 * all nodes above it, which then stand before it; so the last of the list is a
 * leaf and eviction takes tails before heads. That loses against a cycle of
 * prefixes larger than the pool: each would be evicted just before it is asked
 * for. Who asks for pages that were evicted lately shows such a cycle, and
 * pages for him are then taken from the prefix used last instead (the best
 * there is for cycles), so that the others are still there when their turn
 * comes.
 *
 * The invariant: what prefix_counts calls evictable prefix_evict can free.
 */

#include <errno.h>
#include <stdlib.h>

#include "daemon/base/die.h"
#include "daemon/sched/prefix_priv.h"

/* ---- checkpoints --------------------------------------------------------- */

/* by: what the sliding pages of m's window are needed more. */
void prefix_add_need(const struct prefix *p, struct mark *m, int by, int pins)
{
    int first = prefix_slides(p) ? prefix_window_page(p, prefix_mark_tokens(m))
                                 : m->node->depth + 1;

    for (struct node *n = m->node; n->depth >= first; n = n->parent) {
        n->need += by;
        n->slide_pins += pins;
        if (n->parent == NULL) {
            break;
        }
    }
}

void prefix_drop_mark(struct prefix *p, struct mark *m)
{
    struct mark **at = &m->node->marks;

    prefix_add_need(p, m, -1, 0);
    while (*at != m) {
        at = &(*at)->next;
    }
    *at = m->next;
    link_out(&m->use);
    free(m->aux);
    free(m);
    p->counts.checkpoints--;
}

/* A domain without pages is forgotten, so that owners come and go. */
void prefix_drop_root(struct prefix *p, struct node *root)
{
    for (int i = 0; i < p->n_domains; i++) {
        if (p->domain[i].root == root) {
            p->domain[i] = p->domain[--p->n_domains];
            break;
        }
    }
    free(root->child);
    free(root);
}

/* ---- going away ---------------------------------------------------------- */

void prefix_drop_node(struct prefix *p, struct node *n)
{
    while (n->n_child > 0) {
        prefix_drop_node(p, n->child[n->n_child - 1]);
    }
    while (n->marks != NULL) {
        prefix_drop_mark(p, n->marks);
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        prefix_set_page(p, n, (enum model_group)g, -1);
    }
    prefix_remove_child(n->parent, n);
    link_out(&n->use);
    p->counts.nodes--;
    free(n->child);
    free(n);
}

/* With the domain, where it was the last of it. */
static void forget(struct prefix *p, struct node *n)
{
    struct node *parent = n->parent;

    prefix_drop_node(p, n);
    if (parent->depth < 0 && parent->n_child == 0) {
        prefix_drop_root(p, parent);
    }
}

static bool is_free_of(const struct prefix *p, const struct node *n,
                       enum model_group g)
{
    return n->page[g] >= 0 && kvpool_refs(p->conf.pool, g, n->page[g]) == 1 &&
           (g == MODEL_FULL ? n->pins : n->slide_pins) == 0;
}

static void remember(struct prefix *p, const struct node *n)
{
    p->ghost[n->hash % GHOSTS] = n->hash;
    for (int i = 0; i < n->n_child; i++) {
        remember(p, n->child[i]);
    }
}

/* only: of which domain; NULL: of all. */
static bool is_in(const struct node *n, const uint64_t *only)
{
    return only == NULL || n->salt == *only;
}

/* The full page to go: the oldest one, or the tail of what was used last. */
static struct node *victim(const struct prefix *p, const uint64_t *only)
{
    const struct link *l;

    for (l = p->nodes.next; p->regret && l != &p->nodes; l = l->next) {
        struct node *n = NODE_OF(l);

        if (n->n_child == 0 && is_in(n, only) && is_free_of(p, n, MODEL_FULL)) {
            return n;
        }
    }
    for (l = p->nodes.prev; l != &p->nodes; l = l->prev) {
        if (is_in(NODE_OF(l), only) && is_free_of(p, NODE_OF(l), MODEL_FULL)) {
            return NODE_OF(l);
        }
    }
    return NULL;
}

static bool evict_full(struct prefix *p, const uint64_t *only)
{
    struct node *n = victim(p, only);

    if (n == NULL) {
        return false;
    }
    remember(p, n);
    forget(p, n);
    return true;
}

/* One that no checkpoint needs; then the oldest checkpoint's. */
static bool evict_slide(struct prefix *p, const uint64_t *only)
{
    struct link *l, *end = &p->marks;

    for (l = p->nodes.prev; l != &p->nodes; l = l->prev) {
        struct node *n = NODE_OF(l);

        if (n->need == 0 && is_in(n, only) && is_free_of(p, n, MODEL_SLIDING)) {
            prefix_set_page(p, n, MODEL_SLIDING, -1);
            n->n_slide = 0;
            n->mtp = false;
            return true;
        }
    }
    l = p->regret ? end->next : end->prev;
    while (l != end &&
           (MARK_OF(l)->pins > 0 || !is_in(MARK_OF(l)->node, only))) {
        l = p->regret ? l->next : l->prev;
    }
    if (l == end) {
        return false;
    }
    remember(p, MARK_OF(l)->node);
    prefix_drop_mark(p, MARK_OF(l));
    p->counts.evicted_checkpoints++;
    return evict_slide(p, only);
}

static bool evict(struct prefix *p, enum model_group g, const uint64_t *only)
{
    bool done = g == MODEL_FULL ? evict_full(p, only) : evict_slide(p, only);

    p->counts.evicted[g] += done;
    return done;
}

bool prefix_evict(struct prefix *p, enum model_group g, int want)
{
    while (kvpool_free_pages(p->conf.pool, g) < want) {
        if (!evict(p, g, NULL)) {
            return false;
        }
    }
    return true;
}

void prefix_trim(struct prefix *p, uint64_t salt, enum model_group g, int keep)
{
    int n = 0, had;

    for (const struct link *l = p->nodes.next; l != &p->nodes; l = l->next) {
        n += NODE_OF(l)->salt == salt && is_free_of(p, NODE_OF(l), g);
    }
    while (n > keep) {
        had = kvpool_free_pages(p->conf.pool, g);
        if (!evict(p, g, &salt)) {
            return;
        }
        n -= kvpool_free_pages(p->conf.pool, g) - had;
    }
}

bool prefix_holds(const struct prefix *p, enum model_group g, int32_t page)
{
    return p->of[g][page] != NULL;
}

bool prefix_may_leave(const struct prefix *p, enum model_group g, int32_t page)
{
    const struct node *n = p->of[g][page];

    return n != NULL && kvpool_refs(p->conf.pool, g, page) == 2 &&
           (g == MODEL_FULL ? n->pins : n->slide_pins) == 0;
}

void prefix_leave(struct prefix *p, enum model_group g, int32_t page)
{
    struct node *n = p->of[g][page];

    BUG_ON(!prefix_may_leave(p, g, page));
    if (g == MODEL_FULL) {
        forget(p, n);
        return;
    }
    for (struct link *l = p->marks.prev; n->need > 0; l = p->marks.prev) {
        while (MARK_OF(l)->pins > 0) {
            l = l->prev;
        }
        prefix_drop_mark(p, MARK_OF(l));
    }
    prefix_set_page(p, n, MODEL_SLIDING, -1);
    n->n_slide = 0;
    n->mtp = false;
}

/* ---- pins ---------------------------------------------------------------- */

static void add_pins(struct prefix *p, const struct prefix_pin *pin, int by)
{
    for (struct node *n = pin->node; n->depth >= 0; n = n->parent) {
        n->pins += by;
    }
    pin->mark->pins += by;
    prefix_add_need(p, pin->mark, 0, by);
}

int prefix_pin(struct prefix *p, uint64_t salt, const int32_t *ids, int n,
               struct prefix_pin **ret)
{
    struct prefix_pin *pin;
    struct mark *m = prefix_find_mark(p, salt, ids, n);

    if (m == NULL) {
        if (!prefix_mark(p, salt, ids, n, NULL)) {
            return -ENOENT;
        }
        m = prefix_find_mark(p, salt, ids, n);
    }
    pin = calloc(1, sizeof(*pin));
    if (pin == NULL) {
        return -ENOMEM;
    }
    pin->node = m->node;
    pin->mark = m;
    pin->pages[MODEL_FULL] = m->node->depth + 1;
    pin->pages[MODEL_SLIDING] =
        prefix_slides(p) ? m->node->depth - prefix_window_page(p, n) + 1 : 0;
    add_pins(p, pin, 1);
    *ret = pin;
    return 0;
}

void prefix_unpin(struct prefix *p, struct prefix_pin *pin)
{
    if (pin != NULL) {
        add_pins(p, pin, -1);
        free(pin);
    }
}

int prefix_pin_pages(const struct prefix_pin *pin, enum model_group g)
{
    return pin->pages[g];
}

int prefix_pin_first(const struct prefix_pin *pin, enum model_group g)
{
    return pin->node->depth - pin->pages[g] + 1;
}

void prefix_pin_list(const struct prefix_pin *pin, enum model_group g,
                     int32_t *ret)
{
    const struct node *n = pin->node;

    for (int i = pin->pages[g] - 1; i >= 0; i--, n = n->parent) {
        ret[i] = n->page[g];
    }
}

/* As prefix_take: of no use where a page of the window has no MTP half. */
const void *prefix_pin_aux(const struct prefix_pin *pin)
{
    const struct node *n = pin->node;

    for (int i = pin->pages[MODEL_SLIDING]; i > 0; i--, n = n->parent) {
        if (!n->mtp) {
            return NULL;
        }
    }
    return pin->node->mtp ? pin->mark->aux : NULL;
}

/* ---- questions ----------------------------------------------------------- */

void prefix_counts(const struct prefix *p, struct prefix_counts *ret)
{
    *ret = p->counts;
    for (const struct link *l = p->nodes.next; l != &p->nodes; l = l->next) {
        const struct node *n = NODE_OF(l);

        for (int g = 0; g < MODEL_N_GROUPS; g++) {
            ret->evictable[g] += is_free_of(p, n, (enum model_group)g);
            ret->pinned[g] += n->page[g] >= 0 &&
                              (g == MODEL_FULL ? n->pins : n->slide_pins) > 0;
        }
    }
}
