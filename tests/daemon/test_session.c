/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/* A timeline and its pages: what is held at every moment is what the window,
 * the rows in flight and the MTP slots need, no more and no less. */

#include "tests/test.h"

#include <errno.h>
#include <stdbool.h>

#include "daemon/sched/session.h"

#define WINDOW 64
#define LOOKAHEAD 3
#define MAX_LEN 1000

static const struct session_geometry geo = {WINDOW, LOOKAHEAD, MAX_LEN};
static int32_t tokens[MAX_LEN];

static struct kvpool *pool(int full, int sliding)
{
    const int n[MODEL_N_GROUPS] = {full, sliding};
    struct kvpool *p;

    assert_int_equal(kvpool_create(&p, n), 0);
    return p;
}

static struct session *session(struct kvpool *p, int n)
{
    struct session *s;

    assert_int_equal(session_create(&s, p, &geo, tokens, n), 0);
    return s;
}

static bool covers(const struct session *s, enum model_group g, int slot)
{
    const struct session_pages *p = &s->group[g];

    return slot / MODEL_PAGE_TOK >= p->first &&
           slot / MODEL_PAGE_TOK < p->first + p->n;
}

/* Everything that rows committed .. upto-1 read and write is there. */
static void assert_covered(const struct session *s, int upto)
{
    int last =
        upto - 1 + LOOKAHEAD < MAX_LEN ? upto - 1 + LOOKAHEAD : MAX_LEN - 1;

    for (int slot = 0; slot < upto; slot++) {
        assert_true(covers(s, MODEL_FULL, slot));
    }
    for (int slot = s->committed - WINDOW + 1; slot <= last; slot++) {
        assert_true(slot < 0 || covers(s, MODEL_SLIDING, slot));
    }
}

/* And between steps nothing else, in both pools. */
static void assert_exact(const struct session *s, const struct kvpool *p)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int first, end;

        session_span(&s->geo, g, s->committed, s->committed, &first, &end);
        if (s->group[g].n > 0) {
            assert_int_equal(s->group[g].first, first);
        }
        assert_int_equal(s->group[g].n, s->committed == 0 ? 0 : end - first);
        assert_int_equal(kvpool_pages(p, g) - kvpool_free_pages(p, g),
                         s->group[g].n);
        assert_true(s->group[g].n <= session_most(&s->geo, g, s->n_ids));
    }
}

static void test_spans_by_hand(void **state)
{
    int first, end;

    (void)state;
    session_span(&geo, MODEL_FULL, 0, 1, &first, &end);
    assert_true(first == 0 && end == 1);
    session_span(&geo, MODEL_FULL, 100, 128, &first, &end);
    assert_true(first == 0 && end == 2);
    session_span(&geo, MODEL_FULL, 100, 129, &first, &end);
    assert_true(first == 0 && end == 3);
    /* Row 63 sees slots 0 .. 63, row 64 sees 1 .. 64, row 127 64 .. 127. */
    session_span(&geo, MODEL_SLIDING, 64, 65, &first, &end);
    assert_true(first == 0 && end == 2);
    session_span(&geo, MODEL_SLIDING, 126, 127, &first, &end);
    assert_true(first == 0 && end == 3); /* MTP slots 127, 128, 129 */
    session_span(&geo, MODEL_SLIDING, 127, 128, &first, &end);
    assert_true(first == 1 && end == 3);
    /* No slot past the longest sequence. */
    session_span(&geo, MODEL_SLIDING, 958, 960, &first, &end);
    assert_true(first == 13 && end == 16);
    session_span(&geo, MODEL_SLIDING, 999, 1000, &first, &end);
    assert_true(end == 16);
    assert_int_equal(session_most(&geo, MODEL_FULL, MAX_LEN), 16);
    assert_int_equal(session_most(&geo, MODEL_SLIDING, MAX_LEN), 3);
    assert_int_equal(session_most(&geo, MODEL_SLIDING, 10), 1);
}

static void test_no_sliding_layers_no_sliding_pages(void **state)
{
    const struct session_geometry flat = {0, 0, MAX_LEN};
    int first, end;

    (void)state;
    session_span(&flat, MODEL_SLIDING, 500, 600, &first, &end);
    assert_int_equal(end - first, 0);
    assert_int_equal(session_most(&flat, MODEL_SLIDING, MAX_LEN), 0);
}

static void test_pages_follow_rows_of_any_size(void **state)
{
    const int sizes[] = {1, 7, 63, 64, 65, 200, 4};
    struct kvpool *p = pool(16, 8);

    (void)state;
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        struct session *s = session(p, MAX_LEN);

        while (s->committed < MAX_LEN) {
            int upto = s->committed + sizes[k];

            upto = upto < MAX_LEN ? upto : MAX_LEN;
            assert_int_equal(session_reserve(s, upto, NULL, NULL), 0);
            assert_covered(s, upto);
            session_commit(s, upto);
            assert_exact(s, p);
        }
        session_destroy(s);
    }
    kvpool_destroy(p);
}

static void test_rejected_rows_give_their_pages_back(void **state)
{
    struct kvpool *p = pool(16, 8);
    struct session *s = session(p, 128);

    (void)state;
    assert_int_equal(session_reserve(s, 127, NULL, NULL), 0);
    session_commit(s, 127);
    /* A sure row and three drafts, of which none is accepted. */
    assert_int_equal(session_reserve(s, 131, NULL, NULL), 0);
    assert_int_equal(s->group[MODEL_FULL].n, 3);
    session_commit(s, 128);
    assert_exact(s, p);
    assert_int_equal(s->group[MODEL_FULL].n, 2);
    /* The MTP slots 128 .. 130 stay. */
    assert_true(covers(s, MODEL_SLIDING, 130));
    session_destroy(s);
    kvpool_destroy(p);
}

