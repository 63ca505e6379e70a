/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The prefix index: exact tokens, both groups, checkpoints, domains, eviction;
 * and long random use against a plain list of what was put in.
 */

#include "tests/test.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/sched/prefix.h"

#define PAGE MODEL_PAGE_TOK
#define WINDOW 128

struct rig {
    struct kvpool *pool;
    struct prefix *p;
    struct session_geometry geo;
};

static void rig_init(struct rig *r, int full, int slide, int marks)
{
    const int n[MODEL_N_GROUPS] = {full, slide};

    r->geo = (struct session_geometry){WINDOW, 3, 8192};
    assert_int_equal(kvpool_create(&r->pool, n), 0);
    assert_int_equal(
        prefix_create(&r->p, &(struct prefix_conf){r->pool, r->geo, 8, marks}),
        0);
}

/* Nothing but the index has pages. */
static void rig_finish(struct rig *r)
{
    struct prefix_counts n;

    prefix_counts(r->p, &n);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        assert_int_equal(n.pages[g] + kvpool_free_pages(r->pool, g),
                         kvpool_pages(r->pool, g));
        assert_int_equal(n.evictable[g], n.pages[g]);
    }
    prefix_destroy(r->p);
    kvpool_destroy(r->pool);
}

/* Token i of text t: texts agree in their first `same` tokens. */
static void text(int32_t *ids, int n, int same, int t)
{
    for (int i = 0; i < n; i++) {
        ids[i] = i < same ? i % 97 : 1000 + t * 131 + i % 89;
    }
}

static int no_copy(void *ctx, enum model_group g, int32_t dst, int32_t src)
{
    (void)ctx;
    (void)g;
    (void)dst;
    (void)src;
    return 0;
}

/* Computes the tokens from where the index has them up to n, a page at a time,
 * as core does. Returns where it began. */
static int compute(struct rig *r, uint64_t salt, const int32_t *ids, int n,
                   int r0, struct session **ret)
{
    const void *aux;
    struct session *s;
    int from;

    assert_int_equal(session_create(&s, r->pool, &r->geo, ids, n + 1), 0);
    from = prefix_take(r->p, salt, s, n, true, &aux);
    assert_int_equal(from, s->committed);
    while (s->committed < n) {
        int to = (s->committed / PAGE + 1) * PAGE;

        to = to < n ? to : n;
        for (int g = 0; g < MODEL_N_GROUPS; g++) {
            assert_true(prefix_evict(r->p, g, 3));
        }
        assert_int_equal(session_reserve(s, to, no_copy, NULL), 0);
        if (to % PAGE == 0) {
            assert_int_equal(prefix_put(r->p, salt, s, to, r0), 0);
        }
        session_commit(s, to);
    }
    *ret = s;
    return from;
}

static void end(struct rig *r, uint64_t salt, struct session *s, int r0,
                bool mark)
{
    uint64_t aux = 0x1234567800000000u + (uint64_t)s->committed;

    assert_int_equal(prefix_put(r->p, salt, s, s->committed, r0), 0);
    if (mark) {
        bool ok = prefix_mark(r->p, salt, s->ids, s->committed, &aux);

        /* A run without a pure MTP half does not take the place of a shorter
         * page that has one, and then its window is not whole. */
        assert_true(ok || r0 < 0);
    }
    session_destroy(s);
}

static int run(struct rig *r, uint64_t salt, const int32_t *ids, int n)
{
    struct session *s;
    int from = compute(r, salt, ids, n, 0, &s);

    end(r, salt, s, 0, true);
    return from;
}

static void test_nothing_is_found_in_an_empty_index(void **state)
{
    struct session *s;
    const void *aux;
    int32_t ids[100];
    struct rig r;

    (void)state;
    rig_init(&r, 64, 64, 64);
    text(ids, 100, 100, 0);
    assert_int_equal(prefix_look(r.p, 0, ids, 100, true), 0);
    assert_int_equal(session_create(&s, r.pool, &r.geo, ids, 100), 0);
    assert_int_equal(prefix_take(r.p, 0, s, 99, true, &aux), 0);
    assert_null(aux);
    session_destroy(s);
    rig_finish(&r);
}

