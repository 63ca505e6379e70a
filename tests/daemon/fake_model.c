/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * See fake_model.h. One thread calls the model (the engine thread, or a test);
 * the counters may be read by any.
 *
 * A page holds what was written into each of its slots: token, position and
 * the MTP modules' mark. That is the whole of its "KV".
 */

#include "tests/daemon/fake_model.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SEEDS 4096
#define MAX_LEN 8192

struct fake_conf fake;

struct slot {
    bool valid;
    int pos;
    int32_t token;
    bool mtp[MODEL_MAX_DRAFTS]; /* module k + 1 has been here */
    int32_t mtp_token[MODEL_MAX_DRAFTS];
};

struct page {
    struct slot slot[MODEL_PAGE_TOK];
};

struct seq {
    bool open, cancelled;
    struct model_sampling s;
    int32_t *known; /* history and what was drawn since */
    int n_known, n_prompt, committed;
    int n_drafts;
    int32_t draft[MODEL_MAX_DRAFTS];
    int mtp_next[MODEL_MAX_DRAFTS]; /* first missing slot of module k + 1 */
    int r0;                         /* no module has a slot before it */
};

struct model {
    struct model_conf conf;
    struct model_info info;
    struct seq *seq;
    struct page *page[MODEL_N_GROUPS];
    const struct model_plan *plan; /* submitted, not collected */
    struct model_stats stats;
};

static _Atomic uint64_t boundaries;
static _Atomic int open_seqs, most_rows, shared_steps;
static struct {
    uint64_t seed;
    _Atomic uint64_t last;
} seeds[N_SEEDS];
static _Atomic int n_seeds;

