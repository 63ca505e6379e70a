/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The prefix index: a tree a cache domain, one node a page of 64 tokens, the
 * children of a node sorted by their tokens. Engine thread only; owns one page
 * reference a node and group, and the vectors of checkpoints. Pages as integers
 * only: no device memory here.
 *
 * A node has its full page always, its sliding page as long as nobody needs it
 * more. A last page that is not full is a leaf; who brings the same tokens and
 * more makes it grow. So the tree never has two nodes for one page of tokens
 * but where they differ.
 *
 * The rule of the hybrid cache: a prefix of L tokens can be taken up where the
 * full pages of [0, L) and the sliding pages of the window [L - W + 1, L) are
 * there. A checkpoint protects its sliding pages from eviction and has the
 * vectors; sliding pages that no checkpoint needs go first.
 *
 * The invariants: a page is in one node at most; a node's `need` counts the
 * checkpoints whose window holds it; pins of a node are pins of all nodes above
 * it.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/sched/prefix_priv.h"

/* Of a page that was not left at just this token: to copy it for less is not
 * worth it. */
#define MIN_TOKENS 16
/* Siblings looked at on each side for the longest common part of a page. */
#define MAX_SIBLINGS 32

/* A place where a prefix can be taken up. */
struct place {
    int n; /* tokens; 0 none */
    struct node *node;
    const struct mark *mark; /* with vectors that may be used; NULL none */
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* The node last, its ancestors before it. */
static void use(struct prefix *p, struct node *n)
{
    for (; n->depth >= 0; n = n->parent) {
        link_out(&n->use);
        link_first(&p->nodes, &n->use);
    }
}

/* ---- creation ------------------------------------------------------------ */

int prefix_create(struct prefix **ret, const struct prefix_conf *c)
{
    struct prefix *p = xcalloc(1, sizeof(*p));
    int r = 0;

    p->conf = *c;
    p->nodes.next = p->nodes.prev = &p->nodes;
    p->marks.next = p->marks.prev = &p->marks;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        size_t n = (size_t)kvpool_pages(c->pool, (enum model_group)g);

        p->of[g] = calloc(n + 1, sizeof(struct node *));
        r = p->of[g] == NULL ? -ENOMEM : r;
    }
    if (r < 0) {
        prefix_destroy(p);
        return r;
    }
    *ret = p;
    return 0;
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_page(uint64_t above, const int32_t *tok, int n)
{
    uint64_t h = mix(above, (uint64_t)n);

    for (int i = 0; i < n; i++) {
        h = mix(h, (uint64_t)tok[i]);
    }
    return h;
}

static struct node *find_root(const struct prefix *p, uint64_t salt)
{
    for (int i = 0; i < p->n_domains; i++) {
        if (p->domain[i].salt == salt) {
            return p->domain[i].root;
        }
    }
    return NULL;
}

static struct node *make_root(struct prefix *p, uint64_t salt)
{
    struct node *n = find_root(p, salt);

