/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * accept and mtp_rows on every backend: a simulated drafter with random
 * acceptance, several sequences a step, random chunks and depths. Outputs are
 * replaced by hashes of everything they depend on, so that a wrong token, a
 * wrong row of the level below or a slot that was made with a rejected draft
 * and then kept shows at once against a teacher-forced run.
 */

#include "tests/kernels/kt.h"

enum { SEQS = 3, LEN = 160, LEVELS = KERN_MAX_DRAFTS + 1, MAX_ROWS = 256 };
enum { CARRIED = SEQS * KERN_CARRY };

static struct kt *open_nth(int i)
{
    return kt_open(i == 0 ? &kt_ref : kt_backend(i - 1));
}

static void test_accept_takes_the_longest_equal_prefix(void **state)
{
    static const int32_t row0[] = {0, 4, -1, 6, 7, 8};
    static const int32_t n_draft[] = {3, 1, 2, 0, 0, 2};
    static const int32_t draft[][KERN_MAX_DRAFTS] = {
        {10, 11, 12}, {20, 0, 0}, {1, 2, 3}, {0, 0, 0}, {0, 0, 0}, {50, 51, 0}};
    /* rows 0-3, 4-5, 6, 7, 8-10 */
    static const int32_t id[] = {10, 11, 99, 13, 20, 21, 30, -1, 50, -1, 7};
    static const int32_t want_n[] = {2, 1, 0, 0, 0, 1};
    static const int32_t want_next[] = {99, 21, -1, 30, -1, -1};
    struct kern_sample_out drawn[11] = {{0}};

    (void)state;
    for (int i = 0; i < 11; i++) {
        drawn[i].id = id[i];
    }
    for (int i = 0; i <= kt_n_backends(); i++) {
        struct kt *t = open_nth(i);
        struct kern_accept_args a = {.n_spans = 6, .n_sampled = 11};
        int32_t n[6], next[6];

        a.row0 = kt_put(t, row0, sizeof(row0));
        a.n_draft = kt_put(t, n_draft, sizeof(n_draft));
        a.draft = kt_put(t, draft, sizeof(draft));
        a.sampled = kt_put(t, drawn, sizeof(drawn));
        a.n_accept = kt_put(t, NULL, sizeof(n));
        a.next = kt_put(t, NULL, sizeof(next));
        kt_ok(t, kern_accept(t->k, &a));
        kt_get(t, n, a.n_accept, sizeof(n));
        kt_get(t, next, a.next, sizeof(next));
        assert_memory_equal(n, want_n, sizeof(n));
        assert_memory_equal(next, want_next, sizeof(next));
        kt_close(t);
    }
}

/* ---- the simulation ---- */

/* Outputs and cache contents are hashes; 0 stands for "never written". */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t s = a * 0x100000001b3u ^ b;

    s = kt_random(&s) ^ c;
    return kt_random(&s) | 1;
}

struct seq {
    int32_t tok[LEN + 8]; /* the true continuation */
    int len;              /* L: committed */
    int r0;
    int pending; /* drafts for the next step */
    int32_t draft[KERN_MAX_DRAFTS];
    int end[KERN_MAX_DRAFTS];
    uint64_t slot[LEVELS][LEN + 8];  /* what the cache holds */
    uint64_t truth[LEVELS][LEN + 8]; /* teacher-forced */
};

struct sim {
    uint64_t seed;
    struct seq seq[SEQS];
    uint64_t buf[LEVELS][CARRIED + MAX_ROWS];
};

static void seq_start(struct sim *m, struct seq *s, int r0)
{
    memset(s, 0, sizeof(*s));
    s->r0 = s->len = r0;
    for (int i = 0; i < LEN + 8; i++) {
        s->tok[i] = (int32_t)(kt_random(&m->seed) % 1000);
        s->truth[0][i] = mix(s->tok[i], i ? s->truth[0][i - 1] : 7, 0);
    }
    for (int k = 1; k < LEVELS; k++) {
        s->end[k - 1] = r0 + k;
        for (int i = r0 + k; i < LEN + 8; i++) {
            s->truth[k][i] =
                mix((uint64_t)s->tok[i], s->truth[k - 1][i - 1], (uint64_t)k);
        }
    }
}

