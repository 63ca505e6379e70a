/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Grammars as they are built, and what is worked out once about a finished one:
 * the edges of a node side by side, and the height of a node.
 *
 * Height is why a limited stack never strands an answer: a configuration is
 * only entered where depth + height fits GRAM_MAX_DEPTH, so from each that was
 * entered some way leads to the end. A node from which none leads has no
 * height, and is never entered either.
 *
 * Pure; no thread but the caller's.
 */
#include "daemon/text/gram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define NO_HEIGHT UINT16_MAX

struct gram *gram_create(void)
{
    return calloc(1, sizeof(struct gram));
}

void gram_destroy(struct gram *g)
{
    if (g == NULL) {
        return;
    }
    free(g->node);
    free(g->edge);
    free(g->rule);
    free(g);
}

/* Room for one more of an array; false and err where there is none. */
static bool grow(struct gram *g, void **p, uint32_t n, uint32_t *cap,
                 uint32_t max, size_t size)
{
    uint32_t more = *cap > 0 ? 2 * *cap : 64;
    void *q;

    if (g->err != 0) {
        return false;
    }
    if (n < *cap) {
        return true;
    }
    if (n >= max) {
        g->err = -E2BIG;
        return false;
    }
    q = realloc(*p, more * size);
    if (q == NULL) {
        g->err = -ENOMEM;
        return false;
    }
    *p = q;
    *cap = more;
    return true;
}

uint32_t gram_node(struct gram *g)
{
    if (!grow(g, (void **)&g->node, g->n_nodes, &g->cap_nodes, GRAM_MAX_NODES,
              sizeof(*g->node))) {
        return 0;
    }
    g->node[g->n_nodes] = (struct gram_node){.first = NONE};
    return g->n_nodes++;
}

uint32_t gram_rule(struct gram *g)
{
    uint32_t start = gram_node(g);

    if (!grow(g, (void **)&g->rule, g->n_rules, &g->cap_rules, GRAM_MAX_RULES,
              sizeof(*g->rule))) {
        return 0;
    }
    g->rule[g->n_rules] = (struct gram_rule){.start = start};
    return g->n_rules++;
}

void gram_final(struct gram *g, uint32_t node)
{
    if (g->err == 0) {
        g->node[node].final = true;
    }
}

static void add_edge(struct gram *g, uint32_t from, struct gram_edge e)
{
    if (!grow(g, (void **)&g->edge, g->n_edges, &g->cap_edges, GRAM_MAX_EDGES,
              sizeof(*g->edge))) {
        return;
    }
    e.next = g->node[from].first;
    g->edge[g->n_edges] = e;
    g->node[from].first = g->n_edges++;
}

void gram_bytes(struct gram *g, uint32_t from, uint8_t lo, uint8_t hi,
                uint32_t to)
{
    add_edge(
        g, from,
        (struct gram_edge){.kind = GRAM_BYTES, .lo = lo, .hi = hi, .to = to});
}

void gram_eps(struct gram *g, uint32_t from, uint32_t to)
{
    add_edge(g, from, (struct gram_edge){.kind = GRAM_EPS, .to = to});
}

void gram_call(struct gram *g, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(g, from,
             (struct gram_edge){.kind = GRAM_CALL, .rule = rule, .to = to});
}

void gram_repeat(struct gram *g, uint32_t from, uint32_t rule, uint32_t min,
                 uint32_t max, uint32_t to)
{
    if (max == 0) {
        gram_eps(g, from, to);
        return;
    }
    add_edge(g, from,
             (struct gram_edge){.kind = GRAM_REPEAT,
                                .rule = rule,
                                .min = min,
                                .max = max,
                                .to = to});
}

uint32_t gram_text(struct gram *g, uint32_t from, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t to = gram_node(g);

        gram_bytes(g, from, (uint8_t)text[i], (uint8_t)text[i], to);
        from = to;
    }
    return from;
}

uint32_t gram_puts(struct gram *g, uint32_t from, const char *text)
{
    return gram_text(g, from, text, strlen(text));
}

/* ---- finishing ----------------------------------------------------------- */

