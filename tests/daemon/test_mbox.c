/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * mbox.c: the rules of one box, then many threads on one box (this program is
 * what the TSan pass is for).
 */

#include "daemon/base/mbox.h"

#include <errno.h>
#include <pthread.h>

#include "tests/test.h"

static void test_first_in_first_out_and_full(void **state)
{
    struct mbox *m;
    int item[4];

    (void)state;
    assert_int_equal(mbox_create(&m, 3), 0);
    assert_null(mbox_pop(m));
    assert_int_equal(mbox_push(m, &item[0]), 1); /* was empty: wake */
    assert_int_equal(mbox_push(m, &item[1]), 0);
    assert_int_equal(mbox_push(m, &item[2]), 0);
    assert_int_equal(mbox_push(m, &item[3]), -EAGAIN);
    assert_int_equal(mbox_count(m), 3);
    assert_ptr_equal(mbox_pop(m), &item[0]);
    assert_int_equal(mbox_push(m, &item[3]), 0);
    assert_ptr_equal(mbox_pop(m), &item[1]);
    assert_ptr_equal(mbox_pop_wait(m, -1), &item[2]);
    assert_ptr_equal(mbox_pop_wait(m, 0), &item[3]);
    assert_null(mbox_pop_wait(m, 0));
    assert_int_equal(mbox_push(m, &item[0]), 1);
    assert_ptr_equal(mbox_pop(m), &item[0]);
    mbox_destroy(m);
    mbox_destroy(NULL);
}

static void test_closed_box_takes_nothing_and_gives_the_rest(void **state)
{
    struct mbox *m;
    int item[2];

    (void)state;
    assert_int_equal(mbox_create(&m, 2), 0);
    assert_int_equal(mbox_push(m, &item[0]), 1);
    mbox_close(m);
    assert_int_equal(mbox_push(m, &item[1]), -EPIPE);
    assert_int_equal(mbox_push_wait(m, &item[1]), -EPIPE);
    assert_ptr_equal(mbox_pop_wait(m, -1), &item[0]);
    assert_null(mbox_pop_wait(m, -1));
    assert_null(mbox_pop(m));
    mbox_destroy(m);
}

static void test_wait_ends_with_the_time(void **state)
{
    struct mbox *m;

    (void)state;
    assert_int_equal(mbox_create(&m, 1), 0);
    assert_null(mbox_pop_wait(m, 1));
    mbox_destroy(m);
}

/* ---- threads ------------------------------------------------------------ */

#define N_PUSHERS 4
#define N_POPPERS 3
#define N_ITEMS 5000 /* of each pusher */

struct item {
    int pusher;
    int number;
};

struct shared {
    struct mbox *m;
    struct item items[N_PUSHERS][N_ITEMS];
    unsigned char taken[N_PUSHERS][N_ITEMS];
};

struct worker {
    struct shared *s;
    int id;
    long n;
    int last[N_PUSHERS];
    int out_of_order;
};

static void *pusher(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < N_ITEMS; i++) {
        struct item *it = &w->s->items[w->id][i];

        it->pusher = w->id;
        it->number = i;
        if (mbox_push_wait(w->s->m, it) >= 0) {
            w->n++;
        }
    }
    return NULL;
}

static void *popper(void *arg)
{
    struct worker *w = arg;
    struct item *it;

    for (int i = 0; i < N_PUSHERS; i++) {
        w->last[i] = -1;
    }
    while ((it = mbox_pop_wait(w->s->m, -1)) != NULL) {
        /* What one popper sees of one pusher is in order; no item comes to
         * two poppers (else TSan and the count would tell). */
        w->out_of_order += it->number <= w->last[it->pusher];
        w->last[it->pusher] = it->number;
        w->s->taken[it->pusher][it->number]++;
        w->n++;
    }
    return NULL;
}

static void test_every_item_comes_out_once(void **state)
{
    static struct shared s;
    struct worker push[N_PUSHERS] = {0}, pop[N_POPPERS] = {0};
    pthread_t push_t[N_PUSHERS], pop_t[N_POPPERS];
    long n = 0;

    (void)state;
    assert_int_equal(mbox_create(&s.m, 7), 0); /* often full, often empty */
    for (int i = 0; i < N_POPPERS; i++) {
        pop[i] = (struct worker){.s = &s, .id = i};
        assert_int_equal(pthread_create(&pop_t[i], NULL, popper, &pop[i]), 0);
    }
    for (int i = 0; i < N_PUSHERS; i++) {
        push[i] = (struct worker){.s = &s, .id = i};
        assert_int_equal(pthread_create(&push_t[i], NULL, pusher, &push[i]), 0);
    }
    for (int i = 0; i < N_PUSHERS; i++) {
        pthread_join(push_t[i], NULL);
        assert_int_equal(push[i].n, N_ITEMS);
    }
    mbox_close(s.m); /* wakes all poppers once the rest is out */
    for (int i = 0; i < N_POPPERS; i++) {
        pthread_join(pop_t[i], NULL);
        assert_int_equal(pop[i].out_of_order, 0);
        n += pop[i].n;
    }
    assert_int_equal(n, N_PUSHERS * N_ITEMS);
    for (int i = 0; i < N_PUSHERS; i++) {
        for (int k = 0; k < N_ITEMS; k++) {
            assert_int_equal(s.taken[i][k], 1);
        }
    }
    mbox_destroy(s.m);
}

static void *push_one(void *arg)
{
    struct mbox *m = arg;
    static int item;

    return mbox_push_wait(m, &item) == -EPIPE ? m : NULL;
}

static void test_close_frees_a_waiting_pusher(void **state)
{
    struct mbox *m;
    pthread_t t;
    void *r;
    int item;

    (void)state;
    assert_int_equal(mbox_create(&m, 1), 0);
    assert_int_equal(mbox_push(m, &item), 1);
    assert_int_equal(pthread_create(&t, NULL, push_one, m), 0);
    mbox_close(m); /* before or while it waits: the same end */
    pthread_join(t, &r);
    assert_ptr_equal(r, m);
    mbox_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_in_first_out_and_full),
        cmocka_unit_test(test_closed_box_takes_nothing_and_gives_the_rest),
        cmocka_unit_test(test_wait_ends_with_the_time),
        cmocka_unit_test(test_every_item_comes_out_once),
        cmocka_unit_test(test_close_frees_a_waiting_pusher),
    };

    return test_main(tests, NULL, NULL);
}