/* Of one step. */
struct plan {
    struct kern_mtp_span span[SEQS];
    int32_t ids[MAX_ROWS], n_accept[SEQS], next[SEQS];
    struct kern_sample_out drafts[KERN_MAX_DRAFTS][SEQS];
    int n, n_rows, n_draft[SEQS];
};

/* A random step: a chunk, or the drawn token and some drafts, of each sequence
 * that still has room. The trunk's rows are "computed" here. */
static void plan_step(struct sim *m, struct plan *p)
{
    memset(p, 0, sizeof(*p));
    for (int i = 0; i < SEQS; i++) {
        struct seq *s = &m->seq[i];
        struct kern_mtp_span *sp = &p->span[p->n];
        int sure = 1 + (int)(kt_random(&m->seed) % 9);
        bool decode = s->pending > 0 || kt_random(&m->seed) % 2;

        if (s->len + 16 > LEN) {
            seq_start(m, s, (int)(kt_random(&m->seed) % 3) * 5);
        }
        sure = decode ? 1 : sure;
        sp->row0 = p->n_rows;
        sp->pos = s->len;
        sp->n_sure = sure;
        sp->seq = i;
        sp->depth = (int32_t)(kt_random(&m->seed) % 4);
        sp->carry = i * KERN_CARRY;
        for (int k = 1; k < LEVELS; k++) {
            sp->low[k - 1] = s->r0 + k;
            sp->end[k - 1] = s->end[k - 1];
        }
        /* some pending drafts may have been cut; some equal the truth */
        p->n_draft[p->n] =
            s->pending > 0
                ? (int)(kt_random(&m->seed) % (uint64_t)(s->pending + 1))
                : 0;
        for (int j = 0; j < sure + p->n_draft[p->n]; j++) {
            int at = s->len + j, row = p->n_rows++;

            p->ids[row] = j < sure ? s->tok[at] : s->draft[j - sure];
            m->buf[0][CARRIED + row] = s->truth[0][at]; /* right if accepted */
        }
        while (p->n_accept[p->n] < p->n_draft[p->n] &&
               s->draft[p->n_accept[p->n]] ==
                   s->tok[s->len + sure + p->n_accept[p->n]]) {
            p->n_accept[p->n]++;
        }
        p->next[p->n] = s->tok[s->len + sure + p->n_accept[p->n]];
        if (kt_random(&m->seed) % 20 == 0) {
            sp->row0 = -1; /* cancelled: nothing of it may be touched */
        }
        p->n++;
    }
}

struct bufs {
    struct kern_mtp_rows_args a;
};

static void buffers(struct kt *t, const struct plan *p, struct bufs *b)
{
    struct kern_mtp_rows_args *a = &b->a;
    size_t n = (size_t)p->n;

    memset(a, 0, sizeof(*a));
    a->n_spans = p->n;
    a->max_rows = MAX_ROWS;
    a->n_step_rows = p->n_rows;
    a->below_base = CARRIED;
    a->span = kt_put(t, p->span, n * sizeof(p->span[0]));
    a->n_accept = kt_put(t, p->n_accept, n * 4);
    a->next = kt_put(t, p->next, n * 4);
    a->step_ids = kt_put(t, p->ids, (size_t)p->n_rows * 4);
    a->drafts = kt_put(t, NULL, n * sizeof(p->drafts[0]));
    a->first = kt_put(t, NULL, LEVELS * n * 4);
    a->row0 = kt_put(t, NULL, LEVELS * n * 4);
    a->n = kt_put(t, NULL, 4);
    a->ids = kt_put(t, NULL, MAX_ROWS * 4);
    a->slot = kt_put(t, NULL, MAX_ROWS * 4);
    a->seq = kt_put(t, NULL, MAX_ROWS * 4);
    a->below = kt_put(t, NULL, MAX_ROWS * 4);
    a->last = kt_put(t, NULL, n * 4);
    a->last_pos = kt_put(t, NULL, n * 4);
    a->keep_src = kt_put(t, NULL, n * KERN_CARRY * 4);
    a->keep_dst = kt_put(t, NULL, n * KERN_CARRY * 4);
}

