/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Masks: a walk over the trie of the vocabulary beside the automaton, which
 * prunes a subtree at its first byte that does not fit. What a grammar repeats
 * of a large set of characters is not walked: the slice of that set is copied,
 * and only tokens that leave it are walked, from the configurations inside it
 * alone. All others are walked in full, and both are joined: the mask of a set
 * of configurations is the union of theirs.
 *
 * The state of the answer is that of its bytes; the tokens' borders leave no
 * trace. Pure; one owner at a time.
 */
#include "daemon/text/mask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/jsongram.h"
#include "daemon/text/machine.h"
#include "daemon/text/slice.h"
#include "daemon/text/toktrie.h"

struct lexicon {
    const struct tokenizer *tok;
    struct toktrie *trie;
    struct slice *body; /* of a JSON string */
};

struct compiled {
    const struct lexicon *lex;
    struct gram *g;
    int n_slices;
    struct {
        uint32_t rule, start; /* its start node */
        struct slice *own;    /* or the lexicon's */
        const struct slice *s;
    } slice[MASK_MAX_SLICES];
};

struct masker {
    const struct compiled *c;
    struct masker_conf conf;
    size_t n_words;
    struct machine m;
    uint32_t state[MACHINE_MAX_HELD]; /* of positions; [0] is the answer's */
    int n_state;
    uint32_t *line; /* [MASK_CACHE][n_words] */
    uint32_t owner[MASK_CACHE];
    int n_lines, next_line;
    unsigned long visits, visits_max;
};

/* ---- the vocabulary ------------------------------------------------------ */

static int make_body(struct lexicon *l)
{
    struct gram *g = gram_create();
    uint32_t rule;
    int r;

    if (g == NULL) {
        return -ENOMEM;
    }
    rule = jsongram_body(g, CHARSET_JSON);
    r = gram_finish(g, rule);
    r = r < 0 ? r : slice_create(&l->body, g, rule, l->trie, l->tok, '"', true);
    gram_destroy(g);
    return r;
}

int lexicon_create(struct lexicon **ret, const struct tokenizer *tok)
{
    struct lexicon *l = calloc(1, sizeof(*l));
    int r;

    if (l == NULL) {
        return -ENOMEM;
    }
    l->tok = tok;
    r = toktrie_create(&l->trie, tok, tokenizer_vocab(tok), NULL);
    r = r < 0 ? r : make_body(l);
    if (r < 0) {
        lexicon_destroy(l);
        return r;
    }
    *ret = l;
    return 0;
}

void lexicon_destroy(struct lexicon *l)
{
    if (l != NULL) {
        toktrie_destroy(l->trie);
        slice_destroy(l->body);
        free(l);
    }
}

/* ---- a grammar ----------------------------------------------------------- */

/* Only rules that something repeats are worth a slice. */
static bool is_repeated(const struct gram *g, uint32_t rule)
{
    for (uint32_t i = 0; i < g->n_edges; i++) {
        const struct gram_edge *e = &g->edge[i];

        if (e->kind == GRAM_REPEAT && e->rule == rule && e->max > 4) {
            return true;
        }
    }
    return false;
}

/* The one byte that a node goes on with, after nodes without one; -1: there are
 * several, or other ways. A chain is all that is looked at. */
static int only_byte(const struct gram *g, uint32_t node)
{
    for (uint32_t steps = 0; steps < g->n_nodes; steps++) {
        const struct gram_node *v = &g->node[node];
        const struct gram_edge *e = &g->edge[v->first];

        if (v->final || v->n != 1 ||
            (e->kind == GRAM_BYTES && e->lo != e->hi) ||
            (e->kind != GRAM_BYTES && e->kind != GRAM_EPS)) {
            return -1;
        }
        if (e->kind == GRAM_BYTES) {
            return e->lo;
        }
        node = e->to;
    }
    return -1;
}

/* The one byte that can follow every repetition of a set and begins none of its
 * characters; -1: there is none. */