static void test_a_checkpoint_gives_its_vectors(void **state)
{
    struct session *s;
    const void *aux;
    int32_t ids[300];
    struct rig r;

    (void)state;
    rig_init(&r, 64, 64, 64);
    text(ids, 300, 300, 0);
    assert_int_equal(run(&r, 0, ids, 200), 0);
    assert_int_equal(session_create(&s, r.pool, &r.geo, ids, 300), 0);
    assert_int_equal(prefix_take(r.p, 0, s, 299, true, &aux), 200);
    assert_non_null(aux);
    assert_int_equal(*(const uint64_t *)aux, 0x1234567800000000u + 200);
    assert_int_equal(s->group[MODEL_FULL].n, 4);
    assert_int_equal(s->group[MODEL_SLIDING].first, (200 - WINDOW + 1) / PAGE);
    assert_int_equal(s->group[MODEL_SLIDING].n, 3);
    session_release(s);
    /* Without drafting they are of no use and not given. */
    assert_int_equal(prefix_take(r.p, 0, s, 299, false, &aux), 200);
    assert_null(aux);
    session_destroy(s);
    rig_finish(&r);
}

static void test_domains_do_not_see_each_other(void **state)
{
    int32_t ids[300];
    struct rig r;

    (void)state;
    rig_init(&r, 64, 64, 64);
    text(ids, 300, 300, 0);
    assert_int_equal(run(&r, 1, ids, 200), 0);
    assert_int_equal(run(&r, 2, ids, 200), 0);
    assert_int_equal(run(&r, 1, ids, 200), 200);
    assert_int_equal(prefix_look(r.p, 3, ids, 300, true), 0);
    rig_finish(&r);
}

static void test_a_page_that_diverges_is_shared_up_to_there(void **state)
{
    int32_t a[300], b[300];
    struct rig r;

    (void)state;
    rig_init(&r, 64, 64, 64);
    text(a, 300, 150, 1);
    text(b, 300, 150, 2);
    assert_int_equal(run(&r, 0, a, 200), 0);
    /* A window that begins at token 0 is there at every length. */
    assert_int_equal(run(&r, 0, b, 200), 150);
    assert_int_equal(run(&r, 0, a, 200), 200);
    assert_int_equal(run(&r, 0, b, 200), 200);
    /* The next tokens differ from both: nothing more than what is common. */
    text(b, 300, 150, 3);
    assert_int_equal(prefix_look(r.p, 0, b, 300, true), 150);
    rig_finish(&r);
}

static void test_a_tail_that_goes_on_is_one_page(void **state)
{
    struct prefix_counts n;
    int32_t ids[300];
    struct rig r;

    (void)state;
    rig_init(&r, 64, 64, 64);
    text(ids, 300, 300, 0);
    for (int len = 1; len <= 64; len += 7) {
        assert_int_equal(run(&r, 0, ids, len), len - 7 > 0 ? len - 7 : 0);
    }
    prefix_counts(r.p, &n);
    assert_int_equal(n.nodes, 1);
    assert_int_equal(n.checkpoints, 10);
    rig_finish(&r);
}

/* Sliding pages out of every window are lost: only a checkpoint is left. */
static void test_behind_the_window_a_checkpoint_is_needed(void **state)
{
    int32_t a[2000], b[2000];
    struct session *s;
    struct rig r;

    (void)state;
    rig_init(&r, 64, 8, 64);
    text(a, 2000, 1000, 1);
    text(b, 2000, 1000, 2);
    assert_int_equal(compute(&r, 0, a, 512, 0, &s), 0);
    end(&r, 0, s, 0, true);
    assert_int_equal(compute(&r, 0, a, 1500, 0, &s), 512);
    end(&r, 0, s, 0, true);
    /* Up to 1000 the tokens are known, but the window before it is gone. */
    assert_int_equal(prefix_look(r.p, 0, b, 1500, true), 512);
    rig_finish(&r);
}

/* Two texts that part within a page, of which the longer has lost its window
 * there: the shorter one's is found, whose tokens are the same so far. */
static void test_a_branch_that_lost_its_window_hides_no_other(void **state)
{
    int32_t a[301], b[61];
    struct session *s;
    struct rig r;

    (void)state;
    rig_init(&r, 64, 8, 64);
    text(a, 301, 43, 1);
    text(b, 61, 43, 2);
    assert_int_equal(compute(&r, 0, a, 300, 0, &s), 0);
    end(&r, 0, s, 0, false);
    assert_true(prefix_evict(r.p, MODEL_SLIDING, 8)); /* all of them */
    assert_int_equal(prefix_look(r.p, 0, a, 300, true), 0);
    assert_int_equal(run(&r, 0, b, 60), 0);
    assert_int_equal(prefix_look(r.p, 0, a, 300, true), 43);
    rig_finish(&r);
}