/* What module k does with the rows listed for it, and what it proposes. */
static void run_module(struct sim *m, struct kt *t, struct plan *p,
                       struct bufs *b, int k)
{
    struct kern_mtp_rows_args *a = &b->a;
    int32_t n, ids[MAX_ROWS], slot[MAX_ROWS], seq[MAX_ROWS], below[MAX_ROWS];
    int32_t last[SEQS], pos[SEQS];
    int32_t src[SEQS * KERN_CARRY], dst[SEQS * KERN_CARRY];

    a->k = k;
    kt_ok(t, kern_mtp_rows(t->k, a));
    kt_get(t, &n, a->n, 4);
    assert_in_range(n, 0, MAX_ROWS);
    kt_get(t, ids, a->ids, sizeof(ids));
    kt_get(t, slot, a->slot, sizeof(slot));
    kt_get(t, seq, a->seq, sizeof(seq));
    kt_get(t, below, a->below, sizeof(below));
    kt_get(t, last, a->last, (size_t)p->n * 4);
    kt_get(t, pos, a->last_pos, (size_t)p->n * 4);
    kt_get(t, src, a->keep_src, (size_t)p->n * KERN_CARRY * 4);
    kt_get(t, dst, a->keep_dst, (size_t)p->n * KERN_CARRY * 4);
    for (int r = 0; r < n; r++) {
        struct seq *s = &m->seq[seq[r]];
        uint64_t h;

        assert_in_range(below[r], 0, CARRIED + MAX_ROWS - 1);
        assert_true(slot[r] >= s->r0 + k); /* never below r0 + k */
        h = mix((uint64_t)ids[r], m->buf[k - 1][below[r]], (uint64_t)k);
        m->buf[k][CARRIED + r] = s->slot[k][slot[r]] = h;
    }
    for (int i = 0; i < p->n * KERN_CARRY; i++) {
        if (src[i] >= 0) {
            m->buf[k - 1][dst[i]] = m->buf[k - 1][src[i]];
        }
    }
    for (int i = 0; i < p->n; i++) {
        const struct kern_mtp_span *sp = &p->span[i];
        struct seq *s = &m->seq[sp->seq];
        int len = sp->pos + sp->n_sure + p->n_accept[i];
        bool proposes = sp->row0 >= 0 && sp->depth >= k && len >= s->r0 + 1;

        /* a module whose first slot is still ahead proposes nothing */
        if (!proposes) {
            assert_int_equal(last[i], -1);
            continue;
        }
        assert_int_equal(slot[last[i]], len + k - 1);
        assert_int_equal(pos[i], len + k);
        /* right two times of three */
        p->drafts[k - 1][i].id = kt_random(&m->seed) % 3
                                     ? s->tok[len + k]
                                     : (int32_t)(kt_random(&m->seed) % 1000);
    }
    kt_ok(t, kern_upload(t->k, a->drafts, p->drafts,
                         sizeof(p->drafts[0][0]) * (size_t)(3 * p->n)));
}

/* The host's part after the step, and the check of every committed slot. */
static void commit(struct sim *m, const struct plan *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct kern_mtp_span *sp = &p->span[i];
        struct seq *s = &m->seq[sp->seq];

        if (sp->row0 < 0) {
            seq_start(m, s, 0);
            continue;
        }
        s->len = sp->pos + sp->n_sure + p->n_accept[i];
        s->pending = sp->depth;
        for (int k = 1; k < LEVELS; k++) {
            int first = s->end[k - 1] < s->len ? s->end[k - 1] : s->len;
            int limit = sp->depth >= k ? s->len + k : s->len;

            first = first > s->r0 + k ? first : s->r0 + k;
            s->end[k - 1] = limit > first ? limit : first;
            s->draft[k - 1] = p->drafts[k - 1][i].id;
            for (int u = s->r0 + k; u < s->len; u++) {
                if (s->slot[k][u] != s->truth[k][u]) {
                    fail_msg("module %d slot %d of sequence %d at L = %d", k, u,
                             sp->seq, s->len);
                }
            }
        }
    }
}

static void test_committed_slots_equal_a_teacher_forced_run(void **state)
{
    static struct sim m;

    (void)state;
    for (int i = 0; i <= kt_n_backends(); i++) {
        m.seed = 4711;
        for (int q = 0; q < SEQS; q++) {
            seq_start(&m, &m.seq[q], 0);
        }
        for (int step = 0; step < 2000; step++) {
            struct kt *t = open_nth(i);
            struct plan p;
            struct bufs b;

            plan_step(&m, &p);
            buffers(t, &p, &b);
            for (int k = 1; k < LEVELS; k++) {
                run_module(&m, t, &p, &b, k);
            }
            commit(&m, &p);
            kt_close(t);
        }
    }
}

