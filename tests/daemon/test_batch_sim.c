/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The policy in time: rates learnt from steps, and whole lives of requests
 * under a simulated engine that carries out what was planned and checks that
 * pages, seats and rows were really there.
 */

#include "tests/daemon/batch_scene.h"

/* ---- rates --------------------------------------------------------------- */

static void test_rate_finds_base_and_row(void **state)
{
    struct batch_rate r = {0};
    double base, row;

    (void)state;
    for (int i = 0; i < 50; i++) {
        int rows = 1 + i * 7 % 60;

        batch_rate_add(&r, rows, 20 + 0.5 * rows);
    }
    batch_rate_get(&r, &base, &row);
    assert_true(base > 19.9 && base < 20.1);
    assert_true(row > 0.499 && row < 0.501);
    assert_int_equal(batch_rows(&r, 120, 2048), 200);
    assert_int_equal(batch_rows(&r, 120, 100), 100);
    /* Slower than the target even for one row: one row. */
    assert_int_equal(batch_rows(&r, 10, 2048), 1);
}

static void test_rate_of_one_size_is_careful(void **state)
{
    struct batch_rate r = {0};
    double base, row;

    (void)state;
    assert_int_equal(batch_rows(&r, 150, 2048), 64);
    assert_int_equal(batch_rows(&r, 150, 8), 8);
    for (int i = 0; i < 20; i++) {
        batch_rate_add(&r, 1, 50);
    }
    batch_rate_get(&r, &base, &row);
    assert_true(base == 0 && row > 49.9 && row < 50.1);
    assert_int_equal(batch_rows(&r, 150, 2048), 3);
    /* Nonsense (more rows, less time) never gives a free row. */
    batch_rate_add(&r, 100, 1);
    batch_rate_get(&r, &base, &row);
    assert_true(base >= 0 && row > 0);
}

/* ---- a simulated engine -------------------------------------------------- */

struct life {
    int prompt, answer; /* tokens */
    int owner, priority;
    uint64_t born, first, done; /* steps; 0 not yet */
    int drawn;
};

struct sim {
    struct scene s;
    struct life life[MAX_REQ];
    int n_lives, live[MAX_REQ]; /* request -> life */
    uint64_t step;
    int pages[MODEL_N_GROUPS];
    int max_evicts;
    unsigned rng;
    double base_ms, row_ms; /* the machine */
    struct batch_rate rate;
    double target_ms;
    uint64_t steps_over; /* planned past what they may take, by the true rate */
    uint64_t lone_steps; /* of those past twice the target: nobody decoded */
    int most_rows;
};

static unsigned rnd(struct sim *m, unsigned n)
{
    m->rng = m->rng * 1664525 + 1013904223;
    return (m->rng >> 8) % n;
}

static void enter(struct sim *m, int i)
{
    struct batch_req *q = add(&m->s, m->life[i].prompt);

    m->live[m->s.a.n_req - 1] = i;
    q->arrival = (uint64_t)i;
    q->owner = m->life[i].owner;
    q->priority = m->life[i].priority;
    m->life[i].born = m->step;
}

static void release(struct batch_req *q)
{
    q->running = false;
    q->committed = q->n_draft = 0;
    q->held[0] = q->held[1] = 0;
}

static int used(const struct sim *m, enum model_group g)
{
    int n = 0;

    for (int i = 0; i < m->s.a.n_req; i++) {
        n += m->s.req[i].held[g];
    }
    return n;
}