#define STRICT(cond, ...)                                \
    do {                                                 \
        if (!(cond)) {                                   \
            fprintf(stderr, "fake model: " __VA_ARGS__); \
            fprintf(stderr, " (%s)\n", #cond);           \
            abort();                                     \
        }                                                \
    } while (0)

void fake_reset(void)
{
    fake = (struct fake_conf){
        .n_layers = 4,
        .n_mtp = 3,
        .window = 64,
        .vocab = 1024,
        .max_model_len = 1024,
        .pages = {64, 64},
        .first_token = 100,
        .n_tokens = 800,
        .eos = 1016,
        .eos_one_in = 60,
        .wrong_drafts = 30,
        .nan_token = -1,
        .load_bytes = 1000,
    };
    atomic_store(&boundaries, 0);
    atomic_store(&open_seqs, 0);
    atomic_store(&most_rows, 0);
    atomic_store(&shared_steps, 0);
    atomic_store(&n_seeds, 0);
}

uint64_t fake_boundaries(void)
{
    return atomic_load(&boundaries);
}

int fake_open_seqs(void)
{
    return atomic_load(&open_seqs);
}

int fake_most_rows(void)
{
    return atomic_load(&most_rows);
}

int fake_shared_steps(void)
{
    return atomic_load(&shared_steps);
}

static void note_row(uint64_t seed)
{
    int n = atomic_load(&n_seeds), i = 0;

    while (i < n && seeds[i].seed != seed) {
        i++;
    }
    if (i == n) {
        STRICT(n < N_SEEDS, "too many seeds");
        seeds[i].seed = seed;
        atomic_store(&seeds[i].last, 0);
        atomic_store(&n_seeds, n + 1);
    }
    atomic_store(&seeds[i].last, atomic_load(&boundaries));
}

uint64_t fake_last_row(uint64_t seed)
{
    for (int i = 0; i < atomic_load(&n_seeds); i++) {
        if (seeds[i].seed == seed) {
            return atomic_load(&seeds[i].last);
        }
    }
    return 0;
}

/* ---- what is drawn ------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t at(int32_t token, int pos, uint64_t salt)
{
    return mix((uint64_t)(uint32_t)token * 0x9e3779b97f4a7c15u +
               (uint64_t)pos * 0xd6e8feb86659fd93u + salt);
}

/* What was drawn is penalised, the prompt is not: so it matters where the
 * prompt ends, also to a request that is resumed. */
static uint64_t of_params(const struct model_sampling *s, int n_prompt)
{
    uint64_t h = s->temperature == 0 ? 1 : s->seed;

    h = mix(h + (uint64_t)n_prompt * 0x9e3779b97f4a7c15u);
    h = mix(h + (uint64_t)(s->temperature * 1000));
    h = mix(h + (uint64_t)(s->top_p * 1000) + (uint64_t)s->top_k * 7919);
    h = mix(h + (uint64_t)(s->min_p * 1000));
    return mix(h + (uint64_t)((s->repetition + s->presence * 3 +
                               s->frequency * 5 + 100) *
                              1000));
}

static int32_t draw(const struct model_sampling *s, int n_prompt, uint64_t full,
                    uint64_t window, int pos)
{
    uint64_t h =
        mix(full ^ mix(window) ^ of_params(s, n_prompt) ^ (uint64_t)pos);

    if (fake.eos_one_in > 0 && h % (unsigned)fake.eos_one_in == 0) {
        return fake.eos;
    }
    return fake.first_token + (int32_t)(mix(h) % (unsigned)fake.n_tokens);
}

int32_t fake_next(const struct model_sampling *s, const int32_t *ids,
                  int n_prompt, int n)
{
    uint64_t full = 0, window = 0;

    for (int i = 0; i < n; i++) {
        full += at(ids[i], i, 1);
        window += i > n - 1 - fake.window ? at(ids[i], i, 2) : 0;
    }
    return draw(s, n_prompt, full, window, n);
}

/* ---- pages --------------------------------------------------------------- */

static struct page *page_of(struct model *m, const struct model_span *sp,
                            enum model_group g, int slot)
{
    int i = slot / MODEL_PAGE_TOK - sp->first_page[g];
    int32_t id;

    STRICT(i >= 0 && i < sp->n_pages[g], "group %d: no page for slot %d", g,
           slot);
    id = sp->pages[g][i];
    STRICT(id >= 0 && id < fake.pages[g], "group %d: page %d", g, (int)id);
    return &m->page[g][id];
}

static struct slot *writes(struct model *m, const struct model_span *sp,
                           enum model_group g, int slot)
{
    /* Into another's page: whoever reads that finds a strange token. */
    return &page_of(m, sp, g, slot)->slot[slot % MODEL_PAGE_TOK];
}

static const struct slot *reads(struct model *m, const struct model_span *sp,
                                enum model_group g, int slot, int32_t token)
{
    const struct page *p = page_of(m, sp, g, slot);
    const struct slot *s = &p->slot[slot % MODEL_PAGE_TOK];

    STRICT(s->valid, "group %d: slot %d is read and was never written", g,
           slot);
    STRICT(s->pos == slot && s->token == token,
           "group %d: slot %d holds token %d of position %d", g, slot,
           (int)s->token, s->pos);
    return s;
}

static void write_row(struct model *m, const struct model_span *sp, int row)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        struct slot *s = writes(m, sp, g, sp->pos + row);

        s->valid = true;
        s->pos = sp->pos + row;
        s->token = sp->ids[row];
    }
}

static bool is_finite(const struct seq *q, const struct model_span *sp)
{
    for (int i = 0; i < sp->pos + sp->n_rows; i++) {
        int32_t t = i < sp->pos ? q->known[i] : sp->ids[i - sp->pos];

        if (t == fake.nan_token) {
            return false;
        }
    }
    return true;
}

/* What row `row` sees through the page tables, and the token after it. */
static int32_t row_draws(struct model *m, const struct model_span *sp, int row)
{
    const struct seq *q = &m->seq[sp->seq];
    int pos = sp->pos + row;
    uint64_t full = 0, window = 0;

    for (int i = 0; i <= pos; i++) {
        int32_t t = i < sp->pos ? q->known[i] : sp->ids[i - sp->pos];
        const struct slot *s = reads(m, sp, MODEL_FULL, i, t);

        full += at(s->token, i, 1);
        if (i > pos - fake.window) {
            s = reads(m, sp, MODEL_SLIDING, i, t);
            window += at(s->token, i, 2);
        }
    }
    return draw(&q->s, q->n_prompt, full, window, pos + 1);
}

/* ---- drafts -------------------------------------------------------------- */

/* The modules fill their slots up to where the drafts reach, from the first
 * that each lacks; what a module has, it must find again. */
