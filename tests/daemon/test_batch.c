/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The policy, by numbers: single plans.
 */

#include "tests/daemon/batch_scene.h"

static const struct batch_pick *pick_of(const struct scene *s, int req)
{
    for (int i = 0; i < s->plan->n_picks; i++) {
        if (s->plan->pick[i].req == req) {
            return &s->plan->pick[i];
        }
    }
    return NULL;
}

static int rows_of(const struct scene *s, int req)
{
    const struct batch_pick *p = pick_of(s, req);

    return p == NULL ? 0 : p->n_rows;
}

static void test_nothing_to_do(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_picks, 0);
    add(&s, 10)->paused = true;
    add_decoding(&s, 10)->paused = true;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_picks, 0);
    assert_int_equal(s.plan->n_rows, 0);
    batch_plan_destroy(s.plan);
    batch_plan_destroy(NULL);
}

static void test_everybody_decodes_in_one_step(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    for (int i = 0; i < 16; i++) {
        add_decoding(&s, 20 + i)->n_draft = i % 4;
    }
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_picks, 16);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(pick_of(&s, i)->n_rows, 1);
        assert_int_equal(pick_of(&s, i)->n_draft, i % 4);
    }
    assert_int_equal(s.plan->n_rows, 16 + 4 * 6);
    batch_plan_destroy(s.plan);
}

static void test_prefill_fills_what_decoding_leaves(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    for (int i = 0; i < 10; i++) {
        add_decoding(&s, 20)->owner = 1;
    }
    s.owner[0].served = 1000; /* not owed anything */
    add(&s, 1000);
    batch_plan(&s.a, s.plan);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(rows_of(&s, i), 1);
    }
    /* 246 rows are left of the target; the last page is made whole. */
    assert_int_equal(rows_of(&s, 10), 256);
    assert_true(s.plan->n_rows <= s.a.hard_rows);
    batch_plan_destroy(s.plan);
}

static void test_chunk_ends_at_a_page(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_running(&s, 1000, 10);
    s.a.soft_rows = 100;
    s.a.hard_rows = 200;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0), 118); /* 10 + 118 = 128 */
    /* A whole page does not fit twice the target: just the target. */
    s.a.soft_rows = 5;
    s.a.hard_rows = 10;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0), 5);
    s.a.soft_rows = s.a.hard_rows = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0), 1);
    batch_plan_destroy(s.plan);
}

/* Prompts that keep nobody waiting: BATCH_LONE targets, and whole pages. */
static void test_lone_prompts_take_larger_steps(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    s.a.soft_rows = 45;
    s.a.hard_rows = 90;
    s.a.lone_rows = 180;
    add_running(&s, 512, 0);
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0), 192);
    s.req[0].committed = 192 + 50; /* into a page */
    hold(&s.req[0]);
    batch_plan(&s.a, s.plan);
    assert_int_equal((s.req[0].committed + rows_of(&s, 0)) % MODEL_PAGE_TOK, 0);
    assert_in_range(rows_of(&s, 0), 180, 180 + MODEL_PAGE_TOK);
    /* Two of them share it page by page. */
    add(&s, 512);
    s.req[1].owner = 1;
    s.req[0].committed = 0;
    hold(&s.req[0]);
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0) + rows_of(&s, 1), 192);
    assert_int_equal(rows_of(&s, 0) % MODEL_PAGE_TOK, 0);
    /* Never past what a step can have at all. */
    s.a.max_rows = 100;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_rows, 100);
    s.a.max_rows = 2048;
    /* A machine on which a row takes a target: no whole pages there. */
    s.a.soft_rows = 1;
    s.a.hard_rows = 2;
    s.a.lone_rows = 4;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_rows, 4);
    /* Somebody decodes: as ever. */
    s.a.soft_rows = 45;
    s.a.hard_rows = 90;
    s.a.lone_rows = 180;
    add_decoding(&s, 300);
    batch_plan(&s.a, s.plan);
    assert_in_range(s.plan->n_rows, 2, 90);
    batch_plan_destroy(s.plan);
}