/* The edges of each node side by side, those of bytes first. */
static int pack(struct gram *g)
{
    struct gram_edge *e = malloc((g->n_edges + 1) * sizeof(*e));
    uint32_t n = 0;

    if (e == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct gram_node *v = &g->node[i];
        uint32_t at = n, first = v->first;

        for (uint32_t j = first; j != NONE; j = g->edge[j].next) {
            if (g->edge[j].kind == GRAM_BYTES) {
                e[n++] = g->edge[j];
            }
        }
        v->n_bytes = n - at;
        for (uint32_t j = first; j != NONE; j = g->edge[j].next) {
            if (g->edge[j].kind != GRAM_BYTES) {
                e[n++] = g->edge[j];
            }
        }
        v->first = at;
        v->n = n - at;
    }
    free(g->edge);
    g->edge = e;
    return 0;
}

/* Who waits for whom: edges by the node they lead to, and by the start of the
 * rule that they call. */
struct uses {
    uint32_t *owner;          /* [n_edges] the node that an edge leaves */
    uint32_t *head_to;        /* [n_nodes] */
    uint32_t *next_to;        /* [n_edges] */
    uint32_t *head_start;     /* [n_nodes] */
    uint32_t *next_start;     /* [n_edges] */
    uint32_t *head_of_height; /* [GRAM_MAX_DEPTH + 1] nodes to look at */
    uint32_t *link;           /* [n_queue] */
    uint32_t *queued;         /* [n_queue] */
    uint32_t n_queue, cap_queue;
};

static void uses_finish(struct uses *u)
{
    free(u->owner);
    free(u->head_to);
    free(u->next_to);
    free(u->head_start);
    free(u->next_start);
    free(u->head_of_height);
    free(u->link);
    free(u->queued);
}