static int leaves_by(const struct gram *g, uint32_t rule)
{
    const struct gram_node *v = &g->node[g->rule[rule].start];
    int byte = -1;

    for (uint32_t i = 0; i < g->n_edges; i++) {
        const struct gram_edge *e = &g->edge[i];
        int b;

        if (e->kind != GRAM_REPEAT || e->rule != rule) {
            continue;
        }
        b = only_byte(g, e->to);
        if (b < 0 || (byte >= 0 && b != byte)) {
            return -1;
        }
        byte = b;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        const struct gram_edge *e = &g->edge[v->first + i];

        if (e->kind != GRAM_BYTES || (e->lo <= byte && byte <= e->hi)) {
            return -1;
        }
    }
    return byte;
}

static int add_slice(struct compiled *c, uint32_t rule)
{
    const struct gram_rule *x = &c->g->rule[rule];
    int i = c->n_slices, r = 0;

    c->slice[i].rule = rule;
    c->slice[i].start = x->start;
    if (x->is_json_body) {
        c->slice[i].s = c->lex->body;
    } else {
        r = slice_create(&c->slice[i].own, c->g, rule, c->lex->trie,
                         c->lex->tok, leaves_by(c->g, rule), false);
        c->slice[i].s = c->slice[i].own;
    }
    c->n_slices += r == 0;
    return r;
}

int compiled_create(struct compiled **ret, struct gram *g,
                    const struct lexicon *l)
{
    struct compiled *c = calloc(1, sizeof(*c));
    int r = 0;

    if (c == NULL) {
        gram_destroy(g);
        return -ENOMEM;
    }
    c->lex = l;
    c->g = g;
    for (uint32_t i = 0; i < g->n_rules && r == 0; i++) {
        if (g->rule[i].is_chars && c->n_slices < MASK_MAX_SLICES &&
            is_repeated(g, i)) {
            r = add_slice(c, i);
        }
    }
    if (r < 0) {
        compiled_destroy(c);
        return r;
    }
    *ret = c;
    return 0;
}

void compiled_destroy(struct compiled *c)
{
    if (c == NULL) {
        return;
    }
    for (int i = 0; i < c->n_slices; i++) {
        slice_destroy(c->slice[i].own);
    }
    gram_destroy(c->g);
    free(c);
}

/* ---- an answer ----------------------------------------------------------- */

int masker_create(struct masker **ret, const struct compiled *c,
                  const struct masker_conf *conf)
{
    struct masker *m = calloc(1, sizeof(*m));
    int r;

    if (m == NULL) {
        return -ENOMEM;
    }
    m->c = c;
    m->conf = *conf;
    m->n_words = ((size_t)conf->vocab + 31) / 32;
    r = machine_init(&m->m, c->g);
    if (r == 0) {
        m->state[0] = machine_start(&m->m);
        m->n_state = 1;
        r = m->m.err;
    }
    if (r < 0) {
        masker_destroy(m);
        return r;
    }
    *ret = m;
    return 0;
}

void masker_destroy(struct masker *m)
{
    if (m != NULL) {
        machine_finish(&m->m);
        free(m->line);
        free(m);
    }
}

static void forget_lines(struct masker *m)
{
    for (int i = 0; i < m->n_lines; i++) {
        m->m.state[m->owner[i]].mask = -1;
    }
    m->n_lines = m->next_line = 0;
}

/* Before numbers change: the lines are of the old ones. */
static int trim(struct masker *m, bool force)
{
    if (force || m->m.bytes > MACHINE_SOFT_BYTES) {
        forget_lines(m);
    }
    return machine_trim(&m->m, m->state, m->n_state, force);
}

void masker_forget(struct masker *m, bool states)
{
    forget_lines(m);
    if (states) {
        (void)trim(m, true);
    }
}

static uint32_t take_token(struct masker *m, uint32_t state, int32_t id)
{
    const struct lexicon *l = m->c->lex;
    size_t n;
    const char *p = tokenizer_bytes(l->tok, id, &n);

    if (p == NULL || n == 0 || tokenizer_is_special(l->tok, id)) {
        return MACHINE_DEAD;
    }
    return machine_bytes(&m->m, state, p, n);
}