static void run_mtp(struct model *m, const struct model_span *sp)
{
    struct seq *q = &m->seq[sp->seq];
    int last = q->committed - 1;

    for (int k = 0; k < fake.n_mtp; k++) {
        int end = last + 1 + k + 1;

        end = end < fake.max_model_len ? end : fake.max_model_len;
        for (int s = sp->pos - fake.window + 1; s < end; s++) {
            struct slot *w;

            if (s < q->r0) {
                continue;
            }
            if (s < q->mtp_next[k]) {
                w = &page_of(m, sp, MODEL_SLIDING, s)->slot[s % MODEL_PAGE_TOK];
                STRICT(w->mtp[k], "module %d: slot %d is gone", k + 1, s);
                STRICT(s >= q->n_known || w->mtp_token[k] == q->known[s],
                       "module %d: slot %d is of another token", k + 1, s);
                continue;
            }
            w = writes(m, sp, MODEL_SLIDING, s);
            w->mtp[k] = true;
            w->mtp_token[k] =
                s < q->n_known ? q->known[s] : q->draft[s - q->n_known];
        }
        q->mtp_next[k] = end > q->mtp_next[k] ? end : q->mtp_next[k];
    }
}

/* The rows of a prompt that goes on, without looking ahead. */
static void run_mtp_rows(struct model *m, const struct model_span *sp)
{
    struct seq *q = &m->seq[sp->seq];

    for (int k = 0; k < fake.n_mtp; k++) {
        for (int s = sp->pos; s < sp->pos + sp->n_rows; s++) {
            struct slot *w = writes(m, sp, MODEL_SLIDING, s);

            w->mtp[k] = true;
            w->mtp_token[k] = q->known[s];
        }
        q->mtp_next[k] = q->committed;
    }
}

static void make_drafts(struct model *m, const struct model_span *sp)
{
    struct seq *q = &m->seq[sp->seq];
    int depth = sp->draft_next < 0 ? fake.n_mtp : sp->draft_next;
    int32_t *ids = malloc(((size_t)q->n_known + 4) * sizeof(*ids));

    if (q->s.max_drafts >= 0 && q->s.max_drafts < depth) {
        depth = q->s.max_drafts;
    }
    depth = depth < fake.n_mtp ? depth : fake.n_mtp;
    memcpy(ids, q->known, (size_t)q->n_known * sizeof(*ids));
    q->n_drafts = 0;
    for (int k = 0; k < MODEL_MAX_DRAFTS; k++) {
        int n = q->n_known + k;
        int32_t t = fake_next(&q->s, ids, q->n_prompt, n);

        if (mix((uint64_t)n + q->s.seed) % 100 < (unsigned)fake.wrong_drafts) {
            t = t == fake.first_token ? t + 1 : fake.first_token;
        }
        q->draft[k] = ids[n] = t;
        if (k < depth && n + 1 < fake.max_model_len) {
            q->n_drafts = k + 1;
        }
    }
    free(ids);
    if (fake.n_mtp > 0) {
        run_mtp(m, sp);
    }
}

/* ---- steps --------------------------------------------------------------- */

static void check_span(struct model *m, const struct model_span *sp)
{
    struct seq *q;
    int n_sure = sp->n_rows - sp->n_draft;

    STRICT(sp->seq >= 0 && sp->seq < m->conf.max_seqs, "sequence %d", sp->seq);
    q = &m->seq[sp->seq];
    STRICT(q->open && !q->cancelled, "sequence %d is closed", sp->seq);
    STRICT(sp->pos == q->committed, "rows from %d, %d are committed", sp->pos,
           q->committed);
    STRICT(n_sure >= 1 && sp->n_draft >= 0, "%d rows", sp->n_rows);
    STRICT(sp->pos + n_sure <= q->n_known, "rows of unknown tokens");
    STRICT(sp->pos + sp->n_rows <= fake.max_model_len, "past max_model_len");
    STRICT((sp->want != MODEL_WANT_NONE) == (sp->pos + n_sure == q->n_known),
           "draws at %d of %d", sp->pos + n_sure, q->n_known);
    STRICT(sp->n_draft <= q->n_drafts, "%d drafts of %d", sp->n_draft,
           q->n_drafts);
    for (int i = 0; i < n_sure; i++) {
        STRICT(sp->ids[i] == q->known[sp->pos + i], "row %d: token %d", i,
               (int)sp->ids[i]);
    }
    for (int i = 0; i < sp->n_draft; i++) {
        STRICT(sp->ids[n_sure + i] == q->draft[i], "draft %d: token %d", i,
               (int)sp->ids[n_sure + i]);
    }
}

