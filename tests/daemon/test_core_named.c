/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Named sessions while they are in memory: pins and who may have how many, the
 * list, the texts, and waiting for one's turn. Over the fake model, which
 * aborts when a slot is read that does not hold what it should.
 */

#include "tests/test.h"

#include "tests/daemon/sessions_rig.h"

/* One owner pins half of what may be pinned. */
static void test_pins_of_one_owner(void **state)
{
    struct answer *a;
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = 16 + 16; /* a long request, and 16 */
    open_rig(&r);
    make(&r, 1, "a", 300, 0, 10); /* 5 pages */
    make(&r, 2, "b", 310, 0, 10);
    assert_true(op_end(&r, 3, SESSION_PIN, "a")->done);
    rig_add(&r, turn(4, "c", 20, 0, 5));
    assert_true(wait_for(&r, 4)->done);
    make(&r, 5, "d", 500, 0, 10); /* 8 */
    a = op_end(&r, 6, SESSION_PIN, "d");
    assert_true(a->failed);
    assert_string_equal(a->code, "no_memory");
    assert_non_null(strstr(a->message, "counted for each, and may pin 8"));
    assert_true(op_end(&r, 7, SESSION_PIN, "c")->done);
    assert_true(op_end(&r, 8, SESSION_UNPIN, "a")->done);
    assert_true(op_end(&r, 9, SESSION_UNPIN, "c")->done);
    assert_true(op_end(&r, 10, SESSION_PIN, "d")->done);
    assert_true(op_end(&r, 11, SESSION_UNPIN, "d")->done);
    rig_finish(&r);
}

/* However many owners pin: one request of max_model_len always fits. And what
 * is pinned is where the next turn takes up, too, whatever comes between. */
static void test_pins_of_many_owners(void **state)
{
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = 16 + 16; /* a long request, and 16 */
    fake.pages[MODEL_SLIDING] = 12;
    open_rig(&r);
    for (uint32_t uid = 0; uid < 3; uid++) { /* 8 pages each */
        struct job *j = turn(1 + uid, "a", 302, 300, 190);

        j->uid = uid;
        rig_add(&r, j);
        assert_true(wait_for(&r, 1 + uid)->done);
        (void)op(&r, 11 + uid, SESSION_PIN, "a", uid);
        assert_int_equal(wait_for(&r, 11 + uid)->failed, uid == 2);
    }
    assert_non_null(
        strstr(answer_of(&r, 13)->message, "24 of 32 pages would be pinned"));
    rig_add(&r, new_job(20, 1023));
    assert_true(wait_for(&r, 20)->done);
    assert_int_equal(go_on(&r, 21, "a", 340, 300)->usage.cached_tokens, 300);
    for (uint32_t uid = 0; uid < 3; uid++) {
        (void)op(&r, 31 + uid, SESSION_DROP, "a", uid);
        assert_true(wait_for(&r, 31 + uid)->done);
    }
    rig_finish(&r);
}

/* A session that grew beyond what may be pinned does not say that it is; it is
 * saved at the end all the same, and pinned again when it fits. */
static void test_pinned_says_what_is_so(void **state)
{
    struct answer *a;
    char file[128];
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    fake.pages[MODEL_FULL] = 16 + 16; /* 8 for one */
    path_of(file, sizeof(file), "a");
    open_rig(&r);
    make(&r, 1, "a", 300, 0, 10);
    a = op_end(&r, 2, SESSION_PIN, "a");
    assert_true(a->session.pinned);
    make(&r, 3, "a", 600, 0, 10);
    a = op_end(&r, 4, SESSION_RESTORE, "a"); /* shows it */
    assert_true(a->done);
    assert_false(a->session.pinned);
    core_save_last(r.core);
    assert_int_equal(access(file, F_OK), 0);
    make(&r, 5, "a", 350, 0, 10);
    assert_true(op_end(&r, 6, SESSION_RESTORE, "a")->session.pinned);
    /* A pin of what is no longer in the cache waits for the next turn. */
    rig_add(&r, other_turn(7, "b", 200, 10));
    assert_true(wait_for(&r, 7)->done);
    for (uint64_t id = 8; id < 10; id++) { /* 16 pages each: all that may be */
        rig_add(&r, new_job(id, 1000));
        assert_true(wait_for(&r, id)->done);
    }
    a = op_end(&r, 10, SESSION_RESTORE, "b");
    assert_int_equal(a->session.cached, 0);
    a = op_end(&r, 11, SESSION_PIN, "b");
    assert_true(a->done);
    assert_false(a->session.pinned);
    assert_true(op_end(&r, 12, SESSION_UNPIN, "a")->done);
    rig_add(&r, other_turn(13, "b", 140, 10));
    assert_true(wait_for(&r, 13)->done);
    assert_true(op_end(&r, 14, SESSION_RESTORE, "b")->session.pinned);
    assert_true(op_end(&r, 16, SESSION_DROP, "a")->done);
    assert_true(op_end(&r, 17, SESSION_DROP, "b")->done);
    rig_finish(&r);
}