/* One pick: takes its pages, computes, draws. */
static void carry_out(struct sim *m, const struct batch_pick *p)
{
    struct batch_req *q = &m->s.req[p->req];
    struct life *l = &m->life[m->live[p->req]];
    int upto = q->committed + p->n_rows + p->n_draft;
    int accepted;

    q->running = true;
    q->last_step = m->step;
    m->s.owner[q->owner].served += p->n_rows + p->n_draft;
    assert_true(p->n_rows >= 1 && p->n_draft >= 0);
    assert_true(p->n_draft <= q->n_draft);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int first, end;

        session_span(&geo, g, q->committed, upto, &first, &end);
        q->held[g] = q->held[g] > end - first ? q->held[g] : end - first;
    }
    q->committed += p->n_rows;
    assert_true(q->committed <= q->n_tokens);
    assert_true(p->n_draft == 0 || q->committed == q->n_tokens);
    if (q->committed < q->n_tokens) {
        return;
    }
    accepted = p->n_draft == 0 ? 0 : (int)rnd(m, (unsigned)p->n_draft + 1);
    q->committed += accepted;
    q->n_tokens += accepted + 1;
    l->drawn += accepted + 1;
    l->first = l->first == 0 ? m->step : l->first;
}

/* Runs one step; returns how many requests are still alive. */
static int sim_step(struct sim *m)
{
    struct scene *s = &m->s;
    bool decodes = false;
    double ms;

    m->step++;
    s->a.step = m->step;
    s->a.soft_rows = batch_rows(&m->rate, m->target_ms, s->a.max_rows);
    s->a.hard_rows = batch_rows(&m->rate, 2 * m->target_ms, s->a.max_rows);
    s->a.lone_rows =
        batch_rows(&m->rate, BATCH_LONE * m->target_ms, s->a.max_rows);
    for (int i = 0; i < s->a.n_req; i++) {
        struct batch_req *q = &s->req[i];
        const struct life *l = &m->life[m->live[i]];
        int left = l->answer - l->drawn - 1;
        int n =
            q->running && q->n_tokens - q->committed == 1 ? (int)rnd(m, 4) : 0;

        q->n_draft = n < left ? n : left > 0 ? left : 0;
        decodes |= q->running && q->n_tokens - q->committed == 1;
    }
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        s->a.free_pages[g] = m->pages[g] - used(m, g);
    }
    batch_plan(&s->a, s->plan);
    assert_true(s->a.n_req == 0 || s->plan->n_picks > 0);
    assert_true(s->plan->n_rows <=
                (decodes ? s->a.hard_rows : 2 * s->a.lone_rows));
    m->max_evicts =
        s->plan->n_evicts > m->max_evicts ? s->plan->n_evicts : m->max_evicts;
    for (int i = 0; i < s->plan->n_evicts; i++) {
        assert_true(s->req[s->plan->evict[i]].running);
        release(&s->req[s->plan->evict[i]]);
    }
    for (int i = 0; i < s->plan->n_picks; i++) {
        assert_false(evicted(s, s->plan->pick[i].req));
        carry_out(m, &s->plan->pick[i]);
    }
    ms = m->base_ms + m->row_ms * s->plan->n_rows;
    m->steps_over +=
        ms > (decodes ? 2 : 2 * BATCH_LONE) * m->target_ms + 1e-6 * ms &&
        s->plan->n_rows > 1;
    m->lone_steps += !decodes && ms > 2 * m->target_ms;
    m->most_rows =
        s->plan->n_rows > m->most_rows ? s->plan->n_rows : m->most_rows;
    batch_rate_add(&m->rate, s->plan->n_rows, ms);

    int seats = 0;
    for (int i = s->a.n_req - 1; i >= 0; i--) {
        seats += s->req[i].running;
    }
    assert_true(seats <= s->a.max_seats);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        assert_true(used(m, g) <= m->pages[g]);
    }
    for (int i = s->a.n_req - 1; i >= 0; i--) {
        struct life *l = &m->life[m->live[i]];

        if (l->drawn >= l->answer) {
            l->done = m->step;
            s->a.n_req--;
            memmove(&s->req[i], &s->req[i + 1],
                    (size_t)(s->a.n_req - i) * sizeof(s->req[0]));
            memmove(&m->live[i], &m->live[i + 1],
                    (size_t)(s->a.n_req - i) * sizeof(m->live[0]));
        } else if (s->req[i].committed > 0) {
            hold(&s->req[i]);
        }
    }
    return s->a.n_req;
}

