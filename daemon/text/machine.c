/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The lazily determinised pushdown automaton. Stacks are shared: a frame is a
 * number, the same for the same frames below it, so that two configurations are
 * the same exactly when their two numbers are. A state is a sorted list of
 * configurations whose nodes take bytes, plus whether the text may end.
 *
 * What a byte leads to is the closure of the edges that take it: through empty
 * edges, into rules (a frame more), out of them at a final node (a frame less,
 * or the next round of a repetition). A repetition without an upper limit stops
 * counting at its lower one, so its states are finite.
 *
 * Pure; one owner at a time. What bounds it: MACHINE_MAX_CONFIGS and the two
 * byte limits; GRAM_MAX_DEPTH bounds stacks (gram.c says why no answer strands
 * there).
 */
#include "daemon/text/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define N_SEEN (4 * 4096u) /* a power of two above all of one closure */
#define MAX_TODO (N_SEEN / 2)
#define HASH_SLOTS 4096u

static bool room(struct machine *m, void **p, uint32_t n, uint32_t more,
                 uint32_t *cap, size_t size)
{
    uint32_t want = *cap;
    void *q;

    if (m->err != 0) {
        return false;
    }
    if (n + more <= *cap) {
        return true;
    }
    while (want < n + more) {
        want = want > 0 ? want + want / 2 + 16 : 256;
    }
    if (m->bytes + (want - *cap) * size > MACHINE_HARD_BYTES) {
        m->err = -E2BIG;
        return false;
    }
    q = realloc(*p, want * size);
    if (q == NULL) {
        m->err = -ENOMEM;
        return false;
    }
    m->bytes += (want - *cap) * size;
    *p = q;
    *cap = want;
    return true;
}

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) * UINT64_C(0x9e3779b97f4a7c15);

    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 11);
}

/* ---- frames -------------------------------------------------------------- */

static void rehash_frames(struct machine *m)
{
    uint32_t n = 2 * (m->mask_frame + 1);
    uint32_t *p = realloc(m->frame_slot, n * sizeof(*p));

    if (p == NULL) {
        return; /* longer chains */
    }
    memset(p, 0, n * sizeof(*p));
    m->frame_slot = p;
    m->mask_frame = n - 1;
    for (uint32_t i = 1; i < m->n_frame; i++) {
        struct machine_frame *f = &m->frame[i];
        uint32_t h = mix(f->parent * 31 + f->count, f->edge) & m->mask_frame;

        f->next = p[h];
        p[h] = i;
    }
}

static uint32_t push(struct machine *m, uint32_t parent, uint32_t edge,
                     uint32_t count)
{
    uint32_t h = mix(parent * 31 + count, edge) & m->mask_frame;

    for (uint32_t i = m->frame_slot[h]; i != 0; i = m->frame[i].next) {
        const struct machine_frame *f = &m->frame[i];

        if (f->parent == parent && f->edge == edge && f->count == count) {
            return i;
        }
    }
    if (!room(m, (void **)&m->frame, m->n_frame, 1, &m->cap_frame,
              sizeof(*m->frame))) {
        return 0;
    }
    m->frame[m->n_frame] = (struct machine_frame){
        .parent = parent,
        .edge = edge,
        .count = count,
        .depth = m->frame[parent].depth + 1,
        .next = m->frame_slot[h],
    };
    m->frame_slot[h] = m->n_frame;
    if (m->n_frame++ > 2 * m->mask_frame) {
        rehash_frames(m);
    }
    return m->n_frame - 1;
}

/* ---- closure ------------------------------------------------------------- */

static void closure_begin(struct machine *m)
{
    m->n_todo = m->n_leaf = 0;
    m->accepts = false;
    if (++m->stamp == 0) {
        memset(m->seen, 0, N_SEEN * sizeof(*m->seen));
        m->stamp = 1;
    }
}

/* Where the rule can still be ended within the depth there is. */
static void visit(struct machine *m, uint32_t node, uint32_t stack)
{
    uint32_t h, i;

    if (m->frame[stack].depth + m->g->node[node].height > GRAM_MAX_DEPTH) {
        return;
    }
    h = mix(node, stack);
    for (i = h & (N_SEEN - 1);; i = (i + 1) & (N_SEEN - 1)) {
        uint32_t at = (uint32_t)m->seen[i];

        if (m->seen[i] >> 32 != m->stamp) {
            break;
        }
        if (m->todo[at].node == node && m->todo[at].stack == stack) {
            return;
        }
    }
    if (m->n_todo == MAX_TODO) {
        m->err = m->err != 0 ? m->err : -E2BIG;
        return;
    }
    m->seen[i] = (uint64_t)m->stamp << 32 | m->n_todo;
    m->todo[m->n_todo++] = (struct machine_config){node, stack};
}