static void test_pages_of_an_impure_run_have_no_vectors(void **state)
{
    int32_t ids[1000];
    const void *aux;
    struct session *s;
    struct rig r;

    (void)state;
    rig_init(&r, 64, 64, 64);
    text(ids, 1000, 1000, 0);
    assert_int_equal(compute(&r, 0, ids, 200, -1, &s), 0);
    end(&r, 0, s, -1, true);
    assert_int_equal(session_create(&s, r.pool, &r.geo, ids, 1000), 0);
    assert_int_equal(prefix_take(r.p, 0, s, 900, true, &aux), 200);
    assert_null(aux);
    session_destroy(s);
    /* A run from 0 on replaces its sliding pages. */
    assert_int_equal(session_create(&s, r.pool, &r.geo, ids, 201), 0);
    assert_int_equal(session_reserve(s, 200, no_copy, NULL), 0);
    assert_int_equal(prefix_put(r.p, 0, s, 200, 0), 0);
    session_commit(s, 200);
    end(&r, 0, s, 0, true);
    assert_int_equal(session_create(&s, r.pool, &r.geo, ids, 1000), 0);
    assert_int_equal(prefix_take(r.p, 0, s, 900, true, &aux), 200);
    assert_non_null(aux);
    session_destroy(s);
    rig_finish(&r);
}

static void test_a_pin_outlives_any_need(void **state)
{
    int32_t a[600], b[4000];
    struct prefix_pin *pin;
    struct rig r;

    (void)state;
    rig_init(&r, 26, 12, 4);
    text(a, 600, 0, 1);
    assert_int_equal(run(&r, 0, a, 300), 0);
    assert_int_equal(prefix_pin(r.p, 0, a, 299, &pin), 0);
    assert_int_equal(prefix_pin_pages(pin, MODEL_FULL), 5);
    assert_int_equal(prefix_pin_pages(pin, MODEL_SLIDING), 3);
    prefix_unpin(r.p, pin);
    assert_int_equal(prefix_pin(r.p, 0, a, 300, &pin), 0);
    for (int t = 2; t < 30; t++) {
        text(b, 900, 0, t);
        assert_int_equal(run(&r, 0, b, 900), 0);
    }
    assert_int_equal(prefix_look(r.p, 0, a, 600, true), 300);
    assert_false(prefix_evict(r.p, MODEL_FULL, 22));
    assert_int_equal(kvpool_free_pages(r.pool, MODEL_FULL), 21);
    prefix_unpin(r.p, pin);
    assert_true(prefix_evict(r.p, MODEL_FULL, 26));
    assert_int_equal(prefix_look(r.p, 0, a, 600, true), 0);
    assert_int_equal(prefix_pin(r.p, 0, a, 300, &pin), -ENOENT);
    rig_finish(&r);
}

/* fr_57: what one session has left goes as a whole before anything of one that
 * was used later. */
static void test_fr_57_a_pool_larger_than_needed_keeps_every_session(
    void **state)
{
    int32_t ids[900];
    struct rig r;

    (void)state;
    rig_init(&r, 8 * 15 * 2, 8 * 4 * 2, 64);
    for (int round = 0; round < 4; round++) {
        for (int t = 0; t < 8; t++) {
            text(ids, 900, 0, t);
            assert_int_equal(run(&r, 0, ids, 600 + round * 20),
                             round > 0 ? 580 + round * 20 : 0);
        }
    }
    rig_finish(&r);
}

/* Sessions in turn, four times what the pool holds: some of them hit. */
static void test_round_robin_of_four_times_the_pool_still_hits(void **state)
{
    int32_t ids[700];
    struct rig r;
    int hits = 0;

    (void)state;
    rig_init(&r, 42, 24, 64);
    for (int round = 0; round < 6; round++) {
        for (int t = 0; t < 16; t++) {
            text(ids, 700, 0, t);
            hits += run(&r, 0, ids, 640) == 640;
        }
    }
    assert_in_range(hits, 8, 96);
    rig_finish(&r);
}