static void sim_init(struct sim *m, unsigned seed)
{
    memset(m, 0, sizeof(*m));
    scene_init(&m->s);
    m->rng = seed;
    m->pages[MODEL_FULL] = 1000;
    m->pages[MODEL_SLIDING] = 1000;
    m->base_ms = 10;
    m->row_ms = 1;
    m->target_ms = 150;
}

/* Random lives in pools of all sizes down to one longest request: everything
 * ends, so there is no livelock, and nobody waits for ever. */
static void test_everything_ends_in_the_smallest_pool(void **state)
{
    int evicts = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++) {
        struct sim m;
        int entered = 0;

        sim_init(&m, seed);
        m.pages[MODEL_FULL] =
            session_most(&geo, MODEL_FULL, geo.max_len) + (int)(seed % 4) * 5;
        m.pages[MODEL_SLIDING] =
            session_most(&geo, MODEL_SLIDING, geo.max_len) +
            (int)(seed % 3) * 4;
        m.s.a.max_seats = 1 + (int)(seed % 8);
        m.s.a.chunk = seed % 5 == 0 ? 7 : 0;
        m.n_lives = 40;
        for (int i = 0; i < m.n_lives; i++) {
            struct life *l = &m.life[i];

            l->prompt = 1 + (int)rnd(&m, i % 5 == 0 ? 900 : 200);
            l->answer = 1 + (int)rnd(&m, 100);
            l->owner = (int)rnd(&m, 3);
            l->priority = (int)rnd(&m, 3) - 1;
        }
        do {
            for (unsigned k = rnd(&m, 3); k > 0 && entered < m.n_lives; k--) {
                enter(&m, entered++);
            }
            assert_true(m.step < 20000);
        } while (sim_step(&m) > 0 || entered < m.n_lives);
        evicts += m.max_evicts;
        batch_plan_destroy(m.s.plan);
    }
    assert_true(evicts > 0); /* else the pools were not small */
}

/* uid A has 64 requests in the queue; B's first token comes after at most two
 * more steps than alone. */
static void test_newcomer_is_not_kept_waiting_by_a_crowd(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        uint64_t steps[2];

        for (int crowd = 0; crowd < 2; crowd++) {
            struct sim m;
            int b = 64;

            sim_init(&m, seed);
            m.s.a.max_seats = 8;
            for (int i = 0; i < 64; i++) {
                m.life[i] = (struct life){.prompt = 300, .answer = 400};
            }
            m.life[b] = (struct life){
                .prompt = 20 + (int)seed * 5, .answer = 5, .owner = 1};
            for (int i = 0; crowd && i < 64; i++) {
                enter(&m, i);
            }
            for (unsigned i = 0; crowd && i < 10 + seed * 3; i++) {
                sim_step(&m);
            }
            /* The rate has been learnt in both cases. */
            for (int i = 0; i < 30; i++) {
                batch_rate_add(&m.rate, 1 + i * 5, 10 + 1 + i * 5);
            }
            m.s.owner[1].served = batch_owner_wakes(
                0, m.s.owner[0].served,
                batch_rows(&m.rate, m.target_ms, m.s.a.max_rows));
            enter(&m, b);
            m.life[b].born = m.step;
            while (m.life[b].first == 0) {
                sim_step(&m);
            }
            steps[crowd] = m.life[b].first - m.life[b].born;
            batch_plan_destroy(m.s.plan);
        }
        assert_true(steps[1] <= steps[0] + 2);
    }
}