static void visit_rule(struct machine *m, uint32_t edge, uint32_t parent,
                       uint32_t count)
{
    const struct gram_edge *e = &m->g->edge[edge];
    uint32_t start = m->g->rule[e->rule].start;
    uint32_t depth = m->frame[parent].depth;

    if (depth + 1 + m->g->node[start].height <= GRAM_MAX_DEPTH &&
        depth + m->g->node[e->to].height <= GRAM_MAX_DEPTH) {
        visit(m, start, push(m, parent, edge, count));
    }
}

/* The rule has ended: back to who waits for it. */
static void leave_rule(struct machine *m, uint32_t stack)
{
    const struct machine_frame f = m->frame[stack];
    const struct gram_edge *e;

    if (stack == 0) {
        m->accepts = true;
        return;
    }
    e = &m->g->edge[f.edge];
    if (e->kind == GRAM_CALL) {
        visit(m, e->to, f.parent);
        return;
    }
    if (f.count >= e->min) {
        visit(m, e->to, f.parent);
    }
    if (e->max == GRAM_NO_MAX) {
        uint32_t last = e->min > 1 ? e->min : 1;

        visit_rule(m, f.edge, f.parent, f.count < last ? f.count + 1 : last);
    } else if (f.count < e->max) {
        visit_rule(m, f.edge, f.parent, f.count + 1);
    }
}

static void closure_run(struct machine *m)
{
    for (uint32_t i = 0; i < m->n_todo && m->err == 0; i++) {
        const struct machine_config c = m->todo[i];
        const struct gram_node *v = &m->g->node[c.node];

        if (v->n_bytes > 0) {
            m->leaf[m->n_leaf++] = c;
        }
        if (v->final) {
            leave_rule(m, c.stack);
        }
        for (uint32_t j = v->n_bytes; j < v->n; j++) {
            uint32_t at = v->first + j;
            const struct gram_edge *e = &m->g->edge[at];

            if (e->kind == GRAM_EPS ||
                (e->kind == GRAM_REPEAT && e->min == 0)) {
                visit(m, e->to, c.stack);
            }
            if (e->kind != GRAM_EPS) {
                visit_rule(m, at, c.stack, e->kind == GRAM_REPEAT);
            }
        }
    }
}

/* ---- states -------------------------------------------------------------- */

static int by_config(const void *a, const void *b)
{
    const struct machine_config *x = a, *y = b;

    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static void sort(struct machine_config *c, uint32_t n)
{
    if (n > 16) {
        qsort(c, n, sizeof(*c), by_config);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        struct machine_config x = c[i];
        uint32_t j = i;

        for (; j > 0 && by_config(&c[j - 1], &x) > 0; j--) {
            c[j] = c[j - 1];
        }
        c[j] = x;
    }
}

static uint32_t hash_configs(const struct machine_config *c, uint32_t n,
                             bool accepts)
{
    uint32_t h = accepts;

    for (uint32_t i = 0; i < n; i++) {
        h = mix(h ^ c[i].node, c[i].stack);
    }
    return h;
}

static void rehash_states(struct machine *m)
{
    uint32_t n = 2 * (m->mask_state + 1);
    uint32_t *p = realloc(m->state_slot, n * sizeof(*p));

    if (p == NULL) {
        return;
    }
    memset(p, 0, n * sizeof(*p));
    m->state_slot = p;
    m->mask_state = n - 1;
    for (uint32_t i = 1; i < m->n_state; i++) {
        struct machine_state *s = &m->state[i];
        uint32_t h = hash_configs(m->config + s->config, s->n, s->accepts) &
                     m->mask_state;

        s->next = p[h];
        p[h] = i;
    }
}

/* c is sorted and not a part of m->config. */
static uint32_t intern(struct machine *m, const struct machine_config *c,
                       uint32_t n, bool accepts)
{
    uint32_t h, i;

    if (m->err != 0 || (n == 0 && !accepts)) {
        return MACHINE_DEAD;
    }
    if (n > MACHINE_MAX_CONFIGS) {
        m->err = -E2BIG;
        return MACHINE_DEAD;
    }
    h = hash_configs(c, n, accepts) & m->mask_state;
    for (i = m->state_slot[h]; i != 0; i = m->state[i].next) {
        const struct machine_state *s = &m->state[i];

        if (s->n == n && s->accepts == accepts &&
            memcmp(m->config + s->config, c, n * sizeof(*c)) == 0) {
            return i;
        }
    }
    if (!room(m, (void **)&m->state, m->n_state, 1, &m->cap_state,
              sizeof(*m->state)) ||
        !room(m, (void **)&m->config, m->n_config, n + 1, &m->cap_config,
              sizeof(*m->config))) {
        return MACHINE_DEAD;
    }
    if (n > 0) {
        memcpy(m->config + m->n_config, c, n * sizeof(*c));
    }
    m->state[m->n_state] = (struct machine_state){
        .config = m->n_config,
        .n = n,
        .seg = NONE,
        .next = m->state_slot[h],
        .accepts = accepts,
        .mask = -1,
    };
    m->n_config += n;
    m->state_slot[h] = m->n_state;
    i = m->n_state++;
    if (m->n_state > 2 * m->mask_state) {
        rehash_states(m);
    }
    return i;
}

static uint32_t closure_end(struct machine *m)
{
    closure_run(m);
    sort(m->leaf, m->n_leaf);
    return intern(m, m->leaf, m->n_leaf, m->accepts);
}

uint32_t machine_subset(struct machine *m, const struct machine_config *c,
                        uint32_t n, bool accepts)
{
    if (n > MAX_TODO) {
        m->err = -E2BIG;
        return MACHINE_DEAD;
    }
    memcpy(m->leaf, c, n * sizeof(*c));
    return intern(m, m->leaf, n, accepts);
}

uint32_t machine_start(struct machine *m)
{
    closure_begin(m);
    visit(m, m->g->rule[m->g->root].start, 0);
    return closure_end(m);
}

/* ---- bytes --------------------------------------------------------------- */

/* Few edges, none over another: no need to sort borders. */
#define FEW_EDGES 12

static int expand_few(struct machine *m, const struct machine_state *s,
                      uint8_t *seg)
{
    const struct gram_edge *edge[FEW_EDGES];
    int n = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct gram_node *v = &m->g->node[m->config[s->config + i].node];

        for (uint32_t j = 0; j < v->n_bytes; j++) {
            const struct gram_edge *e = &m->g->edge[v->first + j];

            for (int k = 0; k < n; k++) {
                if (e->lo <= edge[k]->hi && edge[k]->lo <= e->hi) {
                    return -1;
                }
            }
            if (n == FEW_EDGES) {
                return -1;
            }
            edge[n++] = e;
            memset(seg + e->lo, n, (size_t)(e->hi - e->lo) + 1);
        }
    }
    return n;
}

