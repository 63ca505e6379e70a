/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * peer.c: who is at the other end, and what the lists let him do.
 */

#include "daemon/net/peer.h"

#include <grp.h>
#include <sys/socket.h>

#include "daemon/base/conf.h"
#include "tests/test.h"

#define SELF 990 /* the daemon's uid */

static struct conf conf;
static uint32_t ids[7][2];

static void list(struct conf_ids *l, int slot, uint32_t id)
{
    ids[slot][0] = id;
    l->id = ids[slot];
    l->n = 1;
}

static int setup(void **state)
{
    (void)state;
    memset(&conf, 0, sizeof(conf));
    return 0;
}

/* What a user of this uid, primary group and one supplementary group may:
 * a string of g(enerate), o(bserve), a(dmin), d(elegate), or "-" for refused.
 */
static const char *rights(uint32_t uid, uint32_t gid, uint32_t group)
{
    static char text[8];
    struct peer_ids p = {.pid = 1, .uid = uid, .gid = gid, .n_groups = 1};
    struct peer peer;

    p.groups[0] = group;
    if (!peer_judge(&p, &conf, SELF, &peer)) {
        assert_false(peer.may_generate || peer.may_observe || peer.is_admin);
        return "-";
    }
    assert_int_equal(peer.uid, uid);
    snprintf(text, sizeof(text), "%s%s%s%s", peer.may_generate ? "g" : "",
             peer.may_observe ? "o" : "", peer.is_admin ? "a" : "",
             peer.may_delegate ? "d" : "");
    return text;
}

static void test_without_lists_whoever_connects_may_generate(void **state)
{
    (void)state;
    assert_string_equal(rights(1000, 1000, 50), "go");
    assert_string_equal(rights(0, 0, 0), "goa");
    assert_string_equal(rights(SELF, 990, 990), "goa");
}

static void test_nobody_is_refused_whatever_the_lists_say(void **state)
{
    (void)state;
    assert_string_equal(rights(65534, 65534, 65534), "-");
    list(&conf.admin_users, 0, 65534);
    list(&conf.allow_groups, 1, 65534);
    assert_string_equal(rights(65534, 65534, 65534), "-");
}

static void fr_78_allow_lists_name_users_and_groups(void **state)
{
    (void)state;
    list(&conf.allow_users, 0, 1000);
    list(&conf.allow_groups, 1, 77);
    assert_string_equal(rights(1000, 1, 2), "go");
    assert_string_equal(rights(1001, 1, 2), "-");
    assert_string_equal(rights(1001, 77, 2), "go"); /* primary group */
    assert_string_equal(rights(1001, 1, 77), "go"); /* supplementary */
    assert_string_equal(rights(77, 1, 2), "-");     /* a uid is no gid */
    assert_string_equal(rights(0, 0, 0), "goa");
    assert_string_equal(rights(SELF, 1, 2), "goa");
}

static void test_observers_only_observe(void **state)
{
    (void)state;
    list(&conf.observe_users, 0, 500);
    list(&conf.observe_groups, 1, 88);
    /* Also where everybody else may generate. */
    assert_string_equal(rights(500, 1, 2), "o");
    assert_string_equal(rights(501, 1, 88), "o");
    assert_string_equal(rights(501, 1, 2), "go");
    /* A right that is given by name stays. */
    list(&conf.allow_users, 2, 500);
    assert_string_equal(rights(500, 1, 2), "go");
    assert_string_equal(rights(501, 1, 88), "o");
    assert_string_equal(rights(501, 1, 2), "-");
}

static void test_admins_may_everything(void **state)
{
    (void)state;
    list(&conf.allow_users, 0, 1000);
    list(&conf.observe_users, 1, 7);
    list(&conf.admin_users, 2, 7);
    list(&conf.admin_groups, 3, 99);
    assert_string_equal(rights(7, 1, 2), "goa");
    assert_string_equal(rights(8, 1, 99), "goa");
    assert_string_equal(rights(9, 1, 2), "-");
}

static void test_delegates_are_named(void **state)
{
    (void)state;
    list(&conf.delegate_users, 0, 33);
    assert_string_equal(rights(33, 1, 2), "god");
    assert_string_equal(rights(0, 0, 0), "goa"); /* not even root */
    /* To delegate is not to generate. */
    list(&conf.allow_users, 1, 1000);
    assert_string_equal(rights(33, 1, 2), "-");
}

/* The kernel's word about ourselves, groups included. */
static void fr_77_peers_are_known_by_the_kernel(void **state)
{
    static gid_t groups[PEER_MAX_GROUPS];
    struct peer_ids p;
    int fds[2], n;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds),
                     0);
    memset(&p, 0xff, sizeof(p));
    assert_int_equal(peer_read(fds[0], &p), 0);
    assert_int_equal(p.pid, getpid());
    assert_int_equal(p.uid, geteuid());
    assert_int_equal(p.gid, getegid());
    n = getgroups(PEER_MAX_GROUPS, groups);
    assert_true(n >= 0);
    assert_int_equal(p.n_groups, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(p.groups[i], groups[i]);
    }
    close(fds[0]);
    close(fds[1]);
    assert_true(peer_read(fds[0], &p) < 0);
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_without_lists_whoever_connects_may_generate),
        CASE(test_nobody_is_refused_whatever_the_lists_say),
        CASE(fr_78_allow_lists_name_users_and_groups),
        CASE(test_observers_only_observe),
        CASE(test_admins_may_everything),
        CASE(test_delegates_are_named),
        CASE(fr_77_peers_are_known_by_the_kernel),
    };

    return test_main(tests, NULL, NULL);
}