int masker_advance(struct masker *m, const int32_t *ids, int n)
{
    uint32_t s = m->state[0];

    for (int i = 0; i < n; i++) {
        s = take_token(m, s, ids[i]);
        if (s == MACHINE_DEAD) {
            return m->m.err < 0 ? m->m.err : -EBADMSG;
        }
    }
    m->state[0] = s;
    m->n_state = 1;
    return trim(m, false);
}

int masker_look(struct masker *m, const int32_t *ids, int n)
{
    m->n_state = 1;
    for (int i = 0; i < n && m->n_state < MACHINE_MAX_HELD; i++) {
        uint32_t s = take_token(m, m->state[i], ids[i]);

        if (s == MACHINE_DEAD) {
            break;
        }
        m->state[m->n_state++] = s;
    }
    return m->n_state - 1;
}

bool masker_accepts(const struct masker *m)
{
    return machine_accepts(&m->m, m->state[0]);
}

bool masker_is_over(struct masker *m)
{
    return machine_is_over(&m->m, m->state[0]);
}

uint32_t masker_state(const struct masker *m)
{
    return m->state[0];
}

unsigned long masker_visits(const struct masker *m)
{
    return m->visits;
}

/* ---- the walk ------------------------------------------------------------ */

static void set_token(const struct toktrie *t, int32_t id, uint32_t *words)
{
    for (; id >= 0; id = t->twin[id]) {
        words[id >> 5] |= 1u << (id & 31);
    }
}

/* The subtree of one node that the state has been stepped to already. */
static void walk_below(struct masker *m, const struct toktrie *t, uint32_t i,
                       uint32_t state, uint32_t *words)
{
    struct {
        uint32_t end, state;
    } stack[TOKTRIE_MAX_DEPTH + 1];
    uint32_t depth = 0, end = i + t->node[i].size;

    set_token(t, t->node[i].token, words);
    stack[0].end = end;
    stack[0].state = state;
    for (i++; i < end;) {
        const struct toktrie_node *v = &t->node[i];
        uint32_t s;

        while (i >= stack[depth].end) {
            depth--;
        }
        m->visits++;
        s = machine_step(&m->m, stack[depth].state, (uint8_t)v->byte);
        if (s == MACHINE_DEAD) {
            i += v->size;
            continue;
        }
        set_token(t, v->token, words);
        if (v->size > 1) {
            depth++;
            stack[depth].end = i + v->size;
            stack[depth].state = s;
        }
        i++;
    }
}

static int walk(struct masker *m, const struct toktrie *t, uint32_t state,
                uint32_t *words)
{
    if (state == MACHINE_DEAD || machine_expand(&m->m, state) < 0) {
        return m->m.err;
    }
    for (int b = 0; b < 256; b++) {
        uint32_t s;

        if (t->root[b] == t->n ||
            m->m.seg[m->m.state[state].seg + (uint32_t)b] == 0) {
            continue;
        }
        m->visits++;
        s = machine_step(&m->m, state, (uint8_t)b);
        if (s != MACHINE_DEAD) {
            walk_below(m, t, t->root[b], s, words);
        }
        if (m->m.err == 0 && m->visits > m->visits_max) {
            m->m.err = -E2BIG;
        }
        if (m->m.err < 0) {
            return m->m.err;
        }
    }
    return 0;
}

/* Which slice answers for a configuration, and for how many characters; -1:
 * none does. */
static int slice_of(const struct masker *m, const struct machine_config *c,
                    uint32_t *ret_chars)
{
    const struct machine_frame *f = &m->m.frame[c->stack];
    const struct gram_edge *e;

    for (int i = 0; i < m->c->n_slices; i++) {
        if (m->c->slice[i].start != c->node || c->stack == 0) {
            continue;
        }
        e = &m->c->g->edge[f->edge];
        if (e->kind != GRAM_REPEAT) {
            return -1;
        }
        *ret_chars =
            e->max == GRAM_NO_MAX ? GRAM_NO_MAX : e->max - f->count + 1;
        return m->c->slice[i].s->longer != NULL && *ret_chars < SLICE_SHORT ? -1
                                                                            : i;
    }
    return -1;
}