static int expand_many(struct machine *m, const struct machine_state *s,
                       uint8_t *seg)
{
    int32_t cover[257] = {0};
    bool border[257] = {false};
    int n = 0, open = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct gram_node *v = &m->g->node[m->config[s->config + i].node];

        for (uint32_t j = 0; j < v->n_bytes; j++) {
            const struct gram_edge *e = &m->g->edge[v->first + j];

            cover[e->lo]++;
            cover[e->hi + 1]--;
            border[e->lo] = border[e->hi + 1] = true;
        }
    }
    for (int b = 0; b < 256; b++) {
        open += cover[b];
        if (open == 0) {
            seg[b] = 0;
            continue;
        }
        n += border[b];
        if (n > 255) {
            return -1; /* 256 bytes, each with a meaning of its own */
        }
        seg[b] = (uint8_t)n;
    }
    return n;
}

int machine_expand(struct machine *m, uint32_t state)
{
    struct machine_state *s = &m->state[state];
    uint8_t *seg;
    int n;

    if (s->seg != NONE || m->err != 0) {
        return m->err;
    }
    if (!room(m, (void **)&m->seg, m->n_seg, 256, &m->cap_seg, 1)) {
        return m->err;
    }
    seg = m->seg + m->n_seg;
    memset(seg, 0, 256);
    n = expand_few(m, s, seg);
    if (n < 0) {
        n = expand_many(m, s, seg);
    }
    if (n < 0) {
        m->err = -E2BIG;
    }
    if (m->err != 0 || !room(m, (void **)&m->to, m->n_to, (uint32_t)n + 1,
                             &m->cap_to, sizeof(*m->to))) {
        return m->err;
    }
    memset(m->to + m->n_to, 0xff, ((size_t)n + 1) * sizeof(*m->to));
    m->to[m->n_to] = MACHINE_DEAD;
    s->seg = m->n_seg;
    s->to = m->n_to;
    s->n_seg = (uint16_t)n;
    m->n_seg += 256;
    m->n_to += (uint32_t)n + 1;
    return 0;
}

/* Of an expanded state, a byte whose target is not known yet. */
uint32_t machine_take(struct machine *m, uint32_t state, uint8_t byte)
{
    const struct machine_state s = m->state[state];
    uint32_t to;

    closure_begin(m);
    for (uint32_t i = 0; i < s.n; i++) {
        const struct machine_config c = m->config[s.config + i];
        const struct gram_node *v = &m->g->node[c.node];

        for (uint32_t j = 0; j < v->n_bytes; j++) {
            const struct gram_edge *e = &m->g->edge[v->first + j];

            if (e->lo <= byte && byte <= e->hi) {
                visit(m, e->to, c.stack);
            }
        }
    }
    to = closure_end(m);
    if (m->err == 0) {
        m->to[s.to + m->seg[s.seg + byte]] = to;
    }
    return to;
}

