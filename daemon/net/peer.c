/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Peers: who connects, by the kernel's word, and what he may do, by the lists
 * of stepd.conf.
 *
 * Owns nothing. I/O thread. The lists hold numbers (conf.c looked the names
 * up), so judging a peer touches no file and asks no directory service. The
 * invariant: a right is a function of uid, groups and configuration alone.
 *
 * uid 65534 is refused whatever the lists say: it is what the kernel shows for
 * every user that does not exist in our user namespace, so it stands for many
 * people and for none.
 */

#include "daemon/net/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/base/conf.h"

int peer_read(int fd, struct peer_ids *ret)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0) {
        return -errno;
    }
    ret->pid = cred.pid;
    ret->uid = cred.uid;
    ret->gid = cred.gid;
    n = sizeof(ret->groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, ret->groups, &n) < 0) {
        /* Only rights are lost by leaving groups out, none are won. */
        if (errno != ENODATA && errno != ENOPROTOOPT && errno != ERANGE) {
            return -errno;
        }
        n = 0;
    }
    ret->n_groups = (int)(n / sizeof(ret->groups[0]));
    return 0;
}

static bool holds(const struct conf_ids *list, uint32_t id)
{
    for (int i = 0; i < list->n; i++) {
        if (list->id[i] == id) {
            return true;
        }
    }
    return false;
}

static bool named(const struct peer_ids *p, const struct conf_ids *users,
                  const struct conf_ids *groups)
{
    if (holds(users, p->uid) || holds(groups, p->gid)) {
        return true;
    }
    for (int i = 0; i < p->n_groups; i++) {
        if (holds(groups, p->groups[i])) {
            return true;
        }
    }
    return false;
}

bool peer_judge(const struct peer_ids *ids, const struct conf *c, uint32_t self,
                struct peer *ret)
{
    bool open = c->allow_users.n == 0 && c->allow_groups.n == 0;
    bool observer;

    memset(ret, 0, sizeof(*ret));
    ret->pid = ids->pid;
    ret->uid = ids->uid;
    ret->gid = ids->gid;
    if (ids->uid == PEER_NOBODY) {
        return false;
    }
    ret->is_admin = ids->uid == 0 || ids->uid == self ||
                    named(ids, &c->admin_users, &c->admin_groups);
    observer = named(ids, &c->observe_users, &c->observe_groups);
    /* Open to all means to all who are not named as observers. */
    ret->may_generate = ret->is_admin || (open && !observer) ||
                        named(ids, &c->allow_users, &c->allow_groups);
    ret->may_observe = ret->may_generate || observer;
    ret->sees_all = ret->is_admin || observer;
    ret->may_delegate = holds(&c->delegate_users, ids->uid);
    return ret->may_generate || ret->may_observe;
}