int model_submit(struct model *m, const struct model_plan *plan)
{
    int rows = 0;

    STRICT(m->plan == NULL, "submitted twice");
    STRICT(plan->n_spans > 0, "an empty plan");
    for (int i = 0; i < plan->n_spans; i++) {
        check_span(m, &plan->span[i]);
        rows += plan->span[i].n_rows;
        for (int j = 0; j < i; j++) {
            STRICT(plan->span[i].seq != plan->span[j].seq, "two spans of one");
        }
    }
    STRICT(rows <= m->conf.max_rows, "%d rows", rows);
    if (rows > atomic_load(&most_rows)) {
        atomic_store(&most_rows, rows);
    }
    if (plan->n_spans > 1) {
        atomic_fetch_add(&shared_steps, 1);
    }
    m->plan = plan;
    return 0;
}

/* Layer by layer: whoever was cancelled leaves at a boundary. */
static void run_layers(struct model *m, const struct model_plan *p)
{
    for (int l = 0; l < fake.n_layers; l++) {
        uint64_t n = atomic_fetch_add(&boundaries, 1) + 1;

        if (fake.on_layer != NULL) {
            fake.on_layer(fake.ctx, n);
        }
        if (m->conf.tick != NULL) {
            m->conf.tick(m->conf.ctx);
        }
        m->stats.layers++;
        for (int i = 0; i < p->n_spans; i++) {
            const struct model_span *sp = &p->span[i];
            struct seq *q = &m->seq[sp->seq];

            if (q->cancelled) {
                continue;
            }
            note_row(q->s.seed);
            m->stats.row_layers += (uint64_t)sp->n_rows;
            for (int r = 0; l == 0 && r < sp->n_rows; r++) {
                write_row(m, sp, r);
            }
        }
    }
}

static void fill_token(const struct seq *q, int32_t id, int pos,
                       struct model_token *t)
{
    memset(t, 0, sizeof(*t));
    t->id = id;
    t->logprob = NAN;
    if (q->s.n_top < 0) {
        return;
    }
    t->logprob = -(float)(at(id, pos, 3) % 1000) / 100;
    t->n_top = q->s.n_top;
    for (int i = 0; i < t->n_top; i++) {
        t->top_id[i] = id + i;
        t->top_logprob[i] = t->logprob - (float)i;
    }
}

static void know(struct seq *q, int32_t id)
{
    STRICT(q->n_known < MAX_LEN, "a sequence without end");
    q->known[q->n_known++] = id;
}

static void draw_span(struct model *m, const struct model_span *sp,
                      struct model_out *o)
{
    struct seq *q = &m->seq[sp->seq];
    int n_sure = sp->n_rows - sp->n_draft;
    bool go = true;

    o->n_drafted = sp->n_draft;
    for (int k = 0; k <= sp->n_draft && go; k++) {
        int32_t t = row_draws(m, sp, n_sure - 1 + k);

        fill_token(q, t, sp->pos + n_sure + k, &o->token[o->n_tokens++]);
        know(q, t);
        go = k < sp->n_draft && t == sp->ids[n_sure + k];
        o->n_accepted += go;
    }
    o->committed = q->committed = sp->pos + n_sure + o->n_accepted;
    /* MTP slots past what is committed may hold a wrong draft's work. */
    for (int k = 0; k < fake.n_mtp; k++) {
        if (q->mtp_next[k] > q->committed) {
            q->mtp_next[k] = q->committed;
        }
    }
    m->stats.drafts += sp->n_draft > 0;
    m->stats.drafted += (uint64_t)o->n_drafted;
    m->stats.accepted += (uint64_t)o->n_accepted;
    for (int k = 0; k < o->n_accepted; k++) {
        m->stats.accepted_at[k]++;
    }
    make_drafts(m, sp);
}

static void finish_span(struct model *m, const struct model_span *sp,
                        struct model_out *o)
{
    struct seq *q = &m->seq[sp->seq];

    memset(o, 0, sizeof(*o));
    o->layer = -1;
    o->committed = q->committed;
    if (q->cancelled) {
        o->status = -ECANCELED;
    } else if (!is_finite(q, sp)) {
        o->status = -EIO;
        o->layer = 2;
    } else if (sp->want == MODEL_WANT_NONE) {
        o->committed = q->committed = sp->pos + sp->n_rows;
        row_draws(m, sp, sp->n_rows - 1);
        run_mtp_rows(m, sp);
    } else {
        draw_span(m, sp, o);
    }
}