static void test_forced_chunk(void **state)
{
    const int chunk[] = {1, 7, 64, 512};
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 1000);
    add(&s, 5);
    add_running(&s, 900, 300);
    add_decoding(&s, 10);
    s.a.soft_rows = s.a.hard_rows = 1; /* plays no part then */
    for (int i = 0; i < 4; i++) {
        s.a.chunk = chunk[i];
        batch_plan(&s.a, s.plan);
        assert_int_equal(rows_of(&s, 0), chunk[i]);
        assert_int_equal(rows_of(&s, 1), chunk[i] < 5 ? chunk[i] : 5);
        assert_int_equal(rows_of(&s, 2), chunk[i]);
        assert_int_equal(rows_of(&s, 3), 1);
    }
    batch_plan_destroy(s.plan);
}

static void test_max_rows_is_never_passed(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    for (int i = 0; i < 16; i++) {
        add_decoding(&s, 30)->n_draft = 3;
    }
    add(&s, 900);
    s.a.max_rows = 20;
    batch_plan(&s.a, s.plan);
    assert_in_range(s.plan->n_rows, 1, 20);
    s.a.chunk = 512;
    batch_plan(&s.a, s.plan);
    assert_in_range(s.plan->n_rows, 1, 20);
    batch_plan_destroy(s.plan);
}

static void test_decoding_beyond_twice_the_target_takes_turns(void **state)
{
    struct scene s;
    int served[16] = {0};

    (void)state;
    scene_init(&s);
    for (int i = 0; i < 16; i++) {
        add_decoding(&s, 20);
    }
    s.a.soft_rows = 2;
    s.a.hard_rows = 4;
    for (uint64_t step = 1; step <= 8; step++) {
        s.a.step = step;
        batch_plan(&s.a, s.plan);
        assert_int_equal(s.plan->n_rows, 4);
        for (int i = 0; i < s.plan->n_picks; i++) {
            served[s.plan->pick[i].req]++;
            s.req[s.plan->pick[i].req].last_step = step;
        }
    }
    for (int i = 0; i < 16; i++) {
        assert_int_equal(served[i], 2);
    }
    batch_plan_destroy(s.plan);
}

static void test_prefill_gets_its_share_though_decoding_fills_it(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    for (int i = 0; i < 15; i++) {
        add_decoding(&s, 20);
    }
    add(&s, 500);
    s.a.soft_rows = 8;
    s.a.hard_rows = 16;
    batch_plan(&s.a, s.plan);
    assert_true(rows_of(&s, 15) >= 1);
    assert_true(s.plan->n_rows <= 16);
    assert_true(s.plan->n_rows - rows_of(&s, 15) >= 8);
    /* One row is all there is: both go on, in turn. */
    s.a.soft_rows = s.a.hard_rows = 1;
    s.a.step = 0;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 15), 1);
    s.a.step = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 15), 0);
    assert_int_equal(s.plan->n_rows, 1);
    batch_plan_destroy(s.plan);
}

static void test_priority_goes_first(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 900);
    add(&s, 900)->priority = 3;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 1), 256);
    assert_int_equal(rows_of(&s, 0), 0);
    batch_plan_destroy(s.plan);
}

static void test_owners_share_and_arrival_decides_within_one(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 900);
    add(&s, 900);
    add(&s, 900)->owner = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0), 128);
    assert_int_equal(rows_of(&s, 1), 0);
    assert_int_equal(rows_of(&s, 2), 128);
    /* Who has had more waits until the other has caught up. */
    s.owner[0].served = 1000;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 2), 256);
    batch_plan_destroy(s.plan);
}

/* ---- pages --------------------------------------------------------------- */

static void test_latest_gives_way_to_growth(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    for (int i = 0; i < 3; i++) {
        add_decoding(&s, 65); /* row 64 is the first of a new page */
    }
    s.a.free_pages[MODEL_FULL] = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 1);
    assert_true(evicted(&s, 2));
    assert_int_equal(rows_of(&s, 0), 1);
    assert_int_equal(rows_of(&s, 1), 1);
    assert_int_equal(rows_of(&s, 2), 0);

    /* The lowest priority first, and drafts evict nobody. */
    s.req[1].priority = -1;
    for (int i = 0; i < 3; i++) {
        s.req[i].n_draft = 3;
    }
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 1);
    assert_true(evicted(&s, 1));
    assert_int_equal(rows_of(&s, 2), 1);
    batch_plan_destroy(s.plan);
}