/* Two owners with endless work get the same number of rows. */
static void test_owners_come_out_even(void **state)
{
    struct sim m;
    int64_t a, b;

    (void)state;
    sim_init(&m, 3);
    m.s.a.max_seats = 40;
    for (int i = 0; i < 40; i++) {
        m.life[i] = (struct life){
            .prompt = i % 2 ? 200 : 900, .answer = 90, .owner = i % 2};
        enter(&m, i);
    }
    for (int i = 0; i < 50; i++) {
        sim_step(&m);
    }
    a = m.s.owner[0].served;
    b = m.s.owner[1].served;
    /* Within a few pages: the unit in which turns are taken. */
    assert_true(a - b < 256 && b - a < 256);
    assert_true(a > 2000);
    batch_plan_destroy(m.s.plan);
}

/* A machine by chance: from one row in two targets to thousands in a tenth. */
static void any_machine(struct sim *m)
{
    m->target_ms = (const double[]){5, 40, 150, 1000}[rnd(m, 4)];
    m->row_ms = m->target_ms / (1 + rnd(m, 1000)) * (1 + rnd(m, 100)) / 50;
    m->base_ms = (double)rnd(m, 100) / 60 * m->target_ms;
}

/* Under any simulated speed: once the rate is known, no step is planned past
 * twice the target while anyone decodes, unless it is one row, drafts and
 * pre-emption included. */
static void test_no_step_is_planned_past_twice_the_target(void **state)
{
    int preempted = 0, shared = 0, lone = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 120; seed++) {
        struct sim m;
        int entered = 0;

        sim_init(&m, seed);
        any_machine(&m);
        m.s.a.max_seats = 1 + (int)rnd(&m, 30);
        m.s.a.max_rows = 1 << rnd(&m, 12);
        if (seed % 3 == 0) {
            m.pages[MODEL_FULL] = 20;
            m.pages[MODEL_SLIDING] = 12;
        }
        for (int i = 1; i <= 30; i++) {
            batch_rate_add(&m.rate, i, m.base_ms + m.row_ms * i);
        }
        for (int i = 0; i < 40; i++) {
            m.life[i] = (struct life){.prompt = 1 + (int)rnd(&m, 900),
                                      .answer = 1 + (int)rnd(&m, 60),
                                      .owner = (int)rnd(&m, 4),
                                      .priority = (int)rnd(&m, 3) - 1};
        }
        do {
            if (entered < 40 && rnd(&m, 3) == 0) {
                enter(&m, entered++);
            }
        } while ((sim_step(&m) > 0 || entered < 40) && m.step < 600);
        assert_int_equal(m.steps_over, 0);
        preempted += m.max_evicts;
        shared += m.most_rows > 1;
        lone += m.lone_steps > 0;
        batch_plan_destroy(m.s.plan);
    }
    assert_true(preempted > 10 && shared > 60 && lone > 10);
}

/* A machine that becomes slower: a few steps are planned too large. */
static void test_a_rate_that_changes_is_followed(void **state)
{
    struct sim m;

    (void)state;
    sim_init(&m, 5);
    for (int i = 0; i < 20; i++) {
        m.life[i] = (struct life){.prompt = 900, .answer = 200};
        enter(&m, i);
    }
    for (int i = 0; i < 60; i++) {
        sim_step(&m);
    }
    assert_int_equal(m.steps_over, 0);
    m.row_ms *= 6;
    m.base_ms *= 3;
    for (int i = 0; i < 200; i++) {
        sim_step(&m);
    }
    /* The first cannot be helped. */
    assert_in_range(m.steps_over, 1, 7);
    batch_plan_destroy(m.s.plan);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_finds_base_and_row),
        cmocka_unit_test(test_rate_of_one_size_is_careful),
        cmocka_unit_test(test_everything_ends_in_the_smallest_pool),
        cmocka_unit_test(test_newcomer_is_not_kept_waiting_by_a_crowd),
        cmocka_unit_test(test_owners_come_out_even),
        cmocka_unit_test(test_no_step_is_planned_past_twice_the_target),
        cmocka_unit_test(test_a_rate_that_changes_is_followed),
    };

    return test_main(tests, NULL, NULL);
}