/* Each (uid, tenant) has a list of its own. */
static void test_list_is_of_one_owner(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    make(&r, 1, "a", 20, 0, 5);
    for (uint64_t id = 2; id <= 4; id++) {
        struct job *j = job_create(JOB_SESSION);

        j->id = id;
        j->op = SESSION_LIST;
        j->uid = id == 3;
        strcpy(j->tenant, id == 4 ? "ann" : "");
        rig_add(&r, j);
        assert_true(wait_for(&r, id)->done);
        assert_int_equal(answer_of(&r, id)->n_parts, id == 2);
    }
    rig_finish(&r);
}

static struct job *append(uint64_t id, const char *name, size_t n_text)
{
    struct job *j = turn(id, name, 100, 0, 5);

    j->chat = j->append = true;
    j->messages.p = malloc(n_text + 1);
    assert_non_null(j->messages.p);
    memset(j->messages.p, '1', n_text);
    j->messages.p[0] = '[';
    j->messages.p[1] = '1';
    j->messages.p[n_text - 1] = ']';
    j->messages.p[n_text] = '\0';
    j->messages.n = n_text;
    return j;
}

/* Text that no prompt shows any more takes memory, too: what one owner's
 * sessions have of it is bounded, however it came there. */
static void test_texts_of_one_owner(void **state)
{
    struct answer *a;
    struct rig r;
    struct job *j;

    (void)state;
    fake.eos_one_in = 0;
    rig_init(&r);
    configure(&r);
    r.conf.named.text_per_owner = 1000;
    rig_start(&r);
    j = append(1, "a", 400);
    j->append = false;
    rig_add(&r, j);
    assert_true(wait_for(&r, 1)->done);
    rig_add(&r, append(2, "a", 700));
    a = wait_for(&r, 2);
    assert_true(a->failed);
    assert_string_equal(a->code, "too_long"); /* alone it would be */
    assert_non_null(strstr(a->message, "max_session_text_per_owner"));
    j = append(3, "b", 700);
    j->append = false;
    rig_add(&r, j);
    a = wait_for(&r, 3);
    assert_string_equal(a->code, "busy");
    j = append(4, "b", 100);
    j->append = false;
    rig_add(&r, j);
    assert_true(wait_for(&r, 4)->done);
    j = job_create(JOB_SESSION);
    j->id = 5;
    j->op = SESSION_FORK;
    strcpy(j->session, "a");
    strcpy(j->to, "c");
    rig_add(&r, j);
    assert_string_equal(wait_for(&r, 5)->code, "busy");
    assert_true(op_end(&r, 6, SESSION_DROP, "b")->done);
    j = append(7, "a", 300); /* its own old text is no second one */
    rig_add(&r, j);
    assert_true(wait_for(&r, 7)->done);
    j = append(8, "b", 900); /* of somebody else */
    j->append = false;
    j->uid = 1;
    rig_add(&r, j);
    assert_true(wait_for(&r, 8)->done);
    rig_finish(&r);
}

/* Who waits for a session and is cancelled is gone at once. */
static void test_cancelled_while_it_waits_for_a_session(void **state)
{
    struct rig r;

    (void)state;
    fake.eos_one_in = 0;
    open_rig(&r);
    rig_add(&r, turn(1, "a", 100, 0, 50));
    assert_int_equal(turn_once(&r), 1);
    for (uint64_t id = 2; id <= 4; id++) {
        rig_add(&r, turn(id, "a", 120, 0, 5));
    }
    cancel(&r, 4);
    cancel(&r, 2);
    assert_int_equal(r.answer[1].finish, FINISH_CANCELLED);
    assert_int_equal(r.answer[3].finish, FINISH_CANCELLED);
    assert_int_equal(tickets_live(r.tickets), 2);
    rig_add(&r, turn(5, "a", 130, 0, 5)); /* the end of the queue is right */
    assert_true(wait_for(&r, 5)->done);
    assert_true(r.answer[2].done);
    assert_int_equal(r.answer[2].n_ids, 5);
    rig_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_pins_of_one_owner, fresh),
        cmocka_unit_test_setup(test_pins_of_many_owners, fresh),
        cmocka_unit_test_setup(test_pinned_says_what_is_so, fresh),
        cmocka_unit_test_setup(test_list_is_of_one_owner, fresh),
        cmocka_unit_test_setup(test_texts_of_one_owner, fresh),
        cmocka_unit_test_setup(test_cancelled_while_it_waits_for_a_session,
                               fresh),
    };

    return test_main(tests, sessions_setup, sessions_teardown);
}