int model_collect(struct model *m, struct model_out *ret, int n_spans)
{
    const struct model_plan *p = m->plan;
    int rows = 0;

    STRICT(p != NULL && n_spans == p->n_spans, "collect of %d spans", n_spans);
    run_layers(m, p);
    for (int i = 0; i < n_spans; i++) {
        finish_span(m, &p->span[i], &ret[i]);
        rows += p->span[i].n_rows;
    }
    m->plan = NULL;
    m->stats.steps++;
    m->stats.rows += (uint64_t)rows;
    if (fake.clock_us != NULL) {
        *fake.clock_us += fake.step_us + fake.row_us * (uint64_t)rows;
    }
    return fake.fail_step > 0 && m->stats.steps == (uint64_t)fake.fail_step
               ? -EIO
               : 0;
}

const char *model_error(const struct model *m)
{
    (void)m;
    return "as the test wished";
}

void model_cancel(struct model *m, int seq)
{
    STRICT(m->seq[seq].open, "cancel of a closed sequence");
    m->seq[seq].cancelled = true;
}

/* ---- opening ------------------------------------------------------------- */

void model_report_finish(struct model_report *r)
{
    for (int i = 0; i < r->n_problems; i++) {
        free(r->problem[i]);
    }
    free(r->problem);
    memset(r, 0, sizeof(*r));
}