static int uses_init(struct uses *u, const struct gram *g)
{
    size_t n = g->n_nodes, m = g->n_edges + 1u;

    memset(u, 0, sizeof(*u));
    /* A node is queued once for each edge that may lower it, and once as an
     * end. */
    u->cap_queue = g->n_nodes + 2 * g->n_edges + 1;
    u->owner = malloc(m * sizeof(uint32_t));
    u->head_to = malloc(n * sizeof(uint32_t));
    u->next_to = malloc(m * sizeof(uint32_t));
    u->head_start = malloc(n * sizeof(uint32_t));
    u->next_start = malloc(m * sizeof(uint32_t));
    u->head_of_height = malloc((GRAM_MAX_DEPTH + 1) * sizeof(uint32_t));
    u->link = malloc(u->cap_queue * sizeof(uint32_t));
    u->queued = malloc(u->cap_queue * sizeof(uint32_t));
    if (u->owner == NULL || u->head_to == NULL || u->next_to == NULL ||
        u->head_start == NULL || u->next_start == NULL ||
        u->head_of_height == NULL || u->link == NULL || u->queued == NULL) {
        return -ENOMEM;
    }
    memset(u->head_to, 0xff, n * sizeof(uint32_t));
    memset(u->head_start, 0xff, n * sizeof(uint32_t));
    memset(u->head_of_height, 0xff, (GRAM_MAX_DEPTH + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        for (uint32_t j = 0; j < g->node[i].n; j++) {
            uint32_t e = g->node[i].first + j, to = g->edge[e].to;

            u->owner[e] = i;
            u->next_to[e] = u->head_to[to];
            u->head_to[to] = e;
            if (g->edge[e].kind >= GRAM_CALL) {
                uint32_t s = g->rule[g->edge[e].rule].start;

                u->next_start[e] = u->head_start[s];
                u->head_start[s] = e;
            }
        }
    }
    return 0;
}

static void queue(struct uses *u, uint32_t node, uint32_t height)
{
    if (height > GRAM_MAX_DEPTH || u->n_queue == u->cap_queue) {
        return;
    }
    u->queued[u->n_queue] = node;
    u->link[u->n_queue] = u->head_of_height[height];
    u->head_of_height[height] = u->n_queue++;
}

/* An edge one of whose ends has just got its height. */
static void relax(struct gram *g, struct uses *u, uint32_t e)
{
    const struct gram_edge *x = &g->edge[e];
    uint32_t h = g->node[x->to].height;

    if (h == NO_HEIGHT) {
        return;
    }
    if (x->kind == GRAM_CALL || (x->kind == GRAM_REPEAT && x->min > 0)) {
        uint32_t s = g->node[g->rule[x->rule].start].height;

        if (s == NO_HEIGHT) {
            return;
        }
        h = s + 1 > h ? s + 1 : h;
    }
    if (g->node[u->owner[e]].height == NO_HEIGHT) {
        queue(u, u->owner[e], h);
    }
}

/* Lowest first, so that each node is settled once. */
static int settle_heights(struct gram *g)
{
    struct uses u;
    int r = uses_init(&u, g);

    if (r < 0) {
        uses_finish(&u);
        return r;
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        g->node[i].height = NO_HEIGHT;
        if (g->node[i].final) {
            queue(&u, i, 0);
        }
    }
    for (uint32_t h = 0; h <= GRAM_MAX_DEPTH; h++) {
        while (u.head_of_height[h] != NONE) {
            uint32_t q = u.head_of_height[h], v = u.queued[q];

            u.head_of_height[h] = u.link[q];
            if (g->node[v].height != NO_HEIGHT) {
                continue;
            }
            g->node[v].height = (uint16_t)h;
            for (uint32_t e = u.head_to[v]; e != NONE; e = u.next_to[e]) {
                relax(g, &u, e);
            }
            for (uint32_t e = u.head_start[v]; e != NONE; e = u.next_start[e]) {
                relax(g, &u, e);
            }
        }
    }
    uses_finish(&u);
    return 0;
}

/* ---- rules that begin with themselves ------------------------------------ */

struct look {
    uint8_t *node; /* seen in the walk of its rule */
    uint8_t *rule; /* 1 on the path, 2 done */
    int depth;
};

/* Rules are entered by recursion, which schemas keep shallow: a chain of rules
 * each of which begins with the next. */
#define LOOK_MAX_DEPTH 1000

static int look_at_rule(const struct gram *g, struct look *l, uint32_t rule)
{
    uint32_t *todo;
    uint32_t n = 0, cap = 64;
    int r = 0;

    if (l->rule[rule] != 0) {
        return l->rule[rule] == 1 ? -ELOOP : 0;
    }
    if (++l->depth > LOOK_MAX_DEPTH) {
        return -E2BIG;
    }
    todo = malloc(cap * sizeof(*todo));
    if (todo == NULL) {
        return -ENOMEM;
    }
    l->rule[rule] = 1;
    todo[n++] = g->rule[rule].start;
    while (n > 0 && r == 0) {
        const struct gram_node *v = &g->node[todo[--n]];

        for (uint32_t j = v->n_bytes; j < v->n && r == 0; j++) {
            const struct gram_edge *e = &g->edge[v->first + j];
            bool skips =
                e->kind == GRAM_EPS || (e->kind == GRAM_REPEAT && e->min == 0);

            if (e->kind != GRAM_EPS) {
                r = look_at_rule(g, l, e->rule);
            }
            if (r < 0 || !skips || l->node[e->to]) {
                continue;
            }
            l->node[e->to] = 1;
            if (n == cap) {
                uint32_t *more = realloc(todo, 2 * cap * sizeof(*todo));

                if (more == NULL) {
                    r = -ENOMEM;
                    break;
                }
                todo = more;
                cap *= 2;
            }
            todo[n++] = e->to;
        }
    }
    free(todo);
    l->rule[rule] = 2;
    l->depth--;
    return r;
}

static int refuse_left_recursion(const struct gram *g)
{
    struct look l = {.node = calloc(g->n_nodes, 1),
                     .rule = calloc(g->n_rules, 1)};
    int r = l.node == NULL || l.rule == NULL ? -ENOMEM : 0;

    for (uint32_t i = 0; i < g->n_rules && r == 0; i++) {
        r = look_at_rule(g, &l, i);
    }
    free(l.node);
    free(l.rule);
    return r;
}

int gram_finish(struct gram *g, uint32_t root)
{
    int r = g->err;

    g->root = root;
    r = r < 0 ? r : pack(g);
    r = r < 0 ? r : refuse_left_recursion(g);
    r = r < 0 ? r : settle_heights(g);
    if (r == 0 && g->node[g->rule[root].start].height == NO_HEIGHT) {
        r = -ENOENT;
    }
    return r;
}