/* One slice's part: its configurations among those of the state, to c. */
static int add_slices(struct masker *m, uint32_t state, uint32_t *words,
                      struct machine_config *other, uint32_t *ret_n_other)
{
    struct machine_config of[MASK_MAX_SLICES][8];
    uint32_t n_of[MASK_MAX_SLICES] = {0}, chars[MASK_MAX_SLICES] = {0};
    const uint32_t n = m->m.state[state].n;
    uint32_t n_other = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct machine_config c =
            m->m.config[m->m.state[state].config + i];
        uint32_t most = 0;
        int k = slice_of(m, &c, &most);

        if (k < 0 || n_of[k] == 8) {
            other[n_other++] = c;
            continue;
        }
        of[k][n_of[k]++] = c;
        chars[k] = most > chars[k] ? most : chars[k];
    }
    *ret_n_other = n_other;
    for (int k = 0; k < m->c->n_slices; k++) {
        const struct slice *s = m->c->slice[k].s;
        uint32_t part;

        if (n_of[k] == 0) {
            continue;
        }
        slice_or(s, chars[k], words);
        part = machine_subset(&m->m, of[k], n_of[k], false);
        (void)walk(m, s->rest, part, words);
        /* Too long for what is left of the set, but the end may be another
         * part's. */
        if (s->longer != NULL && chars[k] < s->longest) {
            (void)walk(m, s->longer, part, words);
        }
        if (m->m.err < 0) {
            return m->m.err;
        }
    }
    return m->m.err;
}

static int make(struct masker *m, uint32_t state, uint32_t *words)
{
    const struct toktrie *t = m->c->lex->trie;
    struct machine_config *other = NULL;
    uint32_t n = m->m.state[state].n, n_other = 0;
    int r;

    memset(words, 0, m->n_words * sizeof(*words));
    m->visits_max = m->visits + MASK_MAX_VISITS;
    if (m->c->n_slices == 0) {
        r = walk(m, t, state, words);
    } else {
        other = malloc((n + 1) * sizeof(*other));
        if (other == NULL) {
            return -ENOMEM;
        }
        r = add_slices(m, state, words, other, &n_other);
        if (r == 0 && n_other > 0) {
            r = walk(m, t,
                     n_other == n
                         ? state
                         : machine_subset(&m->m, other, n_other, false),
                     words);
        }
        free(other);
    }
    for (int i = 0; i < m->conf.n_stop_ids; i++) {
        int32_t id = m->conf.stop_ids[i];
        uint32_t bit = 1u << (id & 31);

        if (id >= 0 && id < m->conf.vocab) {
            words[id >> 5] &= ~bit;
            words[id >> 5] |= machine_accepts(&m->m, state) ? bit : 0;
        }
    }
    return r < 0 ? r : m->m.err;
}

int masker_mask(struct masker *m, int position, uint32_t *words)
{
    size_t n_words = m->n_words;
    uint32_t state = m->state[position];
    uint32_t *line;
    int r, i;

    if (m->line == NULL) {
        m->line = malloc(MASK_CACHE * n_words * sizeof(*m->line));
        if (m->line == NULL) {
            return -ENOMEM;
        }
    }
    i = m->m.state[state].mask;
    if (i >= 0) {
        memcpy(words, m->line + (size_t)i * n_words, n_words * sizeof(*words));
        return 0;
    }
    r = make(m, state, words);
    if (r < 0) {
        return r;
    }
    i = m->next_line;
    m->next_line = (i + 1) % MASK_CACHE;
    if (i < m->n_lines) {
        m->m.state[m->owner[i]].mask = -1;
    } else {
        m->n_lines = i + 1;
    }
    line = m->line + (size_t)i * n_words;
    memcpy(line, words, n_words * sizeof(*line));
    m->owner[i] = state;
    m->m.state[state].mask = (int16_t)i;
    return 0;
}