static void test_reserve_takes_all_or_nothing(void **state)
{
    struct kvpool *p = pool(16, 2);
    struct session *s = session(p, 600);

    (void)state;
    assert_int_equal(session_reserve(s, 64, NULL, NULL), 0);
    session_commit(s, 64);
    /* The full group has room, the sliding one has not. */
    assert_int_equal(session_reserve(s, 600, NULL, NULL), -ENOSPC);
    assert_exact(s, p);
    assert_int_equal(session_reserve(s, 100, NULL, NULL), 0);
    session_release(s);
    assert_int_equal(s->committed, 0);
    assert_int_equal(s->n_ids, 600);
    assert_exact(s, p);
    session_destroy(s);
    session_destroy(NULL);
    kvpool_destroy(p);
}

static void test_rewind_within_the_window(void **state)
{
    struct kvpool *p = pool(16, 8);
    struct session *s = session(p, 300);

    (void)state;
    assert_int_equal(session_reserve(s, 300, NULL, NULL), 0);
    session_commit(s, 300);
    /* Slot 237 is the first that is needed: page 3 on. */
    assert_int_equal(s->group[MODEL_SLIDING].first, 3);
    assert_int_equal(session_rewind(s, 260), 0);
    assert_int_equal(s->n_ids, 260);
    assert_int_equal(s->committed, 260);
    assert_exact(s, p);
    /* Row 200 looks at slot 137, which is gone. */
    assert_int_equal(session_rewind(s, 200), -ERANGE);
    assert_int_equal(s->n_ids, 260);
    assert_exact(s, p);
    /* From the beginning is always possible. */
    assert_int_equal(session_rewind(s, 0), 0);
    assert_exact(s, p);
    session_destroy(s);
    kvpool_destroy(p);
}

static int n_copies;
static int on_copy(void *ctx, enum model_group g, int32_t dst, int32_t src)
{
    (void)g;
    assert_ptr_equal(ctx, &n_copies);
    assert_int_not_equal(dst, src);
    n_copies++;
    return 0;
}

static int no_copy(void *ctx, enum model_group g, int32_t dst, int32_t src)
{
    (void)ctx;
    (void)g;
    (void)dst;
    (void)src;
    return -ENOMEM;
}

static void test_shared_page_is_copied_before_it_is_written(void **state)
{
    struct kvpool *p = pool(16, 8);
    struct session *s = session(p, 200);
    int32_t page[2];

    (void)state;
    n_copies = 0;
    assert_int_equal(session_reserve(s, 100, NULL, NULL), 0);
    session_commit(s, 100);
    page[0] = s->group[MODEL_FULL].page[0];
    page[1] = s->group[MODEL_FULL].page[1];
    kvpool_share(p, MODEL_FULL, page[0]);
    kvpool_share(p, MODEL_FULL, page[1]);
    /* It fails, and everything is as before. */
    assert_int_equal(session_reserve(s, 190, no_copy, NULL), -ENOMEM);
    assert_int_equal(s->group[MODEL_FULL].page[1], page[1]);
    assert_int_equal(s->group[MODEL_FULL].n, 2);

    assert_int_equal(session_reserve(s, 101, on_copy, &n_copies), 0);
    assert_int_equal(n_copies, 1);
    /* The first page is only read: still the shared one. */
    assert_int_equal(s->group[MODEL_FULL].page[0], page[0]);
    assert_int_not_equal(s->group[MODEL_FULL].page[1], page[1]);
    assert_int_equal(kvpool_refs(p, MODEL_FULL, page[1]), 1);
    session_commit(s, 101);
    assert_int_equal(session_reserve(s, 102, on_copy, &n_copies), 0);
    assert_int_equal(n_copies, 1);
    session_destroy(s);
    assert_int_equal(kvpool_refs(p, MODEL_FULL, page[0]), 1);
    kvpool_drop(p, MODEL_FULL, page[0]);
    kvpool_drop(p, MODEL_FULL, page[1]);
    kvpool_destroy(p);
}

static void test_tokens_have_room_for_drafts(void **state)
{
    struct kvpool *p = pool(1, 1);
    struct session *s = session(p, 3);

    (void)state;
    for (int32_t i = 0; i < 500; i++) {
        assert_int_equal(session_append(s, &i, 1), 0);
        assert_true(s->cap_ids - s->n_ids >= MODEL_MAX_DRAFTS);
    }
    assert_int_equal(s->n_ids, 503);
    assert_int_equal(s->ids[502], 499);
    session_destroy(s);
    kvpool_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans_by_hand),
        cmocka_unit_test(test_no_sliding_layers_no_sliding_pages),
        cmocka_unit_test(test_pages_follow_rows_of_any_size),
        cmocka_unit_test(test_rejected_rows_give_their_pages_back),
        cmocka_unit_test(test_reserve_takes_all_or_nothing),
        cmocka_unit_test(test_rewind_within_the_window),
        cmocka_unit_test(test_shared_page_is_copied_before_it_is_written),
        cmocka_unit_test(test_tokens_have_room_for_drafts),
    };

    return test_main(tests, NULL, NULL);
}