/* ---- more spans than a block of a GPU has threads ---- */

enum { MANY = 300, MANY_ROWS = MANY * 4 };

/* What module 1 lists: number, ids, slots, sequences, below, last, positions.
 */
struct listed {
    int32_t n, ids[MANY_ROWS], slot[MANY_ROWS], seq[MANY_ROWS];
    int32_t below[MANY_ROWS], last[MANY], last_pos[MANY];
};

static void list_many(const struct kt_backend *b, struct listed *ret)
{
    static struct kern_mtp_span span[MANY];
    static int32_t n_accept[MANY], next[MANY], ids[2 * MANY];
    struct kt *t = kt_open(b);
    struct kern_mtp_rows_args a = {.k = 1,
                                   .n_spans = MANY,
                                   .max_rows = MANY_ROWS,
                                   .n_step_rows = 2 * MANY,
                                   .below_base = MANY * KERN_CARRY};
    const size_t spans = MANY * 4, rows = MANY_ROWS * 4;

    for (int i = 0; i < MANY; i++) {
        span[i] = (struct kern_mtp_span){.row0 = i % 7 == 3 ? -1 : 2 * i,
                                         .pos = 40 + i,
                                         .n_sure = 1,
                                         .seq = i,
                                         .depth = i % 3,
                                         .carry = i * KERN_CARRY};
        span[i].low[0] = 1;
        span[i].end[0] = 40 + i + i % 2;
        n_accept[i] = i / 2 % 2;
        next[i] = 1000 + i;
        ids[2 * i] = 2 * i;
        ids[2 * i + 1] = 2 * i + 1;
    }
    a.span = kt_put(t, span, sizeof(span));
    a.n_accept = kt_put(t, n_accept, spans);
    a.next = kt_put(t, next, spans);
    a.step_ids = kt_put(t, ids, sizeof(ids));
    a.drafts = kt_put(t, NULL,
                      KERN_MAX_DRAFTS * MANY * sizeof(struct kern_sample_out));
    a.first = kt_put(t, NULL, LEVELS * spans);
    a.row0 = kt_put(t, NULL, LEVELS * spans);
    a.n = kt_put(t, NULL, 4);
    a.ids = kt_put(t, NULL, rows);
    a.slot = kt_put(t, NULL, rows);
    a.seq = kt_put(t, NULL, rows);
    a.below = kt_put(t, NULL, rows);
    a.last = kt_put(t, NULL, spans);
    a.last_pos = kt_put(t, NULL, spans);
    a.keep_src = kt_put(t, NULL, KERN_CARRY * spans);
    a.keep_dst = kt_put(t, NULL, KERN_CARRY * spans);
    kt_ok(t, kern_mtp_rows(t->k, &a));
    memset(ret, 0, sizeof(*ret));
    kt_get(t, &ret->n, a.n, 4);
    assert_in_range(ret->n, 1, MANY_ROWS);
    kt_get(t, ret->ids, a.ids, (size_t)ret->n * 4);
    kt_get(t, ret->slot, a.slot, (size_t)ret->n * 4);
    kt_get(t, ret->seq, a.seq, (size_t)ret->n * 4);
    kt_get(t, ret->below, a.below, (size_t)ret->n * 4);
    kt_get(t, ret->last, a.last, spans);
    kt_get(t, ret->last_pos, a.last_pos, spans);
    kt_close(t);
}

static void test_many_spans_are_listed_one_behind_the_other(void **state)
{
    static struct listed want, got;

    (void)state;
    list_many(&kt_ref, &want);
    assert_true(want.n > MANY);
    for (int i = 0; i < kt_n_backends(); i++) {
        list_many(kt_backend(i), &got);
        assert_memory_equal(&got, &want, sizeof(want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept_takes_the_longest_equal_prefix),
        cmocka_unit_test(test_committed_slots_equal_a_teacher_forced_run),
        cmocka_unit_test(test_many_spans_are_listed_one_behind_the_other),
    };

    return test_main(tests, NULL, NULL);
}