static void test_oldest_running_is_never_evicted(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_decoding(&s, 65)->priority = -10;
    add_decoding(&s, 65)->priority = 10;
    s.a.free_pages[MODEL_FULL] = 0;
    batch_plan(&s.a, s.plan);
    assert_false(evicted(&s, 0));
    assert_true(evicted(&s, 1));
    assert_int_equal(rows_of(&s, 0), 1);
    /* A waiting one of high priority cannot push it out either. */
    batch_plan_destroy(s.plan);
    scene_init(&s);
    add_decoding(&s, 65)->priority = -10;
    add(&s, 600)->priority = 10;
    s.a.free_pages[MODEL_FULL] = 3;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 0);
    assert_int_equal(rows_of(&s, 0), 1);
    assert_int_equal(rows_of(&s, 1), 0);
    batch_plan_destroy(s.plan);
}

static void test_who_lacks_pages_keeps_what_he_has(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_decoding(&s, 30); /* needs nothing */
    add_decoding(&s, 65);
    s.a.free_pages[MODEL_FULL] = 0;
    batch_plan(&s.a, s.plan);
    /* The later one may not take from the earlier, and loses nothing itself. */
    assert_int_equal(s.plan->n_evicts, 0);
    assert_int_equal(rows_of(&s, 0), 1);
    assert_int_equal(rows_of(&s, 1), 0);
    batch_plan_destroy(s.plan);
}

static void test_nobody_is_evicted_in_vain(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_decoding(&s, 1000);
    add_decoding(&s, 100)->priority = -1;
    add_decoding(&s, 100)->priority = -1;
    /* Even both together would not make room for it. */
    add(&s, 1000);
    s.a.free_pages[MODEL_FULL] = 2;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 0);
    assert_int_equal(rows_of(&s, 3), 0);
    assert_int_equal(s.plan->n_picks, 3);
    batch_plan_destroy(s.plan);
}

static void test_paused_request_pins_no_pages(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_decoding(&s, 65)->paused = true;
    s.req[0].priority = 10;
    add_decoding(&s, 65)->priority = -10;
    s.a.free_pages[MODEL_FULL] = 0;
    batch_plan(&s.a, s.plan);
    assert_true(evicted(&s, 0));
    assert_int_equal(rows_of(&s, 1), 1);
    /* With pages enough it keeps them. */
    s.a.free_pages[MODEL_FULL] = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 0);
    /* Not only the oldest may take from it, so may anybody who runs. */
    add_decoding(&s, 65)->priority = -10;
    s.a.free_pages[MODEL_FULL] = 1; /* for the oldest */
    batch_plan(&s.a, s.plan);
    assert_true(evicted(&s, 0));
    assert_int_equal(rows_of(&s, 1), 1);
    assert_int_equal(rows_of(&s, 2), 1);
    batch_plan_destroy(s.plan);
}

static void test_newcomers_leave_what_is_promised(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_running(&s, 640, 64); /* will want 9 pages more */
    add(&s, 640)->owner = 1;  /* 10 pages */
    s.a.soft_rows = 128;      /* one piece each */
    s.a.free_pages[MODEL_FULL] = 18;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0), 128);
    assert_int_equal(rows_of(&s, 1), 0);
    s.a.free_pages[MODEL_FULL] = 19;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 0), 64);
    assert_int_equal(rows_of(&s, 1), 64);
    /* A promise ends with the one it was made to. */
    s.req[0].priority = -1;
    s.req[1].priority = 1;
    add_decoding(&s, 30)->arrival = 0; /* the oldest */
    s.req[0].arrival = 5;
    s.a.free_pages[MODEL_FULL] = 10;
    batch_plan(&s.a, s.plan);
    assert_true(evicted(&s, 0));
    assert_true(rows_of(&s, 1) > 0);
    batch_plan_destroy(s.plan);
}