static int load(const struct model_conf *c)
{
    for (uint64_t done = 0; done <= fake.load_bytes; done += 100) {
        int r;

        if (fake.on_load != NULL) {
            fake.on_load(fake.ctx);
        }
        r = c->progress != NULL ? c->progress(c->ctx, done, fake.load_bytes)
                                : 0;
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int model_open(struct model **ret, const struct model_conf *c,
               struct model_report *rep)
{
    struct model *m;
    int r = load(c);

    r = r < 0 ? r : fake.open_error;
    if (r < 0) {
        rep->n_problems = r == -EBADMSG;
        rep->problem = calloc(1, sizeof(*rep->problem));
        rep->problem[0] = strdup("a tensor is missing");
        rep->n_problems = 1;
        return r;
    }
    m = calloc(1, sizeof(*m));
    m->conf = *c;
    m->seq = calloc((size_t)c->max_seqs, sizeof(*m->seq));
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        m->page[g] = calloc((size_t)fake.pages[g], sizeof(*m->page[g]));
        m->info.memory.kv_pages[g] = fake.pages[g];
    }
    strcpy(m->info.family, "fake");
    strcpy(m->info.dialect, "none");
    (void)snprintf(m->info.device, sizeof(m->info.device), "%s",
                   fake.device != NULL ? fake.device : "a test");
    m->info.fingerprint = fake.fingerprint;
    m->info.vocab = fake.vocab;
    m->info.n_layers = fake.n_layers;
    m->info.n_mtp = fake.n_mtp;
    m->info.window = fake.window;
    m->info.max_model_len = fake.max_model_len;
    m->info.n_eos = 1;
    m->info.eos[0] = fake.eos;
    *ret = m;
    return 0;
}

void model_close(struct model *m)
{
    if (m == NULL) {
        return;
    }
    for (int i = 0; i < m->conf.max_seqs; i++) {
        STRICT(!m->seq[i].open, "sequence %d is still open", i);
        free(m->seq[i].known);
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        free(m->page[g]);
    }
    free(m->seq);
    free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

int model_self_test(struct model *m, char *why, size_t n)
{
    if (fake.self_test_error < 0) {
        snprintf(why, n, "not finite");
        return fake.self_test_error;
    }
    m->stats.steps++;
    m->stats.rows += 16;
    return 0;
}

int model_verify_files(struct model *m, char *why, size_t n)
{
    if (fake.on_verify != NULL) {
        fake.on_verify(fake.ctx);
    }
    if (fake.stale_after > 0 && m->stats.steps >= fake.stale_after) {
        snprintf(why, n, "model-00001.safetensors has changed");
        return -ESTALE;
    }
    return 0;
}

/* ---- sequences ----------------------------------------------------------- */

int model_seq_open(struct model *m, const struct model_sampling *s,
                   const int32_t *history, int n_history, int n_drawn,
                   int *ret_seq)
{
    int i = 0;
    struct seq *q;

    while (i < m->conf.max_seqs && m->seq[i].open) {
        i++;
    }
    if (i == m->conf.max_seqs) {
        return -EMFILE;
    }
    STRICT(n_history >= 1 && n_history <= fake.max_model_len, "history of %d",
           n_history);
    STRICT(n_drawn >= 0 && n_drawn < n_history, "%d drawn", n_drawn);
    q = &m->seq[i];
    if (q->known == NULL) {
        q->known = malloc(MAX_LEN * sizeof(*q->known));
    }
    memcpy(q->known, history, (size_t)n_history * sizeof(*history));
    q->n_known = n_history;
    q->n_prompt = n_history - n_drawn;
    q->s = *s;
    q->open = true;
    q->cancelled = false;
    q->committed = q->n_drafts = q->r0 = 0;
    memset(q->mtp_next, 0, sizeof(q->mtp_next));
    atomic_fetch_add(&open_seqs, 1);
    *ret_seq = i;
    return 0;
}

void model_seq_close(struct model *m, int seq)
{
    STRICT(m->seq[seq].open, "closed twice");
    STRICT(m->plan == NULL, "closed within a step");
    m->seq[seq].open = false;
    atomic_fetch_sub(&open_seqs, 1);
}

struct aux {
    int pos, r0;
    uint64_t tokens;
};

static uint64_t sum_of(const struct seq *q, int n)
{
    uint64_t h = 0;

    for (int i = 0; i < n; i++) {
        h += at(q->known[i], i, 4);
    }
    return h;
}

size_t model_aux_bytes(const struct model *m)
{
    (void)m;
    return sizeof(struct aux);
}

int model_seq_aux(struct model *m, int seq, int pos, void *ret_aux)
{
    const struct seq *q = &m->seq[seq];

    if (m->plan != NULL || pos > q->committed ||
        q->committed - pos > MODEL_MAX_BACK) {
        return -EINVAL;
    }
    *(struct aux *)ret_aux =
        (struct aux){pos, q->r0 <= pos ? q->r0 : -1, sum_of(q, pos)};
    return 0;
}

int model_seq_at(struct model *m, int seq, int pos, const void *aux)
{
    struct seq *q = &m->seq[seq];
    const struct aux *a = aux;

    STRICT(q->open && pos > 0 && pos < q->n_known, "at %d", pos);
    STRICT(q->committed == 0, "a sequence that has run");
    STRICT(a == NULL || (a->pos == pos && a->tokens == sum_of(q, pos)),
           "the vectors at %d are of other tokens", pos);
    q->committed = pos;
    q->r0 = a == NULL || a->r0 < 0 ? pos : a->r0;
    for (int k = 0; k < MODEL_MAX_DRAFTS; k++) {
        q->mtp_next[k] = pos;
    }
    return 0;
}

int model_seq_len(const struct model *m, int seq)
{
    return m->seq[seq].committed;
}

int model_seq_r0(const struct model *m, int seq)
{
    return m->seq[seq].s.max_drafts != 0 ? m->seq[seq].r0 : -1;
}

int model_drafts(const struct model *m, int seq, int32_t ret[MODEL_MAX_DRAFTS])
{
    const struct seq *q = &m->seq[seq];

    memcpy(ret, q->draft, sizeof(q->draft));
    return q->n_drafts;
}

/* ---- pages --------------------------------------------------------------- */

int model_copy_page(struct model *m, enum model_group g, int dst, int src)
{
    m->page[g][dst] = m->page[g][src];
    return 0;
}

size_t model_page_bytes(const struct model *m, enum model_group g)
{
    (void)m;
    (void)g;
    return sizeof(struct page);
}

int model_export_page(struct model *m, enum model_group g, int page, void *to)
{
    memcpy(to, &m->page[g][page], sizeof(struct page));
    return 0;
}

int model_import_page(struct model *m, enum model_group g, int page,
                      const void *from)
{
    memcpy(&m->page[g][page], from, sizeof(struct page));
    return 0;
}

int model_scrub_page(struct model *m, enum model_group g, int page)
{
    memset(&m->page[g][page], 0, sizeof(m->page[g][page]));
    if (fake.on_scrub != NULL) {
        fake.on_scrub(fake.ctx, g, page);
    }
    return 0;
}

void model_stats(const struct model *m, struct model_stats *ret)
{
    *ret = m->stats;
}