static void test_only_so_many_checkpoints(void **state)
{
    struct prefix_counts n;
    int32_t ids[200];
    struct rig r;

    (void)state;
    rig_init(&r, 64, 64, 3);
    for (int t = 0; t < 6; t++) {
        text(ids, 200, 0, t);
        (void)run(&r, 0, ids, 130);
    }
    prefix_counts(r.p, &n);
    assert_int_equal(n.checkpoints, 3);
    assert_true(prefix_marked(r.p, 0, ids, 130));
    prefix_unmark(r.p, 0, ids, 130);
    assert_false(prefix_marked(r.p, 0, ids, 130));
    assert_int_equal(prefix_look(r.p, 0, ids, 200, true), 128);
    rig_finish(&r);
}

static unsigned seed = 7;
static int rnd(int n)
{
    seed = seed * 1664525 + 1013904223;
    return (int)(seed >> 8) % n;
}

/* Against a list of every text ever put: what is found is a prefix that was
 * put, no page is lost, and enough can always be evicted. */
static void test_random_use(void **state)
{
    enum { ROUNDS = 1000, LEN = 700 };
    static int32_t put[ROUNDS][LEN];
    static int n_put[ROUNDS];
    struct prefix_pin *pin = NULL;
    struct rig r;

    (void)state;
    rig_init(&r, 60, 30, 16);
    for (int round = 0; round < ROUNDS; round++) {
        static int32_t ids[LEN];
        int n = 1 + rnd(LEN - 2), best = 0, found, k = rnd(round + 1), same;
        int r0_of_pages, r0_of_tail;
        bool mark;
        struct session *s;

        /* some text's beginning, then something of its own, of few kinds */
        same = rnd(n_put[k] + 1);
        text(ids, LEN, 0, rnd(5));
        memcpy(ids, put[k], (size_t)(same < n ? same : n) * sizeof(*ids));
        for (int t = 0; t < round; t++) {
            int i = 0;

            while (i < n && i < n_put[t] && ids[i] == put[t][i]) {
                i++;
            }
            best = i > best ? i : best;
        }
        r0_of_pages = rnd(4) > 0 ? 0 : -1;
        r0_of_tail = rnd(4) > 0 ? 0 : -1;
        mark = rnd(3) > 0;
        found = compute(&r, 0, ids, n, r0_of_pages, &s);
        assert_in_range(found, 0, best);
        end(&r, 0, s, r0_of_tail, mark && found < n);
        memcpy(put[round], ids, sizeof(ids));
        n_put[round] = n;
        if (rnd(50) == 0) {
            prefix_unpin(r.p, pin);
            pin = NULL;
            if (n < 300) {
                (void)prefix_pin(r.p, 0, ids, n, &pin);
            }
        }
        if (rnd(20) == 0) {
            struct prefix_counts c;

            prefix_counts(r.p, &c);
            for (int g = 0; g < MODEL_N_GROUPS; g++) {
                assert_true(prefix_evict(r.p, g,
                                         kvpool_free_pages(r.pool, g) +
                                             rnd(c.evictable[g] + 1)));
                prefix_counts(r.p, &c);
            }
        }
    }
    prefix_unpin(r.p, pin);
    rig_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_found_in_an_empty_index),
        cmocka_unit_test(test_a_checkpoint_gives_its_vectors),
        cmocka_unit_test(test_domains_do_not_see_each_other),
        cmocka_unit_test(test_a_page_that_diverges_is_shared_up_to_there),
        cmocka_unit_test(test_a_tail_that_goes_on_is_one_page),
        cmocka_unit_test(test_behind_the_window_a_checkpoint_is_needed),
        cmocka_unit_test(test_a_branch_that_lost_its_window_hides_no_other),
        cmocka_unit_test(test_pages_of_an_impure_run_have_no_vectors),
        cmocka_unit_test(test_a_pin_outlives_any_need),
        cmocka_unit_test(
            test_fr_57_a_pool_larger_than_needed_keeps_every_session),
        cmocka_unit_test(test_round_robin_of_four_times_the_pool_still_hits),
        cmocka_unit_test(test_only_so_many_checkpoints),
        cmocka_unit_test(test_random_use),
    };

    return test_main(tests, NULL, NULL);
}