static void test_one_who_was_picked_can_still_be_evicted(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_decoding(&s, 65);
    add_decoding(&s, 65)->owner = 1;
    s.owner[0].served = 100; /* so the other is asked first */
    s.a.free_pages[MODEL_FULL] = 1;
    batch_plan(&s.a, s.plan);
    assert_true(evicted(&s, 1));
    assert_int_equal(rows_of(&s, 0), 1);
    assert_int_equal(rows_of(&s, 1), 0);
    assert_int_equal(s.plan->n_rows, 1);
    batch_plan_destroy(s.plan);
}

static void test_drafts_take_no_pages_from_others(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_decoding(&s, 63)->n_draft = 3; /* rows 62, 63 | 64, 65 */
    add_decoding(&s, 30);
    s.a.free_pages[MODEL_FULL] = 0;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 0);
    assert_int_equal(pick_of(&s, 0)->n_rows, 1);
    assert_int_equal(pick_of(&s, 0)->n_draft, 1);
    s.a.free_pages[MODEL_FULL] = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(pick_of(&s, 0)->n_draft, 3);
    batch_plan_destroy(s.plan);
}

static void test_small_one_does_not_pass_a_big_one_for_pages(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add_decoding(&s, 500);
    add(&s, 900);
    add(&s, 10);
    s.a.free_pages[MODEL_FULL] = 5;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 1), 0);
    assert_int_equal(rows_of(&s, 2), 0);
    /* Unless it has the higher priority. */
    s.req[2].priority = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(rows_of(&s, 2), 10);
    batch_plan_destroy(s.plan);
}

/* ---- seats --------------------------------------------------------------- */

static void test_other_owner_gets_a_seat_from_who_has_many(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    s.a.max_seats = 4;
    for (int i = 0; i < 4; i++) {
        add_decoding(&s, 20);
    }
    add(&s, 30);
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 0); /* its own kind waits */
    s.req[4].owner = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 1);
    assert_true(evicted(&s, 3));
    assert_int_equal(rows_of(&s, 4), 30);
    /* Two and two are even. */
    s.req[2].owner = s.req[3].owner = 1;
    batch_plan(&s.a, s.plan);
    assert_int_equal(s.plan->n_evicts, 0);
    batch_plan_destroy(s.plan);
}

static void test_higher_priority_gets_a_seat(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    s.a.max_seats = 2;
    add_decoding(&s, 20);
    add_decoding(&s, 20);
    add(&s, 30)->priority = 1;
    batch_plan(&s.a, s.plan);
    assert_true(evicted(&s, 1));
    assert_int_equal(rows_of(&s, 2), 30);
    batch_plan_destroy(s.plan);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_everybody_decodes_in_one_step),
        cmocka_unit_test(test_prefill_fills_what_decoding_leaves),
        cmocka_unit_test(test_chunk_ends_at_a_page),
        cmocka_unit_test(test_lone_prompts_take_larger_steps),
        cmocka_unit_test(test_forced_chunk),
        cmocka_unit_test(test_max_rows_is_never_passed),
        cmocka_unit_test(test_decoding_beyond_twice_the_target_takes_turns),
        cmocka_unit_test(test_prefill_gets_its_share_though_decoding_fills_it),
        cmocka_unit_test(test_priority_goes_first),
        cmocka_unit_test(test_owners_share_and_arrival_decides_within_one),
        cmocka_unit_test(test_latest_gives_way_to_growth),
        cmocka_unit_test(test_oldest_running_is_never_evicted),
        cmocka_unit_test(test_who_lacks_pages_keeps_what_he_has),
        cmocka_unit_test(test_nobody_is_evicted_in_vain),
        cmocka_unit_test(test_paused_request_pins_no_pages),
        cmocka_unit_test(test_newcomers_leave_what_is_promised),
        cmocka_unit_test(test_one_who_was_picked_can_still_be_evicted),
        cmocka_unit_test(test_drafts_take_no_pages_from_others),
        cmocka_unit_test(test_small_one_does_not_pass_a_big_one_for_pages),
        cmocka_unit_test(test_other_owner_gets_a_seat_from_who_has_many),
        cmocka_unit_test(test_higher_priority_gets_a_seat),
    };

    return test_main(tests, NULL, NULL);
}