uint32_t machine_step(struct machine *m, uint32_t state, uint8_t byte)
{
    const struct machine_state *s = &m->state[state];
    uint32_t seg, to;

    if (s->seg == NONE && machine_expand(m, state) < 0) {
        return MACHINE_DEAD;
    }
    s = &m->state[state];
    seg = m->seg[s->seg + byte];
    to = m->to[s->to + seg];
    return to != NONE ? to : machine_take(m, state, byte);
}

uint32_t machine_bytes(struct machine *m, uint32_t state, const void *p,
                       size_t n)
{
    const uint8_t *b = p;

    for (size_t i = 0; i < n && state != MACHINE_DEAD; i++) {
        state = machine_step(m, state, b[i]);
    }
    return m->err == 0 ? state : MACHINE_DEAD;
}

bool machine_is_over(struct machine *m, uint32_t state)
{
    /* A configuration is only kept where it leads to the end of its rule. */
    return m->state[state].n == 0;
}

/* ---- memory -------------------------------------------------------------- */

static void free_all(struct machine *m)
{
    free(m->state);
    free(m->frame);
    free(m->config);
    free(m->to);
    free(m->seg);
    free(m->state_slot);
    free(m->frame_slot);
}

static int start_empty(struct machine *m)
{
    m->state = NULL;
    m->frame = NULL;
    m->config = NULL;
    m->to = NULL;
    m->seg = NULL;
    m->n_state = m->n_frame = m->n_config = m->n_to = m->n_seg = 0;
    m->cap_state = m->cap_frame = m->cap_config = m->cap_to = m->cap_seg = 0;
    m->bytes = 0;
    m->mask_state = m->mask_frame = HASH_SLOTS - 1;
    m->state_slot = calloc(HASH_SLOTS, sizeof(*m->state_slot));
    m->frame_slot = calloc(HASH_SLOTS, sizeof(*m->frame_slot));
    if (m->state_slot == NULL || m->frame_slot == NULL) {
        m->err = -ENOMEM;
    }
    if (room(m, (void **)&m->frame, 0, 1, &m->cap_frame, sizeof(*m->frame))) {
        m->frame[m->n_frame++] = (struct machine_frame){0};
    }
    /* The dead state: its bytes lead nowhere. */
    if (room(m, (void **)&m->state, 0, 1, &m->cap_state, sizeof(*m->state)) &&
        room(m, (void **)&m->config, 0, 1, &m->cap_config,
             sizeof(*m->config))) {
        m->state[m->n_state++] =
            (struct machine_state){.seg = NONE, .mask = -1};
        (void)machine_expand(m, MACHINE_DEAD);
    }
    return m->err;
}

int machine_init(struct machine *m, const struct gram *g)
{
    memset(m, 0, sizeof(*m));
    m->g = g;
    m->todo = malloc(MAX_TODO * sizeof(*m->todo));
    m->leaf = malloc(MAX_TODO * sizeof(*m->leaf));
    m->seen = calloc(N_SEEN, sizeof(*m->seen));
    if (m->todo == NULL || m->leaf == NULL || m->seen == NULL) {
        m->err = -ENOMEM;
    }
    if (start_empty(m) < 0) {
        int r = m->err;

        machine_finish(m);
        return r;
    }
    return 0;
}

void machine_finish(struct machine *m)
{
    free_all(m);
    free(m->todo);
    free(m->leaf);
    free(m->seen);
    memset(m, 0, sizeof(*m));
}

/* The same stack in the new numbering: its frames are copied from below. */
static uint32_t move_stack(struct machine *m, const struct machine_frame *old,
                           uint32_t stack)
{
    uint32_t path[GRAM_MAX_DEPTH + 1];
    int n = 0;
    uint32_t at = 0;

    for (; stack != 0; stack = old[stack].parent) {
        path[n++] = stack;
    }
    while (n > 0) {
        const struct machine_frame *f = &old[path[--n]];

        at = push(m, at, f->edge, f->count);
    }
    return at;
}

int machine_trim(struct machine *m, uint32_t *held, int n, bool force)
{
    struct machine old = *m;

    if (m->err != 0 || (m->bytes <= MACHINE_SOFT_BYTES && !force)) {
        return m->err;
    }
    m->generation++;
    (void)start_empty(m);
    for (int i = 0; i < n && m->err == 0; i++) {
        const struct machine_state *s = &old.state[held[i]];

        for (uint32_t j = 0; j < s->n; j++) {
            const struct machine_config c = old.config[s->config + j];

            m->leaf[j] = (struct machine_config){
                c.node, move_stack(m, old.frame, c.stack)};
        }
        sort(m->leaf, s->n);
        held[i] = intern(m, m->leaf, s->n, s->accepts);
    }
    free_all(&old);
    return m->err;
}