    if (n != NULL) {
        return n;
    }
    if (p->n_domains == p->cap_domains) {
        int cap = p->cap_domains * 2 + 8;
        struct domain *d = realloc(p->domain, (size_t)cap * sizeof(*d));

        if (d == NULL) {
            return NULL;
        }
        p->domain = d;
        p->cap_domains = cap;
    }
    n = calloc(1, sizeof(*n));
    if (n != NULL) {
        n->depth = -1;
        n->salt = salt;
        n->hash = mix(salt, 1);
        p->domain[p->n_domains++] = (struct domain){salt, n};
    }
    return n;
}

void prefix_destroy(struct prefix *p)
{
    if (p == NULL) {
        return;
    }
    while (p->n_domains > 0) {
        struct node *root = p->domain[0].root;

        while (root->n_child > 0) {
            prefix_drop_node(p, root->child[0]);
        }
        prefix_drop_root(p, root);
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        free(p->of[g]);
    }
    free(p->domain);
    free(p);
}

/* ---- children ------------------------------------------------------------ */

static int common(const struct node *c, const int32_t *tok, int n)
{
    int i = 0;

    n = min_int(n, c->n_tok);
    while (i < n && c->tok[i] == tok[i]) {
        i++;
    }
    return i;
}

/* The first child that does not come before these tokens. */
static int lower_bound(const struct node *at, const int32_t *tok, int n)
{
    int lo = 0, hi = at->n_child;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        const struct node *c = at->child[mid];
        int i = common(c, tok, n);
        bool before = i == n          ? false
                      : i == c->n_tok ? true
                                      : c->tok[i] < tok[i];

        if (before) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static int add_child(struct node *at, struct node *c)
{
    int i = lower_bound(at, c->tok, c->n_tok);

    if (at->n_child == at->cap_child) {
        int cap = at->cap_child * 2 + 2;
        struct node **p = realloc(at->child, (size_t)cap * sizeof(*p));

        if (p == NULL) {
            return -ENOMEM;
        }
        at->child = p;
        at->cap_child = cap;
    }
    memmove(at->child + i + 1, at->child + i,
            (size_t)(at->n_child - i) * sizeof(*at->child));
    at->child[i] = c;
    at->n_child++;
    return 0;
}

void prefix_remove_child(struct node *at, const struct node *c)
{
    int i = 0;

    while (at->child[i] != c) {
        i++;
    }
    at->n_child--;
    memmove(at->child + i, at->child + i + 1,
            (size_t)(at->n_child - i) * sizeof(*at->child));
}

/* The next child that has tokens in common with these, nearest first; *i
 * counts. Those with the most in common are neighbours of where they would
 * stand. */
static struct node *neighbour(const struct node *at, int mid, int *i)
{
    while (*i < 2 * MAX_SIBLINGS) {
        int k = *i % 2 == 0 ? mid + *i / 2 : mid - 1 - *i / 2;

        (*i)++;
        if (k >= 0 && k < at->n_child) {
            return at->child[k];
        }
    }
    return NULL;
}

/* ---- pages of a node ----------------------------------------------------- */

void prefix_set_page(struct prefix *p, struct node *n, enum model_group g,
                     int32_t page)
{
    int32_t old = n->page[g];

    if (old == page) {
        return;
    }
    if (page >= 0) {
        BUG_ON(p->of[g][page] != NULL);
        kvpool_share(p->conf.pool, g, page);
        p->of[g][page] = n;
        p->counts.pages[g]++;
    }
    n->page[g] = page;
    if (old >= 0) {
        p->of[g][old] = NULL;
        p->counts.pages[g]--;
        kvpool_drop(p->conf.pool, g, old);
    }
}

int prefix_mark_tokens(const struct mark *m)
{
    return m->node->depth * PAGE + m->n_tok;
}

static struct mark *mark_at(const struct node *n, int n_tok)
{
    struct mark *m = n->marks;

    while (m != NULL && m->n_tok != n_tok) {
        m = m->next;
    }
    return m;
}

/* ---- looking up ---------------------------------------------------------- */

/* What is known of the pages before a node on the way down. */
struct way {
    int slide; /* so many before it in a row have their sliding page */
    int mtp;   /* and its MTP half */
};

static bool reaches(const struct prefix *p, int n_tok, int depth, int run)
{
    return !prefix_slides(p) || depth - prefix_window_page(p, n_tok) <= run;
}

/* The best places in a node of which the first u tokens match. */
static void look_into(const struct prefix *p, struct node *n, int u,
                      const struct way *w, struct place *any,
                      struct place *marked)
{
    int m = prefix_slides(p) ? min_int(u, n->n_slide) : u;
    int at = n->depth * PAGE + m;

    if (at > any->n && (m >= MIN_TOKENS || mark_at(n, m) != NULL) &&
        reaches(p, at, n->depth, w->slide)) {
        *any = (struct place){at, n, NULL};
    }
    for (const struct mark *k = n->marks; k != NULL; k = k->next) {
        at = prefix_mark_tokens(k);
        if (k->n_tok <= m && k->aux != NULL && n->mtp && at > marked->n &&
            reaches(p, at, n->depth, w->mtp)) {
            *marked = (struct place){at, n, k};
        }
    }
}

static void walk_on(const struct node *n, struct way *w)
{
    w->slide = n->n_slide == PAGE ? w->slide + 1 : 0;
    w->mtp = n->n_slide == PAGE && n->mtp ? w->mtp + 1 : 0;
}

/* *ret_seen: how far the tokens were known at all; *ret_last: down to where. */
static struct place find(const struct prefix *p, uint64_t salt,
                         const int32_t *ids, int n, bool vectors,
                         struct node **ret_last)
{
    struct node *at = find_root(p, salt), *next = at;
    struct place any = {0}, marked = {0};
    struct way w = {0};

    *ret_last = at;
    for (int off = 0; next != NULL && off < n; off += PAGE) {
        int left = min_int(PAGE, n - off), i = 0, u;
        int mid = lower_bound(at, ids + off, left);
        struct node *c;

        next = NULL;
        while ((c = neighbour(at, mid, &i)) != NULL) {
            u = common(c, ids + off, left);
            if (u > 0) {
                look_into(p, c, u, &w, &any, &marked);
            }
            if (u == PAGE) {
                next = c;
            }
            /* One that begins alike may have a window that this one lost. */
            if (u == PAGE && (!prefix_slides(p) || c->n_slide == PAGE)) {
                break;
            }
        }
        if (next != NULL) {
            walk_on(next, &w);
            *ret_last = at = next;
        }
    }
    return vectors && marked.n > 0 && any.n - marked.n <= PAGE ? marked : any;
}

int prefix_look(const struct prefix *p, uint64_t salt, const int32_t *ids,
                int n, bool vectors)
{
    struct node *last;

    return find(p, salt, ids, n, vectors, &last).n;
}

static bool is_ghost(const struct prefix *p, uint64_t hash)
{
    return p->ghost[hash % GHOSTS] == hash;
}

/* The pages of the way down to a node, first..depth, into one group. */
static int take_pages(struct prefix *p, struct session *s, enum model_group g,
                      struct node *n, int first)
{
    struct session_pages *to = &s->group[g];
    int count = n->depth - first + 1;

    if (count > to->cap) {
        int32_t *page = realloc(to->page, (size_t)count * sizeof(*page));

        if (page == NULL) {
            return -ENOMEM;
        }
        to->page = page;
        to->cap = count;
    }
    to->first = first;
    to->n = count;
    for (int i = count - 1; i >= 0; i--, n = n->parent) {
        to->page[i] = n->page[g];
        kvpool_share(p->conf.pool, g, n->page[g]);
    }
    return 0;
}

int prefix_take(struct prefix *p, uint64_t salt, struct session *s, int limit,
                bool vectors, const void **ret_aux)
{
    struct node *last;
    struct place at = find(p, salt, s->ids, limit, vectors, &last);
    int off = last != NULL ? (last->depth + 1) * PAGE : 0, r = 0;
    struct mark *m;

    BUG_ON(s->committed != 0 || s->group[MODEL_FULL].n != 0);
    *ret_aux = NULL;
    /* Known and not to be taken up, or known not long ago. */
    p->regret = off > at.n + PAGE ||
                (off + PAGE <= limit &&
                 is_ghost(p, hash_page(last != NULL ? last->hash : mix(salt, 1),
                                       s->ids + off, PAGE)));
    if (at.n == 0) {
        return 0;
    }
    r = take_pages(p, s, MODEL_FULL, at.node, 0);
    if (r == 0 && prefix_slides(p)) {
        r = take_pages(p, s, MODEL_SLIDING, at.node,
                       prefix_window_page(p, at.n));
    }
    if (r < 0) {
        session_release(s);
        return r;
    }
    s->committed = at.n;
    use(p, at.node);
    m = mark_at(at.node, at.n - at.node->depth * PAGE);
    if (m != NULL) {
        link_out(&m->use);
        link_first(&p->marks, &m->use);
    }
    *ret_aux = at.mark != NULL ? at.mark->aux : NULL;
    return at.n;
}

/* ---- putting in ---------------------------------------------------------- */

/* The MTP half of page d is that of a cold run: design.md 4.3. */
static bool mtp_is_pure(const struct prefix *p, int r0, int d)
{
    return r0 == 0 || (r0 > 0 && d * PAGE - r0 >= 3 * (p->conf.geo.window - 1));
}

/* The child for these tokens: one that has them all, or a tail that they
 * continue. */
static struct node *match(const struct node *at, const int32_t *tok, int n)
{
    int mid = lower_bound(at, tok, n), i = 0;
    struct node *c, *grows = NULL;

    while ((c = neighbour(at, mid, &i)) != NULL) {
        int u = common(c, tok, n);

        if (u == n) {
            return c;
        }
        if (u == c->n_tok && u < PAGE && (grows == NULL || u > grows->n_tok)) {
            grows = c;
        }
    }
    return grows;
}

static struct node *new_node(struct prefix *p, struct node *at,
                             const int32_t *tok, int n, int32_t page)
{
    struct node *c = calloc(1, sizeof(*c));

    if (c == NULL) {
        return NULL;
    }
    c->parent = at;
    c->salt = at->salt;
    c->depth = at->depth + 1;
    c->n_tok = n;
    memcpy(c->tok, tok, (size_t)n * sizeof(*tok));
    c->hash = hash_page(at->hash, tok, n);
    c->page[MODEL_FULL] = c->page[MODEL_SLIDING] = -1;
    if (add_child(at, c) < 0) {
        free(c);
        return NULL;
    }
    link_first(&p->nodes, &c->use);
    p->counts.nodes++;
    prefix_set_page(p, c, MODEL_FULL, page);
    return c;
}

static int grow(struct prefix *p, struct node *c, const int32_t *tok, int n,
                int32_t page)
{
    prefix_remove_child(c->parent, c);
    memcpy(c->tok, tok, (size_t)n * sizeof(*tok));
    c->n_tok = n;
    c->hash = hash_page(c->parent->hash, tok, n);
    prefix_set_page(p, c, MODEL_FULL, page);
    return add_child(c->parent, c); /* there was room a moment ago */
}

/* The session's sliding page where it knows more than the node's. */
static void put_slide(struct prefix *p, struct node *c, const struct session *s,
                      int n, bool mtp)
{
    const struct session_pages *from = &s->group[MODEL_SLIDING];
    int i = c->depth - from->first;
    bool better;

    if (i < 0 || i >= from->n || !prefix_slides(p)) {
        return;
    }
    better = c->n_slide == 0 || (n > c->n_slide && (mtp || !c->mtp)) ||
             (n >= c->n_slide && mtp && !c->mtp);
    if (from->page[i] == c->page[MODEL_SLIDING]) {
        better = n > c->n_slide;
    } else if (p->of[MODEL_SLIDING][from->page[i]] != NULL) {
        better = false;
    }
    if (better) {
        prefix_set_page(p, c, MODEL_SLIDING, from->page[i]);
        c->n_slide = n;
        c->mtp = mtp;
    }
}

/* Two copies of the same whole page: the session uses the index's. */
static void merge(struct prefix *p, const struct node *c, struct session *s)
{
    int32_t *mine = &s->group[MODEL_FULL].page[c->depth];

    if (*mine != c->page[MODEL_FULL]) {
        kvpool_share(p->conf.pool, MODEL_FULL, c->page[MODEL_FULL]);
        kvpool_drop(p->conf.pool, MODEL_FULL, *mine);
        *mine = c->page[MODEL_FULL];
    }
}

static struct node *put_page(struct prefix *p, struct node *at,
                             struct session *s, int n)
{
    int d = at->depth + 1;
    const int32_t *tok = s->ids + d * PAGE;
    int32_t page = s->group[MODEL_FULL].page[d];
    struct node *c = match(at, tok, n), *of = p->of[MODEL_FULL][page];

    /* Of two that begin with these tokens, the one that it was taken from. */
    if (of != NULL && of->parent == at && common(of, tok, n) == n) {
        c = of;
    }
    BUG_ON(of != NULL && of != c);
    if (c == NULL) {
        return new_node(p, at, tok, n, page);
    }
    if (c->n_tok < n) {
        return grow(p, c, tok, n, page) < 0 ? NULL : c;
    }
    if (n == PAGE) {
        merge(p, c, s);
    }
    return c;
}

int prefix_put(struct prefix *p, uint64_t salt, struct session *s, int n,
               int r0)
{
    struct node *at = make_root(p, salt);

    BUG_ON(s->group[MODEL_FULL].first != 0 ||
           n > s->group[MODEL_FULL].n * PAGE || n > s->n_ids);
    for (int off = 0; at != NULL && off < n; off += PAGE) {
        int m = min_int(PAGE, n - off);

        at = put_page(p, at, s, m);
        if (at != NULL) {
            put_slide(p, at, s, m, mtp_is_pure(p, r0, at->depth));
        }
    }
    if (at == NULL) {
        return -ENOMEM;
    }
    use(p, at);
    return 0;
}

/* The node of token n - 1 on the way of these tokens. */
static struct node *node_of(const struct prefix *p, uint64_t salt,
                            const int32_t *ids, int n)
{
    struct node *at = find_root(p, salt);

    for (int off = 0; at != NULL && off < n; off += PAGE) {
        int m = min_int(PAGE, n - off), i = 0;
        int mid = lower_bound(at, ids + off, m);
        struct node *c;

        while ((c = neighbour(at, mid, &i)) != NULL &&
               common(c, ids + off, m) < m) {
        }
        at = c;
    }
    return at;
}

/* Whether the window before n tokens is there. */
static bool complete(const struct prefix *p, const struct node *n, int n_tok)
{
    int first = prefix_slides(p) ? prefix_window_page(p, n_tok) : n->depth + 1;

    for (int need = n_tok - n->depth * PAGE; n->depth >= first; need = PAGE) {
        if (n->n_slide < need) {
            return false;
        }
        n = n->parent;
    }
    return true;
}

bool prefix_mark(struct prefix *p, uint64_t salt, const int32_t *ids, int n,
                 const void *aux)
{
    struct node *at = n > 0 ? node_of(p, salt, ids, n) : NULL;
    struct mark *m;
    void *copy = NULL;

    if (at == NULL || !complete(p, at, n)) {
        return false;
    }
    if (aux != NULL && p->conf.aux_bytes > 0) {
        copy = malloc(p->conf.aux_bytes);
        if (copy != NULL) {
            memcpy(copy, aux, p->conf.aux_bytes);
        }
    }
    m = mark_at(at, n - at->depth * PAGE);
    if (m == NULL) {
        m = calloc(1, sizeof(*m));
        if (m == NULL) {
            free(copy);
            return false;
        }
        m->node = at;
        m->n_tok = n - at->depth * PAGE;
        m->next = at->marks;
        at->marks = m;
        prefix_add_need(p, m, 1, 0);
        p->counts.checkpoints++;
    } else {
        link_out(&m->use);
    }
    link_first(&p->marks, &m->use);
    if (copy != NULL) {
        free(m->aux);
        m->aux = copy;
    }
    for (struct link *l = p->marks.prev;
         p->counts.checkpoints > p->conf.max_checkpoints && l != &m->use;) {
        struct mark *old = MARK_OF(l);

        l = l->prev;
        if (old->pins == 0) {
            prefix_drop_mark(p, old);
            p->counts.evicted_checkpoints++;
        }
    }
    return true;
}

struct mark *prefix_find_mark(const struct prefix *p, uint64_t salt,
                              const int32_t *ids, int n)
{
    struct node *at = n > 0 ? node_of(p, salt, ids, n) : NULL;

    return at == NULL ? NULL : mark_at(at, n - at->depth * PAGE);
}

void prefix_unmark(struct prefix *p, uint64_t salt, const int32_t *ids, int n)
{
    struct mark *m = prefix_find_mark(p, salt, ids, n);

    if (m != NULL && m->pins == 0) {
        prefix_drop_mark(p, m);
    }
}

bool prefix_marked(const struct prefix *p, uint64_t salt, const int32_t *ids,
                   int n)
{
    return prefix_find_mark(p, salt, ids, n) != NULL;
}
